package engine

import (
	"time"

	"github.com/nvmlfab/nvmlfab/engine/simulate"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// Counters grow from the origin of their generation as the profile says. When a snapshot in which they grow in another way
// takes the place of an older one, they are written down as they were, and go on from there.

// count names one of a device's counters: a quantity, or the errors or the traffic of its links.
type count struct {
	quantity simulate.Quantity
	link     uint32
}

const (
	linkTraffic = simulate.Quantities + iota // of each link
	linkErrors
)

// origin is when counters begin: when the machine was booted. Processes round that alike, though they measure it at other
// times; a forked process keeps the origin that it had.
func (e *Engine) origin() int64 { return e.host.Booted().Round(10 * time.Second).UnixMilli() }

// tick is the time that counters go by, in ms since 1970. It stands still while the clock is behind what it once said.
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

// counting is the time, in ms since 1970, up to which the snapshot counts: until now, or until another took its place.
// A call that is late with an old snapshot would otherwise answer more than a later call with the new one.
func (s *Snapshot) counting() int64 {
	now := s.generation.tick()
	if end := s.ended.Load(); end != 0 {
		return min(now, end)
	}
	return now
}

// end makes the snapshot count no further, and says until when it did, in ms since 1970.
func (s *Snapshot) end() int64 {
	for {
		now := s.generation.tick()
		s.ended.Store(now)
		if s.generation.latest.Load() == now { // nobody has counted further meanwhile
			return now
		}
	}
}

// growth is what a counter starts from, not valid if the device does not have it, and how it grows.
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

// counted is what one of the device's counters is now.
func (d *Device) counted(c count) profiles.Opt[uint64] {
	counter, valid := d.counter(c)
	switch {
	case !valid:
		return profiles.Opt[uint64]{}
	case counter.Growth == simulate.Growth{}:
		return profiles.Some(counter.Value.Units) // without looking at the clock
	}
	return profiles.Some(counter.At(d.snapshot.counting()))
}

// follow makes the device go on from what it was in a snapshot that ended at a time in ms since 1970.
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
