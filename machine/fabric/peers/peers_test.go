package peers

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var secret = []byte("a secret of 24 characters")

// pair connects two ends with tokens of their own.
func pair(t *testing.T, a, b []byte) (up, down *stream, upErr, downErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			downErr = err
			return
		}
		t.Cleanup(func() { conn.Close() })
		if down, downErr = accept(conn, a); downErr != nil {
			conn.Close()
		}
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	up, upErr = connect(conn, b)
	<-done
	return up, down, upErr, downErr
}

func TestStream(t *testing.T) {
	up, down, err1, err2 := pair(t, secret, secret)
	require.NoError(t, err1)
	require.NoError(t, err2)
	for _, text := range []string{"one", "", "three"} {
		require.NoError(t, up.write([]byte(text)))
		got, err := down.read()
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
		require.NoError(t, down.write([]byte("re: "+text)))
		got, err = up.read()
		require.NoError(t, err)
		assert.Equal(t, "re: "+text, string(got))
	}
	assert.Error(t, up.write(make([]byte, maxMessage+1)))
}

// TestWrongToken: neither side lets the other in, and who does not know the token gets nothing but random bytes.
func TestWrongToken(t *testing.T) {
	_, _, err1, err2 := pair(t, secret, []byte("another secret of its own"))
	assert.ErrorIs(t, err1, errToken)
	assert.ErrorIs(t, err2, errToken)

	here, there := net.Pipe()
	go func() {
		accept(here, secret)
		here.Close()
	}()
	there.SetDeadline(time.Now().Add(time.Minute))
	_, err := io.ReadFull(there, make([]byte, nonceSize))
	require.NoError(t, err)
	go there.Write(make([]byte, nonceSize+macSize))
	rest, _ := io.ReadAll(there)
	assert.Empty(t, rest)
}

// tape is a connection that plays bytes and keeps what is written.
type tape struct {
	net.Conn
	in  io.Reader
	out bytes.Buffer
}

func (c *tape) Read(b []byte) (int, error)         { return c.in.Read(b) }
func (c *tape) Write(b []byte) (int, error)        { return c.out.Write(b) }
func (c *tape) SetDeadline(time.Time) error        { return nil }
func (c *tape) SetReadDeadline(t time.Time) error  { return nil }
func (c *tape) SetWriteDeadline(t time.Time) error { return nil }

// TestTampering: a message that is repeated, left out, cut, changed, or sent back to its sender is no message.
func TestTampering(t *testing.T) {
	written := func(texts ...string) (out [][]byte) {
		c := &tape{}
		s := &stream{conn: c, out: []byte("key")}
		for _, text := range texts {
			c.out.Reset()
			require.NoError(t, s.write([]byte(text)))
			out = append(out, bytes.Clone(c.out.Bytes()))
		}
		return out
	}
	m := written("one", "two")
	changed := bytes.Clone(m[0])
	changed[len(changed)-1] ^= 1
	long := bytes.Clone(m[0])
	long[0] = 0xff
	for name, c := range map[string]struct {
		in   []byte
		good int
		key  string
	}{
		"as it was sent": {slices.Concat(m...), 2, "key"},
		"repeated":       {slices.Concat(m[0], m[0]), 1, "key"},
		"left out":       {m[1], 0, "key"},
		"torn":           {m[0][:len(m[0])-1], 0, "key"},
		"changed":        {changed, 0, "key"},
		"of 4 GB":        {long, 0, "key"},
		"mirrored":       {m[0], 0, "the key of the other direction"},
	} {
		s := &stream{conn: &tape{in: bytes.NewReader(c.in)}, in: []byte(c.key)}
		for range c.good {
			_, err := s.read()
			require.NoError(t, err, name)
		}
		_, err := s.read()
		assert.Error(t, err, name)
	}
}

// TestReplay: what one connection sent does not open another.
func TestReplay(t *testing.T) {
	c := &tape{in: bytes.NewReader(slices.Concat(make([]byte, nonceSize)))}
	connect(c, secret)
	here, there := net.Pipe()
	done := make(chan error)
	go func() {
		_, err := accept(here, secret)
		done <- err
	}()
	_, err := io.ReadFull(there, make([]byte, nonceSize))
	require.NoError(t, err)
	_, err = there.Write(c.out.Bytes())
	require.NoError(t, err)
	assert.ErrorIs(t, <-done, errToken)
}

// crowd collects what a group receives.
type crowd struct {
	*Group
	mu   sync.Mutex
	got  []Message
	stop context.CancelFunc
}

func member3(name, fabric string, token []byte) *crowd {
	c := &crowd{}
	c.Group = &Group{Self: name, Fabric: fabric, Token: token, Receive: func(m Message) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.got = append(c.got, m)
	}}
	return c
}

// has waits until the last message of a kind satisfies a condition.
func (c *crowd) has(t *testing.T, kind Kind, ok func(Message) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, m := range slices.Backward(c.got) {
			if m.Kind == kind {
				return ok(m)
			}
		}
		return false
	}, time.Minute, time.Millisecond)
}

func TestGroup(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	a := member3("a", "f", secret)
	all.Go(func() { assert.NoError(t, a.Listen(ctx, l)) })
	join := func(c *crowd) *crowd {
		var own context.Context
		own, c.stop = context.WithCancel(ctx)
		all.Go(func() { c.Join(own, l.Addr().String()) })
		return c
	}
	here := func(names ...string) func(Message) bool {
		return func(m Message) bool { return slices.Equal(m.Hosts, names) }
	}
	b := join(member3("b", "f", secret))
	a.has(t, Present, here("a", "b"))
	b.Send(Message{Kind: Faults})
	c := join(member3("c", "f", secret))
	for _, x := range []*crowd{a, b, c} {
		x.has(t, Present, here("a", "b", "c"))
	}
	c.has(t, Faults, func(m Message) bool { return m.From == "b" })
	for _, other := range []*crowd{member3("d", "another", secret), member3("e", "f", []byte("a wrong secret, 24 chars")), member3("a", "f", secret)} {
		join(other)
	}
	b.Send(Message{Kind: MAD, To: "c", LID: 7})
	c.has(t, MAD, func(m Message) bool { return m.LID == 7 && m.From == "b" })
	c.Send(Message{Kind: MAD, To: "a", LID: 8})
	a.has(t, MAD, func(m Message) bool { return m.LID == 8 && m.From == "c" })
	a.Send(Message{Kind: Set, LID: 9})
	b.has(t, Set, func(m Message) bool { return m.LID == 9 && m.From == "a" })
	a.mu.Lock()
	for _, m := range a.got {
		assert.False(t, m.Kind == Set || m.Kind == MAD && m.LID == 7, "what is not for a")
		assert.NotContains(t, m.Hosts, "d")
		assert.NotContains(t, m.Hosts, "e")
	}
	a.mu.Unlock()
	c.stop()
	b.has(t, Present, here("a", "b"))
	c.has(t, Present, here("c"))
	join(c)
	b.has(t, Present, here("a", "b", "c"))
}

// TestSetMeetsNewcomer: a host that comes while the one that listens takes in a Set gets that Set, since the settings that it was
// welcomed with do not have it yet.
func TestSetMeetsNewcomer(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	a, b, c := member3("a", "f", secret), member3("b", "f", secret), member3("c", "f", secret)
	receive, met := a.Receive, make(chan struct{})
	a.Receive = func(m Message) {
		if m.Kind == Set {
			all.Go(func() { c.Join(ctx, l.Addr().String()) })
			<-met
		}
		receive(m)
	}
	a.Welcome = func() []Message { return []Message{{Kind: Settings}} }
	all.Go(func() { assert.NoError(t, a.Listen(ctx, l)) })
	all.Go(func() { b.Join(ctx, l.Addr().String()) })
	a.has(t, Present, func(m Message) bool { return len(m.Hosts) == 2 })
	b.Send(Message{Kind: Set, LID: 9})
	c.has(t, Settings, func(Message) bool { return true })
	close(met)
	c.has(t, Set, func(m Message) bool { return m.LID == 9 && m.From == "b" })
	a.has(t, Set, func(m Message) bool { return m.LID == 9 })
}

func FuzzRead(f *testing.F) {
	c := &tape{}
	(&stream{conn: c, out: []byte("key")}).write([]byte(`{"kind":"beat"}`))
	f.Add(c.out.Bytes())
	f.Add([]byte{0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &stream{conn: &tape{in: bytes.NewReader(b)}, in: []byte("another key")}
		if _, err := s.message(); err == nil {
			t.Fatal("a message without the key")
		}
		accept(&tape{in: bytes.NewReader(b)}, secret)
		connect(&tape{in: bytes.NewReader(b)}, secret)
	})
}
