package vgpuctl

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Driver is what a Device is to be driven by: the device itself, or what stands in for it in a test.
type Driver interface {
	// Ioctl answers a request, in whose argument is as much as the request's size says. Errors are of type unix.Errno.
	Ioctl(request uint32, argument []byte) error
	// Read waits for events and returns whole ones, as many as there are and fit. It returns ctx.Err() once ctx is done.
	Read(ctx context.Context, p []byte) (int, error)
	Close() error
}

// file is the device itself. It is not blocking, so that Go's poller waits for it.
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
		return os.ErrClosed // the only thing that Control itself can have to say
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
		f.SetReadDeadline(time.Unix(1, 0)) // long ago
		close(done)
	})
	n, err := f.File.Read(p)
	if !stop() {
		<-done // or it would end the next read
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = ctx.Err()
	}
	return n, err
}
