package profiles

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func adapters(t *testing.T, text string) []Adapter {
	t.Helper()
	return mustParse(t, text).Adapters("node1")
}

// TestAdaptersOfDGX: names, addresses, interfaces and GPUs are those of NVIDIA's user guide, and each switch is one GPU's.
func TestAdaptersOfDGX(t *testing.T) {
	b, err := Shipped("dgx-h100")
	require.NoError(t, err)
	list := b.Adapters("dgx01")
	require.Len(t, list, 12)
	first, second := list[0], list[1]
	assert.Equal(t, Adapter{Name: "mlx5_0", BusID: BusID{Bus: 0x18}, NetDevice: "ibp24s0", Model: modelOf("MT4129"), Firmware: "28.39.1002",
		BoardID: "MT_0000000838", Description: "dgx01 mlx5_0", Rate: Rate{400, 4, "NDR"}, Ports: 1}, first)
	assert.Equal(t, -1, second.GPU)
	assert.Equal(t, -1, second.Switch)
	assert.True(t, list[2].Ethernet)
	assert.Equal(t, Rate{200, 4, "HDR"}, list[2].Rate)
	assert.Equal(t, 7, list[11].GPU)
	switches := b.PCISwitches()
	require.Len(t, switches, 8)
	assert.Equal(t, PCISwitch{0, 0x18, 0x1b, 0x15}, switches[0])
	assert.Equal(t, PCISwitch{0, 0xdc, 0xdf, 0xd9}, switches[list[11].Switch])
}

// TestShippedAdapters: every shipped board with adapters names and places each of them once.
func TestShippedAdapters(t *testing.T) {
	want := map[string]int{"h100": 8, "h200": 8, "b200": 8, "dgx-h100": 12, "gb200": 6, "gb300": 6, "a100-sxm4-40gb": 8, "a100-sxm4-80gb": 4}
	for _, name := range Names() {
		b, err := Shipped(name)
		require.NoError(t, err)
		list := b.Adapters("n")
		assert.Len(t, list, want[name], name)
		taken := map[BusID]bool{}
		for _, d := range b.Devices {
			taken[d.PCI.BusID.Value] = true
		}
		for i, a := range list {
			assert.False(t, taken[a.BusID], "%s: %s", name, a.BusID)
			taken[a.BusID] = true
			assert.Equal(t, fmt.Sprintf("mlx5_%d", i), a.Name, name)
			assert.NotZero(t, a.Rate, name)
			assert.LessOrEqual(t, len(a.NetDevice), 15, name)
		}
	}
}

func TestAdaptersBesideGPUs(t *testing.T) {
	list := adapters(t, "extends: h100\ncount: 2\n")
	require.Len(t, list, 2)
	assert.Equal(t, BusID{Bus: 0x54}, list[0].BusID)
	assert.Equal(t, []int{0, 0, 1, 1}, []int{list[0].GPU, list[0].Switch, list[1].GPU, list[1].Switch})

	list = adapters(t, "extends: h100\ninfiniband: {hca_count: 4}\n")
	require.Len(t, list, 4)
	assert.Equal(t, []int{0, 2, 4, 6}, []int{list[0].GPU, list[1].GPU, list[2].GPU, list[3].GPU})

	list = adapters(t, "count: 1\ndevice_defaults: {pci: {bus_id: \"0000:01:00.0\"}}\ninfiniband: {enabled: true}\n")
	require.Len(t, list, 1, "one for each GPU if nothing gives a number")
	assert.Equal(t, -1, list[0].Switch, "no bus is left for a switch")
	assert.Equal(t, 0, list[0].GPU)

	assert.Empty(t, adapters(t, "extends: h100\ninfiniband: {enabled: false}\n"))
	assert.Empty(t, adapters(t, "extends: t4\n"))
}

// TestAdaptersKeepTheirPlace: a container's share of the GPUs does not change which adapter is which.
func TestAdaptersKeepTheirPlace(t *testing.T) {
	all := adapters(t, "extends: h100\n")
	share := adapters(t, "extends: h100\n---\nonly: [3]\n")
	require.Len(t, share, 8)
	for i := range all {
		assert.Equal(t, all[i].BusID, share[i].BusID)
		assert.Equal(t, all[i].Name, share[i].Name)
		assert.Equal(t, map[bool]int{true: 0, false: -1}[i == 3], share[i].GPU)
	}
	b := mustParse(t, "extends: h100\n")
	assert.Equal(t, 2, b.Without([]UUID{b.Devices[0].UUID}).Adapters("n")[3].GPU)
}

// TestAdapterKeys: each key changes what it names.
func TestAdapterKeys(t *testing.T) {
	list := adapters(t, `
extends: h100
infiniband:
  hca_type: MT4123
  fw_version: 20.33.1048
  hw_rev: "0x1f"
  board_id: MT_1
  node_name: rack7
  node_desc_template: "{node_name} HCA-{idx} {name}"
  link_layer: Ethernet
  rate_gbps: 100
  lanes: 2
  ports: 2
  port_state: INIT
  phys_state: LINK_UP
  guid_prefix: "0c42:a103"
  hcas:
    - {}
    - {name: roce1, bus_id: "0000:20:00.1", net_device: eth7, node_guid: "0c42:a103:0000:0001", sys_image_guid: "0x0c42a10300000000",
       hca_type: MT4129, link_layer: InfiniBand, ports: 1}
`)
	require.Len(t, list, 2)
	a := list[0]
	assert.Equal(t, Adapter{Name: "mlx5_0", BusID: BusID{Bus: 0x10}, NetDevice: "enp16s0np0", Model: modelOf("MT4123"), Firmware: "20.33.1048",
		HWRev: 0x1f, BoardID: "MT_1", Description: "rack7 HCA-0 mlx5_0", Ethernet: true, Rate: Rate{100, 2, "HDR"}, Ports: 2, State: "INIT",
		PhysState: "LinkUp", NodeGUID: a.NodeGUID, GPU: -1, Switch: -1}, a)
	assert.Equal(t, "0c42:a103", a.NodeGUID.String()[:9])
	b := list[1]
	assert.Equal(t, Adapter{Name: "roce1", BusID: BusID{Bus: 0x20, Function: 1}, NetDevice: "eth7", Model: modelOf("MT4129"), Firmware: "28.41.1000",
		BoardID: "MT_0000000838", Description: "rack7 HCA-1 roce1", Rate: Rate{400, 4, "NDR"}, Ports: 1, State: "INIT", PhysState: "LinkUp",
		NodeGUID: 0x0c42a10300000001, SysImageGUID: 0x0c42a10300000000, GPU: -1, Switch: -1}, b, "of another type, so nothing of the first's is taken over")
}

func TestWrongAdapters(t *testing.T) {
	for text, want := range map[string]string{
		"infiniband: {rate_gbps: 300}":                                       "1: infiniband: no lane has the speed that 4 lanes at 300 Gbit/s have together",
		"infiniband: {hcas: [{rate_gbps: 400, lanes: 3}]}":                   "infiniband.hcas[0]: no lane has the speed that 3 lanes",
		"infiniband: {hcas: [{bus_id: \"0000:53:00.0\"}]}":                   "infiniband.hcas[0].bus_id: 00000000:53:00.0 is that of devices[0]",
		"infiniband: {hcas: [{bus_id: \"20:00.0\"}, {bus_id: \"20:00.0\"}]}": "is that of infiniband.hcas[0]",
		"infiniband: {hcas: [{gpu: 8}]}":                                     "infiniband.hcas[0].gpu: the board has 8 devices",
		"infiniband: {hcas: [{name: a/b}]}":                                  `infiniband.hcas[0].name: "a/b": want letters`,
		"infiniband: {hcas: [{name: a}, {name: a}]}":                         `infiniband.hcas[1].name: "a" is that of hcas[0]`,
		"infiniband: {hcas: [{net_device: ..}]}":                             "infiniband.hcas[0].net_device",
		"infiniband: {hcas: [{node_guid: \"1\"}]}":                           "bad GUID",
		"infiniband: {hca_type: CX7}":                                        "bad type",
		"infiniband: {hca_type: MT70000}":                                    "bad type",
		"infiniband: {guid_prefix: xyz}":                                     "bad prefix",
		"infiniband: {hw_rev: z}":                                            "bad revision",
		"infiniband: {hcas: [{node_guid: \"0000:0000:0000:0001\", ports: 2}, {node_guid: \"0x0000000000000002\"}]}": "infiniband.hcas[1].node_guid: 0000:0000:0000:0002 is that of hcas[0]",
	} {
		_, err := Parse("p.yaml", []byte(text+"\nextends: h100\n"))
		assert.ErrorContains(t, err, want, text)
	}
}
