package handwritten

import (
	"slices"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// DeviceGetAccountingMode says whether process accounting is on.
func DeviceGetAccountingMode(d *engine.Device) (abi.EnableState_t, abi.Return) {
	return opt(mode[abi.EnableState_t](d.Accounting.Mode))
}

// DeviceGetAccountingBufferSize is the number of processes that the accounting buffer holds.
func DeviceGetAccountingBufferSize(d *engine.Device) (uint32, abi.Return) {
	return opt(d.Accounting.BufferSize)
}

// DeviceGetAccountingPids lists the accounted processes: those that run, and those that ended while accounting was on.
// While accounting is off, captured boards answer an empty list, although NVML documents NOT_SUPPORTED.
func DeviceGetAccountingPids(d *engine.Device) ([]uint32, abi.Return) {
	on, ret := opt(d.Accounting.Mode)
	if !on {
		return nil, ret
	}
	var pids []uint32
	for _, p := range d.Processes {
		if p.PID != 0 {
			pids = append(pids, p.PID)
		}
	}
	for _, p := range d.Accounted() {
		if !slices.Contains(pids, p.PID) {
			pids = append(pids, p.PID)
		}
	}
	return pids, abi.SUCCESS
}

// unavailable is VALUE_NOT_AVAILABLE as an unsigned number.
const unavailable = ^uint32(0)

// DeviceGetAccountingStats is a process's use of SMs and memory, in percent, memory in bytes, and, once it has ended, how
// long it ran, in ms, and its start, in µs since 1970. It answers NOT_FOUND if no such process was accounted, and
// NOT_SUPPORTED while accounting is off.
func DeviceGetAccountingStats(d *engine.Device, pid uint32, stats *abi.AccountingStats_t) abi.Return {
	if !d.Accounting.Mode.Value {
		return abi.ERROR_NOT_SUPPORTED
	}
	for i := range d.Processes {
		if p := &d.Processes[i]; p.PID == pid && pid != 0 {
			*stats = abi.AccountingStats_t{
				GpuUtilization:    p.SMUtil.Or(unavailable),
				MemoryUtilization: p.MemUtil.Or(unavailable),
				MaxMemoryUsage:    usedMemory(p),
				IsRunning:         1,
			}
			return abi.SUCCESS
		}
	}
	for _, p := range slices.Backward(d.Accounted()) { // the newest of that pid
		if p.PID == pid {
			*stats = abi.AccountingStats_t{
				GpuUtilization:    p.GPUPercent,
				MemoryUtilization: p.MemoryPercent,
				MaxMemoryUsage:    p.MaxMemoryBytes,
				Time:              uint64(max(p.Ended-p.Started, 0)),
				StartTime:         uint64(p.Started) * 1000,
			}
			return abi.SUCCESS
		}
	}
	return abi.ERROR_NOT_FOUND
}

// DeviceGetAccountingStats_v2 is DeviceGetAccountingStats for the pid in the struct. Nothing is sampled.
func DeviceGetAccountingStats_v2(d *engine.Device, stats *abi.AccountingStats_v2_t) abi.Return {
	var s abi.AccountingStats_t
	ret := DeviceGetAccountingStats(d, stats.Pid, &s)
	*stats = abi.AccountingStats_v2_t{
		Pid:               stats.Pid,
		IsRunning:         s.IsRunning,
		GpuUtilization:    s.GpuUtilization,
		MemoryUtilization: s.MemoryUtilization,
		MaxMemoryUsage:    s.MaxMemoryUsage,
		Time:              s.Time,
		StartTime:         s.StartTime,
	}
	return ret
}

// DeviceSetAccountingMode switches process accounting. Off forgets the processes that have ended.
func DeviceSetAccountingMode(d *engine.Device, on abi.EnableState_t) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.AccountingMode(i, on) })
}

// DeviceClearAccountingPids forgets the processes that have ended.
func DeviceClearAccountingPids(d *engine.Device) abi.Return {
	return d.Change((*change.Tx).ClearAccounting)
}
