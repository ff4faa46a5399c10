package engine

import (
	"time"

	"github.com/nvmlfab/nvmlfab/engine/simulate"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// A counter starts at the origin of its generation with the value that the profile gives. A new snapshot may change the
// rate of a counter. The old value is then kept as a checkpoint, and the counter goes on from it at the new rate.

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

// end stops the snapshot's counters at the latest time that anybody has been answered with, in ms since 1970, and
// returns that time.
func (s *Snapshot) end() int64 {
	for {
		last := s.generation.latest.Load()
		s.ended.Store(max(last, 1))
		if s.generation.latest.Load() == last { // nobody has counted further in the meantime
			return last
		}
	}
}

// counted is the present value of one of the device's counters.
func (d *Device) counted(c simulate.Count) profiles.Opt[uint64] {
	return d.meter.Value(c, d.snapshot.counting)
}

// LinkErrors counts the errors of one link.
func (d *Device) LinkErrors(number uint32) uint64 {
	return d.counted(simulate.Count{Quantity: simulate.LinkErrorCounts, Link: number}).Value
}

// LinkTraffic counts what one link has sent, and received, in KiB.
func (d *Device) LinkTraffic() uint64 {
	return d.counted(simulate.Count{Quantity: simulate.LinkTraffics}).Value
}
