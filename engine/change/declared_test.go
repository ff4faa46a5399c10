package change

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

const dividedProfile = `extends: a100-sxm4-40gb
count: 2
devices:
  - mig:
      mode_current: enabled
      mode_pending: enabled
      instances:
        - {profile: 3g.20gb}
        - {profile: 2g.10gb, start: 2, compute: [1c.2g.10gb, 1c.2g.10gb]}
        - {profile: 1g.5gb, start: 1, no_compute: true}
`

// TestDeclared: instances of the profile are there without a state, keep their serials when something changes, and can be
// destroyed for good.
func TestDeclared(t *testing.T) {
	board, err := profiles.Parse("x.yaml", []byte(dividedProfile))
	require.NoError(t, err)
	source := Source{Board: board, Overridden: board}
	want := []state.Instance{
		{ID: 2, Serial: 1, Profile: 9, Start: 4, Parts: []state.Part{{ID: 0, Serial: 2, Profile: 2}}},
		{ID: 4, Serial: 3, Profile: 14, Start: 2, Parts: []state.Part{{ID: 0, Serial: 4}, {ID: 1, Serial: 5, Start: 1}}},
		{ID: 8, Serial: 6, Profile: 19, Start: 1},
	}
	assert.Equal(t, want, source.Partitioning(0).Instances)
	assert.Empty(t, source.Partitioning(1).Instances)

	now := int64(1_000_000_000_000)
	do := func(f func(tx *Tx) abi.Return) {
		tx := Begin(source, now)
		require.EqualValues(t, abi.SUCCESS, f(tx))
		source.State, err = tx.Finish()
		require.NoError(t, err)
		now++
	}
	do(func(tx *Tx) abi.Return { return tx.PersistenceMode(1, abi.FEATURE_DISABLED) })
	assert.Equal(t, want, source.Partitioning(0).Instances, "another GPU has changed")
	do(func(tx *Tx) abi.Return { return tx.DestroyGPUInstance(0, 6) })
	assert.Equal(t, want[:2], source.Partitioning(0).Instances)
	do(func(tx *Tx) abi.Return {
		made, ret := tx.CreateGPUInstance(0, 19, nil)
		assert.Greater(t, made.Serial, uint64(declaredSerials))
		assert.EqualValues(t, 0, made.GPU)
		return ret
	})
	do(func(tx *Tx) abi.Return { return tx.MigMode(0, abi.FEATURE_DISABLED) })
	do(func(tx *Tx) abi.Return { return tx.MigMode(0, abi.FEATURE_ENABLED) })
	assert.Empty(t, source.Partitioning(0).Instances)
}

// TestModeByKey: instances vanish however the mode is switched off.
func TestModeByKey(t *testing.T) {
	board, err := profiles.Parse("x.yaml", []byte(dividedProfile))
	require.NoError(t, err)
	tx := Begin(Source{Board: board, Overridden: board}, 1)
	require.NoError(t, tx.Set(0, ByUser, 0, profiles.Settings{"mig.mode_current": "disabled"}))
	s, err := tx.Finish()
	require.NoError(t, err)
	assert.Empty(t, s.Device(board.Devices[0].UUID).Instances)
	assert.EqualValues(t, abi.EventMigConfigChange, s.Events[len(s.Events)-1].Type)
}

// TestDeclaredMistakes: what a GPU cannot have is refused with file and line.
func TestDeclaredMistakes(t *testing.T) {
	const head = "extends: a100-sxm4-40gb\ndevice_defaults:\n  mig:\n    mode_current: enabled\n    instances:\n"
	for text, want := range map[string]string{
		head + "      - {profile: 3g.20gb}\n      - {profile: 3g.40gb}\n":                        `x.yaml:7: devices[0].mig.instances[1]: there is no MIG profile "3g.40gb": want 1g.5gb, `,
		head + "      - {profile: 3g.20gb, start: 2}\n":                                          `x.yaml:6: devices[0].mig.instances[0]: 3g.20gb cannot start at 2: want 0, 4`,
		head + "      - {profile: 4g.20gb}\n      - {profile: 2g.10gb, start: 0}\n":              `x.yaml:7: devices[0].mig.instances[1]: there is no room for 2g.10gb at 0`,
		head + "      - {profile: 7g.40gb}\n      - {profile: 1g.5gb}\n":                         `x.yaml:7: devices[0].mig.instances[1]: there is no room for 1g.5gb`,
		head + "      - {profile: 2g.10gb, compute: [1c.2g.10gb, 2g.10gb]}\n":                    `x.yaml:6: devices[0].mig.instances[0]: there is no room for a compute instance 2g.10gb`,
		head + "      - {profile: 2g.10gb, compute: [3c.2g.10gb]}\n":                             `2g.10gb has no compute instance "3c.2g.10gb": want 1c.2g.10gb, 2g.10gb, or an id`,
		head + "      - {profile: 2g.10gb, compute: [2g.10gb], no_compute: true}\n":              `compute and no_compute: keep one`,
		head + "      - {start: 2}\n":                                                            `profile is missing`,
		"extends: a100-sxm4-40gb\ndevice_defaults: {mig: {instances: [{profile: 1g.5gb}]}}\n":    `x.yaml:2: devices[0].mig.instances: the GPU is not in MIG mode: give mode_current: enabled`,
		"extends: t4\ndevice_defaults: {mig: {mode_current: true, instances: [{profile: x}]}}\n": `the profile has no table of MIG profiles`,
	} {
		_, err := profiles.Parse("x.yaml", []byte(text))
		assert.ErrorContains(t, err, want)
	}
}

// TestDeclaredOverrides: overrides.yaml cannot change what there is from the start.
func TestDeclaredOverrides(t *testing.T) {
	base := profiles.Base{Name: "x.yaml", Text: []byte(dividedProfile)}
	board, err := base.With()
	require.NoError(t, err)
	s := Source{Board: board}
	assert.NoError(t, s.Override(base, "device_defaults: {thermal: {temperature_gpu_c: 77}}\n", 1))
	err = s.Override(base, "devices: [{mig: {instances: [{profile: 1g.5gb}]}}]\n", 1)
	assert.ErrorContains(t, err, "devices[0].mig.instances are those from the start")
}
