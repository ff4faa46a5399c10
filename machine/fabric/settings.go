package fabric

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Settings is what datagrams have changed in a fabric, and what the ports have counted that no daemon answers for: those of
// switches and of simulated hosts. A daemon that joins others late takes it over.
type Settings struct {
	Ports    []PortSettings
	Services []ServiceSettings
	Groups   []GroupSettings

	// Traffic is what ports of adapters have sent and received, by their GUIDs. What was cleared counts from it, so who takes
	// settings over has to know it first.
	Traffic map[uint64]Traffic `json:",omitempty"`
}

// PortSettings is what Set(PortInfo) has left of a port, and what the port has counted. Node is the node's GUID.
type PortSettings struct {
	Node   uint64
	Number int

	Disabled                 bool `json:",omitempty"`
	Widths, Speeds, Extended byte `json:",omitempty"` // that are enabled, as bits of PortInfo; 0: everything

	Counts *Counters `json:",omitempty"` // nil for a port of a host with a daemon, which counts itself
}

// ServiceSettings is a service record that a program has registered. Expires is the zero time if it stays.
type ServiceSettings struct {
	Record  []byte
	Expires time.Time `json:",omitzero"`
}

// GroupSettings is a multicast group. States says how ports have joined it, by their GUIDs.
type GroupSettings struct {
	MGID            []byte
	LID             uint16
	QKey            uint32
	MTU, Rate, Life byte
	Class           byte
	PKey            uint16
	Flow            uint32
	Scope           byte
	Permanent       bool            `json:",omitempty"`
	States          map[uint64]byte `json:",omitempty"`
}

// counted says whether a port's counters go with the settings.
func (f *Fabric) counted(p *Port) bool {
	return p.Node.Kind == Switch || p.Node.aggregates() || slices.Contains(f.Simulated, p.Node.Host)
}

// Settings returns what datagrams have changed.
func (f *Fabric) Settings(now time.Time) Settings {
	f.expire(now)
	var s Settings
	for _, n := range f.Nodes {
		for _, p := range n.Ports {
			if p == nil {
				continue
			}
			x := PortSettings{Node: n.GUID, Number: p.Number, Disabled: p.disabled, Widths: p.enabledWidths, Speeds: p.enabledSpeeds, Extended: p.enabledExtended}
			bare := x
			if c := p.settled(); f.counted(p) && len(c.Errors)+len(c.Cleared) > 0 {
				x.Counts = &c
			}
			if x.Counts != nil || bare != (PortSettings{Node: n.GUID, Number: p.Number}) {
				s.Ports = append(s.Ports, x)
			}
		}
	}
	if f.Traffic != nil {
		s.Traffic = map[uint64]Traffic{}
		for _, nodes := range f.hosts {
			for _, n := range nodes {
				for _, p := range n.Ports[1:] {
					if t := f.Traffic(p, now); t != (Traffic{}) {
						s.Traffic[p.GUID] = t
					}
				}
			}
		}
	}
	for _, x := range f.services {
		s.Services = append(s.Services, ServiceSettings{slices.Clone(x.record[:]), x.expires})
	}
	for _, g := range f.groups {
		s.Groups = append(s.Groups, GroupSettings{slices.Clone(g.mgid[:]), g.lid, g.qkey, g.mtu, g.rate, g.life, g.class, g.pkey, g.flow, g.scope, g.permanent, maps.Clone(g.states)})
	}
	return s
}

// settled is what a port has counted apart from what a fault that lasts has added: who takes that over counts it from the
// fault's beginning.
func (p *Port) settled() Counters {
	c := Counters{maps.Clone(p.counters.errors), maps.Clone(p.counters.clear)}
	for name, g := range p.counters.grow {
		before := growing{g.growth, g.since}.at(g.from) // which was counted already
		if c.Errors[name] > 0 {
			c.Errors[name] -= min(before, c.Errors[name])
		}
	}
	maps.DeleteFunc(c.Errors, func(_ Counter, n uint64) bool { return n == 0 })
	maps.DeleteFunc(c.Cleared, func(_ Counter, n uint64) bool { return n == 0 })
	return c
}

// SetSettings puts settings in the place of those so far, apart from their Traffic, which the caller has to let f.Traffic know of
// before. If one of them does not fit the fabric, nothing changes.
func (f *Fabric) SetSettings(s Settings, now time.Time) error {
	ports := map[*Port]PortSettings{}
	for _, x := range s.Ports {
		p := f.port(x.Node, x.Number)
		if p == nil {
			return fmt.Errorf("the fabric has no port %d of node %#016x", x.Number, x.Node)
		}
		ports[p] = x
	}
	var services []*service
	for _, x := range s.Services {
		if len(x.Record) != serviceSize || len(services) == maxServices {
			return fmt.Errorf("service %d of %d bytes is one too many or no service record", len(services), len(x.Record))
		}
		services = append(services, &service{[serviceSize]byte(x.Record), x.Expires})
	}
	var groups []*group
	for _, x := range s.Groups {
		if len(x.MGID) != 16 || x.LID < 0xc000 || len(groups) == maxGroups+len(ipoibGroups()) {
			return fmt.Errorf("multicast group %x with LID %#x is one too many or no group", x.MGID, x.LID)
		}
		g := &group{[16]byte(x.MGID), x.LID, x.QKey, x.MTU, x.Rate, x.Life, x.Class, x.PKey, x.Flow, x.Scope, x.Permanent, map[uint64]byte{}}
		maps.Copy(g.states, x.States)
		groups = append(groups, g)
	}

	f.count(now)
	for _, n := range f.Nodes {
		for _, p := range n.Ports {
			if p == nil {
				continue
			}
			x := ports[p]
			p.disabled, p.enabledWidths, p.enabledSpeeds, p.enabledExtended = x.Disabled, x.Widths, x.Speeds, x.Extended
		}
	}
	f.services, f.groups = services, groups
	f.expire(now)
	f.changed()
	for _, n := range f.Nodes {
		for _, p := range n.Ports {
			if p == nil || !f.counted(p) {
				continue
			}
			counts := Counters{}
			if c := ports[p].Counts; c != nil {
				counts = *c
			}
			p.Restore(counts) // after the links have settled, which counts those that go down
		}
	}
	return nil
}

// port is a node's port; nil if there is none.
func (f *Fabric) port(guid uint64, number int) *Port {
	if f.byNode == nil {
		f.byNode = map[uint64]*Node{}
		for _, n := range f.Nodes {
			f.byNode[n.GUID] = n
		}
	}
	n := f.byNode[guid]
	if n == nil || number < 0 || number >= len(n.Ports) {
		return nil
	}
	return n.Ports[number]
}
