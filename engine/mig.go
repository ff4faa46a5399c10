package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/words"
)

// partitions are the GPU instances of all GPUs in MIG mode, by GPU and number, which is the order of MIG devices.
func (g *generation) partitions(gpus []shown) (list []Partition) {
	for i, gpu := range gpus {
		if !gpu.device.MIG.ModeCurrent.Value {
			continue
		}
		cut := g.live.Partitioning(i)
		var own []Partition
		for _, instance := range cut.Instances {
			profile := cut.Profile(instance.Profile)
			if profile == nil {
				continue // of a board with other tables
			}
			p := Partition{Device: uint32(i), ID: instance.ID, Serial: instance.Serial, Profile: profile, Start: instance.Start}
			ways := cut.ComputeProfiles(profile)
			seen := false
			for _, part := range instance.Parts {
				at := slices.IndexFunc(ways, func(c change.ComputeProfile) bool { return c.ID == part.Profile })
				if at < 0 || !gpu.device.MIG.Sees(instance.ID, part.ID) {
					continue
				}
				seen = true
				uuid := profiles.UUID(g.live.MIGUUID(gpu.device, instance.ID, part))
				p.Parts = append(p.Parts, Part{ID: part.ID, Serial: part.Serial, UUID: uuid, Profile: ways[at], Start: part.Start})
			}
			if !seen && gpu.device.MIG.Visible != nil {
				continue
			}
			slices.SortFunc(p.Parts, func(a, b Part) int { return cmp.Compare(a.ID, b.ID) })
			own = append(own, p)
		}
		slices.SortFunc(own, func(a, b Partition) int { return cmp.Compare(a.ID, b.ID) })
		list = append(list, own...)
	}
	return list
}

// inMIGMode is a GPU as it shows itself: while it is in MIG mode its memory in use is that of all of its instances, and
// there is no accounting.
func (s *Snapshot) inMIGMode(d *Device) *profiles.Device {
	if !d.MIG.ModeCurrent.Value {
		return d.Device
	}
	whole := *d.Device
	if whole.Accounting.Mode.Valid {
		whole.Accounting.Mode.Value = false
	}
	if use, ok := d.MemoryUse(); ok {
		for _, gi := range s.GpuInstances(d) {
			use.Used += gi.idle()
		}
		whole.Memory.UsedBytes, whole.Memory.FreeBytes = profiles.Some(use.Used), profiles.Opt[uint64]{}
		if total, ok := d.BAR1Memory.TotalBytes.Get(); ok && mapsFrameBuffer(s.Board) {
			const mib = 1 << 20
			mapped := (use.Total - min(use.Total, use.Reserved) + mib/2) / mib * mib
			whole.BAR1Memory.UsedBytes = profiles.Some(min(total, mapped))
			whole.BAR1Memory.FreeBytes = profiles.Opt[uint64]{}
		}
	}
	return &whole
}

// mapsFrameBuffer says whether the driver maps all memory that is not reserved in the BAR1 aperture while a GPU is in MIG mode,
// as those of an H100 and an H200 with driver 590 were seen to do. Not in MIG mode, the same driver does not.
func mapsFrameBuffer(board *profiles.Board) bool {
	return profiles.Branch(board.System.DriverVersion.Value) >= 590
}

// idle is the memory, in bytes, that a GPU instance has in use without processes.
func (gi *GpuInstance) idle() uint64 {
	if gi.Profile == nil {
		return 0
	}
	return gi.Profile.UsedBytes.Value
}

// oldUUID is a MIG device's UUID as drivers before 470 form it.
func (c *ComputeInstance) oldUUID() string {
	return fmt.Sprintf("MIG-%s/%d/%d", c.Parent.Parent.UUID, c.Parent.ID, c.ID)
}

// migDevice is what a MIG device has of the GPU, and what is its own. It counts its errors by itself, and has none.
func migDevice(board *profiles.Board, gi *GpuInstance, part Part) *profiles.Device {
	d := *gi.Parent.Device
	d.UUID = part.UUID
	used := gi.idle()
	d.Processes = nil
	for _, p := range gi.Parent.Processes {
		if id, ok := p.GPUInstanceID.Get(); ok && id == gi.ID {
			used += p.UsedMemoryMiB.Value << 20 // the memory is that of the whole GPU instance
			if id, ok := p.ComputeInstanceID.Get(); ok && id == part.ID {
				d.Processes = append(d.Processes, p)
			}
		}
	}
	d.Utilization, d.DynamicMetrics = profiles.Utilization{}, profiles.DynamicMetrics{}
	d.ECC = withoutErrors(d.ECC)
	if gi.Profile == nil {
		return &d
	}
	d.Name.Value += " MIG " + part.Profile.Name(gi.Profile)
	d.MultiprocessorCount = profiles.Some(part.Profile.Multiprocessors)
	d.Memory = profiles.Memory{MemoryBusWidth: d.Memory.MemoryBusWidth}
	if mib, ok := gi.Profile.MemoryMiB.Get(); ok {
		d.Memory.TotalBytes, d.Memory.UsedBytes = profiles.Some(mib<<20), profiles.Some(used)
		d.Memory.ReservedBytes = profiles.Some(uint64(0)) // "Reserved : 0 MiB" is what drivers print of a MIG device
	}
	d.BAR1Memory = migBAR1(board, gi)
	return &d
}

// withoutErrors is an ECC section in which everything that is counted is 0.
func withoutErrors(e profiles.ECC) profiles.ECC {
	for _, counts := range []*profiles.ECCErrorCounts{&e.Errors.Volatile, &e.Errors.Aggregate} {
		for _, c := range []*profiles.ECCMemoryErrors{&counts.SingleBit, &counts.DoubleBit} {
			zero(&c.DeviceMemory, &c.L1Cache, &c.L2Cache, &c.RegisterFile, &c.TextureMemory, &c.SRAM, &c.Total)
		}
	}
	for _, c := range []*profiles.SRAMCounts{&e.SRAM.Volatile, &e.SRAM.Aggregate} {
		zero(&c.Correctable, &c.UncorrectableParity, &c.UncorrectableSECDED)
	}
	from := &e.SRAM.UncorrectableSources
	zero(&from.L2, &from.SM, &from.Microcontroller, &from.PCIe, &from.Other)
	return e
}

func zero(counts ...*profiles.Opt[uint64]) {
	for _, c := range counts {
		c.Value = 0
	}
}

// migBAR1 is a MIG device's share of the BAR1 aperture: its memory slices' part of it less 1 MiB, or, if the driver maps the frame
// buffer in it, their part of what is free less 512 MiB. Both fit all outputs of real boards seen so far.
func migBAR1(board *profiles.Board, gi *GpuInstance) (m profiles.MemoryUse) {
	bar := gi.Parent.BAR1Memory
	total, ok := bar.TotalBytes.Get()
	size := uint64(gi.Profile.PlacementSize.Value)
	slots := uint64(gi.Parent.Partitioning().Slots())
	if !ok || slots == 0 {
		return m
	}
	mib := (total>>20)*size/slots - 1
	if mapsFrameBuffer(board) {
		const kept = 512 << 20
		free := total - min(total, bar.UsedBytes.Value)
		mib = (free - min(free, kept)) * size / slots >> 20
	}
	m.TotalBytes, m.UsedBytes = profiles.Some(mib<<20), profiles.Some(uint64(0))
	return m
}

// Kind is a GPU instance profile's number in NVML's enumeration, which is not its id; false if NVML has no number for it.
// It follows from the name, and for 1g of double memory from the size.
func Kind(board *profiles.Board, p *profiles.GPUInstanceProfile) (kind uint32, ok bool) {
	slices, rest, _ := strings.Cut(p.Name, "g.")
	suffix := ""
	if at := strings.IndexAny(rest, "+-"); at >= 0 {
		suffix = rest[at:]
	}
	if slices == "1" && suffix == "" {
		for _, other := range board.MIG.GPUInstanceProfiles {
			if other.Slices.Value == 1 && other.PlacementSize.Value < p.PlacementSize.Value {
				return 9, true
			}
		}
	}
	kind, ok = kinds.Find(slices + suffix)
	return kind, ok
}

// kinds are the numbers NVML_GPU_INSTANCE_PROFILE_… of profiles by slices and suffix.
var kinds = words.Table[string, uint32]{
	{"1", 0}, {"2", 1}, {"3", 2}, {"4", 3}, {"7", 4}, {"8", 5}, {"6", 6}, {"1+me", 7}, {"2+me", 8}, {"1+gfx", 10}, {"2+gfx", 11}, {"4+gfx", 12},
	{"1-me", 13}, {"2-me", 14}, {"1+me.all", 15}, {"2+me.all", 16}, {"3+gfx", 17},
}

// GpuInstances are the GPU instances of a GPU, by number.
func (s *Snapshot) GpuInstances(d *Device) (list []*GpuInstance) {
	for _, gi := range s.instances {
		if gi.key.Device == d.key.Device {
			list = append(list, gi)
		}
	}
	return list
}

// MIGDevices are the MIG devices of a GPU in the order of their indices: by the numbers of GPU instance and compute instance.
func (d *Device) MIGDevices() (list []*Device) {
	for _, gi := range d.snapshot.GpuInstances(d) {
		for _, c := range gi.Parts {
			list = append(list, c.Device)
		}
	}
	return list
}

// MIGIndex is a MIG device's place among those of its GPU.
func (d *Device) MIGIndex() uint32 {
	return uint32(slices.IndexFunc(d.MIGDevices(), func(other *Device) bool { return other.key == d.key }))
}

// Whole is the GPU that a MIG device is a part of; a GPU itself.
func (d *Device) Whole() *Device { return d.snapshot.Devices[d.key.Device] }

// FreeCompute are the compute slices at which a compute instance of a profile fits now. Those that the program does not see
// take room too.
func (gi *GpuInstance) FreeCompute(c change.ComputeProfile) []uint32 {
	for _, i := range gi.Parent.Partitioning().Instances {
		if i.Serial == gi.key.Serial {
			return change.FreeCompute(gi.ComputeProfiles(), c, i.Parts)
		}
	}
	return nil
}

// ComputeProfiles are the ways to cut the GPU instance.
func (gi *GpuInstance) ComputeProfiles() []change.ComputeProfile {
	if gi.Profile == nil {
		return nil
	}
	return gi.Parent.Partitioning().ComputeProfiles(gi.Profile)
}

// Partitioning is how a GPU is cut, with the instances that the program does not see.
func (d *Device) Partitioning() *change.Partitioning {
	return d.snapshot.source.Partitioning(int(d.key.Device))
}
