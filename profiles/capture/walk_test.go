package capture

import (
	"encoding/binary"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles/capture/calls"
)

// willing answers every call with SUCCESS and small numbers, so that there are instances, vGPUs and units of everything. It notes
// what is called.
type willing struct{ called map[string]bool }

func (w *willing) Call(q Question) (Reply, error) {
	w.called[q.Function] = true
	reply := Reply{}
	for _, b := range q.Buffers {
		content := make([]byte, b.Size)
		binary.NativeEndian.PutUint32(content, 1)
		reply.Buffers = append(reply.Buffers, content)
	}
	return reply, nil
}

// TestOnlyReads: a walk calls no function whose name says that it changes something, whatever the library answers.
func TestOnlyReads(t *testing.T) {
	w := &willing{map[string]bool{}}
	walk, err := Run(w, nil)
	require.NoError(t, err)
	assert.Equal(t, 1, walk.GPUs)
	changes := regexp.MustCompile(`Set[A-Z]|SetState|Create|Destroy|Clear|Reset|Modify|Remove|Discover|Freeze|Register|Update|Alloc|Free|Activate|Write|Unload|Wait|Validate`)
	exceptions := regexp.MustCompile(`^nvmlDevice(GetLastBBX|GetProcess|GetResetStatus)`)
	for name := range w.called {
		if name != "" && !exceptions.MatchString(name) {
			assert.NotRegexp(t, changes, name)
		}
	}
	assert.True(t, w.called["nvmlGpuInstanceGetInfo"])
	assert.True(t, w.called["nvmlUnitGetUnitInfo"])
	assert.Greater(t, len(w.called), 250)

	walker := &walker{functions: map[string]*calls.Function{}, caller: w}
	_, err = walker.call(Question{Function: "nvmlDeviceSetPersistenceMode"})
	assert.ErrorContains(t, err, "nvmlDeviceSetPersistenceMode is not a function that only reads")
	assert.False(t, w.called["nvmlDeviceSetPersistenceMode"])
}

// TestEverythingIsAsked: no function that reads is forgotten: the walk calls it, or left says why not.
func TestEverythingIsAsked(t *testing.T) {
	w := &willing{map[string]bool{}}
	_, err := Run(w, nil)
	require.NoError(t, err)
	table, err := calls.Read()
	require.NoError(t, err)
	for _, f := range table.Functions {
		if f.Reads && f.Slot == 0 && left[f.Name] == "" {
			assert.True(t, w.called[f.Name], f.Name)
		}
	}
	for name := range left {
		assert.NotEmpty(t, left[name])
	}
}

// TestReturnName names codes as the header does, without the beginning.
func TestReturnName(t *testing.T) {
	assert.Equal(t, "DRIVER_NOT_LOADED", ReturnName(abi.ERROR_DRIVER_NOT_LOADED))
	assert.Equal(t, "SUCCESS", ReturnName(abi.SUCCESS))
	assert.Equal(t, "the error 7777", ReturnName(7777))
}
