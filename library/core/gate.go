// Command core is libnvmlfab-core.so, the Go library behind the front: it has one export, nvmlfab_call.
package main

/*
#include <stdint.h>
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/generated/dispatch"
	"github.com/nvmlfab/nvmlfab/library/marshal"
)

// Numbers beyond every symbol, as in front.h.
const (
	hello   = 0xffffff00
	level   = 0xffffff01
	restore = 0xffffff02
)

// space is the front's struct nvmlfab_space.
type space struct {
	base, limit, start, next uint64
	config                   unsafe.Pointer
	configSize               uint64
}

func main() {}

// nvmlfab_call is the core's one export: it answers symbol number index with a block of
// argument words. A panic answers UNKNOWN with one line and never unwinds into C.
//
//export nvmlfab_call
func nvmlfab_call(index C.uint32_t, args unsafe.Pointer) (ret C.uint32_t) {
	defer func() {
		if r := recover(); r != nil {
			ret = C.uint32_t(abi.ERROR_UNKNOWN)
			complain(uint32(index), r)
		}
	}()
	makeRoom(false)
	if index < C.uint32_t(len(dispatch.Calls)) && dispatch.Calls[index] != nil {
		return C.uint32_t(dispatch.Calls[index](args))
	}
	switch index {
	case hello:
		*(*uint64)(marshal.Pointer(args, 2)) = abi.ModelHash
		if marshal.Word[uint64](args, 0) != abi.ModelHash {
			return C.uint32_t(abi.ERROR_LIB_RM_VERSION_MISMATCH)
		}
		engine.Use(&host{(*space)(marshal.Pointer(args, 1))})
		return C.uint32_t(abi.SUCCESS)
	case level:
		return C.uint32_t(engine.Level())
	case restore:
		return C.uint32_t(engine.Restore())
	}
	return C.uint32_t(abi.ERROR_NOT_SUPPORTED)
}

// makeRoom makes the stack as large as its frame is. The kernel runs a signal handler of the host's, unless the host gave
// it a stack of its own, on the stack that the thread is on, which in here is a goroutine's: a few kilobytes of the heap.
// Stacks do not shrink, since the core is linked with gcshrinkstackoff.
//
//go:noinline
func makeRoom(use bool) {
	if use {
		var room [64 << 10]byte
		touch(&room)
	}
}

//go:noinline
func touch(*[64 << 10]byte) {}

func complain(index uint32, r any) {
	name := fmt.Sprintf("call %#x", index)
	if index < abi.SymbolCount {
		name = abi.Symbols()[index].Name
	}
	engine.Complain(fmt.Errorf("%s: internal error: %v; please report it", name, r))
	if getenv("NVMLFAB_DEBUG") != "" {
		syscall.Write(syscall.Stderr, debug.Stack())
	}
}

// getenv reads the host's environment as it is now; os.Getenv remembers an older one.
func getenv(name string) string {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return C.GoString(C.getenv(c))
}

// host gives the engine the process around it.
type host struct{ space *space }

const slotSize = 16

func (h *host) Getenv(name string) string { return getenv(name) }

// Handles returns the address of handle number 0 and the numbers in use by this generation.
func (h *host) Handles() (base uintptr, start, next uint64) {
	return uintptr(h.space.base), h.space.start, atomic.LoadUint64(&h.space.next)
}

// Reserve takes the next handle number and notes what it stands for, so that a core that
// is loaded after a fork can tell.
func (h *host) Reserve(kind engine.Kind) (number uint64, ok bool) {
	for number = atomic.LoadUint64(&h.space.next); number < h.space.limit; number = atomic.LoadUint64(&h.space.next) {
		if atomic.CompareAndSwapUint64(&h.space.next, number, number+1) {
			h.Note(number, kind)
			return number, true
		}
	}
	return 0, false
}

// Keep copies what the engine was configured with into C memory, which a forked process inherits.
func (h *host) Keep(config []byte) {
	C.free(h.space.config)
	h.space.config, h.space.configSize = nil, uint64(len(config))
	if len(config) > 0 {
		h.space.config = C.CBytes(config)
	}
}

// Kept returns what Keep was given, by this core or by the one before a fork.
func (h *host) Kept() []byte { return C.GoBytes(h.space.config, C.int(h.space.configSize)) }

// Kind tells what an earlier core noted for a handle number.
func (h *host) Kind(number uint64) engine.Kind { return engine.Kind(*h.slot(number)) }

// Note changes what a handle number stands for.
func (h *host) Note(number uint64, kind engine.Kind) { *h.slot(number) = uint32(kind) }

func (h *host) slot(number uint64) *uint32 {
	base := *(*unsafe.Pointer)(unsafe.Pointer(&h.space.base))
	return (*uint32)(unsafe.Add(base, number*slotSize))
}
