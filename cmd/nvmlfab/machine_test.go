package main

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
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
	board, err := boardOf(root)
	require.NoError(t, err)
	assert.Len(t, board.Devices, 2)
	assert.Equal(t, "535.1", board.System.DriverVersion.Value)
	// What has changed about the node stays when it is staged anew, and goes with the tree.
	dir := state.At(root + ".state")
	_, _, err = dir.Update(func(*state.State) (*state.State, error) { return state.New(board, 1), nil })
	require.NoError(t, err)
	assert.Equal(t, outcome{}, nvmlfab(t, "stage", "--root", root, "--profile", "t4"))
	assert.FileExists(t, root+".state/state.json")
	nvmlfab(t, "stage", "--root", root, "--profile", "h100").fails(t, 1, root+".state is the state of a node with other GPUs")
	assert.Equal(t, outcome{}, nvmlfab(t, "unstage", "--root", root))
	assert.NoDirExists(t, root)
	assert.NoDirExists(t, root+".state")
	write(t, filepath.Dir(root), "root.state", "", 0o644)
	nvmlfab(t, "stage", "--root", root).fails(t, 1, "root.state is no directory")
	assert.NoDirExists(t, root)
	require.NoError(t, os.Remove(root+".state"))
	assert.Equal(t, outcome{}, nvmlfab(t, "stage", "--root", root))
	mine := write(t, root+".state", "overrides.yaml", "", 0o644)
	assert.Equal(t, outcome{}, nvmlfab(t, "unstage", "--root", root))
	assert.FileExists(t, mine)
	nvmlfab(t, "unstage", "--root", root).fails(t, 1, "nothing is staged in "+root)
	nvmlfab(t, "stage", "--root", "/").fails(t, 1, "no place")
	nvmlfab(t, "cdi", "--root", "").fails(t, 1, "--root: the folder's name is empty")
	nvmlfab(t, "stage", "--root", root, "--profile", "").fails(t, 1, "--profile: the name is empty")
	for _, driver := range []string{"1", "580", "449.1", "58.1", "5800.1", "580.", "580.x"} {
		nvmlfab(t, "stage", "--root", root, "--driver", driver).fails(t, 1, "want a version from 450 on, such as 580.105.08")
	}
}

// boardOf is the board of a staged folder.
func boardOf(root string) (*profiles.Board, error) {
	s, err := machine.OpenStaged(root)
	if err != nil {
		return nil, err
	}
	return s.Source.Board, nil
}

// TestCDI: the official CDI library reads the specification and finds every GPU by index, by UUID and in "all".
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
	board, err := boardOf(root)
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
			} else if m.Destination == "/run/nvmlfab" {
				assert.Equal(t, root+".state", m.Source)
				assert.Contains(t, m.Options, "ro")
			} else if m.Source != "/dev/null" {
				assert.FileExists(t, m.Source)
			}
		}
		slices.Sort(got)
		assert.Equal(t, nodes, got)
		assert.Len(t, spec.Hooks.CreateContainer, 1)
		assert.Nil(t, spec.Process, "no variable")
		assert.True(t, slices.ContainsFunc(spec.Mounts, func(m oci.Mount) bool {
			return m.Destination == "/etc/nvmlfab/profile.yaml" && slices.Contains(m.Options, "ro")
		}))
	}
	out := nvmlfab(t, "cdi", "--root", root)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(text), out.stdout)
	require.Equal(t, outcome{}, nvmlfab(t, "cdi", "--root", root, "--writable", "-o", file))
	require.NoError(t, cache.Refresh())
	var spec oci.Spec
	_, err = cache.InjectDevices(&spec, "nvidia.com/gpu=all")
	require.NoError(t, err)
	at := slices.IndexFunc(spec.Mounts, func(m oci.Mount) bool { return m.Destination == "/run/nvmlfab" })
	require.GreaterOrEqual(t, at, 0)
	assert.NotContains(t, spec.Mounts[at].Options, "ro")
	require.NoError(t, os.RemoveAll(root+".state"))
	nvmlfab(t, "cdi", "--root", root).fails(t, 1, "no state directory "+root+".state")
}

// fileCapability is the extended attribute for the file capability cap_sys_ptrace=ep.
var fileCapability = []byte{1, 0, 0, 2, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

// TestPreloadRefuses: programs in which a preloaded library has no effect are refused.
func TestPreloadRefuses(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	script := write(t, dir, "script", "#!"+self+" -x\n", 0o755)
	setuid := write(t, dir, "setuid", "\x7fELF", 0o755)
	require.NoError(t, os.Chmod(setuid, 0o755|os.ModeSetuid))
	refuses := func(program, why string) {
		t.Helper()
		_, err := preloadable(program)
		assert.ErrorContains(t, err, why)
	}
	takes := func(program, folder string) {
		t.Helper()
		got, err := preloadable(program)
		assert.NoError(t, err)
		assert.Equal(t, folder, got)
	}
	refuses(self, "written in Go")
	refuses(script, "written in Go")
	refuses(setuid, "setuid")
	if os.Geteuid() == 0 {
		capable := write(t, dir, "capable", "\x7fELF", 0o755)
		require.NoError(t, unix.Setxattr(capable, "security.capability", fileCapability, 0))
		refuses(capable, "file capabilities")
	}
	sh, err := os.ReadFile("/bin/sh")
	require.NoError(t, err)
	linked := func(name, linker string) string {
		const glibc = "/lib64/ld-linux-x86-64.so.2"
		return write(t, dir, name, string(bytes.Replace(sh, []byte(glibc), []byte(linker+strings.Repeat("\x00", len(glibc)-len(linker))), 1)), 0o755)
	}
	refuses(linked("uclibc", "/lib/ld64-uClibc.so.1"), "another C library than glibc and musl, by ld64-uClibc.so.1: it needs a mount namespace, so allow")
	takes(linked("musl", "/lib/ld-musl-x86_64.so.1"), "musl")
	sh[elf.EI_CLASS+14]++ // the low byte of e_machine
	refuses(write(t, dir, "other", string(sh), 0o755), "another processor")
	takes("/bin/sh", "")
	takes("/nonexistent", "")
}
