package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nvmlfab/nvmlfab/profiles"
	"gopkg.in/yaml.v3"
)

// mig adds what MIG needs and -q does not print: how the GPUs can be cut, from a shipped board with the chip of the first GPU
// that has MIG. It also makes the instances that there are.
func (r *reader) mig(all [][]setting) *yaml.Node {
	var board *profiles.Board
	idle := map[string]uint64{} // what an instance uses, in bytes
	for i, g := range r.log.gpus {
		if isAbsent(g.value("mig_mode/current_mig")) {
			continue
		}
		if board == nil {
			board = cuttable(all[i])
		}
		if board == nil {
			if len(g.instances) > 0 {
				r.note(g.id.line, "left out: the MIG devices of GPU %d: no shipped board with its chip says how it is cut", i)
			}
			continue
		}
		most := num(strconv.FormatUint(uint64(board.Devices[0].MIG.MaxGPUInstances.Value), 10))
		most.LineComment = "# not printed; of the shipped board " + board.Name
		all[i] = append(all[i], setting{Key: "mig.max_gpu_instances", Value: most, Line: g.id.line})
		if nodes := r.instances(g, board.MIG.GPUInstanceProfiles, idle); len(nodes) > 0 {
			all[i] = append(all[i], setting{Key: "mig.instances", Value: &yaml.Node{Kind: yaml.SequenceNode, Content: nodes}, Line: g.id.line})
		}
	}
	if board == nil {
		return nil
	}
	table := &yaml.Node{Kind: yaml.SequenceNode, HeadComment: "# not printed; of the shipped board " + board.Name}
	for _, p := range board.MIG.GPUInstanceProfiles {
		if n, ok := idle[p.Name]; ok {
			p.UsedBytes = profiles.Some(n)
		}
		table.Content = append(table.Content, cut(p))
	}
	return table
}

// cuttable is the shipped board with a GPU's chip, if it can be cut.
func cuttable(settings []setting) *profiles.Board {
	at := slices.IndexFunc(settings, func(s setting) bool { return s.Key == "pci.device_id" })
	if at < 0 {
		return nil
	}
	id, err := strconv.ParseUint(settings[at].Value.Value, 0, 32)
	if err != nil {
		return nil
	}
	for _, b := range shipped() {
		if b.Devices[0].PCI.DeviceID.Value == uint32(id) && len(b.MIG.GPUInstanceProfiles) > 0 {
			return b
		}
	}
	return nil
}

// cut writes a way to cut a GPU as a profile does.
func cut(p profiles.GPUInstanceProfile) *yaml.Node {
	content := []any{"name", text(p.Name), "id", num(strconv.FormatUint(uint64(p.ID), 10))}
	for _, v := range []struct {
		key   string
		value profiles.Opt[uint32]
	}{
		{"slices", p.Slices}, {"instances", p.Instances}, {"multiprocessors", p.Multiprocessors}, {"copy_engines", p.CopyEngines},
		{"encoders", p.Encoders}, {"decoders", p.Decoders}, {"jpegs", p.JPEGs}, {"ofas", p.OFAs}, {"placement_size", p.PlacementSize},
	} {
		if n, ok := v.value.Get(); ok {
			content = append(content, v.key, num(strconv.FormatUint(uint64(n), 10)))
		}
	}
	for _, v := range []struct {
		key   string
		value profiles.Opt[uint64]
	}{{"memory_mib", p.MemoryMiB}, {"used_bytes", p.UsedBytes}} {
		if n, ok := v.value.Get(); ok {
			content = append(content, v.key, num(strconv.FormatUint(n, 10)))
		}
	}
	if can, ok := p.P2P.Get(); ok {
		content = append(content, "p2p", num(strconv.FormatBool(can)))
	}
	var starts []*yaml.Node
	for _, s := range p.PlacementStarts {
		starts = append(starts, num(strconv.FormatUint(uint64(s), 10)))
	}
	return pairs(append(content, "placement_starts", list(starts...))...)
}

// instances makes a GPU's instances from its MIG devices: those with one number are parts of one instance. It puts into idle what
// an instance without programs uses.
func (r *reader) instances(g *gpu, table []profiles.GPUInstanceProfile, idle map[string]uint64) (nodes []*yaml.Node) {
	for i := 0; i < len(g.instances); {
		first := i
		for i < len(g.instances) && of(g.instances[i], "gpu_instance_id") == of(g.instances[first], "gpu_instance_id") {
			i++
		}
		parts := g.instances[first:i]
		if len(parts[0]) == 0 {
			r.note(g.id.line, "left out: a MIG device without values")
			continue
		}
		line := parts[0][0].line
		p := profileOf(parts, table)
		if p == nil {
			r.note(line, "left out: MIG device %s: it is cut in none of the ways that are known of the chip", of(parts[0], "index"))
			continue
		}
		if len(g.processes) == 0 {
			const mib = 1 << 20
			used, free := mebibytes(of(parts[0], "fb_memory_usage/used")), mebibytes(of(parts[0], "fb_memory_usage/free"))
			if over := used + free - p.MemoryMiB.Value; over <= 1 && used > 0 {
				idle[p.Name] = used*mib - over*mib/2
			}
		}
		content := []any{"profile", text(p.Name)}
		if compute := computes(parts, p, table); len(compute) > 0 {
			content = append(content, "compute", list(compute...))
		}
		nodes = append(nodes, pairs(content...))
	}
	return nodes
}

func mebibytes(value string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimSuffix(value, " MiB"), 10, 32) // 0 is of no use, nor is what is no number
	return n
}

// of is a value of a MIG device.
func of(device []leaf, path string) string {
	for _, l := range device {
		if l.path == path {
			return l.value
		}
	}
	return ""
}

// profileOf finds the way in which an instance is cut, by what its first part shares with the others.
func profileOf(parts [][]leaf, table []profiles.GPUInstanceProfile) *profiles.GPUInstanceProfile {
	const engines = "device_attributes/shared/"
	sms := 0
	for _, part := range parts {
		n, _ := strconv.Atoi(of(part, engines+"multiprocessor_count")) // 0 fits nothing
		sms += n
	}
	var found *profiles.GPUInstanceProfile
	for i := range table {
		p := &table[i]
		fits := of(parts[0], "fb_memory_usage/total") == fmt.Sprintf("%d MiB", p.MemoryMiB.Value) && sms > 0 &&
			uint32(sms) <= p.Multiprocessors.Value
		for name, n := range map[string]profiles.Opt[uint32]{
			"copy_engine_count": p.CopyEngines, "decoder_count": p.Decoders, "jpg_count": p.JPEGs, "ofa_count": p.OFAs,
		} {
			fits = fits && of(parts[0], engines+name) == strconv.FormatUint(uint64(n.Value), 10)
		}
		if fits && (found == nil || p.Multiprocessors.Value < found.Multiprocessors.Value) {
			found = p
		}
	}
	return found
}

// computes are the compute instances of an instance; none if one has all of it.
func computes(parts [][]leaf, p *profiles.GPUInstanceProfile, table []profiles.GPUInstanceProfile) (nodes []*yaml.Node) {
	slice := p.Multiprocessors.Value // of the smallest instance
	for _, other := range table {
		slice = min(slice, other.Multiprocessors.Value)
	}
	for _, part := range parts {
		sms, _ := strconv.Atoi(of(part, "device_attributes/shared/multiprocessor_count")) // profileOf has seen that it is a number
		if uint32(sms) == p.Multiprocessors.Value || slice == 0 {
			return nil
		}
		nodes = append(nodes, text(fmt.Sprintf("%dc.%s", uint32(sms)/slice, p.Name)))
	}
	return nodes
}
