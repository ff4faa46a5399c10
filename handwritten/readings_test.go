package handwritten

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// TestMemoryAgrees: used + free = total in version 1, and version 2 counts the reserved memory separately.
func TestMemoryAgrees(t *testing.T) {
	for name, c := range map[string]struct {
		memory               string
		reserved, used, free uint64
	}{
		"all given":     {"total_bytes: 1000, reserved_bytes: 100, used_bytes: 300, free_bytes: 600", 100, 300, 600},
		"free left out": {"total_bytes: 1000, reserved_bytes: 100, used_bytes: 300", 100, 300, 600},
		"used left out": {"total_bytes: 1000, reserved_bytes: 100, free_bytes: 600", 100, 300, 600},
		"total alone":   {"total_bytes: 1000", 0, 0, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			d := gpu(t, "devices: [{memory: {"+c.memory+"}}]\n")
			answers(t, abi.Memory_v2_t{Total: 1000, Reserved: c.reserved, Used: c.used, Free: c.free})(
				filled(DeviceGetMemoryInfo_v2)(d))
			answers(t, abi.Memory_t{Total: 1000, Used: c.reserved + c.used, Free: c.free})(filled(DeviceGetMemoryInfo)(d))
		})
	}

	d := gpu(t, like("processes: [{pid: 1, used_memory_mib: 10000}, {pid: 2, used_memory_mib: 500}]"))
	m, _ := filled(DeviceGetMemoryInfo_v2)(d)
	assert.EqualValues(t, 10500*mib, m.Used, "what processes list is in use")
	assert.Equal(t, m.Total, m.Reserved+m.Used+m.Free)

	info := abi.Memory_v2_t{Version: abi.Memory_v2}
	require.Equal(t, abi.SUCCESS, DeviceGetMemoryInfo_v2(d, &info))
	assert.EqualValues(t, abi.Memory_v2, info.Version)
}

func TestBAR1(t *testing.T) {
	d := gpu(t, "devices: [{bar1_memory: {total_bytes: 100, free_bytes: 70}}]\n")
	answers(t, abi.BAR1Memory_t{Bar1Total: 100, Bar1Free: 70, Bar1Used: 30})(filled(DeviceGetBAR1MemoryInfo)(d))
}

func TestMovingReadings(t *testing.T) {
	d := gpu(t, like(`dynamic_metrics: {temperature: {base_c: 70}, power: {base_mw: 400000},
		utilization: {pattern: busy, gpu_min: 90, gpu_max: 90, memory_min: 50, memory_max: 50}}`))
	enginetest.At(t, time.Date(2026, 1, 1, 0, 0, 2, 0, time.UTC))
	answers(t, 70)(DeviceGetTemperature(d, abi.TEMPERATURE_GPU))
	answers(t, abi.MarginTemperature_v1_t{MarginTemperature: 17})(filled(DeviceGetMarginTemperature)(d))
	answers(t, 400000)(DeviceGetPowerUsage(d))
	answers(t, 800000)(DeviceGetTotalEnergyConsumption(d))
	answers(t, abi.Utilization_t{Gpu: 90, Memory: 50})(filled(DeviceGetUtilizationRates)(d))
	answers(t, 0)(DeviceGetCurrentClocksEventReasons(d)) // busy, so not idle
}

func TestPowerLimits(t *testing.T) {
	d := gpu(t, "devices: [{power: {enforced_limit_mw: 300000, min_limit_mw: 1}}]\n")
	answers(t, 300000)(DeviceGetPowerManagementLimit(d))
	answers(t, 300000)(DeviceGetEnforcedPowerLimit(d))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetPowerManagementLimitConstraints(d))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetPowerManagementMode(d))

	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetPowerSource(d))
	d = gpu(t, like("power: {source: undersized}"))
	answers(t, abi.POWER_SOURCE_UNDERSIZED)(DeviceGetPowerSource(d))

	d = gpu(t, like("power: {requested_limit_mw: 500000, management_mode: disabled}"))
	answers(t, 500000)(DeviceGetPowerManagementLimit(d))
	answers(t, 700000)(DeviceGetEnforcedPowerLimit(d))
	answers(t, abi.FEATURE_DISABLED)(DeviceGetPowerManagementMode(d))
}

func TestThresholds(t *testing.T) {
	d := gpu(t, `devices: [{thermal: {shutdown_threshold_c: 92, slowdown_threshold_c: 89, max_operating_c: 85,
		memory_max_operating_c: 95, target_temperature_min_c: 65, target_temperature_c: 84, target_temperature_max_c: 90}}]`)
	for threshold, want := range map[abi.TemperatureThresholds_t]int{
		abi.TEMPERATURE_THRESHOLD_SHUTDOWN: 92, abi.TEMPERATURE_THRESHOLD_SLOWDOWN: 89, abi.TEMPERATURE_THRESHOLD_GPU_MAX: 85,
		abi.TEMPERATURE_THRESHOLD_MEM_MAX: 95, abi.TEMPERATURE_THRESHOLD_ACOUSTIC_MIN: 65,
		abi.TEMPERATURE_THRESHOLD_ACOUSTIC_CURR: 84, abi.TEMPERATURE_THRESHOLD_ACOUSTIC_MAX: 90,
	} {
		answers(t, want)(DeviceGetTemperatureThreshold(d, threshold))
	}
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetTemperatureThreshold(d, abi.TEMPERATURE_THRESHOLD_GPS_CURR))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetTemperature(d, abi.TEMPERATURE_GPU_MAX))
}

func TestFans(t *testing.T) {
	d := gpu(t, "devices: [{fan: {count: 2, speed_percent: 30, target_speed_percent: 35}}]\n")
	answers(t, 2)(DeviceGetNumFans(d))
	answers(t, 30)(DeviceGetFanSpeed(d))
	answers(t, 30)(DeviceGetFanSpeed_v2(d, 1))
	answers(t, 35)(DeviceGetTargetFanSpeed(d, 1))
	refuses(t, abi.ERROR_INVALID_ARGUMENT)(DeviceGetFanSpeed_v2(d, 2))

	d = gpu(t, "devices: [{fan: {speed_percent: 30}}]\n")
	answers(t, 1)(DeviceGetNumFans(d))
	refuses(t, abi.ERROR_INVALID_ARGUMENT)(DeviceGetFanSpeed_v2(d, 1))
}

func TestClocks(t *testing.T) {
	d := gpu(t, "")
	for id, want := range map[abi.ClockId_t]int{abi.CLOCK_ID_CURRENT: 345, abi.CLOCK_ID_APP_CLOCK_TARGET: 1980,
		abi.CLOCK_ID_APP_CLOCK_DEFAULT: 1980, abi.CLOCK_ID_CUSTOMER_BOOST_MAX: 1980} {
		answers(t, want)(DeviceGetClock(d, abi.CLOCK_GRAPHICS, id))
	}
	list, ret := DeviceGetSupportedGraphicsClocks(d, 2619)
	require.Equal(t, abi.SUCCESS, ret)
	assert.Len(t, list, 110)
	assert.Equal(t, []uint32{1980, 345}, []uint32{list[0], list[109]})
	refuses(t, abi.ERROR_NOT_FOUND)(DeviceGetSupportedGraphicsClocks(d, 1))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetSupportedGraphicsClocks(gpu(t, bare), 2619))
}

// TestDeprecated: applications clocks are deprecated from driver 590 on, and the display mode if the profile gives
// display.attached.
func TestDeprecated(t *testing.T) {
	refuses(t, abi.ERROR_DEPRECATED)(DeviceGetDisplayMode(gpu(t, "")))
	answers(t, abi.FEATURE_DISABLED)(DeviceGetDisplayMode(gpu(t, "devices: [{display: {mode: disabled}}]\n")))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetDisplayMode(gpu(t, bare)))

	d := gpu(t, "extends: h100\nsystem: {driver_version: 590.48.01}\n")
	refuses(t, abi.ERROR_DEPRECATED)(DeviceGetApplicationsClock(d, abi.CLOCK_GRAPHICS))
	refuses(t, abi.ERROR_DEPRECATED)(DeviceGetDefaultApplicationsClock(d, abi.CLOCK_MEM))
	refuses(t, abi.ERROR_DEPRECATED)(DeviceGetClock(d, abi.CLOCK_SM, abi.CLOCK_ID_APP_CLOCK_TARGET))
	answers(t, 1980)(DeviceGetMaxClockInfo(d, abi.CLOCK_GRAPHICS))
}

func TestViolations(t *testing.T) {
	enginetest.At(t, time.UnixMicro(123456789))
	d := gpu(t, "")
	var v abi.ViolationTime_t
	require.Equal(t, abi.SUCCESS, DeviceGetViolationStatus(d, abi.PERF_POLICY_POWER, &v))
	assert.Equal(t, abi.ViolationTime_t{ReferenceTime: 123456789, ViolationTime: 7015662857000}, v)
	assert.Equal(t, abi.SUCCESS, DeviceGetViolationStatus(d, abi.PERF_POLICY_THERMAL, &v))
	assert.Equal(t, abi.SUCCESS, DeviceGetViolationStatus(d, abi.PERF_POLICY_SYNC_BOOST, &v))
	assert.Equal(t, abi.ERROR_NOT_SUPPORTED, DeviceGetViolationStatus(d, abi.PERF_POLICY_TOTAL_APP_CLOCKS, &v))
}

func TestDramEncryption(t *testing.T) {
	var now, next abi.DramEncryptionInfo_v1_t
	d := gpu(t, like("memory: {encryption_current: disabled, encryption_pending: enabled}"))
	assert.Equal(t, abi.SUCCESS, DeviceGetDramEncryptionMode(d, &now, &next))
	assert.Equal(t, abi.FEATURE_DISABLED, now.EncryptionState)
	assert.Equal(t, abi.FEATURE_ENABLED, next.EncryptionState)
	assert.Equal(t, abi.ERROR_NOT_SUPPORTED, DeviceGetDramEncryptionMode(gpu(t, ""), &now, &next))
}

func TestPowerStateIsDeprecated(t *testing.T) {
	refuses(t, abi.ERROR_DEPRECATED)(DeviceGetPowerState(gpu(t, "extends: t4\n")))
}
