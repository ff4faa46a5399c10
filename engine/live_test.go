package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// set is a change that gives a GPU other values.
func set(until int64, keys profiles.Settings) func(*change.Tx, int) abi.Return {
	return func(t *change.Tx, i int) abi.Return {
		if t.Set(i, change.ByUser, until, keys) != nil {
			return abi.ERROR_INVALID_ARGUMENT
		}
		return abi.SUCCESS
	}
}

// TestShared: what one process changes, another one reads at its next call.
func TestShared(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, state.At(dir).Create())
	a, _ := started(t, "NVMLFAB_STATE_DIR", dir)
	b, _ := started(t, "NVMLFAB_STATE_DIR", dir)
	assert.NoFileExists(t, filepath.Join(dir, "state.json"), "nothing has changed yet")
	untouched := b.Snapshot().Devices[0].Device
	require.Equal(t, abi.SUCCESS, a.Snapshot().Devices[1].Change(set(0, profiles.Settings{"thermal.temperature_gpu_c": 77})))
	for name, e := range map[string]*engine.Engine{"the writer": a, "another": b} {
		assert.EqualValues(t, 77, e.Snapshot().Devices[1].Readings().TemperatureC.Value, name)
	}
	assert.Same(t, untouched, b.Snapshot().Devices[0].Device, "a GPU about which nothing has changed is not made again")
	late, _ := started(t, "NVMLFAB_STATE_DIR", dir)
	assert.EqualValues(t, 77, late.Snapshot().Devices[1].Readings().TemperatureC.Value)

	refused := set(0, profiles.Settings{"uuid": "GPU-00000000-0000-0000-0000-000000000001"})
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, a.Snapshot().Devices[1].Change(refused))
}

// TestAlone: without a directory a change is seen by the process and its children, and one line says so once.
func TestAlone(t *testing.T) {
	e, h := started(t)
	for c := range int32(2) {
		require.Equal(t, abi.SUCCESS, e.Snapshot().Devices[1].Change(set(0, profiles.Settings{"thermal.temperature_gpu_c": c})))
	}
	assert.Len(t, h.Complaints, 1)
	forked := child(h)
	require.Equal(t, abi.SUCCESS, forked.Restore())
	assert.EqualValues(t, 1, forked.Snapshot().Devices[1].Readings().TemperatureC.Value)
}

// TestExpires: what is set for a while ends by itself, and counters go on from what they were then, in every process.
func TestExpires(t *testing.T) {
	dir := t.TempDir()
	enginetest.At(t, noon)
	a, _ := started(t, "NVMLFAB_STATE_DIR", dir)
	watts := func(e *engine.Engine) uint32 { return e.Snapshot().Devices[0].Readings().PowerMW.Value }
	energy := func(e *engine.Engine) uint64 { return e.Snapshot().Devices[0].Energy().Value }
	draws, used := uint64(watts(a)), energy(a)
	hour := noon.Add(time.Hour)
	require.Equal(t, abi.SUCCESS, a.Snapshot().Devices[0].Change(set(hour.UnixMilli(), profiles.Settings{"power.current_draw_mw": 500000})))
	enginetest.At(t, noon.Add(10*time.Second))
	assert.EqualValues(t, 500000, watts(a))
	assert.Equal(t, used+10*500000, energy(a))
	enginetest.At(t, hour.Add(10*time.Second))
	b, _ := started(t, "NVMLFAB_STATE_DIR", dir)
	for name, e := range map[string]*engine.Engine{"the writer": a, "a late one": b} {
		assert.EqualValues(t, draws, watts(e), name)
		assert.Equal(t, used+3600*500000+10*draws, energy(e), name)
	}
}

// TestOverrides: an overrides.yaml that somebody writes is read at the next look; a wrong one leaves the node as it was.
func TestOverrides(t *testing.T) {
	for _, where := range []string{"state directory", "beside the profile"} {
		t.Run(where, func(t *testing.T) {
			dir := t.TempDir()
			env := []string{"NVMLFAB_STATE_DIR", dir}
			if where != "state directory" {
				path := filepath.Join(dir, "board.yaml")
				require.NoError(t, os.WriteFile(path, []byte("extends: h100\ncount: 2\n"), 0o600))
				env = []string{"MOCK_NVML_CONFIG", path}
			}
			clock := noon
			enginetest.At(t, clock)
			e, h := started(t, env...)
			write := func(text string) {
				require.NoError(t, os.WriteFile(filepath.Join(dir, state.Overrides), []byte(text), 0o600))
				clock = clock.Add(state.Tick)
				enginetest.At(t, clock)
			}
			temperature := func() int32 { return e.Snapshot().Devices[0].Readings().TemperatureC.Value }
			before := temperature()
			for _, c := range []int32{70, 71} {
				write(fmt.Sprintf("device_defaults: {thermal: {temperature_gpu_c: %d}}\n", c))
				assert.Equal(t, c, temperature())
			}
			for _, text := range []string{"device_defaults: {thermal: {temprature_gpu_c: 72}}\n", "count: 3\n", "device_defaults: {"} {
				write(text)
				assert.EqualValues(t, 71, temperature(), text)
			}
			assert.Len(t, h.Complaints, 3)
			assert.Contains(t, h.Complaints[0], "temperature_gpu_c", "the nearest key")
			require.NoError(t, os.Remove(filepath.Join(dir, state.Overrides)))
			clock = clock.Add(state.Tick)
			enginetest.At(t, clock)
			assert.Equal(t, before, temperature())

			write("device_defaults: {thermal: {temprature_gpu_c: 72}}\n")
			again := engine.New(enginetest.New(env...))
			assert.ErrorContains(t, again.Start(), state.Overrides+":1:", "nvmlInit refuses a wrong file")
		})
	}
}

// TestTorn: a state.json that is torn, of other GPUs or gone leaves the node as it was, and one line says so.
func TestTorn(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"torn":     func(path string) error { return os.Truncate(path, 40) },
		"empty":    func(path string) error { return os.Truncate(path, 0) },
		"gone":     os.Remove,
		"a folder": func(path string) error { return os.Rename(path, path+".away") },
		"impossible": func(path string) error {
			return os.WriteFile(path, []byte(`{"format":1,"board":"","devices":{}}`), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			e, h := started(t, "NVMLFAB_STATE_DIR", dir)
			require.Equal(t, abi.SUCCESS, e.Snapshot().Devices[0].Change(set(0, profiles.Settings{"thermal.temperature_gpu_c": 77})))
			path := filepath.Join(dir, "state.json")
			require.NoError(t, damage(path))
			if name == "a folder" {
				require.NoError(t, os.Mkdir(path, 0o700))
			}
			for i := range 3 {
				enginetest.At(t, time.Now().Add(time.Duration(i+1)*state.Tick))
				assert.EqualValues(t, 77, e.Snapshot().Devices[0].Readings().TemperatureC.Value)
			}
			assert.Len(t, h.Complaints, 1)
		})
	}
}

// TestStateOfAnotherProfile: what was set before the profile became another one may not fit it any more. Programs then start
// with what the profile says, and one line tells why.
func TestStateOfAnotherProfile(t *testing.T) {
	dir, profile := t.TempDir(), filepath.Join(t.TempDir(), "mine.yaml")
	write := func(total int) {
		text := fmt.Sprintf("extends: t4\ndevice_defaults: {memory: {total_bytes: %d}}\n", total)
		require.NoError(t, os.WriteFile(profile, []byte(text), 0o600))
	}
	write(16 << 30)
	before, _ := started(t, "MOCK_NVML_CONFIG", profile, "NVMLFAB_STATE_DIR", dir)
	require.Equal(t, abi.SUCCESS, before.Snapshot().Devices[0].Change(set(0, profiles.Settings{"memory.used_bytes": 15_000_000_000})))
	write(8 << 30)
	e, h := started(t, "MOCK_NVML_CONFIG", profile, "NVMLFAB_STATE_DIR", dir)
	assert.EqualValues(t, 8<<30, e.Snapshot().Devices[0].Memory.TotalBytes.Value)
	require.Len(t, h.Complaints, 1)
	assert.Contains(t, h.Complaints[0], "does not fit the profile any more")
	assert.Contains(t, h.Complaints[0], "used and reserved are more than the total")
	assert.EqualValues(t, 15_000_000_000, before.Snapshot().Devices[0].Memory.UsedBytes.Value, "who has the old profile goes on")
}

// TestMissingDirectory: a state directory that does not exist is a mistake.
func TestMissingDirectory(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	err := engine.New(enginetest.New("NVMLFAB_STATE_DIR", missing)).Start()
	require.ErrorContains(t, err, "there is no state directory "+missing+": make it with mkdir")
	assert.NoDirExists(t, missing)
}
