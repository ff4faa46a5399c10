package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// describe loads the library of its first argument and prints the number of GPUs and the first one's UUID, whether it is
// persistent and how warm it is. A second argument is a persistence mode to set first; its answer goes before.
const describe = `
import ctypes, sys
nvml = ctypes.CDLL(sys.argv[1])
assert nvml.nvmlInit_v2() == 0
n, d, mode, celsius = ctypes.c_uint(), ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint()
uuid = ctypes.create_string_buffer(96)
assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(n)) == 0
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(d)) == 0
if len(sys.argv) > 2:
    print(nvml.nvmlDeviceSetPersistenceMode(d, int(sys.argv[2])))
assert nvml.nvmlDeviceGetUUID(d, uuid, 96) == 0
assert nvml.nvmlDeviceGetPersistenceMode(d, ctypes.byref(mode)) == 0
assert nvml.nvmlDeviceGetTemperature(d, 0, ctypes.byref(celsius)) in (0, 3)  # a vGPU and a Thor have no sensor
print(n.value, uuid.value.decode(), mode.value, celsius.value)
`

// alone runs the program describe in an empty environment.
func alone(t *testing.T, prefix []string, library string, args ...string) outcome {
	t.Helper()
	command := append(prefix[:len(prefix):len(prefix)], systemPython(t), "-c", describe, library)
	return run(t, nil, "env", append(append([]string{"-i"}, command...), args...)...)
}

// stage stages a board and returns the root and the library in it. Everybody may enter the folder.
func stage(t *testing.T, args ...string) (root, library string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "nvmlfab-test-*")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	root = filepath.Join(dir, "root")
	run(t, nil, launcher(t), append([]string{"stage", "--root", root}, args...)...).succeeds(t)
	return root, filepath.Join(root, "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
}

// TestTree: the library of a staged tree finds the tree's profile and state without any variable, wherever it is asked.
func TestTree(t *testing.T) {
	for _, name := range kinds {
		t.Run(name, func(t *testing.T) {
			board := mustBoard(t, name)
			_, library := stage(t, "--profile", name)
			out := alone(t, nil, library).succeeds(t)
			assert.True(t, strings.HasPrefix(out.stdout, fmt.Sprintf("%d %s ", len(board.Devices), board.Devices[0].UUID)), out.stdout)
			assert.Empty(t, out.stderr)
		})
	}
}

// TestTreeState: what is set in one process is there in the next, survives that the tree is staged anew, and goes with it.
func TestTreeState(t *testing.T) {
	if os.Geteuid() != 0 {
		skip(t, "setters want root")
	}
	root, library := stage(t, "--profile", "t4")
	persistence := func(out outcome) string { return strings.Fields(out.succeeds(t).lines()[0])[2] }
	before := persistence(alone(t, nil, library))
	other := map[string]string{"0": "1", "1": "0"}[before]
	out := alone(t, nil, library, other).succeeds(t)
	assert.Equal(t, "0", out.lines()[0])
	assert.Empty(t, out.stderr)
	assert.Equal(t, other, persistence(alone(t, nil, library)))
	run(t, nil, launcher(t), "stage", "--root", root, "--profile", "t4").succeeds(t)
	assert.Equal(t, other, persistence(alone(t, nil, library)))
	assert.Equal(t, other, persistence(alone(t, nobody(t), library)), "as another user")

	overrides := filepath.Join(root+".state", "overrides.yaml")
	require.NoError(t, os.WriteFile(overrides, []byte("device_defaults: {thermal: {temperature_gpu_c: 77}}\n"), 0o644))
	assert.Equal(t, "77", strings.Fields(alone(t, nil, library).succeeds(t).stdout)[3])
	require.NoError(t, os.Remove(overrides))

	out = run(t, nil, "env", append([]string{"-i"}, append(nobody(t), systemPython(t), "-c", describe, library, before)...)...).succeeds(t)
	assert.Equal(t, "4", out.lines()[0], "NO_PERMISSION")
	run(t, nil, launcher(t), "unstage", "--root", root).succeeds(t)
	assert.Empty(t, leftIn(t, filepath.Dir(root)))
}

// inContainer is a command prefix that runs a program where, beside this machine's programs and libraries, only the tree's
// library and what is mounted of it are to be seen: profile and state, the latter read-only or not.
func inContainer(t *testing.T, root, mode string) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		skip(t, "only root can change its root")
	}
	top := t.TempDir()
	script := `set -e
top=$1 root=$2 mode=$3
shift 3
mount -t tmpfs none "$top"
for d in usr bin lib lib64 dev proc tmp; do
	if [ -L /$d ]; then cp -P /$d "$top/$d"; else mkdir "$top/$d"; fi
done
mkdir -p "$top/etc/nvmlfab" "$top/run/nvmlfab" "$top/opt/driver"
mount --bind /usr "$top/usr"
mount --bind /proc "$top/proc"
mount --rbind /dev "$top/dev"
for d in bin lib lib64; do [ -L /$d ] || mount --bind /$d "$top/$d"; done
cp "$root"/usr/lib/x86_64-linux-gnu/libnv*.so.[0-9][0-9]* "$root/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1" -d "$top/opt/driver"
: > "$top/etc/nvmlfab/profile.yaml"
mount --bind "$root/etc/nvmlfab/profile.yaml" "$top/etc/nvmlfab/profile.yaml"
mount --bind "$root.state" "$top/run/nvmlfab"
mount -o "remount,bind,$mode" "$top/run/nvmlfab"
exec chroot "$top" "$@"
`
	return []string{"unshare", "-m", "sh", "-c", script, "sh", top, root, mode}
}

// TestTreeContainer: in a container, where only the library and the mounted files are to be seen, the same is true. What is
// mounted read-only cannot be changed, and what changes outside is seen.
func TestTreeContainer(t *testing.T) {
	root, library := stage(t, "--profile", "a100-sxm4-40gb")
	const inside = "/opt/driver/libnvidia-ml.so.1"
	outside := alone(t, nil, library).succeeds(t)
	reads := inContainer(t, root, "ro")
	out := alone(t, reads, inside)
	assert.Equal(t, outside.stdout, out.succeeds(t).stdout)
	assert.Empty(t, out.stderr)

	persistent := strings.Fields(outside.stdout)[2]
	other := map[string]string{"0": "1", "1": "0"}[persistent]
	out = alone(t, reads, inside, other).succeeds(t)
	assert.Equal(t, "4", out.lines()[0], "NO_PERMISSION")
	assert.Contains(t, out.complains(t), "read-only file system")
	assert.Equal(t, outside.stdout, alone(t, nil, library).succeeds(t).stdout)

	assert.Equal(t, "0", alone(t, nil, library, other).succeeds(t).lines()[0])
	assert.Equal(t, other, strings.Fields(alone(t, reads, inside).succeeds(t).stdout)[2], "what was set outside")
	assert.Equal(t, "0", alone(t, inContainer(t, root, "rw"), inside, persistent).succeeds(t).lines()[0])
	assert.Equal(t, outside.stdout, alone(t, nil, library).succeeds(t).stdout, "what was set inside")
}

// TestTreeSetuid: a setuid program follows a tree of root's, and none that its caller could have made.
func TestTreeSetuid(t *testing.T) {
	if os.Getuid() != 0 {
		skip(t, "a setuid program wants root")
	}
	root, library := stage(t, "--profile", "t4")
	program := coreProgram(t, "", "tree", "-L", filepath.Dir(library), "-lnvidia-ml", "-Wl,-rpath,"+filepath.Dir(library))
	letIn(t, filepath.Dir(program))
	require.NoError(t, os.Chmod(program, 0o755|os.ModeSetuid))
	asNobody := func() string {
		out := run(t, []string{"NVMLFAB_PROFILE=a100-sxm4-40gb"}, nobody(t)[0], append(nobody(t)[1:], program)...)
		if out.code == 9 {
			skip(t, "no program can be setuid here: "+program+" is on a file system that is mounted nosuid")
		}
		assert.Empty(t, out.stderr)
		return out.succeeds(t).stdout
	}
	assert.Equal(t, fmt.Sprintln(len(mustBoard(t, "t4").Devices)), asNobody())
	require.NoError(t, os.Chmod(filepath.Join(root, "etc/nvmlfab"), 0o777))
	assert.Equal(t, fmt.Sprintln(len(mustBoard(t, profiles.Default).Devices)), asNobody())
}

// TestTreeToolkit: NVIDIA's own nvidia-ctk describes every board from a staged tree, without any variable.
func TestTreeToolkit(t *testing.T) {
	if os.Geteuid() != 0 {
		skip(t, "a staged tree has device nodes only if root makes it")
	}
	const module = "github.com/NVIDIA/nvidia-container-toolkit"
	version := runIn(t, filepath.Join(root, "tests", "nvidia"), nil, "go", "list", "-m", "-f", "{{.Version}}", module).succeeds(t).lines()[0]
	bin := t.TempDir()
	if out := run(t, []string{"GOBIN=" + bin}, "go", "install", "-ldflags", "-extldflags=-Wl,-z,lazy", module+"/cmd/nvidia-ctk@"+version); out.code != 0 {
		skip(t, "nvidia-ctk cannot be built: "+out.stderr)
	}
	program := filepath.Join(bin, "nvidia-ctk")
	for _, name := range kinds {
		t.Run(name, func(t *testing.T) {
			root, _ := stage(t, "--profile", name)
			out := run(t, nil, "env", "-i", program, "cdi", "generate", "--driver-root", root, "--format", "json").succeeds(t)
			for _, d := range mustBoard(t, name).Devices {
				assert.Contains(t, out.stdout, fmt.Sprintf("%q", fmt.Sprint(d.Index)))
				assert.Contains(t, out.stdout, fmt.Sprintf("/dev/nvidia%d", d.MinorNumber.Or(d.Index)))
			}
		})
	}
}
