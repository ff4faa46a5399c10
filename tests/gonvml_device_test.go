package tests

import (
	"encoding/hex"
	"math"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
)

// These functions describe the machine and its GPUs: names, addresses, memory and modes.

func (c *checker) system() {
	s := &c.board.System
	c.says("nvmlSystemGetDriverVersion", given(s.DriverVersion))(c.lib.SystemGetDriverVersion())
	c.says("nvmlSystemGetNVMLVersion", given(s.NVMLVersion))(c.lib.SystemGetNVMLVersion())
	cuda := when(s.CUDAVersionMajor.Valid, s.CUDAVersionMajor.Value*1000+s.CUDAVersionMinor.Value*10)
	c.says("nvmlSystemGetCudaDriverVersion", cuda)(c.lib.SystemGetCudaDriverVersion())
	c.says("nvmlSystemGetCudaDriverVersion_v2", cuda)(c.lib.SystemGetCudaDriverVersion_v2())
	c.says("nvmlDeviceGetCount_v2", len(c.board.Devices))(c.lib.DeviceGetCount())
	c.says("nvmlErrorString", "Not Found")(c.lib.ErrorString(nvml.ERROR_NOT_FOUND), nvml.SUCCESS)

	c.says("nvmlGetExcludedDeviceCount", 0)(c.lib.GetExcludedDeviceCount())
	c.says("nvmlGetExcludedDeviceInfoByIndex", nvml.ERROR_INVALID_ARGUMENT)(c.lib.GetExcludedDeviceInfoByIndex(0))
	c.units()
	c.says("nvmlSystemGetHicVersion", []nvml.HwbcEntry{})(c.lib.SystemGetHicVersion())
	protected := c.board.Devices[0].CCProtectedMemory.TotalBytes.Valid
	c.says("nvmlSystemGetConfComputeState", when(protected, nvml.ConfComputeSystemState{
		Environment:  nvml.CC_SYSTEM_ENVIRONMENT_UNAVAILABLE,
		CcFeature:    nvml.CC_SYSTEM_FEATURE_DISABLED,
		DevToolsMode: nvml.CC_SYSTEM_DEVTOOLS_MODE_OFF,
	}))(c.lib.SystemGetConfComputeState())
	c.says("nvmlSystemGetConfComputeSettings", when(protected, versioned(1, nvml.SystemConfComputeSettings{
		Environment: nvml.CC_SYSTEM_ENVIRONMENT_UNAVAILABLE, CcFeature: nvml.CC_SYSTEM_FEATURE_DISABLED,
		DevToolsMode: nvml.CC_SYSTEM_DEVTOOLS_MODE_OFF, MultiGpuMode: nvml.CC_SYSTEM_MULTIGPU_NONE,
	})))(c.lib.SystemGetConfComputeSettings())

	for _, p := range c.board.Devices[0].Processes {
		if p.Name.Valid {
			c.says("nvmlSystemGetProcessName", p.Name.Value)(c.lib.SystemGetProcessName(int(p.PID)))
		}
	}
	c.says("nvmlSystemGetProcessName", nvml.ERROR_NOT_FOUND)(c.lib.SystemGetProcessName(math.MaxInt32))

	set, ret := c.lib.EventSetCreate()
	c.says("nvmlEventSetCreate", nvml.SUCCESS)(set, ret)
	types, ret := c.handles[0].GetSupportedEventTypes()
	c.says("nvmlDeviceGetSupportedEventTypes", nvml.SUCCESS)(types, ret)
	assert.NotZero(c, types&nvml.EventTypeXidCriticalError, "every board reports Xids")
	c.says("nvmlDeviceRegisterEvents", nvml.SUCCESS)(c.handles[0].RegisterEvents(types, set))
	c.says("nvmlDeviceRegisterEvents", nvml.ERROR_INVALID_ARGUMENT)(c.handles[0].RegisterEvents(1<<63, set))
	c.says("nvmlEventSetFree", nvml.SUCCESS)(set.Free())
	c.says("nvmlEventSetFree", nvml.ERROR_INVALID_ARGUMENT)(set.Free())

	create := versioned(1, nvml.SystemEventSetCreateRequest{})
	c.says("nvmlSystemEventSetCreate", nvml.SUCCESS)(c.lib.SystemEventSetCreate(&create))
	register := versioned(1, nvml.SystemRegisterEventRequest{EventTypes: nvml.SystemEventTypeGpuDriverUnbind, Set: create.Set})
	c.says("nvmlSystemRegisterEvents", nvml.SUCCESS)(c.lib.SystemRegisterEvents(&register))
	free := versioned(1, nvml.SystemEventSetFreeRequest{Set: create.Set})
	c.says("nvmlSystemEventSetFree", nvml.SUCCESS)(c.lib.SystemEventSetFree(&free))
	c.says("nvmlSystemEventSetFree", nvml.ERROR_INVALID_ARGUMENT)(c.lib.SystemEventSetFree(&free))
}

func (c *checker) lookup(dev nvml.Device, d *profiles.Device) {
	const unknown = "GPU-01234567-89ab-cdef-0123-456789abcdef"
	c.says("nvmlDeviceGetHandleByUUID", dev)(c.lib.DeviceGetHandleByUUID(string(d.UUID)))
	c.says("nvmlDeviceGetHandleByUUID", nvml.ERROR_NOT_FOUND)(c.lib.DeviceGetHandleByUUID(unknown))
	c.says("nvmlDeviceGetHandleByUUID", nvml.ERROR_INVALID_ARGUMENT)(c.lib.DeviceGetHandleByUUID(""))

	const byUUID = "nvmlDeviceGetHandleByUUIDV"
	uuid := versioned(1, nvml.UUID{Type: uint32(nvml.UUID_TYPE_ASCII)})
	copy(uuid.Value[:], d.UUID)
	c.says(byUUID, dev)(c.lib.DeviceGetHandleByUUIDV(&uuid))
	uuid = versioned(1, nvml.UUID{Type: uint32(nvml.UUID_TYPE_BINARY)})
	digits := strings.ReplaceAll(strings.TrimPrefix(string(d.UUID), "GPU-"), "-", "")
	_, err := hex.Decode(uuid.Value[:], []byte(digits))
	assert.NoError(c, err)
	c.says(byUUID, dev)(c.lib.DeviceGetHandleByUUIDV(&uuid))
	uuid.Value[0] ^= 1
	c.says(byUUID, nvml.ERROR_NOT_FOUND)(c.lib.DeviceGetHandleByUUIDV(&uuid))
	uuid.Type = uint32(nvml.UUID_TYPE_NONE)
	c.says(byUUID, nvml.ERROR_INVALID_ARGUMENT)(c.lib.DeviceGetHandleByUUIDV(&uuid))
	uuid.Version = 0
	c.says(byUUID, nvml.ERROR_ARGUMENT_VERSION_MISMATCH)(c.lib.DeviceGetHandleByUUIDV(&uuid))

	const byBusID = "nvmlDeviceGetHandleByPciBusId_v2"
	bus := d.PCI.BusID.Value
	for _, text := range []string{bus.String(), bus.Legacy(), strings.ToLower(bus.String()), strings.ToLower(bus.Legacy())} {
		c.says(byBusID, dev)(c.lib.DeviceGetHandleByPciBusId(text))
	}
	c.says(byBusID, nvml.ERROR_NOT_FOUND)(c.lib.DeviceGetHandleByPciBusId("00000000:FE:1F.7"))
	c.says(byBusID, nvml.ERROR_INVALID_ARGUMENT)(c.lib.DeviceGetHandleByPciBusId("a bus"))

	var found any = dev
	for _, other := range c.board.Devices {
		if other.Index != d.Index && other.Serial == d.Serial { // a board with two GPUs
			found = nvml.ERROR_INVALID_ARGUMENT
		}
	}
	if !d.Serial.Valid {
		found = nvml.ERROR_NOT_FOUND
	}
	c.says("nvmlDeviceGetHandleBySerial", found)(c.lib.DeviceGetHandleBySerial(d.Serial.Value))
	c.says("nvmlDeviceGetHandleBySerial", nvml.ERROR_NOT_FOUND)(c.lib.DeviceGetHandleBySerial("1"))
}

func (c *checker) identity(dev nvml.Device, d *profiles.Device) {
	bus := d.PCI.BusID.Value
	c.says("nvmlDeviceGetIndex", d.Index)(dev.GetIndex())
	c.says("nvmlDeviceGetMinorNumber", given(d.MinorNumber))(dev.GetMinorNumber())
	c.says("nvmlDeviceGetName", given(d.Name))(dev.GetName())
	c.says("nvmlDeviceGetUUID", d.UUID)(dev.GetUUID())
	c.says("nvmlDeviceGetSerial", given(d.Serial))(dev.GetSerial())
	c.says("nvmlDeviceGetBoardPartNumber", given(d.BoardPartNumber))(dev.GetBoardPartNumber())
	c.says("nvmlDeviceGetVbiosVersion", given(d.VBIOSVersion))(dev.GetVbiosVersion())
	c.says("nvmlDeviceGetBoardId", d.BoardID.Or(bus.Domain<<16|uint32(bus.Bus)<<8|uint32(bus.Device)))(dev.GetBoardId())
	c.says("nvmlDeviceGetMultiGpuBoard", bit(d.MultiGPUBoard))(dev.GetMultiGpuBoard())
	c.says("nvmlDeviceGetModuleId", d.Platform.ModuleID.Value)(dev.GetModuleId())
	c.says("nvmlDeviceGetPdi", when(d.PDI.Valid, versioned(1, nvml.Pdi{Value: d.PDI.Value})))(dev.GetPdi())
	c.says("nvmlDeviceGetBrand", named(d.Brand, map[string]nvml.BrandType{
		"unknown": nvml.BRAND_UNKNOWN, "tesla": nvml.BRAND_TESLA, "nvidia": nvml.BRAND_NVIDIA, "nvidia_rtx": nvml.BRAND_NVIDIA_RTX,
		"geforce": nvml.BRAND_GEFORCE, "nvidia_vws": nvml.BRAND_NVIDIA_VWS, "nvidia_vcs": nvml.BRAND_NVIDIA_VCS,
	}))(dev.GetBrand())
	c.says("nvmlDeviceGetArchitecture", named(d.Architecture, map[string]nvml.DeviceArchitecture{
		"volta": nvml.DEVICE_ARCH_VOLTA, "turing": nvml.DEVICE_ARCH_TURING, "ampere": nvml.DEVICE_ARCH_AMPERE, "ada": nvml.DEVICE_ARCH_ADA,
		"hopper": nvml.DEVICE_ARCH_HOPPER, "blackwell": nvml.DEVICE_ARCH_BLACKWELL,
	}))(dev.GetArchitecture())
	c.says("nvmlDeviceGetCudaComputeCapability", given(d.ComputeCapability.Major), given(d.ComputeCapability.Minor))(
		dev.GetCudaComputeCapability())
	c.says("nvmlDeviceGetNumGpuCores", given(d.NumGPUCores))(dev.GetNumGpuCores())

	const inforom = "nvmlDeviceGetInforomVersion"
	c.says("nvmlDeviceGetInforomImageVersion", given(d.InfoROM.ImageVersion))(dev.GetInforomImageVersion())
	c.says(inforom, given(d.InfoROM.OEMObject))(dev.GetInforomVersion(nvml.INFOROM_OEM))
	c.says(inforom, given(d.InfoROM.ECCObject))(dev.GetInforomVersion(nvml.INFOROM_ECC))
	c.says(inforom, given(d.InfoROM.PWRObject))(dev.GetInforomVersion(nvml.INFOROM_POWER))
	c.says(inforom, nvml.ERROR_INVALID_ARGUMENT)(dev.GetInforomVersion(nvml.INFOROM_COUNT))
	c.says("nvmlDeviceValidateInforom", when(d.InfoROM.ImageVersion.Valid, nvml.SUCCESS))(dev.ValidateInforom())
	c.says("nvmlDeviceGetLastBBXFlushTime", given(d.InfoROM.BBXFlushTimestampUS), given(d.InfoROM.BBXFlushDurationUS))(
		dev.GetLastBBXFlushTime())
}

// pciInfo is an address in NVML's form.
func pciInfo(bus profiles.BusID, device, subsystem uint32) nvml.PciInfo {
	p := nvml.PciInfo{
		Domain: bus.Domain, Bus: uint32(bus.Bus), Device: uint32(bus.Device), PciDeviceId: device, PciSubSystemId: subsystem,
	}
	chars(p.BusIdLegacy[:], bus.Legacy())
	chars(p.BusId[:], bus.String())
	return p
}

func (c *checker) pci(dev nvml.Device, d *profiles.Device) {
	bus, link := d.PCI.BusID.Value, &d.PCIe
	c.says("nvmlDeviceGetPciInfo_v3", pciInfo(bus, d.PCI.DeviceID.Value, d.PCI.SubsystemID.Value))(dev.GetPciInfo())
	extended := versioned(1, nvml.PciInfoExt{
		Domain: bus.Domain, Bus: uint32(bus.Bus), Device: uint32(bus.Device), PciDeviceId: d.PCI.DeviceID.Value,
		PciSubSystemId: d.PCI.SubsystemID.Value, BaseClass: d.PCI.BaseClass.Value, SubClass: d.PCI.SubClass.Value,
	})
	chars(extended.BusId[:], bus.String())
	c.says("nvmlDeviceGetPciInfoExt", extended)(dev.GetPciInfoExt())

	c.says("nvmlDeviceGetCurrPcieLinkGeneration", given(link.CurrentLinkGen))(dev.GetCurrPcieLinkGeneration())
	c.says("nvmlDeviceGetCurrPcieLinkWidth", given(link.CurrentLinkWidth))(dev.GetCurrPcieLinkWidth())
	c.says("nvmlDeviceGetMaxPcieLinkGeneration", given(link.MaxLinkGen))(dev.GetMaxPcieLinkGeneration())
	c.says("nvmlDeviceGetMaxPcieLinkWidth", given(link.MaxLinkWidth))(dev.GetMaxPcieLinkWidth())
	c.says("nvmlDeviceGetGpuMaxPcieLinkGeneration", given(link.MaxDeviceLinkGen))(dev.GetGpuMaxPcieLinkGeneration())
	c.says("nvmlDeviceGetPcieLinkMaxSpeed", when(link.MaxLinkGen.Valid, []int{
		nvml.PCIE_LINK_MAX_SPEED_INVALID, nvml.PCIE_LINK_MAX_SPEED_2500MBPS, nvml.PCIE_LINK_MAX_SPEED_5000MBPS,
		nvml.PCIE_LINK_MAX_SPEED_8000MBPS, nvml.PCIE_LINK_MAX_SPEED_16000MBPS, nvml.PCIE_LINK_MAX_SPEED_32000MBPS,
		nvml.PCIE_LINK_MAX_SPEED_64000MBPS,
	}[link.MaxLinkGen.Value]))(dev.GetPcieLinkMaxSpeed())
	c.says("nvmlDeviceGetPcieSpeed", when(link.CurrentLinkGen.Valid, []int{
		0, 2500, 5000, 8000, 16000, 32000, 64000,
	}[link.CurrentLinkGen.Value]))(dev.GetPcieSpeed())
	c.says("nvmlDeviceGetPcieReplayCounter", given(link.ReplayCounter))(dev.GetPcieReplayCounter())

	const throughput = "nvmlDeviceGetPcieThroughput"
	c.says(throughput, given(link.TxThroughputKBPS))(dev.GetPcieThroughput(nvml.PCIE_UTIL_TX_BYTES))
	c.says(throughput, given(link.RxThroughputKBPS))(dev.GetPcieThroughput(nvml.PCIE_UTIL_RX_BYTES))
	c.says(throughput, nvml.ERROR_INVALID_ARGUMENT)(dev.GetPcieThroughput(nvml.PCIE_UTIL_COUNT))
}

// memory: in the first memory call the memory that the driver reserves counts as used, in the second it is separate.
func (c *checker) memory(dev nvml.Device, d *profiles.Device) {
	m := &d.Memory
	total, used, reserved := m.TotalBytes.Value, m.UsedBytes.Value, m.ReservedBytes.Value
	free := m.FreeBytes.Or(total - reserved - used)
	c.says("nvmlDeviceGetMemoryInfo", when(m.TotalBytes.Valid, nvml.Memory{Total: total, Free: free, Used: total - free}))(
		dev.GetMemoryInfo())
	c.says("nvmlDeviceGetMemoryInfo_v2", when(m.TotalBytes.Valid, versioned(2, nvml.Memory_v2{
		Total: total, Reserved: reserved, Free: free, Used: used,
	})))(dev.GetMemoryInfo_v2())
	c.says("nvmlDeviceGetMemoryBusWidth", given(m.MemoryBusWidth))(dev.GetMemoryBusWidth())
	encryption := func(o profiles.Opt[profiles.Enabled]) any {
		return when(o.Valid, versioned(1, nvml.DramEncryptionInfo{EncryptionState: number(o.Value)}))
	}
	c.says("nvmlDeviceGetDramEncryptionMode", encryption(m.EncryptionCurrent), encryption(m.EncryptionPending))(
		dev.GetDramEncryptionMode())

	part := func(m profiles.MemoryUse) (total, free, used uint64) {
		total, used = m.TotalBytes.Value, m.UsedBytes.Value
		return total, m.FreeBytes.Or(total - used), used
	}
	total, free, used = part(d.BAR1Memory)
	c.says("nvmlDeviceGetBAR1MemoryInfo", when(d.BAR1Memory.TotalBytes.Valid, nvml.BAR1Memory{
		Bar1Total: total, Bar1Free: free, Bar1Used: used,
	}))(dev.GetBAR1MemoryInfo())
	total, free, used = part(d.CCProtectedMemory)
	c.says("nvmlDeviceGetConfComputeProtectedMemoryUsage", when(d.CCProtectedMemory.TotalBytes.Valid, nvml.Memory{
		Total: total, Free: free, Used: used,
	}))(dev.GetConfComputeProtectedMemoryUsage())
}

func (c *checker) modes(dev nvml.Device, d *profiles.Device) {
	c.says("nvmlDeviceGetPersistenceMode", bit(d.PersistenceMode))(dev.GetPersistenceMode())
	c.says("nvmlDeviceGetComputeMode", named(d.ComputeMode, map[string]nvml.ComputeMode{
		"default": nvml.COMPUTEMODE_DEFAULT, "prohibited": nvml.COMPUTEMODE_PROHIBITED,
		"exclusive_process": nvml.COMPUTEMODE_EXCLUSIVE_PROCESS,
	}))(dev.GetComputeMode())
	display := bit(d.Display.Mode)
	if display == nil && d.Display.Attached.Valid { // drivers with this field call the mode deprecated
		display = nvml.ERROR_DEPRECATED
	}
	c.says("nvmlDeviceGetDisplayMode", display)(dev.GetDisplayMode())
	c.says("nvmlDeviceGetDisplayActive", bit(d.Display.Active))(dev.GetDisplayActive())
	c.says("nvmlDeviceGetDriverModel_v2",
		named(d.DriverModel.Current, driverModels), named(d.DriverModel.Pending, driverModels))(dev.GetDriverModel_v2())
	operation := map[string]nvml.GpuOperationMode{
		"all_on": nvml.GOM_ALL_ON, "compute": nvml.GOM_COMPUTE, "low_dp": nvml.GOM_LOW_DP,
	}
	c.says("nvmlDeviceGetGpuOperationMode",
		named(d.GPUOperationMode.Current, operation), named(d.GPUOperationMode.Pending, operation))(dev.GetGpuOperationMode())
	c.says("nvmlDeviceGetGspFirmwareMode", given(d.GSPFirmware.Mode), given(d.GSPFirmware.Mode))(dev.GetGspFirmwareMode())
	c.says("nvmlDeviceGetGspFirmwareVersion", given(d.GSPFirmware.Version))(dev.GetGspFirmwareVersion())
	c.says("nvmlDeviceGetVirtualizationMode", named(d.Virtualization.Mode, map[string]nvml.GpuVirtualizationMode{
		"none": nvml.GPU_VIRTUALIZATION_MODE_NONE, "vgpu": nvml.GPU_VIRTUALIZATION_MODE_VGPU, "passthrough": nvml.GPU_VIRTUALIZATION_MODE_PASSTHROUGH,
		"host_vgpu": nvml.GPU_VIRTUALIZATION_MODE_HOST_VGPU,
	}))(dev.GetVirtualizationMode())
	c.says("nvmlDeviceGetHostVgpuMode", named(d.Virtualization.HostVGPUMode, map[string]nvml.HostVgpuMode{
		"non_sriov": nvml.HOST_VGPU_MODE_NON_SRIOV, "sriov": nvml.HOST_VGPU_MODE_SRIOV,
	}))(dev.GetHostVgpuMode())
	addressing := map[string]nvml.DeviceAddressingModeType{
		"hmm": nvml.DEVICE_ADDRESSING_MODE_HMM, "ats": nvml.DEVICE_ADDRESSING_MODE_ATS,
	}
	c.says("nvmlDeviceGetAddressingMode", when(d.AddressingMode.Valid, versioned(1, nvml.DeviceAddressingMode{
		Value: uint32(addressing[d.AddressingMode.Value]),
	})))(dev.GetAddressingMode())
	c2c := profiles.Opt[bool]{Value: bool(d.C2CMode.Value), Valid: d.C2CMode.Valid}
	if !c2c.Valid {
		c2c = c.board.NVLink.C2CEnabled
	}
	c.says("nvmlDeviceGetC2cModeInfoV", when(c2c.Valid, nvml.C2cModeInfo_v1{IsC2cEnabled: number(c2c.Value)}))(
		dev.GetC2cModeInfoV().V1())
	c.says("nvmlDeviceGetCapabilities", when(d.EGM.Valid, versioned(1, nvml.DeviceCapabilities{
		CapMask: nvml.DEV_CAP_EGM * number(d.EGM.Value),
	})))(dev.GetCapabilities())

	c.says("nvmlDeviceGetMigMode", bit(d.MIG.ModeCurrent), bit(d.MIG.ModePending))(dev.GetMigMode())
	c.says("nvmlDeviceIsMigDeviceHandle", false)(dev.IsMigDeviceHandle())
	c.says("nvmlDeviceGetMaxMigDeviceCount", 0)(dev.GetMaxMigDeviceCount()) // MIG is off
	c.says("nvmlDeviceGetMigDeviceHandleByIndex", nil)(dev.GetMigDeviceHandleByIndex(0))
}

var driverModels = map[string]nvml.DriverModel{"wddm": nvml.DRIVER_WDDM, "wdm": nvml.DRIVER_WDM, "mcdm": nvml.DRIVER_MCDM}
