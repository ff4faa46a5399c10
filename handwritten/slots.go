package handwritten

import (
	"slices"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/handwritten/engine"
)

// The entries of nvidia-smi's unnamed table. What is known of their arguments stands in internal.h.

// InternalSlot12 takes a bus id apart: domain, bus, device and function; INVALID_ARGUMENT for anything else.
func InternalSlot12(busID string) (domain, bus, device, function uint32, ret abi.Return) {
	id, ok := parseBusID(busID)
	if !ok {
		return 0, 0, 0, 0, abi.ERROR_INVALID_ARGUMENT
	}
	return id.Domain, uint32(id.Bus), uint32(id.Device), uint32(id.Function), abi.SUCCESS
}

// InternalSlot75 is a GPU's domain, bus and device.
func InternalSlot75(index uint32) (domain, bus, device uint32, ret abi.Return) {
	d, ret := DeviceGetHandleByIndex(index)
	if ret != abi.SUCCESS {
		return 0, 0, 0, ret
	}
	id, ret := opt(d.PCI.BusID)
	return id.Domain, uint32(id.Bus), uint32(id.Device), ret
}

// InternalSlot23 is the level of the path between two PCI devices. A device that is no GPU is found by its host bridge.
func InternalSlot23(busID1, busID2 string) (uint32, abi.Return) {
	a, ok1 := parseBusID(busID1)
	b, ok2 := parseBusID(busID2)
	if !ok1 || !ok2 {
		return 0, abi.ERROR_INVALID_ARGUMENT
	}
	level := route(engine.Current(), a, b)
	return uint32(slices.Index(smiLevels, max(level, abi.TOPOLOGY_SINGLE))), abi.SUCCESS
}

// smiLevels are the levels as nvidia-smi numbers them: PIX, PXB, PHB, NODE and SYS.
var smiLevels = []abi.GpuTopologyLevel_t{
	abi.TOPOLOGY_SINGLE, abi.TOPOLOGY_MULTIPLE, abi.TOPOLOGY_HOSTBRIDGE, abi.TOPOLOGY_NODE, abi.TOPOLOGY_SYSTEM,
}

// InternalSlot72 lets dmon and pmon watch every GPU.
func InternalSlot72(*engine.Device) (uint32, abi.Return) { return 1, abi.SUCCESS }

// InternalSlot108 is the power limit in force, in mW.
func InternalSlot108(d *engine.Device) (uint32, abi.Return) { return DeviceGetEnforcedPowerLimit(d) }

// InternalSlot207 is the GPU's place on the baseboard.
func InternalSlot207(d *engine.Device) (uint32, abi.Return) { return DeviceGetModuleId(d) }

// InternalSlot211 is the version of the GPU System Processor's firmware.
func InternalSlot211(d *engine.Device) (string, abi.Return) { return DeviceGetGspFirmwareVersion(d) }

// withNames lists the device's processes of a kind with the paths of their programs, which are cut off after 4095 bytes.
func withNames(d *engine.Device, kind string) ([]abi.InternalProcess_t, abi.Return) {
	var list []abi.InternalProcess_t
	for _, p := range ofKind(d, kind) {
		entry := abi.InternalProcess_t{
			Pid:               p.PID,
			UsedGpuMemory:     usedMemory(p),
			GpuInstanceId:     abi.INVALID_GPU_INSTANCE_ID,
			ComputeInstanceId: abi.INVALID_GPU_INSTANCE_ID,
		}
		text(entry.Name[:], p.Name.Value)
		list = append(list, entry)
	}
	return list, abi.SUCCESS
}

// InternalSlot213 lists the processes that compute.
func InternalSlot213(d *engine.Device) ([]abi.InternalProcess_t, abi.Return) {
	return withNames(d, computing)
}

// InternalSlot214 lists no process: no profile has clients of a Multi-Process Service.
func InternalSlot214(*engine.Device) ([]abi.InternalProcess_t, abi.Return) {
	return nil, abi.SUCCESS
}

// InternalSlot215 lists the processes that draw.
func InternalSlot215(d *engine.Device) ([]abi.InternalProcess_t, abi.Return) {
	return withNames(d, drawing)
}

// InternalSlot226 is the PCIe atomics that the GPU can send and take.
func InternalSlot226(d *engine.Device, caps *abi.InternalAtomicCaps_t) abi.Return {
	out, in := d.PCIe.AtomicCapsOutbound, d.PCIe.AtomicCapsInbound
	if !out.Valid && !in.Valid {
		return abi.ERROR_NOT_SUPPORTED
	}
	*caps = abi.InternalAtomicCaps_t{Outbound: out.Value, Inbound: in.Value}
	return abi.SUCCESS
}

// InternalSlot230 is the highest PCIe generation that the host reaches; it does not follow from the GPU's.
func InternalSlot230(d *engine.Device) (uint32, abi.Return) { return opt(d.PCIe.MaxHostLinkGen) }

// InternalSlot231 is the chip's part number.
func InternalSlot231(d *engine.Device) (string, abi.Return) { return opt(d.GPUPartNumber) }

// InternalSlot240 is how far the GPU is below its limit, in °C: T.Limit.
func InternalSlot240(d *engine.Device) (int32, abi.Return) { return opt(d.TLimit()) }

// InternalSlot242 is how the GPU addresses the host's memory.
func InternalSlot242(d *engine.Device) (uint32, abi.Return) {
	return opt(as[uint32](named(d.AddressingMode, addressingModes)))
}

// InternalSlot243 is the sparse operation mode.
//
//nvml:symbol nvmlInternalSlot243 nvmlInternalSlot249
func InternalSlot243(d *engine.Device) (uint32, abi.Return) {
	return opt(mode[uint32](d.SparseOperationMode))
}
