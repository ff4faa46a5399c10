package main

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/machine/fabric"
	"github.com/nvmlfab/nvmlfab/machine/fabric/peers"
	"github.com/nvmlfab/nvmlfab/machine/fabric/umad"
)

// member is a daemon of several that have one fabric, without programs.
type member struct {
	t     *testing.T
	local *umad.Local
	*together
	sent atomic.Uint64 // bytes, by the port of the first adapter, which has received as many
	stop func()
}

// newMember starts a daemon of a host in a fabric of three. One without an address to join listens.
func newMember(t *testing.T, host string, join net.Addr) (*member, net.Addr) {
	t.Helper()
	return startMember(t, host, join, "127.0.0.1:0")
}

func startMember(t *testing.T, host string, join net.Addr, listen string) (*member, net.Addr) {
	t.Helper()
	var hosts []fabric.Host
	for _, name := range []string{"a", "b", "c"} {
		h := fabric.Host{Name: name}
		for _, adapter := range []string{"mlx5_0", "mlx5_1"} {
			h.HCAs = append(h.HCAs, fabric.HCA{Name: adapter, DeviceID: 0x1021, Firmware: "28.39.1002", Ports: []fabric.HCAPort{{}}})
		}
		hosts = append(hosts, h)
	}
	f, err := fabric.New(fabric.Description{Hosts: hosts})
	require.NoError(t, err)
	m := &member{t: t}
	m.local, _ = umad.NewLocal(f, host)
	m.together = newTogether(m.local, f, nil, []byte("a secret of three hosts"), func(format string, args ...any) { t.Logf(host+": "+format, args...) })
	m.local.Do(func(f *fabric.Fabric) {
		first := f.Host(host)[0].Ports[1]
		f.Traffic = func(p *fabric.Port, _ time.Time) fabric.Traffic {
			if p == first {
				return fabric.Traffic{Sent: m.sent.Load(), Received: m.sent.Load()}
			}
			return m.traffic(p)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	m.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(m.stop)
	if join != nil {
		running.Go(func() { m.group.Join(ctx, join.String()) })
		return m, join
	}
	l, err := net.Listen("tcp", listen)
	require.NoError(t, err)
	m.listens = true
	running.Go(func() { m.group.Listen(ctx, l) })
	return m, l.Addr()
}

// sees waits until a daemon knows that some hosts are there and no others.
func (m *member) sees(hosts ...string) {
	m.t.Helper()
	require.Eventually(m.t, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return assert.ObjectsAreEqual(hosts, m.there)
	}, time.Minute, time.Millisecond)
}

// ask sends a datagram from the first port and returns the answer.
func (m *member) ask(lid uint16, class, method byte, attribute uint16, modifier uint32, fill func(mad []byte)) []byte {
	m.t.Helper()
	mad := make([]byte, fabric.MADSize)
	be := binary.BigEndian
	mad[0], mad[1], mad[2], mad[3] = 1, class, 1, method
	be.PutUint16(mad[16:], attribute)
	be.PutUint32(mad[20:], modifier)
	fill(mad)
	answers := make(chan []byte, 1)
	require.NoError(m.t, m.local.Send(0, lid, mad, func(answer []byte, _ uint16) { answers <- answer }))
	select {
	case answer := <-answers:
		return answer
	case <-time.After(time.Minute):
		require.Fail(m.t, "no answer")
		return nil
	}
}

// disabled says whether the switch's port with the cable of an adapter is disabled, as a daemon has it.
func (m *member) disabled(host string, adapter int) (yes bool) {
	m.local.Do(func(f *fabric.Fabric) { yes = f.Host(host)[adapter].Ports[1].Remote.Phys == fabric.Disabled })
	return yes
}

// send lets the first adapter have sent and received some bytes, and tells the others.
func (m *member) send(bytes uint64) {
	m.sent.Store(bytes)
	var guid uint64
	m.local.Do(func(f *fabric.Fabric) { guid = f.Host(m.local.Host)[0].Ports[1].GUID })
	m.group.Send(peers.Message{Kind: peers.Loads, Traffic: map[uint64]fabric.Traffic{guid: {Sent: bytes, Received: bytes}}})
}

// received is what the switch's port with the cable of a host's first adapter has counted, in bytes, as a daemon has it.
func (m *member) received(host string) (bytes uint64) {
	m.local.Do(func(f *fabric.Fabric) {
		bytes = 4 * f.Read(f.Host(host)[0].Ports[1].Remote, fabric.RcvData, time.Now())
	})
	return bytes
}

// records counts the records of the SA of an attribute.
func (m *member) records(attribute uint16) int {
	m.t.Helper()
	answer := m.ask(1, 3, 0x12, attribute, 0, func(mad []byte) { mad[2] = 2 })
	size := 8 * int(binary.BigEndian.Uint16(answer[44:]))
	require.NotZero(m.t, size)
	return (len(answer) - 56) / size
}

// TestLateDaemons: a daemon that comes late knows which ports datagrams have disabled, and the services and multicast groups that
// they have made, and what the switches have counted since they were cleared. So does the daemon that listens if it is started again, from those that have stayed.
func TestLateDaemons(t *testing.T) {
	const service, group = 0x31, 0x38
	a, address := newMember(t, "a", nil)
	b, _ := newMember(t, "b", address)
	a.sees("a", "b")
	b.sees("a", "b")
	groups := a.records(group)
	set := func(m *member, state fabric.Phys) {
		t.Helper()
		var port int
		m.local.Do(func(f *fabric.Fabric) { port = f.Host("b")[1].Ports[1].Remote.Number })
		m.ask(1, 1, 2, 0x15, uint32(port), func(mad []byte) { mad[64+33] = byte(state) << 4 })
	}
	set(b, fabric.Disabled)
	b.ask(1, 3, 2, service, 0, func(mad []byte) {
		mad[2], mad[55], mad[63] = 2, 3, 77
		b.local.Do(func(f *fabric.Fabric) {
			_, guid := f.Host("b")[0].Ports[1].GID()
			binary.BigEndian.PutUint64(mad[56+8:], fabric.Prefix)
			binary.BigEndian.PutUint64(mad[56+16:], guid)
		})
	})
	a.ask(1, 3, 2, group, 0, func(mad []byte) {
		mad[2] = 2
		binary.BigEndian.PutUint64(mad[48:], 0x130c7|1<<12|1<<13)
		record := mad[56:]
		copy(record, []byte{0xff, 0x12, 0xa0, 0x1b, 15: 9})
		a.local.Do(func(f *fabric.Fabric) {
			_, guid := f.Host("a")[0].Ports[1].GID()
			binary.BigEndian.PutUint64(record[16:], fabric.Prefix)
			binary.BigEndian.PutUint64(record[24:], guid)
		})
		record[40], record[41], record[48] = 0xff, 0xff, 0x21
	})
	knows := func(m *member, disabled bool, why string) {
		t.Helper()
		require.Eventually(t, func() bool {
			return m.disabled("b", 1) == disabled && m.records(service) == 1 && m.records(group) == groups+1
		}, time.Minute, 5*time.Millisecond, why)
	}
	knows(a, true, "what has been sent from b")

	counts := func(m *member, bytes uint64, why string) {
		t.Helper()
		require.Eventually(t, func() bool { return m.received("b") == bytes }, time.Minute, 5*time.Millisecond, why)
	}
	b.send(4000)
	counts(a, 4000, "b has told what it sends")
	a.ask(1, 4, 2, 0x1d, 0, func(mad []byte) {
		a.local.Do(func(f *fabric.Fabric) { mad[64+1] = byte(f.Host("b")[0].Ports[1].Remote.Number) })
		mad[64+2], mad[64+3] = 0xff, 0xff
	})
	counts(a, 0, "a has cleared the counters")
	counts(b, 0, "so has b")
	b.send(10000)
	counts(a, 6000, "b has sent more")

	c, _ := newMember(t, "c", address)
	c.sees("a", "b", "c")
	knows(c, true, "c has come late")
	assert.EqualValues(t, 6000, c.received("b"), "c has come late")

	a.stop()
	c.sees("c")
	again, _ := startMember(t, "a", nil, address.String())
	again.sees("a", "b", "c")
	for _, m := range []*member{again, b, c} {
		knows(m, true, "a has been started again")
		assert.EqualValues(t, 6000, m.received("b"), "a has been started again")
	}
	set(b, fabric.Polling)
	for _, m := range []*member{again, b, c} {
		knows(m, false, "b has enabled the port")
	}
}
