package handwritten

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// The tests of this file show faults that were found by using the library, and keep them from coming back.

// TestFault1DownLinksLeadNowhere: NVML does not tell what a link that is down is connected to, so GPUs with such links are as far
// from each other as their PCI addresses say.
func TestFault1DownLinksLeadNowhere(t *testing.T) {
	node := enginetest.Start(t, "extends: h100\ncount: 2\nnvlink: {defaults: {state: inactive}}\n")
	a, b := node.Devices[0], node.Devices[1]
	for link := range a.LinkCount() {
		var pci abi.PciInfo_t
		assert.Equal(t, abi.ERROR_NOT_SUPPORTED, DeviceGetNvLinkRemotePciInfo(a, link, &pci))
		answers(t, abi.NVLINK_DEVICE_TYPE_UNKNOWN)(DeviceGetNvLinkRemoteDeviceType(a, link))
		answers(t, abi.FEATURE_DISABLED)(DeviceGetNvLinkState(a, link))
	}
	assert.Equal(t, abi.ERROR_NOT_SUPPORTED, ask(t, a, abi.FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT, 0).NvmlReturn)
	answers(t, abi.P2P_STATUS_NOT_SUPPORTED)(DeviceGetP2PStatus(a, b, abi.P2P_CAPS_INDEX_NVLINK))
}

// TestFault1BridgesJoinPairs: of three boards, two of which a bridge joins, only these two have links.
func TestFault1BridgesJoinPairs(t *testing.T) {
	links := ""
	for link := range 12 {
		links += fmt.Sprintf("{link: %d, remote_index: %%d}, ", link)
	}
	to := func(gpu int) string {
		peers := make([]any, 12)
		for i := range peers {
			peers[i] = gpu
		}
		return fmt.Sprintf(links, peers...)
	}
	node := enginetest.Start(t, "extends: h100-nvl\ncount: 3\nnvlink: {version: 4, links_per_gpu: 12, defaults: {state: inactive}, device_links: ["+
		"{index: 0, links: ["+active(to(1))+"]}, {index: 1, links: ["+active(to(0))+"]}]}\n")
	joined := func(a, b int) abi.GpuP2PStatus_t {
		status, ret := DeviceGetP2PStatus(node.Devices[a], node.Devices[b], abi.P2P_CAPS_INDEX_NVLINK)
		require.Equal(t, abi.SUCCESS, ret)
		return status
	}
	assert.Equal(t, abi.P2P_STATUS_OK, joined(0, 1))
	assert.Equal(t, abi.P2P_STATUS_OK, joined(1, 0))
	for _, pair := range [][2]int{{0, 2}, {2, 0}, {1, 2}, {2, 1}} {
		assert.Equal(t, abi.P2P_STATUS_NOT_SUPPORTED, joined(pair[0], pair[1]), pair)
	}
}

// active makes the links of a list active.
func active(links string) string {
	out := ""
	for _, c := range links {
		if c == '}' {
			out += ", state: active"
		}
		out += string(c)
	}
	return out
}

// TestFault2AffinityOfTheMachine: where the profile does not say which CPUs a GPU is near, it is near those of the machine.
func TestFault2AffinityOfTheMachine(t *testing.T) {
	for _, board := range []string{"t4", "rtx-4090", "l4"} {
		d := gpu(t, "extends: "+board+"\n")
		mask := make([]uint64, 1)
		assert.Equal(t, abi.SUCCESS, DeviceGetCpuAffinity(d, mask))
		assert.Equal(t, []uint64{0xff}, mask, "the eight CPUs of the test's machine")
		assert.Equal(t, abi.SUCCESS, DeviceGetCpuAffinityWithinScope(d, mask, abi.AFFINITY_SCOPE_NODE))
		assert.Equal(t, []uint64{0xff}, mask)
		assert.Equal(t, abi.SUCCESS, DeviceGetMemoryAffinity(d, mask, abi.AFFINITY_SCOPE_NODE))
		assert.Equal(t, []uint64{1}, mask, "the first node")
		near, ret := SystemGetTopologyGpuSet(d.Snapshot(), 7)
		assert.Equal(t, abi.SUCCESS, ret)
		assert.Len(t, near, len(d.Snapshot().Devices))
	}
}

// TestFault3AbsentIsAbsent: N/A takes a value away that is filled in otherwise, also on top of a board that has it.
func TestFault3AbsentIsAbsent(t *testing.T) {
	d := gpu(t, "extends: t4\ndevices: [{minor_number: N/A, board_id: N/A, pcie: {max_device_link_gen: N/A}}]\nsystem: {cuda_version: N/A}\n")
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetMinorNumber(d))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetBoardId(d))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetGpuMaxPcieLinkGeneration(d))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(SystemGetCudaDriverVersion(d.Snapshot()))
	d = gpu(t, "extends: h100\ncount: 2\ndevice_defaults: {board_id: N/A}\n")
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetBoardId(d))
	answers(t, 0)(DeviceGetMinorNumber(d))
	d = gpu(t, "extends: h100\ndevices: [{pci: {bus_id: \"0002:07:08.0\"}}]\n")
	answers(t, 0x20708)(DeviceGetBoardId(d))
	d = gpu(t, "extends: h100\ndevices: [{extends: t4, pci: {bus_id: \"0000:17:00.0\"}}]\n")
	answers(t, 0x1700)(DeviceGetBoardId(d))
}

// TestFault4CountersOfTheFifthGeneration: such links count packets; the counters of earlier links do not exist on them.
func TestFault4CountersOfTheFifthGeneration(t *testing.T) {
	for board, packets := range map[string]bool{"gb200": true, "b200": true, "h100": false} {
		d := gpu(t, "extends: "+board+"\n")
		old, now := abi.SUCCESS, abi.ERROR_NOT_SUPPORTED
		if packets {
			old, now = now, old
		}
		for id := uint32(abi.FI_DEV_NVLINK_ERROR_DL_REPLAY); id <= abi.FI_DEV_NVLINK_ERROR_DL_CRC; id++ {
			assert.Equal(t, old, ask(t, d, id, 0).NvmlReturn, "%s, field %d", board, id)
		}
		for id := uint32(abi.FI_DEV_NVLINK_COUNT_XMIT_PACKETS); id <= abi.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS; id++ {
			assert.Equal(t, now, ask(t, d, id, 0).NvmlReturn, "%s, field %d", board, id)
		}
	}
}

// TestFault5PowerManagementModeIsDeprecated from driver 590 on.
func TestFault5PowerManagementModeIsDeprecated(t *testing.T) {
	const driver = "extends: h100\nsystem: {driver_version: %s}\n"
	answers(t, abi.FEATURE_ENABLED)(DeviceGetPowerManagementMode(gpu(t, fmt.Sprintf(driver, "580.105.08"))))
	refuses(t, abi.ERROR_DEPRECATED)(DeviceGetPowerManagementMode(gpu(t, fmt.Sprintf(driver, "590.48.01"))))
}

// TestFault6NoUtilizationInMIGMode: a GPU that can be cut does not know how busy it is as a whole.
func TestFault6NoUtilizationInMIGMode(t *testing.T) {
	d := gpu(t, like("mig: {mode_current: enabled, mode_pending: enabled}, utilization: {gpu: 50, memory: 40}"))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(filled(DeviceGetUtilizationRates)(d))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetEncoderUtilization(d))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(filled(DeviceGetDynamicPstatesInfo)(d))
}

// TestFault8ABoardWithoutABrand is of an unknown one, since nvidia-smi topo -m fails on any error.
func TestFault8ABoardWithoutABrand(t *testing.T) {
	answers(t, abi.BRAND_UNKNOWN)(DeviceGetBrand(gpu(t, "devices: [{name: NVIDIA L40S, architecture: ada}]\n")))
}

// TestFault9LinksWithoutASpeed have a speed of 0, since nvidia-smi before 535 repeats the question for ever after an error.
func TestFault9LinksWithoutASpeed(t *testing.T) {
	d := gpu(t, "devices: [{}, {}]\nnvlink: {version: 3, links_per_gpu: 4}\n")
	for _, field := range [][2]uint32{{abi.FI_DEV_NVLINK_SPEED_MBPS_L0, 0}, {abi.FI_DEV_NVLINK_SPEED_MBPS_L3, 0}, {abi.FI_DEV_NVLINK_GET_SPEED, 2}} {
		v := ask(t, d, field[0], field[1])
		assert.Equal(t, abi.SUCCESS, v.NvmlReturn)
		assert.Zero(t, v.Value[0])
	}
}

// TestFault10LinksToACPU lead to what the header calls an IBM NPU, the only such links that NVML knows.
func TestFault10LinksToACPU(t *testing.T) {
	d := gpu(t, "devices: [{}]\nnvlink: {version: 2, links_per_gpu: 2, links: [{link: 0, remote_device_type: cpu}]}\n")
	answers(t, abi.NVLINK_DEVICE_TYPE_IBMNPU)(DeviceGetNvLinkRemoteDeviceType(d, 0))
}

// TestFault12OneUtilizationWithoutTheOther: what the profile does not tell of the memory takes nothing away from the GPU's.
func TestFault12OneUtilizationWithoutTheOther(t *testing.T) {
	d := gpu(t, like("utilization: {gpu: 70, memory: N/A}"))
	answers(t, abi.Utilization_t{Gpu: 70})(filled(DeviceGetUtilizationRates)(d))
	d = gpu(t, like("utilization: {gpu: N/A, memory: 30}"))
	answers(t, abi.Utilization_t{Memory: 30})(filled(DeviceGetUtilizationRates)(d))
	d = gpu(t, like("utilization: {gpu: N/A, memory: N/A}"))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(filled(DeviceGetUtilizationRates)(d))
}

// TestFault16SlowdownCountersOfEachDriver: the drivers 575 and 580 have the time lost to slowdowns under three numbers and the
// others under three others, where these drivers have power smoothing.
func TestFault16SlowdownCountersOfEachDriver(t *testing.T) {
	for driver, first := range map[string]uint32{"570.148.08": 269, "575.57.08": 251, "580.105.08": 251, "590.48.01": 269} {
		d := gpu(t, "extends: gb200\nsystem: {driver_version: "+driver+"}\n")
		for i := range uint32(3) {
			values := []abi.FieldValue_t{{FieldId: first + i}, {FieldId: 251 + 269 - first + i}}
			require.Equal(t, abi.SUCCESS, DeviceGetFieldValues(d, values))
			assert.Equal(t, abi.SUCCESS, values[0].NvmlReturn, "driver %s, field %d", driver, values[0].FieldId)
			assert.Equal(t, abi.ERROR_NO_PERMISSION, values[1].NvmlReturn, "driver %s, field %d", driver, values[1].FieldId)
		}
	}
}

// TestFault18ANodeWithoutCPUs: a GPU whose NUMA node the profile gives, without the node's CPUs, is near those of the machine.
func TestFault18ANodeWithoutCPUs(t *testing.T) {
	d := gpu(t, "extends: t4\ntopology: {root_complexes: [{numa_node: 1, devices: [\"0000:00:1e.0\"]}]}\n")
	mask := make([]uint64, 1)
	assert.Equal(t, abi.SUCCESS, DeviceGetCpuAffinity(d, mask))
	assert.Equal(t, []uint64{0xff}, mask)
	assert.Equal(t, abi.SUCCESS, DeviceGetMemoryAffinity(d, mask, abi.AFFINITY_SCOPE_NODE))
	assert.Equal(t, []uint64{2}, mask)
}

// TestFault19NothingAsked: no fields, and a unit that there is not, are invalid arguments.
func TestFault19NothingAsked(t *testing.T) {
	d := gpu(t, "")
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, DeviceGetFieldValues(d, nil))
	refuses(t, abi.ERROR_INVALID_ARGUMENT)(UnitGetHandleByIndex(d.Snapshot(), 0))
}

// TestFault20ViolationsOfAnA100: every GPU that tells why its clocks are held down counts the time that it loses.
func TestFault20ViolationsOfAnA100(t *testing.T) {
	for _, board := range []string{"a100-sxm4-40gb", "a100-sxm4-80gb", "t4"} {
		d := gpu(t, "extends: "+board+"\n")
		var v abi.ViolationTime_t
		assert.Equal(t, abi.SUCCESS, DeviceGetViolationStatus(d, abi.PERF_POLICY_POWER, &v), board)
		assert.Equal(t, abi.SUCCESS, DeviceGetViolationStatus(d, abi.PERF_POLICY_THERMAL, &v), board)
		assert.Equal(t, abi.SUCCESS, ask(t, d, abi.FI_DEV_PERF_POLICY_POWER, 0).NvmlReturn, board)
		assert.Equal(t, abi.SUCCESS, ask(t, d, abi.FI_DEV_PERF_POLICY_THERMAL, 0).NvmlReturn, board)
	}
}

// TestFault22ProfilesOfOthers: a complete profile of a data-centre board since Ada that gives absolute thresholds, and leaves out
// what boards always have, reads as such a board does.
func TestFault22ProfilesOfOthers(t *testing.T) {
	const board = `devices: [{architecture: %s, brand: nvidia, thermal: {temperature_gpu_c: 33, shutdown_threshold_c: 95,
		slowdown_threshold_c: 89, max_operating_c: 87, memory_max_operating_c: 95}, pcie: {max_link_gen: 5}, ecc: {mode_current: enabled},
		clocks_throttle_reasons: {gpu_idle: true}, fabric: {state: completed%s}}]` + "\n"
	d := gpu(t, fmt.Sprintf(board, "blackwell", ""))
	for threshold := range abi.TEMPERATURE_THRESHOLD_COUNT {
		refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetTemperatureThreshold(d, threshold))
	}
	answers(t, abi.MarginTemperature_v1_t{MarginTemperature: 54})(filled(DeviceGetMarginTemperature)(d))
	for id, want := range map[uint32]int32{
		abi.FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT: -8, abi.FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT: -2,
		abi.FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT: 0, abi.FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT: 0,
	} {
		v := ask(t, d, id, 0)
		assert.Equal(t, abi.SUCCESS, v.NvmlReturn, "field %d", id)
		assert.Equal(t, want, int32(uint32(v.Value[0])), "field %d", id)
	}
	answers(t, 5)(DeviceGetGpuMaxPcieLinkGeneration(d))
	answers(t, abi.EccSramErrorStatus_v1_t{})(filled(DeviceGetSramEccErrorStatus)(d))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(filled(DeviceGetSramEccErrorStatus)(gpu(t, "devices: [{architecture: hopper, ecc: {mode_current: enabled, sram: N/A}}]\n")))
	var v abi.ViolationTime_t
	assert.Equal(t, abi.SUCCESS, DeviceGetViolationStatus(d, abi.PERF_POLICY_POWER, &v))
	info, ret := filled(DeviceGetGpuFabricInfoV)(d)
	assert.Equal(t, abi.SUCCESS, ret)
	assert.EqualValues(t, abi.GPU_FABRIC_HEALTH_SUMMARY_HEALTHY, info.HealthSummary)

	info, _ = filled(DeviceGetGpuFabricInfoV)(gpu(t, fmt.Sprintf(board, "blackwell", ", health: {route_recovery: true}")))
	assert.EqualValues(t, 2|1<<2|2<<4|2<<6|1<<8, info.HealthMask, "one fault leaves the others false")
	assert.EqualValues(t, abi.GPU_FABRIC_HEALTH_SUMMARY_LIMITED_CAPACITY, info.HealthSummary)

	d = gpu(t, fmt.Sprintf(board, "ampere", ""))
	answers(t, 89)(DeviceGetTemperatureThreshold(d, abi.TEMPERATURE_THRESHOLD_SLOWDOWN))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(filled(DeviceGetMarginTemperature)(d))
}

// TestFault11NumbersOfFarLinks: a link to another GPU of the node has a number there, which leads back. nvidia-smi nvlink -R prints it.
func TestFault11NumbersOfFarLinks(t *testing.T) {
	for _, links := range []int{5, 6, 12} {
		node := enginetest.Start(t, fmt.Sprintf("extends: a100-sxm4-40gb\ncount: 4\nnvlink: {switches: N/A, links_per_gpu: %d}\n", links))
		for _, d := range node.Devices {
			for number := range uint32(links) {
				link, _ := d.Link(number)
				far := ask(t, d, abi.FI_DEV_NVLINK_REMOTE_NVLINK_ID, number)
				if link.Peer == nil {
					assert.Equal(t, abi.ERROR_NOT_SUPPORTED, far.NvmlReturn)
					continue
				}
				require.Equal(t, abi.SUCCESS, far.NvmlReturn)
				back := ask(t, link.Peer, abi.FI_DEV_NVLINK_REMOTE_NVLINK_ID, uint32(far.Value[0]))
				assert.EqualValues(t, number, back.Value[0])
			}
		}
	}
	assert.Equal(t, abi.ERROR_NOT_SUPPORTED, ask(t, gpu(t, ""), abi.FI_DEV_NVLINK_REMOTE_NVLINK_ID, 0).NvmlReturn, "it leads to a switch")
}

// TestFault11ErrorsInPlaceOfReadings: a profile can let a single field have an error. TestFault11ErrorsOfFunctions in tests lets
// functions answer one.
func TestFault11ErrorsInPlaceOfReadings(t *testing.T) {
	d := gpu(t, like("answers: [{field: 186, error: unknown_error}, {field: 82, error: reset_required}]"))
	assert.Equal(t, abi.ERROR_UNKNOWN, ask(t, d, abi.FI_DEV_POWER_INSTANT, 0).NvmlReturn)
	assert.Equal(t, abi.ERROR_RESET_REQUIRED, ask(t, d, abi.FI_DEV_MEMORY_TEMP, 0).NvmlReturn)
	assert.Equal(t, abi.SUCCESS, ask(t, d, abi.FI_DEV_POWER_AVERAGE, 0).NvmlReturn)
	for mistake, want := range map[string]string{
		"answers: [{function: nvmlDeviceGetPower, error: lost}]":         `unknown function "nvmlDeviceGetPower"`,
		"answers: [{function: nvmlSystemGetDriverVersion, error: lost}]": "want one of a GPU",
		"answers: [{error: lost}]":                                       "wants either a function or a field",
		"answers: [{field: 1, error: broken}]":                           "broken",
	} {
		_, err := profiles.Parse("p.yaml", []byte(like(mistake)))
		assert.ErrorContains(t, err, want)
	}
}

// TestFault11WhatProfilesCanSay: voltage, errors of units that few boards count, no minor number, a reset that is due and a hostname.
func TestFault11WhatProfilesCanSay(t *testing.T) {
	d := gpu(t, `devices: [{minor_number: N/A, voltage: {graphics_uv: 743750}, ecc: {mode_current: enabled, errors: {volatile: {double_bit:
		{texture_shm: 3, cbu: 4}}}}, reset_status: {required: true, drain_and_reset: false}}]
system: {driver_version: 550.163.01}
`)
	answers(t, 743750)(InternalSlot209(d))
	answers(t, 3)(DeviceGetMemoryErrorCounter(d, abi.MEMORY_ERROR_TYPE_UNCORRECTED, abi.VOLATILE_ECC, abi.MEMORY_LOCATION_TEXTURE_SHM))
	answers(t, 4)(DeviceGetMemoryErrorCounter(d, abi.MEMORY_ERROR_TYPE_UNCORRECTED, abi.VOLATILE_ECC, abi.MEMORY_LOCATION_CBU))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetMinorNumber(d))
	assert.EqualValues(t, 1, ask(t, d, abi.FI_DEV_RESET_STATUS, 0).Value[0])
	assert.EqualValues(t, 0, ask(t, d, abi.FI_DEV_DRAIN_AND_RESET_STATUS, 0).Value[0])
}

// TestFault21GPUsBelowSwitches: a profile can pair GPUs below PCIe switches, also below switches that are below another.
func TestFault21GPUsBelowSwitches(t *testing.T) {
	node := enginetest.Start(t, `
devices: [{pci: {bus_id: "0000:01:00.0"}}, {pci: {bus_id: "0000:02:00.0"}}, {pci: {bus_id: "0000:03:00.0"}}, {pci: {bus_id: "0000:04:00.0"}},
  {pci: {bus_id: "0000:81:00.0"}}]
topology:
  root_complexes:
    - {numa_node: 0, cpu_affinity: 0-3, devices: ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0", "0000:81:00.0"]}
  pci_switches:
    - devices: ["0000:01:00.0", "0000:02:00.0"]
    - devices: ["0000:03:00.0", "0000:04:00.0"]
    - devices: ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"]
`)
	for pair, want := range map[[2]int]abi.GpuTopologyLevel_t{
		{0, 1}: abi.TOPOLOGY_SINGLE, {3, 2}: abi.TOPOLOGY_SINGLE, {0, 2}: abi.TOPOLOGY_MULTIPLE, {3, 1}: abi.TOPOLOGY_MULTIPLE,
		{0, 4}: abi.TOPOLOGY_HOSTBRIDGE, {4, 3}: abi.TOPOLOGY_HOSTBRIDGE,
	} {
		answers(t, want)(DeviceGetTopologyCommonAncestor(node.Devices[pair[0]], node.Devices[pair[1]]))
	}
	near, ret := DeviceGetTopologyNearestGpus(node.Devices[0], abi.TOPOLOGY_SINGLE)
	require.Equal(t, abi.SUCCESS, ret)
	require.Len(t, near, 1)
	assert.EqualValues(t, 1, near[0].Index)
	level, ret := InternalSlot23(node, "0000:01:00.0", "0000:03:00.0")
	require.Equal(t, abi.SUCCESS, ret)
	assert.EqualValues(t, 1, level, "PXB of topo -m")
}
