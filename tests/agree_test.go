package tests

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A reading is what a process sees of a GPU at an instant.
type reading struct{ temperature, power, utilization, clock uint32 }

// read reads every GPU's temperature, power, utilisation and clock.
func (c *caller) read(t *testing.T, gpus int) []reading {
	t.Helper()
	var all []reading
	for i := range gpus {
		d, ret := get[uint64](c, "nvmlDeviceGetHandleByIndex_v2", i)
		require.Equal(t, nvml.SUCCESS, ret)
		var r reading
		for name, want := range map[string]struct {
			args []any
			out  *uint32
		}{
			"nvmlDeviceGetTemperature": {[]any{d, 0}, &r.temperature},
			"nvmlDeviceGetPowerUsage":  {[]any{d}, &r.power},
			"nvmlDeviceGetClockInfo":   {[]any{d, 1}, &r.clock},
		} {
			*want.out, ret = get[uint32](c, name, want.args...)
			require.Equal(t, nvml.SUCCESS, ret, name)
		}
		used, ret := get[[2]uint32](c, "nvmlDeviceGetUtilizationRates", d)
		require.Equal(t, nvml.SUCCESS, ret)
		r.utilization = used[0]
		all = append(all, r)
	}
	return all
}

// TestProcessesAgree: two programs that start at different times, and share nothing but the profile, read the same of every GPU in
// the same second, whatever its load.
func TestProcessesAgree(t *testing.T) {
	t.Parallel()
	patterns := []string{"steady", "idle", "busy", "burst", "ramp", "training", "inference"}
	var profile strings.Builder
	profile.WriteString("extends: h100\ncount: 7\ndevices:\n")
	for _, p := range patterns {
		fmt.Fprintf(&profile, "  - dynamic_metrics: {utilization: {pattern: %s, burst_period_sec: 2}, power: {base_mw: 400000, variance_mw: 200000}, "+
			"temperature: {base_c: 35, ramp_c: 40, variance_c: 2}}\n", p)
	}
	program := compile(t, "call")
	early, _ := onProfile(t, program, profile.String())
	started := time.Now().Unix()
	first := early.read(t, len(patterns))
	for time.Now().Unix() < started+2 {
		time.Sleep(100 * time.Millisecond)
	}
	late, _ := onProfile(t, program, profile.String()) // a second program, at least a second later

	seen := map[int64][]reading{}
	for deadline := time.Now().Add(hangs); len(seen) < 4; { // as many seconds as have begun and ended around both readings
		require.True(t, time.Now().Before(deadline), "no second was long enough for both programs to be asked: %v", seen)
		before := time.Now().Unix()
		a, b := early.read(t, len(patterns)), late.read(t, len(patterns))
		if time.Now().Unix() != before {
			continue
		}
		require.Equal(t, a, b, "second %d", before)
		if known := seen[before]; known != nil {
			require.Equal(t, known, a, "second %d, asked again", before)
		}
		seen[before] = a
		time.Sleep(100 * time.Millisecond)
	}
	for i, pattern := range patterns {
		moved := false
		for _, all := range seen {
			moved = moved || all[i] != first[i]
		}
		assert.True(t, moved, "the readings of %s never change", pattern)
	}
}
