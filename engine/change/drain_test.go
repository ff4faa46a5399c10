package change

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// TestDrainState: what may be done to a GPU, by its drain state and by what holds it.
func TestDrainState(t *testing.T) {
	bus := func(s Source) profiles.BusID { return s.Board.Devices[0].PCI.BusID.Value }
	drain := func(tx *Tx) abi.Return { return tx.Drain(bus(tx.before), on) }
	remove := func(tx *Tx) abi.Return { return tx.Remove(bus(tx.before), 0, 0) }
	s := source(t)
	assert.Equal(t, abi.ERROR_IN_USE, drain(Begin(s, now)), "persistence mode")
	s = after(t, s, func(tx *Tx) abi.Return { return tx.PersistenceMode(0, off) })
	assert.Equal(t, abi.ERROR_IN_USE, remove(Begin(s, now)), "it is not drained")
	s = after(t, s, drain)
	assert.Equal(t, abi.ERROR_IN_USE, remove(Begin(s, now)), "a process of the profile")
	s = after(t, s, func(tx *Tx) abi.Return {
		require.NoError(t, tx.Set(0, ByUser, 0, profiles.Settings{"processes": []any{}}))
		return tx.ComputeMode(0, abi.COMPUTEMODE_PROHIBITED)
	})
	added := after(t, s, func(tx *Tx) abi.Return {
		tx.Record(0).Processes = []state.Process{{ID: "1", Keys: profiles.Settings{"pid": 8}}}
		return ok
	})
	assert.Equal(t, abi.ERROR_IN_USE, remove(Begin(added, now)), "a process that was added")
	assert.Equal(t, []profiles.UUID{s.Board.Devices[0].UUID}, s.State.Drained())

	hidden := s
	hidden.Hide(s.State.Drained())
	assert.Len(t, hidden.Board.Devices, 1)
	assert.Equal(t, s.Board.Devices[1].UUID, hidden.Board.Devices[0].UUID)
	gone := after(t, hidden, func(tx *Tx) abi.Return { return tx.Remove(bus(s), 0, 0) })
	for _, call := range []func(tx *Tx) abi.Return{
		func(tx *Tx) abi.Return { return tx.Drain(bus(s), off) },
		func(tx *Tx) abi.Return { return tx.Remove(bus(s), 0, 0) },
		func(tx *Tx) abi.Return { _, ret := tx.Drained(bus(s)); return ret },
	} {
		assert.Equal(t, invalid, call(Begin(gone, now)), "it is gone")
	}
	back := after(t, gone, func(tx *Tx) abi.Return { return tx.Discover(profiles.BusID{}) })
	back.Hide(back.State.Drained())
	require.Len(t, back.Board.Devices, 2)
	d := device(t, back)
	assert.Equal(t, "default", d.ComputeMode.Value, "the driver initialises it")
	assert.False(t, bool(d.PersistenceMode.Value))

	old := source(t)
	old.Board.Devices[0].Architecture = profiles.Some("maxwell")
	assert.Equal(t, unsupported, drain(Begin(old, now)))
}
