package profiles

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAssign(t *testing.T) {
	for text, want := range map[string]Settings{
		"thermal.temperature_gpu_c=90":         {"thermal.temperature_gpu_c": json.Number("90")},
		"thermal.temperature_gpu_c=-5":         {"thermal.temperature_gpu_c": json.Number("-5")},
		"thermal.temperature_gpu_c=N/A":        {"thermal.temperature_gpu_c": nil},
		"failure={mode: lost, after_calls: 3}": {"failure.mode": "lost", "failure.after_calls": json.Number("3")},
		"fabric=n/a":                           {"fabric": nil},
		"system.cuda_version=12.4":             {"system.cuda_version": "12.4"},
		"persistence_mode=enabled":             {"persistence_mode": "enabled"},
		"persistence_mode=true":                {"persistence_mode": "true"},
		"performance_state=P8":                 {"performance_state": "P8"},
		"nvlink_error.links=[0, 3]":            {"nvlink_error.links": []any{json.Number("0"), json.Number("3")}},
		"failure.probability=0.5":              {"failure.probability": 0.5},
		"pci.device_id=0x233010DE":             {"pci.device_id": uint64(0x233010DE)},
		"name=A = B":                           {"name": "A = B"},
		"remapped_rows.pending=true":           {"remapped_rows.pending": true},
	} {
		got, err := Assign(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for text, want := range map[string]string{
		"":                              "want KEY=VALUE",
		"power":                         "want KEY=VALUE",
		"name=":                         "the value is missing",
		"temperature_gpu_c=1":           `did you mean "thermal.temperature_gpu_c"?`,
		"thermal.temprature_gpu_c=1":    `did you mean "thermal.temperature_gpu_c"?`,
		"powr.enforced_limit_mw=1":      `did you mean "power.enforced_limit_mw"?`,
		"devices=1":                     `unknown key "devices"`,
		"thermal.temperature_gpu_c.x=1": "unknown key",
		"failure={mode: lost":           "cannot be read",
		"failure={mode: a, mode: b}":    "given twice",
		"utilization.gpu=.inf":          "is no value",
		"utilization.gpu=&a *a":         "cannot be read",
		"utilization.gpu=&a 3":          "cannot be read",
		"nvlink_error.links=&a [*a]":    "cannot be read",
		"utilization.gpu=---":           "cannot be read",
		"utilization.gpu=# 3":           "cannot be read",
		"failure.xid=79":                "failure.xid is a section: give one of its keys a value, such as failure.xid.code",
		"thermal=90":                    "thermal is a section",
	} {
		_, err := Assign(text)
		assert.ErrorContains(t, err, want, text)
	}
}

// TestKeys: every key that may change can be taken away or given again without an error about the key itself.
func TestKeys(t *testing.T) {
	assert.Contains(t, Keys(), "power.enforced_limit_mw")
	assert.Contains(t, Keys(), "system.init_failure")
	assert.NotContains(t, Keys(), "uuid")
	assert.NotContains(t, Keys(), "pci.bus_id")
	assert.NotContains(t, Keys(), "system.driver_version")
	board, err := Shipped(Default)
	require.NoError(t, err)
	for _, key := range Keys() {
		require.NoError(t, Known(key))
		if OfNode(key) {
			_, err = board.With(Settings{key: nil})
		} else {
			_, err = board.Devices[0].With(Settings{key: nil})
		}
		assert.NoError(t, err, key)
	}
}

func TestMemoryUse(t *testing.T) {
	const gib = 1 << 30
	for memory, want := range map[string]FrameBuffer{
		"{total_bytes: 8589934592}":                                                 {8 * gib, 0, 2 * gib, 6 * gib},
		"{total_bytes: 8589934592, used_bytes: 0}":                                  {8 * gib, 0, 2 * gib, 6 * gib},
		"{total_bytes: 8589934592, used_bytes: 1073741824}":                         {8 * gib, 0, 1 * gib, 7 * gib},
		"{total_bytes: 8589934592, free_bytes: 1073741824}":                         {8 * gib, 0, 7 * gib, 1 * gib},
		"{total_bytes: 8589934592, used_bytes: 1073741824, free_bytes: 1073741824}": {8 * gib, 0, 1 * gib, 1 * gib},
		"{total_bytes: 8589934592, reserved_bytes: 1073741824}":                     {8 * gib, 1 * gib, 2 * gib, 5 * gib},
	} {
		board, err := Parse("test.yaml", []byte("count: 1\ndevice_defaults: {processes: [{pid: 1, used_memory_mib: 2048}], memory: "+memory+"}\n"))
		require.NoError(t, err)
		use, ok := board.Devices[0].MemoryUse()
		require.True(t, ok)
		assert.Equal(t, want, use, memory)
	}
	_, ok := (&Device{}).MemoryUse()
	assert.False(t, ok)
}
