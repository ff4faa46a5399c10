package simulate

import (
	"math"
	"slices"
	"sync"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// Reason is a set of reasons that hold clocks down.
type Reason uint16

// The reasons, as the profile names them.
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

// Readings are what a device reads in one second. What the device does not have is not valid.
type Readings struct {
	Utilization  profiles.Utilization
	PowerMW      profiles.Opt[uint32]
	TemperatureC profiles.Opt[int32]
	// TLimitC is how far the GPU is below its limit, in °C; it falls as the temperature rises.
	TLimitC                      profiles.Opt[int32]
	GraphicsMHz, SMMHz, VideoMHz profiles.Opt[uint32]
	KnownReasons, ReasonsInForce Reason
}

// Start is how a course that takes the place of another begins: in which second since 1970, and how warm the GPU was
// then. The zero Start is a GPU that has always been as it is.
type Start struct {
	Second int64
	Warmth float64
}

// Course is the course of one device's readings. It is worked out when somebody first asks for a reading.
type Course struct {
	in    inputs
	steps []uint32 // the supported graphics clocks, highest first
	start Start
	known Reason // what the board can give
	given Reason // what the profile gives

	once   sync.Once
	still  Readings // what does not move, and which of what moves there is
	rows   stretch  // one period
	head   stretch  // the seconds from the start until the warmth of before is gone
	warmth []float64
}

// row is one second of a course, and what has been counted before it since the stretch began.
type row struct {
	energy              uint64    // so far, in mJ
	lost                [3]uint32 // so far, in s
	power               uint32
	temperature         int32
	graphics, sm, video uint32
	gpu, memory         uint8
	reasons             Reason
	limits              Reason // what lowers the clocks, whether or not the board can say so
}

// stretch is some seconds in a row. The last row only has what was counted.
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

// Same says whether a device with these settings goes on as the course does.
func (c *Course) Same(d *profiles.Device, s Settings) bool {
	other := New(d, s, Start{})
	return c.in == other.in && slices.Equal(c.steps, other.steps)
}

// Moves says that readings change.
func (c *Course) Moves() bool { return c.in.period() > 1 }

// At is what the device reads in a second since 1970.
func (c *Course) At(second int64) Readings {
	c.once.Do(c.build)
	r := c.still
	row := c.row(second)
	r.Utilization.GPU.Value, r.Utilization.Memory.Value = uint32(row.gpu), uint32(row.memory)
	r.PowerMW.Value = row.power
	r.TemperatureC.Value = row.temperature
	r.TLimitC.Value += c.in.thermal.TemperatureGPUC.Or(row.temperature) - row.temperature
	r.GraphicsMHz.Value, r.SMMHz.Value, r.VideoMHz.Value = row.graphics, row.sm, row.video
	r.ReasonsInForce = row.reasons
	return r
}

func (c *Course) row(second int64) *row {
	if i := second - c.start.Second; i >= 0 && i < c.head.seconds() {
		return &c.head[i]
	}
	return &c.rows[modulo(second, c.rows.seconds())]
}

// Start is how a course that takes this one's place in a second begins.
func (c *Course) Start(second int64) Start {
	c.once.Do(c.build)
	return Start{second, c.warmthAt(second)}
}

// warmthAt is the part, from 0 to 1, of the ramp that the GPU has warmed up by at the start of a second.
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

// excess is how much warmer the GPU was at the start than its load would have made it.
func (c *Course) excess() float64 {
	return c.start.Warmth - c.warmth[modulo(c.start.Second, int64(len(c.warmth)))]
}

// build works out the course.
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
		// Less than half a degree is not seen.
		seen := math.Abs(c.excess()) * float64(in.dynamic.Temperature.RampC.Or(0)) * 2
		c.head = make(stretch, 1+int64(inertia*math.Log(max(seen, 1))))
		c.head = fill(c.start.Second, c.head.seconds())
	}
}

// warmths is the first-order response to a load that repeats: each second takes the warmth a part of the way to the load.
func warmths(loads []load) []float64 {
	keep := math.Exp(-1.0 / inertia)
	next := func(warmth float64, l load) float64 { return warmth*keep + float64(l.gpu)/100*(1-keep) }
	var after float64 // a period that began cold
	for _, l := range loads {
		after = next(after, l)
	}
	list := make([]float64, len(loads))
	warmth := after / (1 - math.Pow(keep, float64(len(loads)))) // begins as warm as it ends
	for s, l := range loads {
		list[s] = warmth
		warmth = next(warmth, l)
	}
	return list
}

// read works out one second from the load that is asked for and the temperature.
func (r *row) read(c *Course, l load, temperature int32) {
	in := &c.in
	r.gpu, r.memory, r.temperature = uint8(l.gpu), uint8(l.memory), temperature

	speed := in.locked() // of the clocks that the profile gives
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
	r.graphics = c.clock(in.clocks.GraphicsCurrent, speed)
	r.sm = c.clock(in.clocks.SMCurrent, speed)
	r.video = c.clock(in.clocks.VideoCurrent, speed)
	r.reasons = in.inForce(c.given, r) & c.known
}

// How much of their speed slowdowns leave the clocks: NVML promises half or less from the hardware's.
const (
	swSlowdown = 0.75
	hwSlowdown = 0.5
)

// locked is the part of its speed that the graphics clock has in the range that it is locked to.
func (in *inputs) locked() float64 {
	clock := in.clocks.GraphicsCurrent.Or(0)
	if clock == 0 {
		return 1
	}
	locked := max(clock, in.settings.LockedMinMHz.Or(clock))
	return float64(min(locked, in.settings.LockedMaxMHz.Or(locked))) / float64(clock)
}

// clock is a clock at a part of its speed, in MHz: the highest that the board supports and that is no higher, but at
// least its lowest.
func (c *Course) clock(full profiles.Opt[uint32], speed float64) uint32 {
	if speed == 1 {
		return full.Value
	}
	mhz := uint32(float64(full.Value)*speed + 1e-6) // no rounding error makes it a step lower
	for _, step := range c.steps {
		if step <= mhz {
			return step
		}
	}
	if n := len(c.steps); n > 0 {
		return min(full.Value, c.steps[n-1])
	}
	return mhz
}

// reasons are those that a board can give, and those that its profile gives.
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

// inForce are the reasons in force in a second: those that the profile gives, and in place of those that follow from
// what moves, what follows.
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

// template is the readings without what rows say.
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
