package tests

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shared is a node whose GPUs are vGPU hosts in all ways: the first has vGPUs of different sizes, the second is in MIG mode,
// and nothing runs on the third.
const shared = `
extends: a100-sxm4-40gb
count: 3
system:
  driver_version: 615.36.04
  vgpu: {min_version: 0x70001, max_version: 0x150001, set_max_version: 0x140001, heterogeneous_multi_vgpu: true, warm_update: false}
device_defaults:
  virtualization: {mode: host_vgpu, host_vgpu_mode: sriov}
  gsp_firmware: {mode: enabled, version: 615.36.04}
  vgpu:
    heterogeneous_mode: enabled
    migration_supported: true
    capabilities: {fractional_multi_vgpu: true, heterogeneous_timeslice_profiles: true, heterogeneous_timeslice_sizes: false,
      read_device_buffer_bandwidth: 9800, write_device_buffer_bandwidth: 9700, device_streaming: true, mini_quarter_gpu: false,
      compute_media_engine_gpu: true, warm_update: false, homogeneous_placements: true, mig_timeslicing_supported: true,
      mig_timeslicing_enabled: true}
    scheduler: {supported: [best_effort, equal_share, fixed_share], policy: equal_share, default_timeslice_ns: 2000000,
      min_timeslice_ns: 1000000, max_timeslice_ns: 30000000, arr_supported: true, default_frequency: 500, min_frequency: 63,
      max_frequency: 960, default_avg_factor: 33, min_avg_factor: 1, max_avg_factor: 60}
    types:
      - {id: 41, name: VG-4Q, class: Quadro, license: "Quadro-Virtual-DWS,5.0", device_id: 0x20B010DE, subsystem_id: 0x14D510DE,
         framebuffer_mib: 4096, framebuffer_reservation_mib: 320, gsp_heap_mib: 32, bar1_mib: 256, max_instances: 4,
         max_instances_per_vm: 2, display_heads: 4, max_x: 7680, max_y: 4320, frame_rate_limit: 60,
         placement_size: 4, placement_ids: [0, 4, 8, 12, 16], homogeneous_placement_size: 5, homogeneous_placement_ids: [0, 5, 10],
         nvlink_p2p: true, gpudirect: false, multi_vgpu_exclusive: true, exclusive_type: false, exclusive_size: false}
      - {id: 42, name: VG-8C, class: Compute, framebuffer_mib: 8192, max_instances: 2, display_heads: 1, max_x: 4096, max_y: 2160,
         placement_size: 8, placement_ids: [0, 8, 16]}
      - {id: 43, name: VG-quarter, class: Compute, framebuffer_mib: 4096, max_instances: 1, display_heads: 1, max_x: 4096, max_y: 2160,
         mini_quarter: true, placement_size: 4, placement_ids: []}
      - {id: 44, name: VG-1-2C, class: Compute, framebuffer_mib: 2048, max_instances: 14, display_heads: 1, max_x: 4096, max_y: 2160,
         gpu_instance_profile_id: 19, max_instances_per_gpu_instance: 2, placement_size: 2, placement_ids: [0, 2]}
      - {id: 45, name: VG-1-5C, class: Compute, framebuffer_mib: 5120, max_instances: 7, display_heads: 1, max_x: 4096, max_y: 2160, gpu_instance_profile_id: 19}
devices:
  - index: 0
    vgpu:
      instances:
        - {id: 71, type: VG-4Q, uuid: 11111111-2222-3333-4444-555555555555, mdev_uuid: 21111111-2222-3333-4444-555555555555,
           vm_id: 31111111-2222-3333-4444-555555555555, vm_driver_version: 570.10.1, vm_vgpu_version: 0x140001,
           vm_bus_id: "0000:02:01.0", placement_id: 4, license: {state: licensed, expiry: 2099-01-02 03:04:05}, ecc_mode: enabled,
           frame_rate_limit: 30, framebuffer_used_mib: 1024, runtime_state_bytes: 777,
           utilization: {sm: 40, memory: 20, encoder: 3, decoder: 4, jpeg: 5, ofa: 6}, encoder_capacity: 50,
           encoder_sessions: [
             {id: 1, pid: 900, codec: hevc, x: 1920, y: 1080, average_fps: 30, average_latency_us: 400},
             {id: 2, pid: 901, codec: h264, x: 1280, y: 720, average_fps: 60, average_latency_us: 600}],
           fbc_sessions: [{id: 3, pid: 902, display: 1, type: cuda, diff_map: true, classification_map: true, wait: timeout,
             max_x: 3840, max_y: 2160, x: 1920, y: 1080, average_fps: 25, average_latency_us: 300}],
           accounting_mode: enabled,
           processes: [
             {pid: 900, name: train, max_memory_mib: 100, started_us: 5, utilization: {sm: 30, memory: 10, encoder: 1, decoder: 2, jpeg: 3, ofa: 4}},
             {pid: 903, name: idle},
             {pid: 904, name: gone, max_memory_mib: 200, started_us: 6, ran_ms: 1500, utilization: {sm: 7, memory: 8}}]}
        - {id: 72, type: VG-8C, uuid: 12111111-2222-3333-4444-555555555555, vm_id: "17", vm_id_type: domain_id, placement_id: 8,
           license: {state: licensed, expiry: 2001-01-01 00:00:00}}
  - index: 1
    mig: {mode_current: enabled, mode_pending: enabled, instances: [{profile: 1g.5gb}, {profile: 1g.5gb}]}
    vgpu:
      instances:
        - {id: 73, type: VG-1-2C, uuid: 13111111-2222-3333-4444-555555555555, vm_id: 33111111-2222-3333-4444-555555555555,
           gpu_instance_id: 13, placement_id: 2, utilization: {sm: 100}}
        - {id: 74, type: VG-1-2C, uuid: 14111111-2222-3333-4444-555555555555, vm_id: 34111111-2222-3333-4444-555555555555,
           gpu_instance_id: 13, placement_id: 0}
`

// isHost says whether the device is a vGPU host.
func isHost(d *profiles.Device) bool {
	return d.Virtualization.Mode.Value == "host_vgpu" && len(d.VGPU.Types) > 0
}

// vgpu checks what a GPU says about vGPUs. Most GPUs are no vGPU hosts.
func (c *checker) vgpu(dev nvml.Device, d *profiles.Device) {
	host, whole := isHost(d), isHost(d) && !bool(d.MIG.ModeCurrent.Value)
	v := &d.VGPU
	var types []*profiles.VGPUType
	var ids, active []uint32
	for i := range v.Types {
		t := &v.Types[i]
		if t.GPUInstanceProfileID.Valid == bool(d.MIG.ModeCurrent.Value) && !t.MiniQuarter.Value {
			types, ids = append(types, t), append(ids, t.ID)
		}
	}
	for _, i := range v.Instances {
		active = append(active, i.ID)
	}
	c.says("nvmlDeviceGetSupportedVgpus", when(host, ids))(dev.GetSupportedVgpus())
	c.says("nvmlDeviceGetActiveVgpus", when(host, active))(dev.GetActiveVgpus())
	can := &v.Capabilities
	for i, want := range []profiles.Opt[bool]{
		can.FractionalMultiVGPU, can.HeterogeneousTimesliceProfiles, can.HeterogeneousTimesliceSizes,
		{Value: true, Valid: can.ReadDeviceBufferBandwidth.Valid}, {Value: true, Valid: can.WriteDeviceBufferBandwidth.Valid},
		can.DeviceStreaming, can.MiniQuarterGPU, can.ComputeMediaEngineGPU, can.WarmUpdate, can.HomogeneousPlacements,
		can.MIGTimeslicingSupported, can.MIGTimeslicingEnabled,
	} {
		c.of("capability ", i).says("nvmlDeviceGetVgpuCapabilities", when(host && want.Valid, want.Value))(
			dev.GetVgpuCapabilities(nvml.DeviceVgpuCapability(i)))
	}
	mode, ret := dev.GetVgpuHeterogeneousMode()
	c.says("nvmlDeviceGetVgpuHeterogeneousMode", when(whole, bit(v.HeterogeneousMode)))(mode.Mode, ret)
	s, ret := dev.GetVgpuSchedulerCapabilities()
	c.says("nvmlDeviceGetVgpuSchedulerCapabilities", when(host, v.Scheduler.MaxTimesliceNS.Value), when(host, v.Scheduler.MinTimesliceNS.Value),
		when(host, number(v.Scheduler.ARRSupported.Value)), when(host, v.Scheduler.MaxFrequency.Value), when(host, v.Scheduler.MinAvgFactor.Value))(
		s.MaxTimeslice, s.MinTimeslice, s.IsArrModeSupported, s.MaxFrequencyForARR, s.MinAvgFactorForARR, ret)
	meta, ret := dev.GetVgpuMetadata()
	system := &c.board.System
	c.says("nvmlDeviceGetVgpuMetadata", when(host, system.VGPU.MinVersion.Value), when(host, number(v.MigrationSupported.Value)))(
		meta.HostSupportedVgpuRange.MinVersion, meta.PgpuVirtualizationCaps, ret)
	c.licences(dev, d)

	supported, _ := dev.GetSupportedVgpus()
	for i, id := range supported {
		c.of(types[i].Name).vgpuType(dev, d, id, types[i])
	}
	instances, _ := dev.GetActiveVgpus()
	for i, id := range instances {
		c.of("vGPU ", v.Instances[i].ID).vgpuInstance(id, &v.Instances[i], v.Type(v.Instances[i].Type))
	}
}

// licences checks what a guest says about licences: that of the feature in use, in a board that has any.
func (c *checker) licences(dev nvml.Device, d *profiles.Device) {
	f, ret := dev.GetGridLicensableFeatures()
	list := d.VGPU.Licensing.Features
	c.says("nvmlDeviceGetGridLicensableFeatures_v4", number(len(list) > 0), len(list))(f.IsGridLicenseSupported, f.LicensableFeaturesCount, ret)
	for i, feature := range list {
		have := f.GridLicensableFeatures[i]
		assert.Equal(c, feature.ProductName.Value, text(have.ProductName[:]))
		assert.Equal(c, number(feature.Enabled.Value), have.FeatureEnabled)
		assert.Equal(c, number(feature.Enabled.Value && d.VGPU.Licensing.State.Value == "licensed"), have.FeatureState)
		if end, ok := feature.Expiry.Value.Time(); ok {
			e := have.LicenseExpiry
			assert.Equal(c, end, time.Date(int(e.Year), time.Month(e.Month), int(e.Day), int(e.Hour), int(e.Min), int(e.Sec), 0, time.UTC))
			assert.EqualValues(c, nvml.GRID_LICENSE_EXPIRY_VALID, e.Status)
		}
	}
}

func (c *checker) vgpuType(dev nvml.Device, d *profiles.Device, id nvml.VgpuTypeId, t *profiles.VGPUType) {
	c.says("nvmlVgpuTypeGetName", t.Name)(id.GetName())
	c.says("nvmlVgpuTypeGetClass", t.Class)(id.GetClass())
	c.says("nvmlVgpuTypeGetLicense", given(t.License))(id.GetLicense())
	c.says("nvmlVgpuTypeGetDeviceID", t.DeviceID.Or(d.PCI.DeviceID.Value)>>16, t.SubsystemID.Or(d.PCI.SubsystemID.Value))(id.GetDeviceID())
	c.says("nvmlVgpuTypeGetFramebufferSize", t.FramebufferMiB<<20)(id.GetFramebufferSize())
	bar1, ret := id.GetBAR1Info()
	c.says("nvmlVgpuTypeGetBAR1Info", given(t.BAR1MiB))(bar1.Bar1Size, ret)
	c.says("nvmlVgpuTypeGetNumDisplayHeads", t.DisplayHeads)(id.GetNumDisplayHeads())
	c.says("nvmlVgpuTypeGetResolution", t.MaxX, t.MaxY)(id.GetResolution(0))
	_, _, ret = id.GetResolution(int(t.DisplayHeads))
	assert.Equal(c, nvml.ERROR_INVALID_ARGUMENT, ret)
	c.says("nvmlVgpuTypeGetFrameRateLimit", given(t.FrameRateLimit))(id.GetFrameRateLimit())
	c.says("nvmlVgpuTypeGetMaxInstances", t.MaxInstances)(id.GetMaxInstances(dev))
	c.says("nvmlVgpuTypeGetMaxInstancesPerVm", t.MaxInstancesPerVM.Or(1))(id.GetMaxInstancesPerVm())
	c.says("nvmlVgpuTypeGetGpuInstanceProfileId", t.GPUInstanceProfileID.Or(^uint32(0)))(id.GetGpuInstanceProfileId())
	per := nvml.VgpuTypeMaxInstance{Version: nvml.STRUCT_VERSION(nvml.VgpuTypeMaxInstance{}, 1), VgpuTypeId: t.ID}
	ret = c.lib.VgpuTypeGetMaxInstancesPerGpuInstance(&per)
	c.says("nvmlVgpuTypeGetMaxInstancesPerGpuInstance", when(t.GPUInstanceProfileID.Valid, t.MaxInstancesPerGPUInstance.Or(1)))(
		per.MaxInstancePerGI, ret)
	for i, want := range []profiles.Opt[bool]{t.NVLinkP2P, t.GPUDirect, t.MultiVGPUExclusive, t.ExclusiveType, t.ExclusiveSize} {
		c.says("nvmlVgpuTypeGetCapabilities", want.Value)(id.GetCapabilities(nvml.VgpuCapability(i)))
	}
}

func (c *checker) vgpuInstance(id nvml.VgpuInstance, v *profiles.VGPUInstance, t *profiles.VGPUType) {
	booted := v.VMDriverVersion.Valid
	vm, kind, ret := id.GetVmID()
	c.says("nvmlVgpuInstanceGetVmID", v.VMID, number(v.VMIDType.Or("uuid") == "uuid"))(vm, kind, ret)
	c.says("nvmlVgpuInstanceGetUUID", v.UUID)(id.GetUUID())
	c.says("nvmlVgpuInstanceGetMdevUUID", given(v.MdevUUID))(id.GetMdevUUID())
	c.says("nvmlVgpuInstanceGetVmDriverVersion", v.VMDriverVersion.Or("Not Available"))(id.GetVmDriverVersion())
	c.says("nvmlVgpuInstanceGetFbUsage", times(1<<20, v.FramebufferUsedMiB))(id.GetFbUsage())
	c.says("nvmlVgpuInstanceGetType", t.ID)(id.GetType())
	limit := given(v.FrameRateLimit)
	if !v.FrameRateLimit.Valid {
		limit = given(t.FrameRateLimit)
	}
	c.says("nvmlVgpuInstanceGetFrameRateLimit", limit)(id.GetFrameRateLimit())
	c.says("nvmlVgpuInstanceGetEccMode", bit(v.ECCMode))(id.GetEccMode())
	c.says("nvmlVgpuInstanceGetEncoderCapacity", given(v.EncoderCapacity))(id.GetEncoderCapacity())
	c.says("nvmlVgpuInstanceGetGpuInstanceId", v.GPUInstanceID.Or(^uint32(0)))(id.GetGpuInstanceId())
	c.says("nvmlVgpuInstanceGetGpuPciId", profiles.BusID(v.VMBusID.Value).String())(id.GetGpuPciId())
	state, ret := id.GetRuntimeStateSize()
	c.says("nvmlVgpuInstanceGetRuntimeStateSize", given(v.RuntimeStateBytes))(state.Size, ret)
	meta, ret := id.GetMetadata()
	c.says("nvmlVgpuInstanceGetMetadata", number(booted), v.VMVGPUVersion.Value)(meta.GuestInfoState, meta.GuestVgpuVersion, ret)

	end, ends := v.License.Expiry.Value.Time()
	licensed := v.License.State.Value == "licensed" && !(ends && end.Before(time.Now()))
	info, ret := id.GetLicenseInfo()
	if booted {
		c.says("nvmlVgpuInstanceGetLicenseInfo_v2", number(licensed))(info.IsLicensed, ret)
	} else {
		c.says("nvmlVgpuInstanceGetLicenseInfo_v2", nvml.ERROR_DRIVER_NOT_LOADED)(ret)
	}
	c.says("nvmlVgpuInstanceGetLicenseStatus", number(licensed && booted))(id.GetLicenseStatus())
	if booted {
		c.says("nvmlVgpuInstanceGetAccountingMode", bit(v.AccountingMode))(id.GetAccountingMode())
	} else {
		c.says("nvmlVgpuInstanceGetAccountingMode", nvml.ERROR_DRIVER_NOT_LOADED)(id.GetAccountingMode())
	}
	var pids []int
	for _, p := range v.Processes {
		pids = append(pids, int(p.PID))
	}
	c.says("nvmlVgpuInstanceGetAccountingPids", when(v.AccountingMode.Value, pids))(id.GetAccountingPids())
	for _, p := range v.Processes {
		stats, ret := id.GetAccountingStats(int(p.PID))
		c.says("nvmlVgpuInstanceGetAccountingStats", p.Utilization.SM.Or(^uint32(0)), p.MaxMemoryMiB.Value<<20, p.RanMS.Value, p.StartedUS.Value,
			number(!p.RanMS.Valid))(stats.GpuUtilization, stats.MaxMemoryUsage, stats.Time, stats.StartTime, stats.IsRunning, ret)
	}
	var fps, latency, captured uint32
	for _, e := range v.EncoderSessions {
		fps, latency = fps+e.AverageFPS.Value/uint32(len(v.EncoderSessions)), latency+e.AverageLatencyUS.Value/uint32(len(v.EncoderSessions))
	}
	for _, f := range v.FBCSessions {
		captured += f.AverageFPS.Value
	}
	c.says("nvmlVgpuInstanceGetEncoderStats", len(v.EncoderSessions), fps, latency)(id.GetEncoderStats())
	capture, ret := id.GetFBCStats()
	c.says("nvmlVgpuInstanceGetFBCStats", len(v.FBCSessions), captured)(capture.SessionsCount, capture.AverageFPS, ret)
}

// text is a C string.
func text[C int8 | uint8](from []C) (s string) {
	for _, b := range from {
		if b == 0 {
			break
		}
		s += string(rune(b))
	}
	return s
}

// hostLives checks the node shared, and the setters of vGPUs.
func hostLives(t *testing.T, program string, seen answers) {
	needsRoot(t)
	path := filepath.Join(t.TempDir(), "profile.yaml")
	require.NoError(t, os.WriteFile(path, []byte(shared), 0o644))
	b, err := profiles.Load(path)
	require.NoError(t, err)
	state := t.TempDir()
	t.Setenv("NVMLFAB_STATE_DIR", state)
	t.Setenv("MOCK_NVML_CONFIG", path)
	lib := nvml.New(nvml.WithLibraryPath(filepath.Join(library, "libnvidia-ml.so.1")))
	require.Equal(t, nvml.SUCCESS, lib.Init())
	defer func() { assert.Equal(t, nvml.SUCCESS, lib.Shutdown()) }()
	c := &checker{T: t, lib: lib, board: b, known: known(t, b), seen: seen, name: "shared"}
	for i := range b.Devices {
		dev, ret := lib.DeviceGetHandleByIndex(i)
		require.Equal(t, nvml.SUCCESS, ret)
		c.handles = append(c.handles, dev)
		c.of("device ", i).vgpu(dev, &b.Devices[i])
	}
	c.vgpuVersions()
	c.vgpuSpace()
	c.vgpuSchedule()
	c.vgpuInstances()
	names := newCaller(t, program, "MOCK_NVML_CONFIG="+path, "NVMLFAB_STATE_DIR="+state)
	require.Equal(t, nvml.SUCCESS, names.call("nvmlInit_v2"))
	c.vgpuByName(names)
	c.vgpuSettings()

	empty := filepath.Join(t.TempDir(), "empty.yaml")
	require.NoError(t, os.WriteFile(empty, []byte(shared+"---\ndevice_defaults: {vgpu: {instances: []}}\n"), 0o644))
	names = newCaller(t, program, "MOCK_NVML_CONFIG="+empty, "NVMLFAB_STATE_DIR="+t.TempDir())
	require.Equal(t, nvml.SUCCESS, names.call("nvmlInit_v2"))
	c.says("nvmlSetVgpuVersion", nvml.ERROR_INVALID_ARGUMENT)(names.call("nvmlSetVgpuVersion", &nvml.VgpuVersion{MinVersion: 1, MaxVersion: 2}))
	c.says("nvmlSetVgpuVersion", nvml.SUCCESS)(names.call("nvmlSetVgpuVersion", &nvml.VgpuVersion{MinVersion: 0x80001, MaxVersion: 0x90001}))
	var supported, current nvml.VgpuVersion
	require.Equal(t, nvml.SUCCESS, names.call("nvmlGetVgpuVersion", &supported, &current))
	assert.Equal(t, nvml.VgpuVersion{MinVersion: 0x80001, MaxVersion: 0x90001}, current)
}

func (c *checker) vgpuVersions() {
	supported, current, ret := c.lib.GetVgpuVersion()
	c.says("nvmlGetVgpuVersion", 0x70001, 0x150001, 0x70001, 0x140001)(
		supported.MinVersion, supported.MaxVersion, current.MinVersion, current.MaxVersion, ret)
	c.says("nvmlSetVgpuVersion", nvml.ERROR_IN_USE)(c.lib.SetVgpuVersion(&nvml.VgpuVersion{MinVersion: 0x80001, MaxVersion: 0x90001}))
	c.says("nvmlGetVgpuDriverCapabilities", true)(c.lib.GetVgpuDriverCapabilities(nvml.VGPU_DRIVER_CAP_HETEROGENEOUS_MULTI_VGPU))
	c.says("nvmlGetVgpuDriverCapabilities", false)(c.lib.GetVgpuDriverCapabilities(nvml.VGPU_DRIVER_CAP_WARM_UPDATE))

	// A vGPU can move to a GPU of the same kind, if its driver serves the guest's version.
	gpu, ret := c.handles[2].GetVgpuMetadata()
	require.Equal(c, nvml.SUCCESS, ret)
	vgpus, ret := c.handles[0].GetActiveVgpus()
	require.Equal(c, nvml.SUCCESS, ret)
	booted, ret := vgpus[0].GetMetadata()
	require.Equal(c, nvml.SUCCESS, ret)
	off, ret := vgpus[1].GetMetadata()
	require.Equal(c, nvml.SUCCESS, ret)
	says := func(live nvml.VgpuVmCompatibility, limit nvml.VgpuPgpuCompatibilityLimitCode) {
		c.Helper()
		have, ret := c.lib.GetVgpuCompatibility(&booted, &gpu)
		c.says("nvmlGetVgpuCompatibility", live, limit)(have.VgpuVmCompatibility, have.CompatibilityLimitCode, ret)
	}
	says(15, nvml.VGPU_COMPATIBILITY_LIMIT_NONE)
	booted.GuestVgpuVersion = 0x60001
	says(0, nvml.VGPU_COMPATIBILITY_LIMIT_GUEST_DRIVER)
	booted.GuestVgpuVersion = 0x160001
	says(0, nvml.VGPU_COMPATIBILITY_LIMIT_HOST_DRIVER)
	booted = off
	says(1, nvml.VGPU_COMPATIBILITY_LIMIT_NONE)
}

// vgpuSpace checks what still fits: beside vGPUs of different sizes, into GPU instances, and onto an empty GPU.
func (c *checker) vgpuSpace() {
	c.says("nvmlDeviceGetCreatableVgpus", []uint32{41, 42})(c.handles[0].GetCreatableVgpus())
	c.says("nvmlDeviceGetCreatableVgpus", []uint32{44})(c.handles[1].GetCreatableVgpus())
	c.says("nvmlDeviceGetCreatableVgpus", []uint32{41, 42})(c.handles[2].GetCreatableVgpus())
	one, ret := c.handles[1].GetGpuInstanceById(13)
	require.Equal(c, nvml.SUCCESS, ret)
	two, ret := c.handles[1].GetGpuInstanceById(11)
	require.Equal(c, nvml.SUCCESS, ret)
	for i, gi := range []nvml.GpuInstance{one, two} {
		active, ret := gi.GetActiveVgpus()
		if i == 0 {
			c.says("nvmlGpuInstanceGetActiveVgpus", nvml.ERROR_INSUFFICIENT_SIZE)(ret)
		} else {
			c.says("nvmlGpuInstanceGetActiveVgpus", 0)(active.VgpuCount, ret)
		}
		fits, ret := gi.GetCreatableVgpus()
		if i == 0 {
			c.says("nvmlGpuInstanceGetCreatableVgpus", 0)(fits.VgpuCount, ret)
		} else {
			c.says("nvmlGpuInstanceGetCreatableVgpus", nvml.ERROR_INSUFFICIENT_SIZE)(ret)
			assert.EqualValues(c, 1, fits.VgpuCount, "one type has a place in a GPU instance")
		}
		mode, ret := gi.GetVgpuHeterogeneousMode()
		c.says("nvmlGpuInstanceGetVgpuHeterogeneousMode", 1)(mode.Mode, ret)
	}
	mode := nvml.VgpuHeterogeneousMode{Version: nvml.STRUCT_VERSION(nvml.VgpuHeterogeneousMode{}, 1)}
	c.says("nvmlGpuInstanceSetVgpuHeterogeneousMode", nvml.ERROR_IN_USE)(one.SetVgpuHeterogeneousMode(&mode))
	c.says("nvmlGpuInstanceSetVgpuHeterogeneousMode", nvml.SUCCESS)(two.SetVgpuHeterogeneousMode(&mode))
	now, ret := two.GetVgpuHeterogeneousMode()
	c.says("nvmlGpuInstanceGetVgpuHeterogeneousMode", 0)(now.Mode, ret)
	fits, _ := two.GetCreatableVgpus()
	assert.EqualValues(c, 2, fits.VgpuCount, "types without places too")
	c.says("nvmlDeviceSetVgpuHeterogeneousMode", nvml.ERROR_IN_USE)(c.handles[0].SetVgpuHeterogeneousMode(mode))
	c.says("nvmlDeviceSetVgpuHeterogeneousMode", nvml.SUCCESS)(c.handles[2].SetVgpuHeterogeneousMode(mode))
	now, ret = c.handles[2].GetVgpuHeterogeneousMode()
	c.says("nvmlDeviceGetVgpuHeterogeneousMode", 0)(now.Mode, ret)
	assert.Equal(c, nvml.ERROR_IN_USE, one.Destroy(), "a compute instance, and a vGPU")
}
