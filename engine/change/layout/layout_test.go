package layout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/profiles"
)

const file = `version: v1
mig-configs:
  off:
    - {devices: all, mig-enabled: false}
  halves:
    - {devices: [0], mig-enabled: true, mig-devices: {3g.40gb: 2}}
    - {devices: [1], mig-enabled: true}
  crowded:
    - {devices: all, mig-enabled: true, mig-devices: {3g.40gb: 3}}
  others:
    - {devices: all, device-filter: "0x123410DE", mig-enabled: true}
`

// TestApply: a layout that is there already changes nothing, and one that does not fit is refused with its line.
func TestApply(t *testing.T) {
	board, err := profiles.Shipped("h100")
	require.NoError(t, err)
	tx := change.Begin(change.Source{Board: board, Overridden: board}, time.Now().UnixMilli())
	apply := func(name string) (bool, error) {
		f := File{"mig.yaml"}
		entries, err := f.Config([]byte(file), name)
		require.NoError(t, err)
		return f.Apply(tx, board, entries)
	}
	for _, step := range []struct {
		name      string
		changed   bool
		instances int
		err       string
	}{
		{"off", false, 0, ""},
		{"halves", true, 2, ""},
		{"halves", false, 2, ""},
		{"crowded", false, 2, "mig.yaml:9: GPU 0: there is no room for"},
		{"others", false, 2, "mig.yaml: the configuration is about other boards: no GPU matches"},
	} {
		changed, err := apply(step.name)
		if step.err != "" {
			require.ErrorContains(t, err, step.err, step.name)
		} else {
			require.NoError(t, err, step.name)
		}
		assert.Equal(t, step.changed, changed, step.name)
		assert.Len(t, tx.Partitioning(0).Instances, step.instances, step.name)
	}
}
