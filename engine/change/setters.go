package change

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/words"
)

// What NVML's setters do. They answer NOT_SUPPORTED for a GPU whose profile lacks what they set, and INVALID_ARGUMENT for
// a value that the GPU cannot have. Who may call them is decided elsewhere.

// put is what most setters do in the end: the keys have those values until the GPU is reset or somebody says otherwise.
func (t *Tx) put(i int, keys profiles.Settings) abi.Return { return t.lay(i, BySetter, keys) }

// keep is put for what a reset does not take back: what stands in the board's own memory, and what nvidia-smi restores.
func (t *Tx) keep(i int, keys profiles.Settings) abi.Return { return t.lay(i, ByBoard, keys) }

// lay gives keys values for good. Values that the GPU has without it are not noted.
func (t *Tx) lay(i int, by string, keys profiles.Settings) abi.Return {
	everywhere := func(state.Layer) bool { return true }
	if _, err := t.Unset(i, everywhere, slices.Collect(maps.Keys(keys))...); err != nil {
		return abi.ERROR_UNKNOWN
	}
	d, err := t.Device(i)
	if err != nil {
		return abi.ERROR_UNKNOWN
	}
	as, err := d.With(keys)
	switch {
	case err != nil:
		return abi.ERROR_INVALID_ARGUMENT
	case reflect.DeepEqual(d, as):
		return abi.SUCCESS
	case t.Set(i, by, 0, keys) != nil:
		return abi.ERROR_INVALID_ARGUMENT
	}
	return abi.SUCCESS
}

// enabled is the word for a state that NVML knows; false for any other number.
func enabled(state abi.EnableState_t) (word string, ok bool) {
	switch state {
	case abi.FEATURE_DISABLED:
		return "disabled", true
	case abi.FEATURE_ENABLED:
		return "enabled", true
	}
	return "", false
}

// onOff switches keys of a GPU on or off, if has says that the GPU can do it.
func (t *Tx) onOff(i int, state abi.EnableState_t, lay func(int, profiles.Settings) abi.Return,
	has func(*profiles.Device) bool, keys ...string) abi.Return {
	word, ok := enabled(state)
	d, err := t.Device(i)
	switch {
	case !ok:
		return abi.ERROR_INVALID_ARGUMENT
	case err != nil || !has(d):
		return abi.ERROR_NOT_SUPPORTED
	}
	values := profiles.Settings{}
	for _, key := range keys {
		values[key] = word
	}
	return lay(i, values)
}

// PersistenceMode keeps the driver loaded without clients, or not. nvidia-smi restores it after a reset.
func (t *Tx) PersistenceMode(i int, state abi.EnableState_t) abi.Return {
	return t.onOff(i, state, t.keep, func(d *profiles.Device) bool { return d.PersistenceMode.Valid }, "persistence_mode")
}

// ComputeMode decides who may compute on the GPU.
func (t *Tx) ComputeMode(i int, mode abi.ComputeMode_t) abi.Return {
	name, ok := words.KeyOf(words.ComputeModes, mode)
	d, err := t.Device(i)
	switch {
	case !ok:
		return abi.ERROR_INVALID_ARGUMENT
	case err != nil || !d.ComputeMode.Valid:
		return abi.ERROR_NOT_SUPPORTED
	}
	return t.put(i, profiles.Settings{"compute_mode": name})
}

// OperationMode is the GPU operation mode after the next reset.
func (t *Tx) OperationMode(i int, mode abi.GpuOperationMode_t) abi.Return {
	name, ok := words.KeyOf(words.OperationModes, mode)
	d, err := t.Device(i)
	switch {
	case !ok:
		return abi.ERROR_INVALID_ARGUMENT
	case err != nil || !d.GPUOperationMode.Pending.Valid:
		return abi.ERROR_NOT_SUPPORTED
	}
	return t.keep(i, profiles.Settings{"gpu_operation_mode.pending": name})
}

// VirtualizationMode makes a vGPU host of the GPU, or nothing. A GPU inside of a virtual machine cannot change its part.
func (t *Tx) VirtualizationMode(i int, mode abi.GpuVirtualizationMode_t) abi.Return {
	name, ok := words.KeyOf(words.VirtualizationModes, mode)
	d, err := t.Device(i)
	switch {
	case !ok:
		return abi.ERROR_INVALID_ARGUMENT
	case err != nil || !d.Virtualization.HostVGPUMode.Valid || inMachine(d.Virtualization.Mode.Or("passthrough")) || inMachine(name):
		return abi.ERROR_NOT_SUPPORTED
	}
	return t.put(i, profiles.Settings{"virtualization.mode": name})
}

// inMachine says that a virtualisation mode is that of a GPU in a virtual machine.
func inMachine(mode string) bool { return mode == "passthrough" || mode == "vgpu" }

// AccountingMode switches process accounting; NOT_SUPPORTED in MIG mode. Off forgets the processes that have ended.
func (t *Tx) AccountingMode(i int, state abi.EnableState_t) abi.Return {
	able := func(d *profiles.Device) bool { return d.Accounting.Mode.Valid && !bool(d.MIG.ModeCurrent.Value) }
	ret := t.onOff(i, state, t.put, able, "accounting.mode")
	if ret == abi.SUCCESS && state == abi.FEATURE_DISABLED {
		t.Record(i).Accounted = nil
	}
	return ret
}

// ClearAccounting forgets the processes that have ended.
func (t *Tx) ClearAccounting(i int) abi.Return {
	d, err := t.Device(i)
	if err != nil || !d.Accounting.Mode.Valid {
		return abi.ERROR_NOT_SUPPORTED
	}
	r := t.Record(i)
	t.expire(i, r) // those that have ended by themselves are forgotten too
	r.Accounted = nil
	return abi.SUCCESS
}

// APIRestricted says whether a setter is for administrators alone; false for supported if the GPU does not have it.
func APIRestricted(d *profiles.Device, api abi.RestrictedAPI_t) (restricted, supported bool) {
	switch api {
	case abi.RESTRICTED_API_SET_APPLICATION_CLOCKS:
		return bool(d.APIRestriction.ApplicationClocks.Or(true)), d.Clocks.GraphicsApp.Valid || d.APIRestriction.ApplicationClocks.Valid
	case abi.RESTRICTED_API_SET_AUTO_BOOSTED_CLOCKS:
		return bool(d.APIRestriction.AutoBoostedClocks.Or(false)), d.Clocks.AutoBoost.Valid || d.APIRestriction.AutoBoostedClocks.Valid
	}
	return false, false
}

// APIRestriction makes a setter one for administrators alone, or for everybody.
func (t *Tx) APIRestriction(i int, api abi.RestrictedAPI_t, state abi.EnableState_t) abi.Return {
	if api >= abi.RESTRICTED_API_COUNT {
		return abi.ERROR_INVALID_ARGUMENT
	}
	key := "api_restriction.application_clocks"
	if api == abi.RESTRICTED_API_SET_AUTO_BOOSTED_CLOCKS {
		key = "api_restriction.auto_boosted_clocks"
	}
	return t.onOff(i, state, t.put, func(d *profiles.Device) bool {
		_, supported := APIRestricted(d, api)
		return supported
	}, key)
}

// Hostname is the name of a GPU in its machine's network. Only GPUs that have one can get another.
func (t *Tx) Hostname(i int, name string) abi.Return {
	d, err := t.Device(i)
	switch {
	case err != nil || !d.Hostname.Valid:
		return abi.ERROR_NOT_SUPPORTED
	case name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.") != "":
		return abi.ERROR_INVALID_ARGUMENT
	}
	return t.put(i, profiles.Settings{"hostname": name})
}

// MonitorsPerformance reports whether a GPU has performance monitoring: those from Hopper on have, unless the profile says
// otherwise.
func MonitorsPerformance(d *profiles.Device) bool {
	return d.GPM.Supported.Or(d.Architecture.Valid && !older(d, "hopper"))
}

// GPMStreaming lets the counters of performance monitoring run all the time, or not.
func (t *Tx) GPMStreaming(i int, on uint32) abi.Return {
	d, err := t.Device(i)
	switch {
	case err != nil || !MonitorsPerformance(d):
		return abi.ERROR_NOT_SUPPORTED
	case on > 1:
		return abi.ERROR_INVALID_ARGUMENT
	}
	return t.put(i, profiles.Settings{"gpm.streaming": on == 1})
}
