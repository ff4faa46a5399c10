package main

import (
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/machine/fabric"
	"github.com/nvmlfab/nvmlfab/machine/fabric/umad"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// TestWatch: faults and loads come and go while datagrams are answered. A fault that the fabric does not have is left out, and one
// that ends heals by itself.
func TestWatch(t *testing.T) {
	base := profiles.Base{Name: "h100"}
	board, err := base.With()
	require.NoError(t, err)
	f, err := machine.Subnet(board, "a", "", nil)
	require.NoError(t, err)
	local, _ := umad.NewLocal(f, "a")
	e, err := newEvents(t.TempDir())
	require.NoError(t, err)
	defer e.close()
	dir := state.At(t.TempDir())
	w := &watcher{local: local, node: newNode(dir, base, board), load: newLoad(board, "a", f.Host("a")), events: e, ends: 1}
	f.Traffic = w.load.traffic
	now := time.Now()
	up := func(adapter int) (up bool) {
		local.Do(func(f *fabric.Fabric) { up = f.Host("a")[adapter].Ports[1].Up() })
		return up
	}
	look := func(after time.Duration) {
		now = now.Add(after)
		w.look(now)
	}
	do := func(f func(*change.Tx) error) {
		source := w.node.source
		_, _, err := dir.Update(func(s *state.State) (*state.State, error) {
			source.State = s
			tx := change.Begin(source, now.UnixMilli())
			if err := f(tx); err != nil {
				return nil, err
			}
			return tx.Finish()
		})
		require.NoError(t, err)
	}
	fail := func(kind, target string, until time.Duration) {
		l := state.LinkFault{Kind: kind, Target: target}
		if until != 0 {
			l.Until = now.Add(until).UnixMilli()
		}
		do(func(tx *change.Tx) error { return tx.FailLink(l) })
	}

	done := make(chan struct{})
	var asking sync.WaitGroup
	for thread := range 8 {
		asking.Go(func() {
			mad := make([]byte, fabric.MADSize)
			mad[0], mad[1], mad[2], mad[3] = 1, 4, 1, 1
			binary.BigEndian.PutUint16(mad[16:], 0x1d)
			mad[64+1] = 1
			for {
				select {
				case <-done:
					return
				default:
				}
				local.Send(thread, uint16(2+thread), mad, func([]byte, uint16) {})
			}
		})
	}
	look(time.Second)
	require.True(t, up(3))
	fail("link-down", "mlx5_3/1", 0)
	fail("dead-switch", "leaf99", 0) // which is left out
	do(func(tx *change.Tx) error {
		return tx.Set(0, change.ByUser, now.Add(time.Minute).UnixMilli(), profiles.Settings{"utilization.gpu": 50})
	})
	look(time.Second)
	assert.False(t, up(3))
	assert.True(t, up(4))
	fail("link-down", "mlx5_4/1", 3*time.Second)
	fail("flapping", "mlx5_5/1", 0)
	look(time.Second)
	assert.False(t, up(4))
	assert.False(t, up(5))
	assert.True(t, w.due(w.next), "the link comes back")
	assert.False(t, w.due(now))
	assert.True(t, w.due(now.Add(3*time.Second)), "the fault ends")
	look(5 * time.Second)
	assert.True(t, up(4))
	assert.True(t, up(5))
	look(5 * time.Second)
	assert.False(t, up(5))
	do(func(tx *change.Tx) error {
		assert.Equal(t, 3, tx.HealLinks("", "", nil))
		return nil
	})
	look(time.Second)
	assert.True(t, up(3))
	assert.True(t, up(5))

	// A fault that came and ended between two looks counts once.
	downs := func(adapter int) (n uint64) {
		local.Do(func(f *fabric.Fabric) { n = f.Read(f.Host("a")[adapter].Ports[1], fabric.LinkDowned, now) })
		return n
	}
	before := downs(6)
	fail("link-down", "mlx5_6/1", time.Second)
	look(5 * time.Second)
	assert.True(t, up(6))
	assert.Equal(t, before+1, downs(6))
	look(time.Second)
	fail("link-down", "mlx5_7/1", 0) // which writes the file anew
	look(time.Second)
	assert.Equal(t, before+1, downs(6))
	close(done)
	asking.Wait()
}
