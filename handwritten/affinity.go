package handwritten

import (
	"slices"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// cpus are the CPUs near a device: those of its host bridge, or else of its NUMA node. If the profile does not tell, they are
// the CPUs of the machine that the program runs on, as a GPU is near all CPUs of a machine with one NUMA node.
func cpus(d *engine.Device) []uint32 {
	bridge := rootComplex(d)
	if bridge != nil && len(bridge.CPUAffinity) > 0 {
		return bridge.CPUAffinity
	}
	cores := d.Snapshot().Board.Topology.CoresPerNUMA.Or(0)
	if bridge == nil || !bridge.NUMANode.Valid || cores == 0 {
		return d.Snapshot().Engine().CPUs()
	}
	node := bridge.NUMANode.Value
	if node < 0 { // a bridge that is near no node
		return nil
	}
	list := make([]uint32, cores)
	for i := range list {
		list[i] = uint32(node)*cores + uint32(i)
	}
	return list
}

// fill sets the bits of a mask and ignores bits that it has no room for. It answers NOT_SUPPORTED if there are no bits.
func fill(mask []uint64, bits []uint32) abi.Return {
	clear(mask)
	if len(mask) == 0 {
		return abi.ERROR_INVALID_ARGUMENT
	}
	if len(bits) == 0 {
		return abi.ERROR_NOT_SUPPORTED
	}
	for _, b := range bits {
		if i := int(b / 64); i < len(mask) {
			mask[i] |= 1 << (b % 64)
		}
	}
	return abi.SUCCESS
}

// DeviceGetCpuAffinity is the CPUs near the GPU, as a mask.
func DeviceGetCpuAffinity(d *engine.Device, mask []uint64) abi.Return { return fill(mask, cpus(d)) }

// DeviceGetCpuAffinityWithinScope is DeviceGetCpuAffinity, since the profile does not distinguish NUMA nodes from
// sockets.
func DeviceGetCpuAffinityWithinScope(d *engine.Device, mask []uint64, scope abi.AffinityScope_t) abi.Return {
	if scope > abi.AFFINITY_SCOPE_SOCKET {
		return abi.ERROR_INVALID_ARGUMENT
	}
	return fill(mask, cpus(d))
}

// DeviceGetMemoryAffinity is the NUMA node near the GPU, as a mask.
func DeviceGetMemoryAffinity(d *engine.Device, mask []uint64, scope abi.AffinityScope_t) abi.Return {
	if scope > abi.AFFINITY_SCOPE_SOCKET {
		return abi.ERROR_INVALID_ARGUMENT
	}
	var node int32 // the only one, if the profile does not tell
	if bridge := rootComplex(d); bridge != nil {
		node = bridge.NUMANode.Or(0)
	}
	if node < 0 {
		return fill(mask, nil)
	}
	return fill(mask, []uint32{uint32(node)})
}

// DeviceGetTopologyNearestGpus lists the GPUs at a topology level from the GPU.
func DeviceGetTopologyNearestGpus(d *engine.Device, level abi.GpuTopologyLevel_t) ([]*engine.Device, abi.Return) {
	if level > abi.TOPOLOGY_SYSTEM || level%10 != 0 {
		return nil, abi.ERROR_INVALID_ARGUMENT
	}
	var near []*engine.Device
	for _, other := range d.Snapshot().Devices {
		if other.Key() != d.Key() && distance(d, other) == level {
			near = append(near, other)
		}
	}
	return near, abi.SUCCESS
}

// SystemGetTopologyGpuSet lists the GPUs near a CPU.
func SystemGetTopologyGpuSet(s *engine.Snapshot, cpu uint32) ([]*engine.Device, abi.Return) {
	var near []*engine.Device
	for _, d := range s.Devices {
		if slices.Contains(cpus(d), cpu) {
			near = append(near, d)
		}
	}
	return near, abi.SUCCESS
}

// DeviceSetCpuAffinity lets the calling thread run on the CPUs near the GPU alone. Where the machine has none of these CPUs,
// since the profile describes another machine, the thread stays where it is.
func DeviceSetCpuAffinity(d *engine.Device) abi.Return {
	near := cpus(d)
	if len(near) == 0 {
		return abi.ERROR_NOT_SUPPORTED
	}
	e := d.Snapshot().Engine()
	if own := e.CPUs(); slices.ContainsFunc(near, func(cpu uint32) bool { return slices.Contains(own, cpu) }) && e.SetCPUs(near) != nil {
		return abi.ERROR_UNKNOWN
	}
	return abi.SUCCESS
}

// DeviceClearCpuAffinity lets the calling thread run on all CPUs.
func DeviceClearCpuAffinity(d *engine.Device) abi.Return {
	if d.Snapshot().Engine().SetCPUs(nil) != nil {
		return abi.ERROR_UNKNOWN
	}
	return abi.SUCCESS
}
