package main

import (
	"syscall"
	"unsafe"
)

// capable reports whether the calling thread has CAP_SYS_ADMIN in its effective set.
func capable() bool {
	const version, admin = 0x20080522, 21
	header := struct {
		version uint32
		pid     int32
	}{version: version}
	var sets [2]struct{ effective, permitted, inheritable uint32 }
	_, _, errno := syscall.RawSyscall(syscall.SYS_CAPGET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets)), 0)
	return errno == 0 && sets[0].effective>>admin&1 != 0
}
