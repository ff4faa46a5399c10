package profiles

import (
	"strconv"
	"strings"

	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// Branch is the number that a driver's version begins with, 0 if it does not begin with one.
func Branch(driver string) int {
	major, _, _ := strings.Cut(driver, ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		return 0
	}
	return n
}

// Level is the place of a driver's branch among abi.Versions, counted from 1: that of the newest NVML whose branch is not
// younger. Older drivers than the oldest NVML known here have that one. Branch 0, a driver without a version, has the newest.
func Level(branch int) int {
	if branch == 0 {
		return len(abi.Versions)
	}
	at := 1
	for i, v := range abi.Versions {
		if v.Driver <= branch {
			at = i + 1
		}
	}
	return at
}
