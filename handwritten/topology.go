package handwritten

import (
	"slices"
	"sync/atomic"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

var topologyLevels = table[string, abi.GpuTopologyLevel_t]{
	{"internal", abi.TOPOLOGY_INTERNAL},
	{"single", abi.TOPOLOGY_SINGLE},
	{"multiple", abi.TOPOLOGY_MULTIPLE},
	{"hostbridge", abi.TOPOLOGY_HOSTBRIDGE},
	{"node", abi.TOPOLOGY_NODE},
	{"system", abi.TOPOLOGY_SYSTEM},
}

// hostBridge is the PCI host bridge above an address; nil if the profile does not tell.
func hostBridge(board *profiles.Board, id profiles.BusID) *profiles.RootComplex {
	complexes := board.Topology.RootComplexes
	for i := range complexes {
		if slices.Contains(complexes[i].Devices, id) {
			return &complexes[i]
		}
	}
	return nil
}

// rootComplex is the PCI host bridge above the device; nil if the profile does not tell.
func rootComplex(d *engine.Device) *profiles.RootComplex {
	return hostBridge(d.Snapshot().Board, d.PCI.BusID.Value)
}

// across is the level of the path between devices below two host bridges. byDefault is the level if the profile lacks
// one of the bridges, or if both are the same; without it the level is SYSTEM, the longest path, or HOSTBRIDGE.
func across(a, b *profiles.RootComplex, byDefault profiles.Opt[string]) abi.GpuTopologyLevel_t {
	switch {
	case a == nil || b == nil:
		return topologyLevels.Of(byDefault.Or("system"))
	case a == b:
		return topologyLevels.Of(byDefault.Or("hostbridge"))
	case a.NUMANode.Valid && a.NUMANode == b.NUMANode:
		return abi.TOPOLOGY_NODE
	}
	return abi.TOPOLOGY_SYSTEM
}

// distance is the level of the path between two devices.
func distance(a, b *engine.Device) abi.GpuTopologyLevel_t {
	if a.Index == b.Index { // a MIG device has its GPU's
		return abi.TOPOLOGY_INTERNAL
	}
	if shared, nested := a.Snapshot().Board.Topology.Switched(a.PCI.BusID.Value, b.PCI.BusID.Value); nested {
		return abi.TOPOLOGY_MULTIPLE
	} else if shared {
		return abi.TOPOLOGY_SINGLE
	}
	return across(rootComplex(a), rootComplex(b), a.Topology.DefaultLevel)
}

// route is the level of the path between two PCI devices, one of which need not be a GPU. Two functions of one card have one
// switch above them, and devices below a switch that the profile puts there have its ports between them. An adapter beside a GPU
// is as far from everything else as that GPU is.
func route(s *engine.Snapshot, a, b profiles.BusID) abi.GpuTopologyLevel_t {
	x, y := s.DeviceByBusID(a), s.DeviceByBusID(b)
	if x != nil && y != nil {
		return distance(x, y)
	}
	if a.Card() == b.Card() {
		return abi.TOPOLOGY_SINGLE
	}
	near := adaptersOf(s.Board)
	for _, shared := range near.switches {
		if shared.Has(a) && shared.Has(b) {
			return abi.TOPOLOGY_MULTIPLE
		}
	}
	bridgeA, bridgeB := hostBridge(s.Board, a), hostBridge(s.Board, b)
	if bridgeA != nil && bridgeB != nil {
		return across(bridgeA, bridgeB, profiles.Opt[string]{})
	}
	x, y = near.beside(s, a, x), near.beside(s, b, y)
	switch {
	case x == nil || y == nil:
		return across(bridgeA, bridgeB, profiles.Opt[string]{})
	case x.Key() == y.Key():
		return abi.TOPOLOGY_HOSTBRIDGE
	}
	return distance(x, y)
}

// adapters are where a board's InfiniBand adapters are.
type adapters struct {
	board    *profiles.Board
	switches []profiles.PCISwitch
	gpus     map[profiles.BusID]int // the GPU beside an adapter
}

// lastAdapters are those of the board that was asked about last: nvidia-smi asks for each pair of devices of a board.
var lastAdapters atomic.Pointer[adapters]

func adaptersOf(board *profiles.Board) *adapters {
	if last := lastAdapters.Load(); last != nil && last.board == board {
		return last
	}
	a := &adapters{board, board.PCISwitches(), map[profiles.BusID]int{}}
	for _, adapter := range board.Adapters("") {
		if adapter.GPU >= 0 {
			a.gpus[adapter.BusID] = adapter.GPU
		}
	}
	lastAdapters.Store(a)
	return a
}

// beside is the GPU next to which an adapter is, or else the GPU d that the device itself is; nil if there is none.
func (a *adapters) beside(s *engine.Snapshot, id profiles.BusID, d *engine.Device) *engine.Device {
	if gpu, ok := a.gpus[id]; ok {
		return s.DeviceByBusID(a.board.Devices[gpu].PCI.BusID.Value)
	}
	return d
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

// DeviceGetP2PStatus says whether one GPU can access another. All GPUs of a profile can, over NVLink if they have
// links. Atomics need NVLink.
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
		if link.Active && link.Peer != nil && link.Peer.Key() == b.Key() {
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
