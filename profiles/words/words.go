// Package words has NVML's numbers of the words that profiles use.
package words

import "github.com/nvmlfab/nvmlfab/generated/abi"

// Brands are the product lines.
var Brands = Table[string, abi.BrandType_t]{
	{"unknown", abi.BRAND_UNKNOWN},
	{"quadro", abi.BRAND_QUADRO},
	{"tesla", abi.BRAND_TESLA},
	{"nvs", abi.BRAND_NVS},
	{"grid", abi.BRAND_GRID},
	{"geforce", abi.BRAND_GEFORCE},
	{"titan", abi.BRAND_TITAN},
	{"nvidia_vapps", abi.BRAND_NVIDIA_VAPPS},
	{"nvidia_vpc", abi.BRAND_NVIDIA_VPC},
	{"nvidia_vcs", abi.BRAND_NVIDIA_VCS},
	{"nvidia_vws", abi.BRAND_NVIDIA_VWS},
	{"nvidia_cloud_gaming", abi.BRAND_NVIDIA_CLOUD_GAMING},
	{"quadro_rtx", abi.BRAND_QUADRO_RTX},
	{"nvidia_rtx", abi.BRAND_NVIDIA_RTX},
	{"nvidia", abi.BRAND_NVIDIA},
	{"geforce_rtx", abi.BRAND_GEFORCE_RTX},
	{"titan_rtx", abi.BRAND_TITAN_RTX},
}

// Architectures are the chips' generations.
var Architectures = Table[string, abi.DeviceArchitecture_t]{
	{"kepler", abi.DEVICE_ARCH_KEPLER},
	{"maxwell", abi.DEVICE_ARCH_MAXWELL},
	{"pascal", abi.DEVICE_ARCH_PASCAL},
	{"volta", abi.DEVICE_ARCH_VOLTA},
	{"turing", abi.DEVICE_ARCH_TURING},
	{"ampere", abi.DEVICE_ARCH_AMPERE},
	{"ada", abi.DEVICE_ARCH_ADA},
	{"hopper", abi.DEVICE_ARCH_HOPPER},
	{"blackwell", abi.DEVICE_ARCH_BLACKWELL},
}

// AddressingModes are how the GPU reaches the memory of the machine.
var AddressingModes = Table[string, abi.DeviceAddressingModeType_t]{
	{"none", abi.DEVICE_ADDRESSING_MODE_NONE},
	{"hmm", abi.DEVICE_ADDRESSING_MODE_HMM},
	{"ats", abi.DEVICE_ADDRESSING_MODE_ATS},
}

// DriverModels are the driver models of Windows.
var DriverModels = Table[string, abi.DriverModel_t]{
	{"wddm", abi.DRIVER_WDDM},
	{"wdm", abi.DRIVER_WDM},
	{"mcdm", abi.DRIVER_MCDM},
}

// HostModes are the vGPU modes of a host.
var HostModes = Table[string, abi.HostVgpuMode_t]{
	{"non_sriov", abi.HOST_VGPU_MODE_NON_SRIOV},
	{"sriov", abi.HOST_VGPU_MODE_SRIOV},
}

// RecoveryActions are what brings a GPU back after a fault.
var RecoveryActions = Table[string, abi.DeviceGpuRecoveryAction_t]{
	{"none", abi.GPU_RECOVERY_ACTION_NONE},
	{"gpu_reset", abi.GPU_RECOVERY_ACTION_GPU_RESET},
	{"node_reboot", abi.GPU_RECOVERY_ACTION_NODE_REBOOT},
	{"drain_p2p", abi.GPU_RECOVERY_ACTION_DRAIN_P2P},
	{"drain_and_reset", abi.GPU_RECOVERY_ACTION_DRAIN_AND_RESET},
}

// PowerSources are where the power comes from.
var PowerSources = Table[string, abi.PowerSource_t]{
	{"ac", abi.POWER_SOURCE_AC}, {"battery", abi.POWER_SOURCE_BATTERY}, {"undersized", abi.POWER_SOURCE_UNDERSIZED},
}

// FabricStates are how far a GPU has joined a fabric of machines. auto means the state that a fabric manager leads to: completed.
var FabricStates = Table[string, abi.GpuFabricState_t]{
	{"not_supported", abi.GPU_FABRIC_STATE_NOT_SUPPORTED},
	{"not_started", abi.GPU_FABRIC_STATE_NOT_STARTED},
	{"in_progress", abi.GPU_FABRIC_STATE_IN_PROGRESS},
	{"completed", abi.GPU_FABRIC_STATE_COMPLETED},
	{"auto", abi.GPU_FABRIC_STATE_COMPLETED},
}

// HealthSummaries are the health of a GPU in a fabric of machines.
var HealthSummaries = Table[string, uint8]{
	{"not_supported", abi.GPU_FABRIC_HEALTH_SUMMARY_NOT_SUPPORTED},
	{"healthy", abi.GPU_FABRIC_HEALTH_SUMMARY_HEALTHY},
	{"unhealthy", abi.GPU_FABRIC_HEALTH_SUMMARY_UNHEALTHY},
	{"limited_capacity", abi.GPU_FABRIC_HEALTH_SUMMARY_LIMITED_CAPACITY},
}

// PeerTypes are how GPUs reach each other in a rack.
var PeerTypes = Table[string, uint8]{{"direct_connected", 0}, {"switch_connected", 1}}

// ComputeModes are who may compute on a GPU.
var ComputeModes = Table[string, abi.ComputeMode_t]{
	{"default", abi.COMPUTEMODE_DEFAULT},
	{"exclusive_thread", abi.COMPUTEMODE_EXCLUSIVE_THREAD},
	{"prohibited", abi.COMPUTEMODE_PROHIBITED},
	{"exclusive_process", abi.COMPUTEMODE_EXCLUSIVE_PROCESS},
}

// OperationModes are what a GPU is set up for.
var OperationModes = Table[string, abi.GpuOperationMode_t]{
	{"all_on", abi.GOM_ALL_ON},
	{"compute", abi.GOM_COMPUTE},
	{"low_dp", abi.GOM_LOW_DP},
}

// VirtualizationModes are how a GPU takes part in virtualisation.
var VirtualizationModes = Table[string, abi.GpuVirtualizationMode_t]{
	{"none", abi.GPU_VIRTUALIZATION_MODE_NONE},
	{"passthrough", abi.GPU_VIRTUALIZATION_MODE_PASSTHROUGH},
	{"vgpu", abi.GPU_VIRTUALIZATION_MODE_VGPU},
	{"host_vgpu", abi.GPU_VIRTUALIZATION_MODE_HOST_VGPU},
	{"host_vsga", abi.GPU_VIRTUALIZATION_MODE_HOST_VSGA},
}
