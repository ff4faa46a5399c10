//go:build guest

package kernel

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// verified requires vgpuctl verify to print these results, one for each check in order, and returns what it saw.
func verified(t *testing.T, want string, args ...string) string {
	t.Helper()
	o := run(t, "vgpuctl", append([]string{"verify"}, args...)...)
	var results []string
	for line := range strings.Lines(o.stdout) {
		results = append(results, strings.Fields(line)[0])
	}
	require.Equal(t, want, strings.Join(results, " "), "%s%s", o.stdout, o.stderr)
	code := 0
	if strings.Contains(want, "fail") || strings.Contains(want, "skip") {
		code = 1
	}
	assert.Equal(t, code, o.code, o.stdout)
	assert.Empty(t, o.stderr)
	return o.stdout
}

// TestVgpuctlVerify: verify passes on a module that works, in dry-run mode and while it enforces, leaves nothing, and
// fails where the module does not do what it tries.
func TestVgpuctlVerify(t *testing.T) {
	const all = "pass pass pass pass pass"
	load(t, "fakegpu", "nvidia=1", someGPUs)
	t.Run("dry run", func(t *testing.T) {
		d := withVgpu(t)
		for _, gpu := range []string{"0", "3"} {
			saw := verified(t, all, "--gpu", gpu)
			assert.Contains(t, saw, "compute         2000 us with weight 3: would be 6000 us, and the driver has 2000 us\n")
			assert.Contains(t, saw, "the second would be refused\n")
		}
		run(t, "vgpuctl", "verify", "--enforce").refused(t, 1, "vgpuctl mode enforce")
		run(t, "vgpuctl", "verify", "nonsense").refused(t, 2, `"nonsense" is no check`)
		run(t, "vgpuctl", "verify", "--gpu", "any").refused(t, 2, "--gpu")
		assert.Contains(t, verified(t, "fail", "--gpu", "77", "compute"), "no GPU /dev/nvidia77")
		got := vgpuctlJSON[[]map[string]string](t, "verify", "cgroup-policy")
		assert.Equal(t, []map[string]string{{"check": "cgroup-policy", "result": "pass", "saw": "set, read, replaced, cleared, and gone with the cgroup"}}, got)
		nothingLeft(t, d)
	})
	t.Run("enforcing", func(t *testing.T) {
		// 20 MiB: an allocation of 16 would not be accounted.
		d := withVgpu(t, "dry_run=0", "allow_enforce=1", fmt.Sprint("memory_alloc_min_bytes=", 20*mib), "timeslice_max_us=100")
		saw := verified(t, all, "--enforce")
		assert.Contains(t, saw, "2000 us with weight 3: the driver has 6000 us\n")
		assert.Contains(t, saw, "of two allocations of 32M under a limit of one the second was refused\n")
		before := stats(t, d)
		assert.Contains(t, verified(t, all), "would be 6000 us", "dry by default")
		after := stats(t, d)
		assert.Equal(t, before.MemoryDenied, after.MemoryDenied)
		assert.Equal(t, before.TimeslicesRewritten, after.TimeslicesRewritten)
		require.NoError(t, d.SetMode(vgpuctl.ModeOff))
		run(t, "vgpuctl", "verify").refused(t, 1, "the module is off")
		nothingLeft(t, d)
	})
	t.Run("the module does less", func(t *testing.T) {
		withVgpu(t, "compute_trace=0", "memory_trace=0")
		saw := verified(t, "fail fail pass fail fail")
		assert.Contains(t, saw, "compute_trace=0")
		assert.Contains(t, saw, "memory_trace=0")
	})
	unload(t, "fakegpu")
	load(t, "vgpu")
	run(t, "vgpuctl", "verify").refused(t, 1, "has hooked no driver")
	unload(t, "vgpu")
	run(t, "vgpuctl", "verify").refused(t, 1, "load the module with make -C kernel load")
}

func nothingLeft(t *testing.T, d *vgpuctl.Device) {
	t.Helper()
	eventually(t, "nothing is left", func() bool {
		s := stats(t, d)
		return s.Objects == 0 && s.Policies == 0 && s.CgroupPolicies == 0
	})
	folders, err := filepath.Glob("/sys/fs/cgroup/vgpuctl-*")
	require.NoError(t, err)
	assert.Empty(t, folders)
}
