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

// PCISwitches are the switches that GPUs share with adapters. A switch takes bus numbers of its own; where there are none
// left, adapters are beside their GPU without a switch.
func (b *Board) PCISwitches() []PCISwitch { return b.switches(b.listed()) }

func (b *Board) switches(list []HCA) (found []PCISwitch) {
	var ranges []PCISwitch
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
