package machine

import (
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Maker makes nodes, hundreds of them within milliseconds where the launcher wants them: it leaves out what package os does
// for files that are read in parallel or over time. Permissions are those of the nodes, less the umask.
type Maker struct {
	// Device makes a device node, named in a folder.
	Device func(dir int, name string, n *Node) error
	// Source makes a file that has a source. Without it, the source is copied.
	Source func(dir int, name string, n *Node) error
	// Share lets files of one content, which their owner cannot change, be links to one file.
	Share bool
	// Seal keeps files that nobody may write from root, who may write all others.
	Seal bool

	shared map[string]place
	kept   []int // folders
}

// place is a file's name in a folder that is kept open.
type place struct {
	dir  int
	name string
}

// Close closes what sharing has kept open.
func (m *Maker) Close() {
	for _, dir := range m.kept {
		unix.Close(dir)
	}
	m.shared, m.kept = nil, nil
}

// Make makes the node and what is below it, under a name in an open folder. The folder's path is for errors.
func (m *Maker) Make(dir int, at, name string, n *Node) error {
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
	for base, child := range n.Children {
		if err := m.Make(fd, at, base, child); err != nil {
			return err
		}
	}
	return nil
}

func (m *Maker) file(dir int, name string, n *Node) error {
	if n.Source != "" && m.Source != nil {
		return m.Source(dir, name, n)
	}
	if m.Seal && n.Mode.Perm()&0o222 == 0 {
		if err := writeFile(dir, name, n); err != nil {
			return err
		}
		seal(dir, name)
		return nil
	}
	if !m.Share || n.Mode.Perm() != readable || n.Source != "" {
		return writeFile(dir, name, n)
	}
	if old, ok := m.shared[n.Data]; ok {
		return unix.Linkat(old.dir, old.name, dir, name, 0)
	}
	if err := writeFile(dir, name, n); err != nil || len(m.shared) == maxShared {
		return err
	}
	if m.shared == nil {
		m.shared = map[string]place{}
	}
	kept, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	m.kept = append(m.kept, kept)
	m.shared[n.Data] = place{kept, name}
	return nil
}

// maxShared limits the folders that are kept open.
const maxShared = 128

// WriteFile writes what a file holds.
func (n *Node) WriteFile(name string) error {
	if err := writeFile(unix.AT_FDCWD, name, n); err != nil {
		return &fs.PathError{Op: "write", Path: name, Err: err}
	}
	return nil
}

func writeFile(dir int, name string, n *Node) error {
	data := []byte(n.Data)
	if n.Source != "" {
		var err error
		if data, err = os.ReadFile(n.Source); err != nil {
			return err
		}
	}
	if len(data) == 0 {
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
	if e := unix.Close(fd); err == nil {
		err = e
	}
	return err
}

// immutable is FS_IMMUTABLE_FL of linux/fs.h.
const immutable = 0x10

// seal makes a file immutable. Root's CAP_DAC_OVERRIDE would otherwise let it write a file of a tmpfs that sysfs would not
// let it write. A tmpfs before Linux 6.0 has no such flag, and root without CAP_LINUX_IMMUTABLE cannot set it: then a write
// changes this one file.
func seal(dir int, name string) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_ = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, immutable)
}
