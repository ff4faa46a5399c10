package capture

import (
	"fmt"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles/words"
)

// row says which answer a key of a GPU is made of.
type row struct {
	key      string
	function string // the function, or the name of a field of nvmlDeviceGetFieldValues
	args     string
	path     string // of the value in the answer
	as       form
}

// form is how a value is written.
type form struct {
	names   map[uint64]string // by number
	signed  bool              // a number of 32 bits with a sign
	divide  uint64            // the unit of the answer is so many times smaller
	not     []uint64          // numbers that mean that there is nothing
	private bool              // identifies the machine
	hex     bool
}

var (
	plain  = form{}
	signed = form{signed: true}
	yes    = form{names: map[uint64]string{0: "false", 1: "true"}}
	mode   = form{names: map[uint64]string{0: "disabled", 1: "enabled"}}
	inHex  = form{hex: true}
	known  = form{not: []uint64{0xff}}
	pstate = form{names: map[uint64]string{
		0: "P0", 1: "P1", 2: "P2", 3: "P3", 4: "P4", 5: "P5", 6: "P6", 7: "P7", 8: "P8", 9: "P9", 10: "P10", 11: "P11", 12: "P12", 13: "P13",
		14: "P14", 15: "P15",
	}}
)

// named is the form of a number that profiles have a word for: of several, the first one.
func named[N ~uint8 | ~uint32 | ~int32](all words.Table[string, N]) form {
	f := form{names: map[uint64]string{}}
	for _, w := range all {
		if _, known := f.names[uint64(w.Value)]; !known {
			f.names[uint64(w.Value)] = w.Key
		}
	}
	return f
}

// field is the name of a field of nvmlDeviceGetFieldValues, by its number in the newest version.
func field(id uint32) string { return fmt.Sprintf("field %d", id) }

// rows are the keys that one answer gives. Of several rows of a key, the first that has a value gives it.
var rows = []row{
	{"name", "nvmlDeviceGetName", "", "name", plain},
	{"brand", "nvmlDeviceGetBrand", "", "type", named(words.Brands)},
	{"architecture", "nvmlDeviceGetArchitecture", "", "arch", named(words.Architectures)},
	{"compute_capability.major", "nvmlDeviceGetCudaComputeCapability", "", "major", plain},
	{"compute_capability.minor", "nvmlDeviceGetCudaComputeCapability", "", "minor", plain},
	{"num_gpu_cores", "nvmlDeviceGetNumGpuCores", "", "numCores", plain},
	{"board_part_number", "nvmlDeviceGetBoardPartNumber", "", "partNumber", plain},
	{"gpu_part_number", "nvmlInternalSlot231", "", "partNumber", plain},
	{"multi_gpu_board", "nvmlDeviceGetMultiGpuBoard", "", "multiGpuBool", yes},
	{"vbios_version", "nvmlDeviceGetVbiosVersion", "", "version", plain},
	{"hostname", "nvmlDeviceGetHostname_v1", "", "hostname.value", form{private: true}},
	{"irq", "nvmlDeviceGetIrqNum", "", "irqNum", plain},
	{"addressing_mode", "nvmlDeviceGetAddressingMode", "", "mode.value", named(words.AddressingModes)},
	{"addressing_mode", "nvmlInternalSlot242", "", "mode", named(words.AddressingModes)},
	{"recovery_action", field(abi.FI_DEV_GET_GPU_RECOVERY_ACTION), "0", "value", named(words.RecoveryActions)},
	{"reset_status.required", field(abi.FI_DEV_RESET_STATUS), "0", "value", yes},
	{"reset_status.drain_and_reset", field(abi.FI_DEV_DRAIN_AND_RESET_STATUS), "0", "value", yes},

	{"inforom.image_version", "nvmlDeviceGetInforomImageVersion", "", "version", plain},
	{"inforom.oem_object", "nvmlDeviceGetInforomVersion", "object 0", "version", plain},
	{"inforom.ecc_object", "nvmlDeviceGetInforomVersion", "object 1", "version", plain},
	{"inforom.pwr_object", "nvmlDeviceGetInforomVersion", "object 2", "version", plain},
	{"inforom.checksum", "nvmlDeviceGetInforomConfigurationChecksum", "", "checksum", plain},
	{"inforom.bbx_flush_timestamp_us", "nvmlDeviceGetLastBBXFlushTime", "", "timestamp", plain},
	{"inforom.bbx_flush_duration_us", "nvmlDeviceGetLastBBXFlushTime", "", "durationUs", plain},
	{"gsp_firmware.mode", "nvmlDeviceGetGspFirmwareMode", "", "isEnabled", mode},
	{"gsp_firmware.version", "nvmlDeviceGetGspFirmwareVersion", "", "version", plain},

	{"memory.memory_bus_width", "nvmlDeviceGetMemoryBusWidth", "", "busWidth", plain},
	{"memory.encryption_current", "nvmlDeviceGetDramEncryptionMode", "", "current.encryptionState", mode},
	{"memory.encryption_pending", "nvmlDeviceGetDramEncryptionMode", "", "pending.encryptionState", mode},
	{"memory.numa_node", "nvmlDeviceGetNumaNodeId", "", "node", plain},
	{"egm", "nvmlDeviceGetCapabilities", "", "caps.capMask", mode},

	{"pci.device_id", "nvmlDeviceGetPciInfo_v3", "", "pci.pciDeviceId", inHex},
	{"pci.subsystem_id", "nvmlDeviceGetPciInfo_v3", "", "pci.pciSubSystemId", inHex},
	{"pci.base_class", "nvmlDeviceGetPciInfoExt", "", "pci.baseClass", plain},
	{"pci.sub_class", "nvmlDeviceGetPciInfoExt", "", "pci.subClass", plain},
	{"pcie.max_link_gen", "nvmlDeviceGetMaxPcieLinkGeneration", "", "maxLinkGen", plain},
	{"pcie.current_link_gen", "nvmlDeviceGetCurrPcieLinkGeneration", "", "currLinkGen", plain},
	{"pcie.max_device_link_gen", "nvmlDeviceGetGpuMaxPcieLinkGeneration", "", "maxLinkGenDevice", plain},
	{"pcie.max_host_link_gen", "nvmlInternalSlot230", "", "generation", plain},
	{"pcie.max_link_width", "nvmlDeviceGetMaxPcieLinkWidth", "", "maxLinkWidth", plain},
	{"pcie.current_link_width", "nvmlDeviceGetCurrPcieLinkWidth", "", "currLinkWidth", plain},
	{"pcie.replay_counter", "nvmlDeviceGetPcieReplayCounter", "", "value", plain},
	{"pcie.replay_rollover_counter", field(abi.FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER), "0", "value", plain},
	{"pcie.tx_throughput_kbps", "nvmlDeviceGetPcieThroughput", "counter 0", "value", plain},
	{"pcie.rx_throughput_kbps", "nvmlDeviceGetPcieThroughput", "counter 1", "value", plain},
	{"pcie.atomic_caps_outbound", field(abi.FI_DEV_PCIE_OUTBOUND_ATOMICS_MASK), "0", "value", plain},
	{"pcie.atomic_caps_inbound", field(abi.FI_DEV_PCIE_INBOUND_ATOMICS_MASK), "0", "value", plain},

	{"power.management_mode", "nvmlDeviceGetPowerManagementMode", "", "mode", mode},
	{"power.default_limit_mw", "nvmlDeviceGetPowerManagementDefaultLimit", "", "defaultLimit", plain},
	{"power.enforced_limit_mw", "nvmlDeviceGetEnforcedPowerLimit", "", "limit", plain},
	{"power.min_limit_mw", "nvmlDeviceGetPowerManagementLimitConstraints", "", "minLimit", plain},
	{"power.min_limit_mw", field(abi.FI_DEV_POWER_MIN_LIMIT), "0", "value", plain},
	{"power.max_limit_mw", "nvmlDeviceGetPowerManagementLimitConstraints", "", "maxLimit", plain},
	{"power.max_limit_mw", field(abi.FI_DEV_POWER_MAX_LIMIT), "0", "value", plain},
	{"power.current_draw_mw", field(abi.FI_DEV_POWER_INSTANT), "0", "value", plain},
	{"power.current_draw_mw", "nvmlDeviceGetPowerUsage", "", "power", plain},
	{"power.average_draw_mw", field(abi.FI_DEV_POWER_AVERAGE), "0", "value", plain},
	{"power.power_state", "nvmlDeviceGetPowerState", "", "pState", pstate},
	{"power.total_energy_consumption_mj", "nvmlDeviceGetTotalEnergyConsumption", "", "energy", plain},
	{"power.source", "nvmlDeviceGetPowerSource", "", "powerSource", named(words.PowerSources)},
	{"power.smoothing", field(abi.FI_PWR_SMOOTHING_ENABLED), "0", "value", mode},
	{"voltage.graphics_uv", "nvmlInternalSlot209", "", "voltage", plain},
	{"memory_power.current_draw_mw", field(abi.FI_DEV_POWER_INSTANT), "2", "value", plain},
	{"memory_power.average_draw_mw", field(abi.FI_DEV_POWER_AVERAGE), "2", "value", plain},
	{"module_power.current_draw_mw", field(abi.FI_DEV_POWER_INSTANT), "1", "value", plain},
	{"module_power.average_draw_mw", field(abi.FI_DEV_POWER_AVERAGE), "1", "value", plain},
	{"module_power.default_limit_mw", field(abi.FI_DEV_POWER_DEFAULT_LIMIT), "1", "value", plain},
	{"module_power.requested_limit_mw", field(abi.FI_DEV_POWER_REQUESTED_LIMIT), "1", "value", plain},
	{"module_power.enforced_limit_mw", field(abi.FI_DEV_POWER_CURRENT_LIMIT), "1", "value", plain},
	{"module_power.min_limit_mw", field(abi.FI_DEV_POWER_MIN_LIMIT), "1", "value", plain},
	{"module_power.max_limit_mw", field(abi.FI_DEV_POWER_MAX_LIMIT), "1", "value", plain},

	{"thermal.temperature_gpu_c", "nvmlDeviceGetTemperature", "sensorType 0", "temp", signed},
	{"thermal.temperature_memory_c", field(abi.FI_DEV_MEMORY_TEMP), "0", "value", signed},
	{"thermal.shutdown_threshold_c", "nvmlDeviceGetTemperatureThreshold", "thresholdType 0", "temp", signed},
	{"thermal.slowdown_threshold_c", "nvmlDeviceGetTemperatureThreshold", "thresholdType 1", "temp", signed},
	{"thermal.memory_max_operating_c", "nvmlDeviceGetTemperatureThreshold", "thresholdType 2", "temp", signed},
	{"thermal.max_operating_c", "nvmlDeviceGetTemperatureThreshold", "thresholdType 3", "temp", signed},
	{"thermal.target_temperature_min_c", "nvmlDeviceGetTemperatureThreshold", "thresholdType 4", "temp", signed},
	{"thermal.target_temperature_c", "nvmlDeviceGetTemperatureThreshold", "thresholdType 5", "temp", signed},
	{"thermal.target_temperature_max_c", "nvmlDeviceGetTemperatureThreshold", "thresholdType 6", "temp", signed},
	{"thermal.tlimit_c", "nvmlDeviceGetMarginTemperature", "", "marginTempInfo.marginTemperature", signed},
	{"thermal.tlimit_c", "nvmlInternalSlot240", "", "limit", signed},
	{"thermal.tlimit_shutdown_c", field(abi.FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT), "0", "value", signed},
	{"thermal.tlimit_slowdown_c", field(abi.FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT), "0", "value", signed},
	{"thermal.tlimit_memory_max_operating_c", field(abi.FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT), "0", "value", signed},
	{"thermal.tlimit_max_operating_c", field(abi.FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT), "0", "value", signed},

	{"fan.count", "nvmlDeviceGetNumFans", "", "numFans", plain},
	{"fan.target_speed_percent", "nvmlDeviceGetTargetFanSpeed", "fan 0", "targetSpeed", plain},
	{"fan.min_speed_percent", "nvmlDeviceGetMinMaxFanSpeed", "", "minSpeed", plain},
	{"fan.max_speed_percent", "nvmlDeviceGetMinMaxFanSpeed", "", "maxSpeed", plain},
	{"fan.speed_rpm", "nvmlDeviceGetFanSpeedRPM", "fanSpeed.fan 0", "fanSpeed.speed", plain},

	{"clocks.graphics_current", "nvmlDeviceGetClockInfo", "type 0", "clock", plain},
	{"clocks.sm_current", "nvmlDeviceGetClockInfo", "type 1", "clock", plain},
	{"clocks.memory_current", "nvmlDeviceGetClockInfo", "type 2", "clock", plain},
	{"clocks.video_current", "nvmlDeviceGetClockInfo", "type 3", "clock", plain},
	{"clocks.graphics_max", "nvmlDeviceGetMaxClockInfo", "type 0", "clock", plain},
	{"clocks.sm_max", "nvmlDeviceGetMaxClockInfo", "type 1", "clock", plain},
	{"clocks.memory_max", "nvmlDeviceGetMaxClockInfo", "type 2", "clock", plain},
	{"clocks.video_max", "nvmlDeviceGetMaxClockInfo", "type 3", "clock", plain},
	{"clocks.graphics_app", "nvmlDeviceGetApplicationsClock", "clockType 0", "clockMHz", plain},
	{"clocks.memory_app", "nvmlDeviceGetApplicationsClock", "clockType 2", "clockMHz", plain},
	{"clocks.graphics_app_default", "nvmlDeviceGetDefaultApplicationsClock", "clockType 0", "clockMHz", plain},
	{"clocks.memory_app_default", "nvmlDeviceGetDefaultApplicationsClock", "clockType 2", "clockMHz", plain},
	{"clocks.graphics_customer_boost_max", "nvmlDeviceGetMaxCustomerBoostClock", "clockType 0", "clockMHz", plain},
	{"clocks.auto_boost", "nvmlDeviceGetAutoBoostedClocksEnabled", "", "isEnabled", mode},
	{"clocks.auto_boost_default", "nvmlDeviceGetAutoBoostedClocksEnabled", "", "defaultIsEnabled", mode},
	{"clocks.adaptive", "nvmlDeviceGetAdaptiveClockInfoStatus", "", "adaptiveClockStatus", mode},
	{"clock_offsets.graphics_min_mhz", "nvmlDeviceGetGpcClkMinMaxVfOffset", "", "minOffset", signed},
	{"clock_offsets.graphics_max_mhz", "nvmlDeviceGetGpcClkMinMaxVfOffset", "", "maxOffset", signed},
	{"clock_offsets.graphics_mhz", "nvmlDeviceGetGpcClkVfOffset", "", "offset", signed},
	{"clock_offsets.memory_min_mhz", "nvmlDeviceGetMemClkMinMaxVfOffset", "", "minOffset", signed},
	{"clock_offsets.memory_max_mhz", "nvmlDeviceGetMemClkMinMaxVfOffset", "", "maxOffset", signed},
	{"clock_offsets.memory_mhz", "nvmlDeviceGetMemClkVfOffset", "", "offset", signed},
	{"performance_state", "nvmlDeviceGetPerformanceState", "", "pState", pstate},

	{"utilization.gpu", "nvmlDeviceGetUtilizationRates", "", "utilization.gpu", plain},
	{"utilization.memory", "nvmlDeviceGetUtilizationRates", "", "utilization.memory", plain},
	{"utilization.encoder", "nvmlDeviceGetEncoderUtilization", "", "utilization", plain},
	{"utilization.decoder", "nvmlDeviceGetDecoderUtilization", "", "utilization", plain},
	{"utilization.jpeg", "nvmlDeviceGetJpgUtilization", "", "utilization", plain},
	{"utilization.ofa", "nvmlDeviceGetOfaUtilization", "", "utilization", plain},
	{"encoder_stats.session_count", "nvmlDeviceGetEncoderStats", "", "sessionCount", plain},
	{"encoder_stats.average_fps", "nvmlDeviceGetEncoderStats", "", "averageFps", plain},
	{"encoder_stats.average_latency_us", "nvmlDeviceGetEncoderStats", "", "averageLatency", plain},
	{"fbc_stats.session_count", "nvmlDeviceGetFBCStats", "", "fbcStats.sessionsCount", plain},
	{"fbc_stats.average_fps", "nvmlDeviceGetFBCStats", "", "fbcStats.averageFPS", plain},
	{"fbc_stats.average_latency_us", "nvmlDeviceGetFBCStats", "", "fbcStats.averageLatency", plain},
	{"accounting.mode", "nvmlDeviceGetAccountingMode", "", "mode", mode},
	{"accounting.buffer_size", "nvmlDeviceGetAccountingBufferSize", "", "bufferSize", plain},

	{"ecc.mode_current", "nvmlDeviceGetEccMode", "", "current", mode},
	{"ecc.mode_current", field(abi.FI_DEV_ECC_CURRENT), "0", "value", mode},
	{"ecc.mode_pending", "nvmlDeviceGetEccMode", "", "pending", mode},
	{"ecc.mode_pending", field(abi.FI_DEV_ECC_PENDING), "0", "value", mode},
	{"ecc.default_mode", "nvmlDeviceGetDefaultEccMode", "", "defaultMode", mode},
	{"ecc.channel_repair_pending", "nvmlDeviceGetRepairStatus", "", "repairStatus.bChannelRepairPending", yes},
	{"ecc.tpc_repair_pending", "nvmlDeviceGetRepairStatus", "", "repairStatus.bTpcRepairPending", yes},
	{"ecc.unrepairable_memory", "nvmlDeviceGetUnrepairableMemoryFlag_v1", "", "unrepairableMemoryStatus.bUnrepairableMemory", yes},
	{"retired_pages.pending_retirement", "nvmlDeviceGetRetiredPagesPendingStatus", "", "isPending", yes},
	{"remapped_rows.correctable", "nvmlDeviceGetRemappedRows", "", "corrRows", plain},
	{"remapped_rows.correctable", field(abi.FI_DEV_REMAPPED_COR), "0", "value", plain},
	{"remapped_rows.uncorrectable", "nvmlDeviceGetRemappedRows", "", "uncRows", plain},
	{"remapped_rows.uncorrectable", field(abi.FI_DEV_REMAPPED_UNC), "0", "value", plain},
	{"remapped_rows.correctable_inactive", field(abi.FI_DEV_REMAPPED_ROWS_COR_INACTIVE), "0", "value", plain},
	{"remapped_rows.uncorrectable_inactive", field(abi.FI_DEV_REMAPPED_ROWS_UNC_INACTIVE), "0", "value", plain},
	{"remapped_rows.pending", field(abi.FI_DEV_REMAPPED_PENDING), "0", "value", yes},
	{"remapped_rows.pending", "nvmlDeviceGetRemappedRows", "", "isPending", yes},
	{"remapped_rows.failure_occurred", field(abi.FI_DEV_REMAPPED_FAILURE), "0", "value", yes},
	{"remapped_rows.failure_occurred", "nvmlDeviceGetRemappedRows", "", "failureOccurred", yes},
	{"remapped_rows.availability_histogram.max", "nvmlDeviceGetRowRemapperHistogram", "", "values.max", plain},
	{"remapped_rows.availability_histogram.high", "nvmlDeviceGetRowRemapperHistogram", "", "values.high", plain},
	{"remapped_rows.availability_histogram.partial", "nvmlDeviceGetRowRemapperHistogram", "", "values.partial", plain},
	{"remapped_rows.availability_histogram.low", "nvmlDeviceGetRowRemapperHistogram", "", "values.low", plain},
	{"remapped_rows.availability_histogram.none", "nvmlDeviceGetRowRemapperHistogram", "", "values.none", plain},

	{"display.mode", "nvmlDeviceGetDisplayMode", "", "display", mode},
	{"display.active", "nvmlDeviceGetDisplayActive", "", "isActive", mode},
	{"persistence_mode", "nvmlDeviceGetPersistenceMode", "", "mode", mode},
	{"compute_mode", "nvmlDeviceGetComputeMode", "", "mode", named(words.ComputeModes)},
	{"gpu_operation_mode.current", "nvmlDeviceGetGpuOperationMode", "", "current", named(words.OperationModes)},
	{"gpu_operation_mode.pending", "nvmlDeviceGetGpuOperationMode", "", "pending", named(words.OperationModes)},
	{"driver_model.current", "nvmlDeviceGetDriverModel_v2", "", "current", named(words.DriverModels)},
	{"driver_model.current", "nvmlDeviceGetDriverModel", "", "current", named(words.DriverModels)},
	{"driver_model.pending", "nvmlDeviceGetDriverModel_v2", "", "pending", named(words.DriverModels)},
	{"driver_model.pending", "nvmlDeviceGetDriverModel", "", "pending", named(words.DriverModels)},
	{"virtualization.mode", "nvmlDeviceGetVirtualizationMode", "", "pVirtualMode", named(words.VirtualizationModes)},
	{"virtualization.host_vgpu_mode", "nvmlDeviceGetHostVgpuMode", "", "pHostVgpuMode", named(words.HostModes)},
	{"c2c_mode", "nvmlDeviceGetC2cModeInfoV", "", "c2cModeInfo.isC2cEnabled", mode},
	{"sparse_operation_mode", "nvmlInternalSlot243", "", "mode", mode},
	{"mig.mode_current", "nvmlDeviceGetMigMode", "", "currentMode", mode},
	{"mig.mode_pending", "nvmlDeviceGetMigMode", "", "pendingMode", mode},
	{"mig.max_gpu_instances", "nvmlDeviceGetMaxMigDeviceCount", "", "count", plain},
	{"gpm.supported", "nvmlGpmQueryDeviceSupport", "", "gpmSupport.isSupportedDevice", yes},
	{"gpm.streaming", "nvmlGpmQueryIfStreamingEnabled", "", "state", mode},
	{"nvlink_low_power.threshold", field(abi.FI_DEV_NVLINK_GET_POWER_THRESHOLD), "0", "value", plain},
	{"nvlink_low_power.min", field(abi.FI_DEV_NVLINK_GET_POWER_THRESHOLD_MIN), "0", "value", plain},
	{"nvlink_low_power.max", field(abi.FI_DEV_NVLINK_GET_POWER_THRESHOLD_MAX), "0", "value", plain},

	{"platform.slot_number", "nvmlDeviceGetPlatformInfo", "", "platformInfo.slotNumber", known},
	{"platform.tray_index", "nvmlDeviceGetPlatformInfo", "", "platformInfo.trayIndex", known},
	{"platform.host_id", "nvmlDeviceGetPlatformInfo", "", "platformInfo.hostId", known},
	{"platform.peer_type", "nvmlDeviceGetPlatformInfo", "", "platformInfo.peerType", named(words.PeerTypes)},
	{"platform.module_id", "nvmlDeviceGetPlatformInfo", "", "platformInfo.moduleId", known},
	{"platform.module_id", "nvmlDeviceGetModuleId", "", "moduleId", form{not: []uint64{0}}},

	{"clocks_throttle_reasons.counters.sw_power_cap_us", field(abi.FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP), "0", "value", form{divide: 1000}},
	{"clocks_throttle_reasons.counters.sync_boost_us", field(abi.FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST), "0", "value", form{divide: 1000}},
	{"clocks_throttle_reasons.counters.sw_thermal_slowdown_us", field(abi.FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN), "0", "value", form{divide: 1000}},
	{"clocks_throttle_reasons.counters.hw_thermal_slowdown_us", field(abi.FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN), "0", "value", form{divide: 1000}},
	{"clocks_throttle_reasons.counters.hw_power_brake_slowdown_us", field(abi.FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN), "0", "value", form{divide: 1000}},
}

// reasons are the reasons for lower clocks, by their bits.
var reasons = []struct {
	bit uint64
	key string
}{
	{abi.ClocksEventReasonGpuIdle, "gpu_idle"},
	{abi.ClocksEventReasonApplicationsClocksSetting, "applications_clocks_setting"},
	{abi.ClocksEventReasonSwPowerCap, "sw_power_cap"},
	{abi.ClocksThrottleReasonHwSlowdown, "hw_slowdown"},
	{abi.ClocksEventReasonSyncBoost, "sync_boost"},
	{abi.ClocksEventReasonSwThermalSlowdown, "sw_thermal_slowdown"},
	{abi.ClocksThrottleReasonHwThermalSlowdown, "hw_thermal_slowdown"},
	{abi.ClocksThrottleReasonHwPowerBrakeSlowdown, "hw_power_brake_slowdown"},
	{abi.ClocksEventReasonDisplayClockSetting, "display_clocks_setting"},
}

// eccLocations are the keys of memory locations, by NVML's numbers.
var eccLocations = []string{"l1_cache", "l2_cache", "device_memory", "register_file", "texture_memory", "texture_shm", "cbu", "sram"}

var linkVersions = map[abi.NvlinkVersion_t]uint32{
	abi.NVLINK_VERSION_1_0: 1, abi.NVLINK_VERSION_2_0: 2, abi.NVLINK_VERSION_2_2: 2, abi.NVLINK_VERSION_3_0: 3, abi.NVLINK_VERSION_3_1: 3,
	abi.NVLINK_VERSION_4_0: 4, abi.NVLINK_VERSION_5_0: 5,
}
