package handwritten

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// The tests of this file show cases that public bug reports of programs that use NVML tell of. tests/cases_test.go has those that
// need the whole library.

// everyBoard calls f with the first GPU of every shipped board.
func everyBoard(t *testing.T, f func(t *testing.T, name string, d dev)) {
	t.Helper()
	for _, name := range profiles.Names() {
		t.Run(name, func(t *testing.T) { f(t, name, gpu(t, "extends: "+name+"\n")) })
	}
}

// TestCase8ReservedMemory counts as used in version 1 and has a field of its own in version 2; used + free is the total in
// version 1.
func TestCase8ReservedMemory(t *testing.T) {
	everyBoard(t, func(t *testing.T, _ string, d dev) {
		v1, ret := filled(DeviceGetMemoryInfo)(d)
		v2, ret2 := filled(DeviceGetMemoryInfo_v2)(d)
		require.Equal(t, ret, ret2)
		assert.Equal(t, v1.Total, v1.Used+v1.Free)
		assert.Equal(t, v1.Used, v2.Used+v2.Reserved)
		assert.Equal(t, v1.Free, v2.Free)
	})
}

// TestCase9NoMemoryInfo: boards that share the memory of their CPU tell no size of it, nor of BAR1, while utilisation, temperature and
// the memory of processes answer. A GH200 has a size and no BAR1.
func TestCase9NoMemoryInfo(t *testing.T) {
	for _, board := range []string{"gb10", "jetson-thor"} {
		d := gpu(t, "extends: "+board+"\ndevice_defaults: {utilization: {gpu: 30, memory: 0}, thermal: {temperature_gpu_c: 40}, "+
			"processes: [{pid: 7, used_memory_mib: 100}]}\n")
		refuses(t, abi.ERROR_NOT_SUPPORTED)(filled(DeviceGetMemoryInfo)(d))
		refuses(t, abi.ERROR_NOT_SUPPORTED)(filled(DeviceGetMemoryInfo_v2)(d))
		refuses(t, abi.ERROR_NOT_SUPPORTED)(filled(DeviceGetBAR1MemoryInfo)(d))
		answers(t, abi.Utilization_t{Gpu: 30})(filled(DeviceGetUtilizationRates)(d))
		answers(t, 40)(DeviceGetTemperature(d, abi.TEMPERATURE_GPU))
		list, ret := DeviceGetComputeRunningProcesses_v2(d)
		require.Equal(t, abi.SUCCESS, ret)
		require.Len(t, list, 1)
		assert.EqualValues(t, 100*mib, list[0].UsedGpuMemory)
		answers(t, 1)(DeviceGetCount(d.Snapshot()))
	}
	refuses(t, abi.ERROR_NOT_SUPPORTED)(filled(DeviceGetBAR1MemoryInfo)(gpu(t, "extends: gh200\n")))
}

// TestCase10NoProtectedMemory: no board has memory protected by confidential computing in use, and from driver 525 on all of them
// say so.
func TestCase10NoProtectedMemory(t *testing.T) {
	everyBoard(t, func(t *testing.T, _ string, d dev) {
		m, ret := filled(DeviceGetConfComputeProtectedMemoryUsage)(d)
		if ret == abi.SUCCESS {
			assert.Equal(t, abi.Memory_t{}, m)
		}
	})
	for _, board := range []string{"h100", "b200", "l40s", "t4", "a100-sxm4-40gb"} {
		answers(t, abi.Memory_t{})(filled(DeviceGetConfComputeProtectedMemoryUsage)(gpu(t, "extends: "+board+"\n")))
	}
}

// TestCase11BusIDs have a domain of 8 digits, and of 4 in busIdLegacy; a look-up takes both, in either case, and so does one by
// what NVML tells of a link's far end.
func TestCase11BusIDs(t *testing.T) {
	d := gpu(t, "extends: gb300\ncount: 2\nnvlink: {links: [{link: 0, remote_index: 1}]}\n")
	var pci abi.PciInfo_t
	require.Equal(t, abi.SUCCESS, DeviceGetPciInfo(d, &pci))
	full, short := cText(pci.BusId[:]), cText(pci.BusIdLegacy[:])
	assert.Equal(t, "00000008:06:00.0", full)
	assert.Equal(t, "0008:06:00.0", short)
	for _, id := range []string{full, short, strings.ToLower(full), strings.ToUpper(short)} {
		found, ret := DeviceGetHandleByPciBusId(d.Snapshot(), id)
		require.Equal(t, abi.SUCCESS, ret, id)
		assert.Same(t, d, found)
	}
	require.Equal(t, abi.SUCCESS, DeviceGetNvLinkRemotePciInfo(d, 0, &pci))
	found, ret := DeviceGetHandleByPciBusId(d.Snapshot(), cText(pci.BusId[:]))
	require.Equal(t, abi.SUCCESS, ret)
	assert.EqualValues(t, 1, found.Index)
	assert.Equal(t, cText(pci.BusId[:])[4:], cText(pci.BusIdLegacy[:]))
}

// cText is the text of a C string.
func cText[B ~uint8 | ~int8](s []B) string {
	var b strings.Builder
	for _, c := range s {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}

// TestCase12BoardIDs are made of domain, bus and device, are never 0, and differ between the GPUs of a machine.
func TestCase12BoardIDs(t *testing.T) {
	everyBoard(t, func(t *testing.T, _ string, d dev) {
		seen := map[uint32]bool{}
		for _, d := range d.Snapshot().Devices {
			id, ret := DeviceGetBoardId(d)
			require.Equal(t, abi.SUCCESS, ret)
			at := d.PCI.BusID.Value
			assert.Equal(t, at.Domain<<16|uint32(at.Bus)<<8|uint32(at.Device), id)
			assert.NotZero(t, id)
			assert.False(t, seen[id], "two GPUs with the board %#x", id)
			seen[id] = true
		}
	})
}

// TestCase13HostGeneration: the highest PCIe generation of the host does not follow from that of the GPU.
func TestCase13HostGeneration(t *testing.T) {
	for _, board := range []string{"h100", "b200", "gb200", "a100-sxm4-40gb", "l40s", "t4"} {
		refuses(t, abi.ERROR_NOT_SUPPORTED)(InternalSlot230(gpu(t, "extends: "+board+"\n")))
	}
	answers(t, 4)(InternalSlot230(gpu(t, "extends: gb300\n")))
}

// TestCase14VirtualizationAndC2C: the captured boards but GB300 were passed through to a virtual machine; a profile can say
// otherwise. Only GPUs that stand beside a Grace CPU use their link to it.
func TestCase14VirtualizationAndC2C(t *testing.T) {
	for board, want := range map[string]abi.GpuVirtualizationMode_t{
		"h100": abi.GPU_VIRTUALIZATION_MODE_PASSTHROUGH, "b200": abi.GPU_VIRTUALIZATION_MODE_PASSTHROUGH, "gb300": abi.GPU_VIRTUALIZATION_MODE_NONE,
	} {
		answers(t, want)(DeviceGetVirtualizationMode(gpu(t, "extends: "+board+"\n")))
	}
	for mode, want := range map[string]abi.GpuVirtualizationMode_t{
		"none": abi.GPU_VIRTUALIZATION_MODE_NONE, "passthrough": abi.GPU_VIRTUALIZATION_MODE_PASSTHROUGH,
		"vgpu": abi.GPU_VIRTUALIZATION_MODE_VGPU, "host_vgpu": abi.GPU_VIRTUALIZATION_MODE_HOST_VGPU,
	} {
		answers(t, want)(DeviceGetVirtualizationMode(gpu(t, like("virtualization: {mode: "+mode+"}"))))
	}
	for board, want := range map[string]uint32{"gb200": 1, "gb300": 1, "h100": 0, "b200": 0} {
		answers(t, abi.C2cModeInfo_v1_t{IsC2cEnabled: want})(filled(DeviceGetC2cModeInfoV)(gpu(t, "extends: "+board+"\n")))
	}
}

// TestCase15UUIDs: an unknown UUID is not found, and no GPU has the one of zeros.
func TestCase15UUIDs(t *testing.T) {
	const zeros = "GPU-00000000-0000-0000-0000-000000000000"
	everyBoard(t, func(t *testing.T, _ string, d dev) {
		refuses(t, abi.ERROR_NOT_FOUND)(DeviceGetHandleByUUID(d.Snapshot(), zeros))
		for _, d := range d.Snapshot().Devices {
			assert.NotEqual(t, zeros, string(d.UUID))
		}
	})
	_, err := profiles.Parse("p.yaml", []byte("devices: [{uuid: "+zeros+"}]\n"))
	assert.ErrorContains(t, err, "the all-zero UUID names no device")
}

// TestCase16LimitsAndMargins: a power limit that the profile leaves out is not supported, and no number stands for it. T.Limit
// replaces absolute temperatures on data-centre boards from Ada on.
func TestCase16LimitsAndMargins(t *testing.T) {
	d := gpu(t, "devices: [{power: {current_draw_mw: 50000}}]\n")
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetPowerManagementLimit(d))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetEnforcedPowerLimit(d))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetPowerManagementDefaultLimit(d))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetPowerManagementLimitConstraints(d))
	for id := range uint32(abi.FI_MAX) {
		if v := ask(t, d, id, 0); v.NvmlReturn == abi.SUCCESS {
			assert.Contains(t, []uint32{abi.FI_DEV_POWER_INSTANT, abi.FI_DEV_TOTAL_ENERGY_CONSUMPTION, abi.FI_DEV_ENERGY}, id)
		}
	}
	absolute := func(d dev) abi.Return {
		_, ret := DeviceGetTemperatureThreshold(d, abi.TEMPERATURE_THRESHOLD_SLOWDOWN)
		return ret
	}
	for _, board := range []string{"v100-sxm2-32gb", "t4", "a100-sxm4-40gb", "a100-sxm4-80gb", "a10g", "rtx-3090", "rtx-4080-super"} {
		d := gpu(t, "extends: "+board+"\n")
		assert.Equal(t, abi.SUCCESS, absolute(d), board)
		refuses(t, abi.ERROR_NOT_SUPPORTED)(filled(DeviceGetMarginTemperature)(d))
	}
	for _, board := range []string{"l4", "l40s", "h100", "h200", "b200", "gb200", "gb300"} {
		d := gpu(t, "extends: "+board+"\n")
		assert.Equal(t, abi.ERROR_NOT_SUPPORTED, absolute(d), board)
		assert.Equal(t, abi.SUCCESS, ask(t, d, abi.FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT, 0).NvmlReturn, board)
	}
}

// TestCase17AnErrorForEachField: the call succeeds, and each field says whether it has a value. An L4 does not know how warm its
// memory is.
func TestCase17AnErrorForEachField(t *testing.T) {
	d := gpu(t, "extends: l4\n")
	values := []abi.FieldValue_t{{FieldId: abi.FI_DEV_MEMORY_TEMP}, {FieldId: abi.FI_DEV_POWER_INSTANT}, {FieldId: 9999}}
	require.Equal(t, abi.SUCCESS, DeviceGetFieldValues(d, values))
	assert.Equal(t, abi.ERROR_NOT_SUPPORTED, values[0].NvmlReturn)
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, values[2].NvmlReturn)
	answers(t, values[1].Value[0])(DeviceGetPowerUsage(d))
}

// TestCase18ViolationsByPolicy: the time lost to each reason comes through fields, and that lost to a policy through
// nvmlDeviceGetViolationStatus, which knows which policies there are.
func TestCase18ViolationsByPolicy(t *testing.T) {
	d := gpu(t, like(`clocks_throttle_reasons: {counters: {sw_power_cap_us: 1, sync_boost_us: 2, sw_thermal_slowdown_us: 3,
		hw_thermal_slowdown_us: 4, hw_power_brake_slowdown_us: 5}}`))
	for id, want := range map[uint32]uint64{
		abi.FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP: 1, abi.FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST: 2,
		abi.FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN: 3, abi.FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN: 4,
		abi.FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN: 5,
	} {
		v := ask(t, d, id, 0)
		assert.Equal(t, abi.SUCCESS, v.NvmlReturn)
		assert.Equal(t, want*1000, v.Value[0], "field %d, in ns", id)
	}
	for policy, want := range map[abi.PerfPolicyType_t]abi.Return{
		abi.PERF_POLICY_POWER: abi.SUCCESS, abi.PERF_POLICY_THERMAL: abi.SUCCESS, abi.PERF_POLICY_SYNC_BOOST: abi.SUCCESS,
		abi.PERF_POLICY_RELIABILITY: abi.ERROR_NOT_SUPPORTED, abi.PERF_POLICY_BOARD_LIMIT: abi.ERROR_NOT_SUPPORTED,
		6: abi.ERROR_INVALID_ARGUMENT, abi.PERF_POLICY_COUNT: abi.ERROR_INVALID_ARGUMENT,
	} {
		assert.Equal(t, want, DeviceGetViolationStatus(d, policy, &abi.ViolationTime_t{}), "policy %d", policy)
	}
}

// TestCase19MemoryErrors: SRAM status, the histogram of spare rows, and counters for each location and type. tests/cases_test.go has
// the version of the SRAM status.
func TestCase19MemoryErrors(t *testing.T) {
	for _, board := range []string{"a100-sxm4-40gb", "h100", "b200", "l40s"} {
		d := gpu(t, "extends: "+board+"\n")
		assert.Equal(t, abi.SUCCESS, DeviceGetSramEccErrorStatus(d, &abi.EccSramErrorStatus_v1_t{}), board)
		rows, ret := filled(DeviceGetRowRemapperHistogram)(d)
		assert.Equal(t, abi.SUCCESS, ret, board)
		assert.NotZero(t, rows.Max, board)
		for severity := range abi.MEMORY_ERROR_TYPE_COUNT {
			for _, at := range []abi.MemoryLocation_t{abi.MEMORY_LOCATION_DRAM, abi.MEMORY_LOCATION_SRAM} {
				answers(t, 0)(DeviceGetMemoryErrorCounter(d, severity, abi.AGGREGATE_ECC, at))
			}
		}
	}
}

// TestCase20ApplicationsClocks are numbers up to driver 580 and deprecated from 590 on.
func TestCase20ApplicationsClocks(t *testing.T) {
	for driver, deprecated := range map[string]bool{"550.163.01": false, "580.105.08": false, "590.48.01": true, "610.43.02": true} {
		d := gpu(t, "extends: h100\nsystem: {driver_version: "+driver+"}\n")
		for _, get := range []func(dev, abi.ClockType_t) (uint32, abi.Return){DeviceGetApplicationsClock, DeviceGetDefaultApplicationsClock} {
			mhz, ret := get(d, abi.CLOCK_GRAPHICS)
			if deprecated {
				assert.Equal(t, abi.ERROR_DEPRECATED, ret, driver)
			} else {
				answers(t, 1980)(mhz, ret)
			}
		}
	}
}

// TestCase21WhatBlackwellLacks: operation mode, retired pages, a target temperature and an absolute limit of the memory.
func TestCase21WhatBlackwellLacks(t *testing.T) {
	for _, board := range []string{"b200", "gb200", "gb300", "gh200"} {
		d := gpu(t, "extends: "+board+"\n")
		refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetGpuOperationMode(d))
		refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetRetiredPages(d, abi.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR))
		refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetRetiredPagesPendingStatus(d))
		refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetTemperatureThreshold(d, abi.TEMPERATURE_THRESHOLD_ACOUSTIC_CURR))
		refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetTemperatureThreshold(d, abi.TEMPERATURE_THRESHOLD_MEM_MAX))
	}
}

// TestCase22ReadingsAgree: processes, utilisation, memory, clocks and power tell of one load.
func TestCase22ReadingsAgree(t *testing.T) {
	d := gpu(t, like(`processes: [{pid: 1, used_memory_mib: 1000, sm_util: 60, mem_util: 20}, {pid: 2, used_memory_mib: 500, sm_util: 20}]`))
	u, ret := filled(DeviceGetUtilizationRates)(d)
	require.Equal(t, abi.SUCCESS, ret)
	assert.GreaterOrEqual(t, u.Gpu, uint32(80))
	assert.GreaterOrEqual(t, u.Memory, uint32(20))
	m, _ := filled(DeviceGetMemoryInfo_v2)(d)
	assert.EqualValues(t, 1500*mib, m.Used)
	answers(t, 0)(DeviceGetCurrentClocksEventReasons(d))

	capped := like(`power: {requested_limit_mw: 300000, enforced_limit_mw: 300000}, clocks: {graphics_current: 1980},
		dynamic_metrics: {power: {base_mw: 600000}, utilization: {pattern: busy, gpu_min: 100}}`)
	d = gpu(t, capped)
	enginetest.At(t, time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC))
	answers(t, 300000)(DeviceGetPowerUsage(d))
	answers(t, abi.ClocksEventReasonSwPowerCap)(DeviceGetCurrentClocksEventReasons(d))
	mhz, _ := DeviceGetClockInfo(d, abi.CLOCK_GRAPHICS)
	assert.Less(t, mhz, uint32(1980))
}

// TestCase27Fabrics: complete with a cluster of zeros on an HGX H100, in progress while the machine boots, not supported on PCIe
// boards, and unhealthy if a profile says so. TestCase27FabricVersions in tests has what older callers see.
func TestCase27Fabrics(t *testing.T) {
	state := filled(DeviceGetGpuFabricInfoV)
	info, ret := state(gpu(t, ""))
	require.Equal(t, abi.SUCCESS, ret)
	assert.EqualValues(t, abi.GPU_FABRIC_STATE_COMPLETED, info.State)
	assert.Equal(t, abi.SUCCESS, info.Status)
	assert.Equal(t, [16]uint8{}, info.ClusterUuid)
	info, _ = state(gpu(t, like("fabric: {state: in_progress}")))
	assert.EqualValues(t, abi.GPU_FABRIC_STATE_IN_PROGRESS, info.State)
	for _, board := range []string{"h100-pcie", "l40s", "t4", "a100-pcie-80gb"} {
		refuses(t, abi.ERROR_NOT_SUPPORTED)(state(gpu(t, "extends: "+board+"\n")))
	}
	info, _ = state(gpu(t, "extends: gb200\ndevice_defaults: {fabric: {health_summary: auto, health: {route_unhealthy: true}}}\n"))
	assert.EqualValues(t, abi.GPU_FABRIC_HEALTH_SUMMARY_UNHEALTHY, info.HealthSummary)
}

// TestCase33ProcessNames: the name of a process in the profile is found by its id, and each kind has a list of its own.
func TestCase33ProcessNames(t *testing.T) {
	d := gpu(t, like("processes: [{pid: 41, type: C, name: /usr/bin/train}, {pid: 42, type: G, name: /usr/bin/draw}]"))
	answers(t, "/usr/bin/train")(SystemGetProcessName(d.Snapshot(), 41))
	answers(t, "/usr/bin/draw")(SystemGetProcessName(d.Snapshot(), 42))
	refuses(t, abi.ERROR_NOT_FOUND)(SystemGetProcessName(d.Snapshot(), 43))
	for pid, list := range map[uint32]func(dev) ([]abi.ProcessInfo_v2_t, abi.Return){
		41: DeviceGetComputeRunningProcesses_v2, 42: DeviceGetGraphicsRunningProcesses_v2,
	} {
		processes, ret := list(d)
		require.Equal(t, abi.SUCCESS, ret)
		require.Len(t, processes, 1, fmt.Sprint(pid))
		assert.Equal(t, pid, processes[0].Pid)
	}
	none, ret := DeviceGetMPSComputeRunningProcesses_v2(d)
	require.Equal(t, abi.SUCCESS, ret)
	assert.Empty(t, none, "nvidia-smi would say M too")
}
