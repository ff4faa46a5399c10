// Package layout cuts GPUs into MIG instances as files in the format of NVIDIA's mig-parted say.
package layout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// File is a file in mig-parted's format, by its name for messages.
type File struct{ Name string }

// Entry is what a configuration wants of some GPUs.
type Entry struct {
	node    *yaml.Node
	devices []*yaml.Node // indices; nil for all
	filter  []uint32     // PCI device ids; nil for all
	enabled bool
	want    []want
}

// want is how many instances of a profile there shall be.
type want struct {
	node  *yaml.Node
	name  string
	count int
}

// wrong is an error about a line.
func (f File) wrong(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", f.Name, n.Line, fmt.Sprintf(format, args...))
}

// syntax is an error of the YAML parser.
func (f File) syntax(err error, text []byte) error {
	var at *profiles.Error
	if err = profiles.Syntax(err, text); errors.As(err, &at) {
		return fmt.Errorf("%s:%d: %s", f.Name, at.Line, at.Text)
	}
	return fmt.Errorf("%s: %w", f.Name, err)
}

// pointed is the node that an alias stands for; any other node itself.
func pointed(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// pairs calls use for each key of a mapping, and refuses keys that use does not know or that occur twice.
func (f File) pairs(n *yaml.Node, what string, use func(key, value *yaml.Node) (known bool, err error)) error {
	if n.Kind != yaml.MappingNode {
		return f.wrong(n, "%s: want keys and values", what)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], pointed(n.Content[i+1])
		if seen[key.Value] {
			return f.wrong(key, "%s: %.40q is there twice", what, key.Value)
		}
		seen[key.Value] = true
		known, err := use(key, value)
		if err != nil {
			return err
		}
		if !known {
			return f.wrong(key, "%s: unknown key %.40q", what, key.Value)
		}
	}
	return nil
}

// Config reads the configuration of a name; without a name, the only one.
func (f File) Config(text []byte, name string) ([]Entry, error) {
	var doc, another yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%s: the file is empty", f.Name)
	case err != nil:
		return nil, f.syntax(err, text)
	}
	switch err := decoder.Decode(&another); {
	case err == nil:
		return nil, f.wrong(&another, "a second document: a file has one")
	case !errors.Is(err, io.EOF):
		return nil, f.syntax(err, text)
	}
	var version, configs, found *yaml.Node
	err := f.pairs(doc.Content[0], "the file", func(key, value *yaml.Node) (bool, error) {
		switch key.Value {
		case "version":
			version = value
		case "mig-configs":
			configs = value
		default:
			return false, nil
		}
		return true, nil
	})
	switch {
	case err != nil:
		return nil, err
	case version == nil:
		return nil, f.wrong(doc.Content[0], "version is missing: want v1")
	case version.Value != "v1":
		return nil, f.wrong(version, "version: want v1, not %.40q", version.Value)
	case configs == nil:
		return nil, f.wrong(doc.Content[0], "mig-configs is missing")
	}
	var names []string
	var entries []Entry
	err = f.pairs(configs, "mig-configs", func(key, value *yaml.Node) (bool, error) {
		list, err := f.entries(key.Value, value)
		names = append(names, key.Value)
		if key.Value == name || name == "" {
			found, entries = value, list
		}
		return true, err
	})
	switch {
	case err != nil:
		return nil, err
	case len(names) == 0:
		return nil, f.wrong(configs, "mig-configs is empty")
	case name == "" && len(names) > 1:
		return nil, fmt.Errorf("%s has several configurations: say which with --config: %s", f.Name, strings.Join(names, ", "))
	case found == nil:
		return nil, fmt.Errorf("%s has no configuration %q: it has %s", f.Name, name, strings.Join(names, ", "))
	}
	return entries, nil
}

func (f File) entries(config string, n *yaml.Node) (list []Entry, err error) {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		return nil, f.wrong(n, "%s: want a list of entries with devices and mig-enabled", config)
	}
	for i, item := range n.Content {
		e, err := f.entry(fmt.Sprintf("%s[%d]", config, i), pointed(item))
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

func (f File) entry(what string, n *yaml.Node) (e Entry, err error) {
	e.node = n
	var devices, enabled, instances *yaml.Node
	err = f.pairs(n, what, func(key, value *yaml.Node) (bool, error) {
		switch key.Value {
		case "devices":
			devices = value
		case "device-filter":
			var err error
			e.filter, err = f.filter(what, value)
			return true, err
		case "mig-enabled":
			enabled = value
			if value.ShortTag() != "!!bool" {
				return true, f.wrong(value, "%s.mig-enabled: want true or false, not %.40q", what, value.Value)
			}
			e.enabled = strings.EqualFold(value.Value, "true")
		case "mig-devices":
			instances = value
		default:
			return false, nil
		}
		return true, nil
	})
	switch {
	case err != nil:
		return e, err
	case devices == nil:
		return e, f.wrong(n, "%s: devices is missing: want all, or a list of indices", what)
	case enabled == nil:
		return e, f.wrong(n, "%s: mig-enabled is missing: want true or false", what)
	}
	switch {
	case devices.Kind == yaml.SequenceNode:
		e.devices = []*yaml.Node{}
		for _, index := range devices.Content {
			index = pointed(index)
			if _, err := strconv.ParseUint(index.Value, 10, 16); err != nil || index.Kind != yaml.ScalarNode {
				return e, f.wrong(index, "%s.devices: want the index of a GPU, not %.40q", what, index.Value)
			}
			e.devices = append(e.devices, index)
		}
	case devices.Value != "all":
		return e, f.wrong(devices, "%s.devices: want all, or a list of indices, not %.40q", what, devices.Value)
	}
	if instances == nil || instances.ShortTag() == "!!null" {
		return e, nil
	}
	err = f.pairs(instances, what+".mig-devices", func(key, value *yaml.Node) (bool, error) {
		count, err := strconv.ParseUint(value.Value, 10, 8)
		if err != nil || value.ShortTag() != "!!int" {
			return true, f.wrong(value, "%s.mig-devices: want a number of %s, not %.40q", what, key.Value, value.Value)
		}
		if !e.enabled && count > 0 {
			return true, f.wrong(key, "%s: mig-enabled is false, so there can be no %s", what, key.Value)
		}
		e.want = append(e.want, want{key, strings.TrimPrefix(key.Value, "MIG "), int(count)})
		return true, nil
	})
	return e, err
}

// filter are the PCI device ids of a device-filter.
func (f File) filter(what string, n *yaml.Node) (ids []uint32, err error) {
	list := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		list = n.Content
	}
	ids = []uint32{}
	for _, item := range list {
		item = pointed(item)
		id, err := strconv.ParseUint(item.Value, 0, 32)
		if err != nil || item.Kind != yaml.ScalarNode {
			return nil, f.wrong(item, "%s.device-filter: want a PCI device id such as 0x233010DE, not %.40q", what, item.Value)
		}
		ids = append(ids, uint32(id))
	}
	return ids, nil
}

// Apply brings the GPUs of a board into the state that entries describe, one after the other. It reports whether there was something
// to change.
func (f File) Apply(t *change.Tx, board *profiles.Board, entries []Entry) (changed bool, err error) {
	matched := false
	for _, e := range entries {
		for _, index := range e.devices {
			if n, _ := strconv.Atoi(index.Value); n >= len(board.Devices) {
				return false, f.wrong(index, "there is no GPU %s: the node has %d, from 0 to %d", index.Value, len(board.Devices), len(board.Devices)-1)
			}
		}
		for i := range board.Devices {
			d := &board.Devices[i]
			mine := func(n *yaml.Node) bool { return n.Value == strconv.Itoa(i) }
			if e.devices != nil && !slices.ContainsFunc(e.devices, mine) || e.filter != nil && !slices.Contains(e.filter, d.PCI.DeviceID.Or(0)) {
				continue
			}
			matched = true
			this, err := f.applyTo(GPU{t, i}, e)
			if err != nil {
				return false, err
			}
			changed = changed || this
		}
	}
	if !matched {
		return false, fmt.Errorf("%s: the configuration is about other boards: no GPU matches", f.Name)
	}
	return changed, nil
}

// applyTo brings a GPU into the state that an entry describes. It reports whether there was something to change.
func (f File) applyTo(m GPU, e Entry) (changed bool, err error) {
	at := func(n *yaml.Node, err error) error { return f.wrong(n, "%s", about(m.Index, err)) }
	d, err := m.Device(m.Index)
	if err != nil {
		return false, err
	}
	if !d.MIG.ModeCurrent.Valid && !e.enabled {
		return false, nil
	}
	changed = !d.MIG.ModeCurrent.Valid || bool(d.MIG.ModeCurrent.Value) != e.enabled || d.MIG.ModePending != d.MIG.ModeCurrent
	if err := m.Mode(e.enabled); err != nil {
		return false, at(e.node, err)
	}
	if !e.enabled {
		return changed, nil
	}
	p, err := m.Cut()
	if err != nil {
		return false, at(e.node, err)
	}
	var all []piece
	for _, w := range e.want {
		piece, err := pieceOf(p, w)
		if err != nil {
			return false, at(w.node, err)
		}
		for range w.count {
			all = append(all, piece)
		}
	}
	empty := *p
	empty.Instances = nil
	groups := instancesOf(&empty, all)
	if slices.Equal(shape(p), shapeOf(groups)) {
		return changed, nil
	}
	order, late := fit(&empty, groups)
	if late != nil {
		return false, at(late.node, fmt.Errorf("there is no room for %s beside the others", late.profile.Name))
	}
	for _, instance := range slices.Clone(p.Instances) {
		if err := m.Destroy(instance); err != nil {
			return false, at(e.node, err)
		}
	}
	for _, g := range order {
		if err := m.build(g); err != nil {
			return false, at(g.node, err)
		}
	}
	return true, nil
}

// piece is a MIG device that is wanted: a compute instance of some kind in a GPU instance of some profile.
type piece struct {
	node    *yaml.Node
	profile *profiles.GPUInstanceProfile
	compute change.ComputeProfile
}

// pieceOf is what a name such as 1c.3g.40gb or 3g.40gb means.
func pieceOf(p *change.Partitioning, w want) (piece, error) {
	if _, whole, ok := strings.Cut(w.name, "c."); ok {
		if profile, err := p.Find(whole); err == nil {
			c, err := change.FindCompute(profile, p.ComputeProfiles(profile), w.name)
			return piece{w.node, profile, c}, err
		}
	}
	profile, err := p.Find(w.name)
	if err != nil {
		return piece{}, err
	}
	ways := p.ComputeProfiles(profile)
	return piece{w.node, profile, ways[len(ways)-1]}, nil
}

// group is a GPU instance that is wanted, with its compute instances.
type group struct {
	node    *yaml.Node
	profile *profiles.GPUInstanceProfile
	parts   []change.ComputeProfile
}

// instancesOf puts pieces into as few GPU instances as possible: larger ones first, and each into the first that has room.
func instancesOf(p *change.Partitioning, all []piece) (groups []*group) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b piece) int { return int(b.compute.Slices) - int(a.compute.Slices) })
	for _, piece := range all {
		at := slices.IndexFunc(groups, func(g *group) bool {
			return g.profile == piece.profile && roomFor(p.ComputeProfiles(g.profile), g.parts, piece.compute)
		})
		if at < 0 {
			groups, at = append(groups, &group{node: piece.node, profile: piece.profile}), len(groups)
		}
		groups[at].parts = append(groups[at].parts, piece.compute)
	}
	return groups
}

// roomFor says whether one more compute instance fits beside others in a GPU instance.
func roomFor(ways, parts []change.ComputeProfile, c change.ComputeProfile) bool {
	_, ok := laid(ways, append(slices.Clip(parts), c))
	return ok
}

// laid are the compute slices at which compute instances start if they are made in this order; false if there is no room.
func laid(ways, parts []change.ComputeProfile) (starts []uint32, ok bool) {
	var made []state.Part
	for _, c := range parts {
		free := change.FreeCompute(ways, c, made)
		if len(free) == 0 {
			return nil, false
		}
		made = append(made, state.Part{Profile: c.ID, Start: free[0]})
		starts = append(starts, free[0])
	}
	return starts, true
}

// shape says, for comparison, what instances there are, wherever they are.
func shape(p *change.Partitioning) (list []string) {
	for _, i := range p.Instances {
		var parts []uint32
		for _, part := range i.Parts {
			parts = append(parts, part.Profile)
		}
		slices.Sort(parts)
		list = append(list, fmt.Sprint(i.Profile, parts))
	}
	slices.Sort(list)
	return list
}

// shapeOf is the shape of instances that are wanted.
func shapeOf(groups []*group) []string {
	var p change.Partitioning
	for _, g := range groups {
		i := state.Instance{Profile: g.profile.ID}
		for _, c := range g.parts {
			i.Parts = append(i.Parts, state.Part{Profile: c.ID})
		}
		p.Instances = append(p.Instances, i)
	}
	return shape(&p)
}

// search looks for an order in which all instances find room where the driver puts them.
type search struct {
	failed map[string]bool // what was there, of which no order of the rest fits
	late   *group          // an instance that found no room after as many others as possible
	most   int
}

// fit orders GPU instances so that each finds room where the driver puts it; the largest come first if they can. If there
// is no such order, late is an instance that finds none.
func fit(p *change.Partitioning, groups []*group) (order []*group, late *group) {
	rest := slices.Clone(groups)
	slices.SortStableFunc(rest, func(a, b *group) int {
		return int(b.profile.PlacementSize.Value) - int(a.profile.PlacementSize.Value)
	})
	s := search{failed: map[string]bool{}, most: -1}
	if order, ok := s.rest(p, rest); ok {
		return order, nil
	}
	return nil, s.late
}

// rest is fit for those that are left. Of several with one profile it tries one.
func (s *search) rest(p *change.Partitioning, rest []*group) (order []*group, ok bool) {
	if len(rest) == 0 {
		return nil, true
	}
	var there []string
	for _, i := range p.Instances {
		there = append(there, fmt.Sprint(i.Profile, i.Start))
	}
	slices.Sort(there)
	key := strings.Join(there, ",")
	if s.failed[key] {
		return nil, false
	}
	tried := map[*profiles.GPUInstanceProfile]bool{}
	for i, g := range rest {
		if tried[g.profile] {
			continue
		}
		tried[g.profile] = true
		start, ok := p.Choose(g.profile)
		if !ok {
			if len(p.Instances) > s.most {
				s.late, s.most = g, len(p.Instances)
			}
			continue
		}
		if more, ok := s.rest(p.With(g.profile, start), slices.Delete(slices.Clone(rest), i, i+1)); ok {
			return append([]*group{g}, more...), true
		}
	}
	s.failed[key] = true
	return nil, false
}

// build makes a GPU instance and its compute instances.
func (m GPU) build(g *group) error {
	made, ret := m.CreateGPUInstance(m.Index, g.profile.ID, nil)
	if err := Refused(ret); err != nil {
		return err
	}
	p, err := m.Cut()
	if err != nil {
		return err
	}
	starts, _ := laid(p.ComputeProfiles(g.profile), g.parts)
	for i, c := range g.parts {
		if _, ret := m.CreateComputeInstance(m.Index, made.Serial, c.ID, &starts[i]); Refused(ret) != nil {
			return Refused(ret)
		}
	}
	return nil
}

// GPU changes the instances of one GPU.
type GPU struct {
	*change.Tx
	Index int
}

// Refused is the error for an answer of NVML that nothing has explained before.
func Refused(ret abi.Return) error {
	if ret == abi.SUCCESS {
		return nil
	}
	return fmt.Errorf("NVML answers %d", ret)
}

// Mode switches MIG mode.
func (m GPU) Mode(on bool) error {
	d, err := m.Device(m.Index)
	switch {
	case err != nil:
		return err
	case !d.MIG.ModeCurrent.Valid:
		if !on {
			return nil
		}
		return errors.New("it has no MIG mode")
	case bool(d.MIG.ModeCurrent.Value) == on && d.MIG.ModePending == d.MIG.ModeCurrent:
		return nil
	}
	mode := abi.EnableState_t(abi.FEATURE_DISABLED)
	if on {
		mode = abi.FEATURE_ENABLED
	}
	return Refused(m.MigMode(m.Index, mode))
}

// Cut is how the GPU is cut, which must be in MIG mode.
func (m GPU) Cut() (*change.Partitioning, error) {
	d, err := m.Device(m.Index)
	switch {
	case err != nil:
		return nil, err
	case !d.MIG.ModeCurrent.Valid:
		return nil, errors.New("it has no MIG mode")
	case !bool(d.MIG.ModeCurrent.Value):
		return nil, errors.New("MIG mode is off: switch it on with nvmlfab mig create --enable, or nvidia-smi -mig 1")
	}
	return m.Partitioning(m.Index), nil
}

// Destroy removes a GPU instance and what is in it.
func (m GPU) Destroy(i state.Instance) error {
	for _, part := range i.Parts {
		if ret := m.DestroyComputeInstance(m.Index, part.Serial); ret != abi.SUCCESS {
			return Refused(ret)
		}
	}
	return Refused(m.DestroyGPUInstance(m.Index, i.Serial))
}

// about says which GPU an error is about.
func about(i int, err error) error {
	if gpu := fmt.Sprintf("GPU %d: ", i); !strings.HasPrefix(err.Error(), gpu) {
		return fmt.Errorf("%s%w", gpu, err)
	}
	return err
}
