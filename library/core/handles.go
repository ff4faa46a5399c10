package main

/*
#include <stdlib.h>

#include "shared.h"

typedef int (*grow_fn)(struct nvmlfab_space *space, uint32_t region);

static int grow(void *space, void *f, uint32_t region) { return ((grow_fn)f)((struct nvmlfab_space *)space, region); }

// C.malloc of cgo ends the process where there is no memory.
static void *allocate(size_t size) { return malloc(size); }
*/
import "C"

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvmlfab/nvmlfab/engine/host"
)

// slot, space and block are the front's structs of these names. A fork may come at any instant, and the child uses this
// memory as it then is. So each change is a single write: of a pointer, or of a slot's kind, which is written last.
type slot struct {
	kind       atomic.Uint32
	device     atomic.Uint32
	serial     atomic.Uint64
	generation atomic.Uint64
	record     unsafe.Pointer // *block
	_          [4]uint64
}

type space struct {
	generation, next atomic.Uint64
	start            uint64
	region           [regions]unsafe.Pointer // *slot
	grow             unsafe.Pointer
	config           unsafe.Pointer // *block
	watch            *watch
	path             *C.char
}

type watch struct {
	follows, seen atomic.Uint32
	word          atomic.Uintptr
	changes       atomic.Uint32
	file          unsafe.Pointer // a string of C
	clock         atomic.Int64
}

type block struct {
	size  uint64
	bytes [1 << 30]byte
}

const (
	regions   = C.NVMLFAB_REGIONS
	firstSize = C.NVMLFAB_FIRST // the slots of region 0; each region has twice as many as the last
	slotSize  = unsafe.Sizeof(slot{})
	freed     = uint32(C.NVMLFAB_FREED)
	page      = 4096

	futexWake        = 1
	futexWakePrivate = 1 | 128
)

// locate converts the number of a slot to its region and its place in it.
func locate(number uint64) (region int, at uint64) {
	region = bits.Len64(number/firstSize+1) - 1
	return region, number - (firstSize<<region - firstSize)
}

// slotAt is the slot with that number; nil if its region does not exist.
func (s *space) slotAt(number uint64) *slot {
	region, at := locate(number)
	if region >= regions {
		return nil
	}
	base := atomic.LoadPointer(&s.region[region])
	if base == nil {
		return nil
	}
	return (*slot)(unsafe.Add(base, uintptr(at)*slotSize))
}

// slotOf is the slot at the address handle; nil if there is none.
func (s *space) slotOf(handle uintptr) *slot {
	for i := range s.region {
		base := atomic.LoadPointer(&s.region[i])
		if offset := handle - uintptr(base); base != nil && offset < firstSize<<i*slotSize {
			if offset%slotSize != 0 {
				return nil
			}
			return (*slot)(unsafe.Add(base, offset))
		}
	}
	return nil
}

// key reads the key in a slot. It reads the generation last: if the page is given back meanwhile, the generation reads
// as 0.
func (s *slot) key(generation uint64) (host.Key, bool) {
	kind := s.kind.Load()
	key := host.Key{Kind: host.Kind(kind), Device: s.device.Load(), Serial: s.serial.Load()}
	return key, kind != 0 && kind != freed && s.generation.Load() == generation
}

// handles is the memory of the handles.
type handles struct {
	space *space
	file  string     // that the front watches
	mu    sync.Mutex // held while a block is read or replaced
}

func (h *handles) Generation() uint64 { return h.space.generation.Load() }

func (h *handles) Take(generation uint64, key host.Key) (uintptr, error) {
	if generation != h.space.generation.Load() {
		return 0, host.ErrEnded
	}
	number := h.space.next.Add(1) - 1
	s := h.space.slotAt(number)
	if s == nil {
		region, _ := locate(number)
		if C.grow(unsafe.Pointer(h.space), h.space.grow, C.uint32_t(region)) == 0 {
			return 0, host.ErrMemory
		}
		s = h.space.slotAt(number)
	}
	s.device.Store(key.Device)
	s.serial.Store(key.Serial)
	s.generation.Store(generation)
	s.kind.Store(uint32(key.Kind))
	if generation != h.space.generation.Load() { // nvmlShutdown ran meanwhile, and may not have seen the slot
		return 0, host.ErrEnded
	}
	return uintptr(unsafe.Pointer(s)), nil
}

func (h *handles) Key(generation uint64, handle uintptr) (host.Key, bool) {
	s := h.space.slotOf(handle)
	if s == nil {
		return host.Key{}, false
	}
	return s.key(generation)
}

func (h *handles) Release(generation uint64, handle uintptr) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.space.slotOf(handle)
	if s == nil {
		return false
	}
	key, ok := s.key(generation)
	if !ok || !s.kind.CompareAndSwap(uint32(key.Kind), freed) {
		return false
	}
	_ = replace(&s.record, nil)
	giveBack(s)
	return true
}

// giveBack gives the page of a slot back to the kernel if no slot of it is in use.
func giveBack(s *slot) {
	first := unsafe.Pointer(uintptr(unsafe.Pointer(s)) &^ (page - 1))
	for at := uintptr(0); at < page; at += slotSize {
		if (*slot)(unsafe.Add(first, at)).kind.Load() != freed {
			return
		}
	}
	syscall.RawSyscall(syscall.SYS_MADVISE, uintptr(first), page, syscall.MADV_DONTNEED)
}

func (h *handles) All(generation uint64, f func(uintptr, host.Key)) {
	for number := h.space.start; number < h.space.next.Load(); number++ {
		if s := h.space.slotAt(number); s != nil {
			if key, ok := s.key(generation); ok {
				f(uintptr(unsafe.Pointer(s)), key)
			}
		}
	}
}

func (h *handles) Record(generation uint64, handle uintptr) ([]byte, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.space.slotOf(handle)
	if s == nil {
		return nil, false
	}
	if _, ok := s.key(generation); !ok {
		return nil, false
	}
	return content(&s.record), true
}

func (h *handles) SetRecord(generation uint64, handle uintptr, record []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.space.slotOf(handle)
	if s == nil {
		return host.ErrEnded
	}
	if _, ok := s.key(generation); !ok {
		return host.ErrEnded
	}
	return replace(&s.record, record)
}

// Keep stores the configuration of the engine.
func (h *handles) Keep(config []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return replace(&h.space.config, config)
}

// Clock is the time that the front noted with the newest call.
func (h *handles) Clock() int64 { return h.space.watch.clock.Load() }

// Follow tells the front what it watches for the core.
func (h *handles) Follow(follows bool, word uintptr, seen uint32, file string) {
	w := h.space.watch
	h.watchFile(file)
	w.seen.Store(seen)
	w.word.Store(word)
	if !follows {
		w.follows.Store(0)
		return
	}
	w.follows.Store(1)
	if w.clock.Load() == 0 { // the call that begins to follow did not bring the time
		var now unix.Timespec
		if unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now) == nil {
			w.clock.Store(now.Nano() / 1e6)
		}
	}
}

// watchFile gives the front the path of a file. The old path stays in memory, since a thread may be reading it.
func (h *handles) watchFile(file string) {
	if h.file == file {
		return
	}
	h.file = file
	var fresh unsafe.Pointer
	if text := file + "\x00"; file != "" {
		if fresh = C.allocate(C.size_t(len(text))); fresh != nil {
			copy(unsafe.Slice((*byte)(fresh), len(text)), text)
		}
	}
	atomic.StorePointer(&h.space.watch.file, fresh)
}

// Wake wakes the threads that wait for events. Those of other processes that sleep on the same number find no news.
func (h *handles) Wake() {
	const everybody = 1<<31 - 1
	w := h.space.watch
	w.changes.Add(1)
	syscall.RawSyscall(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&w.changes)), futexWakePrivate, everybody)
	if word := w.word.Load(); word != 0 {
		syscall.RawSyscall(syscall.SYS_FUTEX, word, futexWake, everybody)
	}
}

// Kept returns what Keep stored, in this core or in the one before a fork.
func (h *handles) Kept() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return content(&h.space.config)
}

// replace sets the pointer to a new block with that content, or to nil if it is empty, and frees the old block.
func replace(at *unsafe.Pointer, content []byte) error {
	var fresh unsafe.Pointer
	if len(content) > 0 {
		fresh = C.allocate(C.size_t(unsafe.Sizeof(uint64(0))) + C.size_t(len(content)))
		if fresh == nil {
			return host.ErrMemory
		}
		b := (*block)(fresh)
		b.size = uint64(len(content))
		copy(b.bytes[:len(content)], content)
	}
	C.free(atomic.SwapPointer(at, fresh))
	return nil
}

// content returns a copy of the content of a block.
func content(at *unsafe.Pointer) []byte {
	b := (*block)(atomic.LoadPointer(at))
	if b == nil {
		return nil
	}
	return append([]byte(nil), b.bytes[:b.size]...)
}
