package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// settable is a node whose GPUs can do all that nvidia-smi sets.
const settable = `
extends: h100
count: 2
device_defaults:
  clocks: {auto_boost: enabled, auto_boost_default: enabled}
  gpu_operation_mode: {current: all_on, pending: all_on}
  virtualization: {mode: none, host_vgpu_mode: sriov}
  thermal: {target_temperature_c: 80, target_temperature_min_c: 60, target_temperature_max_c: 90}
  ecc:
    errors:
      volatile: {single_bit: {device_memory: 5, total: 5}}
      aggregate: {single_bit: {device_memory: 9, total: 9}}
`

// setter is a command that changes a GPU, and what a later process reads of it.
type setter struct {
	args string
	want string // what it prints, as a pattern; "All done." comes after it
	code int
	// user is what it prints to somebody who is no administrator, with the exit code 4; empty if nvidia-smi does not get as
	// far as to ask.
	user string
	// read is what a process asks afterwards, with --query-gpu, or in capitals with -q or -q -d, and is what it reads.
	read, is string
}

const (
	denied       = `Insufficient Permissions\nTerminating early`
	deniedClocks = `The current user does not have permission to change clocks for GPU`
	noPersist    = `(?s).*Warning: persistence mode is disabled on device .*`
	clocksNow    = "clocks.gr,clocks.mem"
)

// setters are in the order in which they are run, on one state directory.
var setters = []setter{
	{"-pm 0", `Disabled persistence mode for GPU BUS\.\n`, 0, denied, "persistence_mode", "Disabled"},
	{"-pm 0", `Persistence mode is already Disabled for GPU BUS\.\n`, 0, "", "persistence_mode", "Disabled"},
	{"-pl 500", `Power limit for GPU BUS was set to 500\.00 W from 700\.00 W\.\n` + noPersist, 0, denied, "power.limit,enforced.power.limit", "500.00 W, 500.00 W"},
	{"-pl 900", `Provided power limit 900\.00 W is not a valid power limit which should be between 200\.00 W and 700\.00 W`, 2, "", "power.limit", "500.00 W"},
	{"-pl 199", `Provided power limit 199\.00 W is not a valid power limit`, 2, "", "power.limit", "500.00 W"},
	{"-pl 200", `Power limit for GPU BUS was set to 200\.00 W from 500\.00 W`, 0, denied, "power.limit,power.default_limit", "200.00 W, 700.00 W"},
	{"-lgc 600,900", `GPU clocks set to "\(gpuClkMin 600, gpuClkMax 900\)" for GPU BUS\n` + noPersist, 0, deniedClocks, clocksNow, "600 MHz, 2619 MHz"},
	{"-lgc 1980", `GPU clocks set to "\(gpuClkMin 1980, gpuClkMax 1980\)" for GPU BUS\n` + noPersist, 0, deniedClocks, clocksNow, "1980 MHz, 2619 MHz"},
	{"-lgc 900,600", `Specified clock combination "\(gpuClkMin 900, gpuClkMax 600\)" is not supported`, 0, deniedClocks, clocksNow, "1980 MHz, 2619 MHz"},
	{"-rgc", ``, 0, deniedClocks, clocksNow, "345 MHz, 2619 MHz"},
	{"-lmc 1593,1593", `Memory clocks set to "\(memClkMin 1593, memClkMax 1593\)" for GPU BUS\n` + noPersist, 0, deniedClocks, clocksNow, "345 MHz, 1593 MHz"},
	{"-lmc 100,200", `Specified clock combination "\(memClkMin 100, memClkMax 200\)" is not supported`, 0, deniedClocks, clocksNow, "345 MHz, 1593 MHz"},
	{"-rmc", ``, 0, deniedClocks, clocksNow, "345 MHz, 2619 MHz"},
	{"-ac 1593,1500", `Applications clocks set to "\(MEM 1593, SM 1500\)" for GPU BUS\n` + noPersist, 0, deniedClocks, "clocks.applications.mem,clocks.applications.gr", "1593 MHz, 1500 MHz"},
	{"-ac 1593,1501", `Specified clock combination "\(MEM 1593, SM 1501\)" is not supported`, 0, deniedClocks, "clocks.applications.gr", "1500 MHz"},
	{"-rac", ``, 0, deniedClocks, "clocks.applications.mem,clocks.applications.gr", "2619 MHz, 1980 MHz"},
	{"-c 3", `Set compute mode to EXCLUSIVE_PROCESS for GPU BUS\.\n`, 0, denied, "compute_mode", "Exclusive_Process"},
	{"-c 0", `Set compute mode to DEFAULT for GPU BUS\.\n`, 0, denied, "compute_mode", "Default"},
	{"-c 2", `Set compute mode to PROHIBITED for GPU BUS\.\n`, 0, denied, "compute_mode", "Prohibited"},
	{"-p 0", `Reset volatile ECC errors to zero for GPU BUS\.\n`, 0, denied,
		"ecc.errors.corrected.volatile.total,ecc.errors.corrected.aggregate.total", "0, 9"},
	{"-p 1", `Reset aggregate ECC errors to zero for GPU BUS\.\n`, 0, denied,
		"ecc.errors.corrected.volatile.total,ecc.errors.corrected.aggregate.total", "0, 0"},
	{"-e 0", `Disabled ECC support for GPU BUS\.\n`, 0, denied, "ecc.mode.current,ecc.mode.pending", "Enabled, Disabled"},
	{"-am 1", `Enabled Accounting Mode for GPU BUS\.\n` + noPersist, 0, denied, "accounting.mode", "Enabled"},
	{"-caa", `Cleared Accounted PIDs for GPU BUS\.\n`, 0, denied, "accounting.mode", "Enabled"},
	{"--auto-boost-default=0", ``, 0, denied, "CLOCK", `Auto Boost +: Off\s+Auto Boost Default +: Off`},
	{"--auto-boost-permission=1", ``, 0, denied, "persistence_mode", "Disabled"},
	{"-acp 0", `Warning: This option is deprecated`, 0, "", "persistence_mode", "Disabled"},
	{"-gtt 70", ``, 0, denied, "TEMPERATURE", `GPU Target Temperature +: 70 C`},
	{"-gtt 95", `Invalid input\. GPU Target Temperature should be in range 60 - 90`, 2, "", "TEMPERATURE", `GPU Target Temperature +: 70 C`},
	{"-vm 3", ``, 0, denied, "ALL", `Virtualization Mode +: Host VGPU`},
	{"-fdm 0", `Changing driver models is not supported`, 0, "", "persistence_mode", "Disabled"},
	{"--gpu-reset", `GPU BUS was successfully reset\.\n`, 0, "", "power.limit,compute_mode,ecc.mode.current,ecc.mode.pending,accounting.mode,persistence_mode,clocks.gr",
		"700.00 W, Default, Disabled, Disabled, Disabled, Disabled, 345 MHz"},
	{"-pm 1", `Enabled persistence mode for GPU BUS\.\n`, 0, "", "persistence_mode", "Enabled"},
	{"-e 1", `Enabled ECC support for GPU BUS\.\n`, 0, denied, "ecc.mode.current,ecc.mode.pending", "Disabled, Enabled"},
	{"-r", `GPU BUS was successfully reset\.\n`, 0, `Unable to disable persistence mode for GPU BUS: Insufficient Permissions\n`,
		"ecc.mode.current,persistence_mode", "Enabled, Enabled"},
	{"--gom=1", `GOM changed to "Compute" for GPU BUS\.\n`, 0, denied, "gom.current,gom.pending", "All On, Compute"},
	{"-r", `GPU Reset couldn't run because there is a GPU Operation Mode change in flight`, 255, "", "gom.current", "All On"},
}

// settableNode is a node with a state directory, and the nvidia-smi of a driver.
type settableNode struct {
	program, profile, state, library string
}

func newSettable(t *testing.T, driver int) settableNode {
	t.Helper()
	dir, err := os.MkdirTemp("", "setters") // others than its owner have to reach it
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	n := settableNode{filepath.Join(dir, "nvidia-smi"), filepath.Join(dir, "profile.yaml"), filepath.Join(dir, "state"), openLibrary(t)}
	program, err := os.ReadFile(fetched(t, "nvidia-smi-"+strconv.Itoa(driver), "nvidia-smi"))
	require.NoError(t, err)
	writeProgram(t, n.program, program)
	require.NoError(t, os.WriteFile(n.profile, []byte(settable), 0o644))
	require.NoError(t, os.Mkdir(n.state, 0o777))
	for _, path := range []string{dir, n.state} {
		require.NoError(t, os.Chmod(path, 0o777))
	}
	return n
}

func (n settableNode) env() []string {
	return with(n.library, "LC_ALL=C", "MOCK_NVML_CONFIG="+n.profile, "NVMLFAB_STATE_DIR="+n.state)
}

// run runs a command on the first GPU, in a process of its own.
func (n settableNode) run(t *testing.T, args ...string) outcome {
	t.Helper()
	return ends(t, "", n.env(), n.program, args...)
}

// as65534 runs a command as somebody who may not administer anything.
func (n settableNode) as65534(t *testing.T, args ...string) outcome {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), n.program, args...)
	cmd.Env = append(environ(), n.env()...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	if _, exited := err.(*exec.ExitError); !exited {
		require.NoError(t, err)
	}
	return outcome{cmd.String(), string(out), "", cmd.ProcessState.ExitCode()}
}

// changed is the text of state.json, empty before the first change.
func (n settableNode) changed(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(n.state, "state.json"))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return string(text)
}

// reads asks the first GPU in a process of its own.
func (n settableNode) reads(t *testing.T, what, want, gpu string) {
	t.Helper()
	switch {
	case what == "ALL":
		assert.Regexp(t, want, n.run(t, "-i", gpu, "-q").succeeds(t).stdout)
		return
	case what == strings.ToUpper(what):
		assert.Regexp(t, want, n.run(t, "-i", gpu, "-q", "-d", what).succeeds(t).stdout)
		return
	}
	assert.Equal(t, want+"\n", n.run(t, "-i", gpu, "--query-gpu="+what, "--format=csv,noheader").succeeds(t).stdout, what)
}

// TestSMISetters: each command prints what the real nvidia-smi prints, the next process reads the new value, and the other
// GPU stays as it is. Somebody who is no administrator is refused, and nothing changes.
func TestSMISetters(t *testing.T) {
	for _, driver := range smiDrivers {
		t.Run(strconv.Itoa(driver), func(t *testing.T) {
			t.Parallel()
			n := newSettable(t, driver)
			const bus = `00000000:53:00\.0`
			other := n.run(t, "-i", "1", "-q").succeeds(t).stdout
			for _, s := range setters {
				args := append([]string{"-i", "0"}, strings.Fields(s.args)...)
				if s.user != "" && os.Geteuid() == 0 {
					before := n.changed(t)
					out := n.as65534(t, args...)
					assert.Regexp(t, strings.ReplaceAll(s.user, "BUS", bus), out.stdout, "%s as 65534", s.args)
					assert.Equal(t, 4, out.code, "%s as 65534", s.args)
					assert.Equal(t, before, n.changed(t), "%s as 65534", s.args)
				}
				out := n.run(t, args...)
				assert.Equal(t, s.code, out.code, "%s: %s", s.args, out.stdout)
				want := strings.ReplaceAll(s.want, "BUS", bus)
				if driver == 555 { // it tells whether a daemon keeps the driver loaded
					want = strings.Replace(want, "Enabled persistence mode", "Enabled Legacy persistence mode", 1)
				}
				assert.Regexp(t, "^"+want, out.stdout, s.args)
				assert.Equal(t, s.code == 0, strings.Contains(out.stdout, "All done."), "%s: %s", s.args, out.stdout)
				n.reads(t, s.read, s.is, "0")
			}
			moment := regexp.MustCompile(`Timestamp .*`)
			assert.Equal(t, moment.ReplaceAllString(other, ""), moment.ReplaceAllString(n.run(t, "-i", "1", "-q").succeeds(t).stdout, ""))
			n.drains(t)
		})
	}
}

// drains drains the first GPU: later processes do not get it until it is given back.
func (n settableNode) drains(t *testing.T) {
	t.Helper()
	at := []string{"drain", "-p", "0000:53:00.0"}
	drain := func(args ...string) outcome { return n.run(t, append(at, args...)...) }
	assert.Regexp(t, `^Failed to modify the GPU drain state`, drain("-m", "1").stdout, "persistence mode holds it")
	n.run(t, "-i", "0", "-pm", "0").succeeds(t)
	if os.Geteuid() == 0 {
		before := n.changed(t)
		assert.Equal(t, 255, n.as65534(t, append(at, "-m", "1")...).code)
		assert.Equal(t, before, n.changed(t))
	}
	assert.Regexp(t, `Successfully set GPU 00000000:53:00\.0 drain state to: draining\.`, drain("-m", "1").succeeds(t).stdout)
	assert.Regexp(t, `The current drain state of GPU 00000000:53:00\.0 is: draining`, drain("-q").succeeds(t).stdout)
	assert.Equal(t, []string{"00000000:64:00.0"}, n.run(t, "--query-gpu=pci.bus_id", "--format=csv,noheader").succeeds(t).lines())
	assert.Regexp(t, `Successfully set GPU 00000000:53:00\.0 drain state to: not draining\.`, drain("-m", "0").succeeds(t).stdout)
	assert.Regexp(t, `The current drain state of GPU 00000000:53:00\.0 is: not draining`, drain("-q").succeeds(t).stdout)
	drain("-m", "1").succeeds(t)
	removed := drain("-r")
	assert.Zero(t, removed.code, "%s", removed.stdout)
	assert.Equal(t, 255, drain("-q").code, "it is gone")
	assert.Len(t, n.run(t, "-L").succeeds(t).lines(), 1)
}
