package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/nvmlfab/nvmlfab/shims/stage"
	"golang.org/x/sys/unix"
)

// The mount namespace is a thread's, and the program inherits that of the thread that becomes it. So everything happens on
// the main thread, which is also the one that /proc/self is about.
func init() { runtime.LockOSThread() }

// private is a folder of the launch's own in its /dev.
const private = "/dev/.nvmlfab"

// enterNamespace gives the main thread a mount namespace of its own. As an ordinary user it needs a user namespace for that,
// which a process with several threads cannot enter: it becomes nvmlfab-enter, which enters it and becomes nvmlfab again,
// with the same arguments. Then, and if it cannot be done, there is no second try.
func enterNamespace(helper string) error {
	err := unix.Unshare(unix.CLONE_NEWNS)
	tried := os.Getenv(enteredVariable) != ""
	os.Unsetenv(enteredVariable)
	if err == unix.EPERM && !tried {
		self, e := os.Executable()
		if e != nil {
			return e
		}
		if e := unix.Access(helper, unix.X_OK); e != nil {
			return fmt.Errorf("%s: %w", helper, e)
		}
		err = unix.Exec(helper, append([]string{helper, self}, os.Args...), append(os.Environ(), enteredVariable+"=1"))
	}
	if err != nil {
		return fmt.Errorf("a mount namespace: %w", err)
	}
	// What is mounted on the machine later is seen, and nothing of what is mounted here gets out.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("a mount namespace: %w", err)
	}
	return nil
}

// enteredVariable marks that nvmlfab-enter has been tried.
const enteredVariable = "NVMLFAB_ENTERED"

// dropNamespaceRights takes back what nvmlfab-enter left to a process of an ordinary user.
func dropNamespaceRights() error {
	if os.Geteuid() == 0 {
		return nil
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	return unix.Capset(&header, &data[0])
}

// showMachine mounts the tree over /dev, /sys and /proc of this namespace. files are written into the folder private.
func showMachine(tree *stage.Tree, libraries string, files map[string][]byte) error {
	dir, _ := os.Getwd() // the shell's name for it counts, so that a link stays one
	umask := unix.Umask(0)
	defer unix.Umask(umask)
	if err := leaveOuter(); err != nil {
		return err
	}
	m := merger{top: "/"}
	if err := m.mergeAll(tree, "dev", "sys", "proc"); err != nil {
		return err
	}
	if cache := libraryCache(libraries); cache != nil {
		if err := m.replace(cachePath, &stage.Node{Mode: 0o644, Data: string(cache)}); err != nil {
			return err
		}
	}
	if err := os.Mkdir(private, 0o755); err != nil {
		return err
	}
	list := []byte(strings.Join(m.mounts, "\n") + "\n")
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(private, name), data, 0o644); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(private, "mounts"), list, 0o644); err != nil {
		return err
	}
	if dir != "" { // it may be among what has been covered
		os.Chdir(dir)
	}
	return nil
}

// leaveOuter takes away, in this namespace, what another nvmlfab around this one has mounted.
func leaveOuter() error {
	list, err := os.ReadFile(filepath.Join(private, "mounts"))
	if err != nil {
		return nil
	}
	mounts := strings.Fields(string(list))
	for i := range mounts {
		at := mounts[len(mounts)-1-i]
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("nvmlfab runs inside nvmlfab here, and cannot take its place: %w",
				&fs.PathError{Op: "unmount", Path: at, Err: err})
		}
	}
	return nil
}
