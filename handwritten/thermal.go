package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// DeviceGetTemperature is the GPU's temperature, in °C. TEMPERATURE_GPU_MAX is NOT_SUPPORTED, since no profile has that
// reading.
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

// DeviceSetTemperatureThreshold sets the temperature that the fans aim at, in °C, the only threshold that can be set.
func DeviceSetTemperatureThreshold(d *engine.Device, threshold abi.TemperatureThresholds_t, degrees int32) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.TemperatureThreshold(i, threshold, degrees) })
}

// DeviceGetNumFans is the number of fans.
func DeviceGetNumFans(d *engine.Device) (uint32, abi.Return) {
	n := change.Fans(d.Device)
	return opt(profiles.Opt[uint32]{Value: n, Valid: n > 0 || d.Fan.Count.Valid})
}

// DeviceGetFanSpeed is the first fan's speed, in percent of the highest.
func DeviceGetFanSpeed(d *engine.Device) (uint32, abi.Return) {
	return opt(as[uint32](change.FanSpeed(d.Device, 0)))
}

// fan answers a fan's number: INVALID_ARGUMENT if there is no such fan, NOT_SUPPORTED if there are no fans.
func fan(d *engine.Device, number uint32, value profiles.Opt[profiles.Percent]) (uint32, abi.Return) {
	if n := change.Fans(d.Device); n > 0 && number >= n {
		return 0, abi.ERROR_INVALID_ARGUMENT
	}
	return opt(as[uint32](value))
}

// DeviceGetFanSpeed_v2 is one fan's speed, in percent of the highest; INVALID_ARGUMENT if there is no such fan.
func DeviceGetFanSpeed_v2(d *engine.Device, number uint32) (uint32, abi.Return) {
	return fan(d, number, change.FanSpeed(d.Device, number))
}

// DeviceGetFanSpeedRPM is one fan's speed, in rounds per minute.
func DeviceGetFanSpeedRPM(d *engine.Device, info *abi.FanSpeedInfo_v1_t) (ret abi.Return) {
	if n := change.Fans(d.Device); n > 0 && info.Fan >= n {
		return abi.ERROR_INVALID_ARGUMENT
	}
	info.Speed, ret = opt(d.Fan.SpeedRPM)
	return ret
}

// DeviceGetCoolerInfo says of a fan that its speed can be anything, and that it cools the GPU and what is near it.
func DeviceGetCoolerInfo(d *engine.Device, info *abi.CoolerInfo_v1_t) abi.Return {
	switch n := change.Fans(d.Device); {
	case n == 0:
		return abi.ERROR_NOT_SUPPORTED
	case info.Index >= n:
		return abi.ERROR_INVALID_ARGUMENT
	}
	info.SignalType, info.Target = abi.THERMAL_COOLER_SIGNAL_VARIABLE, abi.THERMAL_COOLER_TARGET_GPU_RELATED
	return abi.SUCCESS
}

// everySensor asks DeviceGetThermalSettings for all sensors.
const everySensor = abi.MAX_THERMAL_SENSORS_PER_GPU

// DeviceGetThermalSettings are the temperatures of a sensor, or of all: of the GPU, and of the memory if it has one.
func DeviceGetThermalSettings(d *engine.Device, sensor uint32, settings *abi.GpuThermalSettings_t) abi.Return {
	*settings = abi.GpuThermalSettings_t{}
	now, ret := opt(d.Readings().TemperatureC)
	if ret != abi.SUCCESS {
		return ret
	}
	list := []abi.GpuThermalSettingsSensor_t{{
		Controller: abi.THERMAL_CONTROLLER_GPU_INTERNAL, Target: abi.THERMAL_TARGET_GPU,
		CurrentTemp: now, DefaultMaxTemp: d.Thermal.ShutdownThresholdC.Value,
	}}
	if now, ok := d.Thermal.TemperatureMemoryC.Get(); ok {
		list = append(list, abi.GpuThermalSettingsSensor_t{
			Controller: abi.THERMAL_CONTROLLER_GPU_INTERNAL, Target: abi.THERMAL_TARGET_MEMORY,
			CurrentTemp: now, DefaultMaxTemp: d.Thermal.MemoryMaxOperatingC.Value,
		})
	}
	if sensor != everySensor {
		if int64(sensor) >= int64(len(list)) {
			return abi.ERROR_INVALID_ARGUMENT
		}
		list = list[sensor : sensor+1]
	}
	settings.Count = uint32(copy(settings.Sensor[:], list))
	return abi.SUCCESS
}

// DeviceGetTargetFanSpeed is the target speed of a fan, in percent of the highest.
func DeviceGetTargetFanSpeed(d *engine.Device, number uint32) (uint32, abi.Return) {
	target := d.Fan.TargetSpeedPercent
	if change.FanPolicy(d.Device, number) == abi.FAN_POLICY_MANUAL {
		target = change.FanSpeed(d.Device, number)
	}
	return fan(d, number, target)
}

// DeviceGetMinMaxFanSpeed is the lowest and the highest speed that can be set, in percent of the highest.
func DeviceGetMinMaxFanSpeed(d *engine.Device) (least, most uint32, ret abi.Return) {
	if change.Fans(d.Device) == 0 {
		return 0, 0, abi.ERROR_NOT_SUPPORTED
	}
	return uint32(d.Fan.MinSpeedPercent.Or(0)), uint32(d.Fan.MaxSpeedPercent.Or(100)), abi.SUCCESS
}

// DeviceGetFanControlPolicy_v2 says whether a fan follows the temperature or has a speed of its own.
func DeviceGetFanControlPolicy_v2(d *engine.Device, number uint32) (abi.FanControlPolicy_t, abi.Return) {
	_, ret := fan(d, number, change.FanSpeed(d.Device, number))
	return change.FanPolicy(d.Device, number), ret
}

// DeviceSetFanSpeed_v2 gives a fan a speed of its own, in percent of the highest.
func DeviceSetFanSpeed_v2(d *engine.Device, number, percent uint32) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.SetFanSpeed(i, number, percent) })
}

// DeviceSetDefaultFanSpeed_v2 makes a fan follow the temperature.
func DeviceSetDefaultFanSpeed_v2(d *engine.Device, number uint32) abi.Return {
	return DeviceSetFanControlPolicy(d, number, abi.FAN_POLICY_TEMPERATURE_CONTINOUS_SW)
}

// DeviceSetFanControlPolicy makes a fan follow the temperature, or keep the speed that it has.
func DeviceSetFanControlPolicy(d *engine.Device, number uint32, policy abi.FanControlPolicy_t) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.SetFanPolicy(i, number, policy) })
}
