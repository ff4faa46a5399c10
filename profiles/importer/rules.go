package importer

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// ruleTable says which key of a profile each value is, in the order in which the profile has them, and how it is written:
//
//	text     as it is
//	word     as one of the words that the key knows
//	mode     Enabled or Disabled
//	yes      Yes or No, Active or Not Active, True or False
//	count    a number
//	hex      a number in hexadecimal
//	MiB W mV C MHz % KB/s us bank(s)   a number with that unit; W becomes mW, mV µV, MiB bytes
//	x        a number and an x
//	-        nothing: another value says the same, or it is a moment's
//	none     a value that a profile cannot have, so that it is noted
//
// Values that want more than that have no row here; special has them.
const ruleTable = `
product_name name text
product_brand brand word
product_architecture architecture word
board_part_number board_part_number text
gpu_part_number gpu_part_number text
gpu_fru_part_number fru_part_number text
vbios_version vbios_version text
multigpu_board multi_gpu_board yes
addressing_mode addressing_mode word
gpu_recovery_action recovery_action word
inforom_version/img_version inforom.image_version text
inforom_version/oem_object inforom.oem_object text
inforom_version/ecc_object inforom.ecc_object text
inforom_version/pwr_object inforom.pwr_object text
inforom_bbx_flush/latest_duration inforom.bbx_flush_duration_us us
inforom_time_data/time_run - none
fb_memory_usage/total memory.total_bytes MiB
dram_encryption_mode/current_dram_encryption memory.encryption_current mode
dram_encryption_mode/pending_dram_encryption memory.encryption_pending mode
bar1_memory_usage/total bar1_memory.total_bytes MiB
cc_protected_memory_usage/total cc_protected_memory.total_bytes MiB
pci/pci_device_id pci.device_id hex
pci/pci_sub_system_id pci.subsystem_id hex
pci/pci_base_class pci.base_class count
pci/pci_sub_class pci.sub_class count
pci/pci_bus_id pci.bus_id text
pci/pci_bus - -
pci/pci_device - -
pci/pci_domain - -
pci/pci_gpu_link_info/pcie_gen/max_link_gen pcie.max_link_gen count
pci/pci_gpu_link_info/pcie_gen/current_link_gen pcie.current_link_gen count
pci/pci_gpu_link_info/pcie_gen/device_current_link_gen - -
pci/pci_gpu_link_info/pcie_gen/max_device_link_gen pcie.max_device_link_gen count
pci/pci_gpu_link_info/pcie_gen/max_host_link_gen pcie.max_host_link_gen count
pci/pci_gpu_link_info/link_widths/max_link_width pcie.max_link_width x
pci/pci_gpu_link_info/link_widths/current_link_width pcie.current_link_width x
pci/pci_bridge_chip/bridge_chip_type - none
pci/pci_bridge_chip/bridge_chip_fw - none
pci/replay_counter pcie.replay_counter count
pci/replay_rollover_counter pcie.replay_rollover_counter count
pci/tx_util pcie.tx_throughput_kbps KB/s
pci/rx_util pcie.rx_throughput_kbps KB/s
gpu_power_readings/default_power_limit power.default_limit_mw W
gpu_power_readings/requested_power_limit power.requested_limit_mw W
gpu_power_readings/current_power_limit power.enforced_limit_mw W
gpu_power_readings/min_power_limit power.min_limit_mw W
gpu_power_readings/max_power_limit power.max_limit_mw W
gpu_power_readings/power_draw power.current_draw_mw W
gpu_power_readings/instant_power_draw power.current_draw_mw W
gpu_power_readings/average_power_draw power.average_draw_mw W
gpu_power_readings/power_state power.power_state text
gpu_power_readings/gpu_base_power/current_base_power - none
gpu_power_readings/gpu_base_power/requested_base_power - none
gpu_power_readings/gpu_base_power/default_base_power - none
gpu_power_readings/gpu_base_power/min_base_power - none
gpu_power_readings/gpu_base_power/max_base_power - none
power_readings/default_power_limit power.default_limit_mw W
power_readings/power_limit power.requested_limit_mw W
power_readings/enforced_power_limit power.enforced_limit_mw W
power_readings/min_power_limit power.min_limit_mw W
power_readings/max_power_limit power.max_limit_mw W
power_readings/power_draw power.current_draw_mw W
power_readings/power_state power.power_state text
gpu_memory_power_readings/power_draw memory_power.current_draw_mw W
gpu_memory_power_readings/instant_power_draw memory_power.current_draw_mw W
gpu_memory_power_readings/average_power_draw memory_power.average_draw_mw W
module_power_readings/default_power_limit module_power.default_limit_mw W
module_power_readings/requested_power_limit module_power.requested_limit_mw W
module_power_readings/current_power_limit module_power.enforced_limit_mw W
module_power_readings/min_power_limit module_power.min_limit_mw W
module_power_readings/max_power_limit module_power.max_limit_mw W
module_power_readings/power_draw module_power.current_draw_mw W
module_power_readings/instant_power_draw module_power.current_draw_mw W
module_power_readings/average_power_draw module_power.average_draw_mw W
module_power_readings/power_state - -
edpp_multiplier - none
temperature/gpu_temp thermal.temperature_gpu_c C
temperature/gpu_temp_tlimit thermal.tlimit_c C
temperature/memory_temp thermal.temperature_memory_c C
temperature/gpu_temp_max_threshold thermal.shutdown_threshold_c C
temperature/gpu_temp_slow_threshold thermal.slowdown_threshold_c C
temperature/gpu_temp_max_gpu_threshold thermal.max_operating_c C
temperature/gpu_temp_max_mem_threshold thermal.memory_max_operating_c C
temperature/gpu_target_temperature thermal.target_temperature_c C
temperature/gpu_temp_max_tlimit_threshold thermal.tlimit_shutdown_c C
temperature/gpu_temp_slow_tlimit_threshold thermal.tlimit_slowdown_c C
temperature/gpu_temp_max_gpu_tlimit_threshold thermal.tlimit_max_operating_c C
temperature/gpu_temp_max_mem_tlimit_threshold thermal.tlimit_memory_max_operating_c C
supported_gpu_target_temp/gpu_target_temp_min thermal.target_temperature_min_c C
supported_gpu_target_temp/gpu_target_temp_max thermal.target_temperature_max_c C
clocks/graphics_clock clocks.graphics_current MHz
max_clocks/graphics_clock clocks.graphics_max MHz
applications_clocks/graphics_clock clocks.graphics_app MHz
default_applications_clocks/graphics_clock clocks.graphics_app_default MHz
max_customer_boost_clocks/graphics_clock clocks.graphics_customer_boost_max MHz
max_customer_boost_clocks/mem_clock - none
clocks/sm_clock clocks.sm_current MHz
max_clocks/sm_clock clocks.sm_max MHz
clocks/mem_clock clocks.memory_current MHz
max_clocks/mem_clock clocks.memory_max MHz
applications_clocks/mem_clock clocks.memory_app MHz
default_applications_clocks/mem_clock clocks.memory_app_default MHz
deferred_clocks/mem_clock - none
clocks/video_clock clocks.video_current MHz
max_clocks/video_clock clocks.video_max MHz
clock_policy/auto_boost clocks.auto_boost mode
clock_policy/auto_boost_default clocks.auto_boost_default mode
clocks_event_reasons/clocks_event_reason_gpu_idle clocks_throttle_reasons.gpu_idle yes
clocks_event_reasons/clocks_event_reason_applications_clocks_setting clocks_throttle_reasons.applications_clocks_setting yes
clocks_event_reasons/clocks_event_reason_sw_power_cap clocks_throttle_reasons.sw_power_cap yes
clocks_event_reasons/clocks_event_reason_hw_slowdown clocks_throttle_reasons.hw_slowdown yes
clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown clocks_throttle_reasons.hw_thermal_slowdown yes
clocks_event_reasons/clocks_event_reason_hw_power_brake_slowdown clocks_throttle_reasons.hw_power_brake_slowdown yes
clocks_event_reasons/clocks_event_reason_sync_boost clocks_throttle_reasons.sync_boost yes
clocks_event_reasons/clocks_event_reason_sw_thermal_slowdown clocks_throttle_reasons.sw_thermal_slowdown yes
clocks_event_reasons/clocks_event_reason_display_clocks_setting clocks_throttle_reasons.display_clocks_setting yes
clocks_event_reasons/clocks_event_reason_unknown - none
clocks_event_reasons_counters/clocks_event_reasons_counters_sw_power_cap clocks_throttle_reasons.counters.sw_power_cap_us us
clocks_event_reasons_counters/clocks_event_reasons_counters_sync_boost clocks_throttle_reasons.counters.sync_boost_us us
clocks_event_reasons_counters/clocks_event_reasons_counters_sw_therm_slowdown clocks_throttle_reasons.counters.sw_thermal_slowdown_us us
clocks_event_reasons_counters/clocks_event_reasons_counters_hw_therm_slowdown clocks_throttle_reasons.counters.hw_thermal_slowdown_us us
clocks_event_reasons_counters/clocks_event_reasons_counters_hw_power_brake clocks_throttle_reasons.counters.hw_power_brake_slowdown_us us
performance_state performance_state text
fan_speed fan.speed_percent %
utilization/gpu_util utilization.gpu %
utilization/memory_util utilization.memory %
utilization/encoder_util utilization.encoder %
utilization/decoder_util utilization.decoder %
utilization/jpeg_util utilization.jpeg %
utilization/ofa_util utilization.ofa %
encoder_stats/session_count encoder_stats.session_count count
encoder_stats/average_fps encoder_stats.average_fps count
encoder_stats/average_latency encoder_stats.average_latency_us count
fbc_stats/session_count fbc_stats.session_count count
fbc_stats/average_fps fbc_stats.average_fps count
fbc_stats/average_latency fbc_stats.average_latency_us count
accounting_mode accounting.mode mode
accounting_mode_buffer_size accounting.buffer_size count
ecc_mode/current_ecc ecc.mode_current mode
ecc_mode/pending_ecc ecc.mode_pending mode
ecc_errors/aggregate/sram_threshold_exceeded ecc.sram.threshold_exceeded yes
ecc_errors/aggregate_uncorrectable_sram_sources/sram_l2 ecc.sram.uncorrectable_sources.l2 count
ecc_errors/aggregate_uncorrectable_sram_sources/sram_sm ecc.sram.uncorrectable_sources.sm count
ecc_errors/aggregate_uncorrectable_sram_sources/sram_microcontroller ecc.sram.uncorrectable_sources.microcontroller count
ecc_errors/aggregate_uncorrectable_sram_sources/sram_pcie ecc.sram.uncorrectable_sources.pcie count
ecc_errors/aggregate_uncorrectable_sram_sources/sram_other ecc.sram.uncorrectable_sources.other count
ecc_errors/channel_repair_pending ecc.channel_repair_pending yes
ecc_errors/tpc_repair_pending ecc.tpc_repair_pending yes
ecc_errors/unrepairable_memory ecc.unrepairable_memory yes
retired_pages/multiple_single_bit_retirement/retired_count retired_pages.single_bit_retirement.count count
retired_pages/double_bit_retirement/retired_count retired_pages.double_bit_retirement.count count
retired_pages/multiple_single_bit_retirement/retired_pagelist - -
retired_pages/double_bit_retirement/retired_pagelist - -
retired_pages/pending_blacklist retired_pages.pending_blacklist yes
retired_pages/pending_retirement retired_pages.pending_retirement yes
remapped_rows/remapped_row_corr remapped_rows.correctable count
remapped_rows/remapped_row_unc remapped_rows.uncorrectable count
remapped_rows/remapped_row_corr_inactive remapped_rows.correctable_inactive count
remapped_rows/remapped_row_unc_inactive remapped_rows.uncorrectable_inactive count
remapped_rows/remapped_row_pending remapped_rows.pending yes
remapped_rows/remapped_row_failure remapped_rows.failure_occurred yes
remapped_rows/row_remapper_histogram/row_remapper_histogram_max remapped_rows.availability_histogram.max bank(s)
remapped_rows/row_remapper_histogram/row_remapper_histogram_high remapped_rows.availability_histogram.high bank(s)
remapped_rows/row_remapper_histogram/row_remapper_histogram_partial remapped_rows.availability_histogram.partial bank(s)
remapped_rows/row_remapper_histogram/row_remapper_histogram_low remapped_rows.availability_histogram.low bank(s)
remapped_rows/row_remapper_histogram/row_remapper_histogram_none remapped_rows.availability_histogram.none bank(s)
remapped_rows - -
display_mode display.mode mode
display_active display.active mode
display_attached display.attached yes
persistence_mode persistence_mode mode
compute_mode compute_mode word
mig_mode/current_mig mig.mode_current mode
mig_mode/pending_mig mig.mode_pending mode
mig_devices - -
gpu_operation_mode/current_gom gpu_operation_mode.current word
gpu_operation_mode/pending_gom gpu_operation_mode.pending word
driver_model/current_dm driver_model.current word
driver_model/pending_dm driver_model.pending word
gpu_virtualization_mode/virtualization_mode virtualization.mode word
gpu_virtualization_mode/host_vgpu_mode virtualization.host_vgpu_mode word
gpu_virtualization_mode/vgpu_heterogeneous_mode - none
vgpu_software_licensed_product/licensed_product_name - none
vgpu_software_licensed_product/license_status - none
c2c_mode c2c_mode mode
sparse_operation_mode sparse_operation_mode mode
capabilities/egm egm mode
gpu_reset_status/reset_required reset_status.required yes
gpu_reset_status/drain_and_reset_recommended reset_status.drain_and_reset yes
ibmnpu/relaxed_ordering_mode - none
voltage/graphics_volt voltage.graphics_uv mV
fabric/state fabric.state word
fabric/status - -
fabric/cliqueId fabric.clique_id count
fabric/health/summary fabric.health_summary word
fabric/health/route_recovery_in_progress fabric.health.route_recovery yes
fabric/health/route_unhealthy fabric.health.route_unhealthy yes
fabric/health/access_timeout_recovery fabric.health.access_timeout_recovery yes
fabric/health/partition_assigned - none
platformInfo/slot_number platform.slot_number count
platformInfo/tray_index platform.tray_index count
platformInfo/host_id platform.host_id count
platformInfo/peer_type platform.peer_type word
platformInfo/module_id platform.module_id count
gpu_module_id platform.module_id count
power_profiles/power_profile_requested_profiles - none
power_profiles/power_profile_enforced_profiles - none
supported_clocks - -
processes - -
accounted_processes - -
`

// rule is a row of the table.
type rule struct {
	element, key, kind string
}

var rules = func() (list []rule) {
	add := func(element, key, kind string) {
		list = append(list, rule{element, key, kind})
	}
	for line := range strings.Lines(ruleTable) {
		if f := strings.Fields(line); len(f) == 3 {
			add(f[0], f[1], f[2])
		}
	}
	for _, span := range []string{"volatile", "aggregate"} {
		for _, bits := range []string{"single_bit", "double_bit"} {
			for _, place := range []string{"device_memory", "register_file", "l1_cache", "l2_cache", "texture_memory", "texture_shm", "cbu", "total"} {
				add("ecc_errors/"+span+"/"+bits+"/"+place, "ecc.errors."+span+"."+bits+"."+place, "count")
			}
		}
		add("ecc_errors/"+span+"/dram_correctable", "ecc.errors."+span+".single_bit.device_memory", "count")
		add("ecc_errors/"+span+"/dram_uncorrectable", "ecc.errors."+span+".double_bit.device_memory", "count")
		add("ecc_errors/"+span+"/sram_uncorrectable", "ecc.errors."+span+".double_bit.sram", "count")
		add("ecc_errors/"+span+"/sram_uncorrectable_parity", "ecc.sram."+span+".uncorrectable_parity", "count")
		add("ecc_errors/"+span+"/sram_uncorrectable_secded", "ecc.sram."+span+".uncorrectable_secded", "count")
	}
	return list
}()

// isAbsent says whether a value says that there is none.
func isAbsent(value string) bool {
	if strings.HasPrefix(strings.ToLower(value), "not available") { // in WDDM driver model
		return true
	}
	switch strings.Trim(value, "[]") {
	case "N/A", "", "None", "Not Supported", "Not Found", "Unknown", "Requested functionality has been deprecated":
		return true
	}
	return false
}

// failures are what nvidia-smi prints where a function fails.
var failures = []string{"Unknown Error", "GPU requires reset", "GPU is lost", "Insufficient Permissions", "ERR!"}

// redacted is a value that somebody has taken out.
var redacted = regexp.MustCompile(`(?i)redact|removed|masked|^[\[<(].*[\])>]$|^[x*#?-]{2,}$|^GPU-[x*-]+$|^(?:0x)?x{2,}$`)

func fails(value string) bool {
	for _, f := range failures {
		if strings.Contains(value, f) {
			return true
		}
	}
	return false
}

// convert writes a value as a profile does; ok is false if it is not of that kind.
func convert(value, kind string) (text string, ok bool) {
	number := func(digits string, scale, most float64) (string, bool) {
		digits = strings.TrimSpace(digits)
		x, err := strconv.ParseFloat(digits, 64)
		if err != nil || strings.ContainsAny(digits, "xXpPeE_nNiI+") || x*scale > most || x < -1000 {
			return "", false
		}
		return strconv.FormatFloat(x*scale, 'f', 0, 64), true
	}
	unit := func(suffix string, scale float64) (string, bool) {
		digits, ok := strings.CutSuffix(value, suffix)
		if !ok || strings.HasPrefix(digits, "-") && suffix != " C" {
			return "", false
		}
		return number(digits, scale, 1<<62)
	}
	switch kind {
	case "text", "word":
		return value, value != ""
	case "mode":
		v := strings.ToLower(value)
		return v, v == "enabled" || v == "disabled"
	case "yes":
		switch value {
		case "Yes", "Active", "True":
			return "true", true
		case "No", "Not Active", "False":
			return "false", true
		}
		return "", false
	case "count":
		digits := strings.TrimSpace(value)
		if n, err := strconv.ParseUint(digits, 0, 64); err == nil && !strings.ContainsRune(digits, '_') {
			return strconv.FormatUint(n, 10), true
		}
		return "", false
	case "hex":
		digits := strings.TrimPrefix(strings.TrimPrefix(value, "0x"), "0X")
		n, err := strconv.ParseUint(digits, 16, 64)
		return fmt.Sprintf("0x%08X", n), err == nil
	case "x":
		digits, ok := strings.CutSuffix(value, "x")
		if !ok {
			return "", false
		}
		return convert(digits, "count")
	case "MiB":
		return unit(" MiB", 1<<20)
	case "W":
		return unit(" W", 1000)
	case "mV":
		return unit(" mV", 1000)
	default:
		return unit(" "+kind, 1)
	}
}

// moment reads a time without a zone, which is taken for UTC, in µs since 1970.
func moment(value string) (string, bool) {
	t, err := time.Parse("2006/01/02 15:04:05.000", value)
	return strconv.FormatInt(t.UnixMicro(), 10), err == nil
}

// atomics are the names of NVML's bits for PCIe atomics.
var atomics = []string{"FETCHADD_32", "FETCHADD_64", "SWAP_32", "SWAP_64", "CAS_32", "CAS_64"}

func atomicBits(value string) (string, bool) {
	bits := 0
	for _, name := range strings.FieldsFunc(value, func(c rune) bool { return c == ' ' || c == ',' }) {
		known := false
		for i, a := range atomics {
			if a == name {
				bits |= 1 << i
				known = true
			}
		}
		if !known {
			return "", false
		}
	}
	return fmt.Sprintf("%#x", bits), bits != 0
}

// boardID is the number that NVML gives a board at a bus id, which nvidia-smi prints where the profile says nothing.
func boardID(id profiles.BusID) uint64 {
	return uint64(id.Domain)<<16 | uint64(id.Bus)<<8 | uint64(id.Device)
}
