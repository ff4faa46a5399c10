package fabric

import "time"

// Attributes of performance management.
const (
	attrPerfClassInfo = 0x01
	attrSamples       = 0x10 // PortSamplesControl
	attrCounters      = 0x12
	attrRcvDetails    = 0x15
	attrDiscards      = 0x16
	attrExtended      = 0x1d
	attrSpeeds        = 0x1f // PortExtendedSpeedsCounters
	attrXmitSL        = 0x36 // PortXmitDataSL
	attrRcvSL         = 0x37 // PortRcvDataSL
)

// perfAttributes are the attributes of ports that are answered. Those that cannot be set have no counters.
var perfAttributes = map[uint16]struct{ settable bool }{attrSamples: {}, attrCounters: {true}, attrRcvDetails: {true}, attrDiscards: {true},
	attrExtended: {true}, attrSpeeds: {true}, attrXmitSL: {true}, attrRcvSL: {true}}

// position is where a counter stands in PortCounters and PortCountersExtended, and the bits that select it there.
type position struct {
	counter          Counter
	offset, bits     int // in PortCounters, in bits; bits is 0 if it is not there
	selected         int // bit of CounterSelect; from 16 on of CounterSelect2
	extended         int // offset in PortCountersExtended, in bytes; 0 if it is not there
	extendedSelected int // bit of CounterSelect; from 16 on of CounterSelect2
}

var positions = []position{
	{SymbolErrorCounter, 32, 16, 0, 72, 16},
	{LinkErrorRecovery, 48, 8, 1, 80, 17},
	{LinkDowned, 56, 8, 2, 88, 18},
	{RcvErrors, 64, 16, 3, 96, 19},
	{RcvRemotePhysErrors, 80, 16, 4, 104, 20},
	{RcvSwitchRelayErrors, 96, 16, 5, 112, 21},
	{XmitDiscards, 112, 16, 6, 120, 22},
	{XmitConstraintErrors, 128, 8, 7, 128, 23},
	{RcvConstraintErrors, 136, 8, 8, 136, 24},
	{LocalLinkIntegrity, 152, 4, 9, 144, 25},
	{BufferOverruns, 156, 4, 10, 152, 26},
	{QP1Dropped, 160, 16, 17, 176, 29},
	{VL15Dropped, 176, 16, 11, 160, 27},
	{XmitData, 192, 32, 12, 8, 0},
	{RcvData, 224, 32, 13, 16, 1},
	{XmitPackets, 256, 32, 14, 24, 2},
	{RcvPackets, 288, 32, 15, 32, 3},
	{XmitWait, 320, 32, 16, 168, 28},
	{UnicastXmitPackets, 0, 0, 0, 40, 4},
	{UnicastRcvPackets, 0, 0, 0, 48, 5},
	{MulticastXmitPackets, 0, 0, 0, 56, 6},
	{MulticastRcvPackets, 0, 0, 0, 64, 7},
}

// Bits of a ClassPortInfo's CapMask.
const (
	perfAllPorts  = 1 << 8
	perfExtended  = 1 << 9
	perfXmitWait  = 1 << 12
	perfQP1Drop   = 1 << 15
	perfMask2Errs = 1 << 1 // in CapMask2: the extended attribute has error counters too
)

// performance answers a request to the performance manager's agent in place.
func (f *Fabric) performance(to *Port, h header, mad []byte, now time.Time) {
	n := to.Node
	data := mad[64:MADSize]
	mad[3] = methodGet | response
	status := func() uint16 {
		switch {
		case h.method != methodGet && h.method != methodSet:
			return statusBadMethod
		case h.attribute == attrPerfClassInfo:
			if h.method == methodSet {
				return statusBadMethod
			}
			clear(data)
			data[0], data[1] = 1, 1
			if n.Kind == Switch {
				be.PutUint16(data[2:], 0x5300)
				be.PutUint32(data[4:], perfMask2Errs<<5|0x12)
			} else {
				be.PutUint16(data[2:], 0x5a00)
				data[7] = 0x12
			}
			return 0
		}
		if a, known := perfAttributes[h.attribute]; !known || h.method == methodSet && !a.settable {
			return statusBadAttribute
		}
		number := int(data[1])
		var ports []*Port
		switch {
		case number == 255 && n.Kind == Switch:
			ports = n.Ports[1:]
		case number >= len(n.Ports), number == 0 && n.Kind == CA:
			return statusBadField
		default:
			ports = n.Ports[number : number+1]
		}
		if h.method == methodSet {
			f.reset(ports, h.attribute, data, now)
		}
		f.readings(ports, h.attribute, data, now, n.Kind == Switch)
		return 0
	}()
	setStatus(mad, status)
}

// reset clears the selected counters. PortCounters and PortCountersExtended show the same counters, so clearing one clears
// the other.
func (f *Fabric) reset(ports []*Port, attribute uint16, data []byte, now time.Time) {
	selected, second := uint32(be.Uint16(data[2:])), uint32(data[18])
	if attribute == attrExtended {
		second = be.Uint32(data[4:])
	}
	switch attribute {
	case attrRcvDetails, attrDiscards, attrSpeeds:
		return // parts of two counters, which are cleared with them; the last has none that is not 0
	case attrXmitSL, attrRcvSL:
		for _, p := range ports {
			if selected&1 == 1 {
				f.Reset(p, ofSL0[attribute], now)
			}
		}
		return
	}
	for _, pos := range positions {
		bit, there := pos.selected, pos.bits > 0
		if attribute == attrExtended {
			bit, there = pos.extendedSelected, pos.extended > 0
		}
		if there && (bit < 16 && selected>>bit&1 == 1 || bit >= 16 && second>>(bit-16)&1 == 1) {
			for _, p := range ports {
				f.Reset(p, pos.counter, now)
			}
		}
	}
}

// ofSL0 are the counters of service level 0, which all traffic has.
var ofSL0 = map[uint16]Counter{attrXmitSL: xmitDataSL0, attrRcvSL: rcvDataSL0}

// readings fills in the sums of the ports' counters. A counter in PortCounters stays at its highest value.
func (f *Fabric) readings(ports []*Port, attribute uint16, data []byte, now time.Time, errors bool) {
	number, selected := data[1], be.Uint16(data[2:])
	clear(data)
	data[1] = number
	be.PutUint16(data[2:], selected)
	sum := func(c Counter) (total uint64) {
		for _, p := range ports {
			total += f.Read(p, c, now)
		}
		return total
	}
	switch attribute {
	case attrSamples: // counters of 32 bits, of which none can be sampled
		be.PutUint16(data[2:], 4)
		return
	case attrSpeeds:
		be.PutUint16(data[2:], 0)
		return
	case attrXmitSL, attrRcvSL:
		be.PutUint32(data[4:], uint32(min(sum(ofSL0[attribute]), 0xffffffff)))
		return
	case attrRcvDetails: // PortLocalPhysicalErrors is the first part of PortRcvErrors
		be.PutUint16(data[4:], uint16(min(sum(RcvErrors), 0xffff)))
		return
	case attrDiscards: // PortInactiveDiscards is the first part of PortXmitDiscards
		be.PutUint16(data[4:], uint16(min(sum(XmitDiscards), 0xffff)))
		return
	}
	for _, pos := range positions {
		if attribute == attrExtended {
			if pos.extended > 0 && (errors || pos.extended < 72) {
				be.PutUint64(data[pos.extended:], sum(pos.counter))
			}
		} else if pos.bits > 0 {
			value := min(sum(pos.counter), 1<<pos.bits-1)
			for i := 0; i < pos.bits; i += min(8, pos.bits) {
				shift := pos.bits - i - min(8, pos.bits)
				data[(pos.offset+i)/8] |= byte(value>>shift) << (8 - pos.offset%8 - min(8, pos.bits))
			}
		}
	}
}
