package engine

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/nvmlfab/nvmlfab/engine/host"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// Event is something that happened to a GPU.
type Event struct {
	Device *Device
	state.Event
}

// EventSet holds the events that a program waits for.
type EventSet struct{ owned }

// NewEventSet makes an empty set: MEMORY if there are no handles left, UNINITIALIZED after the last nvmlShutdown.
func (s *Snapshot) NewEventSet() (*EventSet, abi.Return) {
	o, ret := s.own(host.EventSet)
	return &EventSet{o}, ret
}

// EventSet is the set of events that a handle stands for; INVALID_ARGUMENT if there is none.
func (s *Snapshot) EventSet(handle uintptr, _ Need) (*EventSet, abi.Return) {
	o, ret := s.owned(handle, host.EventSet)
	return &EventSet{o}, ret
}

// Register adds a GPU's events of some types, a bit each. Events that happened before do not come. A type that the set
// has already stays as it is.
func (set *EventSet) Register(d *Device, types uint64) abi.Return {
	return set.register(d.key.Device, types)
}

// Next is the oldest event that the set has not given out yet; TIMEOUT if there is none. It never waits. Of two processes
// after a fork each gets every event.
func (set *EventSet) Next() (Event, abi.Return) {
	s, e, ret := set.next()
	if ret != abi.SUCCESS {
		return Event{}, ret
	}
	return Event{s.Devices[s.generation.numbers[e.Device]], e}, abi.SUCCESS
}

// Free makes the set's handle stale and ends every wait for its events.
func (set *EventSet) Free() { set.free() }

// SystemEventSet holds the system events that a program waits for.
type SystemEventSet struct{ owned }

// NewSystemEventSet makes an empty set, as NewEventSet does.
func (s *Snapshot) NewSystemEventSet() (*SystemEventSet, abi.Return) {
	o, ret := s.own(host.SystemEventSet)
	return &SystemEventSet{o}, ret
}

// SystemEventSet is the set of system events that a handle stands for; INVALID_ARGUMENT if there is none.
func (s *Snapshot) SystemEventSet(handle uintptr, _ Need) (*SystemEventSet, abi.Return) {
	o, ret := s.owned(handle, host.SystemEventSet)
	return &SystemEventSet{o}, ret
}

// Register adds system events, as EventSet.Register does.
func (set *SystemEventSet) Register(types uint64) abi.Return { return set.register(nodeItself, types) }

// Next is the oldest event that the set has not given out yet, as EventSet.Next.
func (set *SystemEventSet) Next() (state.Event, abi.Return) {
	_, e, ret := set.next()
	return e, ret
}

// Free is EventSet.Free.
func (set *SystemEventSet) Free() { set.free() }

func (o *owned) free() {
	o.Free()
	o.snapshot.generation.engine.host.Wake()
}

// nodeItself stands for the node where a GPU's number stands for a GPU.
const nodeItself = math.MaxUint32

func (o *owned) register(device uint32, types uint64) abi.Return {
	e := o.snapshot.generation.engine
	if e.look().generation != o.snapshot.generation {
		return abi.ERROR_UNINITIALIZED
	}
	return o.Update(func(content []byte) []byte {
		r := decodeRegistrations(content)
		now := e.current.Load().state
		r.notice(now)
		for types != 0 {
			kind := types & -types
			types &^= kind
			r.add(device, kind, sequence(now))
		}
		return r.encode()
	})
}

// next takes the oldest event out of a set, with the newest snapshot.
func (o *owned) next() (s *Snapshot, found state.Event, ret abi.Return) {
	g := o.snapshot.generation
	ret = abi.ERROR_TIMEOUT
	look := func(content []byte) []byte {
		// The newest snapshot, and not that of the call: another thread may have taken an event of a newer one.
		if s = g.engine.current.Load(); s.generation != g {
			ret = abi.ERROR_UNINITIALIZED
			return content
		}
		r := decodeRegistrations(content)
		r.notice(s.state)
		var ok bool
		if found, ok = r.next(s); !ok {
			ret = abi.ERROR_TIMEOUT
			return content
		}
		ret = abi.SUCCESS
		r.cursor = found.Sequence
		return r.encode()
	}
	// Mostly there is none, which the lock and a new record are too dear for.
	content, answer := o.Content()
	if answer != abi.SUCCESS {
		return nil, found, answer
	}
	if look(content); ret != abi.SUCCESS {
		return nil, found, ret
	}
	if answer := o.Update(look); answer != abi.SUCCESS {
		return nil, found, answer
	}
	return s, found, ret
}

// registrations is the content of a set: which events it holds.
type registrations struct {
	cursor uint64 // the number of the newest event that was given out
	list   []registration
}

// registration is one type of events of one GPU, or of the node, from a number on.
type registration struct {
	device uint32
	kind   uint64
	after  uint64 // the number of the newest event before the registration
}

func (r *registrations) add(device uint32, kind, after uint64) {
	if r.find(device, kind) == nil {
		r.list = append(r.list, registration{device, kind, after})
	}
}

func (r *registrations) find(device uint32, kind uint64) *registration {
	for i := range r.list {
		if r.list[i].device == device && r.list[i].kind == kind {
			return &r.list[i]
		}
	}
	return nil
}

// notice starts from the first event where numbers have begun anew, as they do after somebody has removed a state
// directory's content.
func (r *registrations) notice(now *state.State) {
	newest := r.cursor
	for _, one := range r.list {
		newest = max(newest, one.after)
	}
	if now == nil || now.Sequence >= newest {
		return
	}
	r.cursor = 0
	for i := range r.list {
		r.list[i].after = 0
	}
}

// next is the oldest event of the set that was not given out. Of an instance's events those come that the caller may
// see. If more events than are kept have happened since, the oldest that is kept comes.
func (r *registrations) next(s *Snapshot) (state.Event, bool) {
	if s.state == nil || s.state.Sequence <= r.cursor {
		return state.Event{}, false
	}
	events := s.state.Events
	at, _ := slices.BinarySearchFunc(events, r.cursor+1, func(e state.Event, number uint64) int {
		return int(int64(e.Sequence - number))
	})
	for _, e := range events[at:] {
		device, known := uint32(nodeItself), true
		if e.Device != "" {
			device, known = s.generation.numbers[e.Device]
		}
		if !known {
			continue // of a GPU that this process does not see
		}
		if one := r.find(device, e.Type); one == nil || e.Sequence <= one.after {
			continue
		}
		if e.Instance != nil && !s.generation.engine.host.Admin() {
			continue
		}
		return e, true
	}
	return state.Event{}, false
}

func sequence(s *state.State) uint64 {
	if s == nil {
		return 0
	}
	return s.Sequence
}

// renumbered is the content of a set of events after GPUs have come or gone: the numbers are those of the GPUs that the
// snapshot has. Registrations for GPUs that are gone end.
func renumbered(content []byte, s *Snapshot, numbers map[profiles.UUID]uint32) []byte {
	r := decodeRegistrations(content)
	var list []registration
	for _, one := range r.list {
		if uint64(one.device) < uint64(len(s.Devices)) {
			number, stays := numbers[s.Devices[one.device].UUID]
			if !stays {
				continue
			}
			one.device = number
		}
		list = append(list, one)
	}
	r.list = list
	return r.encode()
}

// encode writes the content of a set: a cursor, and three numbers for each registration.
func (r *registrations) encode() []byte {
	b := binary.AppendUvarint(nil, r.cursor)
	for _, one := range r.list {
		b = binary.AppendUvarint(b, uint64(one.device))
		b = binary.AppendUvarint(b, one.kind)
		b = binary.AppendUvarint(b, one.after)
	}
	return b
}

func decodeRegistrations(b []byte) (r registrations) {
	number := func() uint64 {
		v, size := binary.Uvarint(b)
		if size <= 0 {
			size = len(b)
		}
		b = b[size:]
		return v
	}
	r.cursor = number()
	for len(b) > 0 {
		r.list = append(r.list, registration{uint32(number()), number(), number()})
	}
	return r
}
