package profiles

// ECC is ECC mode and errors.
type ECC struct {
	// ModeCurrent is the mode in force.
	ModeCurrent Opt[Enabled] `yaml:"mode_current"`
	// ModePending is the mode after the next reset.
	ModePending Opt[Enabled] `yaml:"mode_pending"`
	// DefaultMode is the mode that the board is delivered with.
	DefaultMode Opt[Enabled] `yaml:"default_mode"`
	// Errors counts errors by memory location.
	Errors ECCErrors `yaml:"errors"`
	// SRAM counts errors of the SRAM on the chip.
	SRAM ECCSRAM `yaml:"sram"`
	// ChannelRepairPending says that a memory channel waits for repair.
	ChannelRepairPending Opt[bool] `yaml:"channel_repair_pending"`
	// TPCRepairPending says that a TPC waits for repair.
	TPCRepairPending Opt[bool] `yaml:"tpc_repair_pending"`
	// UnrepairableMemory says that memory is beyond repair.
	UnrepairableMemory Opt[bool] `yaml:"unrepairable_memory"`
}

// ECCErrors counts errors by memory location.
type ECCErrors struct {
	// Volatile counts since the driver was loaded.
	Volatile ECCErrorCounts `yaml:"volatile"`
	// Aggregate counts over the board's life.
	Aggregate ECCErrorCounts `yaml:"aggregate"`
}

// ECCErrorCounts counts errors by severity.
type ECCErrorCounts struct {
	// SingleBit counts corrected errors.
	SingleBit ECCMemoryErrors `yaml:"single_bit"`
	// DoubleBit counts uncorrected errors.
	DoubleBit ECCMemoryErrors `yaml:"double_bit"`
}

// ECCMemoryErrors counts errors by memory location.
type ECCMemoryErrors struct {
	// DeviceMemory counts errors of the GPU's memory.
	DeviceMemory Opt[uint64] `yaml:"device_memory"`
	// L1Cache counts errors of the L1 cache.
	L1Cache Opt[uint64] `yaml:"l1_cache"`
	// L2Cache counts errors of the L2 cache.
	L2Cache Opt[uint64] `yaml:"l2_cache"`
	// RegisterFile counts errors of the register file.
	RegisterFile Opt[uint64] `yaml:"register_file"`
	// TextureMemory counts errors of the texture memory.
	TextureMemory Opt[uint64] `yaml:"texture_memory"`
	// Total counts errors of all locations.
	Total Opt[uint64] `yaml:"total"`
}

// ECCSRAM counts errors of the SRAM on the chip.
type ECCSRAM struct {
	// Volatile counts since the driver was loaded.
	Volatile SRAMCounts `yaml:"volatile"`
	// Aggregate counts over the board's life.
	Aggregate SRAMCounts `yaml:"aggregate"`
	// UncorrectableSources says where the aggregate uncorrectable errors were.
	UncorrectableSources SRAMSources `yaml:"uncorrectable_sources"`
	// ThresholdExceeded says that the board has more errors than it may have.
	ThresholdExceeded Opt[bool] `yaml:"threshold_exceeded"`
}

// SRAMCounts counts SRAM errors by severity.
type SRAMCounts struct {
	// Correctable counts corrected errors.
	Correctable Opt[uint64] `yaml:"correctable"`
	// UncorrectableParity counts parity errors.
	UncorrectableParity Opt[uint64] `yaml:"uncorrectable_parity"`
	// UncorrectableSECDED counts errors that SEC-DED found and could not correct.
	UncorrectableSECDED Opt[uint64] `yaml:"uncorrectable_secded"`
}

// SRAMSources counts uncorrectable SRAM errors by unit.
type SRAMSources struct {
	// L2 counts errors of the L2 cache.
	L2 Opt[uint64] `yaml:"l2"`
	// SM counts errors of the SMs.
	SM Opt[uint64] `yaml:"sm"`
	// Microcontroller counts errors of the microcontrollers.
	Microcontroller Opt[uint64] `yaml:"microcontroller"`
	// PCIe counts errors of the PCIe unit.
	PCIe Opt[uint64] `yaml:"pcie"`
	// Other counts errors of everything else.
	Other Opt[uint64] `yaml:"other"`
}

// RetiredPages are the memory pages taken out of use.
type RetiredPages struct {
	// SingleBitRetirement are pages with several corrected errors.
	SingleBitRetirement Retirement `yaml:"single_bit_retirement"`
	// DoubleBitRetirement are pages with an uncorrected error.
	DoubleBitRetirement Retirement `yaml:"double_bit_retirement"`
	// PendingBlacklist says that pages wait to be listed.
	PendingBlacklist Opt[bool] `yaml:"pending_blacklist"`
	// PendingRetirement says that pages wait for the next reset.
	PendingRetirement Opt[bool] `yaml:"pending_retirement"`
}

// Retirement is the pages retired for one cause.
type Retirement struct {
	// Count is their number.
	Count Opt[uint32] `yaml:"count"`
	// Addresses are their addresses.
	Addresses []Address `yaml:"addresses"`
}

// RemappedRows are the memory rows replaced by spare ones.
type RemappedRows struct {
	// Correctable counts rows replaced after corrected errors.
	Correctable Opt[uint32] `yaml:"correctable"`
	// Uncorrectable counts rows replaced after uncorrected errors.
	Uncorrectable Opt[uint32] `yaml:"uncorrectable"`
	// CorrectableInactive counts such rows whose replacement is not in use.
	CorrectableInactive Opt[uint32] `yaml:"correctable_inactive"`
	// UncorrectableInactive counts such rows whose replacement is not in use.
	UncorrectableInactive Opt[uint32] `yaml:"uncorrectable_inactive"`
	// Pending says that rows wait for the next reset.
	Pending Opt[bool] `yaml:"pending"`
	// FailureOccurred says that a replacement once failed.
	FailureOccurred Opt[bool] `yaml:"failure_occurred"`
	// AvailabilityHistogram counts banks by the spare rows that they have left.
	AvailabilityHistogram RowRemapHistogram `yaml:"availability_histogram"`
}

// RowRemapHistogram counts memory banks by the spare rows that they have left.
type RowRemapHistogram struct {
	// Max counts banks with all their spare rows.
	Max Opt[uint32] `yaml:"max"`
	// High counts banks with many.
	High Opt[uint32] `yaml:"high"`
	// Partial counts banks with some.
	Partial Opt[uint32] `yaml:"partial"`
	// Low counts banks with few.
	Low Opt[uint32] `yaml:"low"`
	// None counts banks with none.
	None Opt[uint32] `yaml:"none"`
}

// Fabric is a GPU's place in an NVLink fabric of machines.
type Fabric struct {
	// ClusterUUID is the fabric's UUID.
	ClusterUUID Opt[ClusterUUID] `yaml:"cluster_uuid"`
	// CliqueID is the clique in the fabric.
	CliqueID Opt[uint32] `yaml:"clique_id"`
	// State is how far the GPU's registration is; completed when the section says nothing else. auto follows the fabric manager.
	State Opt[string] `yaml:"state" enum:"completed,not_started=notstarted,in_progress=inprogress,not_supported=notsupported,auto"`
	// HealthSummary is the fabric's health; auto derives it from Health.
	HealthSummary Opt[string] `yaml:"health_summary" enum:"auto,healthy,unhealthy,limited_capacity=limitedcapacity,not_supported=notsupported"`
	// Health is the fabric's conditions.
	Health FabricHealth `yaml:"health"`
	// HealthMask is NVML's health mask; it wins over Health.
	HealthMask Opt[uint32] `yaml:"health_mask"`
}

// FabricHealth is the conditions of a fabric.
type FabricHealth struct {
	// DegradedBandwidth says that the bandwidth is degraded.
	DegradedBandwidth Opt[bool] `yaml:"degraded_bandwidth"`
	// RouteRecovery says that a route is being recovered.
	RouteRecovery Opt[bool] `yaml:"route_recovery"`
	// RouteUnhealthy says that a route is unhealthy.
	RouteUnhealthy Opt[bool] `yaml:"route_unhealthy"`
	// AccessTimeoutRecovery says that an access timeout is being recovered.
	AccessTimeoutRecovery Opt[bool] `yaml:"access_timeout_recovery"`
	// IncorrectConfiguration names what is configured wrongly.
	IncorrectConfiguration Opt[string] `yaml:"incorrect_configuration" enum:"none,not_supported,incorrect_sysguid,incorrect_chassis_sn,no_partition,insufficient_nvlinks,incompatible_gpu_fw,invalid_location,gpu_state_invalid"`
}

// Platform is where a GPU sits in its rack.
type Platform struct {
	// ChassisSerialNumber is the rack's serial number.
	ChassisSerialNumber Opt[string] `yaml:"chassis_serial_number"`
	// SlotNumber is the slot in the rack.
	SlotNumber Opt[uint8] `yaml:"slot_number"`
	// TrayIndex is the tray's place among the compute trays.
	TrayIndex Opt[uint8] `yaml:"tray_index"`
	// HostID is the operating system's place in the tray.
	HostID Opt[uint8] `yaml:"host_id"`
	// PeerType is how the GPU reaches its NVLink peers.
	PeerType Opt[string] `yaml:"peer_type" enum:"direct_connected=directconnected=direct,switch_connected=switchconnected=switch"`
	// ModuleID is the GPU's place in the machine.
	ModuleID Opt[uint8] `yaml:"module_id"`
	// GPUFabricGUID is the GPU's identifier in the fabric.
	GPUFabricGUID Opt[uint64] `yaml:"gpu_fabric_guid"`
}

// DynamicMetrics makes readings move.
type DynamicMetrics struct {
	// Seed decides how they move.
	Seed Opt[int64] `yaml:"seed"`
	// Temperature makes the temperature move.
	Temperature DynamicTemperature `yaml:"temperature"`
	// Power makes the power move.
	Power DynamicPower `yaml:"power"`
	// Utilization makes the utilisation move.
	Utilization DynamicUtilization `yaml:"utilization"`
}

// DynamicTemperature makes the temperature move.
type DynamicTemperature struct {
	// BaseC is the lowest temperature, in °C.
	BaseC Opt[int32] `yaml:"base_c"`
	// VarianceC is the noise to either side, in °C.
	VarianceC Opt[int32] `yaml:"variance_c" range:"0..1000"`
	// RampC is the height of the slow wave, in °C.
	RampC Opt[int32] `yaml:"ramp_c" range:"0..1000"`
	// RampPeriodSec is the wave's period, in s.
	RampPeriodSec Opt[uint32] `yaml:"ramp_period_sec"`
}

// DynamicPower makes the power move.
type DynamicPower struct {
	// BaseMW is the middle, in mW.
	BaseMW Opt[uint32] `yaml:"base_mw"`
	// VarianceMW is the noise to either side, in mW.
	VarianceMW Opt[uint32] `yaml:"variance_mw"`
}

// DynamicUtilization makes the utilisation move.
type DynamicUtilization struct {
	// Pattern is the shape of the load.
	Pattern Opt[string] `yaml:"pattern" enum:"steady,idle,busy,burst"`
	// GPUMin is the GPU's lowest load, in percent.
	GPUMin Opt[uint32] `yaml:"gpu_min" range:"0..100"`
	// GPUMax is the GPU's highest load, in percent.
	GPUMax Opt[uint32] `yaml:"gpu_max" range:"0..100"`
	// MemoryMin is the memory's lowest load, in percent.
	MemoryMin Opt[uint32] `yaml:"memory_min" range:"0..100"`
	// MemoryMax is the memory's highest load, in percent.
	MemoryMax Opt[uint32] `yaml:"memory_max" range:"0..100"`
	// BurstPeriodSec is how long a burst and how long a pause lasts, in s.
	BurstPeriodSec Opt[uint32] `yaml:"burst_period_sec"`
}

// GPM is performance monitoring.
type GPM struct {
	// Supported says that the GPU has it; from Hopper on when absent.
	Supported Opt[bool] `yaml:"supported"`
	// PCIeTxMiBPerSec is what the GPU sends at full load, in MiB/s.
	PCIeTxMiBPerSec Opt[uint64] `yaml:"pcie_tx_mib_per_sec"`
	// PCIeRxMiBPerSec is what the GPU receives at full load, in MiB/s.
	PCIeRxMiBPerSec Opt[uint64] `yaml:"pcie_rx_mib_per_sec"`
}

// Failure breaks a GPU.
type Failure struct {
	// Mode is how it breaks.
	Mode Opt[string] `yaml:"mode" enum:"healthy,lost,fallen_off_bus,ecc_uncorrectable"`
	// Probability is the chance of breaking at a call, 0 to 1.
	Probability Opt[float64] `yaml:"probability" range:"0..1"`
	// AfterCalls is the number of calls after which it breaks.
	AfterCalls Opt[int64] `yaml:"after_calls"`
	// Seed decides which call breaks it.
	Seed Opt[int64] `yaml:"seed"`
	// Xid is the error that goes with it.
	Xid Xid `yaml:"xid"`
}

// Xid is an Xid error.
type Xid struct {
	// Code is its number.
	Code Opt[uint64] `yaml:"code"`
}

// NVLinkError lets link errors grow.
type NVLinkError struct {
	// Rate is the growth of the error counters, per second.
	Rate Opt[float64] `yaml:"rate" range:"0..1000000000"`
	// Links are the links that err; all when empty.
	Links []uint32 `yaml:"links"`
}
