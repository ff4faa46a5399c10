package profiles

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// vgpuBoard has vGPU types of different sizes, one of which is for GPU instances.
const vgpuBoard = `
count: 2
device_defaults:
  vgpu:
    types:
      - {id: 1, name: small, class: A, framebuffer_mib: 10, max_instances: 2, display_heads: 1, max_x: 1, max_y: 1,
         placement_size: 2, placement_ids: [0, 1]}
      - {id: 2, name: large, class: A, framebuffer_mib: 20, max_instances: 1, display_heads: 1, max_x: 1, max_y: 1}
      - {id: 3, name: part, class: A, framebuffer_mib: 5, max_instances: 7, display_heads: 1, max_x: 1, max_y: 1,
         gpu_instance_profile_id: 19}
devices:
  - index: 0
    vgpu:
`

// TestVGPUErrors: what cannot be true of vGPUs is an error with its line.
func TestVGPUErrors(t *testing.T) {
	first := "      instances:\n        - {id: 7, type: small, uuid: 11111111-2222-3333-4444-555555555555, vm_id: a%s}\n"
	second := "        - {id: 8, type: small, uuid: 21111111-2222-3333-4444-555555555555, vm_id: b%s}\n"
	for what, c := range map[string]struct{ text, want string }{
		"another type": {
			"      instances: [{id: 7, type: huge, uuid: 11111111-2222-3333-4444-555555555555, vm_id: a}]\n", `instances[0]: there is no type "huge"`,
		},
		"too many": {
			"      instances:\n" +
				"        - {id: 7, type: large, uuid: 11111111-2222-3333-4444-555555555555, vm_id: a}\n" +
				"        - {id: 8, type: large, uuid: 21111111-2222-3333-4444-555555555555, vm_id: b}\n", `instances[1]: the GPU has room for 1 of type "large"`,
		},
		"another size": {
			"      instances:\n" +
				"        - {id: 7, type: small, uuid: 11111111-2222-3333-4444-555555555555, vm_id: a}\n" +
				"        - {id: 8, type: large, uuid: 21111111-2222-3333-4444-555555555555, vm_id: b}\n",
			"instances[1]: it has another amount of memory than instances[0], and heterogeneous_mode is not enabled",
		},
		"one place": {
			"      heterogeneous_mode: enabled\n" + fmt.Sprintf(first, ", placement_id: 0") + fmt.Sprintf(second, ", placement_id: 1"),
			"instances[1]: its place is taken by instances[0]",
		},
		"no such place": {
			"      heterogeneous_mode: enabled\n" + fmt.Sprintf(first, ", placement_id: 3"), `instances[0]: type "small" has no placement 3 in this mode`,
		},
		"no GPU instance": {
			"      instances: [{id: 7, type: part, uuid: 11111111-2222-3333-4444-555555555555, vm_id: a}]\n",
			"instances[0]: gpu_instance_id is for types with a gpu_instance_profile_id, and for all of these",
		},
		"one id": {
			fmt.Sprintf(first, "") + "  - {index: 1, vgpu: {instances: [{id: 7, type: small, uuid: 31111111-2222-3333-4444-555555555555, vm_id: c}]}}\n",
			"devices[1].vgpu.instances: 7 is that of devices[0]",
		},
		"an expiry":       {"      licensing: {features: [{feature: vgpu, expiry: soon}]}\n", `bad expiry "soon"`},
		"a UUID":          {"      instances: [{id: 7, type: small, uuid: GPU-1, vm_id: a}]\n", `bad UUID "GPU-1"`},
		"types disagree":  {"      types: [{id: 2, name: other, class: A, framebuffer_mib: 20, max_instances: 1, display_heads: 1, max_x: 1, max_y: 1}]\n", "is another one than on devices[0]"},
		"four licensable": {"      licensing: {features: [{feature: vgpu}, {feature: vgpu}, {feature: vgpu}, {feature: vgpu}]}\n", "programs have room for 3"},
	} {
		path := filepath.Join(t.TempDir(), "p.yaml")
		require.NoError(t, os.WriteFile(path, []byte(vgpuBoard+c.text), 0o644))
		_, err := Load(path)
		assert.ErrorContains(t, err, c.want, what)
		assert.ErrorContains(t, err, "p.yaml:", what)
	}
}

// TestSettingOf: a part of a device, taken as a setting, gives the part again.
func TestSettingOf(t *testing.T) {
	b, err := Shipped("t4-vgpu-host")
	require.NoError(t, err)
	d := &b.Devices[0]
	text, err := json.Marshal(Settings{"vgpu.instances": SettingOf(d.VGPU.Instances)})
	require.NoError(t, err)
	var s Settings
	require.NoError(t, json.Unmarshal(text, &s))
	other := *d
	other.VGPU.Instances = nil
	again, err := other.With(s)
	require.NoError(t, err)
	assert.Equal(t, d.VGPU.Instances, again.VGPU.Instances)
}
