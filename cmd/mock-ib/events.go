package main

import (
	"encoding/binary"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nvmlfab/nvmlfab/machine/fabric"
)

// eventsName is what libibmockverbs.so connects to in a tree's folder run, for the descriptor by which a program waits for
// events of an adapter. It sends the number of the adapter, four bytes, and from then on gets one message for each event.
const eventsName = "mock-ib-events.sock"

// The numbers of events, as verbs have them.
const (
	portActive       = 9
	portError        = 10
	lidChange        = 11
	smChange         = 13
	clientReregister = 17
)

// events sends programs what happens to ports.
type events struct {
	close func()

	mu       sync.Mutex
	watchers map[*net.UnixConn]int // by the number of the adapter
	last     map[portName]portState
}

type portName struct{ adapter, port int }

// portState is what events are about.
type portState struct {
	active     bool
	lid, smLID uint16
}

// newEvents makes the socket in a folder, which every user's programs may connect to, as they may open verbs devices.
func newEvents(run string) (*events, error) {
	l, unlink, err := makeSocket(run, eventsName, 0o666)
	if err != nil {
		return nil, err
	}
	e := &events{watchers: map[*net.UnixConn]int{}, last: map[portName]portState{}}
	var serving sync.WaitGroup
	e.close = func() {
		unlink()
		l.Close()
		e.mu.Lock()
		for c := range e.watchers {
			c.Close()
		}
		e.mu.Unlock()
		serving.Wait()
	}
	serving.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			e.mu.Lock()
			e.watchers[c] = -1
			e.mu.Unlock()
			serving.Go(func() { e.serve(c) })
		}
	})
	return e, nil
}

// serve reads the number of an adapter, and then waits for the program to close its descriptor.
func (e *events) serve(c *net.UnixConn) {
	var number [4]byte
	if n, err := c.Read(number[:]); err == nil && n == len(number) {
		e.mu.Lock()
		e.watchers[c] = int(binary.NativeEndian.Uint32(number[:]))
		e.mu.Unlock()
		c.Read(number[:])
	}
	e.mu.Lock()
	delete(e.watchers, c)
	e.mu.Unlock()
	c.Close()
}

// look sends what has happened to the ports of a host's adapters since the last look.
func (e *events) look(nodes []*fabric.Node) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, n := range nodes {
		for _, p := range n.Ports[1:] {
			name := portName{i, p.Number}
			now := portState{p.Up(), p.LID, p.SMLID}
			was, known := e.last[name]
			e.last[name] = now
			if known {
				for _, kind := range kinds(was, now) {
					e.send(i, p.Number, kind)
				}
			}
		}
	}
}

// kinds are the events between two states of a port, in order.
func kinds(was, now portState) (list []uint32) {
	if was.active && !now.active {
		list = append(list, portError)
	}
	if was.lid != now.lid {
		list = append(list, lidChange)
	}
	if was.smLID != now.smLID {
		list = append(list, smChange)
	}
	if !was.active && now.active {
		list = append(list, portActive, clientReregister)
	}
	return list
}

// send sends an event to all that watch an adapter. One that does not read them misses it.
func (e *events) send(adapter, port int, kind uint32) {
	message := binary.NativeEndian.AppendUint64(nil, uint64(port))
	message = binary.NativeEndian.AppendUint32(message, kind)
	message = binary.NativeEndian.AppendUint32(message, 0)
	for c, number := range e.watchers {
		if number == adapter {
			if raw, err := c.SyscallConn(); err == nil {
				raw.Write(func(fd uintptr) bool { // without waiting
					unix.Sendto(int(fd), message, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
					return true
				})
			}
		}
	}
}
