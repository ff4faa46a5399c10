package gpufilter

import (
	"math/rand/v2"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const invalid = 0xffffffff

// TestFilterProperties: for any answer and any set of ids to keep, either the filter keeps a non-empty proper subset in
// order, fills the rest with sentinels and moves each flag with its id, or it changes nothing.
func TestFilterProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	changed := 0
	for range 20000 {
		var ids, flags [32]uint32
		live := random.IntN(33)
		for i := range ids {
			ids[i] = invalid
			flags[i] = random.Uint32()
			switch {
			case i < live:
				ids[i] = uint32(random.IntN(40)) << 8 // so that some are kept and some occur twice
			case i > live && random.IntN(4) == 0:
				ids[i] = random.Uint32() // garbage after the sentinel
			}
		}
		var keep []uint32
		for range random.IntN(20) {
			keep = append(keep, uint32(random.IntN(40))<<8)
		}
		checkFilter(t, ids, flags, live, keep, &changed)
	}
	assert.Greater(t, changed, 5000, "the filter had something to do")
}

func checkFilter(t *testing.T, ids, flags [32]uint32, live int, keep []uint32, changed *int) {
	t.Helper()
	wantIDs, wantFlags := ids, flags
	var left []int
	for i := range live {
		if slices.Contains(keep, ids[i]) {
			left = append(left, i)
		}
	}
	if len(left) > 0 && len(left) < live {
		*changed++
		for i := range wantIDs {
			wantIDs[i] = invalid
			if i < live {
				wantFlags[i] = 0
			}
		}
		for to, from := range left {
			wantIDs[to], wantFlags[to] = ids[from], flags[from]
		}
	}
	gotIDs, gotFlags := ids, flags
	filterIDs(&gotIDs, &gotFlags, keep)
	require.Equal(t, wantIDs, gotIDs, "%x keep %x", ids, keep)
	require.Equal(t, wantFlags, gotFlags, "%x keep %x", ids, keep)
	again, withoutFlags := gotIDs, ids
	filterIDs(&again, nil, keep)
	require.Equal(t, gotIDs, again, "once more")
	filterIDs(&withoutFlags, nil, keep)
	require.Equal(t, gotIDs, withoutFlags, "without flags")
}

func FuzzFilter(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4}, []byte{1, 4})
	f.Add([]byte{}, []byte{1})
	f.Fuzz(func(t *testing.T, live, kept []byte) {
		var ids, flags [32]uint32
		for i := range ids {
			ids[i], flags[i] = invalid, uint32(i)
		}
		live = live[:min(len(live), 32)]
		for i, id := range live {
			ids[i] = uint32(id)
		}
		var keep []uint32
		for _, id := range kept {
			keep = append(keep, uint32(id))
		}
		checkFilter(t, ids, flags, len(live), keep, new(int))
	})
}

// TestHookIsStrictC compiles hook.c with strict warnings, since cgo's own code cannot be compiled with them.
func TestHookIsStrictC(t *testing.T) {
	for _, file := range []string{"hook.c", "lib/library.c"} {
		out, err := exec.Command("gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-fsyntax-only", "-I", "../../library/host", "-I", ".", file).CombinedOutput()
		assert.NoError(t, err, string(out))
	}
}
