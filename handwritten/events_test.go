package handwritten

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// TestSupportedEventTypes: a board has the events of what it has, and a driver those of its nvml.h.
func TestSupportedEventTypes(t *testing.T) {
	for profile, want := range map[string]uint64{
		"extends: t4\nsystem: {driver_version: \"470.82.01\"}":             0x9f,
		"extends: a100-sxm4-40gb\nsystem: {driver_version: \"470.82.01\"}": 0x19f,
		"extends: h100\nsystem: {driver_version: \"550.54.15\"}":           0x19f,
		"extends: h100\nsystem: {driver_version: \"560.35.03\"}":           0x3f9f,
		"extends: h100\nsystem: {driver_version: \"580.105.08\"}":          0xff9f,
		"extends: h100\ndevice_defaults: {events: {supported: false}}":     0,
	} {
		s := enginetest.Start(t, profile)
		got, ret := DeviceGetSupportedEventTypes(s.Devices[0])
		require.Equal(t, abi.SUCCESS, ret)
		assert.Equal(t, want, got, "%s: %#x", profile, got)
	}
}

// TestCase25RegisterEventsCanBeUnsupported: a profile can say that a GPU has no events. Programs then read an empty mask, and
// are refused every event, as on boards whose health cannot be followed. If only some events are not supported, a set
// stays as it was.
func TestCase25RegisterEventsCanBeUnsupported(t *testing.T) {
	s := enginetest.Start(t, "extends: h100\ndevices:\n  - index: 0\n    events: {supported: false}\n")
	set, ret := EventSetCreate(s)
	require.Equal(t, abi.SUCCESS, ret)
	for _, types := range []uint64{0, abi.EventTypeXidCriticalError, abi.EventTypeAll} {
		assert.Equal(t, abi.ERROR_NOT_SUPPORTED, DeviceRegisterEvents(s.Devices[0], types, set))
	}
	assert.Equal(t, abi.SUCCESS, DeviceRegisterEvents(s.Devices[1], abi.EventTypeXidCriticalError, set))
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, DeviceRegisterEvents(s.Devices[1], 1<<40, set))

	s = enginetest.Start(t, "extends: h100\ndevices:\n  - index: 0\n    ecc: {mode_current: null}\n")
	assert.Equal(t, abi.ERROR_NOT_SUPPORTED,
		DeviceRegisterEvents(s.Devices[0], abi.EventTypeXidCriticalError|abi.EventTypeDoubleBitEccError, set))
}
