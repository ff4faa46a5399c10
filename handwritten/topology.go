package handwritten

import (
	"slices"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/handwritten/engine"
	"github.com/nvmlfab/nvmlfab/profiles"
)

var topologyLevels = map[string]abi.GpuTopologyLevel_t{
	"internal":   abi.TOPOLOGY_INTERNAL,
	"single":     abi.TOPOLOGY_SINGLE,
	"multiple":   abi.TOPOLOGY_MULTIPLE,
	"hostbridge": abi.TOPOLOGY_HOSTBRIDGE,
	"node":       abi.TOPOLOGY_NODE,
	"system":     abi.TOPOLOGY_SYSTEM,
}

// rootComplex is the PCI host bridge that the device is below, nil if the profile does not say.
func rootComplex(d *engine.Device) *profiles.RootComplex {
	complexes := d.Node().Board.Topology.RootComplexes
	for i := range complexes {
		if slices.Contains(complexes[i].Devices, d.PCI.BusID.Value) {
			return &complexes[i]
		}
	}
	return nil
}

// distance is the level of the path between two devices: by their host bridges, otherwise what the first device says of
// every other, and SYSTEM, the longest, where nothing is known.
func distance(a, b *engine.Device) abi.GpuTopologyLevel_t {
	if a == b {
		return abi.TOPOLOGY_INTERNAL
	}
	ra, rb := rootComplex(a), rootComplex(b)
	switch {
	case ra == nil || rb == nil:
		return topologyLevels[a.Topology.DefaultLevel.Or("system")]
	case ra == rb:
		return topologyLevels[a.Topology.DefaultLevel.Or("hostbridge")]
	case ra.NUMANode.Valid && ra.NUMANode == rb.NUMANode:
		return abi.TOPOLOGY_NODE
	}
	return abi.TOPOLOGY_SYSTEM
}

// DeviceGetTopologyCommonAncestor is the level of the path between two GPUs.
func DeviceGetTopologyCommonAncestor(a, b *engine.Device) (abi.GpuTopologyLevel_t, abi.Return) {
	return distance(a, b), abi.SUCCESS
}

// DeviceOnSameBoard says whether two GPUs are on one board.
func DeviceOnSameBoard(a, b *engine.Device) (int32, abi.Return) {
	boardA, _ := DeviceGetBoardId(a)
	boardB, _ := DeviceGetBoardId(b)
	return int32(bit(boardA == boardB)), abi.SUCCESS
}

// DeviceGetP2PStatus says whether one GPU can access another. Those of a profile can, over NVLink if they have any;
// without it there are no atomics.
func DeviceGetP2PStatus(a, b *engine.Device, capability abi.GpuP2PCapsIndex_t) (abi.GpuP2PStatus_t, abi.Return) {
	switch capability {
	case abi.P2P_CAPS_INDEX_READ, abi.P2P_CAPS_INDEX_WRITE, abi.P2P_CAPS_INDEX_PCI:
		return abi.P2P_STATUS_OK, abi.SUCCESS
	case abi.P2P_CAPS_INDEX_NVLINK, abi.P2P_CAPS_INDEX_ATOMICS:
		if linked(a, b) {
			return abi.P2P_STATUS_OK, abi.SUCCESS
		}
		return abi.P2P_STATUS_NOT_SUPPORTED, abi.SUCCESS
	}
	return 0, abi.ERROR_INVALID_ARGUMENT
}

// linked says whether two devices share a link, or both have one to a switch.
func linked(a, b *engine.Device) bool {
	var switchA, switchB bool
	for i := range a.LinkCount() {
		link, _ := a.Link(i)
		if link.Active && link.Peer == b {
			return true
		}
		switchA = switchA || link.Active && link.Remote == abi.NVLINK_DEVICE_TYPE_SWITCH
	}
	for i := range b.LinkCount() {
		link, _ := b.Link(i)
		switchB = switchB || link.Active && link.Remote == abi.NVLINK_DEVICE_TYPE_SWITCH
	}
	return switchA && switchB
}
