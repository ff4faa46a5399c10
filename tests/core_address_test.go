package tests

import (
	"debug/elf"
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
	assert.Greater(t, taken[0], 10*free[0], "the core is at its own address, although that is taken")
}
