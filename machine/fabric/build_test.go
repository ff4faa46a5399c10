package fabric

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hosts makes hosts of one kind: adapters with one port each, one a rail.
func hosts(count, adapters int) []Host {
	var hosts []Host
	for i := range count {
		h := Host{Name: fmt.Sprintf("dgx%02d", i+1)}
		for k := range adapters {
			h.HCAs = append(h.HCAs, HCA{Name: fmt.Sprintf("mlx5_%d", k), DeviceID: 0x1021, Firmware: "28.39.1002",
				PCI: fmt.Sprintf("0000:%02x:00.0", 0x18+k), Ports: []HCAPort{{Rail: k}}})
		}
		hosts = append(hosts, h)
	}
	return hosts
}

func build(t *testing.T, d Description) *Fabric {
	t.Helper()
	f, err := New(d)
	require.NoError(t, err)
	return f
}

// TestLayouts: in every layout each port with a LID reaches each other, cables are two-way, and GUIDs are distinct.
func TestLayouts(t *testing.T) {
	for _, d := range []Description{
		{Hosts: hosts(1, 1)},
		{Hosts: hosts(4, 8), Layout: Layout{Preset: "rail-optimised"}},
		{Hosts: hosts(40, 2), Layout: Layout{Preset: "rail-optimised", Radix: 8}},
		{Hosts: hosts(10, 2), Layout: Layout{Preset: "fat-tree", Radix: 8}},
		{Hosts: hosts(50, 2), Layout: Layout{Preset: "fat-tree", Radix: 8}},
		{Hosts: hosts(3, 2), SM: "dgx02 mlx5_1"},
		{Hosts: hosts(10, 2), Layout: Layout{Preset: "fat-tree", Radix: 8, Aggregation: true}},
	} {
		f := build(t, d)
		guids := map[uint64]bool{}
		for _, n := range f.Nodes {
			assert.False(t, guids[n.GUID], "%x", n.GUID)
			guids[n.GUID] = true
			for _, p := range n.Ports {
				if p != nil && p.Remote != nil {
					assert.Same(t, p, p.Remote.Remote)
				}
			}
		}
		assert.Equal(t, uint16(1), f.SM.LID)
		for _, from := range f.byLID[1:] {
			for _, to := range f.byLID[1:] {
				path := f.Path(from, to.LID)
				if !assert.NotNil(t, path, "%v: %s to %s", d.Layout, from.Node.Description, to.Node.Description) {
					return
				}
				assert.LessOrEqual(t, len(path), 12)
			}
		}
	}
}

func TestRates(t *testing.T) {
	for want, p := range map[string]Port{
		"400 Gb/sec (4X NDR)": {Width: 4, Speed: NDR},
		"200 Gb/sec (2X NDR)": {Width: 2, Speed: NDR},
		"800 Gb/sec (4X XDR)": {Width: 4, Speed: XDR},
		"56 Gb/sec (4X FDR)":  {Width: 4, Speed: FDR},
		"2.5 Gb/sec (1X SDR)": {Width: 1, Speed: SDR},
	} {
		assert.Equal(t, want, p.Rate())
	}
}

// TestGUIDs: those of real cards, as public listings have them.
func TestGUIDs(t *testing.T) {
	assert.Equal(t, uint64(0x5aa2e1fffedae626), eui64(0x58a2e10300dae626))
	f := build(t, Description{Hosts: []Host{{Name: "a", HCAs: []HCA{
		{Name: "mlx5_1", PCI: "0000:29:00.0", Ports: []HCAPort{{}}},
		{Name: "mlx5_2", PCI: "0000:29:00.1", Ports: []HCAPort{{LinkLayer: Ethernet}}},
	}}}})
	first, second := f.Host("a")[0], f.Host("a")[1]
	assert.Equal(t, first.GUID+1, second.GUID)
	assert.Equal(t, first.GUID, second.System)
	assert.Equal(t, first.GUID, first.Ports[1].GUID)
	assert.Equal(t, uint16(0), second.Ports[1].LID)
	assert.Equal(t, Active, second.Ports[1].State)
}

func TestWrongDescriptions(t *testing.T) {
	twice := hosts(1, 2)
	twice[0].HCAs[0].NodeGUID, twice[0].HCAs[1].NodeGUID = 7, 7
	for want, d := range map[string]Description{
		`"ring" is no layout`:             {Hosts: hosts(1, 1), Layout: Layout{Preset: "ring"}},
		"a switch cannot have 7 ports":    {Hosts: hosts(1, 1), Layout: Layout{Radix: 7}},
		`two hosts called "dgx01"`:        {Hosts: append(hosts(1, 1), hosts(1, 1)...)},
		"has the GUID 0x0000000000000007": {Hosts: twice},
		`no node is called "x"`:           {Hosts: hosts(1, 1), SM: "x"},
		"do not fit on one switch":        {Hosts: hosts(300, 1)},
		"more than three tiers":           {Hosts: hosts(40, 1), Layout: Layout{Preset: "fat-tree", Radix: 4}},
		"0 ports; libibumad knows 1 to 9": {Hosts: []Host{{Name: "a", HCAs: []HCA{{Name: "b"}}}}},
	} {
		_, err := New(d)
		assert.ErrorContains(t, err, want)
	}
}
