package vgpuctl

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// doc returns a document of the source tree.
func doc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	require.NoError(t, err)
	return string(text)
}

// TestDocumentedConstants: docs/vgpuctl.md has exactly the constants and requests of the header, with their values.
func TestDocumentedConstants(t *testing.T) {
	documented := map[string]uint64{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(VGPU_\\w+)` \\| (\\w+) \\|").FindAllStringSubmatch(doc(t, "vgpuctl.md"), -1) {
		value, err := strconv.ParseUint(row[2], 0, 64)
		require.NoError(t, err, "%s", row[0])
		assert.NotContains(t, documented, row[1])
		documented[row[1]] = value
	}
	assert.Equal(t, constants, documented) // TestLayout compares constants with the header
}

// TestDocumentedStructures: docs/vgpuctl.md has every structure of the header with all fields in order, and their types
// and offsets.
func TestDocumentedStructures(t *testing.T) {
	text := doc(t, "vgpuctl.md")
	row := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]+) \\| (\\d+) \\|")
	for name, members := range headerMembers(t) {
		goType := structs[name]
		_, section, found := strings.Cut(text, fmt.Sprintf("\n`struct %s`, %d bytes", name, goType.Size()))
		if !assert.True(t, found, "%s of %d bytes", name, goType.Size()) {
			continue
		}
		_, table, _ := strings.Cut(section, "\n|")
		table, _, _ = strings.Cut(table, "\n\n")
		var documented []string
		for _, r := range row.FindAllStringSubmatch(table, -1) {
			documented = append(documented, r[1])
			field, ok := goType.FieldByName(goName(r[1]))
			if !assert.True(t, ok, "%s.%s", name, r[1]) {
				continue
			}
			assert.Equal(t, strconv.FormatUint(uint64(field.Offset), 10), r[3], "offset of %s.%s", name, r[1])
			want := map[string]uint64{"__u32": 4, "__u64": 8, "char[16]": 16, "char[32]": 32, "struct vgpu_limits": 32}[r[2]]
			assert.EqualValues(t, want, field.Type.Size(), "%s %s.%s", r[2], name, r[1])
		}
		assert.Equal(t, members, documented, name)
	}
}

// TestDocumentedLimits: numbers in the text equal those in the sources.
func TestDocumentedLimits(t *testing.T) {
	text := doc(t, "vgpuctl.md")
	for file, pattern := range map[string]string{
		"../logic/policy.h": `#define POLICIES_MAX (\d+)u`,
		"../vgpu/events.c":  `#define EVENTS (\d+)u`,
		"../uapi/nvrm.h":    `#define NV_MINOR_GPU_MAX (\d+)`,
	} {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		number := regexp.MustCompile(pattern).FindSubmatch(source)
		require.NotNil(t, number, file)
		assert.Regexp(t, `\b`+string(number[1])+`\b`, text, file)
	}
}

// TestDocumentedExample: the hook in docs/vgpu-device-plugin.md equals the one that is compiled here.
func TestDocumentedExample(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	examples := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(doc(t, "vgpu-device-plugin.md"), -1)
	require.NotEmpty(t, examples)
	for _, example := range examples {
		assert.Contains(t, string(source), example[1])
	}
	examples = regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(doc(t, "vgpu-device-plugin.md"), -1)
	require.NotEmpty(t, examples)
	for _, example := range examples {
		var grants []Grant
		require.NoError(t, json.Unmarshal([]byte(example[1]), &grants))
		assert.NoError(t, checkGrants(grants))
	}
}
