// Package word maps the file with the number of a state directory's newest change. A reader notices a change by reading
// memory, and a waiter sleeps until the number changes. It is the only package below engine that uses unsafe.
package word

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Size is the size of the file: a page, so that the whole mapping is within the file.
const Size = 4096

// Word is the number as this process sees it.
type Word struct {
	page []byte
}

// ErrUnfit means that the file must not be mapped: reading the mapping could cause a SIGBUS, or the mapping would not
// show what other processes write. Readers then check the files from time to time.
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

// fit returns an error unless a mapping of the file is safe and shows what others write: it must be a regular file that
// is long enough, has no holes, and is in a file system with one page cache for all processes.
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
	// A hole on a full tmpfs cannot get a page. Some file systems keep such a small file in its inode, without blocks.
	if uint32(fs.Type) == unix.TMPFS_MAGIC && stat.Blocks*512 < Size {
		return ErrUnfit
	}
	return nil
}

func (w *Word) value() *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&w.page[0])) }

// Load is the number of the newest change.
func (w *Word) Load() uint32 { return w.value().Load() }

// Address is the address of the number, for a waiter in another language. The mapping lasts as long as the process.
func (w *Word) Address() uintptr { return uintptr(unsafe.Pointer(&w.page[0])) }

// Close removes the mapping. The number cannot be read any more.
func (w *Word) Close() { _ = unix.Munmap(w.page) }

// wake wakes all waiters in every process; the kernel identifies them by the file.
func (w *Word) wake() {
	const everybody = 1<<31 - 1
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, w.Address(), futexWake, everybody, 0, 0, 0)
}

// futexWake is the system call's operation that wakes waiters in other processes too.
const futexWake = 1

// Create makes the file if it does not exist. The file appears complete, with a random first number, so that a reader
// that knew an older file of that name notices a change.
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

// Raise changes the number and wakes all waiters. The caller holds the directory's lock.
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
