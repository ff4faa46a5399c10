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

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// happens changes the node of a state directory, as another process would.
func happens(t *testing.T, dir string, b *profiles.Board, f func(*change.Tx)) {
	t.Helper()
	_, _, err := state.At(dir).Update(func(now *state.State) (*state.State, error) {
		tx := change.Begin(change.Source{Board: b, Overridden: b, State: now}, time.Now().UnixMilli())
		f(tx)
		return tx.Finish()
	})
	require.NoError(t, err)
}

// sendXid lets GPUs have an Xid, and returns when, in ms since 1970.
func sendXid(t *testing.T, dir string, number uint64, gpus ...int) float64 {
	t.Helper()
	b := board(t)
	at := float64(time.Now().UnixMicro()) / 1e3
	happens(t, dir, b, func(tx *change.Tx) {
		for _, i := range gpus {
			tx.Event(i, abi.EventTypeXidCriticalError, number)
		}
	})
	return at
}

// started is a program that says when it is ready.
type started struct {
	*exec.Cmd
	output *bufio.Reader
	stderr *strings.Builder
}

func start(t *testing.T, env []string, name string, args ...string) *started {
	t.Helper()
	s := &started{Cmd: exec.CommandContext(t.Context(), name, args...), stderr: &strings.Builder{}}
	s.Dir, s.Env, s.Stderr = root, append(environ(), env...), s.stderr
	out, err := s.StdoutPipe()
	require.NoError(t, err)
	s.output = bufio.NewReader(out)
	require.NoError(t, s.Start())
	line, _ := s.output.ReadString('\n')
	if line != "ready\n" {
		rest, _ := io.ReadAll(s.output)
		_ = s.Wait()
		require.Equal(t, "ready\n", line, "%s%s", rest, s.stderr)
	}
	return s
}

// finishes returns the lines that a program prints until it ends, and wants it to end well.
func (s *started) finishes(t *testing.T) []string {
	t.Helper()
	rest, err := io.ReadAll(s.output)
	require.NoError(t, err)
	require.NoError(t, s.Wait(), "%s%s", rest, s.stderr)
	require.Empty(t, s.stderr.String())
	return strings.Split(strings.TrimSuffix(string(rest), "\n"), "\n")
}

// eventLine is what the programs of events.c print of an event.
type eventLine struct {
	who                string
	kind, data         uint64
	uuid               string
	gpu, compute       uint32
	received           float64 // in ms since 1970
	text, withoutATime string
}

func eventLines(t *testing.T, lines []string) (list []eventLine) {
	t.Helper()
	for _, line := range lines {
		e := eventLine{text: line}
		_, err := fmt.Sscanf(line, "%s %d %d %s %x %x %f", &e.who, &e.kind, &e.data, &e.uuid, &e.gpu, &e.compute, &e.received)
		require.NoError(t, err, line)
		e.withoutATime = line[:strings.LastIndex(line, " ")]
		list = append(list, e)
	}
	return list
}

// xidLine is what a program prints of an Xid of a whole GPU.
func xidLine(who string, number int, uuid profiles.UUID) string {
	return fmt.Sprintf("%s %d %d %s ffffffff ffffffff", who, abi.EventTypeXidCriticalError, number, uuid)
}

// inState is the environment of a program with a state directory.
func inState(dir string) []string { return with(library, "NVMLFAB_STATE_DIR="+dir) }

// mapped is a state directory whose number programs map from the start.
func mapped(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	sendXid(t, dir, 1, 0)
	return dir
}

// TestCase24EventSetWaitBlocks: nvmlEventSetWait sleeps for the caller's timeout, and does not burn a core. 0 polls, NULL is
// refused, an event that is there comes at once. An event has device, type, data, and no instances.
func TestCase24EventSetWaitBlocks(t *testing.T) {
	program := coreProgram(t, "", "events", linked()...)
	run(t, with(library), program, "arguments").succeeds(t)
	run(t, inState(mapped(t)), program, "arguments").succeeds(t)

	b := board(t)
	out := python(t, library, "pynvml-12", `
from pynvml import *
import time
nvmlInit()
set = nvmlEventSetCreate()
dev = nvmlDeviceGetHandleByIndex(2)
nvmlDeviceRegisterEvents(dev, nvmlDeviceGetSupportedEventTypes(dev), set)
def wait(timeout):
    begin = time.monotonic()
    try:
        nvmlEventSetWait_v2(set, timeout)
        return "an event"
    except NVMLError as error:
        return type(error).__name__ + (" in time" if time.monotonic() - begin >= timeout / 1000 else " too early")
print(wait(0), wait(1200), sep=", ")
nvmlEventSetFree(set)
try:
    nvmlEventSetWait_v2(set, 3600000)
except NVMLError as error:
    print(type(error).__name__)
nvmlShutdown()
`).succeeds(t)
	assert.Equal(t, []string{"NVMLError_Timeout in time, NVMLError_Timeout in time", "NVMLError_InvalidArgument"}, out.lines())

	dir := mapped(t)
	waiter := start(t, inState(dir), program, "follow")
	sendXid(t, dir, 79, 2)
	happens(t, dir, b, func(tx *change.Tx) {
		gi, ci := uint32(3), uint32(1)
		tx.Event(7, abi.EventTypePState, 8) // which nobody has asked for
		tx.Event(7, abi.EventTypeDoubleBitEccError, 5)
		tx.Add(state.Event{Device: tx.UUID(7), Type: abi.EventTypeXidCriticalError, Data: 43, Instance: &gi, Part: &ci})
	})
	var got []string
	for _, e := range eventLines(t, waiter.finishes(t)) {
		got = append(got, e.withoutATime)
	}
	want := []string{xidLine("follow", 79, b.Devices[2].UUID), fmt.Sprintf("follow 2 0 %s ffffffff ffffffff", b.Devices[7].UUID)}
	if os.Geteuid() == 0 {
		want = append(want, fmt.Sprintf("follow 8 43 %s 3 1", b.Devices[7].UUID))
	}
	assert.Equal(t, want, got)

	newest := filepath.Join(t.TempDir(), "profile.yaml") // its driver has the third nvmlEventSetWait
	require.NoError(t, os.WriteFile(newest, []byte("extends: h100\nsystem: {driver_version: \"615.36.01\"}\n"), 0o600))
	waiter = start(t, append(inState(dir), "MOCK_NVML_CONFIG="+newest), program, "third")
	sendXid(t, dir, 62, 4)
	assert.Regexp(t, fmt.Sprintf(`^0 %s 8 62 ffffffff ffffffff \d{16}$`, b.Devices[4].UUID), waiter.finishes(t)[0])
}

// TestCase25NoEvents: a profile can say that a GPU has no events. Its supported types are none, registering answers
// NOT_SUPPORTED, and the set can still be used.
func TestCase25NoEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profile.yaml")
	require.NoError(t, os.WriteFile(path, []byte("extends: h100\ndevices:\n  - {index: 1, events: {supported: false}}\n"), 0o600))
	out := python(t, library, "pynvml-12", `
from pynvml import *
def ask(f, *args):
    try:
        return f(*args)
    except NVMLError as error:
        return type(error).__name__
nvmlInit()
set = nvmlEventSetCreate()
for i in range(2):
    dev = nvmlDeviceGetHandleByIndex(i)
    print(hex(nvmlDeviceGetSupportedEventTypes(dev)), ask(nvmlDeviceRegisterEvents, dev, nvmlEventTypeXidCriticalError, set))
print(ask(nvmlEventSetWait_v2, set, 0))
`, "MOCK_NVML_CONFIG="+path).succeeds(t)
	assert.Equal(t, []string{"0xff9f None", "0x0 NVMLError_NotSupported", "NVMLError_Timeout"}, out.lines())
}

// TestEventsOnAnOlderLibrary: the first nvmlEventSetWait writes the struct that its callers had, without instances.
func TestEventsOnAnOlderLibrary(t *testing.T) {
	dir := mapped(t)
	waiter := start(t, inState(dir), "python3", "-c", fmt.Sprintf(`
import ctypes
nvml = ctypes.CDLL(%q)
def ok(ret):
    assert ret == 0, ret
ok(nvml.nvmlInit_v2())
dev, set = ctypes.c_void_p(), ctypes.c_void_p()
ok(nvml.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(dev)))
ok(nvml.nvmlEventSetCreate(ctypes.byref(set)))
ok(nvml.nvmlDeviceRegisterEvents(dev, ctypes.c_ulonglong(8), set))
print("ready", flush=True)
data = (ctypes.c_ulonglong * 4)(0, 0, 0, 4711)
ok(nvml.nvmlEventSetWait(set, data, 60000))
print(data[0] == dev.value, data[1], data[2], data[3])
`, filepath.Join(library, "libnvidia-ml.so.1")))
	sendXid(t, dir, 48, 1)
	assert.Equal(t, []string{"True 8 48 4711"}, waiter.finishes(t))
}

// TestWaiterCPU: a waiter that nothing happens to needs some milliseconds of CPU in ten seconds. The limit is far above
// that, and far below what a loop without a sleep would use.
func TestWaiterCPU(t *testing.T) {
	program := coreProgram(t, "", "events", linked()...)
	for name, dir := range map[string]string{"without a state": "", "with one": mapped(t)} {
		t.Run(name, func(t *testing.T) {
			env := with(library)
			if dir != "" {
				env = inState(dir)
			}
			cmd := exec.CommandContext(t.Context(), program, "idle", "10000")
			cmd.Env = append(environ(), env...)
			out, err := cmd.Output()
			require.NoError(t, err)
			var waited, used int
			_, err = fmt.Sscanf(string(out), "waited %d ms with %d us of CPU", &waited, &used)
			require.NoError(t, err)
			t.Logf("%.1f ms of CPU in %.1f s", float64(used)/1e3, float64(waited)/1e3)
			assert.GreaterOrEqual(t, waited, 10000)
			assert.Less(t, used, 50000)
		})
	}
}

// TestEventLatency: an event reaches a waiter in another process at once where the number of changes is mapped, and soon
// where it is not. The times are for reading: only a waiter that nothing reaches fails.
func TestEventLatency(t *testing.T) {
	program := coreProgram(t, "", "events", linked()...)
	uuid := board(t).Devices[3].UUID
	one := func(t *testing.T, waiter *started, send func() float64) {
		t.Helper()
		at := send()
		got := eventLines(t, waiter.finishes(t))
		require.Len(t, got, 1)
		assert.Equal(t, xidLine("follow", 79, uuid), got[0].withoutATime)
		t.Logf("%.1f ms after the commit began", got[0].received-at)
	}
	// A shell in a mount namespace of its own, of which the program has the process id.
	within := func(t *testing.T, dir, script string) *started {
		t.Helper()
		namespaces(t)
		if os.Geteuid() != 0 {
			skip(t, "mounting takes root")
		}
		return start(t, inState(dir), "unshare", "--mount", "--propagation", "private", "sh", "-ec",
			script+"\nexec \"$0\" follow", program)
	}

	t.Run("mapped", func(t *testing.T) {
		dir := mapped(t)
		one(t, start(t, inState(dir), program, "follow"), func() float64 { return sendXid(t, dir, 79, 3) })
	})
	t.Run("in a directory without a file", func(t *testing.T) {
		dir := t.TempDir()
		one(t, start(t, inState(dir), program, "follow"), func() float64 { return sendXid(t, dir, 79, 3) })
	})
	t.Run("read-only, in another mount namespace", func(t *testing.T) {
		dir, there := mapped(t), t.TempDir()
		waiter := within(t, there, fmt.Sprintf("mount --bind %s %s; mount -o remount,ro,bind %[2]s; ! touch %[2]s/x 2>/dev/null", dir, there))
		one(t, waiter, func() float64 { return sendXid(t, dir, 79, 3) })
	})
	t.Run("on an overlay", func(t *testing.T) {
		there := t.TempDir()
		waiter := within(t, filepath.Join(there, "merged"), fmt.Sprintf(`cd %s; mount -t tmpfs none .; cd .; cd %[1]s
mkdir low up work merged; mount -t overlay -o lowerdir=low,upperdir=up,workdir=work none merged; cd /`, there))
		dir := fmt.Sprintf("/proc/%d/root%s/merged", waiter.Process.Pid, there)
		one(t, waiter, func() float64 { return sendXid(t, dir, 79, 3) })
	})
	t.Run("with a replaced file", func(t *testing.T) {
		dir := mapped(t)
		waiter := start(t, inState(dir), program, "follow")
		name := filepath.Join(dir, "generation")
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(name+".new", text, 0o644))
		require.NoError(t, os.Rename(name+".new", name))
		one(t, waiter, func() float64 { return sendXid(t, dir, 79, 3) })
	})
	t.Run("of a writer that was killed", func(t *testing.T) {
		dir, elsewhere := mapped(t), t.TempDir()
		waiter := start(t, inState(dir), program, "follow")
		text, err := os.ReadFile(filepath.Join(dir, "state.json"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "state.json"), text, 0o644))
		one(t, waiter, func() float64 { // commits, and does not raise the number
			sendXid(t, elsewhere, 79, 3)
			text, err := os.ReadFile(filepath.Join(elsewhere, "state.json"))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, ".killed"), text, 0o644))
			at := float64(time.Now().UnixMicro()) / 1e3
			require.NoError(t, os.Rename(filepath.Join(dir, ".killed"), filepath.Join(dir, "state.json")))
			return at
		})
	})
}

// TestManyWaiters: of 200 threads with a set each everyone has an event once. Of 200 threads with one set one has it.
func TestManyWaiters(t *testing.T) {
	program := coreProgram(t, "", "events", linked()...)
	for name, want := range map[string]string{"threads": "200 events, then 200 times none", "share": "1 events, then 200 times none"} {
		t.Run(name, func(t *testing.T) {
			dir := mapped(t)
			waiters := start(t, inState(dir), program, name)
			sendXid(t, dir, 79, 5)
			assert.Equal(t, []string{want}, waiters.finishes(t))
		})
	}
	t.Run("processes", func(t *testing.T) {
		dir := mapped(t)
		var waiters []*started
		for range 30 {
			waiters = append(waiters, start(t, inState(dir), program, "follow"))
		}
		at := sendXid(t, dir, 79, 5)
		last := 0.0
		for _, w := range waiters {
			got := eventLines(t, w.finishes(t))
			require.Len(t, got, 1)
			last = max(last, got[0].received)
		}
		t.Logf("the last of %d processes %.1f ms after the commit began", len(waiters), last-at)
	})
}

// TestEventsAfterAFork: parent and child have the registrations, and both get each event.
func TestEventsAfterAFork(t *testing.T) {
	program := coreProgram(t, "", "events", linked()...)
	dir, b := mapped(t), board(t)
	waiters := start(t, inState(dir), program, "fork")
	sendXid(t, dir, 79, 1)
	sendXid(t, dir, 62, 6)
	var got []string
	for _, e := range eventLines(t, waiters.finishes(t)) {
		got = append(got, e.withoutATime)
	}
	var want []string
	for _, who := range []string{"child", "parent"} {
		want = append(want, xidLine(who, 79, b.Devices[1].UUID), xidLine(who, 62, b.Devices[6].UUID))
	}
	assert.ElementsMatch(t, want, got)
}

// TestWhatEndsAWait: another thread's nvmlEventSetFree and nvmlShutdown do, and a signal handler, which may call NVML and
// fork.
func TestWhatEndsAWait(t *testing.T) {
	program := coreProgram(t, "", "events", linked()...)
	for name, env := range map[string][]string{"without a state": with(library), "with one": inState(mapped(t))} {
		t.Run(name, func(t *testing.T) {
			for _, line := range run(t, env, program, "ends").succeeds(t).lines() {
				t.Log(line)
			}
		})
	}
}

// TestSystemEventsCome: a driver that lets a GPU go or takes it is a system event, with the GPU's address.
func TestSystemEventsCome(t *testing.T) {
	program := coreProgram(t, "", "events", linked()...)
	dir, b := mapped(t), board(t)
	waiter := start(t, inState(dir), program, "system")
	var want []string
	for i := range 3 {
		bound := i == 1
		happens(t, dir, b, func(tx *change.Tx) { tx.DriverBound(i, bound) })
		at := b.Devices[i].PCI.BusID.Value
		kind := map[bool]int{false: abi.SystemEventTypeGpuDriverUnbind, true: abi.SystemEventTypeGpuDriverBind}[bound]
		want = append(want, fmt.Sprintf("%d %x", kind, uint32(at.Domain)<<16|uint32(at.Bus)<<8|uint32(at.Device)))
	}
	assert.Equal(t, want, waiter.finishes(t))
}
