package caps

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestMinor: the numbers are those that were seen on real boards and in the driver's source.
func TestMinor(t *testing.T) {
	for file, want := range map[string]uint32{
		"gpu0/gi0/access": 3, "gpu0/gi1/access": 12, "gpu0/gi2/access": 21, "gpu0/gi3/access": 30, "gpu0/gi7/access": 66,
		"gpu0/gi9/access": 84, "gpu0/gi13/access": 120, "gpu1/gi0/access": 138, "gpu0/gi2/ci0/access": 22, "gpu31/gi14/ci7/access": 4322,
	} {
		gpu, instance, part, whole, ok := Of(want)
		assert.True(t, ok)
		got, minor := Part(gpu, instance, part)
		if whole {
			got, minor = Instance(gpu, instance)
		}
		assert.Equal(t, file, got)
		assert.Equal(t, want, minor)
	}
	assert.EqualValues(t, 4323, FabricIMEX)
	for _, none := range []uint32{FabricManager, Config, Monitor, FabricIMEX} {
		_, _, _, _, ok := Of(none)
		assert.False(t, ok, none)
	}
}

func files(t *testing.T, dir string) (list []string) {
	require.NoError(t, filepath.WalkDir(filepath.Join(dir, Folder), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			name, _ := filepath.Rel(filepath.Join(dir, Folder), path)
			list = append(list, name)
		}
		return err
	}))
	return list
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, openFolder, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	defer unix.Umask(unix.Umask(0o077))

	Trim(fd, Set{}) // nothing is there
	require.NoError(t, Prepare(fd, 0o755, []uint32{0, 1, GPUs}))
	s := Set{}
	s.Add(1, 2, 0, 1, Parts)
	s.Add(0, 0)
	s.Add(GPUs, 0)
	s.Add(0, Instances)
	require.NoError(t, Make(fd, 0o755, s))
	require.NoError(t, Make(fd, 0o755, s), "again")
	assert.Equal(t, []string{"gpu0/gi0/access", "gpu1/gi2/access", "gpu1/gi2/ci0/access", "gpu1/gi2/ci1/access"}, files(t, dir))
	text, err := os.ReadFile(filepath.Join(dir, "caps/gpu1/gi2/ci1/access"))
	require.NoError(t, err)
	assert.Equal(t, "DeviceFileMinor: 158\nDeviceFileMode: 292\nDeviceFileModify: 1\n", string(text))
	for name, mode := range map[string]fs.FileMode{"caps": 0o755, "caps/gpu1/gi2": 0o755, "caps/gpu0/gi0/access": 0o444} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode().Perm(), name)
	}

	// What a killed writer and others leave goes, and nothing outside.
	outside := t.TempDir()
	mine := filepath.Join(outside, "mine")
	require.NoError(t, os.WriteFile(mine, nil, 0o644))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "caps/gpu0/gi9")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "caps/gpu1/gi2/.access"), nil, 0o644))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "caps/gpu1/gi5/ci0/deeper"), 0o755))
	delete(s, "gpu1/gi2/ci0/access")
	Trim(fd, s)
	assert.Equal(t, []string{"gpu0/gi0/access", "gpu1/gi2/access", "gpu1/gi2/ci1/access"}, files(t, dir))
	assert.NoDirExists(t, filepath.Join(dir, "caps/gpu1/gi5"))
	assert.NoDirExists(t, filepath.Join(dir, "caps/gpu1/gi2/ci0"))
	Trim(fd, Set{})
	assert.Empty(t, files(t, dir))
	assert.DirExists(t, filepath.Join(dir, "caps/gpu1"))
	assert.NoDirExists(t, filepath.Join(dir, "caps/gpu1/gi2"))
	assert.FileExists(t, mine)

	// A link in place of the folder is not followed.
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "caps")))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "caps")))
	Trim(fd, Set{})
	assert.FileExists(t, mine)
	assert.ErrorContains(t, Make(fd, 0o755, s), "write caps/gpu0/gi0/access")
}
