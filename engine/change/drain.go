package change

import (
	"slices"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// at finds the GPU of a PCI address, whose function does not count, and what has changed about it. The GPU need not be one
// that the process has.
func (t *Tx) at(address profiles.BusID) (*profiles.Device, *state.Record, abi.Return) {
	_, board := t.after.All()
	for i := range board.Devices {
		d := &board.Devices[i]
		if !sameSlot(d.PCI.BusID.Value, address) {
			continue
		}
		r := t.after.State.Device(d.UUID)
		now, err := d.With(r.Settings(t.Now))
		switch {
		case err != nil:
			return nil, nil, abi.ERROR_UNKNOWN
		case older(now, "pascal"):
			return nil, nil, abi.ERROR_NOT_SUPPORTED
		}
		return now, r, abi.SUCCESS
	}
	return nil, nil, abi.ERROR_INVALID_ARGUMENT
}

// sameSlot reports whether two addresses differ in their functions alone.
func sameSlot(a, b profiles.BusID) bool {
	a.Function, b.Function = 0, 0
	return a == b
}

// present is at for a GPU that is on the PCI bus.
func (t *Tx) present(address profiles.BusID) (*profiles.Device, *state.Record, abi.Return) {
	d, r, ret := t.at(address)
	if ret == abi.SUCCESS && r.Drain == state.Removed {
		return nil, nil, abi.ERROR_INVALID_ARGUMENT
	}
	return d, r, ret
}

// drained sets the drain state of a GPU.
func (t *Tx) drained(uuid profiles.UUID, to string) {
	for i := range t.Devices() {
		if t.UUID(i) == uuid {
			t.touched[i] = true
		}
	}
	t.after.State.Change(uuid).Drain = to
}

// Drain keeps later programs from a GPU, or gives it back to them. A GPU in persistence mode is IN_USE.
func (t *Tx) Drain(address profiles.BusID, on abi.EnableState_t) abi.Return {
	_, ok := enabled(on)
	d, _, ret := t.present(address)
	switch {
	case !ok:
		return abi.ERROR_INVALID_ARGUMENT
	case ret != abi.SUCCESS:
		return ret
	case on == abi.FEATURE_DISABLED:
		t.drained(d.UUID, "")
	case bool(d.PersistenceMode.Value):
		return abi.ERROR_IN_USE
	default:
		t.drained(d.UUID, state.Draining)
	}
	return abi.SUCCESS
}

// Drained reports whether later programs do not get a GPU.
func (t *Tx) Drained(address profiles.BusID) (bool, abi.Return) {
	_, r, ret := t.present(address)
	return ret == abi.SUCCESS && r.Drain == state.Draining, ret
}

// Remove takes a GPU off the PCI bus. It has to be drained, and neither processes nor persistence mode may hold it;
// otherwise it is IN_USE.
func (t *Tx) Remove(address profiles.BusID, gpu abi.DetachGpuState_t, link abi.PcieLinkState_t) abi.Return {
	d, r, ret := t.present(address)
	switch {
	case gpu > abi.DETACH_GPU_REMOVE || link > abi.PCIE_LINK_SHUT_DOWN:
		return abi.ERROR_INVALID_ARGUMENT
	case ret != abi.SUCCESS:
		return ret
	case r.Drain != state.Draining || bool(d.PersistenceMode.Value) || len(d.Processes) > 0 ||
		slices.ContainsFunc(r.Processes, t.runs):
		return abi.ERROR_IN_USE
	}
	t.drained(d.UUID, state.Removed)
	t.bound(d.PCI.BusID.Value, false)
	return abi.SUCCESS
}

// runs reports whether a process has not ended.
func (t *Tx) runs(p state.Process) bool {
	end := t.after.State.End(&p)
	return end == 0 || end > t.Now
}

// Discover brings GPUs that were removed back: that of an address, those of a bus if device is 0, or all if the whole
// address is 0. The driver initialises them, which takes back what setters have set.
func (t *Tx) Discover(address profiles.BusID) abi.Return {
	_, board := t.after.All()
	for i := range board.Devices {
		d := &board.Devices[i]
		if t.after.State.Device(d.UUID).Drain != state.Removed {
			continue
		}
		slot := d.PCI.BusID.Value
		onBus := address.Device == 0 && slot.Domain == address.Domain && slot.Bus == address.Bus
		if address != (profiles.BusID{}) && !onBus && !sameSlot(slot, address) {
			continue
		}
		t.drained(d.UUID, "")
		t.bound(slot, true)
		r := t.after.State.Change(d.UUID)
		r.Set = slices.DeleteFunc(r.Set, bySetters)
	}
	return abi.SUCCESS
}
