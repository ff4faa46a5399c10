package fabric

import (
	"encoding/binary"
	"errors"
	"time"
)

var be = binary.BigEndian

// MADSize is the size of a management datagram, apart from one that RMPP puts together from several.
const MADSize = 256

// Management classes.
const (
	classSubnLID    = 0x01
	classSubnDirect = 0x81
	classSA         = 0x03
	classPerf       = 0x04
	classMellanox   = 0x0a // vendor range 1: what Mellanox's firmware tells
	classPing       = 0x32 // vendor range 2: ibping
	classSysstat    = 0x33 // vendor range 2: ibsysstat
)

// Methods.
const (
	methodGet      = 0x01
	methodSet      = 0x02
	methodGetTable = 0x12
	methodGetMulti = 0x14
	methodDelete   = 0x15
	response       = 0x80
)

// Status codes of a MAD's header. The SA has its own in the upper byte.
const (
	statusBadVersion    = 1 << 2
	statusBadMethod     = 2 << 2
	statusBadAttribute  = 3 << 2
	statusBadField      = 7 << 2
	statusSANoResources = 1 << 8
	statusSABadRequest  = 2 << 8
	statusSANoRecords   = 3 << 8
	statusSATooMany     = 4 << 8
	statusSABadGID      = 5 << 8
	statusSAComponents  = 6 << 8 // the request lacks components
	statusDirection     = 0x8000 // of directed routes: this is an answer
)

// ErrRoute is the error for a directed route that does not leave by the port that it is sent from. The kernel refuses to send
// it.
var ErrRoute = errors.New("the directed route does not begin at this port")

// ErrSilent is the error for a datagram that nobody answers.
var ErrSilent = errors.New("no answer")

// header is the part that all MADs have.
type header struct {
	class, version, method uint8
	attribute              uint16
	modifier               uint32
}

func headerOf(mad []byte) header {
	return header{mad[1], mad[2], mad[3], be.Uint16(mad[16:]), be.Uint32(mad[20:])}
}

// Answer returns what the subnet answers to a MAD that a port sends to a LID, and the LID that the answer is from. It does
// not change mad. The error is ErrRoute if it cannot be sent, and ErrSilent if there is no answer: the sender's request times
// out then.
func (f *Fabric) Answer(from *Port, lid uint16, mad []byte, now time.Time) (answer []byte, source uint16, err error) {
	if len(mad) < 24 || mad[0] != 1 {
		return nil, 0, ErrSilent
	}
	h := headerOf(mad)
	size := max(len(mad), MADSize)
	answer = make([]byte, size)
	copy(answer, mad)
	mad = answer[:size]
	switch h.class {
	case classSubnLID, classSubnDirect:
		at, err := f.target(from, lid, h.class, mad)
		if err != nil {
			return nil, 0, err
		}
		if !f.subnetManagement(at, h, mad, now) {
			return nil, 0, ErrSilent
		}
		source = at.source()
		if h.class == classSubnDirect && be.Uint16(mad[32:]) == 0xffff {
			source = 0xffff
		}
		return mad, source, nil
	}
	to := f.Reach(from, lid)
	if to == nil || h.method&response != 0 {
		return nil, 0, ErrSilent
	}
	switch {
	case h.class == classSA && to == f.SM:
		answer = f.administration(from, h, mad, now)
	case h.class == classPerf:
		f.performance(to, h, mad, now)
	case h.class == classMellanox:
		f.firmware(to.Node, h, mad, now)
	case (h.class == classPing || h.class == classSysstat) && to.Node.Kind == CA && !to.Node.aggregates():
		answer = f.server(to, h, mad)
	default:
		return nil, 0, ErrSilent
	}
	if answer == nil {
		return nil, 0, ErrSilent
	}
	return answer, to.LID, nil
}

// Reach returns the port that a packet to a LID arrives at, or nil if it gets lost on the way.
func (f *Fabric) Reach(from *Port, lid uint16) *Port {
	if from == nil || !from.Up() || from.LinkLayer != InfiniBand {
		return nil
	}
	to := f.ByLID(lid)
	if to == nil || to.Node.down() || f.Path(from, lid) == nil {
		return nil
	}
	return to
}

// arrival is where a subnet management packet ends.
type arrival struct {
	node *Node
	port *Port // that it came in by; of a switch that was addressed by LID, the last on the way
}

func (a arrival) source() uint16 {
	if a.node.Kind == Switch {
		return a.node.Ports[0].LID
	}
	return a.port.LID
}

// Offsets in packets with a directed route.
const (
	hopPointer  = 6
	hopCount    = 7
	initialPath = 128
	returnPath  = 192
)

// target follows a subnet management packet. Those pass links that are up physically, whatever their state is.
func (f *Fabric) target(from *Port, lid uint16, class uint8, mad []byte) (arrival, error) {
	at := arrival{from.Node, from}
	if from.LinkLayer != InfiniBand || from.Node.down() {
		return at, ErrSilent
	}
	byLID := func(lid uint16) error {
		if lid == from.LID || lid == 0xffff {
			return nil
		}
		to := f.Reach(from, lid)
		if to == nil {
			return ErrSilent
		}
		at = arrival{to.Node, to}
		if path := f.Path(from, lid); len(path) > 0 {
			at.port = path[len(path)-1]
		}
		return nil
	}
	if class == classSubnLID {
		return at, byLID(lid)
	}
	mixed := be.Uint16(mad[32:]) != 0xffff // the first part of the way goes by LID
	if mixed {
		if err := byLID(lid); err != nil {
			return at, err
		}
	}
	if be.Uint16(mad[34:]) != 0xffff { // a last part by LID, which no tool asks for
		return at, ErrSilent
	}
	hops := int(mad[hopCount])
	if hops > 63 {
		return at, ErrRoute
	}
	for i := 1; i <= hops; i++ {
		number := int(mad[initialPath+i])
		if at.node.Kind == CA {
			if i > 1 || mixed {
				return at, ErrSilent // an adapter passes nothing on
			}
			if number != from.Number {
				return at, ErrRoute
			}
		}
		if number < 1 || number >= len(at.node.Ports) {
			return at, ErrSilent
		}
		out := at.node.Ports[number]
		if out.State == Down || out.Remote == nil {
			return at, ErrSilent
		}
		at = arrival{out.Remote.Node, out.Remote}
		mad[returnPath+i] = uint8(out.Remote.Number)
	}
	return at, nil
}

func setStatus(mad []byte, status uint16) { be.PutUint16(mad[4:], status) }
