package tests

import (
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	headers "github.com/nvmlfab/nvmlfab/nvml-headers"
	"github.com/stretchr/testify/require"
)

// collecting is the environment of a core that collects garbage as often as possible and prints a line each time.
var collecting = []string{"GOGC=1", "GODEBUG=gctrace=1"}

// coreProgram compiles testdata/core/NAME.c, a C11 program, against the header of a version; the empty one is the newest.
func coreProgram(t *testing.T, version, name string, flags ...string) string {
	t.Helper()
	v, err := headers.Find(version)
	require.NoError(t, err)
	path, err := v.Path()
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), name)
	args := []string{"-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations", "-pthread",
		"-I", filepath.Dir(path), "-o", program, filepath.Join("tests", "testdata", "core", name+".c")}
	run(t, nil, "gcc", append(args, flags...)...).succeeds(t)
	return program
}

// late are the flags of a program that calls NVML by name and loads the library itself, as go-nvml does.
func late() []string {
	return []string{"-rdynamic", "-Wl,-z,lazy", "-Wl,--unresolved-symbols=ignore-in-object-files", "-ldl"}
}

// figures are the numbers in a program's last line.
func (o outcome) figures(t *testing.T) []int {
	t.Helper()
	lines := o.lines()
	var out []int
	for _, s := range regexp.MustCompile(`\d+`).FindAllString(lines[len(lines)-1], -1) {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		out = append(out, n)
	}
	require.NotEmpty(t, out, "%q has no figures", o.stdout)
	t.Log(lines[len(lines)-1])
	return out
}
