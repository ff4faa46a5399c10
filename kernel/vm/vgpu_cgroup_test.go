//go:build guest

package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// setting is the variable VERIFY_COMPUTE_name of make verify-compute, which is passed on the kernel's command line.
func setting(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv("VERIFY_COMPUTE_" + name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, "VERIFY_COMPUTE_%s", name)
	return n
}

// TestVerifyCompute: the timeslice of a task, with the settings of make verify-compute.
func TestVerifyCompute(t *testing.T) {
	dry, allow := setting(t, "DRY_RUN", 0), setting(t, "ALLOW_ENFORCE", 1)
	least, most := setting(t, "TIMESLICE_MIN_US", 1000), setting(t, "TIMESLICE_MAX_US", 10000)
	weight := setting(t, "WEIGHT", 2)
	d := withDriver(t, fmt.Sprint("dry_run=", dry), fmt.Sprint("allow_enforce=", allow),
		fmt.Sprint("timeslice_min_us=", least), fmt.Sprint("timeslice_max_us=", most))
	require.NoError(t, d.SetPolicy(1, vgpuctl.MinorAny, vgpuctl.Limits{Weight: uint32(weight)}))
	c := newClient(t, 0)
	group := c.group()
	enforced := dry == 0 && allow == 1
	for _, asked := range []uint64{1, 500, 2000, 9000, 100000} {
		given := max(asked*max(weight, 1), least)
		if most > 0 {
			given = min(given, most)
		}
		want := asked
		if enforced {
			want = given
		}
		for _, w := range ways {
			_, after := w.setTimeslice(t, c, group, asked)
			require.Equal(t, want, after)
			require.Equal(t, want, c.timeslice(group))
		}
		rows := table(t, "timeslices")
		assert.Equal(t, fmt.Sprint(given), rows[len(rows)-1]["given_us"])
		t.Logf("weight %d, %d to %d us, dry_run=%d allow_enforce=%d: asked for %d us, would give %d us, the driver has %d us", weight, least, most, dry, allow, asked, given, want)
	}
}

// TestVerifyCgroup: the module identifies processes by their cgroup.
func TestVerifyCgroup(t *testing.T) {
	d := withDriver(t, private...)
	dir, id := cgroup(t, "verify")
	below, belowID := cgroup(t, "verify/below")
	events := listen(t)
	h := hold(t, dir, "rm_alloc_smoke", fmt.Sprint(16*mib), "1")
	assert.Equal(t, fmt.Sprint(id), rowOf(t, "tasks", "tgid", h.Process.Pid)["cgroup_id"])
	for _, e := range events() {
		assert.Equal(t, id, e.CgroupID, "%+v", e)
		assert.EqualValues(t, h.Process.Pid, e.Tgid)
	}
	deep := hold(t, below, "rm_vmm_smoke", fmt.Sprint(8*mib), "1")
	assert.Equal(t, fmt.Sprint(belowID), rowOf(t, "tasks", "tgid", deep.Process.Pid)["cgroup_id"])
	assert.EqualValues(t, 24*mib, cgroupBytes(t, d, id), "its own and what is below it")
	assert.EqualValues(t, 8*mib, cgroupBytes(t, d, belowID))
	assert.Equal(t, fmt.Sprint(24*mib), rowOf(t, "cgroups", "cgroup_id", id)["device_bytes"])

	h.kill()
	deep.kill()
	assert.Zero(t, cgroupBytes(t, d, id))
	require.NoError(t, os.Remove(below))
	require.NoError(t, os.Remove(dir))
	eventually(t, "the module forgets a cgroup that is gone", func() bool {
		for _, row := range table(t, "cgroups") {
			if row["cgroup_id"] == fmt.Sprint(id) || row["cgroup_id"] == fmt.Sprint(belowID) {
				return false
			}
		}
		return true
	})
	gone := ofType(events(), vgpuctl.EventCgroupGone)
	require.Len(t, gone, 2)
	assert.Equal(t, []uint64{belowID, id}, []uint64{gone[0].CgroupID, gone[1].CgroupID})
}

// TestVerifyCgroupPolicy: policies of cgroups can be set, read, replaced and cleared, and end with the cgroup.
func TestVerifyCgroupPolicy(t *testing.T) {
	d := withDriver(t, private...)
	dir, id := cgroup(t, "policy")
	limits := vgpuctl.Limits{MemoryLimitBytes: 64 * mib, TimesliceMinUs: 10, TimesliceMaxUs: 20, Weight: 7, Flags: vgpuctl.LimitDryRun}
	for _, minor := range []vgpuctl.Minor{vgpuctl.MinorAny, 0, 247} {
		_, err := d.GetCgroupPolicy(id, minor)
		assert.ErrorIs(t, err, unix.ENOENT)
		assert.ErrorIs(t, d.ClearCgroupPolicy(id, minor), unix.ENOENT)
		require.NoError(t, d.SetCgroupPolicy(id, minor, vgpuctl.Limits{}))
		require.NoError(t, d.SetCgroupPolicy(id, minor, limits))
		got, err := d.GetCgroupPolicy(id, minor)
		require.NoError(t, err)
		assert.Equal(t, limits, got)
	}
	assert.EqualValues(t, 3, stats(t, d).CgroupPolicies)
	assert.Len(t, table(t, "cgroup_policies"), 3)
	row := rowOf(t, "cgroup_policies", "minor", "any")
	assert.Equal(t, map[string]string{"cgroup_id": fmt.Sprint(id), "minor": "any", "memory_limit_bytes": fmt.Sprint(64 * mib),
		"timeslice_min_us": "10", "timeslice_max_us": "20", "weight": "7", "dry_run": "1"}, row)
	require.NoError(t, d.ClearCgroupPolicy(id, 0))
	_, err := d.GetCgroupPolicy(id, 0)
	assert.ErrorIs(t, err, unix.ENOENT)
	require.NoError(t, os.Remove(dir))
	eventually(t, "the policies end with the cgroup", func() bool { return stats(t, d).CgroupPolicies == 0 })
	_, err = d.GetCgroupPolicy(id, vgpuctl.MinorAny)
	assert.ErrorIs(t, err, unix.ENOENT)
	assert.ErrorIs(t, d.SetCgroupPolicy(id, vgpuctl.MinorAny, limits), unix.ENOENT, "there is no such cgroup any more")
}

var lastTimeslice = regexp.MustCompile(`get: status 0, (\d+) us\nclient`)

// timesliceIn sets a timeslice from a program in a cgroup, and returns the one that the driver got.
func timesliceIn(t *testing.T, dir string, us uint64, options ...string) uint64 {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/rm_timeslice_smoke", append(options, fmt.Sprint(us))...)
	if dir != "" {
		inCgroup(t, cmd, dir)
	}
	o := finish(t, cmd).succeeds(t)
	m := lastTimeslice.FindStringSubmatch(o.stdout)
	require.NotNil(t, m, o.stdout)
	n, err := strconv.ParseUint(m[1], 10, 64)
	require.NoError(t, err)
	return n
}

// TestVerifyCgroupCompute: two cgroups with the weights 1 and 3 get timeslices in the ratio 1:3.
func TestVerifyCgroupCompute(t *testing.T) {
	d := withDriver(t, private...)
	one, oneID := cgroup(t, "one")
	three, threeID := cgroup(t, "three")
	below, belowID := cgroup(t, "three/below")
	require.NoError(t, d.SetCgroupPolicy(oneID, vgpuctl.MinorAny, vgpuctl.Limits{Weight: 1}))
	require.NoError(t, d.SetCgroupPolicy(threeID, vgpuctl.MinorAny, vgpuctl.Limits{Weight: 3}))
	for _, options := range [][]string{nil, {"-x"}, {"-u"}, {"-c"}, {"-x", "-c", "-u"}} {
		first, second := timesliceIn(t, one, 2000, options...), timesliceIn(t, three, 2000, options...)
		assert.EqualValues(t, 2000, first)
		assert.EqualValues(t, 6000, second)
		assert.EqualValues(t, 6000, timesliceIn(t, below, 2000, options...), "a cgroup has the policy of the one above")
		t.Logf("weights 1 and 3, %v: %d us and %d us", options, first, second)
	}
	rows := table(t, "timeslices")
	assert.Equal(t, []string{"cgroup", fmt.Sprint(oneID)}, []string{rows[0]["policy_scope"], rows[0]["cgroup_id"]})
	assert.Equal(t, []string{"cgroup", fmt.Sprint(threeID)}, []string{rows[1]["policy_scope"], rows[1]["cgroup_id"]})
	assert.Equal(t, fmt.Sprint(threeID), rows[2]["cgroup_id"], "the one whose policy decided")
	u, err := d.CgroupUsage(threeID, vgpuctl.MinorAny)
	require.NoError(t, err)
	assert.EqualValues(t, 10, u.Timeslices)
	assert.EqualValues(t, 6000, u.TimesliceUs)

	t.Run("one of its own goes first", func(t *testing.T) {
		require.NoError(t, d.SetCgroupPolicy(belowID, vgpuctl.MinorAny, vgpuctl.Limits{Weight: 2}))
		assert.EqualValues(t, 4000, timesliceIn(t, below, 2000))
		require.NoError(t, d.SetCgroupPolicy(belowID, 0, vgpuctl.Limits{Weight: 5}))
		assert.EqualValues(t, 10000, timesliceIn(t, below, 2000), "that for the GPU itself goes before the one for any")
		assert.EqualValues(t, 4000, timesliceIn(t, below, 2000, "-d", "1"))
	})
	t.Run("a task's goes before its cgroup's", func(t *testing.T) {
		// This process is in the root cgroup.
		require.NoError(t, d.SetPolicy(1, vgpuctl.MinorAny, vgpuctl.Limits{Weight: 4}))
		require.NoError(t, d.SetCgroupPolicy(1, vgpuctl.MinorAny, vgpuctl.Limits{Weight: 8}))
		c := newClient(t, 0)
		group := c.group()
		way{}.setTimeslice(t, c, group, 100)
		assert.EqualValues(t, 400, c.timeslice(group))
		require.NoError(t, d.ClearPolicy(1, vgpuctl.MinorAny))
		way{}.setTimeslice(t, c, group, 100)
		assert.EqualValues(t, 800, c.timeslice(group))
		require.NoError(t, d.ClearCgroupPolicy(1, vgpuctl.MinorAny))
		way{}.setTimeslice(t, c, group, 100)
		assert.EqualValues(t, 100, c.timeslice(group))
	})
	t.Run("a dry run", func(t *testing.T) {
		require.NoError(t, d.SetCgroupPolicy(oneID, vgpuctl.MinorAny, vgpuctl.Limits{Weight: 9, Flags: vgpuctl.LimitDryRun}))
		assert.EqualValues(t, 2000, timesliceIn(t, one, 2000))
		require.NoError(t, d.SetCgroupPolicy(oneID, vgpuctl.MinorAny, vgpuctl.Limits{Weight: 9}))
		assert.EqualValues(t, 18000, timesliceIn(t, one, 2000))
		require.NoError(t, d.SetMode(vgpuctl.ModeDryRun))
		assert.EqualValues(t, 2000, timesliceIn(t, one, 2000))
	})
}

// TestVerifyCgroupMemory: a limit applies to all processes of a cgroup together.
func TestVerifyCgroupMemory(t *testing.T) {
	d := withDriver(t, private...)
	dir, id := cgroup(t, "memory")
	below, belowID := cgroup(t, "memory/below")
	require.NoError(t, d.SetCgroupPolicy(id, vgpuctl.MinorAny, vgpuctl.Limits{MemoryLimitBytes: 64 * mib}))
	first := hold(t, dir, "rm_alloc_smoke", fmt.Sprint(16*mib), "2")
	second := hold(t, dir, "rm_vmm_smoke", fmt.Sprint(16*mib), "2")
	assert.EqualValues(t, 64*mib, first.bytes+second.bytes)
	third := hold(t, below, "rm_alloc_smoke", "-x", "-u", fmt.Sprint(16*mib), "1")
	assert.Zero(t, third.bytes, "nor does a cgroup below it get more")
	u, err := d.CgroupUsage(id, vgpuctl.MinorAny)
	require.NoError(t, err)
	assert.EqualValues(t, 64*mib, u.DeviceBytes)
	assert.EqualValues(t, 64*mib, u.PeakDeviceBytes)
	assert.EqualValues(t, 1, u.Denied)
	other := hold(t, "", "rm_alloc_smoke", fmt.Sprint(16*mib), "5")
	assert.EqualValues(t, 80*mib, other.bytes, "others have no such limit")

	first.kill()
	assert.EqualValues(t, 32*mib, cgroupBytes(t, d, id), "who dies gives its memory back")
	fourth := hold(t, below, "rm_alloc_smoke", fmt.Sprint(16*mib), "3")
	assert.EqualValues(t, 32*mib, fourth.bytes)
	assert.EqualValues(t, 32*mib, cgroupBytes(t, d, belowID))

	t.Run("a cgroup below with a policy of its own has both limits", func(t *testing.T) {
		require.NoError(t, d.SetCgroupPolicy(belowID, vgpuctl.MinorAny, vgpuctl.Limits{MemoryLimitBytes: 1 << 40}))
		assert.Zero(t, hold(t, below, "rm_alloc_smoke", fmt.Sprint(16*mib), "1").bytes)
		second.kill()
		require.NoError(t, d.SetCgroupPolicy(belowID, vgpuctl.MinorAny, vgpuctl.Limits{MemoryLimitBytes: 48 * mib}))
		assert.EqualValues(t, 16*mib, hold(t, below, "rm_alloc_smoke", fmt.Sprint(16*mib), "2").bytes)
	})
	t.Run("a task with a policy leaves its cgroup's limit", func(t *testing.T) {
		c := startChild(t, dir, nil)
		c.do("open", 0)
		require.NoError(t, d.SetPolicy(uint32(c.Process.Pid), vgpuctl.MinorAny, vgpuctl.Limits{MemoryLimitBytes: 96 * mib}))
		c.do("alloc", 96*mib)
		assert.Equal(t, "status 0x51", c.try("alloc", 1))
		assert.Greater(t, cgroupBytes(t, d, id), uint64(64*mib))
		require.NoError(t, d.ClearPolicy(uint32(c.Process.Pid), vgpuctl.MinorAny))
		assert.Equal(t, "status 0x51", c.try("alloc", 1), "the cgroup's holds again")
	})
	t.Run("moving makes nothing free", func(t *testing.T) {
		before := cgroupBytes(t, d, id)
		require.NoError(t, os.WriteFile("/sys/fs/cgroup/cgroup.procs", fmt.Append(nil, fourth.Process.Pid), 0))
		assert.Equal(t, before, cgroupBytes(t, d, id))
		fourth.kill()
		assert.Equal(t, before-32*mib, cgroupBytes(t, d, id))
	})
	t.Run("a dry run", func(t *testing.T) {
		require.NoError(t, d.SetCgroupPolicy(id, vgpuctl.MinorAny, vgpuctl.Limits{MemoryLimitBytes: 1, Flags: vgpuctl.LimitDryRun}))
		before := stats(t, d)
		assert.EqualValues(t, 32*mib, hold(t, dir, "rm_alloc_smoke", fmt.Sprint(16*mib), "2").bytes)
		assert.EqualValues(t, 2, stats(t, d).MemoryWouldDeny-before.MemoryWouldDeny)
	})
}
