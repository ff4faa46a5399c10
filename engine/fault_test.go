package engine_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// TestFailureModes: each mode of a failure answers something of its own, about the GPU that fails alone.
func TestFailureModes(t *testing.T) {
	for mode, want := range map[string]abi.Return{
		"healthy": abi.SUCCESS, "lost": abi.ERROR_GPU_IS_LOST, "fallen_off_bus": abi.ERROR_GPU_IS_LOST,
		"not_ready": abi.ERROR_NOT_READY, "reset_required": abi.ERROR_RESET_REQUIRED, "no_permission": abi.ERROR_NO_PERMISSION,
		"timeout": abi.ERROR_TIMEOUT, "unknown_error": abi.ERROR_UNKNOWN, "ecc_uncorrectable": abi.SUCCESS,
	} {
		s := enginetest.Start(t, "extends: h100\ndevices: [{index: 1, failure: {mode: "+mode+"}}]\n")
		assert.Equal(t, want, ask(s, handleOf(t, s.Devices[1]), engine.Alive), mode)
		assert.Equal(t, abi.SUCCESS, ask(s, handleOf(t, s.Devices[0]), engine.Alive), mode)
		assert.Equal(t, abi.SUCCESS, ask(s, handleOf(t, s.Devices[1]), 0), mode)
	}
}

// TestMemoryErrorsByCalls: a GPU whose memory fails after some calls counts an error from then on.
func TestMemoryErrorsByCalls(t *testing.T) {
	s := enginetest.Start(t, "extends: h100\ndevices: [{index: 1, failure: {mode: ecc_uncorrectable, after_calls: 2}}]\n")
	handle := handleOf(t, s.Devices[1])
	var counted []uint64
	for range 4 {
		d, ret := s.Device(handle, engine.Alive)
		require.Equal(t, abi.SUCCESS, ret)
		counted = append(counted, d.ECC.Errors.Volatile.DoubleBit.DeviceMemory.Value)
		assert.Equal(t, len(counted) > 2, d.RemappedRows.Pending.Value)
		assert.Same(t, s, d.Snapshot())
	}
	assert.Equal(t, []uint64{0, 0, 1, 1}, counted)
}

// TestInitFailure: NVML starts again as soon as the fault is gone, and a process that has started goes on.
func TestInitFailure(t *testing.T) {
	dir := t.TempDir()
	board, err := profiles.Shipped(profiles.Default)
	require.NoError(t, err)
	set := func(f func(*change.Tx) error) {
		_, _, err := state.At(dir).Update(func(now *state.State) (*state.State, error) {
			tx := change.Begin(change.Source{Board: board, Overridden: board, State: now, Origin: 1}, 1_700_000_000_000)
			if err := f(tx); err != nil {
				return nil, err
			}
			return tx.Finish()
		})
		require.NoError(t, err)
	}
	running := engine.New(enginetest.New("NVMLFAB_STATE_DIR", dir))
	require.NoError(t, running.Start())
	t.Cleanup(running.Stop)
	set(func(tx *change.Tx) error { return tx.Fail(-1, "", 0, change.Fault{Kind: "lib-rm-version-mismatch"}) })

	e := engine.New(enginetest.New("NVMLFAB_STATE_DIR", dir))
	var failure engine.InitFailure
	require.ErrorAs(t, e.Start(), &failure)
	assert.Equal(t, abi.ERROR_LIB_RM_VERSION_MISMATCH, failure.Answer)
	assert.Empty(t, e.Snapshot().Devices)
	assert.Len(t, running.Snapshot().Devices, 8)

	set(func(tx *change.Tx) error { _, err := tx.Heal(-1, ""); return err })
	require.NoError(t, e.Start())
	assert.Len(t, e.Snapshot().Devices, 8)
	e.Stop()
}

// TestInitFailureOfAProfile: a profile, and what overrides it, can say so too.
func TestInitFailureOfAProfile(t *testing.T) {
	for word, want := range map[string]abi.Return{
		"driver_not_loaded": abi.ERROR_DRIVER_NOT_LOADED, "lib_rm_version_mismatch": abi.ERROR_LIB_RM_VERSION_MISMATCH,
		"no_permission": abi.ERROR_NO_PERMISSION, "gpu_not_found": abi.ERROR_GPU_NOT_FOUND, "not_ready": abi.ERROR_NOT_READY,
		"timeout": abi.ERROR_TIMEOUT, "irq_issue": abi.ERROR_IRQ_ISSUE, "unknown_error": abi.ERROR_UNKNOWN,
	} {
		e := engine.New(enginetest.New("MOCK_NVML_CONFIG", enginetest.Write(t, "count: 1\nsystem: {init_failure: "+word+"}\n")))
		var failure engine.InitFailure
		require.ErrorAs(t, e.Start(), &failure, word)
		assert.Equal(t, want, failure.Answer)
	}
	e := engine.New(enginetest.New("MOCK_NVML_CONFIG", enginetest.Write(t, "count: 1\nsystem: {init_failure: none}\n")))
	require.NoError(t, e.Start())
	e.Stop()
}
