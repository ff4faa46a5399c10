package handwritten

import (
	"strings"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// Kinds of processes, as in the profile: C, G or C+G. The default is C.
const (
	computing = "C"
	drawing   = "G"
)

// ofKind lists the device's processes of a kind. Those of which this process cannot see the id are on no list.
func ofKind(d *engine.Device, kind string) []*profiles.Process {
	var list []*profiles.Process
	for i := range d.Processes {
		if p := &d.Processes[i]; p.PID != 0 && strings.Contains(p.Type.Or(computing), kind) {
			list = append(list, p)
		}
	}
	return list
}

// processes lists the device's processes of a kind as NVML does.
func processes(d *engine.Device, kind string) []abi.ProcessInfo_v2_t {
	var list []abi.ProcessInfo_v2_t
	for _, p := range ofKind(d, kind) {
		list = append(list, abi.ProcessInfo_v2_t{
			Pid:               p.PID,
			UsedGpuMemory:     usedMemory(p),
			GpuInstanceId:     p.GPUInstanceID.Or(abi.INVALID_GPU_INSTANCE_ID),
			ComputeInstanceId: p.ComputeInstanceID.Or(abi.INVALID_GPU_INSTANCE_ID),
		})
	}
	return list
}

// usedMemory is a process's memory in bytes, VALUE_NOT_AVAILABLE if the profile gives none.
func usedMemory(p *profiles.Process) uint64 {
	if mib, ok := p.UsedMemoryMiB.Get(); ok {
		return mib << 20
	}
	return ^uint64(0)
}

// v1 removes the fields that the first nvmlProcessInfo_t does not have.
func v1(list []abi.ProcessInfo_v2_t) []abi.ProcessInfo_v1_t {
	short := make([]abi.ProcessInfo_v1_t, len(list))
	for i, p := range list {
		short[i] = abi.ProcessInfo_v1_t{Pid: p.Pid, UsedGpuMemory: p.UsedGpuMemory}
	}
	return short
}

// DeviceGetComputeRunningProcesses lists the compute processes: pid and memory in bytes, 16 bytes each.
func DeviceGetComputeRunningProcesses(d *engine.Device) ([]abi.ProcessInfo_v1_t, abi.Return) {
	return v1(processes(d, computing)), abi.SUCCESS
}

// DeviceGetComputeRunningProcesses_v2 lists the compute processes. Instance ids are 0xffffffff outside MIG devices.
//
//nvml:symbol nvmlDeviceGetComputeRunningProcesses_v2 nvmlDeviceGetComputeRunningProcesses_v3
func DeviceGetComputeRunningProcesses_v2(d *engine.Device) ([]abi.ProcessInfo_v2_t, abi.Return) {
	return processes(d, computing), abi.SUCCESS
}

// DeviceGetGraphicsRunningProcesses lists the graphics processes: pid and memory in bytes, 16 bytes each.
func DeviceGetGraphicsRunningProcesses(d *engine.Device) ([]abi.ProcessInfo_v1_t, abi.Return) {
	return v1(processes(d, drawing)), abi.SUCCESS
}

// DeviceGetGraphicsRunningProcesses_v2 lists the graphics processes. Instance ids are 0xffffffff outside MIG devices.
//
//nvml:symbol nvmlDeviceGetGraphicsRunningProcesses_v2 nvmlDeviceGetGraphicsRunningProcesses_v3
func DeviceGetGraphicsRunningProcesses_v2(d *engine.Device) ([]abi.ProcessInfo_v2_t, abi.Return) {
	return processes(d, drawing), abi.SUCCESS
}

// DeviceGetMPSComputeRunningProcesses answers an empty list, since no profile has clients of the Multi-Process Service.
func DeviceGetMPSComputeRunningProcesses(*engine.Device) ([]abi.ProcessInfo_v1_t, abi.Return) {
	return nil, abi.SUCCESS
}

// DeviceGetMPSComputeRunningProcesses_v2 is DeviceGetMPSComputeRunningProcesses under the newer names.
//
//nvml:symbol nvmlDeviceGetMPSComputeRunningProcesses_v2 nvmlDeviceGetMPSComputeRunningProcesses_v3
func DeviceGetMPSComputeRunningProcesses_v2(*engine.Device) ([]abi.ProcessInfo_v2_t, abi.Return) {
	return nil, abi.SUCCESS
}

// DeviceGetProcessUtilization is one sample for each process: its use of SMs, memory, encoders and decoders in percent,
// taken at the last full second. Times are in µs since 1970. It answers NOT_FOUND if no process uses any, or if the
// sample is not newer than lastSeen, and NOT_SUPPORTED for a GPU in MIG mode.
func DeviceGetProcessUtilization(d *engine.Device, lastSeen uint64) ([]abi.ProcessUtilizationSample_t, abi.Return) {
	loads, ret := processLoads(d, lastSeen)
	var list []abi.ProcessUtilizationSample_t
	for _, u := range loads {
		if u.SmUtil|u.MemUtil|u.EncUtil|u.DecUtil != 0 { // the others use what this struct has no room for
			list = append(list, abi.ProcessUtilizationSample_t{
				Pid: u.Pid, TimeStamp: u.TimeStamp, SmUtil: u.SmUtil, MemUtil: u.MemUtil, EncUtil: u.EncUtil, DecUtil: u.DecUtil,
			})
		}
	}
	if ret == abi.SUCCESS && list == nil {
		ret = abi.ERROR_NOT_FOUND
	}
	return list, ret
}

// DeviceGetProcessesUtilizationInfo is DeviceGetProcessUtilization, with the use of JPEG and optical flow engines too.
func DeviceGetProcessesUtilizationInfo(d *engine.Device, info *abi.ProcessesUtilizationInfo_v1_t) ([]abi.ProcessUtilizationInfo_v1_t, abi.Return) {
	return processLoads(d, info.LastSeenTimeStamp)
}

// processLoads is what each process that uses the GPU uses of it, as DeviceGetProcessUtilization says.
func processLoads(d *engine.Device, lastSeen uint64) ([]abi.ProcessUtilizationInfo_v1_t, abi.Return) {
	if d.MIG.ModeCurrent.Value {
		return nil, abi.ERROR_NOT_SUPPORTED
	}
	var list []abi.ProcessUtilizationInfo_v1_t
	now := uint64(d.Snapshot().Now().Unix()) * 1e6
	for _, p := range d.Processes {
		u := abi.ProcessUtilizationInfo_v1_t{
			Pid: p.PID, TimeStamp: now, SmUtil: p.SMUtil.Value, MemUtil: p.MemUtil.Value, EncUtil: p.EncUtil.Value,
			DecUtil: p.DecUtil.Value, JpgUtil: p.JPEGUtil.Value, OfaUtil: p.OFAUtil.Value,
		}
		if now > lastSeen && p.PID != 0 && u.SmUtil|u.MemUtil|u.EncUtil|u.DecUtil|u.JpgUtil|u.OfaUtil != 0 {
			list = append(list, u)
		}
	}
	if list == nil {
		return nil, abi.ERROR_NOT_FOUND
	}
	return list, abi.SUCCESS
}

// DeviceGetRunningProcessDetailList lists the processes of a kind: 0 those that compute, 1 those that draw, 2 the clients of
// the Multi-Process Service, of which no profile has any. None uses protected memory.
func DeviceGetRunningProcessDetailList(d *engine.Device, request *abi.ProcessDetailList_v1_t) ([]abi.ProcessDetail_v1_t, abi.Return) {
	kinds := [...]string{computing, drawing, "none"}
	if int64(request.Mode) >= int64(len(kinds)) {
		return nil, abi.ERROR_INVALID_ARGUMENT
	}
	var list []abi.ProcessDetail_v1_t
	for _, p := range processes(d, kinds[request.Mode]) {
		list = append(list, abi.ProcessDetail_v1_t{
			Pid: p.Pid, UsedGpuMemory: p.UsedGpuMemory, GpuInstanceId: p.GpuInstanceId, ComputeInstanceId: p.ComputeInstanceId,
		})
	}
	return list, abi.SUCCESS
}
