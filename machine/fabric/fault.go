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

// SetFaults puts faults in the place of those so far. If one of them is wrong, nothing changes.
func (f *Fabric) SetFaults(self string, faults []Fault, now time.Time) error {
	type found struct {
		Fault
		node  *Node
		ports []*Port
	}
	var all []found
	for _, x := range faults {
		n, ports, err := f.Find(cmp.Or(x.Host, self), x.Target)
		switch {
		case err != nil:
		case !slices.Contains(FaultKinds(), x.Kind):
			err = fmt.Errorf("%q is no fault of a fabric", x.Kind)
		case x.Kind == DeadSwitch && (n.Kind != Switch || len(ports) > 0):
			err = fmt.Errorf("%q is no switch", x.Target)
		case x.Kind != DeadSwitch && len(ports) == 0:
			err = fmt.Errorf("%q is a switch: name one of its ports, such as %s/1", x.Target, x.Target)
		case x.Period < 0, x.PerSecond < 0:
			err = errors.New("a fault's period and rate cannot be below zero")
		}
		if err != nil {
			return err
		}
		all = append(all, found{x, n, ports})
	}
	symbols := map[*Port]growth{}
	f.flaps = nil
	for _, n := range f.Nodes {
		n.Dead = false
		for _, p := range n.Ports {
			if p != nil {
				p.cut, p.limit = false, link{}
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
				p.cut = true
			case Flapping:
				period := x.Period
				if period == 0 {
					period = 10 * time.Second
				}
				f.flaps = append(f.flaps, flap{p, x.Since, period})
				p.cut = p.cut || f.flaps[len(f.flaps)-1].down(now)
			case SymbolErrors:
				rate := x.PerSecond
				if rate == 0 {
					rate = 1
				}
				symbols[p] = growth{symbols[p].perSecond + rate, x.Since}
			case WrongRate:
				p.limit = link{x.Width, x.Speed}
				if x.Width == 0 && x.Speed == 0 {
					p.limit.speed = SDR
				}
			}
		}
	}
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

// Step brings the fabric to a time: flapping links go down and up. It says whether anything changed, and when it has to be
// called again; the zero time is never.
func (f *Fabric) Step(now time.Time) (changed bool, next time.Time) {
	for _, x := range f.flaps {
		if down := x.down(now); down != x.port.cut {
			x.port.cut = down
			changed = true
		}
		half := x.period / 2
		at := now.Add(half - max(0, now.Sub(x.since))%half)
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if changed {
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
