// Package fakegpuctl uses /dev/fakegpu, a simulated GPU that only has the interface of one: memory to allocate within
// quotas, and jobs that take time and complete in order. The kernel module fakegpu makes the device; docs/fakegpu.md
// describes the interface.
package fakegpuctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Path is the path of the device.
const Path = "/dev/fakegpu"

// Handle names an allocation of one Device.
type Handle uint32

// Info is the device's resources, and how much of them is in use.
type Info struct {
	ABIVersion     uint32
	Name           string
	DeviceBytes    uint64        // memory of the device
	DeviceUsed     uint64        // the part of it that all Devices of all processes hold
	ContextBytes   uint64        // memory that one Device may hold
	ContextUsed    uint64        // the part of it that this Device holds
	MaxHandles     uint32        // allocations that one Device may hold
	ContextHandles uint32        // the number that this Device holds
	JobLatency     time.Duration // from a job's submission to its completion, if no other job is before it
}

// driver is the device, or its replacement in a test.
type driver interface {
	// ioctl makes a request. The argument has the size that the request encodes. Errors wrap a unix.Errno or
	// os.ErrClosed.
	ioctl(request uint32, arg []byte) error
	mapPage() ([]byte, error)
	unmap(mapped []byte) error
	Close() error
}

// Device is an open device: a context whose allocations and jobs no other Device sees. Several goroutines may use it at
// the same time. Its memory is freed when it is closed or when its process ends.
type Device struct {
	driver driver
	mu     sync.RWMutex // guards mapped and page, which end when the device is closed
	mapped []byte
	page   *page // nil: closed
	last   page  // its content when the device was closed
}

// Open opens the device.
func Open() (*Device, error) { return OpenPath(Path) }

// OpenPath opens the device at another path.
func OpenPath(path string) (*Device, error) {
	op := fmt.Sprintf("open %q", path)
	for {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, explain(op, opening, err)
		}
		return open(op, file{os.NewFile(uintptr(fd), path)}) // Go's poller does not use it
	}
}

func open(op string, driver driver) (*Device, error) {
	d := &Device{driver: driver}
	info, err := d.Info()
	if err == nil && info.ABIVersion < ABIVersion {
		err = &Error{op, fmt.Errorf("its interface is version %d, want %d", info.ABIVersion, ABIVersion), strange}
	}
	if err == nil {
		if d.mapped, err = driver.mapPage(); err != nil {
			err = explain("map the page of completed jobs", opening, err)
		}
	}
	if err != nil {
		driver.Close()
		return nil, err
	}
	d.page = pageIn(d.mapped)
	return d, nil
}

// Close frees all allocations and drops the running jobs. Running Waits return an error soon after.
func (d *Device) Close() error {
	err := d.driver.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.page != nil {
		d.last.CompletedSeq = atomic.LoadUint64(&d.page.CompletedSeq)
		d.last.SubmittedSeq = atomic.LoadUint64(&d.page.SubmittedSeq)
		d.page = nil
		err = errors.Join(err, d.driver.unmap(d.mapped))
	}
	return explain("close the device", opening, err)
}

func call[T wire](d *Device, op string, request uint32, arg *T) error {
	for {
		err := d.driver.ioctl(request, bytesOf(arg))
		if !errors.Is(err, unix.EINTR) { // EINTR is from a signal of Go's own: nothing was done
			return explain(op, request, err)
		}
	}
}

// Info returns the device's resources, and how much of them is in use now.
func (d *Device) Info() (Info, error) {
	var arg infoArg
	if err := call(d, "ask the device what it has", ioctlInfo, &arg); err != nil {
		return Info{}, err
	}
	name, _, _ := bytes.Cut(arg.Name[:], []byte{0})
	return Info{
		ABIVersion: arg.ABIVersion, Name: string(name),
		DeviceBytes: arg.DeviceBytes, DeviceUsed: arg.DeviceUsed,
		ContextBytes: arg.ContextBytes, ContextUsed: arg.ContextUsed,
		MaxHandles: arg.MaxHandles, ContextHandles: arg.ContextHandles,
		JobLatency: time.Duration(arg.JobLatencyUsec) * time.Microsecond,
	}, nil
}

// Alloc allocates memory in whole pages of 4096 bytes. ENOSPC: the quota of this Device, of bytes or of handles, is
// used up. ENOMEM: the device has no more memory.
func (d *Device) Alloc(size uint64) (Handle, error) {
	arg := allocArg{Size: size}
	err := call(d, fmt.Sprintf("allocate %d bytes", size), ioctlAlloc, &arg)
	return Handle(arg.Handle), err
}

// Free frees an allocation. Running jobs that use it keep its memory until they complete. EINVAL: there is no such
// allocation.
func (d *Device) Free(h Handle) error {
	return call(d, fmt.Sprintf("free allocation %d", h), ioctlFree, &freeArg{Handle: uint32(h)})
}

// Submit starts a job on an allocation and returns its number: 1 for the first job, then one more each time. EINVAL:
// there is no such allocation. EAGAIN: too many jobs are running.
func (d *Device) Submit(h Handle) (seqno uint64, err error) {
	arg := submitArg{Handle: uint32(h)}
	err = call(d, fmt.Sprintf("submit a job on allocation %d", h), ioctlSubmit, &arg)
	return arg.Seqno, err
}

// slice is how long a Wait stays in the kernel before it checks again whether it should go on.
const slice = 20 * time.Millisecond

// Wait waits until a job has completed, and returns the number of the last completed job. If ctx ends first, the error
// wraps ctx.Err() and names the job. EINVAL: the job was never submitted.
//
// A waiting goroutine occupies a thread. It wakes every 20 ms to check whether ctx has ended or the Device has been
// closed. For a completed job Wait makes no system call.
func (d *Device) Wait(ctx context.Context, seqno uint64) (completed uint64, err error) {
	op := fmt.Sprintf("wait for job %d", seqno)
	if completed = d.CompletedSeq(); seqno != 0 && completed >= seqno {
		return completed, nil
	}
	for {
		timeout := slice
		if end, ok := ctx.Deadline(); ok {
			timeout = min(slice, max(0, time.Until(end)))
		}
		if ctx.Err() != nil {
			timeout = 0
		}
		arg := waitArg{Seqno: seqno, TimeoutNsec: int64(timeout)}
		err := d.driver.ioctl(ioctlWait, bytesOf(&arg))
		switch {
		case !errors.Is(err, unix.ETIMEDOUT) && !errors.Is(err, unix.EINTR):
			return arg.CompletedSeq, explain(op, ioctlWait, err)
		case ctx.Err() != nil:
			return arg.CompletedSeq, &Error{op, ctx.Err(), fmt.Sprintf("%d has completed: wait longer", arg.CompletedSeq)}
		}
	}
}

// CompletedSeq is the number of the last completed job, without a system call. After Close it keeps its last value.
func (d *Device) CompletedSeq() uint64 {
	return d.read(func(p *page) *uint64 { return &p.CompletedSeq })
}

// SubmittedSeq is the number of the last submitted job, without a system call. After Close it keeps its last value.
func (d *Device) SubmittedSeq() uint64 {
	return d.read(func(p *page) *uint64 { return &p.SubmittedSeq })
}

func (d *Device) read(field func(*page) *uint64) uint64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.page == nil {
		return *field(&d.last)
	}
	return atomic.LoadUint64(field(d.page))
}

// file is the open device file.
type file struct{ *os.File }

func (f file) ioctl(request uint32, arg []byte) error {
	return f.control(func(fd uintptr) error { return ioctl(fd, request, arg) })
}

func (f file) mapPage() (mapped []byte, err error) {
	err = f.control(func(fd uintptr) error {
		mapped, err = unix.Mmap(int(fd), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
		return err
	})
	return mapped, err
}

func (f file) unmap(mapped []byte) error { return unix.Munmap(mapped) }

// control runs do with the descriptor, which cannot be closed meanwhile.
func (f file) control(do func(fd uintptr) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = do(fd) }); err != nil {
		return os.ErrClosed
	}
	return failed
}
