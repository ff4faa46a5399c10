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

// NVML is the NVML version of a driver branch: the newest that came with this branch or an earlier one. Branches before
// the first known one have the oldest version. Branch 0, a driver without a version, has the newest.
func NVML(branch int) abi.Version {
	if branch == 0 {
		return abi.Versions[len(abi.Versions)-1]
	}
	at := abi.Versions[0]
	for _, v := range abi.Versions {
		if v.Driver <= branch {
			at = v
		}
	}
	return at
}
