package state

import (
	"os"
	"path/filepath"
	"syscall"
)

// Where a staged tree has what describes it, below its root.
const (
	// ProfileFile is the profile that the tree was made from.
	ProfileFile = "etc/nvmlfab/profile.yaml"
	// MountPoint is an empty folder on which a container's runtime mounts the state directory.
	MountPoint = "run/nvmlfab"
)

// Tree is a staged tree, or a container or a mount namespace that has the same files.
type Tree struct{ root string }

// TreeAt is the tree with that root.
func TreeAt(root string) Tree { return Tree{root} }

// TreeOf is the tree that a library lies in, by the library's path without links: the nearest folder above the library
// that has a profile. It returns false if there is none.
func TreeOf(library string) (Tree, bool) {
	for dir := library; filepath.IsAbs(dir) && dir != "/"; {
		dir = filepath.Dir(dir)
		t := Tree{dir}
		if info, err := os.Stat(t.Profile()); err == nil && info.Mode().IsRegular() {
			return t, true
		}
	}
	return Tree{}, false
}

// Profile is the path of the tree's profile.
func (t Tree) Profile() string { return filepath.Join(t.root, ProfileFile) }

// Beside is the state directory of a tree on the machine that staged it. It is no part of the tree, so it stays when the
// tree is staged anew.
func (t Tree) Beside() string { return Clean(t.root) + ".state" }

// State is the tree's state directory: the one beside it, or in a container, where nothing is beside it, the one that is
// mounted in it. It is empty if there is none.
func (t Tree) State() string {
	for _, dir := range []string{t.Beside(), filepath.Join(t.root, MountPoint)} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
	}
	return ""
}

// RootsAlone says whether a file or folder, and the folder that it is in, belong to root and nobody else may write them.
// A program with another's privileges must not follow what its caller could have made.
func RootsAlone(path string) bool {
	for _, name := range []string{filepath.Dir(path), path} {
		info, err := os.Stat(name)
		if err != nil || info.Mode()&0o022 != 0 || info.Sys().(*syscall.Stat_t).Uid != 0 {
			return false
		}
	}
	return true
}
