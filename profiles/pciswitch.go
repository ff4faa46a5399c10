package profiles

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// PCISwitch is a PCIe switch, below which GPUs and InfiniBand adapters are.
type PCISwitch struct {
	// Domain is the switch's.
	Domain uint32
	// First and Last are the buses of the devices below it. Its ports are on the two buses before the first.
	First, Last int
	// Root is the bus of the root complex that the switch is below.
	Root int
}

// Has says whether a device is below the switch.
func (s PCISwitch) Has(id BusID) bool {
	return id.Domain == s.Domain && s.First <= int(id.Bus) && int(id.Bus) <= s.Last
}

// PCISwitches are the switches that the topology names and those that GPUs share with adapters. A switch takes bus numbers of its own; where there are none
// left, adapters are beside their GPU without a switch.
func (b *Board) PCISwitches() []PCISwitch { return b.switches(b.listed()) }

// TopologySwitches are the switches of the topology alone, for a machine whose adapters are not shown.
func (b *Board) TopologySwitches() []PCISwitch { return b.switches(nil) }

// lowest are the ranges of those switches of the topology that no other switch is below. A range that reaches over the bus of a GPU
// which the switch does not have is none.
func (b *Board) lowest() (ranges []PCISwitch) {
	for _, s := range b.Topology.PCISwitches {
		if len(s.Devices) < 2 {
			continue
		}
		first := s.Devices[0]
		r := PCISwitch{Domain: first.Domain, First: int(first.Bus), Last: int(first.Bus)}
		for _, id := range s.Devices {
			r.First, r.Last = min(r.First, int(id.Bus)), max(r.Last, int(id.Bus))
		}
		upper := slices.ContainsFunc(b.Topology.PCISwitches, func(t TopologySwitch) bool {
			return len(t.Devices) < len(s.Devices) && slices.ContainsFunc(t.Devices, func(id BusID) bool { return slices.Contains(s.Devices, id) })
		})
		alien := slices.ContainsFunc(s.Devices, func(id BusID) bool { return id.Domain != r.Domain }) ||
			slices.ContainsFunc(b.Devices, func(d Device) bool { return r.Has(d.PCI.BusID.Value) && !slices.Contains(s.Devices, d.PCI.BusID.Value) })
		if !upper && !alien {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

func (b *Board) switches(list []HCA) (found []PCISwitch) {
	ranges := b.lowest()
	for _, h := range list {
		gpu, ok := h.GPU.Get()
		if !ok || int(gpu) >= len(b.Devices) {
			continue
		}
		x, y := b.Devices[gpu].PCI.BusID.Value.bus(), h.BusID.Value.bus()
		if x.domain == y.domain && x != y {
			ranges = append(ranges, PCISwitch{Domain: x.domain, First: min(x.number, y.number), Last: max(x.number, y.number)})
		}
	}
	slices.SortFunc(ranges, func(x, y PCISwitch) int {
		return cmp.Or(cmp.Compare(x.Domain, y.Domain), cmp.Compare(x.First, y.First))
	})
	var merged []PCISwitch
	for _, r := range ranges {
		if n := len(merged) - 1; n >= 0 && merged[n].Domain == r.Domain && r.First <= merged[n].Last {
			merged[n].Last = max(merged[n].Last, r.Last)
		} else {
			merged = append(merged, r)
		}
	}
	taken := b.buses(list)
	for _, s := range merged {
		s.Root = s.First - 3
		for _, rc := range b.Topology.RootComplexes {
			if slices.ContainsFunc(rc.Devices, s.Has) {
				s.Root = min(s.Root, rc.bus(s.Domain, s.Root))
			}
		}
		free := s.Root >= 0
		for n := s.First - 2; n < s.First; n++ {
			free = free && !taken[bus{s.Domain, n}]
		}
		if last := len(found) - 1; last >= 0 && found[last].Domain == s.Domain {
			free = free && s.First-2 > found[last].Last && (s.Root > found[last].Last || s.Root == found[last].Root)
		}
		for n := s.Root; n < s.First-2 && free && s.Root == s.First-3; n++ {
			free = !taken[bus{s.Domain, n}]
		}
		if free {
			found = append(found, s)
		}
	}
	return found
}

// bus is the number of the root complex's bus, from its name; otherwise if the name has none, or is of another domain.
func (rc *RootComplex) bus(domain uint32, otherwise int) int {
	var d, bus uint32
	if n, _ := fmt.Sscanf(strings.TrimPrefix(rc.ID.Value, "pci"), "%x:%x", &d, &bus); n == 2 && d == domain && bus < 256 {
		return int(bus)
	}
	return otherwise
}
