package profiles

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// digits reports whether text has one of the given lengths and holds hexadecimal digits alone.
func digits(text string, lengths ...int) bool {
	return slices.Contains(lengths, len(text)) && strings.Trim(text, "0123456789abcdefABCDEF") == ""
}

// UUID is a GPU's identifier: GPU- and a UUID in lower case.
type UUID string

// UnmarshalText accepts GPU- and a UUID other than the all-zero one, which real software takes for a missing GPU.
func (u *UUID) UnmarshalText(text []byte) error {
	rest, ok := strings.CutPrefix(string(text), "GPU-")
	if !ok || !uuidDigits(rest) {
		return fmt.Errorf("bad UUID %s: want GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx in hexadecimal digits", quote(text))
	}
	if strings.Trim(rest, "0-") == "" {
		return fmt.Errorf("the all-zero UUID names no device: give each device its own, or none to have one generated")
	}
	*u = UUID("GPU-" + strings.ToLower(rest))
	return nil
}

// uuidDigits reports whether text is 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12.
func uuidDigits(text string) bool {
	groups := strings.Split(text, "-")
	return len(groups) == 5 && digits(groups[0], 8) && digits(groups[1], 4) && digits(groups[2], 4) &&
		digits(groups[3], 4) && digits(groups[4], 12)
}

// PlainUUID is a UUID in lower case, of something other than a GPU.
type PlainUUID string

// UnmarshalText accepts a UUID.
func (u *PlainUUID) UnmarshalText(text []byte) error {
	if !uuidDigits(string(text)) {
		return fmt.Errorf("bad UUID %s: want xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx in hexadecimal digits", quote(text))
	}
	*u = PlainUUID(strings.ToLower(string(text)))
	return nil
}

// LicenseExpiry is when a licence ends: a time, or why there is none.
type LicenseExpiry string

// expiryWords are the reasons for which there is no time.
var expiryWords = []string{"not_available", "invalid", "not_applicable", "permanent"}

// UnmarshalText accepts a time in UTC such as 2027-01-31 11:32:22, or one of the words.
func (e *LicenseExpiry) UnmarshalText(text []byte) error {
	*e = LicenseExpiry(plain(string(text)))
	if slices.Contains(expiryWords, string(*e)) {
		return nil
	}
	t, err := time.Parse(time.DateTime, string(text))
	if err != nil {
		return fmt.Errorf("bad expiry %s: want a time such as 2027-01-31 11:32:22, or one of %s", quote(text), strings.Join(expiryWords, ", "))
	}
	*e = LicenseExpiry(t.Format(time.DateTime))
	return nil
}

// Time is the time at which the licence ends; false if there is none.
func (e LicenseExpiry) Time() (time.Time, bool) {
	t, err := time.Parse(time.DateTime, string(e))
	return t, err == nil
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

// UnmarshalText accepts domain:bus:device.function with 8 or 4 digits of domain or none, in either case.
func (b *BusID) UnmarshalText(text []byte) error {
	address, function, _ := strings.Cut(string(text), ".")
	parts := strings.Split(address, ":")
	if len(parts) == 2 {
		parts = slices.Insert(parts, 0, "0000")
	}
	if len(parts) != 3 || !digits(parts[0], 4, 8) || !digits(parts[1], 2) || !digits(parts[2], 2) ||
		len(function) != 1 || function < "0" || function > "7" {
		return fmt.Errorf("bad bus id %s: want domain:bus:device.function such as 0000:53:00.0", quote(text))
	}
	var n [4]uint64
	for i, part := range append(parts, function) {
		n[i], _ = strconv.ParseUint(part, 16, 32) // digits alone are left
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
	number, ok := strings.CutPrefix(string(text), "P")
	n, err := strconv.ParseUint(number, 10, 8)
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
	plain := strings.ReplaceAll(string(text), "-", "")
	if len(plain) != 32 {
		return fmt.Errorf("bad cluster UUID %s: want 32 hexadecimal digits", quote(text))
	}
	if _, err := hex.Decode(c[:], []byte(plain)); err != nil {
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

// UnmarshalText accepts highest..lowest/step, all in MHz and with halves, such as 2062.5..120/7.5. A clock that ends in a
// half counts as the whole number below, as drivers list it.
func (c *ClockSteps) UnmarshalText(text []byte) error {
	bounds, by, _ := strings.Cut(string(text), "/")
	high, low, _ := strings.Cut(bounds, "..")
	var halves [3]uint32 // in units of half a MHz
	for i, clock := range []string{high, low, by} {
		whole, isHalf := strings.CutSuffix(clock, ".5")
		n, err := strconv.ParseUint(whole, 10, 32)
		if err != nil || n > 99999 || whole[0] == '0' {
			return fmt.Errorf("bad clocks %s: want a list, or highest..lowest/step such as 1410..210/15", quote(text))
		}
		halves[i] = uint32(2 * n)
		if isHalf {
			halves[i]++
		}
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
