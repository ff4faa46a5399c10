package main

/*
#cgo CFLAGS: -O2 -Wall -Wextra
#include <stdint.h>
*/
import "C"

// These are what library.c calls.

//export nvgpufilterReady
func nvgpufilterReady() {}

//export nvgpufilterInstall
func nvgpufilterInstall() C.int {
	makeRoom(false)
	return C.int(install())
}

//export nvgpufilterBoundImport
func nvgpufilterBoundImport(object, symbol *C.char) C.uintptr_t {
	makeRoom(false)
	return C.uintptr_t(boundImport(C.GoString(object), C.GoString(symbol)))
}

// makeRoom makes the stack as large as its frame is, since a signal handler of the host's may run on it. Stacks do not
// shrink, as the library is linked with gcshrinkstackoff.
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
