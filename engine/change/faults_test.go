package change_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// now is when the tests happen, in ms since 1970.
const now = 1_700_000_000_000

func source(t *testing.T, name string) change.Source {
	b, err := profiles.Shipped(name)
	require.NoError(t, err)
	return change.Source{Board: b, Overridden: b, Origin: now - 1_000_000}
}

// commit does a change to a source.
func commit(t *testing.T, s *change.Source, at int64, f func(*change.Tx) error) error {
	tx := change.Begin(*s, at)
	if err := f(tx); err != nil {
		return err
	}
	next, err := tx.Finish()
	require.NoError(t, err)
	s.State = next
	return nil
}

func device(t *testing.T, s *change.Source, i int, at int64) *profiles.Device {
	d, err := s.Device(i, at)
	require.NoError(t, err)
	return d
}

// xids are the numbers of the Xid errors that were sent.
func xids(s *change.Source) (list []uint64) {
	for _, e := range s.State.Events {
		if e.Type == abi.EventTypeXidCriticalError {
			list = append(list, e.Data)
		}
	}
	return list
}

// TestFaults: each kind changes the GPU, sends its Xid, and is gone without a trace when it is healed.
func TestFaults(t *testing.T) {
	wanted := map[string][]uint64{
		"lost": {79}, "fallen-off-bus": {79}, "ecc-uncorrectable": {48}, "sram-ecc": {94}, "row-remap-pending": {63},
		"row-remap-failure": {64}, "nvlink-error": {74}, "reset-required": {154}, "xid": {31},
	}
	for _, k := range change.Kinds() {
		if !k.GPU {
			continue
		}
		t.Run(k.Name, func(t *testing.T) {
			s := source(t, "gb200")
			was := *device(t, &s, 1, now)
			require.NoError(t, commit(t, &s, now, func(tx *change.Tx) error {
				f := change.Fault{Kind: k.Name}
				if k.Name == "xid" {
					f.Xid = 31
				}
				return tx.Fail(1, "", 0, f)
			}))
			assert.Equal(t, wanted[k.Name], xids(&s))
			is := *device(t, &s, 1, now)
			if k.Name == "xid" {
				assert.Equal(t, was, is)
				return
			}
			assert.NotEqual(t, was, is)
			assert.Equal(t, was.Index+1, device(t, &s, 2, now).Index, "another GPU")
			require.NoError(t, commit(t, &s, now+5, func(tx *change.Tx) error {
				healed, err := tx.Heal(1, k.Name)
				assert.Equal(t, []string{k.Name}, healed)
				return err
			}))
			assert.Equal(t, was, *device(t, &s, 1, now+5))
			assert.Equal(t, wanted[k.Name], xids(&s), "healing sends no Xid")
		})
	}
}

// TestFaultsAddUp: errors that are counted add up; what was set below a fault is there again when the fault is healed; and
// a fault of a time ends by itself.
func TestFaultsAddUp(t *testing.T) {
	s := source(t, "h100")
	fail := func(at, until int64, f change.Fault) {
		require.NoError(t, commit(t, &s, at, func(tx *change.Tx) error { return tx.Fail(0, "", until, f) }))
	}
	errors := func(at int64) uint64 {
		return device(t, &s, 0, at).ECC.Errors.Volatile.DoubleBit.DeviceMemory.Value
	}
	require.NoError(t, commit(t, &s, now, func(tx *change.Tx) error {
		return tx.Set(0, change.ByUser, 0, profiles.Settings{"ecc.errors.volatile.double_bit.device_memory": 5})
	}))
	fail(now+1, 0, change.Fault{Kind: "ecc-uncorrectable"})
	fail(now+2, 0, change.Fault{Kind: "ecc-uncorrectable", Count: 10})
	assert.EqualValues(t, 16, errors(now+2))
	assert.True(t, device(t, &s, 0, now+2).RemappedRows.Pending.Value)
	require.NoError(t, commit(t, &s, now+3, func(tx *change.Tx) error { _, err := tx.Heal(0, ""); return err }))
	assert.EqualValues(t, 5, errors(now+3))

	fail(now+4, now+100, change.Fault{Kind: "lost"})
	assert.True(t, device(t, &s, 0, now+99).Failure.Loses())
	assert.False(t, device(t, &s, 0, now+100).Failure.Loses())
}

// TestFaultsThatCannotBe: the board says what can fail.
func TestFaultsThatCannotBe(t *testing.T) {
	s := source(t, "t4")
	for want, f := range map[string]change.Fault{
		"the board has no NVLinks":                 {Kind: "nvlink-error"},
		"the board has no NVLink fabric":           {Kind: "fabric-no-partition"},
		"the board does not remap rows":            {Kind: "row-remap-failure"},
		`did you mean "lost"?`:                     {Kind: "lots"},
		"cannot wait for calls":                    {Kind: "ecc-correctable", AfterCalls: profiles.Some[int64](1)},
		"fault of the node":                        {Kind: "driver-not-loaded"},
		"xid wants the number":                     {Kind: "xid"},
		"failure.probability: 1.5 is outside 0..1": {Kind: "lost", Probability: profiles.Some(1.5)},
	} {
		err := commit(t, &s, now, func(tx *change.Tx) error { return tx.Fail(0, "", 0, f) })
		assert.ErrorContains(t, err, want)
	}
	require.NoError(t, commit(t, &s, now, func(tx *change.Tx) error {
		return tx.Set(0, change.ByUser, 0, profiles.Settings{"ecc.mode_current": false})
	}))
	err := commit(t, &s, now, func(tx *change.Tx) error { return tx.Fail(0, "", 0, change.Fault{Kind: "ecc-uncorrectable"}) })
	assert.ErrorContains(t, err, "ECC is off")
}

// TestNodeFaults: the last one decides what nvmlInit answers.
func TestNodeFaults(t *testing.T) {
	s := source(t, "h100")
	failure := func() string {
		b, err := s.Node(now)
		require.NoError(t, err)
		return b.System.InitFailure.Value
	}
	for _, k := range change.Kinds() {
		if k.Node {
			require.NoError(t, commit(t, &s, now, func(tx *change.Tx) error { return tx.Fail(-1, "", 0, change.Fault{Kind: k.Name}) }))
			assert.Equal(t, k.Name, dashed(failure()))
		}
	}
	require.NoError(t, commit(t, &s, now, func(tx *change.Tx) error { _, err := tx.Heal(-1, ""); return err }))
	assert.Empty(t, failure())
}

func dashed(word string) string {
	b := []byte(word)
	for i := range b {
		if b[i] == '_' {
			b[i] = '-'
		}
	}
	return string(b)
}

// TestProcesses: what is added uses memory on top of what the profile gives, up to what is free, and accounting remembers
// what has ended.
func TestProcesses(t *testing.T) {
	s := source(t, "h100")
	require.NoError(t, commit(t, &s, now, func(tx *change.Tx) error {
		return tx.Set(0, change.ByUser, 0, profiles.Settings{"memory.used_bytes": 1 << 30, "accounting.mode": true,
			"processes": []any{map[string]any{"pid": 1, "used_memory_mib": 5000}}})
	}))
	use := func() profiles.FrameBuffer {
		u, ok := device(t, &s, 0, now).MemoryUse()
		require.True(t, ok)
		return u
	}
	assert.EqualValues(t, 1<<30, use().Used, "what the profile gives stays")
	free := use().Free
	add := func(pid, mib int) error {
		return commit(t, &s, now, func(tx *change.Tx) error {
			return tx.AddProcess(0, state.Process{ID: "x", Keys: profiles.Settings{"pid": pid, "used_memory_mib": mib, "sm_util": 40}})
		})
	}
	require.NoError(t, add(7, 2048))
	assert.EqualValues(t, 3<<30, use().Used)
	assert.EqualValues(t, free-2<<30, use().Free)
	assert.ErrorContains(t, add(8, 1), `"x" already`)
	assert.ErrorContains(t, add(7, 80_000), "already")
	assert.ErrorContains(t, commit(t, &s, now, func(tx *change.Tx) error {
		return tx.AddProcess(0, state.Process{ID: "y", Keys: profiles.Settings{"pid": 9, "used_memory_mib": 80_000}})
	}), "MiB that are free")

	require.NoError(t, commit(t, &s, now+50, func(tx *change.Tx) error {
		n, err := tx.RemoveProcesses(0, func(state.Process) bool { return true })
		assert.Equal(t, 1, n)
		return err
	}))
	assert.EqualValues(t, 1<<30, use().Used)
	_, r := s.Records(0)
	require.Len(t, r.Accounted, 1)
	assert.Equal(t, state.Accounted{PID: 7, Started: now, Ended: now + 50, MaxMemoryBytes: 2048 << 20, GPUPercent: 40}, r.Accounted[0])
}

// TestScenarioEnds: ending one takes back its values, faults and processes, and nothing else.
func TestScenarioEnds(t *testing.T) {
	s := source(t, "h100")
	was := *device(t, &s, 0, now)
	by := change.ByScenario + "a"
	require.NoError(t, commit(t, &s, now, func(tx *change.Tx) error {
		for _, err := range []error{
			tx.Play(0, by, now+1000, profiles.Settings{"thermal.temperature_gpu_c": 80}),
			tx.Play(0, by, now+1000, profiles.Settings{"thermal.temperature_gpu_c": 90}),
			tx.Fail(0, by+":", now+1000, change.Fault{Kind: "ecc-correctable"}),
			tx.AddProcess(0, state.Process{ID: "p", By: by, Keys: profiles.Settings{"pid": 3}}),
			tx.Play(1, change.ByScenario+"ab", now+1000, profiles.Settings{"thermal.temperature_gpu_c": 70}),
		} {
			if err != nil {
				return err
			}
		}
		return nil
	}))
	_, r := s.Records(0)
	assert.Len(t, r.Set, 2, "a later step takes the place of an earlier one")
	assert.EqualValues(t, 90, device(t, &s, 0, now).Thermal.TemperatureGPUC.Value)
	require.NoError(t, commit(t, &s, now+1, func(tx *change.Tx) error {
		for i := range tx.Devices() {
			if _, err := tx.EndScenario(i, "a"); err != nil {
				return err
			}
		}
		return nil
	}))
	assert.Equal(t, was, *device(t, &s, 0, now+1))
	assert.EqualValues(t, 70, device(t, &s, 1, now+1).Thermal.TemperatureGPUC.Value, "another scenario")
}

// TestXidOfAProfile: setting failure.xid sends the event, once.
func TestXidOfAProfile(t *testing.T) {
	s := source(t, "h100")
	set := func(keys profiles.Settings) {
		require.NoError(t, commit(t, &s, now, func(tx *change.Tx) error { return tx.Set(0, change.ByUser, 0, keys) }))
	}
	set(profiles.Settings{"failure.mode": "lost", "failure.xid.code": 62})
	set(profiles.Settings{"thermal.temperature_gpu_c": 40})
	assert.Equal(t, []uint64{62}, xids(&s))
	set(profiles.Settings{"failure.xid.code": 63, "failure.after_calls": 10})
	assert.Equal(t, []uint64{62}, xids(&s), "a fault that waits for calls sends none")
	assert.False(t, slices.Contains(xids(&s), 63))
}
