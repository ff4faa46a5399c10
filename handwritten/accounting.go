package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// DeviceGetAccountingMode says whether process accounting is on.
func DeviceGetAccountingMode(d *engine.Device) (abi.EnableState_t, abi.Return) {
	return opt(mode[abi.EnableState_t](d.Accounting.Mode))
}

// DeviceGetAccountingBufferSize is the number of processes that the accounting buffer holds.
func DeviceGetAccountingBufferSize(d *engine.Device) (uint32, abi.Return) {
	return opt(d.Accounting.BufferSize)
}

// DeviceGetAccountingPids lists the accounted processes, which are the running ones. While accounting is off, captured
// boards answer an empty list, although NVML documents NOT_SUPPORTED.
func DeviceGetAccountingPids(d *engine.Device) ([]uint32, abi.Return) {
	on, ret := opt(d.Accounting.Mode)
	if !on {
		return nil, ret
	}
	var pids []uint32
	for _, p := range d.Processes {
		pids = append(pids, p.PID)
	}
	return pids, abi.SUCCESS
}

// accounted finds an accounted process: NOT_FOUND if there is none of that pid, NOT_SUPPORTED while accounting is off.
func accounted(d *engine.Device, pid uint32) (*profiles.Process, abi.Return) {
	if !d.Accounting.Mode.Value {
		return nil, abi.ERROR_NOT_SUPPORTED
	}
	for i := range d.Processes {
		if d.Processes[i].PID == pid {
			return &d.Processes[i], abi.SUCCESS
		}
	}
	return nil, abi.ERROR_NOT_FOUND
}

// unavailable is VALUE_NOT_AVAILABLE as an unsigned number.
const unavailable = ^uint32(0)

// DeviceGetAccountingStats is a process's use of SMs and memory, in percent, and memory in bytes. A running process's
// time is 0.
func DeviceGetAccountingStats(d *engine.Device, pid uint32, stats *abi.AccountingStats_t) abi.Return {
	p, ret := accounted(d, pid)
	if ret != abi.SUCCESS {
		return ret
	}
	*stats = abi.AccountingStats_t{
		GpuUtilization:    p.SMUtil.Or(unavailable),
		MemoryUtilization: p.MemUtil.Or(unavailable),
		MaxMemoryUsage:    usedMemory(p),
		IsRunning:         1,
	}
	return abi.SUCCESS
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
