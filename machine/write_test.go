package machine

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWriteWhere: where a tree may be written, and what stays of what was there.
func TestWriteWhere(t *testing.T) {
	tree := New(parse(t, "extends: t4\n"), Options{Profile: "extends: t4\n"})
	parent := t.TempDir()
	t.Chdir(parent)
	assert.ErrorContains(t, tree.Write(""), "is empty")
	assert.ErrorContains(t, Remove(""), "is empty")
	assert.ErrorContains(t, tree.Write("."), "is the working directory")
	assert.ErrorContains(t, tree.Write(".."), "above it")

	dir, link := filepath.Join(parent, "dir"), filepath.Join(parent, "link")
	require.NoError(t, os.Mkdir(dir, 0o700))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(dir, 12345, 12345))
	}
	before, err := os.Stat(dir)
	require.NoError(t, err)
	require.NoError(t, os.Symlink("dir", link))
	require.NoError(t, tree.Write(link))
	require.NoError(t, tree.Write(link))
	target, err := os.Readlink(link)
	require.NoError(t, err)
	assert.Equal(t, "dir", target)
	after, err := os.Stat(dir)
	require.NoError(t, err)
	assert.Equal(t, before.Mode(), after.Mode())
	assert.Equal(t, owner(before), owner(after))

	mine := filepath.Join(dir, ProfileFile)
	require.NoError(t, os.Remove(mine))
	require.NoError(t, os.WriteFile(mine, nil, 0o644))
	require.NoError(t, os.Chtimes(mine, time.Time{}, time.Now().Add(time.Hour)))
	assert.ErrorContains(t, tree.Write(dir), "did not write "+mine)
	require.NoError(t, Remove(dir))
	assert.FileExists(t, mine)
}

// TestLeftovers: what a killed writer left goes, and what another is still writing stays.
func TestLeftovers(t *testing.T) {
	parent := t.TempDir()
	long := time.Now().Add(-time.Hour)
	var dirs []string
	for _, name := range []string{".nvmlfab-stage-1", ".nvmlfab-stage-2"} {
		dirs = append(dirs, filepath.Join(parent, name))
		require.NoError(t, os.Mkdir(dirs[len(dirs)-1], 0o755))
		require.NoError(t, os.Chtimes(dirs[len(dirs)-1], long, long))
	}
	lock, err := lockFolder(dirs[1])
	require.NoError(t, err)
	defer lock.Close()
	require.NoError(t, New(parse(t, "extends: t4\n"), Options{}).Write(filepath.Join(parent, "root")))
	assert.NoDirExists(t, dirs[0])
	assert.DirExists(t, dirs[1])
}

func owner(info os.FileInfo) [2]uint32 {
	s := info.Sys().(*syscall.Stat_t)
	return [2]uint32{s.Uid, s.Gid}
}
