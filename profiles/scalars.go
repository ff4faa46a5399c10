package profiles

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// lazily compiles an expression at its first use, so that a process without a profile file does not pay for it.
func lazily(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// UUID is a GPU's identifier: GPU- and a UUID in lower case.
type UUID string

var gpuUUID = lazily(`^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// UnmarshalText accepts GPU- and a UUID other than the all-zero one, which real software takes for a missing GPU.
func (u *UUID) UnmarshalText(text []byte) error {
	s := string(text)
	if rest, ok := strings.CutPrefix(s, "GPU-"); ok {
		s = "GPU-" + strings.ToLower(rest)
	}
	if !gpuUUID().MatchString(s) {
		return fmt.Errorf("bad UUID %s: want GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx in hexadecimal digits", quote(text))
	}
	if strings.Trim(s[len("GPU-"):], "0-") == "" {
		return fmt.Errorf("the all-zero UUID names no device: give each device its own, or none to have one generated")
	}
	*u = UUID(s)
	return nil
}

// DeviceName is a device's index or UUID.
type DeviceName string

// UnmarshalText accepts a number or a UUID.
func (n *DeviceName) UnmarshalText(text []byte) error {
	if index, err := strconv.ParseUint(string(text), 10, 32); err == nil {
		*n = DeviceName(strconv.FormatUint(index, 10))
		return nil
	}
	var u UUID
	if err := u.UnmarshalText(text); err != nil {
		return fmt.Errorf("%s is neither an index nor a UUID: %w", quote(text), err)
	}
	*n = DeviceName(u)
	return nil
}

// BusID is a PCI address.
type BusID struct {
	Domain                uint32
	Bus, Device, Function uint8
}

var busID = lazily(`^(?:([0-9A-Fa-f]{4}|[0-9A-Fa-f]{8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-7])$`)

// UnmarshalText accepts domain:bus:device.function with 8 or 4 digits of domain or none, in either case.
func (b *BusID) UnmarshalText(text []byte) error {
	m := busID().FindSubmatch(text)
	if m == nil {
		return fmt.Errorf("bad bus id %s: want domain:bus:device.function such as 0000:53:00.0", quote(text))
	}
	var n [4]uint64
	for i := range n {
		n[i], _ = strconv.ParseUint(string(m[i+1]), 16, 32) // only an absent domain fails, and it is 0
	}
	if n[2] > 0x1f {
		return fmt.Errorf("bad bus id %s: a bus has devices 00 to 1f", quote(text))
	}
	*b = BusID{uint32(n[0]), uint8(n[1]), uint8(n[2]), uint8(n[3])}
	return nil
}

// String writes the address as NVML's busId does, with 8 digits of domain.
func (b BusID) String() string {
	return fmt.Sprintf("%08X:%02X:%02X.%X", b.Domain, b.Bus, b.Device, b.Function)
}

// Legacy writes the address as NVML's busIdLegacy does, with 4 digits of domain.
func (b BusID) Legacy() string {
	return fmt.Sprintf("%04X:%02X:%02X.%X", b.Domain&0xffff, b.Bus, b.Device, b.Function)
}

// Enabled is a mode that is on or off.
type Enabled bool

// UnmarshalText accepts enabled and disabled, true and false.
func (e *Enabled) UnmarshalText(text []byte) error {
	switch strings.ToLower(string(text)) {
	case "enabled", "true":
		*e = true
	case "disabled", "false":
		*e = false
	default:
		return fmt.Errorf("%s is neither enabled nor disabled", quote(text))
	}
	return nil
}

// PState is a performance state, 0 to 15.
type PState uint8

// UnmarshalText accepts P0 to P15.
func (p *PState) UnmarshalText(text []byte) error {
	digits, ok := strings.CutPrefix(string(text), "P")
	n, err := strconv.ParseUint(digits, 10, 8)
	if !ok || err != nil || n > 15 {
		return fmt.Errorf("bad performance state %s: want P0 to P15", quote(text))
	}
	*p = PState(n)
	return nil
}

// Percent is a number from 0 to 100 that files may put in quotes.
type Percent uint32

// UnmarshalText accepts 0 to 100.
func (p *Percent) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 32)
	if err != nil || n > 100 {
		return fmt.Errorf("bad percentage %s: want 0 to 100", quote(text))
	}
	*p = Percent(n)
	return nil
}

// Address is a memory address that files may put in quotes.
type Address uint64

// UnmarshalText accepts a number, usually hexadecimal after 0x.
func (a *Address) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 0, 64)
	if err != nil {
		return fmt.Errorf("bad address %s: want a number such as 0x1a2b", quote(text))
	}
	*a = Address(n)
	return nil
}

// ClusterUUID is the UUID of an NVLink fabric; all zero on machines with a fabric of their own.
type ClusterUUID [16]byte

// UnmarshalText accepts 32 hexadecimal digits, with or without dashes.
func (c *ClusterUUID) UnmarshalText(text []byte) error {
	digits := strings.ReplaceAll(string(text), "-", "")
	if len(digits) != 32 {
		return fmt.Errorf("bad cluster UUID %s: want 32 hexadecimal digits", quote(text))
	}
	if _, err := hex.Decode(c[:], []byte(digits)); err != nil {
		return fmt.Errorf("bad cluster UUID %s: want 32 hexadecimal digits", quote(text))
	}
	return nil
}

// CPUSet is CPU numbers, ascending.
type CPUSet []uint32

// maxCPUs bounds what a range such as 0-4000000000 may expand to.
const maxCPUs = 8192

// UnmarshalText accepts numbers and inclusive ranges between commas, such as 0-71,80.
func (c *CPUSet) UnmarshalText(text []byte) error {
	var set CPUSet
	for part := range strings.SplitSeq(string(text), ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		lo, err1 := strconv.ParseUint(first, 10, 32)
		hi, err2 := strconv.ParseUint(last, 10, 32)
		if err1 != nil || err2 != nil || lo > hi || hi >= maxCPUs {
			return fmt.Errorf("bad CPU list %s: want numbers below %d and ranges such as 0-71,80", quote(text), maxCPUs)
		}
		for cpu := lo; cpu <= hi; cpu++ {
			set = append(set, uint32(cpu))
		}
	}
	slices.Sort(set)
	*c = slices.Compact(set)
	return nil
}

// ClockSteps are clocks, highest first, in MHz.
type ClockSteps []uint32

var clockSteps = lazily(`^([1-9][0-9]{0,4}(?:\.5)?)\.\.([1-9][0-9]{0,4}(?:\.5)?)/([1-9][0-9]{0,4}(?:\.5)?)$`)

// UnmarshalText accepts highest..lowest/step, all in MHz and with halves, such as 2062.5..120/7.5. A clock that ends in a
// half counts as the whole number below, as drivers list it.
func (c *ClockSteps) UnmarshalText(text []byte) error {
	m := clockSteps().FindSubmatch(text)
	if m == nil {
		return fmt.Errorf("bad clocks %s: want a list, or highest..lowest/step such as 1410..210/15", quote(text))
	}
	var halves [3]uint32 // in units of half a MHz
	for i := range halves {
		n, _ := strconv.ParseFloat(string(m[i+1]), 64) // the pattern lets only such numbers through
		halves[i] = uint32(2 * n)
	}
	highest, lowest, step := halves[0], halves[1], halves[2]
	if lowest > highest || (highest-lowest)%step != 0 {
		return fmt.Errorf("bad clocks %s: no number of steps leads from the highest down to the lowest", quote(text))
	}
	steps := make(ClockSteps, (highest-lowest)/step+1)
	for i := range steps {
		steps[i] = (highest - uint32(i)*step) / 2
	}
	*c = steps
	return nil
}

// list lets a file also give the clocks as a list.
func (c *ClockSteps) list() {}
