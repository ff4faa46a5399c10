package change

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/engine/state"
)

// linkKinds are the faults of an InfiniBand fabric. What they do to it is the work of machine/fabric.
var linkKinds = []Kind{
	{Name: "link-down", Port: true, Help: "the cable of the port is pulled: both of its ends are down and poll"},
	{Name: "flapping", Port: true, Help: "the cable is pulled and put back again and again: once every 10 seconds, or --period"},
	{Name: "symbol-errors", Port: true, Help: "the port's symbol errors grow, by --rate a second"},
	{Name: "wrong-rate", Port: true, Help: "the link comes up with the speed of --speed or the lanes of --lanes only; without them it is SDR"},
	{Name: "dead-switch", Switch: true, Help: "the switch has no power: it answers nothing, and its links are down"},
}

// FailLink makes a port or a switch of the InfiniBand fabric fail: for good, or until f.Until. It takes the place of an earlier
// fault of the same kind, target and owner. An empty owner is ByFault. Whether the fabric has the target is for the caller
// to know.
func (t *Tx) FailLink(f state.LinkFault) error {
	k, err := KindOf(f.Kind)
	switch {
	case err != nil:
		return err
	case !k.InfiniBand():
		return fmt.Errorf("%s is no fault of InfiniBand", k.Name)
	case f.Target == "":
		return fmt.Errorf("%s is a fault of InfiniBand: say of which port or switch", k.Name)
	}
	if f.Kind, f.Since = k.Name, t.Now; f.By == "" {
		f.By = ByFault
	}
	r := t.Record(-1)
	t.expire(-1, r)
	r.Links = slices.DeleteFunc(r.Links, func(l state.LinkFault) bool {
		return l.Kind == f.Kind && l.Target == f.Target && l.By == f.By
	})
	r.Links = append(r.Links, f)
	return nil
}

// HealLinks takes back faults of the InfiniBand fabric: those of a kind, an owner and targets, or all of what is empty. It says
// how many there were.
func (t *Tx) HealLinks(kind, by string, targets []string) int {
	return t.dropLinks(func(l state.LinkFault) bool {
		return (kind == "" || l.Kind == kind) && (by == "" || l.By == by) && (len(targets) == 0 || slices.Contains(targets, l.Target))
	})
}

func (t *Tx) dropLinks(of func(state.LinkFault) bool) int {
	r := t.Record(-1)
	t.expire(-1, r)
	n := len(r.Links)
	r.Links = slices.DeleteFunc(r.Links, of)
	return n - len(r.Links)
}

// endLinks takes back the link faults of a scenario.
func (t *Tx) endLinks(id string) int {
	by := ByScenario + id
	return t.dropLinks(func(l state.LinkFault) bool { return l.By == by || strings.HasPrefix(l.By, by+":") })
}
