//go:build guest

package kernel

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/nvmlfab/nvmlfab/kernel/fakegpuctl"
)

// fakegpuSmall are the parameters of a device with low limits and slow jobs, so that programs can reach the limits and
// observe the jobs.
var fakegpuSmall = []string{"device_bytes=16777216", "context_bytes=4194304", "max_handles=64", "max_jobs=64", "job_latency_us=5000"}

// fakegpuProgram runs a test program. Each of its checks becomes a subtest; none may be skipped.
func fakegpuProgram(t *testing.T, atLeast int, name string, args ...string) {
	o := run(t, name, args...)
	o.verdicts(t, atLeast)
	o.succeeds(t)
	require.NotContains(t, o.stdout, "SKIP")
	require.Regexp(t, regexp.MustCompile(fmt.Sprintf(`\n%s: (\d+) passed, 0 failed, 0 skipped\n$`, name)), o.stdout)
}

func TestFakegpuClient(t *testing.T) {
	load(t, "fakegpu", fakegpuSmall...)
	fakegpuProgram(t, 123, "client")
}

// Tests the default parameters, which apply when somebody loads the module by hand.
func TestFakegpuClientDefaults(t *testing.T) {
	load(t, "fakegpu")
	fakegpuProgram(t, 123, "client")
}

func TestFakegpuEvil(t *testing.T) {
	load(t, "fakegpu", fakegpuSmall...)
	fakegpuProgram(t, 112, "evil")
	requireIdle(t)
}

func TestRaceFakegpuEvil(t *testing.T) {
	load(t, "fakegpu", fakegpuSmall...)
	fakegpuProgram(t, 21, "evil", "race")
	requireIdle(t)
}

// Jobs that complete within SUBMIT, and jobs that complete as soon as a timer can fire.
func TestRaceFakegpuQuickJobs(t *testing.T) {
	for _, latency := range []string{"0", "20"} {
		t.Run(latency+" µs", func(t *testing.T) {
			load(t, "fakegpu", append(fakegpuSmall[:4:4], "job_latency_us="+latency)...)
			run(t, "evil", "race").succeeds(t)
			run(t, "client").succeeds(t) // prints SKIP for checks that need slower jobs
			requireIdle(t)
		})
	}
}

func TestFakegpuNeedsItsModule(t *testing.T) {
	require.False(t, loaded("fakegpu"))
	for _, name := range []string{"client", "evil", "bench", "fuzz"} {
		o := run(t, name)
		require.Equal(t, 2, o.code)
		require.Empty(t, o.stdout)
		require.Equal(t, "there is no /dev/fakegpu: load the module: make -C kernel load MODULE=fakegpu\n", o.stderr)
	}
	_, err := fakegpuctl.Open()
	require.ErrorIs(t, err, os.ErrNotExist)
}

// fakegpuStat reads a statistic.
func fakegpuStat(t *testing.T, name string) int {
	t.Helper()
	text, err := os.ReadFile("/sys/class/misc/fakegpu/stats/" + name)
	require.NoError(t, err)
	n, err := strconv.Atoi(strings.TrimSuffix(string(text), "\n"))
	require.NoError(t, err, "%q: %q", name, text)
	return n
}

// requireIdle: no context is open, and all submitted jobs have completed or were dropped.
func requireIdle(t *testing.T) {
	t.Helper()
	for _, name := range []string{"contexts", "handles", "device_used", "jobs"} {
		require.Zero(t, fakegpuStat(t, name), name)
	}
	require.Equal(t, fakegpuStat(t, "jobs_submitted"), fakegpuStat(t, "jobs_completed")+fakegpuStat(t, "jobs_dropped"))
}

func TestFakegpuStats(t *testing.T) {
	load(t, "fakegpu", "device_bytes=12288", "context_bytes=8192", "max_jobs=2", "job_latency_us=5000000")
	files, err := filepath.Glob("/sys/class/misc/fakegpu/stats/*")
	require.NoError(t, err)
	require.Len(t, files, 16)
	for _, file := range files {
		require.Zero(t, fakegpuStat(t, filepath.Base(file)), file)
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o444), info.Mode().Perm(), file)
	}

	d, err := fakegpuctl.Open()
	require.NoError(t, err)
	other, err := fakegpuctl.Open()
	require.NoError(t, err)
	h, err := d.Alloc(8192)
	require.NoError(t, err)
	_, err = d.Alloc(1)
	require.ErrorIs(t, err, unix.ENOSPC)
	_, err = other.Alloc(8192)
	require.ErrorIs(t, err, unix.ENOMEM)
	require.ErrorIs(t, other.Free(1<<31), unix.EINVAL)
	for range 2 {
		_, err = d.Submit(h)
		require.NoError(t, err)
	}
	_, err = d.Submit(h)
	require.ErrorIs(t, err, unix.EAGAIN)
	expired, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	_, err = d.Wait(expired, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	for name, want := range map[string]int{"contexts": 2, "contexts_opened": 2, "handles": 1, "device_used": 8192, "jobs": 2, "jobs_submitted": 2,
		"jobs_completed": 0, "enospc": 1, "enomem": 1, "eagain": 1, "einval": 1, "efault": 0, "waits": 1, "etimedout": 1, "eintr": 0} {
		assert.Equal(t, want, fakegpuStat(t, name), name)
	}
	_, err = d.Wait(t.Context(), 1)
	require.NoError(t, err)
	assert.Equal(t, 1, fakegpuStat(t, "jobs_completed"))
	assert.Equal(t, 1, fakegpuStat(t, "jobs"))
	require.NoError(t, d.Close())
	require.NoError(t, other.Close())
	assert.Equal(t, 1, fakegpuStat(t, "jobs_dropped"))
	requireIdle(t)
}

func TestFakegpuGo(t *testing.T) {
	load(t, "fakegpu", append(fakegpuSmall[:4:4], "job_latency_us=20000")...)
	d, err := fakegpuctl.Open()
	require.NoError(t, err)
	other, err := fakegpuctl.Open()
	require.NoError(t, err)
	defer other.Close()

	info, err := d.Info()
	require.NoError(t, err)
	assert.Equal(t, fakegpuctl.Info{ABIVersion: 1, Name: "fakegpu", DeviceBytes: 16 << 20, ContextBytes: 4 << 20, MaxHandles: 64, JobLatency: 20 * time.Millisecond}, info)
	h, err := d.Alloc(5000)
	require.NoError(t, err)
	_, err = other.Submit(h)
	assert.ErrorIs(t, err, unix.EINVAL)
	assert.ErrorContains(t, err, fmt.Sprintf("cannot submit a job on allocation %d: invalid argument: use a handle", h))
	info, err = other.Info()
	require.NoError(t, err)
	assert.Equal(t, uint64(8192), info.DeviceUsed)
	assert.Zero(t, info.ContextUsed)
	_, err = d.Alloc(4 << 20)
	assert.ErrorIs(t, err, unix.ENOSPC)

	var waits sync.WaitGroup
	for n := range 32 {
		seqno, err := d.Submit(h)
		require.NoError(t, err)
		require.Equal(t, uint64(n+1), seqno)
		waits.Go(func() {
			completed, err := d.Wait(t.Context(), seqno)
			assert.NoError(t, err)
			assert.GreaterOrEqual(t, completed, seqno)
			assert.GreaterOrEqual(t, d.CompletedSeq(), seqno)
		})
	}
	assert.Equal(t, uint64(32), d.SubmittedSeq())
	short, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	_, err = d.Wait(short, 32)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	waits.Wait()
	assert.Equal(t, uint64(32), d.CompletedSeq())
	require.NoError(t, d.Free(h))
	assert.ErrorIs(t, d.Free(h), unix.EINVAL)

	// The device is closed while a thread waits.
	h, err = d.Alloc(1)
	require.NoError(t, err)
	var last uint64
	for err == nil {
		var seqno uint64
		if seqno, err = d.Submit(h); err == nil {
			last = seqno
		}
	}
	assert.ErrorIs(t, err, unix.EAGAIN)
	waits.Go(func() {
		_, err := d.Wait(context.Background(), last)
		assert.ErrorIs(t, err, os.ErrClosed)
	})
	time.Sleep(10 * time.Millisecond)
	require.NoError(t, d.Close())
	waits.Wait()
	assert.Less(t, d.CompletedSeq(), last)
	require.NoError(t, other.Close())
	requireIdle(t)
}

func TestFakegpuParameters(t *testing.T) {
	for _, c := range []struct{ parameter, want string }{
		{"device_bytes=4095", "device_bytes=4095: give a number from 4096 to 1125899906842624"},
		{"device_bytes=1125899906842625", "device_bytes=1125899906842625: give a number from 4096 to 1125899906842624"},
		{"context_bytes=0", "context_bytes=0: give a number from 4096 to 1073741824"},
		{"context_bytes=1073741825", "context_bytes=1073741825: give a number from 4096 to 1073741824"},
		{"max_handles=0", "max_handles=0: give a number from 1 to 1048576"},
		{"max_handles=1048577", "max_handles=1048577: give a number from 1 to 1048576"},
		{"max_jobs=0", "max_jobs=0: give a number from 1 to 65536"},
		{"max_jobs=65537", "max_jobs=65537: give a number from 1 to 65536"},
		{"job_latency_us=10000001", "job_latency_us=10000001: give a number from 0 to 10000000"},
		{"job_latency_us=-1", "`-1' invalid for parameter `job_latency_us'"},
	} {
		logged := logSince()
		require.ErrorIs(t, insert("fakegpu", c.parameter), unix.EINVAL, c.parameter)
		require.Contains(t, tail(logged(), 5), "fakegpu: "+c.want)
		require.NoFileExists(t, fakegpuctl.Path)
	}
	load(t, "fakegpu", "device_bytes=1125899906842624", "context_bytes=1125899906842624", "max_handles=1048576", "max_jobs=65536", "job_latency_us=10000000")
	d, err := fakegpuctl.Open()
	require.NoError(t, err)
	defer d.Close()
	h, err := d.Alloc(1 << 50)
	require.NoError(t, err)
	_, err = d.Submit(h)
	require.NoError(t, err)
}

// The module cannot be removed while anything could still call into it.
func TestFakegpuIsPinned(t *testing.T) {
	load(t, "fakegpu", fakegpuSmall...)
	fd, err := unix.Open(fakegpuctl.Path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	require.ErrorIs(t, unix.DeleteModule("fakegpu", unix.O_NONBLOCK), unix.EWOULDBLOCK)
	page, err := unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
	require.ErrorIs(t, unix.DeleteModule("fakegpu", unix.O_NONBLOCK), unix.EWOULDBLOCK)
	require.Equal(t, byte(1), page[0])
	require.NoError(t, unix.Munmap(page))
	require.NoError(t, unix.DeleteModule("fakegpu", unix.O_NONBLOCK))
}

func TestFakegpuLeakReport(t *testing.T) {
	const report = "fakegpu: LEAK: 1 contexts, 1 handles, 8192 bytes, 0 jobs"
	expectFault(report)
	require.Empty(t, leaks(), "what tests before this one left would count as known below")
	for _, leak := range []bool{false, true, false} {
		logged := logSince()
		load(t, "fakegpu", "leak="+map[bool]string{true: "1", false: "0"}[leak])
		d, err := fakegpuctl.Open()
		require.NoError(t, err)
		h, err := d.Alloc(5000)
		require.NoError(t, err)
		_, err = d.Submit(h)
		require.NoError(t, err)
		require.NoError(t, d.Close())
		unload(t, "fakegpu")
		if leak {
			require.Contains(t, logged(), report)
			require.NotContains(t, logged(), "fakegpu: unloaded, nothing leaked")
			left := leaksNow()
			require.Len(t, left, 4, "the kernel's own account of memory has the context, its jobs, the handle and their table, too")
			knownLeaks = append(knownLeaks, left...)
		} else {
			require.Contains(t, logged(), "fakegpu: unloaded, nothing leaked")
		}
	}
}

// The module is loaded and removed while processes use the device.
func TestFakegpuReload(t *testing.T)     { fakegpuReload(t) }
func TestRaceFakegpuReload(t *testing.T) { fakegpuReload(t) }

func fakegpuReload(t *testing.T) {
	logged := logSince()
	load(t, "fakegpu", "job_latency_us=500")
	const atLeast = 3 * time.Second
	var stop atomic.Bool
	var used atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for !stop.Load() {
				out, err := exec.Command("/bin/traffic", "1").CombinedOutput()
				if !assert.NoError(t, err, "%s", out) {
					return
				}
				m := regexp.MustCompile(`^traffic: used (\d+), absent \d+\n$`).FindSubmatch(out)
				if assert.NotNil(t, m, "%s", out) {
					n, _ := strconv.ParseInt(string(m[1]), 10, 64) // digits alone
					used.Add(n)
				}
			}
		})
	}
	gone, busy := 0, 0
	// On a busy machine it may take longer until each of these has happened.
	for begun := time.Now(); time.Since(begun) < atLeast || gone == 0 || busy == 0 || used.Load() == 0 && !t.Failed(); {
		switch err := unix.DeleteModule("fakegpu", unix.O_NONBLOCK); err {
		case nil:
			gone++
			require.NoError(t, insert("fakegpu", "job_latency_us="+strconv.Itoa(gone%5*200)))
			time.Sleep(time.Duration(gone%5) * 10 * time.Millisecond)
		case unix.EWOULDBLOCK:
			busy++
			time.Sleep(time.Millisecond)
		default:
			require.NoError(t, err)
		}
	}
	stop.Store(true)
	all.Wait()
	t.Logf("used %d times", used.Load())
	t.Logf("removed %d times, busy %d times", gone, busy)
	requireIdle(t)
	unload(t, "fakegpu")
	clean := 0
	for _, line := range logged() {
		if line == "fakegpu: unloaded, nothing leaked" {
			clean++
		}
	}
	require.Equal(t, gone+1, clean)
}

// The benchmark compares the cost of the mapped page with that of a system call.
func TestFakegpuBench(t *testing.T) {
	load(t, "fakegpu")
	o := run(t, "bench").succeeds(t)
	t.Logf("\n%s", o.stdout)
	for _, what := range []string{"completed", "completing"} {
		m := regexp.MustCompile(`(?m)^BENCH wait=` + what + ` job_latency_us=1000 ioctl_per_s=([1-9]\d*) mmap_per_s=([1-9]\d*) ratio=(\d+\.\d+)$`).FindStringSubmatch(o.stdout)
		require.NotNil(t, m, what)
		ratio, err := strconv.ParseFloat(m[3], 64)
		require.NoError(t, err)
		require.Positive(t, ratio)
	}
}
