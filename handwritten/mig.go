package handwritten

import (
	"cmp"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// DeviceGetMigMode is the MIG mode, now and after the next reset. Boards before Ampere have none.
func DeviceGetMigMode(d *engine.Device) (current, pending uint32, ret abi.Return) {
	return pair(mode[uint32](d.MIG.ModeCurrent), mode[uint32](d.MIG.ModePending))
}

// DeviceSetMigMode switches MIG mode on or off. The mode is in force at once, so the status of the activation is SUCCESS.
// It answers NO_PERMISSION to a program that sees only some MIG devices, since it would take away instances of others.
func DeviceSetMigMode(d *engine.Device, on uint32) (activation, ret abi.Return) {
	if d.MIG.Visible != nil {
		return abi.SUCCESS, abi.ERROR_NO_PERMISSION
	}
	return abi.SUCCESS, d.Change(func(t *change.Tx, i int) abi.Return { return t.MigMode(i, abi.EnableState_t(on)) })
}

// DeviceIsMigDeviceHandle is 1 for a MIG device and 0 for a GPU.
func DeviceIsMigDeviceHandle(d *engine.Device) (uint32, abi.Return) {
	return bit(d.Instance != nil), abi.SUCCESS
}

// DeviceGetMaxMigDeviceCount is how many MIG devices the GPU can have; 0 without MIG or while MIG is off.
func DeviceGetMaxMigDeviceCount(d *engine.Device) (uint32, abi.Return) {
	if !d.MIG.ModeCurrent.Value {
		return 0, abi.SUCCESS
	}
	return d.MIG.MaxGPUInstances.Or(0), abi.SUCCESS
}

// DeviceGetMigDeviceHandleByIndex is a MIG device. Indices count the compute instances of all GPU instances; one without a
// device is NOT_FOUND. It answers NOT_SUPPORTED while MIG is off, and INVALID_ARGUMENT for an index that no MIG device can
// have.
func DeviceGetMigDeviceHandleByIndex(d *engine.Device, index uint32) (*engine.Device, abi.Return) {
	most, _ := DeviceGetMaxMigDeviceCount(d)
	switch devices := d.MIGDevices(); {
	case most == 0:
		return nil, abi.ERROR_NOT_SUPPORTED
	case index >= most:
		return nil, abi.ERROR_INVALID_ARGUMENT
	case index >= uint32(len(devices)):
		return nil, abi.ERROR_NOT_FOUND
	default:
		return devices[index], abi.SUCCESS
	}
}

// DeviceGetDeviceHandleFromMigDeviceHandle is the GPU that a MIG device is a part of; NOT_FOUND for a GPU.
func DeviceGetDeviceHandleFromMigDeviceHandle(d *engine.Device) (*engine.Device, abi.Return) {
	if d.Instance == nil {
		return nil, abi.ERROR_NOT_FOUND
	}
	return d.Whole(), abi.SUCCESS
}

// DeviceGetGpuInstanceId is the number of a MIG device's GPU instance; NOT_SUPPORTED for a GPU.
func DeviceGetGpuInstanceId(d *engine.Device) (uint32, abi.Return) {
	if d.Instance == nil {
		return 0, abi.ERROR_NOT_SUPPORTED
	}
	return d.Instance.Parent.ID, abi.SUCCESS
}

// DeviceGetComputeInstanceId is the number of a MIG device's compute instance; NOT_SUPPORTED for a GPU.
func DeviceGetComputeInstanceId(d *engine.Device) (uint32, abi.Return) {
	if d.Instance == nil {
		return 0, abi.ERROR_NOT_SUPPORTED
	}
	return d.Instance.ID, abi.SUCCESS
}

// DeviceGetAttributes is what a MIG device has: multiprocessors of its compute instance, memory and engines of its GPU
// instance; NOT_SUPPORTED for a GPU.
//
//nvml:symbol nvmlDeviceGetAttributes nvmlDeviceGetAttributes_v2
func DeviceGetAttributes(d *engine.Device, a *abi.DeviceAttributes_t) abi.Return {
	if d.Instance == nil || d.Instance.Parent.Profile == nil {
		return abi.ERROR_NOT_SUPPORTED
	}
	p, c := d.Instance.Parent.Profile, d.Instance.Profile
	*a = abi.DeviceAttributes_t{
		MultiprocessorCount: c.Multiprocessors, SharedCopyEngineCount: p.CopyEngines.Value, SharedDecoderCount: p.Decoders.Value,
		SharedEncoderCount: p.Encoders.Value, SharedJpegCount: p.JPEGs.Value, SharedOfaCount: p.OFAs.Value,
		GpuInstanceSliceCount: p.Slices.Value, ComputeInstanceSliceCount: c.Slices, MemorySizeMB: p.MemoryMiB.Value,
	}
	return abi.SUCCESS
}

// gpuProfile finds a GPU instance profile of a GPU that can be cut.
func gpuProfile(d *engine.Device, match func(*profiles.GPUInstanceProfile) bool) (*profiles.GPUInstanceProfile, abi.Return) {
	if !d.MIG.ModeCurrent.Valid {
		return nil, abi.ERROR_NOT_SUPPORTED
	}
	table := d.Snapshot().Board.MIG.GPUInstanceProfiles
	for i := range table {
		if match(&table[i]) {
			return &table[i], abi.SUCCESS
		}
	}
	return nil, abi.ERROR_NOT_SUPPORTED
}

func byID(id uint32) func(*profiles.GPUInstanceProfile) bool {
	return func(p *profiles.GPUInstanceProfile) bool { return p.ID == id }
}

func byKind(d *engine.Device, kind uint32) func(*profiles.GPUInstanceProfile) bool {
	return func(p *profiles.GPUInstanceProfile) bool {
		k, ok := engine.Kind(d.Snapshot().Board, p)
		return ok && k == kind
	}
}

// DeviceGetGpuInstanceProfileInfo describes a way to cut the GPU, by its number in NVML's enumeration; NOT_SUPPORTED if
// the board does not offer it.
func DeviceGetGpuInstanceProfileInfo(d *engine.Device, kind uint32, info *abi.GpuInstanceProfileInfo_t) abi.Return {
	if kind >= abi.GPU_INSTANCE_PROFILE_COUNT {
		return abi.ERROR_INVALID_ARGUMENT
	}
	p, ret := gpuProfile(d, byKind(d, kind))
	if ret != abi.SUCCESS {
		return ret
	}
	*info = abi.GpuInstanceProfileInfo_t{
		Id: p.ID, IsP2pSupported: bit(p.P2P.Value), SliceCount: p.Slices.Value, InstanceCount: p.Instances.Value,
		MultiprocessorCount: p.Multiprocessors.Value, CopyEngineCount: p.CopyEngines.Value, DecoderCount: p.Decoders.Value,
		EncoderCount: p.Encoders.Value, JpegCount: p.JPEGs.Value, OfaCount: p.OFAs.Value, MemorySizeMB: p.MemoryMiB.Value,
	}
	return abi.SUCCESS
}

// DeviceGetGpuInstanceProfileInfoV is DeviceGetGpuInstanceProfileInfo with the profile's name.
func DeviceGetGpuInstanceProfileInfoV(d *engine.Device, kind uint32, info *abi.GpuInstanceProfileInfo_v2_t) abi.Return {
	if kind >= abi.GPU_INSTANCE_PROFILE_COUNT {
		return abi.ERROR_INVALID_ARGUMENT
	}
	return describe(d, byKind(d, kind), info)
}

// DeviceGetGpuInstanceProfileInfoByIdV is DeviceGetGpuInstanceProfileInfoV by the driver's id of the profile.
func DeviceGetGpuInstanceProfileInfoByIdV(d *engine.Device, id uint32, info *abi.GpuInstanceProfileInfo_v2_t) abi.Return {
	return describe(d, byID(id), info)
}

func describe(d *engine.Device, match func(*profiles.GPUInstanceProfile) bool, info *abi.GpuInstanceProfileInfo_v2_t) abi.Return {
	p, ret := gpuProfile(d, match)
	if ret != abi.SUCCESS {
		return ret
	}
	info.Id, info.IsP2pSupported, info.SliceCount, info.InstanceCount = p.ID, bit(p.P2P.Value), p.Slices.Value, p.Instances.Value
	info.MultiprocessorCount, info.CopyEngineCount = p.Multiprocessors.Value, p.CopyEngines.Value
	info.DecoderCount, info.EncoderCount = p.Decoders.Value, p.Encoders.Value
	info.JpegCount, info.OfaCount, info.MemorySizeMB = p.JPEGs.Value, p.OFAs.Value, p.MemoryMiB.Value
	text(info.Name[:], "MIG "+p.Name)
	return abi.SUCCESS
}

// cut finds a profile, by its id, of a GPU in MIG mode.
func cut(d *engine.Device, id uint32) (*profiles.GPUInstanceProfile, abi.Return) {
	if !d.MIG.ModeCurrent.Value {
		return nil, abi.ERROR_NOT_SUPPORTED
	}
	return gpuProfile(d, byID(id))
}

// DeviceGetGpuInstancePossiblePlacements are the places that instances of a profile can have, whatever is there now.
//
//nvml:symbol nvmlDeviceGetGpuInstancePossiblePlacements nvmlDeviceGetGpuInstancePossiblePlacements_v2
func DeviceGetGpuInstancePossiblePlacements(d *engine.Device, id uint32) (list []abi.GpuInstancePlacement_t, ret abi.Return) {
	p, ret := gpuProfile(d, byID(id))
	if ret != abi.SUCCESS {
		return nil, ret
	}
	for _, start := range p.PlacementStarts {
		list = append(list, abi.GpuInstancePlacement_t{Start: start, Size: p.PlacementSize.Value})
	}
	return list, abi.SUCCESS
}

// DeviceGetGpuInstanceRemainingCapacity is how many more instances of a profile fit, if nothing else is made. While MIG is
// off it is 0, although NVML documents NOT_SUPPORTED: nvidia-smi mig -lgip ends at that answer, and it lists the profiles
// of A100s whose MIG mode waits for a reset with none free.
func DeviceGetGpuInstanceRemainingCapacity(d *engine.Device, id uint32) (uint32, abi.Return) {
	p, ret := gpuProfile(d, byID(id))
	if ret != abi.SUCCESS || !d.MIG.ModeCurrent.Value {
		return 0, ret
	}
	return d.Partitioning().Remaining(p), abi.SUCCESS
}

// DeviceCreateGpuInstance makes an instance of a profile where the driver would put it; INSUFFICIENT_RESOURCES if it fits
// nowhere.
func DeviceCreateGpuInstance(d *engine.Device, id uint32) (*engine.GpuInstance, abi.Return) {
	return createGPUInstance(d, id, nil)
}

// DeviceCreateGpuInstanceWithPlacement makes an instance of a profile at a place; INVALID_ARGUMENT if the profile cannot be
// there, INSUFFICIENT_RESOURCES if something else is.
func DeviceCreateGpuInstanceWithPlacement(d *engine.Device, id uint32, at *abi.GpuInstancePlacement_t) (*engine.GpuInstance, abi.Return) {
	return createGPUInstance(d, id, &at.Start)
}

func createGPUInstance(d *engine.Device, id uint32, start *uint32) (*engine.GpuInstance, abi.Return) {
	var serial uint64
	ret := d.Change(func(t *change.Tx, i int) abi.Return {
		made, ret := t.CreateGPUInstance(i, id, start)
		serial = made.Serial
		return ret
	})
	if ret != abi.SUCCESS {
		return nil, ret
	}
	return gpuInstance(d, func(g *engine.GpuInstance) bool { return g.Key().Serial == serial })
}

// gpuInstance finds an instance of a GPU in the present node; NOT_FOUND if there is none.
func gpuInstance(d *engine.Device, match func(*engine.GpuInstance) bool) (*engine.GpuInstance, abi.Return) {
	s := d.Snapshot().Engine().Snapshot()
	if now := s.DeviceAt(d.Whole().Index); now != nil {
		for _, g := range s.GpuInstances(now) {
			if match(g) {
				return g, abi.SUCCESS
			}
		}
	}
	return nil, abi.ERROR_NOT_FOUND
}

// DeviceGetGpuInstances are a GPU's instances of a profile, by number.
func DeviceGetGpuInstances(d *engine.Device, id uint32) (list []*engine.GpuInstance, ret abi.Return) {
	if _, ret := cut(d, id); ret != abi.SUCCESS {
		return nil, ret
	}
	for _, g := range d.Snapshot().GpuInstances(d) {
		if g.Profile != nil && g.Profile.ID == id {
			list = append(list, g)
		}
	}
	return list, abi.SUCCESS
}

// DeviceGetGpuInstanceById is the GPU's instance of a number; NOT_FOUND if there is none.
func DeviceGetGpuInstanceById(d *engine.Device, id uint32) (*engine.GpuInstance, abi.Return) {
	if !d.MIG.ModeCurrent.Value {
		return nil, abi.ERROR_NOT_SUPPORTED
	}
	return gpuInstance(d, func(g *engine.GpuInstance) bool { return g.ID == id })
}

// GpuInstanceDestroy removes a GPU instance; IN_USE while there are compute instances in it.
func GpuInstanceDestroy(g *engine.GpuInstance) abi.Return {
	serial := g.Key().Serial
	return g.Parent.Change(func(t *change.Tx, i int) abi.Return { return t.DestroyGPUInstance(i, serial) })
}

// GpuInstanceGetInfo says what a GPU instance is.
func GpuInstanceGetInfo(g *engine.GpuInstance, info *abi.GpuInstanceInfo_t) abi.Return {
	parent, ret := g.Parent.Handle()
	if ret != abi.SUCCESS || g.Profile == nil {
		return cmp.Or(ret, abi.ERROR_NOT_SUPPORTED)
	}
	*info = abi.GpuInstanceInfo_t{
		Device: abi.Device_t(parent), Id: g.ID, ProfileId: g.Profile.ID,
		Placement: abi.GpuInstancePlacement_t{Start: g.Start, Size: g.Profile.PlacementSize.Value},
	}
	return abi.SUCCESS
}

// computeProfile is a way to cut a GPU instance, by NVML's enumeration; NOT_SUPPORTED if it cannot be cut like that.
func computeProfile(g *engine.GpuInstance, kind uint32) (change.ComputeProfile, abi.Return) {
	if kind >= abi.COMPUTE_INSTANCE_PROFILE_COUNT {
		return change.ComputeProfile{}, abi.ERROR_INVALID_ARGUMENT
	}
	for _, c := range g.ComputeProfiles() {
		if c.ID == kind {
			return c, abi.SUCCESS
		}
	}
	return change.ComputeProfile{}, abi.ERROR_NOT_SUPPORTED
}

// GpuInstanceGetComputeInstanceProfileInfo describes a way to cut a GPU instance, in which engines are shared.
func GpuInstanceGetComputeInstanceProfileInfo(g *engine.GpuInstance, kind, engines uint32, info *abi.ComputeInstanceProfileInfo_t) abi.Return {
	c, ret := sharedProfile(g, kind, engines)
	if ret != abi.SUCCESS {
		return ret
	}
	p := g.Profile
	*info = abi.ComputeInstanceProfileInfo_t{
		Id: c.ID, SliceCount: c.Slices, InstanceCount: c.Instances, MultiprocessorCount: c.Multiprocessors,
		SharedCopyEngineCount: p.CopyEngines.Value, SharedDecoderCount: p.Decoders.Value, SharedEncoderCount: p.Encoders.Value,
		SharedJpegCount: p.JPEGs.Value, SharedOfaCount: p.OFAs.Value,
	}
	return abi.SUCCESS
}

// sharedProfile is computeProfile for the one way in which compute instances have engines.
func sharedProfile(g *engine.GpuInstance, kind, engines uint32) (change.ComputeProfile, abi.Return) {
	if engines >= abi.COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT {
		return change.ComputeProfile{}, abi.ERROR_INVALID_ARGUMENT
	}
	return computeProfile(g, kind)
}

// GpuInstanceGetComputeInstanceProfileInfoV is GpuInstanceGetComputeInstanceProfileInfo with the profile's name.
func GpuInstanceGetComputeInstanceProfileInfoV(g *engine.GpuInstance, kind, engines uint32, info *abi.ComputeInstanceProfileInfo_v2_t) abi.Return {
	c, ret := sharedProfile(g, kind, engines)
	if ret != abi.SUCCESS {
		return ret
	}
	p := g.Profile
	info.Id, info.SliceCount, info.InstanceCount, info.MultiprocessorCount = c.ID, c.Slices, c.Instances, c.Multiprocessors
	info.SharedCopyEngineCount, info.SharedDecoderCount, info.SharedEncoderCount = p.CopyEngines.Value, p.Decoders.Value, p.Encoders.Value
	info.SharedJpegCount, info.SharedOfaCount = p.JPEGs.Value, p.OFAs.Value
	text(info.Name[:], "MIG "+c.Name(p))
	return abi.SUCCESS
}

// GpuInstanceGetComputeInstancePossiblePlacements are the places that compute instances of a profile can have.
func GpuInstanceGetComputeInstancePossiblePlacements(g *engine.GpuInstance, kind uint32) (list []abi.ComputeInstancePlacement_t, ret abi.Return) {
	c, ret := computeProfile(g, kind)
	for _, start := range c.Starts {
		list = append(list, abi.ComputeInstancePlacement_t{Start: start, Size: c.Slices})
	}
	return list, ret
}

// GpuInstanceGetComputeInstanceRemainingCapacity is how many more compute instances of a profile fit.
func GpuInstanceGetComputeInstanceRemainingCapacity(g *engine.GpuInstance, kind uint32) (uint32, abi.Return) {
	c, ret := computeProfile(g, kind)
	if ret != abi.SUCCESS {
		return 0, ret
	}
	return uint32(len(g.FreeCompute(c))), abi.SUCCESS
}

// GpuInstanceCreateComputeInstance makes a compute instance at the first place where it fits; INSUFFICIENT_RESOURCES if it
// fits nowhere.
func GpuInstanceCreateComputeInstance(g *engine.GpuInstance, kind uint32) (*engine.ComputeInstance, abi.Return) {
	return createComputeInstance(g, kind, nil)
}

// GpuInstanceCreateComputeInstanceWithPlacement makes a compute instance at a place.
func GpuInstanceCreateComputeInstanceWithPlacement(g *engine.GpuInstance, kind uint32, at *abi.ComputeInstancePlacement_t) (*engine.ComputeInstance, abi.Return) {
	return createComputeInstance(g, kind, &at.Start)
}

func createComputeInstance(g *engine.GpuInstance, kind uint32, start *uint32) (*engine.ComputeInstance, abi.Return) {
	in, serial := g.Key().Serial, uint64(0)
	ret := g.Parent.Change(func(t *change.Tx, i int) abi.Return {
		made, ret := t.CreateComputeInstance(i, in, kind, start)
		serial = made.Serial
		return ret
	})
	if ret != abi.SUCCESS {
		return nil, ret
	}
	now, ret := gpuInstance(g.Parent, func(other *engine.GpuInstance) bool { return other.Key().Serial == in })
	if ret != abi.SUCCESS {
		return nil, ret
	}
	for _, c := range now.Parts {
		if c.Key().Serial == serial {
			return c, abi.SUCCESS
		}
	}
	return nil, abi.ERROR_NOT_FOUND
}

// GpuInstanceGetComputeInstances are the compute instances of a profile, by number.
func GpuInstanceGetComputeInstances(g *engine.GpuInstance, kind uint32) (list []*engine.ComputeInstance, ret abi.Return) {
	if _, ret := computeProfile(g, kind); ret != abi.SUCCESS {
		return nil, ret
	}
	for _, c := range g.Parts {
		if c.Profile.ID == kind {
			list = append(list, c)
		}
	}
	return list, abi.SUCCESS
}

// GpuInstanceGetComputeInstanceById is the compute instance of a number; NOT_FOUND if there is none.
func GpuInstanceGetComputeInstanceById(g *engine.GpuInstance, id uint32) (*engine.ComputeInstance, abi.Return) {
	for _, c := range g.Parts {
		if c.ID == id {
			return c, abi.SUCCESS
		}
	}
	return nil, abi.ERROR_NOT_FOUND
}

// ComputeInstanceDestroy removes a compute instance, and its MIG device with it.
func ComputeInstanceDestroy(c *engine.ComputeInstance) abi.Return {
	serial := c.Key().Serial
	return c.Parent.Parent.Change(func(t *change.Tx, i int) abi.Return { return t.DestroyComputeInstance(i, serial) })
}

// ComputeInstanceGetInfo says what a compute instance is.
//
//nvml:symbol nvmlComputeInstanceGetInfo nvmlComputeInstanceGetInfo_v2
func ComputeInstanceGetInfo(c *engine.ComputeInstance, info *abi.ComputeInstanceInfo_t) abi.Return {
	device, ret := c.Parent.Parent.Handle()
	if ret != abi.SUCCESS {
		return ret
	}
	parent, ret := c.Parent.Handle()
	if ret != abi.SUCCESS {
		return ret
	}
	*info = abi.ComputeInstanceInfo_t{
		Device: abi.Device_t(device), GpuInstance: abi.GpuInstance_t(parent), Id: c.ID, ProfileId: c.Profile.ID,
		Placement: abi.ComputeInstancePlacement_t{Start: c.Start, Size: c.Profile.Slices},
	}
	return abi.SUCCESS
}
