package handwritten

import (
	"bytes"
	"encoding/binary"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// host answers NOT_SUPPORTED unless the device is a whole GPU that is a vGPU host.
func host(d *engine.Device) abi.Return {
	if d.Instance != nil || !change.VGPUHost(d.Device) {
		return abi.ERROR_NOT_SUPPORTED
	}
	return abi.SUCCESS
}

// hosts are the GPUs that are vGPU hosts.
func hosts(s *engine.Snapshot) (list []*engine.Device) {
	for _, d := range s.Devices {
		if host(d) == abi.SUCCESS {
			list = append(list, d)
		}
	}
	return list
}

// inInstance is where vGPUs share a GPU instance; NOT_SUPPORTED unless its GPU is a vGPU host.
func inInstance(g *engine.GpuInstance) (change.VGPUSpace, abi.Return) {
	if ret := host(g.Parent); ret != abi.SUCCESS || g.Profile == nil {
		return change.VGPUSpace{}, abi.ERROR_NOT_SUPPORTED
	}
	return change.InstanceVGPUSpace(g.Parent.Device, g.ID, g.Profile.ID), abi.SUCCESS
}

// onWhole is where vGPUs share a GPU that is not in MIG mode; NOT_SUPPORTED if it is, or is no vGPU host.
func onWhole(d *engine.Device) (change.VGPUSpace, abi.Return) {
	if ret := host(d); ret != abi.SUCCESS || bool(d.MIG.ModeCurrent.Value) {
		return change.VGPUSpace{}, abi.ERROR_NOT_SUPPORTED
	}
	return change.WholeVGPUSpace(d.Device), abi.SUCCESS
}

func typeIDs(types []*profiles.VGPUType) (list []abi.VgpuTypeId_t) {
	for _, t := range types {
		list = append(list, abi.VgpuTypeId_t(t.ID))
	}
	return list
}

// DeviceGetSupportedVgpus are the vGPU types that the GPU offers, whatever runs on it.
func DeviceGetSupportedVgpus(d *engine.Device) ([]abi.VgpuTypeId_t, abi.Return) {
	return typeIDs(change.SupportedVGPUs(d.Device)), host(d)
}

// DeviceGetCreatableVgpus are the vGPU types of which one more fits now: onto the GPU, or in MIG mode into one of its GPU
// instances.
func DeviceGetCreatableVgpus(d *engine.Device) ([]abi.VgpuTypeId_t, abi.Return) {
	if whole, ret := onWhole(d); ret == abi.SUCCESS {
		return typeIDs(whole.Creatable()), ret
	}
	if ret := host(d); ret != abi.SUCCESS {
		return nil, ret
	}
	var types []*profiles.VGPUType
	for _, t := range change.SupportedVGPUs(d.Device) {
		for _, g := range d.Snapshot().GpuInstances(d) {
			if in, ret := inInstance(g); ret == abi.SUCCESS && in.Fits(t) {
				types = append(types, t)
				break
			}
		}
	}
	return typeIDs(types), abi.SUCCESS
}

// DeviceGetActiveVgpus are the GPU's vGPUs.
func DeviceGetActiveVgpus(d *engine.Device) (list []abi.VgpuInstance_t, ret abi.Return) {
	for i := range d.VGPU.Instances {
		list = append(list, abi.VgpuInstance_t(d.VGPU.Instances[i].ID))
	}
	return list, host(d)
}

// DeviceGetVgpuCapabilities says whether the GPU can do something as a vGPU host, or how fast; NOT_SUPPORTED where the
// profile does not say.
func DeviceGetVgpuCapabilities(d *engine.Device, capability abi.DeviceVgpuCapability_t) (uint32, abi.Return) {
	if capability >= abi.DEVICE_VGPU_CAP_COUNT {
		return 0, abi.ERROR_INVALID_ARGUMENT
	}
	if ret := host(d); ret != abi.SUCCESS {
		return 0, ret
	}
	c := &d.VGPU.Capabilities
	return opt(map[abi.DeviceVgpuCapability_t]profiles.Opt[uint32]{
		abi.DEVICE_VGPU_CAP_FRACTIONAL_MULTI_VGPU:            flag[uint32](c.FractionalMultiVGPU),
		abi.DEVICE_VGPU_CAP_HETEROGENEOUS_TIMESLICE_PROFILES: flag[uint32](c.HeterogeneousTimesliceProfiles),
		abi.DEVICE_VGPU_CAP_HETEROGENEOUS_TIMESLICE_SIZES:    flag[uint32](c.HeterogeneousTimesliceSizes),
		abi.DEVICE_VGPU_CAP_READ_DEVICE_BUFFER_BW:            c.ReadDeviceBufferBandwidth,
		abi.DEVICE_VGPU_CAP_WRITE_DEVICE_BUFFER_BW:           c.WriteDeviceBufferBandwidth,
		abi.DEVICE_VGPU_CAP_DEVICE_STREAMING:                 flag[uint32](c.DeviceStreaming),
		abi.DEVICE_VGPU_CAP_MINI_QUARTER_GPU:                 flag[uint32](c.MiniQuarterGPU),
		abi.DEVICE_VGPU_CAP_COMPUTE_MEDIA_ENGINE_GPU:         flag[uint32](c.ComputeMediaEngineGPU),
		abi.DEVICE_VGPU_CAP_WARM_UPDATE:                      flag[uint32](c.WarmUpdate),
		abi.DEVICE_VGPU_CAP_HOMOGENEOUS_PLACEMENTS:           flag[uint32](c.HomogeneousPlacements),
		abi.DEVICE_VGPU_CAP_MIG_TIMESLICING_SUPPORTED:        flag[uint32](c.MIGTimeslicingSupported),
		abi.DEVICE_VGPU_CAP_MIG_TIMESLICING_ENABLED:          flag[uint32](c.MIGTimeslicingEnabled),
	}[capability])
}

// DeviceSetVgpuCapabilities switches a capability of a vGPU host on or off; INVALID_ARGUMENT for those that cannot be set.
func DeviceSetVgpuCapabilities(d *engine.Device, capability abi.DeviceVgpuCapability_t, on abi.EnableState_t) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.VGPUCapability(i, capability, on) })
}

// GetVgpuDriverCapabilities says whether the host's driver can do something with vGPUs.
func GetVgpuDriverCapabilities(s *engine.Snapshot, capability abi.VgpuDriverCapability_t) (uint32, abi.Return) {
	switch v := &s.Board.System.VGPU; {
	case capability >= abi.VGPU_DRIVER_CAP_COUNT:
		return 0, abi.ERROR_INVALID_ARGUMENT
	case len(hosts(s)) == 0:
		return 0, abi.ERROR_NOT_SUPPORTED
	case capability == abi.VGPU_DRIVER_CAP_WARM_UPDATE:
		return opt(flag[uint32](v.WarmUpdate))
	default:
		return opt(flag[uint32](v.HeterogeneousMultiVGPU))
	}
}

// DeviceGetVgpuHeterogeneousMode says whether vGPUs with different amounts of memory can run at the same time.
func DeviceGetVgpuHeterogeneousMode(d *engine.Device, m *abi.VgpuHeterogeneousMode_v1_t) abi.Return {
	if _, ret := onWhole(d); ret != abi.SUCCESS {
		return ret
	}
	var ret abi.Return
	m.Mode, ret = opt(mode[uint32](d.VGPU.HeterogeneousMode))
	return ret
}

// DeviceSetVgpuHeterogeneousMode lets vGPUs have different amounts of memory, or not; IN_USE while there is a vGPU.
func DeviceSetVgpuHeterogeneousMode(d *engine.Device, m *abi.VgpuHeterogeneousMode_v1_t) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return {
		return t.VGPUHeterogeneousMode(i, profiles.Opt[uint32]{}, abi.EnableState_t(m.Mode))
	})
}

// GpuInstanceGetVgpuHeterogeneousMode is DeviceGetVgpuHeterogeneousMode for a GPU instance.
func GpuInstanceGetVgpuHeterogeneousMode(g *engine.GpuInstance, m *abi.VgpuHeterogeneousMode_v1_t) abi.Return {
	in, ret := inInstance(g)
	if ret != abi.SUCCESS || !g.Parent.VGPU.HeterogeneousMode.Valid {
		return abi.ERROR_NOT_SUPPORTED
	}
	m.Mode = bit(in.Mixed)
	return abi.SUCCESS
}

// GpuInstanceSetVgpuHeterogeneousMode is DeviceSetVgpuHeterogeneousMode for a GPU instance.
func GpuInstanceSetVgpuHeterogeneousMode(g *engine.GpuInstance, m *abi.VgpuHeterogeneousMode_v1_t) abi.Return {
	id := profiles.Some(g.ID)
	return g.Parent.Change(func(t *change.Tx, i int) abi.Return {
		return t.VGPUHeterogeneousMode(i, id, abi.EnableState_t(m.Mode))
	})
}

// DeviceVgpuForceGspUnload stops the firmware of the GPU System Processor of a vGPU host.
func DeviceVgpuForceGspUnload(d *engine.Device) abi.Return { return d.Change((*change.Tx).UnloadGSP) }

// GetVgpuVersion is the range of vGPU versions that the host's driver serves, and the range that an administrator allows.
func GetVgpuVersion(s *engine.Snapshot, supported, current *abi.VgpuVersion_t) (ret abi.Return) {
	if len(hosts(s)) == 0 {
		return abi.ERROR_NOT_SUPPORTED
	}
	v := &s.Board.System.VGPU
	supported.MinVersion, supported.MaxVersion, ret = pair(v.MinVersion, v.MaxVersion)
	*current = abi.VgpuVersion_t{
		MinVersion: v.SetMinVersion.Or(supported.MinVersion), MaxVersion: v.SetMaxVersion.Or(supported.MaxVersion),
	}
	return ret
}

// SetVgpuVersion narrows the range of vGPU versions that the host's driver serves; IN_USE while there is a vGPU.
func SetVgpuVersion(s *engine.Snapshot, v *abi.VgpuVersion_t) abi.Return {
	return s.Change(func(t *change.Tx) abi.Return { return t.VGPUVersions(v.MinVersion, v.MaxVersion) })
}

// metadataVersion is the version of the structs of metadata.
const metadataVersion = 1

// packed is a struct as it is in memory. Structs of metadata have no padding.
func packed(v any) []byte {
	var w bytes.Buffer
	if binary.Write(&w, binary.LittleEndian, v) != nil {
		return nil // not of these structs, whose members all have a fixed size
	}
	return w.Bytes()
}

// DeviceGetVgpuMetadata is what decides which vGPUs can move to the GPU. Its opaque data is the GPU's PCI device id.
func DeviceGetVgpuMetadata(d *engine.Device) ([]byte, abi.Return) {
	if ret := host(d); ret != abi.SUCCESS {
		return nil, ret
	}
	b := d.Snapshot().Board
	m := abi.VgpuPgpuMetadata_t{
		Version: metadataVersion, PgpuVirtualizationCaps: bit(d.VGPU.MigrationSupported.Value), OpaqueDataSize: 4,
	}
	text(m.HostDriverVersion[:], b.System.DriverVersion.Value)
	var supported abi.VgpuVersion_t
	_ = GetVgpuVersion(d.Snapshot(), &supported, &m.HostSupportedVgpuRange)
	binary.LittleEndian.PutUint32(m.OpaqueData[:], d.PCI.DeviceID.Value)
	return packed(m), abi.SUCCESS
}

// GetVgpuCompatibility says from which states the virtual machine of a vGPU can go on with a GPU: none if the GPU is of
// another kind or its driver does not serve the guest's vGPU version, and live if both can migrate.
func GetVgpuCompatibility(s *engine.Snapshot, vgpu *abi.VgpuMetadata_t, gpu *abi.VgpuPgpuMetadata_t, c *abi.VgpuPgpuCompatibility_t) abi.Return {
	if vgpu.Version != metadataVersion || gpu.Version != metadataVersion {
		return abi.ERROR_INVALID_ARGUMENT
	}
	const cold = abi.VGPU_VM_COMPATIBILITY_COLD
	const running = cold | abi.VGPU_VM_COMPATIBILITY_HIBERNATE | abi.VGPU_VM_COMPATIBILITY_SLEEP | abi.VGPU_VM_COMPATIBILITY_LIVE
	serves, guest := gpu.HostSupportedVgpuRange, vgpu.GuestVgpuVersion
	limited := func(to abi.VgpuVmCompatibility_t, by abi.VgpuPgpuCompatibilityLimitCode_t) abi.Return {
		*c = abi.VgpuPgpuCompatibility_t{VgpuVmCompatibility: to, CompatibilityLimitCode: by}
		return abi.SUCCESS
	}
	switch known := vgpu.GuestInfoState == abi.VGPU_INSTANCE_GUEST_INFO_STATE_INITIALIZED; {
	case vgpu.OpaqueData != gpu.OpaqueData:
		return limited(abi.VGPU_VM_COMPATIBILITY_NONE, abi.VGPU_COMPATIBILITY_LIMIT_GPU)
	case known && guest < serves.MinVersion:
		return limited(abi.VGPU_VM_COMPATIBILITY_NONE, abi.VGPU_COMPATIBILITY_LIMIT_GUEST_DRIVER)
	case known && guest > serves.MaxVersion:
		return limited(abi.VGPU_VM_COMPATIBILITY_NONE, abi.VGPU_COMPATIBILITY_LIMIT_HOST_DRIVER)
	case !known || vgpu.VgpuVirtualizationCaps&gpu.PgpuVirtualizationCaps&1 == 0:
		return limited(cold, abi.VGPU_COMPATIBILITY_LIMIT_NONE)
	}
	return limited(running, abi.VGPU_COMPATIBILITY_LIMIT_NONE)
}

// GpuInstanceGetActiveVgpus are the vGPUs in a GPU instance.
func GpuInstanceGetActiveVgpus(g *engine.GpuInstance, _ *abi.ActiveVgpuInstanceInfo_v1_t) (list []abi.VgpuInstance_t, ret abi.Return) {
	in, ret := inInstance(g)
	if ret != abi.SUCCESS {
		return nil, ret
	}
	for _, v := range in.Instances() {
		list = append(list, abi.VgpuInstance_t(v.ID))
	}
	return list, abi.SUCCESS
}

// GpuInstanceGetCreatableVgpus are the vGPU types of which one more fits into a GPU instance now.
func GpuInstanceGetCreatableVgpus(g *engine.GpuInstance, _ *abi.VgpuTypeIdInfo_v1_t) ([]abi.VgpuTypeId_t, abi.Return) {
	in, ret := inInstance(g)
	if ret != abi.SUCCESS {
		return nil, ret
	}
	return typeIDs(in.Creatable()), abi.SUCCESS
}

// DeviceGetVgpuTypeSupportedPlacements are the places at which a vGPU of a type may start, whatever runs on the GPU.
func DeviceGetVgpuTypeSupportedPlacements(d *engine.Device, id abi.VgpuTypeId_t, p *abi.VgpuPlacementList_v2_t) ([]uint32, abi.Return) {
	t, mixed, ret := placed(d, id, p)
	if ret != abi.SUCCESS {
		return nil, ret
	}
	return t.Placements(mixed), abi.SUCCESS
}

// DeviceGetVgpuTypeCreatablePlacements are the places at which one more vGPU of a type may start now; NOT_SUPPORTED for
// another mode than the GPU's.
func DeviceGetVgpuTypeCreatablePlacements(d *engine.Device, id abi.VgpuTypeId_t, p *abi.VgpuPlacementList_v2_t) ([]uint32, abi.Return) {
	t, mixed, ret := placed(d, id, p)
	in, whole := onWhole(d)
	switch {
	case ret != abi.SUCCESS:
		return nil, ret
	case whole != abi.SUCCESS || in.Mixed != mixed:
		return nil, abi.ERROR_NOT_SUPPORTED
	case !in.Fits(t):
		return nil, abi.SUCCESS
	}
	return in.Free(t, mixed), abi.SUCCESS
}

// placed is the type that a list of placements is wanted of, and whether it is that of the heterogeneous mode. It writes the
// size of a placement.
func placed(d *engine.Device, id abi.VgpuTypeId_t, p *abi.VgpuPlacementList_v2_t) (t *profiles.VGPUType, mixed bool, ret abi.Return) {
	if ret := host(d); ret != abi.SUCCESS {
		return nil, false, ret
	}
	if t = d.VGPU.TypeByID(uint32(id)); t == nil || p.Mode > abi.VGPU_PGPU_HOMOGENEOUS_MODE {
		return nil, false, abi.ERROR_INVALID_ARGUMENT
	}
	mixed = p.Mode == abi.VGPU_PGPU_HETEROGENEOUS_MODE
	size := t.HomogeneousPlacementSize
	if mixed {
		size = t.PlacementSize
	}
	p.PlacementSize, ret = opt(size)
	return t, mixed, ret
}

// GpuInstanceGetVgpuTypeCreatablePlacements are the places in a GPU instance at which one more vGPU of a type may start now;
// NOT_SUPPORTED unless its vGPUs may have different amounts of memory.
func GpuInstanceGetVgpuTypeCreatablePlacements(g *engine.GpuInstance, p *abi.VgpuCreatablePlacementInfo_v1_t) ([]uint32, abi.Return) {
	in, ret := inInstance(g)
	if ret != abi.SUCCESS || !in.Mixed {
		return nil, abi.ERROR_NOT_SUPPORTED
	}
	t := g.Parent.VGPU.TypeByID(uint32(p.VgpuTypeId))
	if t == nil || !in.Offers(t) {
		return nil, abi.ERROR_INVALID_ARGUMENT
	}
	if p.PlacementSize, ret = opt(t.PlacementSize); ret != abi.SUCCESS || !in.Fits(t) {
		return nil, ret
	}
	return in.Free(t, true), abi.SUCCESS
}
