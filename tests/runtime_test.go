package tests

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// liveNode is a node that changes while programs run.
type liveNode struct {
	dir string
	env []string
}

func newLiveNode(t *testing.T, env ...string) liveNode {
	t.Helper()
	dir := t.TempDir()
	n := liveNode{dir, append(env, "NVMLFAB_STATE_DIR="+dir)}
	n.nvmlfab(t, "events", "send", "--gpu", "0", "clock") // from the first change on, programs see others at their next call
	return n
}

// nvmlfab changes the node.
func (n liveNode) nvmlfab(t *testing.T, args ...string) {
	t.Helper()
	out := run(t, n.env, launcher(t), args...).succeeds(t)
	require.Empty(t, out.stdout+out.stderr)
}

// session is a Python program that goes on running and answers questions.
type session struct {
	in  io.Writer
	out *bufio.Scanner
}

// session starts Python with NVIDIA's bindings, executes a program, and then evaluates expressions.
func (n liveNode) session(t *testing.T, program string) session {
	t.Helper()
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		skip(t, err.Error())
	}
	cmd := exec.Command(interpreter, "-u", "-c", `
import sys
from pynvml import *
def ask(f, *args, **more):
    try:
        return f(*args, **more)
    except NVMLError as error:
        return type(error).__name__
`+program+`
print("ready")
for line in sys.stdin:
    print(eval(line))
`)
	modules := filepath.Dir(fetched(t, "pynvml-12", "pynvml.py"))
	cmd.Env = append(environ(), with(library, append(n.env, "PYTHONPATH="+modules, "PYTHONDONTWRITEBYTECODE=1")...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		assert.NoError(t, cmd.Wait())
	})
	s := session{in, bufio.NewScanner(out)}
	require.True(t, s.out.Scan(), "it has not begun")
	return s
}

// ask evaluates an expression.
func (s session) ask(t *testing.T, expression string) string {
	t.Helper()
	_, err := fmt.Fprintln(s.in, expression)
	require.NoError(t, err)
	require.True(t, s.out.Scan(), "%s: %v", expression, s.out.Err())
	return s.out.Text()
}

const everyGPU = `
nvmlInit()
dev = [nvmlDeviceGetHandleByIndex(i) for i in range(nvmlDeviceGetCount())]
`

// TestCase10: overrides of memory reach both versions of nvmlDeviceGetMemoryInfo and the BAR1 aperture in a program that
// runs: what nvmlfab sets at its next call, what somebody writes into overrides.yaml within a moment. Memory protected by
// confidential computing stays 0.
func TestCase10(t *testing.T) {
	n := newLiveNode(t)
	s := n.session(t, everyGPU)
	const memory = `[ask(nvmlDeviceGetMemoryInfo, dev[2]).free, ask(nvmlDeviceGetMemoryInfo, dev[2], version=nvmlMemory_v2).used, ask(nvmlDeviceGetBAR1MemoryInfo, dev[2]).bar1Used]`
	free := func(used int64) int64 {
		m := &board(t).Devices[2].Memory
		return int64(m.TotalBytes.Value-m.ReservedBytes.Value) - used
	}
	assert.Equal(t, fmt.Sprintf("[%d, 0, 1048576]", free(0)), s.ask(t, memory))

	n.nvmlfab(t, "set", "--gpu", "2", "memory.used_bytes=4294967296", "bar1_memory.used_bytes=2097152")
	assert.Equal(t, fmt.Sprintf("[%d, 4294967296, 2097152]", free(4<<30)), s.ask(t, memory))
	n.nvmlfab(t, "unset", "--gpu", "2", "memory", "bar1_memory")
	assert.Equal(t, fmt.Sprintf("[%d, 0, 1048576]", free(0)), s.ask(t, memory))

	path := filepath.Join(n.dir, "overrides.yaml")
	require.NoError(t, os.WriteFile(path+".new", []byte("devices: [{index: 2, memory: {used_bytes: 1073741824}, bar1_memory: {used_bytes: 3145728}}]\n"), 0o644))
	require.NoError(t, os.Rename(path+".new", path))
	want := fmt.Sprintf("[%d, 1073741824, 3145728]", free(1<<30))
	require.Eventually(t, func() bool { return s.ask(t, memory) == want }, time.Minute, 10*time.Millisecond)
	smi(t, n.env, "-i", "2", "--query-gpu=memory.used", "--format=csv,noheader").succeeds(t)
	out := smi(t, n.env, "-i", "2", "-q", "-d", "MEMORY").succeeds(t).stdout
	assert.Regexp(t, `(?s)FB Memory Usage.*Used +: 1024 MiB.*BAR1 Memory Usage.*Used +: 3 MiB.*Conf Compute Protected Memory Usage.*Used +: 0 MiB`, out)

	n.nvmlfab(t, "process", "add", "--gpu", "2", "--pid", "4242", "--memory", "1GiB")
	assert.Equal(t, fmt.Sprintf("[%d, 2147483648, 3145728]", free(2<<30)), s.ask(t, memory), "on top of what is given")
}

// TestCase23: a GPU that gets lost does not hide the others, stays lost in the programs that run and in later ones, and the
// Xid arrives as an event and not in the violation status.
func TestCase23(t *testing.T) {
	n := newLiveNode(t)
	s := n.session(t, everyGPU+`
events = nvmlEventSetCreate()
for d in dev:
    nvmlDeviceRegisterEvents(d, nvmlEventTypeXidCriticalError, events)
def wait(ms):
    e = ask(nvmlEventSetWait_v2, events, ms)
    return e if type(e) is str else (e.eventType, e.eventData, nvmlDeviceGetUUID(e.device))
`)
	const temperatures = `[ask(nvmlDeviceGetTemperature, d, NVML_TEMPERATURE_GPU) for d in dev]`
	var all, others []string
	for i, d := range board(t).Devices {
		all = append(all, fmt.Sprint(d.Thermal.TemperatureGPUC.Value))
		others = append(others, all[i])
	}
	others[3] = "'NVMLError_GpuIsLost'"
	list := func(values []string) string { return "[" + strings.Join(values, ", ") + "]" }
	require.Equal(t, list(all), s.ask(t, temperatures))

	n.nvmlfab(t, "fail", "--gpu", "3", "lost")
	for range 3 {
		assert.Equal(t, list(others), s.ask(t, temperatures))
	}
	assert.Equal(t, fmt.Sprintf("(8, 79, '%s')", board(t).Devices[3].UUID), s.ask(t, "wait(60000)"))
	assert.Equal(t, "NVMLError_Timeout", s.ask(t, "wait(0)"), "once")
	assert.Equal(t, "NVMLError_GpuIsLost", s.ask(t, `ask(nvmlDeviceGetViolationStatus, dev[3], NVML_PERF_POLICY_POWER)`))
	assert.Equal(t, "8", s.ask(t, `ask(nvmlDeviceGetCount)`))

	late := n.session(t, "nvmlInit()\n")
	handles := `[type(ask(nvmlDeviceGetHandleByIndex, i)) is str for i in range(8)]`
	assert.Equal(t, "[False, False, False, True, False, False, False, False]", late.ask(t, handles))
	out := smi(t, n.env, "-L")
	assert.Contains(t, out.stdout, "GPU 2: ")
	assert.Contains(t, out.stdout, "gpu 3: GPU is lost.")
	assert.Contains(t, out.stdout, "GPU 4: ")

	events := run(t, n.env, launcher(t), "events", "tail").succeeds(t).lines()
	require.Len(t, events, 2)
	assert.Contains(t, events[1], "GPU 3  xid 79")

	n.nvmlfab(t, "heal")
	assert.Equal(t, list(all), s.ask(t, temperatures))
	assert.Equal(t, "[False, False, False, False, False, False, False, False]", late.ask(t, handles))
}

// TestCase26: nvmlInit can be made to answer what it answers on broken machines, at its next call; programs that have
// started go on; and a device call can answer NOT_READY.
func TestCase26(t *testing.T) {
	n := newLiveNode(t)
	running := n.session(t, everyGPU)
	starting := n.session(t, "")
	for _, c := range []struct {
		kind, exception string
		code            int
		says            string
	}{
		{"lib-rm-version-mismatch", "NVMLError_LibRmVersionMismatch", 18, "Failed to initialize NVML: Driver/library version mismatch"},
		{"driver-not-loaded", "NVMLError_DriverNotLoaded", 9, "couldn't communicate with the NVIDIA driver"},
		{"no-permission", "NVMLError_NoPermission", 4, "Failed to initialize NVML: Insufficient Permissions"},
		{"gpu-not-found", "NVMLError_GpuNotFound", 28, ""},
		{"unknown-error", "NVMLError_Unknown", 255, "Failed to initialize NVML: Unknown Error"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			n.nvmlfab(t, "fail", c.kind)
			assert.Equal(t, c.exception, starting.ask(t, "ask(nvmlInit)"))
			assert.Equal(t, "NVMLError_Uninitialized", starting.ask(t, "ask(nvmlDeviceGetCount)"))
			assert.Equal(t, "8", running.ask(t, "ask(nvmlDeviceGetCount)"), "a program that has started goes on")
			out := smi(t, n.env, "-L")
			assert.Contains(t, out.stdout+out.stderr, c.says)
			assert.NotContains(t, out.stderr, "nvmlfab:", "the answer says it all")
			if c.code != 28 { // nvidia-smi 550 has no words for it
				assert.Equal(t, c.code, out.code)
			}
			n.nvmlfab(t, "heal", c.kind)
			assert.Equal(t, "None", starting.ask(t, "ask(nvmlInit)"))
			assert.Equal(t, "None", starting.ask(t, "ask(nvmlShutdown)"))
		})
	}
	t.Run("a device", func(t *testing.T) {
		n.nvmlfab(t, "fail", "--gpu", "5", "not-ready")
		const names = `[ask(nvmlDeviceGetName, dev[i]) for i in (4, 5)]`
		assert.Equal(t, "['NVIDIA H100 80GB HBM3', 'NVMLError_NotReady']", running.ask(t, names))
		n.nvmlfab(t, "heal", "--gpu", "5", "not-ready")
		assert.Equal(t, "['NVIDIA H100 80GB HBM3', 'NVIDIA H100 80GB HBM3']", running.ask(t, names))
	})
}
