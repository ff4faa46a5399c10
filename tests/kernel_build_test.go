package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/tests/debian"
)

// kernelTree is a copy of kernel, which builds into a folder of its own.
func kernelTree(t *testing.T) (tree string) {
	t.Helper()
	tree = t.TempDir()
	run(t, nil, "cp", "-r", "kernel", tree).succeeds(t)
	return tree
}

// programs puts scripts in front of PATH and returns that variable.
func programs(t *testing.T, scripts map[string]string) string {
	t.Helper()
	bin := t.TempDir()
	for name, script := range scripts {
		writeProgram(t, filepath.Join(bin, name), []byte("#!/bin/bash\n"+script+"\n"))
	}
	return "PATH=" + bin + ":" + os.Getenv("PATH")
}

// TestKernelMakesAtOnce: several makes into one folder build everything once, and all of them succeed.
func TestKernelMakesAtOnce(t *testing.T) {
	kernel, err := debian.FetchKernel("6.1")
	require.NoError(t, err)
	tree := kernelTree(t)
	var outputs [3]outcome
	var all sync.WaitGroup
	for i := range outputs {
		all.Go(func() {
			outputs[i] = run(t, nil, "make", "-C", filepath.Join(tree, "kernel"), "kernel", "programs", "KDIR="+kernel.Headers)
		})
	}
	all.Wait()
	compiled := 0
	for _, o := range outputs {
		require.Zero(t, o.code, o.stdout+o.stderr)
		compiled += strings.Count(o.stdout, "fakegpu/device.o\n")
	}
	assert.Equal(t, 1, compiled)
	for _, name := range []string{"fakegpu", "vgpu"} {
		module, err := os.ReadFile(filepath.Join(tree, "dist", "kernel", kernel.Release, name+".ko"))
		require.NoError(t, err)
		assert.Contains(t, string(module), "vermagic="+kernel.Release+" ")
	}
	for _, name := range []string{"client", "evil", "rm_alloc_smoke"} {
		assert.FileExists(t, filepath.Join(tree, "dist", "kernel", "bin", name))
	}
	left, err := filepath.Glob(filepath.Join(tree, "dist", "kernel", "bin", "*.[0-9]*"))
	require.NoError(t, err)
	assert.Empty(t, left, "unfinished programs")
}

// TestKernelDryMake: make -n load, from the top and in kernel, prints what it would do, and neither builds nor loads.
func TestKernelDryMake(t *testing.T) {
	tree := kernelTree(t)
	run(t, nil, "cp", "Makefile", tree).succeeds(t)
	path := programs(t, map[string]string{
		"insmod": "echo called: insmod", "rmmod": "echo called: rmmod", "gcc": "echo called: gcc", "gcc-12": "echo called: gcc-12", "go": "echo called: go",
	})
	for _, target := range []string{"load", "reload", "unload", "kernel"} {
		for _, dir := range []string{tree, filepath.Join(tree, "kernel")} {
			o := run(t, []string{path}, "make", "-n", "-C", dir, target, "KDIR=/nowhere").succeeds(t)
			assert.NotRegexp(t, `(?m)^called: `, o.stdout+o.stderr)
			assert.NotContains(t, o.stderr, "there are no headers")
			assert.Regexp(t, "build.sh|rmmod vgpu", strings.ReplaceAll(o.stdout, "$(MODULE)", "vgpu"))
		}
	}
	assert.NoDirExists(t, filepath.Join(tree, "dist"))
}

// TestKernelHeaders: if headers are missing or wrong, make names their package before it calls a compiler.
func TestKernelHeaders(t *testing.T) {
	kernel, err := debian.FetchKernel("6.1")
	require.NoError(t, err)
	tree := kernelTree(t)
	path := programs(t, map[string]string{
		"gcc": "echo called: gcc >&2; exit 1", "gcc-12": "echo called: gcc-12 >&2; exit 1",
		"uname": `[ "$*" != -r ] || { echo 6.1.0-99-amd64; exit; }; exec /usr/bin/uname "$@"`,
	})
	dir := t.TempDir()
	bare := filepath.Join(dir, "linux-headers-6.1.0-98-amd64")
	require.NoError(t, os.Mkdir(bare, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(bare, "Makefile"), nil, 0o644))
	other := filepath.Join(dir, "linux-headers-6.1.0-97-amd64")
	require.NoError(t, os.Symlink(kernel.Headers, other))
	toolless := filepath.Join(dir, "headers")
	require.NoError(t, os.MkdirAll(filepath.Join(toolless, "include", "generated"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(toolless, "Makefile"), nil, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(toolless, "include", "generated", "utsrelease.h"), []byte("#define UTS_RELEASE \"6.1.0-96-amd64\"\n"), 0o644))

	for name, c := range map[string]struct{ setting, line string }{
		"of the running kernel": {"MODULES=", `there are no headers of Linux 6\.1\.0-99-amd64 in /lib/modules/6\.1\.0-99-amd64/build: install linux-headers-6\.1\.0-99-amd64`},
		"of a kernel":           {"KDIR=/usr/src/linux-headers-6.1.0-95-amd64", `there are no headers of Linux 6\.1\.0-95-amd64 in .*: install linux-headers-6\.1\.0-95-amd64`},
		"not prepared":          {"KDIR=" + bare, `are not prepared for building modules: install linux-headers-6\.1\.0-98-amd64`},
		"of another kernel":     {"KDIR=" + other, `are those of Linux \S+, and not of 6\.1\.0-97-amd64: .*install linux-headers-6\.1\.0-97-amd64`},
		"without tools":         {"KDIR=" + toolless, `lacks scripts/basic/fixdep, .*linux-headers-6\.1\.0-96-amd64`},
	} {
		t.Run(name, func(t *testing.T) {
			o := run(t, []string{path}, "make", "-C", filepath.Join(tree, "kernel"), c.setting)
			assert.NotZero(t, o.code)
			assert.Regexp(t, `(?m)^kernel: .*`+c.line, o.stderr)
			assert.NotContains(t, o.stderr, "called: gcc")
			assert.NoDirExists(t, filepath.Join(tree, "dist"))
		})
	}
}

// TestKernelBoots: make test-kernel makes every boot whatever the others say, on the kernel that was named, and fails if
// one of them did.
func TestKernelBoots(t *testing.T) {
	path := programs(t, map[string]string{"go": `echo "called: go $*"; exit 1`})
	for settings, boots := range map[string]int{"": 3, "KERNEL=6.12": 3, "KERNEL=6.12 SHORT=1": 1, "TESTS=Vgpu": 1} {
		args := append([]string{"--no-print-directory", "-C", "kernel", "test-kernel"}, strings.Fields(settings)...)
		o := run(t, []string{path}, "make", args...)
		assert.NotZero(t, o.code, settings)
		calls := regexp.MustCompile(`(?m)^called: go run ./kernel/vm/boot (.*)$`).FindAllStringSubmatch(o.stdout, -1)
		assert.Len(t, calls, boots, settings)
		for _, call := range calls {
			assert.Equal(t, strings.Contains(settings, "KERNEL"), strings.HasPrefix(call[1], "-kernel 6.12 "), call[1])
		}
	}
	brief := regexp.MustCompile(`(?m)^brief := (.*)\$\$$`).FindStringSubmatch(readFile(t, "kernel/Makefile"))
	require.NotNil(t, brief)
	for name := range strings.SplitSeq(strings.Trim(strings.TrimPrefix(brief[1], "^Test"), "()"), "|") {
		assert.Contains(t, strings.Join(guestTests(t), " ")+" ", "Test"+strings.TrimSuffix(name, ".*"), "a test of the short round")
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

// guestTests are the tests that run in the virtual machine, by name.
func guestTests(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "kernel", "vm", "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	return names
}

// TestKernelLogic is the command of CONTRIBUTING: it runs the suites of the modules' logic in user space.
func TestKernelLogic(t *testing.T) {
	out := run(t, nil, "go", "test", "-v", "-run", "^TestKernelLogic$", "./kernel/vm/logic").succeeds(t).stdout
	suites, err := filepath.Glob(filepath.Join(root, "kernel", "logic", "tests", "*_test.c"))
	require.NoError(t, err)
	require.NotEmpty(t, suites)
	for _, suite := range suites {
		assert.Contains(t, out, "--- PASS: TestKernelLogic/"+strings.TrimSuffix(filepath.Base(suite), "_test.c")+" ")
	}
}
