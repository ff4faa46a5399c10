package tests

import (
	"encoding/binary"
	"math"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
)

// These functions return measurements and counts.

// count is the number of errors at a location; it is absent for locations that the board does not count.
type count = profiles.Opt[uint64]

// errorsOf are a device's memory errors by location; all are absent unless ECC is on.
func errorsOf(d *profiles.Device, severity nvml.MemoryErrorType, life nvml.EccCounterType) map[nvml.MemoryLocation]count {
	if !d.ECC.ModeCurrent.Value {
		return nil
	}
	errors, sram := d.ECC.Errors.Volatile, d.ECC.SRAM.Volatile
	if life == nvml.AGGREGATE_ECC {
		errors, sram = d.ECC.Errors.Aggregate, d.ECC.SRAM.Aggregate
	}
	at, onChip := errors.SingleBit, sram.Correctable
	if severity == nvml.MEMORY_ERROR_TYPE_UNCORRECTED {
		at, onChip = errors.DoubleBit, sum(sram.UncorrectableParity, sram.UncorrectableSECDED)
	}
	return map[nvml.MemoryLocation]count{
		nvml.MEMORY_LOCATION_L1_CACHE: at.L1Cache, nvml.MEMORY_LOCATION_L2_CACHE: at.L2Cache,
		nvml.MEMORY_LOCATION_DRAM: at.DeviceMemory, nvml.MEMORY_LOCATION_REGISTER_FILE: at.RegisterFile,
		nvml.MEMORY_LOCATION_TEXTURE_MEMORY: at.TextureMemory,
		nvml.MEMORY_LOCATION_TEXTURE_SHM:    at.TextureSHM,
		nvml.MEMORY_LOCATION_CBU:            at.CBU,
		nvml.MEMORY_LOCATION_SRAM:           sum(onChip, at.SRAM), // boards before Ampere list it among the other locations
	}
}

// sum adds the counts that are present.
func sum(counts ...count) (all count) {
	for _, n := range counts {
		all = count{Value: all.Value + n.Value, Valid: all.Valid || n.Valid}
	}
	return all
}

// allErrors is the count of all locations: the sum, or what the profile gives if that is more.
func allErrors(d *profiles.Device, severity nvml.MemoryErrorType, life nvml.EccCounterType) count {
	counts := d.ECC.Errors.Volatile
	if life == nvml.AGGREGATE_ECC {
		counts = d.ECC.Errors.Aggregate
	}
	given := counts.SingleBit.Total
	if severity == nvml.MEMORY_ERROR_TYPE_UNCORRECTED {
		given = counts.DoubleBit.Total
	}
	all := total(errorsOf(d, severity, life))
	if !all.Valid || given.Valid && given.Value > all.Value {
		return given
	}
	return all
}

// total adds the counts of all locations.
func total(at map[nvml.MemoryLocation]count) (all count) {
	for _, n := range at {
		all = sum(all, n)
	}
	return all
}

func (c *checker) errors(dev nvml.Device, d *profiles.Device) {
	c.says("nvmlDeviceGetEccMode", bit(d.ECC.ModeCurrent), bit(d.ECC.ModePending))(dev.GetEccMode())
	c.says("nvmlDeviceGetDefaultEccMode", bit(d.ECC.DefaultMode))(dev.GetDefaultEccMode())
	for _, severity := range []nvml.MemoryErrorType{nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.MEMORY_ERROR_TYPE_UNCORRECTED} {
		for _, life := range []nvml.EccCounterType{nvml.VOLATILE_ECC, nvml.AGGREGATE_ECC} {
			at := errorsOf(d, severity, life)
			for location := nvml.MEMORY_LOCATION_L1_CACHE; location < nvml.MEMORY_LOCATION_COUNT; location++ {
				c.of("severity ", severity, ", life ", life, ", location ", location).says("nvmlDeviceGetMemoryErrorCounter",
					given(at[location]))(dev.GetMemoryErrorCounter(severity, life, location))
			}
			all := allErrors(d, severity, life)
			c.says("nvmlDeviceGetTotalEccErrors", given(all))(dev.GetTotalEccErrors(severity, life))
			c.says("nvmlDeviceGetDetailedEccErrors", when(all.Valid, nvml.EccErrorCounts{
				L1Cache:      at[nvml.MEMORY_LOCATION_L1_CACHE].Value,
				L2Cache:      at[nvml.MEMORY_LOCATION_L2_CACHE].Value,
				DeviceMemory: at[nvml.MEMORY_LOCATION_DRAM].Value,
				RegisterFile: at[nvml.MEMORY_LOCATION_REGISTER_FILE].Value,
			}))(dev.GetDetailedEccErrors(severity, life))
		}
	}
	const severities, lives = nvml.MEMORY_ERROR_TYPE_COUNT, nvml.ECC_COUNTER_TYPE_COUNT
	c.says("nvmlDeviceGetTotalEccErrors", nvml.ERROR_INVALID_ARGUMENT)(dev.GetTotalEccErrors(severities, nvml.VOLATILE_ECC))
	c.says("nvmlDeviceGetDetailedEccErrors", nvml.ERROR_INVALID_ARGUMENT)(
		dev.GetDetailedEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, lives))
	c.says("nvmlDeviceGetMemoryErrorCounter", nvml.ERROR_INVALID_ARGUMENT)(
		dev.GetMemoryErrorCounter(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC, nvml.MEMORY_LOCATION_COUNT))

	s := &d.ECC.SRAM
	c.says("nvmlDeviceGetSramEccErrorStatus", when(bool(d.ECC.ModeCurrent.Value) && s.Aggregate.Correctable.Valid,
		versioned(1, nvml.EccSramErrorStatus{
			AggregateUncParity:      s.Aggregate.UncorrectableParity.Value,
			AggregateUncSecDed:      s.Aggregate.UncorrectableSECDED.Value,
			AggregateCor:            s.Aggregate.Correctable.Value,
			VolatileUncParity:       s.Volatile.UncorrectableParity.Value,
			VolatileUncSecDed:       s.Volatile.UncorrectableSECDED.Value,
			VolatileCor:             s.Volatile.Correctable.Value,
			AggregateUncBucketL2:    s.UncorrectableSources.L2.Value,
			AggregateUncBucketSm:    s.UncorrectableSources.SM.Value,
			AggregateUncBucketPcie:  s.UncorrectableSources.PCIe.Value,
			AggregateUncBucketMcu:   s.UncorrectableSources.Microcontroller.Value,
			AggregateUncBucketOther: s.UncorrectableSources.Other.Value,
			BThresholdExceeded:      number(s.ThresholdExceeded.Value),
		})))(dev.GetSramEccErrorStatus())
}

func (c *checker) health(dev nvml.Device, d *profiles.Device) {
	for cause, r := range map[nvml.PageRetirementCause]profiles.Retirement{
		nvml.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS: d.RetiredPages.SingleBitRetirement,
		nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR:           d.RetiredPages.DoubleBitRetirement,
	} {
		c, pages := c.of("cause ", cause), when(r.Count.Valid, r.Addresses)
		c.says("nvmlDeviceGetRetiredPages", pages)(dev.GetRetiredPages(cause))
		c.says("nvmlDeviceGetRetiredPages_v2", pages, make([]int, len(r.Addresses)))(dev.GetRetiredPages_v2(cause)) // no times
	}
	c.says("nvmlDeviceGetRetiredPages", nvml.ERROR_INVALID_ARGUMENT)(dev.GetRetiredPages(nvml.PAGE_RETIREMENT_CAUSE_COUNT))
	c.says("nvmlDeviceGetRetiredPagesPendingStatus", bit(d.RetiredPages.PendingRetirement))(
		dev.GetRetiredPagesPendingStatus())

	r := &d.RemappedRows
	c.says("nvmlDeviceGetRemappedRows",
		given(r.Correctable), given(r.Uncorrectable), given(r.Pending), given(r.FailureOccurred))(dev.GetRemappedRows())
	c.says("nvmlDeviceGetRemappedRows_v2", when(r.Correctable.Valid, nvml.RemappedRowsInfo_v2{
		CorrActiveRemaps: r.Correctable.Value, CorrInactiveRemaps: r.CorrectableInactive.Value,
		UncActiveRemaps: r.Uncorrectable.Value, UncInactiveRemaps: r.UncorrectableInactive.Value,
		BPending: number(r.Pending.Value), BFailureOccurred: number(r.FailureOccurred.Value),
	}))(dev.GetRemappedRows_v2())
	h := &r.AvailabilityHistogram
	c.says("nvmlDeviceGetRowRemapperHistogram", when(h.Max.Valid, nvml.RowRemapperHistogramValues{
		Max: h.Max.Value, High: h.High.Value, Partial: h.Partial.Value, Low: h.Low.Value, None: h.None.Value,
	}))(dev.GetRowRemapperHistogram())

	c.says("nvmlDeviceGetRepairStatus", when(d.ECC.ChannelRepairPending.Valid, versioned(1, nvml.RepairStatus{
		BChannelRepairPending: number(d.ECC.ChannelRepairPending.Value),
		BTpcRepairPending:     number(d.ECC.TPCRepairPending.Value),
	})))(dev.GetRepairStatus())
	c.says("nvmlDeviceGetUnrepairableMemoryFlag_v1", when(d.ECC.UnrepairableMemory.Valid, nvml.UnrepairableMemoryStatus_v1{
		BUnrepairableMemory: number(d.ECC.UnrepairableMemory.Value),
	}))(dev.GetUnrepairableMemoryFlag_v1())
}

// requestedLimit is the limit that was asked for, which is the one in force if the profile does not tell.
func requestedLimit(p *profiles.Power) profiles.Opt[uint32] {
	if p.RequestedLimitMW.Valid {
		return p.RequestedLimitMW
	}
	return p.EnforcedLimitMW
}

func (c *checker) power(dev nvml.Device, d *profiles.Device) {
	p := &d.Power
	c.says("nvmlDeviceGetPowerUsage", given(p.CurrentDrawMW))(dev.GetPowerUsage())
	c.says("nvmlDeviceGetPowerManagementLimit", given(requestedLimit(p)))(dev.GetPowerManagementLimit())
	c.says("nvmlDeviceGetEnforcedPowerLimit", given(p.EnforcedLimitMW))(dev.GetEnforcedPowerLimit())
	c.says("nvmlDeviceGetPowerManagementDefaultLimit", given(p.DefaultLimitMW))(dev.GetPowerManagementDefaultLimit())
	c.says("nvmlDeviceGetPowerManagementLimitConstraints", given(p.MinLimitMW), given(p.MaxLimitMW))(
		dev.GetPowerManagementLimitConstraints())
	mode := bit(p.ManagementMode)
	if mode == nil { // if it can be managed, it is
		mode = when(p.ManagementSupported.Value, nvml.FEATURE_ENABLED)
	}
	if branch(c.T, c.board) >= 590 {
		mode = nvml.ERROR_DEPRECATED
	}
	c.says("nvmlDeviceGetPowerSource", named(p.Source, map[string]nvml.PowerSource{
		"ac": nvml.POWER_SOURCE_AC, "battery": nvml.POWER_SOURCE_BATTERY, "undersized": nvml.POWER_SOURCE_UNDERSIZED,
	}))(dev.GetPowerSource())
	c.says("nvmlDeviceGetPowerManagementMode", mode)(dev.GetPowerManagementMode())
	state := given(p.PowerState)
	if branch(c.T, c.board) >= 595 {
		state = nvml.ERROR_DEPRECATED
	}
	c.says("nvmlDeviceGetPowerState", state)(dev.GetPowerState())
	c.says("nvmlDeviceGetPerformanceState", given(d.PerformanceState))(dev.GetPerformanceState())

	const symbol = "nvmlDeviceGetTotalEnergyConsumption"
	if p.TotalEnergyConsumptionMJ.Valid {
		c.says(symbol, p.TotalEnergyConsumptionMJ.Value)(dev.GetTotalEnergyConsumption())
		return
	}
	if !p.CurrentDrawMW.Valid {
		c.says(symbol, nil)(dev.GetTotalEnergyConsumption())
		return
	}
	// Without a value in the profile it is the integral of the GPU's power, to the millisecond.
	read := func() (energy float64, before, after time.Time) {
		before = time.Now()
		mj, ret := dev.GetTotalEnergyConsumption()
		c.says(symbol, nvml.SUCCESS)(mj, ret)
		return float64(mj), before, time.Now()
	}
	e1, t1, t2 := read()
	time.Sleep(20 * time.Millisecond)
	e2, t3, t4 := read()
	draw := float64(p.CurrentDrawMW.Value)
	const step, rounding = 0.001, 2
	assert.GreaterOrEqual(c, e2-e1, draw*(t3.Sub(t2).Seconds()-step)-rounding, symbol)
	assert.LessOrEqual(c, e2-e1, draw*(t4.Sub(t1).Seconds()+step)+rounding, symbol)
}

func (c *checker) thermal(dev nvml.Device, d *profiles.Device) {
	t := &d.Thermal
	c.says("nvmlDeviceGetTemperature", given(t.TemperatureGPUC))(dev.GetTemperature(nvml.TEMPERATURE_GPU))
	c.says("nvmlDeviceGetTemperature", nil)(dev.GetTemperature(nvml.TEMPERATURE_GPU_MAX))
	c.says("nvmlDeviceGetTemperature", nvml.ERROR_INVALID_ARGUMENT)(dev.GetTemperature(nvml.TEMPERATURE_COUNT))
	c.says("nvmlDeviceGetTemperatureV", when(t.TemperatureGPUC.Valid, versioned(1, nvml.Temperature{
		SensorType: uint32(nvml.TEMPERATURE_GPU), Temperature: t.TemperatureGPUC.Value,
	})))(dev.GetTemperatureV().V1())
	c.says("nvmlDeviceGetMarginTemperature", when(t.TLimitC.Valid, versioned(1, nvml.MarginTemperature{
		MarginTemperature: t.TLimitC.Value,
	})))(dev.GetMarginTemperature())
	for threshold, want := range []profiles.Opt[int32]{
		nvml.TEMPERATURE_THRESHOLD_SHUTDOWN:      t.ShutdownThresholdC,
		nvml.TEMPERATURE_THRESHOLD_SLOWDOWN:      t.SlowdownThresholdC,
		nvml.TEMPERATURE_THRESHOLD_MEM_MAX:       t.MemoryMaxOperatingC,
		nvml.TEMPERATURE_THRESHOLD_GPU_MAX:       t.MaxOperatingC,
		nvml.TEMPERATURE_THRESHOLD_ACOUSTIC_MIN:  t.TargetTemperatureMinC,
		nvml.TEMPERATURE_THRESHOLD_ACOUSTIC_CURR: t.TargetTemperatureC,
		nvml.TEMPERATURE_THRESHOLD_ACOUSTIC_MAX:  t.TargetTemperatureMaxC,
		nvml.TEMPERATURE_THRESHOLD_GPS_CURR:      {},
	} {
		c.of("threshold ", threshold).says("nvmlDeviceGetTemperatureThreshold", given(want))(
			dev.GetTemperatureThreshold(nvml.TemperatureThresholds(threshold)))
	}
	c.says("nvmlDeviceGetTemperatureThreshold", nvml.ERROR_INVALID_ARGUMENT)(
		dev.GetTemperatureThreshold(nvml.TEMPERATURE_THRESHOLD_COUNT))

	f := &d.Fan
	last := int(f.Count.Or(1)) - 1
	fans := f.Count
	if !fans.Valid && f.SpeedPercent.Valid { // a speed is that of one fan at least
		fans = profiles.Some[uint32](1)
	}
	c.says("nvmlDeviceGetNumFans", given(fans))(dev.GetNumFans())
	c.says("nvmlDeviceGetFanSpeed", given(f.SpeedPercent))(dev.GetFanSpeed())
	c.says("nvmlDeviceGetFanSpeed_v2", given(f.SpeedPercent))(dev.GetFanSpeed_v2(last))
	c.says("nvmlDeviceGetTargetFanSpeed", given(f.TargetSpeedPercent))(dev.GetTargetFanSpeed(last))
	beyond := when(fans.Valid, nvml.ERROR_INVALID_ARGUMENT)
	c.says("nvmlDeviceGetFanSpeed_v2", beyond)(dev.GetFanSpeed_v2(last + 1))
	c.says("nvmlDeviceGetTargetFanSpeed", beyond)(dev.GetTargetFanSpeed(last + 1))
}

// lostTo is the time lost to power or temperature. A GPU that tells why its clocks are held down counts it from 0, if the
// profile has no counter.
func lostTo(r *profiles.ClocksThrottleReasons, us count) count {
	for _, reason := range []profiles.Opt[bool]{
		r.GPUIdle, r.ApplicationsClocksSetting, r.SWPowerCap, r.HWSlowdown, r.SyncBoost, r.SWThermalSlowdown, r.HWThermalSlowdown,
		r.HWPowerBrakeSlowdown, r.DisplayClocksSetting,
	} {
		us.Valid = us.Valid || reason.Valid
	}
	return us
}

func (c *checker) clocks(dev nvml.Device, d *profiles.Device) {
	clocks := &d.Clocks
	application := func(o profiles.Opt[uint32]) any {
		if branch(c.T, c.board) >= 590 { // drivers without applications clocks
			return nvml.ERROR_DEPRECATED
		}
		return given(o)
	}
	type clock = profiles.Opt[uint32]
	for domain, want := range map[nvml.ClockType]struct{ now, highest, application, reset, boost clock }{
		nvml.CLOCK_GRAPHICS: {clocks.GraphicsCurrent, clocks.GraphicsMax,
			clocks.GraphicsApp, clocks.GraphicsAppDefault, clocks.GraphicsCustomerBoostMax},
		nvml.CLOCK_SM: {clocks.SMCurrent, clocks.SMMax, // the other clocks are the graphics clock's
			clocks.GraphicsApp, clocks.GraphicsAppDefault, clocks.GraphicsCustomerBoostMax},
		nvml.CLOCK_MEM:   {clocks.MemoryCurrent, clocks.MemoryMax, clocks.MemoryApp, clocks.MemoryAppDefault, clock{}},
		nvml.CLOCK_VIDEO: {now: clocks.VideoCurrent, highest: clocks.VideoMax},
	} {
		c := c.of("domain ", domain)
		c.says("nvmlDeviceGetClockInfo", given(want.now))(dev.GetClockInfo(domain))
		c.says("nvmlDeviceGetMaxClockInfo", given(want.highest))(dev.GetMaxClockInfo(domain))
		c.says("nvmlDeviceGetApplicationsClock", application(want.application))(dev.GetApplicationsClock(domain))
		c.says("nvmlDeviceGetDefaultApplicationsClock", application(want.reset))(dev.GetDefaultApplicationsClock(domain))
		c.says("nvmlDeviceGetMaxCustomerBoostClock", given(want.boost))(dev.GetMaxCustomerBoostClock(domain))
		c.says("nvmlDeviceGetClock", given(want.now))(dev.GetClock(domain, nvml.CLOCK_ID_CURRENT))
		c.says("nvmlDeviceGetClock", application(want.application))(dev.GetClock(domain, nvml.CLOCK_ID_APP_CLOCK_TARGET))
		c.says("nvmlDeviceGetClock", application(want.reset))(dev.GetClock(domain, nvml.CLOCK_ID_APP_CLOCK_DEFAULT))
		c.says("nvmlDeviceGetClock", given(want.boost))(dev.GetClock(domain, nvml.CLOCK_ID_CUSTOMER_BOOST_MAX))
		c.says("nvmlDeviceGetClock", nvml.ERROR_INVALID_ARGUMENT)(dev.GetClock(domain, nvml.CLOCK_ID_COUNT))
	}
	c.says("nvmlDeviceGetClockInfo", nvml.ERROR_INVALID_ARGUMENT)(dev.GetClockInfo(nvml.CLOCK_COUNT))
	c.says("nvmlDeviceGetMaxClockInfo", nvml.ERROR_INVALID_ARGUMENT)(dev.GetMaxClockInfo(nvml.CLOCK_COUNT))
	c.says("nvmlDeviceGetMaxCustomerBoostClock", nvml.ERROR_INVALID_ARGUMENT)(dev.GetMaxCustomerBoostClock(nvml.CLOCK_COUNT))
	c.says("nvmlDeviceGetAutoBoostedClocksEnabled", bit(clocks.AutoBoost), bit(clocks.AutoBoostDefault))(
		dev.GetAutoBoostedClocksEnabled())

	r := &d.ClocksThrottleReasons
	var active, supported uint64
	for reason, o := range map[uint64]profiles.Opt[bool]{
		nvml.ClocksEventReasonGpuIdle:                   r.GPUIdle,
		nvml.ClocksEventReasonApplicationsClocksSetting: r.ApplicationsClocksSetting,
		nvml.ClocksEventReasonSwPowerCap:                r.SWPowerCap,
		nvml.ClocksThrottleReasonHwSlowdown:             r.HWSlowdown,
		nvml.ClocksEventReasonSyncBoost:                 r.SyncBoost,
		nvml.ClocksEventReasonSwThermalSlowdown:         r.SWThermalSlowdown,
		nvml.ClocksThrottleReasonHwThermalSlowdown:      r.HWThermalSlowdown,
		nvml.ClocksThrottleReasonHwPowerBrakeSlowdown:   r.HWPowerBrakeSlowdown,
		nvml.ClocksEventReasonDisplayClockSetting:       r.DisplayClocksSetting,
	} {
		active |= reason * uint64(number(o.Value))
		supported |= reason * uint64(number(o.Valid))
	}
	c.says("nvmlDeviceGetCurrentClocksEventReasons", when(supported != 0, active))(dev.GetCurrentClocksEventReasons())
	c.says("nvmlDeviceGetCurrentClocksThrottleReasons", when(supported != 0, active))(dev.GetCurrentClocksThrottleReasons())
	c.says("nvmlDeviceGetSupportedClocksEventReasons", when(supported != 0, supported))(dev.GetSupportedClocksEventReasons())
	c.says("nvmlDeviceGetSupportedClocksThrottleReasons", when(supported != 0, supported))(
		dev.GetSupportedClocksThrottleReasons())

	const violations = "nvmlDeviceGetViolationStatus"
	for policy, us := range map[nvml.PerfPolicyType]count{
		nvml.PERF_POLICY_POWER: lostTo(r, r.Counters.SWPowerCapUS), nvml.PERF_POLICY_THERMAL: lostTo(r, r.Counters.SWThermalSlowdownUS),
		nvml.PERF_POLICY_SYNC_BOOST: r.Counters.SyncBoostUS, nvml.PERF_POLICY_TOTAL_APP_CLOCKS: {},
	} {
		v, ret := dev.GetViolationStatus(policy)
		c.of("policy ", policy).says(violations, times(1000, us))(v.ViolationTime, ret)
		if us.Valid {
			c.now(violations, v.ReferenceTime)
		}
	}
	c.says(violations, nvml.ERROR_INVALID_ARGUMENT)(dev.GetViolationStatus(nvml.PERF_POLICY_RELIABILITY + 1))
	c.says(violations, nvml.ERROR_INVALID_ARGUMENT)(dev.GetViolationStatus(nvml.PERF_POLICY_COUNT))
}

func (c *checker) utilization(dev nvml.Device, d *profiles.Device) {
	u := &d.Utilization
	const period = 167000 // µs, as on captured boards
	c.says("nvmlDeviceGetUtilizationRates", when(u.GPU.Valid || u.Memory.Valid, nvml.Utilization{
		Gpu: u.GPU.Value, Memory: u.Memory.Value,
	}))(dev.GetUtilizationRates())
	c.says("nvmlDeviceGetEncoderUtilization", given(u.Encoder), period)(dev.GetEncoderUtilization())
	c.says("nvmlDeviceGetDecoderUtilization", given(u.Decoder), period)(dev.GetDecoderUtilization())
	c.says("nvmlDeviceGetJpgUtilization", given(u.JPEG), period)(dev.GetJpgUtilization())
	c.says("nvmlDeviceGetOfaUtilization", given(u.OFA), period)(dev.GetOfaUtilization())
	encoder, fbc := &d.EncoderStats, &d.FBCStats
	c.says("nvmlDeviceGetEncoderStats",
		given(encoder.SessionCount), given(encoder.AverageFPS), given(encoder.AverageLatencyUS))(dev.GetEncoderStats())
	c.says("nvmlDeviceGetFBCStats", when(fbc.SessionCount.Valid, nvml.FBCStats{
		SessionsCount: fbc.SessionCount.Value, AverageFPS: fbc.AverageFPS.Value, AverageLatency: fbc.AverageLatencyUS.Value,
	}))(dev.GetFBCStats())
	c.says("nvmlDeviceGetEncoderSessions", when(encoder.SessionCount.Valid, []nvml.EncoderSessionInfo{}))(
		dev.GetEncoderSessions())
	c.says("nvmlDeviceGetFBCSessions", when(fbc.SessionCount.Valid, []nvml.FBCSessionInfo{}))(dev.GetFBCSessions())
	c.samples(dev, d)
}

// samples checks that there are samples and that they equal the present readings, which are constant on these boards.
func (c *checker) samples(dev nvml.Device, d *profiles.Device) {
	for kind, reading := range map[nvml.SamplingType]profiles.Opt[uint32]{
		nvml.TOTAL_POWER_SAMPLES:        d.Power.CurrentDrawMW,
		nvml.MODULE_POWER_SAMPLES:       d.ModulePower.CurrentDrawMW,
		nvml.GPU_UTILIZATION_SAMPLES:    d.Utilization.GPU,
		nvml.MEMORY_UTILIZATION_SAMPLES: d.Utilization.Memory,
		nvml.ENC_UTILIZATION_SAMPLES:    d.Utilization.Encoder,
		nvml.DEC_UTILIZATION_SAMPLES:    d.Utilization.Decoder,
		nvml.JPG_UTILIZATION_SAMPLES:    d.Utilization.JPEG,
		nvml.OFA_UTILIZATION_SAMPLES:    d.Utilization.OFA,
		nvml.PROCESSOR_CLK_SAMPLES:      d.Clocks.SMCurrent,
		nvml.MEMORY_CLK_SAMPLES:         d.Clocks.MemoryCurrent,
	} {
		numbers, list, ret := dev.GetSamples(kind, 0)
		c.of(kind).says("nvmlDeviceGetSamples", when(reading.Valid, nvml.VALUE_TYPE_UNSIGNED_INT))(numbers, ret)
		assert.Equal(c, reading.Valid, len(list) > 0)
		for _, s := range list {
			assert.Equal(c, uint64(reading.Value), binary.NativeEndian.Uint64(s.SampleValue[:]))
		}
		if len(list) > 0 {
			c.now("nvmlDeviceGetSamples", list[len(list)-1].TimeStamp)
		}
	}
}

// processesOf are the device's processes of a kind, C or G. If the profile gives no memory, it is VALUE_NOT_AVAILABLE.
func processesOf(d *profiles.Device, kind string) []nvml.ProcessInfo {
	var list []nvml.ProcessInfo
	for _, p := range d.Processes {
		if strings.Contains(p.Type.Or("C"), kind) {
			list = append(list, nvml.ProcessInfo{
				Pid: p.PID, UsedGpuMemory: usedMemory(&p), GpuInstanceId: math.MaxUint32, ComputeInstanceId: math.MaxUint32,
			})
		}
	}
	return list
}

func usedMemory(p *profiles.Process) uint64 {
	if !p.UsedMemoryMiB.Valid {
		return math.MaxUint64
	}
	return p.UsedMemoryMiB.Value << 20
}

func (c *checker) processes(dev nvml.Device, d *profiles.Device) {
	c.says("nvmlDeviceGetComputeRunningProcesses_v3", processesOf(d, "C"))(dev.GetComputeRunningProcesses())
	c.says("nvmlDeviceGetGraphicsRunningProcesses_v3", processesOf(d, "G"))(dev.GetGraphicsRunningProcesses())
	c.says("nvmlDeviceGetMPSComputeRunningProcesses_v3", []nvml.ProcessInfo{})(dev.GetMPSComputeRunningProcesses())

	const symbol = "nvmlDeviceGetProcessUtilization"
	var want any = nvml.ERROR_NOT_FOUND
	var busy []nvml.ProcessUtilizationSample
	for _, p := range d.Processes {
		s := nvml.ProcessUtilizationSample{
			Pid: p.PID, SmUtil: p.SMUtil.Value, MemUtil: p.MemUtil.Value, EncUtil: p.EncUtil.Value, DecUtil: p.DecUtil.Value,
		}
		if s.SmUtil|s.MemUtil|s.EncUtil|s.DecUtil != 0 {
			busy = append(busy, s)
			want = busy
		}
	}
	samples, ret := dev.GetProcessUtilization(0)
	for i := range samples {
		c.now(symbol, samples[i].TimeStamp)
		samples[i].TimeStamp = 0
	}
	c.says(symbol, want)(samples, ret)
	tomorrow := uint64(time.Now().Add(24 * time.Hour).UnixMicro())
	c.says(symbol, nvml.ERROR_NOT_FOUND)(dev.GetProcessUtilization(tomorrow))
}

// accounting: while accounting is off, captured boards answer an empty list, although NVML documents NOT_SUPPORTED.
func (c *checker) accounting(dev nvml.Device, d *profiles.Device) {
	const v1, v2 = "nvmlDeviceGetAccountingStats", "nvmlDeviceGetAccountingStats_v2"
	c.says("nvmlDeviceGetAccountingMode", bit(d.Accounting.Mode))(dev.GetAccountingMode())
	c.says("nvmlDeviceGetAccountingBufferSize", given(d.Accounting.BufferSize))(dev.GetAccountingBufferSize())
	pids := []uint32{}
	if d.Accounting.Mode.Value {
		for _, p := range d.Processes {
			pids = append(pids, p.PID)
			c.says(v1, nvml.AccountingStats{
				GpuUtilization: p.SMUtil.Or(math.MaxUint32), MemoryUtilization: p.MemUtil.Or(math.MaxUint32),
				MaxMemoryUsage: usedMemory(&p), IsRunning: 1,
			})(dev.GetAccountingStats(p.PID))
			c.says(v2, nvml.AccountingStats_v2{
				Pid: p.PID, GpuUtilization: p.SMUtil.Or(math.MaxUint32), MemoryUtilization: p.MemUtil.Or(math.MaxUint32),
				MaxMemoryUsage: usedMemory(&p), IsRunning: 1,
			})(dev.GetAccountingStats_v2(p.PID))
		}
	}
	c.says("nvmlDeviceGetAccountingPids", when(d.Accounting.Mode.Valid, pids))(dev.GetAccountingPids())
	unknown := when(d.Accounting.Mode.Value, nvml.ERROR_NOT_FOUND)
	c.says(v1, unknown)(dev.GetAccountingStats(math.MaxUint32))
	c.says(v2, unknown)(dev.GetAccountingStats_v2(math.MaxUint32))
}
