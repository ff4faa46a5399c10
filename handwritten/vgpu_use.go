package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// vgpuSample is the time, in µs since 1970, of the newest samples of a vGPU host; NOT_FOUND if they are not newer than the
// caller has seen.
func vgpuSample(d *engine.Device, lastSeen uint64) (uint64, abi.Return) {
	if ret := host(d); ret != abi.SUCCESS {
		return 0, ret
	}
	stamp := uint64(d.Snapshot().Now().Unix()) * 1e6
	if stamp <= lastSeen {
		return 0, abi.ERROR_NOT_FOUND
	}
	return stamp, abi.SUCCESS
}

// percent is a load as a value; 0 where the profile gives none.
func percent(o profiles.Opt[uint32]) abi.Value_t { return abi.Value_t{uint64(o.Value)} }

// DeviceGetVgpuUtilization is how busy each vGPU keeps the GPU, in percent, once a second.
func DeviceGetVgpuUtilization(d *engine.Device, lastSeen uint64) (abi.ValueType_t, []abi.VgpuInstanceUtilizationSample_t, abi.Return) {
	stamp, ret := vgpuSample(d, lastSeen)
	if ret != abi.SUCCESS {
		return 0, nil, ret
	}
	var list []abi.VgpuInstanceUtilizationSample_t
	for _, v := range d.VGPU.Instances {
		u := &v.Utilization
		list = append(list, abi.VgpuInstanceUtilizationSample_t{
			VgpuInstance: abi.VgpuInstance_t(v.ID), TimeStamp: stamp,
			SmUtil: percent(u.SM), MemUtil: percent(u.Memory), EncUtil: percent(u.Encoder), DecUtil: percent(u.Decoder),
		})
	}
	return abi.VALUE_TYPE_UNSIGNED_INT, list, abi.SUCCESS
}

// busy are the processes on the GPU's vGPUs that run and keep it busy.
func busy(d *engine.Device, each func(*profiles.VGPUInstance, *profiles.VGPUProcess)) {
	for i := range d.VGPU.Instances {
		v := &d.VGPU.Instances[i]
		for j := range v.Processes {
			p := &v.Processes[j]
			u := &p.Utilization
			load := u.SM.Value + u.Memory.Value + u.Encoder.Value + u.Decoder.Value + u.JPEG.Value + u.OFA.Value
			if !p.RanMS.Valid && load > 0 {
				each(v, p)
			}
		}
	}
}

// DeviceGetVgpuProcessUtilization is how busy each process on the GPU's vGPUs keeps the GPU, in percent. Processes that do
// not are left out.
func DeviceGetVgpuProcessUtilization(d *engine.Device, lastSeen uint64) (list []abi.VgpuProcessUtilizationSample_t, ret abi.Return) {
	stamp, ret := vgpuSample(d, lastSeen)
	if ret != abi.SUCCESS {
		return nil, ret
	}
	busy(d, func(v *profiles.VGPUInstance, p *profiles.VGPUProcess) {
		u := &p.Utilization
		sample := abi.VgpuProcessUtilizationSample_t{
			VgpuInstance: abi.VgpuInstance_t(v.ID), Pid: p.PID, TimeStamp: stamp,
			SmUtil: u.SM.Value, MemUtil: u.Memory.Value, EncUtil: u.Encoder.Value, DecUtil: u.Decoder.Value,
		}
		text(sample.ProcessName[:], p.Name.Value)
		list = append(list, sample)
	})
	return list, abi.SUCCESS
}

// DeviceGetVgpuInstancesUtilizationInfo is DeviceGetVgpuUtilization with JPEG and optical flow engines.
func DeviceGetVgpuInstancesUtilizationInfo(d *engine.Device, info *abi.VgpuInstancesUtilizationInfo_v1_t) ([]abi.VgpuInstanceUtilizationInfo_v1_t, abi.Return) {
	stamp, ret := vgpuSample(d, info.LastSeenTimeStamp)
	if ret != abi.SUCCESS {
		return nil, ret
	}
	info.SampleValType = abi.VALUE_TYPE_UNSIGNED_INT
	var list []abi.VgpuInstanceUtilizationInfo_v1_t
	for _, v := range d.VGPU.Instances {
		u := &v.Utilization
		list = append(list, abi.VgpuInstanceUtilizationInfo_v1_t{
			TimeStamp: stamp, VgpuInstance: abi.VgpuInstance_t(v.ID), SmUtil: percent(u.SM), MemUtil: percent(u.Memory),
			EncUtil: percent(u.Encoder), DecUtil: percent(u.Decoder), JpgUtil: percent(u.JPEG), OfaUtil: percent(u.OFA),
		})
	}
	return list, abi.SUCCESS
}

// DeviceGetVgpuProcessesUtilizationInfo is DeviceGetVgpuProcessUtilization with JPEG and optical flow engines.
func DeviceGetVgpuProcessesUtilizationInfo(d *engine.Device, info *abi.VgpuProcessesUtilizationInfo_v1_t) (list []abi.VgpuProcessUtilizationInfo_v1_t, ret abi.Return) {
	stamp, ret := vgpuSample(d, info.LastSeenTimeStamp)
	if ret != abi.SUCCESS {
		return nil, ret
	}
	busy(d, func(v *profiles.VGPUInstance, p *profiles.VGPUProcess) {
		u := &p.Utilization
		sample := abi.VgpuProcessUtilizationInfo_v1_t{
			TimeStamp: stamp, VgpuInstance: abi.VgpuInstance_t(v.ID), Pid: p.PID, SmUtil: u.SM.Value, MemUtil: u.Memory.Value,
			EncUtil: u.Encoder.Value, DecUtil: u.Decoder.Value, JpgUtil: u.JPEG.Value, OfaUtil: u.OFA.Value,
		}
		text(sample.ProcessName[:], p.Name.Value)
		list = append(list, sample)
	})
	return list, abi.SUCCESS
}

// accounted is a vGPU whose processes are accounted; NOT_SUPPORTED while they are not.
func accounted(s *engine.Snapshot, id abi.VgpuInstance_t) (*profiles.VGPUInstance, abi.Return) {
	v, _, ret := vgpu(s, id)
	if ret == abi.SUCCESS && !bool(v.AccountingMode.Value) {
		ret = abi.ERROR_NOT_SUPPORTED
	}
	return v, ret
}

// VgpuInstanceGetAccountingMode says whether the processes of a vGPU are accounted; DRIVER_NOT_LOADED while its guest has no
// driver.
func VgpuInstanceGetAccountingMode(s *engine.Snapshot, id abi.VgpuInstance_t) (abi.EnableState_t, abi.Return) {
	v, _, ret := vgpu(s, id)
	switch {
	case ret != abi.SUCCESS:
		return 0, ret
	case !v.VMDriverVersion.Valid:
		return 0, abi.ERROR_DRIVER_NOT_LOADED
	}
	return opt(mode[abi.EnableState_t](v.AccountingMode))
}

// VgpuInstanceGetAccountingPids lists the accounted processes of a vGPU: those that run, and those that have ended.
func VgpuInstanceGetAccountingPids(s *engine.Snapshot, id abi.VgpuInstance_t) (list []uint32, ret abi.Return) {
	v, ret := accounted(s, id)
	if ret != abi.SUCCESS {
		return nil, ret
	}
	for _, p := range v.Processes {
		list = append(list, p.PID)
	}
	return list, abi.SUCCESS
}

// VgpuInstanceGetAccountingStats is what an accounted process of a vGPU has used; NOT_FOUND if there is none of that id.
func VgpuInstanceGetAccountingStats(s *engine.Snapshot, id abi.VgpuInstance_t, pid uint32, stats *abi.AccountingStats_t) abi.Return {
	v, ret := accounted(s, id)
	if ret != abi.SUCCESS {
		return ret
	}
	for i := len(v.Processes) - 1; i >= 0; i-- {
		if p := &v.Processes[i]; p.PID == pid {
			*stats = abi.AccountingStats_t{
				GpuUtilization:    p.Utilization.SM.Or(unavailable),
				MemoryUtilization: p.Utilization.Memory.Or(unavailable),
				MaxMemoryUsage:    p.MaxMemoryMiB.Value << 20,
				Time:              p.RanMS.Value,
				StartTime:         p.StartedUS.Value,
				IsRunning:         bit(!p.RanMS.Valid),
			}
			return abi.SUCCESS
		}
	}
	return abi.ERROR_NOT_FOUND
}

// VgpuInstanceClearAccountingPids forgets the processes of a vGPU that have ended.
func VgpuInstanceClearAccountingPids(s *engine.Snapshot, id abi.VgpuInstance_t) abi.Return {
	if id == 0 {
		return abi.ERROR_INVALID_ARGUMENT
	}
	return s.Change(func(t *change.Tx) abi.Return { return t.ClearVGPUAccounting(uint32(id)) })
}
