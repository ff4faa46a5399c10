package simulate

import (
	"math"
	"math/bits"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// Amount is what was counted: whole units and millionths, so that what grows slowly is not lost between checkpoints.
type Amount struct {
	Units  uint64
	Micros uint32
}

const million = 1_000_000

// plus is a + b, but no more than can be counted.
func (a Amount) plus(b Amount) Amount {
	micros := a.Micros + b.Micros
	units, over := bits.Add64(a.Units, b.Units, uint64(micros/million))
	if over != 0 {
		return Amount{Units: math.MaxUint64}
	}
	return Amount{units, micros % million}
}

// minus is a - b. What was counted up to two times may have run over; their difference has not.
func (a Amount) minus(b Amount) Amount {
	borrow := uint32(0)
	if a.Micros < b.Micros {
		borrow = 1
	}
	return Amount{a.Units - b.Units - uint64(borrow), a.Micros + borrow*million - b.Micros}
}

func (a Amount) less(b Amount) bool {
	return a.Units < b.Units || a.Units == b.Units && a.Micros < b.Micros
}

// Quantity is something that a device counts.
type Quantity uint8

const (
	// Energy is counted in mJ.
	Energy Quantity = iota
	// LostToPowerCap, LostToSWThermal and LostToHWThermal are the time that clocks were held down, in µs.
	LostToPowerCap
	LostToSWThermal
	LostToHWThermal
	// Quantities is the number of quantities.
	Quantities
)

// lostTo are the reasons for which lost time is counted, from LostToPowerCap on.
var lostTo = [3]Reason{SWPowerCap, SWThermalSlowdown, HWThermalSlowdown}

// count writes into the next row what has been counted at the end of this one.
func (r *row) count(next *row) {
	next.energy, next.lost = r.energy+uint64(r.power), r.lost
	for i, reason := range lostTo {
		if r.limits&reason != 0 {
			next.lost[i]++
		}
	}
}

// rate is what a quantity grows by in a second, and before what it has grown by in the stretch before that second.
func (r *row) rate(q Quantity) uint64 {
	switch {
	case q == Energy:
		return uint64(r.power)
	case r.limits&lostTo[q-LostToPowerCap] != 0:
		return million
	}
	return 0
}

func (r *row) before(q Quantity) uint64 {
	if q == Energy {
		return r.energy
	}
	return uint64(r.lost[q-LostToPowerCap]) * million
}

// total is what a quantity grows by from the start of the stretch to some ms after a second of it has begun.
func (s stretch) total(q Quantity, second, ms int64) Amount {
	r := &s[second]
	part := r.rate(q) * uint64(ms)
	return Amount{r.before(q) + part/1000, uint32(part%1000) * 1000}
}

// Total is what a quantity has grown by at a time in ms since 1970. Only differences of totals mean something: a course
// that began with a start counts from there, others from 1970.
func (c *Course) Total(q Quantity, ms int64) Amount {
	c.once.Do(c.build)
	ms = max(ms, 0)
	second, ms := ms/1000, ms%1000
	head := c.head.seconds()
	if head == 0 {
		return c.repeated(q, second, ms)
	}
	switch i := second - c.start.Second; {
	case i < 0:
		return Amount{}
	case i < head:
		return c.head.total(q, i, ms)
	}
	return c.head.total(q, head, 0).plus(c.repeated(q, second, ms).minus(c.repeated(q, c.start.Second+head, 0)))
}

// repeated is what a quantity has grown by since 1970 if the device was always in its period.
func (c *Course) repeated(q Quantity, second, ms int64) Amount {
	period := c.rows.seconds()
	a := c.rows.total(q, second%period, ms)
	a.Units += uint64(second/period) * c.rows[period].before(q)
	return a
}

// Counter is what a quantity starts from, not valid if the device does not count it, and how it grows. Where the profile
// says what a counter is, and nothing that it follows from moves, it stays what it is.
func (c *Course) Counter(q Quantity) (from profiles.Opt[uint64], g Growth) {
	in, lost := &c.in, &c.in.reasons.Counters
	moves := in.powerMoves()
	switch q {
	case Energy:
		from = in.power.TotalEnergyConsumptionMJ
		if moves || !from.Valid && in.power.CurrentDrawMW.Valid {
			return profiles.Some(from.Or(0)), Growth{course: c, quantity: q}
		}
		return from, g
	case LostToPowerCap:
		from = lost.SWPowerCapUS
	case LostToSWThermal:
		from, moves = lost.SWThermalSlowdownUS, in.temperatureMoves()
	case LostToHWThermal:
		from, moves = lost.HWThermalSlowdownUS, in.temperatureMoves()
	}
	if from.Valid && moves {
		g = Growth{course: c, quantity: q}
	}
	return from, g
}

// Growth is how a counter grows: with a course, or by as much in every second. The zero Growth does not.
type Growth struct {
	course   *Course
	quantity Quantity
	rate     Amount
}

// Steady is a growth by as much in every second, to a millionth.
func Steady(perSecond float64) Growth {
	if !(perSecond > 0) {
		return Growth{}
	}
	whole, part := math.Modf(min(perSecond, 1<<53))
	return Growth{rate: Amount{Units: uint64(whole)}.plus(Amount{Micros: uint32(math.Round(part * million))})}
}

// Total is what has grown at a time in ms since 1970. Only differences of totals mean something.
func (g Growth) Total(ms int64) Amount {
	if g.course != nil {
		return g.course.Total(g.quantity, ms)
	}
	second, ms := uint64(max(ms, 0)/1000), max(ms, 0)%1000
	hi, lo := bits.Mul64(g.rate.Units, uint64(ms)*1000)
	whole, micros := bits.Div64(hi, lo, million)
	micros += uint64(g.rate.Micros)*second + uint64(g.rate.Micros)*uint64(ms)/1000
	return Amount{g.rate.Units*second + whole + micros/million, uint32(micros % million)}
}

// Counter is a counter that never runs backwards: its value at a time, its checkpoint, and how it has grown since.
type Counter struct {
	// Since is when the checkpoint was made, in ms since 1970.
	Since int64
	// From is what the profile lets the counter start from.
	From uint64
	// Value is what the counter was at the checkpoint.
	Value Amount
	// Growth is how it grows from then on.
	Growth Growth
}

// Begin is a counter that starts at an instant.
func Begin(origin int64, from uint64, g Growth) Counter {
	return Counter{origin, from, Amount{Units: from}, g}
}

// At is what the counter is at a time in ms since 1970; before its checkpoint, what it was then.
func (c Counter) At(ms int64) uint64 { return c.amount(ms).Units }

func (c Counter) amount(ms int64) Amount {
	if ms <= c.Since {
		return c.Value
	}
	return c.Value.plus(c.Growth.Total(ms).minus(c.Growth.Total(c.Since)))
}

// Checkpoint is the counter from a time on, when it grows in another way. If the profile lets it start from another
// number, it goes on from there, unless it is already beyond.
func (c Counter) Checkpoint(ms int64, from uint64, g Growth) Counter {
	next := Counter{max(ms, c.Since), from, c.amount(ms), g}
	if start := (Amount{Units: from}); from != c.From && next.Value.less(start) {
		next.Value = start
	}
	return next
}

// LinkErrors is how one link's error counters grow.
func LinkErrors(nv *profiles.NVLink, d *profiles.Device, link uint32) (from uint64, g Growth) {
	rate := nv.Defaults.ErrorRate.Or(0)
	err := len(d.NVLinkError.Links) == 0
	for _, l := range d.NVLinkError.Links {
		err = err || l == link
	}
	if err {
		rate += d.NVLinkError.Rate.Or(0)
	}
	return 0, Steady(rate)
}

// LinkTraffic is how what one link has sent, and received, grows, in KiB: by a part of the link's speed.
func LinkTraffic(nv *profiles.NVLink) (from uint64, g Growth) {
	speed := float64(nv.BandwidthPerLinkMbps.Or(0)) * 1e6 / 1024
	return nv.Defaults.CounterSeed.Or(0), Steady(nv.Defaults.DutyCycle.Or(0) * speed)
}
