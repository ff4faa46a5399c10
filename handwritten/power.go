package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// DeviceGetPowerUsage is the power drawn now, in mW.
func DeviceGetPowerUsage(d *engine.Device) (uint32, abi.Return) { return opt(d.Readings().PowerMW) }

// DeviceGetTotalEnergyConsumption is the energy used since the driver was loaded, in mJ.
func DeviceGetTotalEnergyConsumption(d *engine.Device) (uint64, abi.Return) { return opt(d.Energy()) }

// requestedLimit is the power limit that was requested, or the enforced one if none was.
func requestedLimit(requested, enforced profiles.Opt[uint32]) profiles.Opt[uint32] {
	if requested.Valid {
		return requested
	}
	return enforced
}

// DeviceGetPowerManagementLimit is the power limit that was requested, in mW.
func DeviceGetPowerManagementLimit(d *engine.Device) (uint32, abi.Return) {
	return opt(requestedLimit(d.Power.RequestedLimitMW, d.Power.EnforcedLimitMW))
}

// DeviceGetEnforcedPowerLimit is the power limit in force, in mW.
func DeviceGetEnforcedPowerLimit(d *engine.Device) (uint32, abi.Return) {
	return opt(d.Power.EnforcedLimitMW)
}

// DeviceGetPowerManagementDefaultLimit is the power limit after a reset, in mW.
func DeviceGetPowerManagementDefaultLimit(d *engine.Device) (uint32, abi.Return) {
	return opt(d.Power.DefaultLimitMW)
}

// DeviceGetPowerManagementLimitConstraints is the lowest and the highest power limit that can be set, in mW.
func DeviceGetPowerManagementLimitConstraints(d *engine.Device) (least, most uint32, ret abi.Return) {
	return pair(d.Power.MinLimitMW, d.Power.MaxLimitMW)
}

// DeviceGetPowerManagementMode says whether power is limited. If the profile gives no mode, it says whether the board
// can do it.
func DeviceGetPowerManagementMode(d *engine.Device) (abi.EnableState_t, abi.Return) {
	if d.Power.ManagementMode.Valid {
		return opt(mode[abi.EnableState_t](d.Power.ManagementMode))
	}
	if !d.Power.ManagementSupported.Value {
		return 0, abi.ERROR_NOT_SUPPORTED
	}
	return abi.FEATURE_ENABLED, abi.SUCCESS
}

// withoutPowerState is the first driver branch whose captures show DEPRECATED for DeviceGetPowerState; captures of 580
// do not.
const withoutPowerState = 595

// DeviceGetPowerState is the P-state, under the older name; DEPRECATED from driver 595 on.
func DeviceGetPowerState(d *engine.Device) (abi.Pstates_t, abi.Return) {
	if d.Snapshot().Branch >= withoutPowerState {
		return 0, abi.ERROR_DEPRECATED
	}
	return opt(as[abi.Pstates_t](d.Power.PowerState))
}

// DeviceGetPerformanceState is the P-state, 0 to 15.
func DeviceGetPerformanceState(d *engine.Device) (abi.Pstates_t, abi.Return) {
	return opt(as[abi.Pstates_t](d.PerformanceState))
}
