package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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
	assert.True(t, stubs["nvmlInternalSlot81"])
	assert.False(t, stubs["nvmlDeviceGetName"])

	text := run(t, nil, launcher(t), append(append([]string{"trace"}, flags...), "--", smi550(t), "-L")...).succeeds(t)
	assert.Regexp(t, `(?m)^\d+ nvmlDeviceGetName\(device=0x[0-9a-f]+, name="Tesla T4", length=64\) = NVML_SUCCESS <\d+\.\d{6}>$`, text.stderr)
	assert.Regexp(t, `(?m)^\d+ nvmlInternalSlot81\(.*\) = NVML_ERROR_NOT_SUPPORTED \(stub\) <0\.0`, text.stderr)
	assert.Contains(t, text.stderr, "\n  nvmlInternalSlot81 2 calls\n")
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
