package machine

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/state"
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
	if b := *board; b.InfiniBand.NodeName.Valid { // which is this machine's, and not that of others with the same board
		b.InfiniBand.NodeName.Value = name
		board = &b
	}
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

// Served is what a daemon keeps, for commands that name parts of it.
type Served struct {
	Node        string `json:"node"`        // this machine's name in the fabric
	Description string `json:"description"` // the text of the fabric's description
}

// servedFile is where a daemon says what it keeps, below the root of a tree.
const servedFile = "run/mock-ib.json"

// Write says in a tree what its daemon keeps.
func (s Served) Write(root string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	path := filepath.Join(root, servedFile)
	temporary := path + ".new"
	return errors.Join(os.WriteFile(temporary, append(text, '\n'), readable), os.Rename(temporary, path))
}

// FabricAt is the fabric around a board's machine as the daemon of a tree keeps or would keep it, and the machine's name in it.
// With an empty root, the machine is alone.
func FabricAt(root string, board *profiles.Board) (f *fabric.Fabric, node string, err error) {
	s := Served{Node: NodeName(board)}
	if root != "" {
		text, err := os.ReadFile(filepath.Join(root, servedFile))
		if err == nil {
			err = json.Unmarshal(text, &s)
		} else if errors.Is(err, fs.ErrNotExist) {
			text, err = os.ReadFile(filepath.Join(root, FabricFile))
			s.Description = string(text)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, "", err
		}
	}
	f, err = Subnet(board, s.Node, FabricFile, []byte(s.Description))
	return f, s.Node, err
}

// LinkFault is a fault of a state directory as a fabric takes it.
func LinkFault(l state.LinkFault) (x fabric.Fault, err error) {
	x = fabric.Fault{Kind: fabric.FaultKind(l.Kind), Target: l.Target, Since: time.UnixMilli(l.Since), PerSecond: l.Rate,
		Period: time.Duration(l.PeriodMS) * time.Millisecond, Width: fabric.Width(l.Lanes)}
	if l.Speed != "" {
		x.Speed, err = fabric.ParseSpeed(l.Speed)
	}
	return x, err
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
