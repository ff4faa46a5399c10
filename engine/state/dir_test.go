package state_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/profiles"
)

func board(t *testing.T) *profiles.Board {
	b, err := profiles.Shipped("h100")
	require.NoError(t, err)
	return b
}

// update raises the state's serial.
func update(t *testing.T, d *state.Dir, b *profiles.Board) *state.State {
	s, aside, err := d.Update(func(now *state.State) (*state.State, error) {
		if now == nil {
			now = state.New(b, 1)
		}
		next := now.Clone()
		next.Serial++
		next.Change(b.Devices[0].UUID).Set = []state.Layer{{Keys: profiles.Settings{"power.enforced_limit_mw": 300000}}}
		return next, nil
	})
	require.NoError(t, err)
	require.NoError(t, aside)
	return s
}

func TestUpdate(t *testing.T) {
	d, b := state.At(t.TempDir()), board(t)
	follower := d.Follow()
	changed, number := follower.Look()
	assert.False(t, changed, "nothing is there")
	follower.Seen(number, 1000)
	assert.False(t, follower.Stale(999))
	assert.True(t, follower.Stale(1000))

	update(t, d, b)
	changed, number = follower.Look()
	assert.True(t, changed)
	follower.Seen(number, 1000)
	assert.False(t, follower.Stale(999))
	first, err := d.Read(nil)
	require.NoError(t, err)
	assert.EqualValues(t, 1, first.Serial)
	assert.True(t, first.Fits(b))

	update(t, d, b)
	assert.True(t, follower.Stale(0), "the number tells")
	second, err := d.Read(first)
	require.NoError(t, err)
	assert.EqualValues(t, 2, second.Serial)
	assert.Same(t, first.Device(b.Devices[0].UUID), second.Device(b.Devices[0].UUID), "what has not changed is shared")

	require.NoError(t, os.WriteFile(filepath.Join(d.Path(), "state.json"), []byte(`{"format":1,"devices":{`), 0o644))
	_, err = d.Read(nil)
	assert.ErrorContains(t, err, "state.json")
	_, aside, err := d.Update(func(now *state.State) (*state.State, error) {
		assert.Nil(t, now)
		return state.New(b, 2), nil
	})
	require.NoError(t, err)
	assert.ErrorContains(t, aside, ".bad")
	assert.FileExists(t, filepath.Join(d.Path(), "state.json.bad"))
}

// TestUnknown: keys of the same format that a newer version added stay, and a newer format is left alone.
func TestUnknown(t *testing.T) {
	d, b := state.At(t.TempDir()), board(t)
	path := filepath.Join(d.Path(), "state.json")
	uuid := string(b.Devices[0].UUID)
	text := `{"format":1,"created":5,"news":[1],"devices":{"` + uuid + `":{"novelty":{"a":18446744073709551615}},"GPU-00000000-0000-0000-0000-000000000001":{"set":[{"keys":{"a":1}}]}}}`
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	update(t, d, b)
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Contains(t, string(written), `"news":[1]`)
	assert.Contains(t, string(written), `"novelty":{"a":18446744073709551615}`)
	assert.Contains(t, string(written), `"GPU-00000000-0000-0000-0000-000000000001":{"set":[{"keys":{"a":1}}]}`)
	assert.Contains(t, string(written), `"power.enforced_limit_mw":300000`)

	require.NoError(t, os.WriteFile(path, []byte(`{"format":2,"created":5}`), 0o644))
	_, _, err = d.Update(func(*state.State) (*state.State, error) { panic("not called") })
	assert.ErrorIs(t, err, state.ErrNewer)
}

// TestThreads: no update of many threads is lost.
func TestThreads(t *testing.T) {
	path, b := t.TempDir(), board(t)
	var done sync.WaitGroup
	for range 4 {
		done.Go(func() {
			d := state.At(path)
			for range 25 {
				update(t, d, b)
			}
		})
	}
	done.Wait()
	s, err := state.At(path).Read(nil)
	require.NoError(t, err)
	assert.EqualValues(t, 100, s.Serial)
}
