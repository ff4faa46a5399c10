package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sharedFolder is a temporary folder that everybody may enter.
func sharedFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nvmlfab-test-*")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// inRun runs the program describe in the launcher, in an environment without a state directory.
func inRun(t *testing.T, prefix []string, args ...string) outcome {
	t.Helper()
	command := append(prefix[:len(prefix):len(prefix)], launcher(t), "run")
	return run(t, nil, "env", append(append([]string{"-u", "NVMLFAB_STATE_DIR"}, command...), args...)...)
}

// describing is the program describe with the library that the dynamic linker finds, for a launch.
func describing(t *testing.T, args ...string) []string {
	return append([]string{"--", systemPython(t), "-c", describe, "libnvidia-ml.so.1"}, args...)
}

// mode is the persistence mode that the program describe has printed, in its last line.
func mode(t *testing.T, out outcome) string {
	t.Helper()
	lines := out.succeeds(t).lines()
	fields := strings.Fields(lines[len(lines)-1])
	require.Len(t, fields, 4)
	return fields[2]
}

// TestRunState: every run has a state of its own, which all of its processes share and which ends with it, unless a
// directory is named.
func TestRunState(t *testing.T) {
	namespaces(t)
	before := mode(t, inRun(t, nil, append([]string{"--profile", "t4"}, describing(t)...)...))
	other := map[string]string{"0": "1", "1": "0"}[before]
	// The second process of the run has no environment; so its library lies in the folder that the linker's cache names.
	script := `set -e; "$@" ` + other + `; env -i "$@"; test -d "$NVMLFAB_STATE_DIR"; test ! -e /run/nvmlfab; test ! -e /etc/nvmlfab`
	shell := append([]string{"--", "sh", "-c", script, "sh"}, describing(t)[1:]...)
	users := map[string][]string{"as nobody": nobody(t)}
	if os.Geteuid() == 0 {
		users["as root"] = nil
	}
	for user, prefix := range users {
		t.Run(user, func(t *testing.T) {
			with := func(args ...string) outcome {
				return inRun(t, prefix, append([]string{"--namespace", "--as-root", "--profile", "t4"}, args...)...)
			}
			out := with(shell...).succeeds(t)
			assert.Equal(t, "0", out.lines()[0])
			assert.Equal(t, other, mode(t, out))
			assert.Empty(t, out.stderr)
			assert.Equal(t, before, mode(t, with(describing(t)...)), "another run")

			dir := filepath.Join(sharedFolder(t), "state")
			if prefix != nil {
				require.NoError(t, os.Chmod(filepath.Dir(dir), 0o777))
			}
			lasting := append([]string{"--state", dir}, describing(t)...)
			assert.Equal(t, "0", with(append(lasting, other)...).succeeds(t).lines()[0])
			assert.FileExists(t, filepath.Join(dir, "state.json"))
			assert.Equal(t, other, mode(t, with(lasting...)))
			command := append(append(prefix[:len(prefix):len(prefix)], launcher(t), "run", "--profile", "t4"), describing(t)...)
			assert.Equal(t, other, mode(t, run(t, []string{"NVMLFAB_STATE_DIR=" + dir}, command[0], command[1:]...)), "by the environment")
			out = inRun(t, prefix, "--profile", "a100-sxm4-40gb", "--state", dir, "--", "true")
			assert.Equal(t, 125, out.code)
			assert.Contains(t, out.complains(t), dir+" is the state of a node with other GPUs")
		})
	}
	t.Run("preloaded", func(t *testing.T) {
		preloads(t)
		if os.Geteuid() != 0 {
			skip(t, "setters want root")
		}
		script := `set -e; "$@" ` + other + `; "$@"; echo "$NVMLFAB_STATE_DIR" >&2`
		out := inRun(t, nil, append([]string{"--preload", "--profile", "t4", "--", "sh", "-c", script, "sh"}, describing(t)[1:]...)...)
		assert.Equal(t, other, mode(t, out))
		dir := strings.TrimSpace(out.stderr)
		require.NotEmpty(t, dir)
		require.Eventually(t, func() bool { return !exists(dir) }, time.Minute, 10*time.Millisecond)
	})
	t.Run("inside itself", func(t *testing.T) {
		if os.Geteuid() != 0 {
			skip(t, "setters want root")
		}
		inner := func(profile string) string {
			script := `set -e; "$@" ` + other + ` >/dev/null; exec ` + launcher(t) + ` run --profile ` + profile + ` -- "$@"`
			return mode(t, inRun(t, nil, append([]string{"--profile", "t4", "--", "sh", "-c", script, "sh"}, describing(t)[1:]...)...))
		}
		assert.Equal(t, other, inner("t4"), "the same GPUs")
		assert.Equal(t, mode(t, inRun(t, nil, append([]string{"--profile", "h100"}, describing(t)...)...)), inner("h100"), "others")
	})
}

// TestRunPermission: an ordinary user may change nothing, as on a real machine, and one line for each process says what would
// let them.
func TestRunPermission(t *testing.T) {
	namespaces(t)
	twice := `
import ctypes, sys, os
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
d = ctypes.c_void_p()
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(d)) == 0
print(os.getuid(), *[nvml.nvmlDeviceSetPersistenceMode(d, 0) for _ in range(3)], os.listdir(os.environ["NVMLFAB_STATE_DIR"]))
`
	program := []string{"--", systemPython(t), "-c", twice}
	user := nobody(t)
	out := inRun(t, user, append([]string{"--namespace"}, program...)...).succeeds(t)
	assert.NotEqual(t, "0", strings.Fields(out.stdout)[0])
	assert.Regexp(t, ` 4 4 4 \['(caps', 'generation|generation', 'caps)'\]`, out.stdout)
	assert.Contains(t, out.complains(t), "nvmlfab run --as-root")
	out = inRun(t, user, append([]string{"--as-root"}, program...)...).succeeds(t)
	assert.True(t, strings.HasPrefix(out.stdout, "0 0 0 0 ["), out.stdout)
	assert.Empty(t, out.stderr)

	out = inRun(t, user, "--as-root", "--preload", "--", "true")
	assert.Equal(t, 125, out.code)
	assert.Contains(t, out.complains(t), "--as-root needs a namespace")
}

// TestRunName: others find a run by its name or by a process of it, with its profile and its state.
func TestRunName(t *testing.T) {
	namespaces(t)
	for _, name := range []string{"12", "", "a b", "../x"} {
		out := inRun(t, nil, "--name="+name, "--", "sh", "-c", "echo $$ $NVMLFAB_RUN")
		if name == "" {
			fields := strings.Fields(out.succeeds(t).stdout)
			assert.Equal(t, fields[0], fields[1], "the process id")
			continue
		}
		assert.Equal(t, 125, out.code)
		assert.Contains(t, out.complains(t), "--name: ")
	}
	cmd := exec.Command(launcher(t), "run", "--name", "nvmlfab-test-name", "--gpus", "2", "--profile", "t4", "--", "sh", "-c", "echo; read x")
	cmd.Env = environ()
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Wait()
	defer in.Close()
	_, err = out.Read(make([]byte, 1))
	require.NoError(t, err)
	tree := filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "root/dev/.nvmlfab")
	profile, err := os.ReadFile(filepath.Join(tree, "etc/nvmlfab/profile.yaml"))
	require.NoError(t, err)
	assert.Contains(t, string(profile), "extends: t4")
	for _, name := range []string{"nvmlfab-test-name", strconv.Itoa(cmd.Process.Pid)} {
		out := run(t, nil, launcher(t), "set", "--run", name, "--gpu", "1", "thermal.temperature_gpu_c=91").succeeds(t)
		assert.Empty(t, out.stderr)
		assert.FileExists(t, filepath.Join(tree, "run/nvmlfab/state.json"))
		assert.Contains(t, run(t, nil, launcher(t), "status", "--run", name).succeeds(t).stdout, "91")
	}
}
