package machine

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// ownMounts gives the test's thread a mount namespace, which ends with the test, or skips the test.
func ownMounts(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // and never unlocks: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Skip("skipped: no mount namespace: " + err.Error())
	}
	require.NoError(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
}

// TestContainerRace: a folder of a container's that becomes a link, just after it has been looked at, has nothing mounted where
// the link leads.
func TestContainerRace(t *testing.T) {
	ownMounts(t)
	top, outside := t.TempDir(), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(top, "sys/own"), 0o755))
	fd, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	m := merger{top: fd, resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS}
	sys, err := m.open("sys")
	require.NoError(t, err)
	defer unix.Close(sys)

	require.NoError(t, os.Rename(filepath.Join(top, "sys"), filepath.Join(top, "before")))
	require.NoError(t, os.Symlink(outside, filepath.Join(top, "sys")))
	staged := folder()
	staged.file("bus/mine", "x\n")
	require.NoError(t, m.cover("sys", sys, staged))
	defer unix.Unmount(filepath.Join(top, "before"), unix.MNT_DETACH) // nobody can remove what is sealed
	assert.Equal(t, []string{outside}, names(t, outside))
	before := filepath.Join(top, "before")
	assert.Equal(t, []string{before, before + "/bus", before + "/bus/mine", before + "/own"}, names(t, before))

	_, err = m.open("sys")
	assert.ErrorIs(t, err, unix.ELOOP)
	assert.ErrorIs(t, m.merge("sys", staged), unix.ELOOP)
	assert.ErrorIs(t, m.replace("sys/file", &Node{Mode: readable}), unix.ELOOP)
	assert.Equal(t, []string{outside}, names(t, outside))
}

// TestKeepFollowsNoLink: an entry that becomes a link after the folder has been read shows nothing of where that leads.
func TestKeepFollowsNoLink(t *testing.T) {
	ownMounts(t)
	from, to, outside := t.TempDir(), t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), nil, 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(from, "x"), 0o755))
	var fds [2]int
	for i, dir := range []string{from, to} {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		defer unix.Close(fd)
		fds[i] = fd
	}
	entries, err := readDir(fds[0])
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.NoError(t, os.Remove(filepath.Join(from, "x")))
	require.NoError(t, os.Symlink(outside, filepath.Join(from, "x")))
	assert.Error(t, keep(fds[1], fds[0], entries[0]))
	assert.NoFileExists(t, filepath.Join(to, "x/secret"))
}
