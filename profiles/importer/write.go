package importer

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/draft"
	"gopkg.in/yaml.v3"
)

func section(key string) string {
	name, _, _ := strings.Cut(key, ".")
	return name
}

// write writes the profile.
func (r *reader) write() ([]byte, error) {
	r.file = r.log.file
	all, err := r.made()
	if err != nil {
		return nil, err
	}
	r.chip(all)
	table := r.mig(all)
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
	draft.PutDevices(root, all)
	if table != nil {
		put(root, "mig.gpu_instance_profiles", table)
	}
	if err := r.neighbours(root, all); err != nil {
		return nil, err
	}
	comment := "# Made by nvmlfab profiles import of what nvidia-smi printed on one machine.\n"
	if !r.options.KeepIdentifiers {
		comment += "# UUIDs, serial numbers and other identifiers are replaced by made-up ones.\n"
	}
	made, err := draft.Write(comment+"\n", root)
	if err != nil {
		return nil, r.wrong(r.log.line, "%s", err)
	}
	if _, err := profiles.Parse("profile", made); err != nil {
		return nil, r.blame(err, all)
	}
	return made, nil
}

// blame finds the line of the value because of which the profile is not valid.
func (r *reader) blame(err error, all [][]setting) error {
	text := err.Error()
	if e := (*profiles.Error)(nil); errors.As(err, &e) {
		text = e.Text
	}
	for i, settings := range all {
		for _, s := range settings {
			if s.Key == "mig.instances" {
				if strings.Contains(text, ".mig.instances") {
					return r.wrong(s.Line, "GPU %d: the MIG devices cannot be made: %s", i, text)
				}
				continue
			}
			one, device := &yaml.Node{Kind: yaml.MappingNode}, &yaml.Node{Kind: yaml.MappingNode}
			put(device, s.Key, s.Value)
			put(one, "devices", &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{device}})
			data, merr := yaml.Marshal(one)
			if merr != nil {
				return r.wrong(s.Line, "%s", merr)
			}
			if _, err := profiles.Parse("profile", data); err != nil {
				if e := (*profiles.Error)(nil); errors.As(err, &e) {
					return r.wrong(s.Line, "GPU %d: %s", i, strings.TrimPrefix(e.Text, "devices[0]."))
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

// chip adds what nvidia-smi does not print and a shipped board with the same chip has.
func (r *reader) chip(all [][]setting) {
	for i, settings := range all {
		r.generation(i, settings, all)
		at := slices.IndexFunc(settings, func(s setting) bool { return s.Key == "pci.device_id" })
		if at < 0 {
			continue
		}
		settings = all[i]
		id, err := strconv.ParseUint(settings[at].Value.Value, 0, 32)
		if err != nil {
			continue
		}
		like, name := known(uint32(id))
		if like == nil {
			if i == 0 {
				r.note(settings[at].Line, "no shipped board has this chip: give compute_capability, multiprocessor_count and num_gpu_cores, which -q does not print")
			}
			continue
		}
		line := settings[at].Line
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
				all[i] = append(all[i], setting{Key: v.key, Value: node, Line: line})
			}
		}
	}
}

// generation adds the chip's generation, which -q prints from driver 510 on, by the range of its PCI device id.
func (r *reader) generation(i int, settings []setting, all [][]setting) {
	at := slices.IndexFunc(settings, func(s setting) bool { return s.Key == "pci.device_id" })
	if at < 0 || slices.ContainsFunc(settings, func(s setting) bool { return s.Key == "architecture" }) {
		return
	}
	id, err := strconv.ParseUint(settings[at].Value.Value, 0, 32)
	if err != nil {
		return
	}
	for _, g := range generationRanges {
		if device := id >> 16; g.first <= device && device <= g.last {
			node := text(g.name)
			node.LineComment = "# not printed; by the range of the PCI device id"
			all[i] = append(slices.Clone(settings), setting{Key: "architecture", Value: node, Line: settings[at].Line})
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
