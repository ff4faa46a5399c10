package handwritten

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// sampled takes a sample of a GPU at a time.
func sampledAt(t *testing.T, d *engine.Device, at time.Time) abi.GpmSample_t {
	t.Helper()
	enginetest.At(t, at)
	sample, ret := GpmSampleAlloc(d.Snapshot())
	require.Equal(t, abi.SUCCESS, ret)
	require.Equal(t, abi.SUCCESS, GpmSampleGet(d, sample))
	handle, ret := sample.Handle()
	require.Equal(t, abi.SUCCESS, ret)
	return abi.GpmSample_t(handle)
}

func TestGPM(t *testing.T) {
	d := gpu(t, like(`gpm: {pcie_tx_mib_per_sec: 1000}, utilization: {gpu: 80, memory: 40, encoder: 0, decoder: 30, jpeg: 0, ofa: 0}`)+
		"nvlink: {defaults: {duty_cycle: 0.5}}\n")
	start := enginetest.Boot.Add(time.Hour)
	first, second := sampledAt(t, d, start), sampledAt(t, d, start.Add(2*time.Second))
	ask := func(a, b abi.GpmSample_t, ids ...abi.GpmMetricId_t) ([]abi.GpmMetric_t, abi.Return) {
		request := abi.GpmMetricsGet_t{NumMetrics: uint32(len(ids)), Sample1: a, Sample2: b}
		for i, id := range ids {
			request.Metrics[i].MetricId = uint32(id)
		}
		ret := GpmMetricsGet(d.Snapshot(), &request)
		return request.Metrics[:len(ids)], ret
	}
	for id, want := range map[abi.GpmMetricId_t]float64{
		abi.GPM_METRIC_GRAPHICS_UTIL: 80, abi.GPM_METRIC_SM_UTIL: 72, abi.GPM_METRIC_DRAM_BW_UTIL: 40,
		abi.GPM_METRIC_NVDEC_3_UTIL: 30, abi.GPM_METRIC_PCIE_TX_PER_SEC: 800,
	} {
		m, ret := ask(first, second, id)
		require.Equal(t, abi.SUCCESS, ret)
		assert.Equal(t, abi.SUCCESS, m[0].NvmlReturn, id)
		assert.InDelta(t, want, m[0].Value, 1e-9, id)
	}
	m, ret := ask(first, second, abi.GPM_METRIC_ANY_TENSOR_UTIL, abi.GPM_METRIC_HMMA_TENSOR_UTIL, abi.GPM_METRIC_IMMA_TENSOR_UTIL,
		abi.GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, abi.GPM_METRIC_NVLINK_L17_TX_PER_SEC, abi.GPM_METRIC_C2C_TOTAL_TX_PER_SEC, 0, abi.GPM_METRIC_MAX)
	require.Equal(t, abi.SUCCESS, ret)
	assert.InDelta(t, m[0].Value, m[1].Value+m[2].Value, 1e-9)
	assert.Positive(t, m[4].Value)
	assert.InDelta(t, m[3].Value, 18*m[4].Value, 1e-6, "18 links")
	for i, want := range []abi.Return{abi.ERROR_NOT_SUPPORTED, abi.ERROR_INVALID_ARGUMENT, abi.ERROR_INVALID_ARGUMENT} {
		assert.Equal(t, want, m[5+i].NvmlReturn)
	}

	_, ret = ask(second, first, abi.GPM_METRIC_SM_UTIL)
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, ret, "in the wrong order")
	other := sampledAt(t, d.Snapshot().Devices[1], start.Add(3*time.Second))
	_, ret = ask(first, other, abi.GPM_METRIC_SM_UTIL)
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, ret, "of two GPUs")
	empty, ret := GpmSampleAlloc(d.Snapshot())
	require.Equal(t, abi.SUCCESS, ret)
	handle, _ := empty.Handle()
	_, ret = ask(first, abi.GpmSample_t(handle), abi.GPM_METRIC_SM_UTIL)
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, ret, "nobody took it")
	require.Equal(t, abi.SUCCESS, GpmSampleFree(empty))
	_, ret = ask(first, abi.GpmSample_t(handle), abi.GPM_METRIC_SM_UTIL)
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, ret, "freed")

	old := gpu(t, "extends: a100-sxm4-40gb\n")
	answers(t, abi.GpmSupport_t{})(filled(GpmQueryDeviceSupport)(old))
	answers(t, abi.GpmSupport_t{IsSupportedDevice: 1})(filled(GpmQueryDeviceSupport)(d))
	sample, ret := GpmSampleAlloc(old.Snapshot())
	require.Equal(t, abi.SUCCESS, ret)
	assert.Equal(t, abi.ERROR_NOT_SUPPORTED, GpmSampleGet(old, sample))
	assert.Equal(t, abi.ERROR_NOT_SUPPORTED, GpmMigSampleGet(d, 1, sample), "without MIG mode")
	refuses(t, abi.ERROR_NOT_SUPPORTED)(GpmQueryIfStreamingEnabled(old))
	answers(t, 0)(GpmQueryIfStreamingEnabled(d))
	require.Equal(t, abi.SUCCESS, GpmSetStreamingEnabled(d, 1))
	answers(t, 1)(GpmQueryIfStreamingEnabled(d.Snapshot().Engine().Snapshot().Devices[0]))
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, GpmSetStreamingEnabled(d, 2))
}
