//go:build guest

package kernel

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestRaceLimit: threads that allocate and free never hold more than their limit.
func TestRaceLimit(t *testing.T) {
	d := withDriver(t, enforcing...)
	const limit = 64 * mib
	limitTask(t, d, vgpuctl.MinorAny, limit, 0)
	var held, most, denied atomic.Int64
	var all sync.WaitGroup
	c := newClient(t, 0)
	for range 4 {
		all.Go(func() {
			s := childState{ctl: c.ctl, client: c.client, device: c.device}
			var mine []uint32
			var sizes []int64
			drop := func(i int) {
				held.Add(-sizes[i])
				v := nvos00{Root: s.client, Object: mine[i]}
				assert.NoError(t, failed(rmIoctl(s.ctl, escFree, &v), v.Status))
				mine, sizes = append(mine[:i], mine[i+1:]...), append(sizes[:i], sizes[i+1:]...)
			}
			for range 400 {
				size := int64(1+rand.IntN(16)) * mib
				err := s.alloc(s.device, &s.last, classLocal, &memoryParams{Size: uint64(size)})
				if err == nil {
					now := held.Add(size) // counted only while it is allocated, so the sum is never too high
					for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
					}
					mine, sizes = append(mine, s.last), append(sizes, size)
				} else {
					denied.Add(1)
				}
				s.last = 0
				if len(mine) > 0 && (err != nil || rand.IntN(2) == 0) {
					drop(rand.IntN(len(mine)))
				}
			}
			for len(mine) > 0 {
				drop(0)
			}
		})
	}
	all.Wait()
	t.Logf("at most %d MiB of %d at a time, %d refused", most.Load()/mib, limit/mib, denied.Load())
	assert.LessOrEqual(t, most.Load(), int64(limit))
	assert.Positive(t, denied.Load())
	assert.Zero(t, taskBytes(t, d, 1))
	u, err := d.TaskUsage(1, vgpuctl.MinorAny)
	require.NoError(t, err)
	assert.EqualValues(t, limit, max(u.PeakDeviceBytes, limit), "nor did the module ever account for more")
	assert.EqualValues(t, denied.Load(), stats(t, d).MemoryDenied)
}

// TestRaceCgroupLimit: competing processes use a cgroup's shared limit to the last byte.
func TestRaceCgroupLimit(t *testing.T) {
	d := withDriver(t, enforcing...)
	dir, id := cgroup(t, "race")
	require.NoError(t, d.SetCgroupPolicy(id, vgpuctl.MinorAny, vgpuctl.Limits{MemoryLimitBytes: 96 * mib}))
	for range 2 {
		var holders [4]held
		var all sync.WaitGroup
		for i := range holders {
			all.Go(func() { holders[i] = hold(t, dir, "rm_alloc_smoke", fmt.Sprint(8*mib), "6") })
		}
		all.Wait()
		sum := uint64(0)
		for _, h := range holders {
			sum += h.bytes
		}
		assert.EqualValues(t, 96*mib, sum)
		assert.EqualValues(t, 96*mib, cgroupBytes(t, d, id))
		for _, h := range holders {
			h.kill()
		}
		assert.Zero(t, cgroupBytes(t, d, id))
	}
}

// TestRaceNames: threads make, free and duplicate objects with the same handles. The module never loses an existing
// object.
func TestRaceNames(t *testing.T) {
	d := withDriver(t, enforcing...)
	const names = 4
	for round := range 6 {
		kinds := 4 + round%2 // with duplicates and without
		c := abandoned(t, node(t, "nvidiactl"), 0)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				s := childState{ctl: c.ctl, client: c.client, device: c.device}
				for range 150 {
					name := uint32(0x100 + rand.IntN(names))
					switch rand.IntN(kinds) {
					case 0, 1:
						s.alloc(s.device, &name, classLocal, &memoryParams{Size: mib}) // it may exist already
					case 2, 3:
						v := nvos00{Root: s.client, Object: name}
						rmIoctl(s.ctl, escFree, &v)
					case 4:
						v := nvos55{Client: s.client, Parent: s.device, Object: 0x100 + uint32(rand.IntN(names)), ClientSrc: s.client, ObjectSrc: name}
						rmIoctl(s.ctl, escDup, &v)
					}
				}
			})
		}
		all.Wait()
		there := 0
		for name := uint32(0x100); name < 0x100+names; name++ {
			v := nvos55{Client: c.client, Parent: c.device, ClientSrc: c.client, ObjectSrc: name}
			require.NoError(t, rmIoctl(c.ctl, escDup, &v))
			if v.Status == 0 {
				there++
			}
		}
		accounted := taskBytes(t, d, 1) / mib
		t.Logf("%d names are there, %d MiB are accounted for", there, accounted)
		if kinds == 4 {
			assert.GreaterOrEqual(t, accounted, uint64(there))
		} else if there > 0 {
			assert.Positive(t, accounted, "they may all be duplicates of one")
		}
		require.Zero(t, c.free(c.client))
		assert.Zero(t, taskBytes(t, d, 1), "with the client all is gone")
	}
	assert.Zero(t, stats(t, d).Objects)
}

// TestRaceRewrite: another thread changes the arguments during the call. The driver reads copies, and so what the
// module checked.
func TestRaceRewrite(t *testing.T) {
	d := withDriver(t, append(private, "timeslice_max_us=5000")...)
	over, noticed, large, lost := rewrite(t, d)
	assert.Zero(t, over, "timeslices")
	assert.Zero(t, noticed, "there was nothing to notice")
	assert.Zero(t, large, "allocations")
	assert.Zero(t, lost)
}

// TestRaceRewriteInPlace: without copies the driver may read anything. The module reports the changes that it sees, and
// charges for what exists.
func TestRaceRewriteInPlace(t *testing.T) {
	d := withDriver(t, append(enforcing, "timeslice_max_us=5000")...)
	rewrite(t, d)

	// The other thread may have changed nothing at the right moment. Here the driver waits when it writes its answer, so
	// that the change comes for certain after it read the timeslice and before the module looks at it again.
	c := newClient(t, 0)
	group := c.group()
	timeslice := newPage(t, uint64(9000), unix.PROT_READ|unix.PROT_WRITE, false)
	answer := protectedPage(t, &nvos54{Client: c.client, Object: group, Command: ctrlSetTimeslice, Params: timeslice.address, ParamsSize: 8})
	before, events := stats(t, d).Races, listen(t)
	called := make(chan error, 1)
	go func() { called <- rmIoctlAt(c.ctl, escape(escControl, 32), uintptr(answer.address)) }()
	answer.wanted()
	words(timeslice.memory, 0).Store(8000)
	answer.release()
	require.NoError(t, <-called)
	assert.EqualValues(t, 1, stats(t, d).Races-before)
	races := ofType(events(), vgpuctl.EventRace)
	require.Len(t, races, 1)
	assert.Equal(t, []uint64{5000, 8000}, []uint64{races[0].Value, races[0].Detail}, "what was checked, and what was there afterwards")
	assert.EqualValues(t, 5000, c.timeslice(group))
}

func rewrite(t *testing.T, d *vgpuctl.Device) (over, noticed, large, lost int) {
	limitTask(t, d, vgpuctl.MinorAny, 64*mib, 0)
	c := newClient(t, 0)
	group, other := c.group(), c.group()
	const calls = 200

	// Memory that both threads write: a timeslice, a command, a size, a handle.
	timeslice := newPage(t, uint64(0), unix.PROT_READ|unix.PROT_WRITE, false)
	control := newPage(t, &nvos54{Client: c.client, Object: group, Params: timeslice.address, ParamsSize: 8}, unix.PROT_READ|unix.PROT_WRITE, false)
	params := newPage(t, &memoryParams{Size: mib}, unix.PROT_READ|unix.PROT_WRITE, false)
	free := newPage(t, &nvos00{Root: c.client}, unix.PROT_READ|unix.PROT_WRITE, false)
	us, command, size, name := words(timeslice.memory, 0), words(control.memory, 8), words(params.memory, 64), words(free.memory, 8)
	var stop atomic.Bool
	var all sync.WaitGroup
	end := func() { stop.Store(true); all.Wait() }
	t.Cleanup(end) // before the pages are unmapped
	all.Go(func() {
		runtime.LockOSThread()
		for i := uint64(0); !stop.Load(); i++ {
			us.Store(1000 + i%2*8000)
			command.Store(ctrlGetTimeslice - i/2%2) // or ctrlSetTimeslice
			size.Store(mib + i%2*(2<<30))
			name.Store(uint64(group) + i%2*(uint64(other)-uint64(group)))
		}
	})
	slices := 0
	for n := 0; n < calls || slices == 0; n++ { // on a busy machine the other thread may not run for a long time
		if err := rmIoctlAt(c.ctl, escape(escControl, 32), uintptr(control.address)); err != nil {
			require.ErrorIs(t, err, unix.EFAULT) // it changed while the module wrote it
		}
		slice := c.timeslice(group)
		if slice > 5000 {
			over++
		}
		if slice != defaultSliceUS {
			slices++
		}
	}
	for range calls {
		call := nvos64{Root: c.client, Parent: c.device, Class: classLocal, Params: params.address, ParamsSize: 128}
		require.NoError(t, rmIoctl(c.ctl, escAlloc, &call))
		if call.Status != 0 {
			continue
		}
		if u, err := d.TaskUsage(1, vgpuctl.MinorAny); err == nil && u.DeviceBytes > 64*mib {
			large++
		}
		require.Zero(t, c.free(call.Object))
	}
	noticed = int(stats(t, d).Races)
	// Two objects with two handles, one of which is freed again and again. Module and driver must agree on which one it
	// was.
	for range calls / 6 {
		for _, o := range []uint32{group, other} {
			require.Zero(t, c.free(o))
			require.Zero(t, c.alloc(c.device, &o, classLocal, &memoryParams{Size: mib}))
		}
		require.NoError(t, rmIoctlAt(c.ctl, escape(escFree, 16), uintptr(free.address)))
		there := uint64(0)
		for _, o := range []uint32{group, other} {
			copied, status := c.dup(c, o)
			if status == 0 {
				there++
				require.Zero(t, c.free(copied))
			}
		}
		if taskBytes(t, d, 1) < there*mib {
			lost++
		}
	}
	end()
	t.Logf("of %d calls %d set a timeslice, %d of them too long; %d changes were noticed; of %d allocations %d were over the limit; of %d frees %d freed another",
		calls, slices, over, noticed, calls, large, calls/6, lost)
	assert.Positive(t, slices)
	require.Zero(t, c.free(c.client))
	assert.Zero(t, taskBytes(t, d, 1))
	return over, noticed, large, lost
}

// TestRaceEnds: processes are killed while they allocate, cgroups are removed, and policies are set on both. Nothing
// stays.
func TestRaceEnds(t *testing.T) {
	d := withDriver(t, enforcing...)
	policies := stats(t, d)
	var all sync.WaitGroup
	for worker := range 3 {
		all.Go(func() {
			for i := range 8 {
				dir := fmt.Sprintf("/sys/fs/cgroup/ends-%d-%d", worker, i)
				if !assert.NoError(t, os.Mkdir(dir, 0o755)) {
					return
				}
				id, err := vgpuctl.CgroupID(dir)
				assert.NoError(t, err)
				assert.NoError(t, d.SetCgroupPolicy(id, vgpuctl.MinorAny, vgpuctl.Limits{MemoryLimitBytes: 16 * mib}))
				cmd := exec.Command("/bin/rm_alloc_smoke", fmt.Sprint(mib), "10000", "0")
				inCgroup(t, cmd, dir)
				if !assert.NoError(t, cmd.Start()) {
					return
				}
				killed := make(chan bool)
				go func() {
					time.Sleep(time.Duration(rand.IntN(80)) * time.Millisecond)
					cmd.Process.Kill()
					close(killed)
				}()
				for range 20 {
					if err := d.SetPolicy(uint32(cmd.Process.Pid), vgpuctl.MinorAny, vgpuctl.Limits{MemoryLimitBytes: 8 * mib}); err != nil {
						assert.ErrorIs(t, err, unix.ESRCH)
					}
					d.ClearPolicy(uint32(cmd.Process.Pid), vgpuctl.MinorAny)
					d.SetPolicy(uint32(cmd.Process.Pid), 0, vgpuctl.Limits{})
				}
				<-killed
				cmd.Wait()
				for range 100 {
					d.SetCgroupPolicy(id, 1, vgpuctl.Limits{Weight: 1})
					if os.Remove(dir) == nil {
						break
					}
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	eventually(t, "nothing is left", func() bool {
		s := stats(t, d)
		return s.Objects == policies.Objects && s.Policies == 0 && s.CgroupPolicies == 0 && s.Tasks == policies.Tasks
	})
	for _, row := range table(t, "cgroups") {
		assert.Equal(t, "0", row["device_bytes"], "%v", row)
	}
}

// TestRaceModes: modes and policies change, and all files are read, during the calls of others.
func TestRaceModes(t *testing.T) {
	d := withDriver(t, enforcing...)
	stop := traffic(t, 3)
	for i := range 15 {
		require.NoError(t, d.SetMode(vgpuctl.Mode(i%3)))
		require.NoError(t, d.SetPolicy(1, vgpuctl.MinorAny, vgpuctl.Limits{Weight: uint32(i)}))
		require.NoError(t, d.SetCgroupPolicy(1, 0, vgpuctl.Limits{TimesliceMaxUs: uint64(i)}))
		for _, name := range []string{"enabled", "driver_fingerprint", "hooks", "policies", "cgroup_policies", "cgroups", "tasks", "events", "timeslices", "ioctls", "stats"} {
			if name != "events" || i%5 == 0 {
				table(t, name)
			}
		}
		d.ClearPolicy(1, vgpuctl.MinorAny)
	}
	n := stop()
	require.Positive(t, n)
	assert.Zero(t, stats(t, d).Objects, "what was made while it was off and freed while it was on, and the reverse")
	assert.Zero(t, taskBytes(t, d, 1))
}

// TestRaceDriver: the driver is removed and loaded while others try to use it.
func TestRaceDriver(t *testing.T) {
	d := withVgpu(t, enforcing...)
	var stop atomic.Bool
	var all sync.WaitGroup
	var calls atomic.Int64
	for range 3 {
		all.Go(func() {
			for !stop.Load() {
				fd, err := unix.Open("/dev/nvidiactl", unix.O_RDWR|unix.O_CLOEXEC, 0)
				if err != nil {
					time.Sleep(time.Millisecond)
					continue
				}
				s := childState{ctl: fd}
				assert.NoError(t, s.start(0))
				assert.NoError(t, s.traffic("alloc", false))
				unix.Close(fd)
				calls.Add(1)
				time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
			}
		})
	}
	for n := range 4 {
		before := calls.Load()
		require.NoError(t, insert("fakegpu", "nvidia=1", someGPUs))
		if n%2 == 0 { // otherwise it is removed while they begin
			eventually(t, "the others use the driver", func() bool { return calls.Load() > before })
		}
		for {
			if err := unix.DeleteModule("fakegpu", unix.O_NONBLOCK); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		assert.Zero(t, stats(t, d).Objects)
	}
	stop.Store(true)
	all.Wait()
	t.Logf("%d rounds of calls", calls.Load())
	assert.Positive(t, calls.Load())
}
