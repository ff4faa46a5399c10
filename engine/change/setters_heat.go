package change

import (
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// TemperatureThreshold sets the temperature that the fans aim at, in °C, which is the only threshold that can be set.
func (t *Tx) TemperatureThreshold(i int, threshold abi.TemperatureThresholds_t, degrees int32) abi.Return {
	d, err := t.Device(i)
	if err != nil {
		return abi.ERROR_UNKNOWN
	}
	least, most := d.Thermal.TargetTemperatureMinC, d.Thermal.TargetTemperatureMaxC
	switch {
	case threshold >= abi.TEMPERATURE_THRESHOLD_COUNT:
		return abi.ERROR_INVALID_ARGUMENT
	case threshold != abi.TEMPERATURE_THRESHOLD_ACOUSTIC_CURR || !d.Thermal.TargetTemperatureC.Valid || !least.Valid || !most.Valid:
		return abi.ERROR_NOT_SUPPORTED
	case degrees < least.Value || degrees > most.Value:
		return abi.ERROR_INVALID_ARGUMENT
	}
	return t.put(i, profiles.Settings{"thermal.target_temperature_c": degrees})
}

// Fans is the number of a GPU's fans: one if the profile only gives their speed.
func Fans(d *profiles.Device) uint32 {
	if !d.Fan.Count.Valid && d.Fan.SpeedPercent.Valid {
		return 1
	}
	return d.Fan.Count.Or(0)
}

// manual is a fan's entry among those that somebody has taken over, or nil.
func manual(d *profiles.Device, fan uint32) *profiles.ManualFan {
	for n := range d.Fan.Manual {
		if d.Fan.Manual[n].Fan == fan {
			return &d.Fan.Manual[n]
		}
	}
	return nil
}

// FanSpeed is a fan's speed in percent, and FanPolicy what it follows.
func FanSpeed(d *profiles.Device, fan uint32) profiles.Opt[profiles.Percent] {
	if m := manual(d, fan); m != nil && m.SpeedPercent.Valid {
		return m.SpeedPercent
	}
	return d.Fan.SpeedPercent
}

// FanPolicy says whether a fan follows the temperature or has a speed of its own.
func FanPolicy(d *profiles.Device, fan uint32) abi.FanControlPolicy_t {
	if manual(d, fan) != nil {
		return abi.FAN_POLICY_MANUAL
	}
	return abi.FAN_POLICY_TEMPERATURE_CONTINOUS_SW
}

// SetFanSpeed gives a fan a speed of its own, in percent.
func (t *Tx) SetFanSpeed(i int, fan, percent uint32) abi.Return {
	return t.takeOver(i, fan, func(d *profiles.Device) (*profiles.ManualFan, bool) {
		least, most := d.Fan.MinSpeedPercent.Or(0), d.Fan.MaxSpeedPercent.Or(100)
		return &profiles.ManualFan{Fan: fan, SpeedPercent: profiles.Some(profiles.Percent(percent))},
			percent >= uint32(least) && percent <= uint32(most)
	})
}

// SetFanPolicy makes a fan follow the temperature, or keep the speed that it has.
func (t *Tx) SetFanPolicy(i int, fan uint32, policy abi.FanControlPolicy_t) abi.Return {
	return t.takeOver(i, fan, func(d *profiles.Device) (*profiles.ManualFan, bool) {
		switch policy {
		case abi.FAN_POLICY_TEMPERATURE_CONTINOUS_SW:
			return nil, true
		case abi.FAN_POLICY_MANUAL:
			return &profiles.ManualFan{Fan: fan, SpeedPercent: FanSpeed(d, fan)}, true
		}
		return nil, false
	})
}

// takeOver replaces a fan's entry among those that somebody has taken over by what a function gives. The function says
// whether that is possible.
func (t *Tx) takeOver(i int, fan uint32, entry func(*profiles.Device) (*profiles.ManualFan, bool)) abi.Return {
	d, err := t.Device(i)
	if err != nil || Fans(d) == 0 || older(d, "maxwell") {
		return abi.ERROR_NOT_SUPPORTED
	}
	own, ok := entry(d)
	if fan >= Fans(d) || !ok {
		return abi.ERROR_INVALID_ARGUMENT
	}
	list := []any{}
	for n := range Fans(d) {
		m := manual(d, n)
		if n == fan {
			m = own
		}
		if m == nil {
			continue
		}
		values := map[string]any{"fan": n}
		if m.SpeedPercent.Valid {
			values["speed_percent"] = m.SpeedPercent.Value
		}
		list = append(list, values)
	}
	if len(list) == 0 {
		return t.put(i, profiles.Settings{"fan.manual": nil})
	}
	return t.put(i, profiles.Settings{"fan.manual": list})
}
