package simulate

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/profiles"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC).Unix()

// device is device 0 of a profile that extends h100.
func device(t testing.TB, properties string) *profiles.Device {
	t.Helper()
	board, err := profiles.Parse("test.yaml", []byte("extends: h100\ncount: 1\ndevice_defaults:\n"+properties+"\n"))
	require.NoError(t, err)
	return &board.Devices[0]
}

func course(t testing.TB, properties string, s Settings) *Course {
	t.Helper()
	return New(device(t, properties), s, Start{})
}

const (
	hot = `  clocks: {graphics_current: 1980, sm_current: 1980, video_current: 1500}
  clocks_throttle_reasons: {gpu_idle: true, sw_power_cap: false, hw_slowdown: false, sw_thermal_slowdown: false, hw_thermal_slowdown: false,
    counters: {sw_power_cap_us: 5, sw_thermal_slowdown_us: 6, hw_thermal_slowdown_us: 7}}
  thermal: {max_operating_c: 80, slowdown_threshold_c: 90, shutdown_threshold_c: 95}
  power: {enforced_limit_mw: 650000}
  dynamic_metrics:
    temperature: {base_c: 30, ramp_c: 76, variance_c: 2}
    power: {base_mw: 400000, variance_mw: 290000}
`
	bursts = hot + "    utilization: {pattern: burst, burst_period_sec: 90}\n"
)

func TestStaysStill(t *testing.T) {
	d := device(t, "  name: still")
	r := New(d, Settings{}, Start{}).At(noon)
	assert.Equal(t, d.Utilization, r.Utilization)
	assert.Equal(t, d.Power.CurrentDrawMW, r.PowerMW)
	assert.Equal(t, d.Thermal.TemperatureGPUC, r.TemperatureC)
	assert.Equal(t, d.Thermal.TLimitC, r.TLimitC)
	assert.Equal(t, d.Clocks.GraphicsCurrent, r.GraphicsMHz)
	assert.Equal(t, d.Clocks.SMCurrent, r.SMMHz)
	assert.Equal(t, d.Clocks.VideoCurrent, r.VideoMHz)
	assert.Equal(t, GPUIdle, r.ReasonsInForce)

	none := New(&profiles.Device{}, Settings{}, Start{})
	assert.Equal(t, &Readings{}, none.At(noon), "a device of which nothing is known reads nothing")
	for q := range Quantities {
		from, g := none.Counter(q)
		assert.False(t, from.Valid)
		assert.Zero(t, g)
	}
}

// TestOnlyWhatIsAskedForMoves: a section of dynamic_metrics changes its own readings and no others.
func TestOnlyWhatIsAskedForMoves(t *testing.T) {
	still := *course(t, "  name: still", Settings{}).At(noon)
	busy := course(t, "  dynamic_metrics: {utilization: {pattern: busy}}", Settings{})
	power := course(t, "  dynamic_metrics: {power: {base_mw: 400000, variance_mw: 9000}}", Settings{})
	for s := range int64(700) {
		r := *busy.At(noon + s)
		assert.GreaterOrEqual(t, r.Utilization.GPU.Value, uint32(75))
		r.Utilization, r.ReasonsInForce = still.Utilization, still.ReasonsInForce
		assert.Equal(t, still, r)
		r = *power.At(noon + s)
		assert.InDelta(t, 400000, r.PowerMW.Value, 9000)
		r.PowerMW = still.PowerMW
		assert.Equal(t, still, r)
	}
}

// TestReadingsOfASecond: threads that ask for different seconds at once each get their own.
func TestReadingsOfASecond(t *testing.T) {
	shared, alone := course(t, bursts, Settings{}), course(t, bursts, Settings{})
	var want [7]Readings
	for i := range want {
		want[i] = *alone.At(noon + int64(i)*11)
	}
	require.NotEqual(t, want[0], want[1])
	var asking sync.WaitGroup
	for thread := range 4 {
		asking.Go(func() {
			for i := range 20000 {
				second := (i/3 + thread) % len(want)
				if got := *shared.At(noon + int64(second)*11); got != want[second] {
					t.Errorf("second %d: %v", second, got)
				}
			}
		})
	}
	asking.Wait()
}

// TestPeriod: a period holds whole bursts and waves and is never longer than an hour.
func TestPeriod(t *testing.T) {
	for profile, want := range map[string]int64{
		"  name: still": 1,
		"  dynamic_metrics: {power: {base_mw: 7}}":                                                                     600,
		"  dynamic_metrics: {utilization: {pattern: burst, burst_period_sec: 7}}":                                      602,
		"  dynamic_metrics: {utilization: {pattern: burst, burst_period_sec: 4000000000}}":                             3600,
		"  dynamic_metrics: {temperature: {ramp_c: 1, ramp_period_sec: 3000}}":                                         3000,
		"  dynamic_metrics: {temperature: {ramp_c: 1, ramp_period_sec: 86400}}":                                        3600,
		"  dynamic_metrics: {temperature: {ramp_c: 1, ramp_period_sec: 0}}":                                            600,
		"  dynamic_metrics: {utilization: {pattern: burst, burst_period_sec: 20}, temperature: {ramp_period_sec: 45}}": 720,
		"  dynamic_metrics: {utilization: {pattern: burst, burst_period_sec: 997}, temperature: {ramp_period_sec: 7}}": 1994,
	} {
		c := course(t, profile, Settings{})
		assert.Equal(t, want, c.in.period(), profile)
		for _, s := range []int64{0, 1, noon, noon + want - 1} {
			assert.Equal(t, c.At(s), c.At(s+want), profile)
			assert.Equal(t, c.At(s), c.At(s-5*want), profile)
		}
	}
}

// TestLimits: throttling is in force exactly when temperature or power are beyond a limit, and it lowers what it
// should.
func TestLimits(t *testing.T) {
	c := course(t, bursts, Settings{})
	seen := map[Reason]bool{}
	full := c.in.clocks
	for s := range c.in.period() {
		r := c.At(noon + s)
		temperature, power := r.TemperatureC.Value, r.PowerMW.Value
		assert.LessOrEqual(t, temperature, int32(95))
		assert.GreaterOrEqual(t, temperature, int32(28))
		assert.LessOrEqual(t, power, uint32(650000))
		assert.Equal(t, temperature >= 80, r.ReasonsInForce&SWThermalSlowdown != 0, "%d °C", temperature)
		assert.Equal(t, temperature >= 90, r.ReasonsInForce&HWThermalSlowdown != 0, "%d °C", temperature)
		assert.Equal(t, temperature >= 90, r.ReasonsInForce&HWSlowdown != 0, "%d °C", temperature)
		capped := r.ReasonsInForce&SWPowerCap != 0
		assert.True(t, !capped || power == 650000)
		slow := r.ReasonsInForce&^GPUIdle != 0
		assert.Equal(t, slow, r.GraphicsMHz.Value < full.GraphicsCurrent.Value)
		assert.Equal(t, slow, r.VideoMHz.Value < full.VideoCurrent.Value)
		if temperature >= 90 {
			assert.LessOrEqual(t, r.GraphicsMHz.Value, full.GraphicsCurrent.Value/2)
		}
		assert.Contains(t, append(c.steps, full.VideoCurrent.Value), r.VideoMHz.Value)
		assert.Equal(t, r.Utilization.GPU.Value == 0, r.ReasonsInForce&GPUIdle != 0)
		for _, reason := range []Reason{SWPowerCap, SWThermalSlowdown, HWThermalSlowdown, GPUIdle} {
			seen[reason] = seen[reason] || r.ReasonsInForce&reason != 0
		}
	}
	assert.Equal(t, map[Reason]bool{SWPowerCap: true, SWThermalSlowdown: true, HWThermalSlowdown: true, GPUIdle: true}, seen)

	unknown := course(t, "  clocks_throttle_reasons: {hw_thermal_slowdown: N/A, hw_slowdown: N/A}\n"+
		"  thermal: {slowdown_threshold_c: 50}\n  dynamic_metrics: {temperature: {base_c: 60}}", Settings{}).At(noon)
	assert.Zero(t, unknown.ReasonsInForce&(HWThermalSlowdown|HWSlowdown), "a board does not give a reason that it does not know")

	// At 29 °C the h100 is 58 °C below its limit. It slows down at T.Limit -2 °C.
	for c, slow := range map[string]bool{"88": false, "89": true} {
		r := course(t, "  dynamic_metrics: {temperature: {base_c: "+c+"}}", Settings{}).At(noon)
		assert.Equal(t, slow, r.ReasonsInForce&HWThermalSlowdown != 0, "%s °C, T.Limit %d °C", c, r.TLimitC.Value)
	}
}

func TestSettings(t *testing.T) {
	limited := Settings{PowerLimitMW: profiles.Some[uint32](300000)}
	c := course(t, bursts, limited)
	for s := range c.in.period() {
		assert.LessOrEqual(t, c.At(noon+s).PowerMW.Value, uint32(300000))
	}
	r := course(t, "  power: {current_draw_mw: 400000}", limited).At(noon)
	assert.EqualValues(t, 300000, r.PowerMW.Value, "a limit that was set holds for power that stands still, too")
	assert.NotZero(t, r.ReasonsInForce&SWPowerCap)
	r = course(t, "  power: {current_draw_mw: 800000}", Settings{}).At(noon)
	assert.EqualValues(t, 800000, r.PowerMW.Value, "the profile's own limit does not: that is what it says")

	r = course(t, "  clocks: {graphics_current: 1980}", Settings{LockedMaxMHz: profiles.Some[uint32](1000)}).At(noon)
	assert.EqualValues(t, 990, r.GraphicsMHz.Value, "the next lower clock that the board has")
	r = course(t, "  clocks: {graphics_current: 345}", Settings{LockedMinMHz: profiles.Some[uint32](1980)}).At(noon)
	assert.EqualValues(t, 1980, r.GraphicsMHz.Value)
	full := course(t, hot, Settings{}).At(noon + 100)
	half := course(t, hot, Settings{LockedMaxMHz: profiles.Some[uint32](990)}).At(noon + 100)
	assert.Less(t, half.PowerMW.Value, full.PowerMW.Value, "lower clocks draw less")
}

// TestWarms: the temperature follows the load with a delay, from the temperature that it had.
func TestWarms(t *testing.T) {
	d := device(t, "  dynamic_metrics: {temperature: {base_c: 30, ramp_c: 60}, utilization: {gpu_min: 100}}")
	idle := device(t, "  dynamic_metrics: {temperature: {base_c: 30, ramp_c: 60}, utilization: {gpu_max: 0}}")
	assert.EqualValues(t, 90, New(d, Settings{}, Start{}).At(noon).TemperatureC.Value)
	cold := New(idle, Settings{}, Start{})
	assert.EqualValues(t, 30, cold.At(noon).TemperatureC.Value)

	warming := New(d, Settings{}, cold.Start(noon))
	assert.EqualValues(t, 30, warming.At(noon).TemperatureC.Value)
	assert.InDelta(t, 30+60*0.632, warming.At(noon+inertia).TemperatureC.Value, 1, "63 %% of the way")
	before := int32(0)
	for s := range int64(400) {
		now := warming.At(noon + s).TemperatureC.Value
		assert.GreaterOrEqual(t, now, before)
		assert.LessOrEqual(t, now, before+30)
		before = now
	}
	assert.EqualValues(t, 90, before)

	cooling := New(idle, Settings{}, warming.Start(noon+30))
	assert.Equal(t, warming.At(noon+30).TemperatureC, cooling.At(noon+30).TemperatureC, "no jump, in the midst of warming up, either")

	wave := course(t, "  dynamic_metrics: {temperature: {base_c: 40, ramp_c: 20, ramp_period_sec: 60}, utilization: {gpu_min: 100}}", Settings{})
	assert.EqualValues(t, 60, wave.At(noon+15).TemperatureC.Value, "a period asks for a wave")
	assert.EqualValues(t, 40, wave.At(noon+45).TemperatureC.Value)
}

// TestTotals: an integral is the sum over its seconds, across the ends of periods and after a start.
func TestTotals(t *testing.T) {
	cold := course(t, "  dynamic_metrics: {temperature: {base_c: 30, ramp_c: 66}, utilization: {gpu_max: 0}}", Settings{})
	d := device(t, bursts)
	for name, c := range map[string]*Course{
		"always": New(d, Settings{}, Start{}), "started": New(d, Settings{}, cold.Start(noon+17)), "still": course(t, "  name: still", Settings{}),
	} {
		t.Run(name, func(t *testing.T) {
			var want [Quantities]uint64
			for s := noon + 17; s < noon+2000; s++ {
				for q := range Quantities {
					got := c.Total(q, s*1000).minus(c.Total(q, (noon+17)*1000))
					require.Equal(t, Amount{Units: want[q]}, got, "quantity %d, second %d", q, s-noon)
					row := c.row(s)
					part := c.Total(q, s*1000+250).minus(c.Total(q, s*1000))
					require.Equal(t, row.rate(q)*250_000, part.Units*million+uint64(part.Micros))
					want[q] += row.rate(q)
				}
			}
			if name != "still" {
				for q := range Quantities {
					assert.NotZero(t, want[q], "quantity %d", q)
				}
			}
		})
	}
}

func TestAgrees(t *testing.T) {
	a, b := course(t, bursts, Settings{}), course(t, bursts, Settings{})
	other := course(t, bursts+"    seed: 2\n", Settings{})
	second := device(t, bursts)
	second.UUID = "GPU-0a2d3f6e-92c4-4f4b-8a53-5f2d1c0b7e11"
	differ := 0
	for s := range int64(600) {
		require.Equal(t, a.At(noon+s), b.At(noon+s))
		if a.At(noon+s) != other.At(noon+s) && a.At(noon+s) != New(second, Settings{}, Start{}).At(noon+s) {
			differ++
		}
	}
	assert.Greater(t, differ, 500)
	assert.True(t, a.Same(device(t, bursts), Settings{}))
	assert.False(t, a.Same(second, Settings{}))
	assert.False(t, a.Same(device(t, bursts), Settings{PowerLimitMW: profiles.Some[uint32](1)}))
}

func TestSteady(t *testing.T) {
	assert.EqualValues(t, 1, Begin(0, 0, Steady(1.0/3600)).At(3_601_000), "what is rare is counted, too")
	assert.EqualValues(t, 10+2_500_000, Begin(1000, 10, Steady(1e6)).At(3500))
	for _, nothing := range []float64{0, -1, math.NaN()} {
		assert.EqualValues(t, 3, Begin(0, 3, Steady(nothing)).At(1e12))
	}
	assert.Equal(t, uint64(math.MaxUint64), Begin(0, math.MaxUint64, Steady(5)).At(10_000), "a full counter stays full")
	assert.NotPanics(t, func() { Steady(math.Inf(1)).Total(math.MaxInt64) })
}

func TestCheckpoints(t *testing.T) {
	c := Begin(1_000_000, 0, Steady(100))
	assert.EqualValues(t, 0, c.At(5), "before it begins")
	c = c.Checkpoint(1_010_000, 0, Steady(1))
	assert.EqualValues(t, 1000, c.At(1_010_000))
	assert.EqualValues(t, 1005, c.At(1_015_000), "goes on from where it was, more slowly")
	assert.EqualValues(t, 1000, c.At(1_001_000), "a clock that is set back does not take it back")
	c = c.Checkpoint(1_002_000, 0, Steady(7))
	assert.EqualValues(t, 1000, c.At(1_010_000))
	assert.EqualValues(t, 1000, c.Checkpoint(1_010_000, 4, Growth{}).At(9e9), "another number to start from, which is passed already")
	assert.EqualValues(t, 5000, c.Checkpoint(1_010_000, 5000, Growth{}).At(9e9), "and one that is not")

	slow := Begin(0, 0, Steady(0.25))
	for ms := int64(0); ms <= 8000; ms += 100 {
		slow = slow.Checkpoint(ms, 0, Steady(0.25))
	}
	assert.EqualValues(t, 2, slow.At(8000), "no checkpoint loses parts")
}

// TestCountersGrow: no counter falls, whatever changes and whenever.
func TestCountersGrow(t *testing.T) {
	for seed := range uint64(20) {
		counters(t, seed)
	}
}

func FuzzCounters(f *testing.F) {
	for seed := range uint64(5) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { counters(t, seed) })
}

// counters changes the rates, the profile and the settings of a device at random, and reads its counters throughout.
func counters(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	d := *device(t, bursts)
	ms := noon * 1000
	swap := func(start Start) *Course {
		m := &d.DynamicMetrics
		m.Power = profiles.DynamicPower{}
		if r.IntN(3) > 0 {
			m.Power.BaseMW, m.Power.VarianceMW = profiles.Some(r.Uint32N(1e6)), profiles.Some(r.Uint32N(1e6))
		}
		m.Temperature.BaseC, m.Temperature.RampC = profiles.Some(r.Int32N(100)), profiles.Some(r.Int32N(100))
		m.Temperature.RampPeriodSec = profiles.Opt[uint32]{Value: r.Uint32N(5000), Valid: r.IntN(3) == 0}
		m.Utilization.BurstPeriodSec = profiles.Some(r.Uint32N(3000))
		if r.IntN(4) == 0 {
			m.Utilization = profiles.DynamicUtilization{}
		}
		d.Power.TotalEnergyConsumptionMJ = profiles.Opt[uint64]{Value: r.Uint64N(1e7), Valid: r.IntN(2) == 0}
		return New(&d, Settings{PowerLimitMW: profiles.Opt[uint32]{Value: r.Uint32N(7e5), Valid: r.IntN(2) == 0}}, start)
	}
	c := swap(Start{})
	var list [Quantities + 1]Counter
	growth := func(q Quantity) (uint64, Growth) {
		if q == Quantities {
			return r.Uint64N(1000), Steady(r.Float64() * math.Pow(10, float64(r.IntN(9)-3)))
		}
		from, g := c.Counter(q)
		return from.Value, g
	}
	for q := range list {
		from, g := growth(Quantity(q))
		list[q] = Begin(ms, from, g)
	}
	var before [len(list)]uint64
	for range 300 {
		ms += r.Int64N(int64(math.Pow(10, float64(r.IntN(8))))) + 1
		if r.IntN(4) == 0 {
			c = swap(c.Start(ms / 1000))
			for q := range list {
				from, g := growth(Quantity(q))
				list[q] = list[q].Checkpoint(ms-r.Int64N(2), from, g)
			}
		}
		for q := range list {
			now := list[q].At(ms)
			require.GreaterOrEqual(t, now, before[q], "seed %d, quantity %d", seed, q)
			before[q] = now
			require.LessOrEqual(t, list[q].At(list[q].Since-1000), now, "the clock is set back")
		}
		at := c.At(ms / 1000)
		require.LessOrEqual(t, at.Utilization.GPU.Value, uint32(100))
		require.LessOrEqual(t, at.TemperatureC.Value, int32(95))
		require.GreaterOrEqual(t, at.TemperatureC.Value, int32(0))
	}
}

func BenchmarkReading(b *testing.B) {
	c := course(b, bursts, Settings{})
	c.At(noon)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.At(noon + int64(i))
	}
}

func BenchmarkIntegral(b *testing.B) {
	c := course(b, bursts, Settings{})
	c.At(noon)
	_, g := c.Counter(Energy)
	counter := Begin(noon, 0, g)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		counter.At(noon*1000 + int64(i)*977)
	}
}

func BenchmarkFirstReading(b *testing.B) {
	d := device(b, bursts)
	b.ReportAllocs()
	for b.Loop() {
		New(d, Settings{}, Start{}).At(noon)
	}
}

// TestAllocatesNothing: once the course is computed, neither a reading nor an integral allocates.
func TestAllocatesNothing(t *testing.T) {
	c := course(t, bursts, Settings{})
	c.At(noon)
	_, g := c.Counter(Energy)
	counter := Begin(noon*1000, 0, g)
	ms := noon * 1000
	assert.Zero(t, testing.AllocsPerRun(1000, func() { c.At(ms / 1000); counter.At(ms); ms += 977 }))
}

// TestBusy: how busy a GPU has been is the sum of its utilisation over time.
func TestBusy(t *testing.T) {
	for _, text := range []string{"  utilization: {gpu: 35}", bursts, "  dynamic_metrics: {utilization: {pattern: busy}}"} {
		c := course(t, text, Settings{})
		from, g := c.Counter(Busy)
		assert.Equal(t, profiles.Some[uint64](0), from)
		var want uint64
		for second := range int64(1000) {
			assert.Equal(t, Amount{Units: want}, g.Total((noon+second)*1000).minus(g.Total(noon*1000)), text)
			want += uint64(c.At(noon + second).Utilization.GPU.Value)
		}
	}
	c := Begin(0, 0, Steady(3))
	assert.Equal(t, uint64(4_500_000), c.Micros(1500))
}
