//go:build guest

package kernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestVgpuLoad: the module's log and information, with a driver and without.
func TestVgpuLoad(t *testing.T) {
	d := withVgpu(t)
	info, err := d.Info()
	require.NoError(t, err)
	assert.Equal(t, vgpuctl.Info{ABIVersion: 1, Mode: vgpuctl.ModeDryRun}, info)
	assert.Empty(t, table(t, "hooks"))
	row := table(t, "driver_fingerprint")[0]
	assert.Equal(t, []string{"-", "0", "0", "no driver is loaded"}, []string{row["driver"], row["hooked"], row["known"], row["reason"]})

	load(t, "fakegpu", "nvidia=1", someGPUs)
	info, err = d.Info()
	require.NoError(t, err)
	assert.EqualValues(t, 1, info.Hooked)
	assert.Zero(t, info.MayEnforce, "not without allow_enforce=1")
	assert.Equal(t, "fakegpu", info.Driver.String())
	assert.Equal(t, "1", info.DriverVersion.String())
	row = table(t, "driver_fingerprint")[0]
	assert.Equal(t, []string{"fakegpu", "1", "1", "1", "-"}, []string{row["driver"], row["version"], row["hooked"], row["known"], row["reason"]})
	row = table(t, "enabled")[0]
	assert.Equal(t, map[string]string{"mode": "dry_run", "hooked": "1", "may_enforce": "0", "memory_trace": "1", "compute_trace": "1"}, row)
	var functions []string
	for _, h := range table(t, "hooks") {
		functions = append(functions, h["function"])
	}
	assert.Equal(t, []string{"fakegpu_nv_open", "fakegpu_nv_close", "fakegpu_nv_unlocked_ioctl"}, functions)

	for parameter, want := range map[string]string{
		"dry_run": "Y", "allow_enforce": "N", "memory_trace": "Y", "compute_trace": "Y", "memory_alloc_min_bytes": "16777216",
		"memory_alloc_max_bytes": "0", "memory_trace_limit_bytes": "0", "clear_memory_on_last_close": "Y", "timeslice_min_us": "0", "timeslice_max_us": "0",
	} {
		text, err := os.ReadFile("/sys/module/vgpu/parameters/" + parameter)
		require.NoError(t, err)
		assert.Equal(t, want, strings.TrimSpace(string(text)), parameter)
	}
}

func TestVgpuLoadRefused(t *testing.T) {
	assert.ErrorIs(t, insert("vgpu", "timeslice_min_us=2", "timeslice_max_us=1"), unix.EINVAL)
	assert.ErrorIs(t, insert("vgpu", "memory_alloc_min_bytes=-1"), unix.EINVAL)
	assert.ErrorIs(t, insert("vgpu", "memory_alloc_min_bytes=18446744073709551616"), unix.ERANGE)
	assert.False(t, loaded("vgpu"))
}

// TestVgpuDebugfs: every file exists, only root can read it, and its first line names the columns.
func TestVgpuDebugfs(t *testing.T) {
	d := withDriver(t, "memory_alloc_min_bytes=1", "control_events=1")
	c := newClient(t, 0)
	_, status := c.memory(1 * mib)
	require.Zero(t, status)
	group := c.group()
	way{}.setTimeslice(t, c, group, 100)
	require.NoError(t, d.SetPolicy(1, 0, vgpuctl.Limits{Weight: 2}))
	require.NoError(t, d.SetCgroupPolicy(1, vgpuctl.MinorAny, vgpuctl.Limits{Weight: 2}))
	names, err := os.ReadDir("/sys/kernel/debug/vgpu")
	require.NoError(t, err)
	var found []string
	for _, n := range names {
		found = append(found, n.Name())
		info, err := n.Info()
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o400), info.Mode(), n.Name())
		assert.NotEmpty(t, table(t, n.Name()), "%s has no line", n.Name())
	}
	assert.ElementsMatch(t, []string{"enabled", "driver_fingerprint", "hooks", "policies", "cgroup_policies", "cgroups", "tasks", "events", "timeslices", "ioctls", "stats"}, found)
	assert.Contains(t, rowOf(t, "timeslices", "asked_us", 100), "policy_scope")
	assert.Contains(t, rowOf(t, "timeslices", "asked_us", 100), "cgroup_id")
	assert.Equal(t, "2", rowOf(t, "policies", "tgid", 1)["weight"])

	s := stats(t, d)
	assert.Equal(t, fmt.Sprint(s.Allocs), rowOf(t, "stats", "name", "allocs")["value"])
	assert.Equal(t, fmt.Sprint(s.Controls), rowOf(t, "ioctls", "number", fmt.Sprintf("%#x", escControl))["count"])
	assert.Equal(t, "control", rowOf(t, "ioctls", "number", fmt.Sprintf("%#x", ctrlSetTimeslice))["kind"])
	assert.Equal(t, "0x0", rowOf(t, "events", "type", "control")["status"], "control_events=1")
}

// TestVgpuModes: which modes can be set, and what each mode does.
func TestVgpuModes(t *testing.T) {
	t.Run("without allow_enforce", func(t *testing.T) {
		d := withDriver(t, "dry_run=0", "memory_alloc_min_bytes=1", "memory_trace_limit_bytes=1")
		row := table(t, "enabled")[0]
		assert.Equal(t, []string{"dry_run", "0"}, []string{row["mode"], row["may_enforce"]})
		assert.ErrorIs(t, d.SetMode(vgpuctl.ModeEnforce), unix.EPERM)
		_, status := newClient(t, 0).memory(mib)
		assert.Zero(t, status)
	})
	t.Run("without a driver", func(t *testing.T) {
		d := withVgpu(t, enforcing...)
		assert.ErrorIs(t, d.SetMode(vgpuctl.ModeEnforce), unix.EPERM)
		info, err := d.Info()
		require.NoError(t, err)
		assert.Equal(t, vgpuctl.ModeDryRun, info.Mode)
		load(t, "fakegpu", "nvidia=1", someGPUs)
		info, err = d.Info()
		require.NoError(t, err)
		assert.Equal(t, vgpuctl.ModeEnforce, info.Mode, "as it was loaded to")
		unload(t, "fakegpu")
		info, err = d.Info()
		require.NoError(t, err)
		assert.Equal(t, vgpuctl.ModeDryRun, info.Mode)
	})
	t.Run("back and forth", func(t *testing.T) {
		d := withDriver(t, "allow_enforce=1", "memory_alloc_min_bytes=1", fmt.Sprint("memory_trace_limit_bytes=", 32*mib))
		c := newClient(t, 0)
		first, status := c.memory(16 * mib)
		require.Zero(t, status)
		require.NoError(t, d.SetMode(vgpuctl.ModeEnforce))
		_, status = c.memory(17 * mib)
		require.EqualValues(t, rmNoMemory, status)
		second, status := c.memory(16 * mib)
		require.Zero(t, status)

		require.NoError(t, d.SetMode(vgpuctl.ModeOff))
		before := stats(t, d)
		events := listen(t)
		_, status = c.memory(17 * mib)
		require.Zero(t, status)
		require.Zero(t, c.free(first))
		other := newClient(t, 1)
		require.Zero(t, other.free(other.client))
		assert.Empty(t, events())
		after := stats(t, d)
		assert.EqualValues(t, 16*mib, taskBytes(t, d, 1), "what is freed is not kept for ever")
		after.Objects = before.Objects
		assert.Equal(t, before, after, "nothing is counted")

		require.NoError(t, d.SetMode(vgpuctl.ModeEnforce))
		_, status = c.memory(17 * mib)
		require.EqualValues(t, rmNoMemory, status)
		require.Zero(t, c.free(second))
		_, status = c.memory(32 * mib)
		require.Zero(t, status)
		for _, mode := range []vgpuctl.Mode{3, 1 << 31} {
			assert.ErrorIs(t, d.SetMode(mode), unix.EINVAL)
		}
	})
}

// rawPolicy is struct vgpu_policy or vgpu_cgroup_policy as bytes.
func rawPolicy(fields ...any) []byte {
	var b bytes.Buffer
	for _, f := range fields {
		binary.Write(&b, binary.LittleEndian, f)
	}
	return b.Bytes()
}

// TestVgpuDevice: /dev/vgpuctl refuses what it should.
func TestVgpuDevice(t *testing.T) {
	d := withVgpu(t)
	info, err := os.Stat(vgpuctl.Path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600)|os.ModeDevice|os.ModeCharDevice, info.Mode())
	fd, err := unix.Open(vgpuctl.Path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	ask := func(request uintptr, b []byte) error {
		address, _ := place(b)
		err := rmIoctlAt(fd, request, uintptr(address))
		runtime.KeepAlive(b)
		return err
	}
	any32, zero := uint32(vgpuctl.MinorAny), uint64(0)
	task := func(tgid, minor uint32, bytes, low, high uint64, weight, flags uint32) []byte {
		return rawPolicy(tgid, minor, bytes, low, high, weight, flags)
	}
	group := func(id uint64, minor, reserved uint32, bytes, low, high uint64, weight, flags uint32) []byte {
		return rawPolicy(id, minor, reserved, bytes, low, high, weight, flags)
	}
	dead := exec.Command("/init")
	dead.Env = []string{"VGPU_CHILD=1"}
	require.NoError(t, dead.Run())
	gone := uint32(dead.Process.Pid)
	for _, c := range []struct {
		what    string
		request uintptr
		b       []byte
		want    error
	}{
		{"it is right", vgpuctl.IoctlSetPolicy, task(1, any32, 1, 1, 1, 10000, 1), nil},
		{"minor 248 is no GPU", vgpuctl.IoctlSetPolicy, task(1, 248, 0, 0, 0, 0, 0), unix.EINVAL},
		{"nor is that of nvidiactl", vgpuctl.IoctlSetPolicy, task(1, 255, 0, 0, 0, 0, 0), unix.EINVAL},
		{"the weight is too great", vgpuctl.IoctlSetPolicy, task(1, 0, 0, 0, 0, 10001, 0), unix.EINVAL},
		{"an unknown flag", vgpuctl.IoctlSetPolicy, task(1, 0, 0, 0, 0, 0, 2), unix.EINVAL},
		{"an unknown flag, high", vgpuctl.IoctlSetPolicy, task(1, 0, 0, 0, 0, 0, 1<<31|1), unix.EINVAL},
		{"min above max", vgpuctl.IoctlSetPolicy, task(1, 0, 0, 2, 1, 0, 0), unix.EINVAL},
		{"min without max", vgpuctl.IoctlSetPolicy, task(1, 0, 0, 2, 0, 0, 0), nil},
		{"no process 0", vgpuctl.IoctlSetPolicy, task(0, 0, 0, 0, 0, 0, 0), unix.ESRCH},
		{"no such process", vgpuctl.IoctlSetPolicy, task(gone, 0, 0, 0, 0, 0, 0), unix.ESRCH},
		{"no process has that number", vgpuctl.IoctlSetPolicy, task(1<<31, 0, 0, 0, 0, 0, 0), unix.ESRCH},
		{"a kernel thread is a process", vgpuctl.IoctlSetPolicy, task(2, 0, 0, 0, 0, 0, 0), nil},
		{"no such policy", vgpuctl.IoctlGetPolicy, task(1, 7, 0, 0, 0, 0, 0), unix.ENOENT},
		{"no such policy to clear", vgpuctl.IoctlClearPolicy, task(1, 7, 0, 0, 0, 0, 0), unix.ENOENT},
		{"nobody to have one", vgpuctl.IoctlGetPolicy, task(gone, 7, 0, 0, 0, 0, 0), unix.ESRCH},
		{"a cgroup's is right", vgpuctl.IoctlSetCgroupPolicy, group(1, any32, 0, 0, 0, 0, 0, 0), nil},
		{"reserved is not 0", vgpuctl.IoctlSetCgroupPolicy, group(1, any32, 1, 0, 0, 0, 0, 0), unix.EINVAL},
		{"reserved is not 0 for reading", vgpuctl.IoctlGetCgroupPolicy, group(1, any32, 1, 0, 0, 0, 0, 0), unix.EINVAL},
		{"a cgroup's weight", vgpuctl.IoctlSetCgroupPolicy, group(1, any32, 0, 0, 0, 0, 10001, 0), unix.EINVAL},
		{"no such cgroup", vgpuctl.IoctlSetCgroupPolicy, group(1<<40, any32, 0, 0, 0, 0, 0, 0), unix.ENOENT},
		{"no cgroup 0", vgpuctl.IoctlSetCgroupPolicy, group(0, any32, 0, 0, 0, 0, 0, 0), unix.ENOENT},
		{"no such cgroup policy", vgpuctl.IoctlClearCgroupPolicy, group(1, 3, 0, 0, 0, 0, 0, 0), unix.ENOENT},
		{"use of both", vgpuctl.IoctlGetUsage, rawPolicy(uint64(1), uint32(1), any32, [8]uint64{}), unix.EINVAL},
		{"use by nobody", vgpuctl.IoctlGetUsage, rawPolicy(zero, gone, any32, [8]uint64{}), unix.ESRCH},
		{"use of nothing", vgpuctl.IoctlGetUsage, rawPolicy(zero, uint32(1), any32, [8]uint64{}), unix.ENOENT},
		{"no command", 0x80507650, make([]byte, 256), unix.ENOTTY},
		{"another size", 0x80517640, make([]byte, 256), unix.ENOTTY},
		{"another direction", 0x40507640, make([]byte, 256), unix.ENOTTY},
		{"another letter", 0x80507740, make([]byte, 256), unix.ENOTTY},
	} {
		assert.Equal(t, c.want, ask(c.request, c.b), c.what)
	}
	for _, request := range []uintptr{vgpuctl.IoctlGetInfo, vgpuctl.IoctlSetMode, vgpuctl.IoctlGetStats, vgpuctl.IoctlGetUsage, vgpuctl.IoctlSetPolicy,
		vgpuctl.IoctlGetPolicy, vgpuctl.IoctlClearPolicy, vgpuctl.IoctlSetCgroupPolicy, vgpuctl.IoctlGetCgroupPolicy, vgpuctl.IoctlClearCgroupPolicy} {
		assert.Equal(t, unix.EFAULT, rmIoctlAt(fd, request, 0x1000), "%#x", request)
	}
	assert.EqualValues(t, 3, stats(t, d).Policies)

	// Without the capability the device cannot be opened, and an inherited descriptor can only read.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var with, without [2]unix.CapUserData
	require.NoError(t, unix.Capget(&header, &with[0]))
	without = with
	without[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
	require.NoError(t, unix.Capset(&header, &without[0]))
	_, opened := unix.Open(vgpuctl.Path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	read := ask(vgpuctl.IoctlGetInfo, make([]byte, 80))
	var set []error
	for _, request := range []uintptr{vgpuctl.IoctlSetMode, vgpuctl.IoctlSetPolicy, vgpuctl.IoctlClearPolicy, vgpuctl.IoctlSetCgroupPolicy, vgpuctl.IoctlClearCgroupPolicy} {
		set = append(set, ask(request, make([]byte, 64)))
	}
	require.NoError(t, unix.Capset(&header, &with[0]))
	assert.Equal(t, unix.EPERM, opened)
	assert.NoError(t, read)
	for _, err := range set {
		assert.Equal(t, unix.EPERM, err)
	}
}

// TestVgpuPolicyEnds: a policy ends with its process, and process numbers are those of the caller's PID namespace.
func TestVgpuPolicyEnds(t *testing.T) {
	d := withDriver(t, enforcing...)
	c := startChild(t, "", func(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID} })
	c.do("policy", 64*mib) // for process 1, its own number there
	assert.Equal(t, fmt.Sprint(64*mib), rowOf(t, "policies", "tgid", c.Process.Pid)["memory_limit_bytes"])
	got, err := d.GetPolicy(uint32(c.Process.Pid), vgpuctl.MinorAny)
	require.NoError(t, err)
	assert.EqualValues(t, 64*mib, got.MemoryLimitBytes)
	_, err = d.GetPolicy(1, vgpuctl.MinorAny)
	assert.ErrorIs(t, err, unix.ENOENT, "that is not us")
	c.do("open", 0)
	assert.Equal(t, "status 0x51", c.try("alloc", 65*mib))
	c.kill()
	assert.EqualValues(t, 0, stats(t, d).Policies)
	assert.EqualValues(t, 0, stats(t, d).Tasks)
	assert.Empty(t, table(t, "policies"))

	// A process with a reused number gets nothing of the earlier one.
	c = startChild(t, "", nil)
	pid, again := c.Process.Pid, 0
	for range 6 {
		require.NoError(t, d.SetPolicy(uint32(pid), vgpuctl.MinorAny, vgpuctl.Limits{MemoryLimitBytes: 1}))
		c.kill()
		require.NoError(t, os.WriteFile("/proc/sys/kernel/ns_last_pid", fmt.Append(nil, pid-1), 0))
		c = startChild(t, "", nil)
		if c.Process.Pid != pid { // a thread of this process got the number
			pid = c.Process.Pid
			continue
		}
		again++
		_, err := d.GetPolicy(uint32(pid), vgpuctl.MinorAny)
		require.ErrorIs(t, err, unix.ENOENT)
		c.do("open", 0)
		c.do("alloc", 32*mib)
	}
	assert.Positive(t, again, "no number was used again")
}

// TestVgpuEvents: readers get the events after their opening, each at its own pace.
func TestVgpuEvents(t *testing.T) {
	withDriver(t)
	fd, err := unix.Open(vgpuctl.Path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	buffer := make([]byte, 96*8)
	_, err = unix.Read(fd, buffer)
	assert.ErrorIs(t, err, unix.EAGAIN)
	_, err = unix.Read(fd, buffer[:95])
	assert.ErrorIs(t, err, unix.EINVAL, "less than an event")
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	require.NoError(t, err)
	assert.Zero(t, n)
	ctl := node(t, "nvidiactl")
	n, err = unix.Poll(poll, 0)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	shut(t, ctl)
	read, err := unix.Read(fd, buffer)
	require.NoError(t, err)
	require.Equal(t, 2*96, read, "whole events, as many as there are")
	assert.EqualValues(t, vgpuctl.EventOpen, binary.LittleEndian.Uint32(buffer[16:]))
	assert.EqualValues(t, vgpuctl.EventClose, binary.LittleEndian.Uint32(buffer[96+16:]))
	first := binary.LittleEndian.Uint64(buffer)
	assert.Equal(t, first+1, binary.LittleEndian.Uint64(buffer[96:]))

	// An event wakes a waiting reader. TestVgpuctlLost tests a reader that is too slow.
	stream := openVgpuctl(t).Events()
	woken := make(chan vgpuctl.Event)
	go func() {
		e, _, err := stream.Next(context.Background())
		assert.NoError(t, err)
		woken <- e
	}()
	time.Sleep(20 * time.Millisecond)
	node(t, "nvidiactl")
	select {
	case e := <-woken:
		assert.Equal(t, vgpuctl.EventOpen, e.Type)
		assert.EqualValues(t, os.Getpid(), e.Tgid)
		assert.Equal(t, "init", e.Comm.String())
		var now unix.Timespec
		require.NoError(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &now))
		assert.InDelta(t, now.Nano(), e.TimeNs, float64(hangs))
	case <-time.After(hangs):
		require.Fail(t, "it was not woken")
	}
}
