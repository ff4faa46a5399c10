package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// TestShippedScenarios: each can be played on every shipped board that has what it changes: falling-gpu wants a board that
// counts memory errors, and training-epoch and it want one with more than 8 GiB of memory.
func TestShippedScenarios(t *testing.T) {
	require.Equal(t, []string{"falling-gpu", "thermal-runaway", "training-epoch"}, scenarioNames())
	for _, board := range profiles.Names() {
		b, err := profiles.Shipped(board)
		require.NoError(t, err)
		for _, name := range scenarioNames() {
			out := onWith(t, t.TempDir(), []string{"NVMLFAB_PROFILE=" + board}, "play", "--check", name)
			d := &b.Devices[0]
			small := d.Memory.TotalBytes.Valid && d.Memory.TotalBytes.Value < 10<<30
			uncounted := name == "falling-gpu" && (!bool(d.ECC.ModeCurrent.Value) || !d.ECC.Errors.Volatile.SingleBit.DeviceMemory.Valid)
			if name != "thermal-runaway" && (small || uncounted) {
				assert.Regexp(t, "does not count|ECC is off|are more than the [0-9]+ MiB that are free", out.stderr, "%s on %s", name, board)
				continue
			}
			assert.Zero(t, out.status, "%s on %s: %s", name, board, out.stderr)
		}
	}
}

func TestScenarioMistakes(t *testing.T) {
	const head = "duration: 1m\nsteps:\n"
	dir := t.TempDir()
	for name, test := range map[string]struct{ text, want string }{
		"empty":             {"", "mine.yaml:1: is empty\n"},
		"no duration":       {"steps: [{at: 0s, fail: lost}]\n", "mine.yaml:1: duration is missing"},
		"no steps":          {"duration: 1m\nsteps: []\n", "mine.yaml:1: steps is empty"},
		"no time":           {head + "  - fail: lost\n", "mine.yaml:3: steps[0]: at is missing"},
		"bad time":          {head + "  - {at: soon, fail: lost}\n", "mine.yaml:3: steps[0].at: want a time"},
		"negative time":     {head + "  - {at: -1s, fail: lost}\n", "mine.yaml:3: steps[0].at: want a time"},
		"after the end":     {head + "  - {at: 0s, fail: lost}\n  - {at: 1m, heal: lost}\n", "mine.yaml:4: at 1m0s is not before the end"},
		"unknown key":       {head + "  - at: 0s\n    fial: lost\n", `mine.yaml:4: unknown key "fial" in steps[0]: did you mean "fail"?`},
		"unknown top key":   {"lasts: 1m\n" + head, `mine.yaml:1: unknown key "lasts"`},
		"key twice":         {head + "  - at: 0s\n    fail: lost\n    fail: lost\n", "mine.yaml:5: key \"fail\" given twice"},
		"unknown fault":     {head + "  - {at: 0s, fail: loss}\n", `mine.yaml:3: steps[0].fail: unknown fault "loss": did you mean "lost"?`},
		"xid":               {head + "  - {at: 0s, fail: xid}\n", "mine.yaml:3: steps[0].fail: xid wants the number"},
		"number":            {head + "  - {at: 0s, fail: lost 3}\n", "no number belongs to lost"},
		"unknown event":     {head + "  - {at: 0s, event: xed 3}\n", `did you mean "xid"?`},
		"nothing":           {head + "  - at: 0s\n", "mine.yaml:3: nothing happens"},
		"for no time":       {head + "  - {at: 0s, fail: lost, for: 0s}\n", "mine.yaml:3: steps[0].for: want more than nothing"},
		"no length":         {"duration: 0s\nsteps: [{at: 0s, fail: lost}]\n", "mine.yaml:1: duration: want more than nothing"},
		"xid 0":             {head + "  - {at: 0s, event: xid 0}\n", "mine.yaml:3: steps[0].event: there is no Xid 0"},
		"node not ill":      {head + "  - {at: 0s, heal: driver-not-loaded}\n", "mine.yaml:3: heal: no earlier step"},
		"for nothing":       {head + "  - {at: 0s, event: clock, for: 3s}\n", "mine.yaml:3: for says how long"},
		"unknown setting":   {head + "  - at: 0s\n    set:\n      thermal:\n        temprature_gpu_c: 3\n", `mine.yaml:6: unknown key "thermal.temprature_gpu_c": did you mean`},
		"setting out":       {head + "  - at: 0s\n    set:\n      utilization.gpu: 30\n      utilization.memory: 300\n", "mine.yaml:6: GPU 0: utilization.memory: 300 is outside"},
		"setting twice":     {head + "  - at: 0s\n    set: {utilization.gpu: 3, utilization: {gpu: 4}}\n", "mine.yaml:4: key \"utilization.gpu\" given twice"},
		"node and GPU":      {head + "  - at: 0s\n    set: {utilization.gpu: 3, nvlink.defaults.state: inactive}\n", "mine.yaml:3: keys of the node"},
		"no such GPU":       {head + "  - {at: 0s, gpu: 8, fail: lost}\n", "mine.yaml:3: there is no GPU 8"},
		"process":           {head + "  - {at: 0s, process: {name: a}}\n", "mine.yaml:3: process: pid is missing"},
		"process twice":     {head + "  - {at: 0s, process: {pid: 3}}\n  - {at: 1s, process: {pid: 3}}\n", "mine.yaml:4: GPU 0: there is a process"},
		"no process to end": {head + "  - {at: 0s, process: {pid: 3}}\n  - {at: 1s, end: 4}\n", "mine.yaml:4: GPU 0: end: the scenario has no process 4"},
		"nothing to heal":   {head + "  - {at: 0s, heal: lost}\n", "mine.yaml:3: GPU 0: heal: no earlier step"},
		"links of nothing":  {head + "  - {at: 0s, fail: link-down}\n", "mine.yaml:3: the fault is one of InfiniBand: give ib"},
		"links for nothing": {head + "  - {at: 0s, ib: mlx5_0, fail: lost}\n", "mine.yaml:3: ib names ports and switches"},
		"no such port":      {head + "  - {at: 0s, ib: mlx5_99, fail: link-down}\n", `mine.yaml:3: --ib: the fabric has no node "mlx5_99"`},
		"no such link":      {head + "  - {at: 0s, ib: mlx5_0, heal: link-down}\n", "mine.yaml:3: heal: no earlier step brings link-down about"},
		"two documents":     {head + "  - {at: 0s, fail: lost}\n---\nsteps: []\n", "want one document, got 2"},
		"a list":            {"- 1\n", "mine.yaml:1: "},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(filepath.Join(tree, "bin", "nvmlfab"), "play", "mine.yaml")
			cmd.Dir = t.TempDir()
			cmd.Env = []string{"NVMLFAB_STATE_DIR=" + dir}
			write(t, cmd.Dir, "mine.yaml", test.text, 0o644)
			start(t, cmd).fails(t, 1, test.want)
			assert.NoFileExists(t, filepath.Join(dir, "state.json"))
		})
	}
}

// slow is a scenario that does something at once and then lasts longer than any test.
const slow = `duration: 1h
steps:
  - at: 0s
    gpu: all
    set: {thermal.temperature_gpu_c: 95}
    process: {pid: 7, used_memory_mib: 64}
  - {at: 0s, gpu: 2, fail: lost}
  - {at: 0s, set: {nvlink.defaults.state: inactive}}
`

// playing starts a scenario and waits until its first steps are done.
func playing(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(filepath.Join(tree, "bin", "nvmlfab"), append([]string{"play"}, args...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"NVMLFAB_STATE_DIR=" + dir}
	write(t, cmd.Dir, "slow.yaml", slow, 0o644)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	require.Eventually(t, func() bool { return len(stateOf(t, dir).Set) > 0 }, time.Minute, 10*time.Millisecond)
	s := stateOf(t, dir)
	require.EqualValues(t, 95, *s.GPUs[7].Temperature)
	require.Equal(t, []string{"lost"}, s.GPUs[2].Faults)
	require.Equal(t, 1, s.GPUs[0].Processes)
	return cmd
}

// clean requires that a node is as its profile says.
func clean(t *testing.T, dir string) {
	t.Helper()
	s := stateOf(t, dir)
	assert.Empty(t, s.Set)
	for _, g := range s.GPUs {
		assert.Empty(t, g.Set)
		assert.Empty(t, g.Faults)
		assert.Zero(t, g.Processes)
	}
}

// TestPlayInterrupted: whichever signal ends it, all is taken back.
func TestPlayInterrupted(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		dir := t.TempDir()
		cmd := playing(t, dir, "slow.yaml")
		require.NoError(t, cmd.Process.Signal(signal))
		assert.Error(t, cmd.Wait())
		assert.Equal(t, 128+int(signal), cmd.ProcessState.ExitCode())
		clean(t, dir)
	}
}

// TestPlayKilled: heal --play takes back what a killed scenario has left, and each thing that it leaves has an end.
func TestPlayKilled(t *testing.T) {
	dir := t.TempDir()
	cmd := playing(t, dir, "--id", "x", "slow.yaml")
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	s := stateOf(t, dir)
	limit := time.Now().Add(time.Hour + time.Minute)
	for _, g := range append(s.GPUs, gpuStatus{Set: s.Set}) {
		require.NotEmpty(t, g.Set)
		for _, l := range g.Set {
			require.NotNil(t, l.Until)
			assert.True(t, l.Until.Before(limit))
		}
	}
	assert.Contains(t, on(t, dir, "status").stdout, "(by x, ")
	quietly(t, on(t, dir, "heal", "--play", "x"))
	clean(t, dir)
	assert.Equal(t, "there was nothing to heal\n", on(t, dir, "heal", "--play", "x").stdout)
}

// TestPlayToTheEnd: a scenario does its steps in time, whatever their order in the file, and leaves nothing.
func TestPlayToTheEnd(t *testing.T) {
	dir := t.TempDir()
	file := write(t, t.TempDir(), "mine.yaml", `duration: 20s
gpu: 1,2
steps:
  - {at: 10s, heal: lost, event: xid 31}
  - {at: 0s, fail: lost}
  - {at: 15s, say: nearly done}
`, 0o644)
	out := on(t, dir, "play", "--id", "mine", "--speed", "100", file)
	assert.Equal(t, outcome{`playing mine; nvmlfab heal --play mine ends it
0:00 / 0:20  GPU 1,2: fail lost
0:10 / 0:20  GPU 1,2: heal lost, event xid 31
0:15 / 0:20  GPU 1,2: nearly done
0:20 / 0:20  the end: all is as before
`, "", 0}, out)
	clean(t, dir)
	assert.Regexp(t, `(?s)GPU 1  xid 79.*GPU 2  xid 79.*GPU 1  xid 31.*GPU 2  xid 31`, on(t, dir, "events", "tail").stdout)

	out = on(t, dir, "play", "--gpu", "5", "--speed", "1000", file)
	assert.Contains(t, out.stdout, "GPU 5: fail lost")
	require.NoError(t, os.RemoveAll(dir))
}

// TestPlayFaultsOfTheNode: a step lets the driver fail, and a later one heals it.
func TestPlayFaultsOfTheNode(t *testing.T) {
	dir := t.TempDir()
	file := write(t, t.TempDir(), "mine.yaml", `duration: 20s
steps:
  - {at: 0s, fail: driver-not-loaded}
  - {at: 10s, heal: driver-not-loaded}
`, 0o644)
	out := on(t, dir, "play", "--id", "mine", "--speed", "100", file)
	assert.Equal(t, outcome{`playing mine; nvmlfab heal --play mine ends it
0:00 / 0:20  node: fail driver-not-loaded
0:10 / 0:20  node: heal driver-not-loaded
0:20 / 0:20  the end: all is as before
`, "", 0}, out)
	clean(t, dir)
}

// TestPlayTooLate: on a machine that is too slow for the scenario, the time of a process or a fault can be over before the
// step that ends it. That is no mistake.
func TestPlayTooLate(t *testing.T) {
	dir := t.TempDir()
	file := write(t, t.TempDir(), "mine.yaml", `duration: 1s
steps:
  - {at: 0s, fail: lost, process: {pid: 3}}
  - {at: 500ms, heal: lost, end: 3}
  - {at: 600ms, process: {pid: 3}}
  - {at: 700ms, end: 3}
`, 0o644)
	out := on(t, dir, "play", "--speed", "1000000", file)
	assert.Zero(t, out.status, out.stderr)
	assert.Contains(t, out.stdout, "the end: all is as before")
	clean(t, dir)
}

// TestPlayEndedByHeal: who plays a scenario stops when somebody else ends it by heal --play, and does nothing more. Until
// then no other scenario takes its name.
func TestPlayEndedByHeal(t *testing.T) {
	dir := t.TempDir()
	file := write(t, t.TempDir(), "mine.yaml", slow, 0o644)
	cmd := playing(t, dir, "--id", "x", "slow.yaml")
	on(t, dir, "play", "--id", "x", file).fails(t, 1, "x is being played already")
	require.Equal(t, "95", fmt.Sprint(*stateOf(t, dir).GPUs[7].Temperature), "the second did nothing to the first")
	quietly(t, on(t, dir, "heal", "--play", "x"))
	assert.Error(t, cmd.Wait())
	assert.Equal(t, 1, cmd.ProcessState.ExitCode())
	clean(t, dir)
}
