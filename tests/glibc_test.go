package tests

import (
	"debug/elf"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGlibc: the libraries can be loaded with glibc 2.28, as in UBI 8: they use no function in a later version, and name the
// libraries in which older glibcs have the functions for threads and for loading.
func TestGlibc(t *testing.T) {
	libraries, err := filepath.Glob(filepath.Join(root, "dist/nvml/*/libnvidia-ml.so.1"))
	require.NoError(t, err)
	assert.GreaterOrEqual(t, len(libraries), 19)
	for _, name := range []string{"libnvmlfab-core.so.1", "libmockfs.so", "libibmocksys.so", "libibmockumad.so", "libibmockverbs.so", "libnvgpufilter.so", "nvmlfab-call", "libnvmlfab-trace.so"} {
		libraries = append(libraries, filepath.Join(root, "dist/lib", name))
	}
	for _, path := range libraries {
		f, err := elf.Open(path)
		require.NoError(t, err)
		symbols, err := f.ImportedSymbols()
		require.NoError(t, err)
		assert.NotEmpty(t, symbols)
		for _, s := range symbols {
			var minor int
			if n, _ := fmt.Sscanf(s.Version, "GLIBC_2.%d", &minor); n == 1 {
				assert.LessOrEqual(t, minor, 28, "%s: %s@%s", path, s.Name, s.Version)
			}
		}
		needed, err := f.ImportedLibraries()
		require.NoError(t, err)
		assert.Contains(t, needed, "libpthread.so.0", path)
		assert.Contains(t, needed, "libdl.so.2", path)
		f.Close()
	}
}

// TestGlibcOld: nvidia-smi runs on the libraries with Debian 11's loader and libc.
func TestGlibcOld(t *testing.T) {
	loader := fetched(t, "libc-2.31", "ld-2.31.so")
	smi := fetched(t, "nvidia-smi-470", "nvidia-smi")
	out := run(t, nil, loader, "--library-path", filepath.Dir(loader)+":"+library, smi, "-L").succeeds(t)
	assert.Len(t, out.lines(), 8)
	assert.Contains(t, out.stdout, "GPU 0: NVIDIA H100")
	assert.Empty(t, out.stderr)
}
