package tests

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
)

// python runs a program with NVIDIA's Python bindings and the library in dir.
func python(t *testing.T, dir, bindings, program string, env ...string) outcome {
	t.Helper()
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		skip(t, err.Error())
	}
	modules := filepath.Dir(fetched(t, bindings, "pynvml.py"))
	return run(t, with(dir, append(env, "PYTHONPATH="+modules, "PYTHONDONTWRITEBYTECODE=1")...), interpreter, "-c", program)
}

func TestPynvml(t *testing.T) {
	for _, bindings := range []string{"pynvml-11", "pynvml-12"} {
		t.Run(bindings, func(t *testing.T) {
			out := python(t, library, bindings, `
from pynvml import *
nvmlInit()
for i in range(nvmlDeviceGetCount()):
    dev = nvmlDeviceGetHandleByIndex(i)
    print(nvmlDeviceGetName(dev), nvmlDeviceGetUUID(dev), nvmlDeviceGetMemoryInfo(dev).total,
          nvmlDeviceGetTemperature(dev, NVML_TEMPERATURE_GPU), sep="|")
nvmlShutdown()
`).succeeds(t)
			assert.Empty(t, out.stderr)
			var want []string
			for _, d := range board(t).Devices {
				want = append(want, fmt.Sprintf("%s|%s|%d|%d", d.Name.Value, d.UUID, d.Memory.TotalBytes.Value,
					d.Thermal.TemperatureGPUC.Value))
			}
			assert.Equal(t, want, out.lines())
		})
	}
}

// TestPynvmlOnAnOlderLibrary: functions that NVML 11.0 lacks are missing from its library, not merely unsupported.
func TestPynvmlOnAnOlderLibrary(t *testing.T) {
	out := python(t, libraryOf(t, "11.0"), "pynvml-12", `
from pynvml import *
nvmlInit()
dev = nvmlDeviceGetHandleByIndex(0)
print(nvmlDeviceGetName(dev))
try:
    nvmlDeviceGetMemoryInfo(dev, version=nvmlMemory_v2)
except NVMLError as error:
    print(type(error).__name__)
`).succeeds(t)
	assert.Equal(t, []string{board(t).Devices[0].Name.Value, "NVMLError_FunctionNotFound"}, out.lines())
}
