package handwritten

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/nvmlfab/nvmlfab/generated/abi"
)

const faulty = `ecc: {
	errors: {
		volatile: {single_bit: {device_memory: 3, l2_cache: 4, total: 5}, double_bit: {device_memory: 2}},
		aggregate: {single_bit: {total: 99}}},
	sram: {
		volatile: {correctable: 10, uncorrectable_parity: 20, uncorrectable_secded: 21},
		aggregate: {correctable: 0},
		threshold_exceeded: true}}`

func TestECCErrors(t *testing.T) {
	d := gpu(t, like(faulty))
	const corrected, uncorrected = abi.MEMORY_ERROR_TYPE_CORRECTED, abi.MEMORY_ERROR_TYPE_UNCORRECTED
	count := func(severity abi.MemoryErrorType_t, at abi.MemoryLocation_t) (uint64, abi.Return) {
		return DeviceGetMemoryErrorCounter(d, severity, abi.VOLATILE_ECC, at)
	}
	answers(t, 3)(count(corrected, abi.MEMORY_LOCATION_DRAM))
	answers(t, 4)(count(corrected, abi.MEMORY_LOCATION_L2_CACHE))
	answers(t, 10)(count(corrected, abi.MEMORY_LOCATION_SRAM))
	answers(t, 41)(count(uncorrected, abi.MEMORY_LOCATION_SRAM))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(count(corrected, abi.MEMORY_LOCATION_L1_CACHE))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(count(uncorrected, abi.MEMORY_LOCATION_CBU))

	answers(t, 17)(DeviceGetTotalEccErrors(d, corrected, abi.VOLATILE_ECC)) // no less than its parts
	answers(t, 43)(DeviceGetTotalEccErrors(d, uncorrected, abi.VOLATILE_ECC))
	answers(t, 99)(DeviceGetTotalEccErrors(d, corrected, abi.AGGREGATE_ECC))

	var counts abi.EccErrorCounts_t
	assert.Equal(t, abi.SUCCESS, DeviceGetDetailedEccErrors(d, corrected, abi.VOLATILE_ECC, &counts))
	assert.Equal(t, abi.EccErrorCounts_t{L2Cache: 4, DeviceMemory: 3}, counts)

	sram := abi.EccSramErrorStatus_v1_t{Version: abi.EccSramErrorStatus_v1}
	assert.Equal(t, abi.SUCCESS, DeviceGetSramEccErrorStatus(d, &sram))
	assert.Equal(t, abi.EccSramErrorStatus_v1_t{Version: abi.EccSramErrorStatus_v1, VolatileCor: 10, VolatileUncParity: 20,
		VolatileUncSecDed: 21, BThresholdExceeded: 1}, sram)

	d = gpu(t, "extends: t4\ndevice_defaults: {ecc: {errors: {volatile: {single_bit: {sram: 6}, double_bit: {sram: 7}}}}}\n")
	answers(t, 6)(count(corrected, abi.MEMORY_LOCATION_SRAM)) // no SRAM section before Ampere
	answers(t, 7)(count(uncorrected, abi.MEMORY_LOCATION_SRAM))
	answers(t, 6)(DeviceGetTotalEccErrors(d, corrected, abi.VOLATILE_ECC))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetSramEccErrorStatus(d, &sram))

	d = gpu(t, like("ecc: {mode_current: disabled}"))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetTotalEccErrors(d, corrected, abi.VOLATILE_ECC))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetSramEccErrorStatus(d, &sram))
}

func TestRetiredPages(t *testing.T) {
	const corrected = abi.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS
	d := gpu(t, `devices: [{retired_pages: {pending_retirement: true,
		single_bit_retirement: {count: 3, addresses: [0x1000]}, double_bit_retirement: {count: 0}}}]`)
	answers(t, []uint64{0x1000, 0, 0})(DeviceGetRetiredPages(d, corrected))
	answers(t, []uint64{0x1000, 0, 0}, []uint64{0, 0, 0})(DeviceGetRetiredPages_v2(d, corrected))
	answers(t, []uint64{})(DeviceGetRetiredPages(d, abi.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR))
	answers(t, abi.FEATURE_ENABLED)(DeviceGetRetiredPagesPendingStatus(d))
}

func TestRemappedRows(t *testing.T) {
	d := gpu(t, like(`remapped_rows: {correctable: 1, uncorrectable: 2, correctable_inactive: 3, uncorrectable_inactive: 4,
		pending: true, failure_occurred: false}`))
	answers(t, 1, 2, 1, 0)(DeviceGetRemappedRows(d))
	answers(t, abi.RemappedRowsInfo_v2_t{
		CorrActiveRemaps: 1, CorrInactiveRemaps: 3, UncActiveRemaps: 2, UncInactiveRemaps: 4, BPending: 1,
	})(filled(DeviceGetRemappedRows_v2)(d))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetRemappedRows(gpu(t, bare)))
}

func TestMIG(t *testing.T) {
	d := gpu(t, like("mig: {mode_current: enabled, mode_pending: enabled}"))
	answers(t, 1, 1)(DeviceGetMigMode(d))
	answers(t, 7)(DeviceGetMaxMigDeviceCount(d))
	refuses(t, abi.ERROR_NOT_FOUND)(DeviceGetMigDeviceHandleByIndex(d, 6))
	refuses(t, abi.ERROR_INVALID_ARGUMENT)(DeviceGetMigDeviceHandleByIndex(d, 7))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetMigDeviceHandleByIndex(gpu(t, ""), 0))
}

func TestC2C(t *testing.T) {
	c2c := filled(DeviceGetC2cModeInfoV)
	answers(t, abi.C2cModeInfo_v1_t{IsC2cEnabled: 1})(c2c(gpu(t, like("c2c_mode: enabled"))))
	answers(t, abi.C2cModeInfo_v1_t{IsC2cEnabled: 1})(c2c(gpu(t, bare+"nvlink: {c2c_enabled: true}\n")))
	d := gpu(t, like("egm: enabled"))
	answers(t, abi.DeviceCapabilities_v1_t{CapMask: abi.DEV_CAP_EGM})(filled(DeviceGetCapabilities)(d))
}

func TestInforom(t *testing.T) {
	assert.Equal(t, abi.SUCCESS, DeviceValidateInforom(gpu(t, "")))
	assert.Equal(t, abi.ERROR_NOT_SUPPORTED, DeviceValidateInforom(gpu(t, bare)))
}
