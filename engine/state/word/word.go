// Package word is the number of a state directory's newest change, in a file that readers map: a reader sees a change by
// reading memory, and a waiter sleeps until the number changes. It is the one package below engine that needs unsafe.
package word

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Size is the size of the file: a page, so that no part of a mapping lies beyond the end of the file.
const Size = 4096

// Word is the number as this process sees it.
type Word struct {
	page []byte
}

// ErrUnfit is the error of a file that must not be mapped: reading the mapping could end the process by SIGBUS, or the
// mapping would not show what other processes write. Readers then rely on looking at the files every now and then.
var ErrUnfit = errors.New("the file cannot be mapped safely")

// Open maps the file of that name in a directory.
func Open(dir int, name string) (*Word, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := fit(fd); err != nil {
		return nil, err
	}
	page, err := unix.Mmap(fd, 0, Size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &Word{page}, nil
}

// fit says whether a mapping of the file is safe and shows what others write: a regular file that is long enough, has no
// holes, and lies in a file system in which all processes share one page cache.
func fit(fd int) error {
	var stat unix.Stat_t
	var fs unix.Statfs_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return err
	}
	switch uint32(fs.Type) {
	case unix.TMPFS_MAGIC, unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC:
	default:
		return ErrUnfit
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Size < Size {
		return ErrUnfit
	}
	// A hole of a full tmpfs has no page to map. Some file systems keep so small a file in its inode, without blocks.
	if uint32(fs.Type) == unix.TMPFS_MAGIC && stat.Blocks*512 < Size {
		return ErrUnfit
	}
	return nil
}

func (w *Word) value() *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&w.page[0])) }

// Load is the number of the newest change.
func (w *Word) Load() uint32 { return w.value().Load() }

// Address is where the number lies, for a waiter that is not written in Go. The mapping lasts as long as the process.
func (w *Word) Address() uintptr { return uintptr(unsafe.Pointer(&w.page[0])) }

// Close takes the mapping away. Nobody may read the number any more.
func (w *Word) Close() { _ = unix.Munmap(w.page) }

// Wait sleeps until the number is no longer old, for at most some time. It may also return early.
func (w *Word) Wait(old uint32, most time.Duration) {
	limit := unix.NsecToTimespec(max(most, 0).Nanoseconds())
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, w.Address(), futexWait, uintptr(old), uintptr(unsafe.Pointer(&limit)), 0, 0)
}

// wake wakes all who wait for the number to change, in every process: the kernel finds them by the file.
func (w *Word) wake() {
	const everybody = 1<<31 - 1
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, w.Address(), futexWake, everybody, 0, 0, 0)
}

// The operations of the system call, between processes.
const (
	futexWait = 0
	futexWake = 1
)

// Create makes the file where it is missing. It appears complete, and starts at a number by chance: a reader that knew an
// older file of that name sees a change.
func Create(dir int, name string, mode uint32) error {
	var stat unix.Stat_t
	if unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return nil
	}
	page := make([]byte, Size)
	*(*uint32)(unsafe.Pointer(&page[0])) = rand.Uint32()
	fresh := fmt.Sprintf(".%s.%d", name, unix.Getpid())
	_ = unix.Unlinkat(dir, fresh, 0)
	fd, err := unix.Openat(dir, fresh, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	defer unix.Unlinkat(dir, fresh, 0)
	if err := unix.Fchmod(fd, mode); err != nil {
		return err
	}
	if n, err := unix.Write(fd, page); err != nil || n != Size {
		return errors.Join(err, unix.ENOSPC)
	}
	if err := unix.Linkat(dir, fresh, dir, name, 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// Raise makes the number another one and wakes who waits for that. The caller holds the directory's lock.
func Raise(dir int, name string) error {
	fd, err := unix.Openat(dir, name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Size < Size {
		return ErrUnfit
	}
	number := make([]byte, 4)
	if _, err := unix.Pread(fd, number, 0); err != nil {
		return err
	}
	*(*uint32)(unsafe.Pointer(&number[0]))++
	if _, err := unix.Pwrite(fd, number, 0); err != nil {
		return err
	}
	if w, err := Open(dir, name); err == nil {
		w.wake()
		w.Close()
	}
	return nil
}
