package fabric

import (
	"bytes"
	"time"
)

// Attributes of subnet administration. The others have the number of the same attribute of subnet management.
const (
	attrClassPortInfo  = 0x01
	attrSANodeRecord   = 0x11
	attrSAPortInfo     = 0x12
	attrSASL2VL        = 0x13
	attrSASwitchInfo   = 0x14
	attrSALinear       = 0x15
	attrSAMulticast    = 0x17
	attrSASMInfo       = 0x18
	attrSALink         = 0x20
	attrSAGUIDInfo     = 0x30
	attrSAService      = 0x31
	attrSAPKeys        = 0x33
	attrSAPath         = 0x35
	attrSAVLArb        = 0x36
	attrSAMember       = 0x38
	attrSAMultiPath    = 0x3a
	attrSAInform       = 0xf3
	offsetSMKey        = 36
	offsetAttrOffset   = 44
	offsetMask         = 48
	offsetRecords      = 56
	smKey              = 1 // opensm's default; P_Keys are told to those who name it
	maxRecords         = 1 << 17
	matchAnyCapability = 0x80000000 // modifier: the record has all bits of the CapMask in the request
)

// component is a field of a record that a request may ask for.
type component struct {
	bit    int // in the component mask
	offset int // in bits
	size   int // in bits
}

// table is one kind of record.
type table struct {
	size       int // in bytes, a multiple of 8
	components []component
	records    func(f *Fabric, q *query)
}

// query is a request for records, and the answer as it grows.
type query struct {
	from     *Port
	mask     uint64
	modifier uint32
	want     []byte
	table    *table
	now      time.Time
	trusted  bool // the request has the SM_Key
	out      []byte
	count    int
}

// add appends a record if it matches the request. It returns false once there are too many.
func (q *query) add(record []byte) bool {
	for _, c := range q.table.components {
		if q.mask>>c.bit&1 == 0 {
			continue
		}
		if q.modifier == matchAnyCapability && q.table == tables[attrSAPortInfo] && c.bit == portInfoCapMask {
			want := be.Uint32(q.want[c.offset/8:])
			if be.Uint32(record[c.offset/8:])&want != want {
				return true
			}
		} else if !same(record, q.want, c.offset, c.size) {
			return true
		}
	}
	if q.count++; q.count > maxRecords {
		return false
	}
	q.out = append(q.out, record...)
	q.out = append(q.out, make([]byte, q.table.size-len(record))...)
	return true
}

// same compares a field of two records.
func same(a, b []byte, offset, size int) bool {
	if offset%8 == 0 && size%8 == 0 {
		return bytes.Equal(a[offset/8:(offset+size)/8], b[offset/8:(offset+size)/8])
	}
	for i := offset; i < offset+size; i++ {
		if (a[i/8]^b[i/8])>>(7-i%8)&1 != 0 {
			return false
		}
	}
	return true
}

const portInfoCapMask = 7

// The components are numbered as the specification does; a request for another one is refused.
var tables map[uint16]*table

func init() {
	lid := component{0, 0, 16}
	tables = map[uint16]*table{
		attrSANodeRecord: {112, []component{lid, {2, 32, 8}, {3, 40, 8}, {4, 48, 8}, {5, 56, 8}, {6, 64, 64}, {7, 128, 64},
			{8, 192, 64}, {9, 256, 16}, {10, 272, 16}, {11, 288, 32}, {12, 320, 8}, {13, 328, 24}, {14, 352, 512}}, nodeRecords},
		attrSAPortInfo: {72, []component{lid, {1, 16, 8}, {4, 96, 64}, {5, 160, 16}, {6, 176, 16}, {portInfoCapMask, 192, 32}, {10, 256, 8},
			{16, 292, 4}, {17, 296, 4}}, portInfoRecords},
		attrSASwitchInfo: {24, []component{lid}, switchRecords},
		attrSASL2VL:      {16, []component{lid, {1, 16, 8}, {2, 24, 8}}, slRecords},
		attrSALinear:     {72, []component{lid, {1, 16, 16}}, linearRecords},
		attrSAMulticast:  {72, []component{lid, {1, 16, 4}, {3, 23, 9}}, multicastRecords},
		attrSASMInfo:     {32, []component{lid, {2, 32, 64}, {4, 160, 32}, {5, 192, 4}, {6, 196, 4}}, smRecords},
		attrSALink:       {8, []component{lid, {1, 16, 8}, {2, 24, 8}, {3, 32, 16}}, linkRecords},
		attrSAGUIDInfo:   {72, []component{lid, {1, 16, 8}}, guidRecords},
		attrSAService:    {serviceSize, append([]component{{0, 0, 64}, {1, 64, 128}, {2, 192, 16}, {4, 224, 32}, {5, 256, 128}, {6, 384, 512}}, serviceData()...), serviceRecords},
		attrSAPKeys:      {72, []component{lid, {1, 16, 16}, {2, 32, 8}}, pkeyRecords},
		attrSAPath: {64, []component{{2, 64, 128}, {3, 192, 128}, {4, 320, 16}, {5, 336, 16}, {7, 352, 4}, {8, 356, 20}, {9, 376, 8},
			{10, 384, 8}, {13, 400, 16}, {15, 420, 4}}, pathRecords},
		attrSAVLArb: {72, []component{lid, {1, 16, 8}, {2, 24, 8}}, arbitrationRecords},
		attrSAMember: {56, []component{{0, 0, 128}, {1, 128, 128}, {2, 256, 32}, {3, 288, 16}, {6, 312, 8}, {7, 320, 16}, {12, 352, 4},
			{15, 384, 4}, {16, 388, 4}, {17, 392, 1}}, memberRecords},
		attrSAInform: {64, []component{{0, 0, 128}, {1, 128, 16}}, func(*Fabric, *query) {}},
	}
}

// serviceData are the fields of a service's data: sixteen of a byte, eight of two, four of four and two of eight bytes.
func serviceData() []component {
	var fields []component
	bit, at := 7, 896
	for size, count := 8, 16; count >= 2; size, count = 2*size, count/2 {
		for range count {
			fields = append(fields, component{bit, at, size})
			bit, at = bit+1, at+size
		}
	}
	return fields
}

// accepted are components that change nothing here: both bits of a path's reversibility and number, and selectors, which
// ask for at least or at most some rate, MTU or time.
var accepted = map[uint16]uint64{
	attrSAPath:   1<<11 | 1<<12 | 1<<14 | 1<<16 | 1<<17 | 1<<18 | 1<<19 | 1<<20 | 1<<21,
	attrSAMember: 1<<4 | 1<<5 | 1<<8 | 1<<9 | 1<<10 | 1<<11,
}

// administration answers a request to the SA. The answer to GetTable is as long as its records.
func (f *Fabric) administration(from *Port, h header, mad []byte, now time.Time) []byte {
	request := bytes.Clone(mad[offsetRecords:]) // which several segments may have brought
	mad = mad[:MADSize]
	refuse := func(status uint16) []byte {
		clear(mad[24:36]) // an answer in one datagram has no RMPP
		mad[3] = h.method | response
		if h.method == methodSet {
			mad[3] = methodGet | response
		}
		setStatus(mad, status)
		return mad
	}
	switch {
	case h.version != 2:
		return refuse(statusBadVersion)
	case h.method != methodGet && h.method != methodGetTable && h.method != methodSet && h.method != methodDelete && h.method != methodGetMulti:
		return refuse(statusBadMethod)
	case h.attribute == attrClassPortInfo && h.method == methodGet:
		clear(mad[offsetRecords:])
		mad[offsetRecords], mad[offsetRecords+1] = 1, 2
		be.PutUint16(mad[offsetRecords+2:], 0x2602)
		be.PutUint32(mad[offsetRecords+4:], 0xb5e8<<5|0x10)
		return refuse(0)
	}
	mask, trusted := be.Uint64(mad[offsetMask:]), be.Uint64(mad[offsetSMKey:]) == smKey
	if h.method == methodSet || h.method == methodDelete {
		var status uint16
		switch h.attribute {
		case attrSAService:
			status = f.changeService(h, mask, mad[offsetRecords:offsetRecords+serviceSize], now)
		case attrSAMember:
			status = f.changeMember(h, mask, mad[offsetRecords:offsetRecords+memberSize])
		default:
			status = statusBadAttribute
		}
		if status == 0 {
			be.PutUint16(mad[offsetAttrOffset:], uint16(tables[h.attribute].size/8))
		}
		return refuse(status)
	}
	t := tables[h.attribute]
	if (h.attribute == attrSAMultiPath) != (h.method == methodGetMulti) || t == nil && h.method != methodGetMulti {
		return refuse(statusBadAttribute)
	}
	q := &query{from: from, mask: mask, modifier: h.modifier, want: request[:MADSize-offsetRecords], table: t, now: now, trusted: trusted}
	if h.method == methodGetMulti {
		if status := f.multiPath(q, request); status != 0 {
			return refuse(status)
		}
		t = q.table
	} else {
		known := accepted[h.attribute]
		for _, c := range t.components {
			known |= 1 << c.bit
		}
		if mask&^known != 0 || h.attribute == attrSAPKeys && !trusted {
			return refuse(statusSABadRequest)
		}
		t.records(f, q)
	}
	be.PutUint16(mad[offsetAttrOffset:], uint16(t.size/8))
	switch {
	case q.count > maxRecords:
		return refuse(statusSANoResources)
	case h.method == methodGet && q.count == 0:
		return refuse(statusSANoRecords)
	case h.method == methodGet && q.count > 1 && !(h.attribute == attrSAPath):
		return refuse(statusSATooMany)
	case h.method == methodGet:
		clear(mad[offsetRecords:])
		copy(mad[offsetRecords:], q.out[:t.size])
		return refuse(0)
	}
	// What RMPP puts together has the header of the first segment: of type data, active, first and, if there is no other, last.
	answer := append(mad[:offsetRecords:offsetRecords], q.out...)
	answer[3] = h.method | response
	setStatus(answer, 0)
	answer[24], answer[25], answer[26], answer[27] = 1, 1, 3, 0
	if len(q.out) <= MADSize-offsetRecords {
		answer[26] |= 4
	}
	segments := max(1, (len(q.out)+MADSize-offsetRecords-1)/(MADSize-offsetRecords))
	be.PutUint32(answer[28:], 1)
	be.PutUint32(answer[32:], uint32(len(q.out)+segments*20)) // each segment counts 20 bytes of the SA's own header
	return answer
}

// every calls a function for each port with a LID that is reachable, until it returns false.
func (f *Fabric) every(do func(p *Port) bool) {
	for _, p := range f.byLID[1:] {
		if !p.Node.down() && (p.Node.Kind == Switch || p.Up()) && !do(p) {
			return
		}
	}
}

func (f *Fabric) everySwitch(do func(n *Node) bool) {
	f.every(func(p *Port) bool { return p.Node.Kind != Switch || do(p.Node) })
}

// everyPort also gets the other ports of switches, with the LID of the switch.
func (f *Fabric) everyPort(do func(lid uint16, p *Port) bool) {
	f.every(func(p *Port) bool {
		if p.Node.Kind != Switch {
			return do(p.LID, p)
		}
		for _, q := range p.Node.Ports {
			if !do(p.LID, q) {
				return false
			}
		}
		return true
	})
}

// lead is the beginning of a record: a LID and up to two bytes.
func lead(size int, lid uint16, rest ...byte) []byte {
	r := make([]byte, size)
	be.PutUint16(r, lid)
	copy(r[2:], rest)
	return r
}

func nodeRecords(f *Fabric, q *query) {
	f.every(func(p *Port) bool {
		r := lead(108, p.LID)
		p.Node.info(r[4:44], p)
		copy(r[44:], p.Node.Description)
		return q.add(r)
	})
}

func portInfoRecords(f *Fabric, q *query) {
	f.everyPort(func(lid uint16, p *Port) bool {
		r := lead(68, lid, byte(p.Number))
		p.info(r[4:], p.Number)
		return q.add(r)
	})
}

func switchRecords(f *Fabric, q *query) {
	f.everySwitch(func(n *Node) bool {
		r := lead(24, n.Ports[0].LID)
		f.switchInfo(n, r[4:])
		return q.add(r)
	})
}

func slRecords(f *Fabric, q *query) {
	f.every(func(p *Port) bool {
		r := lead(16, p.LID)
		copy(r[8:], slToVL[:])
		if p.Node.Kind != Switch {
			return q.add(r)
		}
		for in := range p.Node.Ports {
			for out := 1; out < len(p.Node.Ports); out++ {
				r[2], r[3] = byte(in), byte(out)
				if in != out && !q.add(r) {
					return false
				}
			}
		}
		return true
	})
}

func linearRecords(f *Fabric, q *query) {
	f.everySwitch(func(n *Node) bool {
		for block := 0; block <= int(f.topLID)/64; block++ {
			r := lead(72, n.Ports[0].LID, byte(block>>8), byte(block))
			f.linear(n, block, r[8:])
			if !q.add(r) {
				return false
			}
		}
		return true
	})
}

func multicastRecords(f *Fabric, q *query) {
	f.everySwitch(func(n *Node) bool {
		for position := 0; position <= (len(n.Ports)-1)/16; position++ {
			r := lead(72, n.Ports[0].LID, byte(position<<4), 0)
			f.multicast(n, uint32(position)<<28, r[8:])
			if !q.add(r) {
				return false
			}
		}
		return true
	})
}

func smRecords(f *Fabric, q *query) {
	r := lead(32, f.SM.LID)
	f.smInfo(r[4:25+4], q.now)
	q.add(r)
}

func linkRecords(f *Fabric, q *query) {
	f.everyPort(func(lid uint16, p *Port) bool {
		if p.Number == 0 || !p.Up() || p.Remote == nil {
			return true
		}
		to := p.Remote.LID
		if p.Remote.Node.Kind == Switch {
			to = p.Remote.Node.Ports[0].LID
		}
		r := lead(8, lid, byte(p.Number), byte(p.Remote.Number))
		be.PutUint16(r[4:], to)
		return q.add(r)
	})
}

func guidRecords(f *Fabric, q *query) {
	f.every(func(p *Port) bool {
		r := lead(72, p.LID)
		be.PutUint64(r[8:], p.GUID)
		return q.add(r)
	})
}

func pkeyRecords(f *Fabric, q *query) {
	f.everyPort(func(lid uint16, p *Port) bool {
		for block := range p.Node.pkeyCap() / 32 {
			r := lead(72, lid, byte(block>>8), byte(block), byte(p.Number))
			if block == 0 {
				be.PutUint16(r[8:], 0xffff)
			}
			if !q.add(r) {
				return false
			}
		}
		return true
	})
}

func arbitrationRecords(f *Fabric, q *query) {
	f.everyPort(func(lid uint16, p *Port) bool {
		if p.Node.Kind == Switch && p.Number == 0 {
			return true
		}
		for _, block := range []byte{1, 3} {
			r := lead(72, lid, byte(p.Number), block)
			f.arbitration(arrival{p.Node, p}, uint32(block)<<16|uint32(p.Number), r[8:])
			if !q.add(r) {
				return false
			}
		}
		return true
	})
}

func gid(p *Port) []byte {
	b := make([]byte, 16)
	be.PutUint64(b, Prefix)
	be.PutUint64(b[8:], p.GUID)
	return b
}

// pathRecords finds ways. Only the ends that the request leaves open are tried one by one.
func pathRecords(f *Fabric, q *query) {
	// With the GIDs and LIDs of a request, one port is found at once.
	ends := func(gidBit, lidBit, gidAt, lidAt int) []*Port {
		var one *Port
		switch {
		case q.mask>>gidBit&1 == 1:
			if be.Uint64(q.want[gidAt:]) != Prefix {
				return nil
			}
			one = f.ByGUID(be.Uint64(q.want[gidAt+8:]))
		case q.mask>>lidBit&1 == 1:
			one = f.ByLID(be.Uint16(q.want[lidAt:]))
		default:
			var all []*Port
			f.every(func(p *Port) bool { all = append(all, p); return true })
			return all
		}
		if one == nil || one.LID == 0 {
			return nil
		}
		return []*Port{one}
	}
	to, from := ends(2, 4, 8, 40), ends(3, 5, 24, 42)
	for _, s := range from {
		for _, d := range to {
			if s.Node.down() || d.Node.down() || s.Node.Kind == CA && !s.Up() {
				continue
			}
			path := f.Path(s, d.LID)
			if path == nil {
				continue
			}
			rate, mtu := 0, 4096
			for _, p := range append([]*Port{s, d}, path...) {
				if tenths := p.Tenths(); rate == 0 || tenths < rate {
					rate = tenths
				}
				mtu = min(mtu, p.MTU)
			}
			r := make([]byte, 64)
			copy(r[8:], gid(d))
			copy(r[24:], gid(s))
			be.PutUint16(r[40:], d.LID)
			be.PutUint16(r[42:], s.LID)
			r[49] = 0x80 // reversible
			be.PutUint16(r[50:], 0xffff)
			r[54] = 2<<6 | MTUCode(mtu)
			r[55] = 2<<6 | rateCode(rate)
			r[56] = 2<<6 | byte(0x12)
			if len(path) == 0 || len(path) == 2 {
				r[56] = 2 << 6
			}
			if !q.add(r) {
				return
			}
		}
	}
}

// rateCode is the number of a rate in a path record: the highest that is not above it. Rates are in tenths of Gb/s.
func rateCode(tenths int) byte {
	best, code := 0, byte(2)
	for c, rate := range map[byte]int{2: 25, 3: 100, 4: 300, 5: 50, 6: 200, 7: 400, 8: 600, 9: 800, 10: 1200, 11: 140, 12: 560, 13: 1120,
		14: 1680, 15: 250, 16: 1000, 17: 2000, 18: 3000, 19: 280, 20: 500, 21: 4000, 22: 6000, 23: 8000, 24: 12000} {
		if rate <= tenths && rate > best {
			best, code = rate, c
		}
	}
	return code
}
