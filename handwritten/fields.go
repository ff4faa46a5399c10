package handwritten

import (
	"math"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/words"
)

func recoveryAction(d dev) u32 { return as[uint32](named(d.RecoveryAction, words.RecoveryActions)) }

// withoutResetStatus is the first driver branch whose captures show DEPRECATED for the two reset status fields.
const withoutResetStatus = 570

// resetStatus answers a reset status field, which earlier drivers have in place of the recovery action. What the profile gives
// comes before what follows from that action.
func resetStatus(given func(profiles.ResetStatus) profiles.Opt[bool], is func(abi.DeviceGpuRecoveryAction_t) bool) field {
	return number(func(d dev, _ uint32) (uint32, abi.Return) {
		if d.Snapshot().Branch >= withoutResetStatus {
			return 0, abi.ERROR_DEPRECATED
		}
		if d.ResetStatus != (profiles.ResetStatus{}) {
			status, ret := opt(given(d.ResetStatus))
			return bit(status), ret
		}
		action, ret := opt(named(d.RecoveryAction, words.RecoveryActions))
		return bit(is(action)), ret
	})
}

// smoothing answers a field of power smoothing: of a profile, the one whose number is the scope. It answers NO_PERMISSION
// if the board says so.
func smoothing(d dev, field, scope uint32) (uint32, abi.Return) {
	state, s := d.Power.Smoothing, &d.PowerSmoothing
	switch {
	case state.Value == "no_permission":
		return 0, abi.ERROR_NO_PERMISSION
	case !state.Valid:
		return 0, abi.ERROR_NOT_SUPPORTED
	case field == abi.FI_PWR_SMOOTHING_ENABLED:
		return bit(state.Value == "enabled"), abi.SUCCESS
	case len(s.Profiles) == 0:
		return 0, abi.ERROR_NOT_SUPPORTED
	}
	get, ofProfile := smoothingProfile.Find(field)
	switch {
	case field == abi.FI_PWR_SMOOTHING_MAX_NUM_PRESET_PROFILES:
		return uint32(len(s.Profiles)), abi.SUCCESS
	case field == abi.FI_PWR_SMOOTHING_DELAYED_PWR_SMOOTHING_SUPPORTED:
		return 1, abi.SUCCESS // its parameters can be set, see change.Tx.SmoothingParameter
	case field == abi.FI_PWR_SMOOTHING_ACTIVE_PRESET_PROFILE:
		return opt(s.ActiveProfile)
	case field == abi.FI_PWR_SMOOTHING_MIN_PERCENT_TMP_FLOOR_SETTING:
		return whole(s.MinFloorPercent)
	case field == abi.FI_PWR_SMOOTHING_MAX_PERCENT_TMP_FLOOR_SETTING:
		return whole(s.MaxFloorPercent)
	case !ofProfile:
		return 0, abi.ERROR_NOT_SUPPORTED
	case uint64(scope) >= uint64(len(s.Profiles)):
		return 0, abi.ERROR_INVALID_ARGUMENT
	}
	return whole(get(&s.Profiles[scope]))
}

// smoothingProfile are the fields of a profile of power smoothing. The header gives rates in mW/s, where the setter takes
// W/s.
var smoothingProfile = table[uint32, func(*profiles.SmoothingProfile) profiles.Opt[float64]]{
	{abi.FI_PWR_SMOOTHING_PROFILE_PERCENT_TMP_FLOOR, func(p *profiles.SmoothingProfile) profiles.Opt[float64] { return p.FloorPercent }},
	{abi.FI_PWR_SMOOTHING_PROFILE_RAMP_UP_RATE, func(p *profiles.SmoothingProfile) profiles.Opt[float64] { return milli(p.RampUpRate) }},
	{abi.FI_PWR_SMOOTHING_PROFILE_RAMP_DOWN_RATE, func(p *profiles.SmoothingProfile) profiles.Opt[float64] { return milli(p.RampDownRate) }},
	{abi.FI_PWR_SMOOTHING_PROFILE_RAMP_DOWN_HYST_VAL, func(p *profiles.SmoothingProfile) profiles.Opt[float64] {
		return p.RampDownHysteresis
	}},
	{abi.FI_PWR_SMOOTHING_PROFILE_SECONDARY_POWER_FLOOR, func(p *profiles.SmoothingProfile) profiles.Opt[float64] { return p.SecondaryFloorW }},
	{abi.FI_PWR_SMOOTHING_PROFILE_PRIMARY_FLOOR_ACT_WIN_MULT, func(p *profiles.SmoothingProfile) profiles.Opt[float64] {
		return p.ActivationWindows
	}},
	{abi.FI_PWR_SMOOTHING_PROFILE_PRIMARY_FLOOR_TAR_WIN_MULT, func(p *profiles.SmoothingProfile) profiles.Opt[float64] { return p.TargetWindows }},
	{abi.FI_PWR_SMOOTHING_PROFILE_PRIMARY_FLOOR_ACT_OFFSET, func(p *profiles.SmoothingProfile) profiles.Opt[float64] {
		return p.ActivationOffsetW
	}},
}

func milli(o profiles.Opt[float64]) profiles.Opt[float64] {
	o.Value *= 1000
	return o
}

// whole answers a number without its fraction.
func whole(o profiles.Opt[float64]) (uint32, abi.Return) {
	value, ret := opt(o)
	return uint32(min(max(value, 0), math.MaxUint32)), ret
}

// threshold is how long an NVLink has to be idle until it saves power.
func threshold(d dev) u32 {
	if l := &d.NVLinkLowPower; !l.Threshold.Valid {
		return l.Default
	}
	return d.NVLinkLowPower.Threshold
}

func thresholdUnits(d dev) u32 {
	return u32{Value: abi.NVLINK_LOW_POWER_THRESHOLD_UNIT_100US, Valid: threshold(d).Valid}
}

func thresholdSupported(d dev) u32 {
	l := &d.NVLinkLowPower
	return u32{Value: bit(l.Min.Valid && l.Max.Valid), Valid: d.LinkCount() > 0 && l.Min.Valid && l.Max.Valid}
}

// smoothingFields are the first and the last number of each range of power smoothing fields.
var smoothingFields = [][2]uint32{
	{abi.FI_PWR_SMOOTHING_ENABLED, abi.FI_PWR_SMOOTHING_ADMIN_OVERRIDE_RAMP_DOWN_HYST_VAL},
	{abi.FI_PWR_SMOOTHING_PRIMARY_POWER_FLOOR, abi.FI_PWR_SMOOTHING_ADMIN_OVERRIDE_PRIMARY_FLOOR_ACT_OFFSET},
	{abi.FI_PWR_SMOOTHING_SOC_POWER_SMOOTHING_ENABLED, abi.FI_PWR_SMOOTHING_SOC_POWER_SMOOTHING_ENABLED},
}

func retired(cause abi.PageRetirementCause_t) field {
	return number(func(d dev, _ uint32) (uint32, abi.Return) {
		pages, ret := DeviceGetRetiredPages(d, cause)
		return uint32(len(pages)), ret
	})
}

// retiring says whether pages with a cause wait for retirement. The profile only tells whether any pages do.
func retiring(cause abi.PageRetirementCause_t) field {
	return number(func(d dev, _ uint32) (uint32, abi.Return) {
		pages, ret := DeviceGetRetiredPages(d, cause)
		return bit(d.RetiredPages.PendingRetirement.Value && len(pages) > 0), ret
	})
}

// lost is the time lost to a reason. The profile has it in µs, NVML answers ns.
func lost(get func(dev) u64) field {
	return given(func(d dev) u64 {
		us := get(d)
		return u64{Value: us.Value * 1000, Valid: us.Valid}
	})
}

// powerScope is the power of a part of the board, in mW, and its energy, in mJ.
type powerScope struct {
	average, instant, least, most, byDefault, enforced, requested u32
	energy                                                        u64
}

// scoped makes a field of a value that GPU, module and memory have; an unknown scope is an INVALID_ARGUMENT.
func scoped[T uint32 | uint64](pick func(*powerScope) profiles.Opt[T]) field {
	return number(func(d dev, scope uint32) (T, abi.Return) {
		var p powerScope
		switch scope {
		case abi.POWER_SCOPE_GPU:
			g := &d.Power
			p = powerScope{d.AveragePowerDraw(), d.Readings().PowerMW, g.MinLimitMW, g.MaxLimitMW,
				g.DefaultLimitMW, g.EnforcedLimitMW, g.RequestedLimitMW, d.Energy()}
		case abi.POWER_SCOPE_MODULE:
			m := &d.ModulePower
			p = powerScope{m.AverageDrawMW, m.CurrentDrawMW, m.MinLimitMW, m.MaxLimitMW,
				m.DefaultLimitMW, m.EnforcedLimitMW, m.RequestedLimitMW, u64{}}
		case abi.POWER_SCOPE_MEMORY:
			p = powerScope{average: d.MemoryPower.AverageDrawMW, instant: d.MemoryPower.CurrentDrawMW}
		case abi.POWER_SCOPE_GPU_BASE:
		default:
			return 0, abi.ERROR_INVALID_ARGUMENT
		}
		return opt(pick(&p))
	})
}

func nonzero(n uint32) (uint32, abi.Return) {
	if n == 0 {
		return 0, abi.ERROR_NOT_SUPPORTED
	}
	return n, abi.SUCCESS
}

// linkCount is the number of links.
func linkCount(d dev, _ uint32) (uint32, abi.Return) { return nonzero(d.LinkCount()) }

// switchLinks is the number of links that end at a switch and are up.
func switchLinks(d dev, _ uint32) (uint32, abi.Return) {
	var n uint32
	for i := range d.LinkCount() {
		if link, _ := d.Link(i); link.Active && link.Remote == abi.NVLINK_DEVICE_TYPE_SWITCH {
			n++
		}
	}
	return nonzero(n)
}

func linkState(d dev, number uint32) (uint32, abi.Return) {
	state, ret := DeviceGetNvLinkState(d, number)
	return uint32(state), ret
}

// farLink is the number that a link to another GPU has there.
func farLink(d dev, number uint32) (uint32, abi.Return) {
	if _, ret := nvlink(d, number); ret != abi.SUCCESS {
		return 0, ret
	}
	far, ok := d.FarLink(number)
	return opt(u32{Value: far, Valid: ok})
}

// commonSpeed is the speed of the links that are up.
func commonSpeed(d dev, _ uint32) (uint32, abi.Return) {
	if _, ret := nonzero(d.LinkCount()); ret != abi.SUCCESS {
		return 0, ret
	}
	return opt(d.Snapshot().Board.NVLink.BandwidthPerLinkMbps)
}

// linkSpeed is a link's speed in one direction, in MB/s; 0 while it is down, and if the profile does not give it: nvidia-smi
// before 535 asks for ever for the speed of a link that is up.
func linkSpeed(d dev, number uint32) (uint32, abi.Return) {
	link, ret := nvlink(d, number)
	if ret != abi.SUCCESS || !link.Active {
		return 0, ret
	}
	return d.Snapshot().Board.NVLink.BandwidthPerLinkMbps.Or(0), abi.SUCCESS
}

func linkErrors(d dev, number uint32) (uint64, abi.Return) {
	return DeviceGetNvLinkErrorCounter(d, number, abi.NVLINK_ERROR_DL_REPLAY)
}

func allLinkErrors(d dev, _ uint32) (total uint64, ret abi.Return) {
	n, ret := nonzero(d.LinkCount())
	for link := range n {
		total += d.LinkErrors(link)
	}
	return total, ret
}

// allLinks is the scope for the sum over all links.
const allLinks = ^uint32(0)

// linkTraffic is the amount that a link, or all of them, sent or received, in KiB.
func linkTraffic(d dev, number uint32) (uint64, abi.Return) {
	if number == allLinks {
		n, ret := nonzero(d.LinkCount())
		return uint64(n) * d.LinkTraffic(), ret
	}
	if _, ret := nvlink(d, number); ret != abi.SUCCESS {
		return 0, ret
	}
	return d.LinkTraffic(), abi.SUCCESS
}

// packetCounters is the first generation of links that count packets and their errors, in place of the errors of the data
// link layer.
const packetCounters = 5

func countsPackets(d dev) bool { return d.Snapshot().Board.NVLink.Version.Value >= packetCounters }

// oldErrors counts the errors of a link's data link layer.
func oldErrors(d dev, number uint32) (uint64, abi.Return) {
	if countsPackets(d) {
		return 0, abi.ERROR_NOT_SUPPORTED
	}
	return linkErrors(d, number)
}

// packetBytes is what the counters of packets take for a packet's size: 128 bytes of data and a header of 16. No source says how
// large packets of the fifth generation are; what holds is that packets and bytes agree.
const packetBytes = 144

// packetFields count what the links of the fifth generation carry: in bytes, in packets, or errors of a kind.
var packetFields = table[uint32, func(traffic, errors uint64) uint64]{
	{abi.FI_DEV_NVLINK_COUNT_XMIT_PACKETS, func(traffic, _ uint64) uint64 { return traffic / packetBytes }},
	{abi.FI_DEV_NVLINK_COUNT_RCV_PACKETS, func(traffic, _ uint64) uint64 { return traffic / packetBytes }},
	{abi.FI_DEV_NVLINK_COUNT_XMIT_BYTES, func(traffic, _ uint64) uint64 { return traffic }},
	{abi.FI_DEV_NVLINK_COUNT_RCV_BYTES, func(traffic, _ uint64) uint64 { return traffic }},
}

// errorFields are the fields that count errors of links of the fifth generation. Those that a fault lets grow are symbol
// errors and what follows from them; the others stay 0.
var errorFields = []uint32{
	abi.FI_DEV_NVLINK_COUNT_RCV_ERRORS, abi.FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS,
	abi.FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS, abi.FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS,
}

// quietFields are the fields that count what never happens on links of the fifth generation here.
var quietFields = []uint32{
	abi.FI_DEV_NVLINK_COUNT_VL15_DROPPED, abi.FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS,
	abi.FI_DEV_NVLINK_COUNT_BUFFER_OVERRUN_ERRORS, abi.FI_DEV_NVLINK_COUNT_RCV_REMOTE_ERRORS,
	abi.FI_DEV_NVLINK_COUNT_RCV_GENERAL_ERRORS, abi.FI_DEV_NVLINK_COUNT_XMIT_DISCARDS,
	abi.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS, abi.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS,
	abi.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS,
}

// packetField makes a field of a link's traffic in bytes and its errors.
func packetField(of func(traffic, errors uint64) uint64) field {
	return number(func(d dev, link uint32) (uint64, abi.Return) {
		if !countsPackets(d) {
			return 0, abi.ERROR_NOT_SUPPORTED
		}
		if _, ret := nvlink(d, link); ret != abi.SUCCESS {
			return 0, ret
		}
		return of(d.LinkTraffic()<<10, d.LinkErrors(link)), abi.SUCCESS
	})
}

// numbered adds the fields with consecutive numbers to the others.
func numbered(fields *[abi.FI_MAX]field) *[abi.FI_MAX]field {
	for _, f := range eccFields {
		location, ids := f.Key, f.Value
		for i, id := range ids {
			severity, life := abi.MemoryErrorType_t(i%2), abi.EccCounterType_t(i/2)
			fields[id] = number(func(d dev, _ uint32) (uint64, abi.Return) {
				if location == abi.MEMORY_LOCATION_COUNT {
					return DeviceGetTotalEccErrors(d, severity, life)
				}
				return DeviceGetMemoryErrorCounter(d, severity, life, location)
			})
		}
	}
	for _, r := range smoothingFields {
		for id := r[0]; id <= r[1]; id++ {
			fields[id] = number(func(d dev, scope uint32) (uint32, abi.Return) { return smoothing(d, id, scope) })
		}
	}
	for link := range uint32(12) {
		fields[row{abi.FI_DEV_NVLINK_SPEED_MBPS_L0, abi.FI_DEV_NVLINK_SPEED_MBPS_L6}.at(link)] = number(
			func(d dev, _ uint32) (uint32, abi.Return) { return linkSpeed(d, link) })
		for _, f := range linkErrorFields {
			errors := f.Value
			fields[errors.at(link)] = number(func(d dev, _ uint32) (uint64, abi.Return) { return linkErrors(d, link) })
		}
	}
	for _, f := range linkErrorFields {
		total := f.Key
		fields[total] = number(allLinkErrors)
	}
	for _, f := range packetFields {
		id, of := f.Key, f.Value
		fields[id] = packetField(of)
	}
	for _, id := range errorFields {
		fields[id] = packetField(func(_, errors uint64) uint64 { return errors })
	}
	for _, id := range quietFields {
		fields[id] = packetField(func(_, _ uint64) uint64 { return 0 })
	}
	return fields
}

// eccFields count the errors of a location: volatile corrected, volatile uncorrected, aggregate corrected and aggregate
// uncorrected ones. MEMORY_LOCATION_COUNT stands for all locations.
var eccFields = table[abi.MemoryLocation_t, [4]uint32]{
	{abi.MEMORY_LOCATION_COUNT, [4]uint32{
		abi.FI_DEV_ECC_SBE_VOL_TOTAL, abi.FI_DEV_ECC_DBE_VOL_TOTAL,
		abi.FI_DEV_ECC_SBE_AGG_TOTAL, abi.FI_DEV_ECC_DBE_AGG_TOTAL,
	}},
	{abi.MEMORY_LOCATION_L1_CACHE, [4]uint32{
		abi.FI_DEV_ECC_SBE_VOL_L1, abi.FI_DEV_ECC_DBE_VOL_L1,
		abi.FI_DEV_ECC_SBE_AGG_L1, abi.FI_DEV_ECC_DBE_AGG_L1,
	}},
	{abi.MEMORY_LOCATION_L2_CACHE, [4]uint32{
		abi.FI_DEV_ECC_SBE_VOL_L2, abi.FI_DEV_ECC_DBE_VOL_L2,
		abi.FI_DEV_ECC_SBE_AGG_L2, abi.FI_DEV_ECC_DBE_AGG_L2,
	}},
	{abi.MEMORY_LOCATION_DEVICE_MEMORY, [4]uint32{
		abi.FI_DEV_ECC_SBE_VOL_DEV, abi.FI_DEV_ECC_DBE_VOL_DEV,
		abi.FI_DEV_ECC_SBE_AGG_DEV, abi.FI_DEV_ECC_DBE_AGG_DEV,
	}},
	{abi.MEMORY_LOCATION_REGISTER_FILE, [4]uint32{
		abi.FI_DEV_ECC_SBE_VOL_REG, abi.FI_DEV_ECC_DBE_VOL_REG,
		abi.FI_DEV_ECC_SBE_AGG_REG, abi.FI_DEV_ECC_DBE_AGG_REG,
	}},
	{abi.MEMORY_LOCATION_TEXTURE_MEMORY, [4]uint32{
		abi.FI_DEV_ECC_SBE_VOL_TEX, abi.FI_DEV_ECC_DBE_VOL_TEX,
		abi.FI_DEV_ECC_SBE_AGG_TEX, abi.FI_DEV_ECC_DBE_AGG_TEX,
	}},
}

// row is the number of the field for link 0 and that for link 6. The fields of links 1 to 5 and 7 to 11 follow them.
type row struct{ l0, l6 uint32 }

func (r row) at(link uint32) uint32 {
	if link < 6 {
		return r.l0 + link
	}
	return r.l6 + link - 6
}

// linkErrorFields count a link's errors of a kind. The key is the field for all links together.
var linkErrorFields = table[uint32, row]{
	{abi.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, row{
		abi.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L0, abi.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L6,
	}},
	{abi.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL, row{
		abi.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_L0, abi.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_L6,
	}},
	{abi.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, row{
		abi.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L0, abi.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L6,
	}},
	{abi.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, row{
		abi.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_L0, abi.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_L6,
	}},
	{abi.FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL, row{
		abi.FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_L0, abi.FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_L6,
	}},
}
