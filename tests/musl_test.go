package tests

import (
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/tests/debian"
)

// TestMusl: a program on musl sees the GPUs' PCI functions by the preloaded libraries that are built for it, and so does one on glibc
// that it starts in its place, which gets the same libraries.
func TestMusl(t *testing.T) {
	t.Parallel()
	preloads(t)
	musl, err := debian.Fetch("musl")
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), "pci")
	libc := filepath.Join(musl, "usr/lib/x86_64-linux-musl")
	gcc := strings.TrimSpace(run(t, nil, "gcc", "-print-file-name=include").succeeds(t).stdout)
	run(t, nil, "gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-nostdinc", "-nostdlib",
		"-isystem", filepath.Join(musl, "usr/include/x86_64-linux-musl"), "-isystem", gcc, "-o", program,
		filepath.Join(libc, "Scrt1.o"), filepath.Join(root, "tests/testdata/musl/pci.c"), "-L", filepath.Join(musl, "lib/x86_64-linux-musl"), "-lc",
		"-Wl,--dynamic-linker="+filepath.Join(musl, "lib/ld-musl-x86_64.so.1")).succeeds(t)
	want := busIDs(t, "h100")
	sees(t, want, launcher(t), "run", "--preload", "--", program)
	sees(t, slices.Concat(want, want), launcher(t), "run", "--preload", "--", program, tool(t, "lspci"), "-D", "-d", "10de::0302")

	// The libraries of InfiniBand load too, and are off without its variables.
	var preload []string
	libraries, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(launcher(t))), "lib", "musl", "*.so"))
	require.NoError(t, err)
	require.Len(t, libraries, 4)
	for _, path := range libraries {
		preload = append(preload, path)
		f, err := elf.Open(path)
		require.NoError(t, err)
		needed, err := f.ImportedLibraries()
		require.NoError(t, err)
		assert.Empty(t, needed, "%s would end a program with another libc", path)
		f.Close()
	}
	tree := t.TempDir()
	run(t, nil, launcher(t), "stage", "--root", tree, "--profile", "h100").succeeds(t)
	out := run(t, []string{"LD_PRELOAD=" + strings.Join(preload, ":"), "MOCK_PCI_ROOT=" + tree, "MOCK_IB=sysfs", "MOCK_IB_ROOT=" + tree}, program).succeeds(t)
	assert.Equal(t, strings.Join(want, "\n")+"\n", strings.ToLower(out.stdout))
	_, err = os.Stat(filepath.Join(tree, "sys/class/infiniband"))
	assert.NoError(t, err)
}
