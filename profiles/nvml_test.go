package profiles

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/nvmlfab/nvmlfab/generated/abi"
)

func TestNVML(t *testing.T) {
	newest := abi.Versions[len(abi.Versions)-1].NVML
	for driver, want := range map[string]string{
		"":           newest,
		"nonsense":   newest,
		"340.108":    "11.0",
		"450.80.02":  "11.0",
		"460.106.00": "11.1",
		"535.261.03": "12.2.140",
		"550.163.01": "12.4.127",
		"570.148.08": "12.8.90",
		"580.105.08": "13.0.39",
		"9999.1":     newest,
	} {
		assert.Equal(t, want, NVML(Branch(driver)).NVML, driver)
	}
}
