package tests

import (
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// trySetters calls the setters of a shipped board's last GPU, each with a value that suits the GPU, and notes which of them the board
// has. What a setter does is compared in setByGo, on a board that has all of them.
func trySetters(t *testing.T, name string, seen answers) {
	needsRoot(t)
	t.Setenv("NVMLFAB_STATE_DIR", t.TempDir())
	b := mustBoard(t, name)
	c := &checker{T: t, lib: nvml.New(nvml.WithLibraryPath(filepath.Join(library, "libnvidia-ml.so.1"))),
		board: b, known: known(t, b), seen: seen, name: name}
	require.Equal(t, nvml.SUCCESS, c.lib.Init())
	defer func() { assert.Equal(t, nvml.SUCCESS, c.lib.Shutdown()) }()
	d := &b.Devices[len(b.Devices)-1]
	dev, ret := c.lib.DeviceGetHandleByIndex(len(b.Devices) - 1)
	require.Equal(t, nvml.SUCCESS, ret)

	// try takes what a setter answers: it sets, or the GPU has no such thing, or the driver has no such function (any more).
	try := func(symbol string, ret nvml.Return) {
		c.Helper()
		switch {
		case !c.known[symbol]:
			c.says(symbol, nvml.ERROR_FUNCTION_NOT_FOUND)(ret)
		case ret == nvml.SUCCESS || ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_DEPRECATED:
			c.seen.note(symbol, c.name, ret == nvml.SUCCESS)
		default:
			c.Errorf("%s answers %v", symbol, nvml.ErrorString(ret))
		}
	}
	const on, off = nvml.FEATURE_ENABLED, nvml.FEATURE_DISABLED

	try("nvmlDeviceSetPersistenceMode", dev.SetPersistenceMode(on))
	try("nvmlDeviceSetComputeMode", dev.SetComputeMode(nvml.COMPUTEMODE_EXCLUSIVE_PROCESS))
	try("nvmlDeviceSetEccMode", dev.SetEccMode(on))
	try("nvmlDeviceClearEccErrorCounts", dev.ClearEccErrorCounts(nvml.VOLATILE_ECC))
	try("nvmlDeviceSetAccountingMode", dev.SetAccountingMode(on))
	try("nvmlDeviceClearAccountingPids", dev.ClearAccountingPids())
	try("nvmlDeviceSetGpuOperationMode", dev.SetGpuOperationMode(nvml.GOM_ALL_ON))
	try("nvmlDeviceSetVirtualizationMode", dev.SetVirtualizationMode(nvml.GPU_VIRTUALIZATION_MODE_NONE))
	try("nvmlDeviceSetAPIRestriction", dev.SetAPIRestriction(nvml.RESTRICTED_API_SET_APPLICATION_CLOCKS, off))

	watts := d.Power.MaxLimitMW.Value
	try("nvmlDeviceSetPowerManagementLimit", dev.SetPowerManagementLimit(watts))
	try("nvmlDeviceSetPowerManagementLimit_v2", dev.SetPowerManagementLimit_v2(&nvml.PowerValue_v2{
		Version: nvml.STRUCT_VERSION(nvml.PowerValue_v2{}, 2), PowerValueMw: watts,
	}))
	try("nvmlDevicePowerSmoothingSetState", dev.PowerSmoothingSetState(&nvml.PowerSmoothingState{
		Version: nvml.STRUCT_VERSION(nvml.PowerSmoothingState{}, 1), State: uint32(on),
	}))
	smoothing := nvml.PowerSmoothingProfile{Version: nvml.STRUCT_VERSION(nvml.PowerSmoothingProfile{}, 1), Value: 50}
	try("nvmlDevicePowerSmoothingActivatePresetProfile", dev.PowerSmoothingActivatePresetProfile(&smoothing))
	try("nvmlDevicePowerSmoothingUpdatePresetProfileParam", dev.PowerSmoothingUpdatePresetProfileParam(&smoothing))
	asked := nvml.WorkloadPowerProfileRequestedProfiles{Version: nvml.STRUCT_VERSION(nvml.WorkloadPowerProfileRequestedProfiles{}, 1)}
	try("nvmlDeviceWorkloadPowerProfileSetRequestedProfiles", dev.WorkloadPowerProfileSetRequestedProfiles(&asked))
	try("nvmlDeviceWorkloadPowerProfileClearRequestedProfiles", dev.WorkloadPowerProfileClearRequestedProfiles(&asked))

	memory, _ := dev.GetMaxClockInfo(nvml.CLOCK_MEM)
	graphics, _ := dev.GetMaxClockInfo(nvml.CLOCK_GRAPHICS)
	try("nvmlDeviceSetGpuLockedClocks", dev.SetGpuLockedClocks(graphics, graphics))
	try("nvmlDeviceResetGpuLockedClocks", dev.ResetGpuLockedClocks())
	try("nvmlDeviceSetMemoryLockedClocks", dev.SetMemoryLockedClocks(memory, memory))
	try("nvmlDeviceResetMemoryLockedClocks", dev.ResetMemoryLockedClocks())
	try("nvmlDeviceSetApplicationsClocks", dev.SetApplicationsClocks(memory, graphics))
	try("nvmlDeviceResetApplicationsClocks", dev.ResetApplicationsClocks())
	try("nvmlDeviceSetAutoBoostedClocksEnabled", dev.SetAutoBoostedClocksEnabled(on))
	try("nvmlDeviceSetDefaultAutoBoostedClocksEnabled", dev.SetDefaultAutoBoostedClocksEnabled(on, 0))
	try("nvmlDeviceSetGpcClkVfOffset", dev.SetGpcClkVfOffset(0))
	try("nvmlDeviceSetMemClkVfOffset", dev.SetMemClkVfOffset(0))
	try("nvmlDeviceSetClockOffsets", dev.SetClockOffsets(nvml.ClockOffset{
		Version: nvml.STRUCT_VERSION(nvml.ClockOffset{}, 1), Type: uint32(nvml.CLOCK_GRAPHICS),
	}))

	try("nvmlDeviceSetFanSpeed_v2", dev.SetFanSpeed_v2(0, 70))
	try("nvmlDeviceSetDefaultFanSpeed_v2", dev.SetDefaultFanSpeed_v2(0))
	try("nvmlDeviceSetFanControlPolicy", dev.SetFanControlPolicy(0, nvml.FAN_POLICY_MANUAL))
	try("nvmlDeviceSetTemperatureThreshold", dev.SetTemperatureThreshold(nvml.TEMPERATURE_THRESHOLD_ACOUSTIC_CURR,
		int(d.Thermal.TargetTemperatureMaxC.Or(80))))

	try("nvmlDeviceResetNvLinkErrorCounters", dev.ResetNvLinkErrorCounters(0))
	try("nvmlDeviceSetNvLinkDeviceLowPowerThreshold", dev.SetNvLinkDeviceLowPowerThreshold(&nvml.NvLinkPowerThres{LowPwrThreshold: 20}))
	try("nvmlGpmSetStreamingEnabled", dev.GpmSetStreamingEnabled(1))

	pci, ret := dev.GetPciInfo()
	if c.says("nvmlDeviceGetPciInfo_v3", nvml.SUCCESS)(ret); ret != nvml.SUCCESS {
		return
	}
	try("nvmlDeviceSetPersistenceMode", dev.SetPersistenceMode(off)) // the daemon uses a GPU, which cannot be drained then
	try("nvmlDeviceModifyDrainState", c.lib.DeviceModifyDrainState(&pci, on))
	_, ret = c.lib.DeviceQueryDrainState(&pci)
	try("nvmlDeviceQueryDrainState", ret)
	try("nvmlDeviceRemoveGpu_v2", c.lib.DeviceRemoveGpu_v2(&pci, nvml.DETACH_GPU_REMOVE, nvml.PCIE_LINK_SHUT_DOWN))
	_, ret = c.lib.DeviceDiscoverGpus()
	try("nvmlDeviceDiscoverGpus", ret)
	try("nvmlDeviceModifyDrainState", c.lib.DeviceModifyDrainState(&pci, on))
	try("nvmlDeviceRemoveGpu", c.lib.DeviceRemoveGpu(&pci))
}
