package machine

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// Bounds of the module; see kernel/logic/gpus.h.
const (
	moduleGPUs  = 32
	moduleMinor = 247
)

// moduleVersion are the driver's versions that the module takes.
var moduleVersion = regexp.MustCompile(`^[0-9]+(\.[0-9]+){1,3}$`)

// ModuleParameters are those with which fakegpu.ko has the board's GPUs, in one line for insmod. What the module has no room
// for is an error that says what to change.
func ModuleParameters(board *profiles.Board) (string, error) {
	version := board.System.DriverVersion.Or("")
	if len(version) > 31 || !moduleVersion.MatchString(version) {
		return "", fmt.Errorf("fakegpu.ko takes no driver version %q: give one such as 580.105.08 with --driver", version)
	}
	if n := len(board.Devices); n > moduleGPUs {
		return "", fmt.Errorf("NVIDIA's kernel driver knows at most %d GPUs, and the profile has %d: choose fewer with --gpus", moduleGPUs, n)
	}
	var gpus []string
	for i := range board.Devices {
		gpu, err := moduleGPU(&board.Devices[i], version)
		if err != nil {
			return "", fmt.Errorf("GPU %d: %w", i, err)
		}
		gpus = append(gpus, gpu)
	}
	return fmt.Sprintf("nvidia=1 driver_version=%s gpus=%s", version, strings.Join(gpus, ",")), nil
}

// moduleGPU is one GPU's entry: BUS/MINOR/VENDOR:DEVICE/MEMORY/UUID/NAME/VBIOS/DMABITS/FIRMWARE.
func moduleGPU(d *profiles.Device, driver string) (string, error) {
	minor, bus, id := Minor(d), d.PCI.BusID.Value, d.PCI.DeviceID.Or(0x000010de)
	if minor > moduleMinor {
		return "", fmt.Errorf("its minor number is %d, and NVIDIA's kernel driver gives out 0 to %d: change minor_number", minor, moduleMinor)
	}
	name, vbios, firmware := d.Name.Or("Unknown"), VBIOS(d), Firmware(d, driver)
	for _, text := range []struct {
		value   string
		longest int
	}{{name, 95}, {vbios, 31}, {firmware, 31}} {
		if len(text.value) > text.longest {
			return "", fmt.Errorf("fakegpu.ko takes up to %d bytes, not %q: shorten it in the profile", text.longest, text.value)
		}
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x/%d/%04x:%04x/%d/%s/%s/%s/%d/%s", bus.Domain, bus.Bus, bus.Device, bus.Function, minor,
		id&0xffff, id>>16, d.Memory.TotalBytes.Or(0), d.UUID, moduleWord(name), moduleWord(vbios), DMABits(d),
		moduleWord(firmware)), nil
}

// moduleWord is a text without what separates module parameters, their elements, and the fields in these.
func moduleWord(text string) string {
	var word strings.Builder
	for _, c := range []byte(text) {
		switch {
		case c == ' ':
			word.WriteByte('_')
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', strings.IndexByte(".:-+()", c) >= 0:
			word.WriteByte(c)
		default:
			fmt.Fprintf(&word, "%%%02X", c)
		}
	}
	return word.String()
}
