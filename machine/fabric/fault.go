package fabric

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FaultKind says what is wrong.
type FaultKind string

// The kinds of faults.
const (
	LinkDown     FaultKind = "link-down"     // a cable is pulled
	Flapping     FaultKind = "flapping"      // a cable is pulled and put back, again and again
	SymbolErrors FaultKind = "symbol-errors" // a port receives symbols that are none
	WrongRate    FaultKind = "wrong-rate"    // a link comes up slower, or with fewer lanes, than it could
	DeadSwitch   FaultKind = "dead-switch"   // a switch has lost power
)

// FaultKinds lists the kinds.
func FaultKinds() []FaultKind {
	return []FaultKind{LinkDown, Flapping, SymbolErrors, WrongRate, DeadSwitch}
}

// Fault is something wrong with a port or a switch.
type Fault struct {
	Kind FaultKind

	// Host is the one whose adapters go by their names in Target; empty: this one.
	Host string

	// Target is a node and, after a slash, the number of a port. An adapter of Host goes by its name, such as mlx5_0;
	// any node by its description, such as "dgx02 mlx5_0", by a GUID such as 0x946dae0300b7c9d0, or, a switch, by the name in
	// its description, such as leaf01. Without a number, all ports of an adapter are meant.
	Target string

	Since     time.Time
	Period    time.Duration // of Flapping: down for the first half and up for the second; 0: 10 seconds
	PerSecond float64       // of SymbolErrors; 0: 1
	Width     Width         // of WrongRate; 0: as it is
	Speed     Speed         // of WrongRate; 0: as it is. With neither, the speed is SDR
}

// Find returns the node that a fault's target names and its ports; self is the host whose adapters go by their names.
func (f *Fabric) Find(self, target string) (*Node, []*Port, error) {
	name, number, _ := strings.Cut(target, "/")
	if strings.HasPrefix(target, "MF0;") { // the description of a switch has a slash
		if i := strings.Index(target, "/U1"); i >= 0 {
			name, number = target[:i+3], strings.TrimPrefix(target[i+3:], "/")
		}
	}
	n := f.named(self, name)
	if n == nil {
		return nil, nil, fmt.Errorf("the fabric has no node %q", name)
	}
	if number == "" {
		if n.Kind == Switch {
			return n, nil, nil
		}
		return n, n.Ports[1:], nil
	}
	p, err := strconv.Atoi(number)
	if err != nil || p < 1 || p >= len(n.Ports) {
		return nil, nil, fmt.Errorf("%q has no port %q; it has 1 to %d", name, number, len(n.Ports)-1)
	}
	return n, n.Ports[p : p+1], nil
}

func (f *Fabric) named(self, name string) *Node {
	for _, n := range f.hosts[self] {
		if n.HCA.Name == name {
			return n
		}
	}
	if digits, ok := strings.CutPrefix(name, "0x"); ok {
		guid, err := strconv.ParseUint(digits, 16, 64)
		if i := slices.IndexFunc(f.Nodes, func(n *Node) bool { return n.GUID == guid }); err == nil && i >= 0 {
			return f.Nodes[i]
		}
	}
	for _, n := range f.Nodes {
		if n.Description == name || n.Kind == Switch && strings.HasPrefix(n.Description, "MF0;"+name+":") {
			return n
		}
	}
	return nil
}

// Name is what a fault's target calls a node: an adapter of self goes by its name, a switch by the name in its description, and
// others by their descriptions, or by a GUID if another node has the same one.
func (f *Fabric) Name(self string, n *Node) string {
	name := n.Description
	if host, ok := strings.CutPrefix(name, "MF0;"); ok && n.Kind == Switch {
		name, _, _ = strings.Cut(host, ":")
	} else if n.Kind == CA && n.Host == self {
		name = n.HCA.Name
	}
	if strings.Contains(name, "/") || f.named(self, name) != n {
		return fmt.Sprintf("0x%016x", n.GUID)
	}
	return name
}

// Names are the names of all nodes, those of self first.
func (f *Fabric) Names(self string) (names []string) {
	for _, n := range f.hosts[self] {
		names = append(names, f.Name(self, n))
	}
	for _, n := range f.Nodes {
		if n.Kind != CA || n.Host != self {
			names = append(names, f.Name(self, n))
		}
	}
	return names
}

// found is a fault and what it is about.
type found struct {
	Fault
	node  *Node
	ports []*Port
}

// find returns what a fault is about, or an error if there is no such fault.
func (f *Fabric) find(self string, x Fault) (found, error) {
	n, ports, err := f.Find(cmp.Or(x.Host, self), x.Target)
	switch {
	case err != nil:
	case !slices.Contains(FaultKinds(), x.Kind):
		err = fmt.Errorf("%q is no fault of a fabric", x.Kind)
	case x.Kind == DeadSwitch && (n.Kind != Switch || len(ports) > 0):
		err = fmt.Errorf("%q is no switch, or is a port of one", f.Name(cmp.Or(x.Host, self), n))
	case x.Kind != DeadSwitch && len(ports) == 0:
		err = fmt.Errorf("%q is a switch: name one of its ports, such as %s/1", x.Target, x.Target)
	case x.Period < 0, x.PerSecond < 0:
		err = errors.New("a fault's period and rate cannot be below zero")
	}
	return found{x, n, ports}, err
}

// Has returns an error if there is no such fault, or if the fabric does not have what it is about.
func (f *Fabric) Has(self string, x Fault) error {
	_, err := f.find(self, x)
	return err
}

// limit is the fastest link that a fault of the kind WrongRate leaves.
func (x *Fault) limit() link {
	if x.Width == 0 && x.Speed == 0 {
		return link{speed: SDR}
	}
	return link{x.Width, x.Speed}
}

// Check returns an error if a fault cannot be, or if it would change nothing.
func (f *Fabric) Check(self string, x Fault) error {
	all, err := f.find(self, x)
	if err != nil {
		return err
	}
	for _, p := range all.ports {
		cable := p.Remote != nil || p.LinkLayer == Ethernet && !p.Node.HCA.Ports[p.Number-1].Uncabled
		if !cable {
			return fmt.Errorf("no cable is in port %d of %q", p.Number, f.Name(self, p.Node))
		}
		width, speed := p.MaxWidth, p.MaxSpeed
		if p.Remote != nil {
			width, speed = p.enabled(p.Remote)
		}
		limit := x.limit()
		if x.Kind == WrongRate && (limit.width == 0 || limit.width >= width) && (limit.speed == 0 || limit.speed >= speed) {
			return fmt.Errorf("port %d of %q is no faster without the fault: its link is %dX %s", p.Number, f.Name(self, p.Node), width, speed)
		}
		if x.Kind == WrongRate && limit.width != 0 && p.widths()&limit.width.Bit() == 0 {
			return fmt.Errorf("port %d of %q cannot have a link of %d lanes", p.Number, f.Name(self, p.Node), limit.width)
		}
	}
	return nil
}

// SetFaults puts faults in the place of those so far. If one of them is wrong, nothing changes.
func (f *Fabric) SetFaults(self string, faults []Fault, now time.Time) error {
	var all []found
	for _, x := range faults {
		one, err := f.find(self, x)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	f.count(now)
	symbols := map[*Port]growth{}
	f.flaps = nil
	for _, n := range f.Nodes {
		n.Dead = false
		for _, p := range n.Ports {
			if p != nil {
				p.pulled, p.flapped, p.limit = false, false, link{}
			}
		}
	}
	for _, x := range all {
		if x.Kind == DeadSwitch {
			x.node.Dead = true
		}
		for _, p := range x.ports {
			switch x.Kind {
			case LinkDown:
				p.pulled = true
			case Flapping:
				f.flaps = append(f.flaps, flap{p, x.Since, cmp.Or(x.Period, 10*time.Second)})
			case SymbolErrors:
				g := symbols[p]
				if g.since.IsZero() || x.Since.Before(g.since) {
					g.since = x.Since
				}
				g.perSecond += cmp.Or(x.PerSecond, 1)
				symbols[p] = g
			case WrongRate:
				p.limit = p.limit.and(x.limit())
			}
		}
	}
	f.flap(now)
	for _, n := range f.Nodes {
		for _, p := range n.Ports {
			if p != nil {
				p.grow(SymbolErrorCounter, symbols[p], now)
			}
		}
	}
	f.changed()
	return nil
}

// and is the slower of two limits.
func (l link) and(other link) link {
	if l.width == 0 || other.width != 0 && other.width < l.width {
		l.width = other.width
	}
	if l.speed == 0 || other.speed != 0 && other.speed < l.speed {
		l.speed = other.speed
	}
	return l
}

// flap is a cable that is pulled and put back.
type flap struct {
	port   *Port
	since  time.Time
	period time.Duration
}

func (x flap) down(now time.Time) bool {
	passed := now.Sub(x.since)
	return passed >= 0 && passed%x.period < x.period/2
}

// flap pulls the cables that flapping links have out at a time, and puts the others back. It says whether it changed anything.
func (f *Fabric) flap(now time.Time) (changed bool) {
	out := map[*Port]bool{}
	for _, x := range f.flaps {
		out[x.port] = out[x.port] || x.down(now)
	}
	for p, down := range out {
		changed = changed || down != p.flapped
		p.flapped = down
	}
	return changed
}

// Step brings the fabric to a time: flapping links go down and up. It says whether anything changed, and when it has to be
// called again; the zero time is never. Traffic is asked about every adapter.
func (f *Fabric) Step(now time.Time) (changed bool, next time.Time) {
	f.count(now)
	for _, x := range f.flaps {
		at := x.since
		if passed := now.Sub(x.since); passed >= 0 {
			end := x.period / 2
			if passed %= x.period; passed >= end {
				end = x.period
			}
			at = now.Add(end - passed)
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if changed = f.flap(now); changed {
		f.changed()
	}
	return changed, next
}

// SetAway says that a host has left, so that the other ends of its cables see no link, or that it is back.
func (f *Fabric) SetAway(host string, away bool) {
	f.SetPresent(func(name string) bool { return name != host && f.present(name) || name == host && !away })
}

// SetPresent says which hosts are there.
func (f *Fabric) SetPresent(present func(host string) bool) {
	changed := false
	for name, nodes := range f.hosts {
		for _, n := range nodes {
			if away := !present(name); away != n.Away {
				n.Away, changed = away, true
			}
		}
	}
	if changed {
		f.changed()
	}
}

func (f *Fabric) present(host string) bool {
	nodes := f.hosts[host]
	return len(nodes) == 0 || !nodes[0].Away
}

// changed settles the fabric after a change. The subnet manager sweeps once more then.
func (f *Fabric) changed() {
	f.Settle()
	f.activity++
}
