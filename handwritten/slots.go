package handwritten

import (
	"encoding/binary"
	"slices"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/simulate"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles/words"
)

// These are the entries of nvidia-smi's unnamed table. slots.h says what is known of their arguments.

// InternalSlot12 parses a bus id into domain, bus, device and function. Any other text is an INVALID_ARGUMENT.
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

// InternalSlot81 is the handle of the GPU of that index. The last argument is the same number in all versions of nvidia-smi.
func InternalSlot81(s *engine.Snapshot, index, _ uint32) (*engine.Device, abi.Return) {
	return DeviceGetHandleByIndex(s, index)
}

// InternalSlot23 is the level of the path between two PCI devices. For a device that is no GPU its host bridge decides.
func InternalSlot23(s *engine.Snapshot, busID1, busID2 string) (uint32, abi.Return) {
	a, ok1 := parseBusID(busID1)
	b, ok2 := parseBusID(busID2)
	if !ok1 || !ok2 {
		return 0, abi.ERROR_INVALID_ARGUMENT
	}
	level := route(s, a, b)
	return uint32(slices.Index(smiLevels, max(level, abi.TOPOLOGY_SINGLE))), abi.SUCCESS
}

// smiLevels are the levels in the order of nvidia-smi's numbers: PIX, PXB, PHB, NODE and SYS.
var smiLevels = []abi.GpuTopologyLevel_t{
	abi.TOPOLOGY_SINGLE, abi.TOPOLOGY_MULTIPLE, abi.TOPOLOGY_HOSTBRIDGE, abi.TOPOLOGY_NODE, abi.TOPOLOGY_SYSTEM,
}

// InternalSlot20 answers that no GPU drives the console.
func InternalSlot20(*engine.Device) (uint32, abi.Return) { return 0, abi.SUCCESS }

// InternalSlot182 is the number of a group of GPUs. Nobody asks for its members.
func InternalSlot182(*engine.Snapshot) (uint64, abi.Return) { return 1, abi.SUCCESS }

// InternalSlot183 is the number of further GPUs that have to be reset with a group.
func InternalSlot183(_ *engine.Snapshot, _, _ uint64) (uint32, abi.Return) { return 0, abi.SUCCESS }

// InternalSlot184 ends a group.
func InternalSlot184(*engine.Snapshot, uint64) abi.Return { return abi.SUCCESS }

// InternalSlot169 answers that each GPU is reset for itself.
func InternalSlot169(*engine.Snapshot) (uint32, abi.Return) { return 1, abi.SUCCESS }

// InternalSlot13 resets the GPU.
func InternalSlot13(d *engine.Device) abi.Return { return d.Change((*change.Tx).Reset) }

// InternalSlot65 is the GPU's architecture.
func InternalSlot65(d *engine.Device) (abi.DeviceArchitecture_t, abi.Return) {
	return DeviceGetArchitecture(d)
}

// InternalSlot72 lets dmon and pmon monitor every GPU.
//
//nvml:symbol nvmlInternalSlot72 nvmlInternalSlot139
func InternalSlot72(*engine.Device) (uint32, abi.Return) { return 1, abi.SUCCESS }

// InternalSlot108 is the power limit in force, in mW.
func InternalSlot108(d *engine.Device) (uint32, abi.Return) { return DeviceGetEnforcedPowerLimit(d) }

// InternalSlot138 is 0, which means no thermal violation, while no thermal slowdown is in force. During one it answers
// NOT_SUPPORTED, which is printed as a dash, since nvidia-smi prints any number as 0.
func InternalSlot138(d *engine.Device) (uint32, abi.Return) {
	const heat = simulate.SWThermalSlowdown | simulate.HWThermalSlowdown
	r := d.Readings()
	if r.KnownReasons&heat == 0 || r.ReasonsInForce&heat != 0 {
		return 0, abi.ERROR_NOT_SUPPORTED
	}
	return 0, abi.SUCCESS
}

// These constants place the loads of a process among the samples. Old programs read samples of 328 bytes, new ones
// samples of 488 bytes, and both read the same buffer. The first sample suits both. After it, samples 3 to 15 of one
// size and 7 to 19 of the other do not overlap, so each program reads its own loads there. From the other program's
// samples it reads zeros, or a 0 for a pid that is a percentage. That requires that no two loads are 8 bytes apart, and
// these numbers are chosen so.
const (
	oldSample, newSample = 328, 488
	sampleCount          = 20
)

var oldSamples, newSamples = [...]int{0, 7, 8, 9, 17, 18, 19}, [...]int{0, 3, 4, 5, 13, 14, 15}

// InternalSlot145 is the loads of up to seven processes for each of SMs, memory, encoders and decoders; NOT_SUPPORTED for a
// GPU in MIG mode.
func InternalSlot145(d *engine.Device, _ uint64, count *abi.InternalCount_t, samples *abi.InternalSamples_t) (uint32, abi.Return) {
	if d.MIG.ModeCurrent.Value {
		return 0, abi.ERROR_NOT_SUPPORTED
	}
	room := uint64(count.Value)
	*count, *samples = abi.InternalCount_t{}, abi.InternalSamples_t{}
	if room*oldSample < uint64(len(samples.Bytes)) {
		return 0, abi.ERROR_INSUFFICIENT_SIZE
	}
	var used [4]int
	for i := range d.Processes {
		p := &d.Processes[i]
		for part, load := range [...]uint32{p.SMUtil.Value, p.MemUtil.Value, p.EncUtil.Value, p.DecUtil.Value} {
			if n := used[part]; load > 0 && p.PID != 0 && n < len(oldSamples) {
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

// InternalSlot157 answers that there are no processes.
func InternalSlot157(*engine.Device) (uint32, abi.Return) { return 0, abi.SUCCESS }

// internalFields are the fields that only nvidia-smi knows, by number. Driver 460 changed the numbers.
func internalFields(d *engine.Device) []field {
	if b := d.Snapshot().Branch; 0 < b && b < 460 {
		return []field{1: number(switchLinks), 2: nil}
	}
	return []field{2: number(lanes)}
}

// lanes is the number of a link's lanes in each direction. NVIDIA's papers on the architectures from Volta to Blackwell
// give it for each generation.
func lanes(d dev, number uint32) (uint32, abi.Return) {
	if _, ret := nvlink(d, number); ret != abi.SUCCESS {
		return 0, ret
	}
	return nonzero(map[uint32]uint32{1: 8, 2: 8, 3: 4, 4: 2, 5: 2}[d.Snapshot().Board.NVLink.Version.Value])
}

// InternalSlot165 is DeviceGetFieldValues for fields that only nvidia-smi knows.
func InternalSlot165(d *engine.Device, values []abi.FieldValue_t) abi.Return {
	return fieldValues(d, values, func(id uint32) uint32 { return id }, internalFields(d))
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

// InternalSlot209 is the voltage of the graphics units, in µV.
func InternalSlot209(d *engine.Device) (uint32, abi.Return) { return opt(d.Voltage.GraphicsUV) }

// InternalSlot211 is the version of the GPU System Processor's firmware.
func InternalSlot211(d *engine.Device) (string, abi.Return) { return DeviceGetGspFirmwareVersion(d) }

// withNames lists the device's processes of a kind with the paths of their programs, which are cut after 4095 bytes.
func withNames(d *engine.Device, kind string) ([]abi.InternalProcess_t, abi.Return) {
	var list []abi.InternalProcess_t
	for _, p := range ofKind(d, kind) {
		entry := abi.InternalProcess_t{
			Pid:               p.PID,
			UsedGpuMemory:     usedMemory(p),
			GpuInstanceId:     p.GPUInstanceID.Or(abi.INVALID_GPU_INSTANCE_ID),
			ComputeInstanceId: p.ComputeInstanceID.Or(abi.INVALID_GPU_INSTANCE_ID),
		}
		text(entry.Name[:], p.Name.Value)
		list = append(list, entry)
	}
	return list, abi.SUCCESS
}

// InternalSlot213 lists the compute processes.
func InternalSlot213(d *engine.Device) ([]abi.InternalProcess_t, abi.Return) {
	return withNames(d, computing)
}

// InternalSlot214 answers an empty list, since no profile has clients of the Multi-Process Service.
func InternalSlot214(*engine.Device) ([]abi.InternalProcess_t, abi.Return) {
	return nil, abi.SUCCESS
}

// InternalSlot215 lists the graphics processes.
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

// InternalSlot230 is the highest PCIe generation of the host. It cannot be derived from the GPU's.
func InternalSlot230(d *engine.Device) (uint32, abi.Return) { return opt(d.PCIe.MaxHostLinkGen) }

// InternalSlot231 is the chip's part number.
func InternalSlot231(d *engine.Device) (string, abi.Return) { return opt(d.GPUPartNumber) }

// InternalSlot237 is the part number of the unit that is replaced in the field.
func InternalSlot237(d *engine.Device) (string, abi.Return) { return opt(d.FRUPartNumber) }

// InternalSlot240 is how far the GPU is below its limit, in °C: T.Limit.
func InternalSlot240(d *engine.Device) (int32, abi.Return) { return opt(d.Readings().TLimitC) }

// InternalSlot242 is how the GPU addresses the host's memory.
func InternalSlot242(d *engine.Device) (uint32, abi.Return) {
	return opt(as[uint32](named(d.AddressingMode, words.AddressingModes)))
}

// InternalSlot243 is the sparse operation mode.
//
//nvml:symbol nvmlInternalSlot243 nvmlInternalSlot249
func InternalSlot243(d *engine.Device) (uint32, abi.Return) {
	return opt(mode[uint32](d.SparseOperationMode))
}

// InternalSlot189 is the state of the licence of the feature that is in use in a guest; NOT_SUPPORTED outside of guests.
func InternalSlot189(d *engine.Device) (uint32, abi.Return) {
	for _, f := range d.VGPU.Licensing.Features {
		if f.Enabled.Value {
			return licenseState(d.Snapshot(), d.VGPU.Licensing.State, f.Expiry), abi.SUCCESS
		}
	}
	if len(d.VGPU.Licensing.Features) == 0 {
		return 0, abi.ERROR_NOT_SUPPORTED
	}
	return abi.GRID_LICENSE_STATE_UNLICENSED, abi.SUCCESS
}

// InternalSlot251 sets the persistence mode. No daemon keeps the driver loaded.
func InternalSlot251(d *engine.Device, on abi.EnableState_t) (daemon uint32, ret abi.Return) {
	return 0, DeviceSetPersistenceMode(d, on)
}
