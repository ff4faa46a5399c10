package simulate

import (
	"math"
	"math/bits"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// Amount is a count in whole units and millionths, so that slow growth is not rounded away at checkpoints.
type Amount struct {
	Units  uint64
	Micros uint32
}

const million = 1_000_000

// plus is a + b, limited to the greatest Amount.
func (a Amount) plus(b Amount) Amount {
	micros := a.Micros + b.Micros
	units, over := bits.Add64(a.Units, b.Units, uint64(micros/million))
	if over != 0 {
		return Amount{Units: math.MaxUint64}
	}
	return Amount{units, micros % million}
}

// minus is a - b. Both totals may have wrapped around; their difference is still right.
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

// Quantity is something that a device accumulates.
type Quantity uint8

const (
	// Energy is in mJ.
	Energy Quantity = iota
	// LostToPowerCap, LostToSWThermal and LostToHWThermal are the times for which clocks were held down, in µs.
	LostToPowerCap
	LostToSWThermal
	LostToHWThermal
	// Busy is the GPU's utilisation: percent times seconds.
	Busy
	// Quantities is the number of quantities.
	Quantities
)

// lostTo are the reasons for which lost time is counted, from LostToPowerCap on.
var lostTo = [3]Reason{SWPowerCap, SWThermalSlowdown, HWThermalSlowdown}

// count adds what this row contributes to the counts of the row before it, and stores the sum in next.
func (r *row) count(next *row) {
	next.energy, next.lost, next.busy = r.energy+uint64(r.power), r.lost, r.busy+uint64(r.gpu)
	for i, reason := range lostTo {
		if r.limits&reason != 0 {
			next.lost[i]++
		}
	}
}

// rate is the growth of a quantity in this second, and before is its growth from the start of the stretch to this
// second.
func (r *row) rate(q Quantity) uint64 {
	switch {
	case q == Energy:
		return uint64(r.power)
	case q == Busy:
		return uint64(r.gpu)
	case r.limits&lostTo[q-LostToPowerCap] != 0:
		return million
	}
	return 0
}

func (r *row) before(q Quantity) uint64 {
	switch q {
	case Energy:
		return r.energy
	case Busy:
		return r.busy
	}
	return uint64(r.lost[q-LostToPowerCap]) * million
}

// total is the growth of a quantity from the start of the stretch to a time: ms milliseconds after the start of a
// second.
func (s stretch) total(q Quantity, second, ms int64) Amount {
	r := &s[second]
	part := r.rate(q) * uint64(ms)
	return Amount{r.before(q) + part/1000, uint32(part%1000) * 1000}
}

// Total is the growth of a quantity up to a time in ms since 1970. Only differences of totals have a meaning, since
// some courses count from 1970 and others from their Start.
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

// repeated is the growth of a quantity since 1970 if the device had always repeated its period.
func (c *Course) repeated(q Quantity, second, ms int64) Amount {
	period := c.rows.seconds()
	a := c.rows.total(q, second%period, ms)
	a.Units += uint64(second/period) * c.rows[period].before(q)
	return a
}

// Counter says what a quantity starts from, which is not valid if the device does not count it, and how it grows. A
// counter that the profile gives does not grow if the readings that it depends on are constant.
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
	case Busy:
		if from.Valid = in.utilization.GPU.Valid; from.Valid && in.loadMoves() {
			return from, Growth{course: c, quantity: q}
		}
		return from, Steady(float64(in.utilization.GPU.Or(0)))
	}
	if from.Valid && moves {
		g = Growth{course: c, quantity: q}
	}
	return from, g
}

// Growth is how a counter grows: as a course says, or by the same amount every second. The zero Growth is no growth.
type Growth struct {
	course   *Course
	quantity Quantity
	rate     Amount
}

// Steady is a growth by the same amount every second, to a millionth.
func Steady(perSecond float64) Growth {
	if !(perSecond > 0) {
		return Growth{}
	}
	whole, part := math.Modf(min(perSecond, 1<<53))
	return Growth{rate: Amount{Units: uint64(whole)}.plus(Amount{Micros: uint32(math.Round(part * million))})}
}

// Total is the growth up to a time in ms since 1970. Only differences of totals have a meaning.
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

// Counter is a counter that never falls: a checkpoint, the value at it, and the growth since.
type Counter struct {
	// Since is when the checkpoint was made, in ms since 1970.
	Since int64
	// From is the value that the profile lets the counter start from.
	From uint64
	// Value is the value at the checkpoint.
	Value Amount
	// Growth is the growth after the checkpoint.
	Growth Growth
	// Resets is how often the counter was made to start again.
	Resets uint32
}

// Begin is a counter that starts at an instant.
func Begin(origin int64, from uint64, g Growth) Counter {
	return Counter{Since: origin, From: from, Value: Amount{Units: from}, Growth: g}
}

// At is the value at a time in ms since 1970. For times before the checkpoint it is the value at the checkpoint.
func (c Counter) At(ms int64) uint64 { return c.amount(ms).Units }

func (c Counter) amount(ms int64) Amount {
	if ms <= c.Since {
		return c.Value
	}
	return c.Value.plus(c.Growth.Total(ms).minus(c.Growth.Total(c.Since)))
}

// Checkpoint returns the counter with a new growth from a time on. If the profile now lets it start from a higher
// number than it has reached, it jumps to that number.
func (c Counter) Checkpoint(ms int64, from uint64, g Growth) Counter {
	next := Counter{max(ms, c.Since), from, c.amount(ms), g, c.Resets}
	if start := (Amount{Units: from}); from != c.From && next.Value.less(start) {
		next.Value = start
	}
	return next
}

// Micros is the value at a time in ms since 1970 in millionths of its unit. It wraps around.
func (c Counter) Micros(ms int64) uint64 {
	a := c.amount(ms)
	return a.Units*million + uint64(a.Micros)
}

// LinkErrors is the growth of the error counters of one link.
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

// LinkTraffic is the growth of the traffic of one link, sent and received, in KiB: a part of the link's speed.
func LinkTraffic(nv *profiles.NVLink) (from uint64, g Growth) {
	speed := float64(nv.BandwidthPerLinkMbps.Or(0)) * 1e6 / 1024
	return nv.Defaults.CounterSeed.Or(0), Steady(nv.Defaults.DutyCycle.Or(0) * speed)
}
