package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// DeviceGetEccMode is the ECC mode, now and after the next reset.
func DeviceGetEccMode(d *engine.Device) (current, pending abi.EnableState_t, ret abi.Return) {
	return pair(mode[abi.EnableState_t](d.ECC.ModeCurrent), mode[abi.EnableState_t](d.ECC.ModePending))
}

// DeviceGetDefaultEccMode is the ECC mode that the board is delivered with.
func DeviceGetDefaultEccMode(d *engine.Device) (abi.EnableState_t, abi.Return) {
	return opt(mode[abi.EnableState_t](d.ECC.DefaultMode))
}

// eccErrors are the profile's counts of a severity and a life span. It answers INVALID_ARGUMENT if either is unknown,
// and NOT_SUPPORTED unless ECC is on.
func eccErrors(d *engine.Device, severity abi.MemoryErrorType_t, life abi.EccCounterType_t) (eccCounts, abi.Return) {
	if severity >= abi.MEMORY_ERROR_TYPE_COUNT || life >= abi.ECC_COUNTER_TYPE_COUNT {
		return eccCounts{}, abi.ERROR_INVALID_ARGUMENT
	}
	if !d.ECC.ModeCurrent.Value {
		return eccCounts{}, abi.ERROR_NOT_SUPPORTED
	}
	errors, sram := &d.ECC.Errors.Volatile, &d.ECC.SRAM.Volatile
	if life == abi.AGGREGATE_ECC {
		errors, sram = &d.ECC.Errors.Aggregate, &d.ECC.SRAM.Aggregate
	}
	if severity == abi.MEMORY_ERROR_TYPE_CORRECTED {
		return eccCounts{errors.SingleBit, sum(errors.SingleBit.SRAM, sram.Correctable)}, abi.SUCCESS
	}
	return eccCounts{errors.DoubleBit, sum(errors.DoubleBit.SRAM, sram.UncorrectableParity, sram.UncorrectableSECDED)}, abi.SUCCESS
}

// eccCounts are the errors by location. sram always has those of the SRAM on the chip; from Ampere on, the profile
// gives these in a section of their own.
type eccCounts struct {
	profiles.ECCMemoryErrors
	sram profiles.Opt[uint64]
}

// at is the count of a location.
func (c *eccCounts) at(location abi.MemoryLocation_t) profiles.Opt[uint64] {
	switch location {
	case abi.MEMORY_LOCATION_L1_CACHE:
		return c.L1Cache
	case abi.MEMORY_LOCATION_L2_CACHE:
		return c.L2Cache
	case abi.MEMORY_LOCATION_DRAM:
		return c.DeviceMemory
	case abi.MEMORY_LOCATION_REGISTER_FILE:
		return c.RegisterFile
	case abi.MEMORY_LOCATION_TEXTURE_MEMORY:
		return c.TextureMemory
	case abi.MEMORY_LOCATION_TEXTURE_SHM:
		return c.TextureSHM
	case abi.MEMORY_LOCATION_CBU:
		return c.CBU
	case abi.MEMORY_LOCATION_SRAM:
		return c.sram
	}
	return profiles.Opt[uint64]{}
}

// total is the count of all locations: the profile's total, but at least the sum of the locations.
func (c *eccCounts) total() profiles.Opt[uint64] {
	all := sum(c.L1Cache, c.L2Cache, c.DeviceMemory, c.RegisterFile, c.TextureMemory, c.TextureSHM, c.CBU, c.sram)
	if !all.Valid || c.Total.Valid && c.Total.Value > all.Value {
		return c.Total
	}
	return all
}

// sum adds the counts that the profile gives.
func sum(counts ...profiles.Opt[uint64]) (all profiles.Opt[uint64]) {
	for _, c := range counts {
		if c.Valid {
			all = profiles.Some(all.Value + c.Value)
		}
	}
	return all
}

// DeviceGetMemoryErrorCounter counts the errors of a location. A MIG device counts uncorrected errors since the driver was
// loaded, and none of the memory.
func DeviceGetMemoryErrorCounter(d *engine.Device, severity abi.MemoryErrorType_t, life abi.EccCounterType_t,
	location abi.MemoryLocation_t) (uint64, abi.Return) {
	if location >= abi.MEMORY_LOCATION_COUNT {
		return 0, abi.ERROR_INVALID_ARGUMENT
	}
	counts, ret := eccErrors(d, severity, life)
	if ret != abi.SUCCESS {
		return 0, ret
	}
	if d.Instance != nil && (severity != abi.MEMORY_ERROR_TYPE_UNCORRECTED || life != abi.VOLATILE_ECC || location == abi.MEMORY_LOCATION_DRAM) {
		return 0, abi.ERROR_NOT_SUPPORTED
	}
	return opt(counts.at(location))
}

// DeviceGetTotalEccErrors counts the errors of all locations.
func DeviceGetTotalEccErrors(d *engine.Device, severity abi.MemoryErrorType_t, life abi.EccCounterType_t) (uint64, abi.Return) {
	counts, ret := eccErrors(d, severity, life)
	if ret != abi.SUCCESS {
		return 0, ret
	}
	return opt(counts.total())
}

// DeviceGetDetailedEccErrors counts the errors of four locations; a location that the board does not count is 0.
func DeviceGetDetailedEccErrors(d *engine.Device, severity abi.MemoryErrorType_t, life abi.EccCounterType_t,
	c *abi.EccErrorCounts_t) abi.Return {
	counts, ret := eccErrors(d, severity, life)
	if ret != abi.SUCCESS {
		return ret
	}
	*c = abi.EccErrorCounts_t{
		L1Cache:      counts.L1Cache.Value,
		L2Cache:      counts.L2Cache.Value,
		DeviceMemory: counts.DeviceMemory.Value,
		RegisterFile: counts.RegisterFile.Value,
	}
	if !counts.total().Valid {
		return abi.ERROR_NOT_SUPPORTED
	}
	return abi.SUCCESS
}

// DeviceGetSramEccErrorStatus counts the errors of the SRAM on the chip, from Ampere on.
func DeviceGetSramEccErrorStatus(d *engine.Device, s *abi.EccSramErrorStatus_v1_t) abi.Return {
	sram := &d.ECC.SRAM
	if !bool(d.ECC.ModeCurrent.Value) || *sram == (profiles.ECCSRAM{}) {
		return abi.ERROR_NOT_SUPPORTED
	}
	*s = abi.EccSramErrorStatus_v1_t{
		Version:                 s.Version,
		AggregateUncParity:      sram.Aggregate.UncorrectableParity.Value,
		AggregateUncSecDed:      sram.Aggregate.UncorrectableSECDED.Value,
		AggregateCor:            sram.Aggregate.Correctable.Value,
		VolatileUncParity:       sram.Volatile.UncorrectableParity.Value,
		VolatileUncSecDed:       sram.Volatile.UncorrectableSECDED.Value,
		VolatileCor:             sram.Volatile.Correctable.Value,
		AggregateUncBucketL2:    sram.UncorrectableSources.L2.Value,
		AggregateUncBucketSm:    sram.UncorrectableSources.SM.Value,
		AggregateUncBucketPcie:  sram.UncorrectableSources.PCIe.Value,
		AggregateUncBucketMcu:   sram.UncorrectableSources.Microcontroller.Value,
		AggregateUncBucketOther: sram.UncorrectableSources.Other.Value,
		BThresholdExceeded:      bit(sram.ThresholdExceeded.Value),
	}
	return abi.SUCCESS
}

// DeviceGetRepairStatus says whether a memory channel or a TPC waits for repair.
func DeviceGetRepairStatus(d *engine.Device, s *abi.RepairStatus_v1_t) (ret abi.Return) {
	s.BChannelRepairPending, s.BTpcRepairPending, ret = pair(
		flag[uint32](d.ECC.ChannelRepairPending), flag[uint32](d.ECC.TPCRepairPending))
	return ret
}

// DeviceGetUnrepairableMemoryFlag_v1 says whether memory is beyond repair.
func DeviceGetUnrepairableMemoryFlag_v1(d *engine.Device, s *abi.UnrepairableMemoryStatus_v1_t) (ret abi.Return) {
	s.BUnrepairableMemory, ret = opt(flag[uint32](d.ECC.UnrepairableMemory))
	return ret
}

// DeviceSetEccMode is the ECC mode after the next reset.
func DeviceSetEccMode(d *engine.Device, on abi.EnableState_t) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.ECCMode(i, on) })
}

// DeviceClearEccErrorCounts sets the errors of a life span back to 0; NOT_SUPPORTED unless ECC is on.
func DeviceClearEccErrorCounts(d *engine.Device, life abi.EccCounterType_t) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.ClearECC(i, life) })
}
