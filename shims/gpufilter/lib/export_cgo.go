package main

/*
#cgo CFLAGS: -O2 -Wall -Wextra -I${SRCDIR}/../../../library/host -I${SRCDIR}/..
#include <stdint.h>
*/
import "C"

// library.c calls these functions.

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

// room is an eighth of the megabyte of stack that makeRoom reserves below a call. It is no larger, since the compiler
// moves larger variables to the heap.
type room [128 << 10]byte

// makeRoom makes the stack as large as its frame is, since a signal handler of the host's may run on it; library/core has
// the whole story.
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
