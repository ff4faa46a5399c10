package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// frameBuffer divides the memory into reserved, used and free; NOT_SUPPORTED if the profile does not give its size.
func frameBuffer(d *engine.Device) (m abi.Memory_v2_t, ret abi.Return) {
	use, ok := d.MemoryUse()
	if !ok {
		return m, abi.ERROR_NOT_SUPPORTED
	}
	return abi.Memory_v2_t{Total: use.Total, Reserved: use.Reserved, Used: use.Used, Free: use.Free}, abi.SUCCESS
}

// DeviceGetMemoryInfo is the memory in bytes; what the driver reserves counts as used, so used + free = total.
func DeviceGetMemoryInfo(d *engine.Device, memory *abi.Memory_t) abi.Return {
	m, ret := frameBuffer(d)
	*memory = abi.Memory_t{Total: m.Total, Free: m.Free, Used: m.Total - m.Free}
	return ret
}

// DeviceGetMemoryInfo_v2 is the memory in bytes; what the driver reserves has a field of its own.
func DeviceGetMemoryInfo_v2(d *engine.Device, memory *abi.Memory_v2_t) abi.Return {
	m, ret := frameBuffer(d)
	m.Version = memory.Version
	*memory = m
	return ret
}

// portion is a piece of memory and its free part, which is the rest if the profile does not give it.
func portion(m profiles.MemoryUse) (abi.Memory_t, abi.Return) {
	total, ret := opt(m.TotalBytes)
	used := min(m.UsedBytes.Or(less(total, m.FreeBytes.Or(total))), total)
	return abi.Memory_t{Total: total, Free: m.FreeBytes.Or(total - used), Used: used}, ret
}

// DeviceGetBAR1MemoryInfo is the BAR1 aperture, in bytes.
func DeviceGetBAR1MemoryInfo(d *engine.Device, bar1 *abi.BAR1Memory_t) abi.Return {
	m, ret := portion(d.BAR1Memory)
	*bar1 = abi.BAR1Memory_t{Bar1Total: m.Total, Bar1Free: m.Free, Bar1Used: m.Used}
	return ret
}

// DeviceGetMemoryBusWidth is the width of the memory's bus, in bits.
func DeviceGetMemoryBusWidth(d *engine.Device) (uint32, abi.Return) {
	return opt(d.Memory.MemoryBusWidth)
}

// DeviceGetConfComputeProtectedMemoryUsage is the memory protected by confidential computing, in bytes: 0 on every
// captured board.
func DeviceGetConfComputeProtectedMemoryUsage(d *engine.Device, memory *abi.Memory_t) (ret abi.Return) {
	*memory, ret = portion(d.CCProtectedMemory)
	return ret
}

// DeviceGetConfComputeMemSizeInfo divides the memory into what confidential computing protects and the rest, in KiB.
func DeviceGetConfComputeMemSizeInfo(d *engine.Device, sizes *abi.ConfComputeMemSizeInfo_t) abi.Return {
	protected, total, ret := pair(d.CCProtectedMemory.TotalBytes, d.Memory.TotalBytes)
	sizes.ProtectedMemSizeKib, sizes.UnprotectedMemSizeKib = protected>>10, less(total, protected)>>10
	return ret
}

// DeviceGetNumaNodeId is the NUMA node that the GPU's memory is, on machines whose CPUs address it as their own.
func DeviceGetNumaNodeId(d *engine.Device) (uint32, abi.Return) { return opt(d.Memory.NUMANode) }

// DeviceGetDramEncryptionMode says whether the memory is encrypted, now and after the next reset; NOT_SUPPORTED on
// boards that cannot encrypt it.
func DeviceGetDramEncryptionMode(d *engine.Device, current, pending *abi.DramEncryptionInfo_v1_t) (ret abi.Return) {
	m := &d.Memory
	current.EncryptionState, pending.EncryptionState, ret = pair(
		mode[abi.EnableState_t](m.EncryptionCurrent), mode[abi.EnableState_t](m.EncryptionPending))
	return ret
}

// DeviceSetDramEncryptionMode is whether the memory is encrypted after the next reset.
func DeviceSetDramEncryptionMode(d *engine.Device, info *abi.DramEncryptionInfo_v1_t) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.DRAMEncryption(i, info.EncryptionState) })
}
