package binding

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/generator/model"
	headers "github.com/nvmlfab/nvmlfab/nvml-headers"
)

const root = "../.."

func committed(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, NumbersFile))
	require.NoError(t, err)
	return string(text)
}

func readNumbers(t *testing.T, text string) (*Numbers, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "numbers.txt")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return ReadNumbers(path)
}

// TestNumbers: the committed file is complete, each symbol has a number, and no two symbols have the same.
func TestNumbers(t *testing.T) {
	numbers, err := readNumbers(t, committed(t))
	require.NoError(t, err)
	assert.Equal(t, committed(t), string(numbers.Text()))
	_, symbols, err := Load(root)
	require.NoError(t, err)
	names := map[int]string{}
	for _, s := range symbols {
		assert.NotZero(t, s.Number, s.Name)
		assert.Empty(t, names[s.Number], "%s has the same number", s.Name)
		names[s.Number] = s.Name
		assert.Equal(t, s.Kind == Slot, s.Number >= FirstSlot, s.Name)
	}
	assert.Equal(t, "nvmlInternalSlot240", names[0x8000+240])
}

// TestNumbersDoNotChange: every change other than a new line at the end is refused.
func TestNumbersDoNotChange(t *testing.T) {
	lines := strings.SplitAfter(committed(t), "\n")
	lines = lines[:len(lines)-1]
	first := 0
	for strings.HasPrefix(lines[first], "#") {
		first++
	}
	words := strings.Fields(lines[first+7])
	for name, changed := range map[string]string{
		"changed number":   strings.Replace(lines[first+7], words[0]+" ", "500 ", 1),
		"reused number":    strings.Replace(lines[first+7], words[0]+" ", "1 ", 1),
		"other symbol":     strings.Replace(lines[first+7], words[1], words[1]+"_v9", 1),
		"missing line":     "",
		"line put in":      "8 nvmlMine 00000000\n" + lines[first+7],
		"line twice":       lines[first+7] + lines[first+7],
		"no checksum":      words[0] + " " + words[1] + "\n",
		"two lines in one": strings.TrimSpace(lines[first+7]) + " " + lines[first+8],
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Join(lines[:first+7], "") + changed + strings.Join(lines[first+8:], "")
			_, err := readNumbers(t, text)
			require.ErrorContains(t, err, "nvml-headers/numbers.txt:1")
			require.ErrorContains(t, err, "was changed, and numbers never change; restore the file")
		})
	}
	_, err := ReadNumbers("/nonexistent")
	require.ErrorContains(t, err, "restore the file")
}

// TestNumbersAreAppended: a symbol without a number is refused until it is appended, and other symbols keep their
// numbers.
func TestNumbersAreAppended(t *testing.T) {
	m, _, err := Load(root)
	require.NoError(t, err)
	h, err := model.Parse("99.0", "new.h", []byte(types+`
nvmlReturn_t nvmlDeviceGetAll(nvmlDevice_t device);
nvmlReturn_t nvmlDeviceGetAge(nvmlDevice_t device);`), nil)
	require.NoError(t, err)
	m.Headers = append(m.Headers, h)
	m.Versions = append(m.Versions, headers.Version{NVML: "99.0", Number: 99000000})

	numbers, err := readNumbers(t, committed(t))
	require.NoError(t, err)
	_, err = Bind(m, numbers)
	require.ErrorContains(t, err, "nvmlDeviceGetAge: nvml-headers/numbers.txt has no number for it; run go run ./generator --update")
	last := numbers.Of("nvmlEventSetWait_v3")
	numbers.Append(m)
	assert.Equal(t, last+1, numbers.Of("nvmlDeviceGetAge"))
	assert.Equal(t, last+2, numbers.Of("nvmlDeviceGetAll"))
	assert.True(t, strings.HasPrefix(string(numbers.Text()), committed(t)), "lines are only appended")
	symbols, err := Bind(m, numbers)
	require.NoError(t, err)
	for _, s := range symbols {
		if s.Name == "nvmlDeviceGetAge" {
			assert.Equal(t, 99000000, s.Since)
		}
	}
}
