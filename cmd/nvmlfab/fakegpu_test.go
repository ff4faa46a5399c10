package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFakegpu(t *testing.T) {
	out := nvmlfab(t, "fakegpu", "--profile", "h100", "--gpus", "2")
	assert.Equal(t, outcome{"nvidia=1 driver_version=580.105.08 gpus=" +
		"0000:53:00.0/0/10de:2330/85520809984/GPU-70bb634a-3c4e-48af-9be7-f38845b0a74e/NVIDIA_H100_80GB_HBM3/96.00.99.00.01/52/580.105.08," +
		"0000:64:00.0/1/10de:2330/85520809984/GPU-ac291ad6-9cfa-4c17-809e-6f09909a21e7/NVIDIA_H100_80GB_HBM3/96.00.99.00.01/52/580.105.08\n", "", 0}, out)

	file := write(t, t.TempDir(), "mine.yaml", "extends: t4\n", 0o644)
	assert.Contains(t, nvmlfab(t, "fakegpu", "--profile", file).stdout, "/Tesla_T4/")
	cmd := exec.Command(filepath.Join(tree, "bin", "nvmlfab"), "fakegpu", "--driver", "550.163.01")
	cmd.Env = []string{"MOCK_NVML_CONFIG=" + file}
	out = start(t, cmd)
	assert.Contains(t, out.stdout, " driver_version=550.163.01 ")
	assert.Contains(t, out.stdout, "/Tesla_T4/")
	nvmlfab(t, "fakegpu", "--gpus", "33").fails(t, 1, "NVIDIA's kernel driver knows at most 32 GPUs, and the profile has 33: choose fewer with --gpus")
	nvmlfab(t, "fakegpu", "--profile", "h10").fails(t, 1, `unknown board "h10"`)
}
