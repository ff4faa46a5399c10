package fabric

// group is a multicast group that the subnet manager keeps: the broadcast groups of IPoIB, which every port is in.
type group struct {
	mgid [16]byte
	lid  uint16
}

// groups are those that a subnet with IPoIB always has: broadcast, all hosts of IPv4 and all nodes of IPv6.
var groups = []group{
	{[16]byte{0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 12: 0xff, 13: 0xff, 14: 0xff, 15: 0xff}, 0xc000},
	{[16]byte{0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 15: 1}, 0xc001},
	{[16]byte{0xff, 0x12, 0x60, 0x1b, 0xff, 0xff, 15: 1}, 0xc002},
}

// members are the ports in every group: those of adapters with a link.
func (f *Fabric) members() []*Port {
	var ports []*Port
	for _, n := range f.Nodes {
		if n.Kind == CA {
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
// tree: to the adapters of the switch, and from each switch along its way to the root.
func (f *Fabric) multicast(n *Node, modifier uint32, data []byte) {
	if modifier&0x1ff != 0 {
		return
	}
	first := int(modifier>>28) * 16
	var mask uint16
	for i := range 16 {
		if number := first + i; number > 0 && number < len(n.Ports) && f.inTree(n.Ports[number]) {
			mask |= 1 << i
		}
	}
	for i := range groups {
		be.PutUint16(data[2*i:], mask)
	}
}

// inTree says whether a cable belongs to the tree: it leads to an adapter, or it is the way of one end to the subnet manager.
func (f *Fabric) inTree(p *Port) bool {
	if !p.Up() {
		return false
	}
	r := p.Remote
	if r.Node.Kind == CA {
		return true
	}
	root := f.SM.LID
	return int(p.Node.lft[root]) == p.Number || int(r.Node.lft[root]) == r.Number
}
