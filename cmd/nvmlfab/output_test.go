package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWriteOutput(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", "/nonexistent")
	file := write(t, dir, "file", "old", 0o600)
	link, dangling := filepath.Join(dir, "link"), filepath.Join(dir, "dangling")
	require.NoError(t, os.Symlink("file", link))
	require.NoError(t, os.Symlink("made", dangling))
	for path, result := range map[string]string{
		file: file, link: file, dangling: filepath.Join(dir, "made"), filepath.Join(dir, "a", "b"): filepath.Join(dir, "a", "b"),
	} {
		require.NoError(t, writeOutput(path, []byte(path)))
		text, err := os.ReadFile(result)
		require.NoError(t, err)
		assert.Equal(t, path, string(text))
	}
	info, err := os.Lstat(link)
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeSymlink, "the link stays one")
	info, err = os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode(), "and the file's mode is kept")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 5, "nothing else is left")

	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o644))
	reader, err := os.OpenFile(fifo, os.O_RDWR, 0) // so that opening does not wait for a writer
	require.NoError(t, err)
	defer reader.Close()
	require.NoError(t, writeOutput(fifo, []byte("text")))
	got := make([]byte, 4)
	_, err = reader.Read(got)
	require.NoError(t, err)
	assert.Equal(t, "text", string(got))
	info, err = os.Lstat(fifo)
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeNamedPipe)

	null := filepath.Join(dir, "null")
	require.NoError(t, os.Symlink("/dev/null", null))
	require.NoError(t, writeOutput(null, []byte("text")))
	info, err = os.Stat(null)
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeCharDevice)

	loop := filepath.Join(dir, "loop")
	require.NoError(t, os.Symlink("loop", loop))
	assert.Error(t, writeOutput(loop, nil))
}
