package logic

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func folder(t *testing.T) string {
	dir, err := filepath.Abs("../../logic")
	require.NoError(t, err)
	return dir
}

// needs skips the test if a compiler is missing; in CI it fails the test.
func needs(t *testing.T, compiler string, flags ...string) {
	t.Helper()
	source := filepath.Join(t.TempDir(), "try.c")
	require.NoError(t, os.WriteFile(source, []byte("#include <stddef.h>\nint LLVMFuzzerTestOneInput(const char *p, size_t n);\n"+
		"int LLVMFuzzerTestOneInput(const char *p, size_t n) { return p && !n; }\n"), 0o644))
	if err := Compile(compiler, flags, []string{source}, source+".out"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("CI=true, and this would be skipped: ", err)
		}
		t.Skipf("skipped: %v; make setup installs it", err)
	}
}

func TestKernelLogic(t *testing.T) {
	needs(t, "gcc", append([]string{"-shared", "-fPIC"}, Sanitized...)...)
	suites, err := RunSuites(folder(t), filepath.Join(t.TempDir(), "suites"), Sanitized)
	require.NoError(t, err)
	for _, suite := range suites {
		t.Run(suite.Name, func(t *testing.T) {
			for _, c := range suite.Cases {
				t.Run(c.Name, func(t *testing.T) { assert.True(t, c.OK, strings.Join(c.Log, "\n")) })
			}
		})
	}
	files, err := filepath.Glob(filepath.Join(folder(t), "tests", "*_test.c"))
	require.NoError(t, err)
	assert.Len(t, suites, len(files), "every file of tests holds one suite")
}

// Each part of the logic is also compiled alone, with the kernel's warnings, so that each file includes what it needs.
func TestKernelLogicHeaders(t *testing.T) {
	headers, err := filepath.Glob(filepath.Join(folder(t), "*.h"))
	require.NoError(t, err)
	require.NotEmpty(t, headers)
	for _, header := range headers {
		out, err := exec.Command("gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c", "-include", header, "/dev/null").CombinedOutput()
		assert.NoError(t, err, string(out))
	}
}

// The fuzzer starts from random programs of each kind, since it is slow to find long ones itself. They are the same in
// every run. It runs for NVMLFAB_FUZZ_SECONDS, or 5 seconds. What it finds fails the test and is kept, with the command
// that repeats it.
func TestKernelLogicFuzz(t *testing.T) {
	seconds := 5
	if s := os.Getenv("NVMLFAB_FUZZ_SECONDS"); s != "" {
		var err error
		seconds, err = strconv.Atoi(s)
		require.NoError(t, err, "NVMLFAB_FUZZ_SECONDS")
	}
	fuzzing := append([]string{}, Sanitized...)
	for i, flag := range fuzzing {
		fuzzing[i] = strings.Replace(flag, "-fsanitize=", "-fsanitize=fuzzer,", 1)
	}
	needs(t, "clang-14", fuzzing...)
	sources, err := Sources(folder(t), true)
	require.NoError(t, err)
	kept, err := os.MkdirTemp("", "nvmlfab-fuzz-")
	require.NoError(t, err)
	program := filepath.Join(kept, "fuzz")
	require.NoError(t, Compile("clang-14", fuzzing, sources, program))

	corpus := filepath.Join(kept, "corpus")
	require.NoError(t, os.Mkdir(corpus, 0o755))
	random := rand.NewChaCha8([32]byte{})
	for i := range 20 {
		code := make([]byte, 1000)
		_, _ = random.Read(code) // never fails
		code[0] = byte(i)        // the kind
		require.NoError(t, os.WriteFile(filepath.Join(corpus, strconv.Itoa(i)), code, 0o644))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second+5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-max_total_time="+strconv.Itoa(seconds), "-max_len=1000", "-len_control=0", "-timeout=60", "-rss_limit_mb=2048",
		"-print_final_stats=1", "-artifact_prefix="+kept+"/", corpus)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("%s\nthe program and what it was given stay in %s: run %s %s/crash-*", out, kept, program, kept)
	}
	require.NoError(t, err)
	count := regexp.MustCompile(`stat::number_of_executed_units: *(\d+)`).FindStringSubmatch(string(out))
	require.NotNil(t, count, string(out))
	programs, err := strconv.Atoi(count[1])
	require.NoError(t, err)
	assert.Greater(t, programs, 10*seconds)
	t.Logf("%d programs in %d s", programs, seconds)
	require.NoError(t, os.RemoveAll(kept))
}

// TestKernelLogicCoverage: the suites execute nearly all of the logic, and every file of it is counted.
func TestKernelLogicCoverage(t *testing.T) {
	covered, _, err := Cover(folder(t), t.TempDir())
	require.NoError(t, err)
	sources, err := filepath.Glob(filepath.Join(folder(t), "*.c"))
	require.NoError(t, err)
	require.Len(t, covered, len(sources)+1, Table(covered))
	for _, c := range covered {
		assert.NotZero(t, c.Lines, c.File)
		assert.GreaterOrEqual(t, c.Executed*100, c.Lines*90, "%s", Table(covered))
	}
	t.Logf("\n%s", Table(covered))
}

const results = `console noise
KTAP version 1
1..2
    KTAP version 1
    # Subtest: table
    1..2
    ok 1 table_keys
    # table_walks: EXPECTATION FAILED at x.c:1
    not ok 2 table_walks
# table: pass:1 fail:1 skip:0 total:2
not ok 1 table
    # Subtest: handles
    1..1
    ok 1 - handles_max
ok 2 - handles
reboot: System halted
`

func TestParse(t *testing.T) {
	suites, err := Parse(strings.NewReader(results))
	require.NoError(t, err)
	require.Equal(t, []Suite{
		{"table", false, []Case{{"table_keys", true, nil}, {"table_walks", false, []string{"    # table_walks: EXPECTATION FAILED at x.c:1"}}}},
		{"handles", true, []Case{{"handles_max", true, nil}}},
	}, suites)
	require.NoError(t, Compare(suites, suites))
	err = Compare(suites[1:], suites)
	require.ErrorContains(t, err, "table table_keys did not run")

	for name, change := range map[string][2]string{
		"a suite is missing":            {"1..2\n    KTAP", "1..3\n    KTAP"},
		"a case is missing":             {"    ok 1 table_keys\n", ""},
		"the end is missing":            {"ok 2 - handles\n", ""},
		"the beginning is missing":      {"1..2\n    KTAP", "    KTAP"},
		"suite and cases differ":        {"not ok 1 table", "ok 1 table"},
		"a failure is not the suite's":  {"ok 2 - handles\n", "not ok 2 - handles\n"},
		"one was skipped":               {"    ok 1 table_keys", "    ok 1 table_keys # SKIP no"},
		"a suite has another's results": {"not ok 1 table", "not ok 1 tables"},
	} {
		changed := strings.Replace(results, change[0], change[1], 1)
		require.NotEqual(t, results, changed)
		_, err := Parse(strings.NewReader(changed))
		assert.Error(t, err, name)
	}
	_, err = Parse(strings.NewReader(""))
	require.ErrorContains(t, err, "no results")
}
