package tests

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pair is a profile of two devices, on lines 5 to 10.
const pair = `system:
  driver_version: "550.1"
devices:
  # two
  - index: 0
    uuid: GPU-00000000-0000-0000-0000-000000000001
    pci: {bus_id: "0000:01:00.0"}
  - index: 1
    uuid: GPU-00000000-0000-0000-0000-000000000002
    pci: {bus_id: "0000:02:00.0"}
`

// TestConfigurationRefused: nvmlInit fails, one line says where the mistake is, and no other GPUs are used instead.
func TestConfigurationRefused(t *testing.T) {
	program := coreProgram(t, "", "config", linked()...)
	noise := make([]byte, 10<<20)
	random := rand.NewChaCha8([32]byte{1})
	_, err := random.Read(noise)
	require.NoError(t, err)

	for name, c := range map[string]struct {
		profile string
		line    int
		says    string
	}{
		"empty":               {"", 1, "empty"},
		"blank":               {"\n\n  \n", 1, "empty"},
		"only a comment":      {"# nothing\n", 1, "empty"},
		"no devices":          {"system: {driver_version: \"550.1\"}\n", 1, "no devices"},
		"a count of 0":        {"count: 0\n", 1, "count"},
		"truncated":           {pair[:len(pair)-10], 10, ""},
		"truncated in a word": {pair[:strings.Index(pair, "uuid: GPU-00000000-0000-0000-0000-000000000002")+2], 9, ""},
		"unknown key":         {strings.Replace(pair, "index: 1", "index: 1\n    colour: green", 1), 9, "colour"},
		"misspelt section":    {strings.Replace(pair, "devices", "device", 1), 3, "device"},
		"wrong type":          {strings.Replace(pair, "index: 1", "index: one", 1), 8, "index"},
		"wrong shape":         {strings.Replace(pair, `{bus_id: "0000:02:00.0"}`, "[1, 2]", 1), 10, "pci"},
		"bad bus id":          {strings.Replace(pair, "0000:02:00.0", "0000:02:99.0", 1), 10, "bus_id"},
		"bad UUID":            {strings.Replace(pair, "000000000002", "00000000000Z", 1), 9, "uuid"},
		"duplicate UUID":      {strings.Replace(pair, "000000000002", "000000000001", 1), 9, "uuid"},
		"duplicate bus id":    {strings.Replace(pair, "0000:02:00.0", "0000:01:00.0", 1), 10, "bus_id"},
		"duplicate index":     {strings.Replace(pair, "index: 1", "index: 0", 1), 8, "index"},
		"duplicate key":       {strings.Replace(pair, "index: 1", "index: 1\n    index: 1", 1), 9, "index"},
		"not YAML":            {strings.Replace(pair, "index: 1", "index: [1", 1), 8, "YAML"},
		"a number too large":  {strings.Replace(pair, "index: 1", "index: 99999999999", 1), 8, "index"},
		"10 MB of noise":      {string(noise), 0, ""},
		"10 MB of text":       {strings.Repeat("devices: []\n", 10<<20/12), 0, ""},
		"noise":               {string(noise[:4096]), 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "profile.yaml")
			require.NoError(t, os.WriteFile(path, []byte(c.profile), 0o644))
			refused(t, run(t, with(library, "MOCK_NVML_CONFIG="+path), program), path, c.line, c.says)
		})
	}

	t.Run("missing", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "nothing.yaml")
		refused(t, run(t, with(library, "MOCK_NVML_CONFIG="+path), program), path, 0, "no such file")
	})
	t.Run("a folder", func(t *testing.T) {
		path := t.TempDir()
		refused(t, run(t, with(library, "MOCK_NVML_CONFIG="+path), program), path, 0, "directory")
	})
	t.Run("unreadable", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "profile.yaml")
		require.NoError(t, os.WriteFile(path, []byte(pair), 0o000))
		user := os.Getuid()
		if user == 0 { // root can read every file
			user = 65534
		}
		refused(t, run(t, with(library), program, path, fmt.Sprint(user)), path, 0, "permission denied")
	})
	t.Run("a file name of two lines", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "two\nlines.yaml")
		out := run(t, with(library, "MOCK_NVML_CONFIG="+path), program).succeeds(t)
		out.complains(t)
	})
	t.Run("unknown board", func(t *testing.T) {
		out := run(t, with(library, "NVMLFAB_PROFILE=h1OO"), program).succeeds(t)
		assert.Equal(t, "nvmlInit 999\n", out.stdout)
		assert.Contains(t, out.complains(t), `did you mean "h100"?`)
	})
}

// refused: one line names the file, and the line of the mistake unless that is 0, because the file could not be read.
func refused(t *testing.T, out outcome, path string, line int, says string) {
	t.Helper()
	out.succeeds(t)
	assert.Equal(t, "nvmlInit 999\n", out.stdout)
	said := out.complains(t)
	where := fmt.Sprintf("%s:%d", path, line)
	if line == 0 {
		where = path
	}
	assert.True(t, strings.HasPrefix(said, "nvmlfab: "+where+": "), "want %s: %s", where, said)
	assert.Contains(t, said, says)
	t.Log(said)
}

// TestConfigurationCounts: a node may have any number of devices. make bench measures a thousand.
func TestConfigurationCounts(t *testing.T) {
	program := coreProgram(t, "", "config", linked()...)
	for _, count := range []int{1, 2, 9, 64, 1000} {
		list := bytes.NewBufferString("devices:\n")
		for i := range count {
			fmt.Fprintf(list, "  - {index: %d, name: Board, pci: {bus_id: \"%04x:%02x:00.0\"}}\n", i, i/200, i%200+1)
		}
		for name, profile := range map[string]string{
			"by count": fmt.Sprintf("extends: h100\ncount: %d\n", count),
			"listed":   list.String(),
		} {
			t.Run(fmt.Sprint(count, " ", name), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "profile.yaml")
				require.NoError(t, os.WriteFile(path, []byte(profile), 0o644))
				out := run(t, with(library, "MOCK_NVML_CONFIG="+path), program).succeeds(t)
				assert.Empty(t, out.stderr)
				n := out.figures(t)
				assert.Equal(t, count, n[1])
			})
		}
	}
}

// TestConfigurationPublished: files with the keys of other mocks load unchanged.
func TestConfigurationPublished(t *testing.T) {
	out := run(t, with(library, "MOCK_NVML_CONFIG="+publishedKeys(t)), coreProgram(t, "", "config", linked()...)).succeeds(t)
	assert.Empty(t, out.stderr)
	assert.Equal(t, 3, out.figures(t)[1], "num_devices")
}
