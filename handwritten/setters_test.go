package handwritten

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// settable is a board with what no shipped board has.
const settable = `
extends: h100
device_defaults:
  fan: {count: 2, speed_percent: 40, target_speed_percent: 45, max_speed_percent: 90}
  clock_offsets: {graphics_min_mhz: -300, graphics_max_mhz: 300, graphics_mhz: 15,
    memory_min_mhz: -200, memory_max_mhz: 400}
  clocks: {auto_boost: enabled, auto_boost_default: enabled}
  power: {smoothing: disabled}
  power_smoothing: {active_profile: 1, max_floor_percent: 90, profiles: [{floor_percent: 20.5, ramp_up_rate: 100}, {ramp_down_hysteresis: 7}]}
  workload_power_profiles: {supported: [{id: 3, priority: 2, conflicts: [4]}, {id: 4, priority: 1}]}
  nvlink_low_power: {default: 10, min: 1, max: 8191}
`

// seen is the first GPU of a process as the next call sees it.
func seen(e *engine.Engine) *engine.Device { return e.Snapshot().Devices[0] }

// TestSettersAreSeen: what a setter sets, the getters of the next call answer.
func TestSettersAreSeen(t *testing.T) {
	e := enginetest.Start(t, settable).Engine()
	require.Equal(t, abi.SUCCESS, DeviceSetPowerManagementLimit_v2(seen(e), &abi.PowerValue_v2_t{PowerValueMw: 300_000}))
	answers(t, 300_000)(DeviceGetPowerManagementLimit(seen(e)))
	answers(t, 300_000)(DeviceGetEnforcedPowerLimit(seen(e)))
	answers(t, 300_000)(InternalSlot108(seen(e)))
	assert.Equal(t, abi.ERROR_NOT_SUPPORTED, DeviceSetPowerManagementLimit_v2(seen(e), &abi.PowerValue_v2_t{PowerScope: 1, PowerValueMw: 300_000}),
		"it has no module")

	require.Equal(t, abi.SUCCESS, DeviceSetMemoryLockedClocks(seen(e), 1000, 2000))
	answers(t, 1593)(DeviceGetClockInfo(seen(e), abi.CLOCK_MEM))
	require.Equal(t, abi.SUCCESS, DeviceResetMemoryLockedClocks(seen(e)))
	answers(t, 2619)(DeviceGetClockInfo(seen(e), abi.CLOCK_MEM))
	require.Equal(t, abi.SUCCESS, DeviceSetGpuLockedClocks(seen(e), 900, 900))
	answers(t, 900)(DeviceGetClockInfo(seen(e), abi.CLOCK_SM))
	require.Equal(t, abi.SUCCESS, DeviceSetApplicationsClocks(seen(e), 1593, 1500))
	answers(t, 1500)(DeviceGetApplicationsClock(seen(e), abi.CLOCK_GRAPHICS))
	require.Equal(t, abi.SUCCESS, DeviceSetDefaultAutoBoostedClocksEnabled(seen(e), abi.FEATURE_DISABLED, 0))
	answers(t, 0, 0)(DeviceGetAutoBoostedClocksEnabled(seen(e)))

	answers(t, 1)(DeviceGetAPIRestriction(seen(e), abi.RESTRICTED_API_SET_APPLICATION_CLOCKS))
	require.Equal(t, abi.SUCCESS, DeviceSetAPIRestriction(seen(e), abi.RESTRICTED_API_SET_APPLICATION_CLOCKS, abi.FEATURE_DISABLED))
	answers(t, 0)(DeviceGetAPIRestriction(seen(e), abi.RESTRICTED_API_SET_APPLICATION_CLOCKS))
	refuses(t, abi.ERROR_INVALID_ARGUMENT)(DeviceGetAPIRestriction(seen(e), abi.RESTRICTED_API_COUNT))

	answers(t, 0, 90)(DeviceGetMinMaxFanSpeed(seen(e)))
	require.Equal(t, abi.SUCCESS, DeviceSetFanSpeed_v2(seen(e), 1, 70))
	answers(t, 40)(DeviceGetFanSpeed(seen(e)))
	answers(t, 70)(DeviceGetFanSpeed_v2(seen(e), 1))
	answers(t, 70)(DeviceGetTargetFanSpeed(seen(e), 1))
	answers(t, abi.FAN_POLICY_MANUAL)(DeviceGetFanControlPolicy_v2(seen(e), 1))
	require.Equal(t, abi.SUCCESS, DeviceSetDefaultFanSpeed_v2(seen(e), 1))
	answers(t, 45)(DeviceGetTargetFanSpeed(seen(e), 1))
	answers(t, abi.FAN_POLICY_TEMPERATURE_CONTINOUS_SW)(DeviceGetFanControlPolicy_v2(seen(e), 1))
	refuses(t, abi.ERROR_INVALID_ARGUMENT)(DeviceGetFanControlPolicy_v2(seen(e), 2))

	require.Equal(t, abi.SUCCESS, DeviceSetGpcClkVfOffset(seen(e), -60))
	answers(t, -60)(DeviceGetGpcClkVfOffset(seen(e)))
	answers(t, -300, 300)(DeviceGetGpcClkMinMaxVfOffset(seen(e)))
	require.Equal(t, abi.SUCCESS, DeviceSetMemClkVfOffset(seen(e), 400))
	answers(t, 400)(DeviceGetMemClkVfOffset(seen(e)))
	answers(t, -200, 400)(DeviceGetMemClkMinMaxVfOffset(seen(e)))
	o := abi.ClockOffset_v1_t{Version: 5}
	require.Equal(t, abi.SUCCESS, DeviceGetClockOffsets(seen(e), &o))
	assert.Equal(t, abi.ClockOffset_v1_t{Version: 5, ClockOffsetMHz: -60, MinClockOffsetMHz: -300, MaxClockOffsetMHz: 300}, o)
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, DeviceSetMemClkVfOffset(seen(e), 401))
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, DeviceSetClockOffsets(seen(e), &abi.ClockOffset_v1_t{Pstate: 16}))

	require.Equal(t, abi.SUCCESS, DevicePowerSmoothingSetState(seen(e), &abi.PowerSmoothingState_v1_t{State: abi.FEATURE_ENABLED}))
	require.Equal(t, abi.SUCCESS, DevicePowerSmoothingActivatePresetProfile(seen(e), &abi.PowerSmoothingProfile_v1_t{}))
	require.Equal(t, abi.SUCCESS, DevicePowerSmoothingUpdatePresetProfileParam(seen(e), &abi.PowerSmoothingProfile_v1_t{ParamId: 1, Value: 250}))
	for parameter := range uint32(4) {
		p := abi.PowerSmoothingProfile_v1_t{ProfileId: 1, ParamId: 4 + parameter, Value: float64(100 + parameter)}
		require.Equal(t, abi.SUCCESS, DevicePowerSmoothingUpdatePresetProfileParam(seen(e), &p))
	}
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, DevicePowerSmoothingUpdatePresetProfileParam(seen(e), &abi.PowerSmoothingProfile_v1_t{ParamId: 8}))
	require.Equal(t, abi.SUCCESS, DeviceSetNvLinkDeviceLowPowerThreshold(seen(e), &abi.NvLinkPowerThres_t{LowPwrThreshold: 55}))
	for field, want := range map[[2]uint32]uint32{
		{abi.FI_PWR_SMOOTHING_ENABLED}:                               1,
		{abi.FI_PWR_SMOOTHING_ACTIVE_PRESET_PROFILE}:                 0,
		{abi.FI_PWR_SMOOTHING_MAX_NUM_PRESET_PROFILES}:               2,
		{abi.FI_PWR_SMOOTHING_MAX_PERCENT_TMP_FLOOR_SETTING}:         90,
		{abi.FI_PWR_SMOOTHING_DELAYED_PWR_SMOOTHING_SUPPORTED}:       1,
		{abi.FI_PWR_SMOOTHING_PROFILE_PERCENT_TMP_FLOOR}:             20,
		{abi.FI_PWR_SMOOTHING_PROFILE_RAMP_UP_RATE}:                  250_000,
		{abi.FI_PWR_SMOOTHING_PROFILE_RAMP_DOWN_HYST_VAL, 1}:         7,
		{abi.FI_PWR_SMOOTHING_PROFILE_SECONDARY_POWER_FLOOR, 1}:      100,
		{abi.FI_PWR_SMOOTHING_PROFILE_PRIMARY_FLOOR_ACT_WIN_MULT, 1}: 101,
		{abi.FI_PWR_SMOOTHING_PROFILE_PRIMARY_FLOOR_TAR_WIN_MULT, 1}: 102,
		{abi.FI_PWR_SMOOTHING_PROFILE_PRIMARY_FLOOR_ACT_OFFSET, 1}:   103,
		{abi.FI_DEV_NVLINK_GET_POWER_THRESHOLD}:                      55,
		{abi.FI_DEV_NVLINK_GET_POWER_THRESHOLD_MIN}:                  1,
		{abi.FI_DEV_NVLINK_GET_POWER_THRESHOLD_MAX}:                  8191,
		{abi.FI_DEV_NVLINK_GET_POWER_THRESHOLD_UNITS}:                abi.NVLINK_LOW_POWER_THRESHOLD_UNIT_100US,
		{abi.FI_DEV_NVLINK_GET_POWER_THRESHOLD_SUPPORTED}:            1,
	} {
		values := []abi.FieldValue_t{{FieldId: asked(seen(e), field[0]), ScopeId: field[1]}}
		require.Equal(t, abi.SUCCESS, DeviceGetFieldValues(seen(e), values))
		assert.Equal(t, abi.SUCCESS, values[0].NvmlReturn, "field %d", field)
		assert.EqualValues(t, want, values[0].Value[0], "field %d", field)
	}
	values := []abi.FieldValue_t{{FieldId: asked(seen(e), abi.FI_PWR_SMOOTHING_PROFILE_RAMP_UP_RATE), ScopeId: 2},
		{FieldId: asked(seen(e), abi.FI_PWR_SMOOTHING_APPLIED_TMP_CEIL)}}
	require.Equal(t, abi.SUCCESS, DeviceGetFieldValues(seen(e), values))
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, values[0].NvmlReturn)
	assert.Equal(t, abi.ERROR_NOT_SUPPORTED, values[1].NvmlReturn)

	bits := abi.Mask255_t{Mask: [8]uint32{0: 1<<3 | 1<<4}}
	require.Equal(t, abi.SUCCESS, DeviceWorkloadPowerProfileSetRequestedProfiles(seen(e), &abi.WorkloadPowerProfileRequestedProfiles_v1_t{RequestedProfilesMask: bits}))
	var now abi.WorkloadPowerProfileCurrentProfiles_v1_t
	require.Equal(t, abi.SUCCESS, DeviceWorkloadPowerProfileGetCurrentProfiles(seen(e), &now))
	assert.Equal(t, abi.WorkloadPowerProfileCurrentProfiles_v1_t{
		PerfProfilesMask: bits, RequestedProfilesMask: bits, EnforcedProfilesMask: abi.Mask255_t{Mask: [8]uint32{0: 1 << 4}},
	}, now)
	require.Equal(t, abi.SUCCESS, DeviceWorkloadPowerProfileClearRequestedProfiles(seen(e), &abi.WorkloadPowerProfileRequestedProfiles_v1_t{
		RequestedProfilesMask: abi.Mask255_t{Mask: [8]uint32{0: 1 << 4}},
	}))
	require.Equal(t, abi.SUCCESS, DeviceWorkloadPowerProfileGetCurrentProfiles(seen(e), &now))
	assert.Equal(t, uint32(1<<3), now.EnforcedProfilesMask.Mask[0])
	var info abi.WorkloadPowerProfileProfilesInfo_v1_t
	require.Equal(t, abi.SUCCESS, DeviceWorkloadPowerProfileGetProfilesInfo(seen(e), &info))
	assert.Equal(t, bits, info.PerfProfilesMask)
	assert.Equal(t, abi.WorkloadPowerProfileInfo_t{ProfileId: 3, Priority: 2, ConflictingMask: abi.Mask255_t{Mask: [8]uint32{0: 1 << 4}}}, info.PerfProfile[3])

	require.Equal(t, abi.SUCCESS, DeviceSetEccMode(seen(e), abi.FEATURE_DISABLED))
	answers(t, 1, 0)(DeviceGetEccMode(seen(e)))
	require.Equal(t, abi.SUCCESS, InternalSlot13(seen(e)))
	answers(t, 0, 0)(DeviceGetEccMode(seen(e)))
	answers(t, 700_000)(DeviceGetPowerManagementLimit(seen(e)))
	answers(t, 345)(DeviceGetClockInfo(seen(e), abi.CLOCK_SM))
}

// TestSettersOfABareBoard: a GPU of which the profile says nothing has nothing to set.
func TestSettersOfABareBoard(t *testing.T) {
	d := gpu(t, bare)
	for name, ret := range map[string]abi.Return{
		"limit": DeviceSetPowerManagementLimit(d, 1), "lock": DeviceSetGpuLockedClocks(d, 1, 2), "unlock": DeviceResetGpuLockedClocks(d),
		"memory lock": DeviceSetMemoryLockedClocks(d, 1, 2), "memory unlock": DeviceResetMemoryLockedClocks(d),
		"applications": DeviceSetApplicationsClocks(d, 1, 1), "reset applications": DeviceResetApplicationsClocks(d),
		"auto boost": DeviceSetAutoBoostedClocksEnabled(d, 1), "default auto boost": DeviceSetDefaultAutoBoostedClocksEnabled(d, 1, 0),
		"restriction": DeviceSetAPIRestriction(d, 0, 1), "offsets": DeviceSetClockOffsets(d, &abi.ClockOffset_v1_t{}),
		"fan": DeviceSetFanSpeed_v2(d, 0, 50), "fan policy": DeviceSetFanControlPolicy(d, 0, 1),
		"threshold": DeviceSetTemperatureThreshold(d, abi.TEMPERATURE_THRESHOLD_ACOUSTIC_CURR, 70), "links": DeviceResetNvLinkErrorCounters(d, 0),
		"link threshold": DeviceSetNvLinkDeviceLowPowerThreshold(d, &abi.NvLinkPowerThres_t{LowPwrThreshold: 5}),
		"ecc":            DeviceSetEccMode(d, 1), "clear ecc": DeviceClearEccErrorCounts(d, 0), "accounting": DeviceSetAccountingMode(d, 1),
		"clear accounting": DeviceClearAccountingPids(d), "compute mode": DeviceSetComputeMode(d, 0),
		"operation mode": DeviceSetGpuOperationMode(d, 0), "virtualization": DeviceSetVirtualizationMode(d, 0),
		"encryption": DeviceSetDramEncryptionMode(d, &abi.DramEncryptionInfo_v1_t{}), "smoothing": DevicePowerSmoothingSetState(d, &abi.PowerSmoothingState_v1_t{}),
		"smoothing profile":   DevicePowerSmoothingActivatePresetProfile(d, &abi.PowerSmoothingProfile_v1_t{}),
		"smoothing parameter": DevicePowerSmoothingUpdatePresetProfileParam(d, &abi.PowerSmoothingProfile_v1_t{}),
		"profiles":            DeviceWorkloadPowerProfileUpdateProfiles_v1(d, &abi.WorkloadPowerProfileUpdateProfiles_v1_t{}),
		"profile list":        DeviceWorkloadPowerProfileGetProfilesInfo(d, &abi.WorkloadPowerProfileProfilesInfo_v1_t{}),
	} {
		assert.Equal(t, abi.ERROR_NOT_SUPPORTED, ret, name)
	}
}
