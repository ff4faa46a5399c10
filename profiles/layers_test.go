package profiles

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const layered = `extends: h100
count: 4
system: {driver_version: "550.163.01"}
device_defaults: {persistence_mode: disabled}
devices:
  - {index: 1, name: Hot One, serial: "77", thermal: {temperature_gpu_c: 88}}
nvlink:
  links: [{link: 0, remote_index: 1}, {link: 1, remote_index: 3}]
  device_links: [{index: 1, links: [{link: 0, remote_index: 0}]}, {index: 3, links: [{link: 1, remote_index: 0}]}]
`

// TestLayers: flags change a board without changing the text of its file.
func TestLayers(t *testing.T) {
	base := Base{Name: "mine.yaml", Text: []byte(layered)}
	plain, err := base.With()
	require.NoError(t, err)
	b, err := base.With(GPUs("--gpus", 2), Driver("--driver", "535.1"))
	require.NoError(t, err)
	assert.Equal(t, "mine", b.Name)
	require.Len(t, b.Devices, 2)
	assert.Equal(t, plain.Devices[:2], b.Devices)
	assert.Equal(t, "13.535.1", b.System.NVMLVersion.Value, "follows the driver")

	b, err = base.With(GPUs("--gpus", 6))
	require.NoError(t, err)
	require.Len(t, b.Devices, 6)
	assert.Equal(t, plain.Devices, b.Devices[:4])
	assert.Equal(t, "NVIDIA H100 80GB HBM3", b.Devices[5].Name.Value)
	assert.Equal(t, Enabled(false), b.Devices[5].PersistenceMode.Value, "device_defaults hold for more GPUs")

	b, err = Base{Name: "own.yaml", Text: []byte("device_defaults: {name: A}\ndevices: [{name: B}]\n")}.With(GPUs("--gpus", 2))
	require.NoError(t, err)
	assert.Equal(t, "A", b.Devices[1].Name.Value, "more GPUs are like device_defaults, not like the first GPU")
}

// TestOnly: the GPUs that remain get new indices and keep their identities and links.
func TestOnly(t *testing.T) {
	base := Base{Name: "mine.yaml", Text: []byte(layered)}
	all, err := base.With()
	require.NoError(t, err)
	only := Only("a container", []UUID{all.Devices[3].UUID, all.Devices[1].UUID})
	b, err := base.With(only)
	require.NoError(t, err)
	require.Len(t, b.Devices, 2)
	for i, from := range []int{3, 1} {
		want := all.Devices[from]
		want.Index = uint32(i)
		assert.Equal(t, want, b.Devices[i])
	}
	gone := Link{Link: 1, RemotePCIBusID: all.Devices[0].PCI.BusID, RemoteDeviceType: Some("gpu")}
	assert.Empty(t, b.NVLink.Links)
	assert.Equal(t, []DeviceLinks{
		{1, []Link{{Link: 0, RemotePCIBusID: gone.RemotePCIBusID, RemoteDeviceType: gone.RemoteDeviceType}}}, {0, []Link{gone}},
	}, b.NVLink.DeviceLinks)

	b, err = base.With(Only("a container", []UUID{all.Devices[2].UUID, all.Devices[0].UUID, all.Devices[1].UUID}))
	require.NoError(t, err)
	assert.Equal(t, []DeviceLinks{
		{2, []Link{{Link: 0, RemoteIndex: Some(uint32(1))}}},
		{1, []Link{{Link: 0, RemoteIndex: Some(uint32(2))}, {Link: 1, RemotePCIBusID: all.Devices[3].PCI.BusID, RemoteDeviceType: Some("gpu")}}},
	}, b.NVLink.DeviceLinks)
	assert.Len(t, all.NVLink.Links, 2, "the base is as it was")
	assert.Equal(t, Some(uint32(1)), all.NVLink.Links[0].RemoteIndex)
}

// TestMoreAfterOnly: GPUs that are added after "only" get identities that no other GPU has.
func TestMoreAfterOnly(t *testing.T) {
	for _, board := range []string{"h100", "t4"} {
		b, err := Base{Name: "x.yaml", Text: []byte("extends: " + board + "\ncount: 8\nonly: [7, 2, 5]\n")}.With(GPUs("--gpus", 9))
		require.NoError(t, err)
		minors := map[uint32]bool{}
		for _, d := range b.Devices {
			minors[d.MinorNumber.Value] = true
		}
		assert.Len(t, minors, 9)
	}
}

// TestFile: the one file means the same as the base and its layers.
func TestFile(t *testing.T) {
	for name, base := range map[string]Base{
		"a file": {"mine.yaml", []byte(layered)}, "no newline at the end": {"mine.yaml", []byte("count: 3")}, "a board": {Name: "gb200"},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := base.With()
			require.NoError(t, err)
			layers := []Layer{Driver("--driver", "595.1"), GPUs("--gpus", 3), Only("some", []UUID{all.Devices[2].UUID, all.Devices[0].UUID})}
			want, err := base.With(layers...)
			require.NoError(t, err)
			have, err := Parse(base.Name, base.File(layers...))
			require.NoError(t, err)
			assert.Equal(t, want, have)
		})
	}
}

// TestLayerErrors: errors name the wrong file and line, or the wrong flag.
func TestLayerErrors(t *testing.T) {
	base := Base{Name: "h100"}
	for _, c := range []struct {
		layer Layer
		want  string
	}{
		{Driver("--driver", "new"), `--driver: system.driver_version: "new" is no version: want numbers between dots`},
		{GPUs("--gpus", 10_001), `--gpus: count: 10001 is outside 1..10000`},
		{Only("the container's GPUs", []UUID{"GPU-00000000-0000-0000-0000-000000000001"}),
			`the container's GPUs: only[0]: there is no device GPU-00000000-0000-0000-0000-000000000001`},
		{Layer{Name: "overrides.yaml", Text: []byte("\ndevices:\n  - {index: 9}\n")},
			`overrides.yaml:3: devices[0]: index 9 is outside 0..7: number the entries from 0, or give a higher count`},
	} {
		_, err := base.With(c.layer)
		assert.EqualError(t, err, c.want)
	}
	_, err := Base{Name: "x.yaml", Text: []byte("count: 0\n")}.With()
	assert.EqualError(t, err, "x.yaml:1: count: 0 is outside 1..10000")
}
