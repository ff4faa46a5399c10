// Package simulate computes the readings of a GPU at a time. Its functions are pure: the same profile, settings and
// time give the same reading in every process. So programs that share nothing agree.
//
// All readings follow one load curve per device. It is constant within a second and repeats after a period. It gives
// the utilisation and the demanded power. The temperature follows the demanded load, not the load that is served.
// Temperature and power limit decide on throttling; clocks and drawn power follow from that. This order keeps any
// reading from depending on itself.
package simulate

import (
	"hash/fnv"
	"io"
	"math"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// Settings are what was set on a device in place of what it would do by itself.
type Settings struct {
	// PowerLimitMW is the power limit that was set, in mW; not valid while the default one is in force.
	PowerLimitMW profiles.Opt[uint32]
	// LockedMinMHz and LockedMaxMHz are the range that the graphics clock is locked to, in MHz.
	LockedMinMHz, LockedMaxMHz profiles.Opt[uint32]
	// ApplicationsMHz is the graphics clock that applications run at, in MHz; not valid while that is the default one.
	ApplicationsMHz profiles.Opt[uint32]
	// OffsetMHz is how far the graphics clock of a busy GPU is shifted, in MHz.
	OffsetMHz int32
}

// SettingsOf are what was set on a device.
func SettingsOf(d *profiles.Device) Settings {
	s := Settings{LockedMinMHz: d.Clocks.GraphicsLockedMin, LockedMaxMHz: d.Clocks.GraphicsLockedMax}
	if limit := d.Power.RequestedLimitMW; limit.Valid && limit != d.Power.DefaultLimitMW {
		s.PowerLimitMW = limit
	}
	if clock := d.Clocks.GraphicsApp; clock.Valid && d.Clocks.GraphicsAppDefault.Valid && clock != d.Clocks.GraphicsAppDefault {
		s.ApplicationsMHz = clock
	}
	s.OffsetMHz = d.ClockOffsets.GraphicsMHz.Or(0)
	return s
}

// memoryClock is the memory clock, in MHz. Applications and locks choose among the clocks that the board has.
func memoryClock(d *profiles.Device) profiles.Opt[uint32] {
	c := &d.Clocks
	if !c.MemoryCurrent.Valid {
		return c.MemoryCurrent
	}
	clock := c.MemoryCurrent.Value
	if c.MemoryApp.Valid && c.MemoryAppDefault.Valid && c.MemoryApp != c.MemoryAppDefault {
		clock = min(clock, c.MemoryApp.Value)
	}
	least, most := c.MemoryLockedMin.Or(clock), c.MemoryLockedMax.Or(clock)
	if clock < least || clock > most {
		for _, m := range d.SupportedClocks.MemoryClocks { // highest first
			if clock = m.FreqMHz; clock <= most {
				break
			}
		}
	}
	return profiles.Some(uint32(max(int64(clock)+int64(d.ClockOffsets.MemoryMHz.Or(0)), 0)))
}

const (
	// maxPeriod is the longest time, in s, after which a curve repeats, and minPeriod the shortest of one that moves.
	maxPeriod = 3600
	minPeriod = 600
	// inertia is the time constant of the temperature, in s: the GPU goes 63 % of the way to its final temperature in
	// it.
	inertia = 30
)

// inputs are all that readings depend on. Devices with equal inputs read the same.
type inputs struct {
	device      uint64 // keeps the noise of one GPU apart from that of another
	dynamic     profiles.DynamicMetrics
	utilization profiles.Utilization
	used        struct{ gpu, memory uint32 } // by processes, in percent
	power       profiles.Power
	thermal     profiles.Thermal
	clocks      profiles.Clocks
	reasons     profiles.ClocksThrottleReasons
	memory      profiles.Opt[uint32] // clock, in MHz
	settings    Settings
}

// inputsOf collects the inputs. A GPU's engines are at least as busy as its processes make them.
func inputsOf(d *profiles.Device, s Settings) inputs {
	in := inputs{
		device: identity(d.UUID), dynamic: d.DynamicMetrics, utilization: d.Utilization, power: d.Power, thermal: d.Thermal,
		clocks: d.Clocks, reasons: d.ClocksThrottleReasons, memory: memoryClock(d), settings: s,
	}
	var encoder, decoder uint32
	for i := range d.Processes {
		p := &d.Processes[i]
		in.used.gpu = min(in.used.gpu+p.SMUtil.Or(0), 100)
		in.used.memory = min(in.used.memory+p.MemUtil.Or(0), 100)
		encoder = min(encoder+p.EncUtil.Or(0), 100)
		decoder = min(decoder+p.DecUtil.Or(0), 100)
	}
	u := &in.utilization
	atLeast(&u.GPU, in.used.gpu)
	atLeast(&u.Memory, in.used.memory)
	atLeast(&u.Encoder, encoder)
	atLeast(&u.Decoder, decoder)
	return in
}

func atLeast(percent *profiles.Opt[uint32], n uint32) {
	if n > percent.Or(0) {
		*percent = profiles.Some(n)
	}
}

// Readings change if the profile's dynamic_metrics has a section for them. The power also follows a limit below it, and clocks
// that were set lower than they would be.
func (in *inputs) loadMoves() bool {
	return in.dynamic.Utilization != profiles.DynamicUtilization{}
}
func (in *inputs) temperatureMoves() bool {
	return in.dynamic.Temperature != profiles.DynamicTemperature{}
}
func (in *inputs) powerMoves() bool {
	draw, limit := in.power.CurrentDrawMW.Or(0), in.settings.PowerLimitMW
	speed, _ := in.set(false)
	return in.dynamic.Power != profiles.DynamicPower{} || limit.Valid && limit.Value < draw || speed < 1
}

// heats reports whether the temperature rises with the load. It does unless the profile describes a wave.
func (in *inputs) heats() bool {
	m := &in.dynamic.Temperature
	return in.loadMoves() && m.RampC.Or(0) > 0 && !m.RampPeriodSec.Valid
}

// burst is the length of a burst and of a pause, in s, and wave is the period of the temperature's wave. Both are at
// most the longest period.
func (in *inputs) burst() int64 {
	return min(max(int64(in.dynamic.Utilization.BurstPeriodSec.Or(30)), 1), maxPeriod/2)
}
func (in *inputs) wave() int64 {
	return min(max(int64(in.dynamic.Temperature.RampPeriodSec.Or(60)), 1), maxPeriod)
}

// period is the time, in s, after which all readings repeat. It is a whole number of bursts, and also of waves unless
// that would be longer than an hour.
func (in *inputs) period() int64 {
	unit := int64(1)
	switch {
	case !in.loadMoves() && !in.temperatureMoves() && in.dynamic.Power == profiles.DynamicPower{}:
		return 1
	case in.loadMoves():
		switch in.dynamic.Utilization.Pattern.Value {
		case "burst", "ramp":
			unit = 2 * in.burst()
		case "training":
			unit = in.burst()
		}
	}
	if in.temperatureMoves() && !in.heats() {
		if both := unit / gcd(unit, in.wave()) * in.wave(); both <= maxPeriod {
			unit = both
		}
	}
	return unit * ((max(minPeriod, unit) + unit - 1) / unit)
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// noise keeps the noise of one reading apart from that of another.
type noise uint64

const (
	loadNoise noise = iota + 1
	temperatureNoise
	requestNoise
)

// noise is a number in [0, 1) that differs between the seconds of the period.
func (in *inputs) noise(n noise, second int64) float64 {
	x := mix(uint64(in.dynamic.Seed.Or(0)))
	x = mix(x ^ in.device)
	x = mix(x ^ uint64(n))
	x = mix(x ^ uint64(second))
	return float64(x>>11) / (1 << 53)
}

// identity is a number made from a GPU's UUID. An index would not do: in a container that sees only some of the GPUs,
// the same GPU has another index.
func identity(uuid profiles.UUID) uint64 {
	h := fnv.New64a()
	io.WriteString(h, string(uuid))
	return h.Sum64()
}

// mix is the output function of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// between maps a number from 0 up to 1 onto the integers from lo to hi.
func between(lo, hi int64, at float64) int64 {
	return min(lo+int64(at*float64(hi-lo+1)), hi)
}

// bunch is how long requests come in or stay away at least, in s.
const bunch = 4

// load is the demand on a GPU in one second.
type load struct {
	gpu, memory uint32 // in percent
	place       float64
}

// load is the load in a second of the period. Its place, from 0 to 1, says where it lies in the profile's range:
// anywhere, or in the lowest quarter if the pattern is idle, or in the highest if it is busy. A burst starts with a
// pause and alternates between the two quarters. Training is in the highest quarter and pauses in the last tenth of a period, as for
// a checkpoint; inference is there for as long as requests come in, some seconds at a time. A ramp goes evenly through the range, up
// and down. GPU and memory have the same place.
func (in *inputs) load(second int64) load {
	at := in.noise(loadNoise, second)
	if !in.loadMoves() {
		return load{in.utilization.GPU.Or(0), in.utilization.Memory.Or(0), at}
	}
	m := &in.dynamic.Utilization
	idle, busy := m.Pattern.Value == "idle", m.Pattern.Value == "busy"
	switch m.Pattern.Value {
	case "burst":
		busy = second/in.burst()%2 != 0
		idle = !busy
	case "training":
		pause := max(in.burst()/10, 1)
		busy = second%in.burst() < in.burst()-pause
		idle = !busy
	case "inference":
		busy = in.noise(requestNoise, second/bunch) < 0.6
		idle = !busy
	case "ramp":
		at = float64(second%in.burst()) / float64(in.burst())
		if second/in.burst()%2 != 0 {
			at = 1 - at
		}
	}
	percent := func(least, most profiles.Opt[uint32]) uint32 {
		hi := int64(most.Or(100))
		lo := min(int64(least.Or(0)), hi)
		quarter := (hi - lo) / 4
		switch {
		case idle:
			hi = lo + quarter
		case busy:
			lo = hi - quarter
		}
		return uint32(between(lo, hi, at))
	}
	l := load{max(percent(m.GPUMin, m.GPUMax), in.used.gpu), max(percent(m.MemoryMin, m.MemoryMax), in.used.memory), at}
	switch {
	case idle:
		l.place = at / 4
	case busy:
		l.place = (3 + at) / 4
	}
	return l
}

// demand is the power, in mW, that the GPU would draw without limits: the base, plus or minus a part that grows with
// the distance of the load from the middle of its range. If the load is constant, noise replaces that part.
func (in *inputs) demand(l load) uint32 {
	m := &in.dynamic.Power
	static := in.power.CurrentDrawMW.Or(0)
	if *m == (profiles.DynamicPower{}) {
		return static
	}
	base, v := int64(m.BaseMW.Or(static)), int64(m.VarianceMW.Or(0))
	return uint32(min(max(base+between(-v, v, l.place), 0), math.MaxUint32))
}

// temperature is the GPU's temperature in a second of the period, in °C: the base, plus the ramp times the warmth or a
// sine wave, plus noise. It is at least 0 and at most the shutdown temperature.
func (in *inputs) temperature(second, period int64, warmth float64) int32 {
	m := &in.dynamic.Temperature
	static := in.thermal.TemperatureGPUC.Or(0)
	if !in.temperatureMoves() {
		return static
	}
	if !in.heats() {
		turns := max((period+in.wave()/2)/in.wave(), 1)
		warmth = (1 + math.Sin(2*math.Pi*float64(second*turns%period)/float64(period))) / 2
	}
	v := int64(m.VarianceC.Or(0))
	t := int64(m.BaseC.Or(static)) + int64(math.Round(warmth*float64(m.RampC.Or(0)))) +
		between(-v, v, in.noise(temperatureNoise, second))
	if limit, ok := in.degrees(in.thermal.ShutdownThresholdC, in.thermal.TLimitShutdownC).Get(); ok {
		t = min(t, limit)
	}
	return int32(min(max(t, 0), math.MaxInt32))
}

// degrees is a threshold in °C, from the absolute value or from the equivalent T.Limit reading.
func (in *inputs) degrees(absolute, margin profiles.Opt[int32]) profiles.Opt[int64] {
	t := &in.thermal
	switch {
	case absolute.Valid:
		return profiles.Some(int64(absolute.Value))
	case margin.Valid && t.TLimitC.Valid && t.TemperatureGPUC.Valid:
		return profiles.Some(int64(t.TemperatureGPUC.Value) + int64(t.TLimitC.Value) - int64(margin.Value))
	}
	return profiles.Opt[int64]{}
}
