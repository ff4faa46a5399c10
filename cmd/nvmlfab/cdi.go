package main

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
	"strings"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/engine/state/caps"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/machine/cdi"
	"github.com/nvmlfab/nvmlfab/profiles"
	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

type cdiCmd struct {
	Root     string `required:"" placeholder:"DIR" help:"A folder that nvmlfab stage has written."`
	Kind     string `default:"nvidia.com/gpu" help:"Vendor and class of the devices."`
	Writable bool   `help:"Let containers change the node: its state directory is not mounted read-only."`
	IB       string `name:"ib" enum:"off,full,sysfs" default:"off" placeholder:"full|sysfs" help:"Show containers the node's InfiniBand adapters too: with sysfs programs find them, with full they can open them and talk to the fabric by way of mock-ib, which has to run for the node."`
	Output   string `short:"o" placeholder:"FILE" help:"Where to write the specification, such as /etc/cdi/nvmlfab.yaml; by default, and for -, it is printed."`
}

func (cdiCmd) Help() string {
	return `Writes a CDI specification by which container runtimes show a staged machine to containers. Its devices are the GPUs by
index and by UUID, all, and the MIG devices that there are now: 0:1 is the second of GPU 0, and each has its UUID too. Example:

    nvmlfab stage --root /var/lib/nvmlfab
    nvmlfab cdi --root /var/lib/nvmlfab -o /etc/cdi/nvmlfab.yaml
    podman run --device nvidia.com/gpu=all …

A container sees the GPUs that it was given, by NVML as in /sys and /proc, and what changes about them. It cannot change them
itself unless --writable is given. The staged folder and nvmlfab itself must stay where they are: as a hook, nvmlfab mounts what no specification can describe.`
}

func (c cdiCmd) Run() error {
	if c.Root == "" { // an unset variable, and not the working directory
		return errors.New("--root: the folder's name is empty: name one that nvmlfab stage has written")
	}
	root, err := filepath.Abs(c.Root)
	if err != nil {
		return err
	}
	vendor, class := parser.ParseQualifier(c.Kind)
	if err := errors.Join(parser.ValidateVendorName(vendor), parser.ValidateClassName(class)); err != nil {
		return fmt.Errorf("--kind: want something like nvidia.com/gpu, not %q", c.Kind)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	spec, err := cdi.Specification(root, cdi.Options{
		Kind: c.Kind, Writable: c.Writable, Hook: []string{self, "nvmlfab", "hook", "--root", root}, Complain: complain,
	})
	if err != nil {
		return err
	}
	if c.IB != "off" {
		if err := showAdapters(&spec.ContainerEdits, root, c.IB); err != nil {
			return err
		}
	}
	text, err := cdi.Encode(spec)
	if err != nil {
		return err
	}
	return writeOutput(c.Output, text)
}

// stagedBoard is the board of a staged folder.
func stagedBoard(root string) (*profiles.Board, []byte, error) {
	path := filepath.Join(root, machine.ProfileFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("nothing is staged in %s: run nvmlfab stage --root %[1]s", root)
	}
	if err != nil {
		return nil, nil, err
	}
	board, err := profiles.Parse(path, text)
	return board, text, err
}

// Where a container has the libraries for InfiniBand, and the staged folder that they lead programs into.
const (
	containerLibraries = "/opt/nvmlfab/lib"
	containerTree      = "/run/nvmlfab-ib"
)

// showAdapters shows a container the adapters of a staged folder, as they are at any time: programs are led into the folder by
// the preloaded libraries.
func showAdapters(edits *specs.ContainerEdits, root, tier string) error {
	if !exists(filepath.Join(root, "sys/class/infiniband")) {
		return fmt.Errorf("--ib: nothing of InfiniBand is staged in %s: its profile has no adapters", root)
	}
	mount := func(host, container string, options ...string) {
		edits.Mounts = append(edits.Mounts, &specs.Mount{HostPath: host, ContainerPath: container, Options: append(options, "ro", "nodev", "nosuid", "bind")})
	}
	var preload []string
	for _, name := range infinibandLibraries {
		path := filepath.Join(home(), "lib", name)
		if !exists(path) {
			return fmt.Errorf("no %s in %s: run make, or keep the folders bin and lib of a release side by side", name, filepath.Dir(path))
		}
		mount(path, containerLibraries+"/"+name)
		preload = append(preload, containerLibraries+"/"+name)
	}
	mount(root, containerTree, "noexec")
	mount(filepath.Join(root, "dev/infiniband"), "/dev/infiniband", "noexec")
	edits.Env = append(edits.Env, "LD_PRELOAD="+strings.Join(preload, ":"), ibTier+"="+tier, ibRoot+"="+containerTree)
	return nil
}

// hookCmd is the hook in the specification: it mounts the PCI devices and the driver's files over /sys and /proc of a
// container that is being created.
type hookCmd struct {
	Root string `required:""`
}

func (c hookCmd) Run() error {
	var state struct{ Bundle string }
	var config struct{ Root struct{ Path string } }
	data, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return fmt.Errorf("the container's state: %w", err)
	}
	if data, err = os.ReadFile(filepath.Join(state.Bundle, "config.json")); err != nil {
		return err
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return fmt.Errorf("the container's configuration: %w", err)
	}
	top := config.Root.Path
	if !filepath.IsAbs(top) {
		top = filepath.Join(state.Bundle, top)
	}
	_, text, err := stagedBoard(c.Root)
	if err != nil {
		return err
	}
	return showContainer(top, text)
}

// showContainer shows a container the GPUs whose device nodes it was given.
func showContainer(top string, text []byte) error {
	for _, name := range []string{"dev", "sys", "proc", machine.ProfileFile} {
		if err := withoutLinks(top, name); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(top) // which nothing leads out of, whatever becomes of the folders meanwhile
	if err != nil {
		return err
	}
	defer root.Close()
	board, part, err := visible(root, text)
	if err != nil || board == nil {
		return err
	}
	return machine.New(board, machine.Options{CPUs: onlineCPUs(), Profile: part, State: "/" + state.MountPoint}).ShowInContainer(top)
}

// withoutLinks returns an error if a path in a container's root contains a link. The image chooses where a link leads,
// and the hook would write and mount there with its rights on this machine. A path that does not exist is no error.
func withoutLinks(top, name string) error {
	dir, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: top, Err: err}
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS})
	if err == nil {
		return unix.Close(fd)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("the container's %s leads over a link: %w", name, &fs.PathError{Op: "open", Path: filepath.Join(top, name), Err: err})
}

// visible is the staged board without the GPUs that the container has no device node of; nil if it has none. If GPUs or MIG
// devices are missing, part is the profile of those that are left.
func visible(root *os.Root, text []byte) (board *profiles.Board, part string, err error) {
	base := profiles.Base{Name: machine.ProfileFile, Text: text}
	if board, err = base.With(); err != nil {
		return nil, "", err
	}
	given := migGiven(root)
	var keep []profiles.UUID
	mig := map[int][]string{}
	for i := range board.Devices {
		d := &board.Devices[i]
		if _, err := root.Lstat(fmt.Sprintf("dev/nvidia%d", machine.Minor(d))); err != nil {
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

// migGiven names the MIG devices that a container has the device nodes of, by the minor number of their GPU. It is empty if
// the container may look at all MIG devices.
func migGiven(root *os.Root) map[uint32][]string {
	dir, err := root.Open(path.Dir("dev/" + machine.CapabilityFormat))
	if err != nil {
		return nil
	}
	defer dir.Close()
	given := map[uint32][]string{}
	names, _ := dir.Readdirnames(-1)
	slices.Sort(names)
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

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
