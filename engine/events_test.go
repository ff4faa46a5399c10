package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

const (
	aXid    = uint64(abi.EventTypeXidCriticalError)
	aPState = uint64(abi.EventTypePState)
)

// happens lets events happen in the process itself.
func happens(t *testing.T, s *engine.Snapshot, f func(*change.Tx)) {
	t.Helper()
	require.Equal(t, abi.SUCCESS, s.Change(func(t *change.Tx) abi.Return { f(t); return abi.SUCCESS }))
}

// eventSet is a new set, and given the events that come until there are none as "GPU type data".
func eventSet(t *testing.T, e *engine.Engine) (set *engine.EventSet, given func() []string) {
	t.Helper()
	set, ret := e.Snapshot().NewEventSet()
	require.Equal(t, abi.SUCCESS, ret)
	return set, func() []string { return drained(t, e, set) }
}

func drained(t *testing.T, e *engine.Engine, set *engine.EventSet) (list []string) {
	t.Helper()
	handle, ret := set.Handle()
	require.Equal(t, abi.SUCCESS, ret)
	for {
		now, ret := e.Snapshot().EventSet(handle, 0) // as each call does
		require.Equal(t, abi.SUCCESS, ret)
		event, ret := now.Next()
		if ret == abi.ERROR_TIMEOUT {
			return list
		}
		require.Equal(t, abi.SUCCESS, ret)
		list = append(list, fmt.Sprintf("%d %d %d", event.Device.Index, event.Type, event.Data))
	}
}

// TestEventsComeOnce: a set has the events that its GPUs have had since they were registered, of the registered types, in
// order, each once. Another set has its own.
func TestEventsComeOnce(t *testing.T) {
	s, h := enginetest.StartHost(t, "")
	e := s.Engine()
	set, given := eventSet(t, e)
	assert.Empty(t, given(), "of a set without events")

	happens(t, s, func(t *change.Tx) { t.Event(1, aXid, 13) })
	require.Equal(t, abi.SUCCESS, set.Register(e.Snapshot().Devices[1], aXid|aPState))
	assert.Empty(t, given(), "what was before the registration")

	woken := h.Wakes
	happens(t, s, func(t *change.Tx) {
		t.Event(1, aXid, 31)
		t.Event(1, uint64(abi.EventTypeClock), 0)
		t.Event(2, aXid, 32)
		t.Event(-1, 1, 0)
	})
	assert.Greater(t, h.Wakes, woken, "who waits is woken")
	other, givenOther := eventSet(t, e)
	require.Equal(t, abi.SUCCESS, other.Register(e.Snapshot().Devices[2], aXid))
	require.Equal(t, abi.SUCCESS, set.Register(e.Snapshot().Devices[1], aXid), "a second time changes nothing")
	happens(t, s, func(t *change.Tx) { t.Event(1, aPState, 8); t.Event(2, aXid, 33) })
	assert.Equal(t, []string{"1 8 31", "1 4 8"}, given())
	assert.Empty(t, given())
	assert.Equal(t, []string{"2 8 33"}, givenOther())

	woken = h.Wakes
	set.Free()
	assert.Greater(t, h.Wakes, woken, "a wait for a set ends with the set")
	_, ret := set.Next()
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, ret)
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, set.Register(e.Snapshot().Devices[1], aXid))
}

// TestEventsOfALateSet: a set that is more than 1,024 events late goes on with the oldest that there is.
func TestEventsOfALateSet(t *testing.T) {
	s := enginetest.Start(t, "")
	set, given := eventSet(t, s.Engine())
	require.Equal(t, abi.SUCCESS, set.Register(s.Devices[0], aXid))
	const more = 100
	happens(t, s, func(t *change.Tx) {
		for i := range uint64(state.Remembered + more) {
			t.Event(0, aXid, i)
		}
	})
	list := given()
	require.Len(t, list, state.Remembered)
	assert.Equal(t, fmt.Sprintf("0 8 %d", more), list[0])
}

// TestEventsOfALostGPU: a lost GPU's events come, with the GPU.
func TestEventsOfALostGPU(t *testing.T) {
	s := enginetest.Start(t, "")
	set, given := eventSet(t, s.Engine())
	require.Equal(t, abi.SUCCESS, set.Register(s.Devices[3], aXid))
	happens(t, s, func(tx *change.Tx) {
		assert.NoError(t, tx.Set(3, change.ByFault+"lost", 0, map[string]any{"failure.mode": "lost"}))
		tx.Event(3, aXid, 79)
	})
	assert.Equal(t, []string{"3 8 79"}, given())
}

// TestEventsOfInstances: what happened to one GPU instance is told to those who may see other people's instances.
func TestEventsOfInstances(t *testing.T) {
	s, h := enginetest.StartHost(t, "")
	set, given := eventSet(t, s.Engine())
	require.Equal(t, abi.SUCCESS, set.Register(s.Devices[0], aXid))
	one := uint32(1)
	happens(t, s, func(t *change.Tx) {
		t.Add(state.Event{Device: t.UUID(0), Type: aXid, Data: 43, Instance: &one})
		t.Event(0, aXid, 31)
	})
	h.User = true
	assert.Equal(t, []string{"0 8 31"}, given())
	h.User = false
	happens(t, s, func(t *change.Tx) { t.Add(state.Event{Device: t.UUID(0), Type: aXid, Data: 43, Instance: &one}) })
	assert.Equal(t, []string{"0 8 43"}, given())
}

// TestSystemEvents: those of the node have a set of another kind.
func TestSystemEvents(t *testing.T) {
	s := enginetest.Start(t, "")
	set, ret := s.NewSystemEventSet()
	require.Equal(t, abi.SUCCESS, ret)
	require.Equal(t, abi.SUCCESS, set.Register(abi.SystemEventTypeGpuDriverBind))
	happens(t, s, func(t *change.Tx) {
		t.DriverBound(0, false)
		t.DriverBound(5, true)
		t.Event(0, uint64(abi.SystemEventTypeGpuDriverBind), 0) // of a GPU: another event with that number
	})
	e, ret := set.Next()
	require.Equal(t, abi.SUCCESS, ret)
	at := s.Devices[5].PCI.BusID.Value
	assert.Equal(t, uint64(abi.SystemEventTypeGpuDriverBind), e.Type)
	assert.Equal(t, uint64(at.Domain)<<16|uint64(at.Bus)<<8|uint64(at.Device), e.Data)
	_, ret = set.Next()
	assert.Equal(t, abi.ERROR_TIMEOUT, ret)
}

// TestEventsOfADirectory: events come from other processes through the state directory. After a fork parent and child
// have the set, and each gets what happens later. A state that has begun anew does not silence a set.
func TestEventsOfADirectory(t *testing.T) {
	dir := t.TempDir()
	h := enginetest.New("NVMLFAB_STATE_DIR", dir)
	e := engine.New(h)
	require.NoError(t, e.Start())
	t.Cleanup(e.Stop)
	elsewhere := func(data uint64) {
		t.Helper()
		_, _, err := state.At(dir).Update(func(now *state.State) (*state.State, error) {
			tx := change.Begin(change.Source{Board: e.Snapshot().Board, Overridden: e.Snapshot().Board, State: now}, 1)
			tx.Event(2, aXid, data)
			return tx.Finish()
		})
		require.NoError(t, err)
	}
	elsewhere(1)
	set, given := eventSet(t, e)
	require.Equal(t, abi.SUCCESS, set.Register(e.Snapshot().Devices[2], aXid), "looks first what has happened already")
	assert.Empty(t, given())
	elsewhere(2)
	assert.Equal(t, []string{"2 8 2"}, given())

	elsewhere(3)
	child := engine.New(h)
	require.Equal(t, abi.SUCCESS, child.Restore())
	handle, ret := set.Handle()
	require.Equal(t, abi.SUCCESS, ret)
	inherited, ret := child.Snapshot().EventSet(handle, 0)
	require.Equal(t, abi.SUCCESS, ret)
	assert.Equal(t, []string{"2 8 3"}, drained(t, child, inherited))

	for range 5 {
		elsewhere(4)
	}
	given()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "state.json"), []byte("nothing"), 0o600))
	elsewhere(5)
	assert.Equal(t, []string{"2 8 5"}, given())
}

// TestChangesSendEvents: a change that programs wait for sends its event by itself, and once.
func TestChangesSendEvents(t *testing.T) {
	s := enginetest.Start(t, "")
	set, given := eventSet(t, s.Engine())
	require.Equal(t, abi.SUCCESS, set.Register(s.Devices[0], uint64(abi.EventTypeAll)))
	for _, c := range []struct {
		keys  map[string]any
		sends []string
	}{
		{map[string]any{"performance_state": "P8"}, []string{"0 4 8"}},
		{map[string]any{"clocks.sm_current": 1000}, []string{"0 16 0"}},
		{map[string]any{"mig.mode_current": "enabled"}, []string{"0 256 0"}},
		{map[string]any{"ecc.errors.volatile.single_bit.device_memory": 2}, []string{"0 1 0"}},
		{map[string]any{"ecc.sram.volatile.uncorrectable_parity": 1}, []string{"0 2 0"}},
		{map[string]any{"ecc.sram.volatile.uncorrectable_parity": 0}, nil},
		{map[string]any{"persistence_mode": "disabled"}, nil},
	} {
		happens(t, s, func(tx *change.Tx) { assert.NoError(t, tx.Set(0, change.ByUser, 0, c.keys)) })
		assert.Equal(t, c.sends, given(), "%v", c.keys)
	}
	happens(t, s, func(tx *change.Tx) {
		tx.Event(0, uint64(abi.EventTypeDoubleBitEccError), 0)
		assert.NoError(t, tx.Set(0, change.ByUser, 0, map[string]any{"ecc.sram.volatile.uncorrectable_parity": 7}))
	})
	assert.Equal(t, []string{"0 2 0"}, given())
}
