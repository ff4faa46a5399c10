package registry

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/generator/binding"
)

func symbols(t *testing.T) []*binding.Symbol {
	t.Helper()
	_, bound, err := binding.Load(filepath.Join("..", ".."))
	require.NoError(t, err)
	return bound
}

const head = `package handwritten

import (
	"x/abi"
	"x/engine"
)

`

func TestRead(t *testing.T) {
	all := symbols(t)
	for name, c := range map[string]struct{ source, want string }{
		"right": {`
func DeviceGetIrqNum(d *engine.Device) (uint32, abi.Return) { return 0, 0 }

func helper(x int) {}
`, ""},
		"an alias of the type": {`
func DeviceGetComputeRunningProcesses_v3(d *engine.Device) ([]abi.ProcessInfo_t, abi.Return) { return nil, 0 }
`, ""},
		"several symbols": {`
// Count counts.
//
//nvml:symbol nvmlDeviceGetCount nvmlDeviceGetCount_v2
func Count(s *engine.Snapshot) (uint32, abi.Return) { return 0, 0 }
`, ""},
		"a directive on an unexported function": {`
//nvml:symbol nvmlDeviceGetIrqNum
func irq(d *engine.Device) (uint32, abi.Return) { return 0, 0 }
`, ""},
		"wrong parameter": {`
func DeviceGetIrqNum(d int) (uint32, abi.Return) { return 0, 0 }
`, "handwritten/x.go:9:24: DeviceGetIrqNum: parameter 1 is int, wants *engine.Device; " +
			"nvmlReturn_t nvmlDeviceGetIrqNum(nvmlDevice_t device, unsigned int *irqNum) wants func DeviceGetIrqNum(*engine.Device) (uint32, abi.Return)"},
		"too few parameters": {`
func DeviceGetIrqNum() (uint32, abi.Return) { return 0, 0 }
`, "handwritten/x.go:9:6: DeviceGetIrqNum has 0 parameters, wants 1; "},
		"wrong result": {`
func DeviceGetIrqNum(d *engine.Device) (int32, abi.Return) { return 0, 0 }
`, "handwritten/x.go:9:41: DeviceGetIrqNum: result 1 is int32, wants uint32; "},
		"no result": {`
func DeviceGetIrqNum(d *engine.Device) {}
`, "handwritten/x.go:9:6: DeviceGetIrqNum has 0 results, wants 2; "},
		"unknown symbol": {`
func DeviceGetIrqNumber(d *engine.Device) (uint32, abi.Return) { return 0, 0 }
`, "handwritten/x.go:9:6: DeviceGetIrqNumber: no nvml.h declares nvmlDeviceGetIrqNumber; did you mean nvmlDeviceGetIrqNum?"},
		"an exported helper": {`
func Percent(n int) int { return n }
`, "Percent: no nvml.h declares nvmlPercent; helpers that answer no symbol are unexported"},
		"unknown symbol in a directive": {`
//nvml:symbol nvmlDeviceGetIrqNmu
func irq(d *engine.Device) (uint32, abi.Return) { return 0, 0 }
`, "handwritten/x.go:9:1: irq: no nvml.h declares nvmlDeviceGetIrqNmu; did you mean nvmlDeviceGetIrqNum?"},
		"duplicate": {`
func DeviceGetIrqNum(d *engine.Device) (uint32, abi.Return) { return 0, 0 }

//nvml:symbol nvmlDeviceGetIrqNum
func again(d *engine.Device) (uint32, abi.Return) { return 0, 0 }
`, "handwritten/x.go:12:6: again: nvmlDeviceGetIrqNum is already answered by DeviceGetIrqNum at handwritten/x.go:9:6; keep one of them"},
		"answered by the front": {`
func ErrorString(r abi.Return) abi.Return { return r }
`, "nvmlErrorString is answered in C by the front"},
		"two shapes under one function": {`
//nvml:symbol nvmlDeviceGetComputeRunningProcesses nvmlDeviceGetComputeRunningProcesses_v2
func Running(d *engine.Device) ([]abi.ProcessInfo_v2_t, abi.Return) { return nil, 0 }
`, "handwritten/x.go:10:33: Running: result 1 is []abi.ProcessInfo_v2_t, wants []abi.ProcessInfo_v1_t; "},
		"syntax": {"func {", "handwritten/x.go:8:6: expected 'IDENT'"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(root, "handwritten"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(root, "handwritten", "x.go"), []byte(head+c.source), 0o644))
			r, err := Read(root, "handwritten", all)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			assert.Len(t, r.symbols, map[bool]int{true: 2, false: 1}[name == "several symbols"])
		})
	}
}

func TestTestFilesAreNotRead(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "handwritten"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "handwritten", "x_test.go"), []byte(head+"func TestX(t *testing.T) {}"), 0o644))
	r, err := Read(root, "handwritten", nil)
	require.NoError(t, err)
	assert.Empty(t, r.symbols)
	_, err = Read(root, "nowhere", nil)
	require.ErrorContains(t, err, "nowhere")
}
