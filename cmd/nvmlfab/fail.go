package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/profiles"
)

type failCmd struct {
	nodeFlags
	gpuFlag
	portFlag
	linkFlags
	For         *duration `placeholder:"DURATION" help:"Heal by itself after that time, such as 30s or 5m."`
	AfterCalls  *string   `placeholder:"N" help:"Fail in each process after N calls about the GPU."`
	Probability *string   `placeholder:"P" help:"Fail in each process at a call about the GPU with a chance of P, from 0 to 1."`
	Seed        *int64    `placeholder:"N" help:"Decides at which calls chance strikes; another number, other calls."`
	Count       *uint64   `placeholder:"N" help:"How many errors there are, for the faults that count them; 1 by default."`
	Rate        *string   `placeholder:"R" help:"How many errors there are per second, for nvlink-error and symbol-errors; 1 by default."`
	Link        []uint32  `placeholder:"N" help:"Which links have errors, for nvlink-error; all by default."`
	Kind        string    `arg:"" help:"The fault, as below."`
	Number      *uint64   `arg:"" optional:"" help:"The number of an Xid error, after xid."`
}

func (failCmd) Help() string {
	return `A fault stays until nvmlfab heal takes it back. Its events go to every program that waits for them. With --after-calls or
--probability each process finds the GPU well until its own calls bring the fault about; such a fault sends no event.
Examples:

    nvmlfab fail --gpu 3 lost
    nvmlfab fail --gpu 0 --for 30s ecc-uncorrectable
    nvmlfab fail --gpu 0 xid 31
    nvmlfab fail --gpu all --probability 0.01 --seed 7 lost
    nvmlfab fail driver-not-loaded
    nvmlfab fail --ib mlx5_3 link-down
    nvmlfab fail --ib mlx5_0:1,mlx5_4:1 --for 1m flapping
    nvmlfab fail --ib leaf01 dead-switch

Faults of GPUs, which need --gpu:

` + faultTable(func(k *change.Kind) bool { return k.GPU }) + `
Faults of the node, which strike at a program's next nvmlInit:

` + faultTable(func(k *change.Kind) bool { return k.Node }) + `
Faults of the InfiniBand fabric, which need --ib:

` + faultTable((*change.Kind).InfiniBand) + `
` + whichNode
}

// faultTable is a line for each of some kinds of faults.
func faultTable(of func(*change.Kind) bool) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, k := range change.Kinds() {
		if of(&k) {
			fmt.Fprintf(w, "    %s\t%s\n", k.Name, k.Help)
		}
	}
	_ = w.Flush()
	return b.String()
}

// fault is the fault that the flags describe.
func (c failCmd) fault() (f change.Fault, kind *change.Kind, err error) {
	if kind, err = change.KindOf(c.Kind); err != nil {
		return f, nil, err
	}
	f.Kind = kind.Name
	number := func(flag string, text *string, most float64) (float64, error) {
		v, err := strconv.ParseFloat(*text, 64)
		if err != nil || math.IsNaN(v) || v < 0 || v > most {
			return 0, fmt.Errorf("%s: want a number from 0 to %g, not %.40q", flag, most, *text)
		}
		return v, nil
	}
	if (c.Number != nil) != (kind.Name == "xid") {
		if c.Number == nil {
			return f, nil, errors.New("xid wants the number of an Xid error, such as nvmlfab fail --gpu 3 xid 79")
		}
		return f, nil, fmt.Errorf("%d: only xid is followed by a number", *c.Number)
	}
	if c.Number != nil {
		f.Xid = *c.Number
		if err := change.CheckXid(f.Xid); err != nil {
			return f, nil, err
		}
		if c.For != nil {
			return f, nil, errors.New("an Xid happens at once and leaves nothing to heal: leave out --for")
		}
	}
	if c.AfterCalls != nil {
		v, err := strconv.ParseUint(*c.AfterCalls, 10, 40)
		if err != nil || v == 0 {
			return f, nil, fmt.Errorf("--after-calls: want a whole number from 1 to %d, not %.40q", uint64(1)<<40-1, *c.AfterCalls)
		}
		f.AfterCalls = profiles.Some(int64(v))
	}
	if c.Probability != nil {
		v, err := number("--probability", c.Probability, 1)
		if err != nil {
			return f, nil, err
		}
		f.Probability = profiles.Some(v)
	}
	if c.Seed != nil {
		if c.Probability == nil {
			return f, nil, errors.New("--seed decides at which calls chance strikes: give --probability too")
		}
		f.Seed = profiles.Some(*c.Seed)
	}
	if waits := c.AfterCalls != nil || c.Probability != nil; waits && !kind.Waits() {
		return f, nil, fmt.Errorf("%s happens at once: leave out --after-calls and --probability", kind.Name)
	} else if waits && c.Count != nil {
		return f, nil, errors.New("a fault that waits for calls counts one error: leave out --count")
	}
	if c.Count != nil {
		if !kind.Counts {
			return f, nil, fmt.Errorf("%s counts no errors: leave out --count", kind.Name)
		}
		if f.Count = *c.Count; f.Count == 0 || f.Count > math.MaxUint32 {
			return f, nil, fmt.Errorf("--count: want a number from 1 to %d", uint32(math.MaxUint32))
		}
	}
	if kind.InfiniBand() {
		if len(c.Link) > 0 {
			return f, nil, errors.New("--link belongs to nvlink-error")
		}
		if c.Rate != nil && kind.Name != "symbol-errors" {
			return f, nil, errors.New("--rate belongs to nvlink-error and symbol-errors")
		}
		return f, kind, nil
	}
	if c.linkFlags != (linkFlags{}) {
		return f, nil, errors.New("--period, --speed and --lanes belong to faults of InfiniBand")
	}
	if (c.Rate != nil || len(c.Link) > 0) && kind.Name != "nvlink-error" {
		return f, nil, errors.New("--rate and --link belong to nvlink-error")
	}
	if c.Rate != nil {
		if f.Rate, err = number("--rate", c.Rate, 1e9); err != nil {
			return f, nil, err
		}
		if f.Rate == 0 {
			return f, nil, errors.New("--rate: no errors per second are no fault: nvmlfab heal takes one back")
		}
	}
	f.Links = c.Link
	return f, kind, nil
}

func (c failCmd) Run() error {
	f, kind, err := c.fault()
	if err != nil {
		return err
	}
	switch {
	case kind.InfiniBand() && len(c.GPU) > 0:
		return fmt.Errorf("%s is a fault of InfiniBand: leave out --gpu", kind.Name)
	case kind.InfiniBand() && len(c.IB) == 0:
		return fmt.Errorf("%s is a fault of InfiniBand: say of what with --ib, such as --ib %s", kind.Name, map[bool]string{true: "leaf01", false: "mlx5_0"}[kind.Switch])
	case !kind.InfiniBand() && len(c.IB) > 0:
		return fmt.Errorf("%s is no fault of InfiniBand: leave out --ib", kind.Name)
	case kind.InfiniBand():
		var fault state.LinkFault
		if err := c.settings(kind, c.Rate, &fault); err != nil {
			return err
		}
		n, err := c.open(true)
		if err != nil {
			return err
		}
		return n.failLinks(c.IB, fault, c.For)
	case len(c.GPU) == 0 && !kind.Node:
		return fmt.Errorf("%s is a fault of GPUs: say of which with --gpu, such as --gpu 3 or --gpu all", kind.Name)
	case len(c.GPU) > 0 && !kind.GPU:
		return fmt.Errorf("%s is a fault of the node: leave out --gpu", kind.Name)
	case len(c.GPU) == 0 && (c.AfterCalls != nil || c.Probability != nil):
		return errors.New("faults of the node do not wait for calls: leave out --after-calls and --probability")
	}
	n, err := c.open(true)
	if err != nil {
		return err
	}
	list, err := n.which(len(c.GPU) == 0, c.GPU)
	if err != nil {
		return err
	}
	return n.change(func(t *change.Tx) error {
		for _, i := range list {
			if err := t.Fail(i, "", c.For.until(t.Now), f); err != nil {
				return about(i, err)
			}
		}
		return nil
	})
}

type healCmd struct {
	nodeFlags
	gpuFlag
	portFlag
	Play *string `placeholder:"ID" help:"Take back what a scenario has done, by the id that nvmlfab play printed, and nothing else."`
	Kind string  `arg:"" optional:"" help:"The fault to take back, as nvmlfab fail names it; all faults if left out."`
}

func (healCmd) Help() string {
	return `Without --gpu and --ib it heals the node, all of its GPUs and the InfiniBand fabric. What nvmlfab set has changed stays.
Examples:

    nvmlfab heal
    nvmlfab heal --gpu 3 lost
    nvmlfab heal --ib mlx5_3
    nvmlfab heal --ib all flapping
    nvmlfab heal --play thermal-runaway-4f1c

` + whichNode
}

func (c healCmd) Run() error {
	if c.Kind != "" {
		kind, err := change.KindOf(c.Kind)
		switch {
		case err != nil:
			return err
		case kind.Name == "xid":
			return errors.New("an Xid is an event and leaves nothing to heal")
		case c.Play != nil:
			return errors.New("--play takes back all that a scenario has done: leave out the fault")
		case kind.InfiniBand() && len(c.GPU) > 0:
			return fmt.Errorf("%s is a fault of InfiniBand: leave out --gpu", kind.Name)
		case !kind.InfiniBand() && len(c.IB) > 0:
			return fmt.Errorf("%s is no fault of InfiniBand: leave out --ib", kind.Name)
		case len(c.GPU) > 0 && !kind.GPU:
			return fmt.Errorf("%s is a fault of the node: leave out --gpu", kind.Name)
		}
		c.Kind = kind.Name
	}
	switch {
	case c.Play != nil && len(c.GPU)+len(c.IB) > 0:
		return errors.New("--play takes back all that a scenario has done: leave out --gpu and --ib")
	case len(c.GPU) > 0 && len(c.IB) > 0:
		return errors.New("--gpu and --ib: heal one, then the other")
	case c.Play != nil && !scenarioID.MatchString(*c.Play):
		return fmt.Errorf("--play: want the id that nvmlfab play printed, not %.80q", *c.Play)
	}
	n, err := c.open(true)
	if err != nil {
		return err
	}
	list, err := n.which(false, c.GPU)
	if err != nil {
		return err
	}
	var ports []string
	if len(c.IB) > 0 {
		f, self, err := n.fabric()
		if err != nil {
			return err
		}
		if ports, err = targets(f, self, c.IB); err != nil {
			return err
		}
		if slices.Contains(c.IB, "all") { // switches and other machines too
			ports = nil
		}
		list = nil
	} else if len(c.GPU) == 0 {
		list = []int{-1}
		for i := range n.source.Board.Devices {
			list = append(list, i)
		}
	}
	any := false
	err = n.change(func(t *change.Tx) error {
		if len(c.GPU) == 0 && c.Play == nil {
			any = t.HealLinks(c.Kind, "", ports) > 0
		}
		for _, i := range list {
			if c.Play != nil {
				dropped, err := t.EndScenario(i, *c.Play)
				if err != nil {
					return about(i, err)
				}
				any = any || dropped
				continue
			}
			healed, err := t.Heal(i, c.Kind)
			if err != nil {
				return about(i, err)
			}
			any = any || len(healed) > 0
		}
		if !any {
			return errUnchanged
		}
		return nil
	})
	if err == nil && !any {
		_, err = fmt.Fprintln(os.Stdout, "there was nothing to heal")
	}
	return err
}

// ended says whether something that ends at a time in ms since 1970 has ended.
func ended(until, now int64) bool { return until != 0 && until <= now }

// active are the layers of a record that are in force.
func active(r *state.Record, now int64) (list []state.Layer) {
	for _, l := range r.Set {
		if !ended(l.Until, now) {
			list = append(list, l)
		}
	}
	return list
}
