package change_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/machine/fabric"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// TestLinkKinds: the faults of InfiniBand are those that a fabric can have.
func TestLinkKinds(t *testing.T) {
	var kinds []fabric.FaultKind
	for _, k := range change.Kinds() {
		if k.InfiniBand() {
			kinds = append(kinds, fabric.FaultKind(k.Name))
		}
	}
	assert.Equal(t, fabric.FaultKinds(), kinds)
}

// TestFailLinks: a fault takes the place of an earlier one of its kind, target and owner, ends when its time is over, survives
// the file, and is healed by kind, by target, or with all others.
func TestFailLinks(t *testing.T) {
	board, err := profiles.Shipped("t4")
	require.NoError(t, err)
	source := change.Source{Board: board, Overridden: board, Origin: 1}
	do := func(now int64, f func(*change.Tx)) {
		tx := change.Begin(source, now)
		f(tx)
		s, err := tx.Finish()
		require.NoError(t, err)
		text, err := s.Encode()
		require.NoError(t, err)
		source.State, err = state.Decode(text, nil)
		require.NoError(t, err)
	}
	targets := func(now int64) (list []string) {
		for _, l := range source.State.Node.LinkFaults(now) {
			list = append(list, l.Kind+" "+l.Target)
		}
		return list
	}
	do(1000, func(tx *change.Tx) {
		require.NoError(t, tx.FailLink(state.LinkFault{Kind: "link_down", Target: "mlx5_0/1"}))
		require.NoError(t, tx.FailLink(state.LinkFault{Kind: "symbol-errors", Target: "mlx5_0/1", Rate: 3}))
		require.NoError(t, tx.FailLink(state.LinkFault{Kind: "symbol-errors", Target: "mlx5_0/1", Rate: 5, Until: 5000}))
		require.NoError(t, tx.FailLink(state.LinkFault{Kind: "link-down", Target: "mlx5_1/1", By: change.ByScenario + "x", Until: 9000}))
		assert.ErrorContains(t, tx.FailLink(state.LinkFault{Kind: "lost", Target: "mlx5_0/1"}), "no fault of InfiniBand")
		assert.ErrorContains(t, tx.FailLink(state.LinkFault{Kind: "link-down"}), "say of which")
		assert.ErrorContains(t, tx.Fail(-1, "", 0, change.Fault{Kind: "link-down"}), "say of which")
		assert.ErrorContains(t, tx.Fail(0, "", 0, change.Fault{Kind: "link-down"}), "say of which")
	})
	assert.Equal(t, []string{"link-down mlx5_0/1", "symbol-errors mlx5_0/1", "link-down mlx5_1/1"}, targets(2000))
	assert.Equal(t, state.LinkFault{Kind: "symbol-errors", Target: "mlx5_0/1", Since: 1000, Until: 5000, By: change.ByFault, Rate: 5}, source.State.Node.Links[1])
	assert.Equal(t, int64(5000), source.State.Expiry(2000))
	assert.Equal(t, []string{"link-down mlx5_0/1", "link-down mlx5_1/1"}, targets(5000))
	do(6000, func(tx *change.Tx) {
		ended, err := tx.EndScenario(-1, "x")
		assert.NoError(t, err)
		assert.True(t, ended)
		assert.Equal(t, 0, tx.HealLinks("flapping", "", nil))
		assert.Equal(t, 0, tx.HealLinks("", "", []string{"mlx5_1/1"}))
	})
	assert.Len(t, source.State.Node.Links, 1, "what has ended is forgotten")
	do(7000, func(tx *change.Tx) { assert.Equal(t, 1, tx.HealLinks("link-down", "", []string{"mlx5_0/1"})) })
	assert.Empty(t, source.State.Node.Links)
	assert.True(t, source.State.Node.Empty())
}
