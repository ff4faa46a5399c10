//go:build guest

package kernel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestVgpuTimeslice: a timeslice is weighted and clamped whichever way the call is made, and the driver gets no other
// value.
func TestVgpuTimeslice(t *testing.T) {
	t.Run("in place", func(t *testing.T) { timeslices(t, enforcing) })
	t.Run("copies", func(t *testing.T) { timeslices(t, private) })
}

func timeslices(t *testing.T, parameters []string) {
	d := withDriver(t, parameters...)
	c := newClient(t, 0)
	group := c.group()
	for _, limits := range []struct {
		vgpuctl.Limits
		asked, given uint64
	}{
		{vgpuctl.Limits{TimesliceMaxUs: 5000}, 9000, 5000},
		{vgpuctl.Limits{TimesliceMinUs: 1000}, 1, 1000},
		{vgpuctl.Limits{TimesliceMinUs: 1000, TimesliceMaxUs: 5000}, 3000, 3000},
		{vgpuctl.Limits{Weight: 3}, 1000, 3000},
		{vgpuctl.Limits{Weight: 3, TimesliceMaxUs: 2500}, 1000, 2500},
		{vgpuctl.Limits{Weight: vgpuctl.WeightMax}, 1 << 62, 1<<64 - 1},
		{vgpuctl.Limits{}, 1234, 1234},
	} {
		require.NoError(t, d.SetPolicy(1, vgpuctl.MinorAny, limits.Limits))
		for _, w := range ways {
			before := stats(t, d)
			events := listen(t)
			status, after := w.setTimeslice(t, c, group, limits.asked)
			require.Zero(t, status)
			assert.Equal(t, limits.given, c.timeslice(group), "%+v %v", limits, w)
			assert.Equal(t, limits.given, after)
			s := stats(t, d)
			rewritten := uint64(0)
			if limits.asked != limits.given {
				rewritten = 1
			}
			assert.Equal(t, rewritten, s.TimeslicesRewritten-before.TimeslicesRewritten)
			assert.EqualValues(t, 1, s.TimeslicesSeen-before.TimeslicesSeen)
			assert.Zero(t, s.TimeslicesWouldRewrite)
			assert.Zero(t, s.Races)
			slices := ofType(events(), vgpuctl.EventTimeslice)
			require.Len(t, slices, 1)
			e := slices[0]
			assert.Equal(t, []uint64{limits.asked, limits.given}, []uint64{e.Value, e.Detail})
			assert.Equal(t, vgpuctl.ScopeTgid, e.Scope)
			assert.Zero(t, e.Flags&vgpuctl.EventDryRun)
			assert.Equal(t, w.xfer, e.Flags&vgpuctl.EventXfer != 0)
			assert.EqualValues(t, group, e.Object)
			assert.EqualValues(t, ctrlSetTimeslice, e.Code)
		}
	}
	u, err := d.TaskUsage(1, vgpuctl.MinorAny)
	require.NoError(t, err)
	assert.EqualValues(t, 28, u.Timeslices)
	assert.EqualValues(t, 1234, u.TimesliceUs)
	row := table(t, "timeslices")[0]
	assert.Equal(t, []string{"9000", "5000", "tgid", "0", "init"}, []string{row["asked_us"], row["given_us"], row["policy_scope"], row["dry_run"], row["comm"]})
	status, _ := way{}.setTimeslice(t, c, group, 0)
	assert.NotZero(t, status, "0 is the driver's to refuse")
}

// TestVgpuTimesliceCompat: 32-bit calls do not evade the rule.
func TestVgpuTimesliceCompat(t *testing.T) {
	load(t, "fakegpu", "nvidia=1", someGPUs)
	withVgpu(t, append(private, "timeslice_min_us=1000", "timeslice_max_us=5000")...)
	for _, options := range []string{"", "-c", "-c -x", "-c -u", "-c -x -u", "-x", "-u", "-x -u"} {
		for asked, given := range map[string]int{"9000": 5000, "10": 1000, "1500": 1500} {
			o := run(t, "rm_timeslice_smoke", append(strings.Fields(options), asked)...).succeeds(t)
			assert.Contains(t, o.stdout, fmt.Sprintf("get: status 0, %d us\nclient", given), options)
		}
	}
}

// TestVgpuTimesliceDryRun: nothing is changed, and events report what would have been changed.
func TestVgpuTimesliceDryRun(t *testing.T) {
	check := func(t *testing.T, d *vgpuctl.Device, flags vgpuctl.LimitFlags) {
		require.NoError(t, d.SetPolicy(1, vgpuctl.MinorAny, vgpuctl.Limits{TimesliceMaxUs: 5000, Flags: flags}))
		c := newClient(t, 0)
		group := c.group()
		events := listen(t)
		for i, w := range ways {
			_, after := w.setTimeslice(t, c, group, 9000+uint64(i))
			assert.Equal(t, 9000+uint64(i), c.timeslice(group))
			assert.Equal(t, 9000+uint64(i), after)
		}
		s := stats(t, d)
		assert.EqualValues(t, len(ways), s.TimeslicesWouldRewrite)
		assert.Zero(t, s.TimeslicesRewritten)
		for i, e := range ofType(events(), vgpuctl.EventTimeslice) {
			assert.Equal(t, []uint64{9000 + uint64(i), 5000}, []uint64{e.Value, e.Detail})
			assert.Equal(t, vgpuctl.EventDryRun, e.Flags&vgpuctl.EventDryRun)
		}
		row := table(t, "timeslices")[0]
		assert.Equal(t, []string{"9000", "5000", "1"}, []string{row["asked_us"], row["given_us"], row["dry_run"]})
		u, err := d.TaskUsage(1, vgpuctl.MinorAny)
		require.NoError(t, err)
		assert.EqualValues(t, 9003, u.TimesliceUs, "as the driver got it")
	}
	t.Run("module", func(t *testing.T) { check(t, withDriver(t), 0) })
	t.Run("policy", func(t *testing.T) { check(t, withDriver(t, enforcing...), vgpuctl.LimitDryRun) })
	t.Run("compute_trace=0", func(t *testing.T) {
		d := withDriver(t, append(enforcing, "compute_trace=0", "timeslice_max_us=5000")...)
		c := newClient(t, 0)
		group := c.group()
		_, after := way{}.setTimeslice(t, c, group, 9000)
		assert.EqualValues(t, 9000, after)
		assert.Zero(t, stats(t, d).TimeslicesSeen)
	})
}

// TestVgpuTimesliceRefused: a timeslice that cannot be rewritten does not reach the driver.
func TestVgpuTimesliceRefused(t *testing.T) {
	for _, private := range []int{0, 1} {
		t.Run(fmt.Sprintf("private_arguments=%d", private), func(t *testing.T) { timesliceRefused(t, private) })
	}
}

func timesliceRefused(t *testing.T, private int) {
	d := withDriver(t, append(enforcing, "timeslice_max_us=5000", fmt.Sprint("private_arguments=", private))...)
	c := newClient(t, 0)
	group := c.group()
	was := c.timeslice(group)
	us := uint64(9000)
	for _, w := range ways {
		readOnly := newPage(t, &us, unix.PROT_READ, w.untouched)
		call := nvos54{Client: c.client, Object: group, Command: ctrlSetTimeslice, Params: readOnly.address, ParamsSize: 8}
		assert.ErrorIs(t, w.rm(t, c.ctl, escControl, &call), unix.EFAULT)
		assert.Equal(t, was, c.timeslice(group))

		call = nvos54{Client: c.client, Object: group, Command: ctrlSetTimeslice, Params: at(&us), ParamsSize: 8, Flags: 4}
		require.NoError(t, w.rm(t, c.ctl, escControl, &call))
		assert.EqualValues(t, rmNotSupported, call.Status, "serialized parameters cannot be seen")
		assert.Equal(t, was, c.timeslice(group))

		// The parameters overlap the structure: writing them would change the pointer that the driver follows, unless
		// the driver reads a copy.
		inside := newPage(t, &nvos54{}, unix.PROT_READ|unix.PROT_WRITE, false)
		inside.write(&nvos54{Client: c.client, Object: group, Command: ctrlSetTimeslice, Params: inside.address + 16, ParamsSize: 8})
		err := w.call(t, c.ctl, escControl, 32, inside)
		if private == 0 {
			assert.ErrorIs(t, err, unix.EFAULT)
			assert.Equal(t, was, c.timeslice(group))
		} else {
			assert.NoError(t, err)
			assert.EqualValues(t, 5000, c.timeslice(group))
			was = 5000
		}
	}
	assert.EqualValues(t, (1-private)*len(ways), stats(t, d).Races)

	// A timeslice that needs no change may be on such a page.
	us = 3000
	readOnly := newPage(t, &us, unix.PROT_READ, true)
	call := nvos54{Client: c.client, Object: group, Command: ctrlSetTimeslice, Params: readOnly.address, ParamsSize: 8}
	require.NoError(t, way{}.rm(t, c.ctl, escControl, &call))
}

// TestVgpuTimesliceOfChannel: callers under a rule cannot use the driver's other control, which sets the timeslice of a
// single channel.
func TestVgpuTimesliceOfChannel(t *testing.T) {
	const setChannelProperties = 0x80170f
	d := withDriver(t, private...)
	c := newClient(t, 0)
	refused := func() int {
		events := listen(t)
		assert.EqualValues(t, rmNotSupported, c.control(c.device, setChannelProperties, &[2]uint64{1, 100000}), "fakegpu does not know it either")
		n := 0
		for _, e := range ofType(events(), vgpuctl.EventTimeslice) {
			assert.EqualValues(t, setChannelProperties, e.Code)
			n++
		}
		return n
	}
	assert.Zero(t, refused(), "no rule")
	require.NoError(t, d.SetPolicy(1, 0, vgpuctl.Limits{TimesliceMaxUs: 2000}))
	assert.Equal(t, 1, refused())
	require.NoError(t, d.SetMode(vgpuctl.ModeDryRun))
	assert.Zero(t, refused(), "dry run")
}
