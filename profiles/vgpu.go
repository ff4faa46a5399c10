package profiles

// SystemVGPU is what the driver of a machine that shares its GPUs with virtual machines says about itself.
type SystemVGPU struct {
	// MinVersion is the oldest vGPU version that the host's driver serves, such as 0x70001.
	MinVersion Opt[uint32] `yaml:"min_version"`
	// MaxVersion is the newest vGPU version that the host's driver serves.
	MaxVersion Opt[uint32] `yaml:"max_version"`
	// SetMinVersion is the oldest version that an administrator allows; MinVersion when absent.
	SetMinVersion Opt[uint32] `yaml:"set_min_version"`
	// SetMaxVersion is the newest version that an administrator allows; MaxVersion when absent.
	SetMaxVersion Opt[uint32] `yaml:"set_max_version"`
	// HeterogeneousMultiVGPU says that one virtual machine can have vGPUs of different types.
	HeterogeneousMultiVGPU Opt[bool] `yaml:"heterogeneous_multi_vgpu"`
	// WarmUpdate says that the host's driver can be replaced while virtual machines run.
	WarmUpdate Opt[bool] `yaml:"warm_update"`
}

// DeviceVGPU is how a GPU is shared with virtual machines. All but Licensing is of a host, and counts while the GPU's
// virtualization.mode is host_vgpu; Licensing is of a guest.
type DeviceVGPU struct {
	// Types are the ways to share the GPU, as nvidia-smi vgpu -s -v lists them.
	Types []VGPUType `yaml:"types"`
	// Instances are the vGPUs of the virtual machines that run.
	Instances []VGPUInstance `yaml:"instances"`
	// HeterogeneousMode says that vGPUs with different amounts of memory can run at the same time.
	HeterogeneousMode Opt[Enabled] `yaml:"heterogeneous_mode"`
	// Capabilities are what the GPU can do as a vGPU host.
	Capabilities VGPUCapabilities `yaml:"capabilities"`
	// Scheduler decides which vGPU runs when.
	Scheduler VGPUScheduler `yaml:"scheduler"`
	// GPUInstances are the modes of GPU instances, on a GPU in MIG mode. An instance without an entry has the GPU's.
	GPUInstances []VGPUGPUInstance `yaml:"gpu_instances"`
	// MigrationSupported says that vGPUs can move to and from the GPU while their virtual machines run.
	MigrationSupported Opt[bool] `yaml:"migration_supported"`
	// Licensing is what the driver in a virtual machine says about its licences.
	Licensing VGPULicensing `yaml:"licensing"`
}

// VGPUGPUInstance is how a GPU instance is shared with virtual machines.
type VGPUGPUInstance struct {
	// ID is the number of the GPU instance.
	ID uint32 `yaml:"id" range:"0..14" required:"yes"`
	// HeterogeneousMode says that vGPUs with different amounts of memory can run at the same time.
	HeterogeneousMode Opt[Enabled] `yaml:"heterogeneous_mode"`
	// Scheduler decides which vGPU runs when. What it can do is what the GPU's scheduler can do.
	Scheduler VGPUSchedule `yaml:"scheduler"`
}

// VGPUType is one way to share a GPU. nvidia-smi crashes on a type without one of the values that are required.
type VGPUType struct {
	// ID is the driver's number for it.
	ID uint32 `yaml:"id" range:"1..4294967295" required:"yes"`
	// Name is its name, such as NVIDIA A10-6Q.
	Name string `yaml:"name" longest:"63" required:"yes"`
	// Class is its class, such as Quadro, NVS or Compute.
	Class string `yaml:"class" longest:"63" required:"yes"`
	// DeviceID is the PCI device and vendor id that the virtual machine sees; the GPU's when absent.
	DeviceID Opt[uint32] `yaml:"device_id"`
	// SubsystemID is the PCI subsystem id that the virtual machine sees; the GPU's when absent.
	SubsystemID Opt[uint32] `yaml:"subsystem_id"`
	// FramebufferMiB is a vGPU's memory, in MiB.
	FramebufferMiB uint64 `yaml:"framebuffer_mib" range:"1..1073741824" required:"yes"`
	// FramebufferReservationMiB is the part of that memory that the guest cannot use, in MiB.
	FramebufferReservationMiB Opt[uint64] `yaml:"framebuffer_reservation_mib" range:"0..1073741824"`
	// GSPHeapMiB is the memory of the GPU System Processor for a vGPU, in MiB.
	GSPHeapMiB Opt[uint64] `yaml:"gsp_heap_mib" range:"0..1073741824"`
	// BAR1MiB is a vGPU's BAR1 aperture, in MiB.
	BAR1MiB Opt[uint64] `yaml:"bar1_mib" range:"0..1073741824"`
	// MaxInstances is how many fit on the GPU.
	MaxInstances uint32 `yaml:"max_instances" range:"1..1024" required:"yes"`
	// MaxInstancesPerVM is how many a virtual machine may have; 1 when absent.
	MaxInstancesPerVM Opt[uint32] `yaml:"max_instances_per_vm" range:"0..1024"`
	// DisplayHeads is the number of displays.
	DisplayHeads uint32 `yaml:"display_heads" range:"0..16" required:"yes"`
	// MaxX is the width of a display, in pixels.
	MaxX uint32 `yaml:"max_x" required:"yes"`
	// MaxY is the height of a display, in pixels.
	MaxY uint32 `yaml:"max_y" required:"yes"`
	// FrameRateLimit is the highest number of frames per second; absent where nothing limits them.
	FrameRateLimit Opt[uint32] `yaml:"frame_rate_limit"`
	// License is the licences that allow it, such as Quadro-Virtual-DWS,5.0;GRID-Virtual-WS,2.0.
	License Opt[string] `yaml:"license" longest:"127"`
	// GPUInstanceProfileID is the id of the MIG profile that a vGPU gets an instance of. Such a type is offered while the GPU is
	// in MIG mode, and all others while it is not.
	GPUInstanceProfileID Opt[uint32] `yaml:"gpu_instance_profile_id"`
	// MaxInstancesPerGPUInstance is how many share a GPU instance; 1 when absent.
	MaxInstancesPerGPUInstance Opt[uint32] `yaml:"max_instances_per_gpu_instance" range:"1..1024"`
	// PlacementSize is how many places a vGPU takes in heterogeneous mode.
	PlacementSize Opt[uint32] `yaml:"placement_size" range:"1..65534"`
	// PlacementIDs are the places at which it may start in heterogeneous mode.
	PlacementIDs []uint32 `yaml:"placement_ids"`
	// HomogeneousPlacementSize is how many places a vGPU takes while all vGPUs have the same amount of memory.
	HomogeneousPlacementSize Opt[uint32] `yaml:"homogeneous_placement_size" range:"1..65534"`
	// HomogeneousPlacementIDs are the places at which it may start then.
	HomogeneousPlacementIDs []uint32 `yaml:"homogeneous_placement_ids"`
	// MiniQuarter says that it is offered only with the capability mini_quarter_gpu.
	MiniQuarter Opt[bool] `yaml:"mini_quarter"`
	// ComputeMediaEngine says that it is offered only with the capability compute_media_engine_gpu.
	ComputeMediaEngine Opt[bool] `yaml:"compute_media_engine"`
	// NVLinkP2P says that vGPUs may access each other over NVLink.
	NVLinkP2P Opt[bool] `yaml:"nvlink_p2p"`
	// GPUDirect says that it has GPUDirect.
	GPUDirect Opt[bool] `yaml:"gpudirect"`
	// MultiVGPUExclusive says that a virtual machine with such a vGPU can have no vGPU of another type.
	MultiVGPUExclusive Opt[bool] `yaml:"multi_vgpu_exclusive"`
	// ExclusiveType says that no vGPU of another type can run on the GPU beside it.
	ExclusiveType Opt[bool] `yaml:"exclusive_type"`
	// ExclusiveSize says that no vGPU with another amount of memory can run on the GPU beside it.
	ExclusiveSize Opt[bool] `yaml:"exclusive_size"`
}

// VGPUInstance is the vGPU of a virtual machine that runs.
type VGPUInstance struct {
	// ID is the driver's number for it; no two vGPUs of the machine have the same.
	ID uint32 `yaml:"id" range:"1..4294967295" required:"yes"`
	// Type is the name of its type.
	Type string `yaml:"type" required:"yes"`
	// UUID is its identifier.
	UUID PlainUUID `yaml:"uuid" required:"yes"`
	// MdevUUID is the identifier of its mediated device; on KVM alone.
	MdevUUID Opt[PlainUUID] `yaml:"mdev_uuid"`
	// VMID identifies its virtual machine: a UUID, or the number of a domain.
	VMID string `yaml:"vm_id" longest:"79" required:"yes"`
	// VMIDType is what VMID is.
	VMIDType Opt[string] `yaml:"vm_id_type" enum:"uuid,domain_id"`
	// VMDriverVersion is the version of the guest's driver; absent while none is loaded.
	VMDriverVersion Opt[string] `yaml:"vm_driver_version" longest:"79"`
	// VMVGPUVersion is the vGPU version of the guest's driver.
	VMVGPUVersion Opt[uint32] `yaml:"vm_vgpu_version"`
	// VMBusID is the GPU's PCI address in the virtual machine.
	VMBusID Opt[BusID] `yaml:"vm_bus_id"`
	// GPUInstanceID is the number of the GPU instance that it runs in, on a GPU in MIG mode.
	GPUInstanceID Opt[uint32] `yaml:"gpu_instance_id" range:"0..14"`
	// PlacementID is the place at which it starts.
	PlacementID Opt[uint32] `yaml:"placement_id" range:"0..65534"`
	// License is its licence.
	License VGPULicense `yaml:"license"`
	// ECCMode says whether its memory has ECC.
	ECCMode Opt[Enabled] `yaml:"ecc_mode"`
	// FrameRateLimit is the highest number of frames per second; its type's when absent.
	FrameRateLimit Opt[uint32] `yaml:"frame_rate_limit"`
	// FramebufferUsedMiB is the memory that its virtual machine uses, in MiB.
	FramebufferUsedMiB Opt[uint64] `yaml:"framebuffer_used_mib" range:"0..1073741824"`
	// RuntimeStateBytes is the greatest size of its state without the memory of the guest, in bytes.
	RuntimeStateBytes Opt[uint64] `yaml:"runtime_state_bytes"`
	// Utilization is how busy it keeps the GPU.
	Utilization VGPUUtilization `yaml:"utilization"`
	// EncoderCapacity is its part of the encoders, in percent.
	EncoderCapacity Opt[uint32] `yaml:"encoder_capacity" range:"0..100"`
	// EncoderSessions are its encoder sessions.
	EncoderSessions []EncoderSession `yaml:"encoder_sessions"`
	// FBCSessions are its frame buffer capture sessions.
	FBCSessions []FBCSession `yaml:"fbc_sessions"`
	// AccountingMode says whether its processes are accounted.
	AccountingMode Opt[Enabled] `yaml:"accounting_mode"`
	// Processes are the guest's processes on it. Those that have ended are there for accounting.
	Processes []VGPUProcess `yaml:"processes"`
}

// VGPULicense is a vGPU's licence.
type VGPULicense struct {
	// State is whether it has one, and what follows if not; unknown when absent.
	State Opt[string] `yaml:"state" enum:"unknown,uninitialized,unlicensed_unrestricted,unlicensed_restricted,unlicensed,licensed"`
	// Expiry is when it ends.
	Expiry Opt[LicenseExpiry] `yaml:"expiry"`
}

// VGPUUtilization is how busy a vGPU keeps the parts of the GPU, in percent.
type VGPUUtilization struct {
	// SM is the SMs' load, in percent.
	SM Opt[uint32] `yaml:"sm" range:"0..100"`
	// Memory is the load of the memory's bandwidth, in percent.
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

// VGPUProcess is a process of a guest.
type VGPUProcess struct {
	// PID is the process id in the virtual machine.
	PID uint32 `yaml:"pid" range:"1..4294967295" required:"yes"`
	// Name is the program's name.
	Name Opt[string] `yaml:"name" longest:"63"`
	// MaxMemoryMiB is the most memory that it has used, in MiB.
	MaxMemoryMiB Opt[uint64] `yaml:"max_memory_mib" range:"0..1073741824"`
	// StartedUS is when it started, in µs since 1970.
	StartedUS Opt[uint64] `yaml:"started_us"`
	// RanMS is how long it ran, in ms; absent while it runs.
	RanMS Opt[uint64] `yaml:"ran_ms"`
	// Utilization is how busy it keeps the GPU.
	Utilization VGPUUtilization `yaml:"utilization"`
}

// EncoderSession is an encoder session.
type EncoderSession struct {
	// ID is its number.
	ID uint32 `yaml:"id" required:"yes"`
	// PID is the process that it belongs to.
	PID Opt[uint32] `yaml:"pid"`
	// Codec is what it encodes to.
	Codec Opt[string] `yaml:"codec" enum:"h264,hevc,av1"`
	// X is the width of a frame, in pixels.
	X Opt[uint32] `yaml:"x"`
	// Y is the height of a frame, in pixels.
	Y Opt[uint32] `yaml:"y"`
	// AverageFPS is its average number of frames per second.
	AverageFPS Opt[uint32] `yaml:"average_fps"`
	// AverageLatencyUS is its average latency, in µs.
	AverageLatencyUS Opt[uint32] `yaml:"average_latency_us"`
}

// FBCSession is a frame buffer capture session.
type FBCSession struct {
	// ID is its number.
	ID uint32 `yaml:"id" required:"yes"`
	// PID is the process that it belongs to.
	PID Opt[uint32] `yaml:"pid"`
	// Display is the display that it captures.
	Display Opt[uint32] `yaml:"display"`
	// Type is where the frames go.
	Type Opt[string] `yaml:"type" enum:"unknown,to_sys,cuda,vid,hw_enc"`
	// DiffMap says that it marks what has changed.
	DiffMap Opt[bool] `yaml:"diff_map"`
	// ClassificationMap says that it marks what is text and what is video.
	ClassificationMap Opt[bool] `yaml:"classification_map"`
	// Wait is how a call waits for a frame.
	Wait Opt[string] `yaml:"wait" enum:"none,infinite,timeout"`
	// MaxX is the greatest width of a frame, in pixels.
	MaxX Opt[uint32] `yaml:"max_x"`
	// MaxY is the greatest height of a frame, in pixels.
	MaxY Opt[uint32] `yaml:"max_y"`
	// X is the width of a frame, in pixels.
	X Opt[uint32] `yaml:"x"`
	// Y is the height of a frame, in pixels.
	Y Opt[uint32] `yaml:"y"`
	// AverageFPS is its average number of new frames per second.
	AverageFPS Opt[uint32] `yaml:"average_fps"`
	// AverageLatencyUS is its average latency, in µs.
	AverageLatencyUS Opt[uint32] `yaml:"average_latency_us"`
}

// VGPUCapabilities are what a GPU can do as a vGPU host.
type VGPUCapabilities struct {
	// FractionalMultiVGPU says that a virtual machine can have several vGPUs that share a GPU with others.
	FractionalMultiVGPU Opt[bool] `yaml:"fractional_multi_vgpu"`
	// HeterogeneousTimesliceProfiles says that vGPUs of different types can run at the same time.
	HeterogeneousTimesliceProfiles Opt[bool] `yaml:"heterogeneous_timeslice_profiles"`
	// HeterogeneousTimesliceSizes says that vGPUs with different amounts of memory can run at the same time.
	HeterogeneousTimesliceSizes Opt[bool] `yaml:"heterogeneous_timeslice_sizes"`
	// ReadDeviceBufferBandwidth is how fast the device buffer is read, in MB/s.
	ReadDeviceBufferBandwidth Opt[uint32] `yaml:"read_device_buffer_bandwidth"`
	// WriteDeviceBufferBandwidth is how fast the device buffer is written, in MB/s.
	WriteDeviceBufferBandwidth Opt[uint32] `yaml:"write_device_buffer_bandwidth"`
	// DeviceStreaming says that vGPUs are streamed when they migrate.
	DeviceStreaming Opt[bool] `yaml:"device_streaming"`
	// MiniQuarterGPU says that vGPUs of a quarter of the GPU, of the small kind, are offered.
	MiniQuarterGPU Opt[bool] `yaml:"mini_quarter_gpu"`
	// ComputeMediaEngineGPU says that vGPUs for computing that have media engines are offered.
	ComputeMediaEngineGPU Opt[bool] `yaml:"compute_media_engine_gpu"`
	// WarmUpdate says that the host's driver can be replaced while virtual machines run.
	WarmUpdate Opt[bool] `yaml:"warm_update"`
	// HomogeneousPlacements says that vGPUs with the same amount of memory have placements too.
	HomogeneousPlacements Opt[bool] `yaml:"homogeneous_placements"`
	// MIGTimeslicingSupported says that vGPUs can share a GPU instance.
	MIGTimeslicingSupported Opt[bool] `yaml:"mig_timeslicing_supported"`
	// MIGTimeslicingEnabled says that types which share a GPU instance are listed.
	MIGTimeslicingEnabled Opt[bool] `yaml:"mig_timeslicing_enabled"`
}

// VGPUSchedule is how a scheduler decides which vGPU runs when.
type VGPUSchedule struct {
	// Policy is how the GPU's time is shared; best_effort when absent.
	Policy Opt[string] `yaml:"policy" enum:"best_effort,equal_share,fixed_share"`
	// ARRMode is whether timeslices adapt to what vGPUs have used.
	ARRMode Opt[string] `yaml:"arr_mode" enum:"default,disabled,enabled"`
	// TimesliceNS is the timeslice in force, in ns.
	TimesliceNS Opt[uint32] `yaml:"timeslice_ns"`
	// AvgFactor is the number of timeslices that ARR mode averages over.
	AvgFactor Opt[uint32] `yaml:"avg_factor"`
}

// VGPUScheduler decides which vGPU runs when. Values from Supported on are what it can do.
type VGPUScheduler struct {
	VGPUSchedule
	// Supported are the policies that the GPU has.
	Supported []string `yaml:"supported" enum:"best_effort,equal_share,fixed_share"`
	// DefaultTimesliceNS is the timeslice unless somebody sets one, in ns.
	DefaultTimesliceNS Opt[uint32] `yaml:"default_timeslice_ns"`
	// MinTimesliceNS is the shortest timeslice, in ns.
	MinTimesliceNS Opt[uint32] `yaml:"min_timeslice_ns" range:"1..4294967295"`
	// MaxTimesliceNS is the longest timeslice, in ns.
	MaxTimesliceNS Opt[uint32] `yaml:"max_timeslice_ns"`
	// ARRSupported says that it has ARR mode.
	ARRSupported Opt[bool] `yaml:"arr_supported"`
	// DefaultFrequency is the number of rounds per second in ARR mode unless somebody sets one.
	DefaultFrequency Opt[uint32] `yaml:"default_frequency" range:"1..1000000000"`
	// MinFrequency is the lowest number of rounds per second in ARR mode.
	MinFrequency Opt[uint32] `yaml:"min_frequency" range:"1..1000000000"`
	// MaxFrequency is the highest number of rounds per second in ARR mode.
	MaxFrequency Opt[uint32] `yaml:"max_frequency" range:"1..1000000000"`
	// DefaultAvgFactor is AvgFactor unless somebody sets one.
	DefaultAvgFactor Opt[uint32] `yaml:"default_avg_factor"`
	// MinAvgFactor is the lowest AvgFactor.
	MinAvgFactor Opt[uint32] `yaml:"min_avg_factor"`
	// MaxAvgFactor is the highest AvgFactor.
	MaxAvgFactor Opt[uint32] `yaml:"max_avg_factor"`
}

// VGPULicensing is what the driver in a virtual machine says about its licences.
type VGPULicensing struct {
	// State is whether the virtual machine has a licence, and what follows if not; unknown when absent.
	State Opt[string] `yaml:"state" enum:"unknown,uninitialized,unlicensed_unrestricted,unlicensed_restricted,unlicensed,licensed"`
	// Features are what needs a licence.
	Features []LicensableFeature `yaml:"features"`
}

// LicensableFeature is something that needs a licence.
type LicensableFeature struct {
	// Feature is its kind.
	Feature string `yaml:"feature" enum:"unknown,vgpu,nvidia_rtx=vworkstation,gaming,compute" required:"yes"`
	// ProductName is the licensed product, such as NVIDIA RTX Virtual Workstation.
	ProductName Opt[string] `yaml:"product_name" longest:"127"`
	// Enabled says that it is in use, and so the one that State is about.
	Enabled Opt[bool] `yaml:"enabled"`
	// Expiry is when the licence ends.
	Expiry Opt[LicenseExpiry] `yaml:"expiry"`
}
