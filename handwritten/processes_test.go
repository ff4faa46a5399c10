package handwritten

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

const crowded = `accounting: {mode: enabled}, processes: [
	{pid: 10, name: /usr/bin/python3, used_memory_mib: 100, sm_util: 50, mem_util: 20},
	{pid: 11, type: G, name: /usr/bin/Xorg, used_memory_mib: 5},
	{pid: 12, type: C+G, enc_util: 7}]`

func TestProcesses(t *testing.T) {
	d := gpu(t, like(crowded))
	const unknown = ^uint64(0)
	v2 := func(pid uint32, used uint64) abi.ProcessInfo_v2_t {
		return abi.ProcessInfo_v2_t{Pid: pid, UsedGpuMemory: used, GpuInstanceId: 0xffffffff, ComputeInstanceId: 0xffffffff}
	}
	answers(t, []abi.ProcessInfo_v1_t{{Pid: 10, UsedGpuMemory: 100 * mib}, {Pid: 12, UsedGpuMemory: unknown}})(
		DeviceGetComputeRunningProcesses(d))
	answers(t, []abi.ProcessInfo_v2_t{v2(10, 100*mib), v2(12, unknown)})(DeviceGetComputeRunningProcesses_v2(d))
	answers(t, []abi.ProcessInfo_v1_t{{Pid: 11, UsedGpuMemory: 5 * mib}, {Pid: 12, UsedGpuMemory: unknown}})(
		DeviceGetGraphicsRunningProcesses(d))
	answers(t, []abi.ProcessInfo_v2_t{v2(11, 5*mib), v2(12, unknown)})(DeviceGetGraphicsRunningProcesses_v2(d))
	answers(t, []abi.ProcessInfo_v1_t(nil))(DeviceGetMPSComputeRunningProcesses(d))
	answers(t, []abi.ProcessInfo_v2_t(nil))(DeviceGetMPSComputeRunningProcesses_v2(d))

	answers(t, "/usr/bin/Xorg")(SystemGetProcessName(d.Snapshot(), 11))
	refuses(t, abi.ERROR_NOT_FOUND)(SystemGetProcessName(d.Snapshot(), 12))
	refuses(t, abi.ERROR_NOT_FOUND)(SystemGetProcessName(d.Snapshot(), 1))
}

func TestProcessUtilization(t *testing.T) {
	d := gpu(t, like(crowded))
	enginetest.At(t, time.Unix(1000, 999))
	const now = 1000_000_000
	want := []abi.ProcessUtilizationSample_t{
		{Pid: 10, TimeStamp: now, SmUtil: 50, MemUtil: 20},
		{Pid: 12, TimeStamp: now, EncUtil: 7},
	}
	answers(t, want)(DeviceGetProcessUtilization(d, 0))
	answers(t, want)(DeviceGetProcessUtilization(d, now-1))
	refuses(t, abi.ERROR_NOT_FOUND)(DeviceGetProcessUtilization(d, now))
	refuses(t, abi.ERROR_NOT_FOUND)(DeviceGetProcessUtilization(gpu(t, bare), 0))
}

func TestAccounting(t *testing.T) {
	d := gpu(t, like(crowded))
	answers(t, []uint32{10, 11, 12})(DeviceGetAccountingPids(d))
	var stats abi.AccountingStats_t
	assert.Equal(t, abi.SUCCESS, DeviceGetAccountingStats(d, 10, &stats))
	assert.Equal(t, abi.AccountingStats_t{
		GpuUtilization: 50, MemoryUtilization: 20, MaxMemoryUsage: 100 * mib, IsRunning: 1,
	}, stats)
	assert.Equal(t, abi.ERROR_NOT_FOUND, DeviceGetAccountingStats(d, 1, &stats))
	v2 := abi.AccountingStats_v2_t{Pid: 12}
	assert.Equal(t, abi.SUCCESS, DeviceGetAccountingStats_v2(d, &v2))
	assert.Equal(t, abi.AccountingStats_v2_t{
		Pid: 12, IsRunning: 1, GpuUtilization: unavailable, MemoryUtilization: unavailable, MaxMemoryUsage: ^uint64(0),
	}, v2)
	assert.Equal(t, abi.ERROR_NOT_SUPPORTED, DeviceGetAccountingStats(gpu(t, ""), 10, &stats))
}
