package fabric

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// lay makes the switches of a layout and cables the adapters to them.
func (f *Fabric) lay(l Layout, hosts []Host, cas []*Node, taken map[uint64]bool) error {
	radix := cmp.Or(l.Radix, 64)
	if radix < 4 || radix > 254 || radix%2 != 0 {
		return fmt.Errorf("a switch cannot have %d ports: it takes an even number from 4 to 254", radix)
	}
	w := &wirer{f: f, radix: radix, model: l.Switch, taken: taken, speed: SDR, aggregation: l.Aggregation}
	var ends []end
	for _, n := range cas {
		for k, p := range n.Ports[1:] {
			if hp := n.HCA.Ports[k]; p.LinkLayer == InfiniBand && !hp.Uncabled {
				ends = append(ends, end{p, hp.Rail, slices.IndexFunc(hosts, func(h Host) bool { return h.Name == n.Host })})
				w.speed = max(w.speed, p.MaxSpeed)
			}
		}
	}
	if len(ends) == 0 {
		return nil
	}
	switch l.Preset {
	case "", "switch":
		return w.star(ends)
	case "fat-tree":
		return w.fatTree(ends)
	case "rail-optimised":
		return w.rails(ends)
	case "none":
		return nil
	}
	return fmt.Errorf("%q is no layout; known are %s", l.Preset, strings.Join(Presets(), ", "))
}

// end is a port of an adapter that a layout cables.
type end struct {
	port *Port
	rail int
	host int
}

type wirer struct {
	f     *Fabric
	radix int
	model string
	speed Speed // the fastest of the adapters, which all switches can do
	taken map[uint64]bool

	aggregation bool
}

// make adds a switch with a number of ports.
func (w *wirer) make(name string, ports int) *Node {
	device, model := uint16(0xd2f2), "MQM9700"
	switch {
	case w.speed >= XDR:
		device, model = 0xd2f4, "Q3400"
	case w.speed <= HDR:
		device, model = 0xd2f0, "MQM8700"
	}
	model = cmp.Or(w.model, model)
	n := &Node{Kind: Switch, Description: fmt.Sprintf("MF0;%s:%s/U1", name, model), DeviceID: device, Revision: 0xa0, Managed: true}
	for n.GUID == 0 || w.taken[n.GUID] {
		n.GUID = guess(switchPrefix, name, n.GUID)
	}
	w.taken[n.GUID] = true
	n.System = n.GUID
	for i := range ports + 1 {
		p := newPort(n, i)
		p.MaxWidth, p.MaxSpeed, p.MTU, p.MaxMTU = 4, w.speed, 4096, 4096
		p.CapMask, p.CapMask2 = capMaskSwitch|capExtSpeeds|capHasMask2, capMask2(w.speed)
		n.Ports = append(n.Ports, p)
	}
	w.f.byGUID[n.GUID] = n.Ports[0]
	w.f.Nodes = append(w.f.Nodes, n)
	if w.aggregation && (w.speed == HDR || w.speed == NDR) && ports < unrouted-1 {
		w.aggregate(n)
	}
	return n
}

// aggregate gives a switch the port after its last cable's, and the aggregation node there.
func (w *wirer) aggregate(s *Node) {
	p := newPort(s, len(s.Ports))
	last := s.Ports[len(s.Ports)-1]
	p.MaxWidth, p.MaxSpeed, p.MTU, p.MaxMTU, p.CapMask, p.CapMask2 = last.MaxWidth, last.MaxSpeed, last.MTU, last.MaxMTU, last.CapMask, last.CapMask2
	s.Ports = append(s.Ports, p)
	n := &Node{Kind: CA, GUID: s.GUID + 8, System: s.GUID, Description: "Mellanox Technologies Aggregation Node", DeviceID: 0xcf09,
		HCA: &HCA{DeviceID: 0xcf09, NodeGUID: s.GUID + 8, SystemGUID: s.GUID, Ports: []HCAPort{{Speed: w.speed}}}}
	for w.taken[n.GUID] {
		n.GUID++
	}
	w.taken[n.GUID] = true
	own := newPort(n, 1)
	own.MaxWidth, own.MaxSpeed, own.MTU, own.MaxMTU = p.MaxWidth, p.MaxSpeed, p.MTU, p.MaxMTU
	own.CapMask, own.CapMask2 = 0x2610e848, p.CapMask2
	n.Ports = []*Port{nil, own}
	join(p, own)
	w.f.byGUID[n.GUID] = own
	w.f.inSwitches = append(w.f.inSwitches, n)
}

// aggregates says whether a node is an aggregation node: an adapter in no host.
func (n *Node) aggregates() bool { return n.Kind == CA && n.Host == "" }

// free is the first port of a switch without a cable.
func free(n *Node) *Port {
	for _, p := range n.Ports[1:] {
		if p.Remote == nil {
			return p
		}
	}
	return nil
}

func join(a, b *Port) { a.Remote, b.Remote = b, a }

// star puts everything on one switch.
func (w *wirer) star(ends []end) error {
	if len(ends) > 254 {
		return fmt.Errorf("%d ports do not fit on one switch, which has 254 at most; name the layout fat-tree or rail-optimised", len(ends))
	}
	s := w.make("leaf01", max(w.radix, len(ends)))
	for _, e := range ends {
		join(e.port, free(s))
	}
	return nil
}

// fatTree cables the adapters in order, half a switch to a leaf, and lays spines over the leaves.
func (w *wirer) fatTree(ends []end) error {
	half := w.radix / 2
	var leaves []*Node
	for i, group := range slices.Collect(slices.Chunk(ends, half)) {
		leaf := w.make(fmt.Sprintf("leaf%02d", i+1), w.radix)
		for _, e := range group {
			join(e.port, free(leaf))
		}
		leaves = append(leaves, leaf)
	}
	return w.over(leaves)
}

// rails cables port r of each host to leaf r of the host's group. A group is as many hosts as half a switch has ports.
func (w *wirer) rails(ends []end) error {
	half := w.radix / 2
	type key struct{ group, rail int }
	byLeaf := map[key][]end{}
	for _, e := range ends {
		k := key{e.host / half, e.rail}
		byLeaf[k] = append(byLeaf[k], e)
	}
	keys := []key{}
	for k := range byLeaf {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int { return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.rail, b.rail)) })
	var leaves []*Node
	for _, k := range keys {
		if len(byLeaf[k]) > half {
			return fmt.Errorf("rail %d has %d ports of %d hosts on one leaf, which has room for %d; give ports of a host different rails",
				k.rail, len(byLeaf[k]), half, half)
		}
		leaf := w.make(fmt.Sprintf("su%02d-rail%d", k.group+1, k.rail), w.radix)
		for _, e := range byLeaf[k] {
			join(e.port, free(leaf))
		}
		leaves = append(leaves, leaf)
	}
	return w.over(leaves)
}

// over connects leaves: by spines if those have enough ports, otherwise by pods of spines and by cores.
func (w *wirer) over(leaves []*Node) error {
	half := w.radix / 2
	switch n := len(leaves); {
	case n == 1:
		return nil
	case n <= w.radix:
		w.mesh(leaves, "spine%02d", half, w.radix)
		return nil
	case n > half*w.radix:
		return fmt.Errorf("%d leaves of %d ports need more than three tiers of switches", n, w.radix)
	}
	// Each pod has half a switch's leaves and as many spines. Spine i of every pod is cabled to the cores of plane i.
	planes := make([][]*Node, half)
	for p, pod := range slices.Collect(slices.Chunk(leaves, half)) {
		for i := range half {
			spine := w.make(fmt.Sprintf("pod%02d-spine%02d", p+1, i+1), w.radix)
			for _, leaf := range pod {
				join(free(leaf), free(spine))
			}
			planes[i] = append(planes[i], spine)
		}
	}
	for i, plane := range planes {
		w.mesh(plane, fmt.Sprintf("core%02d-", i+1)+"%02d", half, w.radix)
	}
	return nil
}

// mesh lays switches of radix ports over lower ones, each of which has a number of uplinks, so that every lower switch has
// the same number of cables to each upper one, as far as it goes.
func (w *wirer) mesh(lower []*Node, name string, uplinks, radix int) {
	each := max(1, min(uplinks, radix/len(lower))) // cables between one lower and one upper switch
	for i := 0; i*each < uplinks; i++ {
		upper := w.make(fmt.Sprintf(name, i+1), radix)
		for _, l := range lower {
			for range min(each, uplinks-i*each) {
				join(free(l), free(upper))
			}
		}
	}
}
