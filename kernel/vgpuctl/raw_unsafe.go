package vgpuctl

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// wire are the structures of the interface: they have a fixed layout, no padding and no pointers.
type wire interface {
	Info | Stats | Usage | Policy | CgroupPolicy | Event | Mode
}

// bytesOf is the memory of a structure, which the kernel reads and writes.
func bytesOf[T wire](s *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(s)), unsafe.Sizeof(*s))
}

// eventBytes is the memory of events.
func eventBytes(events []Event) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events))*eventSize)
}

const eventSize = unsafe.Sizeof(Event{})

// ioctl makes the system call. The argument has the length that the request encodes.
func ioctl(fd uintptr, request uint32, argument []byte) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uintptr(request), uintptr(unsafe.Pointer(unsafe.SliceData(argument))))
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return errno
		}
		return nil
	}
}
