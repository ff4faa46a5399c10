package profiles

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
