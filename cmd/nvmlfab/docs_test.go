package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// read returns a file of the source tree.
func read(t *testing.T, parts ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, parts...)...))
	require.NoError(t, err)
	return string(text)
}

// TestDocumentedProfiles: every profile in the documents loads.
func TestDocumentedProfiles(t *testing.T) {
	for _, doc := range []string{"README.md", "docs/profiles.md"} {
		examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(read(t, doc), -1)
		assert.NotEmpty(t, examples, doc)
		for _, example := range examples {
			_, err := profiles.Parse(doc, []byte(example[1]))
			assert.NoError(t, err, "%s", example[1])
		}
	}
}

// TestDocumentedKeys: docs/profiles.md names every section, and every property of a GPU.
func TestDocumentedKeys(t *testing.T) {
	type object struct {
		Properties map[string]any    `json:"properties"`
		Defs       map[string]object `json:"$defs"`
	}
	var schema object
	require.NoError(t, json.Unmarshal(profiles.Schema(), &schema))
	keys := slices.Concat(slices.Collect(maps.Keys(schema.Properties)), slices.Collect(maps.Keys(schema.Defs["Device"].Properties)))
	assert.NotEmpty(t, keys)
	doc := read(t, "docs", "profiles.md")
	for _, key := range keys {
		assert.Contains(t, doc, "`"+key+"`")
	}
}
