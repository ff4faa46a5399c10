package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

// TestCase6OlderLibrariesLackFunctions: functions that NVML 11.0 lacks are missing from its library, not merely unsupported.
func TestCase6OlderLibrariesLackFunctions(t *testing.T) {
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

// TestPynvmlGetters: every getter of NVIDIA's Python bindings, with all values of its arguments, against tables: of a board that has
// everything, of boards that have little or an old driver, of a GPU with MIG instances and of one that serves vGPUs. That the values
// are the profile's is shown by TestGoNVML; the tables, which -update rewrites, show that the
// bindings, which declare NVML's structures once more, read them.
func TestPynvmlGetters(t *testing.T) {
	namespaces(t)
	needsRoot(t)
	modules := filepath.Dir(fetched(t, "pynvml-12", "pynvml.py"))
	folder := filepath.Join(root, "tests", "testdata", "pynvml")
	whole := filepath.Join(t.TempDir(), "everything.yaml")
	require.NoError(t, os.WriteFile(whole, []byte(everything), 0o644))
	for name, c := range map[string]struct{ profile, mig, more string }{
		"everything":   {profile: whole, more: "affinity"},
		"h100":         {profile: "h100"},
		"rtx-4090":     {profile: "rtx-4090"},
		"gb10":         {profile: "gb10"},
		"v100":         {profile: "v100-sxm2-32gb"},
		"t4-vgpu-host": {profile: "t4-vgpu-host"},
		"mig":          {profile: "a100-sxm4-40gb", mig: "3g.20gb,2g.10gb"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			create := ":"
			if c.mig != "" {
				create = `"$0" mig create --run $$ --gpu 0 --enable ` + c.mig
			}
			out := inRun(t, nil, "--namespace", "--profile", c.profile, "--", "sh", "-c", create+` && exec "$@"`, launcher(t), "env", "PYTHONPATH="+modules,
				"PYTHONDONTWRITEBYTECODE=1", systemPython(t), filepath.Join(folder, "getters.py"), c.more).succeeds(t)
			assert.Empty(t, out.stderr)
			table := filepath.Join(folder, name+".txt")
			if *update {
				require.NoError(t, os.WriteFile(table, []byte(out.stdout), 0o644))
			}
			want, err := os.ReadFile(table)
			require.NoError(t, err)
			assert.Equal(t, strings.Split(string(want), "\n"), strings.Split(out.stdout, "\n"))
		})
	}
}
