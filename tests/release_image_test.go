package tests

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// imageConfig is the part of an image's configuration that the tests look at.
type imageConfig struct {
	Architecture, OS string
	Config           struct{ Entrypoint, Cmd []string }
	RootFS           struct {
		DiffIDs []string `json:"diff_ids"`
	}
}

// imageOf follows the hashes of an unpacked image from its index on and returns its only layer and its configuration.
func imageOf(t *testing.T, dir string) (layer string, config imageConfig) {
	t.Helper()
	type part struct {
		MediaType, Digest string
		Size              int64
	}
	blob := func(p part) string {
		algorithm, sum, _ := strings.Cut(p.Digest, ":")
		path := filepath.Join(dir, "blobs", algorithm, sum)
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("%x", sha256.Sum256(content)), sum)
		assert.EqualValues(t, p.Size, len(content))
		return path
	}
	decode := func(path string, into any) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, into))
	}
	var layout struct{ ImageLayoutVersion string }
	decode(filepath.Join(dir, "oci-layout"), &layout)
	assert.Equal(t, "1.0.0", layout.ImageLayoutVersion)
	var index struct{ Manifests []part }
	decode(filepath.Join(dir, "index.json"), &index)
	require.Len(t, index.Manifests, 1)
	var manifest struct {
		Config part
		Layers []part
	}
	decode(blob(index.Manifests[0]), &manifest)
	decode(blob(manifest.Config), &config)
	require.Len(t, manifest.Layers, 1)
	assert.Equal(t, "application/vnd.oci.image.layer.v1.tar+gzip", manifest.Layers[0].MediaType)
	layer = blob(manifest.Layers[0])
	f, err := os.Open(layer)
	require.NoError(t, err)
	defer f.Close()
	plain, err := gzip.NewReader(f)
	require.NoError(t, err)
	sum := sha256.New()
	_, err = io.Copy(sum, plain)
	require.NoError(t, err)
	assert.Equal(t, []string{fmt.Sprintf("sha256:%x", sum.Sum(nil))}, config.RootFS.DiffIDs)
	return layer, config
}
