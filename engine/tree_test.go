package engine_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// staged is a tree with a profile of two GPUs, and the library in it.
func staged(t *testing.T) (root, library string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "root")
	for _, dir := range []string{filepath.Dir(root), root} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(root, "etc/nvmlfab"), 0o755))
	require.NoError(t, os.Mkdir(root+".state", 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, state.ProfileFile), []byte("extends: t4\ncount: 2\n"), 0o644))
	return root, filepath.Join(root, "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.1")
}

// start starts an engine and returns how many GPUs it has.
func start(t *testing.T, h *enginetest.Host) (*engine.Engine, int) {
	t.Helper()
	e := engine.New(h)
	require.NoError(t, e.Start())
	t.Cleanup(e.Stop)
	return e, len(e.Snapshot().Devices)
}

// TestStagedTree: a library in a staged tree finds profile and state without any variable, and a variable wins.
func TestStagedTree(t *testing.T) {
	root, library := staged(t)
	h := enginetest.New()
	h.Path = library
	e, n := start(t, h)
	require.Equal(t, 2, n)
	ret := e.Snapshot().Devices[1].Change(func(tx *change.Tx, gpu int) abi.Return {
		require.NoError(t, tx.Set(gpu, change.ByUser, 0, profiles.Settings{"power.enforced_limit_mw": 60000}))
		return abi.SUCCESS
	})
	require.Equal(t, abi.SUCCESS, ret)
	assert.FileExists(t, root+".state/state.json")
	e, _ = start(t, h)
	assert.EqualValues(t, 60000, e.Snapshot().Devices[1].Power.EnforcedLimitMW.Value)
	assert.Empty(t, h.Complaints)

	require.NoError(t, os.WriteFile(root+".state/overrides.yaml", []byte("device_defaults: {thermal: {temperature_gpu_c: 77}}\n"), 0o644))
	e, _ = start(t, h)
	assert.EqualValues(t, 77, e.Snapshot().Devices[0].Thermal.TemperatureGPUC.Value)

	// A variable for the profile leaves the tree, and its state, alone.
	h = enginetest.New("NVMLFAB_PROFILE", "h100")
	h.Path = library
	_, n = start(t, h)
	assert.Equal(t, 8, n)
	assert.Empty(t, h.Complaints)
	h = enginetest.New("MOCK_NVML_CONFIG", enginetest.Write(t, "extends: t4\ncount: 3\n"))
	h.Path = library
	e, n = start(t, h)
	assert.Equal(t, 3, n)
	assert.NotEqualValues(t, 60000, e.Snapshot().Devices[1].Power.EnforcedLimitMW.Value)
	h = enginetest.New("NVMLFAB_STATE_DIR", t.TempDir())
	h.Path = library
	e, n = start(t, h)
	assert.Equal(t, 2, n)
	assert.NotEqualValues(t, 60000, e.Snapshot().Devices[1].Power.EnforcedLimitMW.Value)

	// A wrong profile is an error, as one that a variable names is.
	require.NoError(t, os.WriteFile(filepath.Join(root, state.ProfileFile), []byte("extends: nope\n"), 0o644))
	h = enginetest.New()
	h.Path = library
	assert.ErrorContains(t, engine.New(h).Start(), root+"/etc/nvmlfab/profile.yaml:1")
}

// TestStagedTreePrivileged: a program with another's privileges takes from a tree only what nobody but root could write.
func TestStagedTreePrivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root makes files of root's")
	}
	root, library := staged(t)
	require.NoError(t, os.WriteFile(root+".state/overrides.yaml", []byte("device_defaults: {thermal: {temperature_gpu_c: 77}}\n"), 0o644))
	h := enginetest.New("NVMLFAB_PROFILE", "h100", "NVMLFAB_STATE_DIR", t.TempDir())
	h.Path, h.SetUser = library, true
	e, n := start(t, h)
	assert.Equal(t, 2, n)
	assert.EqualValues(t, 77, e.Snapshot().Devices[0].Thermal.TemperatureGPUC.Value)

	require.NoError(t, os.Chmod(root+".state", 0o777))
	e, n = start(t, h)
	assert.Equal(t, 2, n)
	assert.NotEqualValues(t, 77, e.Snapshot().Devices[0].Thermal.TemperatureGPUC.Value)

	require.NoError(t, os.Chown(filepath.Join(root, "etc/nvmlfab"), 65534, -1))
	_, n = start(t, h)
	assert.Equal(t, 8, n, "the default board")
}
