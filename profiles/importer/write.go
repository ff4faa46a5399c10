package importer

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nvmlfab/nvmlfab/profiles"
	"gopkg.in/yaml.v3"
)

func section(key string) string {
	name, _, _ := strings.Cut(key, ".")
	return name
}

// ofOne are the keys that are never in device_defaults.
var ofOne = []string{"uuid", "serial", "pdi", "minor_number", "pci.bus_id", "platform.gpu_fabric_guid"}

// write writes the profile.
func (r *reader) write() ([]byte, error) {
	r.file = r.log.file
	all, err := r.made()
	if err != nil {
		return nil, err
	}
	r.chip(all)
	table := r.mig(all)
	common := map[string]bool{}
	for _, s := range all[0] {
		common[s.key] = !slices.Contains(ofOne, s.key)
		for _, other := range all[1:] {
			i := slices.IndexFunc(other, func(o setting) bool { return o.key == s.key })
			common[s.key] = common[s.key] && i >= 0 && equal(s.value, other[i].value)
		}
	}
	root := &yaml.Node{Kind: yaml.MappingNode}
	if v, ok := versionOf(r.log.driver.value); ok {
		put(root, "system.driver_version", text(v))
	} else if !isAbsent(r.log.driver.value) {
		return nil, r.wrong(r.log.driver.line, "driver_version is %s: want numbers between dots", quoted(r.log.driver.value))
	}
	if v := r.log.cuda.value; !isAbsent(v) && !fails(v) {
		if _, ok := versionOf(v); !ok {
			return nil, r.wrong(r.log.cuda.line, "cuda_version is %s: want numbers between dots", quoted(v))
		}
		put(root, "system.cuda_version", &yaml.Node{Kind: yaml.ScalarNode, Style: yaml.DoubleQuotedStyle, Value: v})
	}
	defaults, devices := &yaml.Node{Kind: yaml.MappingNode}, &yaml.Node{Kind: yaml.SequenceNode}
	for _, s := range all[0] {
		if common[s.key] {
			put(defaults, s.key, s.value)
		}
	}
	for i, settings := range all {
		device := &yaml.Node{Kind: yaml.MappingNode}
		put(device, "index", num(strconv.Itoa(i)))
		for _, s := range settings {
			if !common[s.key] {
				put(device, s.key, s.value)
			}
		}
		devices.Content = append(devices.Content, device)
	}
	put(root, "device_defaults", defaults)
	put(root, "devices", devices)
	if table != nil {
		put(root, "mig.gpu_instance_profiles", table)
	}
	if err := r.neighbours(root, all); err != nil {
		return nil, err
	}
	var w bytes.Buffer
	fmt.Fprintf(&w, "# Made by nvmlfab profiles import of what nvidia-smi printed on one machine.\n")
	if !r.options.KeepIdentifiers {
		fmt.Fprintf(&w, "# UUIDs, serial numbers and other identifiers are replaced by made-up ones.\n")
	}
	fmt.Fprintln(&w)
	enc := yaml.NewEncoder(&w)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return nil, r.wrong(r.log.line, "%s", err)
	}
	if _, err := profiles.Parse("profile", w.Bytes()); err != nil {
		return nil, r.blame(err, all)
	}
	return w.Bytes(), nil
}

// blame finds the line of the value because of which the profile is not valid.
func (r *reader) blame(err error, all [][]setting) error {
	text := err.Error()
	if e := (*profiles.Error)(nil); errors.As(err, &e) {
		text = e.Text
	}
	for i, settings := range all {
		for _, s := range settings {
			if s.key == "mig.instances" {
				if strings.Contains(text, ".mig.instances") {
					return r.wrong(s.line, "GPU %d: the MIG devices cannot be made: %s", i, text)
				}
				continue
			}
			one, device := &yaml.Node{Kind: yaml.MappingNode}, &yaml.Node{Kind: yaml.MappingNode}
			put(device, s.key, s.value)
			put(one, "devices", &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{device}})
			data, merr := yaml.Marshal(one)
			if merr != nil {
				return r.wrong(s.line, "%s", merr)
			}
			if _, err := profiles.Parse("profile", data); err != nil {
				if e := (*profiles.Error)(nil); errors.As(err, &e) {
					return r.wrong(s.line, "GPU %d: %s", i, strings.TrimPrefix(e.Text, "devices[0]."))
				}
			}
		}
	}
	return r.wrong(r.log.line, "%s", text)
}

func versionOf(value string) (string, bool) {
	ok := value != "" && strings.Trim(value, "0123456789.") == "" && !strings.Contains("."+value+".", "..")
	return value, ok
}

// put puts a value at a key with dots.
func put(n *yaml.Node, key string, value *yaml.Node) {
	name, rest, deeper := strings.Cut(key, ".")
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			if deeper {
				put(n.Content[i+1], rest, value)
			} else {
				n.Content[i+1] = value
			}
			return
		}
	}
	child := value
	if deeper {
		child = &yaml.Node{Kind: yaml.MappingNode}
		put(child, rest, value)
	}
	n.Content = append(n.Content, text(name), child)
}

func equal(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || a.Value != b.Value || len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		if !equal(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return true
}

// chip adds what nvidia-smi does not print and a shipped board with the same chip has.
func (r *reader) chip(all [][]setting) {
	for i, settings := range all {
		r.generation(i, settings, all)
		at := slices.IndexFunc(settings, func(s setting) bool { return s.key == "pci.device_id" })
		if at < 0 {
			continue
		}
		settings = all[i]
		id, err := strconv.ParseUint(settings[at].value.Value, 0, 32)
		if err != nil {
			continue
		}
		like, name := known(uint32(id))
		if like == nil {
			if i == 0 {
				r.note(settings[at].line, "no shipped board has this chip: give compute_capability, multiprocessor_count and num_gpu_cores, which -q does not print")
			}
			continue
		}
		line := settings[at].line
		for _, v := range []struct {
			key   string
			value profiles.Opt[uint32]
		}{
			{"compute_capability.major", like.ComputeCapability.Major}, {"compute_capability.minor", like.ComputeCapability.Minor},
			{"multiprocessor_count", like.MultiprocessorCount}, {"num_gpu_cores", like.NumGPUCores},
			{"memory.memory_bus_width", like.Memory.MemoryBusWidth},
		} {
			if n, ok := v.value.Get(); ok {
				node := num(strconv.FormatUint(uint64(n), 10))
				node.LineComment = "# not printed; of the shipped board " + name
				all[i] = append(all[i], setting{v.key, node, line})
			}
		}
	}
}

// generation adds the chip's generation, which -q prints from driver 510 on, by the range of its PCI device id.
func (r *reader) generation(i int, settings []setting, all [][]setting) {
	at := slices.IndexFunc(settings, func(s setting) bool { return s.key == "pci.device_id" })
	if at < 0 || slices.ContainsFunc(settings, func(s setting) bool { return s.key == "architecture" }) {
		return
	}
	id, err := strconv.ParseUint(settings[at].value.Value, 0, 32)
	if err != nil {
		return
	}
	for _, g := range generationRanges {
		if device := id >> 16; g.first <= device && device <= g.last {
			node := text(g.name)
			node.LineComment = "# not printed; by the range of the PCI device id"
			all[i] = append(slices.Clone(settings), setting{"architecture", node, settings[at].line})
			return
		}
	}
}

// generationRanges are PCI device ids by generation, as the PCI ID repository lists them.
var generationRanges = []struct {
	first, last uint64
	name        string
}{
	{0x0fc0, 0x103f, "kepler"}, {0x1180, 0x12ff, "kepler"}, {0x1340, 0x13ff, "maxwell"}, {0x1401, 0x1436, "maxwell"},
	{0x15f0, 0x15ff, "pascal"}, {0x1b00, 0x1d7f, "pascal"}, {0x1d80, 0x1dff, "volta"}, {0x1e00, 0x1fff, "turing"},
	{0x2180, 0x21ff, "turing"}, {0x2080, 0x20ff, "ampere"}, {0x2200, 0x22ff, "ampere"}, {0x2400, 0x25ff, "ampere"},
	{0x2600, 0x28ff, "ada"}, {0x2300, 0x23ff, "hopper"}, {0x2900, 0x31ff, "blackwell"},
}

// known is the first GPU of the shipped board with a chip, and the board's name.
func known(id uint32) (*profiles.Device, string) {
	for _, b := range shipped() {
		if b.Devices[0].PCI.DeviceID.Value == id {
			return &b.Devices[0], b.Name
		}
	}
	return nil, ""
}

// shipped are the shipped boards.
var shipped = sync.OnceValue(func() (all []*profiles.Board) {
	for _, name := range profiles.Names() {
		if b, err := profiles.Shipped(name); err == nil {
			all = append(all, b)
		}
	}
	return all
})
