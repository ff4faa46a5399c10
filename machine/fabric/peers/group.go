package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/nvmlfab/nvmlfab/machine/fabric"
)

// Kind says what a message is about.
type Kind string

// The kinds of messages.
const (
	hello   Kind = "hello"   // the first message of the one that connects
	beating Kind = "beat"    // nothing but a sign of life
	Present Kind = "present" // Hosts are there; from the one that listens
	MAD     Kind = "mad"     // a datagram from port Source to port LID, for host To
	Set     Kind = "set"     // a datagram that changes the fabric, for everybody
	Faults  Kind = "faults"  // what is wrong with host From's links, for everybody
	Loads   Kind = "loads"   // what host From's ports have sent and received, for everybody

	// Settings is a part of what datagrams have changed in host From's fabric; the last part has no More.
	Settings Kind = "settings"
)

// Message is what goes from one daemon to another, or to all.
type Message struct {
	Kind   Kind           `json:"kind"`
	From   string         `json:"from,omitempty"` // a host
	To     string         `json:"to,omitempty"`   // a host; empty: all
	Fabric string         `json:"fabric,omitempty"`
	Hosts  []string       `json:"hosts,omitempty"`
	Source uint16         `json:"source,omitempty"` // a LID
	Port   uint64         `json:"port,omitempty"`   // GUID of the port that a Set was sent from
	LID    uint16         `json:"lid,omitempty"`
	QP     uint32         `json:"qp,omitempty"`
	MAD    []byte         `json:"mad,omitempty"`
	Faults []fabric.Fault `json:"faults,omitempty"`

	Traffic map[uint64]fabric.Traffic `json:"traffic,omitempty"` // by the GUIDs of ports

	// Number tells a Set of a host from its earlier ones. Seen has, by host, that of the last Set that settings include.
	Number uint64            `json:"number,omitempty"`
	Seen   map[string]uint64 `json:"seen,omitempty"`

	Changed bool   `json:"changed,omitempty"` // of settings: datagrams have changed something
	Part    []byte `json:"part,omitempty"`
	More    bool   `json:"more,omitempty"`
}

// Group is a daemon's membership in a fabric of several hosts.
type Group struct {
	Self    string // the host
	Fabric  string // says which fabric this is; those of another are not let in
	Token   []byte
	Receive func(Message)                    // gets messages; not called twice at a time for one connection
	Log     func(format string, args ...any) // gets a line on who comes and goes
	Welcome func() []Message                 // what the one that listens sends first to who comes; nil: nothing
	Joined  func()                           // is called on the side that connects, before anything is received; nil: nothing

	mu      sync.Mutex
	sets    sync.Mutex // is held while a Set is received and passed on, so that all have Sets in one order
	members map[string]*member
	faults  map[string]Message // the last of each host, for those who come later
}

// member is a connection. On the side that connects there is one, to the one that listens.
type member struct {
	stream *stream
	out    chan Message
}

// queue is how many messages wait for a member that is slow. One that is slower is cut off.
const queue = 1024

// Send sends messages to the hosts that they are for, or to all others. No other message comes between them.
func (g *Group) Send(messages ...Message) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range messages {
		m.From = g.Self
		if m.Kind == Faults {
			g.keep(m)
		}
		g.pass(m, "")
	}
}

// keep remembers the faults of a host. The caller holds the mutex.
func (g *Group) keep(m Message) {
	if g.faults == nil {
		g.faults = map[string]Message{}
	}
	g.faults[m.From] = m
}

// pass queues a message for its host, or for all but the one that it came from. The caller holds the mutex.
func (g *Group) pass(m Message, from string) {
	for name, member := range g.members {
		if name == from || m.To != "" && name != m.To && name != upstream {
			continue
		}
		select {
		case member.out <- m:
		default:
			member.stream.conn.Close()
		}
	}
}

// upstream is the name under which the one that connects has the one that listens. No host can have it.
const upstream = "\x00"

// Listen lets others in until the context ends.
func (g *Group) Listen(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	defer g.closeAll()
	defer l.Close()
	slots := make(chan struct{}, 4096) // connections at a time, whoever makes them
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		} else if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		all.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			end := context.AfterFunc(ctx, func() { conn.Close() })
			defer end()
			if err := g.let(conn); err != nil && ctx.Err() == nil {
				g.log("%s: %v", conn.RemoteAddr(), err)
			}
		})
	}
}

// let serves one that connects.
func (g *Group) let(conn net.Conn) error {
	s, err := accept(conn, g.Token)
	if err != nil {
		return err
	}
	first, err := s.message()
	if err != nil {
		return err
	}
	name := first.From
	if first.Kind != hello || first.Fabric != g.Fabric || name == "" || name == g.Self {
		return fmt.Errorf("host %q is not let in: it has another description of the fabric, or the name of this host", name)
	}
	me := &member{s, make(chan Message, queue)}
	g.mu.Lock()
	if old := g.members[name]; old != nil {
		g.mu.Unlock()
		return fmt.Errorf("host %q is here already", name)
	}
	if g.members == nil {
		g.members = map[string]*member{}
	}
	g.members[name] = me
	for _, m := range g.faults {
		me.out <- m
	}
	if g.Welcome != nil {
		for _, m := range g.Welcome() {
			m.From = g.Self
			me.out <- m
		}
	}
	g.tell()
	g.mu.Unlock()
	g.log("host %s has come", name)
	defer func() {
		g.mu.Lock()
		delete(g.members, name)
		g.tell()
		g.mu.Unlock()
		g.log("host %s has left", name)
	}()
	return g.talk(me, func(m Message) bool {
		m.From = name // nobody speaks for another
		if m.Kind == Set {
			// It is received first: a host that comes in between gets it with the settings or after them, and maybe both, but not
			// neither.
			g.sets.Lock()
			defer g.sets.Unlock()
			if m.To == "" || m.To == g.Self {
				g.Receive(m)
			}
		}
		g.mu.Lock()
		if m.Kind == Faults {
			g.keep(m)
		}
		if m.To != g.Self {
			g.pass(m, name)
		}
		g.mu.Unlock()
		return m.Kind != Set && (m.To == "" || m.To == g.Self)
	})
}

// tell lets everybody know who is there. The caller holds the mutex.
func (g *Group) tell() {
	hosts := []string{g.Self}
	for name := range g.members {
		hosts = append(hosts, name)
	}
	slices.Sort(hosts)
	m := Message{Kind: Present, From: g.Self, Hosts: hosts}
	g.pass(m, "")
	g.Receive(m)
}

// Join connects to the one that listens, again and again until the context ends. Without it, this host is alone.
func (g *Group) Join(ctx context.Context, address string) {
	for wait := 100 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, 2*time.Second) {
		began := time.Now()
		if err := g.join(ctx, address); err != nil && ctx.Err() == nil {
			g.log("%s: %v", address, err)
		}
		if time.Since(began) > 10*time.Second {
			wait = 100 * time.Millisecond
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func (g *Group) join(ctx context.Context, address string) error {
	d := net.Dialer{Timeout: handshakeTime}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	end := context.AfterFunc(ctx, func() { conn.Close() })
	defer end()
	s, err := connect(conn, g.Token)
	if err != nil {
		return err
	}
	if g.Joined != nil {
		g.Joined()
	}
	me := &member{s, make(chan Message, queue)}
	me.out <- Message{Kind: hello, From: g.Self, Fabric: g.Fabric}
	g.mu.Lock()
	if m, ok := g.faults[g.Self]; ok {
		me.out <- m
	}
	g.members = map[string]*member{upstream: me}
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.members = nil
		g.mu.Unlock()
		g.Receive(Message{Kind: Present, Hosts: []string{g.Self}})
	}()
	return g.talk(me, func(m Message) bool { return m.To == "" || m.To == g.Self })
}

// talk reads and writes until the connection ends. mine says whether a message is for this host and has not been received yet.
func (g *Group) talk(me *member, mine func(Message) bool) error {
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for {
			m := Message{Kind: beating}
			select {
			case <-done:
				return
			case m = <-me.out:
			case <-tick.C:
			}
			text, err := json.Marshal(m)
			if err == nil {
				err = me.stream.write(text)
			}
			if err != nil {
				me.stream.conn.Close()
				return
			}
		}
	}()
	for {
		m, err := me.stream.message()
		if err != nil {
			return err
		}
		if m.Kind != beating && mine(m) {
			g.Receive(m)
		}
	}
}

// message reads a message.
func (s *stream) message() (m Message, err error) {
	text, err := s.read()
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	return m, err
}

func (g *Group) closeAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.members {
		m.stream.conn.Close()
	}
}

func (g *Group) log(format string, args ...any) {
	if g.Log != nil {
		g.Log(format, args...)
	}
}
