package handwritten

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// ask reads one field.
func ask(t *testing.T, d *engine.Device, id, scope uint32) abi.FieldValue_t {
	t.Helper()
	values := []abi.FieldValue_t{{FieldId: asked(d, id), ScopeId: scope}}
	require.Equal(t, abi.SUCCESS, DeviceGetFieldValues(d, values))
	return values[0]
}

// asked is the number that the GPU's driver has for a field of the newest version.
func asked(d *engine.Device, id uint32) uint32 {
	version := profiles.NVML(d.Snapshot().Branch).Number
	for old := range uint32(abi.FI_MAX) {
		if abi.FieldID(version, old) == id {
			return old
		}
	}
	return id
}

// TestFieldNumbersFollowTheDriver: some fields had other numbers in some versions, which is how programs of these versions and
// monitoring agents that look at the driver ask for them.
func TestFieldNumbersFollowTheDriver(t *testing.T) {
	const old = "extends: h100\nsystem: {driver_version: %s}\ndevice_defaults: {nvlink_low_power: {min: 1, max: 8191}}\n"
	for driver, numbers := range map[string][3]uint32{ // of the time lost to software's thermal slowdown, and of two others
		"550.163.01": {269, 200, 199}, "555.58.02": {269, 199, 200}, "560.28.03": {269, 199, 200}, "570.86.15": {269, 200, 199},
		"575.57.08": {251, 200, 199}, "580.105.08": {251, 200, 199}, "590.44.01": {269, 200, 199}, "615.36.04": {269, 200, 199},
	} {
		values := []abi.FieldValue_t{{FieldId: numbers[0]}, {FieldId: numbers[1]}, {FieldId: numbers[2]}}
		require.Equal(t, abi.SUCCESS, DeviceGetFieldValues(gpu(t, fmt.Sprintf(old, driver)), values))
		assert.Equal(t, abi.SUCCESS, values[0].NvmlReturn, driver)
		assert.Equal(t, long, values[0].ValueType, driver)
		assert.EqualValues(t, 8191, values[1].Value[0], driver)
		assert.NotEqual(t, uint64(8191), values[2].Value[0], driver)
	}
}

// TestLinksOfTheFifthGeneration count packets, and not what earlier links count.
func TestLinksOfTheFifthGeneration(t *testing.T) {
	d := gpu(t, "extends: gb200\nnvlink: {defaults: {counter_seed: 1000}}\n")
	for id, want := range map[uint32]uint64{
		abi.FI_DEV_NVLINK_COUNT_XMIT_BYTES: 1000 << 10, abi.FI_DEV_NVLINK_COUNT_RCV_BYTES: 1000 << 10,
		abi.FI_DEV_NVLINK_COUNT_XMIT_PACKETS: 1000 << 10 / 144, abi.FI_DEV_NVLINK_COUNT_RCV_PACKETS: 1000 << 10 / 144,
		abi.FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS: 0, abi.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS: 0,
	} {
		v := ask(t, d, id, 3)
		assert.Equal(t, abi.SUCCESS, v.NvmlReturn, id)
		assert.Equal(t, long, v.ValueType, id)
		assert.Equal(t, want, v.Value[0], id)
		assert.Equal(t, abi.ERROR_NOT_SUPPORTED, ask(t, gpu(t, ""), id, 3).NvmlReturn, id)
	}
	for id := uint32(abi.FI_DEV_NVLINK_ERROR_DL_REPLAY); id <= abi.FI_DEV_NVLINK_ERROR_DL_CRC; id++ {
		assert.Equal(t, abi.ERROR_NOT_SUPPORTED, ask(t, d, id, 3).NvmlReturn, id)
		assert.Equal(t, abi.SUCCESS, ask(t, gpu(t, ""), id, 3).NvmlReturn, id)
	}
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, ask(t, d, abi.FI_DEV_NVLINK_COUNT_XMIT_BYTES, 18).NvmlReturn)
}

const (
	integer  = abi.VALUE_TYPE_UNSIGNED_INT
	long     = abi.VALUE_TYPE_UNSIGNED_LONG_LONG
	negative = abi.VALUE_TYPE_SIGNED_INT
)

func TestFieldValues(t *testing.T) {
	d := gpu(t, "")
	for _, c := range []struct {
		id, scope uint32
		kind      abi.ValueType_t
		want      int64
	}{
		{abi.FI_DEV_ECC_CURRENT, 0, integer, 1},
		{abi.FI_DEV_ECC_PENDING, 0, integer, 1},
		{abi.FI_DEV_ECC_SBE_VOL_TOTAL, 0, long, 0},
		{abi.FI_DEV_ECC_DBE_AGG_DEV, 0, long, 0},
		{abi.FI_DEV_REMAPPED_COR, 0, integer, 0},
		{abi.FI_DEV_REMAPPED_FAILURE, 0, integer, 0},
		{abi.FI_DEV_MEMORY_TEMP, 0, integer, 37},
		{abi.FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT, 0, negative, -8},
		{abi.FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT, 0, negative, -2},
		{abi.FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT, 0, negative, 0},
		{abi.FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT, 0, negative, 0},
		{abi.FI_DEV_POWER_AVERAGE, abi.POWER_SCOPE_GPU, integer, 68570},
		{abi.FI_DEV_POWER_INSTANT, abi.POWER_SCOPE_GPU, integer, 68920},
		{abi.FI_DEV_POWER_MIN_LIMIT, abi.POWER_SCOPE_GPU, integer, 200000},
		{abi.FI_DEV_POWER_MAX_LIMIT, abi.POWER_SCOPE_GPU, integer, 700000},
		{abi.FI_DEV_POWER_DEFAULT_LIMIT, abi.POWER_SCOPE_GPU, integer, 700000},
		{abi.FI_DEV_POWER_CURRENT_LIMIT, abi.POWER_SCOPE_GPU, integer, 700000},
		{abi.FI_DEV_POWER_REQUESTED_LIMIT, abi.POWER_SCOPE_GPU, integer, 700000},
		{abi.FI_DEV_POWER_AVERAGE, abi.POWER_SCOPE_MEMORY, integer, 32980},
		{abi.FI_DEV_PCIE_REPLAY_COUNTER, 0, integer, 150},
		{abi.FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER, 0, integer, 0},
		{abi.FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP, 0, long, 7015662857_000},
		{abi.FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN, 0, long, 0},
		{abi.FI_DEV_GET_GPU_RECOVERY_ACTION, 0, integer, abi.DEVICE_MIG_DISABLE},
		{abi.FI_DEV_NVLINK_LINK_COUNT, 0, integer, 18},
		{abi.FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT, 0, integer, 18},
		{abi.FI_DEV_NVLINK_SPEED_MBPS_COMMON, 0, integer, 26562},
		{abi.FI_DEV_NVLINK_SPEED_MBPS_L11, 0, integer, 26562},
		{abi.FI_DEV_NVLINK_GET_SPEED, 17, integer, 26562},
		{abi.FI_DEV_NVLINK_GET_STATE, 17, integer, abi.NVLINK_STATE_ACTIVE},
		{abi.FI_DEV_NVLINK_GET_VERSION, 17, integer, int64(abi.NVLINK_VERSION_4_0)},
		{abi.FI_DEV_NVLINK_ERROR_DL_CRC, 17, long, 0},
		{abi.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, 0, long, 0},
		{abi.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, allLinks, long, 0},
	} {
		v := ask(t, d, c.id, c.scope)
		assert.Equal(t, abi.SUCCESS, v.NvmlReturn, "field %d", c.id)
		assert.Equal(t, c.kind, v.ValueType, "field %d", c.id)
		if c.kind == negative {
			assert.EqualValues(t, c.want, int32(uint32(v.Value[0])), "field %d", c.id)
		} else {
			assert.EqualValues(t, c.want, v.Value[0], "field %d", c.id)
		}
	}
}

func TestFieldReturns(t *testing.T) {
	d := gpu(t, "")
	for want, fields := range map[abi.Return][][2]uint32{
		abi.ERROR_INVALID_ARGUMENT: {
			{0, 0}, {abi.FI_MAX, 0}, {^uint32(0), 0}, {abi.FI_DEV_POWER_INSTANT, abi.POWER_SCOPE_COUNT},
			{abi.FI_DEV_NVLINK_GET_SPEED, 18}, {abi.FI_DEV_NVLINK_THROUGHPUT_RAW_RX, 18},
		},
		abi.ERROR_NOT_SUPPORTED: {
			{abi.FI_DEV_RETIRED_SBE, 0}, {abi.FI_DEV_RETIRED_PENDING_DBE, 0}, {abi.FI_DEV_ECC_SBE_VOL_L1, 0},
			{abi.FI_DEV_ECC_DBE_AGG_CBU, 0}, {abi.FI_DEV_EDPP_MULTIPLIER, 0},
			{abi.FI_DEV_POWER_MIN_LIMIT, abi.POWER_SCOPE_MODULE}, {abi.FI_DEV_POWER_INSTANT, abi.POWER_SCOPE_MEMORY},
			{abi.FI_DEV_POWER_INSTANT, abi.POWER_SCOPE_GPU_BASE}, {abi.FI_DEV_ENERGY, abi.POWER_SCOPE_MODULE},
		},
	} {
		for _, f := range fields {
			assert.Equal(t, want, ask(t, d, f[0], f[1]).NvmlReturn, "field %d", f[0])
		}
	}

	d = gpu(t, bare)
	for id := range uint32(abi.FI_MAX) {
		if id > 0 {
			assert.Equal(t, abi.ERROR_NOT_SUPPORTED, ask(t, d, id, 0).NvmlReturn, "field %d", id)
		}
	}
}

// TestFieldsAtOnce: a field that fails does not stop the others, and each field has its own time.
func TestFieldsAtOnce(t *testing.T) {
	d := gpu(t, "")
	now := time.UnixMicro(1_800_000_000_000_000)
	enginetest.Clock = func() time.Time { now = now.Add(5 * time.Microsecond); return now }
	t.Cleanup(func() { enginetest.Clock = time.Now })

	values := []abi.FieldValue_t{{FieldId: 9999}, {FieldId: abi.FI_DEV_MEMORY_TEMP, Value: abi.Value_t{^uint64(0)}}}
	require.Equal(t, abi.SUCCESS, DeviceGetFieldValues(d, values))
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, values[0].NvmlReturn)
	assert.Equal(t, abi.FieldValue_t{FieldId: abi.FI_DEV_MEMORY_TEMP, Timestamp: 1_800_000_000_000_015, LatencyUsec: 10,
		ValueType: integer, Value: abi.Value_t{37}}, values[1])
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, DeviceGetFieldValues(d, nil))
}

func TestFieldsOfFaultyBoards(t *testing.T) {
	d := gpu(t, like(faulty+`, recovery_action: drain_and_reset, power: {total_energy_consumption_mj: 12345},
		retired_pages: {single_bit_retirement: {count: 2}, double_bit_retirement: {count: 0}, pending_retirement: true}`))
	for id, want := range map[uint32]uint64{
		abi.FI_DEV_ECC_SBE_VOL_TOTAL:        17,
		abi.FI_DEV_ECC_SBE_VOL_L2:           4,
		abi.FI_DEV_ECC_DBE_VOL_DEV:          2,
		abi.FI_DEV_ECC_SBE_AGG_TOTAL:        99,
		abi.FI_DEV_RETIRED_SBE:              2,
		abi.FI_DEV_RETIRED_DBE:              0,
		abi.FI_DEV_RETIRED_PENDING:          1,
		abi.FI_DEV_RETIRED_PENDING_SBE:      1,
		abi.FI_DEV_RETIRED_PENDING_DBE:      0,
		abi.FI_DEV_GET_GPU_RECOVERY_ACTION:  uint64(abi.GPU_RECOVERY_ACTION_DRAIN_AND_RESET),
		abi.FI_DEV_TOTAL_ENERGY_CONSUMPTION: 12345,
		abi.FI_DEV_ENERGY:                   12345,
	} {
		v := ask(t, d, id, 0)
		assert.Equal(t, abi.SUCCESS, v.NvmlReturn, "field %d", id)
		assert.Equal(t, want, v.Value[0], "field %d", id)
	}
}

func TestLinkFields(t *testing.T) {
	d := gpu(t, `
devices: [{nvlink_error: {rate: 1, links: [7]}}]
nvlink:
  version: 3
  links_per_gpu: 12
  bandwidth_per_link_mbps: 1024
  defaults: {duty_cycle: 1, error_rate: 2}
  links: [{link: 1, state: inactive}]
`)
	enginetest.At(t, time.Date(2026, 1, 1, 0, 1, 40, 0, time.UTC)) // 100 s after the driver was loaded
	for _, c := range []struct {
		id, scope uint32
		want      uint64
	}{
		{abi.FI_DEV_NVLINK_GET_VERSION, 0, uint64(abi.NVLINK_VERSION_3_1)},
		{abi.FI_DEV_NVLINK_SPEED_MBPS_L0, 0, 1024},
		{abi.FI_DEV_NVLINK_SPEED_MBPS_L1, 0, 0},
		{abi.FI_DEV_NVLINK_ERROR_DL_REPLAY, 0, 200},
		{abi.FI_DEV_NVLINK_ERROR_DL_REPLAY, 7, 300},
		{abi.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L7, 0, 300},
		{abi.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_L11, 0, 200},
		{abi.FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL, 0, 12*200 + 100},
		{abi.FI_DEV_NVLINK_THROUGHPUT_RAW_TX, 0, 100_000_000},
		{abi.FI_DEV_NVLINK_THROUGHPUT_RAW_TX, allLinks, 1_200_000_000},
	} {
		assert.Equal(t, c.want, ask(t, d, c.id, c.scope).Value[0], "field %d", c.id)
	}
	assert.Equal(t, abi.ERROR_NOT_SUPPORTED, ask(t, d, abi.FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT, 0).NvmlReturn)
}

func TestPowerSmoothingFields(t *testing.T) {
	for _, c := range []struct {
		profile               string
		enabled, level, floor abi.Return
		value                 uint64
	}{
		{"", abi.ERROR_NOT_SUPPORTED, abi.ERROR_NOT_SUPPORTED, abi.ERROR_NOT_SUPPORTED, 0},
		{"extends: gb200\n", abi.ERROR_NO_PERMISSION, abi.ERROR_NO_PERMISSION, abi.ERROR_NO_PERMISSION, 0},
		{like("power: {smoothing: enabled}"), abi.SUCCESS, abi.ERROR_NOT_SUPPORTED, abi.ERROR_NOT_SUPPORTED, 1},
		{like("power: {smoothing: disabled}"), abi.SUCCESS, abi.ERROR_NOT_SUPPORTED, abi.ERROR_NOT_SUPPORTED, 0},
	} {
		d := gpu(t, c.profile)
		enabled := ask(t, d, abi.FI_PWR_SMOOTHING_ENABLED, 0)
		assert.Equal(t, c.enabled, enabled.NvmlReturn)
		assert.Equal(t, c.value, enabled.Value[0])
		assert.Equal(t, c.level, ask(t, d, abi.FI_PWR_SMOOTHING_PRIV_LVL, 0).NvmlReturn)
		assert.Equal(t, c.floor, ask(t, d, abi.FI_PWR_SMOOTHING_PRIMARY_POWER_FLOOR, 0).NvmlReturn)
	}
}

// TestResetStatusFields: the two fields exist until driver 570, where the recovery action replaced them.
func TestResetStatusFields(t *testing.T) {
	const old = "extends: h100\nsystem: {driver_version: 550.163.01}\ndevice_defaults: {recovery_action: "
	for _, c := range []struct {
		profile                string
		ret                    abi.Return
		required, drainAndThen uint64
	}{
		{"", abi.ERROR_DEPRECATED, 0, 0},
		{bare, abi.ERROR_NOT_SUPPORTED, 0, 0},
		{old + "none}\n", abi.SUCCESS, 0, 0},
		{old + "gpu_reset}\n", abi.SUCCESS, 1, 0},
		{old + "node_reboot}\n", abi.SUCCESS, 1, 0},
		{old + "drain_and_reset}\n", abi.SUCCESS, 0, 1},
	} {
		d := gpu(t, c.profile)
		required, drain := ask(t, d, abi.FI_DEV_RESET_STATUS, 0), ask(t, d, abi.FI_DEV_DRAIN_AND_RESET_STATUS, 0)
		assert.Equal(t, c.ret, required.NvmlReturn)
		assert.Equal(t, c.ret, drain.NvmlReturn)
		assert.Equal(t, c.required, required.Value[0])
		assert.Equal(t, c.drainAndThen, drain.Value[0])
	}
}
