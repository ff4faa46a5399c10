package main

import (
	"encoding/binary"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/machine/fabric"
)

// TestEvents: who watches an adapter gets the events of its ports and of no other's, in order.
func TestEvents(t *testing.T) {
	hcas := []fabric.HCA{{Name: "mlx5_0", DeviceID: 0x1021, Ports: []fabric.HCAPort{{}}}, {Name: "mlx5_1", DeviceID: 0x1021, Ports: []fabric.HCAPort{{Rail: 1}}}}
	f, err := fabric.New(fabric.Description{Hosts: []fabric.Host{{Name: "a", HCAs: hcas}}})
	require.NoError(t, err)
	dir := t.TempDir()
	e, err := newEvents(dir)
	require.NoError(t, err)
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: filepath.Join(dir, eventsName), Net: "unixpacket"})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write(binary.NativeEndian.AppendUint32(nil, 1))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, number := range e.watchers {
			return number == 1
		}
		return false
	}, time.Minute, time.Millisecond)

	fault := func(target string) {
		now := time.Now()
		var faults []fabric.Fault
		if target != "" {
			faults = append(faults, fabric.Fault{Kind: fabric.LinkDown, Target: target, Since: now})
		}
		require.NoError(t, f.SetFaults("a", faults, now))
		e.look(f.Host("a"))
	}
	e.look(f.Host("a"))
	fault("mlx5_0")
	fault("mlx5_1")
	fault("")
	for _, want := range []uint32{portError, portActive, clientReregister} {
		var message [64]byte
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		n, err := c.Read(message[:])
		require.NoError(t, err)
		require.Equal(t, 16, n)
		assert.Equal(t, uint64(1), binary.NativeEndian.Uint64(message[:]))
		assert.Equal(t, want, binary.NativeEndian.Uint32(message[8:]))
	}
	e.close()
	n, _ := c.Read(make([]byte, 16))
	assert.Zero(t, n, "the daemon's end is told")
}

func TestKinds(t *testing.T) {
	up, down := portState{true, 5, 1}, portState{false, 5, 1}
	assert.Empty(t, kinds(up, up))
	assert.Equal(t, []uint32{portError}, kinds(up, down))
	assert.Equal(t, []uint32{lidChange, smChange}, kinds(up, portState{true, 6, 2}))
}
