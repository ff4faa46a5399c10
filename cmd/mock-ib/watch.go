package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/machine/fabric"
	"github.com/nvmlfab/nvmlfab/machine/fabric/peers"
	"github.com/nvmlfab/nvmlfab/machine/fabric/umad"
)

const (
	// watchEvery is how often is looked what has happened to the host's ports.
	watchEvery = 250 * time.Millisecond

	// noticeEvery is how often is looked whether the state directory has another number, which costs no system call.
	noticeEvery = 20 * time.Millisecond
)

// watcher brings the fabric to the present time: it makes links flap, and sets the faults that nvmlfab fail has left in the
// state directory. It lets the files of the tree follow the fabric, and sends events about ports.
type watcher struct {
	local    *umad.Local
	node     *node
	load     *load
	together *together       // nil for a daemon without others
	mirror   *machine.Mirror // nil if the tree has no files, or they cannot be written
	events   *events
	wake     chan struct{}

	set  []state.LinkFault // that the fabric has now
	told bool              // the other daemons know them
	last time.Time         // when the faults were looked at
	next time.Time         // when a link goes down or up by itself; zero for never
	ends int64             // when a GPU gets another load by itself, in ms since 1970; 0 for never
	said string            // what was wrong with the load

	sent   map[uint64]fabric.Traffic // what the other daemons know of the load
	sentAt time.Time
}

// wakeUp lets the watcher look at once.
func (w *watcher) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run looks again and again until the context ends.
func (w *watcher) run(ctx context.Context) {
	tick := time.NewTicker(noticeEvery)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case now := <-tick.C:
			if now.Sub(last) < watchEvery && !w.node.stale(now) && !w.due(now) {
				continue
			}
		}
		last = time.Now()
		w.look(last)
	}
}

// due says whether something changes by itself at a time: a link flaps, or a fault ends.
func (w *watcher) due(now time.Time) bool {
	ended := func(l state.LinkFault) bool { return l.Until != 0 && l.Until <= now.UnixMilli() }
	return w.ends != 0 && w.ends <= now.UnixMilli() || !w.next.IsZero() && !now.Before(w.next) || slices.ContainsFunc(w.set, ended)
}

// look brings everything to a time.
func (w *watcher) look(now time.Time) {
	if w.node.look(now) || w.ends != 0 && w.ends <= now.UnixMilli() {
		w.setLoad(now)
	}
	w.setFaults(now)
	var err error
	w.local.Do(func(f *fabric.Fabric) {
		_, w.next = f.Step(now)
		if w.mirror != nil {
			err = w.mirror.Update(f, w.local.Host, now)
		}
		w.events.look(f.Host(w.local.Host))
	})
	w.tellLoads(now)
	if err != nil {
		complain(fmt.Errorf("sysfs no longer follows the fabric: %w", err))
		w.mirror = nil
	}
}

// setFaults gives the fabric the faults that are in force at a time, if they are others than before. A fault that came and ended
// since the last time takes effect for a moment, since the links that it took down count that.
func (w *watcher) setFaults(now time.Time) {
	list := w.node.faults(now)
	if missed := w.missed(now); len(missed) > 0 {
		w.setTo(slices.Concat(list, missed), now)
	}
	w.last = now
	if slices.Equal(list, w.set) && (w.told || w.together == nil) {
		return
	}
	w.setTo(list, now)
}

// missed are the faults that ended since the last time, and that the fabric never had: this process came late.
func (w *watcher) missed(now time.Time) (list []state.LinkFault) {
	if w.last.IsZero() {
		return nil
	}
	for _, l := range w.node.links.Links {
		if l.Until > w.last.UnixMilli() && l.Until <= now.UnixMilli() && !slices.Contains(w.set, l) {
			list = append(list, l)
		}
	}
	return list
}

// setTo gives the fabric these faults. One that the fabric cannot have is left out.
func (w *watcher) setTo(list []state.LinkFault, now time.Time) {
	w.set, w.told = list, true
	var faults []fabric.Fault
	for _, l := range list {
		x, err := machine.LinkFault(l)
		if err == nil {
			w.local.Do(func(f *fabric.Fabric) { err = f.Has(w.local.Host, x) })
		}
		if err != nil {
			complain(fmt.Errorf("the fault %.40q of %.80q is left out: %w", l.Kind, l.Target, err))
			continue
		}
		faults = append(faults, x)
	}
	var err error
	if w.together != nil {
		err = w.together.tell(faults)
	} else {
		w.local.Do(func(f *fabric.Fabric) { err = f.SetFaults(w.local.Host, faults, now) })
	}
	if err != nil {
		complain(err)
	}
}

// traffic is what a port has sent and received, on this host or another.
func (w *watcher) traffic(p *fabric.Port, now time.Time) fabric.Traffic {
	switch {
	case p.Node.Host == w.local.Host:
		return w.load.traffic(p, now)
	case w.together != nil:
		return w.together.traffic(p)
	}
	return fabric.Traffic{}
}

const (
	// loadsEvery is how often the other daemons are told what the ports of this host have sent, if that has changed.
	loadsEvery = time.Second

	// loadsAgain is how often they are told in any case, since one may have come late.
	loadsAgain = 10 * time.Second
)

// tellLoads tells the other daemons what the ports of this host have sent and received.
func (w *watcher) tellLoads(now time.Time) {
	if w.together == nil || now.Sub(w.sentAt) < loadsEvery {
		return
	}
	loads := map[uint64]fabric.Traffic{}
	w.local.Do(func(f *fabric.Fabric) {
		for _, p := range f.UMAD(w.local.Host) {
			if t := w.load.traffic(p, now); t != (fabric.Traffic{}) {
				loads[p.GUID] = t
			}
		}
	})
	if len(loads) == 0 || maps.Equal(loads, w.sent) && now.Sub(w.sentAt) < loadsAgain {
		return
	}
	w.sent, w.sentAt = loads, now
	w.together.group.Send(peers.Message{Kind: peers.Loads, Traffic: maps.Clone(loads)})
}

// setLoad takes the GPUs' load as it is from now on.
func (w *watcher) setLoad(now time.Time) {
	text := ""
	ends, err := w.load.set(&w.node.source, now)
	if err != nil {
		if text = err.Error(); text != w.said {
			complain(fmt.Errorf("the adapters keep the load that they had: %w", err))
		}
	}
	w.ends, w.said = ends, text
}
