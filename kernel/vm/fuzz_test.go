//go:build guest

package kernel

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Makes random calls on all devices of fakegpu.ko, from threads and processes that are killed. The kernel must not
// report anything, which would end the virtual machine, and must get all memory back. NVMLFAB_GUEST_FUZZ_SECONDS makes
// it run longer, NVMLFAB_GUEST_FUZZ_SEED repeats an earlier run.
func TestFuzzDevices(t *testing.T)     { fuzzDevices(t) }
func TestRaceFuzzDevices(t *testing.T) { fuzzDevices(t) }

func fuzzDevices(t *testing.T) {
	load(t, "fakegpu", append(fakegpuSmall[:4:4], "job_latency_us=200", "nvidia=1", someGPUs)...)
	seconds := 5
	if text := os.Getenv("NVMLFAB_GUEST_FUZZ_SECONDS"); text != "" {
		var err error
		seconds, err = strconv.Atoi(text)
		require.NoError(t, err, "NVMLFAB_GUEST_FUZZ_SECONDS")
	}
	var seed []string
	if text := os.Getenv("NVMLFAB_GUEST_FUZZ_SEED"); text != "" {
		seed = []string{text}
	}
	// Each kind of call must succeed often. Otherwise the run proves little, as on a busy machine: then it is run again,
	// for twice the time.
	often := regexp.MustCompile(`fuzz: \d{2,} processes made \d{4,} calls, of which \d{3,} succeeded; \d{2,} objects made, [1-9]\d* mappings, [1-9]\d* waits\n$`)
	for {
		o := run(t, "fuzz", append([]string{strconv.Itoa(seconds)}, seed...)...).succeeds(t)
		t.Logf("%d seconds\n%s", seconds, o.stdout)
		if often.MatchString(o.stdout) {
			break
		}
		require.Less(t, seconds, 600, "the calls do not succeed")
		seconds *= 2
	}
	requireIdle(t)
	logged := logSince()
	unload(t, "fakegpu")
	require.Contains(t, logged(), "fakegpu: unloaded, nothing leaked")
}
