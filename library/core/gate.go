// Command core is libnvmlfab-core.so, the Go library behind the front: it has one export, nvmlfab_call.
package main

// #include <stdint.h>
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

// Numbers beyond every symbol, as in front.h.
const (
	hello   = 0xffffff00
	level   = 0xffffff01
	restore = 0xffffff02
)

func main() {}

// node is the engine of the process. The front's first call makes it.
var node *engine.Engine

// nvmlfab_call is the core's one export: it answers the symbol of that number with a block of
// argument words. A panic answers UNKNOWN with one line and never unwinds into C.
//
//export nvmlfab_call
func nvmlfab_call(number C.uint32_t, args unsafe.Pointer) (ret C.uint32_t) {
	defer func() {
		if r := recover(); r != nil {
			ret = C.uint32_t(abi.ERROR_UNKNOWN)
			complain(uint32(number), r)
		}
	}()
	makeRoom(false)
	if call := dispatch.Call(uint32(number)); call != nil {
		return C.uint32_t(call(node.Snapshot(), args))
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

// room is an eighth of what a call leaves below it on its stack, the megabyte that makeRoom's frame takes. The compiler moves
// larger variables to the heap.
type room [128 << 10]byte

// makeRoom makes the stack as large as its frame is. The kernel runs a signal handler of the host's, unless the host gave
// it a stack of its own, on the stack that the thread is on, which in here is a goroutine's: a few kilobytes of the heap.
// A stack of this size has a mapping of its own with a page below it that nobody may touch (library/goruntime), so that a
// handler which wants still more faults instead of writing over the heap. Stacks do not shrink, since the core is linked
// with gcshrinkstackoff.
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
