package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// answers are the functions that were checked, each with the boards on which it answered with a value.
type answers map[string]map[string]bool

// note says that a function was checked on a board, and whether it answered with a value.
func (a answers) note(symbol, board string, value bool) {
	if a[symbol] == nil {
		a[symbol] = map[string]bool{}
	}
	if value {
		a[symbol][board] = true
	}
}

// compared are the shipped boards on which every function is called. The driver of v100-sxm2-32gb, 418, lacks half of what is
// compared; nvidia-smi 418 shows that board in TestSMIBoard.
func compared() []string {
	return slices.DeleteFunc(profiles.Names(), func(name string) bool { return name == "v100-sxm2-32gb" })
}

// shipped is on how many shipped boards a function answers with a value.
func (a answers) shipped(symbol string) (n int) {
	for _, name := range compared() {
		if a[symbol][name] {
			n++
		}
	}
	return n
}

// mute are functions that answer an error on every board and on every profile of these tests, with the reason.
var mute = map[string]string{
	"nvmlGetExcludedDeviceInfoByIndex":                "no GPU is excluded",
	"nvmlGetBlacklistDeviceInfoByIndex":               "no GPU is excluded",
	"nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1": "no board has so new a driver",
}

// waiters wait for events of others, which no board has by itself: events_test.go lets some happen.
var waiters = []string{"nvmlEventSetWait", "nvmlEventSetWait_v2", "nvmlEventSetWait_v3", "nvmlSystemEventSetWait"}

// reason is why functions answer on no shipped board.
type reason struct {
	functions *regexp.Regexp
	why       string
}

// elsewhere says why functions answer on no shipped board. Each is checked on a profile of these tests that has what it needs.
var elsewhere = []reason{
	{regexp.MustCompile(`^nvmlUnit`), "no shipped board is in a unit; those were cases for four GPUs"},
	{regexp.MustCompile(`EventSetWait`), "no event happens by itself"},
	{regexp.MustCompile(`(Excluded|Blacklist)DeviceInfo`), "no shipped board excludes a GPU"},
	{regexp.MustCompile(`ReadPRMCounters`), "no shipped board of this kind has so new a driver"},
	{regexp.MustCompile(`^nvmlDeviceGet(Accounting|Process)|GetProcessName`), "no process runs on the shipped boards, and none has ended"},
	{regexp.MustCompile(`DriverModel`), "only Windows has driver models"},
	{regexp.MustCompile(`GpuOperationMode`), "only boards of 2012 and 2013 have the mode"},
	{regexp.MustCompile(`VgpuInstance|Vgpu(Process|Utilization)|VgpuCompatibility|ActiveVgpus`), "the shipped vGPU host runs no virtual machine"},
	{regexp.MustCompile(`Vgpu`), "no source gives it of the shipped vGPU host"},
	{regexp.MustCompile(`WorkloadPowerProfile|PowerSmoothing.*PresetProfile`), "no source gives a shipped board's profiles"},
	{regexp.MustCompile(`Clk.*VfOffset|ClockOffsets|ClockOfPState|PerformanceStates|PerformanceModes|PowerMizer`), "no source gives a shipped board's performance states"},
	{regexp.MustCompile(`APIRestriction|AdaptiveClock|AutoBoosted`), "no source gives a shipped board's setting"},
	{regexp.MustCompile(`Fan(ControlPolicy|SpeedRPM)|MinMaxFanSpeed|TargetFanSpeed`), "no source gives more than a shipped board's fan speed in percent"},
	{regexp.MustCompile(`DefaultEccMode|DramEncryption|FabricInfo_v4|Hostname|InforomConfigurationChecksum|IrqNum|LowPowerThreshold|NumaNodeId|PowerSource`),
		"no source gives it of a shipped board"},
}

const coverageHead = `# Functions and boards

This table is written by a test (` + "`go test ./tests -run 'TestGoNVML$' -update`" + `), which calls every implemented function on every
shipped board and compares the answers with the profile. It says on how many of the %d shipped boards a function answers with a
value, or does what it is asked. On the others it answers what such a board answers: mostly NOT_SUPPORTED, or FUNCTION_NOT_FOUND
where the board's driver is older than the function. A function that answers on no shipped board is tested on a profile that has
what it needs; the last column says what shipped boards lack. A key in a profile of yours brings it to life: see
[profiles.md](profiles.md). Of v100-sxm2-32gb only nvidia-smi is compared, since its driver, 418, lacks half of the functions.

| function | boards | what they lack |
|---|---|---|
`

// coverage compares docs/coverage.md with what was seen.
func coverage(t *testing.T, functions []string, seen answers) {
	var page strings.Builder
	fmt.Fprintf(&page, coverageHead, len(compared()))
	used := map[int]bool{}
	for _, symbol := range functions {
		if seen[symbol] == nil && !slices.Contains(waiters, symbol) {
			t.Errorf("%s is implemented and has no check here", symbol)
		} else if len(seen[symbol]) == 0 && !slices.Contains(waiters, symbol) && mute[symbol] == "" {
			t.Errorf("%s is implemented and answers no board with a value", symbol)
		}
		n, why := seen.shipped(symbol), ""
		if n == 0 {
			i := slices.IndexFunc(elsewhere, func(r reason) bool { return r.functions.MatchString(symbol) })
			if i < 0 {
				t.Errorf("%s answers on no shipped board, and nothing says why", symbol)
				continue
			}
			used[i], why = true, elsewhere[i].why
			if mute[symbol] != "" {
				why = mute[symbol]
			}
		}
		fmt.Fprintf(&page, "| `%s` | %d | %s |\n", symbol, n, why)
	}
	for i, e := range elsewhere {
		assert.True(t, used[i], "%v is why no function answers on no shipped board", e.functions)
	}
	path := filepath.Join(root, "docs", "coverage.md")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(page.String()), 0o644))
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, page.String(), string(text), "docs/coverage.md is stale: run this test with -update")
}
