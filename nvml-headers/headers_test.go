package headers

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVersions(t *testing.T) {
	list, err := Versions()
	require.NoError(t, err)
	require.Len(t, list, 19)
	assert.Equal(t, "11.0", list[0].NVML)
	assert.Equal(t, "13.4.92", list[18].NVML)
	for i, v := range list {
		assert.Len(t, v.SHA256, 64, v.NVML)
		if i > 0 {
			assert.Greater(t, v.Driver, list[i-1].Driver, v.NVML)
		}
	}
}

func TestNumber(t *testing.T) {
	for nvml, want := range map[string]int{"11.0": 11000000, "12.4.127": 12004127, "13.4.92": 13004092} {
		n, err := number(nvml)
		require.NoError(t, err)
		assert.Equal(t, want, n, nvml)
	}
	for _, nvml := range []string{"", "12", "12.x", "12.4.1000", "12.4.-1", "1.2.3.4"} {
		_, err := number(nvml)
		require.ErrorContains(t, err, "NVML version", nvml)
	}
}

func TestFind(t *testing.T) {
	for prefix, want := range map[string]string{
		"": "13.4.92", "12.4.127": "12.4.127", "12.4": "12.4.127", "12.4.": "12.4.127", "11.0": "11.0", "12.1": "12.1.105",
	} {
		v, err := Find(prefix)
		require.NoError(t, err, prefix)
		assert.Equal(t, want, v.NVML, prefix)
	}
	for prefix, want := range map[string]string{
		"12": "ambiguous; name one of 12.0.76", "14": `no NVML version "14"; there are 11.0`, "12.4.1": "no NVML version",
	} {
		_, err := Find(prefix)
		require.ErrorContains(t, err, want, prefix)
	}
}

func TestWrongHashIsRefused(t *testing.T) {
	t.Setenv("GOMODCACHE", t.TempDir())
	dir := filepath.Join(os.Getenv("GOMODCACHE"), "github.com/!n!v!i!d!i!a/go-nvml@v0.13.4-1/pkg/nvml")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nvml.h"), []byte("int x;"), 0o644))
	v, err := Find("")
	require.NoError(t, err)
	_, err = v.Path()
	require.ErrorContains(t, err, "versions.yaml wants "+v.SHA256)
}

func TestNoNetworkSaysWhatToDo(t *testing.T) {
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOFLAGS", "-modcacherw")
	v, err := Find("12.4")
	require.NoError(t, err)
	_, err = v.Path()
	require.ErrorContains(t, err, "NVML 12.4.127: go mod download")
	require.ErrorContains(t, err, "module cache")
}
