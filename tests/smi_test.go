package tests

import (
	"fmt"
	"testing"

	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// board is the board for an empty environment.
func board(t *testing.T) *profiles.Board {
	t.Helper()
	b, err := profiles.Shipped("h100")
	require.NoError(t, err)
	require.Len(t, b.Devices, 8)
	return b
}

// smi runs NVIDIA's nvidia-smi of driver 550 with the library.
func smi(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	return run(t, with(library, env...), fetched(t, "nvidia-smi-550", "nvidia-smi"), args...)
}

// TestSMIUnknownProfile: a misspelt board is an error, and no other board is used.
func TestSMIUnknownProfile(t *testing.T) {
	out := smi(t, []string{"NVMLFAB_PROFILE=nope"}, "-L")
	assert.NotZero(t, out.code)
	assert.NotContains(t, out.stdout, "UUID")
	assert.Contains(t, out.complains(t), "nope")
}

func mib(bytes uint64) string { return fmt.Sprint(bytes >> 20) }
