package machine

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// write makes a file that holds a text.
func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	return name
}

// TestLibraryCache: the dynamic linker reads the changed cache.
func TestLibraryCache(t *testing.T) {
	cache, err := os.ReadFile(cachePath)
	if err != nil {
		t.Skip("skipped: this machine's dynamic linker has no cache")
	}
	if addLibraries(cache, "/x", "libx.so.1") == nil {
		t.Skip("skipped: a cache of another kind")
	}
	changed := addLibraries(addLibraries(cache, "/elsewhere", "libnvidia-ml.so.1"), "/somewhere", "libnvidia-ml.so.1", "libzzz.so")
	file := write(t, string(changed))
	list := func(file string) []string {
		text, err := exec.Command("/sbin/ldconfig", "-C", file, "-p").Output()
		require.NoError(t, err)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")[1:]
		return slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "\t") })
	}
	assert.True(t, slices.Equal(list(cachePath), list(write(t, string(addLibraries(cache, "/x"))))), "the order is kept")
	want := append(list(cachePath), "\tlibnvidia-ml.so.1 (libc6,x86-64) => /somewhere/libnvidia-ml.so.1", "\tlibzzz.so (libc6,x86-64) => /somewhere/libzzz.so")
	got := list(file)
	slices.Sort(want)
	slices.Sort(got)
	assert.True(t, slices.Equal(want, got))

	for name, broken := range map[string][]byte{
		"empty": nil, "short": cache[:30], "other": append([]byte("x"), cache...),
		"too many": binary.LittleEndian.AppendUint32([]byte(cacheMagic), 1<<30),
	} {
		assert.Nil(t, addLibraries(broken, "/x", "libx.so.1"), name)
	}
}

func TestCompareLibraries(t *testing.T) {
	order := []string{"", "liba.so", "libb.so", "libb.so.1", "libb.so.2", "libb.so.10", "libbc.so"}
	for i, a := range order {
		for j, b := range order {
			assert.Equal(t, i < j, CompareLibraries(a, b) < 0, "%q %q", a, b)
			assert.Equal(t, i == j, CompareLibraries(a, b) == 0, "%q %q", a, b)
		}
	}
}

func TestCombine(t *testing.T) {
	text := "Character devices:\n  1 mem\n\nBlock devices:\n  7 loop\n"
	assert.Equal(t, "Character devices:\n  1 mem\n195 nvidia\n\nBlock devices:\n  7 loop\n", combine("proc/devices", text, "195 nvidia\n"))
	assert.Equal(t, "a\nb\n", combine("proc/modules", "a\n", "b\n"))
}
