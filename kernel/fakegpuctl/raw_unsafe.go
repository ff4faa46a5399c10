package fakegpuctl

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// wire are the arguments of requests: they have a fixed layout, no padding and no pointers.
type wire interface {
	infoArg | allocArg | freeArg | submitArg | waitArg | page
}

// bytesOf is the memory of an argument, which the kernel reads and writes.
func bytesOf[T wire](arg *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(arg)), unsafe.Sizeof(*arg))
}

// pageIn is the page at the start of mapped memory, which is aligned and at least as long.
func pageIn(mapped []byte) *page {
	return (*page)(unsafe.Pointer(unsafe.SliceData(mapped)))
}

// ioctl makes the system call. The argument has the length that the request encodes.
func ioctl(fd uintptr, request uint32, arg []byte) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uintptr(request), uintptr(unsafe.Pointer(unsafe.SliceData(arg)))); errno != 0 {
		return errno
	}
	return nil
}
