package fabric

import "slices"

// group is a multicast group that the subnet manager keeps.
type group struct {
	mgid            [16]byte
	lid             uint16
	qkey            uint32
	mtu, rate, life byte // as codes
	class           byte
	pkey            uint16
	flow            uint32
	scope           byte

	permanent bool            // every adapter's port with a link is in it, unless it has left
	states    map[uint64]byte // how a port has joined, by its GUID
}

// ipoibGroups are those that a subnet with IPoIB always has: broadcast, all hosts of IPv4 and all nodes of IPv6.
func ipoibGroups() []*group {
	var groups []*group
	for i, mgid := range [][16]byte{
		{0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 12: 0xff, 13: 0xff, 14: 0xff, 15: 0xff},
		{0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 15: 1},
		{0xff, 0x12, 0x60, 0x1b, 0xff, 0xff, 15: 1},
	} {
		groups = append(groups, &group{mgid: mgid, lid: 0xc000 + uint16(i), qkey: 0xb1b, mtu: MTUCode(2048), rate: rateCode(100), life: 0x12, pkey: 0xffff,
			scope: 2, permanent: true, states: map[uint64]byte{}})
	}
	return groups
}

func (f *Fabric) group(mgid [16]byte) *group {
	i := slices.IndexFunc(f.groups, func(g *group) bool { return g.mgid == mgid })
	if i < 0 {
		return nil
	}
	return f.groups[i]
}

// state says how a port is in a group; 0 if it is not.
func (g *group) state(p *Port) byte {
	if s, ok := g.states[p.GUID]; ok {
		return s
	}
	if g.permanent && p.Node.Kind == CA && !p.Node.aggregates() && p.Up() {
		return fullMember
	}
	return 0
}

func (g *group) join(p *Port, state byte) {
	if state == 0 && !g.permanent {
		delete(g.states, p.GUID)
		return
	}
	g.states[p.GUID] = state
}

// members are those of a list of ports that are in the group.
func (g *group) members(ports []*Port) []*Port {
	var in []*Port
	for _, p := range ports {
		if g.state(p) != 0 {
			in = append(in, p)
		}
	}
	return in
}

// sweepGroups ends groups without a full member.
func (f *Fabric) sweepGroups() {
	f.groups = slices.DeleteFunc(f.groups, func(g *group) bool {
		for _, s := range g.states {
			if s&fullMember != 0 {
				return false
			}
		}
		return !g.permanent
	})
}

// members are the ports that can be in a group: those of adapters with a link.
func (f *Fabric) members() []*Port {
	var ports []*Port
	for _, n := range f.Nodes {
		if n.Kind == CA && !n.aggregates() {
			for _, p := range n.subnetPorts() {
				if p.Up() {
					ports = append(ports, p)
				}
			}
		}
	}
	return ports
}

// multicast fills in 32 entries of a switch's multicast forwarding table for 16 of its ports. A group's packets go along one
// tree, which has the way of each member to the root, the subnet manager's switch.
func (f *Fabric) multicast(n *Node, modifier uint32, data []byte) {
	block, first := int(modifier&0x1ff), int(modifier>>28)*16
	for _, g := range f.groups {
		entry := int(g.lid) - 0xc000 - 32*block
		if entry < 0 || entry >= 32 {
			continue
		}
		var mask uint16
		for i := range 16 {
			if number := first + i; number > 0 && number < len(n.Ports) && f.inTree(n.Ports[number], g) {
				mask |= 1 << i
			}
		}
		be.PutUint16(data[2*entry:], mask)
	}
}

// inTree says whether a cable belongs to the tree of a group: it leads to a member, or it is on the way of one to the root.
func (f *Fabric) inTree(p *Port, g *group) bool {
	if !p.Up() {
		return false
	}
	r := p.Remote
	if r.Node.Kind == CA {
		return g.state(r) != 0
	}
	root := f.SM.LID
	if int(p.Node.lft[root]) != p.Number && int(r.Node.lft[root]) != r.Number {
		return false
	}
	if g.permanent {
		return true
	}
	for guid := range g.states {
		if m := f.byGUID[guid]; m != nil && m.Up() && slices.Contains(f.Path(m, root), p) {
			return true
		}
	}
	return false
}
