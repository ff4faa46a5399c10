package simulate

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// patterns are the shapes that a load can have.
var patterns = []string{"steady", "idle", "busy", "burst", "ramp", "training", "inference"}

const day = 24 * 3600

// loaded is the first GPU of a board with a load, and thresholds that the load reaches.
func loaded(t *testing.T, board, pattern string, seed uint64) *profiles.Device {
	t.Helper()
	b, err := profiles.Parse("test.yaml", fmt.Appendf(nil, "extends: %s\ndevice_defaults:\n%s    utilization: {pattern: %s, burst_period_sec: %d}\n    seed: %d\n",
		board, hot, pattern, 20+seed*37, seed))
	require.NoError(t, err)
	return &b.Devices[0]
}

// TestADayKeepsEveryRelation: in every second of a day, whatever the load is and whatever is set meanwhile, the power is within its
// limit, used memory within its size, clocks are held down only for a cause that holds, energy is the integral of the power, and
// no counter falls.
func TestADayKeepsEveryRelation(t *testing.T) {
	for _, board := range []string{"h100", "l4", "rtx-4090"} {
		for i, pattern := range patterns {
			t.Run(board+" "+pattern, func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(2) {
					liveADay(t, loaded(t, board, pattern, seed), rand.New(rand.NewPCG(seed, uint64(i))))
				}
			})
		}
	}
}

// liveADay follows a GPU through a day, in which its power limit, its clocks and its load change now and then.
func liveADay(t *testing.T, d *profiles.Device, r *rand.Rand) {
	t.Helper()
	board := &profiles.Board{Devices: []profiles.Device{*d}}
	meter := NewMeter(board, d, noon*1000)
	counters := []Count{{Quantity: Energy}, {Quantity: LostToPowerCap}, {Quantity: LostToSWThermal}, {Quantity: LostToHWThermal}}
	var before [4]uint64
	value := func(c Count, second int64) uint64 { return meter.Value(c, func() int64 { return second * 1000 }).Value }
	energy, drawn := value(counters[0], noon), uint64(0)
	for s := noon; s < noon+day; s++ {
		if s > noon && r.IntN(4000) == 0 {
			changed := *d
			changed.Power.RequestedLimitMW = profiles.Opt[uint32]{Value: 100000 + r.Uint32N(600000), Valid: r.IntN(2) == 0}
			changed.Clocks.GraphicsLockedMax = profiles.Opt[uint32]{Value: 500 + r.Uint32N(1500), Valid: r.IntN(2) == 0}
			changed.DynamicMetrics.Utilization.Pattern = profiles.Some(patterns[r.IntN(len(patterns))])
			changed.Processes = []profiles.Process{{PID: 1, SMUtil: profiles.Some(r.Uint32N(101)), UsedMemoryMiB: profiles.Some(r.Uint64N(1 << 18))}}
			next := NewMeter(board, &changed, noon*1000)
			next.Follow(meter, s*1000)
			d, meter = &changed, next
		}
		now := meter.Course().At(s)
		limit := SettingsOf(d).PowerLimitMW.Or(d.Power.EnforcedLimitMW.Value)
		temperature, reasons := now.TemperatureC.Value, now.ReasonsInForce
		fail := func(what string) {
			require.Failf(t, what, "second %d of the day: %+v, limit %d mW", s-noon, now, limit)
		}
		switch {
		case now.PowerMW.Value > limit:
			fail("more power than its limit")
		case now.Utilization.GPU.Value > 100 || now.Utilization.Memory.Value > 100:
			fail("more than all of the time")
		case temperature < 0 || temperature > d.Thermal.ShutdownThresholdC.Value:
			fail("a temperature that it would not survive")
		case reasons&SWPowerCap != 0 && now.PowerMW.Value != limit:
			fail("capped below its limit")
		case (reasons&SWThermalSlowdown != 0) != (temperature >= d.Thermal.MaxOperatingC.Value):
			fail("software slows it down for no heat, or does not")
		case (reasons&HWThermalSlowdown != 0) != (temperature >= d.Thermal.SlowdownThresholdC.Value):
			fail("hardware slows it down for no heat, or does not")
		case (reasons&GPUIdle != 0) != (now.Utilization.GPU.Value == 0):
			fail("idle and busy")
		case reasons&(SWPowerCap|SWThermalSlowdown|HWThermalSlowdown) != 0 && now.GraphicsMHz.Value >= d.Clocks.GraphicsCurrent.Value:
			fail("slowed down at full speed")
		}
		drawn += uint64(now.PowerMW.Value)
		for i, c := range counters {
			count := value(c, s)
			if count < before[i] {
				fail(c.String() + " fell")
			}
			before[i] = count
		}
		if m, ok := d.MemoryUse(); ok && m.Reserved+m.Used+m.Free > m.Total {
			fail("more memory than there is")
		}
	}
	assert.InDelta(t, drawn, value(counters[0], noon+day)-energy, 100, "energy in mJ, and the sum of power in mW over seconds")
}

// TestABusyGPUWorks: the busier a GPU is, the more power it draws, and it warms up with a time constant and not at once.
func TestABusyGPUWorks(t *testing.T) {
	mean := func(pattern string) (power, heat, load float64) {
		c := New(loaded(t, "h100", pattern, 1), Settings{}, Start{})
		for s := range int64(3600) {
			r := c.At(noon + s)
			power, heat = power+float64(r.PowerMW.Value)/3600, heat+float64(r.TemperatureC.Value)/3600
			load += float64(r.Utilization.GPU.Value) / 3600
		}
		return power, heat, load
	}
	idlePower, idleHeat, _ := mean("idle")
	for _, pattern := range []string{"training", "inference", "ramp", "burst", "busy"} {
		power, heat, _ := mean(pattern)
		assert.Greater(t, power, idlePower, pattern)
		assert.Greater(t, heat, idleHeat+10, pattern)
	}
	_, busyHeat, busyLoad := mean("busy")
	for _, pattern := range []string{"training", "inference", "ramp", "burst"} {
		_, heat, load := mean(pattern)
		assert.Less(t, load, busyLoad, pattern)
		assert.Less(t, heat, busyHeat, pattern)
	}
	cold := New(loaded(t, "h100", "idle", 1), Settings{}, Start{})
	warming := New(loaded(t, "h100", "busy", 1), Settings{}, cold.Start(noon))
	first, later := warming.At(noon+1).TemperatureC.Value, warming.At(noon+200).TemperatureC.Value
	assert.InDelta(t, cold.At(noon).TemperatureC.Value, first, 10, "not at once")
	assert.Greater(t, later, first+20)
}
