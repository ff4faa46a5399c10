package machine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestModuleParameters: the kernel module has the GPUs that NVML reports.
func TestModuleParameters(t *testing.T) {
	for _, name := range profiles.Names() {
		board, err := profiles.Shipped(name)
		require.NoError(t, err)
		line, err := ModuleParameters(board)
		require.NoError(t, err, name)
		words := strings.Fields(line)
		require.Len(t, words, 3, line)
		assert.Equal(t, "nvidia=1", words[0])
		assert.Equal(t, "driver_version="+board.System.DriverVersion.Value, words[1])
		gpus := strings.Split(strings.TrimPrefix(words[2], "gpus="), ",")
		require.Len(t, gpus, len(board.Devices))
		for i, gpu := range gpus {
			d := &board.Devices[i]
			fields := strings.Split(gpu, "/")
			require.Len(t, fields, 9, gpu)
			id := d.PCI.DeviceID.Value
			assert.Equal(t, []string{
				address(d.PCI.BusID.Value), fmt.Sprint(d.MinorNumber.Or(d.Index)), fmt.Sprintf("%04x:%04x", id&0xffff, id>>16),
				fmt.Sprint(d.Memory.TotalBytes.Value), string(d.UUID), strings.ReplaceAll(d.Name.Value, " ", "_"),
			}, fields[:6])
		}
	}
}

// TestModuleParametersEscape: no text of a profile ends a field, an element or a parameter, or means something to a shell.
func TestModuleParametersEscape(t *testing.T) {
	board, err := profiles.Parse("test", []byte("count: 1\ndevice_defaults: {name: \"A/B, 'C_D'%\\\"?*é\"}\nsystem: {driver_version: '550.1'}\n"))
	require.NoError(t, err)
	line, err := ModuleParameters(board)
	require.NoError(t, err)
	assert.Contains(t, line, "/A%2FB%2C_%27C%5FD%27%25%22%3F%2A%C3%A9/")
}

func TestModuleParametersRefused(t *testing.T) {
	const driver = "system: {driver_version: '580.1'}\n"
	for profile, want := range map[string]string{
		"count: 33\n" + driver: "at most 32 GPUs, and the profile has 33: choose fewer with --gpus",
		"count: 1\n":           `no driver version "": give one such as 580.105.08 with --driver`,
		"count: 1\nsystem: {driver_version: '1.2.3.4.5'}\n":                                        `no driver version "1.2.3.4.5"`,
		"devices:\n  - minor_number: 248\n" + driver:                                               "GPU 0: its minor number is 248",
		"count: 1\ndevice_defaults: {vbios_version: '" + strings.Repeat("9", 32) + "'}\n" + driver: "shorten it in the profile",
	} {
		board, err := profiles.Parse("test", []byte(profile))
		require.NoError(t, err)
		_, err = ModuleParameters(board)
		assert.ErrorContains(t, err, want, profile)
	}
}
