package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHookFollowsNoLink: if /dev in an image is a link, the hook writes nothing to the link's target.
func TestHookFollowsNoLink(t *testing.T) {
	top, outside := t.TempDir(), t.TempDir()
	write(t, outside, "nvidia0", "", 0o644)
	require.NoError(t, os.Symlink(outside, filepath.Join(top, "dev")))
	assert.ErrorContains(t, showContainer(top, []byte("extends: t4\n")), "dev leads over a link")
	entries, err := os.ReadDir(outside)
	require.NoError(t, err)
	assert.Len(t, entries, 1)

	require.NoError(t, os.Remove(filepath.Join(top, "dev")))
	require.NoError(t, os.Mkdir(filepath.Join(top, "dev"), 0o755))
	require.NoError(t, os.Symlink(outside, filepath.Join(top, "etc")))
	assert.ErrorContains(t, showContainer(top, []byte("extends: t4\n")), "leads over a link")
	assert.NoError(t, withoutLinks(top, "dev"))
	assert.NoError(t, withoutLinks(top, "sys"))
}
