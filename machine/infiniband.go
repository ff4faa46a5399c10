package machine

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/machine/fabric"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// NodeName is the machine's name in the fabric: the profile's, or else the host's without its domain.
func NodeName(board *profiles.Board) string {
	host, _ := os.Hostname()
	host, _, _ = strings.Cut(host, ".")
	return board.InfiniBand.NodeName.Or(cmp.Or(host, "localhost"))
}

// FabricHost is the machine of a name with the board's InfiniBand adapters.
func FabricHost(board *profiles.Board, name string) (fabric.Host, error) {
	h := fabric.Host{Name: name}
	adapters := board.Adapters(name)
	rail := len(board.Devices) // those that are not beside a GPU have rails of their own, after those that are
	for i := range adapters {
		a := &adapters[i]
		speed, err := fabric.ParseSpeed(a.Rate.Speed)
		if err != nil {
			return h, fmt.Errorf("adapter %q: %w", a.Name, err)
		}
		hca := fabric.HCA{Name: a.Name, DeviceID: a.Model.Device, Firmware: a.Firmware, HWRev: a.HWRev, BoardID: a.BoardID,
			Description: a.Description, NodeGUID: uint64(a.NodeGUID), SystemGUID: uint64(a.SysImageGUID), PCI: address(a.BusID),
			NUMA: NUMANode(board, a)}
		for port := range a.Ports {
			p := fabric.HCAPort{Width: fabric.Width(a.Rate.Lanes), Speed: speed, Rail: a.GPU}
			if a.Ethernet {
				p.LinkLayer = fabric.Ethernet
			}
			if p.Rail < 0 {
				p.Rail = rail
				rail++
			}
			if port == 0 {
				p.NetDev = a.NetDevice
			}
			p.Uncabled, p.State, p.Phys = a.State == "DOWN", heldStates[a.State], physStates[a.PhysState]
			hca.Ports = append(hca.Ports, p)
		}
		h.HCAs = append(h.HCAs, hca)
	}
	return h, nil
}

// The words of a profile for states at which ports are held.
var (
	heldStates = map[string]fabric.State{"INIT": fabric.Initialize, "ARMED": fabric.Armed}
	physStates = map[string]fabric.Phys{"LinkUp": fabric.LinkUp, "Polling": fabric.Polling, "Disabled": fabric.Disabled, "Sleep": fabric.Sleep,
		"PortConfigurationTraining": fabric.Training, "LinkErrorRecovery": fabric.ErrorRecovery, "PhyTest": fabric.PhyTest}
)

// FabricFile is where a tree has the description of its fabric.
const FabricFile = "etc/nvmlfab/fabric.yaml"

// Subnet is the fabric that a description describes: the board's machine, which has a name in it, and other machines, whose
// adapters are those of the same board or of another shipped one. Without a description the machine is alone.
func Subnet(board *profiles.Board, node, file string, text []byte) (*fabric.Fabric, error) {
	boards := map[string]*profiles.Board{"": board}
	d, err := fabric.Parse(file, text, node, func(profile, host string) ([]fabric.HCA, error) {
		b := boards[profile]
		if b == nil {
			var err error
			if b, err = profiles.Shipped(profile); err != nil {
				return nil, err
			}
			boards[profile] = b
		}
		h, err := FabricHost(b, host)
		return h.HCAs, err
	})
	if err != nil {
		return nil, err
	}
	return fabric.New(d)
}

// NUMANode is the NUMA node that an adapter belongs to, as the topology has it; -1 if it does not tell.
func NUMANode(board *profiles.Board, a *profiles.Adapter) int {
	for _, rc := range board.Topology.RootComplexes {
		if slices.Contains(rc.Devices, a.BusID) || a.GPU >= 0 && slices.Contains(rc.Devices, board.Devices[a.GPU].PCI.BusID.Value) {
			return int(rc.NUMANode.Or(-1))
		}
	}
	return -1
}
