package vgpuctl_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl/vgputest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

var some = vgpuctl.Limits{MemoryLimitBytes: 8 << 30, TimesliceMinUs: 500, TimesliceMaxUs: 2000, Weight: 3, Flags: vgpuctl.LimitDryRun}

func TestOpen(t *testing.T) {
	_, err := vgpuctl.OpenPath(filepath.Join(t.TempDir(), "vgpuctl"))
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "no such file or directory: the module is not loaded: load the module with make -C kernel load, as root")
	_, err = vgpuctl.OpenPath("/dev/null")
	assert.ErrorIs(t, err, unix.ENOTTY)
	assert.ErrorContains(t, err, "it is no vgpuctl device, or of a module older than this program")
}

func TestInfoModeStats(t *testing.T) {
	m := vgputest.New()
	m.Stats.Ioctls, m.Stats.EventsLost = 7, 9
	d := m.Open()
	defer d.Close()
	info, err := d.Info()
	require.NoError(t, err)
	assert.Equal(t, m.Info, info)
	assert.Equal(t, "nvidia", info.Driver.String())

	require.NoError(t, d.SetMode(vgpuctl.ModeEnforce))
	info, err = d.Info()
	require.NoError(t, err)
	assert.Equal(t, vgpuctl.ModeEnforce, info.Mode)
	m.Info.MayEnforce = 0
	err = d.SetMode(vgpuctl.ModeEnforce)
	assert.ErrorIs(t, err, unix.EPERM)
	assert.ErrorContains(t, err, "cannot set the mode enforce: operation not permitted: the module must have been loaded with allow_enforce=1")
	err = d.SetMode(9)
	assert.ErrorIs(t, err, unix.EINVAL)
	assert.ErrorContains(t, err, "cannot set the mode 9")

	require.NoError(t, d.SetPolicy(1, 0, some))
	stats, err := d.Stats()
	require.NoError(t, err)
	assert.Equal(t, vgpuctl.Stats{Ioctls: 7, EventsLost: 9, Policies: 1}, stats)
}

func TestPolicies(t *testing.T) {
	m := vgputest.New()
	m.Processes = map[uint32]bool{7: true}
	d := m.Open()
	for _, minor := range []vgpuctl.Minor{0, 5, vgpuctl.MinorAny} {
		_, err := d.GetPolicy(7, minor)
		assert.ErrorIs(t, err, unix.ENOENT)
		assert.ErrorContains(t, err, "vgpuctl policy list shows those there are")
		assert.ErrorIs(t, d.ClearPolicy(7, minor), unix.ENOENT)
		require.NoError(t, d.SetPolicy(7, minor, some))
		got, err := d.GetPolicy(7, minor)
		require.NoError(t, err)
		assert.Equal(t, some, got)
		require.NoError(t, d.SetPolicy(7, minor, vgpuctl.Limits{}), "in its place")
		got, err = d.GetPolicy(7, minor)
		require.NoError(t, err)
		assert.Zero(t, got)
		require.NoError(t, d.ClearPolicy(7, minor))
		_, err = d.GetPolicy(7, minor)
		assert.ErrorIs(t, err, unix.ENOENT)

		_, err = d.GetCgroupPolicy(7, minor)
		assert.ErrorIs(t, err, unix.ENOENT)
		assert.ErrorIs(t, d.ClearCgroupPolicy(7, minor), unix.ENOENT)
		require.NoError(t, d.SetCgroupPolicy(7, minor, some))
		got, err = d.GetCgroupPolicy(7, minor)
		require.NoError(t, err)
		assert.Equal(t, some, got)
		require.NoError(t, d.ClearCgroupPolicy(7, minor))
		_, err = d.GetCgroupPolicy(7, minor)
		assert.ErrorIs(t, err, unix.ENOENT)
	}
	err := d.SetPolicy(8, vgpuctl.MinorAny, some)
	assert.EqualError(t, err, "cannot set the policy of process 8 for any GPU: no such process: name a process that runs, by its number in this PID namespace")
	m.Fail = func(uint32) unix.Errno { return unix.ENOSPC }
	assert.EqualError(t, d.SetCgroupPolicy(8, 2, some),
		"cannot set the policy of cgroup 8 for GPU 2: no space left on device: there is no room for more policies: clear some that are no longer needed")
	m.Fail = func(uint32) unix.Errno { return unix.EIO }
	assert.EqualError(t, d.SetCgroupPolicy(8, 2, some), "cannot set the policy of cgroup 8 for GPU 2: input/output error")
}

// TestLimits: limits that the kernel would refuse are refused here, with a reason.
func TestLimits(t *testing.T) {
	m := vgputest.New()
	d := m.Open()
	m.Fail = func(request uint32) unix.Errno { t.Errorf("request %#x reached the module", request); return 0 }
	for _, test := range []struct {
		limits vgpuctl.Limits
		want   string
	}{
		{vgpuctl.Limits{Weight: 10001}, "the weight is 10001: want at most 10000"},
		{vgpuctl.Limits{TimesliceMinUs: 3, TimesliceMaxUs: 2}, "the least timeslice, 3 us, is longer than the greatest, 2 us: want it the other way round"},
		{vgpuctl.Limits{Flags: 6}, "there are no flags 0x6: want 0 or 0x1"},
	} {
		err := d.SetPolicy(7, 0, test.limits)
		assert.EqualError(t, err, "cannot set the policy of process 7 for GPU 0: "+test.want)
		assert.ErrorIs(t, err, unix.EINVAL)
		assert.ErrorIs(t, d.SetCgroupPolicy(7, 0, test.limits), unix.EINVAL)
	}
	err := d.SetCgroupPolicy(7, 248, vgpuctl.Limits{})
	assert.EqualError(t, err, "cannot set the policy of cgroup 7 for GPU 248: there is no GPU 248: want at most 247")
	assert.ErrorIs(t, err, unix.EINVAL)
	_, err = d.TaskUsage(0, 0)
	assert.ErrorContains(t, err, "there is no process 0")
	for _, ok := range []vgpuctl.Limits{{}, {Weight: 10000}, {TimesliceMinUs: 3}, {TimesliceMaxUs: 2}, {TimesliceMinUs: 2, TimesliceMaxUs: 2}, {Flags: 1}} {
		assert.NoError(t, ok.Check())
	}
}

func TestUsage(t *testing.T) {
	m := vgputest.New()
	m.Usage = []vgpuctl.Usage{
		{Tgid: 7, Minor: 1, DeviceBytes: 1, PeakDeviceBytes: 2, SystemBytes: 3, VirtualBytes: 4, Allocations: 5, Denied: 6, Timeslices: 7, TimesliceUs: 8},
		{CgroupID: 7, Minor: vgpuctl.MinorAny, DeviceBytes: 9},
	}
	d := m.Open()
	u, err := d.TaskUsage(7, 1)
	require.NoError(t, err)
	assert.Equal(t, m.Usage[0], u)
	u, err = d.CgroupUsage(7, vgpuctl.MinorAny)
	require.NoError(t, err)
	assert.Equal(t, m.Usage[1], u)
	m.Processes = map[uint32]bool{7: true}
	const unused = "no such file or directory: it has used no GPU since the module was loaded, or is not there: vgpuctl usage shows all that have"
	_, err = d.TaskUsage(7, 2)
	assert.EqualError(t, err, "cannot read what process 7 uses of GPU 2: "+unused)
	_, err = d.TaskUsage(8, 2)
	assert.EqualError(t, err, "cannot read what process 8 uses of GPU 2: no such process: name a process that runs, by its number in this PID namespace")
	_, err = d.CgroupUsage(8, vgpuctl.MinorAny)
	assert.EqualError(t, err, "cannot read what cgroup 8 uses of any GPU: "+unused)
}

func TestEvents(t *testing.T) {
	m := vgputest.New()
	m.Emit(vgpuctl.Event{Type: vgpuctl.EventOpen})
	d := m.Open()
	events := d.Events()
	sent := vgpuctl.Event{TimeNs: 5, Type: vgpuctl.EventDeny, Flags: vgpuctl.EventXfer, Tgid: 1, Tid: 2, CgroupID: 3, Minor: 4, Scope: vgpuctl.ScopeTgid,
		Value: 5, Detail: 6, Client: 7, Object: 8, Code: 9, Status: 10, Comm: vgpuctl.Text16{'a', 'b'}}
	go func() { m.Emit(sent, sent) }()
	for sequence := uint64(2); sequence <= 3; sequence++ { // the first event came before the device was opened
		e, lost, err := events.Next(t.Context())
		require.NoError(t, err)
		assert.Zero(t, lost)
		sent.Sequence = sequence
		assert.Equal(t, sent, e)
		assert.Equal(t, "ab", e.Comm.String())
	}

	// A reader that is too slow learns how many events it missed, and where.
	for range vgputest.EventsKept + 5 {
		m.Emit(sent)
	}
	e, lost, err := events.Next(t.Context())
	require.NoError(t, err)
	assert.Equal(t, uint64(5), lost)
	assert.Equal(t, uint64(3+5+1), e.Sequence)
	for sequence := e.Sequence + 1; sequence <= 3+vgputest.EventsKept+5; sequence++ {
		e, lost, err = events.Next(t.Context())
		require.NoError(t, err)
		assert.Zero(t, lost)
		assert.Equal(t, sequence, e.Sequence)
	}
	stats, err := d.Stats()
	require.NoError(t, err)
	assert.Equal(t, uint64(5), stats.EventsLost)

	// Waiting ends when the context does.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, _, err = events.Next(ctx)
	assert.Equal(t, context.DeadlineExceeded, err)
	m.Emit(sent)
	_, _, err = events.Next(ctx)
	assert.Equal(t, context.DeadlineExceeded, err, "also when there is one")
	_, _, err = events.Next(t.Context())
	assert.NoError(t, err)
}

func TestJSON(t *testing.T) {
	for want, value := range map[string]any{
		`{"memory_limit_bytes":8589934592,"timeslice_min_us":500,"timeslice_max_us":2000,"weight":3,"flags":["dry-run"]}`: some,
		`{"cgroup_id":3,"minor":"any","limits":{"memory_limit_bytes":0,"timeslice_min_us":0,"timeslice_max_us":0,"weight":0,"flags":[]}}`: vgpuctl.CgroupPolicy{
			CgroupID: 3, Minor: vgpuctl.MinorAny},
		`{"abi_version":1,"mode":"dry-run","may_enforce":1,"hooked":1,"driver":"nvidia","driver_version":"580.105.08"}`: vgputest.New().Info,
		`{"sequence":1,"time_ns":2,"type":"cgroup-gone","flags":["compat"],"tgid":0,"tid":0,"cgroup_id":0,"minor":4,"scope":"module",` +
			`"value":0,"detail":0,"client":0,"object":0,"code":0,"status":0,"comm":"x"}`: vgpuctl.Event{Sequence: 1, TimeNs: 2, Type: vgpuctl.EventCgroupGone,
			Flags: vgpuctl.EventCompat, Minor: 4, Scope: vgpuctl.ScopeModule, Comm: vgpuctl.Text16{'x'}},
	} {
		text, err := json.Marshal(value)
		require.NoError(t, err)
		assert.JSONEq(t, want, string(text))
	}
}

// TestGrantJSON: grants can be written as JSON and read again, as for annotations.
func TestGrantJSON(t *testing.T) {
	text, err := json.Marshal(grants)
	require.NoError(t, err)
	var back []vgpuctl.Grant
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, grants, back)
	for text, want := range map[string]string{
		`{"minor": 248}`:                       `248 is no minor: want 0 to 247 or "any"`,
		`{"minor": -1}`:                        `-1 is no minor`,
		`{"minor": "0"}`:                       `"0" is no minor`,
		`{"limits": {"flags": ["wet-run"]}}`:   `"wet-run" is no flag of limits: want "dry-run"`,
		`{"limits": {"flags": 1}}`:             `cannot unmarshal number`,
		`{"limits": {"weight": 4294967296}}`:   `cannot unmarshal number 4294967296`,
		`{"limits": {"timeslice_min_us": -1}}`: `cannot unmarshal number -1`,
	} {
		assert.ErrorContains(t, json.Unmarshal([]byte(text), new(vgpuctl.Grant)), want, text)
	}
}

// broken is a driver whose reads return what no real device returns.
type broken struct {
	n   int
	err error
}

func (b broken) Ioctl(uint32, []byte) error                    { return b.err }
func (b broken) Read(context.Context, []byte) (n int, e error) { return b.n, b.err }
func (b broken) Close() error                                  { return nil }

func TestBrokenEvents(t *testing.T) {
	for _, b := range []broken{{n: 1}, {n: 0}, {n: 103}} {
		_, _, err := vgpuctl.New(b).Events().Next(t.Context())
		assert.ErrorContains(t, err, "want a multiple of 96")
	}
	_, _, err := vgpuctl.New(broken{err: unix.EIO}).Events().Next(t.Context())
	assert.ErrorIs(t, err, unix.EIO)
	_, err = vgpuctl.New(broken{err: errors.New("closed")}).Info()
	assert.EqualError(t, err, "cannot ask the module how it stands: closed")
}
