//go:build guest

package kernel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The test binary is also a program whose threads make random driver calls until it is killed, or for VGPU_STORM_MS.
func init() {
	seed, err := strconv.ParseUint(os.Getenv("VGPU_STORM"), 10, 64)
	if err != nil {
		return
	}
	s := &storm{}
	for i := range s.fds {
		s.fds[i].Store(-1)
	}
	if unix.Fstat(3, &unix.Stat_t{}) == nil && os.Getenv("VGPU_STORM_MS") != "" {
		s.fds[0].Store(3)
	}
	for i := range uint64(3) {
		go s.rage(rand.New(rand.NewPCG(seed, i)))
	}
	if ms, err := strconv.Atoi(os.Getenv("VGPU_STORM_MS")); err == nil {
		time.Sleep(time.Duration(ms) * time.Millisecond)
		os.Exit(0)
	}
	select {}
}

// storm is what the threads share and take from each other: descriptors, and clients on them.
type storm struct {
	fds     [4]atomic.Int32
	clients [4]atomic.Uint32
}

func (s *storm) rage(r *rand.Rand) {
	runtime.LockOSThread()
	for {
		s.call(r)
	}
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func (s *storm) call(r *rand.Rand) {
	slot, name := r.IntN(4), uint32(0x100+r.IntN(8))
	fd, client := int(s.fds[slot].Load()), s.clients[slot].Load()
	rarely := func(n int) bool { return r.IntN(n) == 0 }
	if rarely(8) {
		client = s.clients[r.IntN(4)].Load()
	}
	c := childState{ctl: fd, client: client, device: 1}
	switch r.IntN(16) {
	case 0:
		if fd >= 0 && !rarely(16) {
			break
		}
		opened, err := unix.Open(pick(r, "/dev/nvidiactl", "/dev/nvidiactl", "/dev/nvidia0"), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err == nil {
			if old := s.fds[slot].Swap(int32(opened)); old >= 0 {
				unix.Close(int(old))
			}
		}
	case 1:
		if client != 0 && !rarely(16) {
			break
		}
		c.client = 0
		if c.alloc(0, &c.client, pick[uint32](r, classRoot, classRoot, 0, 1), (*byte)(nil)) == nil {
			s.clients[slot].Store(c.client)
			c.device = 1
			c.alloc(c.client, &c.device, classDevice, &deviceParams{ID: r.Uint32N(3)})
		}
	case 2, 3, 4:
		name *= uint32(r.IntN(2))
		if !rarely(3) {
			c.alloc(c.device, &name, classLocal, &memoryParams{Size: r.Uint64N(32 * mib)})
			break
		}
		size := pick(r, 1, 4096, mib, 200*mib, 1<<40, r.Uint64())
		c.alloc(pick(r, c.device, c.client, name), &name, pick[uint32](r, classLocal, classSystem, classVirtual, classRange, 0x71, 0x90ce, r.Uint32()),
			&memoryParams{Size: size, Attr: pick(r, 0, attrPCI, r.Uint32()), Flags: pick(r, 0, flagVirtual, r.Uint32())})
	case 5:
		v := nvos32{Root: client, Parent: c.device, Function: pick[uint32](r, 2, 3, 6, 14, 27, r.Uint32N(32)), Owner: r.Uint32(), Memory: name, Flags: pick(r, 0, flagHandle, r.Uint32()), Size: pick(r, mib, r.Uint64())}
		rmIoctl(fd, escHeap, &v)
	case 6:
		v := nvos00{Root: client, Object: name}
		if rarely(32) {
			v.Object = pick(r, c.device, client)
		}
		rmIoctl(fd, escFree, &v)
	case 7:
		v := nvos55{Client: client, Parent: c.device, Object: uint32(0x100 + r.IntN(8)), ClientSrc: s.clients[r.IntN(4)].Load(), ObjectSrc: pick(r, name, name, c.device)}
		rmIoctl(fd, escDup, &v)
	case 8:
		group := name
		c.alloc(c.device, &group, classGroup, &groupParams{Engine: 1})
		fallthrough
	case 9:
		us := r.Uint64N(20000)
		v := nvos54{Client: client, Object: name, Command: ctrlSetTimeslice, Flags: pick[uint32](r, 0, 0, 0, 4), Params: at(&us), ParamsSize: 8}
		c.wrap(r.IntN(2) == 0, escControl, at(&v), sizeOf(v), func() { runtime.KeepAlive(&v); runtime.KeepAlive(&us) })
	case 10, 11:
		bytes := make([]byte, r.IntN(300))
		for i := range bytes {
			bytes[i] = byte(r.Uint32N(256) * r.Uint32N(2))
		}
		rmIoctlBytes(fd, uintptr(pick(r, escAlloc, escFree, escControl, escDup, escHeap, escXfer, escAllocMemory, r.IntN(256))), bytes)
	case 12:
		address := pick(r, 0, 1<<20, 0x400000, 1<<47-4096, 1<<63, r.Uint64())
		c.wrap(r.IntN(2) == 0, pick[uintptr](r, escAlloc, escFree, escControl, escDup, escHeap), address, pick[uint32](r, 16, 32, 48, 28, 184, 16384), func() {})
	case 13:
		if rarely(20) && fd >= 0 && os.Getenv("VGPU_STORM_MS") == "" {
			p, err := os.StartProcess("/init", []string{"/init"}, &os.ProcAttr{
				Env: []string{fmt.Sprint("VGPU_STORM=", r.Uint32()), fmt.Sprint("VGPU_STORM_MS=", r.IntN(300))}, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, os.NewFile(uintptr(fd), "")}})
			if err == nil {
				go p.Wait()
			}
		}
	case 14:
		if rarely(200) {
			syscall.Exec("/init", []string{"/init"}, []string{fmt.Sprint("VGPU_STORM=", r.Uint32())})
		}
	case 15:
		time.Sleep(time.Duration(r.IntN(100)) * time.Microsecond)
	}
}

// threadsIn tells of each thread in a cgroup its state, its system call and its stack in the kernel.
func threadsIn(dir string) string {
	var all strings.Builder
	threads, err := os.ReadFile(dir + "/cgroup.threads")
	if err != nil {
		return err.Error()
	}
	for _, thread := range strings.Fields(string(threads)) {
		for _, file := range []string{"stat", "syscall", "stack"} {
			text, err := os.ReadFile("/proc/" + thread + "/" + file)
			fmt.Fprintf(&all, "%s %s: %s", thread, file, text)
			if err != nil {
				fmt.Fprintln(&all, err)
			}
		}
	}
	return all.String()
}

// TestRaceDriverStorm: processes make random calls, in cgroups that are made and removed and whose policies change,
// while both modules are reloaded and a reader follows the events. At the end nothing is left.
// NVMLFAB_GUEST_STORM=SECONDS,SEED makes it run longer or repeats a run.
func TestRaceDriverStorm(t *testing.T) {
	seconds, seed := 5, uint64(time.Now().UnixNano())
	if text := os.Getenv("NVMLFAB_GUEST_STORM"); text != "" {
		fmt.Sscanf(text, "%d,%d", &seconds, &seed)
	}
	t.Logf("%d seconds from seed %d", seconds, seed)
	r := rand.New(rand.NewPCG(seed, 0))
	load(t, "fakegpu", "nvidia=1", someGPUs)
	var device *vgpuctl.Device
	var watch *exec.Cmd
	loads := 0
	start := func() {
		require.NoError(t, insert("vgpu", append(private[:len(private):len(private)], fmt.Sprint("private_arguments=", r.IntN(2)))...))
		var err error
		device, err = vgpuctl.Open()
		require.NoError(t, err)
		watch = exec.Command("/bin/vgpuctl", "watch")
		require.NoError(t, watch.Start())
		loads++
	}
	stop := func() {
		watch.Process.Kill()
		watch.Wait()
		device.Close()
		unload(t, "vgpu")
	}
	start()
	t.Cleanup(func() {
		if loaded("vgpu") {
			stop()
		}
	})

	var dirs [3]string
	var ids [3]uint64
	var children []*exec.Cmd
	made, sum := 0, vgpuctl.Stats{}
	empty := func(i int) {
		if dirs[i] == "" {
			return
		}
		defer func() {
			if dirs[i] != "" {
				t.Logf("threads that did not end, with what they do in the kernel:\n%s", threadsIn(dirs[i]))
			}
		}()
		// Once is not enough: the kernel takes a process in which a thread calls execve for one that is being killed already, since
		// that call kills the process's other threads, and passes over it.
		eventually(t, "the cgroup is empty", func() bool {
			require.NoError(t, os.WriteFile(dirs[i]+"/cgroup.kill", []byte("1"), 0))
			return !errors.Is(os.Remove(dirs[i]), unix.EBUSY)
		})
		dirs[i] = ""
	}
	fill := func(i int) {
		dirs[i] = fmt.Sprintf("/sys/fs/cgroup/storm-%d", made)
		made++
		require.NoError(t, os.Mkdir(dirs[i], 0o755))
		var err error
		ids[i], err = vgpuctl.CgroupID(dirs[i])
		require.NoError(t, err)
	}
	end := func() {
		for i := range dirs {
			empty(i)
		}
		for _, c := range children {
			c.Wait()
		}
		children = nil
	}
	defer end()
	count := func() {
		s := stats(t, device)
		sum.Ioctls += s.Ioctls
		sum.MemoryCharged += s.MemoryCharged
		sum.MemoryDenied += s.MemoryDenied
		sum.Dups += s.Dups
	}
	limits := func() vgpuctl.Limits {
		return vgpuctl.Limits{MemoryLimitBytes: pick[uint64](r, 0, 1, 32*mib, 300*mib), Weight: r.Uint32N(4), TimesliceMaxUs: r.Uint64N(2) * 5000, Flags: vgpuctl.LimitFlags(r.Uint32N(2))}
	}
	files := []string{"enabled", "driver_fingerprint", "hooks", "policies", "cgroup_policies", "cgroups", "tasks", "events", "timeslices", "ioctls", "stats"}
	reloads := 0
	deadline := time.Now().Add(time.Duration(seconds) * time.Second)
	for time.Now().Before(deadline) || sum.MemoryCharged+stats(t, device).MemoryCharged == 0 { // on a busy machine the first charge may take long
		i := r.IntN(3)
		if dirs[i] == "" {
			fill(i)
		}
		switch r.IntN(14) {
		case 0, 1, 2:
			if len(children) < 5 {
				c := exec.Command("/init")
				c.Env = []string{fmt.Sprint("VGPU_STORM=", r.Uint32())}
				require.NoError(t, inCgroup(t, c, dirs[i]).Start())
				children = append(children, c)
			}
		case 3:
			if n := len(children); n > 0 && r.IntN(4) == 0 {
				children[0].Process.Kill()
				children[0].Wait()
				children = children[1:]
			}
		case 4, 5:
			device.SetCgroupPolicy(ids[i], pick(r, vgpuctl.MinorAny, 0, 1), limits())
		case 6, 7:
			if n := len(children); n > 0 {
				device.SetPolicy(uint32(children[r.IntN(n)].Process.Pid), pick(r, vgpuctl.MinorAny, 0, 1), limits())
			}
		case 8:
			device.ClearCgroupPolicy(ids[i], vgpuctl.MinorAny)
		case 9:
			require.NoError(t, device.SetMode(pick(r, vgpuctl.ModeEnforce, vgpuctl.ModeEnforce, vgpuctl.ModeDryRun, vgpuctl.ModeOff)))
		case 10:
			if r.IntN(6) == 0 {
				empty(i)
			}
		case 11:
			table(t, pick(r, files...))
		case 12:
			if r.IntN(12) == 0 {
				count()
				stop()
				start()
			}
		case 13:
			if r.IntN(24) == 0 {
				end()
				assert.Zero(t, stats(t, device).Objects)
				unload(t, "fakegpu")
				require.NoError(t, insert("fakegpu", "nvidia=1", someGPUs))
				reloads++
			}
		}
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
	}
	end()
	eventually(t, "nothing is left", func() bool {
		s := stats(t, device)
		return s.Objects == 0 && s.Policies == 0 && s.CgroupPolicies == 0 && s.Tasks == 0
	})
	for _, row := range append(table(t, "cgroups"), table(t, "tasks")...) {
		for _, column := range []string{"device_bytes", "system_bytes", "virtual_bytes", "allocations"} {
			assert.Equal(t, "0", row[column], "%v", row)
		}
	}
	count()
	t.Logf("%d cgroups, vgpu loaded %d times and the driver %d; %d calls, %d duplicates, %d allocations charged, %d denied",
		made, loads, reloads+1, sum.Ioctls, sum.Dups, sum.MemoryCharged, sum.MemoryDenied)
	assert.Positive(t, sum.MemoryCharged)
}
