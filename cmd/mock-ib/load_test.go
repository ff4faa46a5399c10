package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/machine/fabric"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// TestLoad: an adapter sends what the GPU beside it makes it send, as far as its link takes it, and never less than before.
func TestLoad(t *testing.T) {
	base := profiles.Base{Name: "dgx-h100"}
	board, err := base.With()
	require.NoError(t, err)
	f, err := machine.Subnet(board, "a", "", nil)
	require.NoError(t, err)
	l := newLoad(board, "a", f.Host("a"))
	f.Traffic = l.traffic
	n := newNode(state.At(t.TempDir()), base, board)
	now := time.Now()
	utilization := func(gpu int, percent uint32, until int64) {
		_, _, err := n.dir.Update(func(s *state.State) (*state.State, error) {
			n.source.State = s
			tx := change.Begin(n.source, now.UnixMilli())
			if err := tx.Set(gpu, change.ByUser, until, profiles.Settings{"utilization.gpu": percent}); err != nil {
				return nil, err
			}
			return tx.Finish()
		})
		require.NoError(t, err)
		require.NoError(t, n.read())
	}
	set := func() int64 {
		ends, err := l.set(&n.source, now)
		require.NoError(t, err)
		return ends
	}
	port := func(adapter int) *fabric.Port { return f.Host("a")[adapter].Ports[1] }
	sent := func(adapter int) uint64 { return f.Read(port(adapter), fabric.XmitData, now) * 4 }

	assert.Zero(t, set())
	assert.Zero(t, sent(3), "an idle GPU")
	utilization(1, 100, now.UnixMilli()+10_000)
	assert.Equal(t, now.UnixMilli()+10_000, set())
	sent(3)
	now = now.Add(5 * time.Second)
	assert.InEpsilon(t, 5*0.4*50e9, sent(3), 1e-6)
	assert.Equal(t, sent(3)/2048, f.Read(port(3), fabric.RcvPackets, now))
	assert.Equal(t, sent(3)/(512<<10), f.Read(port(3), fabric.RcvWriteRequests, now))
	assert.Equal(t, sent(3)/4, f.Read(port(3).Remote, fabric.RcvData, now), "the switch gets it")
	assert.Zero(t, sent(0), "the adapter of another GPU")
	assert.Zero(t, sent(1), "one that is beside no GPU")

	before := sent(3)
	require.NoError(t, f.SetFaults("a", []fabric.Fault{{Kind: fabric.LinkDown, Target: "mlx5_3"}}, now))
	now = now.Add(2 * time.Second)
	assert.Equal(t, before, sent(3), "nothing goes over a link that is down")
	slow := fabric.Fault{Kind: fabric.WrongRate, Target: "mlx5_3", Speed: fabric.SDR}
	require.NoError(t, f.SetFaults("a", []fabric.Fault{slow}, now))
	now = now.Add(2 * time.Second)
	assert.InEpsilon(t, before+2*1.25e9, sent(3), 1e-6, "a slow link passes what it can")
	now = now.Add(2 * time.Second)
	set()
	before = sent(3)
	now = now.Add(time.Minute)
	assert.Equal(t, before, sent(3), "the load is over")

	again := newLoad(board, "a", f.Host("a"))
	_, err = again.set(&n.source, now)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, again.traffic(port(3), now).Sent, before, "a daemon that is started again goes on from there")
}

// TestNode: the state directory and overrides.yaml are followed; what cannot be read stays as it was.
func TestNode(t *testing.T) {
	base := profiles.Base{Name: "h100"}
	board, err := base.With()
	require.NoError(t, err)
	dir := state.At(filepath.Join(t.TempDir(), "later"))
	n := newNode(dir, base, board)
	now := time.Now()
	look := func() bool { now = now.Add(state.Tick); return n.look(now) }
	look()
	assert.Empty(t, n.faults(now))
	require.NoError(t, os.Mkdir(dir.Path(), 0o755))
	_, _, err = dir.Update(func(s *state.State) (*state.State, error) {
		tx := change.Begin(n.source, now.UnixMilli())
		if err := tx.FailLink(state.LinkFault{Kind: "link-down", Target: "mlx5_0/1"}); err != nil {
			return nil, err
		}
		return tx.Finish()
	})
	require.NoError(t, err)
	require.True(t, look())
	assert.Len(t, n.faults(now), 1)
	require.NoError(t, os.WriteFile(dir.File(), []byte("half"), 0o644))
	look()
	assert.Len(t, n.faults(now), 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir.Path(), state.Overrides), []byte("devices: [{index: 0, utilization: {gpu: 70}}]\n"), 0o644))
	look()
	d, err := n.source.Device(0, now.UnixMilli()+1000)
	require.NoError(t, err)
	assert.Equal(t, uint32(70), d.Utilization.GPU.Value)
	require.NoError(t, os.RemoveAll(dir.Path()))
	look()
	assert.Empty(t, n.faults(now), "the directory is gone")
}
