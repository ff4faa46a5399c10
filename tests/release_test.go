package tests

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRelease unpacks the tarball alone in an empty folder and runs NVIDIA's program from it.
func TestRelease(t *testing.T) {
	tarball := filepath.Join(root, "dist", "nvmlfab-0.0.0-test-linux-amd64.tar.gz")
	t.Cleanup(func() { os.Remove(tarball) })
	build := func() []byte {
		run(t, nil, "make", "--no-print-directory", "release", "VERSION=0.0.0-test").succeeds(t)
		text, err := os.ReadFile(tarball)
		require.NoError(t, err)
		return text
	}
	first, second := build(), build()
	assert.True(t, bytes.Equal(first, second), "two builds of the tarball differ")

	dir := t.TempDir()
	runIn(t, dir, nil, "tar", "xzf", tarball).succeeds(t)
	bundle := filepath.Join(dir, "nvmlfab-0.0.0-test-linux-amd64")
	runIn(t, bundle, nil, "sha256sum", "-c", "--quiet", "SHA256SUMS").succeeds(t)

	text, err := os.ReadFile(filepath.Join(bundle, "manifest.json"))
	require.NoError(t, err)
	var manifest struct {
		Nvmlfab  string
		Coverage struct {
			Versions []struct{ Symbols, Implemented, Stubs int }
		}
	}
	require.NoError(t, json.Unmarshal(text, &manifest))
	assert.Equal(t, "0.0.0-test", manifest.Nvmlfab)
	require.Len(t, manifest.Coverage.Versions, 19)
	assert.Equal(t, 431, manifest.Coverage.Versions[18].Symbols)

	alone := func(name string, args ...string) outcome {
		return runIn(t, bundle, nil, "env", append([]string{"-i", "PATH=/usr/bin:/bin", name}, args...)...)
	}
	assert.True(t, strings.HasPrefix(alone("bin/nvmlfab", "version").succeeds(t).stdout, "nvmlfab 0.0.0-test\n"))
	assert.Contains(t, alone("bin/nvmlfab", "profiles", "validate", "profiles/h100.yaml").succeeds(t).stdout, "ok, 8 GPUs")

	smi, err := os.ReadFile(fetched(t, "nvidia-smi-550", "nvidia-smi"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(bundle, "nvidia-smi"), smi, 0o755))
	direct := alone("LD_LIBRARY_PATH=lib", "./nvidia-smi", "-L").succeeds(t)
	assert.Len(t, direct.lines(), 8)
	assert.Empty(t, direct.stderr)
	assert.Equal(t, direct.stdout, alone("bin/nvmlfab", "run", "--", "./nvidia-smi", "-L").succeeds(t).stdout)
}
