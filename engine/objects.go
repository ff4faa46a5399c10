package engine

import (
	"github.com/nvmlfab/nvmlfab/engine/host"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// GpuInstance is a part of a GPU in MIG mode as one snapshot shows it.
type GpuInstance struct{ view }

// ComputeInstance is a part of a GPU instance as one snapshot shows it.
type ComputeInstance struct{ view }

// Unit is an S-class unit as one snapshot shows it.
type Unit struct{ view }

// owned is an object that belongs to the process and not to the node: every snapshot of its generation leads to it.
type owned struct {
	snapshot *Snapshot
	handle   uintptr
}

// Snapshot is the snapshot of the call.
func (o *owned) Snapshot() *Snapshot { return o.snapshot }

// Handle is the address that C callers know the object by.
func (o *owned) Handle() (uintptr, abi.Return) { return o.handle, abi.SUCCESS }

// Free makes the object's handle stale.
func (o *owned) Free() {
	g := o.snapshot.generation
	g.engine.host.Release(g.number, o.handle)
}

// own makes an object of the process: MEMORY if there are no handles left, UNINITIALIZED after the last nvmlShutdown.
func (s *Snapshot) own(kind host.Kind) (owned, abi.Return) {
	g := s.generation
	handle, ret := g.take(host.Key{Kind: kind, Serial: g.serial.Add(1)})
	return owned{s, handle}, ret
}

// EventSet collects the events that a program waits for.
type EventSet struct{ owned }

// NewEventSet makes an empty set: MEMORY if there are no handles left, UNINITIALIZED after the last nvmlShutdown.
func (s *Snapshot) NewEventSet() (*EventSet, abi.Return) {
	o, ret := s.own(host.EventSet)
	return &EventSet{o}, ret
}

// SystemEventSet collects the events of the machine.
type SystemEventSet struct{ owned }

// GpmSample is what a GPU had counted when the sample was taken.
type GpmSample struct{ owned }
