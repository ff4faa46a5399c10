//go:build cgo

package gpufilter

import (
	"strconv"
	"strings"
)

// gpuID is the number that NVIDIA's resource manager gives a GPU.
type gpuID uint32

// parseAddress makes a gpuID from a PCI address, domain:bus:device.function in hexadecimal digits. The domain is a part
// of it, since a host with several domains may have GPUs with the same bus number.
func parseAddress(address string) (gpuID, bool) {
	domain, rest, ok1 := strings.Cut(address, ":")
	bus, rest, ok2 := strings.Cut(rest, ":")
	device, function, ok3 := strings.Cut(rest, ".")
	d, err1 := strconv.ParseUint(domain, 16, 32)
	b, err2 := strconv.ParseUint(bus, 16, 8)
	s, err3 := strconv.ParseUint(device, 16, 5)
	_, err4 := strconv.ParseUint(function, 16, 3)
	if !ok1 || !ok2 || !ok3 || err1 != nil || err2 != nil || err3 != nil || err4 != nil {
		return 0, false
	}
	return gpuID(d&0xffff<<16 | b<<8 | s), true
}

// parseMinor finds the number N of /dev/nvidiaN in the text of /proc/driver/nvidia/gpus/ADDRESS/information.
func parseMinor(information string) (minor int, ok bool) {
	for line := range strings.Lines(information) {
		if value, ok := strings.CutPrefix(line, "Device Minor:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 20) // 20 bits, as a minor number has
			return int(n), err == nil
		}
	}
	return 0, false
}
