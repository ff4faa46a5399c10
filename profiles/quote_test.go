package profiles

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

func TestQuote(t *testing.T) {
	for value, want := range map[string]string{
		"": `""`, "a b": `"a b"`, "ü": `"ü"`, `a"\b`: `"a\"\\b"`, "\x1b[2J\n": `"\x1b[2J\n"`, "\xff": `"\xff"`, "a\u202eb": `"a\u202eb"`,
		strings.Repeat("x", 60):        `"` + strings.Repeat("x", 60) + `"`,
		strings.Repeat("ü", 61):        `"` + strings.Repeat("ü", 60) + `…"`,
		strings.Repeat("\n", 31):       `"` + strings.Repeat(`\n`, 30) + `…"`,
		strings.Repeat("x", 59) + "\n": `"` + strings.Repeat("x", 59) + `…"`,
	} {
		assert.Equal(t, want, quote(value))
	}
	assert.Equal(t, `"x"`, quote([]byte("x")))
}

// TestErrorsAreShort: no message shows more of a file than a short piece, in printable characters.
func TestErrorsAreShort(t *testing.T) {
	long := strings.Repeat("secret", 200)
	digits := strings.Repeat("9", 1200)
	for _, text := range []string{
		long, long + ": 1\n", "- " + long + "\n", "extends: " + long + "\n", "{" + long + ": 1, " + long + ": 2}\n", "a: *" + long + "\n",
		"a: &" + long + " [*" + long + "x]\n", "%" + long + " x\n", "a: !" + long + "!x 1\n", "a: \"\\q" + long + "\"\n",
		"count: " + long + "\n", "count: " + digits + "\n", "count: 0" + digits + "\n", "count: !!int \"" + long + "\"\n",
		"count: 0x" + strings.Repeat("f", 1200) + "\n", "count: [" + long + "]\n", "version: " + digits + "\n", "only: [" + long + "]\n",
		"only: [" + digits + "]\n", "system: {driver_version: " + long + "}\n", "system: {driver_version: \"x\\e" + long + "\"}\n",
		"device_defaults: {pci: {bus_id: " + long + "}}\ncount: 1\n", "devices: [{uuid: " + long + "}]\n",
		"devices: [{index: " + long + "}]\n", "devices: [{index: " + digits + "}]\n", "devices: [{name: " + long + "}]\n",
		"count: 1\ndevice_defaults: {performance_state: " + long + "}\n", "count: 1\ndevice_defaults: {failure: {mode: " + long + "}}\n",
		"count: 1\ndevice_defaults: {failure: {probability: " + digits + "}}\n", "count: 1\ndevice_defaults: {persistence_mode: " + long + "}\n",
		"count: 1\ntopology: {root_complexes: [{cpu_affinity: \"" + long + "\"}]}\n",
	} {
		_, err := Parse("x.yaml", []byte(text))
		if assert.Error(t, err, "%.60q", text) {
			message := err.Error()
			assert.Less(t, strings.Count(message, "secret"), 25, "%.80q: %s", text, message)
			assert.NotContains(t, message, digits[:100], "%.80q", text)
			assert.Less(t, utf8.RuneCountInString(message), 600, "%.80q: %s", text, message)
		}
	}
}
