package handwritten

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// mixed is a host with vGPUs of two sizes at places.
const mixed = `
extends: t4-vgpu-host
device_defaults:
  vgpu:
    heterogeneous_mode: enabled
    types:
      - {id: 1, name: small, class: A, framebuffer_mib: 1024, max_instances: 9, display_heads: 1, max_x: 1, max_y: 1,
         placement_size: 4, placement_ids: [0, 4, 8, 12, 16]}
      - {id: 2, name: large, class: A, framebuffer_mib: 2048, max_instances: 2, display_heads: 1, max_x: 1, max_y: 1,
         placement_size: 8, placement_ids: [0, 8, 16]}
    instances:
      - {id: 10, type: small, uuid: 11111111-2222-3333-4444-555555555555, vm_id: a, placement_id: 4,
         utilization: {sm: 1, memory: 2, encoder: 3, decoder: 4, jpeg: 5, ofa: 6},
         processes: [{pid: 7, name: p, utilization: {ofa: 6}}, {pid: 8}]}
      - {id: 11, type: large, uuid: 12111111-2222-3333-4444-555555555555, vm_id: b, placement_id: 8}
devices: [{index: 0, vgpu: {scheduler: {policy: fixed_share}}}]
`

// TestVGPULists checks lists whose arrays a struct points to.
func TestVGPULists(t *testing.T) {
	d := enginetest.Start(t, mixed).Devices[0]
	var p abi.VgpuPlacementList_v2_t
	for id, want := range map[abi.VgpuTypeId_t][2][]uint32{1: {{0, 4, 8, 12, 16}, {0, 16}}, 2: {{0, 8, 16}, {16}}} {
		supported, ret := DeviceGetVgpuTypeSupportedPlacements(d, id, &p)
		require.Equal(t, abi.SUCCESS, ret)
		creatable, ret := DeviceGetVgpuTypeCreatablePlacements(d, id, &p)
		require.Equal(t, abi.SUCCESS, ret)
		assert.Equal(t, want, [2][]uint32{supported, creatable})
		assert.Equal(t, 4*uint32(id), p.PlacementSize)
	}
	refuses(t, abi.ERROR_INVALID_ARGUMENT)(DeviceGetVgpuTypeSupportedPlacements(d, 3, &p))
	p.Mode = abi.VGPU_PGPU_HOMOGENEOUS_MODE
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetVgpuTypeCreatablePlacements(d, 1, &p))

	var use abi.VgpuInstancesUtilizationInfo_v1_t
	instances, ret := DeviceGetVgpuInstancesUtilizationInfo(d, &use)
	require.Equal(t, abi.SUCCESS, ret)
	require.Len(t, instances, 2)
	first := instances[0]
	assert.Equal(t, []abi.Value_t{{1}, {2}, {3}, {4}, {5}, {6}},
		[]abi.Value_t{first.SmUtil, first.MemUtil, first.EncUtil, first.DecUtil, first.JpgUtil, first.OfaUtil})
	var running abi.VgpuProcessesUtilizationInfo_v1_t
	processes, ret := DeviceGetVgpuProcessesUtilizationInfo(d, &running)
	require.Equal(t, abi.SUCCESS, ret)
	require.Len(t, processes, 1, "the other one is idle")
	assert.Equal(t, []uint32{10, 7, 6}, []uint32{uint32(processes[0].VgpuInstance), processes[0].Pid, processes[0].OfaUtil})
	running.LastSeenTimeStamp = processes[0].TimeStamp
	refuses(t, abi.ERROR_NOT_FOUND)(DeviceGetVgpuProcessesUtilizationInfo(d, &running))
}
