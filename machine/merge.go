package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// merger mounts a staged tree over the machine's own files, in the mount namespace of the thread it runs on. What the
// machine has keeps its place beside what is staged; of two files with one path the staged one is seen.
//
// A folder of the machine's gets a tmpfs on top only where it lacks something: there everything that it does have is bound
// back, one mount for each entry.
type merger struct {
	top    string   // where the machine's files are: "/", or a container's root
	mounts []string // what has been mounted upon, outermost first
}

// merge mounts what is staged at a path, such as dev, over what the machine has there.
func (m *merger) merge(path string, n *Node) error {
	at := filepath.Join(m.top, path)
	if !n.Mode.IsDir() {
		return m.replace(at, n)
	}
	if path != "proc" && lacks(at, n) {
		return m.cover(at, n)
	}
	for _, name := range n.Names() {
		child := n.Children[name]
		if path == "proc" && !exists(filepath.Join(at, name)) {
			continue // nothing can be added there: its other entries come and go with processes
		}
		if err := m.merge(filepath.Join(path, name), child); err != nil {
			return err
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// lacks says whether a folder of the machine's is not as it has to be: an entry is missing, or is a link or of another type.
func lacks(dir string, n *Node) bool {
	for name, child := range n.Children {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || info.Mode()&fs.ModeSymlink != 0 || info.IsDir() != child.Mode.IsDir() {
			return true
		}
	}
	return false
}

// cover mounts a tmpfs upon a folder, and there what is staged beside what the folder holds.
func (m *merger) cover(at string, n *Node) (err error) {
	fd, err := unix.Open(at, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: at, Err: err}
	}
	defer unix.Close(fd)
	if err := mountTmpfs(at); err != nil {
		return err
	}
	m.mounts = append(m.mounts, at)
	fresh, err := unix.Open(at, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: at, Err: err}
	}
	defer unix.Close(fresh)
	maker := Maker{Device: toNull, Seal: os.Geteuid() == 0, Several: !devices(n)}
	if !maker.Seal { // root could write, through one of its names, a file that cannot be sealed
		if err := maker.Share(fresh, at, n); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, maker.Close()) }()
	}
	return fill(at, "/proc/self/fd/"+strconv.Itoa(fd), n, &maker)
}

// devices says whether there are device nodes below a node. Only this thread can mount what they are.
func devices(n *Node) bool {
	for _, child := range n.Children {
		if child.Mode&fs.ModeDevice != 0 || devices(child) {
			return true
		}
	}
	return false
}

func mountTmpfs(at string) error {
	if err := unix.Mount("nvmlfab", at, "tmpfs", unix.MS_NOSUID, "mode=755"); err != nil {
		return &fs.PathError{Op: "mount", Path: at, Err: err}
	}
	return nil
}

// fill puts into an empty folder what is staged, and what another folder holds.
func fill(at, from string, n *Node, maker *Maker) error {
	entries, err := readDir(from)
	if err != nil {
		return err
	}
	kept := map[string]bool{}
	for _, e := range entries {
		child := n.Children[e.Name()]
		if child != nil && !(child.Mode.IsDir() && e.IsDir()) {
			continue
		}
		kept[e.Name()] = true
		to, real := at+"/"+e.Name(), from+"/"+e.Name()
		if child == nil {
			err = keep(to, real, e.Type())
		} else if err = unix.Mkdir(to, 0o755); err == nil {
			err = fill(to, real, child, maker)
		}
		if err != nil {
			return err
		}
	}
	dir, err := unix.Open(at, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return maker.makeChildren(dir, at, n, kept)
}

// readDir is os.ReadDir without sorting.
func readDir(name string) ([]fs.DirEntry, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}

// keep shows an entry of the machine's.
func keep(to, real string, mode fs.FileMode) error {
	switch {
	case mode&fs.ModeSymlink != 0:
		target, err := os.Readlink(real)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // as in bind
		} else if err != nil {
			return err
		}
		return unix.Symlink(target, to)
	case mode.IsDir():
		if err := unix.Mkdir(to, 0o755); err != nil {
			return &fs.PathError{Op: "mkdir", Path: to, Err: err}
		}
	default:
		if err := touch(to); err != nil {
			return err
		}
	}
	return bind(real, to)
}

func touch(path string) error {
	if err := unix.Mknod(path, unix.S_IFREG|0o644, 0); err != nil {
		return &fs.PathError{Op: "create", Path: path, Err: err}
	}
	return nil
}

// bind shows a file or folder, with whatever is mounted below it, at another path.
func bind(from, to string) error {
	err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
	if errors.Is(err, unix.ENOENT) {
		return nil // it has just gone away, as devices do
	}
	if err != nil {
		return &fs.PathError{Op: "bind", Path: to, Err: err}
	}
	return nil
}

// toNull shows a device node as /dev/null: there is no driver behind its own numbers, and a program that opens it should
// succeed.
func toNull(dir int, name string, _ *Node) error { return bindAt(dir, name, "/dev/null") }

// toSource shows the file that a file is from, which saves the copy.
func toSource(dir int, name string, n *Node) error { return bindAt(dir, name, n.Source) }

func bindAt(dir int, name, from string) error {
	if err := unix.Mknodat(dir, name, unix.S_IFREG|0o644, 0); err != nil {
		return err
	}
	return bind(from, fmt.Sprintf("/proc/self/fd/%d/%s", dir, name))
}

// replace shows a staged file in place of one of the machine's.
func (m *merger) replace(at string, n *Node) (err error) {
	scratch := filepath.Join(m.top, "dev")
	if err := mountTmpfs(scratch); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Unmount(scratch, unix.MNT_DETACH)) }()
	file := filepath.Join(scratch, "file")
	if err := n.WriteFile(file); err != nil {
		return err
	}
	if err := bind(file, at); err != nil {
		return err
	}
	m.mounts = append(m.mounts, at)
	return nil
}

// append adds the machine's own lines to what is staged of a list such as /proc/devices.
func (m *merger) append(path, lines string, tree *Tree) {
	text, err := os.ReadFile(filepath.Join(m.top, path))
	if n := tree.Find(path); n != nil && err == nil {
		n.Data = combine(path, string(text), lines)
	}
}

// combine joins a list of the machine's with staged lines. /proc/devices has two parts, and devices of the driver's belong
// into the first.
func combine(path, text, lines string) string {
	if at := strings.Index(text, "\n\n"); at >= 0 && path == "proc/devices" {
		return text[:at+1] + lines + text[at+1:]
	}
	return text + lines
}

// mergeAll mounts the tree over all of the machine's files.
func (m *merger) mergeAll(tree *Tree, parts ...string) error {
	for path, lines := range tree.Added {
		m.append(path, lines, tree)
	}
	for _, part := range parts {
		n := tree.Find(part)
		if n == nil || !exists(filepath.Join(m.top, part)) {
			continue
		}
		if err := m.merge(part, n); err != nil {
			return fmt.Errorf("the machine's /%s: %w", part, err)
		}
	}
	return nil
}

// ShowInContainer mounts the tree's /sys and /proc over those of a container that is being made, whose root is top.
func (t *Tree) ShowInContainer(top string) error {
	defer noUmask()()
	m := merger{top: top}
	return m.mergeAll(t, "sys", "proc")
}
