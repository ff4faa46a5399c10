package profiles

// Memory is the frame buffer.
type Memory struct {
	// TotalBytes is its size, in bytes.
	TotalBytes Opt[uint64] `yaml:"total_bytes"`
	// ReservedBytes is what driver and firmware keep, in bytes.
	ReservedBytes Opt[uint64] `yaml:"reserved_bytes"`
	// FreeBytes is what is free, in bytes; total less reserved less used when absent.
	FreeBytes Opt[uint64] `yaml:"free_bytes"`
	// UsedBytes is what programs have allocated, in bytes, without what is reserved.
	UsedBytes Opt[uint64] `yaml:"used_bytes"`
	// MemoryBusWidth is the width of the memory's bus, in bits.
	MemoryBusWidth Opt[uint32] `yaml:"memory_bus_width"`
	// EncryptionCurrent says that what the memory holds is encrypted.
	EncryptionCurrent Opt[Enabled] `yaml:"encryption_current"`
	// EncryptionPending is EncryptionCurrent after the next reset.
	EncryptionPending Opt[Enabled] `yaml:"encryption_pending"`
	// NUMANode is the NUMA node that the memory is, where the CPU addresses it as its own.
	NUMANode Opt[uint32] `yaml:"numa_node" fixed:"yes"`
}

// FrameBuffer is the use of a GPU's memory, in bytes.
type FrameBuffer struct{ Total, Reserved, Used, Free uint64 }

// MemoryUse divides the memory into reserved, used and free. What the profile gives stays, except that a GPU which uses
// nothing uses what its processes list. What is not given is what the processes list, and the rest is free. false if the
// profile does not give the size.
func (d *Device) MemoryUse() (m FrameBuffer, ok bool) {
	if m.Total, ok = d.Memory.TotalBytes.Get(); !ok {
		return m, false
	}
	m.Reserved = min(d.Memory.ReservedBytes.Or(0), m.Total)
	rest := m.Total - m.Reserved
	var listed uint64
	for i := range d.Processes {
		listed += d.Processes[i].UsedMemoryMiB.Or(0) << 20
	}
	m.Used = d.Memory.UsedBytes.Value
	if free, given := d.Memory.FreeBytes.Get(); given && !d.Memory.UsedBytes.Valid {
		m.Used = rest - min(free, rest)
	} else if m.Used == 0 {
		m.Used = listed
	}
	m.Used = min(m.Used, rest)
	m.Free = min(d.Memory.FreeBytes.Or(rest-m.Used), rest)
	return m, true
}

// MemoryUse is the use of a piece of memory.
type MemoryUse struct {
	// TotalBytes is its size, in bytes.
	TotalBytes Opt[uint64] `yaml:"total_bytes"`
	// FreeBytes is what is free, in bytes; total less used when absent.
	FreeBytes Opt[uint64] `yaml:"free_bytes"`
	// UsedBytes is what is in use, in bytes.
	UsedBytes Opt[uint64] `yaml:"used_bytes"`
}

// PCI is a GPU's PCI identity.
type PCI struct {
	// DeviceID is device << 16 | vendor, such as 0x233010DE.
	DeviceID Opt[uint32] `yaml:"device_id"`
	// SubsystemID is subsystem << 16 | subsystem vendor.
	SubsystemID Opt[uint32] `yaml:"subsystem_id"`
	// BusID is the GPU's address; generated when the profile gives none, so it is valid in every Board.
	BusID Opt[BusID] `yaml:"bus_id" fixed:"yes"`
	// BaseClass is the PCI base class.
	BaseClass Opt[uint32] `yaml:"base_class" range:"0..255"`
	// SubClass is the PCI sub class.
	SubClass Opt[uint32] `yaml:"sub_class" range:"0..255"`
}

// PCIe is a GPU's PCIe link.
type PCIe struct {
	// MaxLinkGen is the highest generation that GPU and system can reach together.
	MaxLinkGen Opt[uint32] `yaml:"max_link_gen" range:"0..16"`
	// CurrentLinkGen is the generation of the link now.
	CurrentLinkGen Opt[uint32] `yaml:"current_link_gen" range:"0..16"`
	// MaxDeviceLinkGen is the highest generation that the GPU can reach.
	MaxDeviceLinkGen Opt[uint32] `yaml:"max_device_link_gen" range:"0..16"`
	// MaxHostLinkGen is the highest generation that the host can reach.
	MaxHostLinkGen Opt[uint32] `yaml:"max_host_link_gen" range:"0..16"`
	// MaxLinkWidth is the largest number of lanes.
	MaxLinkWidth Opt[uint32] `yaml:"max_link_width" range:"0..64"`
	// CurrentLinkWidth is the number of lanes now.
	CurrentLinkWidth Opt[uint32] `yaml:"current_link_width" range:"0..64"`
	// ReplayCounter counts link replays.
	ReplayCounter Opt[uint64] `yaml:"replay_counter"`
	// ReplayRolloverCounter counts roll-overs of the replay number.
	ReplayRolloverCounter Opt[uint64] `yaml:"replay_rollover_counter"`
	// TxThroughputKBPS is what the GPU sends, in KB/s.
	TxThroughputKBPS Opt[uint64] `yaml:"tx_throughput_kbps"`
	// RxThroughputKBPS is what the GPU receives, in KB/s.
	RxThroughputKBPS Opt[uint64] `yaml:"rx_throughput_kbps"`
	// AtomicCapsOutbound are the atomics that the GPU can send, as NVML's bits.
	AtomicCapsOutbound Opt[uint32] `yaml:"atomic_caps_outbound"`
	// AtomicCapsInbound are the atomics that the GPU can take, as NVML's bits.
	AtomicCapsInbound Opt[uint32] `yaml:"atomic_caps_inbound"`
}

// Power is a GPU's power.
type Power struct {
	// ManagementSupported says that power management is supported.
	ManagementSupported Opt[bool] `yaml:"management_supported"`
	// ManagementMode says that power management is on.
	ManagementMode Opt[Enabled] `yaml:"management_mode"`
	// DefaultLimitMW is the power limit after a reset, in mW.
	DefaultLimitMW Opt[uint32] `yaml:"default_limit_mw"`
	// RequestedLimitMW is the power limit that was asked for, in mW; the enforced one when absent.
	RequestedLimitMW Opt[uint32] `yaml:"requested_limit_mw"`
	// EnforcedLimitMW is the power limit in force, in mW.
	EnforcedLimitMW Opt[uint32] `yaml:"enforced_limit_mw"`
	// MinLimitMW is the lowest power limit that can be set, in mW.
	MinLimitMW Opt[uint32] `yaml:"min_limit_mw"`
	// MaxLimitMW is the highest power limit that can be set, in mW.
	MaxLimitMW Opt[uint32] `yaml:"max_limit_mw"`
	// CurrentDrawMW is the power drawn now, in mW.
	CurrentDrawMW Opt[uint32] `yaml:"current_draw_mw"`
	// AverageDrawMW is the power drawn over the last second, in mW.
	AverageDrawMW Opt[uint32] `yaml:"average_draw_mw"`
	// PowerState is the P-state, 0 to 15.
	PowerState Opt[PState] `yaml:"power_state"`
	// TotalEnergyConsumptionMJ is the energy used since the driver was loaded, in mJ.
	TotalEnergyConsumptionMJ Opt[uint64] `yaml:"total_energy_consumption_mj"`
	// Source is where the power comes from; undersized is a supply that is too weak.
	Source Opt[string] `yaml:"source" enum:"ac,battery,undersized"`
	// Smoothing says whether the power is smoothed; no_permission means that the driver refuses to tell.
	Smoothing Opt[string] `yaml:"smoothing" enum:"enabled,disabled,no_permission=insufficient_permissions"`
}

// PowerSmoothing is how the power is smoothed, if Power.Smoothing says that it is.
type PowerSmoothing struct {
	// MinFloorPercent is the lowest floor that a profile can have, in percent of the total power; 0 when absent.
	MinFloorPercent Opt[float64] `yaml:"min_floor_percent" range:"0..100"`
	// MaxFloorPercent is the highest floor that a profile can have, in percent of the total power; 100 when absent.
	MaxFloorPercent Opt[float64] `yaml:"max_floor_percent" range:"0..100"`
	// ActiveProfile is the number of the profile in force, from 0.
	ActiveProfile Opt[uint32] `yaml:"active_profile" range:"0..4"`
	// Profiles are the profiles that can be chosen.
	Profiles []SmoothingProfile `yaml:"profiles"`
}

// SmoothingProfile is a profile of power smoothing.
type SmoothingProfile struct {
	// FloorPercent is the lowest power that is drawn, in percent of the total power.
	FloorPercent Opt[float64] `yaml:"floor_percent" range:"0..100"`
	// RampUpRate is how fast the power may rise, in W/s.
	RampUpRate Opt[float64] `yaml:"ramp_up_rate"`
	// RampDownRate is how fast the power may fall, in W/s.
	RampDownRate Opt[float64] `yaml:"ramp_down_rate"`
	// RampDownHysteresis is how long the power stays up before it falls, in ms.
	RampDownHysteresis Opt[float64] `yaml:"ramp_down_hysteresis"`
	// SecondaryFloorW is the lowest power that is drawn while the GPU works, in W.
	SecondaryFloorW Opt[float64] `yaml:"secondary_floor_w"`
	// ActivationWindows is over how many windows the power is averaged that decides which floor applies; 0 is the first floor always.
	ActivationWindows Opt[float64] `yaml:"activation_windows"`
	// TargetWindows is over how many windows the power is averaged that the first floor follows; 0 is FloorPercent instead.
	TargetWindows Opt[float64] `yaml:"target_windows"`
	// ActivationOffsetW is added to SecondaryFloorW: below the sum, the first floor applies. In W.
	ActivationOffsetW Opt[float64] `yaml:"activation_offset_w"`
}

// WorkloadPowerProfiles are the power profiles that the board has for kinds of work.
type WorkloadPowerProfiles struct {
	// Supported are the profiles that the board has.
	Supported []WorkloadPowerProfile `yaml:"supported"`
	// Requested are the numbers of the profiles that were asked for.
	Requested []uint32 `yaml:"requested" range:"0..254"`
}

// WorkloadPowerProfile is a power profile for a kind of work.
type WorkloadPowerProfile struct {
	// ID is the profile's number, one of NVML's.
	ID uint32 `yaml:"id" range:"0..254" required:"yes"`
	// Priority decides between profiles that exclude each other: the lower number wins.
	Priority uint32 `yaml:"priority"`
	// Conflicts are the numbers of the profiles that this one excludes.
	Conflicts []uint32 `yaml:"conflicts" range:"0..254"`
}

// Voltage is a GPU's voltages.
type Voltage struct {
	// GraphicsUV is the voltage of the graphics units, in µV.
	GraphicsUV Opt[uint32] `yaml:"graphics_uv"`
}

// PowerDraw is the power that a part of the board draws.
type PowerDraw struct {
	// CurrentDrawMW is the power drawn now, in mW.
	CurrentDrawMW Opt[uint32] `yaml:"current_draw_mw"`
	// AverageDrawMW is the power drawn over the last second, in mW.
	AverageDrawMW Opt[uint32] `yaml:"average_draw_mw"`
}

// ModulePower is the power of the module that carries GPU and CPU.
type ModulePower struct {
	// CurrentDrawMW is the power drawn now, in mW.
	CurrentDrawMW Opt[uint32] `yaml:"current_draw_mw"`
	// AverageDrawMW is the power drawn over the last second, in mW.
	AverageDrawMW Opt[uint32] `yaml:"average_draw_mw"`
	// DefaultLimitMW is the power limit after a reset, in mW.
	DefaultLimitMW Opt[uint32] `yaml:"default_limit_mw"`
	// RequestedLimitMW is the power limit that was asked for, in mW; the enforced one when absent.
	RequestedLimitMW Opt[uint32] `yaml:"requested_limit_mw"`
	// EnforcedLimitMW is the power limit in force, in mW.
	EnforcedLimitMW Opt[uint32] `yaml:"enforced_limit_mw"`
	// MinLimitMW is the lowest power limit that can be set, in mW.
	MinLimitMW Opt[uint32] `yaml:"min_limit_mw"`
	// MaxLimitMW is the highest power limit that can be set, in mW.
	MaxLimitMW Opt[uint32] `yaml:"max_limit_mw"`
}

// Thermal is temperatures and their thresholds. Boards before Ada give absolute thresholds; data-centre boards since
// then give T.Limit ones: how far a threshold lies from the limit, in °C, negative beyond it.
type Thermal struct {
	// TemperatureGPUC is the GPU's temperature, in °C.
	TemperatureGPUC Opt[int32] `yaml:"temperature_gpu_c"`
	// TemperatureMemoryC is the memory's temperature, in °C.
	TemperatureMemoryC Opt[int32] `yaml:"temperature_memory_c"`
	// ShutdownThresholdC is where the GPU shuts down, in °C.
	ShutdownThresholdC Opt[int32] `yaml:"shutdown_threshold_c"`
	// SlowdownThresholdC is where the hardware slows the clocks, in °C.
	SlowdownThresholdC Opt[int32] `yaml:"slowdown_threshold_c"`
	// MaxOperatingC is where software slows the clocks, in °C.
	MaxOperatingC Opt[int32] `yaml:"max_operating_c"`
	// MemoryMaxOperatingC is the memory's limit, in °C.
	MemoryMaxOperatingC Opt[int32] `yaml:"memory_max_operating_c"`
	// TargetTemperatureC is the temperature that the fans aim at, in °C.
	TargetTemperatureC Opt[int32] `yaml:"target_temperature_c"`
	// TargetTemperatureMinC is the lowest target that can be set, in °C.
	TargetTemperatureMinC Opt[int32] `yaml:"target_temperature_min_c"`
	// TargetTemperatureMaxC is the highest target that can be set, in °C.
	TargetTemperatureMaxC Opt[int32] `yaml:"target_temperature_max_c"`
	// TLimitC is how far the GPU is below its limit now, in °C.
	TLimitC Opt[int32] `yaml:"tlimit_c"`
	// TLimitShutdownC is the T.Limit reading at which the GPU shuts down, in °C.
	TLimitShutdownC Opt[int32] `yaml:"tlimit_shutdown_c"`
	// TLimitSlowdownC is the T.Limit reading at which the hardware slows the clocks, in °C.
	TLimitSlowdownC Opt[int32] `yaml:"tlimit_slowdown_c"`
	// TLimitMaxOperatingC is the T.Limit reading at which software slows the clocks, in °C.
	TLimitMaxOperatingC Opt[int32] `yaml:"tlimit_max_operating_c"`
	// TLimitMemoryMaxOperatingC is the memory's limit as a T.Limit reading, in °C.
	TLimitMemoryMaxOperatingC Opt[int32] `yaml:"tlimit_memory_max_operating_c"`
}

// Fan is a GPU's fans.
type Fan struct {
	// Count is the number of fans.
	Count Opt[uint32] `yaml:"count" range:"0..64"`
	// SpeedPercent is their speed, in percent of the highest.
	SpeedPercent Opt[Percent] `yaml:"speed_percent"`
	// TargetSpeedPercent is the speed that they aim at, in percent of the highest.
	TargetSpeedPercent Opt[Percent] `yaml:"target_speed_percent"`
	// MinSpeedPercent is the lowest speed that can be set, in percent of the highest; 0 when absent.
	MinSpeedPercent Opt[Percent] `yaml:"min_speed_percent"`
	// MaxSpeedPercent is the highest speed that can be set, in percent of the highest; 100 when absent.
	MaxSpeedPercent Opt[Percent] `yaml:"max_speed_percent"`
	// Manual are the fans that run at a speed of their own and not after the temperature.
	Manual []ManualFan `yaml:"manual"`
	// SpeedRPM is their speed, in rounds per minute.
	SpeedRPM Opt[uint32] `yaml:"speed_rpm"`
}

// ManualFan is a fan that somebody has taken over.
type ManualFan struct {
	// Fan is the fan's number, from 0.
	Fan uint32 `yaml:"fan" required:"yes"`
	// SpeedPercent is its speed, in percent of the highest; as all fans when absent.
	SpeedPercent Opt[Percent] `yaml:"speed_percent"`
}

// Clocks is a GPU's clocks, all in MHz.
type Clocks struct {
	// GraphicsCurrent is the graphics clock now, in MHz.
	GraphicsCurrent Opt[uint32] `yaml:"graphics_current"`
	// GraphicsMax is the highest graphics clock, in MHz.
	GraphicsMax Opt[uint32] `yaml:"graphics_max"`
	// GraphicsApp is the graphics clock that applications run at, in MHz.
	GraphicsApp Opt[uint32] `yaml:"graphics_app"`
	// GraphicsAppDefault is GraphicsApp after a reset, in MHz.
	GraphicsAppDefault Opt[uint32] `yaml:"graphics_app_default"`
	// GraphicsCustomerBoostMax is the highest graphics clock that the board's maker allows, in MHz.
	GraphicsCustomerBoostMax Opt[uint32] `yaml:"graphics_customer_boost_max"`
	// GraphicsLockedMin is the lower end of the range that the graphics clock is locked to, in MHz.
	GraphicsLockedMin Opt[uint32] `yaml:"graphics_locked_min"`
	// GraphicsLockedMax is the upper end of the range that the graphics clock is locked to, in MHz.
	GraphicsLockedMax Opt[uint32] `yaml:"graphics_locked_max"`
	// MemoryLockedMin is the lower end of the range that the memory clock is locked to, in MHz.
	MemoryLockedMin Opt[uint32] `yaml:"memory_locked_min"`
	// MemoryLockedMax is the upper end of the range that the memory clock is locked to, in MHz.
	MemoryLockedMax Opt[uint32] `yaml:"memory_locked_max"`
	// SMCurrent is the SM clock now, in MHz.
	SMCurrent Opt[uint32] `yaml:"sm_current"`
	// SMMax is the highest SM clock, in MHz.
	SMMax Opt[uint32] `yaml:"sm_max"`
	// MemoryCurrent is the memory clock now, in MHz.
	MemoryCurrent Opt[uint32] `yaml:"memory_current"`
	// MemoryMax is the highest memory clock, in MHz.
	MemoryMax Opt[uint32] `yaml:"memory_max"`
	// MemoryApp is the memory clock that applications run at, in MHz.
	MemoryApp Opt[uint32] `yaml:"memory_app"`
	// MemoryAppDefault is MemoryApp after a reset, in MHz.
	MemoryAppDefault Opt[uint32] `yaml:"memory_app_default"`
	// VideoCurrent is the video clock now, in MHz.
	VideoCurrent Opt[uint32] `yaml:"video_current"`
	// VideoMax is the highest video clock, in MHz.
	VideoMax Opt[uint32] `yaml:"video_max"`
	// AutoBoost says that the clocks boost by themselves.
	AutoBoost Opt[Enabled] `yaml:"auto_boost"`
	// AutoBoostDefault is AutoBoost after a reset.
	AutoBoostDefault Opt[Enabled] `yaml:"auto_boost_default"`
	// Adaptive says that the clocks follow the voltage, cycle by cycle.
	Adaptive Opt[Enabled] `yaml:"adaptive"`
}

// ClockOffsets is how far clocks are shifted from what the board's maker set, all in MHz. A board without a lowest and a
// highest offset does not let anybody shift that clock.
type ClockOffsets struct {
	// GraphicsMHz is the offset of the graphics clock, in MHz; 0 when absent.
	GraphicsMHz Opt[int32] `yaml:"graphics_mhz"`
	// GraphicsMinMHz is the lowest offset of the graphics clock, in MHz.
	GraphicsMinMHz Opt[int32] `yaml:"graphics_min_mhz"`
	// GraphicsMaxMHz is the highest offset of the graphics clock, in MHz.
	GraphicsMaxMHz Opt[int32] `yaml:"graphics_max_mhz"`
	// MemoryMHz is the offset of the memory clock, in MHz; 0 when absent.
	MemoryMHz Opt[int32] `yaml:"memory_mhz"`
	// MemoryMinMHz is the lowest offset of the memory clock, in MHz.
	MemoryMinMHz Opt[int32] `yaml:"memory_min_mhz"`
	// MemoryMaxMHz is the highest offset of the memory clock, in MHz.
	MemoryMaxMHz Opt[int32] `yaml:"memory_max_mhz"`
}

// ClocksThrottleReasons says why clocks are held down. The board does not know a reason that is absent.
type ClocksThrottleReasons struct {
	// GPUIdle says that clocks are low because nothing runs.
	GPUIdle Opt[bool] `yaml:"gpu_idle"`
	// ApplicationsClocksSetting says that the applications clocks limit the clocks.
	ApplicationsClocksSetting Opt[bool] `yaml:"applications_clocks_setting"`
	// SWPowerCap says that the power limit holds the clocks down.
	SWPowerCap Opt[bool] `yaml:"sw_power_cap"`
	// HWSlowdown says that the hardware slows the clocks, for any reason.
	HWSlowdown Opt[bool] `yaml:"hw_slowdown"`
	// HWThermalSlowdown says that the hardware slows the clocks because it is hot.
	HWThermalSlowdown Opt[bool] `yaml:"hw_thermal_slowdown"`
	// HWPowerBrakeSlowdown says that an external power brake slows the clocks.
	HWPowerBrakeSlowdown Opt[bool] `yaml:"hw_power_brake_slowdown"`
	// SyncBoost says that the sync boost group limits the clocks.
	SyncBoost Opt[bool] `yaml:"sync_boost"`
	// SWThermalSlowdown says that software slows the clocks because the GPU is hot.
	SWThermalSlowdown Opt[bool] `yaml:"sw_thermal_slowdown"`
	// DisplayClocksSetting says that the display clocks limit the clocks.
	DisplayClocksSetting Opt[bool] `yaml:"display_clocks_setting"`
	// Counters is the time lost to each reason so far.
	Counters ThrottleCounters `yaml:"counters"`
}

// ThrottleCounters is the time lost to each reason so far, all in µs.
type ThrottleCounters struct {
	// SWPowerCapUS is the time lost to the power limit, in µs.
	SWPowerCapUS Opt[uint64] `yaml:"sw_power_cap_us"`
	// SyncBoostUS is the time lost to the sync boost group, in µs.
	SyncBoostUS Opt[uint64] `yaml:"sync_boost_us"`
	// SWThermalSlowdownUS is the time lost to software's thermal slowdown, in µs.
	SWThermalSlowdownUS Opt[uint64] `yaml:"sw_thermal_slowdown_us"`
	// HWThermalSlowdownUS is the time lost to the hardware's thermal slowdown, in µs.
	HWThermalSlowdownUS Opt[uint64] `yaml:"hw_thermal_slowdown_us"`
	// HWPowerBrakeSlowdownUS is the time lost to the external power brake, in µs.
	HWPowerBrakeSlowdownUS Opt[uint64] `yaml:"hw_power_brake_slowdown_us"`
}

// SupportedClocks are the clocks that can be asked for.
type SupportedClocks struct {
	// MemoryClocks are the memory clocks, highest first.
	MemoryClocks []MemoryClock `yaml:"memory_clocks"`
}

// MemoryClock is one memory clock and the graphics clocks that go with it.
type MemoryClock struct {
	// FreqMHz is the memory clock, in MHz.
	FreqMHz uint32 `yaml:"freq_mhz" required:"yes"`
	// GraphicsClocks are the graphics clocks, highest first, in MHz; written as a list or as highest..lowest/step.
	GraphicsClocks ClockSteps `yaml:"graphics_clocks"`
}

// Utilization is how busy a GPU's parts are, all in percent.
type Utilization struct {
	// GPU is the time in which a kernel ran, in percent.
	GPU Opt[uint32] `yaml:"gpu" range:"0..100"`
	// Memory is the time in which memory was read or written, in percent.
	Memory Opt[uint32] `yaml:"memory" range:"0..100"`
	// Encoder is the encoders' load, in percent.
	Encoder Opt[uint32] `yaml:"encoder" range:"0..100"`
	// Decoder is the decoders' load, in percent.
	Decoder Opt[uint32] `yaml:"decoder" range:"0..100"`
	// JPEG is the JPEG engines' load, in percent.
	JPEG Opt[uint32] `yaml:"jpeg" range:"0..100"`
	// OFA is the optical flow engines' load, in percent.
	OFA Opt[uint32] `yaml:"ofa" range:"0..100"`
}

// SessionStats sums up sessions.
type SessionStats struct {
	// SessionCount is the number of sessions.
	SessionCount Opt[uint32] `yaml:"session_count"`
	// AverageFPS is their average number of frames per second.
	AverageFPS Opt[uint32] `yaml:"average_fps"`
	// AverageLatencyUS is their average latency, in µs.
	AverageLatencyUS Opt[uint32] `yaml:"average_latency_us"`
}
