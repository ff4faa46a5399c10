package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nvmlfab/nvmlfab/tests/debian"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// terminal is a shell that somebody types into.
type terminal struct {
	*os.File
	seen strings.Builder
}

// openTerminal starts a shell in a terminal of its own.
func openTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	master := os.NewFile(uintptr(fd), "terminal")
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 250}))
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	require.NoError(t, slave.Close())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = master.Close()
	})
	return &terminal{File: master}
}

// shows waits until a line of the terminal begins with one text and ends with another, and returns what is in between.
func (m *terminal) shows(t *testing.T, begin, end string) string {
	t.Helper()
	for buffer := make([]byte, 4096); ; {
		for line := range strings.SplitSeq(m.seen.String(), "\n") {
			// Shells move the cursor and colour what they print. What a program prints stands in a line of its own.
			if at := strings.LastIndex(line, "\r"+begin); at >= 0 {
				line = line[at+1:]
			}
			if rest, ok := strings.CutPrefix(line, begin); ok {
				if text, _, ok := strings.Cut(rest, end); ok {
					m.seen.Reset()
					return text
				}
			}
		}
		require.NoError(t, m.SetReadDeadline(time.Now().Add(time.Minute)))
		n, err := m.Read(buffer)
		require.NoError(t, err, "%q", m.seen.String())
		m.seen.Write(buffer[:n])
	}
}

func (m *terminal) types(t *testing.T, text string) {
	t.Helper()
	_, err := m.WriteString(text)
	require.NoError(t, err)
}

// TestCompletion: bash, zsh and fish complete commands, flags, GPUs, keys and faults, and files where nothing else can
// stand.
func TestCompletion(t *testing.T) {
	zsh, err := debian.Fetch("zsh")
	require.NoError(t, err)
	fish, err := debian.Fetch("fish")
	require.NoError(t, err)
	modules, err := filepath.Glob(filepath.Join(zsh, "usr/lib/*/zsh/*"))
	require.NoError(t, err)
	require.NotEmpty(t, modules)
	functions := filepath.Join(zsh, "usr/share/zsh/functions")
	for _, shell := range []struct {
		name, program string
		args          []string
		env           string
		setup         string
	}{
		{"bash", "bash", []string{"--norc", "--noprofile", "-i"}, "X=", "bind 'set bell-style none'; source <(nvmlfab completion bash)"},
		{"zsh", filepath.Join(zsh, "bin/zsh"), []string{"-f", "-i"}, "MODULE_PATH=" + modules[0],
			"module_path=(" + modules[0] + "); fpath=(" + functions + "/**/*(/)); setopt no_beep; autoload -U compinit; compinit -D -u; source <(nvmlfab completion zsh)"},
		{"fish", filepath.Join(fish, "usr/bin/fish"), []string{"--no-config"}, "LD_LIBRARY_PATH=" + filepath.Join(fish, "usr/lib/x86_64-linux-gnu"),
			"nvmlfab completion fish | source"},
	} {
		t.Run(shell.name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(home, "mine.yaml"), nil, 0o600))
			cmd := exec.Command(shell.program, shell.args...)
			cmd.Dir = home
			cmd.Env = []string{"HOME=" + home, "TERM=xterm", "LC_ALL=C.UTF-8", "PS1=", "PATH=" + filepath.Dir(launcher(t)) + ":/usr/bin:/bin", shell.env}
			m := openTerminal(t, cmd)
			m.types(t, shell.setup+"\r")
			m.types(t, "echo '<'ready'>'\r")
			m.shows(t, "<ready", ">")
			for typed, want := range map[string]string{
				"nvmlfab fail --gpu 3 fal":           "nvmlfab fail --gpu 3 fallen-off-bus ",
				"nvmlfab pl":                         "nvmlfab play ",
				"nvmlfab status --outp":              "nvmlfab status --output ",
				"nvmlfab status --output=j":          "nvmlfab status --output=json ",
				"nvmlfab set --gpu 0 utilization.gp": "nvmlfab set --gpu 0 utilization.gpu=",
				"nvmlfab play --check mi":            "nvmlfab play --check mine.yaml ",
				"nvmlfab set --gpu=al":               "nvmlfab set --gpu=all ",
			} {
				// After the completion and an X, which shows where the next word would stand, the line becomes an argument
				// of echo.
				m.types(t, typed+"\tX\x01echo '<'\"\x05\"'>'\r")
				assert.Equal(t, want+"X", m.shows(t, "<", ">"), typed)
			}
		})
	}
}
