package engine_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

func ask(s *engine.Snapshot, handle uintptr, need engine.Need) abi.Return {
	_, ret := s.Device(handle, need)
	return ret
}

func TestALostGPULeavesItsNeighboursAlone(t *testing.T) {
	for _, mode := range []string{"lost", "fallen_off_bus"} {
		s := enginetest.Start(t, "count: 3\ndevices: [{index: 1, failure: {mode: "+mode+"}}]\n")
		for i, d := range s.Devices {
			want := abi.SUCCESS
			if i == 1 {
				want = abi.ERROR_GPU_IS_LOST
			}
			assert.Equal(t, want, d.Found(), "%s: look-up of GPU %d", mode, i)
			assert.Equal(t, want, ask(s, handleOf(t, s.Devices[i]), engine.Alive), "%s: GPU %d", mode, i)
			assert.Equal(t, abi.SUCCESS, ask(s, handleOf(t, s.Devices[i]), 0), "%s: GPU %d, where it need not be alive", mode, i)
		}
	}
}

// TestAGPUThatGetsLostKeepsItsHandle: a process that initialised NVML before the GPU got lost still finds the GPU, and
// each call answers that it is lost.
func TestAGPUThatGetsLostKeepsItsHandle(t *testing.T) {
	e, _ := started(t)
	s := e.Snapshot()
	handle := handleOf(t, s.Devices[2])
	lose := func(mode string) {
		board := *s.Board
		board.Devices = append([]profiles.Device{}, board.Devices...)
		board.Devices[2].Failure.Mode = profiles.Some(mode)
		require.NoError(t, e.Publish(engine.Node{Board: &board}))
	}
	lose("lost")
	assert.Equal(t, abi.SUCCESS, e.Snapshot().Devices[2].Found())
	assert.Equal(t, abi.ERROR_GPU_IS_LOST, ask(e.Snapshot(), handle, engine.Alive))
	assert.Equal(t, abi.SUCCESS, ask(s, handle, engine.Alive), "a call that began before")
	assert.Equal(t, abi.SUCCESS, ask(e.Snapshot(), handleOf(t, s.Devices[3]), engine.Alive))
	lose("healthy")
	assert.Equal(t, abi.SUCCESS, ask(e.Snapshot(), handle, engine.Alive))
}

func TestAGPUGetsLostByCalls(t *testing.T) {
	calls := func(failure string) (before int) {
		s := enginetest.Start(t, "count: 2\ndevices: [{index: 0, failure: {mode: lost, "+failure+"}}]\n")
		require.Equal(t, abi.SUCCESS, s.Devices[0].Found())
		first, second := handleOf(t, s.Devices[0]), handleOf(t, s.Devices[1])
		for ask(s, first, engine.Alive) == abi.SUCCESS && before < 10_000 {
			before++
			require.Equal(t, abi.SUCCESS, ask(s, second, engine.Alive))
		}
		assert.Equal(t, before < 10_000, ask(s, first, engine.Alive) == abi.ERROR_GPU_IS_LOST, "lost is lost")
		assert.Equal(t, abi.SUCCESS, s.Devices[0].Found(), "it keeps its handle")
		return before
	}
	assert.Equal(t, 5, calls("after_calls: 5"))
	assert.Equal(t, 0, calls("probability: 1"))
	assert.Equal(t, 10_000, calls("probability: 0"))
	one := calls("probability: 0.01, seed: 1")
	assert.Equal(t, one, calls("probability: 0.01, seed: 1"), "the seed decides")
	assert.NotEqual(t, one, calls("probability: 0.01, seed: 2"))
	assert.Greater(t, calls("probability: 0.5, after_calls: 100"), 99)
}

func TestMIGDevicesGetWhatTheRowSays(t *testing.T) {
	s := enginetest.Start(t, "count: 2\ndevices: [{index: 1, failure: {mode: lost}}]\n")
	mig, ret := s.AddMIG(0)
	require.Equal(t, abi.SUCCESS, ret)
	assert.Equal(t, abi.SUCCESS, ask(s, mig, engine.Alive))
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, ask(s, mig, engine.Alive|engine.WholeGPU))
	assert.Equal(t, abi.ERROR_NOT_SUPPORTED, ask(s, mig, engine.Alive|engine.NoMIG))
	assert.Equal(t, abi.SUCCESS, ask(s, handleOf(t, s.Devices[0]), engine.Alive|engine.WholeGPU|engine.NoMIG))
	ofLost, ret := s.AddMIG(1)
	require.Equal(t, abi.SUCCESS, ret)
	assert.Equal(t, abi.ERROR_GPU_IS_LOST, ask(s, ofLost, engine.Alive))
	assert.Equal(t, abi.SUCCESS, ask(s, ofLost, 0))
}

func TestSomeNeedsAreForAdministrators(t *testing.T) {
	s, host := enginetest.StartHost(t, "")
	handle := handleOf(t, s.Devices[0])
	for need, want := range map[engine.Need]abi.Return{
		engine.Alive:              abi.SUCCESS,
		engine.AutoBoostedClocks:  abi.SUCCESS, // drivers allow it to everybody
		engine.ApplicationsClocks: abi.ERROR_NO_PERMISSION,
		engine.MIGConfig:          abi.ERROR_NO_PERMISSION,
	} {
		host.User = true
		assert.Equal(t, want, ask(s, handle, need|engine.Alive), "%b", need)
		if want != abi.SUCCESS {
			assert.Equal(t, want, ask(s, 0, need), "%b: before arguments are looked at", need)
		}
		host.User = false
		assert.Equal(t, abi.SUCCESS, ask(s, handle, need|engine.Alive), "%b", need)
	}
}

func TestAnAdministratorDecidesWhomSomeSettersAreFor(t *testing.T) {
	s, host := enginetest.StartHost(t, "extends: h100\ndevices: [{index: 0, api_restriction: {application_clocks: disabled, auto_boosted_clocks: enabled}}]\n")
	host.User = true
	open, other := handleOf(t, s.Devices[0]), handleOf(t, s.Devices[1])
	assert.Equal(t, abi.SUCCESS, ask(s, open, engine.ApplicationsClocks|engine.Alive))
	assert.Equal(t, abi.ERROR_NO_PERMISSION, ask(s, open, engine.AutoBoostedClocks|engine.Alive))
	assert.Equal(t, abi.ERROR_NO_PERMISSION, ask(s, other, engine.ApplicationsClocks|engine.Alive))
	assert.Equal(t, abi.SUCCESS, ask(s, other, engine.AutoBoostedClocks|engine.Alive))
	host.User = false
	assert.Equal(t, abi.SUCCESS, ask(s, open, engine.AutoBoostedClocks|engine.Alive))
}
