package tests

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
)

// gpm samples a GPU twice and asks for what happened in between.
func (c *checker) gpm(dev nvml.Device, d *profiles.Device) {
	supported := d.GPM.Supported.Or(slices.Contains([]string{"hopper", "blackwell"}, d.Architecture.Value))
	c.says("nvmlGpmQueryDeviceSupport", nvml.GpmSupport{Version: nvml.GPM_SUPPORT_VERSION, IsSupportedDevice: number(supported)})(
		dev.GpmQueryDeviceSupport())
	streaming := when(supported, number(d.GPM.Streaming.Value))
	c.says("nvmlGpmQueryIfStreamingEnabled", streaming)(dev.GpmQueryIfStreamingEnabled())
	load := d.Utilization.GPU
	if d.MIG.ModeCurrent.Value || d.DynamicMetrics != (profiles.DynamicMetrics{}) {
		load = profiles.Opt[uint32]{} // nobody but the load model knows it
	}
	c.sampled(when(supported, nvml.SUCCESS), load, func(s nvml.GpmSample) nvml.Return { return dev.GpmSampleGet(s) }, "nvmlGpmSampleGet")
}

// sampled takes two samples. answer is what taking one answers, load the GPU's load if the profile alone gives it.
func (c *checker) sampled(answer any, load profiles.Opt[uint32], take func(nvml.GpmSample) nvml.Return, symbol string) {
	var samples [2]nvml.GpmSample
	for i := range samples {
		var ret nvml.Return
		samples[i], ret = c.lib.GpmSampleAlloc()
		c.says("nvmlGpmSampleAlloc", nvml.SUCCESS)(ret)
		if ret != nvml.SUCCESS {
			return
		}
		defer func() { c.says("nvmlGpmSampleFree", nvml.SUCCESS)(samples[i].Free()) }()
		c.says(symbol, answer)(take(samples[i]))
	}
	request := nvml.GpmMetricsGetType{NumMetrics: 2, Sample1: samples[0], Sample2: samples[1]}
	request.Metrics[0].MetricId, request.Metrics[1].MetricId = uint32(nvml.GPM_METRIC_GRAPHICS_UTIL), uint32(nvml.GPM_METRIC_SM_UTIL)
	if answer == nil {
		c.says("nvmlGpmMetricsGet", nvml.ERROR_INVALID_ARGUMENT)(c.lib.GpmMetricsGet(&request))
		return
	}
	c.says("nvmlGpmMetricsGet", nvml.SUCCESS)(c.lib.GpmMetricsGet(&request))
	if c.known["nvmlGpmMetricsGet"] && load.Valid {
		assert.InDelta(c, float64(load.Value), request.Metrics[0].Value, 1e-9)
		assert.LessOrEqual(c, request.Metrics[1].Value, request.Metrics[0].Value)
	}
}
