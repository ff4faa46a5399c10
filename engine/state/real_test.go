package state_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// enrol puts this process into a directory's state, and ends with its standard input.
func enrol(path string) error {
	b, err := profiles.Shipped("h100")
	if err != nil {
		return err
	}
	d := state.At(path)
	_, _, err = d.Update(func(now *state.State) (*state.State, error) {
		if now == nil {
			now = state.New(b, 1)
		}
		next := now.Clone()
		id, real, err := d.Enrol()
		if err != nil {
			return nil, err
		}
		r := next.Change(b.Devices[0].UUID)
		r.Processes = append(r.Processes, state.Process{ID: id, Keys: profiles.Settings{"pid": real.PID}, Started: 5, Real: real})
		return next, nil
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
	return nil
}

// TestReal: a real process lives for as long as it runs, and its end is noticed once. Files of nobody are swept.
func TestReal(t *testing.T) {
	d, b := state.At(t.TempDir()), board(t)
	cmd := again("enrolled", d.Path(), 0)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = out.Read(make([]byte, 64))
	require.NoError(t, err)

	s, err := d.Read(nil)
	require.NoError(t, err)
	p := &s.Device(b.Devices[0].UUID).Processes[0]
	assert.EqualValues(t, cmd.Process.Pid, s.PID(p))
	assert.Zero(t, s.End(p))
	assert.False(t, s.Hidden(p))
	assert.False(t, d.Moved(s))
	again, err := d.Read(s)
	require.NoError(t, err)
	assert.True(t, s.Sights() == again.Sights())

	// Its file may not be there: it is found by its id and start.
	files, err := filepath.Glob(filepath.Join(d.Path(), "processes", "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.Remove(files[0]))
	assert.False(t, d.Moved(s))
	stranger := *p
	real := *p.Real
	real.Start++
	stranger.Real, stranger.ID = &real, "../processes/x"
	other := s.Clone()
	other.Change(b.Devices[0].UUID).Processes[0] = stranger
	text, err := other.Encode()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(d.Path(), "state.json"), text, 0o644))
	other, err = state.At(d.Path()).Read(nil)
	require.NoError(t, err)
	assert.NotZero(t, other.End(&other.Device(b.Devices[0].UUID).Processes[0]), "another process has the id now")

	require.NoError(t, cmd.Process.Kill())
	in.Close()
	_ = cmd.Wait()
	assert.True(t, d.Moved(s))
	s2, err := state.Decode(mustEncode(t, s), nil)
	require.NoError(t, err)
	assert.Zero(t, s2.End(&s2.Device(b.Devices[0].UUID).Processes[0]), "nobody has looked")

	leftover := filepath.Join(d.Path(), "processes", "run-1-2-3")
	mine := filepath.Join(d.Path(), "processes", "mine")
	require.NoError(t, os.WriteFile(leftover, nil, 0o644))
	require.NoError(t, os.WriteFile(mine, nil, 0o644))
	update(t, d, b)
	assert.NoFileExists(t, leftover)
	assert.FileExists(t, mine)
}

func mustEncode(t *testing.T, s *state.State) []byte {
	t.Helper()
	text, err := s.Encode()
	require.NoError(t, err)
	return text
}
