package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/nvmlfab/nvmlfab/generated/abi"
)

func TestLevel(t *testing.T) {
	for driver, want := range map[string]string{
		"":           abi.Versions[len(abi.Versions)-1].NVML,
		"nonsense":   abi.Versions[len(abi.Versions)-1].NVML,
		"340.108":    "11.0",
		"450.80.02":  "11.0",
		"535.261.03": "12.2.140",
		"550.163.01": "12.4.127",
		"580.105.08": "13.0.39",
		"9999.1":     abi.Versions[len(abi.Versions)-1].NVML,
	} {
		assert.Equal(t, want, abi.Versions[level(branch(driver))-1].NVML, driver)
	}
}
