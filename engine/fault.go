package engine

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// fault decides when a GPU gets lost in this process. It counts the calls that use the GPU's handle. nil means that the
// GPU does not fail. A lost GPU stays lost for as long as the profile says so.
type fault struct {
	failure profiles.Failure
	calls   atomic.Uint64
	lost    atomic.Bool
	gone    bool // lost already when NVML started
}

// fault is the fault of a device. Its count continues for as long as the profile's failure stays the same.
func (g *generation) fault(i int, failure profiles.Failure) *fault {
	if f := g.faults[i]; f == nil || f.failure != failure {
		g.faults[i] = nil
		if failure.Loses() {
			f = &fault{failure: failure, gone: !g.started && !failure.Waits()}
			f.lost.Store(!failure.Waits())
			g.faults[i] = f
		}
	}
	return g.faults[i]
}

// count counts a call and returns whether the GPU is lost: from the start, after a number of calls, or by chance.
// Chance depends on the seed and on the number of the call alone.
func (f *fault) count() bool {
	if f == nil {
		return false
	}
	if f.lost.Load() {
		return true
	}
	call := f.calls.Add(1)
	if int64(call) <= f.failure.AfterCalls.Value {
		return false
	}
	if chance, ok := f.failure.Probability.Get(); ok {
		seed := uint64(f.failure.Seed.Value)
		if rand.New(rand.NewPCG(seed, call)).Float64() >= chance {
			return false
		}
	}
	f.lost.Store(true)
	return true
}

// Found is the result of a look-up of the device's handle: GPU_IS_LOST if the GPU was lost when NVML started and still
// is. A GPU that gets lost later keeps its handle.
func (d *Device) Found() abi.Return {
	if d.fault != nil && d.fault.gone {
		return abi.ERROR_GPU_IS_LOST
	}
	return abi.SUCCESS
}
