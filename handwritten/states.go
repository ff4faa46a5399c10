package handwritten

import (
	"fmt"
	"strings"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// DeviceGetSupportedPerformanceStates fills an array with the P-states that the GPU has, the fastest first, and the rest of
// it with PSTATE_UNKNOWN.
func DeviceGetSupportedPerformanceStates(d *engine.Device, states []abi.Pstates_t) abi.Return {
	if len(d.PerformanceStates) == 0 {
		return abi.ERROR_NOT_SUPPORTED
	}
	if len(states) < len(d.PerformanceStates) {
		return abi.ERROR_INSUFFICIENT_SIZE
	}
	for i := range states {
		states[i] = abi.PSTATE_UNKNOWN
		if i < len(d.PerformanceStates) {
			states[i] = abi.Pstates_t(d.PerformanceStates[i].State)
		}
	}
	return abi.SUCCESS
}

// DeviceGetMinMaxClockOfPState are the lowest and the highest clock of a P-state, in MHz. The SMs have the graphics clock.
func DeviceGetMinMaxClockOfPState(d *engine.Device, domain abi.ClockType_t, state abi.Pstates_t) (least, most uint32, ret abi.Return) {
	if domain >= abi.CLOCK_COUNT || state > abi.PSTATE_15 {
		return 0, 0, abi.ERROR_INVALID_ARGUMENT
	}
	for _, p := range d.PerformanceStates {
		if abi.Pstates_t(p.State) != state {
			continue
		}
		switch domain {
		case abi.CLOCK_GRAPHICS, abi.CLOCK_SM:
			return pair(p.GraphicsMinMHz, p.GraphicsMaxMHz)
		case abi.CLOCK_MEM:
			return pair(p.MemoryMinMHz, p.MemoryMaxMHz)
		}
	}
	return 0, 0, abi.ERROR_NOT_SUPPORTED
}

// clockWords are clocks as nvidia-settings and its kin read them: name=now, then the range and whether it can be changed.
func clockWords(name string, now, least, most uint32) string {
	return fmt.Sprintf("%[1]s=%[2]d, %[1]smin=%[3]d, %[1]smax=%[4]d, %[1]seditable=0", name, now, least, most)
}

// rates are the words for a graphics clock and a memory clock. Memory transfers twice in each clock.
func rates(graphics, memory [3]uint32) string {
	return strings.Join([]string{
		clockWords("nvclock", graphics[0], graphics[1], graphics[2]), clockWords("memclock", memory[0], memory[1], memory[2]),
		clockWords("memTransferRate", 2*memory[0], 2*memory[1], 2*memory[2]),
	}, ", ")
}

// DeviceGetPerformanceModes describes each P-state in words, the slowest first.
func DeviceGetPerformanceModes(d *engine.Device, modes *abi.DevicePerfModes_v1_t) abi.Return {
	var list []string
	for i := range d.PerformanceStates {
		p := &d.PerformanceStates[len(d.PerformanceStates)-1-i]
		list = append(list, fmt.Sprintf("perf=%d, %s", i, rates(
			[3]uint32{p.GraphicsMaxMHz.Value, p.GraphicsMinMHz.Value, p.GraphicsMaxMHz.Value},
			[3]uint32{p.MemoryMaxMHz.Value, p.MemoryMinMHz.Value, p.MemoryMaxMHz.Value})))
	}
	if list == nil {
		return abi.ERROR_NOT_SUPPORTED
	}
	text(modes.Str[:], strings.Join(list, " ; "))
	return abi.SUCCESS
}

// DeviceGetCurrentClockFreqs describes the clocks of now in words.
func DeviceGetCurrentClockFreqs(d *engine.Device, clocks *abi.DeviceCurrentClockFreqs_v1_t) abi.Return {
	now := d.Readings()
	graphics, memory, ret := pair(now.GraphicsMHz, now.MemoryMHz)
	if ret != abi.SUCCESS {
		return ret
	}
	text(clocks.Str[:], rates(
		[3]uint32{graphics, graphics, d.Clocks.GraphicsMax.Or(graphics)}, [3]uint32{memory, memory, d.Clocks.MemoryMax.Or(memory)}))
	return abi.SUCCESS
}

// DeviceGetAdaptiveClockInfoStatus says whether the clocks follow the voltage.
func DeviceGetAdaptiveClockInfoStatus(d *engine.Device) (uint32, abi.Return) {
	return opt(mode[uint32](d.Clocks.Adaptive))
}

// DeviceGetPowerMizerMode_v1 is what the driver weighs when it chooses the clocks, and what it could be asked to.
func DeviceGetPowerMizerMode_v1(d *engine.Device, modes *abi.DevicePowerMizerModes_v1_t) (ret abi.Return) {
	modes.CurrentMode, ret = opt(named(d.PowerMizer.Mode, change.PowerMizerModes))
	modes.Mode, modes.SupportedPowerMizerModes = modes.CurrentMode, change.SupportedPowerMizerModes(d.Device)
	return ret
}

// DeviceSetPowerMizerMode_v1 says what the driver should weigh when it chooses the clocks.
func DeviceSetPowerMizerMode_v1(d *engine.Device, modes *abi.DevicePowerMizerModes_v1_t) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.PowerMizerMode(i, modes.Mode) })
}
