package main

/*
#include <stdint.h>
#include <stdlib.h>
#include <sys/auxv.h>
*/
import "C"

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvmlfab/nvmlfab/engine/host"
	library "github.com/nvmlfab/nvmlfab/library/host"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// space is the front's struct nvmlfab_space.
type space struct {
	base, limit, start, next uint64
	config                   unsafe.Pointer
	configSize               uint64
}

// slot is the memory of one handle.
type slot struct {
	kind   atomic.Uint32 // written last
	device uint32
	serial uint64
}

const slotSize = 16

// process gives the engine the process around it.
type process struct{ space *space }

func (p *process) Getenv(name string) string { return library.Getenv(name) }

func (p *process) Privileged() bool { return C.getauxval(C.AT_SECURE) != 0 }

func (p *process) ReadFile(name string) ([]byte, error) { return profiles.Read(name) }

func (p *process) Now() time.Time { return time.Now() }

func (p *process) Booted() time.Time {
	var up unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return time.Now()
	}
	return time.Now().Add(-time.Duration(up.Nano()))
}

func (p *process) Admin() bool { return syscall.Geteuid() == 0 || capable() }

// Keep copies what the engine was made of into C memory, which a forked process inherits.
func (p *process) Keep(config []byte) {
	C.free(p.space.config)
	p.space.config, p.space.configSize = nil, uint64(len(config))
	if len(config) > 0 {
		p.space.config = C.CBytes(config)
	}
}

// Kept returns what Keep was given, by this core or by the one before a fork.
func (p *process) Kept() []byte { return C.GoBytes(p.space.config, C.int(p.space.configSize)) }

// Generation is the number of the generation's first handle.
func (p *process) Generation() uint64 { return p.space.start }

func (p *process) Take(generation uint64, key host.Key) (uintptr, error) {
	if generation != p.space.start {
		return 0, host.ErrEnded
	}
	for n := atomic.LoadUint64(&p.space.next); n < p.space.limit; n = atomic.LoadUint64(&p.space.next) {
		if atomic.CompareAndSwapUint64(&p.space.next, n, n+1) {
			s := p.slot(n)
			s.device, s.serial = key.Device, key.Serial
			s.kind.Store(uint32(key.Kind))
			return uintptr(p.space.base + n*slotSize), nil
		}
	}
	return 0, host.ErrMemory
}

func (p *process) Key(generation uint64, handle uintptr) (host.Key, bool) {
	offset := uint64(handle) - p.space.base
	n := offset / slotSize
	if offset%slotSize != 0 || n < generation || n >= atomic.LoadUint64(&p.space.next) || generation != p.space.start {
		return host.Key{}, false
	}
	s := p.slot(n)
	kind := host.Kind(s.kind.Load())
	return host.Key{Kind: kind, Device: s.device, Serial: s.serial}, kind != host.None
}

func (p *process) Release(generation uint64, handle uintptr) bool {
	if _, ok := p.Key(generation, handle); !ok {
		return false
	}
	p.slot((uint64(handle) - p.space.base) / slotSize).kind.Store(uint32(host.None))
	return true
}

func (p *process) All(generation uint64, f func(uintptr, host.Key)) {
	for n := generation; n < atomic.LoadUint64(&p.space.next); n++ {
		handle := uintptr(p.space.base + n*slotSize)
		if key, ok := p.Key(generation, handle); ok {
			f(handle, key)
		}
	}
}

func (p *process) slot(n uint64) *slot {
	base := *(*unsafe.Pointer)(unsafe.Pointer(&p.space.base))
	return (*slot)(unsafe.Add(base, n*slotSize))
}
