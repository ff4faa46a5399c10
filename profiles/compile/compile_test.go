package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFresh(t *testing.T) { require.NoError(t, run("..", true)) }

func TestStale(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "profiles")
	for _, folder := range []string{dir, filepath.Join(dir, "..", "docs")} {
		require.NoError(t, os.Mkdir(folder, 0o755))
	}
	sources, err := filepath.Glob("../*.go")
	require.NoError(t, err)
	for _, path := range sources {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(path)), text, 0o600))
	}
	assert.ErrorContains(t, run(dir, true), " is stale: run go generate ./profiles")
	require.NoError(t, run(dir, false))
	require.NoError(t, run(dir, true))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "boards_gen.go"), nil, 0o600))
	assert.EqualError(t, run(dir, true), filepath.Join(dir, "boards_gen.go")+" is stale: run go generate ./profiles")
}

func TestWrongFolder(t *testing.T) {
	dir := t.TempDir()
	assert.EqualError(t, run(dir, true), dir+": there is no type file: is it the folder of package profiles?")
}

func TestFunction(t *testing.T) {
	assert.Equal(t, "boardH100", function("h100"))
	assert.Equal(t, "boardA100Sxm4_40gb", function("a100-sxm4-40gb"))
}
