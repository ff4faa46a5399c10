package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/engine/state/caps"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"
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
	spec, err := specification(root, c.Kind, c.Writable)
	if err != nil {
		return err
	}
	if c.IB != "off" {
		if err := showAdapters(&spec.ContainerEdits, root, c.IB); err != nil {
			return err
		}
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	data, err := json.Marshal(spec) // its field names are those of the format
	if err != nil {
		return err
	}
	var plain yaml.Node
	if err := yaml.Unmarshal(data, &plain); err != nil {
		return err
	}
	block(&plain)
	if err := encoder.Encode(&plain); err != nil {
		return err
	}
	return writeOutput(c.Output, text.Bytes())
}

// block removes the flow style that YAML nodes keep when they are read from JSON. Names such as 1:0 are numbers to base 60 for
// older readers, and stay in quotes.
func block(n *yaml.Node) {
	n.Style = 0
	if n.Kind == yaml.ScalarNode && pairOfNumbers.MatchString(n.Value) {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range n.Content {
		block(child)
	}
}

var pairOfNumbers = regexp.MustCompile(`^[0-9]+:[0-9]+$`)

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

// specVersion is the oldest version of the format that allows a device name which is a number.
const specVersion = "0.5.0"

// specification describes the staged machine to container runtimes.
func specification(root, kind string, writable bool) (*specs.Spec, error) {
	board, _, err := stagedBoard(root)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	driver := board.System.DriverVersion.Or("1")
	spec := &specs.Spec{Version: specVersion, Kind: kind}
	edits := &spec.ContainerEdits
	edits.Hooks = []*specs.Hook{{HookName: "createContainer", Path: self, Args: []string{"nvmlfab", "hook", "--root", root}}}
	show := func(to *specs.ContainerEdits, host, container string, options ...string) {
		to.Mounts = append(to.Mounts, &specs.Mount{HostPath: host, ContainerPath: container, Options: append(options, "nosuid", "bind")})
	}
	// The dynamic linkers of different distributions search different folders. They look for the short names, and a
	// specification cannot make links.
	for _, dir := range []string{"/" + machine.LibraryDir, "/usr/lib64"} {
		for _, name := range []string{"libnvidia-ml.so", "libnvmlfab-core.so"} {
			for _, suffix := range []string{driver, "1"} {
				show(edits, filepath.Join(root, machine.LibraryDir, name+"."+driver), dir+"/"+name+"."+suffix, "ro", "nodev")
			}
		}
	}
	// By these the library finds the profile and the state of the node, wherever in the container it lies.
	dir, err := machine.StateDir(root)
	if err != nil {
		return nil, err
	}
	if !exists(dir.Path()) {
		return nil, fmt.Errorf("there is no state directory %s: run nvmlfab stage --root %s again", dir.Path(), root)
	}
	access := []string{"ro"}
	if writable {
		access = nil
	}
	show(edits, filepath.Join(root, machine.ProfileFile), "/"+machine.ProfileFile, "ro", "nodev", "noexec")
	show(edits, dir.Path(), "/"+state.MountPoint, append(access, "nodev", "noexec")...)
	if smi := filepath.Join(root, "usr/bin/nvidia-smi"); exists(smi) {
		show(edits, smi, "/usr/bin/nvidia-smi", "ro", "nodev")
	}
	// Placeholders for device nodes are mounted, since mounts work without root too.
	for _, name := range []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"} {
		show(edits, "/dev/null", "/dev/"+name)
	}
	n, err := nodeFlags{Root: &root}.open(false)
	if err == nil {
		err = n.read()
	}
	if err != nil {
		return nil, err
	}
	capability := func(to *specs.ContainerEdits, minor uint32) {
		show(to, "/dev/null", "/dev/"+machine.CapabilityNode(minor))
	}
	add := func(edits specs.ContainerEdits, names ...string) {
		for _, name := range names {
			if strings.Contains(name, "/") { // the UUID that a driver before 470 gives a MIG device is no name
				continue
			}
			spec.Devices = append(spec.Devices, specs.Device{Name: name, ContainerEdits: edits})
		}
	}
	var all specs.ContainerEdits
	for i := range board.Devices {
		d := &board.Devices[i]
		var one, whole specs.ContainerEdits
		show(&one, "/dev/null", fmt.Sprintf("/dev/nvidia%d", machine.Minor(d)))
		whole.Mounts = slices.Clone(one.Mounts)
		if d.MIG.ModeCurrent.Valid { // the right to look at all MIG devices, those to come too
			capability(&whole, caps.Monitor)
		}
		add(whole, fmt.Sprint(d.Index), string(d.UUID))
		for _, m := range whole.Mounts {
			if !slices.ContainsFunc(all.Mounts, func(other *specs.Mount) bool { return other.ContainerPath == m.ContainerPath }) {
				all.Mounts = append(all.Mounts, m)
			}
		}
		devices, err := n.source.MIGDevices(i, time.Now().UnixMilli())
		if err != nil {
			return nil, err
		}
		for k, m := range devices {
			part := specs.ContainerEdits{Mounts: slices.Clone(one.Mounts)}
			_, instance := caps.Instance(m.Instance.GPU, m.Instance.ID)
			_, compute := caps.Part(m.Instance.GPU, m.Instance.ID, m.Part.ID)
			capability(&part, instance)
			capability(&part, compute)
			add(part, fmt.Sprintf("%d:%d", d.Index, k), m.UUID)
		}
	}
	add(all, "all")
	return spec, nil
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
