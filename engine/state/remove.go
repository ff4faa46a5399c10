package state

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/nvmlfab/nvmlfab/engine/state/caps"
)

// Remove takes away what nvmlfab wrote into the directory, and then the directory if it is empty. What people wrote stays,
// overrides.yaml too.
func (d *Dir) Remove() error {
	root, err := os.OpenRoot(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	var failed []error
	for _, e := range entries {
		name := e.Name()
		switch {
		case name == file, name == file+".bad", name == fresh, name == generation, name == lockFile, name == Processes, name == caps.Folder,
			strings.HasPrefix(name, "."+generation+"."):
			failed = append(failed, root.RemoveAll(name))
		}
	}
	if err := os.Remove(d.path); err != nil && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EEXIST) {
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}
