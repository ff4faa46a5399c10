package fabric

// Settle works out what follows from cables and faults: the state and speed of each link, and the switches' routes. It is
// called after a change; a host that has left, a dead switch or a cut cable takes effect then.
func (f *Fabric) Settle() {
	for _, n := range f.Nodes {
		for _, p := range n.Ports {
			if p == nil {
				continue
			}
			before := p.State
			p.settle()
			if before == Active && p.State == Down {
				p.Count(LinkDowned, 1)
			}
		}
	}
	for _, n := range f.Nodes {
		if n.Kind == CA {
			for _, p := range n.Ports[1:] {
				p.hold()
			}
		}
	}
	f.route()
}

// hold keeps a port in the states that its description gives. The other end of a link that is held before it is active shows the
// same.
func (p *Port) hold() {
	hp := p.Node.HCA.Ports[p.Number-1]
	if hp.State != 0 && p.State == Active {
		p.State = hp.State
		if p.Remote != nil {
			p.Remote.State = hp.State
		}
	}
	if hp.Phys != 0 {
		p.Phys = hp.Phys
	}
}

func (p *Port) settle() {
	n, r := p.Node, p.Remote
	switch {
	case n.Kind == Switch && p.Number == 0:
		p.State, p.Phys, p.Width, p.Speed = Active, LinkUp, p.MaxWidth, p.MaxSpeed
		return
	case p.LinkLayer == Ethernet && !p.cut() && !p.disabled && !n.HCA.Ports[p.Number-1].Uncabled:
		p.State, p.Phys, p.Width, p.Speed = Active, LinkUp, p.MaxWidth, p.MaxSpeed
		p.slow(p.limit)
		return
	case p.disabled:
		p.State, p.Phys, p.Width, p.Speed = Down, Disabled, 4, SDR
		return
	case r == nil || p.cut() || r.cut() || r.disabled || n.down() || r.Node.down():
		p.State, p.Phys, p.Width, p.Speed = Down, Polling, 4, SDR
		return
	}
	p.State, p.Phys = Active, LinkUp
	p.MTU = min(p.MaxMTU, r.MaxMTU)
	p.Width, p.Speed = p.enabled(r)
	p.slow(p.limit)
	p.slow(r.limit)
}

// slow keeps the link below a limit.
func (p *Port) slow(l link) {
	if l.width != 0 {
		p.Width = min(p.Width, l.width)
	}
	if l.speed != 0 {
		p.Speed = min(p.Speed, l.speed)
	}
}

// cut says that a fault has the cable out.
func (p *Port) cut() bool { return p.pulled || p.flapped }

// enabled is the widest and the fastest link that both ends of a cable can make and have enabled.
func (p *Port) enabled(r *Port) (Width, Speed) {
	width, speed := Width(1), SDR
	for _, w := range []Width{2, 4, 8, 12} {
		if p.allows(w) && r.allows(w) {
			width = w
		}
	}
	for s := DDR; s <= XDR; s++ {
		if p.runs(s) && r.runs(s) {
			speed = s
		}
	}
	return width, speed
}

func (p *Port) allows(w Width) bool {
	return p.widths()&w.Bit() != 0 && (p.enabledWidths == 0 || p.enabledWidths&w.Bit() != 0)
}

func (p *Port) runs(s Speed) bool {
	basic, extended, _ := s.codes()
	switch {
	case s > p.MaxSpeed:
		return false
	case extended != 0:
		return p.enabledExtended == 0 || p.enabledExtended&extended != 0
	}
	return p.enabledSpeeds == 0 || p.enabledSpeeds&basic != 0
}

// down says that a node shows its neighbours no link.
func (n *Node) down() bool { return n.Dead || n.Away }

// unrouted is the port of a LID that cannot be reached, as in a linear forwarding table.
const unrouted = 255

// route fills in the switches' forwarding tables: the shortest way, spread by LID over ways of one length.
func (f *Fabric) route() {
	size := int(f.topLID) + 1
	var switches []*Node
	for _, n := range f.Nodes {
		if n.Kind == Switch {
			switches = append(switches, n)
			if len(n.lft) != size {
				n.lft = make([]uint8, size)
			}
			for i := range n.lft {
				n.lft[i] = unrouted
			}
		}
	}
	// Where each LID leaves the switches.
	at := map[*Node][]*Port{}
	for _, p := range f.byLID {
		switch {
		case p == nil:
		case p.Node.Kind == Switch:
			p.Node.lft[p.LID] = 0
			at[p.Node] = append(at[p.Node], p)
		case p.Up() && p.Remote.Node.Kind == Switch:
			p.Remote.Node.lft[p.LID] = uint8(p.Remote.Number)
			at[p.Remote.Node] = append(at[p.Remote.Node], p)
		}
	}
	distance := make([]int, len(f.Nodes))
	queue := make([]*Node, 0, len(switches))
	var ways []uint8
	for _, target := range switches {
		if target.down() {
			continue
		}
		for i := range distance {
			distance[i] = -1
		}
		distance[target.index] = 0
		queue = append(queue[:0], target)
		for i := 0; i < len(queue); i++ {
			n := queue[i]
			for _, p := range n.Ports[1:] {
				if r := p.Remote; p.Up() && r.Node.Kind == Switch && distance[r.Node.index] < 0 {
					distance[r.Node.index] = distance[n.index] + 1
					queue = append(queue, r.Node)
				}
			}
		}
		for _, n := range queue[1:] {
			ways = ways[:0]
			for _, p := range n.Ports[1:] {
				if r := p.Remote; p.Up() && r.Node.Kind == Switch && distance[r.Node.index] == distance[n.index]-1 {
					ways = append(ways, uint8(p.Number))
				}
			}
			for _, p := range at[target] {
				n.lft[p.LID] = ways[int(p.LID)%len(ways)]
			}
		}
	}
}

// Path returns the ports that a packet from one port to a LID goes through: out, in, out, in, … It returns nil if there is
// no way.
func (f *Fabric) Path(from *Port, lid uint16) []*Port {
	to := f.ByLID(lid)
	if to == nil || from == nil {
		return nil
	}
	if to == from {
		return []*Port{}
	}
	var path []*Port
	at := from
	if from.Node.Kind == Switch {
		at = nil
	}
	n := from.Node
	for hops := 0; hops < 64; hops++ {
		if at == nil {
			if n.Kind != Switch || n.down() || int(lid) >= len(n.lft) || n.lft[lid] == unrouted {
				return nil
			}
			if n.lft[lid] == 0 {
				if to.Node != n {
					return nil
				}
				return path
			}
			at = n.Ports[n.lft[lid]]
		}
		if !at.Up() {
			return nil
		}
		path = append(path, at, at.Remote)
		if at.Remote == to {
			return path
		}
		n, at = at.Remote.Node, nil
	}
	return nil
}
