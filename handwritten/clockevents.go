package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/simulate"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// reasonBits are NVML's bits for the reasons that hold clocks down.
var reasonBits = [...]struct {
	reason simulate.Reason
	bit    uint64
}{
	{simulate.GPUIdle, abi.ClocksEventReasonGpuIdle},
	{simulate.ApplicationsClocksSetting, abi.ClocksEventReasonApplicationsClocksSetting},
	{simulate.SWPowerCap, abi.ClocksEventReasonSwPowerCap},
	{simulate.HWSlowdown, abi.ClocksThrottleReasonHwSlowdown},
	{simulate.SyncBoost, abi.ClocksEventReasonSyncBoost},
	{simulate.SWThermalSlowdown, abi.ClocksEventReasonSwThermalSlowdown},
	{simulate.HWThermalSlowdown, abi.ClocksThrottleReasonHwThermalSlowdown},
	{simulate.HWPowerBrakeSlowdown, abi.ClocksThrottleReasonHwPowerBrakeSlowdown},
	{simulate.DisplayClocksSetting, abi.ClocksEventReasonDisplayClockSetting},
}

// clockEvents converts reasons to a mask of NVML's bits.
func clockEvents(reasons simulate.Reason) (mask uint64) {
	for _, b := range reasonBits {
		if reasons&b.reason != 0 {
			mask |= b.bit
		}
	}
	return mask
}

// DeviceGetCurrentClocksEventReasons is the reasons that hold the clocks down now, as a mask.
//
//nvml:symbol nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetCurrentClocksThrottleReasons
func DeviceGetCurrentClocksEventReasons(d *engine.Device) (uint64, abi.Return) {
	r := d.Readings()
	if r.KnownReasons == 0 {
		return 0, abi.ERROR_NOT_SUPPORTED
	}
	return clockEvents(r.ReasonsInForce), abi.SUCCESS
}

// DeviceGetSupportedClocksEventReasons is the reasons that the board can report, as a mask.
//
//nvml:symbol nvmlDeviceGetSupportedClocksEventReasons nvmlDeviceGetSupportedClocksThrottleReasons
func DeviceGetSupportedClocksEventReasons(d *engine.Device) (uint64, abi.Return) {
	known := d.Readings().KnownReasons
	if known == 0 {
		return 0, abi.ERROR_NOT_SUPPORTED
	}
	return clockEvents(known), abi.SUCCESS
}

// lostTo is the time lost to a cause, in µs. Every GPU that tells why its clocks are held down counts the time that power and
// temperature cost, so it is 0 if the profile has no counter.
func lostTo(d *engine.Device, cause simulate.Quantity) profiles.Opt[uint64] {
	lost := d.Lost(cause)
	return profiles.Opt[uint64]{Value: lost.Value, Valid: lost.Valid || d.Readings().KnownReasons != 0}
}

// violation is the time lost to a policy, in µs.
func violation(d *engine.Device, policy abi.PerfPolicyType_t) profiles.Opt[uint64] {
	switch policy {
	case abi.PERF_POLICY_POWER:
		return lostTo(d, simulate.LostToPowerCap)
	case abi.PERF_POLICY_THERMAL:
		return lostTo(d, simulate.LostToSWThermal)
	case abi.PERF_POLICY_SYNC_BOOST:
		return d.ClocksThrottleReasons.Counters.SyncBoostUS
	}
	return profiles.Opt[uint64]{}
}

// DeviceGetViolationStatus is the time lost to a policy, in ns, and the present time, in µs since 1970. It answers
// NOT_SUPPORTED for a policy without a counter in the profile, and INVALID_ARGUMENT for a number that is no policy.
func DeviceGetViolationStatus(d *engine.Device, policy abi.PerfPolicyType_t, v *abi.ViolationTime_t) abi.Return {
	if policy > abi.PERF_POLICY_RELIABILITY && policy < abi.PERF_POLICY_TOTAL_APP_CLOCKS || policy >= abi.PERF_POLICY_COUNT {
		return abi.ERROR_INVALID_ARGUMENT
	}
	lost, ret := opt(violation(d, policy))
	*v = abi.ViolationTime_t{ReferenceTime: uint64(d.Snapshot().Now().UnixMicro()), ViolationTime: lost * 1000}
	return ret
}
