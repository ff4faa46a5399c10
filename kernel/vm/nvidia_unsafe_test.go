//go:build guest

package kernel

import (
	"bytes"
	"encoding/binary"
	"os"
	"reflect"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// escape is a command of NVIDIA's driver, made of number and size.
func escape(nr, size uintptr) uintptr { return 3<<30 | size<<16 | 'F'<<8 | nr }

// rmIoctl calls the driver with a structure.
func rmIoctl[T any](fd int, nr uintptr, arg *T) error {
	return rawIoctl(fd, escape(nr, unsafe.Sizeof(*arg)), unsafe.Pointer(arg))
}

// rmIoctlBytes calls the driver with arbitrary bytes.
func rmIoctlBytes(fd int, nr uintptr, arg []byte) error {
	return rawIoctl(fd, escape(nr, uintptr(len(arg))), unsafe.Pointer(unsafe.SliceData(arg)))
}

// rmIoctlAt calls the driver with a structure at any address.
func rmIoctlAt(fd int, cmd, address uintptr) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), cmd, address)
	return result(errno)
}

func rawIoctl(fd int, cmd uintptr, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), cmd, uintptr(arg))
	runtime.KeepAlive(arg)
	return result(errno)
}

func result(errno unix.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}

// moveless forces values that are stored in it onto the heap, since Go may move a stack.
var moveless atomic.Pointer[byte]

// at is the address that p points to, for a structure that the driver reads. The caller must keep p alive until then.
func at[T any](p *T) uint64 {
	moveless.Store((*byte)(unsafe.Pointer(p)))
	return uint64(uintptr(unsafe.Pointer(p)))
}

// sizeOf is what a structure takes in memory.
func sizeOf[T any](T) uint32 { var v T; return uint32(unsafe.Sizeof(v)) }

// place returns the address and size of what a pointer or slice refers to.
func place(params any) (address uint64, size uint32) {
	v := reflect.ValueOf(params)
	if !v.IsValid() || v.IsNil() {
		return 0, 0
	}
	moveless.Store((*byte)(v.UnsafePointer()))
	if v.Kind() == reflect.Slice {
		return uint64(v.Pointer()), uint32(v.Len()) * uint32(v.Type().Elem().Size())
	}
	return uint64(v.Pointer()), uint32(v.Type().Elem().Size())
}

// bytesOf is the memory of a slice.
func bytesOf[T any](s []T) []byte {
	var v T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(v)))
}

// slowPage is a page of memory that is supplied only when release is called; wanted waits until somebody needs it.
func slowPage(t *testing.T) (address uint64, wanted, release func()) {
	t.Helper()
	const missing = 1
	p := faultingPage(t, nil, missing)
	return p.address, p.wanted, p.release
}

// faulting is a page whose user waits until release is called; wanted waits for somebody who does.
type faulting struct {
	address         uint64
	wanted, release func()
}

// protectedPage is memory with a structure that can be read at once, and written only after release is called.
func protectedPage(t *testing.T, v any) faulting {
	t.Helper()
	const writeProtected = 2
	return faultingPage(t, v, writeProtected)
}

// faultingPage makes a page whose faults of that mode go to a descriptor. Numbers are from linux/userfaultfd.h.
func faultingPage(t *testing.T, v any, mode uint64) faulting {
	t.Helper()
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	require.Zero(t, errno)
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Munmap(page) })
	address := uint64(uintptr(unsafe.Pointer(&page[0])))
	const api, register, protect = 0xc018aa3f, 0xc020aa00, 0xc018aa06
	version := struct{ API, Features, Ioctls uint64 }{API: 0xaa}
	require.NoError(t, rawIoctl(int(fd), api, unsafe.Pointer(&version)))
	if v != nil {
		var b bytes.Buffer
		require.NoError(t, binary.Write(&b, binary.LittleEndian, v))
		copy(page, b.Bytes())
	}
	area := struct{ Start, Length, Mode, Ioctls uint64 }{address, uint64(len(page)), mode, 0}
	require.NoError(t, rawIoctl(int(fd), register, unsafe.Pointer(&area)))
	if v != nil {
		now := struct{ Start, Length, Mode uint64 }{address, uint64(len(page)), 1}
		require.NoError(t, rawIoctl(int(fd), protect, unsafe.Pointer(&now)))
	}
	wanted := func() {
		t.Helper()
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(hangs.Milliseconds()))
		require.NoError(t, err)
		require.Equal(t, 1, n, "nobody wants the page")
	}
	return faulting{address, wanted, func() { unix.Close(int(fd)) }} // without a descriptor, faults are as usual
}
