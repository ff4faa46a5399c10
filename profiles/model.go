// Package profiles holds the GPU boards that nvmlfab ships, and reads the YAML files that describe others.
//
// A profile is one YAML file with the sections system, device_defaults, devices, nvlink, topology and mig. Loading it
// yields a [Board] whose devices are complete: base board, defaults and per-device values are already combined. A
// number that the profile does not give is an invalid [Opt], and its getter answers NOT_SUPPORTED.
package profiles

import "slices"

//go:generate go run -tags bootstrap ./compile -dir .

// Opt is a value that a profile may leave out.
type Opt[T any] struct {
	Value T
	Valid bool
}

// Some is the Opt that holds v.
func Some[T any](v T) Opt[T] { return Opt[T]{v, true} }

// Get returns the value and whether the profile gives it.
func (o Opt[T]) Get() (T, bool) { return o.Value, o.Valid }

// Or returns the value, or otherwise when the profile gives none.
func (o Opt[T]) Or(otherwise T) T {
	if o.Valid {
		return o.Value
	}
	return otherwise
}

// Board is one machine's GPUs. Boards are shared: nobody may change one.
type Board struct {
	// Name is the shipped board's name, or what the profile was called when it was parsed.
	Name string
	// Version is the version of the file's format, as the file states it.
	Version Opt[string]
	// System is what NVML says about driver and library.
	System System
	// Devices are the GPUs in index order; Devices[i].Index is i, and there is at least one.
	Devices []Device
	// NVLink is the NVLink fabric inside the machine.
	NVLink NVLink
	// Topology is the PCIe and NUMA layout of the machine.
	Topology Topology
	// MIG holds the tables of MIG profiles that the board offers.
	MIG MIGTables
	// InfiniBand is the machine's InfiniBand adapters.
	InfiniBand InfiniBand
	// Units are the S-class units that carry GPUs of this machine.
	Units []Unit
}

// System is what NVML says about driver and library.
type System struct {
	// DriverVersion is the driver's version, such as 580.105.08.
	DriverVersion Opt[string] `yaml:"driver_version" form:"version" longest:"79" fixed:"yes"`
	// NVMLVersion is the NVML library's version, such as 13.580.105.08.
	NVMLVersion Opt[string] `yaml:"nvml_version" fixed:"yes"`
	// CUDAVersion is the newest CUDA version that the driver serves, as text.
	CUDAVersion Opt[string] `yaml:"cuda_version"`
	// CUDAVersionMajor is the major number of CUDAVersion; taken from it when absent.
	CUDAVersionMajor Opt[uint32] `yaml:"cuda_version_major" range:"0..999"`
	// CUDAVersionMinor is the minor number of CUDAVersion; taken from it when absent.
	CUDAVersionMinor Opt[uint32] `yaml:"cuda_version_minor" range:"0..99"`
	// IMEXChannels is the number of device nodes of IMEX channels, /dev/nvidia-caps-imex-channels/channelN, from 0 on.
	IMEXChannels Opt[uint32] `yaml:"imex_channels" range:"0..2048"`
	// InitFailure is what nvmlInit answers instead of starting.
	InitFailure Opt[string] `yaml:"init_failure" enum:"none,driver_not_loaded,lib_rm_version_mismatch,no_permission,gpu_not_found,not_ready,timeout,irq_issue,unknown_error"`
	// WideProcessInfo says that the third version of process lists has 32 bytes for each process in place of 24, as with some
	// builds of driver 535.
	WideProcessInfo Opt[bool] `yaml:"wide_process_info"`
	// VGPU is what the driver says about sharing GPUs with virtual machines.
	VGPU SystemVGPU `yaml:"vgpu"`
	// NumDevices is the number of devices; entries of devices beyond it are dropped. The key count is stricter.
	NumDevices Opt[uint32] `yaml:"num_devices" range:"1..10000" fixed:"yes"`
}

// NVLink is the NVLink fabric inside the machine.
type NVLink struct {
	// Version is the NVLink generation, 1 to 5.
	Version Opt[uint32] `yaml:"version" range:"0..10"`
	// LinksPerGPU is the number of links of each GPU.
	LinksPerGPU Opt[uint32] `yaml:"links_per_gpu" range:"0..64"`
	// BandwidthPerLinkMbps is the speed of one link in one direction, in MB/s as nvidia-smi nvlink -s divides it by 1000.
	BandwidthPerLinkMbps Opt[uint32] `yaml:"bandwidth_per_link_mbps"`
	// C2CEnabled says that the GPUs have an NVLink-C2C link to their CPU.
	C2CEnabled Opt[bool] `yaml:"c2c_enabled"`
	// Links are the links of device 0 when DeviceLinks has no entry for it.
	Links []Link `yaml:"links"`
	// Switches are the NVSwitches that links end at.
	Switches []NVSwitch `yaml:"switches"`
	// SwitchNodes is the number of device nodes of NVSwitches, /dev/nvidia-nvswitchN, from 0 on; beside them is nvidia-nvswitchctl.
	SwitchNodes Opt[uint32] `yaml:"switch_nodes" range:"0..64"`
	// Encrypted says that the links encrypt what they carry.
	Encrypted Opt[bool] `yaml:"encrypted"`
	// Firmware are the programs that drive the links.
	Firmware []LinkFirmware `yaml:"firmware"`
	// Defaults hold for every link that does not say otherwise.
	Defaults LinkDefaults `yaml:"defaults"`
	// DeviceLinks are the links of single devices.
	DeviceLinks []DeviceLinks `yaml:"device_links"`
}

// Link is one NVLink of a GPU.
type Link struct {
	// Link is the link's number on its GPU.
	Link uint32 `yaml:"link" range:"0..63" required:"yes"`
	// State is active or inactive.
	State Opt[string] `yaml:"state" enum:"active=up=enabled,inactive=down=disabled"`
	// RemoteDeviceType says what is at the far end: gpu, switch or cpu.
	RemoteDeviceType Opt[string] `yaml:"remote_device_type" enum:"gpu,switch=nvswitch,cpu=c2c"`
	// RemotePCIBusID is the far end's bus id.
	RemotePCIBusID Opt[BusID] `yaml:"remote_pci_bus_id"`
	// RemoteIndex is the far GPU's index; it wins over RemotePCIBusID.
	RemoteIndex Opt[uint32] `yaml:"remote_index"`
}

// LinkFirmware is one of the programs that drive a GPU's links.
type LinkFirmware struct {
	// Type says what it drives.
	Type string `yaml:"type" enum:"mse,netir,netir_uphy,netir_cln,netir_dln" required:"yes"`
	// Version is major.minor.subminor.
	Version string `yaml:"version" form:"version" required:"yes"`
}

// NVSwitch is a switch at the far end of links.
type NVSwitch struct {
	// BDF is the switch's bus id.
	BDF Opt[BusID] `yaml:"bdf"`
	// UUID is the switch's identifier, in no prescribed form.
	UUID Opt[string] `yaml:"uuid"`
}

// LinkDefaults hold for every link that does not say otherwise.
type LinkDefaults struct {
	// State is active or inactive.
	State Opt[string] `yaml:"state" enum:"active=up=enabled,inactive=down=disabled"`
	// DutyCycle is the part of the line rate, 0 to 1, that the traffic counters grow by.
	DutyCycle Opt[float64] `yaml:"duty_cycle" range:"0..1"`
	// CounterSeed is where the traffic counters start.
	CounterSeed Opt[uint64] `yaml:"counter_seed"`
	// ErrorRate is the growth of the error counters, per second.
	ErrorRate Opt[float64] `yaml:"error_rate" range:"0..1000000000"`
}

// DeviceLinks are the links of one device.
type DeviceLinks struct {
	// Index is the device's index.
	Index uint32 `yaml:"index" required:"yes"`
	// Links are its links.
	Links []Link `yaml:"links"`
}

// Topology is the PCIe and NUMA layout of the machine.
type Topology struct {
	// RootComplexes are the PCI host bridges.
	RootComplexes []RootComplex `yaml:"root_complexes"`
	// PCISwitches are PCIe switches below the bridges, with the devices below each. A switch that is below another has some of its
	// devices.
	PCISwitches []TopologySwitch `yaml:"pci_switches"`
	// CoresPerNUMA is the number of CPUs of a NUMA node whose root complex does not list them.
	CoresPerNUMA Opt[uint32] `yaml:"cores_per_numa" range:"1..65536"`
}

// TopologySwitch is a PCIe switch.
type TopologySwitch struct {
	// Devices are the bus ids of the devices below it.
	Devices []BusID `yaml:"devices" required:"yes"`
}

// Switched says whether two devices are below one PCIe switch, and whether another switch is between it and one of them.
func (t *Topology) Switched(a, b BusID) (shared, nested bool) {
	var near *TopologySwitch // the one with the fewest devices
	for i := range t.PCISwitches {
		s := &t.PCISwitches[i]
		if slices.Contains(s.Devices, a) && slices.Contains(s.Devices, b) && (near == nil || len(s.Devices) < len(near.Devices)) {
			near = s
		}
	}
	if near == nil {
		return false, false
	}
	for _, s := range t.PCISwitches {
		if len(s.Devices) < len(near.Devices) && (slices.Contains(s.Devices, a) || slices.Contains(s.Devices, b)) {
			nested = true
		}
	}
	return true, nested
}

// RootComplex is one PCI host bridge.
type RootComplex struct {
	// ID is the bridge's name, such as pci0000:40.
	ID Opt[string] `yaml:"id"`
	// NUMANode is the bridge's NUMA node; -1 is none.
	NUMANode Opt[int32] `yaml:"numa_node" range:"-1..65535"`
	// Devices are the bus ids of the devices below it.
	Devices []BusID `yaml:"devices"`
	// CPUAffinity are the CPUs near it, ascending; written as 0-71,80.
	CPUAffinity CPUSet `yaml:"cpu_affinity"`
}

// MIGTables hold the MIG profiles that the board offers.
type MIGTables struct {
	// GPUInstanceProfiles are the ways to cut a GPU, as nvidia-smi mig -lgip lists them.
	GPUInstanceProfiles []GPUInstanceProfile `yaml:"gpu_instance_profiles"`
	// Swapped says that of the halves of a seven-slice GPU the upper one has four compute slices, as on some units.
	Swapped Opt[bool] `yaml:"swapped"`
}

// GPUInstanceProfile is one way to cut a GPU.
type GPUInstanceProfile struct {
	// Name is the profile's name without the word MIG, such as 3g.40gb.
	Name string `yaml:"name" required:"yes"`
	// ID is the driver's number for it, which is not the enum's index.
	ID uint32 `yaml:"id" required:"yes"`
	// Slices is the number of compute slices.
	Slices Opt[uint32] `yaml:"slices" range:"1..8"`
	// Instances is how many fit on an empty GPU.
	Instances Opt[uint32] `yaml:"instances" range:"1..8"`
	// MemoryMiB is an instance's memory, in MiB.
	MemoryMiB Opt[uint64] `yaml:"memory_mib"`
	// UsedBytes is the memory, in bytes, that an instance has in use while no process runs in it.
	UsedBytes Opt[uint64] `yaml:"used_bytes"`
	// Multiprocessors is an instance's number of SMs.
	Multiprocessors Opt[uint32] `yaml:"multiprocessors"`
	// CopyEngines is an instance's number of copy engines.
	CopyEngines Opt[uint32] `yaml:"copy_engines"`
	// Encoders is an instance's number of NVENC engines.
	Encoders Opt[uint32] `yaml:"encoders"`
	// Decoders is an instance's number of NVDEC engines.
	Decoders Opt[uint32] `yaml:"decoders"`
	// JPEGs is an instance's number of JPEG engines.
	JPEGs Opt[uint32] `yaml:"jpegs"`
	// OFAs is an instance's number of optical flow engines.
	OFAs Opt[uint32] `yaml:"ofas"`
	// P2P says that instances may access their peers.
	P2P Opt[bool] `yaml:"p2p"`
	// PlacementSize is the number of memory slices that an instance covers.
	PlacementSize Opt[uint32] `yaml:"placement_size" range:"1..12"`
	// PlacementStarts are the memory slices at which an instance may start.
	PlacementStarts []uint32 `yaml:"placement_starts"`
}

// ListedLinks are the NVLinks of a device that the profile describes one by one.
func (b *Board) ListedLinks(index uint32) []Link {
	for _, l := range b.NVLink.DeviceLinks {
		if l.Index == index {
			return l.Links
		}
	}
	if index == 0 {
		return b.NVLink.Links
	}
	return nil
}

// LinkCount is the number of a device's NVLinks.
func (b *Board) LinkCount(index uint32) uint32 {
	n := b.NVLink.LinksPerGPU.Or(0)
	for _, l := range b.ListedLinks(index) {
		n = max(n, l.Link+1)
	}
	return n
}
