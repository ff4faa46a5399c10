package engine

import (
	"math"
	"time"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// Readings that move are functions of time, seed and device alone, so that all processes agree. They follow the
// profile's dynamic_metrics where it has any, and are otherwise what the profile says.

// loaded is when every driver was loaded, as far as its counters are concerned.
var loaded = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// elapsed is the time since then, in s.
func (d *Device) elapsed() float64 { return max(d.snapshot.Now().Sub(loaded).Seconds(), 0) }

// reading keeps the noise of one reading apart from that of another.
type reading uint64

const (
	temperature reading = iota + 1
	power
	gpuLoad
	memoryLoad
)

// noise is a number from 0 to 1, another one every second.
func (d *Device) noise(r reading, now time.Time) float64 {
	x := mix(uint64(d.DynamicMetrics.Seed.Or(0)))
	for _, n := range [...]uint64{uint64(d.Index), uint64(r), uint64(now.Unix())} {
		x = mix(x ^ n)
	}
	return float64(x>>11) / (1 << 53)
}

// mix is the output function of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// between maps a number from 0 to 1 onto the integers from lo to hi.
func between(lo, hi int64, at float64) int64 {
	return min(lo+int64(at*float64(hi-lo+1)), hi)
}

// seconds is the time since 1970.
func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// Temperature is the GPU's temperature, in °C: base, above it a sine wave of the ramp's height, and noise to either side.
func (d *Device) Temperature() profiles.Opt[int32] {
	m, static := d.DynamicMetrics.Temperature, d.Thermal.TemperatureGPUC
	if m == (profiles.DynamicTemperature{}) {
		return static
	}
	now := d.snapshot.Now()
	turn := seconds(now) / float64(max(m.RampPeriodSec.Or(60), 1))
	wave := (1 + math.Sin(2*math.Pi*turn)) / 2 * float64(m.RampC.Or(0))
	v := int64(m.VarianceC.Or(0))
	t := int64(m.BaseC.Or(static.Or(0))) + int64(math.Round(wave)) + between(-v, v, d.noise(temperature, now))
	if limit, ok := d.Thermal.ShutdownThresholdC.Get(); ok {
		t = min(t, int64(limit))
	}
	return profiles.Some(int32(max(t, 0)))
}

// TLimit is how far the GPU is below its limit, in °C; it falls as the temperature rises.
func (d *Device) TLimit() profiles.Opt[int32] {
	limit := d.Thermal.TLimitC
	if now, ok := d.Temperature().Get(); ok && limit.Valid {
		limit.Value += d.Thermal.TemperatureGPUC.Or(now) - now
	}
	return limit
}

// PowerDraw is the power that the GPU draws now, in mW.
func (d *Device) PowerDraw() profiles.Opt[uint32] { return d.PowerDrawAt(d.snapshot.Now()) }

// PowerDrawAt is the power that the GPU draws at a time, in mW: base and noise to either side, up to the limit in force.
func (d *Device) PowerDrawAt(now time.Time) profiles.Opt[uint32] {
	m, static := d.DynamicMetrics.Power, d.Power.CurrentDrawMW
	if m == (profiles.DynamicPower{}) {
		return static
	}
	v := int64(m.VarianceMW.Or(0))
	p := int64(m.BaseMW.Or(static.Or(0))) + between(-v, v, d.noise(power, now))
	if limit, ok := d.Power.EnforcedLimitMW.Get(); ok {
		p = min(p, int64(limit))
	}
	return profiles.Some(uint32(max(p, 0)))
}

// AveragePowerDraw is the power drawn over the last second, in mW. It is only known where the profile gives one.
func (d *Device) AveragePowerDraw() profiles.Opt[uint32] {
	if d.Power.AverageDrawMW.Valid && d.DynamicMetrics.Power != (profiles.DynamicPower{}) {
		return d.PowerDraw()
	}
	return d.Power.AverageDrawMW
}

// Energy is the energy used so far, in mJ. Where the profile gives none, or the power moves, it grows by the power drawn.
func (d *Device) Energy() profiles.Opt[uint64] {
	static, m := d.Power.TotalEnergyConsumptionMJ, d.DynamicMetrics.Power
	if static.Valid && m == (profiles.DynamicPower{}) {
		return static
	}
	mean := d.Power.CurrentDrawMW
	if m.BaseMW.Valid {
		mean = m.BaseMW
	}
	if !mean.Valid {
		return static
	}
	return profiles.Some(static.Or(0) + uint64(float64(mean.Value)*d.elapsed()))
}

// Load is how busy the GPU's parts are now, all in percent.
func (d *Device) Load() profiles.Utilization { return d.LoadAt(d.snapshot.Now()) }

// LoadAt is how busy the GPU's parts are at a time, all in percent. What its processes use is included.
func (d *Device) LoadAt(now time.Time) profiles.Utilization {
	u, m := d.Utilization, d.DynamicMetrics.Utilization
	if m != (profiles.DynamicUtilization{}) {
		u.GPU = profiles.Some(load(m, m.GPUMin, m.GPUMax, now, d.noise(gpuLoad, now)))
		u.Memory = profiles.Some(load(m, m.MemoryMin, m.MemoryMax, now, d.noise(memoryLoad, now)))
	}
	var used struct{ sm, mem, enc, dec uint32 }
	for _, p := range d.Processes {
		used.sm += p.SMUtil.Or(0)
		used.mem += p.MemUtil.Or(0)
		used.enc += p.EncUtil.Or(0)
		used.dec += p.DecUtil.Or(0)
	}
	atLeast(&u.GPU, used.sm)
	atLeast(&u.Memory, used.mem)
	atLeast(&u.Encoder, used.enc)
	atLeast(&u.Decoder, used.dec)
	return u
}

// load is a percentage from lo to hi: from all of that range, or from its lowest or highest quarter if the pattern
// says idle or busy. A burst alternates between the two.
func load(m profiles.DynamicUtilization, least, most profiles.Opt[uint32], now time.Time, at float64) uint32 {
	hi := int64(most.Or(100))
	lo := min(int64(least.Or(0)), hi)
	quarter := (hi - lo) / 4
	idle := m.Pattern.Value == "idle"
	busy := m.Pattern.Value == "busy"
	if m.Pattern.Value == "burst" {
		turn := now.Unix() / int64(max(m.BurstPeriodSec.Or(30), 1))
		idle, busy = turn%2 == 0, turn%2 != 0
	}
	switch {
	case idle:
		hi = lo + quarter
	case busy:
		lo = hi - quarter
	}
	return uint32(between(lo, hi, at))
}

func atLeast(percent *profiles.Opt[uint32], n uint32) {
	if n > percent.Or(0) {
		*percent = profiles.Some(min(n, 100))
	}
}
