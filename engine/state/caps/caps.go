// Package caps writes the files that say which device nodes open a MIG device. For each GPU instance and each compute
// instance there is a file named access, as in the driver's /proc/driver/nvidia/capabilities/gpuN/mig.
package caps

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Folder is the folder of a state directory that holds the files. It has a folder gpuN for the GPU with minor number N.
const Folder = "caps"

// GPUs, Instances and Parts are how many GPUs, GPU instances of a GPU and compute instances of a GPU instance the driver
// has numbers for. A GPU with a higher minor number has no capabilities.
const (
	GPUs      = 32
	Instances = 15
	Parts     = 8
)

// Minor numbers of the capabilities that belong to no instance.
const (
	FabricManager = 0
	Config        = 1
	Monitor       = 2
	FabricIMEX    = 3 + GPUs*perGPU
)

// perGPU is how many numbers a GPU has: one for each GPU instance and each compute instance.
const perGPU = Instances * perInstance

const perInstance = 1 + Parts

// GPUFolder is the folder of a GPU, by its minor number.
func GPUFolder(gpu uint32) string { return fmt.Sprintf("gpu%d", gpu) }

// Instance is the capability of a GPU instance: the path of its file, and the minor number of its device node. The numbers
// are fixed, as the driver's (open-gpu-kernel-modules, nv-caps.c).
func Instance(gpu, instance uint32) (file string, minor uint32) {
	return fmt.Sprintf("gpu%d/gi%d/access", gpu, instance), 3 + gpu*perGPU + instance*perInstance
}

// Part is the capability of a compute instance.
func Part(gpu, instance, part uint32) (file string, minor uint32) {
	_, minor = Instance(gpu, instance)
	return fmt.Sprintf("gpu%d/gi%d/ci%d/access", gpu, instance, part), minor + 1 + part
}

// Of says whose capability a minor number is: a GPU instance's if whole is true, else a compute instance's. It returns
// false for a number that belongs to no instance.
func Of(minor uint32) (gpu, instance, part uint32, whole, ok bool) {
	if minor < 3 || minor >= FabricIMEX {
		return 0, 0, 0, false, false
	}
	n := minor - 3
	gpu, instance, n = n/perGPU, n%perGPU/perInstance, n%perInstance
	if n == 0 {
		return gpu, instance, 0, true, true
	}
	return gpu, instance, n - 1, false, true
}

// Text is the content of a capability's file.
func Text(minor, mode uint32) string {
	return fmt.Sprintf("DeviceFileMinor: %d\nDeviceFileMode: %d\nDeviceFileModify: 1\n", minor, mode)
}

// ModeOfInstances is the mode of an instance's device node: everybody may open it.
const ModeOfInstances = 0o444

// Set has the files that there should be: the device nodes' minor numbers by path below Folder.
type Set map[string]uint32

// Add adds a GPU instance, and the compute instances with these numbers.
func (s Set) Add(gpu, instance uint32, parts ...uint32) {
	if gpu >= GPUs || instance >= Instances {
		return
	}
	file, minor := Instance(gpu, instance)
	s[file] = minor
	for _, part := range parts {
		if part < Parts {
			file, minor := Part(gpu, instance, part)
			s[file] = minor
		}
	}
}

// under reports whether the set has a file below a folder.
func (s Set) under(folder string) bool {
	for file := range s {
		if strings.HasPrefix(file, folder+"/") {
			return true
		}
	}
	return false
}

const openFolder = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// enter opens a folder in an open folder, and makes it with that mode if it does not exist.
func enter(dir int, name string, mode uint32) (int, error) {
	fd, err := unix.Openat(dir, name, openFolder, 0)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	if err := unix.Mkdirat(dir, name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	if fd, err = unix.Openat(dir, name, openFolder, 0); err != nil {
		return -1, err
	}
	if err := unix.Fchmod(fd, mode); err != nil { // the process's umask must not hide it from others
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Prepare makes the folders of GPUs, by their minor numbers, in an open state directory with a mode.
func Prepare(dir int, mode uint32, gpus []uint32) error {
	for _, gpu := range gpus {
		if gpu >= GPUs {
			continue
		}
		if err := in(dir, mode, []string{Folder, GPUFolder(gpu)}, func(int) error { return nil }); err != nil {
			return wrong(GPUFolder(gpu), err)
		}
	}
	return nil
}

// in calls f with the last of some folders, each in the one before it, and makes those that do not exist.
func in(dir int, mode uint32, folders []string, f func(dir int) error) error {
	if len(folders) == 0 {
		return f(dir)
	}
	fd, err := enter(dir, folders[0], mode)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return in(fd, mode, folders[1:], f)
}

// Make makes the files of a set that do not exist yet, in an open state directory with a mode.
func Make(dir int, mode uint32, s Set) error {
	for _, file := range slices.Sorted(maps.Keys(s)) {
		err := in(dir, mode, strings.Split(path.Join(Folder, path.Dir(file)), "/"), func(dir int) error {
			return write(dir, path.Base(file), mode&0o444, Text(s[file], ModeOfInstances))
		})
		if err != nil {
			return wrong(file, err)
		}
	}
	return nil
}

func wrong(file string, err error) error {
	return &os.PathError{Op: "write", Path: path.Join(Folder, file), Err: err}
}

// write makes a file that does not exist yet. Nobody sees half of it: it gets its name last.
func write(dir int, name string, mode uint32, text string) error {
	if unix.Faccessat(dir, name, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return nil
	}
	fresh := "." + name
	_ = unix.Unlinkat(dir, fresh, 0)
	fd, err := unix.Openat(dir, fresh, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	n, err := unix.Write(fd, []byte(text))
	if err == nil && n < len(text) {
		err = unix.ENOSPC
	}
	if err == nil {
		err = unix.Fchmod(fd, mode)
	}
	if err == nil {
		err = unix.Renameat(dir, fresh, dir, name)
	}
	if err != nil {
		_ = unix.Unlinkat(dir, fresh, 0)
	}
	return err
}

// Trim removes the files that are not in the set, and the folders of instances that are not. What cannot be removed stays
// for the next one who trims.
func Trim(dir int, s Set) {
	fd, err := unix.Openat(dir, Folder, openFolder, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for _, gpu := range names(fd) {
		below(fd, gpu, func(fd int) { trim(fd, gpu, s) })
	}
}

// trim is Trim for a folder below.
func trim(dir int, at string, s Set) {
	for _, name := range names(dir) {
		this := path.Join(at, name)
		switch _, known := s[this]; {
		case known:
		case s.under(this):
			below(dir, name, func(fd int) { trim(fd, this, s) })
		default:
			remove(dir, name)
		}
	}
}

// remove removes a file, or a folder with all that is in it.
func remove(dir int, name string) {
	if unix.Unlinkat(dir, name, 0) == nil {
		return
	}
	below(dir, name, func(fd int) {
		for _, child := range names(fd) {
			remove(fd, child)
		}
	})
	_ = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
}

// below calls f with a folder in an open folder, if it is one.
func below(dir int, name string, f func(fd int)) {
	fd, err := unix.Openat(dir, name, openFolder, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	f(fd)
}

// names are the names in an open folder.
func names(dir int) []string {
	fd, err := unix.Openat(dir, ".", openFolder, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close()
	list, _ := f.Readdirnames(-1)
	return list
}
