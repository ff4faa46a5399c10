package tests

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// lookUp prints those of its arguments that the dynamic linker does not find as symbols in the library that programs
// load.
const lookUp = `
import ctypes, sys
nvml = ctypes.CDLL(sys.argv[1])
print(*(name for name in sys.argv[2:] if not hasattr(nvml, name)), sep="\n")
`

// TestMachineDriver: a function that is later than the driver has no symbol, in run as well as in a staged tree.
func TestMachineDriver(t *testing.T) {
	namespaces(t)
	python := systemPython(t)
	level := func(nvml string) int {
		return abi.Versions[slices.IndexFunc(abi.Versions[:], func(v abi.Version) bool { return v.NVML == nvml })].Number
	}
	var symbols []string
	since := map[string]int{}
	for _, s := range abi.Symbols() {
		if !strings.HasPrefix(s.Name, "nvmlInternalSlot") { // entries of a table are not exported
			symbols, since[s.Name] = append(symbols, s.Name), s.Since
		}
	}
	for driver, test := range map[string]struct {
		nvml string   // the NVML version of the driver
		args []string // in addition to --driver
	}{
		"450.248.02": {"11.0", nil},
		"470.256.02": {"11.1", nil}, // no release of go-nvml has its header
		"550.163.01": {"12.4.127", nil},
		"570.148.08": {"12.8.90", nil},
		"580.105.08": {"13.0.39", nil},
		"999.1":      {"13.4.92", nil},
		"565.57.01":  {"11.8.86", []string{"--nvml", "11.8"}},
	} {
		t.Run(driver, func(t *testing.T) {
			options := append([]string{"--driver", driver}, test.args...)
			missing := func(library string, command ...string) []string {
				command = append(command, python, "-c", lookUp, library)
				return run(t, nil, command[0], append(command[1:], symbols...)...).succeeds(t).lines()
			}
			dir := filepath.Join(t.TempDir(), "root")
			run(t, nil, launcher(t), append([]string{"stage", "--root", dir}, options...)...).succeeds(t)
			command := append([]string{launcher(t), "run", "--namespace"}, options...)
			for where, got := range map[string][]string{
				"run":    missing("libnvidia-ml.so.1", append(command, "--")...),
				"staged": missing(filepath.Join(dir, "usr/lib/x86_64-linux-gnu", "libnvidia-ml.so."+driver)),
			} {
				for _, name := range symbols {
					if since[name] > level(test.nvml) {
						assert.Contains(t, got, name, "the library of %s has it", where)
					}
				}
				for _, name := range declared(t, test.nvml) {
					assert.NotContains(t, got, name, "the library of %s lacks it", where)
				}
			}
		})
	}
	t.Run("the plain folder has everything of the newest", func(t *testing.T) {
		out := run(t, nil, python, "-c", lookUp, filepath.Join(library, "libnvidia-ml.so.1"), "nvmlDeviceGetAddressingMode").succeeds(t)
		assert.Equal(t, "\n", out.stdout)
	})
}
