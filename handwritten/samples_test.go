package handwritten

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

func TestSamples(t *testing.T) {
	d := gpu(t, "extends: gb200\ndevice_defaults: {dynamic_metrics: {power: {base_mw: 300000, variance_mw: 5000}}}\n")
	now := time.Unix(5000, 999)
	enginetest.At(t, now)
	for kind, want := range map[abi.SamplingType_t]uint64{
		abi.GPU_UTILIZATION_SAMPLES: 0, abi.MEMORY_UTILIZATION_SAMPLES: 0, abi.ENC_UTILIZATION_SAMPLES: 0,
		abi.DEC_UTILIZATION_SAMPLES: 0, abi.JPG_UTILIZATION_SAMPLES: 0, abi.OFA_UTILIZATION_SAMPLES: 0,
		abi.PROCESSOR_CLK_SAMPLES: 120, abi.MEMORY_CLK_SAMPLES: 3996, abi.MODULE_POWER_SAMPLES: 467680,
	} {
		answers(t, abi.VALUE_TYPE_UNSIGNED_INT, []abi.Sample_t{
			{TimeStamp: 4999e6, SampleValue: abi.Value_t{want}}, {TimeStamp: 5000e6, SampleValue: abi.Value_t{want}},
		})(DeviceGetSamples(d, kind, 4998e6))
	}

	_, list, ret := DeviceGetSamples(d, abi.TOTAL_POWER_SAMPLES, 0)
	require.Equal(t, abi.SUCCESS, ret)
	require.Len(t, list, sampled)
	for _, s := range list {
		enginetest.At(t, time.UnixMicro(int64(s.TimeStamp)))
		assert.EqualValues(t, d.Readings().PowerMW.Value, s.SampleValue[0], "what was read then")
	}
	enginetest.At(t, now)
	refuses(t, abi.ERROR_NOT_FOUND)(DeviceGetSamples(d, abi.TOTAL_POWER_SAMPLES, 5000e6))
	refuses(t, abi.ERROR_INVALID_ARGUMENT)(DeviceGetSamples(d, abi.SAMPLINGTYPE_COUNT, 0))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(DeviceGetSamples(gpu(t, bare), abi.TOTAL_POWER_SAMPLES, 0))
}
