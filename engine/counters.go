package engine

import (
	"time"

	"github.com/nvmlfab/nvmlfab/engine/simulate"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// A counter starts at the origin of its generation with the value that the profile gives. A new snapshot may change the
// rate of a counter. The old value is then kept as a checkpoint, and the counter goes on from it at the new rate.

// count names one counter of a device: a quantity, or the errors or the traffic of its links.
type count struct {
	quantity simulate.Quantity
	link     uint32
}

const (
	linkTraffic = simulate.Quantities + iota // of each link
	linkErrors
)

// origin is the time when counters start: when the machine was booted. Each process measures that time anew, so it is
// rounded, and all processes get the same. A forked process keeps its parent's origin.
func (e *Engine) origin() int64 { return e.host.Booted().Round(10 * time.Second).UnixMilli() }

// tick is the time that counters use, in ms since 1970. If the clock is set back, tick stands still until the clock
// catches up.
func (g *generation) tick() int64 {
	now := g.engine.host.Now().UnixMilli()
	for {
		last := g.latest.Load()
		if now <= last {
			return last
		}
		if g.latest.CompareAndSwap(last, now) {
			return now
		}
	}
}

// counting is the time, in ms since 1970, up to which the snapshot counts: now, or the time when another snapshot
// replaced it. Without that limit, a call that still uses the old snapshot could answer more than a later call that
// uses the new one.
func (s *Snapshot) counting() int64 {
	now := s.generation.tick()
	if end := s.ended.Load(); end != 0 {
		return min(now, end)
	}
	return now
}

// end stops the snapshot's counters and returns the time when they stopped, in ms since 1970.
func (s *Snapshot) end() int64 {
	for {
		now := s.generation.tick()
		s.ended.Store(now)
		if s.generation.latest.Load() == now { // nobody has counted further in the meantime
			return now
		}
	}
}

// growth says how a counter grows, and the value that it starts from, which is not valid if the device does not have
// the counter.
func (d *Device) growth(c count) (from profiles.Opt[uint64], g simulate.Growth) {
	nv := &d.snapshot.Board.NVLink
	switch c.quantity {
	case linkTraffic:
		from.Value, g = simulate.LinkTraffic(nv)
	case linkErrors:
		from.Value, g = simulate.LinkErrors(nv, d.Device, c.link)
	default:
		return d.course().Counter(c.quantity)
	}
	from.Valid = true
	return from, g
}

// counter is one of the device's counters; not valid if the device does not have it.
func (d *Device) counter(c count) (counter simulate.Counter, valid bool) {
	from, g := d.growth(c)
	if checkpoint, ok := d.meter.checkpoints[c]; ok {
		return checkpoint, from.Valid
	}
	return simulate.Begin(d.snapshot.generation.origin, from.Value, g), from.Valid
}

// counted is the present value of one of the device's counters.
func (d *Device) counted(c count) profiles.Opt[uint64] {
	counter, valid := d.counter(c)
	switch {
	case !valid:
		return profiles.Opt[uint64]{}
	case counter.Growth == simulate.Growth{}:
		return profiles.Some(counter.Value.Units) // no need to look at the clock
	}
	return profiles.Some(counter.At(d.snapshot.counting()))
}

// follow makes the device continue from its state in an older snapshot, which ended at a time in ms since 1970.
func (d *Device) follow(old *Device, end int64) {
	if course := old.course(); course.Same(d.Device, d.settings()) {
		d.meter.current = course
	} else {
		d.meter.start = course.Start(end / 1000)
	}
	next := func(c count) {
		was, _ := old.counter(c)
		from, g := d.growth(c)
		_, kept := old.meter.checkpoints[c]
		if same := g == was.Growth && from.Value == was.From; same && !kept {
			return
		} else if !same {
			was = was.Checkpoint(end, from.Value, g)
		}
		if d.meter.checkpoints == nil {
			d.meter.checkpoints = map[count]simulate.Counter{}
		}
		d.meter.checkpoints[c] = was
	}
	for q := range simulate.Quantities {
		next(count{quantity: q})
	}
	next(count{quantity: linkTraffic})
	for link := range max(old.LinkCount(), d.LinkCount()) {
		next(count{linkErrors, link})
	}
}

// LinkErrors counts the errors of one link.
func (d *Device) LinkErrors(number uint32) uint64 { return d.counted(count{linkErrors, number}).Value }

// LinkTraffic counts what one link has sent, and received, in KiB.
func (d *Device) LinkTraffic() uint64 { return d.counted(count{quantity: linkTraffic}).Value }
