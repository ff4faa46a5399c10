//go:build guest

package kernel

import (
	"os"
	"regexp"
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
	seconds := os.Getenv("NVMLFAB_GUEST_FUZZ_SECONDS")
	if seconds == "" {
		seconds = "5"
	}
	args := []string{seconds}
	if seed := os.Getenv("NVMLFAB_GUEST_FUZZ_SEED"); seed != "" {
		args = append(args, seed)
	}
	o := run(t, "fuzz", args...).succeeds(t)
	t.Logf("\n%s", o.stdout)
	// Each kind of call must succeed often within a few seconds. Otherwise the run proves little.
	require.Regexp(t, regexp.MustCompile(`fuzz: \d{2,} processes made \d{4,} calls, of which \d{3,} succeeded; \d{2,} objects made, [1-9]\d* mappings, [1-9]\d* waits\n$`), o.stdout)
	requireIdle(t)
	logged := logSince()
	unload(t, "fakegpu")
	require.Contains(t, logged(), "fakegpu: unloaded, nothing leaked")
}
