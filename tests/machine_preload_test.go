package tests

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"os/exec"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// preloads skips the test if the library to preload has not been built.
func preloads(t *testing.T) {
	t.Helper()
	if !exists(filepath.Join(filepath.Dir(launcher(t)), "..", "lib", "libmockfs.so")) {
		skip(t, "libmockfs.so is not built")
	}
}

// TestMachinePreload: without a namespace, programs that use libc see the same GPUs, and others are refused.
func TestMachinePreload(t *testing.T) {
	preloads(t)
	sees(t, busIDs(t, "h100"), launcher(t), "run", "--preload", "--", tool(t, "lspci"), "-D", "-d", "10de::0302")
	smi := fetched(t, "nvidia-smi-550", "nvidia-smi")
	sees(t, busIDs(t, "h100")[:2], launcher(t), "run", "--preload", "--gpus", "2", "--", smi, "--query-gpu=pci.bus_id", "--format=csv,noheader")
	for program, why := range map[string]string{
		machineProgram(t, "goprog"):                 "is written in Go",
		machineProgram(t, "paths", "-static", "-w"): "is linked statically",
	} {
		out := run(t, nil, launcher(t), "run", "--preload", "--", program)
		assert.Equal(t, 125, out.code)
		assert.Contains(t, out.complains(t), why)
	}
}

// TestMachinePreloadLeavesNothing: the staged tree is removed when the program ends, however it ends.
func TestMachinePreloadLeavesNothing(t *testing.T) {
	preloads(t)
	for _, signal := range []syscall.Signal{0, syscall.SIGTERM, syscall.SIGKILL} {
		cmd := exec.Command(launcher(t), "run", "--preload", "--", "sh", "-c", `echo "$MOCK_PCI_ROOT"; exec sleep 600`)
		if signal == 0 {
			cmd.Args[len(cmd.Args)-1] = `echo "$MOCK_PCI_ROOT"`
		}
		cmd.Env = environ()
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		text := make([]byte, 4096)
		n, err := out.Read(text)
		require.NoError(t, err)
		dir := strings.TrimSpace(string(text[:n]))
		if signal != 0 {
			assert.DirExists(t, dir)
			require.NoError(t, cmd.Process.Signal(signal))
		}
		cmd.Wait()
		require.Eventually(t, func() bool { _, err := os.Stat(dir); return os.IsNotExist(err) }, time.Minute, 10*time.Millisecond)
	}
}

// TestMachinePreloadDaemon: a daemon that outlives the program keeps the tree and a changed profile, even if it closes
// all of its descriptors. They are removed when it ends.
func TestMachinePreloadDaemon(t *testing.T) {
	preloads(t)
	dir := t.TempDir()
	then := `
import os, signal, sys, time
time.sleep(5) # the tree's keeper looks once a second
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
with open(sys.argv[1] + "/new", "w") as f:
    print(os.environ["MOCK_PCI_ROOT"], len(os.listdir("/sys/bus/pci/devices")), open(os.environ["MOCK_NVML_CONFIG"]).read() != "", file=f)
os.rename(sys.argv[1] + "/new", sys.argv[1] + "/out")
signal.sigwait([signal.SIGTERM])
`
	starter := `
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
p = os.fork()
if p == 0:
    os.setsid(); os.closerange(0, 4096)
    signal.sigwait([signal.SIGUSR1])
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[1], sys.argv[2]])
print(p)
`
	out := run(t, nil, launcher(t), "run", "--preload", "--gpus", "2", "--", systemPython(t), "-c", starter, then, dir).succeeds(t)
	pid, err := strconv.Atoi(out.lines()[0])
	require.NoError(t, err)
	defer syscall.Kill(pid, syscall.SIGKILL)
	time.Sleep(5 * time.Second) // reap has checked by then
	require.NoError(t, syscall.Kill(pid, syscall.SIGUSR1))
	var text []byte
	require.Eventually(t, func() bool { text, err = os.ReadFile(filepath.Join(dir, "out")); return err == nil }, time.Minute, 10*time.Millisecond)
	fields := strings.Fields(string(text))
	require.Len(t, fields, 3)
	assert.NotEqual(t, "0", fields[1])
	assert.Equal(t, "True", fields[2])
	assert.DirExists(t, fields[0])
	require.NoError(t, syscall.Kill(pid, syscall.SIGTERM))
	require.Eventually(t, func() bool { _, err := os.Stat(fields[0]); return os.IsNotExist(err) }, time.Minute, 10*time.Millisecond)
}

// TestMachinePreloadFolder: a relative TMPDIR works for programs in another working directory, and the tree in it is
// removed.
func TestMachinePreloadFolder(t *testing.T) {
	preloads(t)
	if os.Geteuid() != 0 {
		skip(t, "only root can take /dev/shm away")
	}
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "rel"), 0o755))
	script := `mount -t tmpfs -o ro none /dev/shm; cd "$0"; TMPDIR=rel exec "$@"`
	out := run(t, nil, "unshare", "-m", "sh", "-c", script, dir, launcher(t), "run", "--preload", "--",
		"sh", "-c", `cd /; ls /sys/bus/pci/devices | wc -l; echo "$MOCK_PCI_ROOT"`).succeeds(t)
	require.Len(t, out.lines(), 2)
	assert.NotEqual(t, "0", out.lines()[0])
	assert.True(t, strings.HasPrefix(out.lines()[1], filepath.Join(dir, "rel")+"/"), out.lines()[1])
	require.Eventually(t, func() bool { _, err := os.Stat(out.lines()[1]); return os.IsNotExist(err) }, time.Minute, 10*time.Millisecond)
}

// TestMachineNoNamespace: if namespaces are not allowed, one line says so, and --namespace fails.
func TestMachineNoNamespace(t *testing.T) {
	preloads(t)
	if os.Geteuid() != 0 {
		skip(t, "only root can take namespaces away")
	}
	deny := withoutNamespaces(t)
	out := run(t, nil, deny[0], append(deny[1:], launcher(t), "run", "--", tool(t, "lspci"), "-D", "-d", "10de::0302")...)
	require.Zero(t, out.code, out.stderr)
	assert.Len(t, out.lines(), 8)
	assert.Regexp(t, `^nvmlfab: a mount namespace: .*; preloading libmockfs\.so instead\n`, out.stderr)
	out = run(t, nil, deny[0], append(deny[1:], launcher(t), "run", "--namespace", "--", "true")...)
	assert.Equal(t, 125, out.code)
	assert.Contains(t, out.complains(t), "a mount namespace: operation not permitted")
}

// withoutNamespaces is a command prefix for a program that may not make namespaces: unshare fails with EPERM, by seccomp.
func withoutNamespaces(t *testing.T) []string {
	return []string{systemPython(t), "-c", `
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, 272), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7fff0000)]
code = b"".join(struct.pack("HBBI", *r) for r in rules)
buffer = ctypes.create_string_buffer(code)
class Prog(ctypes.Structure): _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
prog = Prog(len(rules), ctypes.addressof(buffer))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(prog), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
`}
}
