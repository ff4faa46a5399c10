package tests

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tunable is a node whose GPUs have all that can be set.
const tunable = `
extends: h100
count: 2
device_defaults:
  fan: {count: 2, speed_percent: 40, target_speed_percent: 45}
  clock_offsets: {graphics_min_mhz: -300, graphics_max_mhz: 300, memory_min_mhz: -500, memory_max_mhz: 500}
  clocks: {auto_boost: enabled, auto_boost_default: enabled}
  power: {smoothing: disabled}
  power_smoothing: {active_profile: 1, profiles: [{floor_percent: 20}, {floor_percent: 30}]}
  workload_power_profiles: {supported: [{id: 3, priority: 2}, {id: 4, priority: 1}]}
  nvlink_low_power: {default: 10, min: 1, max: 8191}
  hostname: gpu-a
  power_mizer: {mode: auto, modes: [prefer_maximum]}
  gpu_operation_mode: {current: all_on, pending: all_on}
  virtualization: {mode: none, host_vgpu_mode: sriov}
  memory: {encryption_current: disabled, encryption_pending: disabled}
  thermal: {target_temperature_c: 80, target_temperature_min_c: 60, target_temperature_max_c: 90}
`

// setByGo calls each setter through go-nvml, and then the getter of what it sets.
func setByGo(t *testing.T, program string, seen answers) {
	needsRoot(t)
	path := filepath.Join(t.TempDir(), "profile.yaml")
	require.NoError(t, os.WriteFile(path, []byte(tunable), 0o644))
	b, err := profiles.Load(path)
	require.NoError(t, err)
	state := t.TempDir()
	t.Setenv("NVMLFAB_STATE_DIR", state)
	t.Setenv("MOCK_NVML_CONFIG", path)
	lib := nvml.New(nvml.WithLibraryPath(filepath.Join(library, "libnvidia-ml.so.1")))
	require.Equal(t, nvml.SUCCESS, lib.Init())
	defer func() { assert.Equal(t, nvml.SUCCESS, lib.Shutdown()) }()
	dev, ret := lib.DeviceGetHandleByIndex(0)
	require.Equal(t, nvml.SUCCESS, ret)
	c := &checker{T: t, lib: lib, board: b, known: known(t, b), seen: seen, name: "tunable"}
	set := func(symbol string, answer nvml.Return) { t.Helper(); c.says(symbol, nvml.SUCCESS)(answer) }

	const on, off = nvml.FEATURE_ENABLED, nvml.FEATURE_DISABLED
	set("nvmlDeviceSetPersistenceMode", dev.SetPersistenceMode(off))
	c.says("nvmlDeviceGetPersistenceMode", off)(dev.GetPersistenceMode())
	set("nvmlDeviceSetPowerManagementLimit", dev.SetPowerManagementLimit(300_000))
	c.says("nvmlDeviceGetPowerManagementLimit", 300_000)(dev.GetPowerManagementLimit())
	c.says("nvmlDeviceSetPowerManagementLimit", nvml.ERROR_INVALID_ARGUMENT)(dev.SetPowerManagementLimit(100_000))
	set("nvmlDeviceSetPowerManagementLimit_v2", dev.SetPowerManagementLimit_v2(&nvml.PowerValue_v2{
		Version: nvml.STRUCT_VERSION(nvml.PowerValue_v2{}, 2), PowerValueMw: 400_000,
	}))
	c.says("nvmlDeviceGetEnforcedPowerLimit", 400_000)(dev.GetEnforcedPowerLimit())
	set("nvmlDeviceSetGpuLockedClocks", dev.SetGpuLockedClocks(900, 900))
	c.says("nvmlDeviceGetClockInfo", 900)(dev.GetClockInfo(nvml.CLOCK_GRAPHICS))
	set("nvmlDeviceResetGpuLockedClocks", dev.ResetGpuLockedClocks())
	c.says("nvmlDeviceGetClockInfo", 345)(dev.GetClockInfo(nvml.CLOCK_GRAPHICS))
	set("nvmlDeviceSetMemoryLockedClocks", dev.SetMemoryLockedClocks(1593, 1593))
	c.says("nvmlDeviceGetClockInfo", 1593)(dev.GetClockInfo(nvml.CLOCK_MEM))
	set("nvmlDeviceResetMemoryLockedClocks", dev.ResetMemoryLockedClocks())
	c.says("nvmlDeviceGetClockInfo", 2619)(dev.GetClockInfo(nvml.CLOCK_MEM))
	set("nvmlDeviceSetApplicationsClocks", dev.SetApplicationsClocks(1593, 1500))
	c.says("nvmlDeviceGetApplicationsClock", 1500)(dev.GetApplicationsClock(nvml.CLOCK_GRAPHICS))
	set("nvmlDeviceResetApplicationsClocks", dev.ResetApplicationsClocks())
	c.says("nvmlDeviceGetApplicationsClock", 1980)(dev.GetApplicationsClock(nvml.CLOCK_GRAPHICS))
	set("nvmlGpmSetStreamingEnabled", dev.GpmSetStreamingEnabled(1))
	c.says("nvmlGpmQueryIfStreamingEnabled", 1)(dev.GpmQueryIfStreamingEnabled())
	c.says("nvmlGpmSetStreamingEnabled", nvml.ERROR_INVALID_ARGUMENT)(dev.GpmSetStreamingEnabled(2))
	set("nvmlDeviceSetAutoBoostedClocksEnabled", dev.SetAutoBoostedClocksEnabled(off))
	c.says("nvmlDeviceGetAutoBoostedClocksEnabled", off, on)(dev.GetAutoBoostedClocksEnabled())
	set("nvmlDeviceSetDefaultAutoBoostedClocksEnabled", dev.SetDefaultAutoBoostedClocksEnabled(off, 0))
	c.says("nvmlDeviceGetAutoBoostedClocksEnabled", off, off)(dev.GetAutoBoostedClocksEnabled())
	set("nvmlDeviceSetAPIRestriction", dev.SetAPIRestriction(nvml.RESTRICTED_API_SET_APPLICATION_CLOCKS, off))
	c.says("nvmlDeviceGetAPIRestriction", off)(dev.GetAPIRestriction(nvml.RESTRICTED_API_SET_APPLICATION_CLOCKS))
	set("nvmlDeviceSetGpcClkVfOffset", dev.SetGpcClkVfOffset(-60))
	c.says("nvmlDeviceGetGpcClkVfOffset", -60)(dev.GetGpcClkVfOffset())
	c.says("nvmlDeviceGetGpcClkMinMaxVfOffset", -300, 300)(dev.GetGpcClkMinMaxVfOffset())
	set("nvmlDeviceSetMemClkVfOffset", dev.SetMemClkVfOffset(70))
	c.says("nvmlDeviceGetMemClkVfOffset", 70)(dev.GetMemClkVfOffset())
	c.says("nvmlDeviceGetMemClkMinMaxVfOffset", -500, 500)(dev.GetMemClkMinMaxVfOffset())
	set("nvmlDeviceSetClockOffsets", dev.SetClockOffsets(nvml.ClockOffset{
		Version: nvml.STRUCT_VERSION(nvml.ClockOffset{}, 1), Type: uint32(nvml.CLOCK_GRAPHICS), ClockOffsetMHz: 15,
	}))
	offsets, ret := dev.GetClockOffsets()
	c.says("nvmlDeviceGetClockOffsets", 15, -300, 300)(offsets.ClockOffsetMHz, offsets.MinClockOffsetMHz, offsets.MaxClockOffsetMHz, ret)

	set("nvmlDeviceSetFanSpeed_v2", dev.SetFanSpeed_v2(1, 70))
	c.says("nvmlDeviceGetFanSpeed_v2", 70)(dev.GetFanSpeed_v2(1))
	c.says("nvmlDeviceGetFanControlPolicy_v2", nvml.FAN_POLICY_MANUAL)(dev.GetFanControlPolicy_v2(1))
	set("nvmlDeviceSetDefaultFanSpeed_v2", dev.SetDefaultFanSpeed_v2(1))
	c.says("nvmlDeviceGetFanSpeed_v2", 40)(dev.GetFanSpeed_v2(1))
	set("nvmlDeviceSetFanControlPolicy", dev.SetFanControlPolicy(0, nvml.FAN_POLICY_MANUAL))
	c.says("nvmlDeviceGetMinMaxFanSpeed", 0, 100)(dev.GetMinMaxFanSpeed())
	set("nvmlDeviceSetTemperatureThreshold", dev.SetTemperatureThreshold(nvml.TEMPERATURE_THRESHOLD_ACOUSTIC_CURR, 70))
	c.says("nvmlDeviceGetTemperatureThreshold", 70)(dev.GetTemperatureThreshold(nvml.TEMPERATURE_THRESHOLD_ACOUSTIC_CURR))

	set("nvmlDeviceSetComputeMode", dev.SetComputeMode(nvml.COMPUTEMODE_PROHIBITED))
	c.says("nvmlDeviceGetComputeMode", nvml.COMPUTEMODE_PROHIBITED)(dev.GetComputeMode())
	set("nvmlDeviceSetEccMode", dev.SetEccMode(off))
	c.says("nvmlDeviceGetEccMode", on, off)(dev.GetEccMode())
	set("nvmlDeviceClearEccErrorCounts", dev.ClearEccErrorCounts(nvml.VOLATILE_ECC))
	set("nvmlDeviceSetDramEncryptionMode", dev.SetDramEncryptionMode(&nvml.DramEncryptionInfo{
		Version: nvml.STRUCT_VERSION(nvml.DramEncryptionInfo{}, 1), EncryptionState: uint32(on),
	}))
	set("nvmlDeviceSetGpuOperationMode", dev.SetGpuOperationMode(nvml.GOM_COMPUTE))
	c.says("nvmlDeviceGetGpuOperationMode", nvml.GOM_ALL_ON, nvml.GOM_COMPUTE)(dev.GetGpuOperationMode())
	set("nvmlDeviceSetVirtualizationMode", dev.SetVirtualizationMode(nvml.GPU_VIRTUALIZATION_MODE_HOST_VGPU))
	c.says("nvmlDeviceGetVirtualizationMode", nvml.GPU_VIRTUALIZATION_MODE_HOST_VGPU)(dev.GetVirtualizationMode())
	set("nvmlDeviceSetAccountingMode", dev.SetAccountingMode(on))
	c.says("nvmlDeviceGetAccountingMode", on)(dev.GetAccountingMode())
	set("nvmlDeviceClearAccountingPids", dev.ClearAccountingPids())
	set("nvmlDeviceResetNvLinkErrorCounters", dev.ResetNvLinkErrorCounters(0))
	set("nvmlDeviceSetNvLinkDeviceLowPowerThreshold", dev.SetNvLinkDeviceLowPowerThreshold(&nvml.NvLinkPowerThres{LowPwrThreshold: 20}))

	set("nvmlDevicePowerSmoothingSetState", dev.PowerSmoothingSetState(&nvml.PowerSmoothingState{
		Version: nvml.STRUCT_VERSION(nvml.PowerSmoothingState{}, 1), State: uint32(on),
	}))
	smoothing := nvml.PowerSmoothingProfile{Version: nvml.STRUCT_VERSION(nvml.PowerSmoothingProfile{}, 1), Value: 50}
	set("nvmlDevicePowerSmoothingActivatePresetProfile", dev.PowerSmoothingActivatePresetProfile(&smoothing))
	set("nvmlDevicePowerSmoothingUpdatePresetProfileParam", dev.PowerSmoothingUpdatePresetProfileParam(&smoothing))
	number := c.fieldNumbers()
	values := []nvml.FieldValue{{FieldId: number[nvml.FI_PWR_SMOOTHING_ENABLED]}, {FieldId: number[nvml.FI_PWR_SMOOTHING_PROFILE_PERCENT_TMP_FLOOR]}}
	require.Equal(t, nvml.SUCCESS, dev.GetFieldValues(values))
	assert.Equal(t, []byte{1, 50}, []byte{values[0].Value[0], values[1].Value[0]})

	asked := nvml.WorkloadPowerProfileRequestedProfiles{Version: nvml.STRUCT_VERSION(nvml.WorkloadPowerProfileRequestedProfiles{}, 1)}
	asked.RequestedProfilesMask.Mask[0] = 1<<3 | 1<<4
	set("nvmlDeviceWorkloadPowerProfileSetRequestedProfiles", dev.WorkloadPowerProfileSetRequestedProfiles(&asked))
	asked.RequestedProfilesMask.Mask[0] = 1 << 3
	set("nvmlDeviceWorkloadPowerProfileClearRequestedProfiles", dev.WorkloadPowerProfileClearRequestedProfiles(&asked))
	now, ret := dev.WorkloadPowerProfileGetCurrentProfiles()
	c.says("nvmlDeviceWorkloadPowerProfileGetCurrentProfiles", 1<<3|1<<4, 1<<4)(
		now.PerfProfilesMask.Mask[0], now.EnforcedProfilesMask.Mask[0], ret)
	info, ret := dev.WorkloadPowerProfileGetProfilesInfo()
	c.says("nvmlDeviceWorkloadPowerProfileGetProfilesInfo", 1<<3|1<<4, 2)(info.PerfProfilesMask.Mask[0], info.PerfProfile[3].Priority, ret)
	update := dev.WorkloadPowerProfileUpdateProfiles_v1(nvml.POWER_PROFILE_OPERATION_SET, []nvml.PowerProfileType{3})
	set("nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1", update)

	// The first GPU is drained and removed, here by go-nvml and then by the functions' older names.
	pci, ret := dev.GetPciInfo()
	require.Equal(t, nvml.SUCCESS, ret)
	set("nvmlDeviceModifyDrainState", lib.DeviceModifyDrainState(&pci, on))
	c.says("nvmlDeviceQueryDrainState", on)(lib.DeviceQueryDrainState(&pci))
	set("nvmlDeviceRemoveGpu_v2", lib.DeviceRemoveGpu_v2(&pci, nvml.DETACH_GPU_REMOVE, nvml.PCIE_LINK_SHUT_DOWN))
	c.says("nvmlDeviceGetCount_v2", 1)(lib.DeviceGetCount())
	_, ret = lib.DeviceDiscoverGpus()
	set("nvmlDeviceDiscoverGpus", ret)
	c.says("nvmlDeviceGetCount_v2", 2)(lib.DeviceGetCount())
	set("nvmlDeviceModifyDrainState", lib.DeviceModifyDrainState(&pci, on))
	set("nvmlDeviceRemoveGpu", lib.DeviceRemoveGpu(&pci))
	names := newCaller(t, program, "MOCK_NVML_CONFIG="+path, "NVMLFAB_STATE_DIR="+state)
	require.Equal(t, nvml.SUCCESS, names.call("nvmlInit_v2"))
	var handle uint64
	require.Equal(t, nvml.SUCCESS, names.call("nvmlDeviceGetHandleByIndex_v2", 0, &handle))
	mizer := nvml.DevicePowerMizerModes_v1{Mode: 1}
	set("nvmlDeviceSetPowerMizerMode_v1", names.call("nvmlDeviceSetPowerMizerMode_v1", handle, &mizer))
	mizer.Mode = 3
	c.says("nvmlDeviceSetPowerMizerMode_v1", nvml.ERROR_INVALID_ARGUMENT)(names.call("nvmlDeviceSetPowerMizerMode_v1", handle, &mizer))
	answer := names.call("nvmlDeviceGetPowerMizerMode_v1", handle, &mizer)
	c.says("nvmlDeviceGetPowerMizerMode_v1", nvml.DevicePowerMizerModes_v1{CurrentMode: 1, Mode: 1, SupportedPowerMizerModes: 2})(mizer, answer)
	c.says("nvmlDeviceGetCount_v2", 1)(get[uint32](names, "nvmlDeviceGetCount_v2"))

	// What only drivers after 590 have, which know no applications clocks.
	path = filepath.Join(t.TempDir(), "newer.yaml")
	require.NoError(t, os.WriteFile(path, []byte(tunable+"system: {driver_version: 615.36.04}\n"), 0o644))
	c.board, err = profiles.Load(path)
	require.NoError(t, err)
	c.known = known(t, c.board)
	names = newCaller(t, program, "MOCK_NVML_CONFIG="+path, "NVMLFAB_STATE_DIR="+t.TempDir())
	require.Equal(t, nvml.SUCCESS, names.call("nvmlInit_v2"))
	require.Equal(t, nvml.SUCCESS, names.call("nvmlDeviceGetHandleByIndex_v2", 0, &handle))
	var host nvml.Hostname_v1
	chars(host.Value[:], "gpu-b")
	set("nvmlDeviceSetHostname_v1", names.call("nvmlDeviceSetHostname_v1", handle, &host))
	answer = names.call("nvmlDeviceGetHostname_v1", handle, &host)
	c.says("nvmlDeviceGetHostname_v1", "gpu-b")(letters(host.Value[:]), answer)
	chars(host.Value[:], "no name")
	c.says("nvmlDeviceSetHostname_v1", nvml.ERROR_INVALID_ARGUMENT)(names.call("nvmlDeviceSetHostname_v1", handle, &host))
}
