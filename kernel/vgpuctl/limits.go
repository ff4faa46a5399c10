package vgpuctl

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var errZero = errors.New("there is no process 0")

// Check says what is wrong with limits that the kernel would refuse with EINVAL. errors.Is finds EINVAL in its error.
func (l Limits) Check() error {
	switch {
	case l.Weight > WeightMax:
		return invalid("the weight is %d: want at most %d", l.Weight, WeightMax)
	case l.TimesliceMaxUs != 0 && l.TimesliceMinUs > l.TimesliceMaxUs:
		return invalid("the least timeslice, %d us, is longer than the greatest, %d us: want it the other way round",
			l.TimesliceMinUs, l.TimesliceMaxUs)
	case l.Flags&^LimitDryRun != 0:
		return invalid("there are no flags %#x: want 0 or %#x", uint32(l.Flags&^LimitDryRun), uint32(LimitDryRun))
	}
	return nil
}

// check is Check for limits of a certain GPU.
func (l Limits) check(op string, minor Minor) error {
	err := l.Check()
	if err == nil && minor > MinorMax && minor != MinorAny {
		err = invalid("there is no GPU %d: want at most %d", minor, MinorMax)
	}
	if err != nil {
		return &Error{Op: op, Err: err}
	}
	return nil
}

// invalidError is a message that counts as EINVAL.
type invalidError string

func invalid(format string, args ...any) error { return invalidError(fmt.Sprintf(format, args...)) }

func (e invalidError) Error() string { return string(e) }
func (e invalidError) Unwrap() error { return unix.EINVAL }

// sizeUnits are powers of 1024.
const sizeUnits = "KMGT"

// ParseSize reads a whole number of bytes, or of K, M, G or T, which are powers of 1024: 8G is 8589934592. It accepts
// no fractions, signs, blanks or other units.
func ParseSize(s string) (uint64, error) {
	digits, shift := s, 0
	if s != "" {
		if i := strings.IndexByte(sizeUnits, s[len(s)-1]); i >= 0 {
			digits, shift = s[:len(s)-1], 10*(i+1)
		}
	}
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, fmt.Errorf("%q is no size: want a whole number of bytes, or one with K, M, G or T after it, such as 1536M", s)
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n > math.MaxUint64>>shift {
		return 0, fmt.Errorf("%q is too large a size: want less than 16777216T", s)
	}
	return n << shift, nil
}

// FormatSize writes a number of bytes for ParseSize, in the largest unit that divides it.
func FormatSize(bytes uint64) string {
	for i := len(sizeUnits); i > 0 && bytes > 0; i-- {
		if unit := uint64(1) << (10 * i); bytes%unit == 0 {
			return strconv.FormatUint(bytes/unit, 10) + sizeUnits[i-1:i]
		}
	}
	return strconv.FormatUint(bytes, 10)
}

// ParseTimeslice reads a duration such as 500us or 2ms, which must be whole microseconds.
func ParseTimeslice(s string) (us uint64, err error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d%time.Microsecond != 0 {
		return 0, fmt.Errorf("%q is no timeslice: want whole microseconds with their unit, such as 500us or 2ms", s)
	}
	return uint64(d / time.Microsecond), nil
}

// FormatTimeslice writes microseconds for ParseTimeslice, which can read them if they are less than 292000 years.
func FormatTimeslice(us uint64) string {
	if us != 0 && us%1000 == 0 {
		return strconv.FormatUint(us/1000, 10) + "ms"
	}
	return strconv.FormatUint(us, 10) + "us"
}
