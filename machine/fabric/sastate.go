package fabric

import (
	"bytes"
	"slices"
	"time"
)

// service is a service record that a program has registered with the SA. Its id, GID and P_Key name it.
type service struct {
	record  [serviceSize]byte
	expires time.Time // zero: never
}

const (
	serviceSize    = 176
	serviceName    = 26 // bytes at the beginning that name a record
	serviceLease   = 28
	leaseForever   = 0xffffffff
	serviceDefault = 0xffff // P_Key
)

// Bits of the component mask of a service record.
const (
	serviceID     = 1 << 0
	serviceGID    = 1 << 1
	servicePKey   = 1 << 2
	serviceLeased = 1 << 4
)

// expire takes records away whose lease is over.
func (f *Fabric) expire(now time.Time) {
	f.services = slices.DeleteFunc(f.services, func(s *service) bool { return !s.expires.IsZero() && !now.Before(s.expires) })
}

// changeService carries out a Set or Delete of a service record, which is answered with the record.
func (f *Fabric) changeService(h header, mask uint64, record []byte, now time.Time) (status uint16) {
	f.expire(now)
	if mask&(serviceID|serviceGID) != serviceID|serviceGID {
		if h.method == methodDelete {
			return statusSANoRecords // without a name there is none
		}
		return statusSABadRequest
	}
	if mask&servicePKey == 0 {
		be.PutUint16(record[24:], 0)
	}
	i := slices.IndexFunc(f.services, func(s *service) bool { return bytes.Equal(s.record[:serviceName], record[:serviceName]) })
	if h.method == methodDelete {
		if i < 0 {
			return statusSANoRecords
		}
		copy(record, f.services[i].record[:])
		f.services = slices.Delete(f.services, i, i+1)
		return 0
	}
	if mask&serviceLeased == 0 {
		be.PutUint32(record[serviceLease:], leaseForever)
	}
	s := &service{record: [serviceSize]byte(record)}
	if lease := be.Uint32(record[serviceLease:]); lease != leaseForever {
		s.expires = now.Add(time.Duration(lease) * time.Second)
	}
	switch {
	case i >= 0:
		f.services[i] = s
	case len(f.services) >= maxServices:
		return statusSANoResources
	default:
		f.services = append(f.services, s)
	}
	return 0
}

const (
	maxServices = 1 << 14
	maxGroups   = 4096 - 3 // LIDs for multicast, without those of IPoIB
)

// serviceRecords has those that programs have registered, with the rest of their lease.
func serviceRecords(f *Fabric, q *query) {
	f.expire(q.now)
	for _, s := range f.services {
		r := slices.Clone(s.record[:])
		if !s.expires.IsZero() {
			be.PutUint32(r[serviceLease:], uint32((s.expires.Sub(q.now)+time.Second-1)/time.Second))
		}
		if !q.add(r) {
			return
		}
	}
}

// Fields of a member record, as bits of its component mask and as offsets.
const (
	memberMGID  = 1 << 0
	memberPort  = 1 << 1
	memberQKey  = 1 << 2
	memberMLID  = 1 << 3
	memberMTU   = 1<<4 | 1<<5 // the selector, too
	memberClass = 1 << 6
	memberPKey  = 1 << 7
	memberRate  = 1<<8 | 1<<9
	memberLife  = 1<<10 | 1<<11
	memberSL    = 1 << 12
	memberFlow  = 1 << 13
	memberState = 1 << 16

	toJoin   = memberMGID | memberPort | memberState
	toCreate = toJoin | memberQKey | memberClass | memberPKey | memberFlow | memberSL

	memberSize    = 52
	offsetQKey    = 32
	offsetMLID    = 36
	offsetMTU     = 38
	offsetClass   = 39
	offsetPKey    = 40
	offsetRate    = 42
	offsetLife    = 43
	offsetFlow    = 44 // SL in the upper 4 bits, hop limit in the lower 8
	offsetState   = 48 // scope in the upper half
	fullMember    = 1
	anyMember     = 0xf
	exactSelector = 2 << 6
)

// changeMember carries out a Set or Delete of a member record: a port joins a group, which may be new, or leaves it. The answer is
// the record as it is then.
func (f *Fabric) changeMember(h header, mask uint64, record []byte) (status uint16) {
	if mask&toJoin != toJoin {
		return statusSAComponents
	}
	port := f.ByGUID(be.Uint64(record[24:]))
	state := record[offsetState] & anyMember
	if be.Uint64(record[16:]) != Prefix || port == nil || port.LID == 0 || !port.Up() && port.Node.Kind == CA || state == 0 {
		return statusSABadRequest
	}
	g := f.group([16]byte(record))
	if h.method == methodDelete {
		if g == nil || g.state(port)&state == 0 {
			return statusSABadRequest
		}
		left := g.state(port) &^ state
		g.join(port, left)
		f.sweepGroups()
		// Apart from how the port is in the group, the answer has what the request had, each value as an exact one.
		for _, at := range []int{offsetMTU, offsetRate, offsetLife} {
			record[at] = record[at]&0x3f | exactSelector
		}
		record[offsetState] = g.scope<<4 | left
		return 0
	}
	if g == nil {
		if mask&toCreate != toCreate {
			return statusSAComponents
		}
		if state&fullMember == 0 || len(f.groups) >= maxGroups {
			return statusSABadRequest
		}
		if g = f.newGroup(mask, record, port); g == nil {
			return statusSABadRequest
		}
		f.groups = append(f.groups, g)
	} else if !g.agrees(mask, record, port) {
		return statusSABadRequest
	}
	g.join(port, g.state(port)|state)
	g.fill(record)
	record[offsetState] = g.scope<<4 | g.state(port)
	return 0
}

// newGroup makes the group that a record describes. It returns nil if there cannot be such a group.
func (f *Fabric) newGroup(mask uint64, record []byte, port *Port) *group {
	g := &group{mgid: [16]byte(record), qkey: be.Uint32(record[offsetQKey:]), mtu: MTUCode(port.MTU), class: record[offsetClass], pkey: be.Uint16(record[offsetPKey:]),
		rate: rateCode(port.Tenths()), flow: be.Uint32(record[offsetFlow:]), scope: record[1] & 0xf, states: map[uint64]byte{}}
	if g.mgid == [16]byte{} {
		// The SA chooses a GID of its own kind.
		g.mgid, g.scope = [16]byte{0xff, 0x12, 0xa0, 0x1c, 0xfe, 0x80}, 2
		for id := uint32(1); f.group(g.mgid) != nil || id == 1; id++ {
			be.PutUint32(g.mgid[12:], id)
		}
	}
	if g.mgid[0] != 0xff || g.scope == 0 || g.scope == 0xf {
		return nil
	}
	// A selector says at least, at most or exactly.
	choose := func(bits uint64, value *byte, asked byte, highest byte) bool {
		if mask&bits != bits {
			return true
		}
		want := asked & 0x3f
		switch asked >> 6 {
		case 0: // more than
			return *value > want
		case 1: // less than
			if want <= 1 {
				return false
			}
			*value = min(*value, want-1)
		case 2:
			*value = want
		}
		return *value <= highest
	}
	if !choose(memberMTU, &g.mtu, record[offsetMTU], g.mtu) || !choose(memberRate, &g.rate, record[offsetRate], 24) || !choose(memberLife, &g.life, record[offsetLife], 0x3f) {
		return nil
	}
	for g.lid = 0xc000; slices.ContainsFunc(f.groups, func(o *group) bool { return o.lid == g.lid }); g.lid++ {
	}
	return g
}

// agrees says whether a port can join a group with the properties that a record asks for.
func (g *group) agrees(mask uint64, record []byte, port *Port) bool {
	differs := func(bit uint64, same bool) bool { return mask&bit == bit && !same }
	flow := be.Uint32(record[offsetFlow:])
	fits := func(bits uint64, have, asked byte) bool {
		if mask&bits != bits {
			return true
		}
		switch want := asked & 0x3f; asked >> 6 {
		case 0:
			return have > want
		case 1:
			return have < want
		case 2:
			return have == want
		}
		return true
	}
	return !differs(memberQKey, be.Uint32(record[offsetQKey:]) == g.qkey) && !differs(memberMLID, be.Uint16(record[offsetMLID:]) == g.lid) &&
		!differs(memberClass, record[offsetClass] == g.class) && !differs(memberPKey, be.Uint16(record[offsetPKey:])&0x7fff == g.pkey&0x7fff) &&
		!differs(memberSL, flow>>28 == g.flow>>28) && !differs(memberFlow, flow>>8&0xfffff == g.flow>>8&0xfffff) &&
		fits(memberMTU, g.mtu, record[offsetMTU]) && fits(memberRate, g.rate, record[offsetRate]) && fits(memberLife, g.life, record[offsetLife]) &&
		MTUCode(port.MTU) >= g.mtu
}

// fill writes what all records of a group have.
func (g *group) fill(record []byte) {
	copy(record, g.mgid[:])
	be.PutUint32(record[offsetQKey:], g.qkey)
	be.PutUint16(record[offsetMLID:], g.lid)
	record[offsetMTU], record[offsetClass] = exactSelector|g.mtu, g.class
	be.PutUint16(record[offsetPKey:], g.pkey)
	record[offsetRate], record[offsetLife] = exactSelector|g.rate, exactSelector|g.life
	be.PutUint32(record[offsetFlow:], g.flow)
}

// memberRecords has each group once. Who names the SM_Key gets a record for each member, with its GID.
func memberRecords(f *Fabric, q *query) {
	all := f.members()
	for _, g := range f.groups {
		ports := []*Port{nil}
		if q.trusted {
			ports = g.members(all)
		}
		for _, p := range ports {
			r := make([]byte, memberSize)
			g.fill(r)
			r[offsetState] = g.scope << 4
			if p != nil {
				copy(r[16:], gid(p))
				r[offsetState] = g.scope<<4 | g.state(p)
			}
			if !q.add(r) {
				return
			}
		}
	}
}

// multiPath answers a request for ways between several ports. It may be longer than one datagram.
func (f *Fabric) multiPath(q *query, request []byte) (status uint16) {
	const (
		counts     = 1<<19 | 1<<20 // of the component mask: SGIDCount and DGIDCount
		sources    = 15            // where the number of source GIDs is
		gids       = 24            // where they are
		reversible = 0x80
	)
	if q.mask&counts != counts || len(request) < gids {
		return statusSAComponents
	}
	from, to := int(request[sources]), int(request[sources+1])
	if from == 0 || to == 0 || len(request) < gids+16*(from+to) {
		return statusSABadRequest
	}
	port := func(i int) *Port {
		at := request[gids+16*i:]
		if be.Uint64(at) != Prefix {
			return nil
		}
		return f.ByGUID(be.Uint64(at[8:]))
	}
	path := *q
	path.table, path.mask = tables[attrSAPath], 1<<2|1<<3
	for i := range from {
		for k := range to {
			s, d := port(i), port(from+k)
			if s == nil || d == nil {
				return statusSABadGID
			}
			path.want = make([]byte, 64)
			copy(path.want[8:], gid(d))
			copy(path.want[24:], gid(s))
			pathRecords(f, &path)
		}
	}
	q.table, q.out, q.count = path.table, path.out, path.count
	return 0
}
