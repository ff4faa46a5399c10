package gpufilter

/*
#cgo CFLAGS: -O2 -Wall -Wextra
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include "hook.h"
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"unsafe"

	inhost "github.com/nvmlfab/nvmlfab/library/host"
)

func getenv(name string) string { return inhost.Getenv(name) }

func debugf(format string, args ...any) {
	if getenv(debugVariable) != "" {
		inhost.Complain(fmt.Sprintf("gpufilter: "+format, args...))
	}
}

// hook is the address of the C function that replaces ioctl.
func hook() uintptr { return uintptr(C.gpufilter_hook()) }

// publish gives the hook the ids to keep.
func publish(keep []gpuID, control uint64) error {
	if C.gpufilter_publish((*C.uint32_t)(unsafe.SliceData(keep)), C.uint32_t(len(keep)), C.uint64_t(control)) == 0 {
		return syscall.ENOMEM
	}
	return nil
}

// filterIDs applies the hook's filter to an answer; flags may be nil.
func filterIDs(ids, flags *[32]uint32, keep []uint32) {
	C.gpufilter_filter((*C.uint32_t)(unsafe.Pointer(ids)), (*C.uint32_t)(unsafe.Pointer(flags)),
		(*C.uint32_t)(unsafe.SliceData(keep)), C.uint32_t(len(keep)))
}

// generation is how many objects have been loaded and unloaded, so that a change can be noticed.
type generation = C.struct_gpufilter_generation

func unchanged() bool { return C.gpufilter_unchanged() != 0 }

func remember(g generation, slots []uint64) {
	C.gpufilter_remember(g, (*C.uint64_t)(unsafe.SliceData(slots)), C.size_t(len(slots)))
}

// loaded lists the objects in this process.
func loaded() ([]object, generation) {
	var size C.size_t
	var g generation
	block := C.gpufilter_objects(&size, &g)
	defer C.free(block)
	return decodeObjects(C.GoBytes(block, C.int(size))), g
}

// decodeObjects reads the block that gpufilter_objects makes.
func decodeObjects(b []byte) []object {
	var found []object
	for len(b) >= 24 {
		o := object{base: binary.NativeEndian.Uint64(b)}
		headers, length := binary.NativeEndian.Uint64(b[8:]), binary.NativeEndian.Uint64(b[16:])
		b = b[24:]
		for ; headers > 0; headers-- {
			var h programHeader
			n, err := binary.Decode(b, binary.NativeEndian, &h)
			if err != nil {
				return found
			}
			o.headers = append(o.headers, h)
			b = b[n:]
		}
		o.name = string(b[:length])
		b = b[length:]
		found = append(found, o)
	}
	return found
}

// hold keeps o loaded until release is called. It first waits for a dlopen in another thread to end, since o may be
// incomplete until then. It fails if o is gone.
func (o *object) hold() (release func(), ok bool) {
	name := C.CString(o.name)
	defer C.free(unsafe.Pointer(name))
	handle := C.dlopen(name, C.RTLD_LAZY|C.RTLD_NOLOAD)
	if handle == nil {
		return nil, false
	}
	return func() { C.dlclose(handle) }, true
}

// readMaps reads this process's mappings.
func readMaps() (mappings, error) {
	text, err := readFile("/proc/self/maps")
	if err != nil {
		return nil, fmt.Errorf("cannot read /proc/self/maps: %w", err)
	}
	return parseMaps(text), nil
}

// processMemory is the readable memory of this process.
type processMemory struct{ maps mappings }

func (m processMemory) read(addr uint64, b []byte) bool {
	if !m.maps.readable(addr, uint64(len(b))) {
		return false
	}
	copy(b, unsafe.Slice((*byte)(pointer(addr)), len(b)))
	return true
}

// pointer converts an address outside Go's memory.
func pointer(addr uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// load reads a slot.
func load(slot uint64) uintptr { return *(*uintptr)(pointer(slot)) }

// store writes a slot. The page keeps its protection.
func store(slot uint64, value uintptr, p protection) error {
	if errno := C.gpufilter_store(C.uintptr_t(slot), C.uintptr_t(value), C.int(p)); errno != 0 {
		return syscall.Errno(errno)
	}
	return nil
}
