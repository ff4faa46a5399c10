package profiles

import (
	"fmt"
	"strings"

	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// Device is one GPU with all of its values.
type Device struct {
	// Index is the GPU's place in the enumeration, from 0.
	Index uint32 `yaml:"index" fixed:"yes"`
	// Extends names a shipped board whose first GPU this one is like, on a machine with GPUs of several boards. Identifiers
	// are this GPU's own.
	Extends Opt[string] `yaml:"extends" fixed:"yes"`
	// UUID is the GPU's identifier, GPU- and a UUID; generated when the profile gives none.
	UUID UUID `yaml:"uuid" fixed:"yes"`
	// MinorNumber is the N of /dev/nvidiaN; the index when the profile gives none. With N/A the driver does not tell.
	MinorNumber Opt[uint32] `yaml:"minor_number" fixed:"yes"`
	// PDI is the GPU's per-device identifier.
	PDI Opt[uint64] `yaml:"pdi" fixed:"yes"`
	// GraceCPUPair is the number of the Grace CPU that the GPU is attached to.
	GraceCPUPair Opt[uint32] `yaml:"grace_cpu_pair"`

	Properties
}

// Properties are the values that device_defaults gives for all devices and an entry of devices for one.
type Properties struct {
	// Name is the product name.
	Name Opt[string] `yaml:"name" longest:"95"`
	// Brand is the product line.
	Brand Opt[string] `yaml:"brand" enum:"unknown,quadro,tesla,nvs,grid,geforce,titan,nvidia_vapps,nvidia_vpc,nvidia_vcs,nvidia_vws,nvidia_cloud_gaming,quadro_rtx,nvidia_rtx,nvidia,geforce_rtx,titan_rtx"`
	// Serial is the board's serial number; GPUs of one board may share it. Generated when the profile gives none.
	Serial Opt[string] `yaml:"serial" fixed:"yes"`
	// BoardPartNumber is the board's part number.
	BoardPartNumber Opt[string] `yaml:"board_part_number"`
	// GPUPartNumber is the chip's part number.
	GPUPartNumber Opt[string] `yaml:"gpu_part_number"`
	// FRUPartNumber is the part number of the unit that is replaced in the field (field replaceable unit), which the GPU is a part of.
	FRUPartNumber Opt[string] `yaml:"fru_part_number" longest:"19"`
	// BoardID is NVML's number for the board; derived from the bus id when absent.
	BoardID Opt[uint32] `yaml:"board_id"`
	// MultiGPUBoard says that the board carries more than one GPU.
	MultiGPUBoard Opt[bool] `yaml:"multi_gpu_board"`
	// VBIOSVersion is the VBIOS version.
	VBIOSVersion Opt[string] `yaml:"vbios_version"`
	// Architecture is the chip's generation.
	Architecture Opt[string] `yaml:"architecture" enum:"kepler,maxwell,pascal,volta,turing,ampere,ada=ada_lovelace,hopper,blackwell"`
	// ComputeCapability is the CUDA compute capability.
	ComputeCapability ComputeCapability `yaml:"compute_capability"`
	// NumGPUCores is the number of CUDA cores.
	NumGPUCores Opt[uint32] `yaml:"num_gpu_cores"`
	// MultiprocessorCount is the number of SMs.
	MultiprocessorCount Opt[uint32] `yaml:"multiprocessor_count"`
	// InfoROM is the InfoROM's versions.
	InfoROM InfoROM `yaml:"inforom"`
	// Hostname is the name that the GPU has in its machine's network.
	Hostname Opt[string] `yaml:"hostname" longest:"63"`
	// IRQ is the number of the GPU's interrupt.
	IRQ Opt[uint32] `yaml:"irq" fixed:"yes"`
	// AddressingMode is how the GPU addresses the host's memory.
	AddressingMode Opt[string] `yaml:"addressing_mode" enum:"none,hmm,ats"`
	// RecoveryAction is what the driver recommends to do about the GPU.
	RecoveryAction Opt[string] `yaml:"recovery_action" enum:"none,gpu_reset=reset,node_reboot=reboot,drain_p2p,drain_and_reset"`

	// ResetStatus says what the GPU has to be reset for, as drivers before 570 do. If it says anything, RecoveryAction has no
	// part in that.
	ResetStatus ResetStatus `yaml:"reset_status"`

	// Memory is the frame buffer.
	Memory Memory `yaml:"memory"`
	// BAR1Memory is the BAR1 aperture.
	BAR1Memory MemoryUse `yaml:"bar1_memory"`
	// CCProtectedMemory is the memory protected by confidential computing.
	CCProtectedMemory MemoryUse `yaml:"cc_protected_memory"`
	// PCI is the GPU's PCI identity.
	PCI PCI `yaml:"pci"`
	// PCIe is the GPU's PCIe link.
	PCIe PCIe `yaml:"pcie"`

	// Power is the GPU's power.
	Power Power `yaml:"power"`
	// Voltage is the GPU's voltages.
	Voltage Voltage `yaml:"voltage"`
	// PowerSmoothing is how the power is smoothed.
	PowerSmoothing PowerSmoothing `yaml:"power_smoothing"`
	// WorkloadPowerProfiles are the power profiles that the board has for kinds of work.
	WorkloadPowerProfiles WorkloadPowerProfiles `yaml:"workload_power_profiles"`
	// MemoryPower is the power of the GPU's memory.
	MemoryPower PowerDraw `yaml:"memory_power"`
	// ModulePower is the power of the module that carries GPU and CPU.
	ModulePower ModulePower `yaml:"module_power"`
	// Thermal is temperatures and their thresholds.
	Thermal Thermal `yaml:"thermal"`
	// Fan is the GPU's fans.
	Fan Fan `yaml:"fan"`
	// Clocks is the GPU's clocks.
	Clocks Clocks `yaml:"clocks"`
	// ClockOffsets is how far clocks are shifted.
	ClockOffsets ClockOffsets `yaml:"clock_offsets"`
	// ClocksThrottleReasons says why clocks are held down.
	ClocksThrottleReasons ClocksThrottleReasons `yaml:"clocks_throttle_reasons"`
	// SupportedClocks are the clocks that can be asked for.
	SupportedClocks SupportedClocks `yaml:"supported_clocks"`
	// PerformanceState is the P-state, 0 to 15.
	PerformanceState Opt[PState] `yaml:"performance_state"`
	// PerformanceStates are the P-states that the GPU has, the fastest first.
	PerformanceStates []PerformanceState `yaml:"performance_states"`
	// PowerMizer is what the driver weighs when it chooses the clocks.
	PowerMizer PowerMizer `yaml:"power_mizer"`

	// Utilization is how busy the GPU's parts are.
	Utilization Utilization `yaml:"utilization"`
	// EncoderStats sums up the encoder sessions.
	EncoderStats SessionStats `yaml:"encoder_stats"`
	// FBCStats sums up the frame buffer capture sessions.
	FBCStats SessionStats `yaml:"fbc_stats"`
	// Processes are the processes on the GPU.
	Processes []Process `yaml:"processes"`
	// Accounting is process accounting.
	Accounting Accounting `yaml:"accounting"`

	// ECC is ECC mode and errors.
	ECC ECC `yaml:"ecc"`
	// RetiredPages are the memory pages taken out of use; before Ampere.
	RetiredPages RetiredPages `yaml:"retired_pages"`
	// RemappedRows are the memory rows replaced by spare ones; from Ampere on.
	RemappedRows RemappedRows `yaml:"remapped_rows"`

	// Display is the display outputs.
	Display Display `yaml:"display"`
	// PersistenceMode says that the driver stays loaded without clients.
	PersistenceMode Opt[Enabled] `yaml:"persistence_mode"`
	// ComputeMode says who may compute on the GPU.
	ComputeMode Opt[string] `yaml:"compute_mode" enum:"default,exclusive_thread,prohibited,exclusive_process"`
	// APIRestriction says which setters are for administrators alone.
	APIRestriction APIRestriction `yaml:"api_restriction"`
	// MIG is the GPU's MIG mode.
	MIG DeviceMIG `yaml:"mig"`
	// GPUOperationMode is the GPU operation mode of some Tesla and Quadro boards.
	GPUOperationMode GPUOperationMode `yaml:"gpu_operation_mode"`
	// DriverModel is Windows' driver model.
	DriverModel DriverModel `yaml:"driver_model"`
	// Virtualization is the GPU's part in virtualisation.
	Virtualization Virtualization `yaml:"virtualization"`
	// VGPU is how the GPU is shared with virtual machines.
	VGPU DeviceVGPU `yaml:"vgpu"`
	// GSPFirmware is the firmware of the GPU System Processor.
	GSPFirmware GSPFirmware `yaml:"gsp_firmware"`
	// C2CMode is the state of the NVLink-C2C link to the CPU.
	C2CMode Opt[Enabled] `yaml:"c2c_mode"`
	// SparseOperationMode is the sparse operation mode.
	SparseOperationMode Opt[Enabled] `yaml:"sparse_operation_mode"`
	// EGM is extended GPU memory.
	EGM Opt[Enabled] `yaml:"egm"`
	// Features are features of the chip that no getter reads.
	Features Features `yaml:"features"`
	// GraceSuperchip is the Grace CPU beside the GPU.
	GraceSuperchip GraceSuperchip `yaml:"grace_superchip"`

	// Topology is how far the other GPUs are, where the board's topology does not say.
	Topology DeviceTopology `yaml:"topology"`
	// Fabric is the GPU's place in an NVLink fabric of machines.
	Fabric Fabric `yaml:"fabric"`
	// Platform is where the GPU sits in its rack.
	Platform Platform `yaml:"platform"`

	// DynamicMetrics makes readings change over time.
	DynamicMetrics DynamicMetrics `yaml:"dynamic_metrics"`
	// GPM is performance monitoring.
	GPM GPM `yaml:"gpm"`
	// Failure makes the GPU fail.
	Failure Failure `yaml:"failure"`
	// NVLinkLowPower is when idle NVLinks go into their low power state.
	NVLinkLowPower NVLinkLowPower `yaml:"nvlink_low_power"`
	// NVLinkError makes the link errors grow.
	NVLinkError NVLinkError `yaml:"nvlink_error"`
	// Events is what the GPU reports by events.
	Events Events `yaml:"events"`
	// Answers are the errors that single functions answer in place of a value.
	Answers []Answer `yaml:"answers"`
}

// Answer is the error that a function answers, or that a field of nvmlDeviceGetFieldValues has.
type Answer struct {
	// Function is the function, by its name in NVML's header. A program may call other versions of it, which are functions of their own.
	Function Function `yaml:"function"`
	// Field is the number of a field, in place of a function; as the GPU's driver numbers it.
	Field Opt[uint32] `yaml:"field" range:"1..1000000"`
	// Error is the answer.
	Error string `yaml:"error" required:"yes" enum:"unknown_error,not_supported,no_permission,reset_required,lost,not_ready,timeout,no_data,in_use,memory,invalid_state"`
}

// Function is the name of a function of a device.
type Function string

// UnmarshalText accepts the functions of all versions of NVML that have a device as their first argument.
func (f *Function) UnmarshalText(text []byte) error {
	*f = Function(text)
	name := string(text)
	if _, ok := f.Number(); ok && strings.HasPrefix(name, "nvmlDevice") && !strings.HasPrefix(name, "nvmlDeviceGetHandle") &&
		!strings.HasPrefix(name, "nvmlDeviceGetCount") {
		return nil
	}
	return fmt.Errorf("unknown function %s: want one of a GPU, such as nvmlDeviceGetPowerUsage", quote(text))
}

// Number is the function's number at the call gate; false if nvmlfab does not implement it.
func (f Function) Number() (int, bool) {
	for _, s := range abi.Symbols() {
		if s.Name == string(f) && s.Implemented {
			return s.Number, true
		}
	}
	return 0, false
}

// Events is what a GPU reports by events.
type Events struct {
	// Supported says whether programs can wait for the GPU's events; they can unless it is false.
	Supported Opt[bool] `yaml:"supported"`
}

// ComputeCapability is the CUDA compute capability.
type ComputeCapability struct {
	// Major is the number before the dot.
	Major Opt[uint32] `yaml:"major"`
	// Minor is the number after the dot.
	Minor Opt[uint32] `yaml:"minor"`
}

// InfoROM is the InfoROM's versions.
type InfoROM struct {
	// ImageVersion is the version of the whole image.
	ImageVersion Opt[string] `yaml:"image_version"`
	// OEMObject is the OEM object's version.
	OEMObject Opt[string] `yaml:"oem_object"`
	// ECCObject is the ECC object's version.
	ECCObject Opt[string] `yaml:"ecc_object"`
	// PWRObject is the power object's version.
	PWRObject Opt[string] `yaml:"pwr_object"`
	// BBXFlushTimestampUS is the start of the last flush of the black box, in µs since 1970.
	BBXFlushTimestampUS Opt[uint64] `yaml:"bbx_flush_timestamp_us"`
	// BBXFlushDurationUS is how long that flush took, in µs.
	BBXFlushDurationUS Opt[uint64] `yaml:"bbx_flush_duration_us"`
	// Checksum is the checksum of the configuration.
	Checksum Opt[uint32] `yaml:"checksum"`
}

// PerformanceState is one of a GPU's P-states.
type PerformanceState struct {
	// State is its name, such as P8.
	State PState `yaml:"state" required:"yes"`
	// GraphicsMinMHz is the lowest graphics clock, in MHz.
	GraphicsMinMHz Opt[uint32] `yaml:"graphics_min_mhz"`
	// GraphicsMaxMHz is the highest graphics clock, in MHz.
	GraphicsMaxMHz Opt[uint32] `yaml:"graphics_max_mhz"`
	// MemoryMinMHz is the lowest memory clock, in MHz.
	MemoryMinMHz Opt[uint32] `yaml:"memory_min_mhz"`
	// MemoryMaxMHz is the highest memory clock, in MHz.
	MemoryMaxMHz Opt[uint32] `yaml:"memory_max_mhz"`
}

// PowerMizer is what the driver weighs when it chooses the clocks.
type PowerMizer struct {
	// Mode is what counts; the clocks of the highest performance with prefer_maximum.
	Mode Opt[string] `yaml:"mode" enum:"adaptive,prefer_maximum,auto,prefer_consistent"`
	// Modes are those that can be asked for; Mode alone when absent.
	Modes []string `yaml:"modes" enum:"adaptive,prefer_maximum,auto,prefer_consistent"`
}

// Process is one process on a GPU.
type Process struct {
	// PID is the process id.
	PID uint32 `yaml:"pid" range:"1..4294967295" required:"yes"`
	// Type is C (computes), G (draws) or C+G.
	Type Opt[string] `yaml:"type" enum:"C,G,C+G"`
	// Name is the path of the program.
	Name Opt[string] `yaml:"name"`
	// UsedMemoryMiB is the process's GPU memory, in MiB.
	UsedMemoryMiB Opt[uint64] `yaml:"used_memory_mib" range:"0..1073741824"`
	// SMUtil is its use of the SMs, in percent.
	SMUtil Opt[uint32] `yaml:"sm_util" range:"0..100"`
	// MemUtil is its use of the memory's bandwidth, in percent.
	MemUtil Opt[uint32] `yaml:"mem_util" range:"0..100"`
	// EncUtil is its use of the encoders, in percent.
	EncUtil Opt[uint32] `yaml:"enc_util" range:"0..100"`
	// DecUtil is its use of the decoders, in percent.
	DecUtil Opt[uint32] `yaml:"dec_util" range:"0..100"`
	// JPEGUtil is its use of the JPEG engines, in percent.
	JPEGUtil Opt[uint32] `yaml:"jpeg_util" range:"0..100"`
	// OFAUtil is its use of the optical flow engines, in percent.
	OFAUtil Opt[uint32] `yaml:"ofa_util" range:"0..100"`
	// GPUInstanceID is the number of the GPU instance that it runs in, on a GPU in MIG mode.
	GPUInstanceID Opt[uint32] `yaml:"gpu_instance_id" range:"0..14"`
	// ComputeInstanceID is the number of its compute instance there.
	ComputeInstanceID Opt[uint32] `yaml:"compute_instance_id" range:"0..7"`
}

// Accounting is process accounting.
type Accounting struct {
	// Mode says whether processes are accounted.
	Mode Opt[Enabled] `yaml:"mode"`
	// BufferSize is the number of processes that the buffer holds.
	BufferSize Opt[uint32] `yaml:"buffer_size"`
}

// Display is the display outputs.
type Display struct {
	// Mode says whether a display is attached, as older drivers put it.
	Mode Opt[Enabled] `yaml:"mode"`
	// Active says whether a display is initialised.
	Active Opt[Enabled] `yaml:"active"`
	// Attached says whether a display is attached, as drivers that deprecate Mode put it.
	Attached Opt[bool] `yaml:"attached"`
}

// DeviceMIG is a GPU's MIG mode.
type DeviceMIG struct {
	// ModeCurrent is the mode in force.
	ModeCurrent Opt[Enabled] `yaml:"mode_current"`
	// ModePending is the mode after the next reset.
	ModePending Opt[Enabled] `yaml:"mode_pending"`
	// MaxGPUInstances is how many instances the GPU can be cut into.
	MaxGPUInstances Opt[uint32] `yaml:"max_gpu_instances" range:"0..8"`
	// Instances are the GPU instances that there are from the start. They want mode_current to be enabled.
	Instances []MIGInstance `yaml:"instances" fixed:"yes"`
	// Visible are the MIG devices that programs see, by GPU instance and compute instance, such as gi2/ci0; all when absent.
	// A container that is given some MIG devices has such a profile.
	Visible []string `yaml:"visible" fixed:"yes"`
}

// APIRestriction says which setters are for administrators alone.
type APIRestriction struct {
	// ApplicationClocks says that the setter of applications clocks is; it is when absent.
	ApplicationClocks Opt[Enabled] `yaml:"application_clocks"`
	// AutoBoostedClocks says that the switch of auto boosted clocks is; it is for everybody when absent.
	AutoBoostedClocks Opt[Enabled] `yaml:"auto_boosted_clocks"`
}

// NVLinkLowPower is when idle NVLinks go into their low power state. A board without a lowest and a highest threshold
// does not let anybody set it.
type NVLinkLowPower struct {
	// Threshold is how long a link has to be idle, in units of 100 µs; Default when absent.
	Threshold Opt[uint32] `yaml:"threshold"`
	// Default is Threshold after a reset, in units of 100 µs.
	Default Opt[uint32] `yaml:"default"`
	// Min is the lowest threshold, in units of 100 µs.
	Min Opt[uint32] `yaml:"min"`
	// Max is the highest threshold, in units of 100 µs.
	Max Opt[uint32] `yaml:"max"`
}

// GPUOperationMode is the GPU operation mode.
type GPUOperationMode struct {
	// Current is the mode in force.
	Current Opt[string] `yaml:"current" enum:"all_on,compute,low_dp=low_double_precision"`
	// Pending is the mode after the next reset.
	Pending Opt[string] `yaml:"pending" enum:"all_on,compute,low_dp=low_double_precision"`
}

// DriverModel is Windows' driver model.
type DriverModel struct {
	// Current is the model in force.
	Current Opt[string] `yaml:"current" enum:"wddm,wdm=tcc,mcdm"`
	// Pending is the model after the next reset.
	Pending Opt[string] `yaml:"pending" enum:"wddm,wdm=tcc,mcdm"`
}

// Virtualization is a GPU's part in virtualisation.
type Virtualization struct {
	// Mode is the virtualisation mode.
	Mode Opt[string] `yaml:"mode" enum:"none,passthrough=pass_through,vgpu,host_vgpu,host_vsga"`
	// HostVGPUMode is the vGPU mode of a host.
	HostVGPUMode Opt[string] `yaml:"host_vgpu_mode" enum:"non_sriov=non_sr_iov,sriov=sr_iov"`
}

// GSPFirmware is the firmware of the GPU System Processor.
type GSPFirmware struct {
	// Mode says whether the firmware runs.
	Mode Opt[Enabled] `yaml:"mode"`
	// Version is the firmware's version.
	Version Opt[string] `yaml:"version"`
}

// Features are features of the chip that no getter reads.
type Features struct {
	// TransformerEngine says that the chip has a transformer engine.
	TransformerEngine Opt[bool] `yaml:"transformer_engine"`
	// FP4Support says that the chip computes with 4-bit floats.
	FP4Support Opt[bool] `yaml:"fp4_support"`
	// FP6Support says that the chip computes with 6-bit floats.
	FP6Support Opt[bool] `yaml:"fp6_support"`
	// FP8Support says that the chip computes with 8-bit floats.
	FP8Support Opt[bool] `yaml:"fp8_support"`
	// ConfidentialCompute says that the chip can compute confidentially.
	ConfidentialCompute Opt[bool] `yaml:"confidential_compute"`
	// NVLinkC2C says that the chip has an NVLink-C2C link.
	NVLinkC2C Opt[bool] `yaml:"nvlink_c2c"`
	// DecompressionEngine says that the chip has a decompression engine.
	DecompressionEngine Opt[bool] `yaml:"decompression_engine"`
	// FifthGenTensorCores says that the chip has fifth-generation tensor cores.
	FifthGenTensorCores Opt[bool] `yaml:"fifth_gen_tensor_cores"`
}

// GraceSuperchip is the Grace CPU beside a GPU.
type GraceSuperchip struct {
	// Enabled says that there is one.
	Enabled Opt[bool] `yaml:"enabled"`
	// CPUCores is the number of its cores.
	CPUCores Opt[uint32] `yaml:"cpu_cores"`
	// CPUMemoryGB is its memory, in GB.
	CPUMemoryGB Opt[uint32] `yaml:"cpu_memory_gb"`
	// CoherentMemory says that GPU and CPU share coherent memory.
	CoherentMemory Opt[bool] `yaml:"coherent_memory"`
}

// DeviceTopology is how far the other GPUs are.
type DeviceTopology struct {
	// DefaultLevel is the level of the path to every other GPU.
	DefaultLevel Opt[string] `yaml:"default_level" enum:"internal,single,multiple,hostbridge,node,system"`
}
