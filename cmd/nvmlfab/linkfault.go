package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/machine/fabric"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// portFlag chooses ports and switches of the InfiniBand fabric. It is not split at commas by the parser, which would drop empty
// parts.
type portFlag struct {
	IB []string `name:"ib" sep:"none" placeholder:"all|PORT|SWITCH[,…]" help:"The InfiniBand ports or switches: all ports of this machine, adapters such as mlx5_3, ports such as mlx5_3:1 or leaf01:4, or switches such as leaf01, with commas between them."`
}

// linkFlags say more about faults of links.
type linkFlags struct {
	Period *duration `placeholder:"DURATION" help:"How long a flapping link takes to go down and come up again; 10s by default."`
	Speed  *string   `placeholder:"NAME" help:"The speed of a link with wrong-rate, such as EDR."`
	Lanes  *uint8    `placeholder:"N" help:"The number of lanes of a link with wrong-rate, such as 1."`
}

// settings puts what the flags say into a fault of a kind.
func (c linkFlags) settings(kind *change.Kind, rate *string, f *state.LinkFault) error {
	f.Kind = kind.Name
	switch {
	case c.Period != nil && kind.Name != string(fabric.Flapping):
		return errors.New("--period belongs to flapping")
	case (c.Speed != nil || c.Lanes != nil) && kind.Name != string(fabric.WrongRate):
		return errors.New("--speed and --lanes belong to wrong-rate")
	}
	if c.Period != nil {
		if f.PeriodMS = time.Duration(*c.Period).Milliseconds(); f.PeriodMS < 100 {
			return errors.New("--period: want 100ms at least")
		}
	}
	if c.Speed != nil {
		speed, err := fabric.ParseSpeed(*c.Speed)
		if err != nil {
			return fmt.Errorf("--speed: %w", err)
		}
		f.Speed = speed.String()
	}
	if c.Lanes != nil {
		if f.Lanes = *c.Lanes; fabric.Width(f.Lanes).Bit() == 0 {
			return fmt.Errorf("--lanes: want 1, 2, 4, 8 or 12, not %d", f.Lanes)
		}
	}
	if rate != nil {
		v, err := strconv.ParseFloat(*rate, 64)
		if err != nil || math.IsNaN(v) || v <= 0 || v > 1e9 {
			return fmt.Errorf("--rate: want a number above 0 and up to 1e9, not %.40q", *rate)
		}
		f.Rate = v
	}
	return nil
}

// infiniband is what a command knows about the InfiniBand of its node.
type infiniband struct {
	root string // of the tree with the fabric's description; empty if there is none
	tier string // how much a run shows; empty if the node is not that of a run
}

// seen is the InfiniBand that processes with an environment see, whose files are those below top.
func seen(environ func(string) string, top string) infiniband {
	ib := infiniband{tier: strings.ToLower(environ(ibTier))}
	if root := environ(ibRoot); root != "" {
		ib.root = filepath.Join(top, root)
	}
	if environ(runVariable) != "" {
		ib.tier = cmp.Or(ib.tier, "off")
	}
	return ib
}

// fabric is the node's InfiniBand fabric, and the node's name in it.
func (n *node) fabric() (*fabric.Fabric, string, error) {
	if len(n.source.Board.Adapters(machine.NodeName(n.source.Board))) == 0 {
		return nil, "", fmt.Errorf("--ib: the profile %s has no InfiniBand adapters", n.profile)
	}
	if n.ib.tier != "" && n.ib.tier != ibFull {
		return nil, "", errors.New("--ib: the run has no InfiniBand adapters that can change: start it with nvmlfab run --ib full")
	}
	return machine.FabricAt(n.ib.root, n.source.Board)
}

// targets are the ports and switches that people mean by names with commas between them, as faults call them.
func targets(f *fabric.Fabric, self string, lists []string) (list []string, err error) {
	once := func(name string) {
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	add := func(n *fabric.Node, ports []*fabric.Port) {
		if len(ports) == 0 {
			once(f.Name(self, n))
		}
		for _, p := range ports {
			once(fmt.Sprintf("%s/%d", f.Name(self, n), p.Number))
		}
	}
	for _, text := range lists {
		for name := range strings.SplitSeq(text, ",") {
			name = strings.TrimSpace(name)
			if name == "" {
				return nil, fmt.Errorf("--ib: %.80q names nothing: want all, or ports or switches with commas between them, such as mlx5_0,mlx5_3:1", text)
			}
			if name == "all" {
				for _, n := range f.Host(self) {
					add(n, n.Ports[1:])
				}
				continue
			}
			n, ports, err := f.Find(self, name)
			if at := strings.LastIndex(name, ":"); err != nil && at >= 0 { // mlx5_0:1, as NCCL writes it
				n, ports, err = f.Find(self, name[:at]+"/"+name[at+1:])
				name = name[:at]
			}
			if err != nil {
				node, _, _ := strings.Cut(name, "/")
				if near := profiles.Nearest(node, f.Names(self)); near != "" && near != node {
					err = fmt.Errorf("%w: did you mean %q?", err, near)
				}
				return nil, fmt.Errorf("--ib: %w", err)
			}
			add(n, ports)
		}
	}
	return list, nil
}

// failLinks makes ports or switches of the node's InfiniBand fabric fail.
func (n *node) failLinks(names []string, fault state.LinkFault, until *duration) error {
	f, self, err := n.fabric()
	if err != nil {
		return err
	}
	faults, err := linkFaults(f, self, names, fault)
	if err != nil {
		return err
	}
	return n.change(func(t *change.Tx) error { return failAll(t, faults, until.until(t.Now)) })
}

// failAll brings about faults of the InfiniBand fabric until a time in ms since 1970.
func failAll(t *change.Tx, faults []state.LinkFault, until int64) error {
	for _, l := range faults {
		l.Until = until
		if err := t.FailLink(l); err != nil {
			return err
		}
	}
	return nil
}

// linkFaults are a fault of everything that names stand for. The fabric has to have it, and it has to change something.
func linkFaults(f *fabric.Fabric, self string, names []string, fault state.LinkFault) (list []state.LinkFault, err error) {
	all, err := targets(f, self, names)
	if err != nil {
		return nil, err
	}
	for _, fault.Target = range all {
		x, err := machine.LinkFault(fault)
		if err == nil {
			err = f.Check(self, x)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", fault.Kind, err)
		}
		list = append(list, fault)
	}
	return list, nil
}

// linkStatus is what status says about a fault of the InfiniBand fabric.
type linkStatus struct {
	Target string     `json:"target"`
	Fault  string     `json:"fault"`
	By     string     `json:"by"`
	Until  *time.Time `json:"until,omitempty"`
}

// linkStatuses are the faults of a record that are in force.
func linkStatuses(r *state.Record, now int64) []linkStatus {
	list := []linkStatus{}
	for _, l := range r.LinkFaults(now) {
		s := linkStatus{Target: l.Target, Fault: l.Kind, By: l.By}
		if l.Until != 0 {
			until := time.UnixMilli(l.Until).UTC()
			s.Until = &until
		}
		list = append(list, s)
	}
	return list
}

// links is that in one line.
func links(list []linkStatus, now int64) string {
	var parts []string
	for _, l := range list {
		text := printable(l.Target) + " " + printable(l.Fault)
		var notes []string
		if id, ok := strings.CutPrefix(l.By, change.ByScenario); ok {
			notes = append(notes, "by "+printable(id))
		}
		if l.Until != nil {
			notes = append(notes, left(*l.Until, now))
		}
		if len(notes) > 0 {
			text += " (" + strings.Join(notes, ", ") + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}
