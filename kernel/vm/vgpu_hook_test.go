//go:build guest

package kernel

import (
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestVgpuHooks: the module sees the driver's calls, also on descriptors that were open before it was loaded.
func TestVgpuHooks(t *testing.T) {
	load(t, "fakegpu", "nvidia=1", someGPUs)
	before := newClient(t, 0)
	old, status := before.memory(8 * mib)
	require.Zero(t, status)
	d := withVgpu(t, enforcing...)
	limitTask(t, d, vgpuctl.MinorAny, 64*mib, 0)
	_, status = before.memory(65 * mib)
	require.EqualValues(t, rmNoMemory, status)
	object, status := before.memory(32 * mib)
	require.Zero(t, status)
	assert.EqualValues(t, 32*mib, taskBytes(t, d, 1))
	require.Zero(t, before.free(object))
	assert.Zero(t, taskBytes(t, d, 1))
	require.Zero(t, before.free(old))
	_, status = before.memory(16 * mib)
	require.Zero(t, status)
	shut(t, before.ctl)
	assert.Zero(t, taskBytes(t, d, 1))
	before.client = 0
	after := newClient(t, 1)
	_, status = after.memory(16 * mib)
	require.Zero(t, status)
	assert.EqualValues(t, 16*mib, taskBytes(t, d, 1))
	assert.NotEqual(t, "0", rowOf(t, "hooks", "function", "fakegpu_nv_unlocked_ioctl")["calls"])
	assert.NotEqual(t, "0", rowOf(t, "hooks", "function", "fakegpu_nv_close")["calls"])
}

// TestVgpuHooksStay: while policies exist, the hooks cannot be removed.
func TestVgpuHooksStay(t *testing.T) {
	const knob = "/proc/sys/kernel/ftrace_enabled"
	load(t, "fakegpu", "nvidia=1", someGPUs)
	load(t, "vgpu", enforcing...)
	assert.Error(t, os.WriteFile(knob, []byte("0"), 0))
	unload(t, "vgpu")
	assert.NoError(t, os.WriteFile(knob, []byte("0"), 0))
	defer os.WriteFile(knob, []byte("1"), 0)
	d := withVgpu(t, enforcing...)
	info, err := d.Info()
	require.NoError(t, err)
	assert.Zero(t, info.Hooked)
	assert.Contains(t, table(t, "driver_fingerprint")[0]["reason"], "ftrace is off")
}

// TestVgpuGraphTracer: the function graph tracer puts its own return addresses on the stack. The module must still
// recognise its own calls, since a detour would otherwise call itself for ever.
func TestVgpuGraphTracer(t *testing.T) {
	const tracing = "/sys/kernel/debug/tracing/"
	write := func(name, text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(tracing+name, []byte(text), 0))
	}
	d := withDriver(t, enforcing...)
	defer write("set_ftrace_filter", "")
	defer write("current_tracer", "nop")
	write("set_ftrace_filter", "*:mod:vgpu *:mod:fakegpu")
	write("current_tracer", "function_graph")
	before := stats(t, d)
	c := newClient(t, 0)
	_, status := c.memory(16 * mib)
	require.Zero(t, status)
	shut(t, c.ctl)
	c.client = 0
	after := stats(t, d)
	assert.EqualValues(t, 3, after.Allocs-before.Allocs, "each is seen once")
	assert.EqualValues(t, 1, after.Closes-before.Closes)
	text, err := os.ReadFile(tracing + "trace")
	require.NoError(t, err)
	assert.Contains(t, string(text), "vgpu_real_ioctl")
}

// TestVgpuDriverComesAndGoes: the driver can be loaded and removed before vgpu is loaded and after.
func TestVgpuDriverComesAndGoes(t *testing.T) {
	d := withVgpu(t, enforcing...)
	limitTask(t, d, vgpuctl.MinorAny, 64*mib, 0)
	for range 5 {
		load(t, "fakegpu", "nvidia=1", someGPUs)
		info, err := d.Info()
		require.NoError(t, err)
		assert.EqualValues(t, 1, info.Hooked)
		c := newClient(t, 0)
		_, status := c.memory(65 * mib)
		require.EqualValues(t, rmNoMemory, status)
		_, status = c.memory(64 * mib)
		require.Zero(t, status)
		assert.ErrorIs(t, unix.DeleteModule("fakegpu", unix.O_NONBLOCK), unix.EWOULDBLOCK, "it is in use")
		assert.EqualValues(t, 64*mib, taskBytes(t, d, 1))
		require.Zero(t, c.free(c.client))
		shut(t, c.ctl)
		c.client = 0
		unload(t, "fakegpu")
		info, err = d.Info()
		require.NoError(t, err)
		assert.Zero(t, info.Hooked)
		s := stats(t, d)
		assert.Zero(t, s.Objects)
		assert.EqualValues(t, 1, s.Policies, "policies outlast the driver")
	}
	// A driver whose init fails is hooked only for a moment.
	require.Error(t, insert("fakegpu", "nvidia=1", "gpus=nonsense"))
	info, err := d.Info()
	require.NoError(t, err)
	assert.Zero(t, info.Hooked)
}

// TestVgpuBusy: an open descriptor of /dev/vgpuctl keeps the module loaded, and one of the driver's does not.
func TestVgpuBusy(t *testing.T) {
	load(t, "fakegpu", "nvidia=1", someGPUs)
	load(t, "vgpu")
	fd, err := unix.Open(vgpuctl.Path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	assert.ErrorIs(t, unix.DeleteModule("vgpu", unix.O_NONBLOCK), unix.EWOULDBLOCK)
	unix.Close(fd)
	c := newClient(t, 0)
	unload(t, "vgpu")
	_, status := c.memory(16 * mib)
	assert.Zero(t, status)
}

// traffic makes calls of all kinds from several threads. The function that it returns stops them and returns their
// number.
func traffic(t *testing.T, threads int) func() int64 {
	var stop atomic.Bool
	var calls atomic.Int64
	var all sync.WaitGroup
	for i := range threads {
		all.Go(func() {
			for n := 0; n == 0 || !stop.Load(); n++ {
				fd, err := unix.Open("/dev/nvidiactl", unix.O_RDWR|unix.O_CLOEXEC, 0)
				if !assert.NoError(t, err) {
					return
				}
				s := childState{ctl: fd}
				for _, step := range []string{"client", "alloc", "timeslice", "alloc", "free", "alloc"} {
					if err := s.traffic(step, n%2 == i%2); !assert.NoError(t, err, step) {
						return
					}
					calls.Add(1)
				}
				unix.Close(fd)
			}
		})
	}
	return func() int64 {
		stop.Store(true)
		all.Wait()
		return calls.Load()
	}
}

// TestVgpuUnload: the module is loaded and removed during others' calls, none of which fails.
func TestVgpuUnload(t *testing.T) { loadLoops(t, 3, 2) }

// TestRaceUnload: the same on several processors.
func TestRaceUnload(t *testing.T) { loadLoops(t, 6, 4) }

func loadLoops(t *testing.T, loops, threads int) {
	load(t, "fakegpu", "nvidia=1", someGPUs)
	stop := traffic(t, threads)
	began := time.Now()
	for i := range loops {
		parameters := enforcing
		if i%2 == 1 {
			parameters = []string{"memory_alloc_min_bytes=1"}
		}
		require.NoError(t, insert("vgpu", parameters...))
		time.Sleep(time.Duration(i%5) * 10 * time.Millisecond)
		unload(t, "vgpu")
	}
	n := stop()
	t.Logf("loaded and unloaded %d times in %s under %d calls of %d threads", loops, time.Since(began).Round(time.Millisecond), n, threads)
	require.Positive(t, n)
}

// TestVgpuUnloadWaits: a call that sleeps keeps the module loaded until it is over, and no longer.
func TestVgpuUnloadWaits(t *testing.T) {
	load(t, "fakegpu", "nvidia=1", someGPUs)
	c := newClient(t, 0)
	load(t, "vgpu", private...)

	// Reading the argument sleeps until this process supplies the page.
	uffd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	require.Zero(t, errno)
	defer unix.Close(int(uffd))
	memory, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	defer unix.Munmap(memory)
	address, size := place(memory)
	ask := func(request uintptr, words ...uint64) {
		t.Helper()
		at, _ := place(words)
		require.NoError(t, rmIoctlAt(int(uffd), request, uintptr(at)))
		runtime.KeepAlive(words)
	}
	ask(0xc018aa3f, 0xaa, 0, 0)                  // UFFDIO_API
	ask(0xc020aa00, address, uint64(size), 1, 0) // UFFDIO_REGISTER, missing pages
	called, removed := make(chan error), make(chan error)
	go func() { called <- rmIoctlAt(c.ctl, escape(escFree, 16), uintptr(address)) }()
	poll := []unix.PollFd{{Fd: int32(uffd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, int(hangs.Milliseconds()))
	require.NoError(t, err)
	require.Equal(t, 1, n, "nobody reads the page")
	since := logSince()
	go func() { removed <- unix.DeleteModule("vgpu", 0) }()
	eventually(t, "it says that it waits", func() bool { return strings.Contains(tail(since(), 10), "waiting for 1 calls of the driver to end") })
	select {
	case err := <-removed:
		require.Fail(t, "it did not wait", "%v", err)
	default:
	}
	_, status := c.memory(mib)
	assert.Zero(t, status, "others are not kept waiting")
	ask(0xc020aa04, address, uint64(size), 0, 0) // UFFDIO_ZEROPAGE
	require.NoError(t, <-called)
	require.NoError(t, <-removed)
	require.False(t, loaded("vgpu"))
}
