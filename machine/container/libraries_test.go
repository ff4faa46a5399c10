package container

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/machine"
)

// library compiles a library with a soname.
func library(t *testing.T, file, soname string, assembly ...string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	source := filepath.Join(t.TempDir(), "source.s")
	put(t, source, strings.Join(assembly, "\n")+"\n")
	out, err := exec.Command("gcc", "-shared", "-nostdlib", source, "-Wl,-soname,"+soname, "-o", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func links(t *testing.T, c *Container, name string) string {
	t.Helper()
	target, err := os.Readlink(filepath.Join(c.Root, name))
	require.NoError(t, err)
	return target
}

// TestUpdateCache: libraries get their links, the cache and ldconfig's configuration name them, and a second time changes nothing.
func TestUpdateCache(t *testing.T) {
	c, outside := at(t, "usr/lib/libtext.so.1", "usr/lib/other.so.1")
	library(t, filepath.Join(c.Root, "usr/lib/libgpu.so.9"), "libgpu.so.1")
	library(t, filepath.Join(c.Root, "usr/lib/libgpu.so.580"), "libgpu.so.1")
	library(t, filepath.Join(c.Root, "usr/lib/libself.so.1"), "libself.so.1")
	library(t, filepath.Join(outside, "libgone.so.1"), "libgone.so.1")
	require.NoError(t, os.Symlink(outside, filepath.Join(c.Root, "gone")))
	require.NoError(t, os.Symlink("/usr/lib", filepath.Join(c.Root, "lib")))
	cache := filepath.Join(c.Root, "etc/ld.so.cache")
	put(t, cache, string(machine.AddToCache(nil, []machine.Library{{Name: "libgpu.so.1", Path: "/old/libgpu.so.1"}, {Name: "libold.so.1", Path: "/old/libold.so.1"}})))
	var before string
	for range 2 {
		require.NoError(t, c.UpdateCache("/lib", "/lib", "/none", "/gone"))
		assert.Equal(t, []machine.Library{{Name: "libself.so.1", Path: "/lib/libself.so.1"}, {Name: "libold.so.1", Path: "/old/libold.so.1"},
			{Name: "libgpu.so.1", Path: "/lib/libgpu.so.1"}}, machine.Cached([]byte(text(t, cache))))
		assert.Equal(t, "libgpu.so.580", links(t, c, "usr/lib/libgpu.so.1"), "the newest")
		assert.Equal(t, "include /etc/ld.so.conf.d/*.conf\n", text(t, filepath.Join(c.Root, configFile)))
		assert.Equal(t, "/lib\n/none\n/gone\n", text(t, filepath.Join(c.Root, ours)))
		if before != "" {
			assert.Equal(t, before, text(t, cache))
		}
		before = text(t, cache)
	}
	assert.NoFileExists(t, filepath.Join(c.Root, "etc/ld-musl-x86_64.path"))
	put(t, cache, "a cache of another kind")
	put(t, filepath.Join(c.Root, "etc/alpine-release"), "")
	require.NoError(t, c.UpdateCache("/lib"))
	assert.Len(t, machine.Cached([]byte(text(t, cache))), 2)
	require.NoError(t, c.UpdateCache("/a"))
	require.NoError(t, c.UpdateCache("/a"))
	matches, err := filepath.Glob(filepath.Join(c.Root, "etc/ld-musl-*.path"))
	require.NoError(t, err)
	require.Len(t, matches, 1)
	assert.Equal(t, "/lib\n/usr/local/lib\n/usr/lib\n/a\n", text(t, matches[0]))
	// A pipe in the place of a file stops nothing.
	require.NoError(t, os.Remove(cache))
	require.NoError(t, exec.Command("mkfifo", cache).Run())
	assert.ErrorContains(t, c.UpdateCache("/lib"), "no regular file")
}

// TestEnableCompat: the image's libraries of a newer driver go first where they go with the machine's driver.
func TestEnableCompat(t *testing.T) {
	with := func(driver ...int) *note { return &note{CUDA: "13.0", Driver: driver} }
	for _, test := range []struct {
		note                    *note
		libraries, driver, cuda string
		want                    bool
	}{
		{nil, "580.65", "570.1", "", true},
		{nil, "570.65", "570.1", "", false},
		{nil, "560.65", "570.1", "", false},
		{nil, "580.65", "570.1", "12.8", false},
		{nil, "580.65", "new", "", false},
		{with(535, 570), "580.65", "570.1", "", true},
		{with(535), "580.65", "570.1", "", false},
		{with(580), "580.65", "580.105.08", "", false},
		{with(570), "x", "570.1", "12.8", true},
		{with(570), "580.65", "", "13.0", false},
		{with(570), "580.65", "", "12.10", true},
	} {
		assert.Equal(t, test.want, test.note.goesWith(version(test.libraries), version(test.driver), version(test.cuda)), "%+v", test)
	}
	c, _ := at(t)
	require.NoError(t, c.EnableCompat(CompatFolder, "570.1", ""))
	folder := filepath.Join(c.Root, "usr/local/cuda-13/compat")
	library(t, filepath.Join(folder, "libcuda.so.580.65"), "libcuda.so.1")
	require.NoError(t, os.Symlink("/usr/local/cuda-13", filepath.Join(c.Root, "usr/local/cuda")))
	require.NoError(t, c.EnableCompat(CompatFolder, "580.1", ""))
	require.NoError(t, c.EnableCompat(CompatFolder, "", ""))
	assert.NoFileExists(t, filepath.Join(c.Root, compat))
	require.NoError(t, c.EnableCompat(CompatFolder, "570.1", ""))
	assert.Equal(t, CompatFolder+"\n", text(t, filepath.Join(c.Root, compat)))
	library(t, filepath.Join(c.Root, "usr/lib/libcuda.so.570.1"), "libcuda.so.1")
	require.NoError(t, c.UpdateCache("/usr/lib"))
	assert.Equal(t, []machine.Library{{Name: "libcuda.so.1", Path: CompatFolder + "/libcuda.so.1"}}, machine.Cached([]byte(text(t, filepath.Join(c.Root, cacheFile)))))

	// The note in the library decides, where there is one.
	n, err := c.compatNote(CompatFolder + "/libcuda.so.580.65")
	require.NoError(t, err)
	assert.Nil(t, n)
	library(t, filepath.Join(folder, "libcuda.so.580.65"), "libcuda.so.1", `.section .note.cuda.fwd_compatibility, "a", %note`, ".align 4",
		".long 2f-1f, 4f-3f, 1", `1: .asciz "NVIDIA Corporation"`, "2: .align 4", `3: .ascii "{\"Format\": 1, \"CUDA Version\": \"13\", \"Driver\": [535]}"`, "4:")
	n, err = c.compatNote(CompatFolder + "/libcuda.so.580.65")
	require.NoError(t, err)
	assert.Equal(t, &note{CUDA: "13", Driver: []int{535}}, n)
	require.NoError(t, os.Remove(filepath.Join(c.Root, compat)))
	require.NoError(t, c.EnableCompat(CompatFolder, "570.1", ""))
	assert.NoFileExists(t, filepath.Join(c.Root, compat), "it does not go with that driver")
}
