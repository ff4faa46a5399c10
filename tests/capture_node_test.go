package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// TestCaptureNode captures a node with changed values, MIG instances, a process and load. The load and the power are at the limits of
// their ranges, so that they are the same in each second. The node stays as it is.
func TestCaptureNode(t *testing.T) {
	dir := t.TempDir()
	node, file, state := filepath.Join(dir, "node.yaml"), filepath.Join(dir, "captured.yaml"), filepath.Join(dir, "state")
	require.NoError(t, os.Mkdir(state, 0o755))
	require.NoError(t, os.WriteFile(node, []byte(`extends: h100
count: 2
devices:
  - dynamic_metrics:
      utilization: {pattern: busy, gpu_min: 80, gpu_max: 80, memory_min: 40, memory_max: 40}
      power: {base_mw: 400000, variance_mw: 0}
  - {}
`), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(state, "overrides.yaml"), []byte("devices: [{index: 1, pcie: {replay_counter: 77}}]\n"), 0o644))
	env := []string{"MOCK_NVML_CONFIG=" + node, "NVMLFAB_STATE_DIR=" + state}
	for _, args := range []string{
		"mig create --gpu 1 --enable 3g.40gb,1g.10gb,2g.20gb",
		"set --gpu 0 power.enforced_limit_mw=500000 persistence_mode=disabled pcie.current_link_gen=3 compute_mode=prohibited",
		"set --gpu 0 ecc.errors.volatile.single_bit.device_memory=5 thermal.temperature_gpu_c=71",
		"process add --gpu 0 --pid 4242 --name /usr/bin/train --memory 2GiB --sm 30",
	} {
		run(t, env, launcher(t), strings.Fields(args)...).succeeds(t)
	}
	before, err := os.ReadFile(filepath.Join(state, "state.json"))
	require.NoError(t, err)

	out := capture(t, env, "--keep-identifiers", "-o", file).succeeds(t)
	assert.Regexp(t, `^nvmlfab: \S+ does not have .*\nnvmlfab: 2 GPUs, \d+ functions, \d+ calls: \d+ values are the same with the profile, \d+ change by themselves, 0 differ\n$`, out.stderr)
	after, err := os.ReadFile(filepath.Join(state, "state.json"))
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))

	board, err := profiles.Load(file)
	require.NoError(t, err)
	d := &board.Devices[0]
	assert.Equal(t, profiles.Some[uint32](80), d.Utilization.GPU)
	assert.Equal(t, profiles.Some[uint32](400000), d.Power.CurrentDrawMW)
	assert.Equal(t, profiles.Some[uint32](500000), d.Power.EnforcedLimitMW)
	assert.Equal(t, []profiles.Process{{PID: 4242, Type: profiles.Some("C"), Name: profiles.Some("/usr/bin/train"),
		UsedMemoryMiB: profiles.Some[uint64](2048), SMUtil: profiles.Some[uint32](30)}}, d.Processes)
	assert.Equal(t, profiles.Some[uint64](77), board.Devices[1].PCIe.ReplayCounter)
	assert.Len(t, board.Devices[1].MIG.Instances, 3)

	captured := []string{"MOCK_NVML_CONFIG=" + file}
	for _, args := range []string{"-q -x", "-L", "mig -lgi", "mig -lci", "mig -lgip", "topo -m", "nvlink -s"} {
		want := smi(t, env, strings.Fields(args)...).succeeds(t).stdout
		have := smi(t, captured, strings.Fields(args)...).succeeds(t).stdout
		assert.Equal(t, untimed(want), untimed(have), args)
	}
	t.Setenv("NVMLFAB_STATE_DIR", state)
	first := withoutHandles(allGetters(t, "MOCK_NVML_CONFIG", node))
	t.Setenv("NVMLFAB_STATE_DIR", "")
	assert.Equal(t, first, withoutHandles(allGetters(t, "MOCK_NVML_CONFIG", file)))
}

// withoutHandles are answers without the numbers of handles, which depend on what a process has asked for before.
func withoutHandles(answers []string) (list []string) {
	for _, answer := range answers {
		list = append(list, regexp.MustCompile(`Handle:0x[0-9a-f]+`).ReplaceAllString(answer, "Handle:…"))
	}
	return list
}

// untimed is the output of nvidia-smi without the line with the time.
func untimed(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "<timestamp>") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}
