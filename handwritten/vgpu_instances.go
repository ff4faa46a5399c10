package handwritten

import (
	"encoding/binary"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// vgpu finds a vGPU by its number, and its GPU; NOT_FOUND if there is none.
func vgpu(s *engine.Snapshot, id abi.VgpuInstance_t) (*profiles.VGPUInstance, *engine.Device, abi.Return) {
	if id == 0 {
		return nil, nil, abi.ERROR_INVALID_ARGUMENT
	}
	for _, d := range hosts(s) {
		for i := range d.VGPU.Instances {
			if v := &d.VGPU.Instances[i]; v.ID == uint32(id) {
				return v, d, abi.SUCCESS
			}
		}
	}
	return nil, nil, abi.ERROR_NOT_FOUND
}

// ofVGPU answers a value of a vGPU; NOT_SUPPORTED if the profile does not give it.
func ofVGPU[T any](s *engine.Snapshot, id abi.VgpuInstance_t, value func(*profiles.VGPUInstance) profiles.Opt[T]) (T, abi.Return) {
	v, _, ret := vgpu(s, id)
	if ret != abi.SUCCESS {
		var none T
		return none, ret
	}
	return opt(value(v))
}

// VgpuInstanceGetVmID identifies the virtual machine of a vGPU.
func VgpuInstanceGetVmID(s *engine.Snapshot, id abi.VgpuInstance_t) (string, abi.VgpuVmIdType_t, abi.Return) {
	v, _, ret := vgpu(s, id)
	if ret != abi.SUCCESS {
		return "", 0, ret
	}
	if v.VMIDType.Value == "domain_id" {
		return v.VMID, abi.VGPU_VM_ID_DOMAIN_ID, ret
	}
	return v.VMID, abi.VGPU_VM_ID_UUID, ret
}

// VgpuInstanceGetUUID is the identifier of a vGPU.
func VgpuInstanceGetUUID(s *engine.Snapshot, id abi.VgpuInstance_t) (string, abi.Return) {
	return ofVGPU(s, id, func(v *profiles.VGPUInstance) profiles.Opt[string] { return profiles.Some(string(v.UUID)) })
}

// VgpuInstanceGetMdevUUID is the identifier of a vGPU's mediated device; NOT_SUPPORTED on other hypervisors than KVM.
func VgpuInstanceGetMdevUUID(s *engine.Snapshot, id abi.VgpuInstance_t) (string, abi.Return) {
	return ofVGPU(s, id, func(v *profiles.VGPUInstance) profiles.Opt[string] {
		return profiles.Opt[string]{Value: string(v.MdevUUID.Value), Valid: v.MdevUUID.Valid}
	})
}

// VgpuInstanceGetVmDriverVersion is the version of the guest's driver, or Not Available while none is loaded.
func VgpuInstanceGetVmDriverVersion(s *engine.Snapshot, id abi.VgpuInstance_t) (string, abi.Return) {
	return ofVGPU(s, id, func(v *profiles.VGPUInstance) profiles.Opt[string] {
		return profiles.Some(v.VMDriverVersion.Or("Not Available"))
	})
}

// VgpuInstanceGetFbUsage is the memory that a virtual machine uses, in bytes.
func VgpuInstanceGetFbUsage(s *engine.Snapshot, id abi.VgpuInstance_t) (uint64, abi.Return) {
	return ofVGPU(s, id, func(v *profiles.VGPUInstance) profiles.Opt[uint64] { return inBytes(v.FramebufferUsedMiB) })
}

// VgpuInstanceGetType is the type of a vGPU.
func VgpuInstanceGetType(s *engine.Snapshot, id abi.VgpuInstance_t) (abi.VgpuTypeId_t, abi.Return) {
	v, d, ret := vgpu(s, id)
	if ret != abi.SUCCESS {
		return 0, ret
	}
	t := d.VGPU.Type(v.Type)
	if t == nil {
		return 0, abi.ERROR_UNKNOWN
	}
	return abi.VgpuTypeId_t(t.ID), abi.SUCCESS
}

// VgpuInstanceGetFrameRateLimit is the highest number of frames per second; NOT_SUPPORTED where nothing limits them.
func VgpuInstanceGetFrameRateLimit(s *engine.Snapshot, id abi.VgpuInstance_t) (uint32, abi.Return) {
	v, d, ret := vgpu(s, id)
	if ret != abi.SUCCESS {
		return 0, ret
	}
	if t := d.VGPU.Type(v.Type); t != nil && !v.FrameRateLimit.Valid {
		return opt(t.FrameRateLimit)
	}
	return opt(v.FrameRateLimit)
}

// VgpuInstanceGetEccMode says whether the memory of a vGPU has ECC.
func VgpuInstanceGetEccMode(s *engine.Snapshot, id abi.VgpuInstance_t) (abi.EnableState_t, abi.Return) {
	return ofVGPU(s, id, func(v *profiles.VGPUInstance) profiles.Opt[abi.EnableState_t] {
		return mode[abi.EnableState_t](v.ECCMode)
	})
}

// VgpuInstanceGetEncoderCapacity is a vGPU's part of the encoders, in percent.
func VgpuInstanceGetEncoderCapacity(s *engine.Snapshot, id abi.VgpuInstance_t) (uint32, abi.Return) {
	return ofVGPU(s, id, func(v *profiles.VGPUInstance) profiles.Opt[uint32] { return v.EncoderCapacity })
}

// VgpuInstanceSetEncoderCapacity gives a vGPU a part of the encoders, in percent.
func VgpuInstanceSetEncoderCapacity(s *engine.Snapshot, id abi.VgpuInstance_t, percent uint32) abi.Return {
	if id == 0 {
		return abi.ERROR_INVALID_ARGUMENT
	}
	return s.Change(func(t *change.Tx) abi.Return { return t.VGPUEncoderCapacity(uint32(id), percent) })
}

// VgpuInstanceGetGpuInstanceId is the number of the GPU instance that a vGPU runs in.
func VgpuInstanceGetGpuInstanceId(s *engine.Snapshot, id abi.VgpuInstance_t) (uint32, abi.Return) {
	return ofVGPU(s, id, func(v *profiles.VGPUInstance) profiles.Opt[uint32] {
		return profiles.Some(v.GPUInstanceID.Or(abi.INVALID_GPU_INSTANCE_ID))
	})
}

// VgpuInstanceGetGpuPciId is the PCI address of the GPU in the virtual machine; all zero while no driver is loaded there.
func VgpuInstanceGetGpuPciId(s *engine.Snapshot, id abi.VgpuInstance_t) (string, abi.Return) {
	return ofVGPU(s, id, func(v *profiles.VGPUInstance) profiles.Opt[string] {
		if !v.VMDriverVersion.Valid {
			return profiles.Some(profiles.BusID{}.String())
		}
		return profiles.Opt[string]{Value: v.VMBusID.Value.String(), Valid: v.VMBusID.Valid}
	})
}

// VgpuInstanceGetPlacementId is the place at which a vGPU starts, or INVALID_VGPU_PLACEMENT_ID without a place.
func VgpuInstanceGetPlacementId(s *engine.Snapshot, id abi.VgpuInstance_t, p *abi.VgpuPlacementId_v1_t) (ret abi.Return) {
	p.PlacementId, ret = ofVGPU(s, id, func(v *profiles.VGPUInstance) profiles.Opt[uint32] {
		return profiles.Some(v.PlacementID.Or(abi.INVALID_VGPU_PLACEMENT_ID))
	})
	return ret
}

// VgpuInstanceGetRuntimeStateSize is the greatest size of a vGPU's state without the memory of the guest, in bytes.
func VgpuInstanceGetRuntimeStateSize(s *engine.Snapshot, id abi.VgpuInstance_t, r *abi.VgpuRuntimeState_v1_t) (ret abi.Return) {
	r.Size, ret = ofVGPU(s, id, func(v *profiles.VGPUInstance) profiles.Opt[uint64] { return v.RuntimeStateBytes })
	return ret
}

// VgpuInstanceGetMetadata is what decides where a vGPU's virtual machine can move to. Its opaque data is the PCI device id of
// the GPU.
func VgpuInstanceGetMetadata(s *engine.Snapshot, id abi.VgpuInstance_t) ([]byte, abi.Return) {
	v, d, ret := vgpu(s, id)
	if ret != abi.SUCCESS {
		return nil, ret
	}
	m := abi.VgpuMetadata_t{
		Version: metadataVersion, VgpuVirtualizationCaps: bit(d.VGPU.MigrationSupported.Value), OpaqueDataSize: 4,
	}
	if v.VMDriverVersion.Valid {
		m.GuestInfoState, m.GuestVgpuVersion = abi.VGPU_INSTANCE_GUEST_INFO_STATE_INITIALIZED, v.VMVGPUVersion.Value
	}
	text(m.GuestDriverVersion[:], v.VMDriverVersion.Value)
	text(m.HostDriverVersion[:], s.Board.System.DriverVersion.Value)
	binary.LittleEndian.PutUint32(m.OpaqueData[:], d.PCI.DeviceID.Value)
	return packed(m), abi.SUCCESS
}

// VgpuInstanceGetEncoderSessions are the encoder sessions of a vGPU.
func VgpuInstanceGetEncoderSessions(s *engine.Snapshot, id abi.VgpuInstance_t) (list []abi.EncoderSessionInfo_t, ret abi.Return) {
	v, _, ret := vgpu(s, id)
	if ret != abi.SUCCESS {
		return nil, ret
	}
	for _, e := range v.EncoderSessions {
		list = append(list, abi.EncoderSessionInfo_t{
			SessionId: e.ID, Pid: e.PID.Value, VgpuInstance: id, CodecType: named(e.Codec, codecs).Or(abi.ENCODER_QUERY_UNKNOWN),
			HResolution: e.X.Value, VResolution: e.Y.Value, AverageFps: e.AverageFPS.Value, AverageLatency: e.AverageLatencyUS.Value,
		})
	}
	return list, ret
}

var codecs = table[string, abi.EncoderType_t]{
	{"h264", abi.ENCODER_QUERY_H264},
	{"hevc", abi.ENCODER_QUERY_HEVC},
	{"av1", abi.ENCODER_QUERY_AV1},
}

// average is the mean of numbers, 0 of none.
func average[T any](list []T, number func(T) uint32) uint32 {
	var sum uint64
	for _, one := range list {
		sum += uint64(number(one))
	}
	return uint32(sum / max(uint64(len(list)), 1))
}

// VgpuInstanceGetEncoderStats is the number of a vGPU's encoder sessions, their average frames per second and latency in µs.
func VgpuInstanceGetEncoderStats(s *engine.Snapshot, id abi.VgpuInstance_t) (sessions, fps, latency uint32, ret abi.Return) {
	list, ret := VgpuInstanceGetEncoderSessions(s, id)
	return uint32(len(list)), average(list, func(e abi.EncoderSessionInfo_t) uint32 { return e.AverageFps }),
		average(list, func(e abi.EncoderSessionInfo_t) uint32 { return e.AverageLatency }), ret
}

// VgpuInstanceGetFBCSessions are the frame buffer capture sessions of a vGPU.
func VgpuInstanceGetFBCSessions(s *engine.Snapshot, id abi.VgpuInstance_t) (list []abi.FBCSessionInfo_t, ret abi.Return) {
	v, _, ret := vgpu(s, id)
	if ret != abi.SUCCESS {
		return nil, ret
	}
	for _, f := range v.FBCSessions {
		flags := bit(f.DiffMap.Value)*abi.NVFBC_SESSION_FLAG_DIFFMAP_ENABLED +
			bit(f.ClassificationMap.Value)*abi.NVFBC_SESSION_FLAG_CLASSIFICATIONMAP_ENABLED + waits.Of(f.Wait.Value)
		list = append(list, abi.FBCSessionInfo_t{
			SessionId: f.ID, Pid: f.PID.Value, VgpuInstance: id, DisplayOrdinal: f.Display.Value,
			SessionType: named(f.Type, captures).Value, SessionFlags: flags,
			HMaxResolution: f.MaxX.Value, VMaxResolution: f.MaxY.Value, HResolution: f.X.Value, VResolution: f.Y.Value,
			AverageFPS: f.AverageFPS.Value, AverageLatency: f.AverageLatencyUS.Value,
		})
	}
	return list, ret
}

var captures = table[string, abi.FBCSessionType_t]{
	{"unknown", abi.FBC_SESSION_TYPE_UNKNOWN},
	{"to_sys", abi.FBC_SESSION_TYPE_TOSYS},
	{"cuda", abi.FBC_SESSION_TYPE_CUDA},
	{"vid", abi.FBC_SESSION_TYPE_VID},
	{"hw_enc", abi.FBC_SESSION_TYPE_HWENC},
}

// waits are the flags for how a call waits for a frame.
var waits = table[string, uint32]{
	{"none", abi.NVFBC_SESSION_FLAG_CAPTURE_WITH_WAIT_NO_WAIT},
	{"infinite", abi.NVFBC_SESSION_FLAG_CAPTURE_WITH_WAIT_INFINITE},
	{"timeout", abi.NVFBC_SESSION_FLAG_CAPTURE_WITH_WAIT_TIMEOUT},
}

// VgpuInstanceGetFBCStats is the number of a vGPU's frame buffer capture sessions, their average frames per second and latency
// in µs.
func VgpuInstanceGetFBCStats(s *engine.Snapshot, id abi.VgpuInstance_t, stats *abi.FBCStats_t) abi.Return {
	list, ret := VgpuInstanceGetFBCSessions(s, id)
	*stats = abi.FBCStats_t{
		SessionsCount:  uint32(len(list)),
		AverageFPS:     average(list, func(f abi.FBCSessionInfo_t) uint32 { return f.AverageFPS }),
		AverageLatency: average(list, func(f abi.FBCSessionInfo_t) uint32 { return f.AverageLatency }),
	}
	return ret
}
