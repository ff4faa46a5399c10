package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func unpack(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	all := map[string]string{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		text, err := io.ReadAll(in)
		require.NoError(t, err)
		all[h.Name] = fmt.Sprintf("%o %s%s", h.Mode, h.Linkname, text)
	}
}

// TestImage: every part of the image is named by its hash, the layer has what the agent needs, and it is the same each time.
func TestImage(t *testing.T) {
	dist := t.TempDir()
	for name, mode := range map[string]os.FileMode{
		"kubernetes/nvmlfab-agent": 0o755, "kubernetes/kubectl-nvmlfab": 0o755, "bin/nvmlfab": 0o755, "bin/nvmlfab-hook": 0o755, "bin/other": 0o755,
		"lib/libx.so.1": 0o644, "lib/call": 0o755, "nvml/13/libnvidia-ml.so.1": 0o644,
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dist, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dist, name), []byte(name), mode))
	}
	require.NoError(t, os.Symlink("libx.so.1", filepath.Join(dist, "lib/libx.so")))
	output := filepath.Join(t.TempDir(), "image.tar")
	require.NoError(t, write(dist, "v1", output))
	text, err := os.ReadFile(output)
	require.NoError(t, err)
	require.NoError(t, write(dist, "v1", output))
	again, err := os.ReadFile(output)
	require.NoError(t, err)
	assert.Equal(t, text, again)

	files := unpack(t, bytes.NewReader(text))
	part := func(digest string) []byte {
		content := []byte(files["blobs/sha256/"+digest[len("sha256:"):]][len("644 "):])
		assert.Equal(t, digest, fmt.Sprintf("sha256:%x", sha256.Sum256(content)))
		return content
	}
	var index struct{ Manifests []struct{ Digest string } }
	require.NoError(t, json.Unmarshal([]byte(files["index.json"][len("644 "):]), &index))
	require.Len(t, index.Manifests, 1)
	var manifest struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	require.NoError(t, json.Unmarshal(part(index.Manifests[0].Digest), &manifest))
	var config struct {
		Config struct{ Entrypoint []string }
		RootFS struct {
			IDs []string `json:"diff_ids"`
		}
	}
	require.NoError(t, json.Unmarshal(part(manifest.Config.Digest), &config))
	assert.Equal(t, []string{"/usr/bin/nvmlfab-agent"}, config.Config.Entrypoint)
	packed, err := gzip.NewReader(bytes.NewReader(part(manifest.Layers[0].Digest)))
	require.NoError(t, err)
	plain, err := io.ReadAll(packed)
	require.NoError(t, err)
	assert.Equal(t, config.RootFS.IDs, []string{fmt.Sprintf("sha256:%x", sha256.Sum256(plain))})
	assert.Equal(t, map[string]string{
		"tmp/": "1777 ", "usr/": "755 ", "usr/bin/": "755 ", "usr/lib/": "755 ", "usr/nvml/": "755 ", "usr/nvml/13/": "755 ",
		"usr/bin/nvmlfab-agent": "755 kubernetes/nvmlfab-agent", "usr/bin/nvmlfab": "755 bin/nvmlfab", "usr/bin/nvmlfab-hook": "755 bin/nvmlfab-hook",
		"usr/lib/libx.so.1": "644 lib/libx.so.1", "usr/lib/libx.so": "777 libx.so.1", "usr/lib/call": "755 lib/call", "usr/nvml/13/libnvidia-ml.so.1": "644 nvml/13/libnvidia-ml.so.1",
	}, unpack(t, bytes.NewReader(plain)))
	assert.ErrorContains(t, write(t.TempDir(), "v1", output), "no such file")
}
