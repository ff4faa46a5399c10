package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// clockEvents are the reasons that hold the clocks down now, and those that the board knows. A busy GPU is not idle.
func clockEvents(d *engine.Device) (active, supported uint64) {
	r := &d.ClocksThrottleReasons
	for _, reason := range [...]struct {
		bit   uint64
		given profiles.Opt[bool]
	}{
		{abi.ClocksEventReasonGpuIdle, r.GPUIdle},
		{abi.ClocksEventReasonApplicationsClocksSetting, r.ApplicationsClocksSetting},
		{abi.ClocksEventReasonSwPowerCap, r.SWPowerCap},
		{abi.ClocksThrottleReasonHwSlowdown, r.HWSlowdown},
		{abi.ClocksEventReasonSyncBoost, r.SyncBoost},
		{abi.ClocksEventReasonSwThermalSlowdown, r.SWThermalSlowdown},
		{abi.ClocksThrottleReasonHwThermalSlowdown, r.HWThermalSlowdown},
		{abi.ClocksThrottleReasonHwPowerBrakeSlowdown, r.HWPowerBrakeSlowdown},
		{abi.ClocksEventReasonDisplayClockSetting, r.DisplayClocksSetting},
	} {
		if reason.given.Valid {
			supported |= reason.bit
		}
		if reason.given.Value {
			active |= reason.bit
		}
	}
	if d.Load().GPU.Or(0) > 0 {
		active &^= abi.ClocksEventReasonGpuIdle
	}
	return active, supported
}

// DeviceGetCurrentClocksEventReasons is the reasons that hold the clocks down now, as a mask.
//
//nvml:symbol nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetCurrentClocksThrottleReasons
func DeviceGetCurrentClocksEventReasons(d *engine.Device) (uint64, abi.Return) {
	active, supported := clockEvents(d)
	if supported == 0 {
		return 0, abi.ERROR_NOT_SUPPORTED
	}
	return active, abi.SUCCESS
}

// DeviceGetSupportedClocksEventReasons is the reasons that the board can give, as a mask.
//
//nvml:symbol nvmlDeviceGetSupportedClocksEventReasons nvmlDeviceGetSupportedClocksThrottleReasons
func DeviceGetSupportedClocksEventReasons(d *engine.Device) (uint64, abi.Return) {
	_, supported := clockEvents(d)
	if supported == 0 {
		return 0, abi.ERROR_NOT_SUPPORTED
	}
	return supported, abi.SUCCESS
}

// violation is the time lost to a policy, in µs.
func violation(d *engine.Device, policy abi.PerfPolicyType_t) profiles.Opt[uint64] {
	c := &d.ClocksThrottleReasons.Counters
	switch policy {
	case abi.PERF_POLICY_POWER:
		return c.SWPowerCapUS
	case abi.PERF_POLICY_THERMAL:
		return c.SWThermalSlowdownUS
	case abi.PERF_POLICY_SYNC_BOOST:
		return c.SyncBoostUS
	}
	return profiles.Opt[uint64]{}
}

// DeviceGetViolationStatus is the time lost to a policy, in ns, and when that was, in µs since 1970. Policies that the
// profile has no counter for are NOT_SUPPORTED, numbers between and beyond the policies INVALID_ARGUMENT.
func DeviceGetViolationStatus(d *engine.Device, policy abi.PerfPolicyType_t, v *abi.ViolationTime_t) abi.Return {
	if policy > abi.PERF_POLICY_RELIABILITY && policy < abi.PERF_POLICY_TOTAL_APP_CLOCKS || policy >= abi.PERF_POLICY_COUNT {
		return abi.ERROR_INVALID_ARGUMENT
	}
	lost, ret := opt(violation(d, policy))
	*v = abi.ViolationTime_t{ReferenceTime: uint64(d.Snapshot().Now().UnixMicro()), ViolationTime: lost * 1000}
	return ret
}
