package tests

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMIGFiles: in a run, files and device nodes of instances come and go with them, whoever makes them.
func TestMIGFiles(t *testing.T) {
	namespaces(t)
	if os.Geteuid() != 0 {
		skip(t, "setters want root")
	}
	smi := fetched(t, "nvidia-smi-550", "nvidia-smi")
	script := `set -e
all() { find -L /proc/driver/nvidia/capabilities/gpu0/mig -name access | sort; echo .; }
all
"$1" -i 0 -mig 1 >/dev/null
"$1" mig -i 0 -cgi 9,19 -C >/dev/null
all
cat /proc/driver/nvidia/capabilities/gpu0/mig/gi7/ci0/access
grep -x "gpu0/gi7/ci0/access 67" /proc/driver/nvidia-caps/mig-minors
: < /dev/nvidia-caps/nvidia-cap67
"$1" mig -i 0 -gi 7 -dci >/dev/null
all
"$2" mig destroy --run $$ --gpu 0 --all
all
`
	out := inRun(t, nil, "--namespace", "--profile", "h100", "--", "sh", "-c", script, "sh", smi, launcher(t)).succeeds(t)
	const mig = "/proc/driver/nvidia/capabilities/gpu0/mig/"
	want := []string{".", mig + "gi2/access", mig + "gi2/ci0/access", mig + "gi7/access", mig + "gi7/ci0/access", ".",
		"DeviceFileMinor: 67", "DeviceFileMode: 292", "DeviceFileModify: 1", "gpu0/gi7/ci0/access 67",
		mig + "gi2/access", mig + "gi2/ci0/access", mig + "gi7/access", ".", "."}
	assert.Equal(t, want, out.lines())
}

// TestMIGPreloaded: programs that have the library preloaded see the files of instances too, in the run's own state directory as in
// one that is named.
func TestMIGPreloaded(t *testing.T) {
	needsRoot(t)
	smi := fetched(t, "nvidia-smi-550", "nvidia-smi")
	script := `set -e
cd /proc/driver/nvidia/capabilities/gpu0
ls mig
"$1" -i 0 -mig 1 >/dev/null
"$1" mig -i 0 -cgi 9 -C >/dev/null
find -L mig -name access | sort
cat mig/gi2/ci0/access /proc/driver/nvidia/capabilities/mig/monitor
grep -x "gpu0/gi2/ci0/access 22" /proc/driver/nvidia-caps/mig-minors
"$1" -i 0 -mig 0 >/dev/null
ls mig
echo end
`
	for name, env := range map[string][]string{"own": nil, "named": {"NVMLFAB_STATE_DIR=" + t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			out := inRun(t, env, "--preload", "--profile", "h100", "--", "sh", "-c", script, "sh", smi).succeeds(t)
			assert.Equal(t, []string{"mig/gi2/access", "mig/gi2/ci0/access", "DeviceFileMinor: 22", "DeviceFileMode: 292", "DeviceFileModify: 1",
				"DeviceFileMinor: 2", "DeviceFileMode: 292", "DeviceFileModify: 1", "gpu0/gi2/ci0/access 22", "end"}, out.lines())
		})
	}
}

// TestMIGFolders: each GPU's folder of capabilities is there before there is an instance, whoever names the state directory.
func TestMIGFolders(t *testing.T) {
	namespaces(t)
	const folders = "cd /proc/driver/nvidia/capabilities; ls -d gpu0/mig/. gpu7/mig/."
	for name, run := range map[string]struct{ env, args []string }{
		"own":      {nil, nil},
		"option":   {nil, []string{"--state", t.TempDir()}},
		"variable": {[]string{"NVMLFAB_STATE_DIR=" + t.TempDir()}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"--namespace", "--profile", "h100"}, run.args...)
			out := inRun(t, run.env, append(args, "--", "sh", "-c", folders)...).succeeds(t)
			assert.Equal(t, []string{"gpu0/mig/.", "gpu7/mig/."}, out.lines())
		})
	}
}

// TestMIGToolkit: NVIDIA's nvidia-ctk describes the MIG devices of a run, with their device nodes.
func TestMIGToolkit(t *testing.T) {
	namespaces(t)
	const module = "github.com/NVIDIA/nvidia-container-toolkit"
	bin := t.TempDir()
	version := runIn(t, filepath.Join(root, "tests", "nvidia"), nil, "go", "list", "-m", "-f", "{{.Version}}", module).succeeds(t).lines()[0]
	if out := run(t, []string{"GOBIN=" + bin}, "go", "install", "-ldflags", "-extldflags=-Wl,-z,lazy", module+"/cmd/nvidia-ctk@"+version); out.code != 0 {
		skip(t, "nvidia-ctk cannot be built: "+out.stderr)
	}
	tree, _ := stage(t, "--profile", "h100")
	script := `set -e
"$1" mig create --run $$ --gpu 0 --enable 3g.40gb,1g.10gb
exec "$2" cdi generate --driver-root "$3" --dev-root / --format json`
	out := inRun(t, nil, "--namespace", "--profile", "h100", "--", "sh", "-c", script, "sh", launcher(t), filepath.Join(bin, "nvidia-ctk"), tree).succeeds(t)
	var spec struct {
		Devices []struct {
			Name           string
			ContainerEdits struct{ DeviceNodes []struct{ Path string } }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out.stdout), &spec))
	nodes := map[string][]string{}
	for _, d := range spec.Devices {
		for _, n := range d.ContainerEdits.DeviceNodes {
			nodes[d.Name] = append(nodes[d.Name], n.Path)
		}
	}
	want := []string{"/dev/nvidia-caps/nvidia-cap66", "/dev/nvidia-caps/nvidia-cap67", "/dev/nvidia0"}
	assert.ElementsMatch(t, want, nodes["0:1"])
	uuids := 0
	for name := range nodes {
		if strings.HasPrefix(name, "MIG-") {
			uuids++
		}
	}
	assert.Equal(t, 2, uuids)
}

// TestMIGRace: of many processes that want the last slices, as many get one as there are, and the files are those of the
// instances that there are.
func TestMIGRace(t *testing.T) {
	dir := t.TempDir()
	env := append(environ(), "NVMLFAB_STATE_DIR="+dir, "NVMLFAB_PROFILE=h100")
	mig := func(args ...string) ([]byte, error) {
		cmd := exec.Command(launcher(t), append([]string{"mig"}, args...)...)
		cmd.Env = env
		return cmd.CombinedOutput()
	}
	text, err := mig("create", "--gpu", "0", "--enable", "1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb")
	require.NoError(t, err, "%s", text)
	for range 5 {
		var all sync.WaitGroup
		var won, lost int
		var mutex sync.Mutex
		for range 2 {
			all.Go(func() {
				text, err := mig("create", "--gpu", "0", "1g.10gb")
				mutex.Lock()
				defer mutex.Unlock()
				if err == nil {
					won++
				} else if strings.Contains(string(text), "there is no room for 1g.10gb") {
					lost++
				}
			})
		}
		all.Wait()
		assert.Equal(t, 1, won)
		assert.Equal(t, 1, lost)
		found, err := filepath.Glob(filepath.Join(dir, "caps/gpu0/gi*/access"))
		require.NoError(t, err)
		assert.Len(t, found, 7)
		text, err = mig("destroy", "--gpu", "0", "13")
		require.NoError(t, err, "%s", text)
	}
}

// TestMIGDestroyHalf: nvidia-smi destroys one instance after the other. Where it fails half way, what is left can be listed,
// and its files are there.
func TestMIGDestroyHalf(t *testing.T) {
	if os.Geteuid() != 0 {
		skip(t, "setters want root")
	}
	smi := fetched(t, "nvidia-smi-550", "nvidia-smi")
	dir := t.TempDir()
	env := []string{"LD_LIBRARY_PATH=" + library, "NVMLFAB_STATE_DIR=" + dir, "NVMLFAB_PROFILE=h100"}
	run(t, env, launcher(t), "mig", "create", "--gpu", "0", "--enable", "3g.40gb,1g.10gb:0,1g.10gb:1").succeeds(t)
	run(t, env, launcher(t), "mig", "destroy", "--gpu", "0", "7/0", "8/0").succeeds(t)
	out := run(t, env, smi, "mig", "-i", "0", "-dgi")
	assert.NotZero(t, out.code)
	assert.Contains(t, out.stdout, "In use by another client")
	listed := run(t, env, smi, "mig", "-i", "0", "-lgi").succeeds(t).stdout
	assert.Contains(t, listed, "MIG 3g.40gb")
	assert.NotContains(t, listed, "MIG 1g.10gb")
	assert.Contains(t, run(t, env, launcher(t), "mig", "list", "--gpu", "0").succeeds(t).stdout, "0    enabled  2   3g.40gb  4:4        0   3g.40gb  0:0")
	assert.FileExists(t, filepath.Join(dir, "caps/gpu0/gi2/ci0/access"))
	assert.NoDirExists(t, filepath.Join(dir, "caps/gpu0/gi7"))
}
