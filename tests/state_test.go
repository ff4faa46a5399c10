package tests

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// watching is a program of testdata/node.c that reads the node once for each line that it is given.
type watching struct {
	t    *testing.T
	in   *os.File
	out  *bufio.Reader
	wait func() error
	err  *strings.Builder
}

// watch starts the program on a state directory.
func watch(t *testing.T, program, dir string, prefix ...string) *watching {
	t.Helper()
	args := append(append([]string{}, prefix...), program, "words", "0")
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append(with(library, "NVMLFAB_STATE_DIR="+dir), environ()...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	in, writer, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdin = in
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.NoError(t, in.Close())
	w := &watching{t, writer, bufio.NewReader(out), cmd.Wait, &complaints}
	t.Cleanup(func() { _ = writer.Close() })
	return w
}

// line is what the program says next.
func (w *watching) line() string {
	w.t.Helper()
	line, err := w.out.ReadString('\n')
	require.NoError(w.t, err, w.err.String())
	return strings.TrimSpace(line)
}

// now is what the node reads now.
func (w *watching) now() string {
	w.t.Helper()
	_, err := w.in.WriteString("\n")
	require.NoError(w.t, err)
	return w.line()
}

// end lets the program end, and returns what it complained of.
func (w *watching) end() string {
	w.t.Helper()
	require.NoError(w.t, w.in.Close())
	require.NoError(w.t, w.wait(), w.err.String())
	return w.err.String()
}

// prepared is a state directory in which a change has been made.
func prepared(t *testing.T, program string) string {
	t.Helper()
	dir := sharedFolder(t)
	out := run(t, with(library, "NVMLFAB_STATE_DIR="+dir), program, "set", "0", "600000")
	require.Equal(t, "Success\n", out.stdout, out.stderr)
	return dir
}

// TestStateDamage: whatever becomes of the files while a program runs, it reads the last good state and says so in one
// line; a writer refuses what it cannot do, and repairs what it can.
func TestStateDamage(t *testing.T) {
	program := compile(t, "node", append(linked(), "-Wno-deprecated-declarations")...)
	for _, c := range []struct {
		name, script string
		lines        int    // what the running program says
		fresh        string // what a program reads that is started after it
		set          string // what the next writer is answered
	}{
		{"state torn", `head -c 100 state.json > x; mv x state.json`, 1, "700000 mW", "Success"},
		{"state empty", `: > state.json`, 1, "700000 mW", "Success"},
		{"state gone", `rm state.json`, 1, "700000 mW", "Success"},
		{"state a folder", `rm state.json; mkdir state.json`, 1, "700000 mW", "Unknown Error"},
		{"state of a newer format", `sed -i s/.format.:1/\"format\":2/ state.json`, 0, "600000 mW", "Not Supported"},
		{"overrides wrong", `echo 'devices: 7' > overrides.yaml`, 1, "", ""},
		{"overrides a pipe", `mkfifo overrides.yaml`, 1, "", ""},
		{"number gone", `rm generation`, 0, "600000 mW", "Success"},
		{"number replaced", `rm generation; head -c 4096 /dev/urandom > generation`, 0, "600000 mW", "Success"},
		{"number short", `rm generation; echo short > generation`, 0, "600000 mW", "Unknown Error"},
		{"number a hole", `rm generation; truncate -s 4096 generation`, 0, "600000 mW", "Success"},
		{"number a link", `mv generation elsewhere; ln -s elsewhere generation`, 0, "600000 mW", ""},
		{"folder gone", `rm -r "$PWD"`, 1, "", ""},
		{"leftover of a killed writer", `echo half > .state.json.new`, 0, "600000 mW", "Success"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := prepared(t, program)
			w := watch(t, program, dir)
			assert.True(t, strings.HasPrefix(w.line(), "600000 mW"))
			damage := exec.Command("sh", "-ec", c.script)
			damage.Dir = dir
			out, err := damage.CombinedOutput()
			require.NoError(t, err, string(out))
			for range 3 {
				time.Sleep(300 * time.Millisecond) // more than a tick
				assert.True(t, strings.HasPrefix(w.now(), "600000 mW"))
			}
			complaints := w.end()
			assert.Equal(t, c.lines, strings.Count(complaints, "\n"), complaints)
			env := with(library, "NVMLFAB_STATE_DIR="+dir)
			if c.fresh != "" {
				now := run(t, env, program, "read", "0").succeeds(t)
				assert.True(t, strings.HasPrefix(now.stdout, c.fresh), now.stdout)
			} else {
				refused := run(t, env, program, "read", "0")
				assert.Equal(t, 1, refused.code, "nvmlInit fails")
				assert.Contains(t, refused.stderr, dir, "one line says why")
			}
			if c.set != "" {
				set := run(t, env, program, "set", "0", "500000")
				assert.Equal(t, c.set+"\n", set.stdout, set.stderr)
				if c.set == "Success" {
					now := run(t, env, program, "read", "0").succeeds(t)
					assert.True(t, strings.HasPrefix(now.stdout, "500000 mW"), now.stdout)
					left, err := filepath.Glob(filepath.Join(dir, ".*"))
					require.NoError(t, err)
					assert.Empty(t, left)
				}
			}
		})
	}
}

// TestStateLimits: a writer that meets a limit or lacks rights says so, answers what NVML has for that, and changes
// nothing; its process goes on.
func TestStateLimits(t *testing.T) {
	if os.Geteuid() != 0 {
		skip(t, "needs root to mount file systems")
	}
	program := compile(t, "node", append(linked(), "-Wno-deprecated-declarations")...)
	for _, c := range []struct {
		name, script, answer, says string
	}{
		{"no size for files", `ulimit -f 0; "$@"`, "Insufficient Resources", "too large"},
		{"a full disk", `mount -t tmpfs -o size=8k none "$D"; head -c 4096 /dev/zero > "$D/filler"; "$@"`, "Insufficient Resources", "no space"},
		{"a read-only folder", `mount --bind -o ro "$D" "$D" 2>/dev/null; mount -o remount,bind,ro "$D"; "$@"`, "Insufficient Permissions", "read-only"},
		{"nobody's mask", `umask 077; "$@"; test "$(stat -c %a "$D/state.json" "$D/generation" "$D/lock")" = "644
644
644"`, "Success", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := sharedFolder(t)
			out := run(t, with(library, "NVMLFAB_STATE_DIR="+dir, "D="+dir), "unshare", "-m", "bash", "-c", c.script, "sh", program, "set", "0", "500000")
			assert.Equal(t, c.answer+"\n", out.stdout, out.stderr)
			assert.Zero(t, out.code, out.stderr)
			if c.says == "" {
				assert.Empty(t, out.stderr)
				return
			}
			assert.Equal(t, 1, strings.Count(out.stderr, "\n"), out.stderr)
			assert.Contains(t, out.stderr, c.says)
			assert.NoFileExists(t, filepath.Join(dir, "state.json"))
		})
	}
	t.Run("a folder of another user", func(t *testing.T) {
		dir := prepared(t, program)
		shared := filepath.Join(sharedFolder(t), "node")
		run(t, nil, "install", "-m", "755", program, shared).succeeds(t)
		program := shared
		env := with(openLibrary(t), "NVMLFAB_STATE_DIR="+dir)
		script := append(nobody(t), "sh", "-c", `"$@"`, "sh", program, "read", "0")
		out := run(t, env, script[0], script[1:]...).succeeds(t)
		assert.True(t, strings.HasPrefix(out.stdout, "600000 mW"), "everybody may read: %s", out.stdout)
		before, err := os.ReadFile(filepath.Join(dir, "state.json"))
		require.NoError(t, err)
		script = append(nobody(t), program, "set", "0", "500000")
		assert.Equal(t, "Insufficient Permissions\n", run(t, env, script[0], script[1:]...).stdout)
		after, err := os.ReadFile(filepath.Join(dir, "state.json"))
		require.NoError(t, err)
		assert.Equal(t, before, after)
	})
}

// TestStateConverges: a hundred running programs read a change at their very next call after it.
func TestStateConverges(t *testing.T) {
	const programs = 100
	command := launcher(t)
	program := compile(t, "node", append(linked(), "-Wno-deprecated-declarations")...)
	dir := prepared(t, program)
	var list []*watching
	for range programs {
		w := watch(t, program, dir)
		require.Contains(t, w.line(), "600000 mW")
		list = append(list, w)
	}
	for _, celsius := range []string{"84", "85", "86"} { // the first time a program reads a change, it maps the code for it
		run(t, []string{"NVMLFAB_STATE_DIR=" + dir}, command, "set", "--gpu", "0", "thermal.temperature_gpu_c="+celsius).succeeds(t)
		began := time.Now()
		for _, w := range list {
			_, err := w.in.WriteString("\n")
			require.NoError(t, err)
		}
		for _, w := range list {
			assert.Equal(t, "600000 mW "+celsius+" C", w.line())
		}
		t.Logf("%d programs had read the change %d ms after the command had ended", programs, time.Since(began).Milliseconds())
	}
	for _, w := range list {
		assert.Empty(t, w.end())
	}
}

// TestStateQuiet: while nothing changes, a program that calls without pause looks at the files at most once in a tick.
func TestStateQuiet(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		skip(t, "strace is not there")
	}
	program := compile(t, "node", append(linked(), "-Wno-deprecated-declarations")...)
	dir := prepared(t, program)
	trace := filepath.Join(t.TempDir(), "trace")
	const seconds = 3
	out := run(t, with(library, "NVMLFAB_STATE_DIR="+dir), "strace", "-f", "-o", trace, "-e", "trace=%file,%desc", program, "calls", "0", fmt.Sprint(seconds)).succeeds(t)
	text, err := os.ReadFile(trace)
	require.NoError(t, err)
	looks := len(regexp.MustCompile(`newfstatat\(\d+, "(generation|overrides\.yaml|state\.json)"`).FindAllString(string(text), -1))
	t.Logf("%s calls, %d looks at files", strings.TrimSpace(out.stdout), looks)
	assert.LessOrEqual(t, looks, 4*(4*seconds+4))
	assert.Positive(t, looks)
}
