package container

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// at is a container with some files, and a folder outside it that none of its links may lead to.
func at(t *testing.T, files ...string) (c *Container, outside string) {
	t.Helper()
	top := t.TempDir()
	for _, name := range files {
		put(t, filepath.Join(top, name), "")
	}
	c, err := At(top)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c, t.TempDir()
}

func put(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
}

func text(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

// TestShowFollowsNoLink: if /dev, /etc or /run in an image is a link, nothing is written to the link's target.
func TestShowFollowsNoLink(t *testing.T) {
	node := Node{Profile: []byte("extends: t4\n"), State: t.TempDir()}
	for _, name := range []string{"dev", "etc", "run", "sys", "proc"} {
		c, outside := at(t)
		if name != "dev" {
			put(t, filepath.Join(c.Root, "dev/nvidia0"), "")
		}
		require.NoError(t, os.Symlink(outside, filepath.Join(c.Root, name)))
		assert.ErrorContains(t, c.Show(node), "leads over a link", name)
		empty(t, outside)
	}
}

// TestVisible: a container sees the GPUs and the MIG devices whose nodes it has.
func TestVisible(t *testing.T) {
	c, _ := at(t, "dev/nvidia0", "dev/nvidia2", "dev/nvidia-caps/nvidia-cap75", "dev/nvidia-caps/nvidia-cap76")
	profile := []byte("extends: a100-sxm4-40gb\n")
	board, part, err := c.visible(profile)
	require.NoError(t, err)
	require.Len(t, board.Devices, 2)
	assert.Equal(t, uint32(2), board.Devices[1].MinorNumber.Or(board.Devices[1].Index))
	assert.Equal(t, []string{"gi8/ci0"}, board.Devices[0].MIG.Visible)
	assert.Contains(t, part, "visible: [gi8/ci0]")
	put(t, filepath.Join(c.Root, "dev/nvidia-caps/nvidia-cap2"), "")
	board, _, err = c.visible(profile)
	require.NoError(t, err)
	assert.Nil(t, board.Devices[0].MIG.Visible, "it may look at all")

	c, _ = at(t, "dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia07")
	assert.False(t, c.HasGPU())
	board, _, err = c.visible(profile)
	require.NoError(t, err)
	assert.Nil(t, board)
	assert.NoError(t, c.Show(Node{Profile: []byte("no profile is read")}))
}

// TestState: a container's root is the one of its configuration, which is relative to the bundle or not.
func TestState(t *testing.T) {
	bundle, elsewhere := t.TempDir(), t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(bundle, "rootfs"), 0o755))
	for config, want := range map[string]string{
		`{"root": {"path": "rootfs"}}`:            filepath.Join(bundle, "rootfs"),
		`{"root": {"path": "` + elsewhere + `"}}`: elsewhere,
		`{"root": {"path": "/"}}`:                 "! which is this machine's",
		`{"root": {"path": "none"}}`:              "! no such file",
		`{"root": 1}`:                             "! the container's configuration",
		`{"root": {"path": "rootfs"}, "process": {"capabilities": {"bounding": ["CAP_KILL", "CAP_SYS_ADMIN"]}}}`: filepath.Join(bundle, "rootfs") + " admin",
	} {
		put(t, filepath.Join(bundle, "config.json"), config)
		c, err := Open(strings.NewReader(`{"ociVersion": "1.0.2", "id": "x", "pid": 1, "status": "creating", "bundle": "` + bundle + `"}`))
		if says, bad := strings.CutPrefix(want, "! "); bad {
			assert.ErrorContains(t, err, says, config)
			continue
		}
		require.NoError(t, err, config)
		root, admin := strings.CutSuffix(want, " admin")
		assert.Equal(t, root, c.Root)
		assert.Equal(t, admin, c.Admin)
		assert.NoError(t, c.Close())
	}
	_, err := Open(strings.NewReader("{"))
	assert.ErrorContains(t, err, "the container's state")
}

// TestLink: links are made inside, whatever links the image has.
func TestLink(t *testing.T) {
	c, outside := at(t, "usr/lib64/libcuda.so.1", "lib/libx.so")
	require.NoError(t, os.Symlink("/usr/lib64", filepath.Join(c.Root, "lib64")), "as the container's programs follow it")
	require.NoError(t, os.Symlink(outside, filepath.Join(c.Root, "out")))
	require.NoError(t, os.Symlink("../../../../../../../..", filepath.Join(c.Root, "up")))
	for range 2 {
		require.NoError(t, c.Link("/lib64/libcuda.so", "libcuda.so.1"))
		require.NoError(t, c.Link("/lib/libx.so", "/elsewhere/libx.so.1"), "a file is replaced")
		require.NoError(t, c.Link("/a/b/c", "d"), "folders are made")
		require.NoError(t, c.Link("/up/e", "f"))
		require.NoError(t, c.Link("../../g", "h"))
	}
	for name, want := range map[string]string{"usr/lib64/libcuda.so": "libcuda.so.1", "lib/libx.so": "/elsewhere/libx.so.1", "a/b/c": "d", "e": "f", "g": "h"} {
		target, err := os.Readlink(filepath.Join(c.Root, name))
		require.NoError(t, err)
		assert.Equal(t, want, target)
	}
	assert.Error(t, c.Link("/out/i", "j"), "the link leads to a folder that the container does not have")
	assert.Error(t, c.Link("/a/b", "j"), "a folder stays")
	assert.Error(t, c.Link("/", "j"))
	assert.Error(t, c.Link("/k", ""))
	empty(t, outside)
	entries, err := os.ReadDir(filepath.Join(c.Root, "a"))
	require.NoError(t, err)
	assert.Len(t, entries, 1, "nothing is left over")
}

func TestChmod(t *testing.T) {
	c, outside := at(t, "dev/dri/card0")
	put(t, filepath.Join(outside, "file"), "")
	require.NoError(t, os.Symlink(filepath.Join(outside, "file"), filepath.Join(c.Root, "link")))
	require.NoError(t, c.Chmod(0o750, "/dev/dri", "/none", "/link"))
	info, err := os.Stat(filepath.Join(c.Root, "dev/dri"))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o750), info.Mode().Perm())
	info, err = os.Stat(filepath.Join(outside, "file"))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o644), info.Mode().Perm())
}
