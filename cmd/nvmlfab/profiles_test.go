package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestList(t *testing.T) {
	out := nvmlfab(t, "profiles", "list")
	assert.Zero(t, out.status)
	assert.Empty(t, out.stderr)
	lines := strings.Split(strings.TrimSuffix(out.stdout, "\n"), "\n")
	columns := regexp.MustCompile(` {2,}`)
	assert.Equal(t, []string{"NAME", "GPUS", "PRODUCT", "DRIVER", "MEMORY", "MIG"}, columns.Split(lines[0], -1))
	var names []string
	for _, line := range lines[1:] {
		row := columns.Split(line, -1)
		require.Len(t, row, 6)
		names = append(names, row[0])
		if want := map[string][]string{
			"h100":  {"h100", "8", "NVIDIA H100 80GB HBM3", "580.105.08", "81559 MiB", "7"},
			"gb10":  {"gb10", "1", "NVIDIA GB10", "580.142", "N/A", "-"},
			"mixed": {"mixed", "4", "Tesla T4, NVIDIA L4, NVIDIA L40S, NVIDIA GeForce RTX 4080 SUPER", "595.91.07", "15360 MiB, 23034 MiB, 46068 MiB, 16376 MiB", "-"},
		}[row[0]]; want != nil {
			assert.Equal(t, want, row)
		}
	}
	assert.Equal(t, profiles.Names(), names)
}

// TestShow: the printed profile loads as a profile file.
func TestShow(t *testing.T) {
	for _, name := range profiles.Names() {
		out := nvmlfab(t, "profiles", "show", name)
		assert.Zero(t, out.status)
		assert.Empty(t, out.stderr)
		file := write(t, t.TempDir(), "mine.yaml", out.stdout, 0o644)
		assert.Zero(t, nvmlfab(t, "profiles", "validate", file).status)
	}
	nvmlfab(t, "profiles", "show", "h10").fails(t, 1, `unknown board "h10": did you mean "h100"?`)
}

func TestSchema(t *testing.T) {
	out := nvmlfab(t, "profiles", "schema")
	assert.Zero(t, out.status)
	assert.JSONEq(t, string(profiles.Schema()), out.stdout)
}

// TestValidate: one wrong file does not keep the others from being checked.
func TestValidate(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "one.yaml", "count: 1\n", 0o644)
	write(t, dir, "some.yaml", "extends: h100\n", 0o644)
	write(t, dir, "typo.yaml", "extends: h100\n\ncuont: 4\n", 0o644)
	write(t, dir, "empty.yaml", "", 0o644)
	validate := func(files ...string) outcome {
		cmd := exec.Command(filepath.Join(tree, "bin", "nvmlfab"), append([]string{"profiles", "validate"}, files...)...)
		cmd.Dir = dir
		return start(t, cmd)
	}
	write(t, dir, "\xff a,b", "count: 1\n", 0o644)
	assert.Equal(t, outcome{"one.yaml: ok, 1 GPU\nsome.yaml: ok, 8 GPUs\n\xff a,b: ok, 1 GPU\n", "", 0},
		validate("one.yaml", "some.yaml", "\xff a,b"))

	out := validate("typo.yaml", "one.yaml", "empty.yaml", "none.yaml", "some.yaml")
	assert.Equal(t, 1, out.status)
	assert.Equal(t, "one.yaml: ok, 1 GPU\nsome.yaml: ok, 8 GPUs\n", out.stdout)
	assert.Regexp(t, `^nvmlfab: typo\.yaml:3: .*"?cuont"?.*\nnvmlfab: empty\.yaml:1: .+\nnvmlfab: none\.yaml: .+\n$`, out.stderr)
}

// TestFullDisk: if the output cannot be written, the command fails.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("skipped: there is no /dev/full")
	}
	defer full.Close()
	file := write(t, t.TempDir(), "one.yaml", "count: 1\n", 0o644)
	for _, args := range [][]string{{"version"}, {"profiles", "list"}, {"profiles", "show", "h100"}, {"profiles", "schema"},
		{"profiles", "validate", file}} {
		cmd := exec.Command(filepath.Join(tree, "bin", "nvmlfab"), args...)
		cmd.Stdout = full
		assert.Error(t, cmd.Run(), "%s", args)
		assert.Equal(t, 1, cmd.ProcessState.ExitCode())
	}
}
