package umad

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/nvmlfab/nvmlfab/machine/fabric"
)

// client is a program's side of a descriptor, without the library.
type client struct {
	t    *testing.T
	conn *net.UnixConn
}

// serve starts a server for a host with two adapters on one switch, one of them with a second, Ethernet port.
func serve(t *testing.T) (connect func() *client, local *Local, stop context.CancelFunc) {
	t.Helper()
	f, err := fabric.New(fabric.Description{Hosts: []fabric.Host{{Name: "dgx01", HCAs: []fabric.HCA{
		{Name: "mlx5_0", DeviceID: 0x1021, Ports: []fabric.HCAPort{{}}},
		{Name: "mlx5_1", DeviceID: 0x1021, Ports: []fabric.HCAPort{{}, {LinkLayer: fabric.Ethernet}}},
	}}}})
	require.NoError(t, err)
	local, server := NewLocal(f, "dgx01")
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return func() *client {
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return &client{t, conn}
	}, local, cancel
}

// ask makes a request and returns its result.
func (c *client) ask(op uint32, data []byte) (syscall.Errno, uint32) {
	c.t.Helper()
	le := binary.LittleEndian
	b := make([]byte, prefixSize, prefixSize+len(data))
	le.PutUint32(b, magic)
	le.PutUint32(b[4:], op)
	le.PutUint32(b[8:], uint32(len(data)))
	return c.raw(append(b, data...))
}

func (c *client) raw(b []byte) (syscall.Errno, uint32) {
	c.t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	require.NoError(c.t, err)
	defer unix.Close(fd)
	_, _, err = c.conn.WriteMsgUnix(b, unix.UnixRights(fd), nil)
	require.NoError(c.t, err)
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 60_000)
	require.NoError(c.t, err)
	require.Equal(c.t, 1, n, "no result")
	var out [8]byte
	_, err = unix.Read(fd, out[:])
	require.NoError(c.t, err)
	v := binary.NativeEndian.Uint64(out[:])
	return syscall.Errno(uint32(v) - 1), uint32(v >> 32)
}

func words(w ...uint32) (b []byte) {
	for _, v := range w {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func (c *client) open(kind, number uint32) *client {
	c.t.Helper()
	errno, _ := c.ask(opOpen, words(kind, number, nonblocking))
	require.Zero(c.t, errno)
	return c
}

// reg is a struct ib_user_mad_reg_req2.
func reg(qpn uint32, class, version uint8, flags uint32, methods uint64, rmpp uint8) []byte {
	b := make([]byte, 40)
	le := binary.LittleEndian
	le.PutUint32(b[4:], qpn)
	b[8], b[9] = class, version
	le.PutUint32(b[12:], flags)
	le.PutUint64(b[16:], methods)
	le.PutUint32(b[32:], 0x1405)
	b[36] = rmpp
	return b
}

func (c *client) register(qpn uint32, class, version uint8, methods uint64) uint32 {
	c.t.Helper()
	errno, id := c.ask(opRegister2, reg(qpn, class, version, 0, methods, 1))
	require.Zero(c.t, errno)
	return id
}

// send is what write(2) gets: a header of 64 bytes and a MAD.
func send(id, timeout, retries, qpn uint32, lid uint16, mad []byte) []byte {
	b := make([]byte, headerSize)
	le, be := binary.LittleEndian, binary.BigEndian
	le.PutUint32(b, id)
	le.PutUint32(b[8:], timeout)
	le.PutUint32(b[12:], retries)
	be.PutUint32(b[20:], qpn)
	be.PutUint16(b[28:], lid)
	return append(b, mad...)
}

func mad(class, version, method uint8, tid uint64, attribute uint16, modifier uint32) []byte {
	b := make([]byte, fabric.MADSize)
	b[0], b[1], b[2], b[3] = 1, class, version, method
	be := binary.BigEndian
	be.PutUint64(b[8:], tid)
	be.PutUint16(b[16:], attribute)
	be.PutUint32(b[20:], modifier)
	return b
}

// read returns the next message.
func (c *client) read() []byte {
	c.t.Helper()
	c.conn.SetReadDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 1<<17)
	n, err := c.conn.Read(b)
	require.NoError(c.t, err)
	return b[:n]
}

func TestAnswers(t *testing.T) {
	connect, _, _ := serve(t)
	c := connect().open(kindUMAD, 0)
	errno, _ := c.ask(opEnablePKey, nil)
	assert.Zero(t, errno)
	id := c.register(0, 0x01, 1, 0)
	errno, _ = c.ask(opEnablePKey, nil)
	assert.Equal(t, syscall.EINVAL, errno, "after an agent is there")

	errno, _ = c.ask(opWrite, send(id, 1000, 0, 0, 1, mad(0x01, 1, 1, 0xaaaaaaaa12345678, 0x11, 0)))
	require.Zero(t, errno)
	b := c.read()
	le, be := binary.LittleEndian, binary.BigEndian
	require.Len(t, b, headerSize+fabric.MADSize)
	assert.Equal(t, id, le.Uint32(b))
	assert.Zero(t, le.Uint32(b[4:]), "status")
	assert.Equal(t, uint32(len(b)), le.Uint32(b[16:]))
	assert.Equal(t, uint16(1), be.Uint16(b[28:]), "the answer is from LID 1")
	assert.Equal(t, uint32(0x12345678), be.Uint32(b[headerSize+12:]))
	assert.NotEqual(t, uint32(0xaaaaaaaa), be.Uint32(b[headerSize+8:]), "the upper half tells agents apart")
	assert.Equal(t, byte(0x81), b[headerSize+3])
	assert.Equal(t, byte(fabric.Switch), b[headerSize+64+2])
}

// TestTimeout: a request to nobody comes back with the request's header and the first 24 bytes of its MAD.
func TestTimeout(t *testing.T) {
	connect, _, _ := serve(t)
	c := connect().open(kindUMAD, 0)
	c.ask(opEnablePKey, nil)
	id := c.register(1, 0x04, 1, 0)
	out := send(id, 20, 1, 1, 99, mad(0x04, 1, 1, 7, 0x12, 0))
	errno, _ := c.ask(opWrite, out)
	require.Zero(t, errno)
	errno, _ = c.ask(opWrite, out)
	assert.Equal(t, syscall.EINVAL, errno, "one with this transaction id is in flight")
	b := c.read()
	require.Len(t, b, headerSize+24)
	le := binary.LittleEndian
	assert.Equal(t, uint32(110), le.Uint32(b[4:]))
	assert.Equal(t, uint32(88), le.Uint32(b[16:]))
	assert.Equal(t, out[20:headerSize], b[20:headerSize])
	errno, _ = c.ask(opWrite, out)
	assert.Zero(t, errno, "now it may be sent again")
}

func TestRefusals(t *testing.T) {
	connect, _, _ := serve(t)
	for _, name := range [][]uint32{{kindUMAD, 3}, {kindISSM, 2}, {2, 0}, {kindUMAD, 1 << 31}} {
		errno, _ := connect().ask(opOpen, words(name[0], name[1], 0))
		assert.Equal(t, syscall.ENXIO, errno, "%v", name)
	}
	c := connect()
	errno, _ := c.ask(opRegister2, reg(1, 3, 2, 0, 0, 0))
	assert.Equal(t, syscall.EINVAL, errno, "nothing is open")
	c.open(kindUMAD, 0)
	for want, b := range map[string][]byte{
		"qpn 2":                 reg(2, 3, 2, 0, 0, 0),
		"subnet class on QP 1":  reg(1, 1, 1, 0, 0, 0),
		"general class on QP 0": reg(0, 3, 2, 0, 0, 0),
		"short":                 make([]byte, 39),
	} {
		errno, _ = c.ask(opRegister2, b)
		assert.Equal(t, syscall.EINVAL, errno, want)
	}
	errno, flags := c.ask(opRegister2, reg(1, 3, 2, 0x10, 0, 0))
	assert.Equal(t, syscall.EINVAL, errno)
	assert.Equal(t, uint32(userRMPP), flags)
	ethernet := connect().open(kindUMAD, 2)
	errno, _ = ethernet.ask(opRegister2, reg(0, 1, 1, 0, 0, 0))
	assert.Equal(t, syscall.EINVAL, errno, "Ethernet has no QP 0")

	for i := range uint32(32) {
		require.Equal(t, i, c.register(1, 3, 2, 0))
	}
	errno, _ = c.ask(opRegister2, reg(1, 3, 2, 0, 0, 0))
	assert.Equal(t, syscall.ENOMEM, errno)
	errno, _ = c.ask(opUnregister, words(5))
	assert.Zero(t, errno)
	errno, _ = c.ask(opUnregister, words(5))
	assert.Equal(t, syscall.EINVAL, errno)
	errno, _ = c.ask(opWrite, send(5, 0, 0, 1, 1, mad(3, 2, 1, 1, 1, 0)))
	assert.Equal(t, syscall.EINVAL, errno, "no such agent")
	for _, b := range [][]byte{nil, make([]byte, 10), send(0, 0, 0, 1, 1, make([]byte, 35))[:headerSmall+35], send(0, 0, 0, 1, 1, make([]byte, 300))} {
		errno, _ = c.ask(opWrite, b)
		assert.Equal(t, syscall.EINVAL, errno, "%d bytes", len(b))
	}
	errno, _ = c.ask(77, nil)
	assert.Equal(t, syscall.ENOTTY, errno)
	errno, _ = c.raw([]byte("short"))
	assert.Equal(t, syscall.EINVAL, errno)
	errno, _ = c.raw(make([]byte, 200))
	assert.Equal(t, syscall.EINVAL, errno)
	id := connect().open(kindUMAD, 0).register(1, 3, 2, 0)
	assert.Zero(t, id, "other descriptors are not affected")
}

// TestDirectedRoute: a way that does not begin at the sending port cannot be sent.
func TestDirectedRoute(t *testing.T) {
	connect, _, _ := serve(t)
	c := connect().open(kindUMAD, 0)
	c.ask(opEnablePKey, nil)
	id := c.register(0, 0x81, 1, 0)
	m := mad(0x81, 1, 1, 1, 0x11, 0)
	m[7], m[129] = 1, 2
	binary.BigEndian.PutUint32(m[32:], 0xffffffff)
	errno, _ := c.ask(opWrite, send(id, 1000, 0, 0, 0xffff, m))
	assert.Equal(t, syscall.EINVAL, errno)
	m[129] = 1
	errno, _ = c.ask(opWrite, send(id, 1000, 0, 0, 0xffff, m))
	assert.Zero(t, errno)
	b := c.read()
	assert.Equal(t, byte(fabric.Switch), b[headerSize+64+2])
	assert.Equal(t, uint16(0x8000), binary.BigEndian.Uint16(b[headerSize+4:]))
}

// TestServer: a program that registers for a class gets what others send to its port, and they get its answer.
func TestServer(t *testing.T) {
	connect, local, _ := serve(t)
	server := connect().open(kindUMAD, 1)
	server.ask(opEnablePKey, nil)
	sid := server.register(1, 0x32, 1, 1<<1)
	errno, _ := connect().open(kindUMAD, 1).ask(opRegister2, reg(1, 0x32, 1, 0, 1<<1, 0))
	assert.Equal(t, syscall.EINVAL, errno, "that method is taken")
	asks := connect().open(kindUMAD, 0)
	asks.ask(opEnablePKey, nil)
	id := asks.register(1, 0x32, 1, 0)
	var to, from uint16
	local.Do(func(f *fabric.Fabric) { from, to = f.UMAD("dgx01")[0].LID, f.UMAD("dgx01")[1].LID })
	m := mad(0x32, 1, 1, 0x55, 0, 0)
	copy(m[37:], "\x00\x14\x05")
	errno, _ = asks.ask(opWrite, send(id, 60_000, 0, 1, to, m))
	require.Zero(t, errno)
	got := server.read()
	assert.Equal(t, sid, binary.LittleEndian.Uint32(got))
	assert.Equal(t, from, binary.BigEndian.Uint16(got[28:]))
	reply := append([]byte(nil), got[headerSize:]...)
	reply[3] |= 0x80
	copy(reply[40:], "hello")
	errno, _ = server.ask(opWrite, send(sid, 0, 0, 1, from, reply))
	require.Zero(t, errno)
	b := asks.read()
	assert.Equal(t, id, binary.LittleEndian.Uint32(b))
	assert.Equal(t, "hello", string(b[headerSize+40:headerSize+45]))
	assert.Equal(t, to, binary.BigEndian.Uint16(b[28:]))
}

// TestISSM: one descriptor at a time, and the port says that it has a subnet manager.
func TestISSM(t *testing.T) {
	connect, local, _ := serve(t)
	claimed := func() bool {
		yes := false
		local.Do(func(f *fabric.Fabric) { yes = f.UMAD("dgx01")[1].CapMask&2 != 0 })
		return yes
	}
	assert.False(t, claimed())
	first := connect().open(kindISSM, 1)
	assert.True(t, claimed())
	errno, _ := connect().ask(opOpen, words(kindISSM, 1, nonblocking))
	assert.Equal(t, syscall.EAGAIN, errno)
	waits := make(chan syscall.Errno)
	second := connect()
	go func() {
		errno, _ := second.ask(opOpen, words(kindISSM, 1, 0))
		waits <- errno
	}()
	first.conn.Close()
	assert.Zero(t, <-waits)
	second.conn.Close()
	assert.Eventually(t, func() bool { return !claimed() }, time.Minute, time.Millisecond)
}

// TestLongAnswer: what RMPP puts together comes as one message; a very long one as a file after its first segment.
func TestLongAnswer(t *testing.T) {
	var hosts []fabric.Host
	for i := range 800 {
		hosts = append(hosts, fabric.Host{Name: fmt.Sprint("h", i), HCAs: []fabric.HCA{{Name: "mlx5_0", Ports: []fabric.HCAPort{{}}}}})
	}
	connect, local, _ := serve(t)
	f, err := fabric.New(fabric.Description{Hosts: append(hosts, fabric.Host{Name: "dgx01", HCAs: []fabric.HCA{{Name: "mlx5_0", Ports: []fabric.HCAPort{{}}}}}),
		Layout: fabric.Layout{Preset: "fat-tree"}})
	require.NoError(t, err)
	local.Replace(f)
	c := connect().open(kindUMAD, 0)
	c.ask(opEnablePKey, nil)
	id := c.register(1, 0x03, 2, 0)
	errno, _ := c.ask(opWrite, send(id, 60_000, 0, 1, f.SM.LID, mad(0x03, 2, 0x12, 9, 0x11, 0)))
	require.Zero(t, errno)
	b, oob := make([]byte, 1000), make([]byte, 100)
	n, oobn, _, _, err := c.conn.ReadMsgUnix(b, oob)
	require.NoError(t, err)
	assert.Equal(t, headerSize+fabric.MADSize, n)
	total := binary.LittleEndian.Uint32(b[16:])
	assert.Equal(t, headerSize+56+112*len(f.Nodes), int(total))
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	require.NoError(t, err)
	fds, err := unix.ParseUnixRights(&messages[0])
	require.NoError(t, err)
	defer unix.Close(fds[0])
	whole := make([]byte, total+1)
	n, err = unix.Pread(fds[0], whole, 0)
	require.NoError(t, err)
	assert.Equal(t, int(total), n)
	assert.Equal(t, b[:headerSize+fabric.MADSize], whole[:headerSize+fabric.MADSize])
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte{})
	f.Add(append(words(magic, opWrite, 64, 0), make([]byte, 64)...))
	f.Add(append(words(magic, opRegister, 28, 0), make([]byte, 28)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b)
		if err != nil {
			return
		}
		if len(r.data) != len(b)-prefixSize {
			t.Fatalf("%d bytes of data in %d", len(r.data), len(b))
		}
		decodeRegister(r.data)
		decodeRegister2(r.data)
		for _, size := range []int{headerSmall, headerSize} {
			if p, errno := decodePacket(r.data, size); errno == 0 && len(p.header)+len(p.mad) != len(r.data) {
				t.Fatal("a packet is not all of its request")
			}
		}
	})
}
