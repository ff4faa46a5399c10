package tests

import (
	"encoding/binary"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These checks are of the node shared: schedulers, what vGPUs use, and what setters change.

// params are the two numbers of a scheduler.
func params(a, b uint32) (p [8]byte) {
	binary.LittleEndian.PutUint32(p[:], a)
	binary.LittleEndian.PutUint32(p[4:], b)
	return p
}

// vgpuSchedule tells schedulers how to share time, and reads it back. By default timeslices adapt.
func (c *checker) vgpuSchedule() {
	const graphics, nvenc = nvml.VGPU_SCHEDULER_ENGINE_TYPE_GRAPHICS, nvml.VGPU_SCHEDULER_ENGINE_TYPE_NVENC0
	busy, mig, idle := c.handles[0], c.handles[1], c.handles[2]
	s, ret := busy.GetVgpuSchedulerState()
	c.says("nvmlDeviceGetVgpuSchedulerState", nvml.VGPU_SCHEDULER_POLICY_EQUAL_SHARE, nvml.VGPU_SCHEDULER_ARR_ENABLE, params(33, 2e6))(
		s.SchedulerPolicy, s.ArrMode, s.SchedulerParams, ret)
	fixed := nvml.VgpuSchedulerSetState{
		SchedulerPolicy: nvml.VGPU_SCHEDULER_POLICY_FIXED_SHARE, EnableARRMode: nvml.VGPU_SCHEDULER_ARR_DISABLE, SchedulerParams: params(3e6, 0),
	}
	c.says("nvmlDeviceSetVgpuSchedulerState", nvml.ERROR_NOT_SUPPORTED)(busy.SetVgpuSchedulerState(&fixed))
	c.says("nvmlDeviceSetVgpuSchedulerState", nvml.ERROR_NOT_SUPPORTED)(mig.SetVgpuSchedulerState(&fixed))
	c.says("nvmlDeviceSetVgpuSchedulerState", nvml.SUCCESS)(idle.SetVgpuSchedulerState(&fixed))
	s, ret = idle.GetVgpuSchedulerState()
	c.says("nvmlDeviceGetVgpuSchedulerState", nvml.VGPU_SCHEDULER_POLICY_FIXED_SHARE, nvml.VGPU_SCHEDULER_ARR_DISABLE, params(3e6, 0))(
		s.SchedulerPolicy, s.ArrMode, s.SchedulerParams, ret)
	for _, bad := range []nvml.VgpuSchedulerSetState{
		{SchedulerPolicy: 9},
		{SchedulerPolicy: fixed.SchedulerPolicy, EnableARRMode: 7},
		{SchedulerPolicy: fixed.SchedulerPolicy, EnableARRMode: nvml.VGPU_SCHEDULER_ARR_DISABLE, SchedulerParams: params(1, 0)},
		{SchedulerPolicy: fixed.SchedulerPolicy, EnableARRMode: nvml.VGPU_SCHEDULER_ARR_ENABLE, SchedulerParams: params(61, 100)},
		{SchedulerPolicy: fixed.SchedulerPolicy, EnableARRMode: nvml.VGPU_SCHEDULER_ARR_ENABLE, SchedulerParams: params(2, 62)},
	} {
		c.says("nvmlDeviceSetVgpuSchedulerState", nvml.ERROR_INVALID_ARGUMENT)(idle.SetVgpuSchedulerState(&bad))
	}
	adapts := nvml.VgpuSchedulerSetState{
		SchedulerPolicy: nvml.VGPU_SCHEDULER_POLICY_EQUAL_SHARE, EnableARRMode: nvml.VGPU_SCHEDULER_ARR_ENABLE, SchedulerParams: params(12, 100),
	}
	c.says("nvmlDeviceSetVgpuSchedulerState", nvml.SUCCESS)(idle.SetVgpuSchedulerState(&adapts))
	now, ret := idle.GetVgpuSchedulerState_v2(nvml.VgpuSchedulerStateInfo_v2{EngineId: graphics})
	c.says("nvmlDeviceGetVgpuSchedulerState_v2", nvml.VGPU_SCHEDULER_POLICY_EQUAL_SHARE, 12, 1e7)(
		now.SchedulerPolicy, now.AvgFactor, float64(now.Timeslice), ret)
	now, ret = idle.GetVgpuSchedulerState_v2(nvml.VgpuSchedulerStateInfo_v2{EngineId: nvenc})
	c.says("nvmlDeviceGetVgpuSchedulerState_v2", nvml.VGPU_SCHEDULER_POLICY_BEST_EFFORT, 0, 0)(now.SchedulerPolicy, now.AvgFactor, now.Timeslice, ret)
	_, ret = idle.GetVgpuSchedulerState_v2(nvml.VgpuSchedulerStateInfo_v2{EngineId: 4})
	assert.Equal(c, nvml.ERROR_INVALID_ARGUMENT, ret)
	younger := nvml.VgpuSchedulerState_v2{EngineId: graphics, SchedulerPolicy: nvml.VGPU_SCHEDULER_POLICY_FIXED_SHARE, AvgFactor: 4, Frequency: 200}
	c.says("nvmlDeviceSetVgpuSchedulerState_v2", nvml.SUCCESS)(idle.SetVgpuSchedulerState_v2(&younger))
	now, ret = idle.GetVgpuSchedulerState_v2(nvml.VgpuSchedulerStateInfo_v2{EngineId: graphics})
	c.says("nvmlDeviceGetVgpuSchedulerState_v2", nvml.VGPU_SCHEDULER_POLICY_FIXED_SHARE, 4, 5e6)(
		now.SchedulerPolicy, now.AvgFactor, float64(now.Timeslice), ret)

	used, ret := mig.GetGpuInstanceById(13)
	require.Equal(c, nvml.SUCCESS, ret)
	free, ret := mig.GetGpuInstanceById(11)
	require.Equal(c, nvml.SUCCESS, ret)
	c.says("nvmlGpuInstanceSetVgpuSchedulerState_v2", nvml.ERROR_NOT_SUPPORTED)(used.SetVgpuSchedulerState_v2(&younger))
	c.says("nvmlGpuInstanceSetVgpuSchedulerState_v2", nvml.SUCCESS)(free.SetVgpuSchedulerState_v2(&younger))
	now, ret = free.GetVgpuSchedulerState_v2(nvml.VgpuSchedulerStateInfo_v2{EngineId: graphics})
	c.says("nvmlGpuInstanceGetVgpuSchedulerState_v2", nvml.VGPU_SCHEDULER_POLICY_FIXED_SHARE, 4, 5e6)(
		now.SchedulerPolicy, now.AvgFactor, float64(now.Timeslice), ret)
	older := nvml.VgpuSchedulerState{
		Version: nvml.STRUCT_VERSION(nvml.VgpuSchedulerState{}, 1), EngineId: graphics, SchedulerPolicy: nvml.VGPU_SCHEDULER_POLICY_BEST_EFFORT,
		EnableARRMode: nvml.VGPU_SCHEDULER_ARR_DISABLE,
	}
	c.says("nvmlGpuInstanceSetVgpuSchedulerState", nvml.SUCCESS)(free.SetVgpuSchedulerState(&older))
	now, _ = used.GetVgpuSchedulerState_v2(nvml.VgpuSchedulerStateInfo_v2{EngineId: graphics})
	assert.EqualValues(c, nvml.VGPU_SCHEDULER_POLICY_EQUAL_SHARE, now.SchedulerPolicy, "the GPU's, while the instance has none")
	c.vgpuLogs(used)
}

// vgpuLogs checks the logs of the GPU, on which one vGPU of two runs, and of a GPU instance, whose only vGPU runs all the time.
func (c *checker) vgpuLogs(gi nvml.GpuInstance) {
	l, ret := c.handles[0].GetVgpuSchedulerLog()
	c.says("nvmlDeviceGetVgpuSchedulerLog", nvml.VGPU_SCHEDULER_ENGINE_TYPE_GRAPHICS, nvml.VGPU_SCHEDULER_ARR_ENABLE, 200)(
		l.EngineId, l.ArrMode, l.EntriesCount, ret)
	for i, e := range l.LogEntries {
		assert.Equal(c, []uint64{0, 2e6 * 40 / 100, 2e6}, []uint64{uint64(e.SwRunlistId), e.TimeRun, e.TargetTimeSlice})
		if i > 0 {
			before := l.LogEntries[i-1]
			assert.Equal(c, []uint64{2e6, e.TimeRun}, []uint64{e.Timestamp - before.Timestamp, e.TimeRunTotal - before.TimeRunTotal})
		}
	}
	c.now("nvmlDeviceGetVgpuSchedulerLog", l.LogEntries[199].Timestamp/1000)
	const graphics, nvenc = nvml.VGPU_SCHEDULER_ENGINE_TYPE_GRAPHICS, nvml.VGPU_SCHEDULER_ENGINE_TYPE_NVENC1
	v2, ret := c.handles[0].GetVgpuSchedulerLog_v2(nvml.VgpuSchedulerLogInfo_v2{EngineId: graphics})
	c.says("nvmlDeviceGetVgpuSchedulerLog_v2", 33, 200, 1)(v2.AvgFactor, v2.EntriesCount, v2.LogEntries[0].Weight, ret)
	v2, ret = c.handles[0].GetVgpuSchedulerLog_v2(nvml.VgpuSchedulerLogInfo_v2{EngineId: nvenc})
	c.says("nvmlDeviceGetVgpuSchedulerLog_v2", 0)(v2.EntriesCount, ret)
	v2, ret = gi.GetVgpuSchedulerLog_v2(nvml.VgpuSchedulerLogInfo_v2{EngineId: graphics})
	c.says("nvmlGpuInstanceGetVgpuSchedulerLog_v2", 200, 2e6)(v2.EntriesCount, float64(v2.LogEntries[0].TimeRun), ret)
}

// vgpuInstances checks what vGPUs use.
func (c *checker) vgpuInstances() {
	dev, utilization := c.handles[0], c.board.Devices[0].VGPU.Instances[0].Utilization
	loads := []uint32{utilization.SM.Value, utilization.Memory.Value, utilization.Encoder.Value, utilization.Decoder.Value}
	kind, list, ret := dev.GetVgpuUtilization(0)
	c.says("nvmlDeviceGetVgpuUtilization", nvml.VALUE_TYPE_UNSIGNED_INT, 2)(kind, len(list), ret)
	have := list[0]
	c.now("nvmlDeviceGetVgpuUtilization", have.TimeStamp)
	for i, value := range [][8]byte{have.SmUtil, have.MemUtil, have.EncUtil, have.DecUtil} {
		assert.EqualValues(c, loads[i], binary.LittleEndian.Uint64(value[:]))
	}
	_, _, ret = dev.GetVgpuUtilization(uint64(time.Now().Add(time.Hour).UnixMicro()))
	assert.Equal(c, nvml.ERROR_NOT_FOUND, ret)
	processes, ret := dev.GetVgpuProcessUtilization(0)
	c.says("nvmlDeviceGetVgpuProcessUtilization", 1, 71, 900, "train", 30, 10, 1, 2)(len(processes), processes[0].VgpuInstance, processes[0].Pid,
		text(processes[0].ProcessName[:]), processes[0].SmUtil, processes[0].MemUtil, processes[0].EncUtil, processes[0].DecUtil, ret)
	count, ret := dev.GetVgpuInstancesUtilizationInfo()
	c.says("nvmlDeviceGetVgpuInstancesUtilizationInfo", nvml.ERROR_INSUFFICIENT_SIZE)(ret) // the bindings pass no array
	assert.EqualValues(c, 2, count.VgpuInstanceCount)
	count, ret = c.handles[2].GetVgpuInstancesUtilizationInfo()
	c.says("nvmlDeviceGetVgpuInstancesUtilizationInfo", nvml.VALUE_TYPE_UNSIGNED_INT, 0)(count.SampleValType, count.VgpuInstanceCount, ret)
	running, ret := dev.GetVgpuProcessesUtilizationInfo()
	c.says("nvmlDeviceGetVgpuProcessesUtilizationInfo", nvml.ERROR_INSUFFICIENT_SIZE)(ret)
	assert.EqualValues(c, 1, running.VgpuProcessCount)
	running, ret = c.handles[2].GetVgpuProcessesUtilizationInfo()
	c.says("nvmlDeviceGetVgpuProcessesUtilizationInfo", 0)(running.VgpuProcessCount, ret)
}

// vgpuSettings changes vGPUs and the GPU that they are on.
func (c *checker) vgpuSettings() {
	vgpus, _ := c.handles[0].GetActiveVgpus()
	c.says("nvmlVgpuInstanceSetEncoderCapacity", nvml.SUCCESS)(vgpus[1].SetEncoderCapacity(30))
	c.says("nvmlVgpuInstanceGetEncoderCapacity", 30)(vgpus[1].GetEncoderCapacity())
	c.says("nvmlVgpuInstanceSetEncoderCapacity", nvml.ERROR_INVALID_ARGUMENT)(vgpus[1].SetEncoderCapacity(101))
	c.says("nvmlVgpuInstanceClearAccountingPids", nvml.SUCCESS)(vgpus[0].ClearAccountingPids())
	c.says("nvmlVgpuInstanceGetAccountingPids", []int{900, 903})(vgpus[0].GetAccountingPids())
	c.says("nvmlVgpuInstanceClearAccountingPids", nvml.ERROR_NOT_SUPPORTED)(vgpus[1].ClearAccountingPids())
	id, _ := vgpus[0].GetUUID()
	assert.Equal(c, "11111111-2222-3333-4444-555555555555", id, "the rest stays")

	idle := c.handles[2]
	set := func(capability nvml.DeviceVgpuCapability, state nvml.EnableState, want nvml.Return) {
		c.Helper()
		c.says("nvmlDeviceSetVgpuCapabilities", want)(idle.SetVgpuCapabilities(capability, state))
	}
	set(nvml.DEVICE_VGPU_CAP_MINI_QUARTER_GPU, nvml.FEATURE_ENABLED, nvml.SUCCESS)
	c.says("nvmlDeviceGetVgpuCapabilities", true)(idle.GetVgpuCapabilities(nvml.DEVICE_VGPU_CAP_MINI_QUARTER_GPU))
	c.says("nvmlDeviceGetSupportedVgpus", []uint32{41, 42, 43})(idle.GetSupportedVgpus())
	set(nvml.DEVICE_VGPU_CAP_COMPUTE_MEDIA_ENGINE_GPU, nvml.FEATURE_DISABLED, nvml.SUCCESS)
	set(nvml.DEVICE_VGPU_CAP_FRACTIONAL_MULTI_VGPU, nvml.FEATURE_ENABLED, nvml.ERROR_INVALID_ARGUMENT)
	set(nvml.DEVICE_VGPU_CAP_MINI_QUARTER_GPU, 2, nvml.ERROR_INVALID_ARGUMENT)
	c.says("nvmlDeviceSetVgpuCapabilities", nvml.SUCCESS)(
		c.handles[1].SetVgpuCapabilities(nvml.DEVICE_VGPU_CAP_MIG_TIMESLICING_ENABLED, nvml.FEATURE_DISABLED))
	c.says("nvmlDeviceGetSupportedVgpus", []uint32{45})(c.handles[1].GetSupportedVgpus())

	c.says("nvmlDeviceVgpuForceGspUnload", nvml.SUCCESS)(idle.VgpuForceGspUnload())
	on, _, ret := idle.GetGspFirmwareMode()
	c.says("nvmlDeviceGetGspFirmwareMode", false)(on, ret)
	c.says("nvmlDeviceVgpuForceGspUnload", nvml.ERROR_NOT_SUPPORTED)(idle.VgpuForceGspUnload())
	c.says("nvmlDeviceSetVirtualizationMode", nvml.SUCCESS)(idle.SetVirtualizationMode(nvml.GPU_VIRTUALIZATION_MODE_NONE))
	c.says("nvmlDeviceGetSupportedVgpus", nvml.ERROR_NOT_SUPPORTED)(idle.GetSupportedVgpus())
}

// vgpuByName checks the functions that go-nvml does not call, or calls without room for an answer.
func (c *checker) vgpuByName(names *caller) {
	type session = nvml.EncoderSessionInfo
	encoders, ret := list[session](names, "nvmlVgpuInstanceGetEncoderSessions", 71)
	c.says("nvmlVgpuInstanceGetEncoderSessions", []session{
		{SessionId: 1, Pid: 900, VgpuInstance: 71, CodecType: uint32(nvml.ENCODER_QUERY_HEVC), HResolution: 1920, VResolution: 1080, AverageFps: 30, AverageLatency: 400},
		{SessionId: 2, Pid: 901, VgpuInstance: 71, CodecType: uint32(nvml.ENCODER_QUERY_H264), HResolution: 1280, VResolution: 720, AverageFps: 60, AverageLatency: 600},
	})(encoders, ret)
	captures, ret := list[nvml.FBCSessionInfo](names, "nvmlVgpuInstanceGetFBCSessions", 71)
	c.says("nvmlVgpuInstanceGetFBCSessions", []nvml.FBCSessionInfo{{
		SessionId: 3, Pid: 902, VgpuInstance: 71, DisplayOrdinal: 1, SessionType: uint32(nvml.FBC_SESSION_TYPE_CUDA), SessionFlags: 1 | 2 | 16,
		HMaxResolution: 3840, VMaxResolution: 2160, HResolution: 1920, VResolution: 1080, AverageFPS: 25, AverageLatency: 300,
	}})(captures, ret)
	c.says("nvmlVgpuInstanceGetLicenseInfo", nvml.SUCCESS)(names.call("nvmlVgpuInstanceGetLicenseInfo", 71, &nvml.VgpuLicenseInfo{}))
	for _, symbol := range []string{"nvmlVgpuInstanceGetType", "nvmlVgpuInstanceGetFbUsage", "nvmlVgpuInstanceGetEccMode"} {
		_, ret := get[uint64](names, symbol, 99)
		assert.Equal(c, nvml.ERROR_NOT_FOUND, ret, symbol)
		_, ret = get[uint64](names, symbol, 0)
		assert.Equal(c, nvml.ERROR_INVALID_ARGUMENT, ret, symbol)
	}
	_, ret = get[uint64](names, "nvmlVgpuTypeGetFramebufferSize", 99)
	assert.Equal(c, nvml.ERROR_INVALID_ARGUMENT, ret)
	place := versioned(1, nvml.VgpuPlacementId{})
	ret = names.call("nvmlVgpuInstanceGetPlacementId", 71, &place)
	c.says("nvmlVgpuInstanceGetPlacementId", 4)(place.PlacementId, ret)
	c.says("nvmlVgpuTypeGetFbReservation", 320<<20)(get[uint64](names, "nvmlVgpuTypeGetFbReservation", 41))
	c.says("nvmlVgpuTypeGetGspHeapSize", 32<<20)(get[uint64](names, "nvmlVgpuTypeGetGspHeapSize", 41))
	gpu, ret := get[uint64](names, "nvmlDeviceGetHandleByIndex_v2", 0)
	require.Equal(c, nvml.SUCCESS, ret)
	speed, ret := get[uint32](names, "nvmlDeviceGetVgpuCapabilities", gpu, nvml.DEVICE_VGPU_CAP_READ_DEVICE_BUFFER_BW)
	c.says("nvmlDeviceGetVgpuCapabilities", 9800)(speed, ret)

	// The arrays of these lists are in no memory that the caller can pass, so it sees how long they are.
	for _, p := range []struct {
		symbol      string
		id, mode, n uint32
	}{
		{"nvmlDeviceGetVgpuTypeSupportedPlacements", 41, nvml.VGPU_PGPU_HETEROGENEOUS_MODE, 5},
		{"nvmlDeviceGetVgpuTypeSupportedPlacements", 41, nvml.VGPU_PGPU_HOMOGENEOUS_MODE, 3},
		{"nvmlDeviceGetVgpuTypeCreatablePlacements", 41, nvml.VGPU_PGPU_HETEROGENEOUS_MODE, 2},
	} {
		places := versioned(2, nvml.VgpuPlacementList{Mode: p.mode})
		ret := names.call(p.symbol, gpu, p.id, &places)
		c.says(p.symbol, nvml.ERROR_INSUFFICIENT_SIZE)(ret)
		assert.Equal(c, []uint32{p.n, 0}, []uint32{places.Count, places.PlacementSize}, "%s: the number alone, as the header says", p.symbol)
		none := versioned(2, nvml.VgpuPlacementList{Count: 9})
		ret = names.call(p.symbol, gpu, 43, &none)
		c.says(p.symbol, 0, 4)(none.Count, none.PlacementSize, ret)
	}
	mig, ret := get[uint64](names, "nvmlDeviceGetHandleByIndex_v2", 1)
	require.Equal(c, nvml.SUCCESS, ret)
	gi, ret := get[uint64](names, "nvmlDeviceGetGpuInstanceById", mig, 13)
	require.Equal(c, nvml.SUCCESS, ret)
	state := versioned(1, nvml.VgpuSchedulerStateInfo{EngineId: nvml.VGPU_SCHEDULER_ENGINE_TYPE_GRAPHICS})
	ret = names.call("nvmlGpuInstanceGetVgpuSchedulerState", gi, &state)
	c.says("nvmlGpuInstanceGetVgpuSchedulerState", nvml.VGPU_SCHEDULER_POLICY_EQUAL_SHARE, params(33, 2e6))(state.SchedulerPolicy, state.SchedulerParams, ret)
	log := versioned(1, nvml.VgpuSchedulerLogInfo{EngineId: nvml.VGPU_SCHEDULER_ENGINE_TYPE_GRAPHICS})
	ret = names.call("nvmlGpuInstanceGetVgpuSchedulerLog", gi, &log)
	c.says("nvmlGpuInstanceGetVgpuSchedulerLog", 200)(log.EntriesCount, ret)
	places := versioned(1, nvml.VgpuCreatablePlacementInfo{VgpuTypeId: 44})
	ret = names.call("nvmlGpuInstanceGetVgpuTypeCreatablePlacements", gi, &places)
	c.says("nvmlGpuInstanceGetVgpuTypeCreatablePlacements", 0, 2)(places.Count, places.PlacementSize, ret) // the instance is full
	places = versioned(1, nvml.VgpuCreatablePlacementInfo{VgpuTypeId: 45})
	ret = names.call("nvmlGpuInstanceGetVgpuTypeCreatablePlacements", gi, &places)
	c.says("nvmlGpuInstanceGetVgpuTypeCreatablePlacements", nvml.ERROR_NOT_SUPPORTED)(ret) // it has no places
}

// olderLicences checks the older structs of licensable features, whose entries are shorter.
func (c *checker) olderLicences(names *caller, d *profiles.Device) {
	gpu, ret := get[uint64](names, "nvmlDeviceGetHandleByIndex_v2", d.Index)
	require.Equal(c, nvml.SUCCESS, ret)
	features := d.VGPU.Licensing.Features
	for _, v := range []struct {
		suffix string
		size   int
	}{{"", 136}, {"_v2", 264}, {"_v3", 268}} {
		symbol := "nvmlDeviceGetGridLicensableFeatures" + v.suffix
		buffer := make([]byte, 8+3*v.size)
		ret := names.call(symbol, gpu, buffer)
		c.says(symbol, number(len(features) > 0), len(features))(binary.LittleEndian.Uint32(buffer), binary.LittleEndian.Uint32(buffer[4:]), ret)
		for i, f := range features {
			entry := buffer[8+i*v.size:][:v.size]
			assert.Equal(c, number(f.Enabled.Value && d.VGPU.Licensing.State.Value == "licensed"), binary.LittleEndian.Uint32(entry[4:]), symbol)
			if v.size >= 264 {
				assert.Equal(c, f.ProductName.Value, text(entry[136:264]), symbol)
			}
		}
	}
}
