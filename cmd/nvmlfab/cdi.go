package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/machine/cdi"
	"github.com/nvmlfab/nvmlfab/machine/container"
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
	text, err := machine.StagedProfile(c.Root)
	if err != nil {
		return err
	}
	made, err := container.Open(os.Stdin)
	if err != nil {
		return err
	}
	defer made.Close()
	return made.Show(container.Node{Profile: text})
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
