package machine

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
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

// TestRemoveFolder: a folder that was there before the tree stays, however often a tree has been written to it.
func TestRemoveFolder(t *testing.T) {
	tree := New(parse(t, "extends: t4\n"), Options{})
	parent := t.TempDir()
	mine, link, fresh := filepath.Join(parent, "mine"), filepath.Join(parent, "link"), filepath.Join(parent, "fresh")
	require.NoError(t, os.Mkdir(mine, 0o755))
	require.NoError(t, os.Symlink("mine", link))
	for range 2 {
		require.NoError(t, tree.Write(link))
		require.NoError(t, tree.Write(link))
		require.NoError(t, Remove(link))
		assert.Equal(t, []string{mine}, names(t, mine))
	}
	require.NoError(t, tree.Write(fresh))
	require.NoError(t, tree.Write(fresh))
	require.NoError(t, Remove(fresh))
	assert.NoDirExists(t, fresh)
	loop := filepath.Join(parent, "loop")
	require.NoError(t, os.Symlink("loop", loop))
	assert.ErrorContains(t, tree.Write(loop), loop+": too many links")
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

// TestWriteShares: files of one text that nobody may write are one file in a staged tree, and a function's configuration space
// is one file in both its places. Whatever may be written is a file of its own.
func TestWriteShares(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "root")
	tree := New(parse(t, "extends: t4\ncount: 200\n"), Options{})
	require.NoError(t, tree.Write(dir))
	made := 0
	tree.Walk(func(name string, n *Node) {
		made++
		if !n.Mode.IsRegular() {
			return
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, n.Data, string(data), name)
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, n.Mode, info.Mode(), name)
	})
	assert.EqualValues(t, made, tree.Made.Load())
	file := func(name string) os.FileInfo {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		return info
	}
	const one, other = "sys/bus/pci/devices/0000:00:1e.0/", "sys/bus/pci/devices/0000:01:00.0/"
	assert.True(t, os.SameFile(file(one+"vendor"), file(other+"vendor")))
	assert.False(t, os.SameFile(file(one+"numa_node"), file(other+"numa_node")), "it may be written")
	assert.False(t, os.SameFile(file(one+"config"), file(other+"config")))
	assert.True(t, os.SameFile(file(one+"config"), file("proc/bus/pci/00/1e.0")))
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range list {
		assert.NotEqual(t, poolName, e.Name())
	}
}

// TestShareFull: a filesystem that has no more links to a file gets the next file.
func TestShareFull(t *testing.T) {
	p := &pool{}
	f, n := &sharedFile{uses: 3}, &Node{Mode: readable, Data: "x"}
	var err error
	p.dir, err = unix.Open(t.TempDir(), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(p.dir)
	first, err := p.file(f, n, "")
	require.NoError(t, err)
	again, err := p.file(f, n, "")
	require.NoError(t, err)
	assert.Equal(t, first, again)
	second, err := p.file(f, n, first)
	require.NoError(t, err)
	assert.NotEqual(t, first, second)
	third, err := p.file(f, n, first) // another thread has found the first full
	require.NoError(t, err)
	assert.Equal(t, second, third)
}
