package tests

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestInfinibandThousandHosts: ibnetdiscover walks a fat tree of 1,000 hosts. If the daemon stands still or dies meanwhile, it ends
// all the same, and says what it did not get.
func TestInfinibandThousandHosts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	description := filepath.Join(dir, "fabric.yaml")
	require.NoError(t, os.WriteFile(description, []byte("layout: fat-tree\nhosts: [{name: 'n%04d', count: 1000}]\n"), 0o644))
	tree := filepath.Join(dir, "tree")
	run(t, nil, launcher(t), "stage", "--root", tree, "--profile", "h100", "--ib-fabric", description).succeeds(t)
	env := []string{ibPreload(), "MOCK_IB=full", "MOCK_IB_ROOT=" + tree}
	m := startMockIB(t, tree, "--node", "n0001")
	began := time.Now()
	out := ibTool(t, env, "ibnetdiscover").succeeds(t)
	t.Logf("ibnetdiscover has walked 1,000 hosts in %.1f s", time.Since(began).Seconds())
	assert.Empty(t, out.stderr)
	assert.Equal(t, 8000, strings.Count(out.stdout, "\nCa\t1 "))
	assert.Equal(t, 634, strings.Count(out.stdout, "\nSwitch\t64 "))
	assert.Equal(t, 1, strings.Count(out.stdout, `"n1000 mlx5_7"`+"\n"))

	const kills = 8 // in one of four of which the daemon dies between a request and its answer
	for i, signal := range append([]syscall.Signal{syscall.SIGSTOP}, slices.Repeat([]syscall.Signal{syscall.SIGKILL}, kills)...) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		walk := exec.CommandContext(ctx, filepath.Join(diags(t), "usr/sbin/ibnetdiscover"))
		walk.Env = append(append(environ(), "LD_LIBRARY_PATH="+filepath.Join(diags(t), "usr/lib/x86_64-linux-gnu")), env...)
		var complaints strings.Builder
		walk.Stderr = &complaints
		require.NoError(t, walk.Start())
		time.Sleep(time.Duration(300+37*i) * time.Millisecond) // a walk takes longer
		require.NoError(t, m.cmd.Process.Signal(signal))
		walk.Wait()
		cancel()
		assert.True(t, walk.ProcessState.Exited(), "%s: %s", signal, walk.ProcessState)
		assert.Regexp(t, "Connection timed out|can't", complaints.String()[:min(1000, complaints.Len())], signal.String())
		m.kill()
		m = startMockIB(t, tree, "--node", "n0001")
	}
	ibTool(t, env, "sminfo").succeeds(t)
}
