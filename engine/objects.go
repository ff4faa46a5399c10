package engine

import (
	"errors"

	"github.com/nvmlfab/nvmlfab/engine/host"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// owned is an object of the process, not of the node. It is the same in every snapshot of its generation. Its content
// is one record, and a forked process gets a copy of that.
type owned struct {
	snapshot *Snapshot
	handle   uintptr
}

// own makes an object of the process.
func (s *Snapshot) own(kind host.Kind) (owned, abi.Return) {
	g := s.generation
	handle, ret := g.take(host.Key{Kind: kind, Serial: g.serial.Add(1)})
	return owned{s, handle}, ret
}

// owned returns the process's object that a handle stands for; INVALID_ARGUMENT if there is none of that kind.
func (s *Snapshot) owned(handle uintptr, kind host.Kind) (owned, abi.Return) {
	if key, ok := s.key(handle); !ok || key.Kind != kind {
		return owned{}, abi.ERROR_INVALID_ARGUMENT
	}
	return owned{s, handle}, abi.SUCCESS
}

// Snapshot is the snapshot of the call.
func (o *owned) Snapshot() *Snapshot { return o.snapshot }

// Handle is the address by which C callers know the object.
func (o *owned) Handle() (uintptr, abi.Return) { return o.handle, abi.SUCCESS }

// Content is a copy of the object's content; INVALID_ARGUMENT if another thread has freed the object.
func (o *owned) Content() ([]byte, abi.Return) {
	g := o.snapshot.generation
	content, ok := g.engine.host.Record(g.number, o.handle)
	if !ok {
		return nil, abi.ERROR_INVALID_ARGUMENT
	}
	return content, abi.SUCCESS
}

// Update replaces the object's content by change's result; no other thread can change it meanwhile. It answers
// INVALID_ARGUMENT if another thread has freed the object, and MEMORY if there is no memory.
func (o *owned) Update(change func(content []byte) []byte) abi.Return {
	g := o.snapshot.generation
	g.records.Lock()
	defer g.records.Unlock()
	content, ret := o.Content()
	if ret != abi.SUCCESS {
		return ret
	}
	switch err := g.engine.host.SetRecord(g.number, o.handle, change(content)); {
	case errors.Is(err, host.ErrEnded):
		return abi.ERROR_INVALID_ARGUMENT
	case err != nil:
		return abi.ERROR_MEMORY
	}
	return abi.SUCCESS
}

// Free makes the object's handle stale.
func (o *owned) Free() {
	g := o.snapshot.generation
	g.engine.host.Release(g.number, o.handle)
}
