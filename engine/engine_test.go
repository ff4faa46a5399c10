package engine_test

import (
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// started is a running engine in a process with that environment.
func started(t testing.TB, env ...string) (*engine.Engine, *enginetest.Host) {
	t.Helper()
	h := enginetest.New(env...)
	e := engine.New(h)
	require.NoError(t, e.Start())
	return e, h
}

// handleOf is an object's handle.
func handleOf(t testing.TB, o interface{ Handle() (uintptr, abi.Return) }) uintptr {
	t.Helper()
	handle, ret := o.Handle()
	require.Equal(t, abi.SUCCESS, ret)
	require.NotZero(t, handle)
	return handle
}

func newEventSet(t testing.TB, s *engine.Snapshot) *engine.EventSet {
	t.Helper()
	set, ret := s.NewEventSet()
	require.Equal(t, abi.SUCCESS, ret)
	return set
}

func TestDefaultBoard(t *testing.T) {
	s := enginetest.Start(t, "")
	want, err := profiles.Shipped(profiles.Default)
	require.NoError(t, err)
	require.Len(t, s.Devices, len(want.Devices))
	assert.Equal(t, 580, s.Branch)
	for i, d := range s.Devices {
		assert.Equal(t, want.Devices[i].UUID, d.UUID)
		assert.Same(t, s, d.Snapshot())
		assert.Same(t, d, s.DeviceAt(uint32(i)))
		assert.Same(t, d, s.DeviceByUUID(string(d.UUID)))
		assert.Same(t, d, s.DeviceByBusID(d.PCI.BusID.Value))
		found, ret := s.Device(handleOf(t, d), engine.Alive)
		assert.Equal(t, abi.SUCCESS, ret)
		assert.Same(t, d, found)
		assert.Equal(t, handleOf(t, d), handleOf(t, d), "one handle")
	}
	assert.Nil(t, s.DeviceAt(uint32(len(s.Devices))))
	assert.Nil(t, s.DeviceAt(^uint32(0)))
	assert.Nil(t, s.DeviceByUUID("GPU-00000000-0000-0000-0000-000000000000"))
}

// TestBeforeStart: there is always a snapshot, and before nvmlInit it is empty.
func TestBeforeStart(t *testing.T) {
	e := engine.New(enginetest.New())
	s := e.Snapshot()
	assert.Same(t, e, s.Engine())
	assert.Empty(t, s.Devices)
	_, ret := s.NewEventSet()
	assert.Equal(t, abi.ERROR_UNINITIALIZED, ret)
	_, ret = s.Device(enginetest.Base, engine.Alive)
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, ret)
}

func TestConfiguration(t *testing.T) {
	path := enginetest.Write(t, "extends: h100\ncount: 3\n")
	e, h := started(t, "NVMLFAB_PROFILE", "t4", "MOCK_NVML_CONFIG", path)
	assert.Len(t, e.Snapshot().Devices, 3, "a file wins over a board's name")

	h.SetUser = true
	require.NoError(t, e.Start())
	assert.Len(t, e.Snapshot().Devices, 8, "with another user's privileges no variable is obeyed")

	e, _ = started(t, "NVMLFAB_PROFILE", "gb200")
	assert.Equal(t, "gb200", e.Snapshot().Board.Name)
}

func TestConfigurationErrors(t *testing.T) {
	bad := enginetest.Write(t, "extends: h100\nno_such_key: 1\n")
	for name, c := range map[string]struct {
		env  []string
		want []string
	}{
		"unknown board": {[]string{"NVMLFAB_PROFILE", "nope"}, []string{"NVMLFAB_PROFILE", "nope"}},
		"missing file":  {[]string{"MOCK_NVML_CONFIG", "/no/such/file"}, []string{"/no/such/file"}},
		"unknown key":   {[]string{"MOCK_NVML_CONFIG", bad}, []string{bad + ":2: ", "no_such_key"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := engine.New(enginetest.New(c.env...))
			err := e.Start()
			require.Error(t, err)
			for _, want := range c.want {
				assert.ErrorContains(t, err, want)
			}
			assert.Empty(t, e.Snapshot().Devices, "no other GPUs take their place")
		})
	}
}

// TestTwoEngines: two engines share nothing.
func TestTwoEngines(t *testing.T) {
	a, _ := started(t)
	b, _ := started(t, "NVMLFAB_PROFILE", "t4")
	assert.NotEqual(t, a.Snapshot().Devices[0].Name, b.Snapshot().Devices[0].Name)
	b.Stop()
	assert.NotEmpty(t, a.Snapshot().Devices)
}

func TestForeignHandles(t *testing.T) {
	s := enginetest.Start(t, "")
	handle := handleOf(t, s.Devices[0])
	set := handleOf(t, newEventSet(t, s))
	for _, foreign := range []uintptr{0, 1, handle + 8, handle - 8, handle + 1, enginetest.Base - enginetest.Stride,
		enginetest.Base + 1000*enginetest.Stride, ^uintptr(0), set} {
		_, ret := s.Device(foreign, engine.Alive)
		assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, ret, "%#x", foreign)
	}
	_, ret := s.EventSet(handle, 0)
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, ret, "a handle of another kind")
}

// TestStaleHandles: a handle is not valid after the generation that made it, and is never used again.
func TestStaleHandles(t *testing.T) {
	h := enginetest.New()
	e := engine.New(h)
	valid := func(handle uintptr) bool {
		_, device := e.Snapshot().Device(handle, engine.Alive)
		_, set := e.Snapshot().EventSet(handle, 0)
		return device == abi.SUCCESS || set == abi.SUCCESS
	}
	seen := map[uintptr]bool{}
	for range 20 {
		require.NoError(t, e.Start())
		handles := []uintptr{handleOf(t, newEventSet(t, e.Snapshot()))}
		for _, d := range e.Snapshot().Devices {
			handles = append(handles, handleOf(t, d))
		}
		for _, a := range handles {
			assert.False(t, seen[a], "%#x is used again", a)
			assert.True(t, valid(a), "%#x", a)
		}
		for a := range seen {
			assert.False(t, valid(a), "%#x is stale", a)
		}
		for _, a := range handles {
			seen[a] = true
		}
		e.Stop()
		h.End()
		assert.False(t, valid(handles[0]))
		assert.Empty(t, e.Snapshot().Devices)
	}
}

func TestEventSets(t *testing.T) {
	s := enginetest.Start(t, "")
	handles := map[uintptr]bool{}
	for range 100 {
		handles[handleOf(t, newEventSet(t, s))] = true
	}
	assert.Len(t, handles, 100)
	for handle := range handles {
		set, ret := s.EventSet(handle, 0)
		require.Equal(t, abi.SUCCESS, ret)
		set.Free()
		_, ret = s.EventSet(handle, 0)
		assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, ret)
		assert.NotContains(t, handles, handleOf(t, newEventSet(t, s)))
	}
}

// TestLateCalls: a call that took its snapshot before nvmlShutdown cannot make handles in the next generation.
func TestLateCalls(t *testing.T) {
	e, h := started(t)
	late := e.Snapshot()
	set := newEventSet(t, late)
	e.Stop()
	h.End()
	require.NoError(t, e.Start())
	fresh := handleOf(t, e.Snapshot().Devices[0])

	set.Free()
	_, ret := late.NewEventSet()
	assert.Equal(t, abi.ERROR_UNINITIALIZED, ret)
	_, ret = late.Devices[0].Handle()
	assert.Equal(t, abi.ERROR_UNINITIALIZED, ret)
	_, ret = late.Device(fresh, engine.Alive)
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, ret)
	_, ret = e.Snapshot().Device(fresh, engine.Alive)
	assert.Equal(t, abi.SUCCESS, ret)
}

func TestOutOfHandles(t *testing.T) {
	s, h := enginetest.StartHost(t, "")
	h.Limit = 1
	newEventSet(t, s)
	_, ret := s.NewEventSet()
	assert.Equal(t, abi.ERROR_MEMORY, ret)
	_, ret = s.Devices[0].Handle()
	assert.Equal(t, abi.ERROR_MEMORY, ret)
}

// TestPublish: a handle leads to the newest values, a running call keeps its snapshot, and what nvmlInit fixed does not
// change.
func TestPublish(t *testing.T) {
	e, _ := started(t, "NVMLFAB_PROFILE", "t4")
	old := e.Snapshot()
	handle := handleOf(t, old.Devices[0])

	board := *old.Board
	board.System.DriverVersion = profiles.Some("999.1")
	board.Devices = append([]profiles.Device(nil), board.Devices...)
	board.Devices[0].Name = profiles.Some("another")
	board.Devices[0].UUID = "GPU-11111111-1111-1111-1111-111111111111"
	board.Devices[0].MinorNumber = profiles.Some[uint32](77)
	require.NoError(t, e.Publish(engine.Node{Board: &board}))

	d, ret := e.Snapshot().Device(handle, engine.Alive)
	require.Equal(t, abi.SUCCESS, ret)
	assert.Equal(t, "another", d.Name.Value)
	assert.Equal(t, handle, handleOf(t, d))
	assert.Equal(t, old.Devices[0].UUID, d.UUID)
	assert.Equal(t, old.Devices[0].MinorNumber, d.MinorNumber)
	assert.Equal(t, old.Board.System, d.Snapshot().Board.System)
	d, ret = old.Device(handle, engine.Alive)
	require.Equal(t, abi.SUCCESS, ret)
	assert.Equal(t, "Tesla T4", d.Name.Value)

	board.Devices = nil
	assert.Error(t, e.Publish(engine.Node{Board: &board}), "nvmlInit fixed the number of devices")
	e.Stop()
	assert.Error(t, e.Publish(engine.Node{Board: old.Board}), "no node")
}

// child is the engine of a forked process: a new core on the same memory.
func child(h *enginetest.Host) *engine.Engine { return engine.New(h) }

// TestRestore: in a forked child each handle stands for the same object as in the parent.
func TestRestore(t *testing.T) {
	parent, h := started(t)
	s := parent.Snapshot()
	freed, kept := newEventSet(t, s), newEventSet(t, s)
	freed.Free()
	var handles []uintptr
	for _, d := range s.Devices[:5] {
		handles = append(handles, handleOf(t, d))
	}

	e := child(h)
	require.Equal(t, abi.SUCCESS, e.Restore())
	for i, handle := range handles {
		d, ret := e.Snapshot().Device(handle, engine.Alive)
		require.Equal(t, abi.SUCCESS, ret)
		assert.Equal(t, uint32(i), d.Index)
		assert.Equal(t, s.Devices[i].UUID, d.UUID)
		assert.Equal(t, handle, handleOf(t, d), "one handle, in the child too")
	}
	assert.NotContains(t, handles, handleOf(t, e.Snapshot().Devices[7]))
	_, ret := e.Snapshot().EventSet(handleOf(t, kept), 0)
	assert.Equal(t, abi.SUCCESS, ret)
	_, ret = e.Snapshot().EventSet(handleOf(t, freed), 0)
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, ret)
	assert.NotEqual(t, handleOf(t, kept), handleOf(t, newEventSet(t, e.Snapshot())))
}

// TestRestoreTheSameBoard: a forked process keeps its GPUs when the environment or the file has changed since.
func TestRestoreTheSameBoard(t *testing.T) {
	path := enginetest.Write(t, "extends: t4\ncount: 2\n")
	parent, h := started(t, "MOCK_NVML_CONFIG", path)
	handleOf(t, parent.Snapshot().Devices[1])
	require.NoError(t, os.WriteFile(path, []byte("extends: h100\n"), 0o600))
	h.Env["MOCK_NVML_CONFIG"] = "/no/such/file"
	e := child(h)
	require.Equal(t, abi.SUCCESS, e.Restore())
	require.Len(t, e.Snapshot().Devices, 2)
	assert.Equal(t, "Tesla T4", e.Snapshot().Devices[0].Name.Value)

	config := h.Kept()
	for n := range config {
		require.NoError(t, h.Keep(config[:n]))
		assert.Equal(t, abi.ERROR_UNKNOWN, child(h).Restore(), "%d bytes of what was kept", n)
	}
	other, elsewhere := started(t, "NVMLFAB_PROFILE", "t4")
	require.Len(t, other.Snapshot().Devices, 1)
	require.NoError(t, h.Keep(elsewhere.Kept()))
	assert.Equal(t, abi.ERROR_UNKNOWN, child(h).Restore(), "other GPUs than the handles stand for")
	parent.Stop()
	assert.Empty(t, h.Kept(), "a generation that ended leaves nothing")
}

// TestConcurrency: look-ups race with starts and stops, and find either the device of that handle or nothing.
func TestConcurrency(t *testing.T) {
	e, h := started(t)
	handle := handleOf(t, e.Snapshot().Devices[3])
	var done atomic.Bool
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for !done.Load() {
				s := e.Snapshot()
				if d, ret := s.Device(handle, engine.Alive); ret == abi.SUCCESS {
					assert.EqualValues(t, 3, d.Index)
				}
				for _, d := range s.Devices {
					assert.NotEmpty(t, d.UUID)
				}
				if set, ret := s.NewEventSet(); ret == abi.SUCCESS {
					set.Free()
				}
			}
		})
	}
	for range 50 {
		e.Stop()
		h.End()
		assert.NoError(t, e.Start())
	}
	done.Store(true)
	readers.Wait()
}
