package plugin

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestServe: each resource that comes has a plugin of its own, which stays when its devices go.
func TestServe(t *testing.T) {
	dir, err := os.MkdirTemp("", "dp")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	k, stopKubelet := startKubelet(t, dir)
	defer stopKubelet()
	var mu sync.Mutex
	devices := []Device{{"nvidia.com/gpu", "GPU-0", true, -1}}
	list := func() []Device {
		mu.Lock()
		defer mu.Unlock()
		return append([]Device(nil), devices...)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Serve(ctx, dir, "nvidia.com/gpu", list, func(err error) { t.Log(err) })
	}()
	assert.Equal(t, "nvidia.com/gpu", k.wait(t).ResourceName)
	mu.Lock()
	devices = []Device{{"nvidia.com/mig-1g.10gb", "MIG-0", true, -1}}
	mu.Unlock()
	r := k.wait(t)
	assert.Equal(t, []string{"nvidia.com/mig-1g.10gb", "nvmlfab-mig-1g.10gb.sock"}, []string{r.ResourceName, r.Endpoint})
	assert.FileExists(t, filepath.Join(dir, Socket("nvidia.com/gpu")))
	stop()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	assert.NoFileExists(t, filepath.Join(dir, r.Endpoint))
	assert.NoFileExists(t, filepath.Join(dir, Socket("nvidia.com/gpu")))
}
