//go:build guest

package kernel

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl/vgputest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// refused requires vgpuctl to end with a status and one line on standard error.
func (o outcome) refused(t *testing.T, code int, text string) {
	t.Helper()
	assert.Equal(t, code, o.code, o.stdout+o.stderr)
	assert.Regexp(t, `^vgpuctl: .+\n$`, o.stderr)
	assert.Equal(t, 1, strings.Count(o.stderr, "\n"), o.stderr)
	assert.Contains(t, o.stderr, text)
}

// vgpuctlJSON runs vgpuctl with --json and decodes what it prints.
func vgpuctlJSON[T any](t *testing.T, args ...string) (value T) {
	t.Helper()
	o := run(t, "vgpuctl", append([]string{"--json"}, args...)...).succeeds(t)
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &value), o.stdout)
	return value
}

// ---- The library ---------------------------------------------------------------------------------------------------

// answers are a device's answers to all requests that need no program on the GPU.
func answers(d *vgpuctl.Device, pid uint32, cgroup uint64) (all []string) {
	say := func(what string, value any, err error) {
		if err != nil {
			value = err
		}
		all = append(all, fmt.Sprintf("%s: %+v", what, value))
	}
	const none, noCgroup = 1 << 21, 1 << 40 // greater than any process or cgroup
	full := vgpuctl.Limits{MemoryLimitBytes: 1 << 40, TimesliceMinUs: 1, TimesliceMaxUs: 1 << 40, Weight: vgpuctl.WeightMax, Flags: vgpuctl.LimitDryRun}
	for _, minor := range []vgpuctl.Minor{0, vgpuctl.MinorMax, vgpuctl.MinorMax + 1, vgpuctl.MinorAny} {
		for _, whose := range []struct {
			pid    uint32
			cgroup uint64
		}{{pid, cgroup}, {none, noCgroup}} {
			for _, limits := range []vgpuctl.Limits{full, {}} {
				say("set", nil, d.SetPolicy(whose.pid, minor, limits))
				say("set cgroup", nil, d.SetCgroupPolicy(whose.cgroup, minor, limits))
				l, err := d.GetPolicy(whose.pid, minor)
				say("get", l, err)
				l, err = d.GetCgroupPolicy(whose.cgroup, minor)
				say("get cgroup", l, err)
			}
			u, err := d.TaskUsage(whose.pid, minor)
			say("usage", u, err)
			u, err = d.CgroupUsage(whose.cgroup, minor)
			say("cgroup usage", u, err)
			s, err := d.Stats()
			say("policies", []uint64{s.Policies, s.CgroupPolicies}, err)
			for range 2 {
				say("clear", nil, d.ClearPolicy(whose.pid, minor))
				say("clear cgroup", nil, d.ClearCgroupPolicy(whose.cgroup, minor))
			}
			_, err = d.GetPolicy(whose.pid, minor)
			say("get", nil, err)
			_, err = d.GetCgroupPolicy(whose.cgroup, minor)
			say("get cgroup", nil, err)
		}
	}
	for _, mode := range []vgpuctl.Mode{vgpuctl.ModeOff, vgpuctl.ModeEnforce, 3, vgpuctl.ModeDryRun} {
		say("mode", nil, d.SetMode(mode))
		info, err := d.Info()
		say("info", []any{info.ABIVersion, info.Mode, info.MayEnforce, info.Hooked}, err)
	}
	return all
}

// TestVgpuctlStandIn: vgputest, which replaces the module in unit tests, answers as the module does.
func TestVgpuctlStandIn(t *testing.T) {
	load(t, "fakegpu", "nvidia=1", someGPUs)
	sleeper := hold(t, "", "rm_alloc_smoke", "4096", "1") // before vgpu is loaded
	_, id := cgroup(t, "standin")
	for _, mayEnforce := range []uint32{0, 1} {
		d := withVgpu(t, fmt.Sprintf("allow_enforce=%d", mayEnforce))
		standIn := vgputest.New()
		standIn.Info.MayEnforce = mayEnforce
		pid := uint32(sleeper.Process.Pid)
		standIn.Processes, standIn.Cgroups = map[uint32]bool{pid: true}, map[uint64]bool{id: true}
		got := answers(standIn.Open(), pid, id)
		for i, want := range answers(d, pid, id) {
			require.Equal(t, want, got[i])
		}
		require.NoError(t, d.Close())
		unload(t, "vgpu")
	}
}

// TestVgpuctlLost: a reader that was too slow learns how many events it missed.
func TestVgpuctlLost(t *testing.T) {
	d := withDriver(t)
	open := func(n int) {
		for range n {
			fd, err := unix.Open("/dev/nvidiactl", unix.O_RDWR|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			unix.Close(fd)
		}
	}
	events := d.Events()
	open(1)
	first, lost, err := events.Next(t.Context())
	require.NoError(t, err)
	assert.Zero(t, lost)
	assert.Equal(t, vgpuctl.EventOpen, first.Type)
	assert.Equal(t, "init", first.Comm.String())
	assert.EqualValues(t, 1, first.Tgid)
	open(3000)
	seen, missed, last := uint64(1), uint64(0), first.Sequence
	for s := stats(t, d); last < s.Events; {
		ctx, cancel := context.WithTimeout(t.Context(), hangs)
		e, lost, err := events.Next(ctx)
		cancel()
		require.NoError(t, err)
		assert.Equal(t, last+1+lost, e.Sequence)
		seen, missed, last = seen+1, missed+lost, e.Sequence
	}
	s := stats(t, d)
	assert.Equal(t, s.Events, last)
	assert.Equal(t, seen+missed, last-first.Sequence+1)
	assert.NotZero(t, missed)
	assert.Equal(t, s.EventsLost, missed)
}

// TestVgpuctlCgroups: the ways to find a cgroup's id.
func TestVgpuctlCgroups(t *testing.T) {
	path, err := vgpuctl.CgroupOfPID(1)
	require.NoError(t, err)
	assert.Equal(t, "/sys/fs/cgroup", path)
	cgroup(t, "ways")
	dir, id := cgroup(t, "ways/a b")
	got, err := vgpuctl.CgroupID(dir)
	require.NoError(t, err)
	assert.Equal(t, id, got)
	assert.Equal(t, dir, vgpuctl.CgroupPaths()[id])
	cmd := inCgroup(t, exec.Command("/bin/vgpuctl", "watch"), dir)
	cmd.SysProcAttr.Ptrace = true // it stops before its first instruction
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, cmd.Start())
	path, err = vgpuctl.CgroupOfPID(cmd.Process.Pid)
	assert.NoError(t, err)
	assert.Equal(t, dir, path)
	require.NoError(t, cmd.Process.Kill())
	cmd.Wait()

	require.NoError(t, os.Remove(dir))
	_, err = vgpuctl.CgroupID(dir)
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = vgpuctl.CgroupID("/sys/fs/cgroup/cgroup.procs")
	assert.ErrorIs(t, err, unix.ENOTDIR)
	_, err = vgpuctl.CgroupID("/sys")
	assert.ErrorIs(t, err, vgpuctl.ErrNotCgroup2)
	_, err = vgpuctl.CgroupOfPID(cmd.Process.Pid)
	assert.ErrorIs(t, err, unix.ESRCH)
}

// ---- The command ---------------------------------------------------------------------------------------------------

func TestVgpuctlCommands(t *testing.T) {
	d := withDriver(t, "allow_enforce=1", "memory_alloc_min_bytes=1")
	dir, id := cgroup(t, "commands")

	o := run(t, "vgpuctl", "status").succeeds(t)
	assert.Regexp(t, `^driver +fakegpu \S+\nmode +dry-run\nmay enforce +yes\ninterface +1\n$`, o.stdout)
	for _, mode := range []string{"off", "enforce", "dry-run", "enforce"} {
		run(t, "vgpuctl", "mode", mode).succeeds(t)
		assert.Equal(t, mode, vgpuctlJSON[map[string]any](t, "status")["mode"])
	}

	run(t, "vgpuctl", "policy", "set", "--pid", "1", "--gpu", "1", "--memory", "64M", "--weight", "3", "--timeslice-min", "500us", "--timeslice-max", "2ms", "--dry-run").succeeds(t)
	run(t, "vgpuctl", "policy", "set", "--cgroup", dir, "--memory", "96M").succeeds(t)
	assert.Equal(t, "memory          64M\nweight          3\ntimeslice-min   500us\ntimeslice-max   2ms\ndry-run         yes\n",
		run(t, "vgpuctl", "policy", "get", "--pid", "1", "--gpu", "1").succeeds(t).stdout)
	limits, err := d.GetCgroupPolicy(id, vgpuctl.MinorAny)
	require.NoError(t, err)
	assert.Equal(t, vgpuctl.Limits{MemoryLimitBytes: 96 * mib}, limits)
	type row = map[string]any
	list := vgpuctlJSON[map[string][]row](t, "policy", "list")
	require.Len(t, list["policies"], 1)
	assert.Subset(t, list["policies"][0], row{"tgid": 1.0, "minor": 1.0, "memory_limit_bytes": float64(64 * mib), "weight": 3.0})
	require.Len(t, list["cgroup_policies"], 1)
	assert.Subset(t, list["cgroup_policies"][0], row{"cgroup_id": float64(id), "minor": "any", "cgroup": dir})
	assert.Regexp(t, fmt.Sprintf(`(?s)^policies\nTGID +MINOR .*\n1 +1 +67108864 .*\n\ncgroup_policies\n.*\n%d +any +100663296 .* %s\n$`, id, dir),
		run(t, "vgpuctl", "policy", "list").succeeds(t).stdout)

	holder := hold(t, dir, "rm_alloc_smoke", "33554432", "4")
	assert.EqualValues(t, 96*mib, holder.bytes)
	pid := fmt.Sprint(holder.Process.Pid)
	for _, args := range [][]string{{"--pid", pid}, {"--cgroup", dir}, {"--cgroup", fmt.Sprint(id), "--gpu", "0"}} {
		usage := vgpuctlJSON[row](t, append([]string{"usage"}, args...)...)
		assert.Subset(t, usage, row{"device_bytes": float64(96 * mib), "peak_device_bytes": float64(96 * mib), "allocations": 3.0, "denied": 1.0}, "%v", args)
	}
	assert.Contains(t, run(t, "vgpuctl", "usage", "--pid", pid).succeeds(t).stdout, "device memory    96M\nat most          96M\n")
	usage := vgpuctlJSON[map[string][]row](t, "usage")
	var tasks, cgroups int
	for _, r := range usage["tasks"] {
		if fmt.Sprint(r["tgid"]) == pid {
			assert.Subset(t, r, row{"comm": "rm_alloc_smoke", "cgroup_id": float64(id), "cgroup": dir, "device_bytes": float64(96 * mib)})
			tasks++
		}
	}
	for _, r := range usage["cgroups"] {
		if r["cgroup"] == dir {
			assert.Subset(t, r, row{"device_bytes": float64(96 * mib)})
			cgroups++
		}
	}
	assert.Equal(t, 1, tasks, "%v", usage)
	assert.Equal(t, 1, cgroups, "%v", usage)
	assert.Contains(t, run(t, "vgpuctl", "usage").succeeds(t).stdout, dir+"\n")

	counts := vgpuctlJSON[vgpuctl.Stats](t, "stats")
	assert.EqualValues(t, 3, counts.MemoryCharged)
	assert.EqualValues(t, 1, counts.MemoryDenied)
	assert.Regexp(t, `(?m)^memory_denied +1$`, run(t, "vgpuctl", "stats").succeeds(t).stdout)

	run(t, "vgpuctl", "policy", "clear", "--pid", "1", "--gpu", "1").succeeds(t)
	run(t, "vgpuctl", "policy", "clear", "--cgroup", dir).succeeds(t)
	list = vgpuctlJSON[map[string][]row](t, "policy", "list")
	assert.Equal(t, map[string][]row{"policies": {}, "cgroup_policies": {}}, list)

	// A policy ends with its process or cgroup.
	run(t, "vgpuctl", "policy", "set", "--pid", pid, "--memory", "1G").succeeds(t)
	gone, goneID := cgroup(t, "commands-gone")
	run(t, "vgpuctl", "policy", "set", "--cgroup", gone, "--memory", "1G").succeeds(t)
	holder.kill()
	require.NoError(t, os.Remove(gone))
	eventually(t, "the policies are gone", func() bool {
		s := stats(t, d)
		return s.Policies == 0 && s.CgroupPolicies == 0
	})
	run(t, "vgpuctl", "policy", "get", "--pid", pid).refused(t, 1, "no such process: name a process that runs")
	run(t, "vgpuctl", "policy", "get", "--cgroup", fmt.Sprint(goneID)).refused(t, 1, "there is no policy for exactly that")
}

// TestVgpuctlRefusals: the command explains what the kernel refuses.
func TestVgpuctlRefusals(t *testing.T) {
	for _, args := range [][]string{{"status"}, {"policy", "list"}} {
		run(t, "vgpuctl", args...).refused(t, 1, "load the module with make -C kernel load")
	}
	run(t, "vgpuctl", "exec", "--memory", "1G", "client").refused(t, 125, "the module is not loaded")
	assert.Empty(t, execCgroups(t, "/sys/fs/cgroup"))

	d := withDriver(t)
	require.NoError(t, d.SetPolicy(1, vgpuctl.MinorAny, vgpuctl.Limits{MemoryLimitBytes: 5}))
	for who, as := range map[string]*syscall.SysProcAttr{
		"user":           {Credential: &syscall.Credential{Uid: 1000, Gid: 1000}},
		"root elsewhere": {Cloneflags: unix.CLONE_NEWUSER, UidMappings: idMap, GidMappings: idMap},
	} {
		t.Run(who, func(t *testing.T) {
			vgpuctl := func(args ...string) outcome {
				cmd := exec.Command("/bin/vgpuctl", args...)
				cmd.SysProcAttr = as
				return finish(t, cmd)
			}
			vgpuctl("status").refused(t, 1, "run this as root, in the initial user namespace")
			vgpuctl("policy", "set", "--pid", "1", "--memory", "1G").refused(t, 1, "run this as root, in the initial user namespace")
			if who == "user" {
				vgpuctl("policy", "list").refused(t, 1, "permission denied: run this as root")
			}
		})
	}
	limits, err := d.GetPolicy(1, vgpuctl.MinorAny)
	require.NoError(t, err)
	assert.EqualValues(t, 5, limits.MemoryLimitBytes)

	run(t, "vgpuctl", "mode", "enforce").refused(t, 1, "the module must have been loaded with allow_enforce=1 and know the driver")
	run(t, "vgpuctl", "policy", "set", "--pid", "99999", "--memory", "1G").refused(t, 1, "no such process")
	run(t, "vgpuctl", "policy", "set", "--cgroup", "99999999", "--memory", "1G").refused(t, 1, "name a folder of cgroup2 that is there")
	run(t, "vgpuctl", "policy", "set", "--cgroup", "/sys", "--memory", "1G").refused(t, 1, "it is no cgroup of version 2")
	run(t, "vgpuctl", "policy", "set", "--cgroup", "/sys/fs/cgroup/nonesuch", "--memory", "1G").refused(t, 1, "no such file or directory")
	run(t, "vgpuctl", "policy", "set", "--pid", "1", "--gpu", "248", "--memory", "1G").refused(t, 1, "there is no GPU 248: want at most 247")
	run(t, "vgpuctl", "policy", "get", "--pid", "1", "--gpu", "0").refused(t, 1, "there is no policy for exactly that")
	run(t, "vgpuctl", "policy", "set", "--pid", "1", "--memory", "1GB").refused(t, 2, `"1GB" is no size`)
}

// idMap maps root to root.
var idMap = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}

// TestVgpuctlNamespaces: a cgroup namespace has only the cgroups below its root, and a PID namespace has only its own
// processes.
func TestVgpuctlNamespaces(t *testing.T) {
	d := withDriver(t)
	inside, insideID := cgroup(t, "namespace")
	below, belowID := cgroup(t, "namespace/below")
	outside, _ := cgroup(t, "outside")
	vgpuctl := func(flags uintptr, args ...string) outcome {
		// The namespace's root is the cgroup of its first process, so clone starts that process in the cgroup.
		cmd := inCgroup(t, exec.Command("/bin/vgpuctl", args...), inside)
		cmd.SysProcAttr.Cloneflags = flags
		return finish(t, cmd)
	}
	vgpuctl(unix.CLONE_NEWCGROUP, "policy", "set", "--cgroup", below, "--memory", "3G").succeeds(t)
	vgpuctl(unix.CLONE_NEWCGROUP, "policy", "set", "--cgroup", inside, "--memory", "2G").succeeds(t)
	vgpuctl(unix.CLONE_NEWCGROUP, "policy", "set", "--cgroup", outside, "--memory", "1G").refused(t, 1, "that is there, and in this cgroup namespace")
	assert.Len(t, table(t, "cgroup_policies"), 2)
	for id, want := range map[uint64]uint64{insideID: 2 << 30, belowID: 3 << 30} {
		limits, err := d.GetCgroupPolicy(id, 0xffffffff)
		require.NoError(t, err)
		assert.Equal(t, want, limits.MemoryLimitBytes)
	}
	// In a new PID namespace its own number is 1. The policy has its number in the initial namespace, and has ended
	// with it.
	vgpuctl(unix.CLONE_NEWPID, "policy", "set", "--pid", "1", "--memory", "1G").succeeds(t)
	vgpuctl(unix.CLONE_NEWPID, "policy", "set", "--pid", "2", "--memory", "1G").refused(t, 1, "by its number in this PID namespace")
	_, err := d.GetPolicy(1, 0xffffffff)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// watching is a running vgpuctl watch.
type watching struct {
	*exec.Cmd
	output string // a file with what it prints
}

func watch(t *testing.T, args ...string) watching {
	t.Helper()
	output, err := os.Create(filepath.Join(t.TempDir(), "events"))
	require.NoError(t, err)
	defer output.Close()
	w := watching{exec.CommandContext(t.Context(), "/bin/vgpuctl", append([]string{"watch"}, args...)...), output.Name()}
	w.Stdout, w.Stderr = output, os.Stderr
	require.NoError(t, w.Start())
	eventually(t, "watch has opened the device", func() bool {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", w.Process.Pid))
		for _, l := range links {
			if to, _ := os.Readlink(l); to == vgpuctl.Path {
				return true
			}
		}
		return false
	})
	return w
}

// printed is its output so far.
func (w watching) printed(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(w.output)
	require.NoError(t, err)
	return string(text)
}

// events waits for its end and decodes the lines.
func (w watching) events(t *testing.T) (events []map[string]any) {
	t.Helper()
	require.NoError(t, w.Wait())
	for line := range strings.Lines(w.printed(t)) {
		var e map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &e), line)
		events = append(events, e)
	}
	return events
}

func TestVgpuctlWatch(t *testing.T) {
	withDriver(t, enforcing...)
	dir, id := cgroup(t, "watch")
	run(t, "vgpuctl", "policy", "set", "--cgroup", dir, "--memory", "64M").succeeds(t)

	all := watch(t, "--json", "--cgroup", dir)
	denials := watch(t, "--json", "--type", "deny,exit", "--count", "2")
	text := watch(t, "--type", "deny", "--count", "1")
	cmd := inCgroup(t, exec.Command("/bin/rm_alloc_smoke", "33554432", "3", "0"), dir)
	o := finish(t, cmd)
	assert.Equal(t, 3, o.code)
	assert.Contains(t, o.stdout, "alloc 2: status 0x51")
	pid := float64(cmd.Process.Pid)

	got := denials.events(t)
	require.Len(t, got, 2)
	want := map[string]any{"type": "deny", "tgid": pid, "cgroup_id": float64(id), "minor": 0.0, "scope": "cgroup", "value": float64(32 * mib), "detail": float64(64 * mib),
		"status": float64(0x51), "code": float64(0x40), "comm": "rm_alloc_smoke", "flags": []any{}}
	assert.Subset(t, got[0], want)
	assert.Subset(t, got[1], map[string]any{"type": "exit", "tgid": pid, "comm": "rm_alloc_smoke"})
	require.NoError(t, text.Wait())
	assert.Regexp(t, fmt.Sprintf(`^\d+\.\d{6} deny      rm_alloc_smoke\[%d\] gpu=0 asked=32M limit=64M scope=cgroup cgroup=%d .*code=0x40 status=0x51\n$`, int(pid), id),
		text.printed(t))

	eventually(t, "watch has printed all", func() bool { return strings.Contains(all.printed(t), `"type":"exit"`) })
	require.NoError(t, all.Process.Signal(unix.SIGINT))
	kinds, bytes := map[any]int{}, map[any]float64{}
	last := 0.0
	for _, e := range all.events(t) {
		kinds[e["type"]]++
		bytes[e["type"]] += e["value"].(float64)
		assert.Equal(t, pid, e["tgid"])
		assert.Greater(t, e["time_ns"], last)
		last = e["time_ns"].(float64)
		assert.NotContains(t, e, "lost")
	}
	for _, kind := range []string{"open", "close", "alloc", "free", "deny", "exit"} {
		assert.NotZero(t, kinds[kind], "%s: %v", kind, kinds)
	}
	assert.EqualValues(t, 64*mib, bytes["alloc"])
	assert.EqualValues(t, 64*mib, bytes["free"])
}

// execCgroups are the cgroups that exec has made below a folder.
func execCgroups(t *testing.T, parent string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(parent, "vgpuctl-*"))
	require.NoError(t, err)
	return found
}

func TestVgpuctlExec(t *testing.T) {
	d := withDriver(t, enforcing...)
	const root = "/sys/fs/cgroup"
	o := run(t, "vgpuctl", "exec", "--memory", "64M", "--", "rm_alloc_smoke", "33554432", "4", "0")
	assert.Equal(t, 3, o.code, "of the program")
	assert.Contains(t, o.stdout, "holding 67108864 bytes")
	assert.Contains(t, o.stdout, "alloc 2: status 0x51")
	assert.Empty(t, o.stderr)
	assert.Empty(t, execCgroups(t, root))
	eventually(t, "the policy is gone", func() bool { return stats(t, d).CgroupPolicies == 0 })

	// The limit also applies to what the program starts: here another vgpuctl, whose own policy allows more.
	parent, _ := cgroup(t, "exec")
	o = run(t, "vgpuctl", "exec", "--parent", parent, "--memory", "64M", "vgpuctl", "exec", "--memory", "1G", "--weight", "2", "rm_alloc_smoke", "33554432", "4", "0")
	assert.Equal(t, 3, o.code)
	assert.Contains(t, o.stdout, "holding 67108864 bytes")
	assert.Empty(t, execCgroups(t, parent))

	// With --dry-run, or for another GPU, nothing is refused.
	run(t, "vgpuctl", "exec", "--memory", "64M", "--dry-run", "rm_alloc_smoke", "33554432", "4", "0").succeeds(t)
	run(t, "vgpuctl", "exec", "--memory", "64M", "--gpu", "1", "rm_alloc_smoke", "33554432", "4", "0").succeeds(t)
	assert.Contains(t, run(t, "vgpuctl", "exec", "--weight", "3", "--timeslice-max", "5ms", "rm_timeslice_smoke", "1500").succeeds(t).stdout, "get: status 0, 4500 us\nclient")

	assert.Equal(t, 127, run(t, "vgpuctl", "exec", "--memory", "1G", "nonesuch").code)
	run(t, "vgpuctl", "exec", "--memory", "1G", "--parent", "/tmp", "client").refused(t, 125, "it is no cgroup of version 2")
	assert.Empty(t, execCgroups(t, root))
}

// TestVgpuctlExecSignals: exec forwards signals to the program, and its status tells which signal ended the program.
func TestVgpuctlExecSignals(t *testing.T) {
	d := withDriver(t, enforcing...)
	parent, _ := cgroup(t, "signals")
	start := func() (*exec.Cmd, string, *bytes.Buffer) {
		cmd := exec.CommandContext(t.Context(), "/bin/vgpuctl", "exec", "--parent", parent, "--memory", "64M", "rm_alloc_smoke", "33554432", "1", "100")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		require.NoError(t, cmd.Start())
		var folder string
		eventually(t, "the program holds its memory", func() bool {
			if folders := execCgroups(t, parent); len(folders) == 1 {
				folder = folders[0]
				id, err := vgpuctl.CgroupID(folder)
				return err == nil && cgroupBytes(t, d, id) == 32*mib
			}
			return false
		})
		return cmd, folder, &stderr
	}
	for signal, want := range map[syscall.Signal]int{unix.SIGTERM: 128 + 15, unix.SIGHUP: 128 + 1, unix.SIGUSR1: 128 + 10} {
		cmd, folder, stderr := start()
		require.NoError(t, cmd.Process.Signal(unix.SIGINT)) // as from a terminal, which sends it to the program as well
		require.NoError(t, cmd.Process.Signal(signal))
		cmd.Wait()
		assert.Equal(t, want, cmd.ProcessState.ExitCode())
		assert.Empty(t, stderr.String())
		assert.NoDirExists(t, folder)
	}

	// If a program is left in the cgroup, the cgroup and its policy stay.
	cmd, folder, stderr := start()
	left := hold(t, folder, "rm_alloc_smoke", "33554432", "2")
	assert.EqualValues(t, 32*mib, left.bytes)
	require.NoError(t, cmd.Process.Signal(unix.SIGTERM))
	cmd.Wait()
	assert.Equal(t, 128+15, cmd.ProcessState.ExitCode())
	assert.Regexp(t, fmt.Sprintf("^vgpuctl: the cgroup %s stays, with its policy: processes %d are in it: remove it with rmdir when they have ended\n$",
		regexp.QuoteMeta(folder), left.Process.Pid), stderr.String())
	id, err := vgpuctl.CgroupID(folder)
	require.NoError(t, err)
	_, err = d.GetCgroupPolicy(id, vgpuctl.MinorAny)
	assert.NoError(t, err)
	left.kill()
	eventually(t, "the folder can be removed", func() bool { return os.Remove(folder) == nil })
}
