// Package host is C for living in a process that belongs to somebody else: the front compiles it, the core and the NVENC
// filter link it. Its functions for Go are those that need more than Go can do in such a process.
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

// Getenv reads the process's environment as it is now; os.Getenv remembers an older one. In a program that has more
// privileges than the user who started it (AT_SECURE), no variable is set.
func Getenv(name string) string {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return C.GoString(C.secure_getenv(c))
}

// Complain says text in one line of at most a kilobyte on standard error. It waits for nobody, and a broken pipe brings the
// process no SIGPIPE.
func Complain(text string) {
	c := C.CString(text)
	defer C.free(unsafe.Pointer(c))
	C.complain(c)
}
