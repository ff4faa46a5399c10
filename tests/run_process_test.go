package tests

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// realProcess starts a program that is on GPUs' lists, and waits until it runs.
func realProcess(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	command := append(args[:len(args):len(args)], "--", "sh", "-c", "echo; exec sleep 3600")
	cmd := exec.Command(launcher(t), append([]string{"run"}, command...)...)
	cmd.Env = environ()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	_, err = out.Read(make([]byte, 1))
	require.NoError(t, err, "%s", cmd)
	return cmd
}

// seenBySMI is what nvidia-smi says of the processes, each as GPU's serial number, pid, name and MiB, and of the first GPU:
// MiB and percent.
func seenBySMI(t *testing.T, prefix []string, state ...string) (apps []string, gpu string) {
	t.Helper()
	smi := copied(t, fetched(t, "nvidia-smi-550", "nvidia-smi"))
	ask := func(query string) outcome {
		command := append(append([]string{launcher(t), "run"}, state...), "--")
		command = append(append(command, prefix...), smi, query, "--format=csv,noheader,nounits")
		return run(t, nil, command[0], command[1:]...).succeeds(t)
	}
	for _, line := range ask("--query-compute-apps=pid,name,used_memory").lines() {
		if line != "" {
			apps = append(apps, line)
		}
	}
	return apps, ask("--query-gpu=memory.used,utilization.gpu").lines()[0]
}

// TestRunProcess: a program that nvmlfab run puts on a GPU's list is there for as long as it lives, whatever ends it; its
// memory, its use of the GPU and its accounting follow.
func TestRunProcess(t *testing.T) {
	namespaces(t)
	dir := filepath.Join(sharedFolder(t), "state")
	node := []string{"--profile", "t4", "--gpus", "2", "--state", dir}
	set := func(args ...string) {
		profile := filepath.Join(t.TempDir(), "two.yaml")
		require.NoError(t, os.WriteFile(profile, []byte("extends: t4\ncount: 2\n"), 0o644))
		run(t, []string{"NVMLFAB_STATE_DIR=" + dir, "MOCK_NVML_CONFIG=" + profile}, launcher(t), args...).succeeds(t)
	}
	apps, idle := seenBySMI(t, nil, node...)
	assert.Empty(t, apps)
	assert.Equal(t, "0, 0", idle)
	require.NoDirExists(t, filepath.Join(dir, "processes"))

	cmd := realProcess(t, append(node, "--process-memory", "2GiB", "--process-memory", "512MiB@1", "--process-sm", "40")...)
	apps, gpu := seenBySMI(t, nil, node...)
	want := func(pid int) []string {
		return []string{fmt.Sprintf("%d, /usr/bin/sh, 2048", pid), fmt.Sprintf("%d, /usr/bin/sh, 512", pid)}
	}
	program, err := exec.LookPath("sh")
	require.NoError(t, err)
	expected := want(cmd.Process.Pid)
	for i := range expected {
		expected[i] = strings.Replace(expected[i], "/usr/bin/sh", program, 1)
	}
	assert.Equal(t, expected, apps)
	assert.Equal(t, "2048, 40", gpu)
	if os.Geteuid() == 0 {
		apps, gpu = seenBySMI(t, []string{"unshare", "-pf", "--mount-proc"}, node...)
		assert.Empty(t, apps, "in another namespace of process ids, where the program is not")
		assert.Equal(t, "2048, 40", gpu, "its memory is used there too")
	}
	set("set", "--gpu", "all", "accounting.mode=enabled")

	require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
	cmd.Wait()
	apps, gpu = seenBySMI(t, nil, node...)
	assert.Empty(t, apps)
	assert.Equal(t, idle, gpu)

	// The next change writes its end down.
	set("set", "--gpu", "1", "thermal.temperature_gpu_c=50")
	text, err := os.ReadFile(filepath.Join(dir, "state.json"))
	require.NoError(t, err)
	assert.NotContains(t, string(text), `"processes"`)
	set("set", "--gpu", "1", "thermal.temperature_gpu_c=51")
	assert.Empty(t, leftIn(t, filepath.Join(dir, "processes")))
	script := `
import ctypes, sys
from ctypes import *
class Stats(Structure):
    _fields_ = [("gpu", c_uint), ("memory", c_uint), ("most", c_ulonglong), ("time", c_ulonglong), ("start", c_ulonglong), ("running", c_uint), ("reserved", c_uint * 5)]
nvml = CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
d, n, pids, s = c_void_p(), c_uint(16), (c_uint * 16)(), Stats()
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(d)) == 0
assert nvml.nvmlDeviceGetAccountingPids(d, byref(n), pids) == 0
assert nvml.nvmlDeviceGetAccountingStats(d, pids[0], byref(s)) == 0
print(list(pids[:n.value]), s.gpu, s.most, s.time > 0, s.start > 0, s.running)
`
	out := run(t, nil, launcher(t), append(append([]string{"run"}, node...), "--", systemPython(t), "-c", script)...).succeeds(t)
	assert.Equal(t, fmt.Sprintf("[%d] 40 %d True True 0\n", cmd.Process.Pid, 2<<30), out.stdout)
}

// TestRunProcessWatched: a process that runs already sees a program come and go, at its next call after a tick.
func TestRunProcessWatched(t *testing.T) {
	namespaces(t)
	dir := filepath.Join(sharedFolder(t), "state")
	node := []string{"--profile", "t4", "--state", dir}
	watcher := `
import ctypes, sys, time
from ctypes import *
class Info(Structure): _fields_ = [("pid", c_uint), ("used", c_ulonglong), ("gi", c_uint), ("ci", c_uint)]
nvml = CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
d, before = c_void_p(), None
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(d)) == 0
while True:
    n, infos = c_uint(8), (Info * 8)()
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(d, byref(n), infos) == 0
    now = [infos[i].pid for i in range(n.value)]
    if now != before: print(*now, flush=True)
    before = now
    time.sleep(0.01)
`
	cmd := exec.Command(launcher(t), append(append([]string{"run"}, node...), "--", systemPython(t), "-c", watcher)...)
	cmd.Env = environ()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Wait()
	defer cmd.Process.Kill()
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	next := func() string {
		select {
		case line := <-lines:
			return line
		case <-time.After(time.Minute):
			require.Fail(t, "nothing is seen")
			return ""
		}
	}
	assert.Equal(t, "", next())
	one := realProcess(t, append(node, "--process-memory", "1GiB")...)
	assert.Equal(t, strconv.Itoa(one.Process.Pid), next())
	two := realProcess(t, append(node, "--process-memory", "1GiB")...)
	assert.Equal(t, fmt.Sprint(one.Process.Pid, " ", two.Process.Pid), next())
	require.NoError(t, one.Process.Kill())
	one.Wait()
	assert.Equal(t, strconv.Itoa(two.Process.Pid), next())
	require.NoError(t, two.Process.Kill())
	two.Wait()
	assert.Equal(t, "", next())
}

// TestRunProcessItself: a program that uses NVML itself stays on the list, and so does one that closes all descriptors.
func TestRunProcessItself(t *testing.T) {
	namespaces(t)
	script := `
import ctypes, os, sys
from ctypes import *
class Info(Structure): _fields_ = [("pid", c_uint), ("used", c_ulonglong), ("gi", c_uint), ("ci", c_uint)]
nvml = CDLL("libnvidia-ml.so.1")
def listed():
    d, n, infos = c_void_p(), c_uint(8), (Info * 8)()
    assert nvml.nvmlInit_v2() == 0
    assert nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(d)) == 0
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(d, byref(n), infos) == 0
    name = create_string_buffer(256)
    assert nvml.nvmlSystemGetProcessName(os.getppid(), name, 256) == 0 and name.value != b""
    assert nvml.nvmlSystemGetProcessName(4194304, name, 256) == 6
    nvml.nvmlShutdown()
    return [infos[i].pid for i in range(n.value)]
me = [os.getpid()]
assert listed() == me and listed() == me
child = os.fork()
if child == 0:
    os._exit(listed() != me)
assert os.waitpid(child, 0)[1] == 0
assert listed() == me
print(os.popen(sys.argv[1] + " --query-compute-apps=pid --format=csv,noheader").read().split() == [str(os.getpid())])
os.closerange(3, 4096)
assert listed() == me
print(os.popen(sys.argv[1] + " --query-compute-apps=pid --format=csv,noheader").read().split() == [str(os.getpid())])
`
	smi := copied(t, fetched(t, "nvidia-smi-550", "nvidia-smi"))
	for user, prefix := range map[string][]string{"as this user": nil, "as nobody": nobody(t)} {
		for how, flags := range map[string][]string{"namespace": {"--namespace"}, "preloaded": {"--preload"}} {
			t.Run(user+"/"+how, func(t *testing.T) {
				out := inRun(t, prefix, append(flags, "--profile", "t4", "--process-memory", "1GiB@0", "--", systemPython(t), "-c", script, smi)...)
				assert.Equal(t, "True\nTrue\n", out.succeeds(t).stdout)
				assert.Empty(t, out.stderr)
			})
		}
	}
}

// TestRunProcessWrong: what cannot be is refused, and nothing is written.
func TestRunProcessWrong(t *testing.T) {
	dir := filepath.Join(sharedFolder(t), "state")
	for text, says := range map[string]string{
		"2": "amount of memory", "2GiB@": "a GPU after the @", "2GiB@9": "no GPU 9", "1KiB": "whole MiB", "-1GiB": "amount of memory",
		"1TiB": "amount of memory", "900GiB": "more than the", "@0": "amount of memory", "2GiB@nope": "",
	} {
		out := inRun(t, nil, "--profile", "t4", "--state", dir, "--process-memory="+text, "--", "true")
		assert.NotZero(t, out.code, text)
		assert.Contains(t, out.complains(t), says)
	}
	for _, args := range [][]string{{"--process-sm", "5"}, {"--process-memory", "1GiB", "--process-sm", "101"},
		{"--process-memory", "1GiB@0", "--process-memory", "2GiB@0"}} {
		out := inRun(t, nil, append(append([]string{"--profile", "t4", "--state", dir}, args...), "--", "true")...)
		assert.Equal(t, 125, out.code)
		assert.Contains(t, out.complains(t), "--process-")
	}
	assert.NoFileExists(t, filepath.Join(dir, "state.json"))
}

// screen runs the program of its first argument on a terminal of 140 columns until the text of the second has or has not been
// on it for a while, and prints whether it was.
const screen = `
import fcntl, os, pty, re, select, struct, sys, termios, time
program, folders, text = sys.argv[1:]
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    os.environ.update(TERM="xterm", LD_LIBRARY_PATH=os.environ["LD_LIBRARY_PATH"] + ":" + folders)
    os.execv(program, [program, "-C"])
out, end, drawn = b"", time.monotonic() + 60, None
while time.monotonic() < end and (drawn is None or time.monotonic() < drawn + 3):
    if select.select([fd], [], [], 0.2)[0]:
        out += os.read(fd, 65536)
    seen = re.sub(rb"\x1b[\[(][0-9;?]*[A-Za-z]", b" ", out).decode(errors="replace")
    if drawn is None and "Command" in seen:
        drawn = time.monotonic()
os.kill(pid, 9)
print("Command" in seen, text in re.sub(" +", " ", seen))
`

// TestRunProcessTools: gpustat and nvtop show a program that nvmlfab run puts on a GPU's list, and drop it when it is killed.
func TestRunProcessTools(t *testing.T) {
	namespaces(t)
	dir := filepath.Join(sharedFolder(t), "state")
	node := []string{"--profile", "t4", "--state", dir}
	modules := filepath.Join(filepath.Dir(fetched(t, "gpustat", "gpustat")), "../lib/python3/dist-packages")
	nvtop := fetched(t, "nvtop", "nvtop")
	folders := filepath.Dir(fetched(t, "nvtop", "libncursesw.so.6")) + ":" + filepath.Dir(fetched(t, "nvtop", "libtinfo.so.6"))
	inside := func(command ...string) string {
		return run(t, nil, launcher(t), append(append(append([]string{"run"}, node...), "--"), command...)...).succeeds(t).stdout
	}
	gpustat := func() string {
		return inside("env", "PYTHONPATH="+modules, systemPython(t), "-m", "gpustat", "--no-color", "-cp")
	}
	cmd := realProcess(t, append(node, "--process-memory", "2GiB")...)
	require.Eventually(t, func() bool { // the shell has become sleep
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		return err == nil && string(name) == "sleep\n"
	}, time.Minute, time.Millisecond)
	assert.Contains(t, gpustat(), fmt.Sprintf("sleep/%d(2048M)", cmd.Process.Pid))
	assert.Equal(t, "True True\n", inside(systemPython(t), "-c", screen, nvtop, folders, "2048MiB 13%"))
	require.NoError(t, cmd.Process.Kill())
	cmd.Wait()
	assert.NotContains(t, gpustat(), "sleep")
	assert.Equal(t, "True False\n", inside(systemPython(t), "-c", screen, nvtop, folders, "2048MiB 13%"))
}
