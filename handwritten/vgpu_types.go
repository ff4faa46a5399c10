package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// vgpuType finds a vGPU type on the GPUs that are hosts, and the first GPU that has it; NOT_SUPPORTED if there are no hosts.
func vgpuType(s *engine.Snapshot, id abi.VgpuTypeId_t) (*profiles.VGPUType, *engine.Device, abi.Return) {
	ret := abi.ERROR_NOT_SUPPORTED
	if id == 0 {
		return nil, nil, abi.ERROR_INVALID_ARGUMENT
	}
	for _, d := range hosts(s) {
		if t := d.VGPU.TypeByID(uint32(id)); t != nil {
			return t, d, abi.SUCCESS
		}
		ret = abi.ERROR_INVALID_ARGUMENT
	}
	return nil, nil, ret
}

// ofType answers a value of a vGPU type; NOT_SUPPORTED if the profile does not give it.
func ofType[T any](s *engine.Snapshot, id abi.VgpuTypeId_t, value func(*profiles.VGPUType) profiles.Opt[T]) (T, abi.Return) {
	t, _, ret := vgpuType(s, id)
	if ret != abi.SUCCESS {
		var none T
		return none, ret
	}
	return opt(value(t))
}

// inBytes is an amount in MiB, in bytes.
func inBytes(amount profiles.Opt[uint64]) profiles.Opt[uint64] {
	return profiles.Opt[uint64]{Value: amount.Value << 20, Valid: amount.Valid}
}

// VgpuTypeGetClass is the class of a vGPU type.
func VgpuTypeGetClass(s *engine.Snapshot, id abi.VgpuTypeId_t) (string, abi.Return) {
	return ofType(s, id, func(t *profiles.VGPUType) profiles.Opt[string] { return profiles.Some(t.Class) })
}

// VgpuTypeGetName is the name of a vGPU type.
func VgpuTypeGetName(s *engine.Snapshot, id abi.VgpuTypeId_t) (string, abi.Return) {
	return ofType(s, id, func(t *profiles.VGPUType) profiles.Opt[string] { return profiles.Some(t.Name) })
}

// VgpuTypeGetGpuInstanceProfileId is the id of the MIG profile that a vGPU of a type gets an instance of.
func VgpuTypeGetGpuInstanceProfileId(s *engine.Snapshot, id abi.VgpuTypeId_t) (uint32, abi.Return) {
	return ofType(s, id, func(t *profiles.VGPUType) profiles.Opt[uint32] {
		return profiles.Some(t.GPUInstanceProfileID.Or(abi.INVALID_GPU_INSTANCE_PROFILE_ID))
	})
}

// VgpuTypeGetDeviceID is the PCI device id, without that of the vendor, and the PCI subsystem id that a virtual machine sees.
func VgpuTypeGetDeviceID(s *engine.Snapshot, id abi.VgpuTypeId_t) (device, subsystem uint64, ret abi.Return) {
	t, d, ret := vgpuType(s, id)
	if ret != abi.SUCCESS {
		return 0, 0, ret
	}
	return uint64(t.DeviceID.Or(d.PCI.DeviceID.Value) >> 16), uint64(t.SubsystemID.Or(d.PCI.SubsystemID.Value)), abi.SUCCESS
}

// VgpuTypeGetFramebufferSize is the memory of a vGPU of a type, in bytes.
func VgpuTypeGetFramebufferSize(s *engine.Snapshot, id abi.VgpuTypeId_t) (uint64, abi.Return) {
	return ofType(s, id, func(t *profiles.VGPUType) profiles.Opt[uint64] { return inBytes(profiles.Some(t.FramebufferMiB)) })
}

// VgpuTypeGetFbReservation is the memory of a vGPU of a type that its guest cannot use, in bytes.
func VgpuTypeGetFbReservation(s *engine.Snapshot, id abi.VgpuTypeId_t) (uint64, abi.Return) {
	return ofType(s, id, func(t *profiles.VGPUType) profiles.Opt[uint64] { return inBytes(t.FramebufferReservationMiB) })
}

// VgpuTypeGetGspHeapSize is the memory of the GPU System Processor for a vGPU of a type, in bytes.
func VgpuTypeGetGspHeapSize(s *engine.Snapshot, id abi.VgpuTypeId_t) (uint64, abi.Return) {
	return ofType(s, id, func(t *profiles.VGPUType) profiles.Opt[uint64] { return inBytes(t.GSPHeapMiB) })
}

// VgpuTypeGetBAR1Info is the BAR1 aperture of a vGPU of a type, in MiB: drivers configure it in this unit, and nvml.h names
// none.
func VgpuTypeGetBAR1Info(s *engine.Snapshot, id abi.VgpuTypeId_t, info *abi.VgpuTypeBar1Info_v1_t) (ret abi.Return) {
	info.Bar1Size, ret = ofType(s, id, func(t *profiles.VGPUType) profiles.Opt[uint64] { return t.BAR1MiB })
	return ret
}

// VgpuTypeGetNumDisplayHeads is the number of displays of a vGPU of a type.
func VgpuTypeGetNumDisplayHeads(s *engine.Snapshot, id abi.VgpuTypeId_t) (uint32, abi.Return) {
	return ofType(s, id, func(t *profiles.VGPUType) profiles.Opt[uint32] { return profiles.Some(t.DisplayHeads) })
}

// VgpuTypeGetResolution is the width and height of a display, in pixels; INVALID_ARGUMENT for a display that a vGPU of that
// type does not have.
func VgpuTypeGetResolution(s *engine.Snapshot, id abi.VgpuTypeId_t, display uint32) (x, y uint32, ret abi.Return) {
	t, _, ret := vgpuType(s, id)
	switch {
	case ret != abi.SUCCESS:
		return 0, 0, ret
	case display >= t.DisplayHeads:
		return 0, 0, abi.ERROR_INVALID_ARGUMENT
	}
	return t.MaxX, t.MaxY, abi.SUCCESS
}

// VgpuTypeGetLicense is the licences that allow a type.
func VgpuTypeGetLicense(s *engine.Snapshot, id abi.VgpuTypeId_t) (string, abi.Return) {
	return ofType(s, id, func(t *profiles.VGPUType) profiles.Opt[string] { return t.License })
}

// VgpuTypeGetFrameRateLimit is the highest number of frames per second; NOT_SUPPORTED where nothing limits them.
func VgpuTypeGetFrameRateLimit(s *engine.Snapshot, id abi.VgpuTypeId_t) (uint32, abi.Return) {
	return ofType(s, id, func(t *profiles.VGPUType) profiles.Opt[uint32] { return t.FrameRateLimit })
}

// VgpuTypeGetMaxInstances is how many vGPUs of a type fit on a GPU.
func VgpuTypeGetMaxInstances(d *engine.Device, id abi.VgpuTypeId_t) (uint32, abi.Return) {
	if ret := host(d); ret != abi.SUCCESS {
		return 0, ret
	}
	t := d.VGPU.TypeByID(uint32(id))
	if t == nil {
		return 0, abi.ERROR_INVALID_ARGUMENT
	}
	return t.MaxInstances, abi.SUCCESS
}

// VgpuTypeGetMaxInstancesPerVm is how many vGPUs of a type a virtual machine may have.
func VgpuTypeGetMaxInstancesPerVm(s *engine.Snapshot, id abi.VgpuTypeId_t) (uint32, abi.Return) {
	return ofType(s, id, func(t *profiles.VGPUType) profiles.Opt[uint32] { return profiles.Some(t.MaxInstancesPerVM.Or(1)) })
}

// VgpuTypeGetMaxInstancesPerGpuInstance is how many vGPUs of a type fit into a GPU instance; NOT_SUPPORTED for types that are
// not for MIG.
func VgpuTypeGetMaxInstancesPerGpuInstance(s *engine.Snapshot, m *abi.VgpuTypeMaxInstance_v1_t) (ret abi.Return) {
	m.MaxInstancePerGI, ret = ofType(s, m.VgpuTypeId, func(t *profiles.VGPUType) profiles.Opt[uint32] {
		return profiles.Opt[uint32]{Value: t.MaxInstancesPerGPUInstance.Or(1), Valid: t.GPUInstanceProfileID.Valid}
	})
	return ret
}

// VgpuTypeGetCapabilities says whether a vGPU of a type can do something, or whether it excludes others.
func VgpuTypeGetCapabilities(s *engine.Snapshot, id abi.VgpuTypeId_t, capability abi.VgpuCapability_t) (uint32, abi.Return) {
	if capability >= abi.VGPU_CAP_COUNT {
		return 0, abi.ERROR_INVALID_ARGUMENT
	}
	return ofType(s, id, func(t *profiles.VGPUType) profiles.Opt[uint32] {
		return profiles.Some(bit(map[abi.VgpuCapability_t]profiles.Opt[bool]{
			abi.VGPU_CAP_NVLINK_P2P:           t.NVLinkP2P,
			abi.VGPU_CAP_GPUDIRECT:            t.GPUDirect,
			abi.VGPU_CAP_MULTI_VGPU_EXCLUSIVE: t.MultiVGPUExclusive,
			abi.VGPU_CAP_EXCLUSIVE_TYPE:       t.ExclusiveType,
			abi.VGPU_CAP_EXCLUSIVE_SIZE:       t.ExclusiveSize,
		}[capability].Value))
	})
}
