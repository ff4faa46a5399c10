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

	f, err := os.CreateTemp("/tmp", "nvmlfab-core.")
	require.NoError(t, err)
	t.Cleanup(func() { os.Remove(f.Name()) })
	require.NoError(t, f.Close())
	assert.Contains(t, strays(t), f.Name())
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
	before := strays(t)
	for i := range *loops {
		cmd := exec.Command(program)
		cmd.Dir, cmd.Env = private["PWD"], append(environ(), with(library, env...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "run %d: %s", i, out)
		// a process group without processes no longer exists
		require.ErrorIs(t, syscall.Kill(-cmd.Process.Pid, 0), syscall.ESRCH, "run %d left a process", i)
	}
	for variable, dir := range private {
		assert.Empty(t, leftIn(t, dir), variable)
	}
	after := strays(t)
	for path := range before {
		delete(after, path)
	}
	assert.Empty(t, after)
}

// strays are the files in shared places that could be nvmlfab's by their names.
func strays(t *testing.T) map[string]bool {
	t.Helper()
	ours, tests := regexp.MustCompile(`(?i)nv|cuda|fab|smi|core`), regexp.MustCompile(`^Test|^go-|^tmp\.`)
	found := map[string]bool{}
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "/run"} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if ours.MatchString(e.Name()) && !tests.MatchString(e.Name()) {
				found[filepath.Join(dir, e.Name())] = true
			}
		}
	}
	return found
}
