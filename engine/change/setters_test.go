package change

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/simulate"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// rich is a board whose first GPU can do everything and whose second one cannot do anything.
const rich = `
devices:
  - index: 0
    uuid: GPU-00000000-0000-0000-0000-000000000001
    architecture: blackwell
    persistence_mode: enabled
    compute_mode: default
    gpu_operation_mode: {current: all_on, pending: all_on}
    virtualization: {mode: none, host_vgpu_mode: sriov}
    accounting: {mode: disabled}
    power:
      min_limit_mw: 200000
      max_limit_mw: 700000
      default_limit_mw: 700000
      requested_limit_mw: 700000
      enforced_limit_mw: 700000
      current_draw_mw: 500000
      smoothing: disabled
    module_power: {min_limit_mw: 400000, max_limit_mw: 900000, default_limit_mw: 900000, enforced_limit_mw: 900000}
    power_smoothing:
      min_floor_percent: 10
      max_floor_percent: 90
      active_profile: 0
      profiles: [{floor_percent: 20, ramp_up_rate: 100}, {floor_percent: 50}]
    workload_power_profiles:
      supported: [{id: 0, priority: 2, conflicts: [1]}, {id: 1, priority: 1, conflicts: [0]}, {id: 40, priority: 9}]
    clocks:
      graphics_current: 1800
      graphics_max: 1980
      graphics_app: 1980
      graphics_app_default: 1980
      sm_current: 1800
      memory_current: 2619
      memory_app: 2619
      memory_app_default: 2619
      auto_boost: enabled
      auto_boost_default: enabled
    clocks_throttle_reasons: {sw_power_cap: false, applications_clocks_setting: false}
    supported_clocks:
      memory_clocks:
        - {freq_mhz: 2619, graphics_clocks: 1980..345/15}
        - {freq_mhz: 1593, graphics_clocks: 1980..345/15}
    clock_offsets: {graphics_min_mhz: -300, graphics_max_mhz: 300, memory_min_mhz: 0, memory_max_mhz: 1000}
    utilization: {gpu: 50}
    fan: {count: 2, speed_percent: 40, target_speed_percent: 45, min_speed_percent: 30}
    thermal: {target_temperature_c: 80, target_temperature_min_c: 60, target_temperature_max_c: 90}
    nvlink_low_power: {default: 10, min: 1, max: 8191}
    memory: {encryption_current: disabled, encryption_pending: disabled}
    ecc:
      mode_current: enabled
      mode_pending: enabled
      channel_repair_pending: true
      errors:
        volatile: {single_bit: {device_memory: 5, total: 5}, double_bit: {device_memory: 0}}
        aggregate: {single_bit: {device_memory: 9, total: 9}}
      sram: {volatile: {correctable: 1}, aggregate: {correctable: 2}, uncorrectable_sources: {sm: 3}}
    remapped_rows: {correctable: 1, pending: true}
    recovery_action: gpu_reset
    mig: {mode_current: disabled, mode_pending: enabled}
    processes: [{pid: 7, type: C}]
  - index: 1
    uuid: GPU-00000000-0000-0000-0000-000000000002
nvlink: {links_per_gpu: 2}
`

const now = 1_800_000_000_000

// source is the board rich with nothing changed about it.
func source(t *testing.T) Source {
	t.Helper()
	b, err := profiles.Parse("rich.yaml", []byte(rich))
	require.NoError(t, err)
	return Source{Board: b, Overridden: b, Origin: now - 10_000}
}

// after makes a change that must succeed, commits it as text, as files do, and returns the node after it.
func after(t *testing.T, s Source, f func(*Tx) abi.Return) Source {
	t.Helper()
	tx := Begin(s, now)
	require.Equal(t, abi.SUCCESS, f(tx))
	next, err := tx.Finish()
	require.NoError(t, err)
	text, err := next.Encode()
	require.NoError(t, err)
	s.State, err = state.Decode(text, nil)
	require.NoError(t, err)
	return s
}

func device(t *testing.T, s Source) *profiles.Device {
	t.Helper()
	d, err := s.Device(0, now)
	require.NoError(t, err)
	return d
}

const (
	ok          = abi.SUCCESS
	invalid     = abi.ERROR_INVALID_ARGUMENT
	unsupported = abi.ERROR_NOT_SUPPORTED
	on          = abi.FEATURE_ENABLED
	off         = abi.FEATURE_DISABLED
	tdp         = uint32(abi.CLOCK_LIMIT_ID_TDP)
	unlimited   = uint32(abi.CLOCK_LIMIT_ID_UNLIMITED)
)

// TestSetters: what each setter answers, and what the GPU is after it.
func TestSetters(t *testing.T) {
	bit := func(numbers ...uint32) abi.Mask255_t { return MaskOf(numbers) }
	for _, c := range []struct {
		name string
		call func(t *Tx, i int) abi.Return
		want abi.Return
		read func(d *profiles.Device) any // after a success
		is   any
	}{
		{"persistence off", func(t *Tx, i int) abi.Return { return t.PersistenceMode(i, off) }, ok,
			func(d *profiles.Device) any { return bool(d.PersistenceMode.Value) }, false},
		{"persistence of a third kind", func(t *Tx, i int) abi.Return { return t.PersistenceMode(i, 2) }, invalid, nil, nil},
		{"compute mode", func(t *Tx, i int) abi.Return { return t.ComputeMode(i, abi.COMPUTEMODE_EXCLUSIVE_PROCESS) }, ok,
			func(d *profiles.Device) any { return d.ComputeMode.Value }, "exclusive_process"},
		{"no compute mode", func(t *Tx, i int) abi.Return { return t.ComputeMode(i, abi.COMPUTEMODE_COUNT) }, invalid, nil, nil},
		{"operation mode", func(t *Tx, i int) abi.Return { return t.OperationMode(i, abi.GOM_COMPUTE) }, ok,
			func(d *profiles.Device) any {
				return d.GPUOperationMode.Current.Value + d.GPUOperationMode.Pending.Value
			}, "all_oncompute"},
		{"no operation mode", func(t *Tx, i int) abi.Return { return t.OperationMode(i, 9) }, invalid, nil, nil},
		{"virtualization", func(t *Tx, i int) abi.Return { return t.VirtualizationMode(i, abi.GPU_VIRTUALIZATION_MODE_HOST_VGPU) }, ok,
			func(d *profiles.Device) any { return d.Virtualization.Mode.Value }, "host_vgpu"},
		{"passthrough", func(t *Tx, i int) abi.Return { return t.VirtualizationMode(i, abi.GPU_VIRTUALIZATION_MODE_PASSTHROUGH) },
			unsupported, nil, nil},
		{"no virtualization", func(t *Tx, i int) abi.Return { return t.VirtualizationMode(i, 9) }, invalid, nil, nil},
		{"accounting", func(t *Tx, i int) abi.Return { return t.AccountingMode(i, on) }, ok,
			func(d *profiles.Device) any { return bool(d.Accounting.Mode.Value) }, true},
		{"restriction", func(t *Tx, i int) abi.Return {
			return t.APIRestriction(i, abi.RESTRICTED_API_SET_APPLICATION_CLOCKS, off)
		}, ok,
			func(d *profiles.Device) any {
				only, _ := APIRestricted(d, abi.RESTRICTED_API_SET_APPLICATION_CLOCKS)
				return only
			}, false},
		{"auto boost restriction", func(t *Tx, i int) abi.Return {
			return t.APIRestriction(i, abi.RESTRICTED_API_SET_AUTO_BOOSTED_CLOCKS, on)
		}, ok,
			func(d *profiles.Device) any {
				only, _ := APIRestricted(d, abi.RESTRICTED_API_SET_AUTO_BOOSTED_CLOCKS)
				return only
			}, true},
		{"restriction of nothing", func(t *Tx, i int) abi.Return { return t.APIRestriction(i, abi.RESTRICTED_API_COUNT, on) }, invalid, nil, nil},

		{"power limit", func(t *Tx, i int) abi.Return { return t.PowerLimit(i, abi.POWER_SCOPE_GPU, 200_000) }, ok,
			func(d *profiles.Device) any {
				return [2]uint32{d.Power.RequestedLimitMW.Value, d.Power.EnforcedLimitMW.Value}
			},
			[2]uint32{200_000, 200_000}},
		{"power limit too low", func(t *Tx, i int) abi.Return { return t.PowerLimit(i, abi.POWER_SCOPE_GPU, 199_999) }, invalid, nil, nil},
		{"power limit too high", func(t *Tx, i int) abi.Return { return t.PowerLimit(i, abi.POWER_SCOPE_GPU, 700_001) }, invalid, nil, nil},
		{"module's power limit", func(t *Tx, i int) abi.Return { return t.PowerLimit(i, abi.POWER_SCOPE_MODULE, 800_000) }, ok,
			func(d *profiles.Device) any { return d.ModulePower.EnforcedLimitMW.Value }, uint32(800_000)},
		{"memory's power limit", func(t *Tx, i int) abi.Return { return t.PowerLimit(i, abi.POWER_SCOPE_MEMORY, 300_000) }, unsupported, nil, nil},
		{"power limit of nothing", func(t *Tx, i int) abi.Return { return t.PowerLimit(i, abi.POWER_SCOPE_COUNT, 300_000) }, invalid, nil, nil},
		{"smoothing", func(t *Tx, i int) abi.Return { return t.PowerSmoothing(i, on) }, ok,
			func(d *profiles.Device) any { return d.Power.Smoothing.Value }, "enabled"},
		{"smoothing profile", func(t *Tx, i int) abi.Return { return t.SmoothingProfile(i, 1) }, ok,
			func(d *profiles.Device) any { return d.PowerSmoothing.ActiveProfile.Value }, uint32(1)},
		{"no smoothing profile", func(t *Tx, i int) abi.Return { return t.SmoothingProfile(i, 2) }, invalid, nil, nil},
		{"smoothing floor", func(t *Tx, i int) abi.Return { return t.SmoothingParameter(i, 0, 0, 30.5) }, ok,
			func(d *profiles.Device) any { return fmt.Sprint(d.PowerSmoothing.Profiles) },
			"[{{30.5 true} {100 true} {0 false} {0 false} {0 false} {0 false} {0 false} {0 false}} {{50 true} {0 false} {0 false} {0 false} {0 false} {0 false} {0 false} {0 false}}]"},
		{"smoothing floor too low", func(t *Tx, i int) abi.Return { return t.SmoothingParameter(i, 0, 0, 9) }, invalid, nil, nil},
		{"smoothing ramp", func(t *Tx, i int) abi.Return { return t.SmoothingParameter(i, 1, 2, 7) }, ok,
			func(d *profiles.Device) any { return d.PowerSmoothing.Profiles[1].RampDownRate.Value }, 7.0},
		{"smoothing windows", func(t *Tx, i int) abi.Return { return t.SmoothingParameter(i, 1, 5, 7) }, ok,
			func(d *profiles.Device) any { return d.PowerSmoothing.Profiles[1].ActivationWindows.Value }, 7.0},
		{"no smoothing parameter", func(t *Tx, i int) abi.Return { return t.SmoothingParameter(i, 1, 8, 7) }, invalid, nil, nil},
		{"power profiles", func(t *Tx, i int) abi.Return {
			return t.PowerProfiles(i, abi.POWER_PROFILE_OPERATION_SET, bit(0, 1, 40))
		}, ok,
			func(d *profiles.Device) any {
				return [2]abi.Mask255_t{MaskOf(d.WorkloadPowerProfiles.Requested), EnforcedProfiles(d)}
			},
			[2]abi.Mask255_t{bit(0, 1, 40), bit(1, 40)}},
		{"unknown power profile", func(t *Tx, i int) abi.Return { return t.PowerProfiles(i, abi.POWER_PROFILE_OPERATION_SET, bit(2)) }, invalid, nil, nil},
		{"what with power profiles", func(t *Tx, i int) abi.Return { return t.PowerProfiles(i, abi.POWER_PROFILE_OPERATION_MAX, bit(1)) }, invalid, nil, nil},
		{"link threshold", func(t *Tx, i int) abi.Return { return t.NVLinkThreshold(i, 8191) }, ok,
			func(d *profiles.Device) any { return d.NVLinkLowPower.Threshold.Value }, uint32(8191)},
		{"link threshold too low", func(t *Tx, i int) abi.Return { return t.NVLinkThreshold(i, 0) }, invalid, nil, nil},
		{"link threshold as it was", func(t *Tx, i int) abi.Return { return t.NVLinkThreshold(i, abi.NVLINK_LOW_POWER_THRESHOLD_RESET) }, ok,
			func(d *profiles.Device) any { return d.NVLinkLowPower.Threshold.Value }, uint32(10)},

		{"lock", func(t *Tx, i int) abi.Return { return t.LockGPUClocks(i, 0, 1200) }, ok, locked, [2]uint32{345, 1200}},
		{"lock upside down", func(t *Tx, i int) abi.Return { return t.LockGPUClocks(i, 1500, 1200) }, invalid, nil, nil},
		{"lock too low", func(t *Tx, i int) abi.Return { return t.LockGPUClocks(i, 0, 344) }, invalid, nil, nil},
		{"lock too high", func(t *Tx, i int) abi.Return { return t.LockGPUClocks(i, 1981, 3000) }, invalid, nil, nil},
		{"lock to TDP", func(t *Tx, i int) abi.Return { return t.LockGPUClocks(i, tdp, tdp) }, ok, locked, [2]uint32{1980, 1980}},
		{"lock below TDP", func(t *Tx, i int) abi.Return { return t.LockGPUClocks(i, unlimited, tdp) }, ok, locked, [2]uint32{345, 1980}},
		{"no lock", func(t *Tx, i int) abi.Return { return t.LockGPUClocks(i, unlimited, unlimited) }, ok, locked, [2]uint32{}},
		{"lock to both", func(t *Tx, i int) abi.Return { return t.LockGPUClocks(i, 1200, tdp) }, invalid, nil, nil},
		{"lock to what", func(t *Tx, i int) abi.Return { return t.LockGPUClocks(i, 0xffffff00, 0xffffff00) }, invalid, nil, nil},
		{"lock memory", func(t *Tx, i int) abi.Return { return t.LockMemoryClocks(i, 1000, 2000) }, ok,
			func(d *profiles.Device) any {
				return simulate.New(d, simulate.SettingsOf(d), simulate.Start{}).At(0).MemoryMHz.Value
			}, uint32(1593)},
		{"lock memory to nothing", func(t *Tx, i int) abi.Return { return t.LockMemoryClocks(i, 2000, 2500) }, invalid, nil, nil},
		{"lock memory upside down", func(t *Tx, i int) abi.Return { return t.LockMemoryClocks(i, 2700, 1500) }, invalid, nil, nil},
		{"unlock", (*Tx).UnlockGPUClocks, ok, locked, [2]uint32{}},
		{"unlock memory", (*Tx).UnlockMemoryClocks, ok, nil, nil},
		{"applications clocks", func(t *Tx, i int) abi.Return { return t.ApplicationsClocks(i, 1593, 1500) }, ok,
			func(d *profiles.Device) any { return [2]uint32{d.Clocks.MemoryApp.Value, d.Clocks.GraphicsApp.Value} }, [2]uint32{1593, 1500}},
		{"applications clocks that no board has", func(t *Tx, i int) abi.Return { return t.ApplicationsClocks(i, 1593, 1501) }, invalid, nil, nil},
		{"applications clocks of no memory clock", func(t *Tx, i int) abi.Return { return t.ApplicationsClocks(i, 1594, 1500) }, invalid, nil, nil},
		{"applications clocks as they were", (*Tx).ResetApplicationsClocks, ok, nil, nil},
		{"auto boost", func(t *Tx, i int) abi.Return { return t.AutoBoost(i, off) }, ok,
			func(d *profiles.Device) any {
				return [2]bool{bool(d.Clocks.AutoBoost.Value), bool(d.Clocks.AutoBoostDefault.Value)}
			},
			[2]bool{false, true}},
		{"auto boost by default, while something computes", func(t *Tx, i int) abi.Return { return t.DefaultAutoBoost(i, off) }, ok,
			func(d *profiles.Device) any {
				return [2]bool{bool(d.Clocks.AutoBoost.Value), bool(d.Clocks.AutoBoostDefault.Value)}
			},
			[2]bool{true, false}},
		{"offset", func(t *Tx, i int) abi.Return { return t.ClockOffset(i, abi.CLOCK_GRAPHICS, -300) }, ok,
			func(d *profiles.Device) any { return d.ClockOffsets.GraphicsMHz.Value }, int32(-300)},
		{"memory offset", func(t *Tx, i int) abi.Return { return t.ClockOffset(i, abi.CLOCK_MEM, 1000) }, ok,
			func(d *profiles.Device) any { return d.ClockOffsets.MemoryMHz.Value }, int32(1000)},
		{"offset too high", func(t *Tx, i int) abi.Return { return t.ClockOffset(i, abi.CLOCK_GRAPHICS, 301) }, invalid, nil, nil},
		{"offset of video", func(t *Tx, i int) abi.Return { return t.ClockOffset(i, abi.CLOCK_VIDEO, 0) }, unsupported, nil, nil},
		{"offset of nothing", func(t *Tx, i int) abi.Return { return t.ClockOffset(i, abi.CLOCK_COUNT, 0) }, invalid, nil, nil},

		{"target temperature", func(t *Tx, i int) abi.Return {
			return t.TemperatureThreshold(i, abi.TEMPERATURE_THRESHOLD_ACOUSTIC_CURR, 90)
		}, ok, func(d *profiles.Device) any { return d.Thermal.TargetTemperatureC.Value }, int32(90)},
		{"target temperature too high", func(t *Tx, i int) abi.Return {
			return t.TemperatureThreshold(i, abi.TEMPERATURE_THRESHOLD_ACOUSTIC_CURR, 91)
		}, invalid, nil, nil},
		{"shutdown temperature", func(t *Tx, i int) abi.Return {
			return t.TemperatureThreshold(i, abi.TEMPERATURE_THRESHOLD_SHUTDOWN, 80)
		}, unsupported, nil, nil},
		{"fan", func(t *Tx, i int) abi.Return { return t.SetFanSpeed(i, 1, 100) }, ok, fans, "0 40, 1 100"},
		{"fan too slow", func(t *Tx, i int) abi.Return { return t.SetFanSpeed(i, 1, 29) }, invalid, nil, nil},
		{"fan too fast", func(t *Tx, i int) abi.Return { return t.SetFanSpeed(i, 1, 101) }, invalid, nil, nil},
		{"no fan", func(t *Tx, i int) abi.Return { return t.SetFanSpeed(i, 2, 50) }, invalid, nil, nil},
		{"fan policy", func(t *Tx, i int) abi.Return { return t.SetFanPolicy(i, 0, abi.FAN_POLICY_MANUAL) }, ok, fans, "1 40, 0 40"},
		{"no fan policy", func(t *Tx, i int) abi.Return { return t.SetFanPolicy(i, 0, 2) }, invalid, nil, nil},

		{"ECC mode", func(t *Tx, i int) abi.Return { return t.ECCMode(i, off) }, ok,
			func(d *profiles.Device) any {
				return [2]bool{bool(d.ECC.ModeCurrent.Value), bool(d.ECC.ModePending.Value)}
			}, [2]bool{true, false}},
		{"encryption", func(t *Tx, i int) abi.Return { return t.DRAMEncryption(i, on) }, ok,
			func(d *profiles.Device) any {
				return [2]bool{bool(d.Memory.EncryptionCurrent.Value), bool(d.Memory.EncryptionPending.Value)}
			},
			[2]bool{false, true}},
		{"volatile errors", func(t *Tx, i int) abi.Return { return t.ClearECC(i, abi.VOLATILE_ECC) }, ok, errors, "0 0 0 9 9 2 3"},
		{"aggregate errors", func(t *Tx, i int) abi.Return { return t.ClearECC(i, abi.AGGREGATE_ECC) }, ok, errors, "5 5 1 0 0 0 0"},
		{"other errors", func(t *Tx, i int) abi.Return { return t.ClearECC(i, abi.ECC_COUNTER_TYPE_COUNT) }, invalid, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := source(t)
			if c.want != ok {
				assert.Equal(t, c.want, c.call(Begin(s, now), 0))
			} else if s = after(t, s, func(tx *Tx) abi.Return { return c.call(tx, 0) }); c.read != nil {
				assert.Equal(t, c.is, c.read(device(t, s)))
			}
			poor := c.call(Begin(source(t), now), 1)
			assert.Contains(t, []abi.Return{unsupported, invalid}, poor, "a GPU that cannot do it")
			assert.True(t, c.want == invalid || poor == unsupported, "a GPU that cannot do it")
		})
	}
}

func locked(d *profiles.Device) any {
	return [2]uint32{d.Clocks.GraphicsLockedMin.Value, d.Clocks.GraphicsLockedMax.Value}
}

// fans are policy and speed of each fan.
func fans(d *profiles.Device) any {
	return fmt.Sprintf("%d %d, %d %d", FanPolicy(d, 0), FanSpeed(d, 0).Value, FanPolicy(d, 1), FanSpeed(d, 1).Value)
}

func errors(d *profiles.Device) any {
	v, a, s := d.ECC.Errors.Volatile.SingleBit, d.ECC.Errors.Aggregate.SingleBit, d.ECC.SRAM
	return fmt.Sprint(v.DeviceMemory.Value, v.Total.Value, s.Volatile.Correctable.Value, a.DeviceMemory.Value, a.Total.Value,
		s.Aggregate.Correctable.Value, s.UncorrectableSources.SM.Value)
}

// TestSettersShowInReadings: clocks, draw and the reasons for low clocks follow what was set.
func TestSettersShowInReadings(t *testing.T) {
	for _, c := range []struct {
		name     string
		call     func(t *Tx, i int) abi.Return
		graphics uint32
		memory   uint32
		power    uint32
		reasons  simulate.Reason
	}{
		{"nothing", func(*Tx, int) abi.Return { return ok }, 1800, 2619, 500_000, 0},
		{"power limit", func(t *Tx, i int) abi.Return { return t.PowerLimit(i, 0, 250_000) }, 900, 2619, 250_000, simulate.SWPowerCap},
		{"power limit that does not matter", func(t *Tx, i int) abi.Return { return t.PowerLimit(i, 0, 600_000) }, 1800, 2619, 500_000, 0},
		{"lock", func(t *Tx, i int) abi.Return { return t.LockGPUClocks(i, 900, 900) }, 900, 2619, 250_000, 0},
		{"lock above", func(t *Tx, i int) abi.Return { return t.LockGPUClocks(i, 1980, 1980) }, 1980, 2619, 500_000, 0},
		{"applications clocks", func(t *Tx, i int) abi.Return { return t.ApplicationsClocks(i, 1593, 900) }, 900, 1593, 250_000,
			simulate.ApplicationsClocksSetting},
		{"applications clocks under a lock", func(t *Tx, i int) abi.Return {
			return max(t.ApplicationsClocks(i, 2619, 900), t.LockGPUClocks(i, 1800, 1800))
		}, 1800, 2619, 500_000, 0},
		{"offset", func(t *Tx, i int) abi.Return { return t.ClockOffset(i, abi.CLOCK_GRAPHICS, 100) }, 1900, 2619, 500_000, 0},
		{"memory offset", func(t *Tx, i int) abi.Return { return t.ClockOffset(i, abi.CLOCK_MEM, 100) }, 1800, 2719, 500_000, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := device(t, after(t, source(t), func(tx *Tx) abi.Return { return c.call(tx, 0) }))
			r := simulate.New(d, simulate.SettingsOf(d), simulate.Start{}).At(0)
			assert.Equal(t, c.graphics, r.GraphicsMHz.Value)
			assert.Equal(t, c.graphics, r.SMMHz.Value)
			assert.Equal(t, c.memory, r.MemoryMHz.Value)
			assert.Equal(t, c.power, r.PowerMW.Value)
			assert.Equal(t, c.reasons, r.ReasonsInForce)
		})
	}
}

// TestSettersComeBack: what is set to the value that the board has leaves nothing in the state.
func TestSettersComeBack(t *testing.T) {
	s := after(t, source(t), func(tx *Tx) abi.Return {
		return max(tx.PowerLimit(0, 0, 300_000), tx.LockGPUClocks(0, 900, 900), tx.LockMemoryClocks(0, 1593, 1593), tx.SetFanSpeed(0, 0, 90),
			tx.ApplicationsClocks(0, 1593, 900), tx.PowerProfiles(0, abi.POWER_PROFILE_OPERATION_SET, MaskOf([]uint32{40})))
	})
	assert.NotEmpty(t, s.State.Device(s.Board.Devices[0].UUID).Set)
	s = after(t, s, func(tx *Tx) abi.Return {
		return max(tx.PowerLimit(0, 0, 700_000), tx.UnlockGPUClocks(0), tx.UnlockMemoryClocks(0),
			tx.SetFanPolicy(0, 0, abi.FAN_POLICY_TEMPERATURE_CONTINOUS_SW), tx.ResetApplicationsClocks(0))
	})
	assert.Equal(t, "[{map[workload_power_profiles.requested:[40]] 0 nvml}]", fmt.Sprint(s.State.Device(s.Board.Devices[0].UUID).Set))
	s = after(t, s, func(tx *Tx) abi.Return {
		return tx.PowerProfiles(0, abi.POWER_PROFILE_OPERATION_SET_AND_OVERWRITE, abi.Mask255_t{})
	})
	assert.Empty(t, device(t, s).WorkloadPowerProfiles.Requested)
}

// TestASetterIsTheLastWord: it takes the place of what nvmlfab set and faults made of the key, and not of other keys.
func TestASetterIsTheLastWord(t *testing.T) {
	s := after(t, source(t), func(tx *Tx) abi.Return {
		require.NoError(t, tx.Set(0, ByUser, 0, profiles.Settings{"compute_mode": "prohibited", "persistence_mode": "disabled"}))
		require.NoError(t, tx.Set(0, ByFault+"x", now+1000, profiles.Settings{"compute_mode": "exclusive_thread", "utilization.gpu": 99}))
		return tx.ComputeMode(0, abi.COMPUTEMODE_DEFAULT)
	})
	d := device(t, s)
	assert.Equal(t, "default", d.ComputeMode.Value)
	assert.False(t, bool(d.PersistenceMode.Value))
	assert.Equal(t, uint32(99), d.Utilization.GPU.Value)
}

// TestReset: a reset takes back what setters set, and makes pending modes the current ones.
func TestReset(t *testing.T) {
	s := after(t, source(t), func(tx *Tx) abi.Return {
		require.NoError(t, tx.Set(0, ByUser, 0, profiles.Settings{"utilization.gpu": 77, "processes": []any{map[string]any{"pid": 9}}}))
		tx.Record(0).Processes = []state.Process{{ID: "1", Keys: profiles.Settings{"pid": 8}}}
		return max(tx.PowerLimit(0, 0, 300_000), tx.ComputeMode(0, abi.COMPUTEMODE_PROHIBITED), tx.PersistenceMode(0, off),
			tx.ECCMode(0, off), tx.OperationMode(0, abi.GOM_COMPUTE), tx.LockGPUClocks(0, 900, 900), tx.DRAMEncryption(0, on),
			tx.ClearECC(0, abi.AGGREGATE_ECC), tx.AccountingMode(0, on))
	})
	s = after(t, s, func(tx *Tx) abi.Return { return tx.Reset(0) })
	d := device(t, s)
	assert.Equal(t, uint32(700_000), d.Power.EnforcedLimitMW.Value)
	assert.Equal(t, "default", d.ComputeMode.Value)
	assert.False(t, bool(d.Accounting.Mode.Value))
	assert.False(t, d.Clocks.GraphicsLockedMin.Valid)
	assert.False(t, bool(d.PersistenceMode.Value), "nvidia-smi restores it")
	assert.False(t, bool(d.ECC.ModeCurrent.Value))
	assert.True(t, bool(d.MIG.ModeCurrent.Value))
	assert.True(t, bool(d.Memory.EncryptionCurrent.Value))
	assert.Equal(t, "compute", d.GPUOperationMode.Current.Value)
	assert.Equal(t, "0 0 0 0 0 0 0", errors(d), "volatile errors are gone, and aggregate ones stay cleared")
	assert.Equal(t, "none", d.RecoveryAction.Value)
	assert.False(t, d.RemappedRows.Pending.Value || d.ECC.ChannelRepairPending.Value)
	assert.Equal(t, uint32(1), d.RemappedRows.Correctable.Value)
	assert.Equal(t, uint32(77), d.Utilization.GPU.Value, "what nvmlfab set stays")
	assert.Empty(t, d.Processes)

	var names []string
	for name, c := range s.State.Device(s.Board.Devices[0].UUID).Counters {
		assert.Equal(t, int64(now), c.Since)
		assert.Zero(t, c.Units)
		names = append(names, name)
	}
	assert.Contains(t, names, "energy")
	assert.Contains(t, names, "link_errors.1")
	again := after(t, s, func(tx *Tx) abi.Return { return tx.Reset(0) })
	assert.Equal(t, d, device(t, again), "another reset changes nothing")
	require.Equal(t, ok, Begin(source(t), now).Reset(1), "a GPU of which nothing is known")

	for kind, want := range map[string]abi.Return{"reset-required": ok, "row-remap-pending": ok, "ecc-uncorrectable": ok, "lost": abi.ERROR_GPU_IS_LOST} {
		tx := Begin(source(t), now)
		require.NoError(t, tx.Fail(0, "", 0, Fault{Kind: kind}))
		require.Equal(t, want, tx.Reset(0), kind)
		d, err := tx.Device(0)
		require.NoError(t, err)
		assert.Equal(t, want == ok, d.RecoveryAction.Value == "none" && !d.RemappedRows.Pending.Value && !d.Failure.Mode.Valid, kind)
	}
}

// TestLinkErrors: the errors of one link count from 0, and those of the others go on.
func TestLinkErrors(t *testing.T) {
	s := after(t, source(t), func(tx *Tx) abi.Return { return tx.ClearLinkErrors(0, 1) })
	r := s.State.Device(s.Board.Devices[0].UUID)
	assert.Equal(t, uint32(1), r.Counters["link_errors.1"].Resets)
	assert.NotContains(t, r.Counters, "link_errors.0")
	assert.Equal(t, invalid, Begin(s, now).ClearLinkErrors(0, 2))
}

// TestAccounting: clearing forgets processes that have ended, and so does switching off.
func TestAccounting(t *testing.T) {
	for name, call := range map[string]func(*Tx) abi.Return{
		"clear": func(tx *Tx) abi.Return { return tx.ClearAccounting(0) },
		"off":   func(tx *Tx) abi.Return { return tx.AccountingMode(0, off) },
	} {
		s := after(t, source(t), func(tx *Tx) abi.Return {
			tx.Record(0).Accounted = []state.Accounted{{PID: 5}}
			return tx.AccountingMode(0, on)
		})
		require.Len(t, s.State.Device(s.Board.Devices[0].UUID).Accounted, 1)
		s = after(t, s, call)
		assert.Empty(t, s.State.Device(s.Board.Devices[0].UUID).Accounted, name)
		assert.Equal(t, name == "clear", bool(device(t, s).Accounting.Mode.Value))
	}
	assert.Equal(t, unsupported, Begin(source(t), now).ClearAccounting(1))
}

// TestClockEvents: who waits for changes of clocks hears of locks.
func TestClockEvents(t *testing.T) {
	s := after(t, source(t), func(tx *Tx) abi.Return { return tx.LockGPUClocks(0, 900, 900) })
	require.Len(t, s.State.Events, 1)
	assert.Equal(t, uint64(abi.EventTypeClock), s.State.Events[0].Type)
	assert.Len(t, after(t, s, func(tx *Tx) abi.Return { return tx.ComputeMode(0, abi.COMPUTEMODE_PROHIBITED) }).State.Events, 1)
}

// TestPowerSourceEvent: who waits for changes of the power source hears of a battery.
func TestPowerSourceEvent(t *testing.T) {
	s := after(t, source(t), func(tx *Tx) abi.Return {
		require.NoError(t, tx.Set(0, ByUser, 0, profiles.Settings{"power.source": "battery", "power.current_draw_mw": 20000}))
		return ok
	})
	require.Len(t, s.State.Events, 1)
	assert.Equal(t, uint64(abi.EventTypePowerSourceChange), s.State.Events[0].Type)
}

// TestAccountingOfWhoEndsByItself: a process whose time is over is accounted, whether a change has written so or not, and
// can be forgotten.
func TestAccountingOfWhoEndsByItself(t *testing.T) {
	s := after(t, source(t), func(tx *Tx) abi.Return {
		p := state.Process{ID: "77", Keys: profiles.Settings{"pid": 77, "used_memory_mib": 3, "sm_util": 20}, Until: now + 500}
		require.Equal(t, ok, tx.AccountingMode(0, on))
		require.NoError(t, tx.AddProcess(0, p))
		return ok
	})
	want := []state.Accounted{{PID: 77, Started: now, Ended: now + 500, MaxMemoryBytes: 3 << 20, GPUPercent: 20}}
	for at, want := range map[int64][]state.Accounted{now + 499: nil, now + 500: want, now + 9000: want} {
		got, err := s.Accounted(0, at)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	later := func(call func(*Tx) abi.Return) Source {
		tx := Begin(s, now+1000)
		require.Equal(t, ok, call(tx))
		after := s
		var err error
		after.State, err = tx.Finish()
		require.NoError(t, err)
		return after
	}
	written := later(func(tx *Tx) abi.Return { return tx.ComputeMode(0, abi.COMPUTEMODE_PROHIBITED) })
	got, err := written.Accounted(0, now+9000)
	require.NoError(t, err)
	assert.Equal(t, want, got, "once")
	cleared := later(func(tx *Tx) abi.Return { return tx.ClearAccounting(0) })
	got, err = cleared.Accounted(0, now+9000)
	require.NoError(t, err)
	assert.Empty(t, got)
}
