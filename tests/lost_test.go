package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lostGPU is the environment of a node on which the fourth of eight GPUs is lost, from the start or after some calls.
func lostGPU(t *testing.T, when string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lost.yaml")
	text := "extends: h100\ndevices:\n  - index: 3\n    failure: {mode: lost" + when + "}\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return "MOCK_NVML_CONFIG=" + path
}

// TestSMILostGPU: nvidia-smi says which GPU is lost, in the words that users report, and lists the others.
func TestSMILostGPU(t *testing.T) {
	env := []string{lostGPU(t, "")}
	list := smi(t, env, "-L")
	assert.Equal(t, 15, list.code, "nvidia-smi ends with the answer of NVML")
	assert.Contains(t, list.stdout, "Unable to determine the device handle for gpu 3: GPU is lost.  Reboot the system to recover this GPU")
	var listed []string
	for _, m := range regexp.MustCompile(`(?m)^GPU (\d): `).FindAllStringSubmatch(list.stdout, -1) {
		listed = append(listed, m[1])
	}
	assert.Equal(t, []string{"0", "1", "2", "4", "5", "6", "7"}, listed)

	for i, want := range board(t).Devices {
		one := smi(t, env, "-i", fmt.Sprint(i), "--query-gpu=index,uuid,temperature.gpu", "--format=csv,noheader")
		if i == 3 {
			assert.NotZero(t, one.code)
			assert.NotContains(t, one.stdout, "GPU-")
			continue
		}
		one.succeeds(t)
		assert.Equal(t, []string{fmt.Sprintf("%d, %s, %d", i, want.UUID, want.Thermal.TemperatureGPUC.Value)}, one.lines())
	}
}

// TestPynvmlLostGPU: a lost GPU is counted, but no look-up gives its handle. If a GPU gets lost while a program has its
// handle, every call with the handle says so, also calls about two GPUs.
func TestPynvmlLostGPU(t *testing.T) {
	b := board(t)
	out := python(t, library, "pynvml-12", fmt.Sprintf(`
from pynvml import *
def ask(f, *args):
    try:
        f(*args)
        return "answers"
    except NVMLError as error:
        return type(error).__name__
nvmlInit()
print(nvmlDeviceGetCount())
print([ask(nvmlDeviceGetHandleByIndex, i) for i in range(8)])
print(ask(nvmlDeviceGetHandleByUUID, %q), ask(nvmlDeviceGetHandleByPciBusId, %q))
nvmlShutdown()
`, string(b.Devices[3].UUID), b.Devices[3].PCI.BusID.Value.String()), lostGPU(t, "")).succeeds(t)
	const lost = "NVMLError_GpuIsLost"
	assert.Equal(t, []string{
		"8",
		"['answers', 'answers', 'answers', '" + lost + "', 'answers', 'answers', 'answers', 'answers']",
		lost + " " + lost,
	}, out.lines())

	out = python(t, library, "pynvml-12", `
from pynvml import *
def ask(f, *args):
    try:
        f(*args)
        return "answers"
    except NVMLError as error:
        return type(error).__name__
nvmlInit()
dev = [nvmlDeviceGetHandleByIndex(i) for i in range(8)]
print(ask(nvmlDeviceGetName, dev[3]), ask(nvmlDeviceGetName, dev[3]), ask(nvmlDeviceGetTemperature, dev[3], NVML_TEMPERATURE_GPU))
print(ask(nvmlDeviceGetP2PStatus, dev[3], dev[4], 0), ask(nvmlDeviceGetP2PStatus, dev[4], dev[3], 0), ask(nvmlDeviceGetP2PStatus, dev[4], dev[5], 0))
print(ask(nvmlDeviceGetHandleByIndex, 3), ask(nvmlDeviceIsMigDeviceHandle, dev[3]), ask(nvmlDeviceGetTemperature, dev[4], NVML_TEMPERATURE_GPU))
`, lostGPU(t, ", after_calls: 1")).succeeds(t)
	assert.Equal(t, []string{"answers " + lost + " " + lost, lost + " " + lost + " answers", "answers answers answers"}, out.lines())
}
