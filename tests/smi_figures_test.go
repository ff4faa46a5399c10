package tests

import (
	"fmt"
	"strings"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// figure is a value that nvidia-smi prints of a GPU: as a field of --query-gpu, under a path of names in -q, and as an
// element of -q -x. An empty name means that the value is not printed there.
type figure struct {
	field, text, xml string
	unit             string // in text and XML; --query-gpu has it in its header
	since            int    // the first driver whose nvidia-smi prints it
	of               func(view) string
}

// view is a GPU as the nvidia-smi of a machine sees it.
type view struct {
	*profiles.Device
	on machine
}

// views are the GPUs of a machine.
func (m machine) views() []view {
	var list []view
	for i := range m.board.Devices {
		list = append(list, view{&m.board.Devices[i], m})
	}
	return list
}

// absent is the text for a value that the profile does not give.
const absent = "N/A"

const deprecated = "Requested functionality has been deprecated"

func shown[T any](o profiles.Opt[T]) string { return shownAs("%v", o) }

func shownAs[T any](format string, o profiles.Opt[T]) string {
	if !o.Valid {
		return absent
	}
	return fmt.Sprintf(format, o.Value)
}

// inMiB formats a number of bytes, and inWatts a number of milliwatts.
func inMiB(o profiles.Opt[uint64]) string {
	return shown(profiles.Opt[uint64]{Value: o.Value >> 20, Valid: o.Valid})
}

func inWatts(o profiles.Opt[uint32]) string {
	return shownAs("%.2f", profiles.Opt[float64]{Value: float64(o.Value) / 1000, Valid: o.Valid})
}

func enabled[T ~bool](o profiles.Opt[T]) string { return choice(o, "Enabled", "Disabled") }

func choice[T ~bool](o profiles.Opt[T], yes, no string) string {
	switch {
	case !o.Valid:
		return absent
	case bool(o.Value):
		return yes
	}
	return no
}

func word(o profiles.Opt[string], words map[string]string) string {
	if !o.Valid {
		return absent
	}
	return words[o.Value]
}

// application is an applications clock; drivers from 590 on have none.
func (d view) application(o profiles.Opt[uint32]) string {
	if d.on.board.System.DriverVersion.Value >= "590" {
		return deprecated
	}
	return shown(o)
}

// margin reports whether T.Limit replaces absolute temperatures.
func (d view) margin() bool { return d.on.driver >= 535 && d.Thermal.TLimitC.Valid }

// used is the memory in use; on 470 it includes the reserved memory.
func (d view) used() uint64 {
	used := d.Memory.UsedBytes.Value
	if d.on.driver < 535 {
		used += d.Memory.ReservedBytes.Value
	}
	return used
}

// atomics are the names of PCIe atomics, by bit.
func atomics(o profiles.Opt[uint32]) string {
	if o.Value == 0 {
		return absent
	}
	var names []string
	for i, name := range []string{"FETCHADD_32", "FETCHADD_64", "SWAP_32", "SWAP_64", "CAS_32", "CAS_64", "CAS_128"} {
		if o.Value>>i&1 != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// figures are the values that a profile gives and nvidia-smi prints.
var figures = []figure{
	{"name", "Product Name", "product_name", "", 0, func(d view) string { return shown(d.Name) }},
	{"serial", "Serial Number", "serial", "", 0, func(d view) string { return shown(d.Serial) }},
	{"uuid", "GPU UUID", "uuid", "", 0, func(d view) string { return string(d.UUID) }},
	{"index", "", "", "", 0, func(d view) string { return fmt.Sprint(d.Index) }},
	{"", "Minor Number", "minor_number", "", 0, func(d view) string { return shown(d.MinorNumber) }},
	{"vbios_version", "VBIOS Version", "vbios_version", "", 0, func(d view) string { return shown(d.VBIOSVersion) }},
	{"", "Board Part Number", "board_part_number", "", 535, func(d view) string { return shown(d.BoardPartNumber) }},
	{"", "GPU Part Number", "gpu_part_number", "", 0, func(d view) string {
		if d.on.driver < 535 {
			return shown(d.BoardPartNumber)
		}
		return shown(d.GPUPartNumber)
	}},
	{"", "Module ID", "gpu_module_id", "", 0, func(d view) string { return fmt.Sprint(d.Platform.ModuleID.Or(0)) }},
	{"inforom.img", "Inforom Version/Image Version", "inforom_version/img_version", "", 0,
		func(d view) string { return shown(d.InfoROM.ImageVersion) }},
	{"inforom.oem", "Inforom Version/OEM Object", "inforom_version/oem_object", "", 0,
		func(d view) string { return shown(d.InfoROM.OEMObject) }},
	{"inforom.ecc", "Inforom Version/ECC Object", "inforom_version/ecc_object", "", 0,
		func(d view) string { return shown(d.InfoROM.ECCObject) }},
	{"inforom.pwr", "Inforom Version/Power Management Object", "inforom_version/pwr_object", "", 0,
		func(d view) string { return shown(d.InfoROM.PWRObject) }},
	{"", "GSP Firmware Version", "gsp_firmware_version", "", 0, func(d view) string { return shown(d.GSPFirmware.Version) }},

	{"persistence_mode", "Persistence Mode", "persistence_mode", "", 0,
		func(d view) string { return enabled(d.PersistenceMode) }},
	{"addressing_mode", "Addressing Mode", "addressing_mode", "", 535, func(d view) string {
		return word(d.AddressingMode, map[string]string{"none": "None", "hmm": "HMM", "ats": "ATS"})
	}},
	{"", "Sparse Operation Mode", "sparse_operation_mode", "", 535,
		func(d view) string { return enabled(d.SparseOperationMode) }},
	{"accounting.mode", "Accounting Mode", "accounting_mode", "", 0,
		func(d view) string { return enabled(d.Accounting.Mode) }},
	{"accounting.buffer_size", "Accounting Mode Buffer Size", "accounting_mode_buffer_size", "", 0,
		func(d view) string { return shown(d.Accounting.BufferSize) }},
	{"compute_mode", "Compute Mode", "compute_mode", "", 0, func(d view) string {
		return word(d.ComputeMode, map[string]string{"default": "Default"})
	}},
	{"compute_cap", "", "", "", 535, func(d view) string {
		return shown(d.ComputeCapability.Major) + "." + shown(d.ComputeCapability.Minor)
	}},
	{"mig.mode.current", "MIG Mode/Current", "mig_mode/current_mig", "", 0,
		func(d view) string { return enabled(d.MIG.ModeCurrent) }},
	{"", "GPU Virtualization Mode/Virtualization Mode", "gpu_virtualization_mode/virtualization_mode", "", 0,
		func(d view) string {
			return word(d.Virtualization.Mode, map[string]string{"passthrough": "Pass-Through", "none": "None"})
		}},
	{"c2c.mode", "GPU C2C Mode", "c2c_mode", "", 550, func(d view) string { return enabled(d.C2CMode) }},

	{"pci.bus_id", "PCI/Bus Id", "pci/pci_bus_id", "", 0, func(d view) string { return d.PCI.BusID.Value.String() }},
	{"", "PCI/Device Id", "", "", 0, func(d view) string { return shownAs("0x%08X", d.PCI.DeviceID) }},
	{"pci.sub_device_id", "PCI/Sub System Id", "", "", 0, func(d view) string { return shownAs("0x%08X", d.PCI.SubsystemID) }},
	{"pcie.link.gen.current", "PCI/GPU Link Info/PCIe Generation/Current", "pci/pci_gpu_link_info/pcie_gen/current_link_gen", "", 0,
		func(d view) string { return shown(d.PCIe.CurrentLinkGen) }},
	{"pcie.link.gen.max", "PCI/GPU Link Info/PCIe Generation/Max", "pci/pci_gpu_link_info/pcie_gen/max_link_gen", "", 0,
		func(d view) string { return shown(d.PCIe.MaxLinkGen) }},
	{"pcie.link.gen.gpumax", "PCI/GPU Link Info/PCIe Generation/Device Max", "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen", "", 535,
		func(d view) string { return shown(d.PCIe.MaxDeviceLinkGen) }},
	{"pcie.link.gen.hostmax", "PCI/GPU Link Info/PCIe Generation/Host Max", "pci/pci_gpu_link_info/pcie_gen/max_host_link_gen", "", 535,
		func(d view) string { return shown(d.PCIe.MaxHostLinkGen) }},
	{"pcie.link.width.current", "", "", "", 0, func(d view) string { return shown(d.PCIe.CurrentLinkWidth) }},
	{"pcie.link.width.max", "", "", "", 0, func(d view) string { return shown(d.PCIe.MaxLinkWidth) }},
	{"", "PCI/Replays Since Reset", "pci/replay_counter", "", 0, func(d view) string { return shown(d.PCIe.ReplayCounter) }},
	{"", "PCI/Tx Throughput", "pci/tx_util", "KB/s", 0, func(d view) string { return shown(d.PCIe.TxThroughputKBPS) }},
	{"", "PCI/Rx Throughput", "pci/rx_util", "KB/s", 0, func(d view) string { return shown(d.PCIe.RxThroughputKBPS) }},
	{"", "PCI/Atomic Caps Inbound", "pci/atomic_caps_inbound", "", 535,
		func(d view) string { return atomics(d.PCIe.AtomicCapsInbound) }},
	{"", "PCI/Atomic Caps Outbound", "pci/atomic_caps_outbound", "", 535,
		func(d view) string { return atomics(d.PCIe.AtomicCapsOutbound) }},

	{"memory.total", "FB Memory Usage/Total", "fb_memory_usage/total", "MiB", 0,
		func(d view) string { return inMiB(d.Memory.TotalBytes) }},
	{"memory.used", "FB Memory Usage/Used", "fb_memory_usage/used", "MiB", 0, func(d view) string { return mib(d.used()) }},
	{"", "BAR1 Memory Usage/Total", "bar1_memory_usage/total", "MiB", 0,
		func(d view) string { return inMiB(d.BAR1Memory.TotalBytes) }},
	{"protected_memory.total", "Conf Compute Protected Memory Usage/Total", "cc_protected_memory_usage/total", "MiB", 535,
		func(d view) string { return inMiB(d.CCProtectedMemory.TotalBytes) }},

	{"pstate", "Performance State", "performance_state", "", 0, func(d view) string { return shownAs("P%d", d.PerformanceState) }},
	{"utilization.gpu", "Utilization/Gpu", "utilization/gpu_util", "%", 0,
		func(d view) string { return shown(d.Utilization.GPU) }},
	{"utilization.memory", "Utilization/Memory", "utilization/memory_util", "%", 0,
		func(d view) string { return shown(d.Utilization.Memory) }},
	{"utilization.jpeg", "Utilization/JPEG", "utilization/jpeg_util", "%", 535,
		func(d view) string { return shown(d.Utilization.JPEG) }},
	{"encoder.stats.sessionCount", "Encoder Stats/Active Sessions", "encoder_stats/session_count", "", 0,
		func(d view) string { return shown(d.EncoderStats.SessionCount) }},
	{"ecc.mode.current", "", "ecc_mode/current_ecc", "", 0, func(d view) string { return enabled(d.ECC.ModeCurrent) }},
	{"ecc.errors.corrected.aggregate.dram", "", "", "", 0,
		func(d view) string { return shown(d.ECC.Errors.Aggregate.SingleBit.DeviceMemory) }},
	{"ecc.errors.corrected.volatile.sram", "", "", "", 0, func(d view) string {
		if d.ECC.SRAM.Volatile.Correctable.Valid {
			return shown(d.ECC.SRAM.Volatile.Correctable)
		}
		return shown(d.ECC.Errors.Volatile.SingleBit.SRAM)
	}},
	{"retired_pages.double_bit.count", "", "", "", 0,
		func(d view) string { return shown(d.RetiredPages.DoubleBitRetirement.Count) }},
	{"retired_pages.pending", "", "", "", 0,
		func(d view) string { return choice(d.RetiredPages.PendingRetirement, "Yes", "No") }},

	{"temperature.gpu", "Temperature/GPU Current Temp", "temperature/gpu_temp", "C", 0,
		func(d view) string { return shown(d.Thermal.TemperatureGPUC) }},
	{"temperature.memory", "Temperature/Memory Current Temp", "temperature/memory_temp", "C", 0,
		func(d view) string { return shown(d.Thermal.TemperatureMemoryC) }},
	{"temperature.gpu.tlimit", "Temperature/GPU T.Limit Temp", "temperature/gpu_temp_tlimit", "C", 535,
		func(d view) string { return shown(d.Thermal.TLimitC) }},
	{"", "Temperature/GPU Shutdown Temp", "temperature/gpu_temp_max_threshold", "C", 0,
		func(d view) string { return shown(d.Thermal.ShutdownThresholdC) }},
	{"", "Temperature/GPU Slowdown Temp", "temperature/gpu_temp_slow_threshold", "C", 0,
		func(d view) string { return shown(d.Thermal.SlowdownThresholdC) }},
	{"", "Temperature/GPU Shutdown T.Limit Temp", "temperature/gpu_temp_max_tlimit_threshold", "C", 535,
		func(d view) string { return shown(d.Thermal.TLimitShutdownC) }},
	{"", "Temperature/GPU Slowdown T.Limit Temp", "temperature/gpu_temp_slow_tlimit_threshold", "C", 535,
		func(d view) string { return shown(d.Thermal.TLimitSlowdownC) }},

	{"power.draw", "", "", "W", 0, func(d view) string { return inWatts(d.Power.CurrentDrawMW) }},
	{"power.limit", "", "", "W", 0, func(d view) string { return inWatts(d.Power.RequestedLimitMW) }},
	{"enforced.power.limit", "", "", "W", 0, func(d view) string { return inWatts(d.Power.EnforcedLimitMW) }},
	{"power.default_limit", "", "", "W", 0, func(d view) string { return inWatts(d.Power.DefaultLimitMW) }},
	{"power.min_limit", "", "", "W", 0, func(d view) string { return inWatts(d.Power.MinLimitMW) }},
	{"power.max_limit", "", "", "W", 0, func(d view) string { return inWatts(d.Power.MaxLimitMW) }},
	{"power.draw.average", "", "", "W", 535, func(d view) string { return inWatts(d.Power.AverageDrawMW) }},
	{"power.draw.instant", "", "", "W", 535, func(d view) string { return inWatts(d.Power.CurrentDrawMW) }},
	{"", "GPU Power Readings/Average Power Draw", "gpu_power_readings/average_power_draw", "W", 550,
		func(d view) string { return inWatts(d.Power.AverageDrawMW) }},
	{"", "GPU Power Readings/Instantaneous Power Draw", "gpu_power_readings/instant_power_draw", "W", 550,
		func(d view) string { return inWatts(d.Power.CurrentDrawMW) }},
	{"", "GPU Power Readings/Power Draw", "gpu_power_readings/power_draw", "W", 555,
		func(d view) string { return inWatts(d.Power.CurrentDrawMW) }},
	{"", "GPU Memory Power Readings/Power Draw", "gpu_memory_power_readings/power_draw", "W", 555,
		func(d view) string { return inWatts(d.MemoryPower.AverageDrawMW) }},
	{"", "GPU Memory Power Readings/Average Power Draw", "gpu_memory_power_readings/average_power_draw", "W", 550,
		func(d view) string { return inWatts(d.MemoryPower.AverageDrawMW) }},
	{"", "Module Power Readings/Max Power Limit", "module_power_readings/max_power_limit", "W", 535,
		func(d view) string { return inWatts(d.ModulePower.MaxLimitMW) }},

	{"clocks.current.graphics", "Clocks/Graphics", "clocks/graphics_clock", "MHz", 0,
		func(d view) string { return shown(d.Clocks.GraphicsCurrent) }},
	{"clocks.current.sm", "Clocks/SM", "clocks/sm_clock", "MHz", 0, func(d view) string { return shown(d.Clocks.SMCurrent) }},
	{"clocks.current.memory", "Clocks/Memory", "clocks/mem_clock", "MHz", 0,
		func(d view) string { return shown(d.Clocks.MemoryCurrent) }},
	{"clocks.current.video", "Clocks/Video", "clocks/video_clock", "MHz", 0,
		func(d view) string { return shown(d.Clocks.VideoCurrent) }},
	{"clocks.applications.graphics", "Applications Clocks/Graphics", "applications_clocks/graphics_clock", "MHz", 0,
		func(d view) string { return d.application(d.Clocks.GraphicsApp) }},
	{"clocks.default_applications.memory", "Default Applications Clocks/Memory", "default_applications_clocks/mem_clock", "MHz", 0,
		func(d view) string { return d.application(d.Clocks.MemoryAppDefault) }},
	{"clocks.max.graphics", "Max Clocks/Graphics", "max_clocks/graphics_clock", "MHz", 0,
		func(d view) string { return shown(d.Clocks.GraphicsMax) }},
	{"clocks.max.memory", "Max Clocks/Memory", "max_clocks/mem_clock", "MHz", 0,
		func(d view) string { return shown(d.Clocks.MemoryMax) }},
	{"", "Max Customer Boost Clocks/Graphics", "max_customer_boost_clocks/graphics_clock", "MHz", 0,
		func(d view) string { return shown(d.Clocks.GraphicsCustomerBoostMax) }},

	{"", "Fabric/State", "fabric/state", "", 535, func(d view) string {
		return word(d.Fabric.State, map[string]string{"completed": "Completed"})
	}},
	{"", "Fabric/CliqueId", "fabric/cliqueId", "", 550, func(d view) string { return shown(d.Fabric.CliqueID) }},
}

// printed reports whether nvidia-smi prints the figure for such a GPU.
func (f figure) printed(d view) bool {
	switch {
	case d.on.driver < f.since:
		return false
	case d.on.driver == 555 && (strings.HasSuffix(f.text, "/Average Power Draw") || strings.HasSuffix(f.text, "/Instantaneous Power Draw")):
		return false // it prints one row for both
	case strings.Contains(f.text, "down T.Limit"):
		return d.margin()
	case strings.Contains(f.text, "down Temp"):
		return !d.margin()
	}
	return true
}

// with adds a unit to a number.
func (f figure) with(unit, value string) string {
	if unit == "" || value == absent || value == deprecated {
		return value
	}
	return value + " " + unit
}
