package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/words"
)

// DeviceGetPersistenceMode says whether the driver stays loaded without clients.
func DeviceGetPersistenceMode(d *engine.Device) (abi.EnableState_t, abi.Return) {
	return opt(mode[abi.EnableState_t](d.PersistenceMode))
}

// DeviceSetPersistenceMode keeps the driver loaded without clients, or not.
func DeviceSetPersistenceMode(d *engine.Device, on abi.EnableState_t) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.PersistenceMode(i, on) })
}

// DeviceGetComputeMode says who may compute on the GPU.
func DeviceGetComputeMode(d *engine.Device) (abi.ComputeMode_t, abi.Return) {
	return opt(named(d.ComputeMode, words.ComputeModes))
}

// DeviceSetComputeMode decides who may compute on the GPU. MIG devices have no mode of their own here, and answer
// NOT_SUPPORTED.
func DeviceSetComputeMode(d *engine.Device, mode abi.ComputeMode_t) abi.Return {
	if d.Instance != nil {
		return abi.ERROR_NOT_SUPPORTED
	}
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.ComputeMode(i, mode) })
}

// DeviceGetDisplayMode says whether a display is attached; DEPRECATED if the profile gives display.attached, as newer
// drivers do.
func DeviceGetDisplayMode(d *engine.Device) (abi.EnableState_t, abi.Return) {
	if !d.Display.Mode.Valid && d.Display.Attached.Valid {
		return 0, abi.ERROR_DEPRECATED
	}
	return opt(mode[abi.EnableState_t](d.Display.Mode))
}

// DeviceGetDisplayActive says whether a display is initialised.
func DeviceGetDisplayActive(d *engine.Device) (abi.EnableState_t, abi.Return) {
	return opt(mode[abi.EnableState_t](d.Display.Active))
}

// DeviceGetDriverModel is Windows' driver model, now and after a reset. Boards on Linux have none.
//
//nvml:symbol nvmlDeviceGetDriverModel nvmlDeviceGetDriverModel_v2
func DeviceGetDriverModel(d *engine.Device) (current, pending abi.DriverModel_t, ret abi.Return) {
	return pair(named(d.DriverModel.Current, words.DriverModels), named(d.DriverModel.Pending, words.DriverModels))
}

// DeviceGetGpuOperationMode is the operation mode, now and after a reset; Grace and Blackwell boards have none.
func DeviceGetGpuOperationMode(d *engine.Device) (current, pending abi.GpuOperationMode_t, ret abi.Return) {
	return pair(named(d.GPUOperationMode.Current, words.OperationModes), named(d.GPUOperationMode.Pending, words.OperationModes))
}

// DeviceSetGpuOperationMode is the operation mode after the next reset.
func DeviceSetGpuOperationMode(d *engine.Device, mode abi.GpuOperationMode_t) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.OperationMode(i, mode) })
}

// DeviceGetGspFirmwareMode says whether the GPU System Processor's firmware runs, now and by default.
func DeviceGetGspFirmwareMode(d *engine.Device) (enabled, byDefault uint32, ret abi.Return) {
	return pair(mode[uint32](d.GSPFirmware.Mode), mode[uint32](d.GSPFirmware.Mode))
}

// DeviceGetGspFirmwareVersion is the version of the GPU System Processor's firmware.
func DeviceGetGspFirmwareVersion(d *engine.Device) (string, abi.Return) {
	return opt(d.GSPFirmware.Version)
}

// DeviceGetAddressingMode is how the GPU addresses the host's memory.
func DeviceGetAddressingMode(d *engine.Device, m *abi.DeviceAddressingMode_v1_t) (ret abi.Return) {
	m.Value, ret = opt(as[uint32](named(d.AddressingMode, words.AddressingModes)))
	return ret
}

// DeviceGetC2cModeInfoV says whether the NVLink-C2C link to the CPU is in use. The device's mode decides, or else the
// board's.
func DeviceGetC2cModeInfoV(d *engine.Device, info *abi.C2cModeInfo_v1_t) (ret abi.Return) {
	if d.C2CMode.Valid {
		info.IsC2cEnabled, ret = opt(mode[uint32](d.C2CMode))
		return ret
	}
	info.IsC2cEnabled, ret = opt(flag[uint32](d.Snapshot().Board.NVLink.C2CEnabled))
	return ret
}

// DeviceGetVirtualizationMode is the GPU's part in virtualisation.
func DeviceGetVirtualizationMode(d *engine.Device) (abi.GpuVirtualizationMode_t, abi.Return) {
	return opt(named(d.Virtualization.Mode, words.VirtualizationModes))
}

// DeviceSetVirtualizationMode makes a vGPU host of the GPU, or nothing.
func DeviceSetVirtualizationMode(d *engine.Device, mode abi.GpuVirtualizationMode_t) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.VirtualizationMode(i, mode) })
}

// DeviceGetHostVgpuMode is the vGPU mode of a host.
func DeviceGetHostVgpuMode(d *engine.Device) (abi.HostVgpuMode_t, abi.Return) {
	return opt(named(d.Virtualization.HostVGPUMode, words.HostModes))
}

// DeviceGetCapabilities is what the GPU can do, as a mask: DEV_CAP_EGM with extended GPU memory.
func DeviceGetCapabilities(d *engine.Device, caps *abi.DeviceCapabilities_v1_t) (ret abi.Return) {
	egm, ret := opt(mode[uint32](d.EGM))
	caps.CapMask = egm * abi.DEV_CAP_EGM
	return ret
}

// DeviceGetAPIRestriction says whether a setter is for administrators alone.
func DeviceGetAPIRestriction(d *engine.Device, api abi.RestrictedAPI_t) (abi.EnableState_t, abi.Return) {
	if api >= abi.RESTRICTED_API_COUNT {
		return 0, abi.ERROR_INVALID_ARGUMENT
	}
	restricted, supported := change.APIRestricted(d.Device, api)
	return opt(profiles.Opt[abi.EnableState_t]{Value: abi.EnableState_t(bit(restricted)), Valid: supported})
}

// DeviceSetAPIRestriction makes a setter one for administrators alone, or for everybody.
func DeviceSetAPIRestriction(d *engine.Device, api abi.RestrictedAPI_t, restricted abi.EnableState_t) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.APIRestriction(i, api, restricted) })
}
