package fakegpuctl

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// wire are the arguments of the requests: fixed layout, no padding, no pointers.
type wire interface {
	infoArg | allocArg | freeArg | submitArg | waitArg | page
}

// bytesOf is the memory of an argument, for the kernel to read and write.
func bytesOf[T wire](arg *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(arg)), unsafe.Sizeof(*arg))
}

// pageIn is the page in mapped memory, which begins at a page and is at least as long.
func pageIn(mapped []byte) *page {
	return (*page)(unsafe.Pointer(unsafe.SliceData(mapped)))
}

// ioctl makes the system call. The argument is as long as the request says.
func ioctl(fd uintptr, request uint32, arg []byte) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uintptr(request), uintptr(unsafe.Pointer(unsafe.SliceData(arg)))); errno != 0 {
		return errno
	}
	return nil
}
