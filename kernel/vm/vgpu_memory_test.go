//go:build guest

package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// limitTask gives this process a limit of memory.
func limitTask(t *testing.T, d *vgpuctl.Device, minor vgpuctl.Minor, bytes uint64, flags vgpuctl.LimitFlags) {
	t.Helper()
	require.NoError(t, d.SetPolicy(uint32(os.Getpid()), minor, vgpuctl.Limits{MemoryLimitBytes: bytes, Flags: flags}))
}

// TestVgpuMemoryLimit: an allocation over the limit is refused and one within it is not, whichever way the call is
// made.
func TestVgpuMemoryLimit(t *testing.T) {
	t.Run("in place", func(t *testing.T) { memoryLimit(t, enforcing) })
	t.Run("copies", func(t *testing.T) { memoryLimit(t, private) })
}

func memoryLimit(t *testing.T, parameters []string) {
	d := withDriver(t, parameters...)
	limitTask(t, d, vgpuctl.MinorAny, 64*mib, 0)
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) {
			c := newClient(t, 0)
			before := stats(t, d)
			first, status := w.memory(t, c, 40*mib)
			require.Zero(t, status)
			events := listen(t)
			object, status := w.memory(t, c, 24*mib+1)
			require.EqualValues(t, rmNoMemory, status)
			require.Zero(t, object, "nothing was made")
			denied := ofType(events(), vgpuctl.EventDeny)
			require.Len(t, denied, 1)
			assert.EqualValues(t, 24*mib+1, denied[0].Value)
			assert.EqualValues(t, 64*mib, denied[0].Detail)
			assert.Equal(t, vgpuctl.ScopeTgid, denied[0].Scope)
			assert.Zero(t, denied[0].Flags&vgpuctl.EventDryRun)
			assert.EqualValues(t, rmNoMemory, denied[0].Status)
			assert.Equal(t, w.xfer, denied[0].Flags&vgpuctl.EventXfer != 0)

			second, status := w.memory(t, c, 24*mib)
			require.Zero(t, status, "the limit itself is within it")
			assert.EqualValues(t, 64*mib, taskBytes(t, d, 1))
			_, status = w.memory(t, c, 1)
			require.EqualValues(t, rmNoMemory, status)
			require.Zero(t, c.free(first))
			assert.EqualValues(t, 24*mib, taskBytes(t, d, 1))
			_, status = w.memory(t, c, 40*mib)
			require.Zero(t, status, "what was freed is there again")
			require.Zero(t, c.free(second))
			after := stats(t, d)
			assert.EqualValues(t, 2, after.MemoryDenied-before.MemoryDenied)
			assert.EqualValues(t, 3, after.MemoryCharged-before.MemoryCharged)
			require.Zero(t, c.free(c.client))
			assert.Zero(t, taskBytes(t, d, 1))
		})
	}
}

// TestVgpuMemoryCompat: the same from 32-bit calls, wrapped and not.
func TestVgpuMemoryCompat(t *testing.T) {
	load(t, "fakegpu", "nvidia=1", someGPUs)
	d := withVgpu(t, append(private, fmt.Sprint("memory_trace_limit_bytes=", 64*mib))...)
	for _, options := range [][]string{{"-c"}, {"-c", "-x"}, {"-c", "-u"}, {"-c", "-x", "-u"}, nil, {"-x"}, {"-u"}, {"-x", "-u"}} {
		for _, program := range []string{"rm_alloc_smoke", "rm_vmm_smoke"} {
			before := stats(t, d)
			o := run(t, program, append(options, fmt.Sprint(16*mib), "6", "0")...)
			assert.Equal(t, 3, o.code, "%s%s", o.stdout, o.stderr)
			assert.Contains(t, o.stdout, fmt.Sprintf("holding %d bytes\n", 64*mib), "%v", options)
			after := stats(t, d)
			assert.EqualValues(t, 2, after.MemoryDenied-before.MemoryDenied, "%v", options)
			assert.Equal(t, len(options) > 0 && options[0] == "-c", after.CompatCalls > before.CompatCalls)
		}
	}
}

// TestVgpuMemoryDryRun: nothing is refused, and events report what would have been refused.
func TestVgpuMemoryDryRun(t *testing.T) {
	t.Run("module", func(t *testing.T) {
		d := withDriver(t, "memory_alloc_min_bytes=1")
		dryRun(t, d, 0)
	})
	t.Run("policy", func(t *testing.T) {
		d := withDriver(t, enforcing...)
		dryRun(t, d, vgpuctl.LimitDryRun)
	})
}

func dryRun(t *testing.T, d *vgpuctl.Device, flags vgpuctl.LimitFlags) {
	limitTask(t, d, vgpuctl.MinorAny, 64*mib, flags)
	c := newClient(t, 0)
	events := listen(t)
	_, status := way{}.memory(t, c, 65*mib)
	require.Zero(t, status)
	assert.EqualValues(t, 65*mib, taskBytes(t, d, 1))
	s := stats(t, d)
	assert.EqualValues(t, 1, s.MemoryWouldDeny)
	assert.Zero(t, s.MemoryDenied)
	denied := ofType(events(), vgpuctl.EventDeny)
	require.Len(t, denied, 1)
	assert.Equal(t, vgpuctl.EventDryRun, denied[0].Flags&vgpuctl.EventDryRun)
	assert.EqualValues(t, 65*mib, denied[0].Value)
	u, err := d.TaskUsage(1, vgpuctl.MinorAny)
	require.NoError(t, err)
	assert.EqualValues(t, 1, u.Denied)
}

// TestVgpuMemoryParameters: the module's parameters apply where there is no policy, and to single allocations.
func TestVgpuMemoryParameters(t *testing.T) {
	t.Run("memory_trace_limit_bytes", func(t *testing.T) {
		d := withDriver(t, append(enforcing, fmt.Sprint("memory_trace_limit_bytes=", 32*mib))...)
		c := newClient(t, 0)
		events := listen(t)
		_, status := c.memory(33 * mib)
		require.EqualValues(t, rmNoMemory, status)
		assert.Equal(t, vgpuctl.ScopeModule, ofType(events(), vgpuctl.EventDeny)[0].Scope)
		limitTask(t, d, vgpuctl.MinorAny, 0, 0)
		_, status = c.memory(33 * mib)
		require.Zero(t, status, "a policy without a limit lifts the module's")
	})
	t.Run("memory_alloc_max_bytes", func(t *testing.T) {
		d := withDriver(t, append(enforcing, fmt.Sprint("memory_alloc_max_bytes=", 32*mib))...)
		c := newClient(t, 0)
		_, status := c.memory(32*mib + 1)
		require.EqualValues(t, rmNoMemory, status)
		for range 3 {
			_, status = c.memory(32 * mib)
			require.Zero(t, status)
		}
		assert.EqualValues(t, 96*mib, taskBytes(t, d, 1))
		assert.EqualValues(t, 1, stats(t, d).MemoryDenied)
	})
	t.Run("memory_alloc_max_bytes in a dry run", func(t *testing.T) {
		d := withDriver(t, "memory_alloc_min_bytes=1", fmt.Sprint("memory_alloc_max_bytes=", 32*mib))
		_, status := newClient(t, 0).memory(33 * mib)
		require.Zero(t, status)
		assert.EqualValues(t, 1, stats(t, d).MemoryWouldDeny)
		assert.EqualValues(t, 33*mib, taskBytes(t, d, 1))
	})
	t.Run("memory_alloc_min_bytes", func(t *testing.T) {
		d := withDriver(t, "dry_run=0", "allow_enforce=1") // the default: 16 MiB
		limitTask(t, d, vgpuctl.MinorAny, 1, 0)
		c := newClient(t, 0)
		_, status := c.memory(15 * mib)
		require.Zero(t, status)
		assert.Zero(t, taskBytes(t, d, 1))
		_, status = c.memory(16 * mib)
		require.EqualValues(t, rmNoMemory, status)
	})
	t.Run("memory_trace=0", func(t *testing.T) {
		d := withDriver(t, append(enforcing, "memory_trace=0")...)
		limitTask(t, d, vgpuctl.MinorAny, 1, 0)
		_, status := newClient(t, 0).memory(32 * mib)
		require.Zero(t, status)
		assert.Zero(t, taskBytes(t, d, 1))
	})
}

// TestVgpuMemoryByMinor: a limit for one GPU does not affect the others, in whatever order the GPUs are.
func TestVgpuMemoryByMinor(t *testing.T) {
	d := withDriver(t, enforcing...)
	// The second GPU has minor 3: vgpu learns that from the driver's answer to a program with CAP_SYS_ADMIN.
	c := newClient(t, 1)
	cards := make([]cardInfo, 32)
	require.NoError(t, rmIoctl(c.ctl, escCardInfo, (*[32]cardInfo)(cards)))
	require.EqualValues(t, 3, cards[1].Minor)
	require.Zero(t, c.control(c.client, ctrlIDInfoV2, &idInfoV2{GPU: cards[1].GPU}))

	limitTask(t, d, 3, 32*mib, 0)
	other := newClient(t, 0)
	_, status := other.memory(64 * mib)
	require.Zero(t, status)
	c = newClient(t, 1) // memory that was allocated before the minor was known counts on every GPU
	_, status = c.memory(33 * mib)
	require.EqualValues(t, rmNoMemory, status)
	_, status = c.memory(32 * mib)
	require.Zero(t, status)
	u, err := d.TaskUsage(1, 3)
	require.NoError(t, err)
	assert.EqualValues(t, 32*mib, u.DeviceBytes)
	u, err = d.TaskUsage(1, 0)
	require.NoError(t, err)
	assert.EqualValues(t, 64*mib, u.DeviceBytes)
	assert.EqualValues(t, 96*mib, taskBytes(t, d, 1))
}

// TestVgpuMemoryStructures: every structure that allocates is accounted.
func TestVgpuMemoryStructures(t *testing.T) {
	d := withDriver(t, private...)
	limitTask(t, d, vgpuctl.MinorAny, 64*mib, 0)
	usage := func() vgpuctl.Usage {
		u, err := d.TaskUsage(1, vgpuctl.MinorAny)
		require.NoError(t, err)
		return u
	}
	for _, w := range ways {
		t.Run("nvos21 "+w.String(), func(t *testing.T) {
			c := newClient(t, 0)
			for _, want := range []struct {
				size   uint64
				status uint32
			}{{65 * mib, rmNoMemory}, {64 * mib, rmOK}} {
				params := newPage(t, &memoryParams{Size: want.size}, unix.PROT_READ|unix.PROT_WRITE, w.untouched)
				call := nvos21{Root: c.client, Parent: c.device, Class: classLocal, Params: params.address}
				require.NoError(t, w.rm(t, c.ctl, escAlloc, &call))
				require.EqualValues(t, want.status, call.Status)
			}
			assert.EqualValues(t, 64*mib, usage().DeviceBytes)
			require.Zero(t, c.free(c.client))
		})
		t.Run("nvos32 "+w.String(), func(t *testing.T) {
			c := newClient(t, 0)
			for _, want := range []struct {
				size   uint64
				status uint32
			}{{65 * mib, rmNoMemory}, {64 * mib, rmOK}} {
				call := nvos32{Root: c.client, Parent: c.device, Function: 2, Size: want.size}
				require.NoError(t, w.rm(t, c.ctl, escHeap, &call))
				require.EqualValues(t, want.status, call.Status)
				if call.Status == rmOK {
					assert.EqualValues(t, 64*mib, usage().DeviceBytes)
					free := nvos32{Root: c.client, Parent: c.device, Function: 3, Memory: call.Memory, Type: 1} // there it is flags
					require.NoError(t, w.rm(t, c.ctl, escHeap, &free))
					require.Zero(t, free.Status)
					assert.Zero(t, usage().DeviceBytes)
				}
			}
			require.Zero(t, c.free(c.client))
		})
		t.Run("nvos02 "+w.String(), func(t *testing.T) {
			c := newClient(t, 0)
			gpu := node(t, "nvidia0") // these go through the GPU's own node
			ctl := int32(c.ctl)
			require.NoError(t, rmIoctl(gpu, escRegisterFD, &ctl))
			call := nvos02{Root: c.client, Parent: c.device, Object: 0x5a, Class: classSystem, Limit: 96*mib - 1}
			require.NoError(t, w.rm(t, gpu, escAllocMemory, &call))
			require.Zero(t, call.Status)
			u := usage()
			assert.Zero(t, u.DeviceBytes, "the host's memory counts against no limit")
			assert.EqualValues(t, 96*mib, u.SystemBytes)
			require.Zero(t, c.free(0x5a))
			assert.Zero(t, usage().SystemBytes)
			require.Zero(t, c.free(c.client))
		})
	}
	t.Run("virtual", func(t *testing.T) {
		c := newClient(t, 0)
		var object uint32
		require.Zero(t, c.alloc(c.device, &object, classVirtual, &memoryParams{Size: 1 << 30, Flags: flagVirtual}))
		u := usage()
		assert.Zero(t, u.DeviceBytes)
		assert.EqualValues(t, 1<<30, u.VirtualBytes)
		_, status := c.memory(64 * mib)
		require.Zero(t, status, "addresses take nothing of the limit")
		require.Zero(t, c.free(object))
		assert.Zero(t, usage().VirtualBytes)
	})
}

// TestVgpuMemoryObjects: memory is charged once, until its last holder is freed.
func TestVgpuMemoryObjects(t *testing.T) {
	d := withDriver(t, private...)
	limitTask(t, d, vgpuctl.MinorAny, 64*mib, 0)
	objects := stats(t, d).Objects
	t.Run("duplicates", func(t *testing.T) {
		a, b := newClient(t, 0), newClient(t, 0)
		memory, status := a.memory(48 * mib)
		require.Zero(t, status)
		copied, status := b.dup(a, memory)
		require.Zero(t, status)
		assert.EqualValues(t, 48*mib, taskBytes(t, d, 1))
		require.Zero(t, a.free(memory))
		assert.EqualValues(t, 48*mib, taskBytes(t, d, 1), "the duplicate holds it")
		_, status = a.memory(17 * mib)
		require.EqualValues(t, rmNoMemory, status)
		require.Zero(t, b.free(copied))
		assert.Zero(t, taskBytes(t, d, 1))
	})
	t.Run("freed parents", func(t *testing.T) {
		c := newClient(t, 0)
		_, status := c.memory(48 * mib)
		require.Zero(t, status)
		require.Zero(t, c.free(c.device))
		assert.Zero(t, taskBytes(t, d, 1))
	})
	t.Run("closed files", func(t *testing.T) {
		ctl := node(t, "nvidiactl")
		keep := node(t, "nvidiactl") // so that ctl is not the last open file
		c := abandoned(t, ctl, 0)
		_, status := c.memory(48 * mib)
		require.Zero(t, status)
		again, err := unix.Dup(ctl)
		require.NoError(t, err)
		shut(t, ctl)
		assert.EqualValues(t, 48*mib, taskBytes(t, d, 1), "another descriptor of it is open")
		unix.Close(again)
		assert.Zero(t, taskBytes(t, d, 1))
		shut(t, keep)
	})
	t.Run("refused by the driver", func(t *testing.T) {
		require.NoError(t, d.SetPolicy(1, vgpuctl.MinorAny, vgpuctl.Limits{MemoryLimitBytes: 1 << 40}))
		_, status := newClient(t, 1).memory(2 << 30) // it has 1 GiB
		require.EqualValues(t, rmNoMemory, status)
		assert.Zero(t, taskBytes(t, d, 1))
		assert.Zero(t, stats(t, d).MemoryDenied-1, "that was the driver, and the other one the module")
	})
	assert.Equal(t, objects, stats(t, d).Objects, "nothing is left")
}

// TestVgpuMemoryReadOnly: a call whose answer cannot be written makes no object, since that would not be accounted.
func TestVgpuMemoryReadOnly(t *testing.T) {
	d := withDriver(t, private...)
	limitTask(t, d, vgpuctl.MinorAny, 64*mib, 0)
	c := newClient(t, 0)
	params := newPage(t, &memoryParams{Size: 48 * mib}, unix.PROT_READ, false)
	call := nvos64{Root: c.client, Parent: c.device, Object: 0x77, Class: classLocal, Params: params.address, ParamsSize: 128}
	p := newPage(t, &call, unix.PROT_READ, false)
	for _, w := range ways {
		assert.ErrorIs(t, w.call(t, c.ctl, escAlloc, 48, p), unix.EFAULT)
	}
	assert.Zero(t, taskBytes(t, d, 1))
	_, status := c.dup(c, 0x77)
	assert.EqualValues(t, rmNotFound, status, "the driver has not seen it")
	_, status = c.memory(64 * mib)
	require.Zero(t, status)

	// A call that cannot be read fails too.
	require.Error(t, rmIoctlAt(c.ctl, escape(escAlloc, 48), 0x1000))
	require.Error(t, rmIoctlAt(c.ctl, escape(escXfer, 16), 0x1000))
	require.Positive(t, stats(t, d).Faults)
}

// TestVgpuMemoryTrace: while nothing is enforced, an object is accounted even if its answer did not reach the caller.
func TestVgpuMemoryTrace(t *testing.T) {
	d := withDriver(t, "memory_alloc_min_bytes=1")
	c := newClient(t, 0)
	params := newPage(t, &memoryParams{Size: 48 * mib}, unix.PROT_READ|unix.PROT_WRITE, false)
	p := newPage(t, &nvos64{Root: c.client, Parent: c.device, Object: 0x77, Class: classLocal, Params: params.address, ParamsSize: 128}, unix.PROT_READ, false)
	assert.ErrorIs(t, way{}.call(t, c.ctl, escAlloc, 48, p), unix.EFAULT)
	assert.EqualValues(t, 48*mib, taskBytes(t, d, 1))
	require.Zero(t, c.free(0x77), "it is there")
	assert.Zero(t, taskBytes(t, d, 1))
}

// TestVgpuMemorySerialized: parameters that cannot be read are refused while limits apply, and accepted otherwise.
func TestVgpuMemorySerialized(t *testing.T) {
	d := withDriver(t, enforcing...)
	c := newClient(t, 0)
	events := listen(t)
	call := nvos64{Root: c.client, Parent: c.device, Class: classLocal, Params: at(&memoryParams{Size: 32 * mib}), ParamsSize: 128, Flags: 1}
	require.NoError(t, rmIoctl(c.ctl, escAlloc, &call))
	assert.EqualValues(t, rmNotSupported, call.Status)
	denied := ofType(events(), vgpuctl.EventDeny)
	require.Len(t, denied, 1)
	assert.EqualValues(t, rmNotSupported, denied[0].Status)
	assert.EqualValues(t, classLocal, denied[0].Code)
	require.NoError(t, d.SetMode(vgpuctl.ModeDryRun))
	require.NoError(t, rmIoctl(c.ctl, escAlloc, &call))
	assert.Len(t, ofType(events(), vgpuctl.EventDeny), 0)
}

// TestVgpuMemoryExit: the memory of a process is given back at its end, however it ends.
func TestVgpuMemoryExit(t *testing.T) {
	d := withDriver(t, append(enforcing, fmt.Sprint("memory_trace_limit_bytes=", 64*mib))...)
	for _, program := range []string{"rm_alloc_smoke", "rm_vmm_smoke"} {
		for _, options := range [][]string{nil, {"-x"}, {"-c", "-u"}} {
			h := hold(t, "", program, append(options, fmt.Sprint(32*mib), "2")...)
			require.EqualValues(t, 64*mib, h.bytes)
			assert.EqualValues(t, 64*mib, taskBytes(t, d, h.Process.Pid))
			row := rowOf(t, "tasks", "tgid", h.Process.Pid)
			assert.Equal(t, program[:min(15, len(program))], row["comm"])
			assert.Equal(t, fmt.Sprint(64*mib), row["device_bytes"])
			events := listen(t)
			h.kill()
			_, err := d.TaskUsage(uint32(h.Process.Pid), vgpuctl.MinorAny)
			assert.True(t, isErrno(err, unix.ESRCH), "%v", err)
			exits := ofType(events(), vgpuctl.EventExit)
			require.Len(t, exits, 1)
			assert.EqualValues(t, h.Process.Pid, exits[0].Tgid)
			assert.EqualValues(t, 64*mib, exits[0].Value)
			for _, row := range table(t, "tasks") {
				assert.NotEqual(t, fmt.Sprint(h.Process.Pid), row["tgid"])
			}
			assert.Zero(t, stats(t, d).Objects)
		}
	}
}

// TestVgpuMemoryLastClose: with clear_memory_on_last_close=0, memory whose end the module did not see is charged until
// the process ends.
func TestVgpuMemoryLastClose(t *testing.T) {
	for _, clear := range []int{0, 1} {
		t.Run(fmt.Sprint(clear), func(t *testing.T) {
			d := withDriver(t, append(enforcing, fmt.Sprint("clear_memory_on_last_close=", clear))...)
			ctl := node(t, "nvidiactl")
			c := abandoned(t, ctl, 0)
			_, status := c.memory(32 * mib)
			require.Zero(t, status)
			limitTask(t, d, vgpuctl.MinorAny, 64*mib, 0)
			shut(t, ctl)
			_, err := d.TaskUsage(1, vgpuctl.MinorAny)
			assert.Equal(t, clear == 1, isErrno(err, unix.ENOENT), "its accounts: %v", err)
			assert.Zero(t, taskBytes(t, d, 1), "its clients went with the file in any case")
			_, err = d.GetPolicy(1, vgpuctl.MinorAny)
			assert.NoError(t, err, "a policy lasts as long as the process")
		})
	}
}

// TestVgpuMemoryShared: objects that a child makes on a descriptor that others have open stay after its end.
func TestVgpuMemoryShared(t *testing.T) {
	d := withDriver(t, enforcing...)
	dir, id := cgroup(t, "shared")
	require.NoError(t, d.SetCgroupPolicy(id, vgpuctl.MinorAny, vgpuctl.Limits{MemoryLimitBytes: 64 * mib}))
	ctl := node(t, "nvidiactl")
	inherit := func(cmd *exec.Cmd) {
		cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(must(unix.Dup(ctl))(t)), "nvidiactl")}
	}
	c := startChild(t, dir, inherit)
	c.do("inherit", 0)
	c.do("alloc", 48*mib)
	c.ExtraFiles[0].Close()
	assert.EqualValues(t, 48*mib, taskBytes(t, d, c.Process.Pid))
	assert.EqualValues(t, 48*mib, cgroupBytes(t, d, id))
	assert.Zero(t, taskBytes(t, d, 1))
	c.do("close", 0)
	assert.EqualValues(t, 48*mib, cgroupBytes(t, d, id), "its own descriptor was not the last")
	c.kill()
	assert.EqualValues(t, 48*mib, cgroupBytes(t, d, id), "the driver has it until the file is closed")
	next := startChild(t, dir, nil)
	next.do("open", 0)
	assert.Equal(t, "status 0x51", next.try("alloc", 17*mib))
	next.do("alloc", 16*mib)
	shut(t, ctl)
	assert.EqualValues(t, 16*mib, cgroupBytes(t, d, id))
	next.kill()
	assert.Zero(t, stats(t, d).Objects)
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

// TestVgpuClientNames: only the driver chooses a client's handle. A handle that the caller gives has no effect, even if
// it is that of a client.
func TestVgpuClientNames(t *testing.T) {
	d := withDriver(t, private...)
	limitTask(t, d, vgpuctl.MinorAny, 64*mib, 0)
	c, other := newClient(t, 0), node(t, "nvidiactl")
	call := nvos64{Object: c.client, Class: 0} // the driver turns it into classRoot
	require.NoError(t, rmIoctl(other, escAlloc, &call))
	require.Zero(t, call.Status)
	require.NotEqual(t, c.client, call.Object)
	_, status := c.memory(64 * mib)
	require.Zero(t, status)
	shut(t, other)
	assert.EqualValues(t, 64*mib, taskBytes(t, d, 1), "the other file had another client")
	_, status = c.memory(mib)
	assert.EqualValues(t, rmNoMemory, status)
	assert.Zero(t, stats(t, d).Races)
}

// TestVgpuUnknownGPU: on devices that are older than the module, and on those whose GPU it cannot tell, policies for
// single GPUs apply too.
func TestVgpuUnknownGPU(t *testing.T) {
	load(t, "fakegpu", "nvidia=1", someGPUs)
	c := newClient(t, 0)
	group := c.group()
	d := withVgpu(t, private...)
	require.NoError(t, d.SetPolicy(1, 0, vgpuctl.Limits{MemoryLimitBytes: 64 * mib, TimesliceMaxUs: 2000}))
	_, status := c.memory(65 * mib)
	assert.EqualValues(t, rmNoMemory, status)
	_, status = c.memory(64 * mib)
	assert.Zero(t, status)
	us := uint64(9000)
	require.Zero(t, c.control(group, ctrlSetTimeslice, &us))
	assert.EqualValues(t, 2000, c.timeslice(group))
}
