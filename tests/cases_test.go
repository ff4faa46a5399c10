package tests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests of this file show cases of public bug reports, and faults that were found by using the library, for which the whole
// library is needed. The others are in handwritten.

// onProfile is a caller with a profile of these lines, and its first GPU's handle.
func onProfile(t *testing.T, program, profile string) (*caller, uint64) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "profile.yaml")
	require.NoError(t, os.WriteFile(path, []byte(profile), 0o644))
	c := newCaller(t, program, "MOCK_NVML_CONFIG="+path)
	require.Equal(t, nvml.SUCCESS, c.call("nvmlInit_v2"))
	handle, ret := get[uint64](c, "nvmlDeviceGetHandleByIndex_v2", 0)
	require.Equal(t, nvml.SUCCESS, ret)
	return c, handle
}

// TestCase1AllSymbolsAtOnce: the library loads where every symbol is resolved at once.
func TestCase1AllSymbolsAtOnce(t *testing.T) {
	out := run(t, nil, compile(t, "load"), filepath.Join(library, "libnvidia-ml.so.1")).succeeds(t)
	assert.Equal(t, []string{"count before 1", "init 0", "count after 0"}, out.lines())
	assert.Subset(t, exported(t, filepath.Join(library, "libnvidia-ml.so.1")), declared(t, ""))
}

// TestCase2BothNames: programs find the library under its link for linking and under its name.
func TestCase2BothNames(t *testing.T) {
	load := compile(t, "load")
	for _, name := range []string{"libnvidia-ml.so", "libnvidia-ml.so.1"} {
		run(t, with(library), load, name).succeeds(t)
	}
}

// process is an entry of a process list, by version: 1, and 2 and 3.
type (
	process1 struct {
		PID    uint32
		_      uint32
		Memory uint64
	}
	process2 struct {
		PID       uint32
		_         uint32
		Memory    uint64
		GPU, Part uint32
	}
	wideProcess struct {
		process2
		Protected uint64
	}
)

// TestCases of a program that calls the library by names of all ages. Its buffers have a guard after them.
func TestCases(t *testing.T) {
	program := compile(t, "call")
	const two = "extends: h100\ncount: 1\ndevice_defaults: {processes: [{pid: 11, used_memory_mib: 1}, {pid: 12, used_memory_mib: 2}]}\n"
	const lists = "nvmlDeviceGetComputeRunningProcesses"

	t.Run("Case3 each name has a struct of its own", func(t *testing.T) {
		t.Parallel()
		c, d := onProfile(t, program, two)
		first, ret := list[process1](c, lists, d)
		require.Equal(t, nvml.SUCCESS, ret)
		assert.Equal(t, []process1{{PID: 11, Memory: 1 << 20}, {PID: 12, Memory: 2 << 20}}, first)
		for _, name := range []string{lists + "_v2", lists + "_v3"} {
			second, ret := list[process2](c, name, d)
			require.Equal(t, nvml.SUCCESS, ret)
			assert.Equal(t, []process2{{11, 0, 1 << 20, ^uint32(0), ^uint32(0)}, {12, 0, 2 << 20, ^uint32(0), ^uint32(0)}}, second)
		}
	})
	t.Run("Case3 builds of 535 with another struct", func(t *testing.T) {
		t.Parallel()
		c, d := onProfile(t, program, two+"system: {driver_version: 535.43.02, wide_process_info: true}\n")
		third, ret := list[wideProcess](c, lists+"_v3", d)
		require.Equal(t, nvml.SUCCESS, ret)
		assert.Equal(t, []wideProcess{{process2{11, 0, 1 << 20, ^uint32(0), ^uint32(0)}, 0}, {process2{12, 0, 2 << 20, ^uint32(0), ^uint32(0)}, 0}}, third)
		second, ret := list[process2](c, lists+"_v2", d)
		require.Equal(t, nvml.SUCCESS, ret)
		assert.EqualValues(t, 12, second[1].PID)
	})
	t.Run("Case4 look-ups before nvmlInit", func(t *testing.T) {
		t.Parallel()
		c := newCaller(t, program)
		for _, look := range [][]any{{"nvmlDeviceGetHandleByIndex_v2", 0}, {"nvmlDeviceGetHandleByUUID", "GPU-x"}, {"nvmlDeviceGetHandleByPciBusId_v2", "0:1:0.0"},
			{"nvmlDeviceGetHandleBySerial", "1"}, {"nvmlUnitGetHandleByIndex", 0}} {
			_, ret := get[uint64](c, look[0].(string), look[1:]...)
			assert.Equal(t, nvml.ERROR_UNINITIALIZED, ret, look[0])
		}
	})
	t.Run("Case5 names that Datadog's agent wants", func(t *testing.T) {
		t.Parallel()
		names := exported(t, filepath.Join(library, "libnvidia-ml.so.1"))
		c, d := onProfile(t, program, two)
		for name, size := range map[string]int{"nvmlDeviceGetMemoryInfo": 24, "nvmlDeviceGetIndex": 4, "nvmlDeviceGetNumGpuCores": 4} {
			assert.Contains(t, names, name)
			assert.Equal(t, nvml.SUCCESS, c.call(name, d, make([]byte, size)), name)
		}
		for _, name := range []string{"nvmlDeviceGetName", "nvmlDeviceGetUUID"} {
			assert.Contains(t, names, name)
			assert.Equal(t, nvml.SUCCESS, c.call(name, d, make([]byte, 96), 96), name)
		}
		assert.Equal(t, nvml.SUCCESS, c.call("nvmlDeviceGetCount", make([]byte, 4)))
		assert.Equal(t, nvml.SUCCESS, c.call("nvmlDeviceGetHandleByIndex", 0, make([]byte, 8)))
		assert.Equal(t, nvml.SUCCESS, c.call("nvmlDeviceGetCudaComputeCapability", d, make([]byte, 4), make([]byte, 4)))
	})
	t.Run("Case7 versions of MemoryInfo", func(t *testing.T) {
		t.Parallel()
		for driver, unknown := range map[string]nvml.Return{"510.108.03": nvml.ERROR_FUNCTION_NOT_FOUND, "550.163.01": nvml.ERROR_ARGUMENT_VERSION_MISMATCH} {
			c, d := onProfile(t, program, two+"system: {driver_version: "+driver+"}\n")
			for version, want := range map[uint64]nvml.Return{0x02000028: nvml.SUCCESS, 2: unknown, 0x02000020: unknown} {
				assert.Equal(t, want, c.call("nvmlDeviceGetMemoryInfo_v2", d, []uint64{version, 0, 0, 0, 0}), "version %#x, driver %s", version, driver)
			}
		}
	})
	t.Run("Case19 the version of the SRAM status", func(t *testing.T) {
		t.Parallel()
		c, d := onProfile(t, program, two)
		assert.Equal(t, nvml.ERROR_ARGUMENT_VERSION_MISMATCH, c.call("nvmlDeviceGetSramEccErrorStatus", d, make([]uint64, 14)))
	})
	t.Run("Case27 versions of the fabric", func(t *testing.T) {
		t.Parallel()
		c, d := onProfile(t, program, "extends: gb200\ncount: 1\ndevice_defaults: {fabric: {cluster_uuid: 5315e0f7-c8a9-4ff0-af3a-64e790adfecf, clique_id: 7}}\n")
		for version, size := range map[uint32]int{0x02000024: 36, 0x03000028: 40} {
			info := make([]byte, size) // a guard follows it
			copy(info, []byte{byte(version), byte(version >> 8), byte(version >> 16), byte(version >> 24)})
			assert.Equal(t, nvml.SUCCESS, c.call("nvmlDeviceGetGpuFabricInfoV", d, info), "%#x", version)
			assert.Equal(t, byte(7), info[24], "clique")
		}
		for _, version := range []uint32{0, 1, 0x09000028, 0x02000028} {
			assert.Equal(t, nvml.ERROR_ARGUMENT_VERSION_MISMATCH, c.call("nvmlDeviceGetGpuFabricInfoV", d, []uint32{version, 0, 0, 0, 0, 0, 0, 0, 0, 0}), "%#x", version)
		}
		assert.Equal(t, nvml.SUCCESS, c.call("nvmlDeviceGetGpuFabricInfo", d, make([]byte, 28)), "version 1 has no version")
	})
	t.Run("Case32 a count without an array", func(t *testing.T) {
		t.Parallel()
		c, d := onProfile(t, program, "extends: h100\ncount: 1\n")
		for _, name := range []string{lists, lists + "_v2", lists + "_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3"} {
			n := uint32(7)
			assert.Equal(t, nvml.SUCCESS, c.call(name, d, &n, nil), name)
			assert.Zero(t, n, name)
		}
		c, d = onProfile(t, program, two)
		n := uint32(0)
		assert.Equal(t, nvml.ERROR_INSUFFICIENT_SIZE, c.call(lists+"_v3", d, &n, nil))
		assert.EqualValues(t, 2, n)
	})
	t.Run("Fault11 errors of functions", func(t *testing.T) {
		t.Parallel()
		c, d := onProfile(t, program, "extends: h100\ncount: 2\ndevices: [{answers: [{function: nvmlDeviceGetPowerUsage, error: unknown_error}, "+
			"{function: nvmlDeviceGetTemperature, error: no_permission}]}]\n")
		_, ret := get[uint32](c, "nvmlDeviceGetPowerUsage", d)
		assert.Equal(t, nvml.ERROR_UNKNOWN, ret)
		_, ret = get[uint32](c, "nvmlDeviceGetTemperature", d, 0)
		assert.Equal(t, nvml.ERROR_NO_PERMISSION, ret)
		_, ret = get[uint32](c, "nvmlDeviceGetEnforcedPowerLimit", d)
		assert.Equal(t, nvml.SUCCESS, ret)
		other, _ := get[uint64](c, "nvmlDeviceGetHandleByIndex_v2", 1)
		_, ret = get[uint32](c, "nvmlDeviceGetPowerUsage", other)
		assert.Equal(t, nvml.SUCCESS, ret)
	})
	t.Run("PRM counters", func(t *testing.T) {
		t.Parallel()
		c, d := onProfile(t, program, "extends: gb200\ncount: 1\nsystem: {driver_version: 615.36.04}\nnvlink: {defaults: {counter_seed: 9}}\n")
		type counter struct{ ID, Port, Status, Kind, Low, High uint32 }
		list := []counter{{ID: 304, Port: 1}, {ID: 302, Port: 18}, {ID: 304, Port: 19}, {ID: 999, Port: 1}}
		require.Equal(t, nvml.SUCCESS, c.call("nvmlDeviceReadPRMCounters_v1", d, []uint64{4, 0}, pointed{8, list}))
		assert.Equal(t, []counter{{304, 1, 0, 3, 9 << 10 / 144, 0}, {302, 18, 0, 3, 0, 0}, {ID: 304, Port: 19, Status: 2}, {ID: 999, Port: 1, Status: 2}}, list)
	})
}

// TestFault1TopologyOfDownLinks: links that are down make no NVLink path, and links of a mesh are as many one way as the other.
func TestFault1TopologyOfDownLinks(t *testing.T) {
	for profile, want := range map[string][2]string{
		"extends: h100\ncount: 2\nnvlink: {defaults: {state: inactive}}\n":                            {"SYS", "SYS"},
		"extends: b200\ncount: 4\nnvlink: {switches: N/A, links_per_gpu: 7}\n":                        {"NV2", "NV2"},
		"devices: [{name: NVIDIA L40S, architecture: ada}, {name: NVIDIA L40S, architecture: ada}]\n": {"SYS", "SYS"}, // no brand
	} {
		m := profiled(t, 550, profile)
		rows := m.run(t, "topo", "-m").matrix(t, m)
		assert.Equal(t, want, [2]string{rows[0][1], rows[1][0]}, profile)
	}
}

// TestFault7BeforeInit: before nvmlInit, and after the last nvmlShutdown, the library answers as those of real drivers do.
func TestFault7BeforeInit(t *testing.T) {
	early := compile(t, "early")
	for branch, driver := range map[string]string{"470": "470.256.02", "535": "535.261.03", "550": "550.163.01", "555": "555.58.02"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "profile.yaml")
			require.NoError(t, os.WriteFile(path, []byte("extends: h100\nsystem: {driver_version: "+driver+", cuda_version: \"12.5\"}\n"), 0o644))
			real := run(t, nil, early, fetched(t, "libnvidia-ml-"+branch, "libnvidia-ml.so.1")).succeeds(t)
			ours := run(t, []string{"MOCK_NVML_CONFIG=" + path}, early, filepath.Join(library, "libnvidia-ml.so.1")).succeeds(t)
			assert.Equal(t, real.lines(), ours.lines())
		})
	}
}

// TestFault9LinksWithoutASpeed: nvidia-smi of no driver loops over a link whose speed the profile does not give, and validate says that it
// is missing.
func TestFault9LinksWithoutASpeed(t *testing.T) {
	const profile = "devices: [{name: x, brand: tesla, architecture: ampere}, {name: x}]\nnvlink: {version: 3, links_per_gpu: 4}\n"
	for _, driver := range []int{450, 460, 470, 535, 550} {
		m := profiled(t, driver, profile)
		out := m.run(t, "nvlink", "-s").succeeds(t)
		assert.Equal(t, 8, strings.Count(out.stdout, "0 GB/s"), out.stdout)
	}
	path := filepath.Join(t.TempDir(), "profile.yaml")
	require.NoError(t, os.WriteFile(path, []byte(profile), 0o644))
	out := run(t, nil, launcher(t), "profiles", "validate", path)
	assert.Contains(t, out.stdout+out.stderr, "nvlink.bandwidth_per_link_mbps")
}

// TestFault11FRUPartNumber: a profile can give the part number of the field replaceable unit, and nvidia-smi prints it.
func TestFault11FRUPartNumber(t *testing.T) {
	for _, driver := range []int{550, 555} {
		m := profiled(t, driver, "extends: h100\ncount: 2\ndevices: [{fru_part_number: 900-F1234}]\n")
		gpus := m.run(t, "-q").succeeds(t).sections()
		require.Len(t, gpus, 2)
		assert.Equal(t, "900-F1234", gpus[0]["FRU Part Number"])
		assert.Equal(t, "N/A", gpus[1]["FRU Part Number"])
	}
	path := filepath.Join(t.TempDir(), "profile.yaml") // nvidia-smi has room for 19 characters
	require.NoError(t, os.WriteFile(path, []byte("extends: h100\ndevice_defaults: {fru_part_number: "+strings.Repeat("9", 20)+"}\n"), 0o644))
	assert.Contains(t, run(t, nil, launcher(t), "profiles", "validate", path).stderr, path+":2: device_defaults.fru_part_number")
}

// TestFault23Slot81: nvidia-smi gets the handle of a GPU by entry 81 of its table, and a GPU that is not there is refused.
func TestFault23Slot81(t *testing.T) {
	m := profiled(t, 550, "extends: h100\ncount: 2\n")
	out := run(t, append(with(library, "NVMLFAB_STATE_DIR="+stateDir(t)), m.env...), launcher(t), "trace", "--gpus", "2", "--", m.program, "-L").succeeds(t)
	assert.Regexp(t, `nvmlInternalSlot81\(.*\) = NVML_SUCCESS`, out.stdout+out.stderr)
	assert.Equal(t, []string{"2"}, m.run(t, "--query-gpu=count", "--format=csv,noheader", "-i", "1").succeeds(t).lines())
	assert.Equal(t, 6, m.run(t, "-i", "2", "--query-gpu=count", "--format=csv").code)
}

// TestFault23NewerNVIDIASMI: the newest nvidia-smi that Debian has reads every board of another kind.
func TestFault23NewerNVIDIASMI(t *testing.T) {
	for _, name := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, 555, mustBoard(t, name), "NVMLFAB_PROFILE="+name)
			_, gpus := m.run(t, "-q", "-x").succeeds(t).elements(t)
			require.Len(t, gpus, len(m.board.Devices))
			assert.False(t, slices.ContainsFunc(gpus, func(g map[string]string) bool { return g["uuid"] == "" || g["product_name"] == "" }))
		})
	}
}
