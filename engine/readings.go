package engine

import (
	"sync"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/simulate"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// meter is what a device's readings and counters follow. It is made when somebody first asks for one.
type meter struct {
	once        sync.Once
	start       simulate.Start
	current     *simulate.Course
	moves       bool
	still       simulate.Readings          // of a device that does not move
	checkpoints map[count]simulate.Counter // of what has not grown in the same way ever since the origin
}

// settings are what is in force in place of the profile.
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

// Readings are what the device reads now.
func (d *Device) Readings() simulate.Readings {
	c := d.course()
	if !d.meter.moves {
		return d.meter.still // without looking at the clock
	}
	return c.At(d.snapshot.Now().Unix())
}

// ReadingsAt are what the device read at a time.
func (d *Device) ReadingsAt(t time.Time) simulate.Readings { return d.course().At(t.Unix()) }

// AveragePowerDraw is the power drawn over the last second, in mW. It is only known where the profile gives one.
func (d *Device) AveragePowerDraw() profiles.Opt[uint32] {
	if d.Power.AverageDrawMW.Valid && d.DynamicMetrics.Power != (profiles.DynamicPower{}) {
		return d.Readings().PowerMW
	}
	return d.Power.AverageDrawMW
}

// Energy is the energy used so far, in mJ. Where the profile gives none, or the power moves, it grows by the power drawn.
func (d *Device) Energy() profiles.Opt[uint64] { return d.counted(count{quantity: simulate.Energy}) }

// Lost is the time that clocks were held down for a reason so far, in µs.
func (d *Device) Lost(to simulate.Quantity) profiles.Opt[uint64] {
	return d.counted(count{quantity: to})
}
