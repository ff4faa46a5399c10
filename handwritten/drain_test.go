package handwritten

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// process is a process that starts on a node with a state directory.
func process(t *testing.T, dir string) *engine.Engine {
	t.Helper()
	h := enginetest.New("MOCK_NVML_CONFIG", enginetest.Write(t, "extends: h100\ncount: 4\n"), "NVMLFAB_STATE_DIR", dir)
	e := engine.New(h)
	require.NoError(t, e.Start())
	t.Cleanup(e.Stop)
	return e
}

// buses are the buses of the GPUs that a process has, which are 53, 64, 75 and 86 to begin with.
func buses(e *engine.Engine) (list []uint8) {
	for i, d := range e.Snapshot().Devices {
		if int(d.Index) != i {
			return nil
		}
		list = append(list, d.PCI.BusID.Value.Bus)
	}
	return list
}

// TestDrain: a drained GPU is there for the programs that have it, and not for later ones; one that was removed is lost.
func TestDrain(t *testing.T) {
	dir := t.TempDir()
	first := process(t, dir)
	pci := &abi.PciInfo_t{Bus: 0x64}
	state := func(e *engine.Engine) abi.EnableState_t {
		t.Helper()
		on, ret := DeviceQueryDrainState(e.Snapshot(), pci)
		require.Equal(t, abi.SUCCESS, ret)
		return on
	}
	require.Equal(t, abi.ERROR_IN_USE, DeviceModifyDrainState(first.Snapshot(), pci, abi.FEATURE_ENABLED), "persistence mode holds it")
	require.Equal(t, abi.SUCCESS, DeviceSetPersistenceMode(first.Snapshot().Devices[1], abi.FEATURE_DISABLED))
	assert.Equal(t, abi.ERROR_IN_USE, DeviceRemoveGpu(first.Snapshot(), pci), "it is not drained")
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, DeviceModifyDrainState(first.Snapshot(), pci, 2))
	for _, none := range []abi.PciInfo_t{{Bus: 0x65}, {Bus: 0x64, Device: 1}, {Bus: 0x164}, {Domain: 1, Bus: 0x64}} {
		assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, DeviceModifyDrainState(first.Snapshot(), &none, abi.FEATURE_ENABLED))
		_, ret := DeviceQueryDrainState(first.Snapshot(), &none)
		assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, ret)
	}
	require.Equal(t, abi.SUCCESS, DeviceModifyDrainState(first.Snapshot(), pci, abi.FEATURE_ENABLED))
	assert.Equal(t, []uint8{0x53, 0x64, 0x75, 0x86}, buses(first), "who has it keeps it")
	second := process(t, dir)
	assert.Equal(t, []uint8{0x53, 0x75, 0x86}, buses(second))
	assert.Equal(t, abi.FEATURE_ENABLED, state(first))
	assert.Equal(t, abi.FEATURE_ENABLED, state(second), "a process asks for GPUs that it does not have")
	require.Equal(t, abi.SUCCESS, DeviceSetComputeMode(second.Snapshot().Devices[1], abi.COMPUTEMODE_PROHIBITED))
	answers(t, abi.COMPUTEMODE_PROHIBITED)(DeviceGetComputeMode(process(t, dir).Snapshot().Devices[1]))

	require.Equal(t, abi.SUCCESS, DeviceModifyDrainState(second.Snapshot(), pci, abi.FEATURE_DISABLED))
	assert.Equal(t, abi.FEATURE_DISABLED, state(second))
	assert.Equal(t, []uint8{0x53, 0x64, 0x75, 0x86}, buses(process(t, dir)))
	require.Equal(t, abi.SUCCESS, DeviceModifyDrainState(second.Snapshot(), pci, abi.FEATURE_ENABLED))

	// It is removed by a process that has it.
	third := process(t, dir)
	handle := func(e *engine.Engine, i int) uintptr {
		t.Helper()
		h, ret := e.Snapshot().Devices[i].Handle()
		require.Equal(t, abi.SUCCESS, ret)
		return h
	}
	before, gone, after := handle(first, 0), handle(first, 1), handle(first, 2)
	set, ret := first.Snapshot().NewEventSet()
	require.Equal(t, abi.SUCCESS, ret)
	for i := range 3 {
		require.Equal(t, abi.SUCCESS, DeviceRegisterEvents(first.Snapshot().Devices[i], abi.EventTypeXidCriticalError, set))
	}
	events, ret := set.Handle()
	require.Equal(t, abi.SUCCESS, ret)
	system, ret := third.Snapshot().NewSystemEventSet()
	require.Equal(t, abi.SUCCESS, ret)
	require.Equal(t, abi.SUCCESS, system.Register(abi.SystemEventTypeGpuDriverUnbind|abi.SystemEventTypeGpuDriverBind))
	require.Equal(t, abi.SUCCESS, DeviceRemoveGpu_v2(first.Snapshot(), pci, abi.DETACH_GPU_REMOVE, abi.PCIE_LINK_SHUT_DOWN))
	assert.Equal(t, []uint8{0x53, 0x75, 0x86}, buses(first), "the process that removes it enumerates anew")
	for h, want := range map[uintptr]abi.Return{before: abi.SUCCESS, gone: abi.ERROR_INVALID_ARGUMENT, after: abi.ERROR_INVALID_ARGUMENT} {
		_, ret := first.Snapshot().Device(h, engine.Alive)
		assert.Equal(t, want, ret)
	}
	assert.NotEqual(t, after, handle(first, 1))
	d, ret := first.Snapshot().Device(handle(first, 1), engine.Alive)
	require.Equal(t, abi.SUCCESS, ret)
	assert.Equal(t, uint8(0x75), d.PCI.BusID.Value.Bus)
	answers(t, abi.COMPUTEMODE_PROHIBITED)(DeviceGetComputeMode(d))
	require.Equal(t, abi.SUCCESS, d.Change(func(t *change.Tx, i int) abi.Return {
		t.Event(i, abi.EventTypeXidCriticalError, 31)
		return abi.SUCCESS
	}))
	set, ret = first.Snapshot().EventSet(events, 0)
	require.Equal(t, abi.SUCCESS, ret)
	happened, ret := set.Next()
	require.Equal(t, abi.SUCCESS, ret)
	assert.Equal(t, uint8(0x75), happened.Device.PCI.BusID.Value.Bus, "registrations go along with their GPUs")
	_, ret = DeviceQueryDrainState(third.Snapshot(), pci)
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, ret, "there is no such GPU any more")
	assert.Equal(t, []uint8{0x53, 0x75, 0x86}, buses(process(t, dir)))

	require.Equal(t, abi.SUCCESS, DeviceDiscoverGpus(second.Snapshot(), &abi.PciInfo_t{Bus: 0x99}))
	assert.Equal(t, []uint8{0x53, 0x75, 0x86}, buses(second), "it lies elsewhere")
	require.Equal(t, abi.SUCCESS, DeviceDiscoverGpus(second.Snapshot(), &abi.PciInfo_t{}))
	assert.Equal(t, []uint8{0x53, 0x64, 0x75, 0x86}, buses(second))
	assert.Equal(t, []uint8{0x53, 0x75, 0x86}, buses(third), "others do not get it before they initialise NVML")
	assert.Equal(t, abi.FEATURE_DISABLED, state(second))
	for _, want := range []uint64{abi.SystemEventTypeGpuDriverUnbind, abi.SystemEventTypeGpuDriverBind} {
		third.Snapshot() // looks at the state directory
		e, ret := system.Next()
		require.Equal(t, abi.SUCCESS, ret, "other processes hear that the driver lets it go and takes it again")
		assert.Equal(t, []uint64{want, 0x6400}, []uint64{e.Type, e.Data})
	}
	_, ret = system.Next()
	assert.Equal(t, abi.ERROR_TIMEOUT, ret, "draining is no such event")
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, DeviceRemoveGpu_v2(second.Snapshot(), pci, 2, 0))
}

// TestARemovedGPUIsLostForOthers: a process that has a GPU which another one removes keeps its index and loses the GPU.
func TestARemovedGPUIsLostForOthers(t *testing.T) {
	dir := t.TempDir()
	removes := process(t, dir)
	require.Equal(t, abi.SUCCESS, DeviceSetPersistenceMode(removes.Snapshot().Devices[1], abi.FEATURE_DISABLED))
	has := process(t, dir) // after the first change, so that it sees further ones at once
	h, ret := has.Snapshot().Devices[1].Handle()
	require.Equal(t, abi.SUCCESS, ret)
	pci := &abi.PciInfo_t{Bus: 0x64}
	require.Equal(t, abi.SUCCESS, DeviceModifyDrainState(removes.Snapshot(), pci, abi.FEATURE_ENABLED))
	_, ret = has.Snapshot().Device(h, engine.Alive)
	require.Equal(t, abi.SUCCESS, ret, "it is only drained")
	require.Equal(t, abi.SUCCESS, DeviceRemoveGpu(removes.Snapshot(), pci))
	_, ret = has.Snapshot().Device(h, engine.Alive)
	assert.Equal(t, abi.ERROR_GPU_IS_LOST, ret)
	assert.Equal(t, []uint8{0x53, 0x64, 0x75, 0x86}, buses(has))
	assert.Equal(t, abi.SUCCESS, has.Snapshot().Devices[1].Found(), "it still gives a handle")
}

// TestAllGPUsAreDrained: a later process starts without GPUs, and can give them back.
func TestAllGPUsAreDrained(t *testing.T) {
	dir := t.TempDir()
	e := process(t, dir)
	for i, bus := range []uint32{0x53, 0x64, 0x75, 0x86} {
		require.Equal(t, abi.SUCCESS, DeviceSetPersistenceMode(e.Snapshot().Devices[i], abi.FEATURE_DISABLED))
		require.Equal(t, abi.SUCCESS, DeviceModifyDrainState(e.Snapshot(), &abi.PciInfo_t{Bus: bus}, abi.FEATURE_ENABLED))
	}
	later := process(t, dir)
	assert.Empty(t, later.Snapshot().Devices)
	require.Equal(t, abi.SUCCESS, DeviceModifyDrainState(later.Snapshot(), &abi.PciInfo_t{Bus: 0x75}, abi.FEATURE_DISABLED))
	assert.Equal(t, []uint8{0x75}, buses(process(t, dir)))
}

// TestAForkKeepsItsGPUs: a forked process has the GPUs of its parent, drained or not.
func TestAForkKeepsItsGPUs(t *testing.T) {
	dir := t.TempDir()
	first := process(t, dir)
	require.Equal(t, abi.SUCCESS, DeviceSetPersistenceMode(first.Snapshot().Devices[0], abi.FEATURE_DISABLED))
	require.Equal(t, abi.SUCCESS, DeviceModifyDrainState(first.Snapshot(), &abi.PciInfo_t{Bus: 0x53}, abi.FEATURE_ENABLED))
	h := enginetest.New("NVMLFAB_PROFILE", "h100", "NVMLFAB_STATE_DIR", dir)
	parent := engine.New(h)
	require.NoError(t, parent.Start())
	assert.Len(t, parent.Snapshot().Devices, 7)
	handle, ret := parent.Snapshot().Devices[2].Handle()
	require.Equal(t, abi.SUCCESS, ret)
	child := engine.New(h)
	require.Equal(t, abi.SUCCESS, child.Restore())
	d, ret := child.Snapshot().Device(handle, engine.Alive)
	require.Equal(t, abi.SUCCESS, ret)
	assert.Equal(t, uint8(0x86), d.PCI.BusID.Value.Bus)
}
