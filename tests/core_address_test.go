package tests

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCoreAddress: at its own address the core's data is the file's, which all processes share, but for what is written. Where
// that address is taken, the core is relocated and works as well.
func TestCoreAddress(t *testing.T) {
	core, err := elf.Open(filepath.Join(library, "libnvmlfab-core.so.1"))
	require.NoError(t, err)
	defer core.Close()
	program := coreProgram(t, "", "address", linked()...)

	free := run(t, with(library), program).succeeds(t).figures(t)
	assert.Less(t, free[0], 300, "KB of data that are the process's own")
	assert.Less(t, free[1], 3000, "KB of code and constants that stay in memory")

	taken := run(t, with(library), program, fmt.Sprintf("%#x", core.Progs[0].Vaddr)).succeeds(t).figures(t)
	assert.GreaterOrEqual(t, taken[0], relocated(t, core), "the core is at its own address, although that is taken")
}

// relocated is how many KB of data have words that depend on where the core is, by the table of library/relr: an even number is the
// address of such a word, and an odd one has a bit for each of the next 63 words.
func relocated(t *testing.T, core *elf.File) int {
	t.Helper()
	const table, size = elf.DynTag(0x6fffe000), elf.DynTag(0x6fffe001)
	at, err := core.DynValue(table)
	require.NoError(t, err)
	require.Len(t, at, 1)
	length, err := core.DynValue(size)
	require.NoError(t, err)
	require.Len(t, length, 1)
	entries := make([]byte, length[0])
	_, err = core.Progs[0].ReadAt(entries, int64(at[0]-core.Progs[0].Vaddr))
	require.NoError(t, err)

	pages, next := map[uint64]bool{}, uint64(0)
	for ; len(entries) > 0; entries = entries[8:] {
		entry := binary.LittleEndian.Uint64(entries)
		if entry&1 == 0 {
			pages[entry/4096], next = true, entry+8
			continue
		}
		for word := range uint64(63) {
			if entry>>(word+1)&1 != 0 {
				pages[(next+word*8)/4096] = true
			}
		}
		next += 63 * 8
	}
	require.Greater(t, len(pages), 100, "the table has hardly any words")
	return 4 * len(pages)
}
