package vgpuctl

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestFile: a waiting read blocks nothing else and ends with its context, and that end does not affect the next read. A
// FIFO replaces the device.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	f, err := openFile(path)
	require.NoError(t, err)
	defer f.Close()
	other, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer other.Close()
	buffer := make([]byte, 16)

	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := f.Read(ctx, buffer)
		assert.Equal(t, context.DeadlineExceeded, err)
		cancel()
		_, err = f.Read(ctx, buffer)
		assert.Error(t, err, "it was over before")

		_, err = other.WriteString("event")
		require.NoError(t, err)
		ctx, cancel = context.WithCancel(t.Context())
		n, err := f.Read(ctx, buffer)
		cancel()
		require.NoError(t, err)
		assert.Equal(t, "event", string(buffer[:n]))
	}

	assert.Equal(t, unix.ENOTTY, f.Ioctl(IoctlGetInfo, make([]byte, 80)))

	waiting := make(chan error)
	go func() { _, err := f.Read(t.Context(), buffer); waiting <- err }()
	time.Sleep(10 * time.Millisecond)
	require.NoError(t, f.Close())
	assert.ErrorIs(t, <-waiting, os.ErrClosed)
	assert.ErrorIs(t, f.Ioctl(IoctlGetInfo, make([]byte, 80)), os.ErrClosed)
}
