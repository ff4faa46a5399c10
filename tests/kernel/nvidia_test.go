//go:build guest

package kernel

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

const someGPUs = "gpus=0000:1a:00.0/0/10de:2330/85899345920/GPU-4a4b4c4d-0000-1111-2222-333344445555/NVIDIA_H100_80GB_HBM3/96.00.89.00.01/52/580.105.08," +
	"0001:02:00.0/3/10de:2330/1073741824/GPU-5a4b4c4d-0000-1111-2222-333344445555/NVIDIA_H100_80GB_HBM3/96.00.89.00.01/52/580.105.08"

// TestNvidiaExamples: the example programs work over the personality, whichever way they make their calls.
func TestNvidiaExamples(t *testing.T) {
	load(t, "fakegpu", "nvidia=1", someGPUs)
	for _, options := range [][]string{nil, {"-x"}, {"-c"}, {"-u"}, {"-x", "-c", "-u", "-d", "1"}} {
		o := run(t, "rm_alloc_smoke", append(options, "67108864", "2", "0")...).succeeds(t)
		assert.Contains(t, o.stdout, "holding 134217728 bytes\n")
		o = run(t, "rm_vmm_smoke", append(options, "67108864", "2", "0")...).succeeds(t)
		assert.Contains(t, o.stdout, "holding 134217728 bytes\n")
		assert.Contains(t, o.stdout, "map 1: status 0\n")
		o = run(t, "rm_timeslice_smoke", append(options, "1500")...).succeeds(t)
		assert.Contains(t, o.stdout, "get: status 0, 2000 us\nset: status 0, 1500 us\nget: status 0, 1500 us\n")
	}
	o := run(t, "rm_alloc_smoke", "-d", "1", "536870912", "3", "0")
	assert.Equal(t, 3, o.code)
	assert.Contains(t, o.stdout, "alloc 2: status 0x51, ")
	assert.Equal(t, 1, run(t, "rm_alloc_smoke", "-d", "2", "1", "1", "0").code)
	assert.Equal(t, 2, run(t, "rm_alloc_smoke", "1", "1").code)
}
