package tests

import (
	"debug/elf"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tracedCall is a line of a trace in JSON.
type tracedCall struct {
	PID, TID int
	Call     string
	Args     map[string]any
	Result   string
	Code     *uint32
	NS       uint64
	Stub     bool
	Summary  *struct {
		Calls, Processes uint64
		Functions        []struct {
			Name                      string
			Calls, Failed, Unfinished uint64
			Stub                      bool
			Results                   map[string]uint64
		}
	}
}

// readTrace reads a trace in JSON, whose every line has to be whole. The last one is the summary.
func readTrace(t *testing.T, path string) (calls []tracedCall, last tracedCall) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var c tracedCall
		require.NoError(t, json.Unmarshal([]byte(line), &c), line)
		require.True(t, strings.HasSuffix(line, "\n"), line)
		if c.Summary != nil {
			last = c
			continue
		}
		require.Nil(t, last.Summary, "nothing follows the summary: %s", line)
		calls = append(calls, c)
	}
	require.NotNil(t, last.Summary, "a summary")
	return calls, last
}

// traceOf runs a program in a trace and reads the trace.
func traceOf(t *testing.T, flags []string, program ...string) (outcome, []tracedCall, tracedCall) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trace.json")
	args := append([]string{"trace", "--json", "-o", file}, flags...)
	out := run(t, nil, launcher(t), append(append(args, "--"), program...)...)
	calls, last := readTrace(t, file)
	return out, calls, last
}

func smi550(t *testing.T) string { return fetched(t, "nvidia-smi-550", "nvidia-smi") }

// TestTraceSMI traces NVIDIA's nvidia-smi: what it prints is what it was told by the calls.
func TestTraceSMI(t *testing.T) {
	flags := []string{"--profile", "t4", "--gpus", "2", "--driver", "550.163.01"}
	out, calls, last := traceOf(t, flags, smi550(t), "-L")
	plain := run(t, nil, launcher(t), append(append([]string{"run"}, flags...), "--", smi550(t), "-L")...).succeeds(t)
	assert.Equal(t, plain.stdout, out.succeeds(t).stdout)
	for _, line := range plain.lines() {
		m := regexp.MustCompile(`^GPU (\d): (.*) \(UUID: (.*)\)$`).FindStringSubmatch(line)
		require.NotNil(t, m, line)
		var device any
		for _, c := range calls {
			switch {
			case c.Call == "nvmlDeviceGetHandleByIndex_v2" && c.Args["index"] == float64(m[1][0]-'0'):
				device = c.Args["device"]
			case c.Call == "nvmlDeviceGetName" && c.Args["device"] == device:
				assert.Equal(t, m[2], c.Args["name"])
			case c.Call == "nvmlDeviceGetUUID" && c.Args["device"] == device:
				assert.Equal(t, m[3], c.Args["uuid"])
			}
		}
		assert.NotNil(t, device)
	}
	assert.EqualValues(t, len(calls), last.Summary.Calls)
	stubs := map[string]bool{}
	for _, f := range last.Summary.Functions {
		stubs[f.Name] = f.Stub
	}
	assert.True(t, stubs["nvmlInternalSlot26"])
	assert.False(t, stubs["nvmlDeviceGetName"])

	text := run(t, nil, launcher(t), append(append([]string{"trace"}, flags...), "--", smi550(t), "-L")...).succeeds(t)
	assert.Regexp(t, `(?m)^\d+ nvmlDeviceGetName\(device=0x[0-9a-f]+, name="Tesla T4", length=64\) = NVML_SUCCESS <\d+\.\d{6}>$`, text.stderr)
	assert.Regexp(t, `(?m)^\d+ nvmlInternalSlot26\(.*\) = NVML_ERROR_NOT_SUPPORTED \(stub\) <0\.0`, text.stderr)
	assert.Contains(t, text.stderr, "\n  nvmlInternalSlot26 2 calls\n")
}

// TestTraceNVIDIA traces NVIDIA's own library, which finds no driver.
func TestTraceNVIDIA(t *testing.T) {
	for _, driver := range []string{"550", "470"} {
		real := fetched(t, "libnvidia-ml-"+driver, "libnvidia-ml.so.1")
		out, calls, _ := traceOf(t, []string{"--library", real}, fetched(t, "nvidia-smi-"+driver, "nvidia-smi"), "-L")
		assert.NotZero(t, out.code)
		require.NotEmpty(t, calls)
		assert.Contains(t, calls[0].Call, "nvmlInit")
		assert.Equal(t, "NVML_ERROR_DRIVER_NOT_LOADED", calls[0].Result)
	}
}

// onNVIDIA are the libraries of NVIDIA's drivers that tests fetch.
func onNVIDIA(t *testing.T) map[string]string {
	out := map[string]string{}
	for _, driver := range []string{"390", "470", "535", "550", "555"} {
		out[driver] = fetched(t, "libnvidia-ml-"+driver, "libnvidia-ml.so.1")
	}
	return out
}

// TestTraceSymbols: a program that asks whether a function exists gets the same answer with a trace as without, for nvmlfab's
// libraries of all versions and for NVIDIA's, and for what neither nvml.h nor nvmlfab knows.
func TestTraceSymbols(t *testing.T) {
	t.Parallel()
	program := compile(t, "traced", "-ldl", "-pthread")
	libraries := onNVIDIA(t)
	for _, version := range []string{"11.0", "11.8.86", "12.4.127", "13.0.39", "13.4.92"} {
		libraries[version] = filepath.Join(libraryOf(t, version), "libnvidia-ml.so.1")
	}
	names := map[string]bool{"nvmlNothing": true, "_init": true}
	for _, s := range abi.Symbols() {
		names[s.Name] = true
	}
	for _, library := range libraries {
		f, err := elf.Open(library)
		require.NoError(t, err)
		symbols, err := f.DynamicSymbols()
		require.NoError(t, err)
		f.Close()
		for _, s := range symbols {
			if s.Section != elf.SHN_UNDEF && s.Name != "" {
				names[s.Name] = true
			}
		}
	}
	list := filepath.Join(t.TempDir(), "names")
	require.NoError(t, os.WriteFile(list, []byte(strings.Join(slices.Sorted(maps.Keys(names)), "\n")+"\n"), 0o644))
	for name, library := range libraries {
		t.Run(name, func(t *testing.T) {
			plain := run(t, nil, "sh", "-c", `exec "$0" exists "$1" <"$2"`, program, library, list).succeeds(t)
			assert.Contains(t, plain.stdout, "nvmlInit_v2 1 0\n")
			assert.Contains(t, plain.stdout, "nvmlNothing 0 1\n")
			out := run(t, nil, launcher(t), "trace", "--library", library, "--", "sh", "-c", `exec "$0" exists <"$1"`, program, list).succeeds(t)
			assert.Equal(t, plain.stdout, out.stdout)
			assert.Equal(t, "\nno calls of NVML; nvmlfab doctor -- PROGRAM says which library a program loads\n", out.stderr)
		})
	}
}

// TestTraceWhole: the trace of a program with threads and forks has every call of every process on a line of its own, however the
// process ended, and the summary adds all of them up.
func TestTraceWhole(t *testing.T) {
	t.Parallel()
	program := compile(t, "traced", "-ldl", "-pthread")
	stolen := filepath.Join(t.TempDir(), "stolen")
	for _, flags := range [][]string{nil, {"--preload"}} {
		out, calls, last := traceOf(t, flags, program, "whole", "libnvidia-ml.so.1", stolen)
		want := strings.TrimSpace(out.succeeds(t).stdout)
		pids, tids, n := map[int]int{}, map[int]bool{}, 0
		for _, c := range calls {
			if c.Call == "nvmlDeviceGetIndex" {
				n++
				pids[c.PID]++
				tids[c.TID] = true
				assert.Equal(t, float64(1), c.Args["index"])
				assert.Equal(t, "NVML_SUCCESS", c.Result)
			}
		}
		assert.Equal(t, want, fmt.Sprint(n))
		assert.Len(t, pids, 7, "the program, five children, and the program that one of them became: %v", pids)
		assert.Len(t, tids, 10)
		assert.EqualValues(t, 7, last.Summary.Processes)
		for _, f := range last.Summary.Functions {
			if f.Name == "nvmlDeviceGetIndex" {
				assert.Equal(t, want, fmt.Sprint(f.Calls))
				assert.EqualValues(t, f.Calls, f.Results["NVML_SUCCESS"])
			}
		}
		text, err := os.ReadFile(stolen)
		require.NoError(t, err)
		assert.Empty(t, text, "a file of the program that has the descriptor's number")
	}
}

// TestTraceEnds: a process that is killed while the trace runs is in it, the summary waits for a daemon, and the status is the
// program's.
func TestTraceEnds(t *testing.T) {
	t.Parallel()
	program := compile(t, "traced", "-ldl", "-pthread")
	script := `"$0" wait | { read ready; kill -9 $(cat "/proc/$$/task/$$/children" | cut -d' ' -f1); }; exit 7`
	out, calls, _ := traceOf(t, nil, "bash", "-c", script, program)
	assert.Equal(t, 7, out.code)
	assert.Equal(t, 1, callsOf(calls, "nvmlDeviceGetIndex"))

	_, calls, last := traceOf(t, nil, program, "daemon")
	assert.Equal(t, 10, callsOf(calls, "nvmlDeviceGetIndex"))
	assert.EqualValues(t, 2, last.Summary.Processes)

	out, _, _ = traceOf(t, nil, "sh", "-c", "kill -TERM $$")
	assert.Equal(t, 128+15, out.code)
	out = run(t, nil, launcher(t), "trace", "--", "/nonexistent")
	assert.Equal(t, 127, out.code)
}

func callsOf(calls []tracedCall, name string) (n int) {
	for _, c := range calls {
		if c.Call == name {
			n++
		}
	}
	return n
}

// TestTraceOutput: lines that cannot be written are counted and do no harm to the program, whether the disk is full, standard error
// is closed, or nobody reads it.
func TestTraceOutput(t *testing.T) {
	t.Parallel()
	program := compile(t, "traced", "-ldl", "-pthread")
	in := func(script string) outcome { return run(t, nil, "bash", "-c", script, launcher(t), program) }

	out := in(`exec "$0" trace -o /dev/full -- "$1" leaf`).succeeds(t)
	assert.Contains(t, out.stderr, "52 lines of the trace could not be written: no space left on device")
	in(`exec "$0" trace -- "$1" leaf 2>&-`).succeeds(t)
	in(`exec "$0" trace -- "$1" leaf 2>/dev/full`).succeeds(t)
	assert.Equal(t, "1350\n0\n", in(`{ "$0" trace -- "$1" whole 2>&3; echo $?; } 3> >(exec 3<&-; read line; exit 0)`).stdout)

	// A user who may not open the pipe of the one who started the trace still gets all lines.
	theirs := filepath.Join(sharedFolder(t), "traced")
	run(t, nil, "cp", program, theirs).succeeds(t)
	command := append(nobody(t), launcher(t), "trace", "--", theirs, "leaf")
	out = run(t, nil, command[0], command[1:]...).succeeds(t)
	assert.Equal(t, 50, strings.Count(out.stderr, " nvmlDeviceGetIndex("))
	script := `{ "$@" 2>&3; echo $?; } 3> >(exec 3<&-; read line; exit 0)`
	command = append(append([]string{"-c", script, "bash"}, command[:len(command)-1]...), "whole")
	assert.Equal(t, "1350\n0\n", run(t, nil, "bash", command...).stdout)
	assert.NotContains(t, out.stderr, "could not be written")

	// In one file with the program's own standard error no line overwrites another.
	file := filepath.Join(t.TempDir(), "both")
	run(t, nil, "bash", "-c", `exec "$0" trace -- bash -c 'for i in 1 2 3; do echo mine $i >&2; "$0" leaf; done' "$1" 2>"$2"`, launcher(t), program, file).succeeds(t)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Len(t, regexp.MustCompile(`(?m)^mine \d$`).FindAllString(string(text), -1), 3)
	assert.Len(t, regexp.MustCompile(`(?m)^\d+ nvmlDeviceGetIndex\(device=0x[0-9a-f]+, index=1\) = NVML_SUCCESS <[0-9.]+>$`).FindAllString(string(text), -1), 150)

	script = `
import socket, subprocess, sys
a, b = socket.socketpair()
p = subprocess.Popen(sys.argv[1:], stderr=b)
b.close()
text = b""
while part := a.recv(65536):
    text += part
print(text.decode(), end="")
sys.exit(p.wait())`
	lines := run(t, nil, systemPython(t), "-c", script, launcher(t), "trace", "--", program, "leaf").succeeds(t)
	assert.Equal(t, 50, strings.Count(lines.stdout, " nvmlDeviceGetIndex("))
	assert.Contains(t, lines.stdout, "52 calls of 3 functions in 1 process\n")
}

// TestTraceAbsolute: in a mount namespace a program is traced that loads NVML by the path of the driver's folder, or without an
// environment.
func TestTraceAbsolute(t *testing.T) {
	t.Parallel()
	namespaces(t)
	program := compile(t, "traced", "-ldl", "-pthread")
	_, calls, _ := traceOf(t, []string{"--namespace"}, "env", "-i", program, "leaf")
	assert.Equal(t, 50, callsOf(calls, "nvmlDeviceGetIndex"))
	_, calls, _ = traceOf(t, []string{"--namespace"}, program, "leaf", "/dev/.nvmlfab/lib/libnvidia-ml.so.1")
	assert.Equal(t, 50, callsOf(calls, "nvmlDeviceGetIndex"))
	_, calls, _ = traceOf(t, []string{"--namespace"}, machineProgram(t, "paths", "-static", "-w"))
	assert.Empty(t, calls, "a static program")
}

// TestTraceOff: without a trace nothing of it is loaded.
func TestTraceOff(t *testing.T) {
	out := run(t, nil, launcher(t), "run", "--", systemPython(t), "-c",
		`import ctypes; ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2(); print(open("/proc/self/maps").read())`).succeeds(t)
	assert.Contains(t, out.stdout, "libnvidia-ml.so")
	assert.NotContains(t, out.stdout, "trace")
}
