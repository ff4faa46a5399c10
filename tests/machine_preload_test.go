package tests

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"os/exec"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// preloads skips the test where there is no library to preload.
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

// TestMachinePreloadLeavesNothing: the staged tree goes with the program, however that ends.
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

// TestMachineNoNamespace: where namespaces are not allowed, one line says so, and --namespace fails.
func TestMachineNoNamespace(t *testing.T) {
	preloads(t)
	if os.Geteuid() != 0 {
		skip(t, "only root can take namespaces away")
	}
	python := systemPython(t)
	// unshare and clone fail with EPERM, by seccomp.
	deny := []string{python, "-c", `
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
	out := run(t, nil, deny[0], append(deny[1:], launcher(t), "run", "--", tool(t, "lspci"), "-D", "-d", "10de::0302")...)
	require.Zero(t, out.code, out.stderr)
	assert.Len(t, out.lines(), 8)
	assert.Regexp(t, `^nvmlfab: a mount namespace: .*; preloading libmockfs\.so instead\n`, out.stderr)
	out = run(t, nil, deny[0], append(deny[1:], launcher(t), "run", "--namespace", "--", "true")...)
	assert.Equal(t, 125, out.code)
	assert.Contains(t, out.complains(t), "a mount namespace: operation not permitted")
}
