package handwritten

import (
	"encoding/binary"
	"slices"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/simulate"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// The entries of nvidia-smi's unnamed table. What is known of their arguments stands in slots.h.

// InternalSlot12 takes a bus id apart: domain, bus, device and function; INVALID_ARGUMENT for anything else.
func InternalSlot12(_ *engine.Snapshot, busID string) (domain, bus, device, function uint32, ret abi.Return) {
	id, ok := parseBusID(busID)
	if !ok {
		return 0, 0, 0, 0, abi.ERROR_INVALID_ARGUMENT
	}
	return id.Domain, uint32(id.Bus), uint32(id.Device), uint32(id.Function), abi.SUCCESS
}

// InternalSlot75 is a GPU's domain, bus and device.
func InternalSlot75(s *engine.Snapshot, index uint32) (domain, bus, device uint32, ret abi.Return) {
	d, ret := DeviceGetHandleByIndex(s, index)
	if ret != abi.SUCCESS {
		return 0, 0, 0, ret
	}
	id, ret := opt(d.PCI.BusID)
	return id.Domain, uint32(id.Bus), uint32(id.Device), ret
}

// InternalSlot23 is the level of the path between two PCI devices. A device that is no GPU is found by its host bridge.
func InternalSlot23(s *engine.Snapshot, busID1, busID2 string) (uint32, abi.Return) {
	a, ok1 := parseBusID(busID1)
	b, ok2 := parseBusID(busID2)
	if !ok1 || !ok2 {
		return 0, abi.ERROR_INVALID_ARGUMENT
	}
	level := route(s, a, b)
	return uint32(slices.Index(smiLevels, max(level, abi.TOPOLOGY_SINGLE))), abi.SUCCESS
}

// smiLevels are the levels as nvidia-smi numbers them: PIX, PXB, PHB, NODE and SYS.
var smiLevels = []abi.GpuTopologyLevel_t{
	abi.TOPOLOGY_SINGLE, abi.TOPOLOGY_MULTIPLE, abi.TOPOLOGY_HOSTBRIDGE, abi.TOPOLOGY_NODE, abi.TOPOLOGY_SYSTEM,
}

// InternalSlot65 is the GPU's architecture.
func InternalSlot65(d *engine.Device) (abi.DeviceArchitecture_t, abi.Return) {
	return DeviceGetArchitecture(d)
}

// InternalSlot72 lets dmon and pmon watch every GPU.
//
//nvml:symbol nvmlInternalSlot72 nvmlInternalSlot139
func InternalSlot72(*engine.Device) (uint32, abi.Return) { return 1, abi.SUCCESS }

// InternalSlot108 is the power limit in force, in mW.
func InternalSlot108(d *engine.Device) (uint32, abi.Return) { return DeviceGetEnforcedPowerLimit(d) }

// InternalSlot138 is 0, no thermal violation, while software and hardware do not slow the clocks down for heat. Any other
// number would be printed as 0 too, so that there is none: NOT_SUPPORTED, which is printed as a dash.
func InternalSlot138(d *engine.Device) (uint32, abi.Return) {
	const heat = simulate.SWThermalSlowdown | simulate.HWThermalSlowdown
	r := d.Readings()
	if r.KnownReasons&heat == 0 || r.ReasonsInForce&heat != 0 {
		return 0, abi.ERROR_NOT_SUPPORTED
	}
	return 0, abi.SUCCESS
}

// Where the loads of a process stand among the samples, which old programs take to be 328 bytes long and new ones 488.
// Each reads a first sample that suits both; behind it, old ones must read their own samples and nothing of the new
// ones', and the other way round. In samples 3 to 15 of the one kind and 7 to 19 of the other no load begins where one of
// the other kind does. What a program then reads in between is a 0, or a 0 for a process whose number is a percentage,
// as long as no two loads are 8 bytes apart, which the choice among these numbers makes sure of.
const (
	oldSample, newSample = 328, 488
	sampleCount          = 20
)

var oldSamples, newSamples = [...]int{0, 7, 8, 9, 17, 18, 19}, [...]int{0, 3, 4, 5, 13, 14, 15}

// InternalSlot145 is the loads of up to seven processes for each of SMs, memory, encoders and decoders.
func InternalSlot145(d *engine.Device, _ uint64, count *abi.InternalCount_t, samples *abi.InternalSamples_t) (uint32, abi.Return) {
	room := uint64(count.Value)
	*count, *samples = abi.InternalCount_t{}, abi.InternalSamples_t{}
	if room*oldSample < uint64(len(samples.Bytes)) {
		return 0, abi.ERROR_INSUFFICIENT_SIZE
	}
	var used [4]int
	for i := range d.Processes {
		p := &d.Processes[i]
		for part, load := range [...]uint32{p.SMUtil.Value, p.MemUtil.Value, p.EncUtil.Value, p.DecUtil.Value} {
			if n := used[part]; load > 0 && n < len(oldSamples) {
				used[part]++
				for _, at := range [...]int{oldSamples[n] * oldSample, newSamples[n] * newSample} {
					at += 8 + 80*part
					binary.NativeEndian.PutUint32(samples.Bytes[at:], load*sampleCount)
					binary.NativeEndian.PutUint32(samples.Bytes[at+8:], p.PID)
				}
			}
		}
	}
	if used != [4]int{} {
		count.Value = sampleCount
	}
	return uint32(abi.VALUE_TYPE_UNSIGNED_INT), abi.SUCCESS
}

// InternalSlot157 counts no process.
func InternalSlot157(*engine.Device) (uint32, abi.Return) { return 0, abi.SUCCESS }

// internalFields are the fields that nvidia-smi alone knows, by number, which changed with driver 460.
func internalFields(d *engine.Device) []field {
	if b := d.Snapshot().Branch; 0 < b && b < 460 {
		return []field{1: number(switchLinks), 2: nil}
	}
	return []field{2: number(lanes)}
}

// lanes is the number of a link's pairs of wires in each direction, which NVIDIA's papers on the architectures from Volta
// to Blackwell give for each generation.
func lanes(d dev, number uint32) (uint32, abi.Return) {
	if _, ret := nvlink(d, number); ret != abi.SUCCESS {
		return 0, ret
	}
	return nonzero(map[uint32]uint32{1: 8, 2: 8, 3: 4, 4: 2, 5: 2}[d.Snapshot().Board.NVLink.Version.Value])
}

// InternalSlot165 is DeviceGetFieldValues for fields that nvidia-smi alone knows.
func InternalSlot165(d *engine.Device, values []abi.FieldValue_t) abi.Return {
	return fieldValues(d, values, internalFields(d))
}

// InternalSlot207 is the GPU's place on the baseboard.
func InternalSlot207(d *engine.Device) (uint32, abi.Return) { return DeviceGetModuleId(d) }

// InternalSlot208 spreads a link's errors over its lanes.
func InternalSlot208(d *engine.Device, link uint32, counter abi.NvLinkErrorCounter_t, counts []uint64) abi.Return {
	errors, ret := DeviceGetNvLinkErrorCounter(d, link, counter)
	if n, known := lanes(d, link); known == abi.SUCCESS {
		clear(counts)
		counts = counts[:min(len(counts), int(n))]
	}
	for i := range counts {
		counts[i] = min((errors+uint64(i))/uint64(len(counts)), 1<<31-1)
	}
	return ret
}

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
func InternalSlot240(d *engine.Device) (int32, abi.Return) { return opt(d.Readings().TLimitC) }

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
