package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// DeviceGetUtilizationRates is how busy SMs and memory are, in percent. A part of which the profile does not tell is 0, if it
// tells of the other. A GPU in MIG mode does not know.
func DeviceGetUtilizationRates(d *engine.Device, u *abi.Utilization_t) abi.Return {
	now := d.Readings().Utilization
	if !now.GPU.Valid && !now.Memory.Valid {
		return abi.ERROR_NOT_SUPPORTED
	}
	*u = abi.Utilization_t{Gpu: now.GPU.Or(0), Memory: now.Memory.Or(0)}
	return abi.SUCCESS
}

// samplingPeriod is the period, in µs, over which engine loads are averaged. Real boards answer a sixth of a second.
const samplingPeriod = 167000

func engineLoad(percent profiles.Opt[uint32]) (uint32, uint32, abi.Return) {
	u, ret := opt(percent)
	return u, samplingPeriod, ret
}

// DeviceGetEncoderUtilization is the encoders' load in percent and its sampling period in µs.
func DeviceGetEncoderUtilization(d *engine.Device) (uint32, uint32, abi.Return) {
	return engineLoad(d.Readings().Utilization.Encoder)
}

// DeviceGetDecoderUtilization is the decoders' load in percent and its sampling period in µs.
func DeviceGetDecoderUtilization(d *engine.Device) (uint32, uint32, abi.Return) {
	return engineLoad(d.Readings().Utilization.Decoder)
}

// DeviceGetJpgUtilization is the JPEG engines' load in percent and its sampling period in µs.
func DeviceGetJpgUtilization(d *engine.Device) (uint32, uint32, abi.Return) {
	return engineLoad(d.Readings().Utilization.JPEG)
}

// DeviceGetOfaUtilization is the optical flow engines' load in percent and its sampling period in µs.
func DeviceGetOfaUtilization(d *engine.Device) (uint32, uint32, abi.Return) {
	return engineLoad(d.Readings().Utilization.OFA)
}

// DeviceGetEncoderStats is the number of encoder sessions, their average frames per second and latency in µs.
func DeviceGetEncoderStats(d *engine.Device) (sessions, fps, latency uint32, ret abi.Return) {
	return sessionStats(d.EncoderStats)
}

// DeviceGetFBCStats is the number of frame buffer capture sessions, their average frames per second and latency in µs.
func DeviceGetFBCStats(d *engine.Device, stats *abi.FBCStats_t) (ret abi.Return) {
	stats.SessionsCount, stats.AverageFPS, stats.AverageLatency, ret = sessionStats(d.FBCStats)
	return ret
}

func sessionStats(s profiles.SessionStats) (sessions, fps, latency uint32, ret abi.Return) {
	sessions, ret = opt(s.SessionCount)
	return sessions, s.AverageFPS.Value, s.AverageLatencyUS.Value, ret
}

// DeviceGetEncoderSessions answers an empty list, since the profile only has the number of sessions.
func DeviceGetEncoderSessions(d *engine.Device) ([]abi.EncoderSessionInfo_t, abi.Return) {
	_, ret := opt(d.EncoderStats.SessionCount)
	return nil, ret
}

// DeviceGetFBCSessions answers an empty list, since the profile only has the number of sessions.
func DeviceGetFBCSessions(d *engine.Device) ([]abi.FBCSessionInfo_t, abi.Return) {
	_, ret := opt(d.FBCStats.SessionCount)
	return nil, ret
}

// DeviceGetEncoderCapacity is how much of the encoders is left for a codec, in percent.
func DeviceGetEncoderCapacity(d *engine.Device, codec abi.EncoderType_t) (uint32, abi.Return) {
	if codec > abi.ENCODER_QUERY_AV1 {
		return 0, abi.ERROR_INVALID_ARGUMENT
	}
	if _, ret := opt(d.EncoderStats.SessionCount); ret != abi.SUCCESS {
		return 0, ret
	}
	busy, ret := opt(d.Readings().Utilization.Encoder)
	return 100 - min(busy, 100), ret
}

// DeviceGetDynamicPstatesInfo are the loads by which the driver chooses the P-state, in percent: of the GPU, its memory,
// and its video engines.
func DeviceGetDynamicPstatesInfo(d *engine.Device, info *abi.GpuDynamicPstatesInfo_t) abi.Return {
	*info = abi.GpuDynamicPstatesInfo_t{}
	u := d.Readings().Utilization
	if _, ret := opt(u.GPU); ret != abi.SUCCESS {
		return ret
	}
	for domain, load := range map[abi.GpuUtilizationDomainId_t]profiles.Opt[uint32]{
		abi.GPU_UTILIZATION_DOMAIN_GPU: u.GPU,
		abi.GPU_UTILIZATION_DOMAIN_FB:  u.Memory,
		abi.GPU_UTILIZATION_DOMAIN_VID: {Value: max(u.Encoder.Value, u.Decoder.Value), Valid: u.Encoder.Valid || u.Decoder.Valid},
	} {
		info.Utilization[domain] = abi.GpuDynamicPstatesInfoUtilization_t{BIsPresent: bit(load.Valid), Percentage: load.Value}
	}
	return abi.SUCCESS
}
