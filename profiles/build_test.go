package profiles

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func mustParse(t *testing.T, yaml string) *Board {
	t.Helper()
	b, err := Parse("p.yaml", []byte(yaml))
	require.NoError(t, err)
	return b
}

// TestPublishedKeys: a file written for NVIDIA's mock loads without changes.
func TestPublishedKeys(t *testing.T) {
	b, err := Load("testdata/published-keys.yaml")
	require.NoError(t, err)
	assert.Equal(t, "published-keys", b.Name)
	assert.Equal(t, "555.11.22", b.System.DriverVersion.Value)
	require.Len(t, b.Devices, 3, "num_devices")

	d := b.Devices[0]
	assert.Equal(t, UUID("GPU-0a000000-0000-0000-0000-000000000000"), d.UUID)
	assert.Equal(t, Some("0700000000111"), d.Serial)
	assert.Equal(t, Some("ada"), d.Architecture)
	assert.Equal(t, Some(BusID{Bus: 0x0b}), d.PCI.BusID)
	assert.Equal(t, Some[uint32](0x123410de), d.PCI.DeviceID)
	assert.Equal(t, Some[PState](8), d.PerformanceState)
	assert.Equal(t, Some[Percent](30), d.Fan.SpeedPercent)
	assert.Equal(t, Some[Percent](35), d.Fan.TargetSpeedPercent)
	assert.False(t, d.InfoROM.PWRObject.Valid, "N/A")
	assert.Equal(t, []Address{0x1000, 0x2000}, d.RetiredPages.SingleBitRetirement.Addresses)
	assert.Equal(t, Some("auto"), d.Fabric.State)
	assert.Equal(t, byte(0xef), d.Fabric.ClusterUUID.Value[15])
	assert.Equal(t, Some("switch_connected"), d.Platform.PeerType)
	assert.Empty(t, d.Processes, "an empty list replaces that of the defaults")

	d = b.Devices[1]
	assert.Equal(t, Some("0700000000901"), d.Serial, "the default serial, counted up")
	assert.Equal(t, Some(BusID{Domain: 1, Bus: 0x0c}), d.PCI.BusID)
	assert.Equal(t, Some[uint32](0x123410de), d.PCI.DeviceID)
	assert.Equal(t, Memory{
		TotalBytes: Some[uint64](1 << 30), ReservedBytes: Some[uint64](1 << 20), FreeBytes: Some[uint64](1072693248), UsedBytes: Some[uint64](4096),
		MemoryBusWidth: Some[uint32](256),
	}, d.Memory)
	assert.Equal(t, []Process{{
		PID: 4242, Type: Some("C"), Name: Some("/usr/bin/train"), UsedMemoryMiB: Some[uint64](100),
		SMUtil: Some[uint32](10), MemUtil: Some[uint32](20), EncUtil: Some[uint32](30), DecUtil: Some[uint32](40),
	}}, d.Processes)

	assert.Equal(t, []Link{{State: Some("active"), RemoteDeviceType: Some("gpu"), RemotePCIBusID: Some(BusID{Domain: 1, Bus: 0x0c})}}, b.NVLink.Links)
	assert.Equal(t, []Link{{Link: 1, State: Some("inactive"), RemoteDeviceType: Some("switch"), RemoteIndex: Some[uint32](0)}}, b.NVLink.DeviceLinks[0].Links)
	assert.Equal(t, CPUSet{0, 1, 2, 3, 6}, b.Topology.RootComplexes[0].CPUAffinity)
	assert.Equal(t, Some[uint32](2), b.InfiniBand.HCACount)
}

func TestAbsentIsNotZero(t *testing.T) {
	b := mustParse(t, "count: 1\ndevice_defaults:\n  memory: {total_bytes: 0, used_bytes: N/A, reserved_bytes: null, free_bytes: ~}\n")
	assert.Equal(t, Memory{TotalBytes: Some[uint64](0)}, b.Devices[0].Memory)
	_, ok := b.Devices[0].Memory.UsedBytes.Get()
	assert.False(t, ok)
	assert.Equal(t, uint64(7), b.Devices[0].Memory.UsedBytes.Or(7))
	assert.Equal(t, uint64(0), b.Devices[0].Memory.TotalBytes.Or(7))
}

func TestCount(t *testing.T) {
	for _, n := range []int{1, 9, 64, 1000} {
		b := mustParse(t, fmt.Sprintf("extends: h100\ncount: %d\n", n))
		require.Len(t, b.Devices, n)
		uuids, serials, buses, minors := map[UUID]bool{}, map[string]bool{}, map[BusID]bool{}, map[uint32]bool{}
		for i, d := range b.Devices {
			assert.EqualValues(t, i, d.Index)
			assert.True(t, uuidDigits(strings.TrimPrefix(string(d.UUID), "GPU-")), d.UUID)
			assert.True(t, d.PDI.Valid)
			assert.NotZero(t, d.PCI.BusID.Value.Bus, "board ids are never 0")
			uuids[d.UUID], serials[d.Serial.Value], buses[d.PCI.BusID.Value], minors[d.MinorNumber.Value] = true, true, true, true
		}
		assert.Len(t, uuids, n)
		assert.Len(t, serials, n)
		assert.Len(t, buses, n)
		assert.Len(t, minors, n)
	}
}

func TestGeneratedIdentityStays(t *testing.T) {
	one, two := mustParse(t, "count: 2\ndevice_defaults: {name: X}\n"), mustParse(t, "count: 3\ndevice_defaults: {name: X}\n")
	assert.Equal(t, one.Devices, two.Devices[:2])
	assert.Equal(t, UUID("GPU-c6a06b8e-6565-8a53-a851-fb95d1ee110f"), one.Devices[1].UUID)
	assert.False(t, one.Devices[0].Serial.Valid, "a board without serial numbers gets none")
}

func TestExtends(t *testing.T) {
	h100, err := Shipped("h100")
	require.NoError(t, err)

	b := mustParse(t, "extends: h100\n")
	b.Name = h100.Name
	assert.Equal(t, h100, b)

	b = mustParse(t, `
extends: h100
system: {driver_version: "1.2.3"}
device_defaults:
  thermal: {temperature_gpu_c: 50}
  ecc: N/A
devices:
  - index: 1
    name: Another
    supported_clocks: {memory_clocks: []}
  - index: 9
    thermal: {temperature_gpu_c: 60}
count: 10
`)
	assert.Equal(t, "1.2.3", b.System.DriverVersion.Value)
	assert.Equal(t, h100.System.CUDAVersion, b.System.CUDAVersion)
	assert.Equal(t, h100.NVLink, b.NVLink)
	require.Len(t, b.Devices, 10)
	for i, d := range b.Devices {
		want := int32(50)
		if i == 9 {
			want = 60
		}
		assert.Equal(t, want, d.Thermal.TemperatureGPUC.Value)
		assert.Zero(t, d.ECC)
		assert.Equal(t, h100.Devices[0].Memory, d.Memory)
	}
	assert.Equal(t, h100.Devices[7].UUID, b.Devices[7].UUID)
	assert.Equal(t, "Another", b.Devices[1].Name.Value)
	assert.Empty(t, b.Devices[1].SupportedClocks.MemoryClocks)
	assert.NotEmpty(t, b.Devices[0].SupportedClocks.MemoryClocks)

	again, err := Shipped("h100")
	require.NoError(t, err)
	assert.Equal(t, h100, again, "a board that extends another leaves it alone")
}

func TestFewerThanTheBase(t *testing.T) {
	b := mustParse(t, "extends: h100\ncount: 2\n")
	h100, _ := Shipped("h100")
	assert.Equal(t, h100.Devices[:2], b.Devices)
}

func TestNumDevicesDropsEntries(t *testing.T) {
	b := mustParse(t, "system: {num_devices: 1}\ndevices:\n  - minor_number: 4\n  - minor_number: 5\n")
	require.Len(t, b.Devices, 1)
	assert.Equal(t, Some[uint32](4), b.Devices[0].MinorNumber)
}

func TestEntriesInAnyOrder(t *testing.T) {
	b := mustParse(t, "devices:\n  - {index: 1, name: B}\n  - {index: 0, name: A}\n")
	assert.Equal(t, "A", b.Devices[0].Name.Value)
	assert.Equal(t, "B", b.Devices[1].Name.Value)
}

func TestGeneratedBusIDsAvoidGivenOnes(t *testing.T) {
	b := mustParse(t, "count: 3\ndevices:\n  - index: 2\n    pci: {bus_id: \"0000:01:00.0\"}\n")
	assert.Equal(t, BusID{Bus: 2}, b.Devices[0].PCI.BusID.Value)
	assert.Equal(t, BusID{Bus: 3}, b.Devices[1].PCI.BusID.Value)
}

func TestAnchorsAndMergeKeys(t *testing.T) {
	b := mustParse(t, `
devices:
  - &a {name: A, utilization: {gpu: 1, memory: 2}}
  - {<<: *a, utilization: {gpu: 3}}
  - {<<: [{brand: tesla}, *a], name: C}
`)
	assert.Equal(t, "A", b.Devices[1].Name.Value)
	assert.Equal(t, Utilization{GPU: Some[uint32](3)}, b.Devices[1].Utilization, "a merged key gives way as a whole")
	assert.Equal(t, "C", b.Devices[2].Name.Value)
	assert.Equal(t, "tesla", b.Devices[2].Brand.Value)
	assert.Equal(t, Some[uint32](2), b.Devices[2].Utilization.Memory)
}

func TestFabricIsCompleteWhenNothingElseIsSaid(t *testing.T) {
	b := mustParse(t, "count: 2\ndevices:\n  - fabric: {clique_id: 3}\n")
	assert.Equal(t, Some("completed"), b.Devices[0].Fabric.State)
	assert.Zero(t, b.Devices[1].Fabric)
}

func TestCUDAVersion(t *testing.T) {
	s := mustParse(t, "count: 1\nsystem: {cuda_version: \"12.8\"}\n").System
	assert.Equal(t, [2]Opt[uint32]{Some[uint32](12), Some[uint32](8)}, [2]Opt[uint32]{s.CUDAVersionMajor, s.CUDAVersionMinor})
	s = mustParse(t, "count: 1\nsystem: {cuda_version: \"12.8\", cuda_version_minor: 4}\n").System
	assert.Equal(t, Some[uint32](4), s.CUDAVersionMinor)
}

func TestWordsHaveManySpellings(t *testing.T) {
	for _, word := range []string{"Pass-Through", "pass through", "passthrough", "PASS_THROUGH"} {
		b := mustParse(t, "count: 1\ndevice_defaults: {virtualization: {mode: "+word+"}}\n")
		assert.Equal(t, Some("passthrough"), b.Devices[0].Virtualization.Mode)
	}
}

func TestBusID(t *testing.T) {
	for text, want := range map[string]BusID{
		"0000:53:00.0":     {Bus: 0x53},
		"00000000:53:00.0": {Bus: 0x53},
		"53:00.0":          {Bus: 0x53},
		"00010002:ca:1f.7": {Domain: 0x10002, Bus: 0xca, Device: 0x1f, Function: 7},
	} {
		var b BusID
		require.NoError(t, b.UnmarshalText([]byte(text)))
		assert.Equal(t, want, b)
	}
	b := BusID{Domain: 0x10002, Bus: 0xca, Device: 0x1f, Function: 7}
	assert.Equal(t, "00010002:CA:1F.7", b.String())
	assert.Equal(t, "0002:CA:1F.7", b.Legacy())
}

func TestCPUSet(t *testing.T) {
	var c CPUSet
	require.NoError(t, c.UnmarshalText([]byte("4, 0-2,2,1")))
	assert.Equal(t, CPUSet{0, 1, 2, 4}, c)
	for _, bad := range []string{"", "-", "1-", "3-1", "0x1", "8192", "a"} {
		assert.Error(t, c.UnmarshalText([]byte(bad)), bad)
	}
}

func TestClockSteps(t *testing.T) {
	for text, want := range map[string]ClockSteps{
		"1410..1380/15":    {1410, 1395, 1380},
		"405..405/1":       {405},
		"2062.5..2040/7.5": {2062, 2055, 2047, 2040},
		"100..10/90":       {100, 10},
	} {
		var c ClockSteps
		require.NoError(t, c.UnmarshalText([]byte(text)))
		assert.Equal(t, want, c)
	}
	for _, bad := range []string{
		"", "1410", "1410..210", "1410..210/0", "1410..210/0.5", "1410..210/7", "210..1410/15", "1410..0/15", "-1410..210/15",
		"01410..210/15", "1410.25..210/15", "1410 .. 210 / 15", "1410..210/15,5", "999999..1/1", "1410.210/15",
	} {
		var c ClockSteps
		assert.Error(t, c.UnmarshalText([]byte(bad)), bad)
		assert.Nil(t, c)
	}
	list := mustParse(t, "count: 1\ndevice_defaults: {supported_clocks: {memory_clocks: [{freq_mhz: 9, graphics_clocks: [1410, 1395, 1380]}]}}\n")
	steps := mustParse(t, "count: 1\ndevice_defaults: {supported_clocks: {memory_clocks: [{freq_mhz: 9, graphics_clocks: 1410..1380/15}]}}\n")
	assert.Equal(t, list.Devices, steps.Devices)
}

func TestPlus(t *testing.T) {
	for _, c := range []struct {
		serial string
		n      int
		want   string
	}{{"0999", 1, "1000"}, {"A12", 3, "A15"}, {"", 3, ""}, {"none", 3, "none"}, {"0001", 0, "0001"}, {strings.Repeat("9", 40), 1, strings.Repeat("9", 40)}} {
		assert.Equal(t, c.want, plus(c.serial, c.n))
	}
}

func BenchmarkParse(b *testing.B) {
	published, err := os.ReadFile("testdata/published-keys.yaml")
	require.NoError(b, err)
	h100, err := Source("h100")
	require.NoError(b, err)
	var thousand bytes.Buffer
	thousand.WriteString("device_defaults: {name: X}\ndevices:\n")
	for i := range 1000 {
		fmt.Fprintf(&thousand, "  - {index: %d, pci: {bus_id: \"%04x:01:00.0\"}}\n", i, i)
	}
	for _, c := range []struct {
		name string
		data []byte
	}{
		{fmt.Sprintf("h100, %d lines", bytes.Count(h100, []byte("\n"))), h100},
		{fmt.Sprintf("published keys, %d lines", bytes.Count(published, []byte("\n"))), published},
		{"count 1000", []byte("extends: h100\ncount: 1000\n")},
		{"1000 entries", thousand.Bytes()},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Parse("p.yaml", c.data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkShipped(b *testing.B) {
	for b.Loop() {
		if _, err := Shipped(Default); err != nil {
			b.Fatal(err)
		}
	}
}

func TestVersionsFollowTheDriver(t *testing.T) {
	h100, err := Shipped("h100")
	require.NoError(t, err)
	for text, want := range map[string][3]any{
		"":                                     {uint32(13), uint32(0), h100.System.NVMLVersion.Value},
		"system: {driver_version: 550.163.01}": {uint32(13), uint32(0), "13.550.163.01"},
		"system: {driver_version: 550.163.01, cuda_version: '12.4'}":                         {uint32(12), uint32(4), "12.550.163.01"},
		"system: {driver_version: 550.163.01, cuda_version: '12.4', nvml_version: 12.550.1}": {uint32(12), uint32(4), "12.550.1"},
		"system: {cuda_version: '12.4', cuda_version_minor: 3}":                              {uint32(12), uint32(3), h100.System.NVMLVersion.Value},
	} {
		b, err := Parse("x.yaml", []byte("extends: h100\n"+text))
		require.NoError(t, err, text)
		assert.Equal(t, want, [3]any{b.System.CUDAVersionMajor.Value, b.System.CUDAVersionMinor.Value, b.System.NVMLVersion.Value}, text)
	}
}

// TestDeviceExtends: GPUs of several boards in one machine keep what is theirs, and get identifiers of their own.
func TestDeviceExtends(t *testing.T) {
	b, err := Parse("mine.yaml", []byte("device_defaults: {persistence_mode: disabled}\ndevices:\n  - {extends: t4}\n  - {extends: h100, name: mine}\n  - {extends: t4}\n"))
	require.NoError(t, err)
	t4, err := Shipped("t4")
	require.NoError(t, err)
	assert.Equal(t, t4.Devices[0].Memory, b.Devices[2].Memory)
	assert.NotEqual(t, t4.Devices[0].UUID, b.Devices[0].UUID)
	assert.NotEqual(t, b.Devices[0].UUID, b.Devices[2].UUID)
	assert.NotEqual(t, b.Devices[0].PCI.BusID, b.Devices[2].PCI.BusID)
	assert.NotEqual(t, b.Devices[0].Serial, b.Devices[2].Serial)
	assert.Equal(t, Some("mine"), b.Devices[1].Name)
	assert.Equal(t, uint32(0x233010de), b.Devices[1].PCI.DeviceID.Value)
	assert.Equal(t, Some(Enabled(false)), b.Devices[0].PersistenceMode)
	assert.Zero(t, b.Devices[0].Extends)
	_, err = Parse("mine.yaml", []byte("devices:\n  - {extends: t44}\n"))
	assert.EqualError(t, err, `mine.yaml:2: devices[0].extends: unknown board "t44": did you mean "t4"?`)
}
