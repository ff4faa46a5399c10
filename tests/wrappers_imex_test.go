package tests

import (
	"bufio"
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

// made builds a file in dist and returns its path.
func made(t *testing.T, name string) string {
	t.Helper()
	run(t, nil, "make", "--no-print-directory", "-C", root, filepath.Join("dist", name)).succeeds(t)
	return filepath.Join(root, "dist", name)
}

// imex returns the wrapper, the program that replaces NVIDIA's daemon, and the environment that makes the wrapper
// execute it.
func imex(t *testing.T) (wrapper, standin string, env []string) {
	t.Helper()
	wrapper = made(t, "bin/nvidia-imex")
	standin = filepath.Join(t.TempDir(), "nvidia-imex.real")
	run(t, nil, "gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", standin, "tests/testdata/imex/standin.c").succeeds(t)
	return wrapper, standin, []string{"NVMLFAB_IMEX_REAL=" + standin}
}

// namespace skips the test if namespaces are not allowed.
func namespace(t *testing.T, flags ...string) {
	t.Helper()
	if out := run(t, nil, "unshare", append(flags, "true")...); out.code != 0 {
		skip(t, "namespaces take root and its capabilities: "+strings.TrimSpace(out.stderr))
	}
}

// all are the lines that begin with a word, without the word.
func all(lines []string, word string) []string {
	var found []string
	for _, line := range lines {
		if rest, ok := strings.CutPrefix(line, word+" "); ok {
			found = append(found, rest)
		}
	}
	return found
}

func TestImexArguments(t *testing.T) {
	wrapper, standin, env := imex(t)
	for _, c := range []struct{ args, want []string }{
		{nil, []string{"--nogpu"}},
		{[]string{"-c", "/etc/imex.cfg"}, []string{"-c", "/etc/imex.cfg", "--nogpu"}},
		{[]string{"", "a b", "\xff"}, []string{"", "a b", "\xff", "--nogpu"}},
		{[]string{"-nogpu", "-q"}, []string{"-nogpu", "-q"}},
		{[]string{"--nogpu"}, []string{"--nogpu"}},
		{[]string{"-c", "--nogpu"}, []string{"-c", "--nogpu", "--nogpu"}},
		{[]string{"--nogpu=true"}, []string{"--nogpu=true", "--nogpu"}},
		{[]string{"--version"}, []string{"--version", "--nogpu"}},
		{[]string{"--", "--nogpu"}, []string{"--nogpu", "--", "--nogpu"}},
	} {
		out := run(t, env, wrapper, c.args...).succeeds(t)
		assert.Equal(t, append([]string{standin}, c.want...), all(out.lines(), "argument"))
		assert.Empty(t, out.stderr)
	}
}

// TestImexKeeps: the daemon finds the same state as if it had been started itself.
func TestImexKeeps(t *testing.T) {
	wrapper, standin, env := imex(t)
	for _, mode := range []string{"launch", "launch-closed"} {
		t.Run(mode, func(t *testing.T) {
			direct := run(t, env, standin, mode, standin, "--nogpu").succeeds(t)
			wrapped := run(t, env, standin, mode, wrapper).succeeds(t)
			if pids := all(wrapped.lines(), "pid"); assert.Len(t, pids, 2) {
				assert.Equal(t, pids[0], pids[1])
			}
			pid := regexp.MustCompile(`(?m)^pid .*\n`)
			require.Len(t, all(direct.lines(), "descriptor"), map[string]int{"launch": 4, "launch-closed": 2}[mode])
			require.Contains(t, direct.stdout, "environment A=3\n")
			require.Contains(t, direct.stdout, "signal 17 1\n")
			assert.Equal(t, pid.ReplaceAllString(direct.stdout, ""), pid.ReplaceAllString(wrapped.stdout, ""))
			assert.Empty(t, wrapped.stderr)
		})
	}
}

func TestImexStatus(t *testing.T) {
	wrapper, _, env := imex(t)
	assert.Equal(t, 7, run(t, env, wrapper, "exit", "7").code)

	cmd := exec.Command(wrapper, "die", "9")
	cmd.Env = append(environ(), env...)
	require.Error(t, cmd.Run())
	assert.Equal(t, syscall.SIGKILL, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
}

func TestImexInputAndOutput(t *testing.T) {
	wrapper, _, env := imex(t)
	cmd := exec.Command(wrapper, "copy")
	cmd.Env = append(environ(), env...)
	var stdout, stderr strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("line\n"), &stdout, &stderr
	require.NoError(t, cmd.Run())
	assert.True(t, strings.HasSuffix(stdout.String(), "\nline\n"), stdout.String())
	assert.Equal(t, "copied\n", stderr.String())
}

// TestImexSignals: a signal to the wrapper's process reaches the daemon.
func TestImexSignals(t *testing.T) {
	wrapper, _, env := imex(t)
	cmd := exec.Command(wrapper, "wait")
	cmd.Env = append(environ(), env...)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for in := bufio.NewScanner(stdout); in.Scan(); {
		if strings.HasPrefix(in.Text(), "umask") {
			break
		}
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Error(t, cmd.Wait())
	assert.Equal(t, syscall.SIGTERM, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
}

// TestImexFirstProcess: the daemon has process id 1, as in a container, with and without a /proc of its own.
func TestImexFirstProcess(t *testing.T) {
	namespace(t, "--pid", "--fork", "--mount-proc")
	wrapper, standin, env := imex(t)
	for _, proc := range []string{"--mount-proc", "--mount"} {
		out := run(t, env, "unshare", "--pid", "--fork", proc, wrapper, "exit", "9")
		assert.Equal(t, 9, out.code, out.stderr)
		assert.Equal(t, []string{"1"}, all(out.lines(), "pid"))
		assert.Equal(t, []string{standin, "exit", "9", "--nogpu"}, all(out.lines(), "argument"))
		assert.Empty(t, out.stderr)
	}
}

func TestImexFailures(t *testing.T) {
	wrapper, standin, _ := imex(t)
	dir := t.TempDir()
	text, err := os.ReadFile(wrapper)
	require.NoError(t, err)
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		writeProgram(t, path, []byte(content))
		require.NoError(t, os.Chmod(path, mode))
		return path
	}
	link := func(name string, make func(from, to string) error) string {
		path := filepath.Join(dir, name)
		require.NoError(t, make(write("original of "+name, string(text), 0o755), path))
		return path
	}
	copied := write("copy", string(text), 0o755)
	symlink, hardlink, renamed := link("symlink", os.Symlink), link("hardlink", os.Link), link("renamed", os.Rename)
	for name, c := range map[string]struct {
		wrapper, real string
		code          int
		says          string
	}{
		"missing":         {wrapper, filepath.Join(dir, "nothing"), 127, "no such file"},
		"in no folder":    {wrapper, filepath.Join(standin, "x"), 127, "not a directory"},
		"a dangling link": {wrapper, link("dangling", func(_, to string) error { return os.Symlink("nowhere", to) }), 127, "no such file"},
		"a folder":        {wrapper, dir, 126, "is a directory"},
		"no permission":   {wrapper, write("plain", "#!/bin/sh\n", 0o644), 126, "permission denied"},
		"no program":      {wrapper, write("text", "text\n", 0o755), 126, "exec format error"},
		"no interpreter":  {wrapper, write("script", "#!/nowhere\n", 0o755), 126, "interpreter"},
		"itself":          {wrapper, wrapper, 126, "of nvmlfab"},
		"a link to it":    {filepath.Join(dir, "original of symlink"), symlink, 126, "of nvmlfab"},
		"a hard link":     {filepath.Join(dir, "original of hardlink"), hardlink, 126, "of nvmlfab"},
		"renamed":         {renamed, renamed, 126, "of nvmlfab"},
		"a copy":          {wrapper, copied, 126, "of nvmlfab"},
		"another build":   {wrapper, write("build", string(text)+"more", 0o755), 126, "of nvmlfab"},
	} {
		t.Run(name, func(t *testing.T) {
			out := run(t, []string{"NVMLFAB_IMEX_REAL=" + c.real}, c.wrapper)
			assert.Equal(t, c.code, out.code)
			line := out.complains(t)
			assert.Contains(t, line, c.real)
			assert.Contains(t, line, c.says)
			assert.Empty(t, out.stdout)
		})
	}
}

// TestImexDefault: without the variable the wrapper executes NVIDIA's daemon under its new name.
func TestImexDefault(t *testing.T) {
	wrapper, _, _ := imex(t)
	if _, err := os.Lstat("/usr/bin/nvidia-imex.real"); err == nil {
		skip(t, "there is a /usr/bin/nvidia-imex.real here")
	}
	for _, env := range [][]string{nil, {"NVMLFAB_IMEX_REAL="}} {
		out := run(t, env, wrapper)
		assert.Equal(t, 127, out.code)
		assert.Contains(t, out.complains(t), "/usr/bin/nvidia-imex.real")
	}
}
