package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// kind is what a PCI function is.
type kind int

const (
	gpu kind = iota
	nvswitch
	hca
	rootPort   // a port of a root complex
	upstream   // the port of a switch that leads to the root complex
	downstream // a port of a switch that leads to a device
)

func (k kind) bridge() bool { return k >= rootPort }

// function is one PCI function.
type function struct {
	kind   kind
	id     profiles.BusID
	gpu    *profiles.Device // nil unless it is one
	hca    *adapter         // likewise
	root   *root
	parent *function // nil directly below the root complex
	below  []*function

	// secondary and subordinate are the first and last bus below a bridge.
	secondary, subordinate uint8

	bars bars
	irq  int
}

// root is a root complex.
type root struct {
	domain uint32
	bus    uint8
	numa   int32
	cpus   []uint32 // near it; nil if nothing says which
	nvlink uint32   // generation of the machine's NVLink
	driver string   // version of the machine's driver
	level  string   // how far its GPUs are from one another, as NVML's levels; empty if nothing says
	grace  bool     // it is of a Grace CPU
	below  []*function

	switches []profiles.PCISwitch // below it, for GPUs and their adapters
}

func (r *root) name() string { return fmt.Sprintf("pci%04x:%02x", r.domain, r.bus) }

func (r *root) path() string { return "sys/devices/" + r.name() }

// path is where the function is in a tree.
func (f *function) path() string {
	if f.parent != nil {
		return f.parent.path() + "/" + address(f.id)
	}
	return f.root.path() + "/" + address(f.id)
}

// address writes a bus id as Linux does.
func address(id profiles.BusID) string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", id.Domain, id.Bus, id.Device, id.Function)
}

// elsewhere is the domain from which on a switch is none of this machine's PCI devices: machines of a rack share switches.
const elsewhere = 0xffff

// layout puts the board's GPUs and NVSwitches below root complexes. Those that the topology lists are as it says. Other
// devices get root complexes of their own, one for each row of consecutive buses and on the bus in front of the row; a
// device on bus 0 is on the root complex itself. GPUs and their InfiniBand adapters, if those are shown, are
// below a switch, and so are GPUs that the topology puts below one.
func layout(board *profiles.Board, adapters []*adapter) []*root {
	var devices []*function
	for i := range board.Devices {
		d := &board.Devices[i]
		devices = append(devices, &function{kind: gpu, id: d.PCI.BusID.Value, gpu: d})
	}
	for _, s := range board.NVLink.Switches {
		if s.BDF.Valid && s.BDF.Value.Domain < elsewhere {
			devices = append(devices, &function{kind: nvswitch, id: s.BDF.Value})
		}
	}
	switches := board.TopologySwitches()
	for _, a := range adapters {
		devices = append(devices, &function{kind: hca, id: a.BusID, hca: a})
	}
	if len(adapters) > 0 {
		switches = board.PCISwitches()
	}
	slices.SortStableFunc(devices, func(a, b *function) int { return compare(a.id, b.id) })
	devices = slices.CompactFunc(devices, func(a, b *function) bool { return a.id == b.id })

	var roots []*root
	left := devices
	for _, rc := range board.Topology.RootComplexes {
		var mine []*function
		mine, left = split(left, func(f *function) bool { return slices.Contains(rc.Devices, f.id) })
		if r := listed(board, rc, mine); r != nil {
			roots = append(roots, r)
		}
	}
	for _, s := range switches {
		var mine []*function
		if mine, left = split(left, func(f *function) bool { return s.Has(f.id) }); len(mine) > 0 {
			r := &root{domain: s.Domain, bus: uint8(s.Root), numa: -1}
			r.take(mine)
			roots = append(roots, r)
		}
	}
	roots = derive(roots, left)
	slices.SortStableFunc(roots, func(a, b *root) int {
		return cmp.Or(cmp.Compare(a.domain, b.domain), cmp.Compare(a.bus, b.bus))
	})
	for _, r := range roots {
		r.leave(switches)
		r.nvlink, r.driver = board.NVLink.Version.Or(0), board.System.DriverVersion.Value
		r.grace = slices.ContainsFunc(board.Devices, func(d profiles.Device) bool { return d.GraceCPUPair.Valid })
		for _, s := range switches {
			if slices.ContainsFunc(r.below, func(f *function) bool { return s.Has(f.id) }) {
				r.switches = append(r.switches, s)
			}
		}
		r.connect()
	}
	allocate(roots)
	return roots
}

func compare(a, b profiles.BusID) int {
	return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Bus, b.Bus), cmp.Compare(a.Device, b.Device),
		cmp.Compare(a.Function, b.Function))
}

func split(all []*function, want func(*function) bool) (yes, no []*function) {
	for _, f := range all {
		if want(f) {
			yes = append(yes, f)
		} else {
			no = append(no, f)
		}
	}
	return yes, no
}

// listed is a root complex of the topology; nil if nothing of this machine is below it.
func listed(board *profiles.Board, rc profiles.RootComplex, devices []*function) *root {
	if len(devices) == 0 {
		return nil
	}
	first := devices[0].id
	r := &root{domain: first.Domain, bus: before(first.Bus), numa: rc.NUMANode.Or(-1), cpus: rc.CPUAffinity}
	var domain uint32
	var bus uint8
	if n, _ := fmt.Sscanf(strings.TrimPrefix(rc.ID.Value, "pci"), "%x:%x", &domain, &bus); n == 2 && domain == first.Domain && bus <= first.Bus {
		r.bus = bus
	}
	if cores := board.Topology.CoresPerNUMA.Or(0); len(r.cpus) == 0 && r.numa >= 0 {
		for i := range cores {
			r.cpus = append(r.cpus, uint32(r.numa)*cores+i)
		}
	}
	r.take(devices)
	return r
}

// leave takes an earlier bus for a root complex whose switches need those in front of their devices.
func (r *root) leave(switches []profiles.PCISwitch) {
	for _, s := range switches {
		if slices.ContainsFunc(r.below, func(f *function) bool { return s.Has(f.id) }) {
			r.bus = min(r.bus, uint8(s.Root))
		}
	}
}

func before(bus uint8) uint8 { return max(bus, 1) - 1 }

func (r *root) take(devices []*function) {
	for _, f := range devices {
		f.root = r
		if f.gpu != nil && r.level == "" {
			r.level = f.gpu.Topology.DefaultLevel.Or("")
		}
	}
	r.below = append(r.below, devices...)
}

// derive finds root complexes for devices, sorted, that the topology says nothing about.
func derive(roots []*root, devices []*function) []*root {
	for len(devices) > 0 {
		row := 1
		for row < len(devices) && follows(devices[row-1].id, devices[row].id) {
			row++
		}
		first := devices[0].id
		r := &root{domain: first.Domain, bus: before(first.Bus), numa: -1}
		if near := covering(roots, first); near != nil {
			r = near
		} else {
			roots = append(roots, r)
		}
		r.take(devices[:row])
		devices = devices[row:]
	}
	return roots
}

func follows(a, b profiles.BusID) bool {
	return a.Domain == b.Domain && (a.Bus == b.Bus || a.Bus > 0 && b.Bus == a.Bus+1)
}

// covering is the root complex whose buses a device's bus, or the one in front of it, is among.
func covering(roots []*root, id profiles.BusID) *root {
	for _, r := range roots {
		if r.domain != id.Domain {
			continue
		}
		last := r.bus
		for _, f := range r.below {
			last = max(last, f.id.Bus)
		}
		if r.bus <= id.Bus && before(id.Bus) <= last {
			return r
		}
	}
	return nil
}

// connect builds the bridges between the root complex and its devices: a port for every bus, and a switch in between where
// GPUs are said to share one and there are bus numbers left for it.
func (r *root) connect() {
	devices := r.below
	r.below = nil
	buses := map[uint8][]*function{}
	var order []uint8
	for _, f := range devices {
		if f.id.Bus == r.bus {
			r.below = append(r.below, f)
			continue
		}
		if buses[f.id.Bus] == nil {
			order = append(order, f.id.Bus)
		}
		buses[f.id.Bus] = append(buses[f.id.Bus], f)
	}
	if len(order) == 0 {
		return
	}
	slices.Sort(order)
	first, last := order[0], order[len(order)-1]
	var parent *function
	ports, bus := rootPort, r.bus
	slot := len(r.switches)
	for i, s := range r.switches {
		port := r.bridge(rootPort, nil, r.slot(r.bus, i), uint8(s.First-2), uint8(s.Last))
		up := r.bridge(upstream, port, profiles.BusID{Domain: r.domain, Bus: uint8(s.First - 2)}, uint8(s.First-1), uint8(s.Last))
		var left []uint8
		for _, secondary := range order {
			if !s.Has(profiles.BusID{Domain: r.domain, Bus: secondary}) {
				left = append(left, secondary)
				continue
			}
			n := len(up.below)
			r.lead(downstream, up, profiles.BusID{Domain: r.domain, Bus: uint8(s.First - 1), Device: uint8(n % 32), Function: uint8(n / 32)}, buses[secondary])
		}
		order = left
	}
	if len(r.switches) == 0 && len(order) > 1 && (r.level == "single" || r.level == "multiple") && int(first) > int(r.bus)+2 {
		port := r.bridge(rootPort, nil, r.slot(r.bus, 0), r.bus+1, last)
		up := r.bridge(upstream, port, profiles.BusID{Domain: r.domain, Bus: r.bus + 1}, r.bus+2, last)
		parent, ports, bus = up, downstream, r.bus+2
	}
	for i, secondary := range order {
		r.lead(ports, parent, r.slot(bus, slot+i), buses[secondary])
	}
	slices.SortStableFunc(r.below, func(a, b *function) int { return compare(a.id, b.id) })
}

// lead makes a port that leads to devices, which are on one bus.
func (r *root) lead(k kind, parent *function, id profiles.BusID, devices []*function) {
	bus := devices[0].id.Bus
	port := r.bridge(k, parent, id, bus, bus)
	for _, f := range devices {
		f.parent = port
		port.below = append(port.below, f)
	}
}

// slot is the address of a port. On bus 0 ports begin at device 16: real machines have devices of their own there, and the
// launcher shows both.
func (r *root) slot(bus uint8, i int) profiles.BusID {
	id := profiles.BusID{Domain: r.domain, Bus: bus, Device: uint8(i % 32), Function: uint8(i / 32)}
	taken := func(f *function) bool { return f.id == id }
	if bus == 0 {
		id.Device = uint8((16 + i) % 32)
	}
	for range 256 {
		if !slices.ContainsFunc(r.below, taken) {
			break
		}
		if id.Device = (id.Device + 1) % 32; id.Device == 0 {
			id.Function = (id.Function + 1) % 8
		}
	}
	return id
}

func (r *root) bridge(k kind, parent *function, id profiles.BusID, secondary, subordinate uint8) *function {
	f := &function{kind: k, id: id, root: r, parent: parent, secondary: secondary, subordinate: subordinate}
	if parent != nil {
		parent.below = append(parent.below, f)
	} else {
		r.below = append(r.below, f)
	}
	return f
}

// each visits the functions below a root complex, bridges before what is below them.
func (r *root) each(visit func(*function)) {
	var walk func([]*function)
	walk = func(list []*function) {
		for _, f := range list {
			visit(f)
			walk(f.below)
		}
	}
	walk(r.below)
}

// leaf is a device at the end of the links through a function: itself or one below the bridge.
func (f *function) leaf() *function {
	for f.kind.bridge() && len(f.below) > 0 {
		f = f.below[0]
	}
	return f
}
