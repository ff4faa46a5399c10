//go:build guest

package kernel

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"github.com/stretchr/testify/require"
)

// TestVgpuCost measures the cost of a driver call with the module absent, off, tracing and enforcing, as ratios within
// one boot.
func TestVgpuCost(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	load(t, "fakegpu", "nvidia=1", someGPUs)
	c := newClient(t, 0)
	group := c.group()
	var us uint64
	complete := make([]byte, 8) // for NV_ESC_WAIT_OPEN_COMPLETE, which the module ignores
	timeslice := uint64(1500)
	kinds := []struct {
		name string
		call func() error
	}{
		{"another ioctl", func() error { return rmIoctlBytes(c.ctl, escOpenComplete, complete) }},
		{"a control", func() error {
			v := nvos54{Client: c.client, Object: group, Command: ctrlGetTimeslice, Params: at(&us), ParamsSize: 8}
			return rmIoctl(c.ctl, escControl, &v)
		}},
		{"a timeslice", func() error {
			timeslice = 1500
			v := nvos54{Client: c.client, Object: group, Command: ctrlSetTimeslice, Params: at(&timeslice), ParamsSize: 8}
			return rmIoctl(c.ctl, escControl, &v)
		}},
		{"an allocation and a free", func() error {
			m := memoryParams{Size: mib}
			v := nvos64{Root: c.client, Parent: c.device, Class: classLocal, Params: at(&m), ParamsSize: 128}
			if err := rmIoctl(c.ctl, escAlloc, &v); err != nil {
				return err
			}
			f := nvos00{Root: c.client, Object: v.Object}
			return failed(rmIoctl(c.ctl, escFree, &f), f.Status)
		}},
	}
	// The machine is emulated and shares its processor. Of many short rounds in turn, the best one is the one that
	// nothing interrupted.
	best := map[string][]time.Duration{}
	measure := func(state string) {
		if best[state] == nil {
			best[state] = slices.Repeat([]time.Duration{time.Hour}, len(kinds))
		}
		for i, k := range kinds {
			for range 30 {
				const calls = 5
				began := time.Now()
				for range calls {
					require.NoError(t, k.call())
				}
				best[state][i] = min(best[state][i], time.Since(began)/calls)
			}
		}
	}
	states := map[string]vgpuctl.Mode{"off": vgpuctl.ModeOff, "tracing": vgpuctl.ModeDryRun, "enforcing": vgpuctl.ModeEnforce}
	copies := map[string]vgpuctl.Mode{"enforcing with copies": vgpuctl.ModeEnforce}
	for range 2 {
		measure("absent")
		for _, w := range []struct {
			parameters []string
			states     map[string]vgpuctl.Mode
		}{{enforcing, states}, {private, copies}} {
			load(t, "vgpu", append(w.parameters, "timeslice_max_us=1000")...)
			d, err := vgpuctl.Open()
			require.NoError(t, err)
			limitTask(t, d, vgpuctl.MinorAny, 64*mib, 0)
			for state, mode := range w.states {
				require.NoError(t, d.SetMode(mode))
				measure(state)
			}
			d.Close()
			unload(t, "vgpu")
		}
	}
	for i, k := range kinds {
		line := fmt.Sprintf("cost of %s: absent %s, 1", k.name, best["absent"][i])
		for _, state := range []string{"off", "tracing", "enforcing", "enforcing with copies"} {
			ratio := float64(best[state][i]) / float64(best["absent"][i])
			line += fmt.Sprintf("; %s %.2f", state, ratio)
		}
		t.Log(line)
	}
}
