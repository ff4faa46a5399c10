//go:build guest

package kernel

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestNVENCFilter: if a GPU's node does not open, for any reason, a library no longer enumerates the GPU. If all nodes
// open, nothing changes.
func TestNVENCFilter(t *testing.T) {
	const shown = "attached status 0: %\nprobed status 0: %\nprobed with flags status 0: %\n"
	both, first := strings.ReplaceAll(shown, "%", "1a00 10203"), strings.ReplaceAll(shown, "%", "1a00")
	for name, c := range map[string]struct {
		hide func(t *testing.T, cmd *exec.Cmd)
		want string
	}{
		"all visible": {func(*testing.T, *exec.Cmd) {}, both},
		"no rights": {func(t *testing.T, cmd *exec.Cmd) {
			require.NoError(t, os.Chmod("/dev/nvidia3", 0))
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
		}, first},
		"no rights, all visible": {func(t *testing.T, cmd *exec.Cmd) {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
		}, both},
		"no node": {func(t *testing.T, cmd *exec.Cmd) { require.NoError(t, os.Remove("/dev/nvidia3")) }, first},
		"another driver's node": {func(t *testing.T, cmd *exec.Cmd) {
			require.NoError(t, os.Remove("/dev/nvidia3"))
			require.NoError(t, unix.Mknod("/dev/nvidia3", unix.S_IFCHR|0o666, int(unix.Mkdev(4000, 3))))
			t.Cleanup(func() { os.Remove("/dev/nvidia3") }) // the kernel removes only nodes that it made itself
		}, first},
		"device cgroup": {func(t *testing.T, cmd *exec.Cmd) { denyDevice(t, cmd, 195, 3) }, first},
		"off": {func(t *testing.T, cmd *exec.Cmd) {
			require.NoError(t, os.Remove("/dev/nvidia3"))
			cmd.Env = append(cmd.Environ(), "NVMLFAB_GPUFILTER=off")
		}, both},
	} {
		t.Run(name, func(t *testing.T) {
			loadNvidia(t)
			cmd := exec.CommandContext(t.Context(), "/dynamic/nvenc", "/dynamic/libcuda.so.1", "/dynamic/libnvgpufilter.so")
			c.hide(t, cmd)
			o := finish(t, cmd).succeeds(t)
			assert.Equal(t, both+"install 0\n"+c.want, o.stdout)
			assert.Empty(t, o.stderr)
		})
	}
}

// denyDevice makes the command start in a cgroup whose processes may use every device but one.
func denyDevice(t *testing.T, cmd *exec.Cmd, major, minor uint32) {
	t.Helper()
	dir, _ := cgroup(t, "hidden")
	program, err := loadDeviceFilter(major, minor)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(program) })
	f, err := os.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	require.NoError(t, attachDeviceFilter(program, int(f.Fd())))
	inCgroup(t, cmd, dir)
}
