// Package cdi describes a staged tree to container runtimes, by a specification of the Container Device Interface.
package cdi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/engine/state/caps"
	"github.com/nvmlfab/nvmlfab/machine"
	"gopkg.in/yaml.v3"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// specVersion is the oldest version of the format that allows a device name which is a number.
const specVersion = "0.5.0"

// Options are what a specification depends on beside the tree.
type Options struct {
	// Kind is the vendor and the class of the devices, such as nvidia.com/gpu.
	Kind string
	// Writable lets containers change the node: its state directory is not mounted read-only.
	Writable bool
	// Hook is a program's path and arguments, with its name as the first, that a runtime runs when it creates a container; none if empty.
	Hook []string
	// Complain is told of a state.json that cannot be read and is passed over; it may be nil.
	Complain func(error)
}

// Specification describes the machine that is staged in a folder to container runtimes. The folder's path is absolute.
func Specification(root string, o Options) (*specs.Spec, error) {
	n, err := machine.OpenStaged(root)
	if err != nil {
		return nil, err
	}
	aside, err := n.Read()
	if err != nil {
		return nil, err
	}
	if aside != nil && o.Complain != nil {
		o.Complain(aside)
	}
	board := n.Source.Board
	driver := board.System.DriverVersion.Or("1")
	spec := &specs.Spec{Version: specVersion, Kind: o.Kind}
	edits := &spec.ContainerEdits
	if len(o.Hook) > 0 {
		edits.Hooks = []*specs.Hook{{HookName: "createContainer", Path: o.Hook[0], Args: o.Hook[1:]}}
	}
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
	if !exists(n.Dir.Path()) {
		return nil, fmt.Errorf("there is no state directory %s: run nvmlfab stage --root %s again", n.Dir.Path(), root)
	}
	access := []string{"ro"}
	if o.Writable {
		access = nil
	}
	show(edits, filepath.Join(root, machine.ProfileFile), "/"+machine.ProfileFile, "ro", "nodev", "noexec")
	show(edits, n.Dir.Path(), "/"+state.MountPoint, append(access, "nodev", "noexec")...)
	if smi := filepath.Join(root, "usr/bin/nvidia-smi"); exists(smi) {
		show(edits, smi, "/usr/bin/nvidia-smi", "ro", "nodev")
	}
	// Placeholders for device nodes are mounted, since mounts work without root too.
	for _, name := range []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"} {
		show(edits, "/dev/null", "/dev/"+name)
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
		devices, err := n.Source.MIGDevices(i, time.Now().UnixMilli())
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

// Encode is the text of a specification.
func Encode(spec *specs.Spec) ([]byte, error) {
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	data, err := json.Marshal(spec) // its field names are those of the format
	if err != nil {
		return nil, err
	}
	var plain yaml.Node
	if err := yaml.Unmarshal(data, &plain); err != nil {
		return nil, err
	}
	block(&plain)
	if err := encoder.Encode(&plain); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
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

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
