package state_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/state"
)

// TestCapabilities: an instance has its files before others can see it, and until nobody can see it any more. What a writer
// that died has left goes at the next change, even at one that fails.
func TestCapabilities(t *testing.T) {
	dir, b := t.TempDir(), board(t)
	d := state.At(dir)
	at := func(name string) string { return filepath.Join(dir, "caps", name) }
	require.NoError(t, d.Prepare([]uint32{0, 3}))
	assert.DirExists(t, at("gpu3"))
	change := func(instances ...state.Instance) func(*state.State) (*state.State, error) {
		return func(now *state.State) (*state.State, error) {
			if now == nil {
				now = state.New(b, 1)
			}
			next := now.Clone()
			next.Change(b.Devices[3].UUID).Instances = instances
			return next, nil
		}
	}
	first := state.Instance{ID: 9, Serial: 1, Profile: 19, GPU: 3, Parts: []state.Part{{ID: 0, Serial: 2}}}
	_, _, err := d.Update(change(first))
	require.NoError(t, err)
	assert.FileExists(t, at("gpu3/gi9/access"))
	assert.FileExists(t, at("gpu3/gi9/ci0/access"))

	_, _, err = d.Update(func(now *state.State) (*state.State, error) {
		assert.FileExists(t, at("gpu3/gi9/access"))
		return change(state.Instance{ID: 1, Serial: 3, GPU: 3})(now)
	})
	require.NoError(t, err)
	assert.NoDirExists(t, at("gpu3/gi9"))
	assert.FileExists(t, at("gpu3/gi1/access"))

	require.NoError(t, os.MkdirAll(at("gpu0/gi2/ci0"), 0o755))
	require.NoError(t, os.WriteFile(at("gpu0/gi2/access"), nil, 0o444))
	_, _, err = d.Update(func(*state.State) (*state.State, error) { return nil, errors.New("no") })
	require.EqualError(t, err, "no")
	assert.NoDirExists(t, at("gpu0/gi2"))
	assert.FileExists(t, at("gpu3/gi1/access"))

	// A change whose files cannot be made is no change.
	require.NoError(t, os.RemoveAll(at("gpu3")))
	require.NoError(t, os.WriteFile(at("gpu3"), nil, 0o644))
	_, _, err = d.Update(change(first))
	require.ErrorContains(t, err, "caps/gpu3/gi9/access")
	s, err := d.Read(nil)
	require.NoError(t, err)
	assert.EqualValues(t, 3, s.Device(b.Devices[3].UUID).Instances[0].Serial)

	require.NoError(t, d.Remove())
	assert.NoDirExists(t, dir)
}
