package change

import (
	"math"
	"slices"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/words"
)

// PowerLimit limits the power of the GPU, or of the module that carries it and the CPU, to a number of mW.
func (t *Tx) PowerLimit(i int, scope abi.PowerScopeType_t, mw uint32) abi.Return {
	d, err := t.Device(i)
	if err != nil {
		return abi.ERROR_UNKNOWN
	}
	least, most, section := d.Power.MinLimitMW, d.Power.MaxLimitMW, "power"
	switch {
	case uint32(scope) == abi.POWER_SCOPE_MODULE:
		least, most, section = d.ModulePower.MinLimitMW, d.ModulePower.MaxLimitMW, "module_power"
	case uint32(scope) >= abi.POWER_SCOPE_COUNT:
		return abi.ERROR_INVALID_ARGUMENT
	case uint32(scope) != abi.POWER_SCOPE_GPU || !d.Power.ManagementSupported.Or(true):
		return abi.ERROR_NOT_SUPPORTED
	}
	switch {
	case !least.Valid || !most.Valid:
		return abi.ERROR_NOT_SUPPORTED
	case mw < least.Value || mw > most.Value:
		return abi.ERROR_INVALID_ARGUMENT
	}
	return t.put(i, profiles.Settings{section + ".requested_limit_mw": mw, section + ".enforced_limit_mw": mw})
}

// PowerSmoothing switches the smoothing of the power.
func (t *Tx) PowerSmoothing(i int, state abi.EnableState_t) abi.Return {
	return t.onOff(i, state, t.put, func(d *profiles.Device) bool { return d.Power.Smoothing.Valid }, "power.smoothing")
}

// SmoothingProfile chooses a profile of power smoothing.
func (t *Tx) SmoothingProfile(i int, number uint32) abi.Return {
	d, err := t.Device(i)
	switch {
	case err != nil || len(d.PowerSmoothing.Profiles) == 0:
		return abi.ERROR_NOT_SUPPORTED
	case uint64(number) >= uint64(len(d.PowerSmoothing.Profiles)):
		return abi.ERROR_INVALID_ARGUMENT
	}
	return t.put(i, profiles.Settings{"power_smoothing.active_profile": number})
}

// smoothingParameters are the parameters of a profile of power smoothing, by their numbers.
var smoothingParameters = words.Table[uint32, func(*profiles.SmoothingProfile) *profiles.Opt[float64]]{
	{abi.POWER_SMOOTHING_PROFILE_PARAM_PERCENT_TMP_FLOOR, func(p *profiles.SmoothingProfile) *profiles.Opt[float64] { return &p.FloorPercent }},
	{abi.POWER_SMOOTHING_PROFILE_PARAM_RAMP_UP_RATE, func(p *profiles.SmoothingProfile) *profiles.Opt[float64] { return &p.RampUpRate }},
	{abi.POWER_SMOOTHING_PROFILE_PARAM_RAMP_DOWN_RATE, func(p *profiles.SmoothingProfile) *profiles.Opt[float64] { return &p.RampDownRate }},
	{abi.POWER_SMOOTHING_PROFILE_PARAM_RAMP_DOWN_HYSTERESIS, func(p *profiles.SmoothingProfile) *profiles.Opt[float64] { return &p.RampDownHysteresis }},
	{abi.POWER_SMOOTHING_PROFILE_PARAM_SECONDARY_POWER_FLOOR, func(p *profiles.SmoothingProfile) *profiles.Opt[float64] { return &p.SecondaryFloorW }},
	{abi.POWER_SMOOTHING_PROFILE_PARAM_PRIMARY_FLOOR_ACT_WIN_MULT, func(p *profiles.SmoothingProfile) *profiles.Opt[float64] { return &p.ActivationWindows }},
	{abi.POWER_SMOOTHING_PROFILE_PARAM_PRIMARY_FLOOR_TAR_WIN_MULT, func(p *profiles.SmoothingProfile) *profiles.Opt[float64] { return &p.TargetWindows }},
	{abi.POWER_SMOOTHING_PROFILE_PARAM_PRIMARY_FLOOR_ACT_OFFSET, func(p *profiles.SmoothingProfile) *profiles.Opt[float64] { return &p.ActivationOffsetW }},
}

// SmoothingParameter changes a profile of power smoothing.
func (t *Tx) SmoothingParameter(i int, number, parameter uint32, value float64) abi.Return {
	d, err := t.Device(i)
	switch {
	case err != nil || len(d.PowerSmoothing.Profiles) == 0:
		return abi.ERROR_NOT_SUPPORTED
	case uint64(number) >= uint64(len(d.PowerSmoothing.Profiles)), parameter >= abi.POWER_SMOOTHING_NUM_PROFILE_PARAMS,
		!(value >= 0 && value <= math.MaxUint32): // NaN too
		return abi.ERROR_INVALID_ARGUMENT
	}
	all := slices.Clone(d.PowerSmoothing.Profiles)
	p := &all[number]
	if parameter == abi.POWER_SMOOTHING_PROFILE_PARAM_PERCENT_TMP_FLOOR &&
		(value < d.PowerSmoothing.MinFloorPercent.Or(0) || value > d.PowerSmoothing.MaxFloorPercent.Or(100)) {
		return abi.ERROR_INVALID_ARGUMENT
	}
	of, known := smoothingParameters.Find(parameter)
	if !known {
		return abi.ERROR_NOT_SUPPORTED
	}
	*of(p) = profiles.Some(value)
	list := make([]any, len(all))
	for n, p := range all {
		values := map[string]any{}
		for key, value := range map[string]profiles.Opt[float64]{
			"floor_percent": p.FloorPercent, "ramp_up_rate": p.RampUpRate, "ramp_down_rate": p.RampDownRate,
			"ramp_down_hysteresis": p.RampDownHysteresis, "secondary_floor_w": p.SecondaryFloorW,
			"activation_windows": p.ActivationWindows, "target_windows": p.TargetWindows, "activation_offset_w": p.ActivationOffsetW,
		} {
			if value.Valid {
				values[key] = value.Value
			}
		}
		list[n] = values
	}
	return t.put(i, profiles.Settings{"power_smoothing.profiles": list})
}

// PowerProfiles requests power profiles for kinds of work, or takes requests back. Bit N of the mask is profile N.
func (t *Tx) PowerProfiles(i int, operation abi.PowerProfileOperation_t, mask abi.Mask255_t) abi.Return {
	d, err := t.Device(i)
	if err != nil || len(d.WorkloadPowerProfiles.Supported) == 0 {
		return abi.ERROR_NOT_SUPPORTED
	}
	requested := MaskOf(d.WorkloadPowerProfiles.Requested)
	supported := SupportedProfiles(d)
	for word := range mask.Mask {
		if mask.Mask[word]&^supported.Mask[word] != 0 {
			return abi.ERROR_INVALID_ARGUMENT
		}
		switch operation {
		case abi.POWER_PROFILE_OPERATION_CLEAR:
			requested.Mask[word] &^= mask.Mask[word]
		case abi.POWER_PROFILE_OPERATION_SET:
			requested.Mask[word] |= mask.Mask[word]
		case abi.POWER_PROFILE_OPERATION_SET_AND_OVERWRITE:
			requested.Mask[word] = mask.Mask[word]
		default:
			return abi.ERROR_INVALID_ARGUMENT
		}
	}
	list := []any{}
	for _, p := range d.WorkloadPowerProfiles.Supported {
		if requested.Mask[p.ID/32]&(1<<(p.ID%32)) != 0 {
			list = append(list, p.ID)
		}
	}
	return t.put(i, profiles.Settings{"workload_power_profiles.requested": list})
}

// MaskOf has the bits of numbers below 255.
func MaskOf(numbers []uint32) (m abi.Mask255_t) {
	for _, n := range numbers {
		if n < 255 {
			m.Mask[n/32] |= 1 << (n % 32)
		}
	}
	return m
}

// SupportedProfiles has the bits of the power profiles that a GPU has.
func SupportedProfiles(d *profiles.Device) abi.Mask255_t {
	var numbers []uint32
	for _, p := range d.WorkloadPowerProfiles.Supported {
		numbers = append(numbers, p.ID)
	}
	return MaskOf(numbers)
}

// EnforcedProfiles has the bits of the requested power profiles that are in force: those that none of a higher priority
// excludes, which is the one with the lower number.
func EnforcedProfiles(d *profiles.Device) abi.Mask255_t {
	w := &d.WorkloadPowerProfiles
	var asked []profiles.WorkloadPowerProfile
	for _, p := range w.Supported {
		if slices.Contains(w.Requested, p.ID) {
			asked = append(asked, p)
		}
	}
	slices.SortStableFunc(asked, func(a, b profiles.WorkloadPowerProfile) int { return int(int64(a.Priority) - int64(b.Priority)) })
	var numbers []uint32
	for n, p := range asked {
		if !slices.ContainsFunc(asked[:n], func(q profiles.WorkloadPowerProfile) bool {
			return slices.Contains(numbers, q.ID) && (slices.Contains(q.Conflicts, p.ID) || slices.Contains(p.Conflicts, q.ID))
		}) {
			numbers = append(numbers, p.ID)
		}
	}
	return MaskOf(numbers)
}

// NVLinkThreshold is how long an NVLink has to be idle until it saves power.
func (t *Tx) NVLinkThreshold(i int, threshold uint32) abi.Return {
	d, err := t.Device(i)
	if err != nil {
		return abi.ERROR_UNKNOWN
	}
	l := &d.NVLinkLowPower
	switch {
	case !l.Min.Valid || !l.Max.Valid:
		return abi.ERROR_NOT_SUPPORTED
	case threshold == abi.NVLINK_LOW_POWER_THRESHOLD_RESET:
		var normal any
		if l.Default.Valid {
			normal = l.Default.Value
		}
		return t.put(i, profiles.Settings{"nvlink_low_power.threshold": normal})
	case threshold < l.Min.Value || threshold > l.Max.Value:
		return abi.ERROR_INVALID_ARGUMENT
	}
	return t.put(i, profiles.Settings{"nvlink_low_power.threshold": threshold})
}
