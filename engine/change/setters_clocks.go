package change

import (
	"slices"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/words"
)

// older says that a GPU is of a generation before another one. One of unknown generation is not.
func older(d *profiles.Device, than string) bool {
	generations := []string{"kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell"}
	is := slices.Index(generations, d.Architecture.Value)
	return is >= 0 && is < slices.Index(generations, than)
}

// extremes are the lowest and the highest graphics clock of any memory clock, and the lowest and the highest memory
// clock, in MHz; false if the board lists none.
func extremes(d *profiles.Device) (graphics, memory [2]uint32, ok bool) {
	var g, m []uint32
	for _, c := range d.SupportedClocks.MemoryClocks {
		m = append(m, c.FreqMHz)
		g = append(g, c.GraphicsClocks...)
	}
	if len(g) == 0 {
		return graphics, memory, false
	}
	return [2]uint32{slices.Min(g), slices.Max(g)}, [2]uint32{slices.Min(m), slices.Max(m)}, true
}

// symbolic says that a clock is a name and not a number of MHz.
func symbolic(mhz uint32) bool { return mhz >= uint32(abi.CLOCK_LIMIT_ID_RANGE_START) }

// LockGPUClocks locks the graphics clock to a range in MHz, or to a range of names: the TDP clock, or no limit.
func (t *Tx) LockGPUClocks(i int, least, most uint32) abi.Return {
	d, err := t.Device(i)
	if err != nil {
		return abi.ERROR_UNKNOWN
	}
	ends, _, listed := extremes(d)
	if !listed || older(d, "volta") {
		return abi.ERROR_NOT_SUPPORTED
	}
	if symbolic(least) || symbolic(most) {
		tdp, unlimited := uint32(abi.CLOCK_LIMIT_ID_TDP), uint32(abi.CLOCK_LIMIT_ID_UNLIMITED)
		clock, known := d.Clocks.GraphicsAppDefault.Get()
		named := func(mhz uint32) bool { return mhz == tdp || mhz == unlimited }
		switch {
		case !named(least) || !named(most):
			return abi.ERROR_INVALID_ARGUMENT
		case least == unlimited && most == unlimited:
			return t.UnlockGPUClocks(i)
		case !known:
			return abi.ERROR_NOT_SUPPORTED
		}
		from, to := ends[0], ends[1]
		if least == tdp {
			from = clock
		}
		if most == tdp {
			to = clock
		}
		least, most = from, to
	}
	if least > most || least > ends[1] || most < ends[0] {
		return abi.ERROR_INVALID_ARGUMENT
	}
	return t.put(i, profiles.Settings{
		"clocks.graphics_locked_min": max(least, ends[0]), "clocks.graphics_locked_max": min(most, ends[1]),
	})
}

// UnlockGPUClocks lets the graphics clock run freely.
func (t *Tx) UnlockGPUClocks(i int) abi.Return {
	d, err := t.Device(i)
	if err != nil {
		return abi.ERROR_UNKNOWN
	}
	if _, _, listed := extremes(d); !listed || older(d, "volta") {
		return abi.ERROR_NOT_SUPPORTED
	}
	return t.put(i, profiles.Settings{"clocks.graphics_locked_min": nil, "clocks.graphics_locked_max": nil})
}

// LockMemoryClocks locks the memory clock to a range in MHz, in which a memory clock of the board must lie.
func (t *Tx) LockMemoryClocks(i int, least, most uint32) abi.Return {
	d, err := t.Device(i)
	if err != nil {
		return abi.ERROR_UNKNOWN
	}
	if len(d.SupportedClocks.MemoryClocks) == 0 || older(d, "ampere") {
		return abi.ERROR_NOT_SUPPORTED
	}
	if !slices.ContainsFunc(d.SupportedClocks.MemoryClocks, func(m profiles.MemoryClock) bool {
		return m.FreqMHz >= least && m.FreqMHz <= most
	}) {
		return abi.ERROR_INVALID_ARGUMENT
	}
	return t.put(i, profiles.Settings{"clocks.memory_locked_min": least, "clocks.memory_locked_max": most})
}

// UnlockMemoryClocks lets the memory clock run freely.
func (t *Tx) UnlockMemoryClocks(i int) abi.Return {
	d, err := t.Device(i)
	switch {
	case err != nil:
		return abi.ERROR_UNKNOWN
	case len(d.SupportedClocks.MemoryClocks) == 0 || older(d, "ampere"):
		return abi.ERROR_NOT_SUPPORTED
	}
	return t.put(i, profiles.Settings{"clocks.memory_locked_min": nil, "clocks.memory_locked_max": nil})
}

// ApplicationsClocks sets the clocks that applications run at, in MHz. The board must list the pair.
func (t *Tx) ApplicationsClocks(i int, memory, graphics uint32) abi.Return {
	d, err := t.Device(i)
	if err != nil || !d.Clocks.MemoryApp.Valid || !d.Clocks.GraphicsApp.Valid || len(d.SupportedClocks.MemoryClocks) == 0 {
		return abi.ERROR_NOT_SUPPORTED
	}
	if !slices.ContainsFunc(d.SupportedClocks.MemoryClocks, func(m profiles.MemoryClock) bool {
		return m.FreqMHz == memory && slices.Contains(m.GraphicsClocks, graphics)
	}) {
		return abi.ERROR_INVALID_ARGUMENT
	}
	return t.put(i, profiles.Settings{"clocks.memory_app": memory, "clocks.graphics_app": graphics})
}

// ResetApplicationsClocks sets the clocks that applications run at to what they are after a reset.
func (t *Tx) ResetApplicationsClocks(i int) abi.Return {
	d, err := t.Device(i)
	if err != nil {
		return abi.ERROR_UNKNOWN
	}
	memory, graphics := d.Clocks.MemoryAppDefault, d.Clocks.GraphicsAppDefault
	if !memory.Valid || !graphics.Valid {
		return abi.ERROR_NOT_SUPPORTED
	}
	return t.put(i, profiles.Settings{"clocks.memory_app": memory.Value, "clocks.graphics_app": graphics.Value})
}

// AutoBoost lets the clocks boost by themselves, or not.
func (t *Tx) AutoBoost(i int, state abi.EnableState_t) abi.Return {
	return t.onOff(i, state, t.put, func(d *profiles.Device) bool { return d.Clocks.AutoBoost.Valid }, "clocks.auto_boost")
}

// DefaultAutoBoost decides whether the clocks boost by themselves while nothing computes.
func (t *Tx) DefaultAutoBoost(i int, state abi.EnableState_t) abi.Return {
	keys := []string{"clocks.auto_boost_default"}
	if d, err := t.Device(i); err == nil && !slices.ContainsFunc(d.Processes, computes) {
		keys = append(keys, "clocks.auto_boost")
	}
	return t.onOff(i, state, t.put, func(d *profiles.Device) bool { return d.Clocks.AutoBoostDefault.Valid }, keys...)
}

func computes(p profiles.Process) bool { return p.Type.Or("C") != "G" }

// ClockOffset shifts the graphics or the memory clock by a number of MHz.
func (t *Tx) ClockOffset(i int, domain abi.ClockType_t, mhz int32) abi.Return {
	d, err := t.Device(i)
	if err != nil {
		return abi.ERROR_UNKNOWN
	}
	o := &d.ClockOffsets
	least, most, key := o.GraphicsMinMHz, o.GraphicsMaxMHz, "clock_offsets.graphics_mhz"
	switch domain {
	case abi.CLOCK_GRAPHICS:
	case abi.CLOCK_MEM:
		least, most, key = o.MemoryMinMHz, o.MemoryMaxMHz, "clock_offsets.memory_mhz"
	case abi.CLOCK_SM, abi.CLOCK_VIDEO:
		return abi.ERROR_NOT_SUPPORTED
	default:
		return abi.ERROR_INVALID_ARGUMENT
	}
	switch {
	case !least.Valid || !most.Valid:
		return abi.ERROR_NOT_SUPPORTED
	case mhz < least.Value || mhz > most.Value:
		return abi.ERROR_INVALID_ARGUMENT
	}
	return t.put(i, profiles.Settings{key: mhz})
}

// PowerMizerModes are NVML's numbers of the PowerMizer modes that a profile names.
var PowerMizerModes = words.Table[string, uint32]{
	{"adaptive", abi.POWER_MIZER_MODE_ADAPTIVE}, {"prefer_maximum", abi.POWER_MIZER_MODE_PREFER_MAXIMUM_PERFORMANCE},
	{"auto", abi.POWER_MIZER_MODE_AUTO}, {"prefer_consistent", abi.POWER_MIZER_MODE_PREFER_CONSISTENT_PERFORMANCE},
}

// SupportedPowerMizerModes has a bit for each mode that can be asked for.
func SupportedPowerMizerModes(d *profiles.Device) (mask uint32) {
	for _, name := range append([]string{d.PowerMizer.Mode.Value}, d.PowerMizer.Modes...) {
		if n, ok := PowerMizerModes.Find(name); ok {
			mask |= 1 << n
		}
	}
	return mask
}

// PowerMizerMode says what the driver should weigh when it chooses the clocks.
func (t *Tx) PowerMizerMode(i int, mode uint32) abi.Return {
	d, err := t.Device(i)
	if err != nil || !d.PowerMizer.Mode.Valid {
		return abi.ERROR_NOT_SUPPORTED
	}
	name, ok := words.KeyOf(PowerMizerModes, mode)
	if !ok || SupportedPowerMizerModes(d)&(1<<mode) == 0 {
		return abi.ERROR_INVALID_ARGUMENT
	}
	return t.put(i, profiles.Settings{"power_mizer.mode": name})
}
