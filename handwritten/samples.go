package handwritten

import (
	"time"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// sampled is the number of samples, one for each full second. Drivers keep about as many but take them more often.
const sampled = 100

// DeviceGetSamples lists the samples of a reading that are newer than a time in µs since 1970: power in mW, loads in
// percent, clocks in MHz. It answers NOT_FOUND if there are none.
func DeviceGetSamples(d *engine.Device, kind abi.SamplingType_t, lastSeen uint64) (abi.ValueType_t, []abi.Sample_t, abi.Return) {
	if kind >= abi.SAMPLINGTYPE_COUNT {
		return 0, nil, abi.ERROR_INVALID_ARGUMENT
	}
	var list []abi.Sample_t
	now := d.Snapshot().Now().Unix()
	for at := now - sampled + 1; at <= now; at++ {
		value, ret := opt(sample(d, kind, time.Unix(at, 0)))
		if ret != abi.SUCCESS {
			return 0, nil, ret
		}
		if stamp := uint64(at) * 1e6; stamp > lastSeen {
			list = append(list, abi.Sample_t{TimeStamp: stamp, SampleValue: abi.Value_t{uint64(value)}})
		}
	}
	if list == nil {
		return 0, nil, abi.ERROR_NOT_FOUND
	}
	return abi.VALUE_TYPE_UNSIGNED_INT, list, abi.SUCCESS
}

// sample is a reading at a time.
func sample(d *engine.Device, kind abi.SamplingType_t, at time.Time) profiles.Opt[uint32] {
	r := d.ReadingsAt(at)
	switch kind {
	case abi.TOTAL_POWER_SAMPLES:
		return r.PowerMW
	case abi.MODULE_POWER_SAMPLES:
		return d.ModulePower.CurrentDrawMW
	case abi.PROCESSOR_CLK_SAMPLES:
		return r.SMMHz
	case abi.MEMORY_CLK_SAMPLES:
		return d.Clocks.MemoryCurrent
	}
	load := r.Utilization
	return map[abi.SamplingType_t]profiles.Opt[uint32]{
		abi.GPU_UTILIZATION_SAMPLES:    load.GPU,
		abi.MEMORY_UTILIZATION_SAMPLES: load.Memory,
		abi.ENC_UTILIZATION_SAMPLES:    load.Encoder,
		abi.DEC_UTILIZATION_SAMPLES:    load.Decoder,
		abi.JPG_UTILIZATION_SAMPLES:    load.JPEG,
		abi.OFA_UTILIZATION_SAMPLES:    load.OFA,
	}[kind]
}
