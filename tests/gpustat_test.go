package tests

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// TestGpustat: gpustat reports every GPU of every shipped board as its profile describes it, with one process on the first.
func TestGpustat(t *testing.T) {
	namespaces(t)
	modules := filepath.Join(filepath.Dir(fetched(t, "gpustat", "gpustat")), "../lib/python3/dist-packages")
	for _, name := range profiles.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := mustBoard(t, name)
			out := inRun(t, nil, "--namespace", "--profile", name, "--process-memory", "512MiB", "--", "env", "PYTHONPATH="+modules,
				"PYTHONDONTWRITEBYTECODE=1", systemPython(t), "-m", "gpustat", "--json").succeeds(t)
			assert.Empty(t, out.stderr)
			var got struct {
				Driver string           `json:"driver_version"`
				GPUs   []map[string]any `json:"gpus"`
			}
			require.NoError(t, json.Unmarshal([]byte(out.stdout), &got))
			assert.Equal(t, b.System.DriverVersion.Value, got.Driver)
			require.Len(t, got.GPUs, len(b.Devices))
			for i := range b.Devices {
				d, g := &b.Devices[i], got.GPUs[i]
				var processes []any
				for _, p := range asList(g["processes"]) {
					processes = append(processes, p.(map[string]any)["gpu_memory_usage"])
				}
				g["processes"] = processes
				assert.Equal(t, wantGpustat(b, d), g)
			}
		})
	}
}

// asList is a list in JSON; null is an empty one.
func asList(v any) []any {
	list, _ := v.([]any)
	return list
}

func wantGpustat(b *profiles.Board, d *profiles.Device) map[string]any {
	whole := func(o profiles.Opt[uint64]) any { return when(o.Valid, float64(o.Value)) }
	from := func(o profiles.Opt[uint32], unit uint64) any {
		return whole(profiles.Opt[uint64]{Value: uint64(o.Value) / unit, Valid: o.Valid})
	}
	memory := func(bytes uint64) any { return when(d.Memory.TotalBytes.Valid, float64(bytes>>20)) }
	used := d.Memory.UsedBytes.Value + d.Memory.ReservedBytes.Value // gpustat asks by the older function, which counts both
	var processes []any
	if d.Index == 0 {
		used += 512 << 20
		if b.System.DriverVersion.Value >= "510" { // the function that it asks for processes came with that driver
			processes = []any{512.0}
		}
	}
	return map[string]any{
		"index": float64(d.Index), "uuid": string(d.UUID), "name": d.Name.Value, "processes": processes,
		"temperature.gpu": when(d.Thermal.TemperatureGPUC.Valid, float64(d.Thermal.TemperatureGPUC.Value)),
		"fan.speed":       when(d.Fan.SpeedPercent.Valid, float64(d.Fan.SpeedPercent.Value)),
		"utilization.gpu": from(d.Utilization.GPU, 1), "utilization.enc": from(d.Utilization.Encoder, 1),
		"utilization.dec": from(d.Utilization.Decoder, 1), "power.draw": from(d.Power.CurrentDrawMW, 1000),
		"enforced.power.limit": from(d.Power.EnforcedLimitMW, 1000), "memory.used": memory(used),
		"memory.total": memory(d.Memory.TotalBytes.Value),
	}
}
