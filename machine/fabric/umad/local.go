package umad

import (
	"sync"
	"time"

	"github.com/nvmlfab/nvmlfab/machine/fabric"
)

// Local is the network of a fabric that this process keeps, seen from one of its hosts.
type Local struct {
	Host string

	mu      sync.Mutex
	fabric  *fabric.Fabric
	ports   []*fabric.Port
	numbers map[*fabric.Port]int
	server  *Server
	away    Away
}

// NewLocal returns a host's view of a fabric, and the server for its programs. From now on the fabric is only used through
// Do.
func NewLocal(f *fabric.Fabric, host string) (*Local, *Server) {
	l := &Local{Host: host}
	l.server = NewServer(l)
	l.Replace(f)
	return l, l.server
}

// Do calls a function that reads or changes the fabric. Nobody else uses it meanwhile.
func (l *Local) Do(do func(f *fabric.Fabric)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do(l.fabric)
}

// Replace puts another fabric in the place of the one so far.
func (l *Local) Replace(f *fabric.Fabric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fabric, l.ports, l.numbers = f, f.UMAD(l.Host), map[*fabric.Port]int{}
	for i, p := range l.ports {
		l.numbers[p] = i
	}
}

// Ports implements Network.
func (l *Local) Ports() []PortInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	var infos []PortInfo
	for _, p := range l.ports {
		infos = append(infos, PortInfo{p.LinkLayer == fabric.InfiniBand, p.LID, p.Up()})
	}
	return infos
}

// ClaimSM implements Network.
func (l *Local) ClaimSM(port int, yes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if port < len(l.ports) {
		l.fabric.ClaimSM(l.ports[port], yes)
	}
}

// Away is where datagrams go that other daemons have a part in. A Local without one has the fabric to itself.
type Away interface {
	// Relay sends a datagram from a LID to a port of another host. It returns false if no daemon has that host.
	Relay(host string, source, lid uint16, mad []byte) bool

	// Changed tells the other daemons of a datagram that changes the fabric.
	Changed(from *fabric.Port, lid uint16, mad []byte)
}

// SetAway sets where datagrams for other hosts go. It is called before programs are served.
func (l *Local) SetAway(away Away) { l.away = away }

// takesPart says whether programs may answer datagrams of a class: those of vendors and of communication managers.
func takesPart(mad []byte) bool {
	class := mad[1]
	return class >= 0x07 && class <= 0x0f || class >= 0x30 && class <= 0x4f
}

// counts says that a datagram is about what a port has counted. An adapter of another host answers it itself, since only its own
// daemon knows all that it has counted and when that was cleared.
func counts(mad []byte) bool { return mad[1] == classPerf && mad[3]&0x80 == 0 }

const classPerf = 0x04

// Send implements Network. A program that has registered for what is sent gets it, on this host or another; otherwise the
// fabric answers.
func (l *Local) Send(port int, lid uint16, mad []byte, answer func(mad []byte, source uint16)) error {
	l.mu.Lock()
	if port >= len(l.ports) {
		l.mu.Unlock()
		return fabric.ErrSilent
	}
	from := l.ports[port]
	if takesPart(mad) || counts(mad) {
		if to := l.fabric.Reach(from, lid); to != nil {
			number, ours := l.numbers[to]
			source, host := from.LID, to.Node.Host
			l.mu.Unlock()
			if ours && takesPart(mad) && l.server.Deliver(number, source, 1, mad) || !ours && l.away != nil && l.away.Relay(host, source, lid, mad) {
				return nil
			}
			l.mu.Lock()
		}
	}
	reply, source, err := l.fabric.Answer(from, lid, mad, time.Now())
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if changes(mad) && l.away != nil {
		l.away.Changed(from, lid, mad)
	}
	answer(reply, source)
	return nil
}

// changes says whether a datagram may change the fabric: it sets something, or it deletes a record of the SA.
func changes(mad []byte) bool {
	const methodSet, methodDelete = 0x02, 0x15
	return mad[3] == methodSet || mad[3] == methodDelete && mad[1] == classSA
}

// longest is the length of the longest answer from another host.
const longest = 64 << 10

// Arrive takes a datagram from another host for one of this host's ports. back sends what it is answered with.
func (l *Local) Arrive(source, lid uint16, mad []byte, back func(mad []byte)) {
	if len(mad) < fabric.MADSize || len(mad) > fabric.MADSize && (mad[3]&0x80 == 0 || len(mad) > longest) {
		return
	}
	l.mu.Lock()
	number, ours := l.numbers[l.fabric.ByLID(lid)]
	from := l.fabric.ByLID(source)
	l.mu.Unlock()
	if !ours || from == nil || !counts(mad) && l.server.Deliver(number, source, 1, mad) || mad[3]&0x80 != 0 {
		return
	}
	l.mu.Lock()
	reply, _, err := l.fabric.Answer(from, lid, mad, time.Now())
	l.mu.Unlock()
	if err == nil {
		back(reply)
	}
}

// Apply carries out a datagram that changes the fabric and was sent from a port of another host.
func (l *Local) Apply(port uint64, lid uint16, mad []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if from := l.fabric.ByGUID(port); from != nil && len(mad) == fabric.MADSize && changes(mad) {
		l.fabric.Answer(from, lid, mad, time.Now())
	}
}
