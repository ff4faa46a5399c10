package capture

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/draft"
)

// Options say how a profile is made.
type Options struct {
	// KeepIdentifiers keeps UUIDs, serial numbers and other identifiers, and the folders of programs. Otherwise they are replaced by
	// made-up ones.
	KeepIdentifiers bool
}

// Profile makes a profile of what a library answered. With it, nvmlfab's library answers alike, as far as keys of a profile can say it;
// Compare tells what they cannot. more are settings of the GPUs beside those that answers give.
func Profile(w *Walk, o Options, more map[int][]draft.Setting) ([]byte, error) {
	if w.GPUs == 0 {
		return nil, ErrNoGPU
	}
	root := draft.Map()
	m := &maker{walk: w, options: o}
	m.driver, _ = w.find("nvmlSystemGetDriverVersion", "", "").text("version")
	m.version = profiles.NVML(profiles.Branch(m.driver)).Number
	m.system(root)
	m.vgpuVersions(root)
	var all [][]draft.Setting
	for i := range w.GPUs {
		g := &gpu{maker: m, index: i, name: fmt.Sprintf("GPU %d", i)}
		g.make()
		all = append(all, append(g.settings, more[i]...))
	}
	draft.PutDevices(root, all)
	m.nvlink(root)
	m.topology(root)
	m.migTable(root)
	m.units(root)
	comment := fmt.Sprintf("# Made by nvmlfab capture of what an NVML library answered, with driver %s.\n", cmp.Or(m.driver, "unknown"))
	if !o.KeepIdentifiers {
		comment += "# UUIDs, serial numbers and other identifiers are replaced by made-up ones.\n"
	}
	return draft.Write(comment+"\n", root)
}

// maker makes a profile.
type maker struct {
	walk    *Walk
	options Options
	driver  string
	version int // of NVML, by the driver
}

// source is a comment that says where a value is from.
func (m *maker) source(call string) string {
	return fmt.Sprintf("# %s, driver %s", call, cmp.Or(m.driver, "unknown"))
}

// from puts a comment on a value.
func (m *maker) from(call string, n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.ScalarNode || n.Style == yaml.FlowStyle {
		n.LineComment = m.source(call)
	} else if len(n.Content) > 0 {
		n.Content[0].HeadComment = m.source(call)
	}
	return n
}

// put puts a value into the profile.
func (m *maker) put(root *yaml.Node, key, call string, n *yaml.Node) {
	draft.Put(root, key, m.from(call, n))
}

func uintNode(n uint64) *yaml.Node { return draft.Num(strconv.FormatUint(n, 10)) }

// system makes what the machine says about itself.
func (m *maker) system(root *yaml.Node) {
	if m.driver != "" {
		m.put(root, "system.driver_version", "nvmlSystemGetDriverVersion", draft.Text(m.driver))
	}
	if v, ok := m.walk.find("nvmlSystemGetNVMLVersion", "", "").text("version"); ok {
		m.put(root, "system.nvml_version", "nvmlSystemGetNVMLVersion", draft.Text(v))
	}
	for _, f := range []string{"nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"} {
		if v, ok := m.walk.find(f, "", "").number("cudaDriverVersion"); ok {
			m.put(root, "system.cuda_version", f, &yaml.Node{Kind: yaml.ScalarNode, Style: yaml.DoubleQuotedStyle, Value: fmt.Sprintf("%d.%d", v/1000, v%1000/10)})
			break
		}
	}
}

// gpu makes the settings of a GPU.
type gpu struct {
	*maker
	index    int
	name     string
	settings []draft.Setting
}

// find is the answer to a call about the GPU. A field is found by its number in the newest version, and its scope stands for the arguments.
func (g *gpu) find(function, args string) *Answer {
	id, ok := strings.CutPrefix(function, "field ")
	if !ok {
		return g.walk.find(function, g.name, args)
	}
	newest, _ := strconv.Atoi(id)
	return g.walk.find("nvmlDeviceGetFieldValues", g.name, fmt.Sprintf("fieldId %d, scopeId %s", numberIn(g.version, uint32(newest)), args))
}

// numberIn is the number that a field of the newest version has in a version.
func numberIn(version int, newest uint32) uint32 {
	for n := range uint32(abi.FI_MAX) {
		if n != newest && abi.FieldID(version, n) == newest {
			return n
		}
	}
	return newest
}

func (g *gpu) set(key, call string, n *yaml.Node) {
	g.settings = append(g.settings, draft.Setting{Key: key, Value: g.from(call, n)})
}

func (g *gpu) has(key string) bool {
	return slices.ContainsFunc(g.settings, func(s draft.Setting) bool { return s.Key == key })
}

func (g *gpu) make() {
	g.identity()
	for _, r := range rows {
		if g.has(r.key) {
			continue
		}
		a := g.find(r.function, r.args)
		if n := r.as.node(a.value(r.path), r.path, g.options); n != nil {
			g.set(r.key, a.Function+ofField(a), n)
		}
	}
	g.memory()
	g.power()
	g.fan()
	g.errors()
	g.reasons()
	g.clocks()
	g.processes()
	g.fabric()
	g.modes()
	g.instances()
	g.vgpu()
}

// ofField is the number of a field, for comments.
func ofField(a *Answer) string {
	if id, ok := strings.CutPrefix(a.Args, "fieldId "); ok {
		id, _, _ = strings.Cut(id, ",")
		return " " + id
	}
	return ""
}

// node is a value in a form; nil if there is none.
func (f form) node(value any, path string, o Options) *yaml.Node {
	var n uint64
	switch v := value.(type) {
	case nil:
		return nil
	case string:
		if f.private && !o.KeepIdentifiers {
			return nil
		}
		return draft.Text(v)
	case float64:
		return draft.Num(strconv.FormatFloat(v, 'g', -1, 64))
	case int64:
		n = uint64(v)
		if !f.signed && f.names == nil && v < 0 {
			return draft.Num(strconv.FormatInt(v, 10))
		}
	case uint64:
		n = v
	}
	switch {
	case slices.Contains(f.not, n):
		return nil
	case f.names != nil:
		name, ok := f.names[n]
		if !ok {
			return nil
		}
		if name == "true" || name == "false" {
			return draft.Num(name)
		}
		return draft.Text(name)
	case f.signed:
		return draft.Num(strconv.Itoa(int(int32(n))))
	case f.hex:
		return draft.Num(fmt.Sprintf("0x%08X", n))
	case f.divide != 0:
		return uintNode(n / f.divide)
	}
	return uintNode(n)
}

// same is the number of the first GPU with the same answer.
func (g *gpu) same(function, path string) int {
	own := g.find(function, "").value(path)
	for i := range g.index {
		other := gpu{maker: g.maker, name: fmt.Sprintf("GPU %d", i)}
		if other.find(function, "").value(path) == own {
			return i
		}
	}
	return g.index
}
