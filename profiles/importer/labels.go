package importer

import "strings"

// labelTable has the names that nvidia-smi -q prints, by section, and after each the element of -q -x that is the same.
const labelTable = `
product name = product_name
product brand = product_brand
product architecture = product_architecture
display mode = display_mode
display attached = display_attached
display active = display_active
persistence mode = persistence_mode
addressing mode = addressing_mode
mig mode/current = mig_mode/current_mig
mig mode/pending = mig_mode/pending_mig
accounting mode = accounting_mode
accounting mode buffer size = accounting_mode_buffer_size
driver model/current = driver_model/current_dm
driver model/pending = driver_model/pending_dm
serial number = serial
gpu uuid = uuid
gpu pdi = pdi
minor number = minor_number
vbios version = vbios_version
multigpu board = multigpu_board
board id = board_id
board part number = board_part_number
gpu part number = gpu_part_number
fru part number = gpu_fru_part_number
module id = gpu_module_id
platform info/chassis serial number = platformInfo/chassis_serial_number
platform info/slot number = platformInfo/slot_number
platform info/tray index = platformInfo/tray_index
platform info/host id = platformInfo/host_id
platform info/peer type = platformInfo/peer_type
platform info/module id = platformInfo/module_id
platform info/gpu fabric guid = platformInfo/gpu_fabric_guid
inforom version/image version = inforom_version/img_version
inforom version/oem object = inforom_version/oem_object
inforom version/ecc object = inforom_version/ecc_object
inforom version/power management object = inforom_version/pwr_object
inforom bbx object flush/latest timestamp = inforom_bbx_flush/latest_timestamp
inforom bbx object flush/latest duration = inforom_bbx_flush/latest_duration
inforom time data/time run = inforom_time_data/time_run
gpu operation mode/current = gpu_operation_mode/current_gom
gpu operation mode/pending = gpu_operation_mode/pending_gom
gpu c2c mode = c2c_mode
gpu virtualization mode/virtualization mode = gpu_virtualization_mode/virtualization_mode
gpu virtualization mode/host vgpu mode = gpu_virtualization_mode/host_vgpu_mode
gpu virtualization mode/vgpu heterogeneous mode = gpu_virtualization_mode/vgpu_heterogeneous_mode
vgpu software licensed product/product name = vgpu_software_licensed_product/licensed_product_name
vgpu software licensed product/license status = vgpu_software_licensed_product/license_status
grid licensed product/product name = vgpu_software_licensed_product/licensed_product_name
grid licensed product/license status = vgpu_software_licensed_product/license_status
gpu recovery action = gpu_recovery_action
gsp firmware version = gsp_firmware_version
gpu reset status/reset required = gpu_reset_status/reset_required
gpu reset status/drain and reset recommended = gpu_reset_status/drain_and_reset_recommended
ibmnpu/relaxed ordering mode = ibmnpu/relaxed_ordering_mode
pci/bus = pci/pci_bus
pci/device = pci/pci_device
pci/domain = pci/pci_domain
pci/base classcode = pci/pci_base_class
pci/sub classcode = pci/pci_sub_class
pci/device id = pci/pci_device_id
pci/bus id = pci/pci_bus_id
pci/sub system id = pci/pci_sub_system_id
pci/gpu link info/pcie generation/max = pci/pci_gpu_link_info/pcie_gen/max_link_gen
pci/gpu link info/pcie generation/current = pci/pci_gpu_link_info/pcie_gen/current_link_gen
pci/gpu link info/pcie generation/device current = pci/pci_gpu_link_info/pcie_gen/device_current_link_gen
pci/gpu link info/pcie generation/device max = pci/pci_gpu_link_info/pcie_gen/max_device_link_gen
pci/gpu link info/pcie generation/host max = pci/pci_gpu_link_info/pcie_gen/max_host_link_gen
pci/gpu link info/link width/max = pci/pci_gpu_link_info/link_widths/max_link_width
pci/gpu link info/link width/current = pci/pci_gpu_link_info/link_widths/current_link_width
pci/bridge chip/type = pci/pci_bridge_chip/bridge_chip_type
pci/bridge chip/firmware = pci/pci_bridge_chip/bridge_chip_fw
pci/replays since reset = pci/replay_counter
pci/replay number rollovers = pci/replay_rollover_counter
pci/tx throughput = pci/tx_util
pci/rx throughput = pci/rx_util
pci/atomic caps inbound = pci/atomic_caps_inbound
pci/atomic caps outbound = pci/atomic_caps_outbound
fan speed = fan_speed
performance state = performance_state
clocks event reasons/idle = clocks_event_reasons/clocks_event_reason_gpu_idle
clocks event reasons/applications clocks setting = clocks_event_reasons/clocks_event_reason_applications_clocks_setting
clocks event reasons/sw power cap = clocks_event_reasons/clocks_event_reason_sw_power_cap
clocks event reasons/hw slowdown = clocks_event_reasons/clocks_event_reason_hw_slowdown
clocks event reasons/hw slowdown/hw thermal slowdown = clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown
clocks event reasons/hw slowdown/hw power brake slowdown = clocks_event_reasons/clocks_event_reason_hw_power_brake_slowdown
clocks event reasons/sync boost = clocks_event_reasons/clocks_event_reason_sync_boost
clocks event reasons/sw thermal slowdown = clocks_event_reasons/clocks_event_reason_sw_thermal_slowdown
clocks event reasons/display clock setting = clocks_event_reasons/clocks_event_reason_display_clocks_setting
clocks event reasons/unknown = clocks_event_reasons/clocks_event_reason_unknown
clocks event reasons counters/sw power capping = clocks_event_reasons_counters/clocks_event_reasons_counters_sw_power_cap
clocks event reasons counters/sync boost = clocks_event_reasons_counters/clocks_event_reasons_counters_sync_boost
clocks event reasons counters/sw thermal slowdown = clocks_event_reasons_counters/clocks_event_reasons_counters_sw_therm_slowdown
clocks event reasons counters/hw thermal slowdown = clocks_event_reasons_counters/clocks_event_reasons_counters_hw_therm_slowdown
clocks event reasons counters/hw power braking = clocks_event_reasons_counters/clocks_event_reasons_counters_hw_power_brake
sparse operation mode = sparse_operation_mode
fb memory usage/total = fb_memory_usage/total
fb memory usage/reserved = fb_memory_usage/reserved
fb memory usage/used = fb_memory_usage/used
fb memory usage/free = fb_memory_usage/free
bar1 memory usage/total = bar1_memory_usage/total
bar1 memory usage/used = bar1_memory_usage/used
bar1 memory usage/free = bar1_memory_usage/free
conf compute protected memory usage/total = cc_protected_memory_usage/total
conf compute protected memory usage/used = cc_protected_memory_usage/used
conf compute protected memory usage/free = cc_protected_memory_usage/free
compute mode = compute_mode
utilization/gpu = utilization/gpu_util
utilization/memory = utilization/memory_util
utilization/encoder = utilization/encoder_util
utilization/decoder = utilization/decoder_util
utilization/jpeg = utilization/jpeg_util
utilization/ofa = utilization/ofa_util
encoder stats/active sessions = encoder_stats/session_count
encoder stats/average fps = encoder_stats/average_fps
encoder stats/average latency = encoder_stats/average_latency
fbc stats/active sessions = fbc_stats/session_count
fbc stats/average fps = fbc_stats/average_fps
fbc stats/average latency = fbc_stats/average_latency
dram encryption mode/current = dram_encryption_mode/current_dram_encryption
dram encryption mode/pending = dram_encryption_mode/pending_dram_encryption
ecc mode/current = ecc_mode/current_ecc
ecc mode/pending = ecc_mode/pending_ecc
ecc errors/aggregate uncorrectable sram sources/sram l2 = ecc_errors/aggregate_uncorrectable_sram_sources/sram_l2
ecc errors/aggregate uncorrectable sram sources/sram sm = ecc_errors/aggregate_uncorrectable_sram_sources/sram_sm
ecc errors/aggregate uncorrectable sram sources/sram microcontroller = ecc_errors/aggregate_uncorrectable_sram_sources/sram_microcontroller
ecc errors/aggregate uncorrectable sram sources/sram pcie = ecc_errors/aggregate_uncorrectable_sram_sources/sram_pcie
ecc errors/aggregate uncorrectable sram sources/sram other = ecc_errors/aggregate_uncorrectable_sram_sources/sram_other
ecc errors/channel repair pending = ecc_errors/channel_repair_pending
ecc errors/tpc repair pending = ecc_errors/tpc_repair_pending
ecc errors/unrepairable memory = ecc_errors/unrepairable_memory
retired pages/single bit ecc = retired_pages/multiple_single_bit_retirement/retired_count
retired pages/double bit ecc = retired_pages/double_bit_retirement/retired_count
retired pages/pending = retired_pages/pending_retirement
retired pages/pending page blacklist = retired_pages/pending_blacklist
remapped rows/correctable error = remapped_rows/remapped_row_corr
remapped rows/uncorrectable error = remapped_rows/remapped_row_unc
remapped rows/inactive correctable error = remapped_rows/remapped_row_corr_inactive
remapped rows/inactive uncorrectable error = remapped_rows/remapped_row_unc_inactive
remapped rows/pending = remapped_rows/remapped_row_pending
remapped rows/remapping failure occurred = remapped_rows/remapped_row_failure
remapped rows/bank remap availability histogram/max = remapped_rows/row_remapper_histogram/row_remapper_histogram_max
remapped rows/bank remap availability histogram/high = remapped_rows/row_remapper_histogram/row_remapper_histogram_high
remapped rows/bank remap availability histogram/partial = remapped_rows/row_remapper_histogram/row_remapper_histogram_partial
remapped rows/bank remap availability histogram/low = remapped_rows/row_remapper_histogram/row_remapper_histogram_low
remapped rows/bank remap availability histogram/none = remapped_rows/row_remapper_histogram/row_remapper_histogram_none
temperature/gpu current temp = temperature/gpu_temp
temperature/gpu current t.limit temp = temperature/gpu_temp_tlimit
temperature/gpu t.limit temp = temperature/gpu_temp_tlimit
temperature/gpu shutdown temp = temperature/gpu_temp_max_threshold
temperature/gpu slowdown temp = temperature/gpu_temp_slow_threshold
temperature/gpu max operating temp = temperature/gpu_temp_max_gpu_threshold
temperature/gpu shutdown t.limit temp = temperature/gpu_temp_max_tlimit_threshold
temperature/gpu slowdown t.limit temp = temperature/gpu_temp_slow_tlimit_threshold
temperature/gpu max operating t.limit temp = temperature/gpu_temp_max_gpu_tlimit_threshold
temperature/gpu target temperature = temperature/gpu_target_temperature
temperature/gpu target temperature specification = temperature/gpu_target_temperature
temperature/memory current temp = temperature/memory_temp
temperature/memory max operating temp = temperature/gpu_temp_max_mem_threshold
temperature/memory max operating t.limit temp = temperature/gpu_temp_max_mem_tlimit_threshold
supported gpu target temp/gpu target temp min = supported_gpu_target_temp/gpu_target_temp_min
supported gpu target temp/gpu target temp max = supported_gpu_target_temp/gpu_target_temp_max
power readings/power management = power_readings/power_management
power readings/power state = power_readings/power_state
power readings/power draw = power_readings/power_draw
power readings/power limit = power_readings/power_limit
power readings/enforced power limit = power_readings/enforced_power_limit
power readings/default power limit = power_readings/default_power_limit
power readings/min power limit = power_readings/min_power_limit
power readings/max power limit = power_readings/max_power_limit
gpu power readings/gpu ceiling power limit/current power limit = gpu_power_readings/current_power_limit
gpu power readings/gpu ceiling power limit/requested power limit = gpu_power_readings/requested_power_limit
gpu power readings/gpu ceiling power limit/default power limit = gpu_power_readings/default_power_limit
gpu power readings/gpu ceiling power limit/min power limit = gpu_power_readings/min_power_limit
gpu power readings/gpu ceiling power limit/max power limit = gpu_power_readings/max_power_limit
gpu power readings/gpu base power/current base power = gpu_power_readings/gpu_base_power/current_base_power
gpu power readings/gpu base power/requested base power = gpu_power_readings/gpu_base_power/requested_base_power
gpu power readings/gpu base power/default base power = gpu_power_readings/gpu_base_power/default_base_power
gpu power readings/gpu base power/min base power = gpu_power_readings/gpu_base_power/min_base_power
gpu power readings/gpu base power/max base power = gpu_power_readings/gpu_base_power/max_base_power
power smoothing = power_smoothing
workload power profiles/requested profiles = power_profiles/power_profile_requested_profiles
workload power profiles/enforced profiles = power_profiles/power_profile_enforced_profiles
edpp multiplier = edpp_multiplier
clocks/graphics = clocks/graphics_clock
clocks/sm = clocks/sm_clock
clocks/memory = clocks/mem_clock
clocks/video = clocks/video_clock
applications clocks/graphics = applications_clocks/graphics_clock
applications clocks/memory = applications_clocks/mem_clock
default applications clocks/graphics = default_applications_clocks/graphics_clock
default applications clocks/memory = default_applications_clocks/mem_clock
deferred clocks/memory = deferred_clocks/mem_clock
max clocks/graphics = max_clocks/graphics_clock
max clocks/sm = max_clocks/sm_clock
max clocks/memory = max_clocks/mem_clock
max clocks/video = max_clocks/video_clock
max customer boost clocks/graphics = max_customer_boost_clocks/graphics_clock
clock policy/auto boost = clock_policy/auto_boost
clock policy/auto boost default = clock_policy/auto_boost_default
voltage/graphics = voltage/graphics_volt
fabric/state = fabric/state
fabric/status = fabric/status
fabric/cliqueid = fabric/cliqueId
fabric/clusteruuid = fabric/clusterUuid
fabric/health/summary = fabric/health/summary
fabric/health/bandwidth = fabric/health/bandwidth
fabric/health/route recovery in progress = fabric/health/route_recovery_in_progress
fabric/health/route unhealthy = fabric/health/route_unhealthy
fabric/health/access timeout recovery = fabric/health/access_timeout_recovery
fabric/health/incorrect configuration = fabric/health/incorrect_configuration
fabric/health/partition assigned = fabric/health/partition_assigned
capabilities/egm = capabilities/egm
`

// instanceTable is the same for a MIG device.
const instanceTable = `
index = index
gpu instance id = gpu_instance_id
compute instance id = compute_instance_id
device attributes/shared/multiprocessor count = device_attributes/shared/multiprocessor_count
device attributes/shared/copy engine count = device_attributes/shared/copy_engine_count
device attributes/shared/encoder count = device_attributes/shared/encoder_count
device attributes/shared/decoder count = device_attributes/shared/decoder_count
device attributes/shared/ofa count = device_attributes/shared/ofa_count
device attributes/shared/jpg count = device_attributes/shared/jpg_count
ecc errors/volatile/sram uncorrectable = ecc_error_count/volatile_count/sram_uncorrectable
fb memory usage/total = fb_memory_usage/total
fb memory usage/reserved = fb_memory_usage/reserved
fb memory usage/used = fb_memory_usage/used
fb memory usage/free = fb_memory_usage/free
shared fb memory usage/total = fb_memory_usage/total
shared fb memory usage/reserved = fb_memory_usage/reserved
shared fb memory usage/used = fb_memory_usage/used
shared fb memory usage/free = fb_memory_usage/free
bar1 memory usage/total = bar1_memory_usage/total
bar1 memory usage/used = bar1_memory_usage/used
bar1 memory usage/free = bar1_memory_usage/free
shared bar1 memory/total = bar1_memory_usage/total
shared bar1 memory/used = bar1_memory_usage/used
shared bar1 memory/free = bar1_memory_usage/free
shared bar1 memory usage/total = bar1_memory_usage/total
shared bar1 memory usage/used = bar1_memory_usage/used
shared bar1 memory usage/free = bar1_memory_usage/free
`

// labels are the tables, with the parts that repeat written out.
var labels = func() (t struct {
	leaves, instance map[string]string
	sections         map[string]bool
}) {
	t.leaves, t.instance, t.sections = map[string]string{}, map[string]string{}, map[string]bool{}
	put := func(to map[string]string, label, element string) {
		to[label] = element
		for parent := label; strings.Contains(parent, "/"); {
			parent = parent[:strings.LastIndex(parent, "/")]
			t.sections[parent] = true
		}
	}
	read := func(to map[string]string, text string) {
		for line := range strings.Lines(text) {
			if label, element, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
				put(to, label, element)
			}
		}
	}
	read(t.leaves, labelTable)
	for label, element := range t.leaves {
		if rest, ok := strings.CutPrefix(label, "clocks event reasons/"); ok {
			put(t.leaves, "clocks throttle reasons/"+rest, element)
		}
	}
	for _, section := range []string{"gpu power readings", "gpu memory power readings", "module power readings"} {
		element := strings.ReplaceAll(section, " ", "_") + "/"
		for label, name := range map[string]string{
			"average power draw": "average_power_draw", "instantaneous power draw": "instant_power_draw", "power draw": "power_draw",
			"power state": "power_state", "current power limit": "current_power_limit",
			"requested power limit": "requested_power_limit", "default power limit": "default_power_limit",
			"min power limit": "min_power_limit", "max power limit": "max_power_limit",
		} {
			put(t.leaves, section+"/"+label, element+name)
		}
	}
	for _, span := range []string{"volatile", "aggregate"} {
		for _, name := range []string{"sram correctable", "sram uncorrectable", "dram correctable", "dram uncorrectable", "sram threshold exceeded"} {
			put(t.leaves, "ecc errors/"+span+"/"+name, "ecc_errors/"+span+"/"+strings.ReplaceAll(name, " ", "_"))
		}
		put(t.leaves, "ecc errors/"+span+"/sram uncorrectable parity", "ecc_errors/"+span+"/sram_uncorrectable_parity")
		put(t.leaves, "ecc errors/"+span+"/sram uncorrectable sec-ded", "ecc_errors/"+span+"/sram_uncorrectable_secded")
		for _, bits := range []string{"single bit", "double bit"} {
			for label, name := range map[string]string{
				"device memory": "device_memory", "register file": "register_file", "l1 cache": "l1_cache", "l2 cache": "l2_cache",
				"texture memory": "texture_memory", "texture shared": "texture_shm", "cbu": "cbu", "total": "total",
			} {
				put(t.leaves, "ecc errors/"+span+"/"+bits+"/"+label, "ecc_errors/"+span+"/"+strings.ReplaceAll(bits, " ", "_")+"/"+name)
			}
		}
	}
	read(t.instance, instanceTable)
	t.sections["mig device"], t.sections["processes"], t.sections["compute processes"] = true, true, true
	t.sections["accounted processes"], t.sections["vgpu driver capability"] = true, true
	t.sections["remapped rows"], t.sections["supported clocks"] = true, true
	return t
}()
