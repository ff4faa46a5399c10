package fabric

import "time"

// Attributes of subnet management.
const (
	attrNodeDescription = 0x10
	attrNodeInfo        = 0x11
	attrSwitchInfo      = 0x12
	attrGUIDInfo        = 0x14
	attrPortInfo        = 0x15
	attrPKeys           = 0x16
	attrSL2VL           = 0x17
	attrVLArbitration   = 0x18
	attrLinearTable     = 0x19
	attrMulticastTable  = 0x1b
	attrSMInfo          = 0x20
	attrPortInfoMore    = 0x33   // PortInfoExtended: forward error correction
	attrExtPortInfo     = 0xff90 // Mellanox's, for FDR10
)

const smpData = 64

// subnetManagement answers a packet in place. It returns false if nobody answers.
func (f *Fabric) subnetManagement(at arrival, h header, mad []byte, now time.Time) bool {
	if at.node.down() || h.method != methodGet && h.method != methodSet {
		return false
	}
	if h.attribute == attrSMInfo && (f.SM == nil || f.SM.Node != at.node) {
		return false
	}
	data := mad[smpData : smpData+64]
	var status uint16
	if h.method == methodSet {
		f.count(now)
		status = f.setAttribute(at, h, data)
	}
	if status == 0 {
		clear(data)
		status = f.attribute(at, h, data, now)
	}
	mad[3] = methodGet | response
	if h.class == classSubnDirect {
		status |= statusDirection
		mad[hopPointer] = 0
	}
	setStatus(mad, status)
	return true
}

// setAttribute carries out a Set. ibportstate uses it to disable, enable and limit ports.
func (f *Fabric) setAttribute(at arrival, h header, data []byte) uint16 {
	if h.attribute != attrPortInfo {
		return statusBadAttribute
	}
	p, status := at.portOf(h.modifier)
	if status != 0 {
		return status
	}
	switch Phys(data[33] >> 4) {
	case Disabled:
		p.disabled = true
	case Polling:
		p.disabled = false
	}
	if w := data[29]; w != 0 {
		p.enabledWidths = w
		if w == 0xff {
			p.enabledWidths = 0
		}
	}
	if s := data[35] & 0xf; s != 0 {
		p.enabledSpeeds = s
		if s == 0xf {
			p.enabledSpeeds = 0
		}
	}
	if s := data[63] & 0x1f; s != 0 {
		p.enabledExtended = s
		if s == 0x1f {
			p.enabledExtended = 0
		}
	}
	f.Settle()
	return 0
}

// portOf is the port that a modifier names. On an adapter 0 is the port that the packet came in by.
func (at arrival) portOf(modifier uint32) (*Port, uint16) {
	number := int(modifier & 0xff)
	if at.node.Kind == CA && number == 0 {
		return at.port, 0
	}
	if number >= len(at.node.Ports) {
		return nil, statusBadField
	}
	return at.node.Ports[number], 0
}

// attribute fills in the data of an attribute and returns the status.
func (f *Fabric) attribute(at arrival, h header, data []byte, now time.Time) uint16 {
	n := at.node
	switch h.attribute {
	case attrNodeDescription:
		copy(data, n.Description)
	case attrNodeInfo:
		n.info(data, at.port)
	case attrSwitchInfo:
		if n.Kind != Switch {
			return statusBadAttribute
		}
		f.switchInfo(n, data)
	case attrGUIDInfo:
		return f.guids(at, h.modifier, data)
	case attrPortInfo:
		p, status := at.portOf(h.modifier)
		if status != 0 {
			return status
		}
		p.info(data, at.port.Number)
	case attrPortInfoMore:
		p, status := at.portOf(h.modifier)
		if status != 0 {
			return status
		}
		p.correction(data)
	case attrPKeys:
		return f.pkeys(at, h.modifier, data)
	case attrSL2VL:
		if n.Kind == Switch && (int(h.modifier&0xff) >= len(n.Ports) || int(h.modifier>>8&0xff) >= len(n.Ports)) {
			return statusBadField
		}
		copy(data, slToVL[:])
	case attrVLArbitration:
		return f.arbitration(at, h.modifier, data)
	case attrLinearTable:
		if n.Kind != Switch || h.modifier >= 768 {
			return statusBadAttribute
		}
		f.linear(n, int(h.modifier), data)
	case attrMulticastTable:
		if n.Kind != Switch {
			return statusBadAttribute
		}
		if h.modifier&0x1ff >= multicastLIDs/32 || h.modifier>>28 > uint32(len(n.Ports)-1)/16 {
			return statusBadField
		}
		f.multicast(n, h.modifier, data)
	case attrSMInfo:
		f.smInfo(data, now)
	case attrExtPortInfo:
		p, status := at.portOf(h.modifier)
		if status != 0 {
			return status
		}
		if p.MaxSpeed >= FDR10 {
			data[3], data[7], data[11] = 0, 1, 1 // state change; supported and enabled: FDR10
			if p.Speed == FDR10 {
				data[15] = 1
			}
		}
	default:
		return statusBadAttribute
	}
	return 0
}

// info fills in NodeInfo as seen by a packet that came in by a port.
func (n *Node) info(data []byte, by *Port) {
	data[0], data[1], data[2], data[3] = 1, 1, byte(n.Kind), byte(len(n.Ports)-1)
	be.PutUint64(data[4:], n.System)
	be.PutUint64(data[12:], n.GUID)
	be.PutUint64(data[20:], by.GUID)
	be.PutUint16(data[28:], n.pkeyCap())
	be.PutUint16(data[30:], n.DeviceID)
	be.PutUint32(data[32:], n.Revision)
	be.PutUint32(data[36:], Vendor)
	data[36] = byte(by.Number)
}

func (n *Node) pkeyCap() uint16 {
	if n.Kind == Switch {
		return 32
	}
	return 128
}

const (
	linearCap     = 49152
	multicastLIDs = 4096 // entries of a multicast forwarding table
	enhanced      = 1 << 3
)

func (f *Fabric) switchInfo(n *Node, data []byte) {
	be.PutUint16(data[0:], linearCap)
	be.PutUint16(data[4:], multicastLIDs)
	be.PutUint16(data[6:], f.topLID)
	data[8] = 255               // default port
	data[11] = 18 << 3          // packets live 4.096 µs · 2^18
	be.PutUint16(data[14:], 32) // P_Keys that a port can enforce
	if n.Managed {
		data[16] = 0xf0 | enhanced
	} else {
		data[16] = 0xf0
	}
}

func (f *Fabric) guids(at arrival, block uint32, data []byte) uint16 {
	p := at.port
	if at.node.Kind == Switch {
		p = at.node.Ports[0]
	}
	if block >= uint32(p.guidCap()+7)/8 {
		return statusBadField
	}
	if block == 0 {
		be.PutUint64(data, p.GUID)
	}
	return 0
}

func (p *Port) guidCap() uint8 {
	if p.Node.Kind == Switch {
		return 1
	}
	return 8
}

func (f *Fabric) pkeys(at arrival, modifier uint32, data []byte) uint16 {
	n := at.node
	if modifier&0xffff >= uint32(n.pkeyCap()/32) || n.Kind == Switch && int(modifier>>16) >= len(n.Ports) {
		return statusBadField
	}
	if modifier&0xffff == 0 {
		be.PutUint16(data, 0xffff)
	}
	return 0
}

// slToVL maps service levels 0 to 7 and 8 to 15 to the 4 data VLs, 4 bits each.
var slToVL = [8]byte{0x01, 0x23, 0x01, 0x23, 0x01, 0x23, 0x01, 0x23}

const arbitrationCap = 8

// arbitration fills in a table of pairs of a VL and its weight: 1 is the low priority's first half, 3 the high priority's.
func (f *Fabric) arbitration(at arrival, modifier uint32, data []byte) uint16 {
	if at.node.Kind == Switch && int(modifier&0xff) >= len(at.node.Ports) {
		return statusBadField
	}
	block := modifier >> 16
	if block < 1 || block > 4 {
		return statusBadField
	}
	for i := range arbitrationCap {
		if block == 1 || block == 3 {
			data[2*i] = byte(i % 4)
		}
		switch {
		case block == 1 && i > 0, block == 3 && i == 0:
			data[2*i+1] = 4
		}
	}
	return 0
}

// linear fills in 64 entries of a switch's forwarding table.
func (f *Fabric) linear(n *Node, block int, data []byte) {
	for i := range 64 {
		data[i] = unrouted
		if lid := block*64 + i; lid < len(n.lft) {
			data[i] = n.lft[lid]
		}
	}
}

func (f *Fabric) smInfo(data []byte, now time.Time) {
	be.PutUint64(data, f.SM.GUID)
	be.PutUint32(data[16:], f.activityAt(now))
	data[20] = smPriority<<4 | smMaster
}

const (
	smPriority = 15
	smMaster   = 3
)

// activityAt counts the sweeps of the subnet manager: one every 10 seconds, and one for each change.
func (f *Fabric) activityAt(now time.Time) uint32 {
	if f.Started.IsZero() || now.Before(f.Started) {
		return f.activity
	}
	return f.activity + uint32(now.Sub(f.Started)/(10*time.Second))
}

// info fills in PortInfo. local is the port that the packet came in by.
func (p *Port) info(data []byte, local int) {
	n := p.Node
	be.PutUint64(data[8:], 0)
	end := p.Number == 0 || n.Kind == CA
	if end {
		be.PutUint64(data[8:], Prefix)
		be.PutUint16(data[16:], p.LID)
		be.PutUint16(data[18:], p.SMLID)
		be.PutUint32(data[20:], p.CapMask)
		be.PutUint16(data[60:], p.CapMask2)
		data[34] = p.LMC
		data[50] = p.guidCap()
		data[51] = 18 // subnet timeout
	}
	data[28] = byte(local)
	widths := p.widths()
	data[29], data[30], data[31] = widths, widths, p.Width.Bit()
	if p.enabledWidths != 0 {
		data[29] = p.enabledWidths & widths
	}
	active, extended, second := p.Speed.codes()
	_, supported, supported2 := p.MaxSpeed.codes()
	mask, base := below(supported), byte(7)
	if p.MaxSpeed < QDR {
		base = below(byte(p.MaxSpeed))
	}
	data[32] = base<<4 | byte(p.State)
	data[33] = byte(p.Phys)<<4 | byte(Polling)
	data[35] = active<<4 | base
	if p.enabledSpeeds != 0 {
		data[35] = active<<4 | p.enabledSpeeds&base
	}
	if p.State == Down {
		extended, second = 0, 0
	}
	if p.Number == 0 { // a switch's management port has no link
		extended, second, mask, supported2 = 0, 0, 0, 0
	}
	data[62] = extended<<4 | mask
	data[63] = mask
	if p.enabledExtended != 0 {
		data[63] = p.enabledExtended & mask
	}
	data[56] = second<<5 | supported2<<3 | supported2
	mtu := p.MTU
	if p.State == Down {
		mtu = p.MaxMTU
	}
	data[36] = MTUCode(mtu) << 4
	data[37] = vlCap << 4
	data[39], data[40] = arbitrationCap, arbitrationCap
	data[41] = MTUCode(p.MaxMTU)
	data[42] = 7<<5 | 0x10
	data[43] = operationalVLs << 4
	data[52] = 0x10
	data[53] = 8<<4 | 8
}

// correction fills in PortInfoExtended. Links of EDR and faster use a Reed-Solomon code; slower ones use none.
func (p *Port) correction(data []byte) {
	const isFEC, reedSolomon = 1, 2
	be.PutUint32(data, isFEC)
	if p.State != Down && p.Speed >= EDR {
		be.PutUint16(data[4:], reedSolomon)
	}
	// A bit for each mode that is supported, and enabled, at FDR, EDR, HDR and NDR.
	for speed, at := range map[Speed]int{FDR: 6, EDR: 10, HDR: 28, NDR: 32} {
		modes := uint16(1 << reedSolomon)
		if speed == FDR {
			modes = 1 << 0
		}
		if p.MaxSpeed >= speed {
			be.PutUint16(data[at:], modes)
			be.PutUint16(data[at+2:], modes)
		}
	}
}

const (
	vlCap          = 4 // VL0 to VL7
	operationalVLs = 3 // VL0 to VL3, as opensm leaves it
)

// widths has a bit for each width that the port can do.
func (p *Port) widths() byte {
	bits := Width(1).Bit() | p.MaxWidth.Bit()
	if p.MaxSpeed >= HDR && p.MaxWidth >= 2 {
		bits |= Width(2).Bit()
	}
	return bits
}

// codes are the numbers of a speed in PortInfo: the basic one, which stays QDR for all that is faster; LinkSpeedExtActive,
// where XDR shows as NDR to tools that do not know it; and LinkSpeedExtActive2.
func (s Speed) codes() (basic, extended, second byte) {
	switch {
	case s <= DDR:
		return byte(s), 0, 0
	case s < FDR:
		return 4, 0, 0
	case s == XDR:
		return 4, 8, 1
	}
	return 4, 1 << (s - FDR), 0
}

// below has the bit and all lower ones.
func below(bit byte) byte {
	if bit == 0 {
		return 0
	}
	return bit<<1 - 1
}
