package engine

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/host"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// generation is the state that lives from nvmlInit to the last nvmlShutdown. It has one handle for each key.
type generation struct {
	engine  *Engine
	number  uint64
	source  config
	devices []atomic.Uintptr // the handles of GPUs, by device number; 0 until first asked for
	faults  []*fault         // of GPUs, by device number; nil for a GPU that does not fail
	started bool             // the generation has a snapshot already
	serial  atomic.Uint64    // the newest serial of objects that belong to the process
	origin  int64            // when counters start, in ms since 1970
	latest  atomic.Int64     // the last result of tick
	records sync.Mutex       // held while a record changes

	// What the node is made of, and the directories that may change it.
	live      change.Source
	overrides string // the text of overrides.yaml
	followed  []*follower
	expires   atomic.Int64 // when something ends by itself, in ms since 1970; 0 if nothing does
	said      map[string]bool
	gpus      []shown // of the newest snapshot

	mu     sync.Mutex
	others map[host.Key]uintptr // the handles of the node's other objects

	numbers map[profiles.UUID]uint32 // of the GPUs
}

// begin makes a generation with a board's devices.
func (e *Engine) begin(source config, board *profiles.Board) *generation {
	g := &generation{
		engine: e,
		live:   change.Source{Board: board, Overridden: board, Origin: source.origin},
		said:   map[string]bool{},
		number: e.host.Generation(),
		origin: source.origin,
		source: source,
		others: map[host.Key]uintptr{},
	}
	g.hide(source.hidden)
	return g
}

// hide removes GPUs from a generation that nobody has seen.
func (g *generation) hide(gpus []profiles.UUID) {
	g.source.hidden = gpus
	g.live.Hide(gpus)
	g.devices = make([]atomic.Uintptr, len(g.live.Board.Devices))
	g.faults = make([]*fault, len(g.live.Board.Devices))
	g.numbers = map[profiles.UUID]uint32{}
	for i := range g.live.Board.Devices {
		g.numbers[g.live.Board.Devices[i].UUID] = uint32(i)
	}
}

// Enumerate makes the GPUs that are neither drained nor removed those of the process. Handles of GPUs before the first
// that comes or goes stay valid. Other processes keep the GPUs that they have.
func (e *Engine) Enumerate() abi.Return {
	e.lifecycle.Lock()
	defer e.lifecycle.Unlock()
	s := e.current.Load()
	old := s.generation
	if old.live.Board == nil { // after the last nvmlShutdown
		return abi.ERROR_UNINITIALIZED
	}
	g := &generation{
		engine: e, number: old.number, source: old.source, origin: old.origin, live: old.live, overrides: old.overrides,
		followed: old.followed, said: old.said, started: true, others: map[host.Key]uintptr{},
	}
	g.expires.Store(old.expires.Load())
	g.latest.Store(old.latest.Load())
	g.serial.Store(old.serial.Load())
	g.hide(old.live.State.Drained())
	same := 0
	for same < min(len(g.live.Board.Devices), len(s.Devices)) && g.live.Board.Devices[same].UUID == s.Devices[same].UUID {
		same++
	}
	e.host.All(g.number, func(handle uintptr, key host.Key) {
		if !ofProcess(key.Kind) && key.Kind != host.Unit && int(key.Device) >= same {
			e.host.Release(g.number, handle)
		}
	})
	g.adopt()
	old.records.Lock()
	defer old.records.Unlock()
	e.host.All(g.number, func(handle uintptr, key host.Key) {
		if key.Kind != host.EventSet {
			return
		}
		if content, ok := e.host.Record(g.number, handle); ok {
			if err := e.host.SetRecord(g.number, handle, renumbered(content, s, g.numbers)); errors.Is(err, host.ErrMemory) {
				e.Complain(err)
			}
		}
	})
	if err := g.publish(nil); err != nil {
		e.Complain(err)
		return abi.ERROR_UNKNOWN
	}
	return abi.SUCCESS
}

// adopt takes over the handles that an earlier core made. It returns false if one of them belongs to no device of this
// board.
func (g *generation) adopt() bool {
	fits := true
	g.engine.host.All(g.number, func(handle uintptr, key host.Key) {
		switch {
		case ofProcess(key.Kind):
			g.serial.Store(max(g.serial.Load(), key.Serial))
		case key.Kind != host.Device:
			g.others[key] = handle
		case uint64(key.Device) < uint64(len(g.devices)):
			g.devices[key.Device].Store(handle)
		default:
			fits = false
		}
	})
	return fits
}

// free frees the objects of the process at the end of the generation.
func (g *generation) free() {
	g.engine.host.All(g.number, func(handle uintptr, key host.Key) {
		if ofProcess(key.Kind) {
			g.engine.host.Release(g.number, handle)
		}
	})
}

// ofProcess reports whether objects of a kind belong to the process and not to the node.
func ofProcess(k host.Kind) bool {
	return k == host.EventSet || k == host.SystemEventSet || k == host.GpmSample
}

// take makes a handle for a key.
func (g *generation) take(key host.Key) (uintptr, abi.Return) {
	handle, err := g.engine.host.Take(g.number, key)
	switch {
	case errors.Is(err, host.ErrEnded):
		return 0, abi.ERROR_UNINITIALIZED
	case err != nil:
		return 0, abi.ERROR_MEMORY
	}
	return handle, abi.SUCCESS
}

// handle returns the handle of a key. The first request makes it.
func (g *generation) handle(key host.Key) (uintptr, abi.Return) {
	if key.Kind == host.Device {
		if handle := g.devices[key.Device].Load(); handle != 0 {
			return handle, abi.SUCCESS
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	handle := g.others[key]
	if key.Kind == host.Device {
		handle = g.devices[key.Device].Load()
	}
	if handle != 0 {
		return handle, abi.SUCCESS
	}
	handle, ret := g.take(key)
	switch {
	case ret != abi.SUCCESS:
	case key.Kind == host.Device:
		g.devices[key.Device].Store(handle)
	default:
		g.others[key] = handle
	}
	return handle, ret
}

// view is an object of the node as one snapshot shows it.
type view struct {
	snapshot *Snapshot
	key      host.Key
}

// Snapshot is the snapshot that the object belongs to.
func (v *view) Snapshot() *Snapshot { return v.snapshot }

// Key identifies the object in every snapshot.
func (v *view) Key() host.Key { return v.key }

// Handle is the address by which C callers know the object. It answers MEMORY if no handle can be made, and
// UNINITIALIZED after the last nvmlShutdown.
func (v *view) Handle() (uintptr, abi.Return) { return v.snapshot.generation.handle(v.key) }
