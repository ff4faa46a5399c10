package engine_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/engine/simulate"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// erring is a board whose links have errors, and whose first GPU draws power, at a rate.
func erring(t testing.TB, perSecond float64, more string) *profiles.Board {
	t.Helper()
	board, err := profiles.Parse("test.yaml", fmt.Appendf(nil, `
extends: h100
count: 2
nvlink: {defaults: {error_rate: %g, duty_cycle: %g}}
device_defaults:
  power: {current_draw_mw: %d}
%s
`, perSecond, min(perSecond/1000, 1), int(perSecond*100), more))
	require.NoError(t, err)
	return board
}

// TestCountersBegin: counters begin when the machine was booted, to ten seconds.
func TestCountersBegin(t *testing.T) {
	boot := enginetest.Boot
	t.Cleanup(func() { enginetest.Boot = boot })
	for _, after := range []time.Duration{0, 4 * time.Second, -4 * time.Second} {
		enginetest.Boot = noon.Add(after)
		d := enginetest.Start(t, "extends: h100\nnvlink: {defaults: {error_rate: 100}}\n").Devices[0]
		enginetest.At(t, noon.Add(time.Minute))
		assert.EqualValues(t, 6000, d.LinkErrors(0), "booted %s after noon", after)
	}
}

// TestCountersGoOn: a counter continues from its last value when its rate falls and when its clock is set back.
func TestCountersGoOn(t *testing.T) {
	enginetest.At(t, noon)
	e := enginetest.Start(t, "extends: h100\ncount: 2\nnvlink: {defaults: {error_rate: 100}}\n").Engine()
	errors := func() uint64 { return e.Snapshot().Devices[1].LinkErrors(3) }
	first := errors()
	require.NoError(t, e.Publish(engine.Node{Board: erring(t, 1, "")}))
	assert.Equal(t, first, errors())
	enginetest.At(t, noon.Add(10*time.Second))
	assert.Equal(t, first+10, errors())
	enginetest.At(t, noon.Add(-time.Hour))
	assert.Equal(t, first+10, errors(), "as much as was counted already")
	require.NoError(t, e.Publish(engine.Node{Board: erring(t, 2, "")}))
	require.NoError(t, e.Publish(engine.Node{Board: erring(t, 2, "")}))
	assert.Equal(t, first+10, errors())
	enginetest.At(t, noon.Add(15*time.Second))
	assert.Equal(t, first+20, errors())
}

// TestWarmthGoesOn: a GPU whose load ends cools down from the temperature that it had.
func TestWarmthGoesOn(t *testing.T) {
	const warms = "  dynamic_metrics: {temperature: {base_c: 30, ramp_c: 60}, utilization: {gpu_min: %d, gpu_max: %d}}"
	enginetest.At(t, noon)
	e := enginetest.Start(t, "extends: h100\ncount: 2\ndevice_defaults:\n"+fmt.Sprintf(warms, 100, 100)+"\n").Engine()
	require.NoError(t, e.Publish(engine.Node{Board: erring(t, 1, fmt.Sprintf(warms, 0, 0))}))
	assert.EqualValues(t, 90, temperature(e.Snapshot().Devices[0]).Value)
	enginetest.At(t, noon.Add(30*time.Second))
	assert.InDelta(t, 30+60*0.368, temperature(e.Snapshot().Devices[0]).Value, 1)
	require.NoError(t, e.Publish(engine.Node{Board: erring(t, 2, fmt.Sprintf(warms, 0, 0))}))
	assert.InDelta(t, 30+60*0.368, temperature(e.Snapshot().Devices[0]).Value, 1, "another change does not warm it again")
}

// TestCountersNeverFall: a reader sees no counter fall while rates rise and fall, whether it uses new or old snapshots.
func TestCountersNeverFall(t *testing.T) {
	e := enginetest.Start(t, "extends: h100\ncount: 2\n").Engine()
	boards := make([]*profiles.Board, 20)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range boards {
		more := ""
		if i%2 == 0 {
			more = fmt.Sprintf("  dynamic_metrics: {power: {base_mw: %d, variance_mw: 5000}}", r.Uint32N(600000))
		}
		boards[i] = erring(t, r.Float64()*5000, more)
	}
	var done atomic.Bool
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			var before [4]uint64
			for !done.Load() {
				d := e.Snapshot().Devices[0]
				now := [4]uint64{d.LinkErrors(0), d.LinkTraffic(), d.Energy().Value, d.Lost(simulate.LostToPowerCap).Value}
				for i := range now {
					if now[i] < before[i] {
						t.Errorf("counter %d fell from %d to %d", i, before[i], now[i])
						return
					}
				}
				before = now
			}
		})
	}
	for i := range 300 {
		assert.NoError(t, e.Publish(engine.Node{Board: boards[i%len(boards)]}))
	}
	done.Store(true)
	readers.Wait()
}

// TestForkKeepsOrigin: a forked process keeps its parent's origin, even if it reads another boot time.
func TestForkKeepsOrigin(t *testing.T) {
	boot := enginetest.Boot
	t.Cleanup(func() { enginetest.Boot = boot })
	enginetest.At(t, noon)
	parent, h := enginetest.StartHost(t, "extends: h100\ncount: 2\nnvlink: {defaults: {error_rate: 100}}\n")
	enginetest.Boot = boot.Add(10 * time.Second)
	child := engine.New(h)
	require.Equal(t, abi.SUCCESS, child.Restore())
	assert.Equal(t, parent.Devices[0].LinkErrors(0), child.Snapshot().Devices[0].LinkErrors(0))
}
