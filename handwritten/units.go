package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// UnitGetCount is the number of S-class units.
func UnitGetCount(s *engine.Snapshot) (uint32, abi.Return) { return uint32(len(s.Units)), abi.SUCCESS }

// UnitGetHandleByIndex is the S-class unit of a number; INVALID_ARGUMENT if there is none.
func UnitGetHandleByIndex(s *engine.Snapshot, index uint32) (*engine.Unit, abi.Return) {
	if int64(index) >= int64(len(s.Units)) {
		return nil, abi.ERROR_INVALID_ARGUMENT
	}
	return s.Units[index], abi.SUCCESS
}

// UnitGetUnitInfo are the unit's name, identifier, serial number and firmware.
func UnitGetUnitInfo(u *engine.Unit, info *abi.UnitInfo_t) abi.Return {
	text(info.Name[:], u.Name)
	text(info.Id[:], u.ID)
	text(info.Serial[:], u.Serial)
	text(info.FirmwareVersion[:], u.FirmwareVersion)
	return abi.SUCCESS
}

// UnitGetTemperature is a temperature in °C: 0 of the air that enters, 1 of the air that leaves, 2 of the board.
func UnitGetTemperature(u *engine.Unit, sensor uint32) (uint32, abi.Return) {
	sensors := [...]profiles.Opt[uint32]{u.IntakeC, u.ExhaustC, u.BoardC}
	if int64(sensor) >= int64(len(sensors)) {
		return 0, abi.ERROR_INVALID_ARGUMENT
	}
	return opt(sensors[sensor])
}

// UnitGetPsuInfo is the power supply: its state, and its current, voltage and power in A, V and W.
func UnitGetPsuInfo(u *engine.Unit, psu *abi.PSUInfo_t) abi.Return {
	state, ret := opt(u.PSU.State)
	text(psu.State[:], state)
	psu.Current, psu.Voltage, psu.Power = u.PSU.CurrentA.Value, u.PSU.VoltageV.Value, u.PSU.PowerW.Value
	return ret
}

// UnitGetFanSpeedInfo are the fans: their speed in rounds per minute, and whether they work. The struct has room for 24.
func UnitGetFanSpeedInfo(u *engine.Unit, fans *abi.UnitFanSpeeds_t) abi.Return {
	if len(u.Fans) == 0 {
		return abi.ERROR_NOT_SUPPORTED
	}
	for i, fan := range u.Fans[:min(len(u.Fans), len(fans.Fans))] {
		fans.Fans[i] = abi.UnitFanInfo_t{Speed: fan.SpeedRPM, State: abi.FanState_t(bit(fan.Failed))}
		fans.Count++
	}
	return abi.SUCCESS
}

// UnitGetLedState is the light at the front: green, or amber and why.
func UnitGetLedState(u *engine.Unit, led *abi.LedState_t) abi.Return {
	if cause, amber := u.Amber.Get(); amber {
		led.Color = abi.LED_COLOR_AMBER
		text(led.Cause[:], cause)
	}
	return abi.SUCCESS
}

// UnitGetDevices are the GPUs that the unit carries.
func UnitGetDevices(u *engine.Unit) ([]*engine.Device, abi.Return) {
	var list []*engine.Device
	for _, index := range u.Devices {
		list = append(list, u.Snapshot().Devices[index])
	}
	return list, abi.SUCCESS
}
