package vgpuctl

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "1": 1, "007": 7, "1K": 1 << 10, "1536M": 1536 << 20, "8G": 8 << 30, "2T": 2 << 40,
		"18446744073709551615": math.MaxUint64, "16777215T": 16777215 << 40,
	} {
		got, err := ParseSize(text)
		assert.NoError(t, err)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "G", "-1", "+1", "1.5G", "1e9", "8GB", "8GiB", "8g", "8 G", " 8G", "8G ", "0x10", "1_000", "٣"} {
		_, err := ParseSize(text)
		assert.ErrorContains(t, err, "is no size: want a whole number of bytes", "%q", text)
	}
	for _, text := range []string{"18446744073709551616", "16777216T", "18014398509481984K", "99999999999999999999999G"} {
		_, err := ParseSize(text)
		assert.ErrorContains(t, err, "too large", "%q", text)
	}
}

func TestFormatSize(t *testing.T) {
	for want, bytes := range map[string]uint64{
		"0": 0, "1": 1, "1023": 1023, "1K": 1 << 10, "1537K": 1537 << 10, "1G": 1 << 30, "2T": 2 << 40, "16777215T": 16777215 << 40,
		"18446744073709551615": math.MaxUint64,
	} {
		assert.Equal(t, want, FormatSize(bytes))
		back, err := ParseSize(want)
		assert.NoError(t, err)
		assert.Equal(t, bytes, back)
	}
}

func TestTimeslice(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "500us": 500, "2ms": 2000, "1.5ms": 1500, "1s": 1e6, "3000ns": 3} {
		got, err := ParseTimeslice(text)
		assert.NoError(t, err)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "5", "1us1", "-1ms", "1500ns", "1 ms", "ms", "9999999999h"} {
		_, err := ParseTimeslice(text)
		assert.ErrorContains(t, err, "is no timeslice: want whole microseconds", "%q", text)
	}
	for want, us := range map[string]uint64{"0us": 0, "1us": 1, "1ms": 1000, "1500us": 1500, "1000ms": 1e6} {
		assert.Equal(t, want, FormatTimeslice(us))
		back, err := ParseTimeslice(want)
		assert.NoError(t, err)
		assert.Equal(t, us, back)
	}
}
