package tests

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// captures are the boards with a capture of nvidia-smi -q -x from a real machine in testdata/captures. Each lists the
// leaves that differ here, with the reason.
var captures = map[string]map[string]string{
	"h100":           {},
	"a100-sxm4-40gb": {"attached_gpus": "the captured virtual machine has one of the eight"},
	"b200":           {"gpu/product_architecture": "nvidia-smi 550 is older than Blackwell and prints Unknown"},
	"gb200":          {"gpu/product_architecture": "nvidia-smi 550 is older than Blackwell and prints Unknown"},
}

// identifiers are leaves that were scrubbed in the captures, and readings are leaves that change over time. Their
// values cannot be equal, so only their form is compared: 33 C has the same form as 29 C, and N/A has not.
var (
	identifiers = []string{"gpu/serial", "gpu/uuid", "gpu/fabric/clusterUuid"}
	readings    = []string{
		"timestamp",
		"gpu/pci/tx_util", "gpu/pci/rx_util",
		"gpu/utilization/gpu_util", "gpu/utilization/memory_util", "gpu/utilization/encoder_util",
		"gpu/utilization/decoder_util", "gpu/utilization/jpeg_util", "gpu/utilization/ofa_util",
		"gpu/temperature/gpu_temp", "gpu/temperature/gpu_temp_tlimit", "gpu/temperature/memory_temp",
		"gpu/gpu_power_readings/average_power_draw", "gpu/gpu_power_readings/instant_power_draw",
		"gpu/gpu_memory_power_readings/average_power_draw", "gpu/gpu_memory_power_readings/instant_power_draw",
		"gpu/module_power_readings/average_power_draw", "gpu/module_power_readings/instant_power_draw",
		"gpu/clocks/graphics_clock", "gpu/clocks/sm_clock", "gpu/clocks/mem_clock", "gpu/clocks/video_clock",
	}
)

// The captures are from nvidia-smi 570 and 580. renamed has the leaves that have an older name in 550; dropped has the
// leaves that 550 prints and the newer versions do not.
var (
	renamed = strings.NewReplacer("platformInfo/module_id", "gpu_module_id") // 570 gathers the leaves about a GPU's place
	dropped = []string{
		"gpu/gpu_reset_status/reset_required", "gpu/gpu_reset_status/drain_and_reset_recommended", // replaced by gpu_recovery_action in 580
		"gpu/voltage/graphics_volt", // not in 580
	}
)

// TestSMICapture compares, leaf by leaf, what nvidia-smi 550 prints of a board with what a newer version printed of a
// real one. Leaves that are not in the DTD of 550 are ignored. A list of clocks is one leaf.
func TestSMICapture(t *testing.T) {
	for board, reasons := range captures {
		t.Run(board, func(t *testing.T) {
			env := []string{"NVMLFAB_PROFILE=" + board}
			printed := parse(t, smi(t, env, "-q", "-x", "--dtd").succeeds(t).stdout)
			counted, equal, newer := 0, 0, 0
			unused := map[string]bool{}
			for name := range reasons {
				unused[name] = true
			}
			differs := func(path, got, want string) {
				name := nameOf(path)
				delete(unused, name)
				if reason := reasons[name]; reason != "" {
					t.Logf("%s is %q and was captured as %q: %s", path, got, want, reason)
				} else {
					t.Errorf("nothing says why %s is %q and was captured as %q", path, got, want)
				}
			}

			got := map[string]string{}
			for _, l := range printed.leaves {
				got[l.path] = l.value
			}
			gpus := map[string]bool{}
			for _, want := range captured(t, board) {
				path := renamed.Replace(want.path)
				gpu, below, _ := strings.Cut(path, "/")
				gpus[gpu] = true
				if !printed.declares(nameOf(path)) {
					newer++
					continue
				}
				value, found := got[path]
				delete(got, path)
				switch {
				case !found:
					value = "missing"
				case strings.HasPrefix(below, "supported_clocks/") && value == "Unknown Error":
					value = graphicsClocks(t, env, gpu)
				}
				if slices.Contains(identifiers, nameOf(path)) || slices.Contains(readings, nameOf(path)) {
					if form(value) != form(want.value) {
						differs(path, value, want.value)
					}
					continue
				}
				counted++
				if value == expanded(want.value) {
					equal++
				} else {
					differs(path, value, want.value)
				}
			}
			for path, value := range got {
				if gpu, _, _ := strings.Cut(path, "/"); gpus[gpu] && !slices.Contains(dropped, nameOf(path)) {
					counted++
					differs(path, value, "missing")
				}
			}

			share := 100 * float64(equal) / float64(counted)
			t.Logf("%.2f %%: %d of %d leaves are equal; %d others are newer than nvidia-smi 550", share, equal, counted, newer)
			assert.GreaterOrEqual(t, share, 98.0)
			assert.Empty(t, unused, "reasons for what does not differ")
		})
	}
}

// graphicsClocks are a GPU's supported graphics clocks from --query-supported-clocks, which asks for their number
// first. -q of 550 has room for only 256 and prints an error for the 260 of a GB200.
func graphicsClocks(t *testing.T, env []string, gpu string) string {
	t.Helper()
	out := smi(t, env, "--query-supported-clocks=gr", "--format=csv,noheader", "-i", strings.Trim(gpu, "gpu[]"))
	return strings.Join(out.succeeds(t).lines(), ", ")
}

var digits = regexp.MustCompile(`[0-9a-f]+`)

// form is the form of a value: the value with # in place of its numbers.
func form(value string) string {
	if _, err := time.Parse(time.ANSIC, value); err == nil {
		return "a time"
	}
	return digits.ReplaceAllString(value, "#")
}
