package machine

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// manifest is a file in a written tree that lists what was written.
const manifest = ".nvmlfab-stage"

const manifestHead = "# Written by nvmlfab stage, and removed by nvmlfab unstage:"

// Write puts the tree below a folder. It takes the place of a tree written before, and at once: whoever looks sees one of
// them, whole. A folder that holds anything else is refused.
func (t *Tree) Write(dir string) (err error) {
	dir, err = clean(dir)
	if err != nil {
		return err
	}
	if here, err := os.Getwd(); err == nil && (here == dir || strings.HasPrefix(here, dir+"/")) {
		return fmt.Errorf("%s is the working directory, or above it, and would be pulled away: name a folder of its own", dir)
	}
	if err := onlyStaged(dir); err != nil {
		return err
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	removeLeftovers(parent)
	temp, err := os.MkdirTemp(parent, leftover)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	lock, err := lockFolder(temp)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := likeFolder(temp, dir); err != nil {
		return err
	}
	if err := t.fill(temp, madeBy(dir)); err != nil {
		return err
	}
	err = unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.Rename(temp, dir)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// clean makes a folder's name absolute and follows links, as far as there is something.
func clean(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("the folder's name is empty: name one, such as /var/lib/nvmlfab")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if dir, err = resolve(dir); err == nil && dir == "/" {
		err = errors.New("/ is no place for a staged tree: name a folder of its own")
	}
	return dir, err
}

func resolve(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		if e := (*fs.PathError)(nil); !errors.As(err, &e) {
			err = fmt.Errorf("%s: too many links, or links that lead round in a circle", path)
		}
		return "", err
	}
	if _, err := os.Lstat(path); err == nil {
		return "", fmt.Errorf("%s is a link that leads nowhere", path)
	}
	above, err := resolve(filepath.Dir(path))
	return filepath.Join(above, filepath.Base(path)), err
}

// leftover is the name of a folder in which a tree is being written. Its writer holds a lock on it.
const leftover = ".nvmlfab-stage-*"

// removeLeftovers removes what killed writers left in a folder: those that nobody locks, and that are no younger than a minute,
// since a writer locks its folder a moment after it has made it. What cannot be removed stays.
func removeLeftovers(parent string) {
	found, _ := filepath.Glob(filepath.Join(parent, leftover))
	for _, name := range found {
		info, err := os.Lstat(name)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if lock, err := lockFolder(name); err == nil {
			os.RemoveAll(name)
			lock.Close()
		}
	}
}

func lockFolder(name string) (*os.File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	return f, nil
}

// likeFolder gives a new folder the mode and the owner of the one whose place it takes, if there is one.
func likeFolder(name, old string) error {
	info, err := os.Stat(old)
	if errors.Is(err, fs.ErrNotExist) {
		return os.Chmod(name, 0o755)
	} else if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t)
	return errors.Join(os.Chown(name, int(owner.Uid), int(owner.Gid)), os.Chmod(name, info.Mode()))
}

// madeBy says whether a folder that a tree is written to is of Write's making, and may be removed with the tree.
func madeBy(dir string) bool {
	if names, err := staged(dir); err == nil {
		return slices.Contains(names, ".")
	}
	_, err := os.Lstat(dir)
	return errors.Is(err, fs.ErrNotExist)
}

// fill writes the tree into an empty folder. The list in it has the folder itself if Write made that.
func (t *Tree) fill(at string, made bool) (err error) {
	defer noUmask()()
	dir, err := unix.Open(at, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: at, Err: err}
	}
	defer unix.Close(dir)
	m := Maker{Device: makeDevice, Several: true, Made: &t.Made}
	if t.StandIns {
		m.Device = makeStandIn
	}
	if err := m.Share(dir, at, t.Node); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := m.makeChildren(dir, at, t.Node, nil); err != nil {
		return err
	}
	list := []string{manifestHead}
	if made {
		list = append(list, ".")
	}
	t.Walk(func(name string, _ *Node) { list = append(list, name) })
	return os.WriteFile(filepath.Join(at, manifest), []byte(strings.Join(list, "\n")+"\n"), 0o644)
}

// makeDevice makes a device node, or an empty file in its place where that is not allowed.
func makeDevice(dir int, name string, n *Node) error {
	mode := uint32(n.Mode.Perm())
	if unix.Mknodat(dir, name, unix.S_IFCHR|mode, int(unix.Mkdev(n.Major, n.Minor))) == nil {
		return nil
	}
	return makeStandIn(dir, name, n)
}

func makeStandIn(dir int, name string, n *Node) error {
	return unix.Mknodat(dir, name, unix.S_IFREG|uint32(n.Mode.Perm()), 0)
}

// staged reads the list of what was written into a folder.
func staged(dir string) ([]string, error) {
	f, err := os.Open(filepath.Join(dir, manifest))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var names []string
	lines := bufio.NewScanner(f)
	if !lines.Scan() || lines.Text() != manifestHead {
		return nil, fmt.Errorf("%s is not of nvmlfab's making", f.Name())
	}
	for lines.Scan() {
		if !filepath.IsLocal(lines.Text()) {
			return nil, fmt.Errorf("%s: %q is not below the folder", f.Name(), lines.Text())
		}
		names = append(names, lines.Text())
	}
	return names, lines.Err()
}

// onlyStaged is an error unless the folder holds nothing but a tree written before, or does not exist.
func onlyStaged(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	names, err := staged(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not empty, and nvmlfab did not write what is there: name another folder", dir)
	} else if err != nil {
		return err
	}
	mine := map[string]bool{".": true, manifest: true}
	for _, name := range names {
		mine[name] = true
	}
	changed := changes(dir)
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil && (!mine[name] || changed(name)) {
			err = fmt.Errorf("nvmlfab did not write %s: move it away", path)
		}
		return err
	})
}

// changes says of staged names whether somebody has put a file of their own there: it is younger than the list, which is
// written last. Files that programs may write to are the machine's all the same.
func changes(dir string) func(name string) bool {
	list, err := os.Lstat(filepath.Join(dir, manifest))
	if err != nil {
		return func(string) bool { return false }
	}
	return func(name string) bool {
		top, _, _ := strings.Cut(name, "/")
		if top == "sys" || top == "proc" || top == "dev" {
			return false
		}
		info, err := os.Lstat(filepath.Join(dir, name))
		return err == nil && info.Mode().IsRegular() && info.ModTime().After(list.ModTime())
	}
}

// Remove takes away what Write wrote, and folders that are empty then. What else is there stays.
func Remove(dir string) error {
	dir, err := clean(dir)
	if err != nil {
		return err
	}
	names, err := staged(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("nothing is staged in %s", dir)
	} else if err != nil {
		return err
	}
	slices.Reverse(names)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var failed []error
	names = slices.DeleteFunc(names, changes(dir))
	own := slices.Contains(names, ".")
	names = slices.DeleteFunc(names, func(name string) bool { return name == "." })
	for _, name := range append(names, manifest) {
		err := root.Remove(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.ENOTDIR) {
			failed = append(failed, err)
		}
	}
	if !own {
		return errors.Join(failed...)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}
