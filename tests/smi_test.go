package tests

import (
	"encoding/csv"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// board is the board that an empty environment chooses.
func board(t *testing.T) *profiles.Board {
	t.Helper()
	b, err := profiles.Shipped("h100")
	require.NoError(t, err)
	require.Len(t, b.Devices, 8)
	return b
}

// smi runs NVIDIA's own nvidia-smi of driver 550 on the library.
func smi(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	return run(t, with(library, env...), fetched(t, "nvidia-smi-550", "nvidia-smi"), args...)
}

func TestSMIList(t *testing.T) {
	out := smi(t, nil, "-L").succeeds(t)
	assert.Empty(t, out.stderr)
	var want []string
	for _, d := range board(t).Devices {
		want = append(want, fmt.Sprintf("GPU %d: %s (UUID: %s)", d.Index, d.Name.Value, d.UUID))
	}
	assert.Equal(t, want, out.lines())
}

func TestSMITable(t *testing.T) {
	b := board(t)
	out := smi(t, nil).succeeds(t)
	assert.Empty(t, out.stderr)
	assert.Regexp(t, `NVIDIA-SMI 550\.163\.01 +Driver Version: `+regexp.QuoteMeta(b.System.DriverVersion.Value)+
		` +CUDA Version: `+regexp.QuoteMeta(b.System.CUDAVersion.Value), out.stdout)

	// A GPU takes two rows: index, name and bus id in the first; temperature, power and memory in the second.
	row := regexp.MustCompile(`(?m)^\| +(\d+) +(NVIDIA .+?) +(?:On|Off) +\| +([0-9A-F:.]+) (?:On|Off) .*\n` +
		`\|.* (\d+)C .* (\d+)W +/ +(\d+)W \| +(\d+)MiB / +(\d+)MiB \|.*$`)
	rows := row.FindAllStringSubmatch(out.stdout, -1)
	require.Len(t, rows, len(b.Devices), "%s", out.stdout)
	for i, d := range b.Devices {
		assert.Equal(t, []string{
			fmt.Sprint(i), d.Name.Value, fmt.Sprint(d.PCI.BusID.Value), fmt.Sprint(d.Thermal.TemperatureGPUC.Value),
			fmt.Sprint(d.Power.CurrentDrawMW.Value / 1000), fmt.Sprint(d.Power.EnforcedLimitMW.Value / 1000),
			mib(d.Memory.UsedBytes.Value), mib(d.Memory.TotalBytes.Value),
		}, rows[i][1:])
	}
}

func TestSMIQuery(t *testing.T) {
	out := smi(t, nil, "--query-gpu=index,name,uuid,memory.total,temperature.gpu,power.draw", "--format=csv").succeeds(t)
	assert.Empty(t, out.stderr)
	reader := csv.NewReader(strings.NewReader(out.stdout))
	reader.TrimLeadingSpace = true
	rows, err := reader.ReadAll()
	require.NoError(t, err)
	want := [][]string{{"index", "name", "uuid", "memory.total [MiB]", "temperature.gpu", "power.draw [W]"}}
	for i, d := range board(t).Devices {
		want = append(want, []string{
			fmt.Sprint(i), d.Name.Value, fmt.Sprint(d.UUID), mib(d.Memory.TotalBytes.Value) + " MiB",
			fmt.Sprint(d.Thermal.TemperatureGPUC.Value), fmt.Sprintf("%.2f W", float64(d.Power.CurrentDrawMW.Value)/1000),
		})
	}
	assert.Equal(t, want, rows)
}

// TestSMIUnknownProfile: a misspelt board must not become another one.
func TestSMIUnknownProfile(t *testing.T) {
	out := smi(t, []string{"NVMLFAB_PROFILE=nope"}, "-L")
	assert.NotZero(t, out.code)
	assert.NotContains(t, out.stdout, "UUID")
	assert.Contains(t, out.complains(t), "nope")
}

func mib(bytes uint64) string { return fmt.Sprint(bytes >> 20) }
