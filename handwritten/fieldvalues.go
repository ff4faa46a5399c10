package handwritten

import (
	"sync"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/simulate"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// DeviceGetFieldValues answers many values in one call, each with its own return code: INVALID_ARGUMENT for a number
// that is no field, NOT_SUPPORTED for a field that the profile has no value for. Times are in µs since 1970. Numbers are
// those of the driver's version, since some fields had other numbers in some versions.
func DeviceGetFieldValues(d *engine.Device, values []abi.FieldValue_t) abi.Return {
	version := profiles.NVML(d.Snapshot().Branch).Number
	return fieldValues(d, values, func(id uint32) uint32 { return abi.FieldID(version, id) }, fields()[:])
}

// fieldValues answers fields from a table, in which a field stands at the number that newest makes of the caller's.
func fieldValues(d *engine.Device, values []abi.FieldValue_t, newest func(id uint32) uint32, known []field) abi.Return {
	if len(values) == 0 {
		return abi.ERROR_INVALID_ARGUMENT
	}
	start := d.Snapshot().Now()
	for i := range values {
		v := &values[i]
		v.NvmlReturn = abi.ERROR_INVALID_ARGUMENT
		if id := newest(v.FieldId); id > 0 && uint64(id) < uint64(len(known)) {
			v.NvmlReturn = abi.ERROR_NOT_SUPPORTED
			if get := known[id]; get != nil {
				v.ValueType, v.Value[0], v.NvmlReturn = get(d, v.ScopeId)
			}
		}
		if answer, instead := d.AnswerOfField(v.FieldId); instead {
			v.NvmlReturn = answer
		}
		now := d.Snapshot().Now()
		v.Timestamp, v.LatencyUsec = now.UnixMicro(), now.Sub(start).Microseconds()
	}
	return abi.SUCCESS
}

// field answers a field: the type of its value, the value's bits and the return code. The scope is a link, or a part of
// the board that draws power.
type field func(d *engine.Device, scope uint32) (abi.ValueType_t, uint64, abi.Return)

// number makes a field of a function that answers a number.
func number[T uint32 | uint64 | int32](get func(d *engine.Device, scope uint32) (T, abi.Return)) field {
	var kind abi.ValueType_t
	switch any(T(0)).(type) {
	case uint32:
		kind = abi.VALUE_TYPE_UNSIGNED_INT
	case uint64:
		kind = abi.VALUE_TYPE_UNSIGNED_LONG_LONG
	case int32:
		kind = abi.VALUE_TYPE_SIGNED_INT
	}
	return func(d *engine.Device, scope uint32) (abi.ValueType_t, uint64, abi.Return) {
		v, ret := get(d, scope)
		if kind == abi.VALUE_TYPE_SIGNED_INT {
			return kind, uint64(uint32(v)), ret
		}
		return kind, uint64(v), ret
	}
}

// given makes a field of a value in the profile.
func given[T uint32 | uint64 | int32](get func(d *engine.Device) profiles.Opt[T]) field {
	return number(func(d *engine.Device, _ uint32) (T, abi.Return) { return opt(get(d)) })
}

// onOff makes a field of a boolean.
func onOff(get func(d *engine.Device) profiles.Opt[bool]) field {
	return given(func(d *engine.Device) profiles.Opt[uint32] { return flag[uint32](get(d)) })
}

// Short names for the table below.
type (
	dev   = *engine.Device
	u32   = profiles.Opt[uint32]
	i32   = profiles.Opt[int32]
	u64   = profiles.Opt[uint64]
	yesNo = profiles.Opt[bool]
)

// fields are the fields that a profile can answer, by number. The table is made at the first call, since most programs
// need none.
var fields = sync.OnceValue(func() *[abi.FI_MAX]field {
	return numbered(&[abi.FI_MAX]field{
		abi.FI_DEV_ECC_CURRENT: given(func(d dev) u32 { return mode[uint32](d.ECC.ModeCurrent) }),
		abi.FI_DEV_ECC_PENDING: given(func(d dev) u32 { return mode[uint32](d.ECC.ModePending) }),

		abi.FI_DEV_RETIRED_SBE:         retired(abi.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS),
		abi.FI_DEV_RETIRED_DBE:         retired(abi.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR),
		abi.FI_DEV_RETIRED_PENDING:     onOff(func(d dev) yesNo { return d.RetiredPages.PendingRetirement }),
		abi.FI_DEV_RETIRED_PENDING_SBE: retiring(abi.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS),
		abi.FI_DEV_RETIRED_PENDING_DBE: retiring(abi.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR),

		abi.FI_DEV_REMAPPED_COR:               given(func(d dev) u32 { return d.RemappedRows.Correctable }),
		abi.FI_DEV_REMAPPED_UNC:               given(func(d dev) u32 { return d.RemappedRows.Uncorrectable }),
		abi.FI_DEV_REMAPPED_PENDING:           onOff(func(d dev) yesNo { return d.RemappedRows.Pending }),
		abi.FI_DEV_REMAPPED_FAILURE:           onOff(func(d dev) yesNo { return d.RemappedRows.FailureOccurred }),
		abi.FI_DEV_REMAPPED_ROWS_COR_INACTIVE: given(func(d dev) u32 { return d.RemappedRows.CorrectableInactive }),
		abi.FI_DEV_REMAPPED_ROWS_UNC_INACTIVE: given(func(d dev) u32 { return d.RemappedRows.UncorrectableInactive }),

		abi.FI_DEV_MEMORY_TEMP:                 given(func(d dev) u32 { return as[uint32](d.Thermal.TemperatureMemoryC) }),
		abi.FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT: given(func(d dev) i32 { return d.Thermal.TLimitShutdownC }),
		abi.FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT: given(func(d dev) i32 { return d.Thermal.TLimitSlowdownC }),
		abi.FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT:  given(func(d dev) i32 { return d.Thermal.TLimitMemoryMaxOperatingC }),
		abi.FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT:  given(func(d dev) i32 { return d.Thermal.TLimitMaxOperatingC }),

		abi.FI_DEV_TOTAL_ENERGY_CONSUMPTION: given((*engine.Device).Energy),
		abi.FI_DEV_ENERGY:                   scoped(func(p *powerScope) u64 { return p.energy }),
		abi.FI_DEV_POWER_AVERAGE:            scoped(func(p *powerScope) u32 { return p.average }),
		abi.FI_DEV_POWER_INSTANT:            scoped(func(p *powerScope) u32 { return p.instant }),
		abi.FI_DEV_POWER_MIN_LIMIT:          scoped(func(p *powerScope) u32 { return p.least }),
		abi.FI_DEV_POWER_MAX_LIMIT:          scoped(func(p *powerScope) u32 { return p.most }),
		abi.FI_DEV_POWER_DEFAULT_LIMIT:      scoped(func(p *powerScope) u32 { return p.byDefault }),
		abi.FI_DEV_POWER_CURRENT_LIMIT:      scoped(func(p *powerScope) u32 { return p.enforced }),
		abi.FI_DEV_POWER_REQUESTED_LIMIT:    scoped(func(p *powerScope) u32 { return requestedLimit(p.requested, p.enforced) }),

		abi.FI_DEV_PCIE_REPLAY_COUNTER:          given(func(d dev) u32 { return as[uint32](d.PCIe.ReplayCounter) }),
		abi.FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER: given(func(d dev) u32 { return as[uint32](d.PCIe.ReplayRolloverCounter) }),
		abi.FI_DEV_PCIE_OUTBOUND_ATOMICS_MASK:   given(func(d dev) u32 { return d.PCIe.AtomicCapsOutbound }),
		abi.FI_DEV_PCIE_INBOUND_ATOMICS_MASK:    given(func(d dev) u32 { return d.PCIe.AtomicCapsInbound }),

		abi.FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP:            lost(func(d dev) u64 { return lostTo(d, simulate.LostToPowerCap) }),
		abi.FI_DEV_PERF_POLICY_THERMAL:                         lost(func(d dev) u64 { return lostTo(d, simulate.LostToSWThermal) }),
		abi.FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST:              lost(func(d dev) u64 { return d.ClocksThrottleReasons.Counters.SyncBoostUS }),
		abi.FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN:       lost(func(d dev) u64 { return d.Lost(simulate.LostToSWThermal) }),
		abi.FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN:       lost(func(d dev) u64 { return d.Lost(simulate.LostToHWThermal) }),
		abi.FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN: lost(func(d dev) u64 { return d.ClocksThrottleReasons.Counters.HWPowerBrakeSlowdownUS }),

		abi.FI_DEV_ECC_DBE_VOL_CBU: number(func(d dev, _ uint32) (uint64, abi.Return) {
			return DeviceGetMemoryErrorCounter(d, abi.MEMORY_ERROR_TYPE_UNCORRECTED, abi.VOLATILE_ECC, abi.MEMORY_LOCATION_CBU)
		}),
		abi.FI_DEV_ECC_DBE_AGG_CBU: number(func(d dev, _ uint32) (uint64, abi.Return) {
			return DeviceGetMemoryErrorCounter(d, abi.MEMORY_ERROR_TYPE_UNCORRECTED, abi.AGGREGATE_ECC, abi.MEMORY_LOCATION_CBU)
		}),

		abi.FI_DEV_GET_GPU_RECOVERY_ACTION: given(recoveryAction),
		abi.FI_DEV_RESET_STATUS: resetStatus(func(s profiles.ResetStatus) profiles.Opt[bool] { return s.Required }, func(a abi.DeviceGpuRecoveryAction_t) bool {
			return a == abi.GPU_RECOVERY_ACTION_GPU_RESET || a == abi.GPU_RECOVERY_ACTION_NODE_REBOOT
		}),
		abi.FI_DEV_DRAIN_AND_RESET_STATUS: resetStatus(func(s profiles.ResetStatus) profiles.Opt[bool] { return s.DrainAndReset }, func(a abi.DeviceGpuRecoveryAction_t) bool {
			return a == abi.GPU_RECOVERY_ACTION_DRAIN_AND_RESET
		}),

		abi.FI_DEV_NVLINK_LINK_COUNT:                    number(linkCount),
		abi.FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT:        number(switchLinks),
		abi.FI_DEV_NVLINK_SPEED_MBPS_COMMON:             number(commonSpeed),
		abi.FI_DEV_NVLINK_GET_SPEED:                     number(linkSpeed),
		abi.FI_DEV_NVLINK_GET_VERSION:                   number(DeviceGetNvLinkVersion),
		abi.FI_DEV_NVLINK_GET_STATE:                     number(linkState),
		abi.FI_DEV_NVLINK_REMOTE_NVLINK_ID:              number(farLink),
		abi.FI_DEV_NVLINK_GET_POWER_THRESHOLD:           given(threshold),
		abi.FI_DEV_NVLINK_GET_POWER_THRESHOLD_MIN:       given(func(d dev) u32 { return d.NVLinkLowPower.Min }),
		abi.FI_DEV_NVLINK_GET_POWER_THRESHOLD_MAX:       given(func(d dev) u32 { return d.NVLinkLowPower.Max }),
		abi.FI_DEV_NVLINK_GET_POWER_THRESHOLD_UNITS:     given(thresholdUnits),
		abi.FI_DEV_NVLINK_GET_POWER_THRESHOLD_SUPPORTED: given(thresholdSupported),
		abi.FI_DEV_NVLINK_ERROR_DL_REPLAY:               number(oldErrors),
		abi.FI_DEV_NVLINK_ERROR_DL_RECOVERY:             number(oldErrors),
		abi.FI_DEV_NVLINK_ERROR_DL_CRC:                  number(oldErrors),
		abi.FI_DEV_NVLINK_THROUGHPUT_DATA_TX:            number(linkTraffic),
		abi.FI_DEV_NVLINK_THROUGHPUT_DATA_RX:            number(linkTraffic),
		abi.FI_DEV_NVLINK_THROUGHPUT_RAW_TX:             number(linkTraffic),
		abi.FI_DEV_NVLINK_THROUGHPUT_RAW_RX:             number(linkTraffic),
	})
})
