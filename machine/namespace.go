package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nvmlfab/nvmlfab/engine/state"
)

// Private is a folder of the launch's own in its /dev. Like a staged tree it has the driver's libraries, the profile and the
// state directory; they are in none of the machine's folders, since a folder that is changed has to be covered, and programs
// that replace files of /etc, or make some in /run, would notice that.
const Private = "/dev/.nvmlfab"

// InfiniBandRoot is the folder of a launch that serves as MOCK_IB_ROOT. Its links lead to the launch's own /sys and /dev, and the
// daemon mock-ib has its socket there.
const InfiniBandRoot = Private + "/ib"

// LaunchState is the state directory of a launch.
const LaunchState = Private + "/" + state.MountPoint

// EnterNamespace gives the main thread a mount namespace of its own. An ordinary user needs a user namespace for that,
// which a process with several threads cannot enter: the process becomes nvmlfab-enter, which enters it and becomes this
// program again, with the arguments again. They say that nvmlfab-enter has been tried: EnterNamespace is then called
// without any, and does not try a second time. With asRoot an ordinary user becomes root of the user namespace.
func EnterNamespace(helper string, again []string, asRoot bool) error {
	var err error = unix.EPERM
	if again == nil || !asRoot || os.Geteuid() == 0 {
		err = unix.Unshare(unix.CLONE_NEWNS)
	}
	if err == unix.EPERM && again != nil {
		self, e := os.Executable()
		if e != nil {
			return e
		}
		if e := unix.Access(helper, unix.X_OK); e != nil {
			return fmt.Errorf("%s: %w", helper, e)
		}
		args := []string{helper}
		if asRoot {
			args = append(args, "--as-root")
		}
		err = unix.Exec(helper, append(append(args, self), again...), os.Environ())
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

// DropNamespaceRights takes back what nvmlfab-enter left to a process of an ordinary user.
func DropNamespaceRights() error {
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

// Launch is what a mount namespace shows.
type Launch struct {
	Tree *Tree
	// Identity says where the tree is from: two launches of one identity show the same.
	Identity string
	// Profile is the text of the profile.
	Profile []byte
	// State is a directory that becomes LaunchState; if it is empty, the launch has a fresh one, which ends with it.
	State string
}

// Show mounts the machine over /dev, /sys and /proc of this namespace. It returns the state directory.
func (c Launch) Show() (stateDir string, err error) {
	dir, _ := os.Getwd() // the shell's name for it counts, so that a link stays one
	defer noUmask()()
	lasting := -1
	if c.State != "" { // opened now: it may be among what will be covered
		if lasting, err = unix.OpenTree(unix.AT_FDCWD, c.State, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE); err != nil {
			return "", &fs.PathError{Op: "open", Path: c.State, Err: err}
		}
		defer unix.Close(lasting)
	}
	switch there, err := c.leaveOuter(); {
	case err != nil:
		return "", err
	case there && c.State != "":
		return c.State, nil
	case there:
		return LaunchState, nil
	}
	if err := c.show(lasting); err != nil {
		return "", err
	}
	if dir != "" { // it may be among what has been covered
		os.Chdir(dir)
	}
	return LaunchState, nil
}

// show is Show in a namespace that shows no other launch. The descriptor is that of a copy of the mount of the state
// directory, if there is one.
func (c Launch) show(lasting int) error {
	// For a new terminal the kernel looks into the folder pts beside the file ptmx, and a file that is bound alone has nothing
	// beside it. So ptmx becomes a link into a copy of the whole /dev, taken before anything is mounted upon it.
	dev, err := unix.OpenTree(unix.AT_FDCWD, "/dev", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return &fs.PathError{Op: "copy", Path: "/dev", Err: err}
	}
	defer unix.Close(dev)
	if info, err := os.Lstat("/dev/ptmx"); err == nil && info.Mode()&fs.ModeDevice != 0 {
		c.Tree.Children["dev"].Children["ptmx"] = &Node{Mode: fs.ModeSymlink, Data: strings.TrimPrefix(Private, "/dev/") + "/dev/ptmx"}
	}
	top, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: "/", Err: err}
	}
	defer unix.Close(top)
	m := merger{top: top}
	if err := m.mergeAll(c.Tree, "dev", "sys", "proc"); err != nil {
		return err
	}
	if cache := libraryCache(driverLibraries); cache != nil {
		if err := m.replace(strings.TrimPrefix(cachePath, "/"), &Node{Mode: 0o644, Data: string(cache)}); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(Private+"/dev", 0o755); err != nil {
		return err
	}
	if err := attach(dev, unix.AT_FDCWD, Private+"/dev"); err != nil {
		return &fs.PathError{Op: "move", Path: Private + "/dev", Err: err}
	}
	if n := c.Tree.Find(LibraryDir); n != nil {
		maker := Maker{Source: toSource}
		if err := maker.Make(unix.AT_FDCWD, "", driverLibraries, n); err != nil {
			return err
		}
	}
	profile := filepath.Join(Private, ProfileFile)
	if err := errors.Join(os.MkdirAll(filepath.Dir(profile), 0o755), os.MkdirAll(LaunchState, 0o755)); err != nil {
		return err
	}
	if err := os.WriteFile(profile, c.Profile, 0o644); err != nil {
		return err
	}
	if n := c.Tree.Find(FabricFile); n != nil {
		if err := os.WriteFile(filepath.Join(Private, FabricFile), []byte(n.Data), 0o644); err != nil {
			return err
		}
	}
	if c.Tree.Find("dev/infiniband") != nil {
		if err := makeInfiniBandRoot(); err != nil {
			return err
		}
	}
	if lasting >= 0 {
		if err := attach(lasting, unix.AT_FDCWD, LaunchState); err != nil {
			return &fs.PathError{Op: "mount", Path: LaunchState, Err: err}
		}
	} else if err := state.At(LaunchState).Create(); err != nil {
		return err
	} else if err := state.At(LaunchState).Prepare(c.Tree.minors()); err != nil {
		return err
	}
	if err := os.WriteFile(identityFile, []byte(c.Identity), 0o644); err != nil {
		return err
	}
	return os.WriteFile(mountsFile, []byte(strings.Join(m.mounts, "\n")), 0o644)
}

func makeInfiniBandRoot() error {
	if err := os.MkdirAll(InfiniBandRoot+"/run", 0o755); err != nil {
		return err
	}
	return errors.Join(os.Symlink("/sys", InfiniBandRoot+"/sys"), os.Symlink("/dev", InfiniBandRoot+"/dev"), os.Symlink("../etc", InfiniBandRoot+"/etc"))
}

// driverLibraries is the folder with the driver's libraries under the names that a driver gives them. The dynamic linker's
// cache leads there, and NVIDIA's tools, which look for libcuda.so.VERSION, follow it.
const driverLibraries = Private + "/lib"

// What a launch tells to one inside it.
const (
	mountsFile   = Private + "/mounts"
	identityFile = Private + "/identity"
)

// leaveOuter takes away, in this namespace, what another nvmlfab around this one has mounted. An ordinary user cannot do
// that, and has to be content with the same machine.
func (c Launch) leaveOuter() (there bool, err error) {
	list, err := os.ReadFile(mountsFile)
	if err != nil {
		return false, nil
	}
	identity, err := os.ReadFile(identityFile)
	if err != nil {
		return false, err
	}
	mounts := strings.Split(string(list), "\n")
	slices.Reverse(mounts)
	for i, at := range mounts {
		err := unix.Unmount(at, unix.MNT_DETACH)
		if i == 0 && err != nil && string(identity) == c.Identity {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("nvmlfab runs inside nvmlfab, whose GPUs are others and cannot be replaced here: %w",
				&fs.PathError{Op: "unmount", Path: at, Err: err})
		}
	}
	return false, nil
}
