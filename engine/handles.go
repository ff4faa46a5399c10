package engine

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Kind is what a handle stands for. Kinds are noted in memory that outlives a fork, so
// their numbers do not change.
type Kind uint32

const (
	NoKind       Kind = 0
	DeviceKind   Kind = 1
	EventSetKind Kind = 2
)

// slotSize is the distance between two handles.
const slotSize = 16

// object is something that a handle stands for.
type object interface {
	setHandle(uintptr)
	Handle() uintptr
}

// handle is embedded by every object.
type handle struct{ address uintptr }

func (h *handle) setHandle(a uintptr) { h.address = a }

// Handle is the address that C callers know the object by.
func (h *handle) Handle() uintptr { return h.address }

// handles is one generation's table. It is replaced when it grows, so look-ups take no lock.
type handles struct {
	base    uintptr
	start   uint64
	objects []atomic.Pointer[object]
}

var (
	table   atomic.Pointer[handles]
	growing sync.Mutex
)

// Object is what a handle stands for, nil if it is stale, foreign or no handle at all.
func Object(address uintptr) any {
	t := table.Load()
	if t == nil {
		return nil
	}
	offset := uint64(address - t.base)
	i := offset/slotSize - t.start
	if offset%slotSize != 0 || i >= uint64(len(t.objects)) {
		return nil
	}
	if o := t.objects[i].Load(); o != nil {
		return *o
	}
	return nil
}

// register gives o the next handle.
func register(kind Kind, o object) error {
	number, ok := host().Reserve(kind)
	if !ok {
		return fmt.Errorf("out of handles")
	}
	adopt(number, o)
	return nil
}

// adopt makes a handle number stand for o, or for nothing.
func adopt(number uint64, o object) {
	growing.Lock()
	defer growing.Unlock()
	t := table.Load()
	if t == nil {
		base, start, _ := host().Handles()
		t = &handles{base: base, start: start}
	}
	if number < t.start {
		return // of an earlier generation: a call that lost a race with the last nvmlShutdown
	}
	i := number - t.start
	if i >= uint64(len(t.objects)) {
		grown := &handles{base: t.base, start: t.start, objects: make([]atomic.Pointer[object], max(i+1, 2*uint64(len(t.objects)), 16))}
		for j := range t.objects {
			grown.objects[j].Store(t.objects[j].Load())
		}
		t = grown
	}
	if o == nil {
		t.objects[i].Store(nil)
	} else {
		o.setHandle(t.base + uintptr(number*slotSize))
		t.objects[i].Store(&o)
	}
	table.Store(t)
}

// release makes o's handle stale for good.
func release(o object) {
	t := table.Load()
	if t == nil {
		return
	}
	number := uint64(o.Handle()-t.base) / slotSize
	host().Note(number, NoKind)
	adopt(number, nil)
}
