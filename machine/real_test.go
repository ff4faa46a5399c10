package machine

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestCheckDriver: a file of the kernel's own says that there is a driver, and one that somebody put there does not.
func TestCheckDriver(t *testing.T) {
	none, file := filepath.Join(t.TempDir(), "none"), write(t, "NVRM version: …")
	assert.NoError(t, checkDriver(none, none))
	assert.NoError(t, checkDriver(file, none))
	assert.ErrorIs(t, checkDriver("/proc/version", none), ErrDriver)
	assert.NoError(t, checkDriver("/proc/version", file), "the module is nvmlfab's")
}
