package main

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

func TestStageCommand(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	assert.Equal(t, outcome{}, nvmlfab(t, "stage", "--root", root, "--profile", "t4", "--gpus", "2", "--driver", "535.1"))
	for _, name := range []string{
		"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.1", "usr/lib/x86_64-linux-gnu/libnvmlfab-core.so.535.1",
		"sys/bus/pci/devices/0000:00:1e.0/config", "proc/driver/nvidia/version", "dev/nvidia1", "etc/nvmlfab/profile.yaml",
	} {
		assert.FileExists(t, filepath.Join(root, name))
	}
	board, _, err := stagedBoard(root)
	require.NoError(t, err)
	assert.Len(t, board.Devices, 2)
	assert.Equal(t, "535.1", board.System.DriverVersion.Value)
	assert.Equal(t, outcome{}, nvmlfab(t, "unstage", "--root", root))
	assert.NoDirExists(t, root)
	nvmlfab(t, "unstage", "--root", root).fails(t, 1, "nothing is staged in "+root)
	nvmlfab(t, "stage", "--root", "/").fails(t, 1, "no place")
}

// TestCDI: the official library takes the specification, and finds every GPU by index, by UUID and among all.
func TestCDI(t *testing.T) {
	dir := t.TempDir()
	root, file := filepath.Join(dir, "root"), filepath.Join(dir, "cdi", "nvmlfab.yaml")
	nvmlfab(t, "cdi", "--root", root).fails(t, 1, "nothing is staged in "+root)
	require.Equal(t, outcome{}, nvmlfab(t, "stage", "--root", root, "--profile", "h100", "--gpus", "2"))
	nvmlfab(t, "cdi", "--root", root, "--kind", "gpu").fails(t, 1, "--kind")
	require.Equal(t, outcome{}, nvmlfab(t, "cdi", "--root", root, "-o", file))

	cache, err := cdi.NewCache(cdi.WithSpecDirs(filepath.Dir(file)), cdi.WithAutoRefresh(false))
	require.NoError(t, err)
	require.Empty(t, cache.GetErrors())
	board, _, err := stagedBoard(root)
	require.NoError(t, err)
	uuid := string(board.Devices[1].UUID)
	want := []string{"nvidia.com/gpu=0", "nvidia.com/gpu=1", "nvidia.com/gpu=" + uuid, "nvidia.com/gpu=" + string(board.Devices[0].UUID), "nvidia.com/gpu=all"}
	assert.ElementsMatch(t, want, cache.ListDevices())
	for device, nodes := range map[string][]string{"1": {"/dev/nvidia1"}, uuid: {"/dev/nvidia1"}, "all": {"/dev/nvidia0", "/dev/nvidia1"}} {
		var spec oci.Spec
		_, err := cache.InjectDevices(&spec, "nvidia.com/gpu="+device)
		require.NoError(t, err)
		var got []string
		for _, m := range spec.Mounts {
			if strings.HasPrefix(m.Destination, "/dev/nvidia") && strings.Trim(m.Destination[len("/dev/nvidia"):], "0123456789") == "" {
				got = append(got, m.Destination)
			} else if m.Source != "/dev/null" {
				assert.FileExists(t, m.Source)
			}
		}
		slices.Sort(got)
		assert.Equal(t, nodes, got)
		assert.Len(t, spec.Hooks.CreateContainer, 1)
		assert.Contains(t, spec.Process.Env, "MOCK_NVML_CONFIG="+containerProfile)
	}
	out := nvmlfab(t, "cdi", "--root", root)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(text), out.stdout)
}

// TestLibraryCache: the dynamic linker reads the changed cache.
func TestLibraryCache(t *testing.T) {
	cache, err := os.ReadFile(cachePath)
	if err != nil {
		t.Skip("skipped: this machine's dynamic linker has no cache")
	}
	if addLibraries(cache, "/x", "libx.so.1") == nil {
		t.Skip("skipped: a cache of another kind")
	}
	changed := addLibraries(addLibraries(cache, "/elsewhere", "libnvidia-ml.so.1"), "/somewhere", "libnvidia-ml.so.1", "libzzz.so")
	file := write(t, t.TempDir(), "cache", string(changed), 0o644)
	list := func(file string) []string {
		text, err := exec.Command("/sbin/ldconfig", "-C", file, "-p").Output()
		require.NoError(t, err)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")[1:]
		return slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "\t") })
	}
	assert.True(t, slices.Equal(list(cachePath), list(write(t, t.TempDir(), "same", string(addLibraries(cache, "/x")), 0o644))), "the order is kept")
	want := append(list(cachePath), "\tlibnvidia-ml.so.1 (libc6,x86-64) => /somewhere/libnvidia-ml.so.1", "\tlibzzz.so (libc6,x86-64) => /somewhere/libzzz.so")
	got := list(file)
	slices.Sort(want)
	slices.Sort(got)
	assert.True(t, slices.Equal(want, got))

	for name, broken := range map[string][]byte{
		"empty": nil, "short": cache[:30], "other": append([]byte("x"), cache...),
		"too many": binary.LittleEndian.AppendUint32([]byte(cacheMagic), 1<<30),
	} {
		assert.Nil(t, addLibraries(broken, "/x", "libx.so.1"), name)
	}
}

func TestCompareNames(t *testing.T) {
	order := []string{"", "liba.so", "libb.so", "libb.so.1", "libb.so.2", "libb.so.10", "libbc.so"}
	for i, a := range order {
		for j, b := range order {
			assert.Equal(t, i < j, compareNames(a, b) < 0, "%q %q", a, b)
			assert.Equal(t, i == j, compareNames(a, b) == 0, "%q %q", a, b)
		}
	}
}

func TestCombine(t *testing.T) {
	text := "Character devices:\n  1 mem\n\nBlock devices:\n  7 loop\n"
	assert.Equal(t, "Character devices:\n  1 mem\n195 nvidia\n\nBlock devices:\n  7 loop\n", combine("proc/devices", text, "195 nvidia\n"))
	assert.Equal(t, "a\nb\n", combine("proc/modules", "a\n", "b\n"))
}

// TestPreloadRefuses: programs that a preloaded library does not reach are refused.
func TestPreloadRefuses(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	script := write(t, dir, "script", "#!"+self+" -x\n", 0o755)
	setuid := write(t, dir, "setuid", "\x7fELF", 0o755)
	require.NoError(t, os.Chmod(setuid, 0o755|os.ModeSetuid))
	assert.ErrorContains(t, preloadable(self), "written in Go")
	assert.ErrorContains(t, preloadable(script), "written in Go")
	assert.ErrorContains(t, preloadable(setuid), "setuid")
	assert.NoError(t, preloadable("/bin/sh"))
	assert.NoError(t, preloadable("/nonexistent"))
}
