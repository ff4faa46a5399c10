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

// Send implements Network. A program on this host that has registered for what is sent gets it; otherwise the fabric answers.
func (l *Local) Send(port int, lid uint16, mad []byte, answer func(mad []byte, source uint16)) error {
	l.mu.Lock()
	if port >= len(l.ports) {
		l.mu.Unlock()
		return fabric.ErrSilent
	}
	from := l.ports[port]
	if class := mad[1]; class != 0x01 && class != 0x81 {
		to := l.fabric.Reach(from, lid)
		if number, ours := l.numbers[to]; to != nil && ours {
			source := from.LID
			l.mu.Unlock()
			if l.server.Deliver(number, source, 1, mad) {
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
	answer(reply, source)
	return nil
}
