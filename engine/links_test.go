package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

func link(t *testing.T, d *engine.Device, number uint32) engine.Link {
	t.Helper()
	l, ok := d.Link(number)
	require.True(t, ok)
	return l
}

func TestLinksToSwitches(t *testing.T) {
	d := enginetest.Start(t, "").Devices[1]
	require.EqualValues(t, 18, d.LinkCount())
	for i := range uint32(18) {
		l := link(t, d, i)
		assert.True(t, l.Active)
		assert.EqualValues(t, abi.NVLINK_DEVICE_TYPE_SWITCH, l.Remote)
		assert.Equal(t, d.Snapshot().Board.NVLink.Switches[i%4].BDF, l.BusID)
		assert.Nil(t, l.Peer)
	}
	_, ok := d.Link(18)
	assert.False(t, ok)
}

const meshed = `
device_defaults: {name: any}
devices: [{pci: {bus_id: "01:00.0"}}, {pci: {bus_id: "02:00.0"}}, {pci: {bus_id: "03:00.0"}}]
`

func TestLinksToGPUs(t *testing.T) {
	node := enginetest.Start(t, meshed+"nvlink: {links_per_gpu: 4}\n")
	var peers []uint32
	for i := range uint32(4) {
		l := link(t, node.Devices[1], i)
		assert.EqualValues(t, abi.NVLINK_DEVICE_TYPE_GPU, l.Remote)
		assert.Equal(t, l.Peer.PCI.BusID, l.BusID)
		peers = append(peers, l.Peer.Index)
	}
	assert.Equal(t, []uint32{2, 0, 2, 0}, peers, "the other GPUs in turn")
}

func TestListedLinks(t *testing.T) {
	node := enginetest.Start(t, meshed+`
nvlink:
  links_per_gpu: 2
  defaults: {state: inactive}
  links: [{link: 0, state: active, remote_index: 2}]
  device_links:
    - index: 1
      links:
        - {link: 1, remote_pci_bus_id: "01:00.0"}
        - {link: 4, remote_device_type: switch, remote_pci_bus_id: "09:00.0"}
`)
	l := link(t, node.Devices[0], 0)
	assert.True(t, l.Active)
	assert.Same(t, node.Devices[2], l.Peer)

	d := node.Devices[1]
	assert.EqualValues(t, 5, d.LinkCount())
	assert.False(t, link(t, d, 0).Active)
	assert.Same(t, node.Devices[0], link(t, d, 1).Peer)
	l = link(t, d, 4)
	assert.EqualValues(t, abi.NVLINK_DEVICE_TYPE_SWITCH, l.Remote)
	assert.Equal(t, "00000000:09:00.0", l.BusID.Value.String())
}

func TestLinkCounters(t *testing.T) {
	d := enginetest.Start(t, meshed+`
nvlink: {links_per_gpu: 2, bandwidth_per_link_mbps: 1024, defaults: {duty_cycle: 0.5, counter_seed: 3, error_rate: 2}}
`).Devices[0]
	read := func() (traffic, errors uint64) { return d.LinkTraffic(), d.LinkErrors(0) }
	enginetest.At(t, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	traffic, errors := read()
	assert.Equal(t, []uint64{3, 0}, []uint64{traffic, errors})
	enginetest.At(t, time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC))
	traffic, errors = read()
	assert.Equal(t, []uint64{3 + 5_000_000, 20}, []uint64{traffic, errors}, "half of 1024 MB/s, for 10 s, in KiB")
}

// TestFault17MeshesAreSymmetric: two GPUs have as many links one way as the other, and the link at the far end leads back.
func TestFault17MeshesAreSymmetric(t *testing.T) {
	for gpus := 2; gpus <= 9; gpus++ {
		for links := 1; links <= 18; links++ {
			node := enginetest.Start(t, fmt.Sprintf("device_defaults: {name: any}\ncount: %d\nnvlink: {links_per_gpu: %d}\n", gpus, links))
			count, alone := map[[2]uint32]int{}, 0
			for _, d := range node.Devices {
				for i := range uint32(links) {
					if l := link(t, d, i); l.Peer != nil {
						count[[2]uint32{d.Index, l.Peer.Index}]++
					} else {
						alone++
					}
				}
			}
			for pair, n := range count {
				require.Equal(t, n, count[[2]uint32{pair[1], pair[0]}], "%d GPUs with %d links: %v", gpus, links, pair)
			}
			require.LessOrEqual(t, alone, gpus, "at most one link of each GPU leads nowhere")
		}
	}
}

// TestFault17ALinkIsDownAtBothEnds: a link of a mesh that is down on one GPU is down on the other.
func TestFault17ALinkIsDownAtBothEnds(t *testing.T) {
	node := enginetest.Start(t, meshed+"nvlink: {links_per_gpu: 4, links: [{link: 0, state: inactive}]}\n")
	down := 0
	for _, d := range node.Devices {
		for i := range uint32(4) {
			if l := link(t, d, i); !l.Active {
				down++
				assert.Contains(t, []uint32{0, 1}, d.Index)
			}
		}
	}
	assert.Equal(t, 2, down)
}
