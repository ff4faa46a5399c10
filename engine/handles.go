package engine

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/nvmlfab/nvmlfab/engine/host"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// generation is what lasts from nvmlInit to the last nvmlShutdown: the handles, of which each key has one.
type generation struct {
	engine  *Engine
	number  uint64
	source  config
	devices []atomic.Uintptr // the handles of GPUs, by device number; 0 until somebody asks for it
	faults  []*fault         // of GPUs, by device number; nil where nothing fails
	started bool             // the generation has a snapshot already
	serial  atomic.Uint64    // the newest serial of objects that belong to the process
	origin  int64            // when counters begin, in ms since 1970
	latest  atomic.Int64     // see tick
	records sync.Mutex       // held while one of these changes

	mu     sync.Mutex
	others map[host.Key]uintptr // the handles of the node's other objects
}

// begin makes a generation with a board's devices.
func (e *Engine) begin(source config, board *profiles.Board) *generation {
	return &generation{
		engine:  e,
		number:  e.host.Generation(),
		origin:  source.origin,
		source:  source,
		devices: make([]atomic.Uintptr, len(board.Devices)),
		faults:  make([]*fault, len(board.Devices)),
		others:  map[host.Key]uintptr{},
	}
}

// adopt takes over the handles that a core before this one made; false if they are not of these devices.
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

// free drops what the process holds, when the generation ends.
func (g *generation) free() {
	g.engine.host.All(g.number, func(handle uintptr, key host.Key) {
		if ofProcess(key.Kind) {
			g.engine.host.Release(g.number, handle)
		}
	})
}

// ofProcess says whether objects of a kind belong to the process and not to the node.
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

// handle is the handle of a key, which is made when it is first asked for.
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

// Snapshot is the snapshot that shows the object.
func (v *view) Snapshot() *Snapshot { return v.snapshot }

// Key is what the object's handle stands for, in every snapshot.
func (v *view) Key() host.Key { return v.key }

// Handle is the address that C callers know the object by; MEMORY if there is none left, UNINITIALIZED after the last
// nvmlShutdown.
func (v *view) Handle() (uintptr, abi.Return) { return v.snapshot.generation.handle(v.key) }
