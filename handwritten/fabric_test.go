package handwritten

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

var cluster = [16]uint8{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

func TestFabric(t *testing.T) {
	const healthy = `health: {degraded_bandwidth: false, route_recovery: false, route_unhealthy: false,
		access_timeout_recovery: false, incorrect_configuration: none}`
	for fabric, want := range map[string]struct {
		state   abi.GpuFabricState_t
		mask    uint32
		summary uint8
	}{
		"state: completed":                   {abi.GPU_FABRIC_STATE_COMPLETED, 0, abi.GPU_FABRIC_HEALTH_SUMMARY_HEALTHY},
		"state: auto":                        {abi.GPU_FABRIC_STATE_COMPLETED, 0, abi.GPU_FABRIC_HEALTH_SUMMARY_HEALTHY},
		"state: in_progress":                 {abi.GPU_FABRIC_STATE_IN_PROGRESS, 0, abi.GPU_FABRIC_HEALTH_SUMMARY_NOT_SUPPORTED},
		"state: not_started":                 {abi.GPU_FABRIC_STATE_NOT_STARTED, 0, abi.GPU_FABRIC_HEALTH_SUMMARY_NOT_SUPPORTED},
		"health_mask: 0x155":                 {abi.GPU_FABRIC_STATE_COMPLETED, 0x155, abi.GPU_FABRIC_HEALTH_SUMMARY_NOT_SUPPORTED},
		"health: {degraded_bandwidth: true}": {abi.GPU_FABRIC_STATE_COMPLETED, 0x1a9, abi.GPU_FABRIC_HEALTH_SUMMARY_LIMITED_CAPACITY},
		healthy:                              {abi.GPU_FABRIC_STATE_COMPLETED, 0x1aa, abi.GPU_FABRIC_HEALTH_SUMMARY_HEALTHY},
		"health: {incorrect_configuration: no_partition}":          {abi.GPU_FABRIC_STATE_COMPLETED, 0x4aa, abi.GPU_FABRIC_HEALTH_SUMMARY_UNHEALTHY},
		"health: {route_unhealthy: true}, health_summary: healthy": {abi.GPU_FABRIC_STATE_COMPLETED, 0x19a, abi.GPU_FABRIC_HEALTH_SUMMARY_HEALTHY},
	} {
		t.Run(fabric, func(t *testing.T) {
			d := gpu(t, "devices: [{architecture: blackwell, fabric: {cluster_uuid: 000102030405060708090a0b0c0d0e0f, clique_id: 7, "+
				fabric+"}}]\n")
			info := abi.GpuFabricInfo_v3_t{State: want.state, HealthMask: want.mask, HealthSummary: want.summary}
			var cliques uint32
			if want.state == abi.GPU_FABRIC_STATE_COMPLETED {
				info.ClusterUuid, info.CliqueId, cliques = cluster, 7, 4
			}
			answers(t, info)(filled(DeviceGetGpuFabricInfoV)(d))
			answers(t, abi.GpuFabricInfo_t{ClusterUuid: info.ClusterUuid, CliqueId: info.CliqueId, State: info.State})(
				filled(DeviceGetGpuFabricInfo)(d))
			v4, ret := filled(DeviceGetGpuFabricInfo_v4)(d)
			require.Equal(t, abi.SUCCESS, ret)
			require.Equal(t, cliques, v4.NumCliques)
			for i := range cliques {
				assert.Equal(t, abi.GpuFabricClique_v1_t{Type: uint8(i), Id: 7}, v4.Cliques[i])
			}
		})
	}

	v4, ret := filled(DeviceGetGpuFabricInfo_v4)(gpu(t, ""))
	require.Equal(t, abi.SUCCESS, ret)
	assert.EqualValues(t, 2, v4.NumCliques, "two types on Hopper")
}

func TestPlatform(t *testing.T) {
	d := gpu(t, `devices: [{platform: {chassis_serial_number: "123456789012345678", slot_number: 14, host_id: 1,
		peer_type: switch_connected, gpu_fabric_guid: 0x0102}}]`)
	info, ret := filled(DeviceGetPlatformInfo)(d)
	require.Equal(t, abi.SUCCESS, ret)
	want := abi.PlatformInfo_v2_t{IbGuid: [16]uint8{6: 1, 7: 2}, SlotNumber: 14, TrayIndex: 0xff, HostId: 1, PeerType: 1, ModuleId: 0xff}
	copy(want.ChassisSerialNumber[:], "123456789012345")
	assert.Equal(t, want, info)
}

func TestNVLink(t *testing.T) {
	d := gpu(t, "")
	refuses(t, abi.ERROR_INVALID_ARGUMENT)(DeviceGetNvLinkState(d, 18))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetNvLinkCapability(gpu(t, bare), 0, 0))

	d = gpu(t, "")
	answers(t, 1)(DeviceGetNvLinkCapability(d, 0, abi.NVLINK_CAP_P2P_SUPPORTED))
	answers(t, 0)(DeviceGetNvLinkCapability(d, 0, abi.NVLINK_CAP_SLI_BRIDGE))
	answers(t, 0)(DeviceGetNvLinkErrorCounter(d, 0, abi.NVLINK_ERROR_DL_REPLAY))
	var pci abi.PciInfo_t
	require.Equal(t, abi.SUCCESS, DeviceGetNvLinkRemotePciInfo(d, 1, &pci))
	assert.Equal(t, abi.ERROR_NOT_SUPPORTED, DeviceGetNvLinkRemotePciInfo(d, 18, &pci))
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, DeviceGetNvLinkRemotePciInfo(d, abi.NVLINK_MAX_LINKS, &pci))
	assert.Equal(t, "00000000:02:00.0", string(pci.BusId[:16]))
	assert.Zero(t, pci.PciDeviceId)

	pair := "extends: h100\ncount: 2\nnvlink: {switches: []}\n"
	require.Equal(t, abi.SUCCESS, DeviceGetNvLinkRemotePciInfo(gpu(t, pair), 0, &pci))
	assert.EqualValues(t, 0x233010de, pci.PciDeviceId)
	alone := "extends: h100\ncount: 1\nnvlink: {switches: []}\n"
	assert.Equal(t, abi.ERROR_NOT_SUPPORTED, DeviceGetNvLinkRemotePciInfo(gpu(t, alone), 0, &pci))
}

func TestP2P(t *testing.T) {
	status := func(node *engine.Snapshot, c abi.GpuP2PCapsIndex_t) abi.GpuP2PStatus_t {
		s, ret := DeviceGetP2PStatus(node.Devices[0], node.Devices[1], c)
		require.Equal(t, abi.SUCCESS, ret)
		return s
	}
	linked := enginetest.Start(t, "")
	apart := enginetest.Start(t, "devices: [{}, {}]\n")
	for capability, want := range map[abi.GpuP2PCapsIndex_t]abi.GpuP2PStatus_t{
		abi.P2P_CAPS_INDEX_READ: abi.P2P_STATUS_OK, abi.P2P_CAPS_INDEX_PROP: abi.P2P_STATUS_OK,
		abi.P2P_CAPS_INDEX_NVLINK: abi.P2P_STATUS_NOT_SUPPORTED, abi.P2P_CAPS_INDEX_ATOMICS: abi.P2P_STATUS_NOT_SUPPORTED,
	} {
		assert.EqualValues(t, abi.P2P_STATUS_OK, status(linked, capability))
		assert.Equal(t, want, status(apart, capability))
	}
}

func TestTopology(t *testing.T) {
	const profile = `
devices:
  - {pci: {bus_id: "01:00.0"}}
  - {pci: {bus_id: "02:00.0"}}
  - {pci: {bus_id: "03:00.0"}}
  - {pci: {bus_id: "04:00.0"}}
  - {pci: {bus_id: "05:00.0"}}
topology:
  cores_per_numa: 8
  root_complexes:
    - {numa_node: 0, devices: ["01:00.0", "02:00.0"], cpu_affinity: "0-3,64"}
    - {numa_node: 0, devices: ["03:00.0"]}
    - {numa_node: 1, devices: ["04:00.0"]}
`
	s, h := enginetest.StartHost(t, profile)
	d := s.Devices
	for i, want := range []abi.GpuTopologyLevel_t{
		abi.TOPOLOGY_INTERNAL, abi.TOPOLOGY_HOSTBRIDGE, abi.TOPOLOGY_NODE, abi.TOPOLOGY_SYSTEM, abi.TOPOLOGY_SYSTEM,
	} {
		answers(t, want)(DeviceGetTopologyCommonAncestor(d[0], d[i]))
		answers(t, want)(DeviceGetTopologyCommonAncestor(d[i], d[0]))
	}
	answers(t, []*engine.Device{d[3], d[4]})(DeviceGetTopologyNearestGpus(d[0], abi.TOPOLOGY_SYSTEM))
	answers(t, []*engine.Device{d[3]})(SystemGetTopologyGpuSet(d[0].Snapshot(), 9))
	answers(t, 1)(DeviceOnSameBoard(d[0], d[0]))
	answers(t, 0)(DeviceOnSameBoard(d[0], d[1]))

	mask := []uint64{7, 7}
	require.Equal(t, abi.SUCCESS, DeviceGetCpuAffinity(d[0], mask))
	assert.Equal(t, []uint64{0xf, 1}, mask)
	require.Equal(t, abi.SUCCESS, DeviceGetCpuAffinityWithinScope(d[3], mask[:1], abi.AFFINITY_SCOPE_SOCKET))
	assert.Equal(t, []uint64{0xff00, 1}, mask)
	require.Equal(t, abi.SUCCESS, DeviceGetMemoryAffinity(d[3], mask[:1], abi.AFFINITY_SCOPE_NODE))
	assert.Equal(t, []uint64{2, 1}, mask)
	require.Equal(t, abi.SUCCESS, DeviceGetCpuAffinity(d[4], mask), "the CPUs of the machine that the program runs on")
	assert.Equal(t, []uint64{0xff, 0}, mask)
	require.Equal(t, abi.SUCCESS, DeviceGetMemoryAffinity(d[4], mask, abi.AFFINITY_SCOPE_NODE))
	assert.Equal(t, []uint64{1, 0}, mask)

	require.Equal(t, abi.SUCCESS, DeviceSetCpuAffinity(d[0]))
	assert.EqualValues(t, []uint32{0, 1, 2, 3, 64}, h.Bound)
	require.Equal(t, abi.SUCCESS, DeviceSetCpuAffinity(d[3]), "there are no such CPUs here")
	assert.EqualValues(t, []uint32{0, 1, 2, 3, 64}, h.Bound)
	require.Equal(t, abi.SUCCESS, DeviceClearCpuAffinity(d[0]))
	assert.Nil(t, h.Bound)
}
