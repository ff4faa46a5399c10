package engine

import (
	"sync"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/simulate"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// meter computes a device's readings and counters. It is made at the first request.
type meter struct {
	once        sync.Once
	start       simulate.Start
	current     *simulate.Course
	moves       bool
	still       simulate.Readings          // of a device whose readings never change
	checkpoints map[count]simulate.Counter // of counters whose rate has changed since the origin
}

// settings override values of the profile.
func (d *Device) settings() simulate.Settings { return simulate.Settings{} }

func (d *Device) course() *simulate.Course {
	d.meter.once.Do(func() {
		if d.meter.current == nil {
			d.meter.current = simulate.New(d.Device, d.settings(), d.meter.start)
		}
		if d.meter.moves = d.meter.current.Moves(); !d.meter.moves {
			d.meter.still = d.meter.current.At(0)
		}
	})
	return d.meter.current
}

// Readings are the device's present readings.
func (d *Device) Readings() simulate.Readings {
	c := d.course()
	if !d.meter.moves {
		return d.meter.still // no need to look at the clock
	}
	return c.At(d.snapshot.Now().Unix())
}

// ReadingsAt are the device's readings at a time.
func (d *Device) ReadingsAt(t time.Time) simulate.Readings { return d.course().At(t.Unix()) }

// AveragePowerDraw is the power drawn over the last second, in mW; not valid if the profile does not give it.
func (d *Device) AveragePowerDraw() profiles.Opt[uint32] {
	if d.Power.AverageDrawMW.Valid && d.DynamicMetrics.Power != (profiles.DynamicPower{}) {
		return d.Readings().PowerMW
	}
	return d.Power.AverageDrawMW
}

// Energy is the energy used so far, in mJ. If the profile gives none, or if the power changes, it is the integral of
// the power.
func (d *Device) Energy() profiles.Opt[uint64] { return d.counted(count{quantity: simulate.Energy}) }

// Lost is the time, in µs, for which a reason has held the clocks down so far.
func (d *Device) Lost(to simulate.Quantity) profiles.Opt[uint64] {
	return d.counted(count{quantity: to})
}
