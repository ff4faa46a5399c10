package umad

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvmlfab/nvmlfab/machine/fabric"
)

// Network is the subnet as a host's ports see it.
type Network interface {
	// Ports are the ports of the host: port N has umadN. The list may grow no shorter while the server runs.
	Ports() []PortInfo

	// Send sends a MAD from port N. What comes of it is told to answer, at once or later, from any goroutine; it is not called
	// if nobody answers. The error is fabric.ErrRoute if the MAD cannot be sent.
	Send(port int, lid uint16, mad []byte, answer func(mad []byte, source uint16)) error

	// ClaimSM says that a program on port N is a subnet manager, or is no more.
	ClaimSM(port int, yes bool)
}

// PortInfo is what the server has to know about a port.
type PortInfo struct {
	InSubnet bool // it speaks InfiniBand; otherwise only QP 1 is there
	LID      uint16
	Up       bool
}

// Server serves programs on one host.
type Server struct {
	network Network

	mu      sync.Mutex
	files   map[*file]bool
	nextTID uint32        // upper half of the next agent's transaction ids
	sms     map[int]*file // who has issmN open
	freed   *sync.Cond    // an issmN was closed, or the server ends
	ended   bool
}

// NewServer returns a server that sends into a network.
func NewServer(network Network) *Server {
	s := &Server{network: network, files: map[*file]bool{}, sms: map[int]*file{}}
	s.freed = sync.NewCond(&s.mu)
	return s
}

// maxFiles is how many files may be open at a time.
const maxFiles = 4096

// Serve accepts clients until the context ends or the listener fails. It closes the listener and all clients.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var clients sync.WaitGroup
	defer clients.Wait()
	defer s.end()
	defer l.Close()
	for {
		conn, err := l.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ECONNABORTED):
			time.Sleep(10 * time.Millisecond)
			continue
		case err != nil:
			return fmt.Errorf("no more programs can connect: %w", err)
		}
		f := &file{server: s, conn: conn, out: make(chan []byte, maxQueue), gone: make(chan struct{}), pending: map[key]*pending{}}
		s.mu.Lock()
		full := len(s.files) >= maxFiles
		if !full {
			s.files[f] = true
		}
		s.mu.Unlock()
		if full {
			conn.Close()
			continue
		}
		clients.Go(f.write)
		clients.Go(f.serve)
	}
}

func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for f := range s.files {
		f.conn.Close()
	}
	s.freed.Broadcast()
}

// Deliver hands a MAD that came from the network to an agent on port N that takes it: the one that awaits the answer, or one
// that registered for its class and method. It returns false if there is none.
func (s *Server) Deliver(port int, source uint16, qpn uint32, mad []byte) bool {
	if len(mad) < 24 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.files {
		if f.kind == kindUMAD && f.opened && f.port == port && f.take(source, qpn, mad) {
			return true
		}
	}
	return false
}

// maxQueue is how many messages wait for a program that does not read. More are dropped.
const maxQueue = 4096

// file is an open umadN or issmN.
type file struct {
	server *Server
	conn   *net.UnixConn
	out    chan []byte
	behind atomic.Int32  // messages that were put into out and are not sent yet
	gone   chan struct{} // closed when the client has gone

	// Guarded by the server's mutex.
	opened     bool
	kind, port int
	pkeys      bool // ENABLE_PKEY: headers are 64 bytes long
	used       bool // an agent was registered
	agents     [32]*agent
	pending    map[key]*pending
}

type agent struct {
	registration
	tid uint32 // upper half of the transaction ids of what it sends
}

// key tells requests in flight apart, as the kernel does.
type key struct {
	agent int
	tid   uint64
	class uint8
}

// pending is a request without an answer yet.
type pending struct {
	header []byte
	mad    [24]byte
	timer  *time.Timer
}

// serve reads what the client wants until it goes.
func (f *file) serve() {
	defer f.close()
	buffer, oob := make([]byte, prefixSize+headerSize+maxRequest+1), make([]byte, unix.CmsgSpace(4*4))
	for {
		n, oobn, flags, _, err := f.conn.ReadMsgUnix(buffer, oob)
		if err != nil || n == 0 && oobn == 0 {
			return
		}
		reply := -1
		if messages, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil {
			for _, m := range messages {
				fds, _ := unix.ParseUnixRights(&m)
				for i, fd := range fds {
					if i == 0 && reply < 0 {
						reply = fd
					} else {
						unix.Close(fd)
					}
				}
			}
		}
		r, err := decode(buffer[:n])
		errno, value := syscall.EINVAL, uint32(0)
		if err == nil && flags&unix.MSG_TRUNC == 0 {
			errno, value = f.handle(r)
		}
		if reply >= 0 {
			answer(reply, result(errno, value))
			unix.Close(reply)
		}
	}
}

// answer writes to an eventfd. Another kind of file that a client may have sent must not stop the server, so nothing is
// written to one that is not ready.
func answer(fd int, value uint64) {
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	if n, err := unix.Poll(ready, 0); err != nil || n != 1 || ready[0].Revents != unix.POLLOUT {
		return
	}
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], value)
	unix.Write(fd, b[:]) // a client that has gone wants no result
}

func (f *file) close() {
	s := f.server
	s.mu.Lock()
	delete(s.files, f)
	for _, p := range f.pending {
		p.timer.Stop()
	}
	f.pending = nil
	sm := f.opened && f.kind == kindISSM && s.sms[f.port] == f
	if sm {
		delete(s.sms, f.port)
		s.freed.Broadcast()
	}
	s.mu.Unlock()
	if sm {
		s.network.ClaimSM(f.port, false)
	}
	close(f.gone)
	f.conn.Close()
}

// write sends what is queued.
func (f *file) write() {
	for {
		select {
		case b := <-f.out:
			err := f.send(b)
			f.behind.Add(-1)
			if err != nil {
				f.conn.Close()
				return
			}
		case <-f.gone:
			return
		}
	}
}

// send sends a message. One that is longer than a socket takes goes as a file, after its first segment.
func (f *file) send(b []byte) error {
	if len(b) <= inlineSize {
		_, err := f.conn.Write(b)
		return err
	}
	fd, err := unix.MemfdCreate("mad", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil // no memory: the message is lost, as one on a full subnet
	}
	memory := os.NewFile(uintptr(fd), "mad")
	defer memory.Close()
	if _, err := memory.Write(b); err != nil {
		return nil
	}
	unix.FcntlInt(memory.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	_, _, err = f.conn.WriteMsgUnix(b[:headerSize+fabric.MADSize], unix.UnixRights(fd), nil)
	return err
}

// queue sends a message to the client, or puts it after those that the client has no room for yet. The caller holds the server's
// mutex.
func (f *file) queue(b []byte) {
	if f.behind.Load() == 0 && f.sendNow(b) {
		return
	}
	f.behind.Add(1)
	select {
	case f.out <- b:
	default:
		f.behind.Add(-1)
	}
}

// sendNow sends a message if that needs no waiting: it saves a program that asks one thing after another a change of goroutines
// for each. It returns false if the message was not sent.
func (f *file) sendNow(b []byte) bool {
	raw, err := f.conn.SyscallConn()
	if err != nil || len(b) > inlineSize {
		return false
	}
	sent := false
	err = raw.Write(func(fd uintptr) bool {
		sent = unix.Sendto(int(fd), b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil) == nil
		return true
	})
	return err == nil && sent
}

func (f *file) headerSize() int {
	if f.pkeys {
		return headerSize
	}
	return headerSmall
}

func (f *file) handle(r request) (syscall.Errno, uint32) {
	switch {
	case r.op == opOpen:
		return f.open(r.data), 0
	case r.op == opAlive:
		return 0, 0
	case !f.opened, f.kind == kindISSM:
		return syscall.EINVAL, 0
	case r.op == opWrite:
		return f.transmit(r.data), 0
	}
	s := f.server
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.op {
	case opRegister:
		reg, ok := decodeRegister(r.data)
		if !ok {
			return syscall.EINVAL, 0
		}
		return f.register(reg)
	case opRegister2:
		reg, flags, ok := decodeRegister2(r.data)
		if !ok {
			return syscall.EINVAL, 0
		}
		if flags&^uint32(userRMPP) != 0 {
			return syscall.EINVAL, userRMPP // the flags that are known
		}
		errno, id := f.register(reg)
		return errno, id
	case opUnregister:
		if len(r.data) != 4 {
			return syscall.EINVAL, 0
		}
		id := binary.LittleEndian.Uint32(r.data)
		if id >= uint32(len(f.agents)) || f.agents[id] == nil {
			return syscall.EINVAL, 0
		}
		f.agents[id] = nil
		for k, p := range f.pending {
			if k.agent == int(id) {
				p.timer.Stop()
				delete(f.pending, k)
			}
		}
		return 0, 0
	case opEnablePKey:
		if f.used {
			return syscall.EINVAL, 0
		}
		f.pkeys = true
		return 0, 0
	}
	return syscall.ENOTTY, 0
}

// nonblocking is O_NONBLOCK as the client passes it on.
const nonblocking = 1

func (f *file) open(b []byte) syscall.Errno {
	if f.opened || len(b) != 12 {
		return syscall.EINVAL
	}
	le := binary.LittleEndian
	kind, number, flags := le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:])
	s := f.server
	ports := s.network.Ports()
	if number >= uint32(len(ports)) || kind > kindISSM || kind == kindISSM && !ports[number].InSubnet {
		return syscall.ENXIO
	}
	port := int(number)
	s.mu.Lock()
	for kind == kindISSM && s.sms[port] != nil {
		if flags&nonblocking != 0 {
			s.mu.Unlock()
			return syscall.EAGAIN
		}
		if s.ended {
			s.mu.Unlock()
			return syscall.ENXIO
		}
		s.freed.Wait()
	}
	f.kind, f.port, f.opened = int(kind), port, true
	if kind == kindISSM {
		s.sms[port] = f
	}
	s.mu.Unlock()
	if kind == kindISSM {
		s.network.ClaimSM(port, true)
	}
	return 0
}

// register adds an agent. The caller holds the server's mutex.
func (f *file) register(r registration) (syscall.Errno, uint32) {
	s := f.server
	direct := r.class == 0x01 || r.class == 0x81
	if r.qpn > 1 || direct != (r.qpn == 0) || direct && !s.network.Ports()[f.port].InSubnet {
		return syscall.EINVAL, 0
	}
	if r.methods != [2]uint64{} {
		if r.class == 0 || r.rmpp != 0 && r.rmpp != 1 || r.class >= 0x30 && r.class <= 0x4f && r.oui == 0 {
			return syscall.EINVAL, 0
		}
		for other := range s.files {
			for _, a := range other.agents {
				if a != nil && other.port == f.port && a.conflicts(r) {
					return syscall.EINVAL, 0
				}
			}
		}
	}
	for id, a := range f.agents {
		if a == nil {
			s.nextTID++
			f.agents[id] = &agent{r, s.nextTID}
			f.used = true
			return 0, uint32(id)
		}
	}
	return syscall.ENOMEM, 0
}

func (a *agent) conflicts(r registration) bool {
	return a.class == r.class && a.version == r.version && a.oui == r.oui &&
		(a.methods[0]&r.methods[0] != 0 || a.methods[1]&r.methods[1] != 0)
}

// transmit sends what a program writes.
func (f *file) transmit(b []byte) syscall.Errno {
	s := f.server
	s.mu.Lock()
	size := f.headerSize()
	p, errno := decodePacket(b, size)
	if errno != 0 || p.id >= uint32(len(f.agents)) || f.agents[p.id] == nil {
		s.mu.Unlock()
		return syscall.EINVAL
	}
	a := f.agents[p.id]
	if len(p.mad) > fabric.MADSize && !a.segments(p.mad) {
		s.mu.Unlock()
		return syscall.EINVAL
	}
	mad := make([]byte, max(len(p.mad), fabric.MADSize))
	copy(mad, p.mad)
	be := binary.BigEndian
	request := mad[3]&0x80 == 0 && mad[3] != 0x07 // not the answer to a request, nor the end of a trap
	if request {
		be.PutUint32(mad[8:], a.tid)
	}
	k := key{int(p.id), be.Uint64(mad[8:]), mad[1]}
	awaits := request && p.timeout > 0
	if awaits {
		if f.pending == nil || f.pending[k] != nil || len(f.pending) >= maxQueue {
			s.mu.Unlock()
			return syscall.EINVAL
		}
		w := &pending{header: append([]byte(nil), p.header...)}
		copy(w.mad[:], mad)
		wait := time.Duration(p.timeout) * time.Millisecond * time.Duration(1+min(p.retries, 100))
		w.timer = time.AfterFunc(min(wait, maxWait), func() { f.expire(k, w) })
		f.pending[k] = w
	}
	s.mu.Unlock()

	source := p.qpn
	err := s.network.Send(f.port, p.lid, mad, func(answer []byte, lid uint16) {
		s.mu.Lock()
		defer s.mu.Unlock()
		f.take(lid, source, answer)
	})
	if err != nil && !errors.Is(err, fabric.ErrSilent) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if w := f.pending[k]; awaits && w != nil {
			w.timer.Stop()
			delete(f.pending, k)
		}
		return syscall.EINVAL
	}
	return 0
}

// segments says whether the kernel would send a message in several segments: by an agent with RMPP, and of its type data. Nobody but
// the SA takes such messages.
func (a *agent) segments(mad []byte) bool {
	const version, active, kind = 1, 1, 1
	return a.rmpp == version && a.class == classSA && mad[24] == version && mad[25] == kind && mad[26]&active != 0
}

const classSA = 0x03

// maxWait bounds how long a request is kept.
const maxWait = time.Hour

// expire hands a request back that nobody answered.
func (f *file) expire(k key, w *pending) {
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	if f.pending[k] != w {
		return
	}
	delete(f.pending, k)
	le := binary.LittleEndian
	b := append(append([]byte(nil), w.header...), w.mad[:]...)
	le.PutUint32(b[4:], uint32(syscall.ETIMEDOUT))
	le.PutUint32(b[16:], uint32(len(b)))
	f.queue(b)
}

// take queues a MAD for the agent that it is for. The caller holds the server's mutex.
func (f *file) take(source uint16, qpn uint32, mad []byte) bool {
	be := binary.BigEndian
	size := f.headerSize()
	if mad[3]&0x80 != 0 {
		tid := be.Uint64(mad[8:])
		for id, a := range f.agents {
			if a == nil || a.tid != uint32(tid>>32) {
				continue
			}
			k := key{id, tid, mad[1]}
			w := f.pending[k]
			if w == nil || len(mad) > fabric.MADSize && a.rmpp == 0 {
				return false
			}
			w.timer.Stop()
			delete(f.pending, k)
			f.queue(encode(size, uint32(id), 0, qpn, source, mad))
			return true
		}
		return false
	}
	for id, a := range f.agents {
		if a != nil && a.wants(mad) {
			f.queue(encode(size, uint32(id), 0, qpn, source, mad))
			return true
		}
	}
	return false
}

// wants says whether an agent has registered for a MAD that no request of its own asked for.
func (a *agent) wants(mad []byte) bool {
	method := mad[3] & 0x7f
	if a.class != mad[1] || a.methods[method/64]>>(method%64)&1 == 0 {
		return false
	}
	return a.class < 0x30 || a.class > 0x4f || len(mad) >= 40 && a.oui == uint32(mad[37])<<16|uint32(mad[38])<<8|uint32(mad[39])
}
