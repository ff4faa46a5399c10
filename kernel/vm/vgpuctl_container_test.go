//go:build guest

package kernel

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestVgpuctlContainer follows a container's life as docs/vgpu-device-plugin.md describes it. The first process is made
// in the container's cgroup and stops before its first instruction, as a runtime's process waits for hooks. Then the
// policies are set, and then it runs.
func TestVgpuctlContainer(t *testing.T) {
	d := withDriver(t, enforcing...)
	runtime.LockOSThread() // only the thread that started a traced process can let it go
	defer runtime.UnlockOSThread()
	grants := []vgpuctl.Grant{
		{Minor: 0, Limits: vgpuctl.Limits{MemoryLimitBytes: 64 * mib, Weight: 3}},
		{Minor: 1, Limits: vgpuctl.Limits{MemoryLimitBytes: 96 * mib, Weight: 1}},
	}
	created := func(dir string, args ...string) (*exec.Cmd, *bytes.Buffer) {
		cmd := exec.Command("/bin/rm_alloc_smoke", args...)
		if dir != "" {
			inCgroup(t, cmd, dir)
		} else {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Ptrace = true
		var stdout bytes.Buffer
		cmd.Stdout = &stdout
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { cmd.Process.Kill() })
		var status unix.WaitStatus
		_, err := unix.Wait4(cmd.Process.Pid, &status, 0, nil)
		require.NoError(t, err)
		require.True(t, status.Stopped(), "%#x", status)
		return cmd, &stdout
	}
	ends := func(cmd *exec.Cmd, stdout *bytes.Buffer) string {
		require.NoError(t, unix.PtraceDetach(cmd.Process.Pid))
		cmd.Wait()
		return stdout.String()
	}
	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), hangs)
		t.Cleanup(cancel)
		return ctx
	}

	pod, _ := cgroup(t, "pod")
	dir, id := cgroup(t, "pod/container")
	cmd, stdout := created(dir, "33554432", "4", "0")
	got, err := d.ApplyToContainer(soon(), cmd.Process.Pid, grants)
	require.NoError(t, err)
	assert.Equal(t, id, got)
	again, err := d.ApplyToContainer(soon(), cmd.Process.Pid, grants)
	require.NoError(t, err, "a plugin that was started anew")
	assert.Equal(t, id, again)
	assert.Contains(t, ends(cmd, stdout), "holding 67108864 bytes")

	// The other GPU has a limit of its own. Both limits apply to a nested cgroup.
	nested, _ := cgroup(t, "pod/container/nested")
	o := finish(t, inCgroup(t, exec.Command("/bin/rm_alloc_smoke", "-d", "1", "33554432", "4", "0"), nested))
	assert.Contains(t, o.stdout, "holding 100663296 bytes")
	o = finish(t, inCgroup(t, exec.Command("/bin/rm_timeslice_smoke", "1500"), nested))
	assert.Contains(t, o.stdout, "get: status 0, 4500 us\nclient")
	// Another container of the pod has no limit.
	other, _ := cgroup(t, "pod/other")
	finish(t, inCgroup(t, exec.Command("/bin/rm_alloc_smoke", "33554432", "4", "0"), other)).succeeds(t)

	require.NoError(t, d.Revoke(id, grants))
	finish(t, inCgroup(t, exec.Command("/bin/rm_alloc_smoke", "33554432", "4", "0"), dir)).succeeds(t)

	// This runtime makes the process outside the cgroup and then moves it.
	cmd, stdout = created("", "33554432", "4", "0")
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = d.ApplyToContainer(short, cmd.Process.Pid, grants)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "it is still in the cgroup of this program or one above it")
	assert.Zero(t, stats(t, d).CgroupPolicies)
	done := make(chan error)
	go func() {
		_, err := d.ApplyToContainer(soon(), cmd.Process.Pid, grants)
		done <- err
	}()
	time.Sleep(50 * time.Millisecond)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(fmt.Sprint(cmd.Process.Pid)), 0o644))
	require.NoError(t, <-done)
	assert.Contains(t, ends(cmd, stdout), "holding 67108864 bytes")

	// The process is not there yet: the call waits for the folder, and the policies end with it.
	late := filepath.Join(pod, "late")
	go func() {
		_, err := d.ApplyToCgroup(soon(), late, grants)
		done <- err
	}()
	time.Sleep(50 * time.Millisecond)
	cgroup(t, "pod/late")
	require.NoError(t, <-done)
	assert.EqualValues(t, 4, stats(t, d).CgroupPolicies)
	o = finish(t, inCgroup(t, exec.Command("/bin/rm_alloc_smoke", "33554432", "4", "0"), late))
	assert.Contains(t, o.stdout, "holding 67108864 bytes")
	eventually(t, "the folder can be removed", func() bool { return os.Remove(late) == nil })
	eventually(t, "its policies are gone", func() bool { return stats(t, d).CgroupPolicies == 2 })
	_, err = d.ApplyToContainer(soon(), cmd.Process.Pid, grants)
	assert.ErrorIs(t, err, unix.ESRCH)
}
