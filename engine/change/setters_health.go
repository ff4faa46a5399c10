package change

import (
	"github.com/nvmlfab/nvmlfab/engine/simulate"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// ECCMode is the ECC mode after the next reset.
func (t *Tx) ECCMode(i int, state abi.EnableState_t) abi.Return {
	return t.onOff(i, state, t.keep, func(d *profiles.Device) bool { return d.ECC.ModePending.Valid }, "ecc.mode_pending")
}

// DRAMEncryption is whether the memory is encrypted after the next reset.
func (t *Tx) DRAMEncryption(i int, state abi.EnableState_t) abi.Return {
	return t.onOff(i, state, t.keep, func(d *profiles.Device) bool { return d.Memory.EncryptionPending.Valid },
		"memory.encryption_pending")
}

// ClearECC sets the errors of a life span back to 0.
func (t *Tx) ClearECC(i int, life abi.EccCounterType_t) abi.Return {
	d, err := t.Device(i)
	switch {
	case life >= abi.ECC_COUNTER_TYPE_COUNT:
		return abi.ERROR_INVALID_ARGUMENT
	case err != nil || !bool(d.ECC.ModeCurrent.Value):
		return abi.ERROR_NOT_SUPPORTED
	case life == abi.AGGREGATE_ECC:
		return t.keep(i, zeros(aggregate(d)))
	}
	return t.keep(i, zeros(volatile(d)))
}

// counts are keys of counters, with their values.
type counts map[string]profiles.Opt[uint64]

// zeros are the counters that the board has, set back.
func zeros(c counts) profiles.Settings {
	keys := profiles.Settings{}
	for key, count := range c {
		if count.Valid {
			keys[key] = 0
		}
	}
	return keys
}

func volatile(d *profiles.Device) counts {
	c := counts{}
	c.errors("ecc.errors.volatile", &d.ECC.Errors.Volatile)
	c.sram("ecc.sram.volatile", &d.ECC.SRAM.Volatile)
	return c
}

func aggregate(d *profiles.Device) counts {
	c := counts{}
	c.errors("ecc.errors.aggregate", &d.ECC.Errors.Aggregate)
	c.sram("ecc.sram.aggregate", &d.ECC.SRAM.Aggregate)
	s := &d.ECC.SRAM.UncorrectableSources
	c["ecc.sram.uncorrectable_sources.l2"] = s.L2
	c["ecc.sram.uncorrectable_sources.sm"] = s.SM
	c["ecc.sram.uncorrectable_sources.microcontroller"] = s.Microcontroller
	c["ecc.sram.uncorrectable_sources.pcie"] = s.PCIe
	c["ecc.sram.uncorrectable_sources.other"] = s.Other
	return c
}

func (c counts) errors(section string, e *profiles.ECCErrorCounts) {
	for key, m := range map[string]*profiles.ECCMemoryErrors{".single_bit.": &e.SingleBit, ".double_bit.": &e.DoubleBit} {
		c[section+key+"device_memory"] = m.DeviceMemory
		c[section+key+"l1_cache"] = m.L1Cache
		c[section+key+"l2_cache"] = m.L2Cache
		c[section+key+"register_file"] = m.RegisterFile
		c[section+key+"texture_memory"] = m.TextureMemory
		c[section+key+"sram"] = m.SRAM
		c[section+key+"total"] = m.Total
	}
}

func (c counts) sram(section string, s *profiles.SRAMCounts) {
	c[section+".correctable"] = s.Correctable
	c[section+".uncorrectable_parity"] = s.UncorrectableParity
	c[section+".uncorrectable_secded"] = s.UncorrectableSECDED
}

// ClearLinkErrors makes the errors of an NVLink count from 0 again.
func (t *Tx) ClearLinkErrors(i int, link uint32) abi.Return {
	board, err := t.Board()
	if err != nil {
		return abi.ERROR_UNKNOWN
	}
	switch links := board.LinkCount(board.Devices[i].Index); {
	case links == 0:
		return abi.ERROR_NOT_SUPPORTED
	case link >= links:
		return abi.ERROR_INVALID_ARGUMENT
	}
	t.ResetCounter(i, simulate.Count{Quantity: simulate.LinkErrorCounts, Link: link})
	return abi.SUCCESS
}

// Reset resets a GPU as a driver does. What setters have set is taken back, pending modes come into force, errors since
// the last reset are forgotten, counters start again, and processes are gone from the GPU. It cures a GPU that answers
// RESET_REQUIRED, and no other fault. A lost GPU answers GPU_IS_LOST.
func (t *Tx) Reset(i int) abi.Return {
	if d, err := t.Device(i); err != nil {
		return abi.ERROR_UNKNOWN
	} else if d.Failure.Loses() && !d.Failure.Waits() {
		return abi.ERROR_GPU_IS_LOST
	}
	r := t.Record(i)
	if len(r.Instances) > 0 {
		t.Event(i, abi.EventMigConfigChange, 0)
	}
	r.Processes, r.Accounted, r.Instances = nil, nil, nil
	if _, err := t.DropLayers(i, func(l state.Layer) bool { return bySetters(l) || FaultOf(l) == "reset-required" }); err != nil {
		return abi.ERROR_UNKNOWN
	}
	d, err := t.Device(i)
	if err != nil {
		return abi.ERROR_UNKNOWN
	}
	keys := zeros(volatile(d))
	for key, mode := range map[string]profiles.Opt[profiles.Enabled]{
		"ecc.mode_current": d.ECC.ModePending, "mig.mode_current": d.MIG.ModePending,
		"memory.encryption_current": d.Memory.EncryptionPending,
	} {
		if mode.Valid {
			keys[key] = bool(mode.Value)
		}
	}
	if pending := d.GPUOperationMode.Pending; pending.Valid {
		keys["gpu_operation_mode.current"] = pending.Value
	}
	for key, waits := range map[string]profiles.Opt[bool]{
		"remapped_rows.pending": d.RemappedRows.Pending, "retired_pages.pending_retirement": d.RetiredPages.PendingRetirement,
		"retired_pages.pending_blacklist": d.RetiredPages.PendingBlacklist,
		"ecc.channel_repair_pending":      d.ECC.ChannelRepairPending, "ecc.tpc_repair_pending": d.ECC.TPCRepairPending,
	} {
		if waits.Value {
			keys[key] = false
		}
	}
	switch d.RecoveryAction.Value {
	case "gpu_reset", "drain_and_reset":
		keys["recovery_action"] = "none"
	}
	if d.Failure.Mode.Value == "reset_required" {
		keys["failure.mode"] = nil
	}
	if d.Processes != nil {
		keys["processes"] = []any{}
	}
	if d.Failure.Mode.Value == "reset_required" {
		keys["failure.mode"] = "healthy"
	}
	if ret := t.keep(i, keys); ret != abi.SUCCESS {
		return ret
	}
	board, err := t.Board()
	if err != nil {
		return abi.ERROR_UNKNOWN
	}
	for q := range simulate.LinkErrorCounts {
		t.ResetCounter(i, simulate.Count{Quantity: q})
	}
	for link := range board.LinkCount(board.Devices[i].Index) {
		t.ResetCounter(i, simulate.Count{Quantity: simulate.LinkErrorCounts, Link: link})
	}
	return abi.SUCCESS
}
