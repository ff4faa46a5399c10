// Package container does in a container that is being made what the hooks of its specification ask for. Its root is known by the
// state that a container runtime gives to a hook. The image chooses where links in there lead, and so nothing of it is opened but
// from the root and without leaving it.
package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/engine/state/caps"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
	"golang.org/x/sys/unix"
)

// Container is a container that is being made.
type Container struct {
	// Root is its root, as a path of this machine.
	Root string
	// Admin says that its processes may have CAP_SYS_ADMIN, which a driver wants of those who change a GPU.
	Admin bool

	top  int
	root *os.Root
}

// Open reads a container's state, as a runtime gives it to a hook, and opens the container's root. Close must follow.
func Open(from io.Reader) (*Container, error) {
	var told struct{ Bundle string }
	var config struct {
		Root    struct{ Path string }
		Process struct {
			Capabilities struct{ Bounding []string }
		}
	}
	if err := json.NewDecoder(from).Decode(&told); err != nil {
		return nil, fmt.Errorf("the container's state: %w", err)
	}
	data, err := os.ReadFile(filepath.Join(told.Bundle, "config.json"))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("the container's configuration: %w", err)
	}
	root := config.Root.Path
	if !filepath.IsAbs(root) {
		root = filepath.Join(told.Bundle, root)
	}
	if filepath.Clean(root) == "/" {
		return nil, errors.New("the container's configuration names / as the container's root, which is this machine's")
	}
	c, err := At(root)
	if err == nil {
		c.Admin = slices.Contains(config.Process.Capabilities.Bounding, "CAP_SYS_ADMIN")
	}
	return c, err
}

// At opens a container by its root. Close must follow.
func At(root string) (*Container, error) {
	top, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: root, Err: err}
	}
	c := &Container{Root: root, top: top}
	if c.root, err = os.OpenRoot(root); err != nil {
		unix.Close(top)
		return nil, err
	}
	return c, nil
}

// Close closes the container's root.
func (c *Container) Close() error { return errors.Join(c.root.Close(), unix.Close(c.top)) }

// HasGPU says whether the container has the device node of a GPU.
func (c *Container) HasGPU() bool {
	names, _ := c.names("dev")
	return slices.ContainsFunc(names, gpuNode)
}

// gpuNode says whether a name in /dev is that of a GPU's node.
func gpuNode(name string) bool {
	var n uint32
	_, err := fmt.Sscanf(name, "nvidia%d", &n)
	return err == nil && name == fmt.Sprintf("nvidia%d", n)
}

// Shown says whether the container has been shown a machine's GPUs before: several hooks of one container may want that.
func (c *Container) Shown() bool {
	_, err := c.root.Lstat("proc/driver/nvidia/version")
	return err == nil
}

// Node is what a container is shown of a staged machine.
type Node struct {
	// Profile is the text of the machine's profile.
	Profile []byte
	// State is the machine's state directory, if the container has still to get it and the profile, as it has where its
	// specification is not nvmlfab's.
	State string
}

// Show mounts over a container's /sys and /proc, and over its profile, what the machine has for the GPUs whose device nodes the
// container was given. A container that was given none, or that has been shown them before, stays as it is.
func (c *Container) Show(node Node) error {
	upon := []string{"dev", "sys", "proc", machine.ProfileFile}
	if node.State != "" {
		upon = append(upon, state.MountPoint)
	}
	for _, name := range upon {
		if err := c.withoutLinks(name); err != nil {
			return err
		}
	}
	if !c.HasGPU() || c.Shown() {
		return nil
	}
	board, part, err := c.visible(node.Profile)
	if err != nil || board == nil {
		return err
	}
	if node.State != "" {
		if part == "" {
			part = string(node.Profile)
		}
		if err := c.mountPoints(); err != nil {
			return err
		}
		if err := machine.ShowState(c.top, node.State, c.Admin); err != nil {
			return err
		}
	}
	tree := machine.New(board, machine.Options{CPUs: machine.OnlineCPUs(), Profile: part, State: "/" + state.MountPoint, Contained: true})
	return tree.ShowInContainer(c.top)
}

// mountPoints makes what the profile and the state directory are mounted upon.
func (c *Container) mountPoints() error {
	err := errors.Join(c.root.MkdirAll(path.Dir(machine.ProfileFile), 0o755), c.root.MkdirAll(state.MountPoint, 0o755))
	if err != nil {
		return err
	}
	file, err := c.root.OpenFile(machine.ProfileFile, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

// withoutLinks returns an error if a path in the container contains a link, for what is mounted there would be where the image
// wants it. A path that does not exist is no error.
func (c *Container) withoutLinks(name string) error {
	fd, err := unix.Openat2(c.top, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS})
	if err == nil {
		return unix.Close(fd)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("the container's %s leads over a link: %w", name, &fs.PathError{Op: "open", Path: filepath.Join(c.Root, name), Err: err})
}

// visible is the staged board without the GPUs that the container has no device node of; nil if it has none. If GPUs or MIG
// devices are missing, part is the profile of those that are left.
func (c *Container) visible(text []byte) (board *profiles.Board, part string, err error) {
	base := profiles.Base{Name: machine.ProfileFile, Text: text}
	if board, err = base.With(); err != nil {
		return nil, "", err
	}
	given := c.migGiven()
	var keep []profiles.UUID
	mig := map[int][]string{}
	for i := range board.Devices {
		d := &board.Devices[i]
		if _, err := c.root.Lstat(fmt.Sprintf("dev/nvidia%d", machine.Minor(d))); err != nil {
			continue
		}
		if names := given[machine.Minor(d)]; names != nil {
			mig[len(keep)] = names
		}
		keep = append(keep, d.UUID)
	}
	if len(keep) == 0 {
		return nil, "", nil
	}
	var layers []profiles.Layer
	if len(keep) < len(board.Devices) {
		layers = append(layers, profiles.Only("the container's GPUs", keep))
	}
	if len(mig) > 0 {
		layers = append(layers, profiles.SeenMIG("the container's MIG devices", mig))
	}
	if layers == nil {
		return board, "", nil
	}
	board, err = base.With(layers...)
	return board, string(base.File(layers...)), err
}

// migGiven names the MIG devices that the container has the device nodes of, by the minor number of their GPU. It is empty if
// the container may look at all MIG devices.
func (c *Container) migGiven() map[uint32][]string {
	given := map[uint32][]string{}
	names, _ := c.names(path.Dir("dev/" + machine.CapabilityFormat))
	for _, name := range names {
		var minor uint32
		if _, err := fmt.Sscanf("nvidia-caps/"+name, machine.CapabilityFormat, &minor); err != nil {
			continue
		}
		if minor == caps.Monitor || minor == caps.Config {
			return nil
		}
		if gpu, instance, part, whole, ok := caps.Of(minor); ok && !whole {
			given[gpu] = append(given[gpu], profiles.MIGName(instance, part))
		}
	}
	return given
}

// names are the names in a folder of the container, sorted.
func (c *Container) names(dir string) ([]string, error) {
	f, err := c.root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}
