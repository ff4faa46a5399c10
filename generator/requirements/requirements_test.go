package requirements

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/generator/binding"
)

func symbols(t *testing.T) []*binding.Symbol {
	t.Helper()
	_, out, err := binding.Load("../..")
	require.NoError(t, err)
	return out
}

func find(t *testing.T, list []*binding.Symbol, name string) *binding.Symbol {
	t.Helper()
	i := slices.IndexFunc(list, func(s *binding.Symbol) bool { return s.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return list[i]
}

// without is the table without the rows that pattern matches.
func without(t *testing.T, pattern string) []byte {
	t.Helper()
	var out []string
	for line := range strings.Lines(string(table)) {
		if !regexp.MustCompile(pattern).MatchString(line) {
			out = append(out, line)
		}
	}
	return []byte(strings.Join(out, ""))
}

func TestRequirements(t *testing.T) {
	list := symbols(t)
	table, err := Read(list)
	require.NoError(t, err)
	for name, want := range map[string]Requirement{
		"nvmlDeviceGetTemperature":        {Who: Anybody, MIG: answers, Lost: gpuIsLost}, // no row
		"nvmlSystemGetDriverVersion":      {Who: Anybody},                                // no row
		"nvmlGpuInstanceGetActiveVgpus":   {Who: Anybody, Lost: gpuIsLost},               // no row
		"nvmlDeviceSetPersistenceMode":    {Who: Admin, MIG: invalid, Lost: gpuIsLost},
		"nvmlDeviceSetApplicationsClocks": {Who: Restricted, API: "SET_APPLICATION_CLOCKS", MIG: invalid, Lost: gpuIsLost},
		"nvmlDeviceIsMigDeviceHandle":     {Who: Anybody, MIG: answers, Lost: answers},
		"nvmlDeviceGetHandleByIndex_v2":   {Who: Anybody, Lost: gpuIsLost},
		"nvmlEventSetWait_v2":             {Who: Anybody, Lost: answers},
	} {
		have := table.Of(find(t, list, name))
		have.Why = ""
		assert.Equal(t, want, have, name)
	}
}

// TestEveryHintAsksForARow removes one row at a time. Since the name or the header's comment asks for the row, Read
// fails, and its error shows what to add.
func TestEveryHintAsksForARow(t *testing.T) {
	list := symbols(t)
	for name, why := range map[string]string{
		"nvmlDeviceSetFanSpeed_v2":           "its name says Set",
		"nvmlDeviceResetNvLinkErrorCounters": "its name says Reset",
		"nvmlDeviceClearFieldValues":         "its name says Clear",
		"nvmlDeviceCreateGpuInstance":        "its name says Create and the header speaks of MIG",
		"nvmlComputeInstanceDestroy":         "its name says Destroy",
		"nvmlDeviceRemoveGpu":                "its name says Remove and the header speaks of admin", // the comment is that of _v2
		"nvmlDeviceGetClkMonStatus":          "the header speaks of admin",
		"nvmlGpuInstanceGetInfo":             "the header speaks of NO_PERMISSION",
		"nvmlDeviceGetName":                  "the header speaks of MIG",
		"nvmlDeviceGetHandleBySerial":        "the header speaks of GPU_IS_LOST",
	} {
		_, err := read(without(t, name+","), list)
		require.ErrorContains(t, err, "generator/requirements/table.yaml: "+name+" has no row, but "+why)
		assert.ErrorContains(t, err, "- {symbol: "+name+", who: ")
		assert.NotContains(t, err.Error(), "\ngenerator", "one row is missing, one is asked for")
	}
}

func TestWrongRowsAreNamed(t *testing.T) {
	list := symbols(t)
	for row, want := range map[string]string{
		"symbol: nvmlDeviceGetNothing, who: none, why: x":                     "nvmlDeviceGetNothing: no header declares it",
		"symbol: nvmlDeviceGetTemperature, who: root, why: x":                 `who is "root", want one of none, admin, admin-unless-unrestricted, mig-config, mig-monitor`,
		"symbol: nvmlDeviceGetTemperature, who: none":                         "why is missing",
		"symbol: nvmlDeviceGetTemperature, who: none, mig: no, why: x":        `mig is "no"`,
		"symbol: nvmlDeviceGetTemperature, who: none, lost: no, why: x":       `lost is "no"`,
		"symbol: nvmlDeviceGetTemperature, who: admin, api: X, why: x":        "api goes with",
		"symbol: nvmlSystemGetDriverVersion, who: none, mig: answers, why: x": "the caller passes no device",
		"symbol: nvmlDeviceGetName, who: none, why: x":                        "so mig must say",
		"symbol: nvmlDeviceGetHandleBySerial, who: none, why: x":              "so lost must say",
		"symbol: nvmlDeviceSetEccMode, who: admin, mig: answers, why: x":      "has a row for it already",
		"symbol: nvmlDeviceGetTemperature, who: none, because: x":             "field because not found",
	} {
		_, err := read([]byte(string(table)+"- {"+row+"}\n"), list)
		require.ErrorContains(t, err, want, row)
		assert.ErrorContains(t, err, "generator/requirements/table.yaml:")
	}
}
