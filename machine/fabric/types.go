// Package fabric is an InfiniBand subnet that is not there: host channel adapters, switches, the links between them, and
// the subnet manager that gave out their addresses.
//
// A Fabric is the one source of every rate, LID, GUID, state and description. The files in sysfs, the answers over
// NETLINK_RDMA and uverbs, and the management datagrams (MADs) are all made from it, so they agree.
//
//	f, err := fabric.New(fabric.Description{Hosts: []fabric.Host{{Name: "dgx01", HCAs: hcas}}})
//	for _, node := range f.Host("dgx01") { // the adapters of one host, in the order of its description
//		for _, port := range node.Ports[1:] {
//			fmt.Println(node.HCA.Name, port.Number, port.Rate(), port.LID)
//		}
//	}
package fabric

import (
	"fmt"
	"strings"
)

// LinkLayer is what a port of an adapter speaks.
type LinkLayer uint8

// The link layers. An Ethernet port does RDMA over Ethernet (RoCE). It has no LID and no cable in the subnet.
const (
	InfiniBand LinkLayer = iota
	Ethernet
)

// String is the word in sysfs's link_layer.
func (l LinkLayer) String() string {
	if l == Ethernet {
		return "Ethernet"
	}
	return "InfiniBand"
}

// State is the logical state of a port. The numbers are those of PortInfo and of sysfs.
type State uint8

// The states of a port.
const (
	Down        State = 1
	Initialize  State = 2
	Armed       State = 3
	Active      State = 4
	ActiveDefer State = 5
)

// String is the word in sysfs's state.
func (s State) String() string {
	return word([]string{"", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"}, int(s))
}

// Phys is the physical state of a port. The numbers are those of PortInfo and of sysfs.
type Phys uint8

// The physical states of a port.
const (
	Sleep         Phys = 1
	Polling       Phys = 2
	Disabled      Phys = 3
	Training      Phys = 4
	LinkUp        Phys = 5
	ErrorRecovery Phys = 6
	PhyTest       Phys = 7
)

// String is the word in sysfs's phys_state.
func (p Phys) String() string {
	return word([]string{"", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "Phy Test"}, int(p))
}

func word(words []string, n int) string {
	if n <= 0 || n >= len(words) {
		return "<unknown>"
	}
	return words[n]
}

// Width is the number of lanes of a link: 1, 2, 4, 8 or 12.
type Width uint8

// Bit is the number of the width in PortInfo.
func (w Width) Bit() uint8 {
	switch w {
	case 1:
		return 1
	case 4:
		return 2
	case 8:
		return 4
	case 12:
		return 8
	case 2:
		return 16
	}
	return 0
}

// Speed is the generation of a link, which fixes the rate of a lane.
type Speed uint8

// The generations. The zero value stands for a speed that nobody has named.
const (
	SDR Speed = iota + 1
	DDR
	QDR
	FDR10
	FDR
	EDR
	HDR
	NDR
	XDR
)

var speeds = []struct {
	name string
	lane int // tenths of Gb/s, as the kernel rounds them
}{SDR: {"SDR", 25}, DDR: {"DDR", 50}, QDR: {"QDR", 100}, FDR10: {"FDR10", 100}, FDR: {"FDR", 140}, EDR: {"EDR", 250},
	HDR: {"HDR", 500}, NDR: {"NDR", 1000}, XDR: {"XDR", 2000}}

// ParseSpeed reads the name of a generation, such as NDR, in capitals or not.
func ParseSpeed(name string) (Speed, error) {
	for s := SDR; s <= XDR; s++ {
		if strings.EqualFold(name, speeds[s].name) {
			return s, nil
		}
	}
	return 0, fmt.Errorf("%q is no speed of InfiniBand; known are SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR and XDR", name)
}

// String is the name of the generation, such as NDR.
func (s Speed) String() string {
	if s < SDR || s > XDR {
		return ""
	}
	return speeds[s].name
}

// Lane is the rate of one lane in tenths of Gb/s.
func (s Speed) Lane() int {
	if s < SDR || s > XDR {
		return 0
	}
	return speeds[s].lane
}

// ActiveSpeed is the number of the speed in ibv_port_attr's active_speed and, for a number above 255, active_speed_ex.
func (s Speed) ActiveSpeed() uint16 {
	return []uint16{0, 1, 2, 4, 8, 16, 32, 64, 128, 256}[min(int(s), int(XDR))]
}

// Kind says what a node is. The numbers are those of NodeInfo and of sysfs's node_type.
type Kind uint8

// The kinds of nodes.
const (
	CA     Kind = 1
	Switch Kind = 2
)

// HCA describes a function of a host channel adapter: what its profile says of it. What the subnet manager gives it, such
// as a LID, stands in the ports of its Node.
type HCA struct {
	Name        string // of the RDMA device, such as mlx5_0
	DeviceID    uint16 // of PCI, below vendor 15b3: 0x1021 is a ConnectX-7
	Firmware    string // such as 28.39.1002
	HWRev       uint32 // hw_rev of sysfs
	BoardID     string // PSID, such as MT_0000000838
	Description string // node_desc, 64 bytes at most; empty: the host's name, a space and Name
	NodeGUID    uint64 // 0: worked out from the host's name and Name
	SystemGUID  uint64 // 0: the node GUID of the first function on the same card
	PCI         string // bus id, such as 0000:18:00.0
	NUMA        int    // node of the machine that the slot belongs to
	Ports       []HCAPort
}

// Type is hca_type of sysfs: MT and the PCI device id in decimal.
func (h *HCA) Type() string { return fmt.Sprintf("MT%d", h.DeviceID) }

// HCAPort describes a port of an HCA.
type HCAPort struct {
	GUID      uint64 // 0: the node GUID plus the number of ports before this one; on Ethernet the EUI-64 of the MAC
	LinkLayer LinkLayer
	Width     Width  // of the fastest link that the port can make; 0: 4
	Speed     Speed  // of the fastest link that the port can make; 0: NDR
	MTU       int    // in bytes; 0: 4096, which on Ethernet is the RDMA MTU of a 9000 byte frame
	CapMask   uint32 // 0: 0xa751e848 on InfiniBand, 0x00010000 on Ethernet
	NetDev    string // name of its network device, such as ibp24s0
	Rail      int    // which leaf of a rail-optimised fabric it is cabled to
	Uncabled  bool   // no cable: the port is down and polls
	State     State  // at which an active link is held; 0: active
	Phys      Phys   // physical state that is shown; 0: what the link makes of it
}

// Node is an adapter or a switch of the fabric.
type Node struct {
	Kind        Kind
	GUID        uint64
	System      uint64 // system image GUID
	Description string
	DeviceID    uint16
	Revision    uint32
	Host        string  // the host that an adapter is in
	HCA         *HCA    // what an adapter is; nil for a switch
	Ports       []*Port // by number. A switch's port 0 is its management port; an adapter has none, so Ports[0] is nil
	Managed     bool    // the switch runs a management agent of its own (enhanced port 0)
	Dead        bool    // it answers nothing, and every link to it is down
	Away        bool    // the host that it is in has left: it looks as if its cables were pulled

	lft   []uint8 // of a switch: the port for each LID
	index int
}

// Port is a port of a node as it is now.
type Port struct {
	Node      *Node
	Number    int
	GUID      uint64
	LinkLayer LinkLayer
	LID       uint16 // 0 if it has none: Ethernet, or the ports of a switch other than 0
	SMLID     uint16
	LMC       uint8
	State     State
	Phys      Phys
	Width     Width // of the link as it is
	Speed     Speed // of the link as it is
	MaxWidth  Width
	MaxSpeed  Speed
	MTU       int // bytes
	MaxMTU    int // bytes
	CapMask   uint32
	CapMask2  uint16
	NetDev    string
	Remote    *Port // the other end of the cable; nil without a cable

	pulled   bool // a fault keeps the cable out
	flapped  bool // a flapping link has the cable out now
	disabled bool // PortInfo was set to Disabled

	// What Set(PortInfo) left enabled, as bits of PortInfo; 0: everything.
	enabledWidths, enabledSpeeds, enabledExtended byte

	limit    link // a fault keeps the link below this
	counters counters
}

type link struct {
	width Width
	speed Speed
}

// MTUCode is the number that PortInfo and ibv_port_attr have for an MTU in bytes: 5 is 4096.
func MTUCode(bytes int) uint8 {
	for code, size := range []int{1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096} {
		if code > 0 && bytes <= size {
			return uint8(code)
		}
	}
	return 5
}

// Tenths is the rate of the link in tenths of Gb/s. A port without a link has 1X SDR's or, on InfiniBand, 4X SDR's, as the
// kernel reports it.
func (p *Port) Tenths() int { return int(p.Width) * p.Speed.Lane() }

// Rate is the text in sysfs's rate, such as "400 Gb/sec (4X NDR)".
func (p *Port) Rate() string {
	tenths, half := p.Tenths(), ""
	if tenths%10 != 0 {
		half = ".5"
	}
	return fmt.Sprintf("%d%s Gb/sec (%dX %s)", tenths/10, half, p.Width, p.Speed)
}

// GID is the subnet's prefix and the GUID of the port: entry 0 of its GID table.
func (p *Port) GID() (prefix, guid uint64) { return Prefix, p.GUID }

// Up says whether the port has a link that passes data.
func (p *Port) Up() bool { return p.State == Active }

// ShownLID is the LID that sysfs and verbs show: 0xffff for an InfiniBand port that is down, as the mlx5 driver does.
func (p *Port) ShownLID() uint16 {
	if p.LinkLayer == InfiniBand && p.State == Down {
		return 0xffff
	}
	return p.LID
}

// ShownSMLID is the LID of the subnet manager that sysfs and verbs show: 0 for a port that is down.
func (p *Port) ShownSMLID() uint16 {
	if p.State == Down {
		return 0
	}
	return p.SMLID
}

// Prefix is the subnet's GID prefix, the default of InfiniBand.
const Prefix = 0xfe80000000000000

// Vendor is Mellanox's number in NodeInfo, PCI's vendor_part and ibv_device_attr.
const Vendor = 0x2c9
