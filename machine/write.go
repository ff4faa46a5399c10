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
	if err := onlyStaged(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), ".nvmlfab-stage-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	if err := os.Chmod(temp, 0o755); err != nil {
		return err
	}
	if err := t.fill(temp); err != nil {
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

// clean makes a folder's name absolute.
func clean(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err == nil && dir == "/" {
		err = errors.New("/ is no place for a staged tree: name a folder of its own")
	}
	return dir, err
}

// fill writes the tree into an empty folder.
func (t *Tree) fill(dir string) error {
	umask := unix.Umask(0)
	defer unix.Umask(umask)
	m := Maker{Device: makeDevice}
	for _, name := range t.Names() {
		if err := m.Make(unix.AT_FDCWD, "", filepath.Join(dir, name), t.Children[name]); err != nil {
			return err
		}
	}
	list := []string{manifestHead}
	t.Walk(func(name string, _ *Node) { list = append(list, name) })
	return os.WriteFile(filepath.Join(dir, manifest), []byte(strings.Join(list, "\n")+"\n"), 0o644)
}

// makeDevice makes a device node, or an empty file in its place where that is not allowed.
func makeDevice(dir int, name string, n *Node) error {
	mode := uint32(n.Mode.Perm())
	if unix.Mknodat(dir, name, unix.S_IFCHR|mode, int(unix.Mkdev(n.Major, n.Minor))) == nil {
		return nil
	}
	return unix.Mknodat(dir, name, unix.S_IFREG|mode, 0)
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
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil && !mine[name] {
			err = fmt.Errorf("nvmlfab did not write %s: move it away", path)
		}
		return err
	})
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
	for _, name := range append(names, manifest) {
		err := root.Remove(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.ENOTDIR) {
			failed = append(failed, err)
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}
