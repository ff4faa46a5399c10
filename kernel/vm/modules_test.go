//go:build guest

package kernel

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every module can be loaded and removed, logs both, and leaves nothing allocated.
func TestModules(t *testing.T) {
	files, err := filepath.Glob("/modules/*.ko")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".ko")
		t.Run(name, func(t *testing.T) {
			since := logSince()
			for range 3 {
				load(t, name)
				require.True(t, loaded(name))
				unload(t, name)
			}
			require.False(t, loaded(name))
			require.Contains(t, tail(since(), 100), name+": ")
		})
	}
}
