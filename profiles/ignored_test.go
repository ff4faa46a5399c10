package profiles

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKeysAboutFailuresThatNothingReads(t *testing.T) {
	for failure, want := range map[string][]string{
		"{mode: lost, after_calls: 3, probability: 0.5, seed: 1}": nil,
		"{mode: healthy}":               nil,
		"{mode: lost, xid: {code: 79}}": {"failure.xid, in a file: nvmlfab set and fail send the event,"},
		"{mode: ecc_uncorrectable}":     nil,
		"{after_calls: 3}":              {"failure.after_calls, without a mode other than healthy"},
	} {
		board, err := Parse("test.yaml", []byte("count: 2\ndevice_defaults: {failure: "+failure+"}\n"))
		require.NoError(t, err)
		assert.Equal(t, want, board.Ignored(), failure)
	}
}
