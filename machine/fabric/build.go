package fabric

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Description says what a fabric consists of. Everything else follows from it: the same description always gives the same
// GUIDs, LIDs and routes.
type Description struct {
	Hosts  []Host
	Layout Layout
	SM     string // node description of the adapter or switch that runs the subnet manager; empty: the first switch
}

// Host is a machine with adapters.
type Host struct {
	Name string
	HCAs []HCA

	// Simulated says that the host is there without a daemon of its own, where several daemons have one fabric.
	Simulated bool
}

// Layout says how hosts are cabled.
type Layout struct {
	// Preset is one of
	//   switch (or empty)  every port on one switch, which has as many ports as it takes
	//   fat-tree           leaves, spines and, if those do not suffice, cores of Radix ports each, half of them up
	//   rail-optimised     a leaf for each rail and group of hosts; the leaves share spines
	//   none               no switch: nothing is cabled
	Preset string
	// Radix is the number of ports of a switch; 0: 64. An even number from 4 to 254.
	Radix int
	// Switch is the model of the switches; empty: MQM9700 for NDR and below, Q3400 for XDR.
	Switch string
	// Aggregation gives the switches of HDR and NDR one port more, with the adapter in the switch that reduces data on its way.
	Aggregation bool
}

// Presets lists the layouts that a description can name.
func Presets() []string { return []string{"switch", "fat-tree", "rail-optimised", "none"} }

// Fabric is a subnet. It is not safe for concurrent use: whoever changes it keeps readers out.
type Fabric struct {
	Nodes []*Node // switches first, in the order of their LIDs
	SM    *Port   // the port that the subnet manager runs on; nil without InfiniBand ports

	// Simulated are the hosts that are there without a daemon of their own.
	Simulated []string

	// Traffic says what the port of an adapter has sent and received. Without it nothing is.
	Traffic func(p *Port, now time.Time) Traffic

	// Started is when the machines and the subnet manager started; the zero time if nobody knows.
	Started time.Time

	// CPUs are the processors of every host, for ibsysstat.
	CPUs []CPU

	inSwitches []*Node // the switches' aggregation nodes

	hosts    map[string][]*Node
	byGUID   map[uint64]*Port // of ports, and of nodes where no port has it
	byLID    []*Port
	byNode   map[uint64]*Node // by GUID; made when it is needed
	topLID   uint16
	activity uint32
	flaps    []flap
	groups   []*group // multicast
	services []*service
}

// New builds the fabric that a description describes.
func New(d Description) (*Fabric, error) {
	f := &Fabric{hosts: map[string][]*Node{}, byGUID: map[uint64]*Port{}, groups: ipoibGroups()}
	taken := map[uint64]bool{}
	for _, h := range d.Hosts {
		if err := f.addHost(h, taken); err != nil {
			return nil, err
		}
		if h.Simulated {
			f.Simulated = append(f.Simulated, h.Name)
		}
	}
	cas := f.Nodes
	f.Nodes = nil
	if err := f.lay(d.Layout, d.Hosts, cas, taken); err != nil {
		return nil, err
	}
	f.Nodes = slices.Concat(f.Nodes, cas, f.inSwitches)
	for i, n := range f.Nodes {
		n.index = i
	}
	if err := f.address(d.SM); err != nil {
		return nil, err
	}
	f.Settle()
	return f, nil
}

// Host returns the adapters of a host in the order of its description.
func (f *Fabric) Host(name string) []*Node { return f.hosts[name] }

// Hosts lists the hosts' names in alphabetical order.
func (f *Fabric) Hosts() []string {
	var names []string
	for name := range f.hosts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// ByLID returns the port with a LID, or nil.
func (f *Fabric) ByLID(lid uint16) *Port {
	if int(lid) < len(f.byLID) {
		return f.byLID[lid]
	}
	return nil
}

// ByGUID returns the port with a GUID, or nil.
func (f *Fabric) ByGUID(guid uint64) *Port { return f.byGUID[guid] }

func (f *Fabric) addHost(h Host, taken map[uint64]bool) error {
	if h.Name == "" {
		return errors.New("a host of the fabric has no name")
	}
	if _, ok := f.hosts[h.Name]; ok {
		return fmt.Errorf("the fabric has two hosts called %q", h.Name)
	}
	f.hosts[h.Name] = []*Node{}
	cards := map[string]uint64{}
	names := map[string]bool{}
	for i := range h.HCAs {
		hca := h.HCAs[i]
		fault := func(format string, args ...any) error {
			return fmt.Errorf("host %q, adapter %q: %w", h.Name, hca.Name, fmt.Errorf(format, args...))
		}
		if hca.Name == "" || names[hca.Name] {
			return fault("an adapter needs a name that no other has")
		}
		names[hca.Name] = true
		if len(hca.Ports) < 1 || len(hca.Ports) > 9 {
			return fault("%d ports; libibumad knows 1 to 9", len(hca.Ports))
		}
		hca.Description = cmp.Or(hca.Description, h.Name+" "+hca.Name)
		if len(hca.Description) > 63 {
			hca.Description = hca.Description[:63]
		}
		card, _, _ := strings.Cut(hca.PCI, ".")
		if hca.NodeGUID == 0 {
			if base, ok := cards[card]; ok && card != "" {
				hca.NodeGUID = base + function(hca.PCI)
			}
			for hca.NodeGUID == 0 || taken[hca.NodeGUID] {
				hca.NodeGUID = guess(hcaPrefix, h.Name+" "+cmp.Or(card, hca.Name), hca.NodeGUID)
			}
		} else if taken[hca.NodeGUID] {
			return fault("another node has the GUID 0x%016x", hca.NodeGUID)
		}
		taken[hca.NodeGUID] = true
		if _, ok := cards[card]; !ok {
			cards[card] = hca.NodeGUID
		}
		if hca.SystemGUID == 0 {
			hca.SystemGUID = hca.NodeGUID
			if card != "" {
				hca.SystemGUID = cards[card]
			}
		}
		n := &Node{Kind: CA, GUID: hca.NodeGUID, System: hca.SystemGUID, Description: hca.Description, DeviceID: hca.DeviceID,
			Host: h.Name, HCA: &hca, Ports: make([]*Port, 1+len(hca.Ports))}
		for k, hp := range hca.Ports {
			p := newPort(n, k+1)
			p.LinkLayer, p.NetDev = hp.LinkLayer, hp.NetDev
			p.MaxWidth, p.MaxSpeed = cmp.Or(hp.Width, 4), cmp.Or(hp.Speed, NDR)
			if p.MaxWidth.Bit() == 0 || p.MaxSpeed.Lane() == 0 {
				return fault("port %d cannot be %dX %s", k+1, p.MaxWidth, p.MaxSpeed)
			}
			p.MaxMTU = cmp.Or(hp.MTU, 4096)
			p.MTU = p.MaxMTU
			p.CapMask, p.CapMask2 = cmp.Or(hp.CapMask, 0xa751e848), capMask2(p.MaxSpeed)
			p.GUID = cmp.Or(hp.GUID, hca.NodeGUID+uint64(k))
			if hp.LinkLayer == Ethernet {
				p.GUID = cmp.Or(hp.GUID, eui64(hca.NodeGUID)+uint64(k))
				p.CapMask, p.CapMask2 = cmp.Or(hp.CapMask, 0x00010000), 0
			}
			if f.byGUID[p.GUID] != nil {
				return fault("another port has the GUID 0x%016x", p.GUID)
			}
			f.byGUID[p.GUID] = p
			n.Ports[k+1] = p
		}
		f.hosts[h.Name] = append(f.hosts[h.Name], n)
		f.Nodes = append(f.Nodes, n)
	}
	return nil
}

func newPort(n *Node, number int) *Port {
	return &Port{Node: n, Number: number, GUID: n.GUID, State: Down, Phys: Polling, Width: 4, Speed: SDR}
}

// The first three bytes of GUIDs, which say that Mellanox made the part.
const (
	hcaPrefix    = 0x946dae
	switchPrefix = 0xfc6a1c
)

// guess works out a GUID from a name, in the shape of those that are made from a MAC: three bytes of the maker, 0300, and
// three that tell parts apart. A GUID that is taken leads to the next one.
func guess(prefix uint64, name string, taken uint64) uint64 {
	low := (taken + 0x10) & 0xfffff0
	if taken == 0 {
		h := fnv.New32a()
		h.Write([]byte(name))
		low = uint64(h.Sum32()) & 0xfffff0 // functions and ports of a card count up from here
	}
	return prefix<<40 | 0x0300<<24 | low
}

// eui64 is the GUID of an Ethernet port: its MAC, which the node GUID holds, with fffe in the middle and the bit for local
// addresses turned.
func eui64(node uint64) uint64 { return (node&0xffffff0000ffffff | 0xfffe<<24) ^ 0x02<<56 }

// MAC is the address of the Ethernet port with a node GUID.
func MAC(node uint64) [6]byte {
	var mac [6]byte
	for i := range 3 {
		mac[i] = byte(node >> (56 - 8*i))
		mac[i+3] = byte(node >> (16 - 8*i))
	}
	return mac
}

// function is the function's number at the end of a bus id.
func function(pci string) uint64 {
	_, tail, _ := strings.Cut(pci, ".")
	n, _ := strconv.ParseUint(tail, 10, 8)
	return n
}

// Bits of PortInfo's CapMask2 that libibmad and iblinkinfo look at.
const (
	capExtended   = 0x0002 // attribute PortInfoExtended
	capWidth2X    = 0x0010
	capHDR        = 0x0020
	capNDR        = 0x0400
	capSpeeds2    = 0x0800
	capXDR        = 0x1000
	capHasMask2   = 1 << 15 // in CapMask
	capExtSpeeds  = 1 << 14 // in CapMask
	capIsSM       = 1 << 1  // in CapMask
	capMaskSwitch = 0x0251484a &^ capIsSM
)

func capMask2(s Speed) uint16 {
	mask := uint16(capExtended | capWidth2X)
	if s >= HDR {
		mask |= capHDR
	}
	if s >= NDR {
		mask |= capNDR
	}
	if s >= XDR {
		mask |= capSpeeds2 | capXDR
	}
	return mask
}

// address gives out LIDs: the subnet manager's port has 1, then come switches and adapters.
func (f *Fabric) address(sm string) error {
	for _, n := range f.Nodes {
		for _, p := range n.subnetPorts() {
			if f.SM == nil && sm == "" || sm != "" && f.SM == nil && n.Description == sm {
				f.SM = p
			}
		}
	}
	if f.SM == nil {
		if sm != "" {
			return fmt.Errorf("no InfiniBand port for the subnet manager: no node is called %q", sm)
		}
		return nil
	}
	f.byLID = []*Port{nil}
	give := func(p *Port) {
		p.LID = uint16(len(f.byLID))
		f.byLID = append(f.byLID, p)
	}
	give(f.SM)
	for _, n := range f.Nodes {
		for _, p := range n.subnetPorts() {
			if p != f.SM {
				give(p)
			}
		}
	}
	if len(f.byLID) > 0xc000 {
		return fmt.Errorf("%d ports need a LID; a subnet has 49151", len(f.byLID)-1)
	}
	f.topLID = uint16(len(f.byLID) - 1)
	for _, p := range f.byLID[1:] {
		p.SMLID = f.SM.LID
	}
	f.SM.CapMask |= capIsSM
	return nil
}

// subnetPorts are the ports of a node that have a LID.
func (n *Node) subnetPorts() []*Port {
	if n.Kind == Switch {
		return n.Ports[:1]
	}
	var ports []*Port
	for _, p := range n.Ports[1:] {
		if p.LinkLayer == InfiniBand {
			ports = append(ports, p)
		}
	}
	return ports
}

// UMAD lists the ports of a host's adapters in the order of their numbers: port N has /dev/infiniband/umadN. Those that are
// in the subnet have issmN besides.
func (f *Fabric) UMAD(host string) []*Port {
	var ports []*Port
	for _, n := range f.hosts[host] {
		ports = append(ports, n.Ports[1:]...)
	}
	return ports
}

// ClaimSM says that a program on a port is a subnet manager, which PortInfo shows, or is no more. The subnet keeps its own.
func (f *Fabric) ClaimSM(p *Port, yes bool) {
	switch {
	case yes:
		p.CapMask |= capIsSM
	case p != f.SM:
		p.CapMask &^= capIsSM
	}
}
