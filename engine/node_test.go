package engine_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// kinds resolves a handle as each kind in nvml.h and lists the kinds for which that succeeds.
func kinds(s *engine.Snapshot, handle uintptr) (list []string) {
	note := func(kind string, ret abi.Return) {
		if ret == abi.SUCCESS {
			list = append(list, kind)
		}
	}
	d, ret := s.Device(handle, engine.Alive)
	if ret == abi.SUCCESS && d.Instance != nil {
		note("MIG device", ret)
	} else {
		note("device", ret)
	}
	_, ret = s.GpuInstance(handle, engine.Alive)
	note("GPU instance", ret)
	_, ret = s.ComputeInstance(handle, engine.Alive)
	note("compute instance", ret)
	_, ret = s.Unit(handle, 0)
	note("unit", ret)
	_, ret = s.EventSet(handle, 0)
	note("event set", ret)
	_, ret = s.SystemEventSet(handle, 0)
	note("system event set", ret)
	_, ret = s.GpmSample(handle, 0)
	note("GPM sample", ret)
	return list
}

// parted is a node whose second GPU has one GPU instance, with that serial, and two compute instances.
func parted(board *profiles.Board, serial uint64) engine.Node {
	return engine.Node{Board: board, Partitions: []engine.Partition{{Device: 1, ID: 5, Serial: serial, Parts: []engine.Part{
		{ID: 0, Serial: serial + 1, UUID: "MIG-11111111-1111-1111-1111-111111111111"},
		{ID: 1, Serial: serial + 2, UUID: "MIG-22222222-2222-2222-2222-222222222222"},
	}}}}
}

// withUnit is an engine whose node has an S-class unit.
func withUnit(t *testing.T) (*engine.Engine, *enginetest.Host) {
	t.Helper()
	return started(t, "MOCK_NVML_CONFIG", enginetest.Write(t, "extends: h100\nunits: [{name: S2050, devices: [1]}]\n"))
}

// everything makes one object of each kind, of the node and of the process, and returns their handles by kind.
func everything(t *testing.T, e *engine.Engine) map[string]uintptr {
	t.Helper()
	require.NoError(t, e.Publish(parted(e.Snapshot().Board, 100)))
	s := e.Snapshot()
	handles := map[string]uintptr{"device": handleOf(t, s.Devices[1]), "event set": handleOf(t, newEventSet(t, s))}
	gi := s.GpuInstances(s.Devices[1])
	require.Len(t, gi, 1)
	assert.EqualValues(t, 5, gi[0].ID)
	assert.Same(t, s.Devices[1], gi[0].Parent)
	handles["GPU instance"] = handleOf(t, gi[0])
	require.Len(t, gi[0].Parts, 2)
	ci := gi[0].Parts[1]
	assert.Same(t, gi[0], ci.Parent)
	assert.Same(t, ci, ci.Device.Instance)
	assert.EqualValues(t, "MIG-22222222-2222-2222-2222-222222222222", ci.Device.UUID)
	assert.Equal(t, s.Devices[1].Name, ci.Device.Name)
	handles["compute instance"] = handleOf(t, ci)
	handles["MIG device"] = handleOf(t, ci.Device)
	require.Len(t, s.Units, 1)
	handles["unit"] = handleOf(t, s.Units[0])
	systemSet, ret := s.NewSystemEventSet()
	require.Equal(t, abi.SUCCESS, ret)
	handles["system event set"] = handleOf(t, systemSet)
	sample, ret := s.NewGpmSample()
	require.Equal(t, abi.SUCCESS, ret)
	handles["GPM sample"] = handleOf(t, sample)
	return handles
}

// TestKinds: a handle has one kind, is the only handle of its object, and ends with its generation.
func TestKinds(t *testing.T) {
	e, h := withUnit(t)
	handles := everything(t, e)
	assert.Len(t, handles, 8)
	seen := map[uintptr]bool{}
	for kind, handle := range handles {
		assert.Equal(t, []string{kind}, kinds(e.Snapshot(), handle))
		assert.False(t, seen[handle], "%s has the handle of another", kind)
		seen[handle] = true
	}

	// Another snapshot of the same objects.
	require.NoError(t, e.Publish(parted(e.Snapshot().Board, 100)))
	for kind, handle := range handles {
		assert.Equal(t, []string{kind}, kinds(e.Snapshot(), handle))
	}
	assert.Equal(t, handles["GPU instance"], handleOf(t, e.Snapshot().GpuInstances(e.Snapshot().Devices[1])[0]))

	// The GPU instance is made again: it has the same number but is another object. Other objects stay the same.
	old := e.Snapshot()
	require.NoError(t, e.Publish(parted(old.Board, 200)))
	for kind, handle := range handles {
		switch kind {
		case "GPU instance", "compute instance", "MIG device":
			assert.Empty(t, kinds(e.Snapshot(), handle), kind)
		default:
			assert.Equal(t, []string{kind}, kinds(e.Snapshot(), handle))
		}
		assert.Equal(t, []string{kind}, kinds(old, handle), "a call that began before")
	}
	assert.NotEqual(t, handles["GPU instance"], handleOf(t, e.Snapshot().GpuInstances(e.Snapshot().Devices[1])[0]))

	e.Stop()
	h.End()
	require.NoError(t, e.Start())
	for kind, handle := range handles {
		assert.Empty(t, kinds(e.Snapshot(), handle), "%s of an earlier generation", kind)
	}
	assert.Error(t, e.Publish(engine.Node{Board: e.Snapshot().Board, Partitions: []engine.Partition{{Device: 8}}}))
}

// TestRestoreKinds: in a forked process handles of all kinds stand for the same objects, and no object gets a second
// handle.
func TestRestoreKinds(t *testing.T) {
	parent, h := withUnit(t)
	handles := everything(t, parent)
	e := child(h)
	require.Equal(t, abi.SUCCESS, e.Restore())
	for kind, handle := range handles {
		assert.Equal(t, []string{kind}, kinds(e.Snapshot(), handle))
	}
	s := e.Snapshot()
	gi := s.GpuInstances(s.Devices[1])[0]
	assert.Equal(t, handles["GPU instance"], handleOf(t, gi))
	assert.Equal(t, handles["compute instance"], handleOf(t, gi.Parts[1]))
	assert.Equal(t, handles["MIG device"], handleOf(t, gi.Parts[1].Device))
	assert.Equal(t, handles["unit"], handleOf(t, s.Units[0]))
	known := map[uintptr]bool{}
	for _, handle := range handles {
		known[handle] = true
	}
	assert.False(t, known[handleOf(t, newEventSet(t, s))])
	assert.False(t, known[handleOf(t, gi.Parts[0])])
}

// TestContent: the content of the process's objects survives a fork and ends with the objects.
func TestContent(t *testing.T) {
	parent, h := started(t)
	set, other := newEventSet(t, parent.Snapshot()), newEventSet(t, parent.Snapshot())
	content := func(set *engine.EventSet) []byte {
		b, ret := set.Content()
		require.Equal(t, abi.SUCCESS, ret)
		return b
	}
	write := func(set *engine.EventSet, text string) abi.Return {
		return set.Update(func(b []byte) []byte { return append(b, text...) })
	}
	assert.Empty(t, content(set))
	require.Equal(t, abi.SUCCESS, write(set, "GPU 0"))
	require.Equal(t, abi.SUCCESS, write(set, ", GPU 3"))
	require.Equal(t, abi.SUCCESS, write(other, "nothing"))

	e := child(h)
	require.Equal(t, abi.SUCCESS, e.Restore())
	again, ret := e.Snapshot().EventSet(handleOf(t, set), 0)
	require.Equal(t, abi.SUCCESS, ret)
	assert.Equal(t, "GPU 0, GPU 3", string(content(again)))
	again.Free()
	_, ret = again.Content()
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, ret)
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, write(again, "late"))

	again, ret = e.Snapshot().EventSet(handleOf(t, other), 0)
	require.Equal(t, abi.SUCCESS, ret)
	e.Stop()
	_, ret = again.Content()
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, ret, "dropped with the generation")
}

// TestDevicesAreNumbers: the links and distances of a snapshot lead to devices of that same snapshot.
func TestDevicesAreNumbers(t *testing.T) {
	e, _ := started(t, "MOCK_NVML_CONFIG", enginetest.Write(t, meshed+"nvlink: {links_per_gpu: 4}\n"))
	for range 2 {
		s := e.Snapshot()
		for _, d := range s.Devices {
			for i := range d.LinkCount() {
				l, _ := d.Link(i)
				assert.True(t, slices.Contains(s.Devices, l.Peer))
			}
		}
		require.NoError(t, e.Publish(engine.Node{Board: s.Board}))
		assert.NotSame(t, s, e.Snapshot())
	}
}
