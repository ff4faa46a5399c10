// Package host is C code for a library that lives in somebody else's process. The front compiles it; the core and the
// NVENC filter link it. Its Go functions do what Go itself cannot do safely in such a process.
package host

/*
#cgo CFLAGS: -std=c11 -O2 -Wall -Wextra -fvisibility=hidden
#define _GNU_SOURCE
#include <stdlib.h>
#include "host.h"

static void complain(const char *text) { host_complain("%s", text); }
*/
import "C"

import "unsafe"

// Getenv reads the present environment of the process; os.Getenv has an older copy. If the program has more privileges
// than the user who started it (AT_SECURE), no variable is set.
func Getenv(name string) string {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return C.GoString(C.secure_getenv(c))
}

// Complain prints text as one line of at most a kilobyte on standard error. It never blocks, and a broken pipe causes
// no SIGPIPE.
func Complain(text string) {
	c := C.CString(text)
	defer C.free(unsafe.Pointer(c))
	C.complain(c)
}
