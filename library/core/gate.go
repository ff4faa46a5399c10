// Command core is libnvmlfab-core.so, the Go library that the front loads. It has two exports: nvmlfab_start in threads.c, which
// starts the Go runtime, and then nvmlfab_answer.
package main

// #include "shared.h"
import "C"

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"strings"
	"unsafe"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/generated/dispatch"
	"github.com/nvmlfab/nvmlfab/library/host"
	"github.com/nvmlfab/nvmlfab/library/marshal"
)

// These numbers are greater than those of all symbols.
const (
	hello   = C.NVMLFAB_HELLO
	level   = C.NVMLFAB_LEVEL
	restore = C.NVMLFAB_RESTORE
)

func main() {}

// node is the engine of the process. The front's first call creates it.
var node *engine.Engine

// nvmlfab_answer answers the symbol with that number; args is a block of argument words. A panic answers UNKNOWN and prints one
// line; it never unwinds into C. A front calls nvmlfab_start first, or this call waits for the Go runtime for ever. So it must not
// be called nvmlfab_call: fronts of builds without nvmlfab_start look for that name, and refuse a core that does not have it.
//
//export nvmlfab_answer
func nvmlfab_answer(number C.uint32_t, args unsafe.Pointer) (ret C.uint32_t) {
	defer func() {
		if r := recover(); r != nil {
			ret = C.uint32_t(abi.ERROR_UNKNOWN)
			complain(uint32(number), r)
		}
	}()
	makeRoom(false)
	if call := dispatch.Call(uint32(number)); call != nil {
		s := node.Snapshot()
		if args != nil { // a function without parameters has no block of words
			if ret, instead := s.Instead(uint32(number), func() uintptr { return marshal.Word[uintptr](args, 0) }); instead {
				return C.uint32_t(ret)
			}
		}
		return C.uint32_t(s.Known(call(s, args)))
	}
	switch number {
	case hello:
		*(*uint64)(marshal.Pointer(args, 2)) = dispatch.ModelHash
		if marshal.Word[uint64](args, 0) != dispatch.ModelHash {
			return C.uint32_t(abi.ERROR_LIB_RM_VERSION_MISMATCH)
		}
		node = engine.New(&process{handles{space: (*space)(marshal.Pointer(args, 1))}})
		return C.uint32_t(abi.SUCCESS)
	case level:
		return C.uint32_t(node.Level())
	case restore:
		return C.uint32_t(node.Restore())
	}
	return C.uint32_t(abi.ERROR_NOT_SUPPORTED)
}

// room is an eighth of the megabyte of stack that makeRoom reserves below a call. It is no larger, since the compiler
// moves larger variables to the heap.
type room [128 << 10]byte

// makeRoom grows the goroutine's stack by its own large frame. The reason is that the kernel runs a signal handler of
// the host's, unless it has an alternate stack, on the thread's present stack. During a call that is a goroutine's
// stack: a few kilobytes on the heap, which the handler could overflow. A stack of this size has a mapping of its own
// with a guard below it (library/goruntime), so a handler that needs even more gets a fault and does not overwrite the
// heap. Stacks do not shrink again, since the core is linked with gcshrinkstackoff.
//
//go:noinline
func makeRoom(use bool) {
	if use {
		var a, b, c, d, e, f, g, h room
		touch(&a, &b, &c, &d, &e, &f, &g, &h)
	}
}

//go:noinline
func touch(a, b, c, d, e, f, g, h *room) {}

func complain(number uint32, r any) {
	name := fmt.Sprintf("call %#x", number)
	for _, s := range abi.Symbols() {
		if s.Number == int(number) {
			name = s.Name
		}
	}
	host.Complain(strings.ReplaceAll(fmt.Sprintf("%s: internal error: %v; please report it", name, r), "\n", "; "))
	if host.Getenv("NVMLFAB_DEBUG") != "" {
		for line := range bytes.Lines(debug.Stack()) {
			host.Complain(string(bytes.TrimRight(line, "\n")))
		}
	}
}
