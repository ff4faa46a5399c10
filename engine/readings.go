package engine

import (
	"time"

	"github.com/nvmlfab/nvmlfab/engine/simulate"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// Readings are what the device reads now. The caller must not change them: other calls share them.
func (d *Device) Readings() *simulate.Readings {
	if still := d.meter.Still(); still != nil {
		return d.shown(still) // without looking at the clock
	}
	return d.shown(d.meter.Course().At(d.snapshot.Now().Unix()))
}

// ReadingsAt are the device's readings at a time, which the caller must not change.
func (d *Device) ReadingsAt(t time.Time) *simulate.Readings {
	return d.shown(d.meter.Course().At(t.Unix()))
}

// shown are readings as NVML shows them: it knows no loads of a GPU in MIG mode, nor of its MIG devices.
func (d *Device) shown(r *simulate.Readings) *simulate.Readings {
	if d.MIG.ModeCurrent.Value {
		without := *r
		without.Utilization = profiles.Utilization{}
		return &without
	}
	return r
}

// AveragePowerDraw is the power drawn over the last second, in mW; not valid if the profile does not give it.
func (d *Device) AveragePowerDraw() profiles.Opt[uint32] {
	if d.Power.AverageDrawMW.Valid && d.DynamicMetrics.Power != (profiles.DynamicPower{}) {
		return d.Readings().PowerMW
	}
	return d.Power.AverageDrawMW
}

// Energy is the energy used so far, in mJ. If the profile gives none, or if the power changes, it is the integral of
// the power.
func (d *Device) Energy() profiles.Opt[uint64] {
	return d.counted(simulate.Count{Quantity: simulate.Energy})
}

// Lost is the time, in µs, for which a reason has held the clocks down so far.
func (d *Device) Lost(to simulate.Quantity) profiles.Opt[uint64] {
	return d.counted(simulate.Count{Quantity: to})
}
