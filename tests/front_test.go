package tests

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// front copies the front alone into a folder and returns its path.
func front(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(library, "libnvidia-ml.so.1"))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	require.NoError(t, os.WriteFile(path, text, 0o755))
	return path
}

func TestFrontWithoutCore(t *testing.T) {
	path := front(t)
	out := run(t, nil, compile(t, "load"), path).succeeds(t)
	assert.Equal(t, []string{"count before 1", "init 12", "count after 1"}, out.lines())
	assert.Contains(t, out.complains(t), filepath.Dir(path), "the line says where it looked")
}

func TestFrontFindsCoreWhereTold(t *testing.T) {
	core := "NVMLFAB_CORE=" + filepath.Join(library, "libnvmlfab-core.so.1")
	out := run(t, []string{core}, compile(t, "load"), front(t)).succeeds(t)
	assert.Equal(t, []string{"count before 1", "init 0", "count after 0"}, out.lines())
	assert.Empty(t, out.stderr)
}

func TestFrontRefusesOtherCores(t *testing.T) {
	load, dir := compile(t, "load"), t.TempDir()
	library := func(name string, flags ...string) string {
		path := filepath.Join(dir, name)
		run(t, nil, "gcc", append(flags, "-shared", "-fPIC", "-o", path, "tests/testdata/foreign.c")...).succeeds(t)
		return path
	}
	text := filepath.Join(dir, "text.so")
	require.NoError(t, os.WriteFile(text, []byte("no library\n"), 0o644))

	for name, core := range map[string]string{
		"of another model": library("model.so"),
		"without an entry": library("entry.so", "-DNO_ENTRY"),
		"of another build": library("build.so", "-DFORMER"),
		"no library":       text,
		"a folder":         dir,
		"missing":          filepath.Join(dir, "nothing.so"),
	} {
		t.Run(name, func(t *testing.T) {
			out := run(t, []string{"NVMLFAB_CORE=" + core}, load, front(t)).succeeds(t)
			assert.Equal(t, []string{"count before 1", "init 12", "count after 1"}, out.lines())
			assert.Contains(t, out.complains(t), core)
		})
	}
}

// TestCoreEntries: a front of a build without nvmlfab_start refuses this core, since the core has not the entry that it looks for.
func TestCoreEntries(t *testing.T) {
	core, err := elf.Open(filepath.Join(library, "libnvmlfab-core.so.1"))
	require.NoError(t, err)
	defer core.Close()
	symbols, err := core.DynamicSymbols()
	require.NoError(t, err)
	var entries []string
	for _, s := range symbols {
		if strings.HasPrefix(s.Name, "nvmlfab_") && s.Section != elf.SHN_UNDEF {
			entries = append(entries, s.Name)
		}
	}
	assert.ElementsMatch(t, []string{"nvmlfab_answer", "nvmlfab_start"}, entries)
}

func TestLife(t *testing.T) {
	out := run(t, with(library), compile(t, "life", linked()...)).succeeds(t)
	assert.Empty(t, out.stderr)
	assert.Equal(t, []string{
		"# before nvmlInit",
		"nvmlDeviceGetCount_v2(&n) = 1",
		"nvmlDeviceGetCount_v2(NULL) = 1",
		"nvmlDeviceGetName(dev, name, sizeof name) = 1",
		"nvmlDeviceGetName(at(NULL), NULL, 0) = 1",
		"nvmlSystemGetDriverVersion(name, sizeof name) = 1",
		"nvmlShutdown() = 0",
		"# initialised twice, shut down once",
		"nvmlInit_v2() = 0",
		"nvmlInitWithFlags(0) = 0",
		"nvmlDeviceGetCount_v2(&n) = 0",
		"nvmlDeviceGetHandleByIndex_v2(0, &dev) = 0",
		"nvmlShutdown() = 0",
		"nvmlDeviceGetName(dev, name, sizeof name) = 0",
		"# handles that are none",
		"nvmlDeviceGetName(at(NULL), name, sizeof name) = 2",
		"nvmlDeviceGetName(at((void *)1), name, sizeof name) = 2",
		"nvmlDeviceGetName(at(foreign), name, sizeof name) = 2",
		"nvmlDeviceGetName(at(address(dev) + 8), name, sizeof name) = 2",
		"# arguments that are none",
		"nvmlDeviceGetCount_v2(NULL) = 2",
		"nvmlDeviceGetName(dev, NULL, 96) = 2",
		"nvmlDeviceGetName(dev, name, 4) = 7",
		"nvmlDeviceGetHandleByIndex_v2(n, &dev) = 2",
		"nvmlDeviceGetHandleByIndex_v2(0, NULL) = 2",
		"# shut down for good",
		"nvmlShutdown() = 0",
		"nvmlDeviceGetName(stale, name, sizeof name) = 1",
		"nvmlDeviceGetCount_v2(&n) = 1",
		"nvmlShutdown() = 0",
		"# a second life",
		"nvmlInit_v2() = 0",
		"nvmlDeviceGetName(stale, name, sizeof name) = 2",
		"nvmlDeviceGetHandleByIndex_v2(0, &dev) = 0",
		"nvmlDeviceGetName(dev, name, sizeof name) = 0",
		"the stale handle is not the new one",
		"nvmlShutdown() = 0",
	}, out.lines())
}

// TestErrorStrings compares every text that driver 550 knows with the real library's.
func TestErrorStrings(t *testing.T) {
	errors := compile(t, "errors")
	real := run(t, nil, errors, fetched(t, "libnvidia-ml-550", "libnvidia-ml.so.1")).succeeds(t)
	ours := run(t, nil, errors, filepath.Join(library, "libnvidia-ml.so.1")).succeeds(t)
	assert.Equal(t, real.lines(), ours.lines())
}
