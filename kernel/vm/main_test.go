//go:build guest

package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestMain is the first process of the virtual machine: it mounts the file systems that programs need, runs the tests,
// and powers off. Its last line on the console is the result.
func TestMain(m *testing.M) {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "these tests load kernel modules: run them in a virtual machine, with go run ./kernel/vm/boot")
		os.Exit(1)
	}
	status := 1
	if err := prepare(); err != nil {
		fmt.Println("nvmlfab guest:", err)
	} else {
		logged := logSince()
		status = m.Run()
		if found := faults(logged()); len(found) > 0 {
			fmt.Printf("nvmlfab guest: the kernel complained:\n%s\n", strings.Join(found, "\n"))
			status = 1
		}
		if found := leaks(); len(found) > 0 {
			fmt.Printf("nvmlfab guest: modules did not free memory:\n%s\n", strings.Join(found, "\n"))
			status = 1
		}
	}
	fmt.Printf("nvmlfab guest: exit %d\n", status)
	os.Stdout.Sync()
	unix.Sync()
	time.Sleep(50 * time.Millisecond)
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}

func prepare() error {
	os.Setenv("PATH", "/bin")
	for _, m := range []struct{ kind, at string }{
		{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/tmp"},
		{"debugfs", "/sys/kernel/debug"}, {"cgroup2", "/sys/fs/cgroup"},
	} {
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if err := os.MkdirAll("/dev/shm", 0o1777); err != nil {
		return err
	}
	return unix.Mount("tmpfs", "/dev/shm", "tmpfs", 0, "")
}

// ---- Modules -------------------------------------------------------------------------------------------------------

// load inserts a module with its parameters and removes it when the test is over.
func load(t *testing.T, name string, parameters ...string) {
	t.Helper()
	logged := logSince()
	err := insert(name, parameters...)
	require.NoError(t, err, "%s %q\n%s", name, parameters, tail(logged(), 5))
	t.Cleanup(func() {
		if loaded(name) {
			unload(t, name)
		}
	})
}

func insert(name string, parameters ...string) error {
	f, err := os.Open("/modules/" + name + ".ko")
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), strings.Join(parameters, " "), 0)
}

// unload removes a module. It tries again, since the kernel releases the descriptors of a process that has just ended a
// little later.
func unload(t *testing.T, name string) {
	t.Helper()
	var err error
	for begun := time.Now(); time.Since(begun) < hangs; time.Sleep(20 * time.Millisecond) {
		if err = unix.DeleteModule(name, unix.O_NONBLOCK); !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
	}
	require.NoError(t, err, "rmmod %s", name)
}

func loaded(name string) bool {
	_, err := os.Stat("/sys/module/" + name + "/refcnt")
	return err == nil
}

// ---- The kernel's log ----------------------------------------------------------------------------------------------

// record is a line of the kernel's log, with its number.
type record struct {
	number uint64
	text   string
}

// readLog returns the lines of the kernel's log from a number on.
func readLog(from uint64) []record {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return []record{{from, "WARNING: no /dev/kmsg: " + err.Error()}}
	}
	defer unix.Close(fd)
	var records []record
	buffer := make([]byte, 8192)
	for {
		n, err := unix.Read(fd, buffer)
		if errors.Is(err, unix.EPIPE) { // overwritten while it was read
			continue
		}
		if err != nil || n == 0 {
			return records
		}
		head, text, _ := strings.Cut(string(buffer[:n]), ";") // priority,number,…
		text, _, _ = strings.Cut(text, "\n")
		number, err := strconv.ParseUint(strings.Split(head, ",")[1], 10, 64)
		if err != nil || number < from {
			continue
		}
		records = append(records, record{number, text})
	}
}

// logSince returns a function that returns the lines logged since.
func logSince() func() []string {
	from := uint64(0)
	if before := readLog(0); len(before) > 0 {
		from = before[len(before)-1].number + 1
	}
	return func() []string {
		var lines []string
		for _, r := range readLog(from) {
			lines = append(lines, r.text)
		}
		return lines
	}
}

// fault matches what a kernel prints when something is wrong. The modules use such words for their own errors too.
var fault = regexp.MustCompile(`\b(BUG|WARNING|Oops|LEAK|Call Trace|refcount_t|INFO: task|rcu: INFO)\b|general protection|[Uu]nable to handle|Poison|Redzone|Object padding|Objects remaining|scheduling while atomic`)

// expected are messages that a test caused on purpose; see expectFault.
var expected []string

func faults(log []string) []string {
	var found []string
	for _, line := range log {
		if fault.MatchString(line) && !matchesAny(line, expected) {
			found = append(found, line)
		}
	}
	return found
}

// expectFault says that a line with this text is not a failure.
func expectFault(text string) { expected = append(expected, text) }

func matchesAny(line string, texts []string) bool {
	for _, t := range texts {
		if strings.Contains(line, t) {
			return true
		}
	}
	return false
}

func tail(lines []string, n int) string { return strings.Join(lines[max(0, len(lines)-n):], "\n") }

// ---- Programs ------------------------------------------------------------------------------------------------------

// outcome is the output of a program and its exit status.
type outcome struct {
	stdout, stderr string
	code           int // -1: by a signal
}

// run starts a program of /bin and waits for its end.
func run(t *testing.T, name string, args ...string) outcome {
	t.Helper()
	return finish(t, exec.CommandContext(t.Context(), filepath.Join("/bin", name), args...))
}

// finish runs a prepared command.
func finish(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// succeeds fails the test unless the program ended with 0.
func (o outcome) succeeds(t *testing.T) outcome {
	t.Helper()
	require.Zero(t, o.code, "%s%s", o.stdout, o.stderr)
	return o
}

// verdicts turns the lines "PASS: …" and "FAIL: …" of a program into subtests. There must be at least a given number of
// them.
func (o outcome) verdicts(t *testing.T, atLeast int) {
	t.Helper()
	n := 0
	for line := range strings.Lines(o.stdout) {
		verdict, what, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || verdict != "PASS" && verdict != "FAIL" {
			continue
		}
		n++
		t.Run(what, func(t *testing.T) { require.Equal(t, "PASS", verdict, "%s%s", o.stdout, o.stderr) })
	}
	require.GreaterOrEqual(t, n, atLeast, "%s%s", o.stdout, o.stderr)
}

// ---- cgroups -------------------------------------------------------------------------------------------------------

// cgroup makes a cgroup below the root or below another one, and removes it at the end of the test. Its id is its
// folder's inode number.
func cgroup(t *testing.T, path string) (dir string, id uint64) {
	t.Helper()
	dir = filepath.Join("/sys/fs/cgroup", path)
	require.NoError(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() {
		var err error
		// its last process may end a little later
		for begun := time.Now(); time.Since(begun) < hangs; time.Sleep(20 * time.Millisecond) {
			if err = os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
				return
			}
		}
		require.NoError(t, err)
	})
	var stat unix.Stat_t
	require.NoError(t, unix.Stat(dir, &stat))
	return dir, stat.Ino
}

// inCgroup makes the command start in the cgroup.
func inCgroup(t *testing.T, cmd *exec.Cmd, dir string) *exec.Cmd {
	t.Helper()
	f, err := os.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(f.Fd())
	return cmd
}
