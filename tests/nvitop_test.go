package tests

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// nvitop is a command that runs Python with the modules of nvitop.
func nvitop(t *testing.T, args ...string) []string {
	t.Helper()
	modules := []string{
		filepath.Dir(filepath.Dir(fetched(t, "nvitop", "cli.py"))), filepath.Dir(fetched(t, "pynvml-12", "pynvml.py")),
		filepath.Join(filepath.Dir(fetched(t, "gpustat", "gpustat")), "../lib/python3/dist-packages"), // for psutil
	}
	return append([]string{"env", "PYTHONPATH=" + strings.Join(modules, ":"), "PYTHONDONTWRITEBYTECODE=1", "COLUMNS=79", systemPython(t)}, args...)
}

// askNvitop prints what nvitop's Python interface answers, a line of JSON for each device.
const askNvitop = `
import json, nvitop
asked = """name uuid bus_id serial memory_total memory_used memory_free bar1_memory_total bar1_memory_used gpu_utilization
    memory_utilization encoder_utilization decoder_utilization graphics_clock sm_clock memory_clock video_clock max_graphics_clock
    max_sm_clock max_memory_clock max_video_clock fan_speed temperature power_usage power_limit pcie_tx_throughput pcie_rx_throughput
    nvlink_link_count display_active display_mode current_driver_model persistence_mode performance_state
    total_volatile_uncorrected_ecc_errors compute_mode cuda_compute_capability mig_mode max_mig_device_count processes""".split()
print(json.dumps({"driver": nvitop.Device.driver_version(), "cuda": nvitop.Device.cuda_driver_version()}))
for device in nvitop.Device.all():
    print(json.dumps({a: str(getattr(device, a)()) for a in asked}))
`

// TestNvitop: nvitop's Python interface answers what the profile says, and N/A for what it does not say.
func TestNvitop(t *testing.T) {
	namespaces(t)
	ask := nvitop(t, "-c", askNvitop)
	for _, name := range append([]string{"rtx-4090", "rtx-5090", "h100-nvl", "gh200", "v100-vgpu-guest"}, kinds...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := inside(t, name, ask...).succeeds(t)
			assert.Empty(t, out.stderr)
			var got []map[string]string
			for _, line := range out.lines() {
				var answers map[string]string
				require.NoError(t, json.Unmarshal([]byte(line), &answers))
				got = append(got, answers)
			}
			b := mustBoard(t, name)
			require.Len(t, got, 1+len(b.Devices))
			assert.Equal(t, map[string]string{"driver": b.System.DriverVersion.Value, "cuda": shown(b.System.CUDAVersion)}, got[0])
			for i := range b.Devices {
				assert.Equal(t, wantNvitop(b, &b.Devices[i]), got[1+i])
			}
		})
	}
}

func wantNvitop(b *profiles.Board, d *profiles.Device) map[string]string {
	id := d.PCI.BusID.Value
	used, free := d.Memory.UsedBytes, d.Memory.FreeBytes
	if used.Valid {
		if b.System.DriverVersion.Value < "510" { // no second version of the function, which leaves out what is reserved
			used.Value += d.Memory.ReservedBytes.Value
		}
		free = profiles.Some(d.Memory.TotalBytes.Value - d.Memory.ReservedBytes.Value - d.Memory.UsedBytes.Value)
	}
	bar1 := profiles.Opt[uint64]{Value: d.BAR1Memory.UsedBytes.Value, Valid: d.BAR1Memory.TotalBytes.Valid}
	state := absent
	if d.PerformanceState.Valid {
		state = fmt.Sprintf("P%d", d.PerformanceState.Value)
	}
	ecc := absent
	if d.ECC.ModeCurrent.Value {
		ecc = "0"
	}
	return map[string]string{
		"name": d.Name.Value, "uuid": string(d.UUID), "serial": shown(d.Serial),
		"bus_id":       fmt.Sprintf("%08X:%02X:%02X.%X", id.Domain, id.Bus, id.Device, id.Function),
		"memory_total": shown(d.Memory.TotalBytes), "memory_used": shown(used), "memory_free": shown(free),
		"bar1_memory_total": shown(d.BAR1Memory.TotalBytes), "bar1_memory_used": shown(bar1),
		"gpu_utilization": shown(d.Utilization.GPU), "memory_utilization": shown(d.Utilization.Memory),
		"encoder_utilization": shown(d.Utilization.Encoder), "decoder_utilization": shown(d.Utilization.Decoder),
		"graphics_clock": shown(d.Clocks.GraphicsCurrent), "sm_clock": shown(d.Clocks.SMCurrent),
		"memory_clock": shown(d.Clocks.MemoryCurrent), "video_clock": shown(d.Clocks.VideoCurrent),
		"max_graphics_clock": shown(d.Clocks.GraphicsMax), "max_sm_clock": shown(d.Clocks.SMMax),
		"max_memory_clock": shown(d.Clocks.MemoryMax), "max_video_clock": shown(d.Clocks.VideoMax),
		"fan_speed": shown(d.Fan.SpeedPercent), "temperature": shown(d.Thermal.TemperatureGPUC),
		"power_usage": shown(d.Power.CurrentDrawMW), "power_limit": shown(d.Power.RequestedLimitMW),
		"pcie_tx_throughput": shown(d.PCIe.RxThroughputKBPS), // nvitop 1.5.0 asks for what is received here too
		"pcie_rx_throughput": shown(d.PCIe.RxThroughputKBPS),
		"nvlink_link_count":  fmt.Sprint(b.NVLink.LinksPerGPU.Or(0)),
		"display_active":     enabled(d.Display.Active), "display_mode": enabled(d.Display.Mode),
		"current_driver_model": absent, "persistence_mode": enabled(d.PersistenceMode), "performance_state": state,
		"total_volatile_uncorrected_ecc_errors": ecc, "compute_mode": word(d.ComputeMode, map[string]string{"default": "Default"}),
		"cuda_compute_capability": fmt.Sprintf("(%d, %d)", d.ComputeCapability.Major.Value, d.ComputeCapability.Minor.Value),
		"mig_mode":                enabled(d.MIG.ModeCurrent), "max_mig_device_count": "0", "processes": "{}",
	}
}

// TestNvitopScreen: nvitop's screen of four boards, of a GPU with MIG devices and of one with a process.
func TestNvitopScreen(t *testing.T) {
	namespaces(t)
	screen := nvitop(t, "-m", "nvitop", "--once")
	for _, c := range []struct {
		profile, mig string
		flags        []string
		want         string
	}{
		{profile: "h100", want: `
│ NVITOP 1.5.0      Driver Version: 580.105.08      CUDA Driver Version: 13.0 │
├───────────────────────────────┬──────────────────────┬──────────────────────┤
│ GPU  Name        Persistence-M│ Bus-Id        Disp.A │ MIG M.   Uncorr. ECC │
│ Fan  Temp  Perf  Pwr:Usage/Cap│         Memory-Usage │ GPU-Util  Compute M. │
╞═══════════════════════════════╪══════════════════════╪══════════════════════╡
│   0  H100 80GB HBM3      On   │ 00000000:53:00.0 Off │ Disabled           0 │
│ N/A   29C    P0    69W / 700W │        0B / 79.65GiB │      0%      Default │
`},
		{profile: "gb10", want: `
│ GPU  Name        Persistence-M│ Bus-Id        Disp.A │ Volatile Uncorr. ECC │
│ Fan  Temp  Perf  Pwr:Usage/Cap│         Memory-Usage │ GPU-Util  Compute M. │
╞═══════════════════════════════╪══════════════════════╪══════════════════════╡
│   0  GB10                On   │ 0000000F:01:00.0 Off │                  N/A │
│ N/A   47C    P8      5W / N/A │            N/A / N/A │      0%      Default │
`},
		{profile: "rtx-4090", want: `
│   0  GeForce RTX 4090    On   │ 00000000:84:00.0 Off │                  N/A │
│  0%   40C    P8    27W / 450W │   2.67MiB / 23.99GiB │      0%      Default │
`},
		{profile: "a100-sxm4-40gb", mig: "1g.5gb,2g.10gb", want: `
│   0  A100-SXM4-40GB      On   │ 00000000:06:00.0 Off │  Enabled           0 │
│ N/A   33C    P0    50W / 400W │        0B / 40.00GiB │     N/A      Default │
├───────────────────────────────┼──────────────────────┼──────────────────────┤
│ 0:0      2g.10gb @ GI/CI: 5/0 │        0B /  9984MiB │ BAR1:       0B /  0% │
│ 0:1       1g.5gb @ GI/CI:13/0 │        0B /  4864MiB │ BAR1:       0B /  0% │
├───────────────────────────────┼──────────────────────┼──────────────────────┤
│   1  A100-SXM4-40GB      On   │ 00000000:07:00.0 Off │ Disabled           0 │
`},
		{profile: "t4", flags: []string{"--process-memory", "2GiB", "--process-sm", "40"}, want: `
│   0  Tesla T4            On   │ 00000000:00:1E.0 Off │                    0 │
│ N/A   …   …   2048MiB / 15360MiB │     40%      Default │
…
│   0 … C … 2048MiB  40 … │
`},
	} {
		t.Run(c.profile, func(t *testing.T) {
			t.Parallel()
			create := ":"
			if c.mig != "" {
				needsRoot(t)
				create = `"$0" mig create --run $$ --gpu 0 --enable ` + c.mig
			}
			command := append(append([]string{"--namespace", "--profile", c.profile}, c.flags...), "--", "sh", "-c", create+` && exec "$@"`, launcher(t))
			out := inRun(t, nil, append(command, screen...)...).succeeds(t)
			assert.Empty(t, out.stderr)
			pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(c.want)), "\n…\n", "\n(?s:.*)\n")
			assert.Regexp(t, regexp.MustCompile(strings.ReplaceAll(pattern, "…", ".*")), out.stdout)
		})
	}
}
