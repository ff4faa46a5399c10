package engine

import (
	"github.com/nvmlfab/nvmlfab/engine/simulate"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// Device is a GPU, or a MIG device, as one snapshot shows it.
type Device struct {
	view
	*profiles.Device
	Instance *ComputeInstance // of a MIG device; nil for a whole GPU
	meter    *simulate.Meter
	fault    *fault
	// accounted are the processes that ended on the GPU; none for a MIG device.
	accounted []state.Accounted
	damaged   *Device // the GPU once its memory has an uncorrectable error; nil unless it fails so
}

// Accounted are the processes that ended on the GPU while accounting was on, oldest first.
func (d *Device) Accounted() []state.Accounted { return d.accounted }
