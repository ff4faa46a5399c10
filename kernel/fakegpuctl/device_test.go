package fakegpuctl

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// answers replaces the kernel: it has a function for each request, which changes the argument.
type answers struct {
	mu      sync.Mutex
	calls   map[uint32]int
	closed  atomic.Bool
	mapped  []byte
	version uint32
	answer  func(request uint32, call int, arg []byte) error
}

func (a *answers) ioctl(request uint32, arg []byte) error {
	if a.closed.Load() {
		return os.ErrClosed
	}
	a.mu.Lock()
	a.calls[request]++
	n := a.calls[request]
	a.mu.Unlock()
	if request == ioctlInfo {
		info := infoArg{ABIVersion: a.version, MaxHandles: 2, DeviceBytes: 3, DeviceUsed: 4, ContextBytes: 5, ContextUsed: 6,
			ContextHandles: 7, JobLatencyUsec: 8, Name: [32]byte{'f', 'g'}}
		copy(arg, bytesOf(&info))
		return nil
	}
	return a.answer(request, n, arg)
}

func (a *answers) mapPage() ([]byte, error) { return a.mapped, nil }

// unmap makes the memory useless, as a real munmap does.
func (a *answers) unmap(mapped []byte) error {
	for i := range mapped {
		mapped[i] = 0xff
	}
	return nil
}

func (a *answers) Close() error {
	if a.closed.Swap(true) {
		return &os.PathError{Op: "close", Path: Path, Err: os.ErrClosed}
	}
	return nil
}

func opened(t *testing.T, answer func(request uint32, call int, arg []byte) error) (*Device, *answers) {
	t.Helper()
	a := &answers{calls: map[uint32]int{}, version: ABIVersion, answer: answer, mapped: bytesOf(new(page))}
	d, err := open("open it", a)
	require.NoError(t, err)
	return d, a
}

func TestInfo(t *testing.T) {
	d, _ := opened(t, nil)
	info, err := d.Info()
	require.NoError(t, err)
	assert.Equal(t, Info{ABIVersion: 1, Name: "fg", DeviceBytes: 3, DeviceUsed: 4, ContextBytes: 5, ContextUsed: 6,
		MaxHandles: 2, ContextHandles: 7, JobLatency: 8 * time.Microsecond}, info)
}

func TestArguments(t *testing.T) {
	d, _ := opened(t, func(request uint32, _ int, arg []byte) error {
		switch request {
		case ioctlAlloc:
			assert.Equal(t, bytesOf(&allocArg{Size: 1 << 40}), arg)
			copy(arg, bytesOf(&allocArg{Size: 1 << 40, Handle: 17}))
		case ioctlFree:
			assert.Equal(t, bytesOf(&freeArg{Handle: 17}), arg)
		case ioctlSubmit:
			assert.Equal(t, bytesOf(&submitArg{Handle: 17}), arg)
			copy(arg, bytesOf(&submitArg{Handle: 17, Seqno: 1 << 33}))
		}
		return nil
	})
	h, err := d.Alloc(1 << 40)
	require.NoError(t, err)
	assert.Equal(t, Handle(17), h)
	seqno, err := d.Submit(h)
	require.NoError(t, err)
	assert.Equal(t, uint64(1<<33), seqno)
	assert.NoError(t, d.Free(h))
}

// TestErrors: the error for every errno of the interface says what to do next, and errors.Is finds the errno.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		errno unix.Errno
		call  func(*Device) error
		want  string
	}{
		{unix.EINVAL, func(d *Device) error { _, err := d.Alloc(0); return err }, "cannot allocate 0 bytes: invalid argument: ask for at least one byte"},
		{unix.ENOSPC, func(d *Device) error { _, err := d.Alloc(1); return err }, "context_bytes"},
		{unix.ENOMEM, func(d *Device) error { _, err := d.Alloc(1); return err }, "device_bytes"},
		{unix.EINVAL, func(d *Device) error { return d.Free(3) }, "cannot free allocation 3: invalid argument: use a handle"},
		{unix.EINVAL, func(d *Device) error { _, err := d.Submit(3); return err }, "cannot submit a job on allocation 3: invalid argument: use a handle"},
		{unix.EAGAIN, func(d *Device) error { _, err := d.Submit(3); return err }, "max_jobs"},
		{unix.EINVAL, func(d *Device) error { _, err := d.Wait(t.Context(), 9); return err }, "cannot wait for job 9: invalid argument: wait for a number"},
		{unix.ENOTTY, func(d *Device) error { return d.Free(3) }, "no fakegpu device"},
		{unix.EFAULT, func(d *Device) error { return d.Free(3) }, "no fakegpu device"},
	} {
		d, _ := opened(t, func(uint32, int, []byte) error { return c.errno })
		err := c.call(d)
		assert.ErrorIs(t, err, c.errno)
		assert.ErrorContains(t, err, c.want)
		var typed *Error
		assert.ErrorAs(t, err, &typed)
	}
}

func TestOpenErrors(t *testing.T) {
	_, err := OpenPath(filepath.Join(t.TempDir(), "none"))
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "make -C kernel load MODULE=fakegpu")
	_, err = OpenPath("/dev/null")
	assert.ErrorIs(t, err, unix.ENOTTY)
	assert.ErrorContains(t, err, "no fakegpu device")
	a := &answers{calls: map[uint32]int{}, version: 0}
	_, err = open("open it", a)
	assert.ErrorContains(t, err, "its interface is version 0, want 1")
	assert.True(t, a.closed.Load(), "what was opened is closed")
}

func TestInterruptedCallsAreRepeated(t *testing.T) {
	d, a := opened(t, func(_ uint32, call int, _ []byte) error {
		if call < 3 {
			return unix.EINTR
		}
		return nil
	})
	require.NoError(t, d.Free(1))
	assert.Equal(t, 3, a.calls[ioctlFree])
}

// complete simulates a kernel in which a job completes at a certain WAIT.
func complete(at int) func(uint32, int, []byte) error {
	return func(_ uint32, call int, arg []byte) error {
		copy(arg[16:], bytesOf(&waitArg{Seqno: 4})) // completedSeq
		switch {
		case call < at && call%2 == 0:
			return unix.EINTR
		case call < at:
			time.Sleep(time.Millisecond)
			return unix.ETIMEDOUT
		}
		return nil
	}
}

func TestWait(t *testing.T) {
	d, a := opened(t, complete(6))
	completed, err := d.Wait(context.Background(), 4)
	require.NoError(t, err)
	assert.Equal(t, uint64(4), completed)
	assert.Equal(t, 6, a.calls[ioctlWait])

	// A job that the page shows as completed needs no call.
	atomic.StoreUint64(&d.page.CompletedSeq, 9)
	completed, err = d.Wait(context.Background(), 8)
	require.NoError(t, err)
	assert.Equal(t, uint64(9), completed)
	assert.Equal(t, 6, a.calls[ioctlWait])
	_, err = d.Wait(context.Background(), 10)
	require.NoError(t, err)
	assert.Equal(t, 7, a.calls[ioctlWait])
	_, err = d.Wait(context.Background(), 0)
	require.NoError(t, err)
	assert.Equal(t, 8, a.calls[ioctlWait], "whether there is a job 0 is for the kernel to say")
}

func TestWaitHeedsItsContext(t *testing.T) {
	longest := int64(0)
	d, a := opened(t, func(_ uint32, _ int, arg []byte) error {
		var w waitArg
		copy(bytesOf(&w), arg)
		longest = max(longest, w.TimeoutNsec)
		assert.GreaterOrEqual(t, w.TimeoutNsec, int64(0))
		time.Sleep(time.Duration(w.TimeoutNsec))
		return unix.ETIMEDOUT
	})
	ctx, cancel := context.WithTimeout(t.Context(), 70*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err := d.Wait(ctx, 1)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "cannot wait for job 1: context deadline exceeded: 0 has completed: wait longer")
	assert.GreaterOrEqual(t, time.Since(begun), 70*time.Millisecond)
	assert.LessOrEqual(t, longest, int64(slice))

	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	looks := a.calls[ioctlWait]
	_, err = d.Wait(ctx, 1)
	assert.ErrorIs(t, err, context.Canceled)
	assert.LessOrEqual(t, a.calls[ioctlWait], looks+1, "one look is enough")
}

func TestClose(t *testing.T) {
	d, a := opened(t, func(_ uint32, _ int, _ []byte) error {
		time.Sleep(time.Millisecond)
		return unix.ETIMEDOUT
	})
	atomic.StoreUint64(&d.page.CompletedSeq, 5)
	atomic.StoreUint64(&d.page.SubmittedSeq, 6)
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			_, err := d.Wait(context.Background(), 6)
			assert.ErrorIs(t, err, os.ErrClosed)
		})
		users.Go(func() {
			for !a.closed.Load() {
				assert.Equal(t, uint64(5), d.CompletedSeq())
			}
			for range 1000 {
				assert.Equal(t, uint64(5), d.CompletedSeq())
			}
		})
	}
	time.Sleep(10 * time.Millisecond)
	require.NoError(t, d.Close())
	users.Wait()
	assert.Equal(t, uint64(6), d.SubmittedSeq())
	assert.Equal(t, byte(0xff), a.mapped[0], "unmapped")
	_, err := d.Alloc(1)
	assert.ErrorIs(t, err, os.ErrClosed)
	assert.ErrorContains(t, err, "open another")
	assert.ErrorIs(t, d.Close(), os.ErrClosed)
	assert.False(t, errors.Is(err, unix.EBADF))
}
