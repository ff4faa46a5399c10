package change

import (
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// DriverBound sends the system event of a GPU that the driver takes, or lets go.
func (t *Tx) DriverBound(i int, bound bool) { t.bound(t.after.Board.Devices[i].PCI.BusID.Value, bound) }

// bound is DriverBound for the GPU of a PCI address.
func (t *Tx) bound(at profiles.BusID, bound bool) {
	kind := uint64(abi.SystemEventTypeGpuDriverUnbind)
	if bound {
		kind = abi.SystemEventTypeGpuDriverBind
	}
	t.Event(-1, kind, uint64(at.Domain)<<16|uint64(at.Bus)<<8|uint64(at.Device))
}

// notice sends the events of what differs about a GPU, unless the change has sent them itself.
func (t *Tx) notice(i int, before, after *profiles.Device) {
	send := func(kind, data uint64) {
		for _, e := range t.after.State.Events {
			if e.Sequence > t.sequence() && e.Device == t.UUID(i) && e.Type == kind {
				return
			}
		}
		t.Event(i, kind, data)
	}
	if before.PerformanceState != after.PerformanceState {
		send(abi.EventTypePState, uint64(after.PerformanceState.Value))
	}
	if before.Clocks != after.Clocks || before.ClockOffsets != after.ClockOffsets {
		send(abi.EventTypeClock, 0)
	}
	if before.Power.Source != after.Power.Source {
		send(abi.EventTypePowerSourceChange, 0)
	}
	if f := after.Failure; f.Xid.Code.Valid && !f.Waits() && f != before.Failure {
		send(abi.EventTypeXidCriticalError, f.Xid.Code.Value)
	}
	if before.MIG.ModeCurrent != after.MIG.ModeCurrent {
		send(abi.EventMigConfigChange, 0)
	}
	corrected, uncorrected := eccErrors(before)
	correctedNow, uncorrectedNow := eccErrors(after)
	if correctedNow > corrected {
		send(abi.EventTypeSingleBitEccError, 0)
	}
	if uncorrectedNow > uncorrected {
		send(abi.EventTypeDoubleBitEccError, 0)
	}
}

// sequence is the number of the newest event before the change.
func (t *Tx) sequence() uint64 {
	if t.before.State == nil {
		return 0
	}
	return t.before.State.Sequence
}

// eccErrors are sums that grow with each ECC error since the driver was loaded. An error may count more than once.
func eccErrors(d *profiles.Device) (corrected, uncorrected uint64) {
	sum := func(e profiles.ECCMemoryErrors) uint64 {
		return e.DeviceMemory.Value + e.L1Cache.Value + e.L2Cache.Value + e.RegisterFile.Value + e.TextureMemory.Value + e.SRAM.Value + e.Total.Value
	}
	counts, sram := d.ECC.Errors.Volatile, d.ECC.SRAM.Volatile
	corrected = sum(counts.SingleBit) + sram.Correctable.Value
	uncorrected = sum(counts.DoubleBit) + sram.UncorrectableParity.Value + sram.UncorrectableSECDED.Value
	return corrected, uncorrected
}
