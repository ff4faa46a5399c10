package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// DeviceGetTemperature is the GPU's temperature, in °C. TEMPERATURE_GPU_MAX is NOT_SUPPORTED, since no profile has that
// reading.
// have them.
func DeviceGetTemperature(d *engine.Device, sensor abi.TemperatureSensors_t) (uint32, abi.Return) {
	switch sensor {
	case abi.TEMPERATURE_GPU:
		return opt(as[uint32](d.Readings().TemperatureC))
	case abi.TEMPERATURE_GPU_MAX:
		return 0, abi.ERROR_NOT_SUPPORTED
	}
	return 0, abi.ERROR_INVALID_ARGUMENT
}

// DeviceGetTemperatureV is DeviceGetTemperature in a struct.
func DeviceGetTemperatureV(d *engine.Device, t *abi.Temperature_v1_t) abi.Return {
	reading, ret := DeviceGetTemperature(d, t.SensorType)
	t.Temperature = int32(reading)
	return ret
}

// DeviceGetTemperatureThreshold is a threshold in °C. Data-centre boards since Ada only have T.Limit thresholds, which
// DeviceGetFieldValues answers.
func DeviceGetTemperatureThreshold(d *engine.Device, threshold abi.TemperatureThresholds_t) (uint32, abi.Return) {
	thresholds := [abi.TEMPERATURE_THRESHOLD_COUNT]profiles.Opt[int32]{
		abi.TEMPERATURE_THRESHOLD_SHUTDOWN:      d.Thermal.ShutdownThresholdC,
		abi.TEMPERATURE_THRESHOLD_SLOWDOWN:      d.Thermal.SlowdownThresholdC,
		abi.TEMPERATURE_THRESHOLD_MEM_MAX:       d.Thermal.MemoryMaxOperatingC,
		abi.TEMPERATURE_THRESHOLD_GPU_MAX:       d.Thermal.MaxOperatingC,
		abi.TEMPERATURE_THRESHOLD_ACOUSTIC_MIN:  d.Thermal.TargetTemperatureMinC,
		abi.TEMPERATURE_THRESHOLD_ACOUSTIC_CURR: d.Thermal.TargetTemperatureC,
		abi.TEMPERATURE_THRESHOLD_ACOUSTIC_MAX:  d.Thermal.TargetTemperatureMaxC,
	}
	if threshold >= abi.TEMPERATURE_THRESHOLD_COUNT {
		return 0, abi.ERROR_INVALID_ARGUMENT
	}
	return opt(as[uint32](thresholds[threshold]))
}

// DeviceGetMarginTemperature is how far the GPU is below its limit, in °C: T.Limit.
func DeviceGetMarginTemperature(d *engine.Device, t *abi.MarginTemperature_v1_t) (ret abi.Return) {
	t.MarginTemperature, ret = opt(d.Readings().TLimitC)
	return ret
}

// DeviceGetNumFans is the number of fans.
func DeviceGetNumFans(d *engine.Device) (uint32, abi.Return) { return opt(fans(d)) }

// fans is the number of fans; one if the profile only gives their speed.
func fans(d *engine.Device) profiles.Opt[uint32] {
	if !d.Fan.Count.Valid && d.Fan.SpeedPercent.Valid {
		return profiles.Some[uint32](1)
	}
	return d.Fan.Count
}

// DeviceGetFanSpeed is the fans' speed, in percent of the highest.
func DeviceGetFanSpeed(d *engine.Device) (uint32, abi.Return) {
	return opt(as[uint32](d.Fan.SpeedPercent))
}

// fan answers a fan's number: INVALID_ARGUMENT if there is no such fan, NOT_SUPPORTED if there are no fans.
func fan(d *engine.Device, number uint32, value profiles.Opt[profiles.Percent]) (uint32, abi.Return) {
	if n := fans(d).Or(0); n > 0 && number >= n {
		return 0, abi.ERROR_INVALID_ARGUMENT
	}
	return opt(as[uint32](value))
}

// DeviceGetFanSpeed_v2 is one fan's speed, in percent of the highest; INVALID_ARGUMENT if there is no such fan.
func DeviceGetFanSpeed_v2(d *engine.Device, number uint32) (uint32, abi.Return) {
	return fan(d, number, d.Fan.SpeedPercent)
}

// DeviceGetTargetFanSpeed is the target speed of a fan, in percent of the highest.
func DeviceGetTargetFanSpeed(d *engine.Device, number uint32) (uint32, abi.Return) {
	return fan(d, number, d.Fan.TargetSpeedPercent)
}
