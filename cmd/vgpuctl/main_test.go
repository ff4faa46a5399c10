package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl/vgputest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// bench is a command with a simulated kernel module.
type bench struct {
	*testing.T
	module  *vgputest.Module
	printed func() // called after each write
	surroundings
}

// output is what a command prints.
type output struct {
	text    bytes.Buffer
	printed func()
}

func (o *output) Write(p []byte) (int, error) {
	if o.printed != nil {
		defer o.printed()
	}
	return o.text.Write(p)
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, module: vgputest.New()}
	b.surroundings = surroundings{
		ctx: t.Context(), debugfs: t.TempDir(),
		open: func() (*vgpuctl.Device, error) { return b.module.Open(), nil },
		cgroupID: func(path string) (uint64, error) {
			if path == "/sys/fs/cgroup/jobs" {
				return 55, nil
			}
			return 0, &vgpuctl.Error{Op: "find cgroup " + path, Err: unix.ENOENT, Advice: "name one"}
		},
		cgroupPaths: func() map[uint64]string { return map[uint64]string{55: "/sys/fs/cgroup/jobs"} },
	}
	return b
}

// says runs the command and requires this output.
func (b *bench) says(command, want string) {
	b.Helper()
	stdout, stderr, status := b.run(strings.Fields(command)...)
	assert.Zero(b, status, "%s: %s", command, stderr)
	assert.Empty(b, stderr, command)
	assert.Equal(b, want, stdout, command)
}

// fails requires an exit status and one line on standard error.
func (b *bench) fails(command string, want int, line string) {
	b.Helper()
	stdout, stderr, status := b.run(strings.Fields(command)...)
	assert.Equal(b, want, status, command)
	assert.Empty(b, stdout, command)
	assert.Equal(b, "vgpuctl: "+line+"\n", stderr, command)
}

func (b *bench) run(args ...string) (string, string, int) {
	stdout, stderr := output{printed: b.printed}, output{}
	s := b.surroundings
	s.stdout, s.stderr = &stdout, &stderr
	status := run(args, &s)
	return stdout.text.String(), stderr.text.String(), status
}

func TestStatus(t *testing.T) {
	b := newBench(t)
	b.says("status", `driver        nvidia 580.105.08
mode          dry-run
may enforce   yes
interface     1
`)
	b.says("--json status", `{
  "abi_version": 1,
  "mode": "dry-run",
  "may_enforce": 1,
  "hooked": 1,
  "driver": "nvidia",
  "driver_version": "580.105.08"
}
`)
	b.module.Info.MayEnforce, b.module.Info.Hooked = 0, 0
	b.says("status", `driver        nvidia 580.105.08, not hooked: the kernel log says why
mode          dry-run
may enforce   no: it takes allow_enforce=1 when the module is loaded, and a driver that it knows
interface     1
`)
	b.module.Info.Driver = vgpuctl.Text32{}
	stdout, _, _ := b.run("status")
	assert.Contains(t, stdout, "driver        none: load NVIDIA's, or fakegpu with nvidia=1\n")
}

func TestMode(t *testing.T) {
	b := newBench(t)
	b.says("mode enforce", "")
	assert.Equal(t, vgpuctl.ModeEnforce, b.module.Info.Mode)
	b.says("mode off", "")
	assert.Equal(t, vgpuctl.ModeOff, b.module.Info.Mode)
	b.module.Info.MayEnforce = 0
	b.fails("mode enforce", 1, "cannot set the mode enforce: operation not permitted: the module must have been loaded with allow_enforce=1 "+
		"and know the driver, see vgpuctl status: make -C kernel reload ALLOW_ENFORCE=1")
}

func TestPolicy(t *testing.T) {
	b := newBench(t)
	b.module.Processes = map[uint32]bool{7: true}
	b.says("policy set --pid 7 --gpu 1 --memory 8G --weight 3 --timeslice-min 500us --timeslice-max 2ms --dry-run", "")
	b.says("policy get --pid 7 --gpu 1", `memory          8G
weight          3
timeslice-min   500us
timeslice-max   2ms
dry-run         yes
`)
	b.says("policy set --cgroup /sys/fs/cgroup/jobs --weight 1", "")
	b.says("policy get --cgroup 55 --gpu any", `memory          no limit
weight          1
timeslice-min   the module's
timeslice-max   the module's
dry-run         no
`)
	b.says("policy get --pid 7 --gpu 1 --json", `{
  "tgid": 7,
  "minor": 1,
  "limits": {
    "memory_limit_bytes": 8589934592,
    "timeslice_min_us": 500,
    "timeslice_max_us": 2000,
    "weight": 3,
    "flags": [
      "dry-run"
    ]
  }
}
`)
	b.says("policy get --cgroup 55 --json", `{
  "cgroup_id": 55,
  "minor": "any",
  "limits": {
    "memory_limit_bytes": 0,
    "timeslice_min_us": 0,
    "timeslice_max_us": 0,
    "weight": 1,
    "flags": []
  }
}
`)
	b.says("policy set --pid 7 --memory 0", "")
	assert.ElementsMatch(t, b.module.Policies(), []vgpuctl.Policy{
		{Tgid: 7, Minor: vgpuctl.MinorAny},
		{Tgid: 7, Minor: 1, Limits: vgpuctl.Limits{MemoryLimitBytes: 8 << 30, TimesliceMinUs: 500, TimesliceMaxUs: 2000, Weight: 3, Flags: 1}},
	})
	b.says("policy clear --pid 7 --gpu 1", "")
	b.says("policy clear --pid 7", "")
	b.says("policy clear --cgroup /sys/fs/cgroup/jobs", "")
	assert.Empty(t, b.module.Policies())
	assert.Empty(t, b.module.CgroupPolicies())

	b.fails("policy clear --pid 7", 1, "cannot clear the policy of process 7 for any GPU: no such file or directory: "+
		"there is no policy for exactly that: vgpuctl policy list shows those there are")
	b.fails("policy get --cgroup 55 --gpu 2", 1, "cannot read the policy of cgroup 55 for GPU 2: no such file or directory: "+
		"there is no policy for exactly that: vgpuctl policy list shows those there are")
	b.fails("policy set --pid 8 --memory 1G", 1, "cannot set the policy of process 8 for any GPU: no such process: "+
		"name a process that runs, by its number in this PID namespace")
	b.fails("policy set --cgroup /x --memory 1G", 1, "cannot find cgroup /x: no such file or directory: name one")
	b.fails("policy set --pid 7", 1, "there is no limit: give --memory, --weight, --timeslice-min or --timeslice-max; "+
		"--memory 0 exempts from a wider policy")
	b.fails("policy set --pid 7 --weight 10001", 1, "the weight is 10001: want at most 10000")
	b.fails("policy set --pid 7 --timeslice-min 2ms --timeslice-max 1ms", 1,
		"the least timeslice, 2000 us, is longer than the greatest, 1000 us: want it the other way round")
}

func (b *bench) file(name, text string) {
	require.NoError(b, os.WriteFile(filepath.Join(b.debugfs, name), []byte(text), 0o600))
}

func TestList(t *testing.T) {
	b := newBench(t)
	b.fails("policy list", 1, "open "+b.debugfs+"/policies: no such file or directory: load the module with make -C kernel load, "+
		"and mount -t debugfs none /sys/kernel/debug")
	b.file("policies", "tgid minor memory_limit_bytes\n7 any 8589934592\n8    0        0\n")
	b.file("cgroup_policies", "cgroup_id minor weight\n55 1 3\n56 any 1\n")
	b.says("policy list", `policies
TGID   MINOR   MEMORY_LIMIT_BYTES
7      any     8589934592
8      0       0

cgroup_policies
CGROUP_ID   MINOR   WEIGHT   CGROUP
55          1       3        /sys/fs/cgroup/jobs
56          any     1        -
`)
	b.says("policy list --json", `{
  "cgroup_policies": [
    {
      "cgroup": "/sys/fs/cgroup/jobs",
      "cgroup_id": 55,
      "minor": 1,
      "weight": 3
    },
    {
      "cgroup": "-",
      "cgroup_id": 56,
      "minor": "any",
      "weight": 1
    }
  ],
  "policies": [
    {
      "memory_limit_bytes": 8589934592,
      "minor": "any",
      "tgid": 7
    },
    {
      "memory_limit_bytes": 0,
      "minor": 0,
      "tgid": 8
    }
  ]
}
`)
	b.file("policies", "tgid minor\n")
	b.file("cgroup_policies", "cgroup_id\n")
	b.says("policy list", "policies\nTGID   MINOR\n\ncgroup_policies\nCGROUP_ID   CGROUP\n")
	b.file("policies", "tgid minor\n7\n")
	b.fails("policy list", 1, b.debugfs+`/policies: "7" has 1 columns, want 2: use the vgpuctl of the module's release`)
	b.file("policies", "\n")
	b.fails("policy list", 1, b.debugfs+"/policies has no line with the names of its columns: use the vgpuctl of the module's release")
}

func TestUsageOf(t *testing.T) {
	b := newBench(t)
	b.module.Usage = []vgpuctl.Usage{
		{Tgid: 7, Minor: 1, DeviceBytes: 512 << 20, PeakDeviceBytes: 1 << 30, SystemBytes: 4096, VirtualBytes: 1 << 40, Allocations: 5, Denied: 6, Timeslices: 7, TimesliceUs: 2000},
		{CgroupID: 55, Minor: vgpuctl.MinorAny},
	}
	b.says("usage --pid 7 --gpu 1", `device memory    512M
at most          1G
system memory    4K
addresses        1T
allocations      5
denied           6
timeslices set   7
last timeslice   2ms
`)
	b.says("usage --cgroup /sys/fs/cgroup/jobs --json", `{
  "cgroup_id": 55,
  "tgid": 0,
  "minor": "any",
  "device_bytes": 0,
  "system_bytes": 0,
  "virtual_bytes": 0,
  "peak_device_bytes": 0,
  "allocations": 0,
  "denied": 0,
  "timeslices": 0,
  "timeslice_us": 0
}
`)
	b.module.Processes = map[uint32]bool{7: true}
	b.fails("usage --pid 8", 1, "cannot read what process 8 uses of any GPU: no such process: name a process that runs, by its number in this PID namespace")
	b.file("tasks", "tgid comm\n7 python3\n")
	b.file("cgroups", "cgroup_id device_bytes\n55 9\n")
	b.says("usage", `tasks
TGID   COMM
7      python3

cgroups
CGROUP_ID   DEVICE_BYTES   CGROUP
55          9              /sys/fs/cgroup/jobs
`)
}

func TestStats(t *testing.T) {
	b := newBench(t)
	b.module.Stats = vgpuctl.Stats{Opens: 1, TimeslicesWouldRewrite: 12345, EventsLost: 3}
	stdout, _, status := b.run("stats")
	assert.Zero(t, status)
	assert.Contains(t, stdout, "opens                      1\ncloses                     0\n")
	assert.Contains(t, stdout, "timeslices_would_rewrite   12345\n")
	assert.Equal(t, 24, strings.Count(stdout, "\n"))
	stdout, _, _ = b.run("stats", "--json")
	assert.Contains(t, stdout, "  \"events_lost\": 3,\n")
}

var comm = vgpuctl.Text16{'p', 'y'}

// events are one event of each kind.
var events = []vgpuctl.Event{
	{TimeNs: 12_345_678_901, Type: vgpuctl.EventOpen, Tgid: 7, Minor: vgpuctl.MinorAny, Comm: comm},
	{TimeNs: 12_345_679_000, Type: vgpuctl.EventAlloc, Tgid: 7, Minor: 0, Value: 512 << 20, Client: 0xc1d00001, Object: 0xcaf00001, Code: 0x40, Comm: comm},
	{TimeNs: 12_345_680_000, Type: vgpuctl.EventDeny, Flags: vgpuctl.EventDryRun | vgpuctl.EventXfer, Tgid: 8, Minor: 0, Scope: vgpuctl.ScopeCgroup, CgroupID: 55,
		Value: 8 << 30, Detail: 4 << 30, Code: 0x40, Status: 0x51, Comm: vgpuctl.Text16{'a', ' ', 0x1b, '['}},
	{TimeNs: 13_000_000_000, Type: vgpuctl.EventTimeslice, Tgid: 7, Minor: 1, Scope: vgpuctl.ScopeTgid, Value: 1000, Detail: 3000, Comm: comm},
	{TimeNs: 13_000_001_000, Type: vgpuctl.EventExit, Tgid: 7, Minor: vgpuctl.MinorAny, Value: 4096, Comm: comm},
	{TimeNs: 13_000_002_000, Type: vgpuctl.EventRace, Tgid: 7, Minor: vgpuctl.MinorAny, Value: 1, Detail: 2, Comm: comm},
	{TimeNs: 13_000_003_000, Type: vgpuctl.EventCgroupGone, Minor: vgpuctl.MinorAny, CgroupID: 55},
	{TimeNs: 13_000_004_000, Type: 99, Tgid: 7, Minor: vgpuctl.MinorAny, Value: 1, Detail: 2, Comm: comm},
}

// watch runs watch, sends events, and returns what it prints.
func (b *bench) watch(command string, send func()) (stdout, stderr string, status int) {
	opened := make(chan bool)
	open := b.open
	b.open = func() (*vgpuctl.Device, error) {
		d, err := open()
		close(opened)
		return d, err
	}
	defer func() { b.open = open }()
	var wait sync.WaitGroup
	wait.Go(func() { stdout, stderr, status = b.run(strings.Fields(command)...) })
	<-opened
	send()
	wait.Wait()
	return stdout, stderr, status
}

func TestWatch(t *testing.T) {
	b := newBench(t)
	b.module.Emit(events...) // too early
	stdout, stderr, status := b.watch("watch --count 8", func() { b.module.Emit(events...) })
	assert.Zero(t, status)
	assert.Empty(t, stderr)
	assert.Equal(t, `12.345678 open      py[7] gpu=any
12.345679 alloc     py[7] gpu=0 bytes=512M client=0xc1d00001 object=0xcaf00001 code=0x40
12.345680 deny      "a \x1b["[8] gpu=0 asked=8G limit=4G scope=cgroup cgroup=55 code=0x40 status=0x51 dry-run xfer
13.000000 timeslice py[7] gpu=1 asked=1ms got=3ms scope=tgid
13.000001 exit      py[7] gpu=any held=4K
13.000002 race      py[7] gpu=any checked=0x1 found=0x2
13.000003 cgroup-gone ""[0] gpu=any cgroup=55
13.000004 99        py[7] gpu=any value=1 detail=2
`, stdout)

	stdout, _, _ = b.watch("watch --count 2 --type deny,timeslice --type exit", func() { b.module.Emit(events...) })
	assert.Equal(t, 2, strings.Count(stdout, "\n"))
	assert.Contains(t, stdout, " deny ")
	assert.Contains(t, stdout, " timeslice ")

	stdout, _, _ = b.watch("watch --count 1 --pid 8 --json", func() { b.module.Emit(events...) })
	assert.Equal(t, `{"sequence":27,"time_ns":12345680000,"type":"deny","flags":["dry-run","xfer"],"tgid":8,"tid":0,"cgroup_id":55,"minor":0,`+
		`"scope":"cgroup","value":8589934592,"detail":4294967296,"client":0,"object":0,"code":64,"status":81,"comm":"a \u001b["}`+"\n", stdout)
	stdout, _, _ = b.watch("watch --count 2 --cgroup /sys/fs/cgroup/jobs", func() { b.module.Emit(events...) })
	assert.Contains(t, stdout, " deny ")
	assert.Contains(t, stdout, " cgroup-gone ")
}

// TestWatchLost: a line, or a field of the next printed event, says how many events were lost.
func TestWatchLost(t *testing.T) {
	for how, want := range map[string]string{
		"":       `^12.345678 open .*\n300 events were lost here: they came faster than they were read\n13.000001 exit .*\n$`,
		"--json": `^{.*"type":"open".*"comm":"py"}\n{.*"type":"exit".*"lost":300}\n$`,
	} {
		b := newBench(t)
		printed := make(chan bool, 9)
		b.printed = func() { printed <- true }
		stdout, _, status := b.watch("watch --type open,exit --count 2 "+how, func() {
			b.module.Emit(events[0])
			<-printed
			b.module.Emit(append(slices.Repeat(events[1:2], vgputest.EventsKept+299), events[4])...)
		})
		assert.Zero(t, status)
		assert.Regexp(t, want, stdout)
	}
}

func TestWatchEnds(t *testing.T) {
	b := newBench(t)
	stdout, stderr, status := b.watch("watch", func() { assert.NoError(t, unix.Kill(os.Getpid(), unix.SIGINT)) })
	assert.Zero(t, status)
	assert.Empty(t, stdout+stderr)
	ctx, cancel := context.WithCancel(t.Context())
	b.ctx = ctx
	stdout, stderr, status = b.watch("watch", cancel)
	assert.Zero(t, status)
	assert.Empty(t, stdout+stderr)
}

func TestNoModule(t *testing.T) {
	b := newBench(t)
	b.open = func() (*vgpuctl.Device, error) { return nil, errors.New("not loaded") }
	for _, command := range []string{"status", "mode off", "stats", "watch", "usage --pid 7", "policy get --pid 7", "policy clear --pid 7", "policy set --pid 7 --memory 1G"} {
		b.fails(command, 1, "not loaded")
	}
}

func TestBadUse(t *testing.T) {
	b := newBench(t)
	for command, want := range map[string]string{
		"":                                     `expected one of "status", "mode", "policy", "usage", "stats"`,
		"stat":                                 "unexpected argument stat, did you mean",
		"mode":                                 `expected "<mode>"`,
		"mode on":                              `<mode> must be one of "off","dry-run","enforce" but got "on"`,
		"policy":                               `expected one of "set", "get", "clear", "list"`,
		"policy set --memory 1G":               "say whose with --pid or --cgroup",
		"policy get":                           "say whose with --pid or --cgroup",
		"policy clear":                         "say whose with --pid or --cgroup",
		"policy get --pid 0":                   "say whose with --pid or --cgroup",
		"policy get --pid -1":                  "--pid",
		"policy get --pid x":                   "--pid",
		"usage --gpu 1":                        "say whose with --pid or --cgroup",
		"usage --pid 1 --cgroup /x":            "--pid and --cgroup can't be used together",
		"usage --pid 1 --gpu x":                `--gpu: "x" is no GPU: want the N of /dev/nvidiaN, or any`,
		"usage --pid 1 --gpu 4294967295":       `--gpu: "4294967295" is no GPU`,
		"policy set --pid 1 --memory 8GB":      `--memory: "8GB" is no size: want a whole number of bytes`,
		"policy set --pid 1 --weight -3":       "--weight",
		"policy set --pid 1 --timeslice-min 5": `--timeslice-min: "5" is no timeslice`,
		"policy set --pid 1 --timeslice-max 1500ns": `--timeslice-max: "1500ns" is no timeslice`,
		"watch --type alloc,bogus":                  `--type: "bogus" is no type of events: want one of ["open" "close"`,
		"exec --memory 1G":                          `expected "<cmd> ..."`,
		"exec --memory 1G --":                       `expected "<cmd> ..."`,
		"exec --memory 1G --bogus -- true":          "unknown flag --bogus",
	} {
		stdout, stderr, status := b.run(strings.Fields(command)...)
		assert.Equal(t, 2, status, command)
		assert.Empty(t, stdout, command)
		assert.Contains(t, stderr, want, command)
		assert.Regexp(t, `^vgpuctl: .*; see vgpuctl --help\n$`, stderr, command)
	}
}

// TestExecFails tests the failures before a cgroup exists. kernel/vm tests the others.
func TestExecFails(t *testing.T) {
	b := newBench(t)
	b.fails("exec -- true", 125, "there is no limit: give --memory, --weight, --timeslice-min or --timeslice-max; --memory 0 exempts from a wider policy")
	b.fails("exec --memory 1G nonesuch", 127, `cannot run "nonesuch": executable file not found in $PATH: name its path, or have its folder in PATH`)
	b.fails("exec --memory 1G /nonesuch", 127, `cannot run "/nonesuch": no such file or directory: name its path, or have its folder in PATH`)
	b.fails("exec --memory 1G /etc/passwd", 126, `cannot run "/etc/passwd": permission denied: name a program that may be executed`)
	dir := t.TempDir()
	_, stderr, status := b.run("exec", "--memory", "1G", "--parent", dir, "--", "true")
	assert.Equal(t, 125, status)
	assert.Contains(t, stderr, "it is no cgroup of version 2")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestHelp(t *testing.T) {
	b := newBench(t)
	for _, command := range []string{"", "status", "mode", "policy", "policy set", "policy get", "policy clear", "policy list", "usage", "stats", "watch", "exec"} {
		stdout, stderr, status := b.run(append(strings.Fields(command), "--help")...)
		assert.Zero(t, status, command)
		assert.Empty(t, stderr, command)
		if command != "policy" {
			assert.Contains(t, stdout, "vgpuctl "+command, command)
			assert.Contains(t, stdout, "Example", command)
		}
	}
}

// TestVerifyRefuses: what verify says where no check could pass. The checks themselves are tried in a virtual machine.
func TestVerifyRefuses(t *testing.T) {
	b := newBench(t)
	b.parameters = t.TempDir()
	b.fails("verify nonsense", 2, `"nonsense" is no check: want compute, cgroup, cgroup-policy, cgroup-compute or cgroup-memory`)
	b.fails("verify --gpu any", 2, "the checks need one GPU: give its number with --gpu")
	b.fails("verify --enforce", 1, "the module does not enforce, and verify does not change that: vgpuctl mode enforce, or leave out --enforce")
	b.fails("verify", 1, "the parameters of the module: open "+b.parameters+"/memory_alloc_min_bytes: no such file or directory")
	b.module.Info.Hooked = 0
	b.fails("verify", 1, "the module has hooked no driver: load NVIDIA's, or fakegpu with nvidia=1, and see vgpuctl status")
	b.module.Info.Hooked, b.module.Info.Mode = 1, vgpuctl.ModeOff
	b.fails("verify", 1, "the module is off: vgpuctl mode dry-run")
}

func TestAccounted(t *testing.T) {
	for least, want := range map[string]uint64{"1\n": 16 << 20, "16777216\n": 16 << 20, "16777217\n": 32 << 20, "1073741824\n": 1 << 30} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "memory_alloc_min_bytes"), []byte(least), 0o644))
		size, err := accounted(dir)
		require.NoError(t, err)
		assert.Equal(t, want, size)
	}
}
