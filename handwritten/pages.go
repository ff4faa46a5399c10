package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// retirement is the pages retired for a cause; INVALID_ARGUMENT for an unknown cause.
func retirement(d *engine.Device, cause abi.PageRetirementCause_t) (*profiles.Retirement, abi.Return) {
	r := &d.RetiredPages.SingleBitRetirement
	switch cause {
	case abi.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS:
	case abi.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR:
		r = &d.RetiredPages.DoubleBitRetirement
	default:
		return nil, abi.ERROR_INVALID_ARGUMENT
	}
	if !r.Count.Valid && r.Addresses == nil {
		return nil, abi.ERROR_NOT_SUPPORTED
	}
	return r, abi.SUCCESS
}

// DeviceGetRetiredPages lists the addresses of the pages retired for a cause; before Ampere. If the profile does not
// give a page's address, it is 0.
func DeviceGetRetiredPages(d *engine.Device, cause abi.PageRetirementCause_t) ([]uint64, abi.Return) {
	r, ret := retirement(d, cause)
	if ret != abi.SUCCESS {
		return nil, ret
	}
	pages := make([]uint64, max(int(r.Count.Value), len(r.Addresses)))
	for i, a := range r.Addresses {
		pages[i] = uint64(a)
	}
	return pages, abi.SUCCESS
}

// DeviceGetRetiredPages_v2 is DeviceGetRetiredPages with the times of retirement, which are 0, since no profile gives
// them.
func DeviceGetRetiredPages_v2(d *engine.Device, cause abi.PageRetirementCause_t) (pages, times []uint64, ret abi.Return) {
	pages, ret = DeviceGetRetiredPages(d, cause)
	return pages, make([]uint64, len(pages)), ret
}

// DeviceGetRetiredPagesPendingStatus says whether pages wait for the next reset to be retired.
func DeviceGetRetiredPagesPendingStatus(d *engine.Device) (abi.EnableState_t, abi.Return) {
	return opt(flag[abi.EnableState_t](d.RetiredPages.PendingRetirement))
}

// DeviceGetRemappedRows is the number of rows replaced after corrected and after uncorrected errors, whether more wait
// for a reset, and whether replacing one ever failed; from Ampere on. A GPU in MIG mode does not tell.
func DeviceGetRemappedRows(d *engine.Device) (corrected, uncorrected, pending, failed uint32, ret abi.Return) {
	if d.MIG.ModeCurrent.Value {
		return 0, 0, 0, 0, abi.ERROR_NOT_SUPPORTED
	}
	r := &d.RemappedRows
	corrected, uncorrected, ret = pair(r.Correctable, r.Uncorrectable)
	return corrected, uncorrected, bit(r.Pending.Value), bit(r.FailureOccurred.Value), ret
}

// DeviceGetRemappedRows_v2 is DeviceGetRemappedRows with the replacements that are not in use.
func DeviceGetRemappedRows_v2(d *engine.Device, info *abi.RemappedRowsInfo_v2_t) (ret abi.Return) {
	r := &d.RemappedRows
	info.CorrActiveRemaps, info.UncActiveRemaps, info.BPending, info.BFailureOccurred, ret = DeviceGetRemappedRows(d)
	info.CorrInactiveRemaps, info.UncInactiveRemaps = r.CorrectableInactive.Value, r.UncorrectableInactive.Value
	return ret
}

// DeviceGetRowRemapperHistogram counts memory banks by the spare rows that they have left.
func DeviceGetRowRemapperHistogram(d *engine.Device, h *abi.RowRemapperHistogramValues_t) (ret abi.Return) {
	a := &d.RemappedRows.AvailabilityHistogram
	h.Max, ret = opt(a.Max)
	h.High, h.Partial, h.Low, h.None = a.High.Value, a.Partial.Value, a.Low.Value, a.None.Value
	return ret
}
