package container

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// open opens what is at a path in the container. Links on the way lead where they lead for the container's programs, and never out
// of it.
func (c *Container) open(name string, flags int) (fd int, err error) {
	how := unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for range 128 { // the kernel gives up where something is renamed meanwhile
		if fd, err = unix.Openat2(c.top, inside(name), &how); err != unix.EAGAIN && err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: filepath.Join(c.Root, name), Err: err}
	}
	return fd, nil
}

// inside is a path as seen from the container's root.
func inside(name string) string { return cmp.Or(strings.TrimPrefix(path.Join("/", name), "/"), ".") }

// folder opens a folder of the container, and makes it and those above it if they are missing.
func (c *Container) folder(name string) (int, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY
	fd, err := c.open(name, flags)
	name = path.Join("/", name)
	if name == "/" || !errors.Is(err, fs.ErrNotExist) {
		return fd, err
	}
	above, err := c.folder(path.Dir(name))
	if err != nil {
		return -1, err
	}
	defer unix.Close(above)
	if err := unix.Mkdirat(above, path.Base(name), 0o755); err != nil { // or it is a link that leads nowhere
		return -1, &fs.PathError{Op: "mkdir", Path: filepath.Join(c.Root, name), Err: err}
	}
	return c.open(name, flags)
}

// Link makes a link of the container's that leads to target, and the folders above it. What is there already is replaced.
func (c *Container) Link(name, target string) error {
	if target == "" || path.Join("/", name) == "/" {
		return fmt.Errorf("a link needs a name and a target, not %q and %q", name, target)
	}
	dir, err := c.folder(path.Dir(name))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := relink(dir, path.Base(name), target); err != nil {
		return &fs.PathError{Op: "link", Path: filepath.Join(c.Root, name), Err: err}
	}
	return nil
}

// relink makes a link in an open folder. Whoever looks sees what was there, or the link.
func relink(dir int, name, target string) error {
	if old, err := readlink(dir, name); err == nil && old == target {
		return nil
	}
	return replace(dir, name, func(fresh string) error { return unix.Symlinkat(target, dir, fresh) })
}

func readlink(dir int, name string) (string, error) {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, target)
	return string(target[:max(n, 0)]), err
}

// replace puts what make makes under another name in the place of a file.
func replace(dir int, name string, make func(fresh string) error) error {
	fresh := fmt.Sprintf(".%.200s.%d", name, time.Now().UnixNano())
	err := make(fresh)
	if err == nil {
		err = unix.Renameat(dir, fresh, dir, name)
	}
	if err != nil {
		_ = unix.Unlinkat(dir, fresh, 0)
	}
	return err
}

// write replaces a file of the container, whose folder is made if it is missing.
func (c *Container) write(name string, mode uint32, text []byte) error {
	dir, err := c.folder(path.Dir(name))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	err = replace(dir, path.Base(name), func(fresh string) error {
		fd, err := unix.Openat(dir, fresh, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), name)
		_, err = f.Write(text)
		return errors.Join(err, unix.Fchmod(fd, mode), f.Close()) // whatever the umask is
	})
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(c.Root, name), err)
	}
	return nil
}

// largest is the greatest size of a configuration file that is read.
const largest = 16 << 20

// read returns what a file of the container holds. An image could have a pipe in its place, on which nothing waits.
func (c *Container) read(name string) ([]byte, error) {
	fd, err := c.open(name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), filepath.Join(c.Root, name))
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: f.Name(), Err: errors.Join(err, errors.New("no regular file"))}
	}
	text, err := io.ReadAll(io.LimitReader(f, largest+1))
	if err == nil && len(text) > largest {
		err = &fs.PathError{Op: "read", Path: f.Name(), Err: unix.EFBIG}
	}
	return text, err
}

// Chmod gives files and folders of the container a mode. Those that do not exist, and those that may not be changed, stay as they
// are.
func (c *Container) Chmod(mode uint32, names ...string) error {
	var failed []error
	for _, name := range names {
		fd, err := c.open(name, unix.O_PATH)
		if err != nil {
			continue
		}
		var info unix.Stat_t
		if err = unix.Fstat(fd, &info); err == nil && info.Mode&0o7777 != mode {
			err = unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode)
		}
		unix.Close(fd)
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			failed = append(failed, &fs.PathError{Op: "chmod", Path: filepath.Join(c.Root, name), Err: err})
		}
	}
	return errors.Join(failed...)
}

// ApplicationProfile writes the driver's settings by which EGL and Vulkan find no other GPUs than those whose device nodes the
// container has.
func (c *Container) ApplicationProfile() error {
	names, err := c.names("dev")
	if err != nil {
		return err
	}
	var mask uint64
	for _, name := range names {
		info, err := c.root.Lstat("dev/" + name)
		if err != nil || !gpuNode(name) || info.Mode()&fs.ModeCharDevice == 0 {
			continue
		}
		if minor := minorOf(info); minor < 64 {
			mask |= 1 << minor
		}
	}
	if mask == 0 {
		return nil
	}
	text := fmt.Sprintf(`{"profiles":[{"name":"_container_","settings":["EGLVisibleDGPUDevices",%#x]}],"rules":[{"pattern":[],"profile":"_container_"}]}`, mask)
	return c.write("etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf", 0o444, []byte(text))
}

func minorOf(info fs.FileInfo) uint32 {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 1 << 31
	}
	return unix.Minor(uint64(stat.Rdev))
}
