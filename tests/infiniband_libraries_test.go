package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ibProgram compiles a program of testdata/infiniband.
func ibProgram(t *testing.T, name string) string {
	t.Helper()
	program := filepath.Join(sharedFolder(t), name)
	run(t, nil, "gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program,
		filepath.Join(root, "tests", "testdata", "infiniband", name+".c")).succeeds(t)
	return program
}

// ibPreload is LD_PRELOAD with the InfiniBand libraries.
func ibPreload() string {
	var list []string
	for _, name := range []string{"libibmockumad.so", "libibmockverbs.so", "libibmocksys.so"} {
		list = append(list, filepath.Join(library, name))
	}
	return "LD_PRELOAD=" + strings.Join(list, ":")
}

// TestInfiniBandOff: without MOCK_IB, or with a word that means nothing, the libraries make no system call of their own.
func TestInfiniBandOff(t *testing.T) {
	strace := tool(t, "strace")
	program := ibProgram(t, "off")
	trace := func(env ...string) string {
		file := filepath.Join(t.TempDir(), "trace")
		args := []string{"-o", file}
		for _, v := range env { // strace itself runs without
			args = append(args, "-E", v)
		}
		run(t, nil, strace, append(args, program)...).succeeds(t)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		between := regexp.MustCompile(`(?s)"begin\\n".*?\n(.*)write\(1, "end\\n"`).FindSubmatch(text)
		require.NotNil(t, between, string(text))
		calls := regexp.MustCompile(`(?m)^(\w+)\(.*$`).ReplaceAllString(string(between[1]), "$1")
		return calls
	}
	want := trace()
	assert.Greater(t, strings.Count(want, "\n"), 100)
	for _, off := range [][]string{{ibPreload()}, {ibPreload(), "MOCK_IB="}, {ibPreload(), "MOCK_IB=off"}, {ibPreload(), "MOCK_IB=no", "MOCK_IB_ROOT=" + t.TempDir()}} {
		assert.Equal(t, want, trace(off...), "%v", off)
	}
}

// TestInfiniBandVerbsHammer: 32 threads that fork, and that send commands which are short, oversized or nonsense, get the right
// answers from the right adapters, and nothing crashes or hangs.
func TestInfiniBandVerbsHammer(t *testing.T) {
	program := ibProgram(t, "verbs")
	for _, how := range ways(t) {
		out := run(t, nil, launcher(t), "run", how, "--ib", "full", "--profile", "dgx-h100", "--", program, "12", "32", "20").succeeds(t)
		assert.Regexp(t, `^\d{5,} right, 0 wrong\n$`, out.stdout)
		assert.Empty(t, out.stderr)
	}
}
