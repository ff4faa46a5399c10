package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// GpmQueryDeviceSupport says whether the GPU has performance monitoring: those from Hopper on have, unless the profile says
// otherwise.
func GpmQueryDeviceSupport(d *engine.Device, support *abi.GpmSupport_t) abi.Return {
	support.IsSupportedDevice = bit(change.MonitorsPerformance(d.Device))
	return abi.SUCCESS
}

// GpmSampleAlloc makes an empty sample.
func GpmSampleAlloc(s *engine.Snapshot) (*engine.GpmSample, abi.Return) { return s.NewGpmSample() }

// GpmSampleFree frees a sample.
func GpmSampleFree(sample *engine.GpmSample) abi.Return {
	sample.Free()
	return abi.SUCCESS
}

// GpmSampleGet fills a sample with what a GPU or a MIG device has counted until now.
func GpmSampleGet(d *engine.Device, sample *engine.GpmSample) abi.Return {
	if !change.MonitorsPerformance(d.Device) {
		return abi.ERROR_NOT_SUPPORTED
	}
	return sample.Take(d, abi.INVALID_GPU_INSTANCE_ID)
}

// GpmMigSampleGet fills a sample with what a GPU instance has counted until now. NOT_FOUND if the GPU has no such instance.
func GpmMigSampleGet(d *engine.Device, instance uint32, sample *engine.GpmSample) abi.Return {
	if !change.MonitorsPerformance(d.Device) || !bool(d.MIG.ModeCurrent.Value) {
		return abi.ERROR_NOT_SUPPORTED
	}
	for _, gi := range d.Snapshot().GpuInstances(d) {
		if gi.ID == instance {
			return sample.Take(d, instance)
		}
	}
	return abi.ERROR_NOT_FOUND
}

// shares are the parts of a busy GPU's time that its units work, of 100: a training with mixed precision, whose products of
// matrices are of 16-bit floats and some of 8-bit integers. No source gives them; what holds is that the parts fit together.
var shares = table[abi.GpmMetricId_t, uint32]{
	{abi.GPM_METRIC_GRAPHICS_UTIL, 100}, {abi.GPM_METRIC_SM_UTIL, 90}, {abi.GPM_METRIC_SM_OCCUPANCY, 50},
	{abi.GPM_METRIC_ANY_TENSOR_UTIL, 40}, {abi.GPM_METRIC_HMMA_TENSOR_UTIL, 35}, {abi.GPM_METRIC_IMMA_TENSOR_UTIL, 5},
	{abi.GPM_METRIC_DFMA_TENSOR_UTIL, 0}, {abi.GPM_METRIC_DMMA_TENSOR_UTIL, 0},
	{abi.GPM_METRIC_INTEGER_UTIL, 15}, {abi.GPM_METRIC_FP64_UTIL, 0}, {abi.GPM_METRIC_FP32_UTIL, 20}, {abi.GPM_METRIC_FP16_UTIL, 10},
}

// GpmMetricsGet is what happened between two samples of one GPU: loads in percent, traffic in MiB/s, each with its own return
// code. It answers INVALID_ARGUMENT for samples that nobody took, of two GPUs, or in the wrong order.
func GpmMetricsGet(s *engine.Snapshot, request *abi.GpmMetricsGet_t) abi.Return {
	var counts [2]engine.GpmCounts
	for i, handle := range []abi.GpmSample_t{request.Sample1, request.Sample2} {
		sample, ret := s.GpmSample(uintptr(handle), 0)
		if ret == abi.SUCCESS {
			counts[i], ret = sample.Counts()
		}
		if ret != abi.SUCCESS {
			return ret
		}
	}
	from, to := counts[0], counts[1]
	if from.Device != to.Device || from.Instance != to.Instance || from.Time > to.Time {
		return abi.ERROR_INVALID_ARGUMENT
	}
	d, ret := DeviceGetHandleByUUID(s, string(to.Device))
	if ret != abi.SUCCESS {
		return ret
	}
	loads := d.Loads(from.Time, to.Time)
	for i := range request.Metrics[:min(uint64(request.NumMetrics), uint64(len(request.Metrics)))] {
		m := &request.Metrics[i]
		m.Value, m.NvmlReturn = gpmMetric(d, abi.GpmMetricId_t(m.MetricId), loads, from, to)
	}
	return abi.SUCCESS
}

// gpmMetric is one metric between two samples.
func gpmMetric(d *engine.Device, id abi.GpmMetricId_t, loads profiles.Utilization, from, to engine.GpmCounts) (float64, abi.Return) {
	percent := func(load profiles.Opt[uint32]) (float64, abi.Return) {
		value, ret := opt(load)
		return float64(value), ret
	}
	within := func(first, last abi.GpmMetricId_t) bool { return id >= first && id <= last }
	share, ofGPU := shares.Find(id)
	switch {
	case ofGPU:
		load, ret := percent(loads.GPU)
		return load * float64(share) / 100, ret
	case id == abi.GPM_METRIC_DRAM_BW_UTIL:
		return percent(loads.Memory)
	case id == abi.GPM_METRIC_PCIE_TX_PER_SEC, id == abi.GPM_METRIC_PCIE_RX_PER_SEC:
		most := d.GPM.PCIeTxMiBPerSec
		if id == abi.GPM_METRIC_PCIE_RX_PER_SEC {
			most = d.GPM.PCIeRxMiBPerSec
		}
		rate, ret := opt(most)
		return float64(rate) * float64(loads.GPU.Value) / 100, ret
	case within(abi.GPM_METRIC_NVENC_0_UTIL, abi.GPM_METRIC_NVENC_3_UTIL):
		return percent(loads.Encoder)
	case within(abi.GPM_METRIC_NVDEC_0_UTIL, abi.GPM_METRIC_NVDEC_7_UTIL):
		return percent(loads.Decoder)
	case within(abi.GPM_METRIC_NVJPG_0_UTIL, abi.GPM_METRIC_NVJPG_7_UTIL):
		return percent(loads.JPEG)
	case within(abi.GPM_METRIC_NVOFA_0_UTIL, abi.GPM_METRIC_NVOFA_1_UTIL):
		return percent(loads.OFA)
	case within(abi.GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, abi.GPM_METRIC_NVLINK_L17_TX_PER_SEC):
		n := d.LinkCount()
		if n == 0 {
			return 0, abi.ERROR_NOT_SUPPORTED
		}
		var rate float64 // of each link
		if ms := to.Time - from.Time; ms > 0 {
			rate = float64(less(to.LinkKiB, from.LinkKiB)) / 1024 * 1000 / float64(ms)
		}
		if id <= abi.GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC {
			return rate * float64(n), abi.SUCCESS
		}
		if link := uint32(id-abi.GPM_METRIC_NVLINK_L0_RX_PER_SEC) / 2; link >= n {
			return 0, abi.ERROR_NOT_SUPPORTED
		}
		return rate, abi.SUCCESS
	case id == 0 || id >= abi.GPM_METRIC_MAX:
		return 0, abi.ERROR_INVALID_ARGUMENT
	}
	return 0, abi.ERROR_NOT_SUPPORTED
}

// GpmQueryIfStreamingEnabled says whether the counters run all the time.
func GpmQueryIfStreamingEnabled(d *engine.Device) (uint32, abi.Return) {
	if !change.MonitorsPerformance(d.Device) {
		return 0, abi.ERROR_NOT_SUPPORTED
	}
	return bit(bool(d.GPM.Streaming.Value)), abi.SUCCESS
}

// GpmSetStreamingEnabled lets the counters run all the time, or while a program samples alone.
func GpmSetStreamingEnabled(d *engine.Device, on uint32) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.GPMStreaming(i, on) })
}
