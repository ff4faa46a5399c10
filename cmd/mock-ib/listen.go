package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketName is what libibmockumad.so connects to in a tree's folder run.
const socketName = "mock-ib.sock"

// listen makes the socket of a tree. A lock keeps a second daemon from it. release takes the socket away.
func listen(root string) (l *net.UnixListener, release func(), err error) {
	run := filepath.Join(root, "run")
	if err := os.MkdirAll(run, 0o755); err != nil {
		return nil, nil, err
	}
	lock, err := os.OpenFile(filepath.Join(run, "mock-ib.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, nil, fmt.Errorf("another mock-ib serves %s", root)
		}
		return nil, nil, fmt.Errorf("%s: %w", lock.Name(), err)
	}
	l, unlink, err := makeSocket(run, socketName, 0o600)
	if err != nil {
		return nil, nil, err
	}
	return l, func() {
		unlink()
		lock.Close()
	}, nil
}

// makeSocket makes a socket in a folder. It gets its name when it can be connected to. unlink takes the name away.
func makeSocket(run, name string, mode os.FileMode) (l *net.UnixListener, unlink func(), err error) {
	temporary, err := os.MkdirTemp(run, ".mock-ib.")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(temporary)
	// An address has room for 107 bytes, so it begins at an open folder.
	folder, err := os.Open(temporary)
	if err != nil {
		return nil, nil, err
	}
	defer folder.Close()
	l, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), name), Net: "unixpacket"})
	if err != nil {
		return nil, nil, err
	}
	l.SetUnlinkOnClose(false)
	path := filepath.Join(run, name)
	if err := errors.Join(os.Chmod(filepath.Join(temporary, name), mode), os.Rename(filepath.Join(temporary, name), path)); err != nil {
		l.Close()
		return nil, nil, err
	}
	return l, func() { os.Remove(path) }, nil
}
