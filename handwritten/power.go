package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/words"
)

// DeviceGetPowerUsage is the power drawn now, in mW.
func DeviceGetPowerUsage(d *engine.Device) (uint32, abi.Return) { return opt(d.Readings().PowerMW) }

// DeviceGetTotalEnergyConsumption is the energy used since the driver was loaded, in mJ.
func DeviceGetTotalEnergyConsumption(d *engine.Device) (uint64, abi.Return) { return opt(d.Energy()) }

// DeviceGetPowerSource is where the power comes from.
func DeviceGetPowerSource(d *engine.Device) (abi.PowerSource_t, abi.Return) {
	return opt(named(d.Power.Source, words.PowerSources))
}

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

// withoutPowerManagementMode is the first driver branch whose captures show DEPRECATED for the power management mode.
const withoutPowerManagementMode = 590

// DeviceGetPowerManagementMode says whether power is limited. If the profile gives no mode, it says whether the board
// can do it. From driver 590 on it is DEPRECATED.
func DeviceGetPowerManagementMode(d *engine.Device) (abi.EnableState_t, abi.Return) {
	if d.Snapshot().Branch >= withoutPowerManagementMode {
		return 0, abi.ERROR_DEPRECATED
	}
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

// DeviceSetPowerManagementLimit limits the power of the GPU, in mW.
func DeviceSetPowerManagementLimit(d *engine.Device, mw uint32) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.PowerLimit(i, abi.POWER_SCOPE_GPU, mw) })
}

// DeviceSetPowerManagementLimit_v2 limits the power of the GPU, or of the module that carries it, in mW.
func DeviceSetPowerManagementLimit_v2(d *engine.Device, limit *abi.PowerValue_v2_t) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.PowerLimit(i, limit.PowerScope, limit.PowerValueMw) })
}

// DevicePowerSmoothingSetState switches the smoothing of the power.
func DevicePowerSmoothingSetState(d *engine.Device, s *abi.PowerSmoothingState_v1_t) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.PowerSmoothing(i, s.State) })
}

// DevicePowerSmoothingActivatePresetProfile chooses a profile of power smoothing.
func DevicePowerSmoothingActivatePresetProfile(d *engine.Device, p *abi.PowerSmoothingProfile_v1_t) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.SmoothingProfile(i, p.ProfileId) })
}

// DevicePowerSmoothingUpdatePresetProfileParam changes a profile of power smoothing.
func DevicePowerSmoothingUpdatePresetProfileParam(d *engine.Device, p *abi.PowerSmoothingProfile_v1_t) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.SmoothingParameter(i, p.ProfileId, p.ParamId, p.Value) })
}

// DeviceWorkloadPowerProfileGetProfilesInfo lists the power profiles that the board has for kinds of work.
func DeviceWorkloadPowerProfileGetProfilesInfo(d *engine.Device, info *abi.WorkloadPowerProfileProfilesInfo_v1_t) abi.Return {
	if len(d.WorkloadPowerProfiles.Supported) == 0 {
		return abi.ERROR_NOT_SUPPORTED
	}
	info.PerfProfilesMask = change.SupportedProfiles(d.Device)
	for _, p := range d.WorkloadPowerProfiles.Supported {
		entry := &info.PerfProfile[p.ID]
		entry.ProfileId, entry.Priority, entry.ConflictingMask = p.ID, p.Priority, change.MaskOf(p.Conflicts)
	}
	return abi.SUCCESS
}

// DeviceWorkloadPowerProfileGetCurrentProfiles says which power profiles the board has, which of them were requested, and
// which are in force.
func DeviceWorkloadPowerProfileGetCurrentProfiles(d *engine.Device, p *abi.WorkloadPowerProfileCurrentProfiles_v1_t) abi.Return {
	if len(d.WorkloadPowerProfiles.Supported) == 0 {
		return abi.ERROR_NOT_SUPPORTED
	}
	p.PerfProfilesMask = change.SupportedProfiles(d.Device)
	p.RequestedProfilesMask = change.MaskOf(d.WorkloadPowerProfiles.Requested)
	p.EnforcedProfilesMask = change.EnforcedProfiles(d.Device)
	return abi.SUCCESS
}

func powerProfiles(d *engine.Device, operation abi.PowerProfileOperation_t, mask abi.Mask255_t) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.PowerProfiles(i, operation, mask) })
}

// DeviceWorkloadPowerProfileSetRequestedProfiles requests power profiles, in addition to those that were.
func DeviceWorkloadPowerProfileSetRequestedProfiles(d *engine.Device, p *abi.WorkloadPowerProfileRequestedProfiles_v1_t) abi.Return {
	return powerProfiles(d, abi.POWER_PROFILE_OPERATION_SET, p.RequestedProfilesMask)
}

// DeviceWorkloadPowerProfileClearRequestedProfiles takes back requests for power profiles.
func DeviceWorkloadPowerProfileClearRequestedProfiles(d *engine.Device, p *abi.WorkloadPowerProfileRequestedProfiles_v1_t) abi.Return {
	return powerProfiles(d, abi.POWER_PROFILE_OPERATION_CLEAR, p.RequestedProfilesMask)
}

// DeviceWorkloadPowerProfileUpdateProfiles_v1 requests power profiles, in addition to those that were or in place of
// them, or takes requests back.
func DeviceWorkloadPowerProfileUpdateProfiles_v1(d *engine.Device, p *abi.WorkloadPowerProfileUpdateProfiles_v1_t) abi.Return {
	return powerProfiles(d, p.Operation, p.UpdateProfilesMask)
}
