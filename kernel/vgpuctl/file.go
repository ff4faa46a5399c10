package vgpuctl

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Driver is what a Device makes its calls with: the device file, or its replacement in a test.
type Driver interface {
	// Ioctl makes a request. The argument has the size that the request encodes. Errors are of type unix.Errno.
	Ioctl(request uint32, argument []byte) error
	// Read waits for events and returns whole events, as many as fit. It returns ctx.Err() when ctx is done.
	Read(ctx context.Context, p []byte) (int, error)
	Close() error
}

// file is the device file. It is not blocking, so that Go's poller waits for it.
type file struct{ *os.File }

func openFile(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	return file{f}, err
}

func (f file) Ioctl(request uint32, argument []byte) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = ioctl(fd, request, argument) }); err != nil {
		return os.ErrClosed // Control itself can fail only for that reason
	}
	return failed
}

func (f file) Read(ctx context.Context, p []byte) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if err := f.SetReadDeadline(time.Time{}); err != nil {
		return 0, err
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		f.SetReadDeadline(time.Unix(1, 0)) // a time in the past
		close(done)
	})
	n, err := f.File.Read(p)
	if !stop() {
		<-done // otherwise it would end the next read
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = ctx.Err()
	}
	return n, err
}
