package tests

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// A field is a value that nvmlDeviceGetFieldValues answers, within a scope: a link, or a part of the board.
type field struct {
	id, scope uint32
	want      any
}

// fieldNumbers are the numbers of fields in the driver's version, in which some had other ones, by those in the newest version.
func (c *checker) fieldNumbers() map[uint32]uint32 {
	numbers, version := map[uint32]uint32{}, profiles.NVML(branch(c.T, c.board)).Number
	for id := range uint32(nvml.FI_MAX) {
		numbers[abi.FieldID(version, id)] = id
	}
	return numbers
}

// fields reads all fields at once; fields that the test does not list must be unsupported.
func (c *checker) fields(dev nvml.Device, d *profiles.Device) {
	list := append(fieldsOf(branch(c.T, c.board), d), c.linkFields(d)...)
	for id := range uint32(nvml.FI_MAX) {
		if !slices.ContainsFunc(list, func(f field) bool { return f.id == id }) {
			list = append(list, field{id, 0, nil})
		}
	}
	number := c.fieldNumbers()
	values := make([]nvml.FieldValue, len(list))
	for i, f := range list {
		values[i] = nvml.FieldValue{FieldId: number[f.id], ScopeId: f.scope}
	}
	const symbol = "nvmlDeviceGetFieldValues"
	c.says(symbol, nvml.SUCCESS)(dev.GetFieldValues(values))
	for i, v := range values {
		c := c.of("field ", v.FieldId, ", scope ", v.ScopeId)
		c.says(symbol, list[i].want)(valueOf(v), nvml.Return(v.NvmlReturn))
		c.now(symbol, uint64(v.Timestamp))
	}
}

// valueOf is a field's value in its own type.
func valueOf(v nvml.FieldValue) any {
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return binary.NativeEndian.Uint32(v.Value[:])
	case nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return binary.NativeEndian.Uint64(v.Value[:])
	case nvml.VALUE_TYPE_SIGNED_INT:
		return int32(binary.NativeEndian.Uint32(v.Value[:]))
	}
	return fmt.Sprintf("% x of type %d", v.Value, v.ValueType)
}

// isSmoothing reports whether a field is one of power smoothing, which have three ranges of numbers.
func isSmoothing(id uint32) bool {
	return id >= nvml.FI_PWR_SMOOTHING_ENABLED && id <= nvml.FI_PWR_SMOOTHING_ADMIN_OVERRIDE_RAMP_DOWN_HYST_VAL ||
		id >= nvml.FI_PWR_SMOOTHING_PRIMARY_POWER_FLOOR && id <= nvml.FI_PWR_SMOOTHING_ADMIN_OVERRIDE_PRIMARY_FLOOR_ACT_OFFSET ||
		id == nvml.FI_PWR_SMOOTHING_SOC_POWER_SMOOTHING_ENABLED
}

func fieldsOf(driver int, d *profiles.Device) []field {
	reset := func(is profiles.Opt[bool]) any {
		if driver >= 570 {
			return nvml.ERROR_DEPRECATED
		}
		return bit(is)
	}
	pages, rows, lost := &d.RetiredPages, &d.RemappedRows, &d.ClocksThrottleReasons.Counters
	pending := func(r profiles.Retirement) any {
		return when(r.Count.Valid, number(pages.PendingRetirement.Value && r.Count.Value > 0))
	}
	list := []field{
		{nvml.FI_DEV_ECC_CURRENT, 0, bit(d.ECC.ModeCurrent)},
		{nvml.FI_DEV_ECC_PENDING, 0, bit(d.ECC.ModePending)},
		{nvml.FI_DEV_RETIRED_SBE, 0, given(pages.SingleBitRetirement.Count)},
		{nvml.FI_DEV_RETIRED_DBE, 0, given(pages.DoubleBitRetirement.Count)},
		{nvml.FI_DEV_RETIRED_PENDING, 0, bit(pages.PendingRetirement)},
		{nvml.FI_DEV_RETIRED_PENDING_SBE, 0, pending(pages.SingleBitRetirement)},
		{nvml.FI_DEV_RETIRED_PENDING_DBE, 0, pending(pages.DoubleBitRetirement)},
		{nvml.FI_DEV_REMAPPED_COR, 0, given(rows.Correctable)},
		{nvml.FI_DEV_REMAPPED_UNC, 0, given(rows.Uncorrectable)},
		{nvml.FI_DEV_REMAPPED_PENDING, 0, bit(rows.Pending)},
		{nvml.FI_DEV_REMAPPED_FAILURE, 0, bit(rows.FailureOccurred)},
		{nvml.FI_DEV_REMAPPED_ROWS_COR_INACTIVE, 0, given(rows.CorrectableInactive)},
		{nvml.FI_DEV_REMAPPED_ROWS_UNC_INACTIVE, 0, given(rows.UncorrectableInactive)},

		{nvml.FI_DEV_MEMORY_TEMP, 0, given(d.Thermal.TemperatureMemoryC)},
		{nvml.FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT, 0, given(d.Thermal.TLimitShutdownC)},
		{nvml.FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT, 0, given(d.Thermal.TLimitSlowdownC)},
		{nvml.FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT, 0, given(d.Thermal.TLimitMemoryMaxOperatingC)},
		{nvml.FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT, 0, given(d.Thermal.TLimitMaxOperatingC)},
		{nvml.FI_DEV_PCIE_REPLAY_COUNTER, 0, given(d.PCIe.ReplayCounter)},
		{nvml.FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER, 0, given(d.PCIe.ReplayRolloverCounter)},
		{nvml.FI_DEV_PCIE_OUTBOUND_ATOMICS_MASK, 0, given(d.PCIe.AtomicCapsOutbound)},
		{nvml.FI_DEV_PCIE_INBOUND_ATOMICS_MASK, 0, given(d.PCIe.AtomicCapsInbound)},

		{nvml.FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP, 0, times(1000, lostTo(&d.ClocksThrottleReasons, lost.SWPowerCapUS))},
		{nvml.FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST, 0, times(1000, lost.SyncBoostUS)},
		{nvml.FI_DEV_PERF_POLICY_THERMAL, 0, times(1000, lostTo(&d.ClocksThrottleReasons, lost.SWThermalSlowdownUS))},
		{nvml.FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, 0, times(1000, lost.SWThermalSlowdownUS)},
		{nvml.FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN, 0, times(1000, lost.HWThermalSlowdownUS)},
		{nvml.FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN, 0, times(1000, lost.HWPowerBrakeSlowdownUS)},
		{nvml.FI_DEV_GET_GPU_RECOVERY_ACTION, 0, named(d.RecoveryAction, map[string]nvml.DeviceGpuRecoveryAction{
			"none": nvml.GPU_RECOVERY_ACTION_NONE, "gpu_reset": nvml.GPU_RECOVERY_ACTION_GPU_RESET,
		})},
		{nvml.FI_DEV_RESET_STATUS, 0, reset(d.ResetStatus.Required)},
		{nvml.FI_DEV_DRAIN_AND_RESET_STATUS, 0, reset(d.ResetStatus.DrainAndReset)},

		{nvml.FI_DEV_POWER_AVERAGE, nvml.POWER_SCOPE_MEMORY, given(d.MemoryPower.AverageDrawMW)},
		{nvml.FI_DEV_POWER_INSTANT, nvml.POWER_SCOPE_MEMORY, given(d.MemoryPower.CurrentDrawMW)},
		{nvml.FI_DEV_POWER_MAX_LIMIT, nvml.POWER_SCOPE_MEMORY, nil},
		{nvml.FI_DEV_POWER_INSTANT, nvml.POWER_SCOPE_COUNT, nvml.ERROR_INVALID_ARGUMENT},
		{0, 0, nvml.ERROR_INVALID_ARGUMENT},
		{nvml.FI_MAX, 0, nvml.ERROR_INVALID_ARGUMENT},
	}
	energy := given(d.Power.TotalEnergyConsumptionMJ)
	if energy == nil { // it grows
		energy = when(d.Power.CurrentDrawMW.Valid, nvml.SUCCESS)
	}
	list = append(list,
		field{nvml.FI_DEV_TOTAL_ENERGY_CONSUMPTION, 0, energy},
		field{nvml.FI_DEV_ENERGY, nvml.POWER_SCOPE_GPU, energy})
	if d.Power.Smoothing.Value == "no_permission" {
		for id := range uint32(nvml.FI_MAX) {
			if isSmoothing(id) {
				list = append(list, field{id, 0, nvml.ERROR_NO_PERMISSION})
			}
		}
	} else {
		enabled := when(d.Power.Smoothing.Valid, number(d.Power.Smoothing.Value == "enabled"))
		list = append(list, field{nvml.FI_PWR_SMOOTHING_ENABLED, 0, enabled})
	}
	m := &d.ModulePower
	for scope, p := range map[uint32]*profiles.Power{
		nvml.POWER_SCOPE_GPU: &d.Power,
		nvml.POWER_SCOPE_MODULE: {AverageDrawMW: m.AverageDrawMW, CurrentDrawMW: m.CurrentDrawMW,
			MinLimitMW: m.MinLimitMW, MaxLimitMW: m.MaxLimitMW, DefaultLimitMW: m.DefaultLimitMW,
			EnforcedLimitMW: m.EnforcedLimitMW, RequestedLimitMW: m.RequestedLimitMW},
	} {
		list = append(list,
			field{nvml.FI_DEV_POWER_AVERAGE, scope, given(p.AverageDrawMW)},
			field{nvml.FI_DEV_POWER_INSTANT, scope, given(p.CurrentDrawMW)},
			field{nvml.FI_DEV_POWER_MIN_LIMIT, scope, given(p.MinLimitMW)},
			field{nvml.FI_DEV_POWER_MAX_LIMIT, scope, given(p.MaxLimitMW)},
			field{nvml.FI_DEV_POWER_DEFAULT_LIMIT, scope, given(p.DefaultLimitMW)},
			field{nvml.FI_DEV_POWER_CURRENT_LIMIT, scope, given(p.EnforcedLimitMW)},
			field{nvml.FI_DEV_POWER_REQUESTED_LIMIT, scope, given(requestedLimit(p))})
	}

	// Corrected and uncorrected errors since the driver was loaded, and over the board's lifetime.
	for location, ids := range map[nvml.MemoryLocation][4]uint32{
		nvml.MEMORY_LOCATION_L1_CACHE: {nvml.FI_DEV_ECC_SBE_VOL_L1, nvml.FI_DEV_ECC_DBE_VOL_L1,
			nvml.FI_DEV_ECC_SBE_AGG_L1, nvml.FI_DEV_ECC_DBE_AGG_L1},
		nvml.MEMORY_LOCATION_L2_CACHE: {nvml.FI_DEV_ECC_SBE_VOL_L2, nvml.FI_DEV_ECC_DBE_VOL_L2,
			nvml.FI_DEV_ECC_SBE_AGG_L2, nvml.FI_DEV_ECC_DBE_AGG_L2},
		nvml.MEMORY_LOCATION_DRAM: {nvml.FI_DEV_ECC_SBE_VOL_DEV, nvml.FI_DEV_ECC_DBE_VOL_DEV,
			nvml.FI_DEV_ECC_SBE_AGG_DEV, nvml.FI_DEV_ECC_DBE_AGG_DEV},
		nvml.MEMORY_LOCATION_REGISTER_FILE: {nvml.FI_DEV_ECC_SBE_VOL_REG, nvml.FI_DEV_ECC_DBE_VOL_REG,
			nvml.FI_DEV_ECC_SBE_AGG_REG, nvml.FI_DEV_ECC_DBE_AGG_REG},
		nvml.MEMORY_LOCATION_TEXTURE_MEMORY: {nvml.FI_DEV_ECC_SBE_VOL_TEX, nvml.FI_DEV_ECC_DBE_VOL_TEX,
			nvml.FI_DEV_ECC_SBE_AGG_TEX, nvml.FI_DEV_ECC_DBE_AGG_TEX},
		nvml.MEMORY_LOCATION_COUNT: {nvml.FI_DEV_ECC_SBE_VOL_TOTAL, nvml.FI_DEV_ECC_DBE_VOL_TOTAL,
			nvml.FI_DEV_ECC_SBE_AGG_TOTAL, nvml.FI_DEV_ECC_DBE_AGG_TOTAL},
	} {
		for i, id := range ids {
			severity, life := nvml.MemoryErrorType(i%2), nvml.EccCounterType(i/2)
			want := errorsOf(d, severity, life)[location]
			if location == nvml.MEMORY_LOCATION_COUNT { // means all locations
				want = allErrors(d, severity, life)
			}
			list = append(list, field{id, 0, given(want)})
		}
	}
	return list
}

// Each of twelve links has fields of its own: links 1 to 5 follow the field of link 0, and links 7 to 11 that of link
// 6.
type linkField [2]uint32

var (
	linkSpeed  = linkField{nvml.FI_DEV_NVLINK_SPEED_MBPS_L0, nvml.FI_DEV_NVLINK_SPEED_MBPS_L6}
	linkErrors = []linkField{
		{nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L0, nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L6},
		{nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_L0, nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_L6},
		{nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L0, nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L6},
		{nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_L0, nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_L6},
		{nvml.FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_L0, nvml.FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_L6},
	}
)

func (f linkField) at(link uint32) uint32 { return f[link/6] + link%6 }

// linkFields are the fields of a device with links.
func (c *checker) linkFields(d *profiles.Device) []field {
	nv, links := &c.board.NVLink, c.linksOf(d)
	n, traffic := uint32(len(links)), nv.Defaults.CounterSeed.Value
	if n == 0 {
		return nil
	}
	var switched uint32
	list := []field{
		{nvml.FI_DEV_NVLINK_LINK_COUNT, 0, n},
		{nvml.FI_DEV_NVLINK_SPEED_MBPS_COMMON, 0, given(nv.BandwidthPerLinkMbps)},
		{nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, 0, 0},
		{nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL, 0, 0},
		{nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, 0, 0},
		{nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, 0, 0},
		{nvml.FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL, 0, 0},
		{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, math.MaxUint32, uint64(n) * traffic}, // of all links
		{nvml.FI_DEV_NVLINK_GET_STATE, n, nvml.ERROR_INVALID_ARGUMENT},
	}
	packets := nv.Version.Value >= 5 // and not the errors of the data link layer
	old := when(!packets, 0)
	for i, l := range links {
		for id := uint32(nvml.FI_DEV_NVLINK_COUNT_XMIT_PACKETS); packets && id <= nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS; id++ {
			n := map[uint32]uint64{
				nvml.FI_DEV_NVLINK_COUNT_XMIT_PACKETS: traffic << 10 / 144, nvml.FI_DEV_NVLINK_COUNT_RCV_PACKETS: traffic << 10 / 144,
				nvml.FI_DEV_NVLINK_COUNT_XMIT_BYTES: traffic << 10, nvml.FI_DEV_NVLINK_COUNT_RCV_BYTES: traffic << 10,
			}[id]
			list = append(list, field{id, uint32(i), n})
		}
		if packets {
			list = append(list, field{nvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS, uint32(i), 0}, field{nvml.FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS, uint32(i), 0})
		}
		link, speed := uint32(i), nv.BandwidthPerLinkMbps.Value*number(l.active)
		switched += number(l.remote == nvml.NVLINK_DEVICE_TYPE_SWITCH)
		list = append(list,
			field{nvml.FI_DEV_NVLINK_GET_STATE, link, number(l.active)},
			field{nvml.FI_DEV_NVLINK_REMOTE_NVLINK_ID, link, c.farLink(d, i)},
			field{nvml.FI_DEV_NVLINK_GET_VERSION, link, linkVersions[nv.Version.Value]},
			field{nvml.FI_DEV_NVLINK_GET_SPEED, link, speed},
			field{nvml.FI_DEV_NVLINK_ERROR_DL_REPLAY, link, old},
			field{nvml.FI_DEV_NVLINK_ERROR_DL_RECOVERY, link, old},
			field{nvml.FI_DEV_NVLINK_ERROR_DL_CRC, link, old},
			field{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, link, traffic},
			field{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, link, traffic},
			field{nvml.FI_DEV_NVLINK_THROUGHPUT_RAW_TX, link, traffic},
			field{nvml.FI_DEV_NVLINK_THROUGHPUT_RAW_RX, link, traffic})
		if link < 12 {
			list = append(list, field{linkSpeed.at(link), 0, speed})
			for _, errors := range linkErrors {
				list = append(list, field{errors.at(link), 0, 0})
			}
		}
	}
	return append(list, field{nvml.FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT, 0, when(len(nv.Switches) > 0, switched)})
}
