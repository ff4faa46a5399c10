package main

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// decode is the reverse of encode, as library/core/relocate.c does it.
func decode(table []byte) (addresses []uint64) {
	var where uint64
	for ; len(table) > 0; table = table[word:] {
		entry := binary.LittleEndian.Uint64(table)
		if entry&1 == 0 {
			addresses, where = append(addresses, entry), entry+word
			continue
		}
		for i := range uint64(63) {
			if entry>>(i+1)&1 != 0 {
				addresses = append(addresses, where+i*word)
			}
		}
		where += 63 * word
	}
	return addresses
}

func TestEncode(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		set := map[uint64]bool{}
		for at := range 1 + random.IntN(400) { // dense here, sparse there
			set[uint64(random.IntN(1+at*at/7))*word] = true
		}
		var addresses []uint64
		for a := range set {
			addresses = append(addresses, a)
		}
		table := encode(slices.Clone(addresses))
		slices.Sort(addresses)
		assert.Equal(t, addresses, decode(table))
	}
}

// library compiles a library whose data has addresses of its own.
func library(t *testing.T, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	source, out := filepath.Join(dir, "a.c"), filepath.Join(dir, "a.so")
	require.NoError(t, os.WriteFile(source, []byte("static int n; int *const all[] = {[0 ... 999] = &n}; void start(void) {}\n"), 0o644))
	text, err := exec.Command("gcc", append([]string{"-shared", "-fPIC", "-o", out, source}, flags...)...).CombinedOutput()
	require.NoError(t, err, string(text))
	return out
}

// TestPack: the packed file has the same size, the relocations that are left are those of no table, and a second time there
// is nothing to pack. A library that could not apply the table is refused and stays as it is.
func TestPack(t *testing.T) {
	path := library(t, "-Wl,-z,norelro", "-Wl,-init=start")
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, pack(path))
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Len(t, after, len(before))
	out, err := exec.Command("readelf", "-rW", path).CombinedOutput()
	require.NoError(t, err)
	assert.NotContains(t, string(out), "RELATIVE")
	require.ErrorContains(t, pack(path), "no relocations that can be packed")

	path = library(t, "-Wl,-z,relro")
	before, err = os.ReadFile(path)
	require.NoError(t, err)
	require.ErrorContains(t, pack(path), "link it with -z norelro")
	after, err = os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, before, after)

	require.NoError(t, os.WriteFile(path, []byte("no library"), 0o644))
	assert.Error(t, pack(path))
	assert.Error(t, pack(filepath.Join(t.TempDir(), "none")))
}
