package handwritten

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// bare is a profile that gives as few values as it can.
const bare = "devices: [{index: 0}]\n"

// gpu is device 0 of a profile, or of the default board if profile is empty.
func gpu(t testing.TB, profile string) *engine.Device {
	t.Helper()
	return enginetest.Start(t, profile).Devices[0]
}

// like is the board h100 with other defaults for its devices.
func like(defaults string) string { return "extends: h100\ndevice_defaults: {" + defaults + "}\n" }

// answers checks a function's results, the last of which must be SUCCESS. It ignores the type of numbers.
func answers(t testing.TB, want ...any) func(results ...any) {
	t.Helper()
	return func(results ...any) {
		t.Helper()
		require.Equal(t, abi.SUCCESS, results[len(results)-1])
		require.Len(t, results, len(want)+1)
		for i, w := range want {
			assert.EqualValues(t, w, results[i])
		}
	}
}

// refuses checks the last result, which is the return code.
func refuses(t testing.TB, want abi.Return) func(results ...any) {
	t.Helper()
	return func(results ...any) {
		t.Helper()
		assert.Equal(t, want, results[len(results)-1])
	}
}

// filled turns a function that fills a struct into one that returns the struct.
func filled[T any](f func(*engine.Device, *T) abi.Return) func(*engine.Device) (T, abi.Return) {
	return func(d *engine.Device) (T, abi.Return) {
		var s T
		ret := f(d, &s)
		return s, ret
	}
}

// with1 and with2 fix the arguments after the device.
func with1[A, R any](f func(*engine.Device, A) (R, abi.Return), a A) func(*engine.Device) (R, abi.Return) {
	return func(d *engine.Device) (R, abi.Return) { return f(d, a) }
}

// A getter is a function of a device, with its answers on h100's first device and on a device without any values.
type getter struct {
	name string
	call func(*engine.Device) []any
	h100 []any // nil: NOT_SUPPORTED
	bare []any // nil: NOT_SUPPORTED
}

func (g getter) bareAnswers(want ...any) getter { g.bare = want; return g }

func one[R any](name string, f func(*engine.Device) (R, abi.Return), want ...any) getter {
	return getter{name: name, h100: want, call: func(d *engine.Device) []any { r, ret := f(d); return []any{r, ret} }}
}

func two[R, S any](name string, f func(*engine.Device) (R, S, abi.Return), want ...any) getter {
	return getter{name: name, h100: want, call: func(d *engine.Device) []any { r, s, ret := f(d); return []any{r, s, ret} }}
}

// Amounts of memory in bytes: a MiB, the total of h100, and its reserved part.
const (
	mib      = 1 << 20
	total    = 85520809984
	reserved = 502792192
)

var getters = []getter{
	one("Name", DeviceGetName, "NVIDIA H100 80GB HBM3"),
	one("Index", DeviceGetIndex, 0).bareAnswers(0),
	one("MinorNumber", DeviceGetMinorNumber, 0).bareAnswers(0),
	one("BoardPartNumber", DeviceGetBoardPartNumber, "692-2G520-0200-000"),
	one("VbiosVersion", DeviceGetVbiosVersion, "96.00.99.00.01"),
	one("BoardId", DeviceGetBoardId, 0x5300).bareAnswers(0x100),
	one("MultiGpuBoard", DeviceGetMultiGpuBoard, 0),
	one("ModuleId", DeviceGetModuleId, 7).bareAnswers(0),
	two("CudaComputeCapability", DeviceGetCudaComputeCapability, 9, 0),
	one("NumGpuCores", DeviceGetNumGpuCores, 16896),
	one("Brand", DeviceGetBrand, abi.BRAND_NVIDIA).bareAnswers(abi.BRAND_UNKNOWN),
	one("Architecture", DeviceGetArchitecture, abi.DEVICE_ARCH_HOPPER),
	one("AddressingMode", filled(DeviceGetAddressingMode), abi.DeviceAddressingMode_v1_t{Value: 1}),

	one("CurrPcieLinkGeneration", DeviceGetCurrPcieLinkGeneration, 5),
	one("MaxPcieLinkGeneration", DeviceGetMaxPcieLinkGeneration, 5),
	one("GpuMaxPcieLinkGeneration", DeviceGetGpuMaxPcieLinkGeneration, 5),
	one("CurrPcieLinkWidth", DeviceGetCurrPcieLinkWidth, 16),
	one("MaxPcieLinkWidth", DeviceGetMaxPcieLinkWidth, 16),
	one("PcieLinkMaxSpeed", DeviceGetPcieLinkMaxSpeed, abi.PCIE_LINK_MAX_SPEED_32000MBPS),
	one("PcieSpeed", DeviceGetPcieSpeed, 32000),
	one("PcieReplayCounter", DeviceGetPcieReplayCounter, 150),
	one("PcieThroughput", with1(DeviceGetPcieThroughput, abi.PCIE_UTIL_TX_BYTES), 502),
	one("PcieThroughput", with1(DeviceGetPcieThroughput, abi.PCIE_UTIL_RX_BYTES), 578),

	one("MemoryInfo", filled(DeviceGetMemoryInfo), abi.Memory_t{Total: total, Free: total - reserved, Used: reserved}),
	one("MemoryInfo_v2", filled(DeviceGetMemoryInfo_v2), abi.Memory_v2_t{Total: total, Reserved: reserved, Free: total - reserved}),
	one("BAR1MemoryInfo", filled(DeviceGetBAR1MemoryInfo),
		abi.BAR1Memory_t{Bar1Total: 131072 * mib, Bar1Free: 131071 * mib, Bar1Used: mib}),
	one("ConfComputeProtectedMemoryUsage", filled(DeviceGetConfComputeProtectedMemoryUsage), abi.Memory_t{}),
	one("MemoryBusWidth", DeviceGetMemoryBusWidth, 5120),

	one("UtilizationRates", filled(DeviceGetUtilizationRates), abi.Utilization_t{}),
	two("EncoderUtilization", DeviceGetEncoderUtilization, 0, samplingPeriod),
	two("DecoderUtilization", DeviceGetDecoderUtilization, 0, samplingPeriod),
	two("JpgUtilization", DeviceGetJpgUtilization, 0, samplingPeriod),
	two("OfaUtilization", DeviceGetOfaUtilization, 0, samplingPeriod),
	one("FBCStats", filled(DeviceGetFBCStats), abi.FBCStats_t{}),

	one("PowerUsage", DeviceGetPowerUsage, 68920),
	one("PowerManagementLimit", DeviceGetPowerManagementLimit, 700000),
	one("EnforcedPowerLimit", DeviceGetEnforcedPowerLimit, 700000),
	one("PowerManagementDefaultLimit", DeviceGetPowerManagementDefaultLimit, 700000),
	two("PowerManagementLimitConstraints", DeviceGetPowerManagementLimitConstraints, 200000, 700000),
	one("PowerManagementMode", DeviceGetPowerManagementMode, abi.FEATURE_ENABLED),
	one("PowerState", DeviceGetPowerState, abi.PSTATE_0),
	one("PerformanceState", DeviceGetPerformanceState, abi.PSTATE_0),

	one("Temperature", with1(DeviceGetTemperature, abi.TEMPERATURE_GPU), 29),
	one("TemperatureV", filled(DeviceGetTemperatureV), abi.Temperature_v1_t{Temperature: 29}),
	one("MarginTemperature", filled(DeviceGetMarginTemperature), abi.MarginTemperature_v1_t{MarginTemperature: 58}),
	one("TemperatureThreshold", with1(DeviceGetTemperatureThreshold, abi.TEMPERATURE_THRESHOLD_SLOWDOWN)),
	one("NumFans", DeviceGetNumFans),
	one("FanSpeed", DeviceGetFanSpeed),
	one("FanSpeed_v2", with1(DeviceGetFanSpeed_v2, 0)),
	one("TargetFanSpeed", with1(DeviceGetTargetFanSpeed, 0)),

	one("ClockInfo", with1(DeviceGetClockInfo, abi.CLOCK_GRAPHICS), 345),
	one("ClockInfo", with1(DeviceGetClockInfo, abi.CLOCK_SM), 345),
	one("ClockInfo", with1(DeviceGetClockInfo, abi.CLOCK_MEM), 2619),
	one("ClockInfo", with1(DeviceGetClockInfo, abi.CLOCK_VIDEO), 765),
	one("MaxClockInfo", with1(DeviceGetMaxClockInfo, abi.CLOCK_SM), 1980),
	one("MaxClockInfo", with1(DeviceGetMaxClockInfo, abi.CLOCK_VIDEO), 1545),
	one("ApplicationsClock", with1(DeviceGetApplicationsClock, abi.CLOCK_MEM), 2619),
	one("DefaultApplicationsClock", with1(DeviceGetDefaultApplicationsClock, abi.CLOCK_GRAPHICS), 1980),
	one("MaxCustomerBoostClock", with1(DeviceGetMaxCustomerBoostClock, abi.CLOCK_GRAPHICS), 1980),
	one("MaxCustomerBoostClock", with1(DeviceGetMaxCustomerBoostClock, abi.CLOCK_VIDEO)),
	one("SupportedMemoryClocks", DeviceGetSupportedMemoryClocks, []uint32{2619, 1593}),
	two("AutoBoostedClocksEnabled", DeviceGetAutoBoostedClocksEnabled),
	one("CurrentClocksEventReasons", DeviceGetCurrentClocksEventReasons, abi.ClocksEventReasonGpuIdle),
	one("SupportedClocksEventReasons", DeviceGetSupportedClocksEventReasons, 0x1ff),

	one("PersistenceMode", DeviceGetPersistenceMode, abi.FEATURE_ENABLED),
	one("ComputeMode", DeviceGetComputeMode, abi.COMPUTEMODE_DEFAULT),
	one("DisplayActive", DeviceGetDisplayActive, abi.FEATURE_DISABLED),
	two("DriverModel", DeviceGetDriverModel),
	two("GpuOperationMode", DeviceGetGpuOperationMode),
	two("GspFirmwareMode", DeviceGetGspFirmwareMode, 1, 1),
	one("GspFirmwareVersion", DeviceGetGspFirmwareVersion, "580.105.08"),
	one("C2cModeInfoV", filled(DeviceGetC2cModeInfoV), abi.C2cModeInfo_v1_t{}),
	one("VirtualizationMode", DeviceGetVirtualizationMode, abi.GPU_VIRTUALIZATION_MODE_PASSTHROUGH),
	one("HostVgpuMode", DeviceGetHostVgpuMode),
	one("Capabilities", filled(DeviceGetCapabilities), abi.DeviceCapabilities_v1_t{}),
	two("MigMode", DeviceGetMigMode, 0, 0),
	one("IsMigDeviceHandle", DeviceIsMigDeviceHandle, 0).bareAnswers(0),
	one("MaxMigDeviceCount", DeviceGetMaxMigDeviceCount, 0).bareAnswers(0),

	one("InforomImageVersion", DeviceGetInforomImageVersion, "G520.0200.00.05"),
	one("InforomVersion", with1(DeviceGetInforomVersion, abi.INFOROM_OEM), "2.1"),
	one("InforomVersion", with1(DeviceGetInforomVersion, abi.INFOROM_ECC), "7.16"),
	one("InforomVersion", with1(DeviceGetInforomVersion, abi.INFOROM_POWER)),
	two("LastBBXFlushTime", DeviceGetLastBBXFlushTime, uint64(1787237943740000), 93088),

	two("EccMode", DeviceGetEccMode, abi.FEATURE_ENABLED, abi.FEATURE_ENABLED),
	one("DefaultEccMode", DeviceGetDefaultEccMode),
	one("RepairStatus", filled(DeviceGetRepairStatus), abi.RepairStatus_v1_t{}),
	one("SramEccErrorStatus", filled(DeviceGetSramEccErrorStatus), abi.EccSramErrorStatus_v1_t{}),
	one("UnrepairableMemoryFlag", filled(DeviceGetUnrepairableMemoryFlag_v1)),
	one("RetiredPages", with1(DeviceGetRetiredPages, abi.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)),
	one("RetiredPagesPendingStatus", DeviceGetRetiredPagesPendingStatus),
	one("RemappedRows_v2", filled(DeviceGetRemappedRows_v2), abi.RemappedRowsInfo_v2_t{}),
	one("RowRemapperHistogram", filled(DeviceGetRowRemapperHistogram), abi.RowRemapperHistogramValues_t{Max: 2560}),

	one("AccountingMode", DeviceGetAccountingMode, abi.FEATURE_DISABLED),
	one("AccountingBufferSize", DeviceGetAccountingBufferSize, 4000),
	one("AccountingPids", DeviceGetAccountingPids, []uint32(nil)),
	one("EncoderSessions", DeviceGetEncoderSessions, []abi.EncoderSessionInfo_t(nil)),
	one("FBCSessions", DeviceGetFBCSessions, []abi.FBCSessionInfo_t(nil)),
	one("ComputeRunningProcesses", DeviceGetComputeRunningProcesses, []abi.ProcessInfo_v1_t{}).
		bareAnswers([]abi.ProcessInfo_v1_t{}),

	one("GpuFabricInfo", filled(DeviceGetGpuFabricInfo), abi.GpuFabricInfo_t{State: abi.GPU_FABRIC_STATE_COMPLETED}),
	one("GpuFabricInfoV", filled(DeviceGetGpuFabricInfoV), abi.GpuFabricInfo_v3_t{State: abi.GPU_FABRIC_STATE_COMPLETED}),
	one("PlatformInfo", filled(DeviceGetPlatformInfo)),

	one("NvLinkState", with1(DeviceGetNvLinkState, 17), abi.FEATURE_ENABLED),
	one("NvLinkVersion", with1(DeviceGetNvLinkVersion, 0), abi.NVLINK_VERSION_4_0),
	one("NvLinkRemoteDeviceType", with1(DeviceGetNvLinkRemoteDeviceType, 0), abi.NVLINK_DEVICE_TYPE_SWITCH),
}

func TestH100(t *testing.T) {
	d := gpu(t, "")
	for _, g := range getters {
		t.Run(g.name, func(t *testing.T) {
			if g.h100 == nil {
				refuses(t, abi.ERROR_NOT_SUPPORTED)(g.call(d)...)
			} else {
				answers(t, g.h100...)(g.call(d)...)
			}
		})
	}
}

// TestAbsent: a value that the profile leaves out is not supported, and no other value replaces it.
func TestAbsent(t *testing.T) {
	d := gpu(t, bare)
	for _, g := range getters {
		t.Run(g.name, func(t *testing.T) {
			if g.bare == nil {
				refuses(t, abi.ERROR_NOT_SUPPORTED)(g.call(d)...)
			} else {
				answers(t, g.bare...)(g.call(d)...)
			}
		})
	}
}

// TestWrongArguments: an unknown number is an invalid argument, whether or not the board supports the function.
func TestWrongArguments(t *testing.T) {
	for _, profile := range []string{"", bare} {
		d := gpu(t, profile)
		wrong := refuses(t, abi.ERROR_INVALID_ARGUMENT)
		wrong(DeviceGetHandleByIndex(d.Snapshot(), uint32(len(d.Snapshot().Devices))))
		wrong(DeviceGetTemperature(d, abi.TEMPERATURE_COUNT))
		wrong(DeviceGetTemperatureThreshold(d, abi.TEMPERATURE_THRESHOLD_COUNT))
		wrong(DeviceGetClockInfo(d, abi.CLOCK_COUNT))
		wrong(DeviceGetMaxClockInfo(d, abi.CLOCK_COUNT))
		wrong(DeviceGetApplicationsClock(d, 77))
		wrong(DeviceGetClock(d, abi.CLOCK_COUNT, abi.CLOCK_ID_CURRENT))
		wrong(DeviceGetClock(d, abi.CLOCK_SM, abi.CLOCK_ID_COUNT))
		wrong(DeviceGetPcieThroughput(d, abi.PCIE_UTIL_COUNT))
		wrong(DeviceGetInforomVersion(d, abi.INFOROM_COUNT))
		wrong(DeviceGetMemoryErrorCounter(d, 2, 0, 0))
		wrong(DeviceGetMemoryErrorCounter(d, 0, 2, 0))
		wrong(DeviceGetMemoryErrorCounter(d, 0, 0, abi.MEMORY_LOCATION_COUNT))
		wrong(DeviceGetTotalEccErrors(d, 2, 0))
		wrong(DeviceGetDetailedEccErrors(d, 0, 2, &abi.EccErrorCounts_t{}))
		wrong(DeviceGetRetiredPages(d, abi.PAGE_RETIREMENT_CAUSE_COUNT))
		wrong(DeviceGetRetiredPages_v2(d, abi.PAGE_RETIREMENT_CAUSE_COUNT))
		wrong(DeviceGetViolationStatus(d, 6, &abi.ViolationTime_t{}))
		wrong(DeviceGetViolationStatus(d, abi.PERF_POLICY_COUNT, &abi.ViolationTime_t{}))
		wrong(DeviceGetP2PStatus(d, d, abi.P2P_CAPS_INDEX_UNKNOWN))
		wrong(DeviceGetNvLinkCapability(d, 0, abi.NVLINK_CAP_COUNT))
		wrong(DeviceGetNvLinkErrorCounter(d, 0, abi.NVLINK_ERROR_COUNT))
		wrong(DeviceGetTopologyNearestGpus(d, 7))
		wrong(DeviceGetMemoryAffinity(d, make([]uint64, 1), 2))
		wrong(DeviceGetCpuAffinity(d, nil))
		wrong(DeviceGetHandleByUUIDV(d.Snapshot(), &abi.UUID_v1_t{Type: 3}))
		wrong(GetExcludedDeviceInfoByIndex(d.Snapshot(), 0, nil))
	}
}
