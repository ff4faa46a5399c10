package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nvmlfab/nvmlfab/engine/state"
)

// merger mounts a staged tree over the machine's own files, in the mount namespace of the thread it runs on. What the
// machine has keeps its place beside what is staged; of two files with one path the staged one is seen.
//
// A folder of the machine's gets a tmpfs on top only where it lacks something: there everything that it does have is bound
// back, one mount for each entry.
//
// Every file and folder is opened once, and then used through its descriptor: a container's root may change at any time, and
// a path that led into it a moment ago may lead out of it now.
type merger struct {
	top     int      // the folder that the machine's files are below: "/", or a container's root
	resolve uint64   // how paths below it are followed; 0 if as usual
	mounts  []string // what has been mounted upon, outermost first
}

// open opens what the machine has at a path, to refer to it.
func (m *merger) open(path string) (int, error) {
	const flags = unix.O_PATH | unix.O_CLOEXEC
	var fd int
	var err error
	if m.resolve == 0 {
		fd, err = unix.Openat(m.top, path, flags, 0)
	} else {
		fd, err = unix.Openat2(m.top, path, &unix.OpenHow{Flags: flags, Resolve: m.resolve})
	}
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: "/" + path, Err: err}
	}
	return fd, nil
}

// merge mounts what is staged at a path, such as dev, over what the machine has there.
func (m *merger) merge(path string, n *Node) error {
	if !n.Mode.IsDir() {
		return m.replace(path, n)
	}
	dir, err := m.open(path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if path != "proc" && lacks(dir, n) {
		return m.cover(path, dir, n)
	}
	for _, name := range n.Names() {
		child := n.Children[name]
		if path == "proc" && !exists(dir, name) {
			continue // nothing can be added there: its other entries come and go with processes
		}
		if err := m.merge(filepath.Join(path, name), child); err != nil {
			return err
		}
	}
	return nil
}

// exists says whether an open folder has an entry of that name.
func exists(dir int, name string) bool {
	var info unix.Stat_t
	return unix.Fstatat(dir, name, &info, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// lacks says whether a folder of the machine's is not as it has to be: an entry is missing, or is a link or of another type.
func lacks(dir int, n *Node) bool {
	for name, child := range n.Children {
		var info unix.Stat_t
		if unix.Fstatat(dir, name, &info, unix.AT_SYMLINK_NOFOLLOW) != nil {
			return true
		}
		kind := info.Mode & unix.S_IFMT
		if kind == unix.S_IFLNK || (kind == unix.S_IFDIR) != child.Mode.IsDir() {
			return true
		}
	}
	return false
}

// cover mounts a tmpfs upon a folder, and there what is staged beside what the folder holds.
func (m *merger) cover(path string, dir int, n *Node) (err error) {
	at := "/" + path
	fresh, err := mountTmpfs(dir)
	if err != nil {
		return &fs.PathError{Op: "mount", Path: at, Err: err}
	}
	defer unix.Close(fresh)
	m.mounts = append(m.mounts, at)
	maker := Maker{Device: toNull, Seal: os.Geteuid() == 0, Several: !devices(n)}
	if !maker.Seal { // root could write, through one of its names, a file that cannot be sealed
		if err := maker.Share(fresh, at, n); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, maker.Close()) }()
	}
	return fill(fresh, at, dir, n, &maker)
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

// mountTmpfs mounts a tmpfs upon an open file or folder, and returns its folder.
func mountTmpfs(at int) (dir int, err error) {
	config, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(config)
	if err := errors.Join(unix.FsconfigSetString(config, "source", "nvmlfab"), unix.FsconfigSetString(config, "mode", "755"),
		unix.FsconfigCreate(config)); err != nil {
		return -1, err
	}
	if dir, err = unix.Fsmount(config, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID); err != nil {
		return -1, err
	}
	if err := attach(dir, at, ""); err != nil {
		unix.Close(dir)
		return -1, err
	}
	return dir, nil
}

// attach mounts an open mount upon a name in an open folder, or upon what is open itself if the name is empty. It follows no
// link.
func attach(mount, dir int, name string) error {
	flags := unix.MOVE_MOUNT_F_EMPTY_PATH
	if name == "" {
		flags |= unix.MOVE_MOUNT_T_EMPTY_PATH
	}
	return unix.MoveMount(mount, "", dir, name, flags)
}

// fill puts into an empty folder what is staged, and what another folder holds. The path is for errors.
func fill(dir int, at string, from int, n *Node, maker *Maker) error {
	entries, err := readDir(from)
	if err != nil {
		return &fs.PathError{Op: "read", Path: at, Err: err}
	}
	kept := map[string]bool{}
	for _, e := range entries {
		child := n.Children[e.Name()]
		if child != nil && !(child.Mode.IsDir() && e.IsDir()) {
			continue
		}
		kept[e.Name()] = true
		if child == nil {
			err = keep(dir, from, e)
		} else {
			err = fillBelow(dir, path.Join(at, e.Name()), from, e.Name(), child, maker)
		}
		if err != nil {
			return &fs.PathError{Op: "keep", Path: path.Join(at, e.Name()), Err: err}
		}
	}
	return maker.makeChildren(dir, at, n, kept)
}

// fillBelow is fill for a folder below, which it makes.
func fillBelow(dir int, at string, from int, name string, n *Node, maker *Maker) error {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	real, err := unix.Openat(from, name, flags, 0)
	if err != nil {
		return err
	}
	defer unix.Close(real)
	if err := unix.Mkdirat(dir, name, 0o755); err != nil {
		return err
	}
	below, err := unix.Openat(dir, name, flags, 0)
	if err != nil {
		return err
	}
	defer unix.Close(below)
	return fill(below, at, real, n, maker)
}

// readDir is os.ReadDir of an open folder, without sorting.
func readDir(dir int) ([]fs.DirEntry, error) {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close()
	return f.ReadDir(-1)
}

// keep shows an entry of the machine's.
func keep(dir, from int, e fs.DirEntry) (err error) {
	switch {
	case e.Type()&fs.ModeSymlink != 0:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(from, e.Name(), target)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // as in bind
		} else if err != nil {
			return err
		}
		return unix.Symlinkat(string(target[:n]), dir, e.Name())
	case e.IsDir():
		err = unix.Mkdirat(dir, e.Name(), 0o755)
	default:
		err = touch(dir, e.Name())
	}
	if err != nil {
		return err
	}
	return bind(from, e.Name(), dir, e.Name())
}

func touch(dir int, name string) error { return unix.Mknodat(dir, name, unix.S_IFREG|0o644, 0) }

// bind shows a file or folder, with whatever is mounted below it, at another place. That is a name in an open folder, or if it
// is empty what is open. It follows no link.
func bind(from int, name string, dir int, to string) error {
	mount, err := unix.OpenTree(from, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil // it has just gone away, as devices do
	}
	if err != nil {
		return err
	}
	defer unix.Close(mount)
	return attach(mount, dir, to)
}

// toNull shows a device node as /dev/null: no driver serves its own numbers, and a program that opens it should
// succeed. A node with the numbers of /dev/null saves a mount; who may not make one binds.
func toNull(dir int, name string, n *Node) error {
	if unix.Mknodat(dir, name, unix.S_IFCHR|uint32(n.Mode.Perm()), int(unix.Mkdev(1, 3))) == nil {
		return nil
	}
	return bindAt(dir, name, "/dev/null")
}

// toSource shows the file that a file is from, which saves the copy.
func toSource(dir int, name string, n *Node) error {
	source, err := filepath.EvalSymlinks(n.Source)
	if err != nil {
		return err
	}
	return bindAt(dir, name, source)
}

func bindAt(dir int, name, from string) error {
	if err := touch(dir, name); err != nil {
		return err
	}
	return bind(unix.AT_FDCWD, from, dir, name)
}

// replace shows a staged file in place of one of the machine's. The file is on a tmpfs that is mounted upon the machine's /dev
// for as long as it takes, since only what is mounted somewhere can be bound.
func (m *merger) replace(path string, n *Node) error {
	at, err := m.open(path)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	dev, err := m.open("dev")
	if err != nil {
		return err
	}
	defer unix.Close(dev)
	scratch, err := mountTmpfs(dev)
	if err == nil {
		defer unix.Close(scratch)
		const name = "file"
		if err = writeFile(scratch, name, n, false); err == nil {
			err = bind(scratch, name, at, "")
		}
		err = errors.Join(err, unix.Unmount(fmt.Sprintf("/proc/self/fd/%d", scratch), unix.MNT_DETACH))
	}
	if err != nil {
		return &fs.PathError{Op: "replace", Path: "/" + path, Err: err}
	}
	m.mounts = append(m.mounts, "/"+path)
	return nil
}

// append adds the machine's own lines to what is staged of a list such as /proc/devices.
func (m *merger) append(path, lines string, tree *Tree) {
	n := tree.Find(path)
	if n == nil {
		return
	}
	if text, err := m.read(path); err == nil {
		n.Data = combine(path, string(text), lines)
	}
}

// read returns what a file of the machine's holds.
func (m *merger) read(path string) ([]byte, error) {
	at, err := m.open(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(at)
	return os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", at))
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
		if n == nil || !exists(m.top, part) {
			continue
		}
		if err := m.merge(part, n); err != nil {
			return fmt.Errorf("the machine's /%s: %w", part, err)
		}
	}
	return nil
}

// inContainer is how paths in a container are followed: without leaving it, and over no link.
const inContainer = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS

// ShowInContainer mounts the tree's /sys and /proc, and its profile if it has one, over those of a container that is being
// made, whose root is open as top. It follows no link in there, and stays there whatever becomes of the container's folders
// meanwhile.
func (t *Tree) ShowInContainer(top int) error {
	defer noUmask()()
	m := merger{top: top, resolve: inContainer}
	if n := t.Find(ProfileFile); n != nil {
		if err := m.replace(ProfileFile, n); err != nil {
			return err
		}
	}
	return m.mergeAll(t, "sys", "proc")
}

// ShowState mounts a state directory where a container looks for it, which must be a folder there. Unless the container may
// write, it is read-only.
func ShowState(top int, dir string, writable bool) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("the state directory %s in the container: %w", dir, err)
		}
	}()
	m := merger{top: top, resolve: inContainer}
	at, err := m.open(state.MountPoint)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	mount, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(mount)
	if err := attach(mount, at, ""); err != nil {
		return err
	}
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if !writable {
		flags |= unix.MS_RDONLY
	}
	return unix.Mount("", fmt.Sprintf("/proc/self/fd/%d", mount), "", flags, "")
}
