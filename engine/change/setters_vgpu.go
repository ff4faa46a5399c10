package change

import (
	"slices"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/words"
)

// VGPUPolicies are NVML's numbers of the scheduler policies that a profile names.
var VGPUPolicies = words.Table[string, uint32]{
	{"best_effort", abi.VGPU_SCHEDULER_POLICY_BEST_EFFORT},
	{"equal_share", abi.VGPU_SCHEDULER_POLICY_EQUAL_SHARE},
	{"fixed_share", abi.VGPU_SCHEDULER_POLICY_FIXED_SHARE},
}

// VGPUARRModes are NVML's numbers of the modes of adaptive round robin that a profile names.
var VGPUARRModes = words.Table[string, uint32]{
	{"default", abi.VGPU_SCHEDULER_ARR_DEFAULT},
	{"disabled", abi.VGPU_SCHEDULER_ARR_DISABLE},
	{"enabled", abi.VGPU_SCHEDULER_ARR_ENABLE},
}

// VGPUEngines are the numbers of the engines that have a scheduler. Only that for graphics can be told how to decide.
func VGPUEngines(engine uint32) (graphics, known bool) {
	return engine == abi.VGPU_SCHEDULER_ENGINE_TYPE_GRAPHICS,
		engine >= abi.VGPU_SCHEDULER_ENGINE_TYPE_GRAPHICS && engine <= abi.VGPU_SCHEDULER_ENGINE_TYPE_NVENC0
}

// space is where vGPUs share a GPU that is a host, or one of its GPU instances; NOT_SUPPORTED if they cannot share it so.
func (t *Tx) space(i int, instance profiles.Opt[uint32]) (VGPUSpace, abi.Return) {
	d, err := t.Device(i)
	if err != nil {
		return VGPUSpace{}, abi.ERROR_UNKNOWN
	}
	if !VGPUHost(d) || bool(d.MIG.ModeCurrent.Value) != instance.Valid {
		return VGPUSpace{}, abi.ERROR_NOT_SUPPORTED
	}
	if instance.Valid {
		return InstanceVGPUSpace(d, instance.Value, 0), abi.SUCCESS
	}
	return WholeVGPUSpace(d), abi.SUCCESS
}

// VGPUSchedule is what a scheduler is told. A number that is 0 stands for the default.
type VGPUSchedule struct {
	Engine, Policy uint32
	// ARRMode is whether timeslices adapt; not valid leaves it as it is.
	ARRMode profiles.Opt[uint32]
	// AvgFactor and Frequency are for timeslices that adapt.
	AvgFactor, Frequency uint32
	// TimesliceNS is for those that do not.
	TimesliceNS uint32
}

// VGPUScheduler tells the scheduler of a GPU, or of one of its GPU instances, how to share time. It does not obey while
// there is a vGPU.
func (t *Tx) VGPUScheduler(i int, instance profiles.Opt[uint32], want VGPUSchedule) abi.Return {
	s, ret := t.space(i, instance)
	if ret != abi.SUCCESS {
		return ret
	}
	can := &s.Device.VGPU.Scheduler
	graphics, known := VGPUEngines(want.Engine)
	policy, ok := words.KeyOf(VGPUPolicies, want.Policy)
	mode, named := words.KeyOf(VGPUARRModes, want.ARRMode.Or(abi.VGPU_SCHEDULER_ARR_DEFAULT))
	switch {
	case len(can.Supported) == 0 || len(s.Instances()) > 0 || known && !graphics:
		return abi.ERROR_NOT_SUPPORTED
	case !known || !ok || !named || !slices.Contains(can.Supported, policy):
		return abi.ERROR_INVALID_ARGUMENT
	}
	now := profiles.VGPUSchedule{Policy: profiles.Some(policy), ARRMode: s.Schedule().ARRMode}
	adapts := want.AvgFactor != 0 || want.Frequency != 0
	if want.ARRMode.Valid {
		now.ARRMode, adapts = profiles.Some(mode), mode == "enabled"
	}
	if adapts && !can.ARRSupported.Value && (want.ARRMode.Valid || want.AvgFactor != 0) {
		return abi.ERROR_INVALID_ARGUMENT
	}
	if adapts {
		ret = adaptive(can, want, &now)
	} else {
		now.TimesliceNS, ret = chosen(want.TimesliceNS, can.DefaultTimesliceNS, can.MinTimesliceNS, can.MaxTimesliceNS)
	}
	if ret != abi.SUCCESS {
		return ret
	}
	if !instance.Valid {
		keys := profiles.Settings{}
		for _, key := range []string{"policy", "arr_mode", "timeslice_ns", "avg_factor"} {
			keys["vgpu.scheduler."+key] = nil
		}
		for key, value := range profiles.SettingOf(now).(map[string]any) {
			keys["vgpu.scheduler."+key] = value
		}
		return t.put(i, keys)
	}
	return t.instanceModes(i, instance.Value, func(own *profiles.VGPUGPUInstance) { own.Scheduler = now })
}

// chosen is a number within bounds, the default for 0.
func chosen(want uint32, normal, least, most profiles.Opt[uint32]) (profiles.Opt[uint32], abi.Return) {
	switch {
	case want == 0:
		return normal, abi.SUCCESS
	case want < least.Or(want) || want > most.Or(want):
		return normal, abi.ERROR_INVALID_ARGUMENT
	}
	return profiles.Some(want), abi.SUCCESS
}

// adaptive gives a schedule the timeslice of a number of rounds per second, and how many of them are averaged.
func adaptive(can *profiles.VGPUScheduler, want VGPUSchedule, now *profiles.VGPUSchedule) (ret abi.Return) {
	if now.AvgFactor, ret = chosen(want.AvgFactor, can.DefaultAvgFactor, can.MinAvgFactor, can.MaxAvgFactor); ret != abi.SUCCESS {
		return ret
	}
	frequency, ret := chosen(want.Frequency, can.DefaultFrequency, can.MinFrequency, can.MaxFrequency)
	if frequency.Valid {
		now.TimesliceNS = profiles.Some(uint32(1e9 / frequency.Value))
	}
	return ret
}

// instanceModes changes the modes of a GPU instance that are its own.
func (t *Tx) instanceModes(i int, number uint32, change func(*profiles.VGPUGPUInstance)) abi.Return {
	d, err := t.Device(i)
	if err != nil {
		return abi.ERROR_UNKNOWN
	}
	own := instanceModes(d, number)
	change(&own)
	list := slices.DeleteFunc(slices.Clone(d.VGPU.GPUInstances), func(other profiles.VGPUGPUInstance) bool { return other.ID == number })
	return t.put(i, profiles.Settings{"vgpu.gpu_instances": profiles.SettingOf(append(list, own))})
}

// forgetVGPUModes removes the modes of a GPU instance that is to be destroyed, since another one may get its number; IN_USE
// if there is a vGPU in it.
func (t *Tx) forgetVGPUModes(i int, number uint32) abi.Return {
	d, err := t.Device(i)
	switch {
	case err != nil:
		return abi.ERROR_UNKNOWN
	case VGPUHost(d) && len(InstanceVGPUSpace(d, number, 0).Instances()) > 0:
		return abi.ERROR_IN_USE
	}
	list := slices.DeleteFunc(slices.Clone(d.VGPU.GPUInstances), func(other profiles.VGPUGPUInstance) bool { return other.ID == number })
	if len(list) == len(d.VGPU.GPUInstances) {
		return abi.SUCCESS
	}
	return t.put(i, profiles.Settings{"vgpu.gpu_instances": profiles.SettingOf(list)})
}

// VGPUHeterogeneousMode lets vGPUs of a GPU, or of one of its GPU instances, have different amounts of memory, or not;
// IN_USE while there is a vGPU.
func (t *Tx) VGPUHeterogeneousMode(i int, instance profiles.Opt[uint32], state abi.EnableState_t) abi.Return {
	s, ret := t.space(i, instance)
	word, ok := enabled(state)
	switch {
	case ret != abi.SUCCESS:
		return ret
	case !ok:
		return abi.ERROR_INVALID_ARGUMENT
	case !s.Device.VGPU.HeterogeneousMode.Valid:
		return abi.ERROR_NOT_SUPPORTED
	case len(s.Instances()) > 0:
		return abi.ERROR_IN_USE
	case !instance.Valid:
		return t.put(i, profiles.Settings{"vgpu.heterogeneous_mode": word})
	}
	return t.instanceModes(i, instance.Value, func(own *profiles.VGPUGPUInstance) {
		own.HeterogeneousMode = profiles.Some(profiles.Enabled(state == abi.FEATURE_ENABLED))
	})
}

// VGPUCapability switches something that a GPU can do as a vGPU host on or off. The other capabilities cannot be set.
func (t *Tx) VGPUCapability(i int, capability abi.DeviceVgpuCapability_t, state abi.EnableState_t) abi.Return {
	d, err := t.Device(i)
	if err != nil {
		return abi.ERROR_UNKNOWN
	}
	can, key := &d.VGPU.Capabilities, ""
	var now profiles.Opt[bool]
	switch capability {
	case abi.DEVICE_VGPU_CAP_MINI_QUARTER_GPU:
		now, key = can.MiniQuarterGPU, "mini_quarter_gpu"
	case abi.DEVICE_VGPU_CAP_COMPUTE_MEDIA_ENGINE_GPU:
		now, key = can.ComputeMediaEngineGPU, "compute_media_engine_gpu"
	case abi.DEVICE_VGPU_CAP_MIG_TIMESLICING_ENABLED:
		now, key = can.MIGTimeslicingEnabled, "mig_timeslicing_enabled"
		now.Valid = now.Valid && can.MIGTimeslicingSupported.Value
	}
	switch _, ok := enabled(state); {
	case key == "" || !ok:
		return abi.ERROR_INVALID_ARGUMENT
	case !VGPUHost(d) || !now.Valid:
		return abi.ERROR_NOT_SUPPORTED
	}
	return t.put(i, profiles.Settings{"vgpu.capabilities." + key: state == abi.FEATURE_ENABLED})
}

// UnloadGSP stops the firmware of the GPU System Processor of a vGPU host. The GPU has to be reset after that.
func (t *Tx) UnloadGSP(i int) abi.Return {
	d, err := t.Device(i)
	switch {
	case err != nil:
		return abi.ERROR_UNKNOWN
	case !VGPUHost(d) || !bool(d.GSPFirmware.Mode.Value):
		return abi.ERROR_NOT_SUPPORTED
	}
	return t.put(i, profiles.Settings{"gsp_firmware.mode": "disabled", "gsp_firmware.version": nil, "recovery_action": "gpu_reset"})
}

// vgpu finds a vGPU by its number; NOT_FOUND if there is none.
func (t *Tx) vgpu(id uint32) (gpu int, list []profiles.VGPUInstance, at int, ret abi.Return) {
	for i := range t.Devices() {
		d, err := t.Device(i)
		if err != nil {
			return 0, nil, 0, abi.ERROR_UNKNOWN
		}
		at := slices.IndexFunc(d.VGPU.Instances, func(v profiles.VGPUInstance) bool { return v.ID == id })
		if at >= 0 && VGPUHost(d) {
			return i, slices.Clone(d.VGPU.Instances), at, abi.SUCCESS
		}
	}
	return 0, nil, 0, abi.ERROR_NOT_FOUND
}

// VGPUEncoderCapacity is a vGPU's part of the encoders, in percent.
func (t *Tx) VGPUEncoderCapacity(id, percent uint32) abi.Return {
	gpu, list, at, ret := t.vgpu(id)
	switch {
	case ret != abi.SUCCESS:
		return ret
	case percent > 100:
		return abi.ERROR_INVALID_ARGUMENT
	}
	list[at].EncoderCapacity = profiles.Some(percent)
	return t.put(gpu, profiles.Settings{"vgpu.instances": profiles.SettingOf(list)})
}

// ClearVGPUAccounting forgets the processes of a vGPU that have ended; NOT_SUPPORTED while they are not accounted.
func (t *Tx) ClearVGPUAccounting(id uint32) abi.Return {
	gpu, list, at, ret := t.vgpu(id)
	switch {
	case ret != abi.SUCCESS:
		return ret
	case !bool(list[at].AccountingMode.Value):
		return abi.ERROR_NOT_SUPPORTED
	}
	running := slices.DeleteFunc(slices.Clone(list[at].Processes), func(p profiles.VGPUProcess) bool { return p.RanMS.Valid })
	list[at].Processes = running
	return t.put(gpu, profiles.Settings{"vgpu.instances": profiles.SettingOf(list)})
}

// VGPUVersions narrows the vGPU versions that the host's driver serves; IN_USE while there is a vGPU on any GPU.
func (t *Tx) VGPUVersions(least, most uint32) abi.Return {
	b, err := t.Board()
	if err != nil {
		return abi.ERROR_UNKNOWN
	}
	v, host := &b.System.VGPU, false
	for i := range t.Devices() {
		d, err := t.Device(i)
		switch {
		case err != nil:
			return abi.ERROR_UNKNOWN
		case VGPUHost(d) && len(d.VGPU.Instances) > 0:
			return abi.ERROR_IN_USE
		}
		host = host || VGPUHost(d)
	}
	switch {
	case !host || !v.MinVersion.Valid || !v.MaxVersion.Valid:
		return abi.ERROR_NOT_SUPPORTED
	case least > most || least < v.MinVersion.Value || most > v.MaxVersion.Value:
		return abi.ERROR_INVALID_ARGUMENT
	}
	keys := profiles.Settings{"system.vgpu.set_min_version": least, "system.vgpu.set_max_version": most}
	if t.Set(-1, BySetter, 0, keys) != nil {
		return abi.ERROR_UNKNOWN
	}
	return abi.SUCCESS
}
