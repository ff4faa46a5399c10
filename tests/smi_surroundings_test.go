package tests

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// printouts are commands whose output must not depend on the surroundings.
var printouts = [][]string{
	{"-L"}, {}, {"-q"}, {"-q", "-x"}, {"topo", "-m"}, {"dmon", "-c", "1"}, {"pmon", "-c", "1"}, {"nvlink", "-c"},
	{"--query-gpu=timestamp,name,power.draw,clocks.sm,temperature.gpu", "--format=csv"},
}

// TestSMISurroundings: nvidia-smi prints the same in English and German locales, in different time zones, and into a
// pipe and a terminal. Only times of day differ, which it prints in the local time zone.
func TestSMISurroundings(t *testing.T) {
	locale := germany(t)
	zone := "Asia/Tokyo"
	if _, err := os.Stat("/usr/share/zoneinfo/" + zone); err != nil {
		zone = "JST-9"
	}
	times := regexp.MustCompile(`\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}|\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}`)
	for _, driver := range smiDrivers {
		t.Run(fmt.Sprint(driver), func(t *testing.T) {
			t.Parallel()
			m := profiled(t, driver, inhabited)
			for _, args := range printouts {
				here := m.run(t, args...).succeeds(t).stdout
				require.NotEmpty(t, here)

				quoted := "'" + strings.Join(append([]string{m.program}, args...), "' '") + "'"
				env := append(with(library, "NVMLFAB_STATE_DIR="+stateDir(t), "SHELL=/bin/sh"), m.env...)
				env = append(env, "LC_ALL=de_DE.UTF-8", "LOCPATH="+locale, "TZ="+zone, "TERM=xterm-256color")
				there := ends(t, t.TempDir(), env, "script", "-qec", quoted, "/dev/null").succeeds(t).stdout

				there = strings.ReplaceAll(there, "\r\n", "\n") // the terminal's line ends
				assert.Equal(t, times.ReplaceAllString(here, "TIME"), times.ReplaceAllString(there, "TIME"), args)
			}
		})
	}
}

// germany returns a folder with the German locale, which few machines have, for LOCPATH.
func germany(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("localedef", "-c", "--no-archive", "-i", "de_DE", "-f", "UTF-8", filepath.Join(dir, "de_DE.UTF-8")).CombinedOutput()
	if err != nil {
		t.Logf("no German locale, only its name: localedef: %v: %s", err, out)
		return dir
	}
	date := exec.Command("date", "-u", "-d", "2026-12-06", "+%A")
	date.Env = []string{"LC_ALL=de_DE.UTF-8", "LOCPATH=" + dir}
	out, err = date.Output()
	require.NoError(t, err)
	require.Equal(t, "Sonntag\n", string(out))
	return dir
}

var loops = flag.Int("loops", 50, "how often TestSMILeavesNothing runs nvidia-smi")

// TestStateDirectoryIsWatched: the tests that require no files find one in the state directory and one in a shared
// place.
func TestStateDirectoryIsWatched(t *testing.T) {
	dir := t.TempDir()
	require.Empty(t, leftIn(t, dir))
	run(t, []string{"NVMLFAB_STATE_DIR=" + dir}, "sh", "-c", `mkdir "$NVMLFAB_STATE_DIR/caps" && : > "$NVMLFAB_STATE_DIR/state.json"`).succeeds(t)
	assert.Equal(t, []string{"caps", "state.json"}, leftIn(t, dir))

	stray := fmt.Sprintf("/tmp/nvmlfab-core.%d", os.Getpid())
	t.Cleanup(func() { os.Remove(stray) })
	before := ofGroup(t, traced())
	touch := exec.Command("touch", stray)
	touch.SysProcAttr = inTracedGroup()
	require.NoError(t, touch.Run())
	assert.NotContains(t, before, stray)
	assert.Contains(t, ofGroup(t, traced()), stray)
}

// traced is a group by which the files of one program are told from those of others. Only root can start a program with a
// group of its own.
func traced() uint32 {
	if os.Getuid() == 0 {
		return 54321
	}
	return uint32(os.Getgid())
}

// inTracedGroup starts a program with the traced group, and in a process group of its own.
func inTracedGroup() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 {
		attr.Credential = &syscall.Credential{Gid: traced()}
	}
	return attr
}

// TestSMILeavesNothing: however often nvidia-smi runs, it leaves no file and no process. -loops=1000 makes the test
// long.
func TestSMILeavesNothing(t *testing.T) {
	program := fetched(t, "nvidia-smi-550", "nvidia-smi")
	private := map[string]string{} // the program's own folders, in which nothing may appear
	var env []string
	for _, variable := range []string{"NVMLFAB_STATE_DIR", "TMPDIR", "HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "PWD"} {
		private[variable] = t.TempDir()
		env = append(env, variable+"="+private[variable])
	}
	before := ofGroup(t, traced())
	for i := range *loops {
		cmd := exec.Command(program)
		cmd.Dir, cmd.Env = private["PWD"], append(environ(), with(library, env...)...)
		cmd.SysProcAttr = inTracedGroup()
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "run %d: %s", i, out)
		// a process group without processes no longer exists
		require.ErrorIs(t, syscall.Kill(-cmd.Process.Pid, 0), syscall.ESRCH, "run %d left a process", i)
	}
	for variable, dir := range private {
		assert.Empty(t, leftIn(t, dir), variable)
	}
	after := ofGroup(t, traced())
	for path := range before {
		delete(after, path)
	}
	assert.Empty(t, after)
}

// ofGroup are the files of a group in shared places, except those of Go's tests.
func ofGroup(t *testing.T, group uint32) map[string]bool {
	t.Helper()
	tests := regexp.MustCompile(`^Test|^go-|^tmp\.`)
	found := map[string]bool{}
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "/run"} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			info, err := e.Info()
			if err != nil { // somebody else has removed it
				continue
			}
			if info.Sys().(*syscall.Stat_t).Gid == group && !tests.MatchString(e.Name()) {
				found[filepath.Join(dir, e.Name())] = true
			}
		}
	}
	return found
}
