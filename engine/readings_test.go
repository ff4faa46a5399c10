package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/profiles"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// series reads device 0 once a second for n seconds, on a profile that extends h100.
func series[T any](t *testing.T, profile string, n int, read func(*engine.Device) profiles.Opt[T]) []T {
	t.Helper()
	d := enginetest.Start(t, "extends: h100\ncount: 2\ndevice_defaults:\n"+profile).Devices[0]
	var out []T
	for i := range n {
		enginetest.At(t, noon.Add(time.Duration(i)*time.Second))
		v := read(d)
		assert.True(t, v.Valid)
		out = append(out, v.Value)
	}
	return out
}

func temperature(d *engine.Device) profiles.Opt[int32] { return d.Readings().TemperatureC }
func tLimit(d *engine.Device) profiles.Opt[int32]      { return d.Readings().TLimitC }
func powerDraw(d *engine.Device) profiles.Opt[uint32]  { return d.Readings().PowerMW }

func TestStaticReadings(t *testing.T) {
	assert.Equal(t, []int32{29, 29, 29}, series(t, "  name: still", 3, temperature))
	assert.Equal(t, []uint32{68920, 68920}, series(t, "  name: still", 2, powerDraw))
	assert.Equal(t, []uint32{68570, 68570}, series(t, "  name: still", 2, (*engine.Device).AveragePowerDraw))
	assert.Equal(t, []int32{58, 58}, series(t, "  name: still", 2, tLimit))
}

func TestTemperature(t *testing.T) {
	const wave = "  dynamic_metrics: {temperature: {base_c: 40, ramp_c: 20, ramp_period_sec: 60}}"
	got := series(t, wave, 60, temperature)
	assert.Equal(t, []int32{50, 60, 50, 40}, []int32{got[0], got[15], got[30], got[45]}, "a sine wave from base to base + ramp")

	const noise = "  dynamic_metrics: {temperature: {base_c: 40, variance_c: 2}}"
	seen := map[int32]bool{}
	for _, c := range series(t, noise, 200, temperature) {
		seen[c] = true
	}
	assert.Equal(t, map[int32]bool{38: true, 39: true, 40: true, 41: true, 42: true}, seen)

	assert.Equal(t, []int32{90}, series(t, "  thermal: {shutdown_threshold_c: 90}\n  dynamic_metrics: {temperature: {base_c: 120}}", 1,
		temperature), "no hotter than where it shuts down")
	assert.Equal(t, []int32{58 + 29 - 40}, series(t, "  dynamic_metrics: {temperature: {base_c: 40}}", 1, tLimit),
		"as much nearer to the limit as it is hotter")
}

func TestPower(t *testing.T) {
	const moving = "  dynamic_metrics: {seed: %d, power: {base_mw: 300000, variance_mw: 5000}}"
	first := series(t, fmt.Sprintf(moving, 1), 50, powerDraw)
	for _, mw := range first {
		assert.InDelta(t, 300000, mw, 5000)
	}
	assert.NotEqual(t, first[0], first[1])
	assert.Equal(t, first, series(t, fmt.Sprintf(moving, 1), 50, powerDraw), "another process sees the same")
	assert.NotEqual(t, first, series(t, fmt.Sprintf(moving, 2), 50, powerDraw), "another seed does not")
	assert.Equal(t, first, series(t, fmt.Sprintf(moving, 1), 50, (*engine.Device).AveragePowerDraw))

	assert.Equal(t, []uint32{700000}, series(t, "  dynamic_metrics: {power: {base_mw: 900000}}", 1, powerDraw),
		"no more than the limit in force")
}

func TestDevicesDiffer(t *testing.T) {
	node := enginetest.Start(t, "extends: h100\ndevice_defaults: {dynamic_metrics: {power: {base_mw: 300000, variance_mw: 50000}}}\n")
	enginetest.At(t, noon)
	assert.NotEqual(t, powerDraw(node.Devices[0]), powerDraw(node.Devices[1]))
}

func TestEnergy(t *testing.T) {
	got := series(t, "  power: {current_draw_mw: 100000}", 3, (*engine.Device).Energy)
	assert.EqualValues(t, 100000, got[1]-got[0], "100 W for 1 s are 100 J")
	assert.EqualValues(t, 100000, got[2]-got[1])

	const moving = "  dynamic_metrics: {power: {base_mw: 100000, variance_mw: 900}}"
	got, drawn := series(t, moving, 50, (*engine.Device).Energy), series(t, moving, 50, powerDraw)
	for s := range 49 {
		assert.EqualValues(t, drawn[s], got[s+1]-got[s], "what is drawn in a second is counted in it")
	}
	assert.Equal(t, []uint64{7, 7}, series(t, "  power: {total_energy_consumption_mj: 7}", 2, (*engine.Device).Energy))
}

func TestLoad(t *testing.T) {
	gpu := func(d *engine.Device) profiles.Opt[uint32] { return d.Readings().Utilization.GPU }
	for pattern, most := range map[string][2]uint32{"steady": {20, 80}, "idle": {20, 35}, "busy": {65, 80}} {
		lo, hi := uint32(100), uint32(0)
		for _, p := range series(t, "  dynamic_metrics: {utilization: {pattern: "+pattern+", gpu_min: 20, gpu_max: 80}}", 500, gpu) {
			lo, hi = min(lo, p), max(hi, p)
		}
		assert.Equal(t, most, [2]uint32{lo, hi}, pattern)
	}
	burst := series(t, "  dynamic_metrics: {utilization: {pattern: burst, gpu_min: 0, gpu_max: 100, burst_period_sec: 10}}", 40, gpu)
	for i, p := range burst {
		busy := (noon.Unix()+int64(i))/10%2 == 1
		assert.Equal(t, busy, p >= 75, "second %d: %d %%", i, p)
		assert.Equal(t, !busy, p <= 25, "second %d: %d %%", i, p)
	}
	assert.Equal(t, []uint32{70}, series(t, "  processes: [{pid: 1, sm_util: 30}, {pid: 2, sm_util: 40}]", 1, gpu), "what processes use")
	assert.Equal(t, []uint32{100}, series(t, "  processes: [{pid: 1, sm_util: 90}, {pid: 2, sm_util: 90}]", 1, gpu))
}

// TestNodesAgree: nodes that start at different times, and share nothing but the profile, read the same of the same second.
func TestNodesAgree(t *testing.T) {
	for _, pattern := range []string{"steady", "idle", "busy", "burst", "ramp", "training", "inference"} {
		profile := "extends: h100\ncount: 2\ndevice_defaults: {dynamic_metrics: {utilization: {pattern: " + pattern +
			"}, power: {base_mw: 400000, variance_mw: 200000}, temperature: {base_c: 35, ramp_c: 40, variance_c: 2}}}\n"
		enginetest.At(t, noon)
		early := enginetest.Start(t, profile)
		early.Devices[0].Readings()
		enginetest.At(t, noon.Add(1234*time.Second))
		late := enginetest.Start(t, profile)
		for s := range 300 {
			enginetest.At(t, noon.Add(time.Duration(1234+s)*time.Second))
			for i := range early.Devices {
				require.Equal(t, early.Devices[i].Readings(), late.Devices[i].Readings(), "%s, second %d", pattern, s)
				require.Equal(t, early.Devices[i].Energy(), late.Devices[i].Energy(), "%s, second %d", pattern, s)
			}
		}
	}
}
