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

// listen makes the socket of a tree. A lock keeps a second daemon from it. The socket gets its name when it can be connected
// to, so whoever sees it can use it. release takes it away.
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
	l, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), socketName), Net: "unixpacket"})
	if err != nil {
		return nil, nil, err
	}
	l.SetUnlinkOnClose(false)
	path := filepath.Join(run, socketName)
	if err := errors.Join(os.Chmod(filepath.Join(temporary, socketName), 0o600), os.Rename(filepath.Join(temporary, socketName), path)); err != nil {
		l.Close()
		return nil, nil, err
	}
	return l, func() {
		os.Remove(path)
		lock.Close()
	}, nil
}
