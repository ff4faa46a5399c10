package machine

import (
	"cmp"
	"io/fs"
	"os"
	"path"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Maker makes nodes, tens of thousands of them within a second where the launcher wants them: it leaves out what package os
// does for files that are read in parallel or over time. Permissions are those of the nodes; the umask must be 0.
type Maker struct {
	// Device makes a device node, named in a folder.
	Device func(dir int, name string, n *Node) error
	// Source makes a file that has a source. Without it, the source is copied.
	Source func(dir int, name string, n *Node) error
	// Seal keeps files that nobody may write from root, who may write all others.
	Seal bool
	// Several lets several threads make what is in large folders. Device and Source are called on any of them.
	Several bool
	// Made counts what has been made, if it is not nil.
	Made *atomic.Int64

	pool *pool
}

// Make makes the node and what is below it, under a name in an open folder. The folder's path is for errors.
func (m *Maker) Make(dir int, at, name string, n *Node) error {
	if m.Made != nil {
		m.Made.Add(1)
	}
	var op string
	var err error
	switch {
	case n.Mode.IsDir():
		op = "mkdir"
		if err = unix.Mkdirat(dir, name, uint32(n.Mode.Perm())); err == nil {
			return m.fill(dir, path.Join(at, name), name, n)
		}
	case n.Mode&fs.ModeSymlink != 0:
		op, err = "symlink", unix.Symlinkat(n.Data, dir, name)
	case n.Mode&fs.ModeDevice != 0:
		op, err = "device", m.Device(dir, name, n)
	case n.Mode&fs.ModeSocket != 0:
		op, err = "socket", unix.Mknodat(dir, name, unix.S_IFSOCK|uint32(n.Mode.Perm()), 0)
	default:
		op, err = "write", m.file(dir, name, n)
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: path.Join(at, name), Err: err}
	}
	return nil
}

func (m *Maker) fill(dir int, at, name string, n *Node) error {
	if len(n.Children) == 0 {
		return nil
	}
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: at, Err: err}
	}
	defer unix.Close(fd)
	return m.makeChildren(fd, at, n, nil)
}

// severalFrom is the number of folders in a folder from which on several threads make them.
const severalFrom = 32

// makeChildren makes what a node holds, without some of the names, in an open folder.
func (m *Maker) makeChildren(dir int, at string, n *Node, without map[string]bool) error {
	var folders []string
	for name, child := range n.Children {
		if without[name] {
			continue
		}
		if m.Several && child.Mode.IsDir() {
			folders = append(folders, name)
		} else if err := m.Make(dir, at, name, child); err != nil {
			return err
		}
	}
	threads := runtime.GOMAXPROCS(0)
	if len(folders) < severalFrom {
		threads = 1
	}
	var next atomic.Int64
	failed := make([]error, threads)
	work := func(thread int) {
		for i := next.Add(1) - 1; i < int64(len(folders)) && failed[thread] == nil; i = next.Add(1) - 1 {
			failed[thread] = m.Make(dir, at, folders[i], n.Children[folders[i]])
		}
	}
	var others sync.WaitGroup
	for thread := 1; thread < threads; thread++ {
		others.Go(func() { work(thread) })
	}
	work(0)
	others.Wait()
	return cmp.Or(failed...)
}

func (m *Maker) file(dir int, name string, n *Node) error {
	if n.Source != "" && m.Source != nil {
		return m.Source(dir, name, n)
	}
	if f := m.pool.find(n); f != nil {
		switch err := m.pool.link(f, n, dir, name); err {
		case nil:
			return nil
		case unix.EPERM, unix.EOPNOTSUPP: // the filesystem has no links
		default:
			return err
		}
	}
	return writeFile(dir, name, n, m.Seal)
}

// writeFile writes a file. It seals one that nobody may write if seal says so.
func writeFile(dir int, name string, n *Node, seal bool) error {
	seal = seal && n.sealed()
	data := []byte(n.Data)
	if n.Source != "" {
		var err error
		if data, err = os.ReadFile(n.Source); err != nil {
			return err
		}
	}
	if len(data) == 0 && !seal {
		return unix.Mknodat(dir, name, unix.S_IFREG|uint32(n.Mode.Perm()), 0)
	}
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, uint32(n.Mode.Perm()))
	if err != nil {
		return err
	}
	for err == nil && len(data) > 0 {
		var written int
		if written, err = unix.Write(fd, data); err == unix.EINTR {
			err = nil
		}
		data = data[max(written, 0):]
	}
	if err == nil && seal {
		_ = sealFile(fd)
	}
	if e := unix.Close(fd); err == nil {
		err = e
	}
	return err
}

// sealed says whether the machine lets nobody write the file.
func (n *Node) sealed() bool { return n.Mode.IsRegular() && n.Mode.Perm()&0o222 == 0 && !n.Live }

// immutable is FS_IMMUTABLE_FL of linux/fs.h.
const immutable = 0x10

// sealFile makes a file immutable. Root's CAP_DAC_OVERRIDE would otherwise let it write a file of a tmpfs that sysfs would
// not let it write. A tmpfs before Linux 6.0 has no such flag, and root without CAP_LINUX_IMMUTABLE cannot set it.
func sealFile(fd int) error { return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, immutable) }

// noUmask makes the umask 0 until restore is called. A thread with a mount namespace of its own has an umask of its own, and so
// this is done for the other threads too.
func noUmask() (restore func()) {
	elsewhere := func(mask int) (old int) {
		done := make(chan int)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			done <- unix.Umask(mask)
		}()
		return <-done
	}
	here, there := unix.Umask(0), elsewhere(0)
	return func() {
		elsewhere(there)
		unix.Umask(here)
	}
}
