//go:build guest

package kernel

import (
	"testing"

	"github.com/nvmlfab/nvmlfab/shims/vgpuctl"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestVgpuHooks: the driver's calls are seen, also on descriptors that were open before.
func TestVgpuHooks(t *testing.T) {
	load(t, "fakegpu", "nvidia=1", someGPUs)
	before := newClient(t, 0)
	d := withVgpu(t, "memory_alloc_min_bytes=1")
	info, err := d.Info()
	require.NoError(t, err)
	assert.Equal(t, vgpuctl.ModeDryRun, info.Mode)
	assert.EqualValues(t, 1, info.Hooked)
	assert.Equal(t, "fakegpu", info.Driver.String())
	object, status := before.memory(32 * mib)
	require.Zero(t, status)
	assert.EqualValues(t, 32*mib, taskBytes(t, d, 1))
	require.Zero(t, before.free(object))
	assert.Zero(t, taskBytes(t, d, 1))
	after := newClient(t, 1)
	_, status = after.memory(16 * mib)
	require.Zero(t, status)
	assert.EqualValues(t, 16*mib, taskBytes(t, d, 1))
	for _, h := range table(t, "hooks") {
		assert.Equal(t, "fakegpu", h["driver"])
	}
	assert.NotEqual(t, "0", rowOf(t, "hooks", "function", "fakegpu_nv_unlocked_ioctl")["calls"])
}
