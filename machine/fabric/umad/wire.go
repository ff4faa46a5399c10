// Package umad is what a kernel does for /dev/infiniband/umadN and issmN: it keeps agents, sends their management datagrams
// into a fabric, and brings answers and timeouts back.
//
// libibmockumad.so connects a program's file descriptor to it by a Unix socket that keeps messages apart. What a program
// reads from the descriptor is the messages that the server sends, as the kernel would lay them out. What it writes, and its
// ioctls, come as requests: 16 bytes that say what is wanted, the data, and, in an ancillary message, an eventfd that takes
// the result.
package umad

import (
	"encoding/binary"
	"fmt"
	"syscall"
)

// Operations of a request.
const (
	opOpen       = 1 // data: kind, number, flags
	opWrite      = 2 // data: what the program writes
	opRegister   = 3 // data: struct ib_user_mad_reg_req
	opRegister2  = 4 // data: struct ib_user_mad_reg_req2
	opUnregister = 5 // data: the agent's id
	opEnablePKey = 6 // no data
	opAlive      = 7 // no data, and nothing to do: a client asks whether the server still answers
)

// The kinds of files.
const (
	kindUMAD = 0
	kindISSM = 1
)

const (
	magic       = 0x6264616d // "madb"
	prefixSize  = 16         // magic, operation, size of the data, zero
	maxRequest  = 1 << 16
	inlineSize  = 1 << 16 // longer messages go as a file
	headerSize  = 64
	headerSmall = 56 // without ENABLE_PKEY
)

// request is a decoded message of a client.
type request struct {
	op   uint32
	data []byte
}

// decode reads a message. The data is part of b.
func decode(b []byte) (request, error) {
	if len(b) < prefixSize {
		return request{}, fmt.Errorf("%d bytes are no request", len(b))
	}
	le := binary.LittleEndian
	r := request{op: le.Uint32(b[4:]), data: b[prefixSize:]}
	switch {
	case le.Uint32(b) != magic:
		return request{}, fmt.Errorf("a request does not begin with %#x", le.Uint32(b))
	case int(le.Uint32(b[8:])) != len(r.data):
		return request{}, fmt.Errorf("a request of %d bytes says that it has %d", len(r.data), le.Uint32(b[8:]))
	case le.Uint32(b[12:]) != 0:
		return request{}, fmt.Errorf("the last word of a request's prefix is %#x", le.Uint32(b[12:]))
	}
	return r, nil
}

// result is what an eventfd gets: one more than the error number, and a value such as an agent's id.
func result(errno syscall.Errno, value uint32) uint64 { return uint64(value)<<32 | uint64(errno) + 1 }

// registration is what both kinds of registering ask for.
type registration struct {
	qpn, class, version, rmpp uint8
	oui                       uint32
	methods                   [2]uint64 // a bit for each method that the agent wants unsolicited
}

// decodeRegister reads struct ib_user_mad_reg_req.
func decodeRegister(b []byte) (registration, bool) {
	if len(b) != 28 {
		return registration{}, false
	}
	le := binary.LittleEndian
	return registration{qpn: b[20], class: b[21], version: b[22], oui: uint32(b[23])<<16 | uint32(b[24])<<8 | uint32(b[25]), rmpp: b[26],
		methods: [2]uint64{le.Uint64(b[4:]), le.Uint64(b[12:])}}, true
}

// userRMPP is the only flag of struct ib_user_mad_reg_req2.
const userRMPP = 1

// decodeRegister2 reads struct ib_user_mad_reg_req2.
func decodeRegister2(b []byte) (r registration, flags uint32, ok bool) {
	if len(b) != 40 {
		return registration{}, 0, false
	}
	le := binary.LittleEndian
	qpn := le.Uint32(b[4:])
	return registration{qpn: uint8(min(qpn, 255)), class: b[8], version: b[9], oui: le.Uint32(b[32:]), rmpp: b[36],
		methods: [2]uint64{le.Uint64(b[16:]), le.Uint64(b[24:])}}, le.Uint32(b[12:]), true
}

// packet is struct ib_user_mad_hdr and the MAD after it.
type packet struct {
	id      uint32
	timeout uint32 // milliseconds
	retries uint32
	qpn     uint32
	lid     uint16
	sl      uint8
	pkey    uint16
	header  []byte // as it came
	mad     []byte
}

// decodePacket reads what a program writes. Size is that of the header. The header and the MAD are part of b.
func decodePacket(b []byte, size int) (packet, syscall.Errno) {
	const rmppHeader = 36
	if len(b) < size+rmppHeader || len(b) > size+maxRequest {
		return packet{}, syscall.EINVAL
	}
	le, be := binary.LittleEndian, binary.BigEndian
	p := packet{id: le.Uint32(b), timeout: le.Uint32(b[8:]), retries: le.Uint32(b[12:]), qpn: be.Uint32(b[20:]), lid: be.Uint16(b[28:]),
		sl: b[30], header: b[:size], mad: b[size:]}
	if size == headerSize {
		p.pkey = le.Uint16(b[56:])
	}
	return p, 0
}

// encode lays a MAD that has arrived out for reading.
func encode(size int, id, status uint32, qpn uint32, lid uint16, mad []byte) []byte {
	b := make([]byte, size+len(mad))
	le, be := binary.LittleEndian, binary.BigEndian
	le.PutUint32(b, id)
	le.PutUint32(b[4:], status)
	le.PutUint32(b[16:], uint32(len(b)))
	be.PutUint32(b[20:], qpn)
	be.PutUint16(b[28:], lid)
	copy(b[size:], mad)
	return b
}
