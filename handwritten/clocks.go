package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// highest is one more than the clock ids, and stands for the highest clock of a domain.
const highest = abi.CLOCK_ID_COUNT

// withoutApplicationsClocks is the first driver branch that answers DEPRECATED for applications clocks.
const withoutApplicationsClocks = 590

// clock is a clock in MHz. The applications clock of the SMs is that of graphics. An unknown domain or clock is an
// INVALID_ARGUMENT.
func clock(d *engine.Device, domain abi.ClockType_t, id abi.ClockId_t) (uint32, abi.Return) {
	if domain >= abi.CLOCK_COUNT || id > highest {
		return 0, abi.ERROR_INVALID_ARGUMENT
	}
	applications := id == abi.CLOCK_ID_APP_CLOCK_TARGET || id == abi.CLOCK_ID_APP_CLOCK_DEFAULT
	if applications && d.Snapshot().Branch >= withoutApplicationsClocks {
		return 0, abi.ERROR_DEPRECATED
	}
	c, now := &d.Clocks, d.Readings()
	clocks := [abi.CLOCK_COUNT][highest + 1]profiles.Opt[uint32]{
		abi.CLOCK_GRAPHICS: {now.GraphicsMHz, c.GraphicsApp, c.GraphicsAppDefault, c.GraphicsCustomerBoostMax, c.GraphicsMax},
		abi.CLOCK_SM:       {now.SMMHz, c.GraphicsApp, c.GraphicsAppDefault, c.GraphicsCustomerBoostMax, c.SMMax},
		abi.CLOCK_MEM:      {now.MemoryMHz, c.MemoryApp, c.MemoryAppDefault, {}, c.MemoryMax},
		abi.CLOCK_VIDEO:    {now.VideoMHz, {}, {}, {}, c.VideoMax},
	}
	return opt(clocks[domain][id])
}

// DeviceGetClockInfo is a domain's clock now, in MHz.
func DeviceGetClockInfo(d *engine.Device, domain abi.ClockType_t) (uint32, abi.Return) {
	return clock(d, domain, abi.CLOCK_ID_CURRENT)
}

// DeviceGetMaxClockInfo is a domain's highest clock, in MHz.
func DeviceGetMaxClockInfo(d *engine.Device, domain abi.ClockType_t) (uint32, abi.Return) {
	return clock(d, domain, highest)
}

// DeviceGetApplicationsClock is the clock that applications run at, in MHz; DEPRECATED from driver 590 on.
func DeviceGetApplicationsClock(d *engine.Device, domain abi.ClockType_t) (uint32, abi.Return) {
	return clock(d, domain, abi.CLOCK_ID_APP_CLOCK_TARGET)
}

// DeviceGetDefaultApplicationsClock is the clock that applications run at after a reset, in MHz; DEPRECATED from driver
// 590 on.
func DeviceGetDefaultApplicationsClock(d *engine.Device, domain abi.ClockType_t) (uint32, abi.Return) {
	return clock(d, domain, abi.CLOCK_ID_APP_CLOCK_DEFAULT)
}

// DeviceGetMaxCustomerBoostClock is the highest clock that the board's maker allows, in MHz.
func DeviceGetMaxCustomerBoostClock(d *engine.Device, domain abi.ClockType_t) (uint32, abi.Return) {
	return clock(d, domain, abi.CLOCK_ID_CUSTOMER_BOOST_MAX)
}

// DeviceGetClock is any of a domain's clocks, in MHz.
func DeviceGetClock(d *engine.Device, domain abi.ClockType_t, id abi.ClockId_t) (uint32, abi.Return) {
	if id >= abi.CLOCK_ID_COUNT {
		return 0, abi.ERROR_INVALID_ARGUMENT
	}
	return clock(d, domain, id)
}

// DeviceGetSupportedMemoryClocks lists the memory clocks that can be asked for, in MHz, highest first.
func DeviceGetSupportedMemoryClocks(d *engine.Device) ([]uint32, abi.Return) {
	var list []uint32
	for _, m := range d.SupportedClocks.MemoryClocks {
		list = append(list, m.FreqMHz)
	}
	if list == nil {
		return nil, abi.ERROR_NOT_SUPPORTED
	}
	return list, abi.SUCCESS
}

// DeviceGetSupportedGraphicsClocks lists the graphics clocks that go with a memory clock, in MHz, highest first. It
// answers NOT_FOUND for a memory clock that is not supported.
func DeviceGetSupportedGraphicsClocks(d *engine.Device, memory uint32) ([]uint32, abi.Return) {
	if len(d.SupportedClocks.MemoryClocks) == 0 {
		return nil, abi.ERROR_NOT_SUPPORTED
	}
	for _, m := range d.SupportedClocks.MemoryClocks {
		if m.FreqMHz == memory {
			return m.GraphicsClocks, abi.SUCCESS
		}
	}
	return nil, abi.ERROR_NOT_FOUND
}

// DeviceGetAutoBoostedClocksEnabled says whether the clocks boost automatically, now and after a reset.
func DeviceGetAutoBoostedClocksEnabled(d *engine.Device) (now, reset abi.EnableState_t, ret abi.Return) {
	return pair(mode[abi.EnableState_t](d.Clocks.AutoBoost), mode[abi.EnableState_t](d.Clocks.AutoBoostDefault))
}

// DeviceSetGpuLockedClocks locks the graphics clock to a range, in MHz or by the names of NVML's clock limits.
func DeviceSetGpuLockedClocks(d *engine.Device, least, most uint32) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.LockGPUClocks(i, least, most) })
}

// DeviceResetGpuLockedClocks lets the graphics clock run freely.
func DeviceResetGpuLockedClocks(d *engine.Device) abi.Return {
	return d.Change((*change.Tx).UnlockGPUClocks)
}

// DeviceSetMemoryLockedClocks locks the memory clock to a range, in MHz.
func DeviceSetMemoryLockedClocks(d *engine.Device, least, most uint32) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.LockMemoryClocks(i, least, most) })
}

// DeviceResetMemoryLockedClocks lets the memory clock run freely.
func DeviceResetMemoryLockedClocks(d *engine.Device) abi.Return {
	return d.Change((*change.Tx).UnlockMemoryClocks)
}

// DeviceSetApplicationsClocks sets the clocks that applications run at, in MHz; DEPRECATED from driver 590 on.
func DeviceSetApplicationsClocks(d *engine.Device, memory, graphics uint32) abi.Return {
	if d.Snapshot().Branch >= withoutApplicationsClocks {
		return abi.ERROR_DEPRECATED
	}
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.ApplicationsClocks(i, memory, graphics) })
}

// DeviceResetApplicationsClocks sets the clocks that applications run at back; DEPRECATED from driver 590 on.
func DeviceResetApplicationsClocks(d *engine.Device) abi.Return {
	if d.Snapshot().Branch >= withoutApplicationsClocks {
		return abi.ERROR_DEPRECATED
	}
	return d.Change((*change.Tx).ResetApplicationsClocks)
}

// DeviceSetAutoBoostedClocksEnabled lets the clocks boost automatically, or not.
func DeviceSetAutoBoostedClocksEnabled(d *engine.Device, on abi.EnableState_t) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.AutoBoost(i, on) })
}

// DeviceSetDefaultAutoBoostedClocksEnabled decides whether the clocks boost automatically while nothing computes.
func DeviceSetDefaultAutoBoostedClocksEnabled(d *engine.Device, on abi.EnableState_t, _ uint32) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.DefaultAutoBoost(i, on) })
}

// offset is how far a clock is shifted, the lowest and the highest offset, in MHz.
func offset(d *engine.Device, domain abi.ClockType_t) (now, least, most int32, ret abi.Return) {
	o := &d.ClockOffsets
	shift, from, to := o.GraphicsMHz, o.GraphicsMinMHz, o.GraphicsMaxMHz
	switch {
	case domain >= abi.CLOCK_COUNT:
		return 0, 0, 0, abi.ERROR_INVALID_ARGUMENT
	case domain == abi.CLOCK_MEM:
		shift, from, to = o.MemoryMHz, o.MemoryMinMHz, o.MemoryMaxMHz
	case domain != abi.CLOCK_GRAPHICS:
		return 0, 0, 0, abi.ERROR_NOT_SUPPORTED
	}
	least, most, ret = pair(from, to)
	return shift.Value, least, most, ret
}

// DeviceGetClockOffsets is how far a clock is shifted, and how far it can be, in MHz. All P-states have the same offset.
func DeviceGetClockOffsets(d *engine.Device, o *abi.ClockOffset_v1_t) (ret abi.Return) {
	if o.Pstate > abi.PSTATE_15 {
		return abi.ERROR_INVALID_ARGUMENT
	}
	o.ClockOffsetMHz, o.MinClockOffsetMHz, o.MaxClockOffsetMHz, ret = offset(d, o.Type)
	return ret
}

// DeviceSetClockOffsets shifts a clock, in MHz.
func DeviceSetClockOffsets(d *engine.Device, o *abi.ClockOffset_v1_t) abi.Return {
	if o.Pstate > abi.PSTATE_15 {
		return abi.ERROR_INVALID_ARGUMENT
	}
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.ClockOffset(i, o.Type, o.ClockOffsetMHz) })
}

// DeviceGetGpcClkVfOffset is how far the graphics clock is shifted, in MHz.
func DeviceGetGpcClkVfOffset(d *engine.Device) (int32, abi.Return) {
	now, _, _, ret := offset(d, abi.CLOCK_GRAPHICS)
	return now, ret
}

// DeviceGetMemClkVfOffset is how far the memory clock is shifted, in MHz.
func DeviceGetMemClkVfOffset(d *engine.Device) (int32, abi.Return) {
	now, _, _, ret := offset(d, abi.CLOCK_MEM)
	return now, ret
}

// DeviceGetGpcClkMinMaxVfOffset is how far the graphics clock can be shifted, in MHz.
func DeviceGetGpcClkMinMaxVfOffset(d *engine.Device) (least, most int32, ret abi.Return) {
	_, least, most, ret = offset(d, abi.CLOCK_GRAPHICS)
	return least, most, ret
}

// DeviceGetMemClkMinMaxVfOffset is how far the memory clock can be shifted, in MHz.
func DeviceGetMemClkMinMaxVfOffset(d *engine.Device) (least, most int32, ret abi.Return) {
	_, least, most, ret = offset(d, abi.CLOCK_MEM)
	return least, most, ret
}

// DeviceSetGpcClkVfOffset shifts the graphics clock, in MHz.
func DeviceSetGpcClkVfOffset(d *engine.Device, mhz int32) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.ClockOffset(i, abi.CLOCK_GRAPHICS, mhz) })
}

// DeviceSetMemClkVfOffset shifts the memory clock, in MHz.
func DeviceSetMemClkVfOffset(d *engine.Device, mhz int32) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.ClockOffset(i, abi.CLOCK_MEM, mhz) })
}
