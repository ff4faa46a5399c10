package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rustFailures are the tests of the Rust crate nvml-wrapper that fail, with what they say and why. Without boards it is all boards.
var rustFailures = []struct{ boards, tests, says, reason string }{
	{"", "unit::test::devices unit::test::fan_info unit::test::info unit::test::led_state unit::test::psu_info unit::test::temperature " +
		"test::unit_by_index", "InvalidArg", "there is no S-class unit"},
	{"", "device::test::bridge_chip_info device::test::gpu_operation_mode device::test::auto_boosted_clocks_enabled", "NotSupported",
		"the board has no such thing"},
	{"", "nv_link::test::utilization_control", "NotSupported", "drivers have not had these counters since 418"},
	{"", "device::test::config_checksum", "NotSupported", "no source tells the board's checksum"},
	{"", "device::test::info_rom_version", "NotSupported", "the InfoROM has no object for power"},
	{"", "device::test::is_api_restricted", "NotSupported", "it asks for automatically boosted clocks, which the board does not have"},
	{"", "device::test::max_customer_boost_clock", "NotSupported", "it asks for all domains, and only some have such a clock"},
	{"h100 a100-sxm4-80gb rtx-4090 gb200 v100-sxm2-32gb",
		"device::test::applications_clock device::test::default_applications_clock device::test::clock", "NotSupported",
		"it asks for all domains, and only graphics and memory have such a clock"},
	{"t4", "device::test::applications_clock device::test::default_applications_clock device::test::clock " +
		"device::test::is_display_connected device::test::is_power_management_algo_active device::test::power_state", "UnexpectedVariant(26)",
		"driver 595 calls the function deprecated, by an error that is newer than the crate"},
	{"h100 gb200", "device::test::is_display_connected", "UnexpectedVariant(26)", "as on the T4"},
	{"v100-sxm2-32gb", "device::test::power_state", "NotSupported", "no source tells it"},
	{"", "test::discover_gpus", "test did not panic", "its author ran it without root, and expects an error"},
	{"h100 a100-sxm4-80gb rtx-4090 t4 gb200", "device::test::accounting_stats_for", "NotSupported",
		"accounting is disabled; NVIDIA documents this error, and the author saw NotFound"},
	{"h100", "device::test::architecture", "UnexpectedVariant(9)", "the crate is older than Hopper"},
	{"rtx-4090", "device::test::architecture", "UnexpectedVariant(8)", "the crate is older than Ada"},
	{"gb200", "device::test::architecture", "UnexpectedVariant(10)", "the crate is older than Blackwell"},
	{"h100 t4 gb200", "device::test::supported_event_types_strict", "IncorrectBits", "the driver has events that are newer than the crate"},
	{"h100 a100-sxm4-80gb rtx-4090 gb200", "device::test::are_pages_pending_retired device::test::retired_pages", "NotSupported",
		"the board remaps rows, and retires no pages"},
	{"h100 a100-sxm4-80gb t4 gb200 v100-sxm2-32gb", "device::test::fan_speed", "NotSupported", "the board has no fan"},
	{"h100 a100-sxm4-80gb t4 gb200", "device::test::num_fans", "NotSupported", "the board has no fan"},
	{"h100 a100-sxm4-80gb rtx-4090 t4 gb200", "device::test::irq_num device::test::power_source", "NotSupported", "no source tells it"},
	{"h100 rtx-4090 gb200", "device::test::temperature_threshold", "NotSupported", "the board has T.Limit margins in place of temperatures"},
	{"h100 a100-sxm4-80gb t4 gb200", "device::test::supported_graphics_clocks", "NotFound",
		"it asks for those beside a memory clock of 810 MHz, which the board does not have"},
	{"v100-sxm2-32gb", "device::test::supported_graphics_clocks device::test::supported_memory_clocks", "NotSupported", "no source tells them"},
	{"rtx-4090", "device::test::board_part_number device::test::serial test::device_by_serial", "NotSupported",
		"GeForce boards do not tell these numbers"},
	{"gb200", "test::device_by_serial", "InvalidArg", "the board carries two GPUs, so that the number does not say which"},
	{"rtx-4090", "device::test::memory_error_counter device::test::total_ecc_errors", "NotSupported", "the board has no ECC"},
	{"rtx-4090 t4", "device::test::is_on_same_board_as device::test::topology_common_ancestor test::are_devices_on_same_board " +
		"test::topology_common_ancestor", "InvalidArg", "it needs two GPUs"},
	{"rtx-4090 t4", "nv_link::test::error_counter nv_link::test::has_capability nv_link::test::is_active nv_link::test::remote_pci_info " +
		"nv_link::test::version", "NotSupported", "the board has no NVLink"},
	{"v100-sxm2-32gb", "device::test::accounting_stats_for device::test::bus_type device::test::irq_num device::test::memory_bus_width " +
		"device::test::num_cores device::test::num_fans device::test::pcie_link_max_speed device::test::power_source " +
		"device::test::running_compute_processes device::test::running_graphics_processes test::excluded_device_count " +
		"test::excluded_device_info test::sys_process_name", "undefined symbol: nvml", "driver 418 lacks the function"},
}

// TestRust: the 133 tests of the Rust crate nvml-wrapper, those too that its author's GPU could not pass, pass on six boards, apart
// from those above.
func TestRust(t *testing.T) {
	namespaces(t)
	needsRoot(t) // some of the tests change GPUs
	program := copied(t, fetched(t, "nvml-wrapper", "nvml-wrapper-tests"))
	for _, board := range []string{"h100", "a100-sxm4-80gb", "rtx-4090", "t4", "gb200", "v100-sxm2-32gb"} {
		t.Run(board, func(t *testing.T) {
			t.Parallel()
			profile := filepath.Join(t.TempDir(), "drawing.yaml") // some tests ask about the first process that draws
			text := "extends: " + board + "\ndevice_defaults:\n  processes: [{pid: 4242, type: G, name: Xorg, used_memory_mib: 4, sm_util: 3}]\n"
			require.NoError(t, os.WriteFile(profile, []byte(text), 0o644))
			out := inRun(t, nil, "--namespace", "--profile", profile, "--", program, "--test-threads", "1", "--include-ignored")
			want := map[string]string{}
			for _, f := range rustFailures {
				if f.boards == "" || slices.Contains(strings.Fields(f.boards), board) {
					for _, test := range strings.Fields(f.tests) {
						want[test] = f.says
					}
				}
			}
			got := map[string]string{}
			for _, m := range regexp.MustCompile(`(?m)^---- (\S+) stdout ----\n(.*)$`).FindAllStringSubmatch(out.stdout, -1) {
				got[m[1]] = m[2]
				if says := want[m[1]]; says != "" && strings.Contains(m[2], says) {
					got[m[1]] = says
				}
			}
			assert.Equal(t, want, got)
			tests := regexp.MustCompile(`(?m)^test \S+ (- should panic )?\.\.\. `).FindAllString(out.stdout, -1)
			assert.Len(t, tests, 133)
			assert.Contains(t, out.stdout, "0 ignored; 0 measured; 0 filtered out")
		})
	}
}
