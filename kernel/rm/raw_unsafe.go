package rm

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// address is where memory of the kernel's lies, which Go does not move.
func address(memory []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory)))) }

func ioctl(fd int, command uintptr, argument []byte) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), command, uintptr(unsafe.Pointer(unsafe.SliceData(argument))))
		if errno == 0 {
			return nil
		}
		if errno != unix.EINTR {
			return errno
		}
	}
}
