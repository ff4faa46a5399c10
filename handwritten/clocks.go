package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
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
		abi.CLOCK_MEM:      {c.MemoryCurrent, c.MemoryApp, c.MemoryAppDefault, {}, c.MemoryMax},
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
