package state_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/state"
)

func TestTree(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	library := filepath.Join(root, "usr/lib/libnvidia-ml.so.1")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "usr/lib"), 0o755))
	_, ok := state.TreeOf(library)
	assert.False(t, ok)
	for _, library := range []string{"", "/", "relative/libnvidia-ml.so.1", "/libnvidia-ml.so.1"} {
		_, ok := state.TreeOf(library)
		assert.False(t, ok, library)
	}

	profile := filepath.Join(root, state.ProfileFile)
	require.NoError(t, os.MkdirAll(profile, 0o755))
	_, ok = state.TreeOf(library)
	assert.False(t, ok, "a folder is no profile")
	require.NoError(t, os.Remove(profile))
	require.NoError(t, os.WriteFile(profile, nil, 0o644))
	tree, ok := state.TreeOf(library)
	require.True(t, ok)
	assert.Equal(t, state.TreeAt(root), tree)
	assert.Equal(t, profile, tree.Profile())

	assert.Empty(t, tree.State())
	mounted := filepath.Join(root, state.MountPoint)
	require.NoError(t, os.MkdirAll(mounted, 0o755))
	assert.Equal(t, mounted, tree.State())
	require.NoError(t, os.Mkdir(root+".state", 0o755))
	assert.Equal(t, root+".state", tree.State())
	assert.Equal(t, root+".state", state.TreeAt(root+"/").Beside())
}

func TestRootsAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root makes files of root's")
	}
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	assert.True(t, state.RootsAlone(file))
	for _, path := range []string{dir, file} {
		require.NoError(t, os.Chmod(path, 0o775))
		assert.False(t, state.RootsAlone(file), "the group may write")
		require.NoError(t, os.Chmod(path, 0o755))
		require.NoError(t, os.Chown(path, 65534, -1))
		assert.False(t, state.RootsAlone(file), "another owner")
		require.NoError(t, os.Chown(path, 0, -1))
	}
	assert.False(t, state.RootsAlone(filepath.Join(dir, "none")))
}
