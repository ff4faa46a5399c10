package simulate

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// Reason is a set of reasons that hold clocks down.
type Reason uint16

// The reasons have the names that the profile uses.
const (
	GPUIdle Reason = 1 << iota
	ApplicationsClocksSetting
	SWPowerCap
	HWSlowdown
	SyncBoost
	SWThermalSlowdown
	HWThermalSlowdown
	HWPowerBrakeSlowdown
	DisplayClocksSetting
)

// Readings are a device's readings in one second. A reading that the device does not have is not valid.
type Readings struct {
	Utilization  profiles.Utilization
	PowerMW      profiles.Opt[uint32]
	TemperatureC profiles.Opt[int32]
	// TLimitC is how far the GPU is below its limit, in °C; it falls as the temperature rises.
	TLimitC                      profiles.Opt[int32]
	GraphicsMHz, SMMHz, VideoMHz profiles.Opt[uint32]
	MemoryMHz                    profiles.Opt[uint32]
	KnownReasons, ReasonsInForce Reason
}

// Start describes the start of a course that replaces another one: the second since 1970, and how warm the GPU was in
// it. The zero Start is a GPU that has always followed this course.
type Start struct {
	Second int64
	Warmth float64
}

// Course is the course of a device's readings over time. It is computed at the first request for a reading.
type Course struct {
	in    inputs
	steps []uint32 // the supported graphics clocks, highest first
	start Start
	known Reason // reasons that the board can report
	given Reason // reasons that the profile gives

	once   sync.Once
	still  Readings // the constant readings; those that change are valid here if the device has them
	rows   stretch  // one period
	head   stretch  // the seconds after the start, until the earlier warmth has no effect
	warmth []float64
	latest atomic.Pointer[reading] // the last answer of At
}

// reading are the readings of a second since 1970.
type reading struct {
	second int64
	Readings
}

// row is one second of a course, and the counts from the start of the stretch up to that second.
type row struct {
	energy              uint64    // so far, in mJ
	lost                [3]uint32 // so far, in s
	busy                uint64    // so far, in percent times seconds
	power               uint32
	temperature         int32
	graphics, sm, video uint32
	gpu, memory         uint8
	reasons             Reason
	limits              Reason // what lowers the clocks, whether or not the board can report it
}

// stretch is a number of consecutive seconds. Its last row has only the counts.
type stretch []row

// New is the course of a device.
func New(d *profiles.Device, s Settings, start Start) *Course {
	c := &Course{in: inputsOf(d, s), start: start}
	if clocks := d.SupportedClocks.MemoryClocks; len(clocks) > 0 {
		c.steps = clocks[0].GraphicsClocks
	}
	c.known, c.given = reasons(&d.ClocksThrottleReasons)
	return c
}

// Same reports whether the course also describes a device with these settings.
func (c *Course) Same(d *profiles.Device, s Settings) bool {
	other := New(d, s, Start{})
	return c.in == other.in && slices.Equal(c.steps, other.steps)
}

// Moves reports whether the readings change over time.
func (c *Course) Moves() bool { return c.in.period() > 1 }

// At returns the device's readings in a second since 1970, which must not be changed: calls in the same second share them.
func (c *Course) At(second int64) *Readings {
	if l := c.latest.Load(); l != nil && l.second == second {
		return &l.Readings
	}
	c.once.Do(c.build)
	l := &reading{second, c.still}
	r, row := &l.Readings, c.row(second)
	r.Utilization.GPU.Value, r.Utilization.Memory.Value = uint32(row.gpu), uint32(row.memory)
	r.PowerMW.Value = row.power
	r.TemperatureC.Value = row.temperature
	r.TLimitC.Value += c.in.thermal.TemperatureGPUC.Or(row.temperature) - row.temperature
	r.GraphicsMHz.Value, r.SMMHz.Value, r.VideoMHz.Value = row.graphics, row.sm, row.video
	r.ReasonsInForce = row.reasons
	c.latest.Store(l)
	return r
}

func (c *Course) row(second int64) *row {
	if i := second - c.start.Second; i >= 0 && i < c.head.seconds() {
		return &c.head[i]
	}
	return &c.rows[modulo(second, c.rows.seconds())]
}

// Start returns the Start of a course that replaces this one in a second.
func (c *Course) Start(second int64) Start {
	c.once.Do(c.build)
	return Start{second, c.warmthAt(second)}
}

// warmthAt is the warmth at the start of a second: the part of the temperature ramp, from 0 to 1, that the GPU has gone
// up.
func (c *Course) warmthAt(second int64) float64 {
	if len(c.warmth) == 0 {
		return 0
	}
	warmth := c.warmth[modulo(second, int64(len(c.warmth)))]
	if i := second - c.start.Second; i >= 0 && i < c.head.seconds() {
		warmth += c.excess() * math.Exp(-float64(i)/inertia)
	}
	return warmth
}

// excess is the GPU's warmth at the start, minus the warmth that this course's load would have caused.
func (c *Course) excess() float64 {
	return c.start.Warmth - c.warmth[modulo(c.start.Second, int64(len(c.warmth)))]
}

// build computes the course.
func (c *Course) build() {
	in, period := &c.in, c.in.period()
	loads := make([]load, period)
	for s := range loads {
		loads[s] = in.load(int64(s))
	}
	if in.heats() {
		c.warmth = warmths(loads)
	}
	fill := func(first, seconds int64) stretch {
		rows := make(stretch, seconds+1)
		for i := range seconds {
			s := modulo(first+i, period)
			rows[i].read(c, loads[s], in.temperature(s, period, c.warmthAt(first+i)))
			rows[i].count(&rows[i+1])
		}
		return rows
	}
	c.rows = fill(0, period)
	c.still = c.template()
	if in.heats() && c.start != (Start{}) {
		// A difference below half a degree cannot be seen.
		seen := math.Abs(c.excess()) * float64(in.dynamic.Temperature.RampC.Or(0)) * 2
		c.head = make(stretch, 1+int64(inertia*math.Log(max(seen, 1))))
		c.head = fill(c.start.Second, c.head.seconds())
	}
}

// warmths is the first-order response to a repeating load: each second the warmth moves a fixed part of the way to the
// load.
func warmths(loads []load) []float64 {
	keep := math.Exp(-1.0 / inertia)
	next := func(warmth float64, l load) float64 { return warmth*keep + float64(l.gpu)/100*(1-keep) }
	var after float64 // the warmth after a period that starts cold
	for _, l := range loads {
		after = next(after, l)
	}
	list := make([]float64, len(loads))
	warmth := after / (1 - math.Pow(keep, float64(len(loads)))) // so that the period starts as warm as it ends
	for s, l := range loads {
		list[s] = warmth
		warmth = next(warmth, l)
	}
	return list
}

// read computes one second from the demanded load and the temperature.
func (r *row) read(c *Course, l load, temperature int32) {
	in := &c.in
	r.gpu, r.memory, r.temperature = uint8(l.gpu), uint8(l.memory), temperature

	speed, limits := in.set(l.gpu > 0) // of the clocks that the profile gives
	r.limits |= limits
	if in.temperatureMoves() {
		hot := func(threshold profiles.Opt[int64]) bool {
			return threshold.Valid && int64(temperature) >= threshold.Value
		}
		t, slowdown := &in.thermal, 1.0
		if hot(in.degrees(t.MaxOperatingC, t.TLimitMaxOperatingC)) {
			r.limits |= SWThermalSlowdown
			slowdown = swSlowdown
		}
		if hot(in.degrees(t.SlowdownThresholdC, t.TLimitSlowdownC)) {
			r.limits |= HWThermalSlowdown
			slowdown = hwSlowdown
		}
		speed *= slowdown
	}
	r.power = in.demand(l)
	if in.powerMoves() {
		asked := float64(r.power) * min(speed, 1)
		r.power = uint32(asked)
		limit := in.settings.PowerLimitMW.Or(in.power.EnforcedLimitMW.Or(math.MaxUint32))
		if r.power > limit {
			r.limits |= SWPowerCap
			speed *= float64(limit) / asked
			r.power = limit
		}
	}
	shift := int64(0)
	if l.gpu > 0 {
		shift = int64(in.settings.OffsetMHz)
	}
	r.graphics = c.clock(in.clocks.GraphicsCurrent, speed, shift)
	r.sm = c.clock(in.clocks.SMCurrent, speed, shift)
	r.video = c.clock(in.clocks.VideoCurrent, speed, 0)
	r.video = min(r.video, max(in.clocks.VideoMax.Or(r.video), in.clocks.VideoCurrent.Value))
	r.reasons = in.inForce(c.given, r) & c.known
}

// These are the parts of their speed that slowed clocks keep. NVML documents that the hardware's slowdown halves them
// or more.
const (
	swSlowdown = 0.75
	hwSlowdown = 0.5
)

// set is the speed of the graphics clock as setters want it, as a part of its full speed, and what lowers it. A lock
// counts more than the applications clock.
func (in *inputs) set(busy bool) (speed float64, limits Reason) {
	full, s := in.clocks.GraphicsCurrent.Or(0), &in.settings
	if full == 0 {
		return 1, 0
	}
	clock := full
	if busy {
		clock = uint32(max(int64(full)+int64(s.OffsetMHz), 0))
	}
	switch {
	case s.LockedMinMHz.Valid || s.LockedMaxMHz.Valid:
		clock = max(clock, s.LockedMinMHz.Or(clock))
		clock = min(clock, s.LockedMaxMHz.Or(clock))
	case clock > s.ApplicationsMHz.Or(clock):
		clock, limits = s.ApplicationsMHz.Value, ApplicationsClocksSetting
	}
	return float64(clock) / float64(full), limits
}

// clock is a clock at a part of its full speed, in MHz: the highest clock that the board supports at or below that
// speed, but no lower than its lowest. The clocks that the board supports are shifted by a number of MHz.
func (c *Course) clock(full profiles.Opt[uint32], speed float64, shift int64) uint32 {
	if speed == 1 {
		return full.Value
	}
	mhz := uint32(float64(full.Value)*speed + 1e-6) // the margin absorbs rounding errors
	shifted := func(step uint32) uint32 { return uint32(max(int64(step)+shift, 0)) }
	for _, step := range c.steps {
		if shifted(step) <= mhz {
			return shifted(step)
		}
	}
	if n := len(c.steps); n > 0 {
		return min(full.Value, shifted(c.steps[n-1]))
	}
	return mhz
}

// reasons are those that the board can report, and those that its profile gives.
func reasons(r *profiles.ClocksThrottleReasons) (known, given Reason) {
	for i, o := range [...]profiles.Opt[bool]{
		r.GPUIdle, r.ApplicationsClocksSetting, r.SWPowerCap, r.HWSlowdown, r.SyncBoost, r.SWThermalSlowdown,
		r.HWThermalSlowdown, r.HWPowerBrakeSlowdown, r.DisplayClocksSetting,
	} {
		if o.Valid {
			known |= 1 << i
		}
		if o.Value {
			given |= 1 << i
		}
	}
	return known, given
}

// inForce are the reasons in force in a second. Reasons that depend on changing readings are computed; the profile
// gives the others.
func (in *inputs) inForce(reasons Reason, row *row) Reason {
	if in.loadMoves() {
		reasons |= GPUIdle
	}
	if row.gpu > 0 {
		reasons &^= GPUIdle // a busy GPU is not idle
	}
	if in.powerMoves() {
		reasons &^= SWPowerCap
	}
	if in.temperatureMoves() {
		reasons &^= SWThermalSlowdown | HWThermalSlowdown | HWSlowdown
		if row.limits&HWThermalSlowdown != 0 || reasons&HWPowerBrakeSlowdown != 0 {
			reasons |= HWSlowdown
		}
	}
	return reasons | row.limits
}

// template is the part of the readings that is the same in all rows.
func (c *Course) template() Readings {
	in := &c.in
	r := Readings{
		Utilization:  in.utilization,
		PowerMW:      in.power.CurrentDrawMW,
		TemperatureC: in.thermal.TemperatureGPUC,
		TLimitC:      in.thermal.TLimitC,
		GraphicsMHz:  in.clocks.GraphicsCurrent,
		SMMHz:        in.clocks.SMCurrent,
		VideoMHz:     in.clocks.VideoCurrent,
		MemoryMHz:    in.memory,
		KnownReasons: c.known,
	}
	if in.loadMoves() {
		r.Utilization.GPU.Valid, r.Utilization.Memory.Valid = true, true
	}
	if in.dynamic.Power != (profiles.DynamicPower{}) {
		r.PowerMW.Valid = true
	}
	if in.temperatureMoves() {
		r.TemperatureC.Valid = true
	}
	return r
}

func (s stretch) seconds() int64 { return max(int64(len(s))-1, 0) }

func modulo(n, of int64) int64 { return ((n % of) + of) % of }
