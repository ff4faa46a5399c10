package importer

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nvmlfab/nvmlfab/profiles"
	"gopkg.in/yaml.v3"
)

// neighbours adds the NVLinks and the way to other GPUs.
func (r *reader) neighbours(root *yaml.Node, all [][]setting) error {
	gpus := len(all)
	if r.topo != nil {
		r.file = r.topo.file
		for _, n := range slices.Sorted(maps.Keys(r.topo.rows)) {
			row := r.topo.rows[n]
			if n >= gpus {
				return r.wrong(row.line, "topo -m has a GPU%d, and -q has %d GPUs: are they of one machine?", n, gpus)
			}
			for _, to := range slices.Sorted(maps.Keys(row.level)) {
				level := row.level[to]
				if other := r.topo.rows[to]; other.level[n] != level {
					return r.wrong(row.line, "topo -m: GPU%d to GPU%d is %s, and back it is %s", n, to, quoted(level), quoted(other.level[n]))
				}
			}
		}
		if len(r.topo.rows) != gpus {
			return r.wrong(r.topo.line, "topo -m has %d GPUs, and -q has %d: are they of one machine?", len(r.topo.rows), gpus)
		}
		if err := r.complexes(root); err != nil {
			return err
		}
	}
	return r.nvlinks(root, gpus)
}

// near says how close two GPUs are: below one host bridge if it is at least 1.
var near = map[string]int{"PIX": 3, "PXB": 2, "PHB": 1}

// complexes puts GPUs that are below one host bridge into a root complex.
func (r *reader) complexes(root *yaml.Node) error {
	group := map[int]int{}
	numbers := slices.Sorted(maps.Keys(r.topo.rows))
	for _, n := range numbers {
		group[n] = n
		for _, to := range numbers {
			if to < n && near[r.topo.rows[n].level[to]] > 0 {
				group[n] = group[to]
				break
			}
		}
	}
	var nodes []*yaml.Node
	for _, first := range numbers {
		if group[first] != first {
			continue
		}
		row := r.topo.rows[first]
		complex := &yaml.Node{Kind: yaml.MappingNode}
		var ids []*yaml.Node
		levels := map[string]bool{}
		for _, n := range numbers {
			if group[n] != first {
				continue
			}
			ids = append(ids, text(r.log.gpus[n].id.value))
			for _, to := range numbers {
				if to != n && group[to] == first {
					levels[r.topo.rows[n].level[to]] = true
				}
			}
			if other := r.topo.rows[n]; other.cpus != row.cpus || other.numa != row.numa {
				r.note(other.line, "GPU%d gets the CPUs of GPU%d, which is below the same host bridge", n, first)
			}
		}
		var id profiles.BusID
		if err := id.UnmarshalText([]byte(r.log.gpus[first].id.value)); err != nil {
			return r.wrong(row.line, "%s", err)
		}
		put(complex, "id", text(fmt.Sprintf("pci%04x:%02x", id.Domain, id.Bus)))
		if row.numa != "" && strings.Trim(row.numa, "0123456789") == "" {
			put(complex, "numa_node", num(row.numa))
		} else if row.numa != "" {
			r.note(row.line, "left out: GPU%d has the NUMA nodes %s, and a profile knows one", first, row.numa)
		}
		if row.cpus != "" {
			put(complex, "cpu_affinity", text(row.cpus))
		}
		put(complex, "devices", list(ids...))
		nodes = append(nodes, complex)
		for _, l := range []struct{ printed, word string }{{"PIX", "single"}, {"PXB", "multiple"}} {
			if levels[l.printed] && len(levels) == 1 {
				r.level(root, group, first, l.word)
			} else if levels[l.printed] {
				r.note(row.line, "%s of GPU%d becomes PHB: a profile knows one level below a host bridge", l.printed, first)
			}
		}
	}
	put(root, "topology.root_complexes", &yaml.Node{Kind: yaml.SequenceNode, Content: nodes})
	return nil
}

// level gives the GPUs of a group a level of the path between them.
func (r *reader) level(root *yaml.Node, group map[int]int, of int, word string) {
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value != "devices" {
			continue
		}
		for n, device := range root.Content[i+1].Content {
			if group[n] == of {
				put(device, "topology.default_level", text(word))
			}
		}
	}
}

// generations are the NVLink generations by the chip's.
var generations = map[string]int{"pascal": 1, "volta": 2, "turing": 2, "ampere": 3, "hopper": 4, "blackwell": 5}

// nvlinks adds the NVLinks.
func (r *reader) nvlinks(root *yaml.Node, gpus int) error {
	bonded := r.bonds()
	if len(r.links) == 0 {
		if len(bonded) > 0 {
			r.file = r.topo.file
			r.note(r.topo.line, "the GPUs are connected by NVLinks: nvlink -s says how many each has, and how fast they are")
		}
		return nil
	}
	r.file = r.links[0].file
	most, speed, line := 0, 0, r.links[0].line
	for _, l := range r.links {
		if l.gpu >= gpus {
			return r.wrong(l.line, "nvlink -s has a GPU %d, and -q has %d GPUs: are they of one machine?", l.gpu, gpus)
		}
		most = max(most, len(l.links))
		for _, link := range l.links {
			if speed != 0 && link.speed != 0 && link.speed != speed {
				return r.wrong(link.line, "nvlink -s: link %d has another speed than those before: a profile knows one", link.number)
			}
			speed = max(speed, link.speed)
		}
	}
	if v, ok := generations[strings.ToLower(r.log.gpus[0].value("product_architecture"))]; ok {
		put(root, "nvlink.version", num(strconv.Itoa(v)))
	} else {
		r.note(line, "give nvlink.version: nvlink -s does not print it")
	}
	put(root, "nvlink.links_per_gpu", num(strconv.Itoa(most)))
	if speed == 0 {
		put(root, "nvlink.defaults.state", text("inactive"))
		return nil
	}
	put(root, "nvlink.bandwidth_per_link_mbps", num(strconv.Itoa(speed)))
	put(root, "nvlink.defaults.state", text("active"))
	switched := false
	var lists []*yaml.Node
	for _, l := range r.links {
		to := []int{} // the far end of each active link, if it is a GPU
		for _, other := range slices.Sorted(maps.Keys(bonded[l.gpu])) {
			to = append(to, slices.Repeat([]int{other}, bonded[l.gpu][other])...)
		}
		active := 0
		for _, link := range l.links {
			if link.speed > 0 {
				active++
			}
		}
		direct := len(to) == active
		switched = switched || len(to) > active
		var nodes []*yaml.Node
		for _, link := range l.links {
			switch {
			case link.speed == 0:
				nodes = append(nodes, pairs("link", num(strconv.Itoa(link.number)), "state", text("inactive")))
			case direct:
				nodes = append(nodes, pairs("link", num(strconv.Itoa(link.number)), "remote_index", num(strconv.Itoa(to[0]))))
				to = to[1:]
			}
		}
		if len(nodes) > 0 {
			entry := &yaml.Node{Kind: yaml.MappingNode}
			put(entry, "index", num(strconv.Itoa(l.gpu)))
			put(entry, "links", &yaml.Node{Kind: yaml.SequenceNode, Content: nodes})
			lists = append(lists, entry)
		}
	}
	if lists != nil {
		put(root, "nvlink.device_links", &yaml.Node{Kind: yaml.SequenceNode, Content: lists})
	}
	switch {
	case switched:
		r.note(line, "the NVLinks end at switches, whose number nvidia-smi does not print: the profile has one")
		put(root, "nvlink.switches", list(pairs("bdf", text("0000:fe:00.0"), "uuid", text("NVSwitch-0"))))
	case gpus > 1 && len(bonded) == 0:
		r.note(line, "where the NVLinks end is not printed: topo -m says it")
	}
	return nil
}

// bonds are the numbers of NVLinks between GPUs by topo -m.
func (r *reader) bonds() map[int]map[int]int {
	all := map[int]map[int]int{}
	if r.topo == nil {
		return all
	}
	for n, row := range r.topo.rows {
		for to, level := range row.level {
			if count, ok := strings.CutPrefix(level, "NV"); ok {
				links, _ := strconv.Atoi(count) // the expression lets only numbers through
				if all[n] == nil {
					all[n] = map[int]int{}
				}
				all[n][to] = links
			}
		}
	}
	return all
}
