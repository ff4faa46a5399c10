package engine

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/words"
)

// fault decides when a GPU fails in this process. It counts the calls that use the GPU's handle. nil means that the GPU
// does not fail. A GPU that has failed stays so for as long as the profile says so.
type fault struct {
	failure profiles.Failure
	answer  abi.Return // what functions answer then; SUCCESS if they answer as a GPU with memory errors
	calls   atomic.Uint64
	failed  atomic.Bool
	gone    bool // lost already when NVML started
}

// failureAnswers are what the functions of a failed GPU answer, by the failure's mode.
var failureAnswers = words.Table[string, abi.Return]{
	{"lost", abi.ERROR_GPU_IS_LOST},
	{"fallen_off_bus", abi.ERROR_GPU_IS_LOST},
	{"ecc_uncorrectable", abi.SUCCESS},
	{"not_ready", abi.ERROR_NOT_READY},
	{"reset_required", abi.ERROR_RESET_REQUIRED},
	{"no_permission", abi.ERROR_NO_PERMISSION},
	{"timeout", abi.ERROR_TIMEOUT},
	{"unknown_error", abi.ERROR_UNKNOWN},
}

// fault is the fault of a device. Its count continues for as long as the profile's failure stays the same.
func (g *generation) fault(i int, failure profiles.Failure) *fault {
	if f := g.faults[i]; f == nil || f.failure != failure {
		g.faults[i] = nil
		if failure.Fails() {
			f = &fault{
				failure: failure, answer: failureAnswers.Of(failure.Mode.Value),
				gone: failure.Loses() && !g.started && !failure.Waits(),
			}
			f.failed.Store(!failure.Waits())
			g.faults[i] = f
		}
	}
	return g.faults[i]
}

// count counts a call and returns whether the GPU has failed: from the start, after a number of calls, or by chance.
// Chance depends on the seed and on the number of the call alone.
func (f *fault) count() bool {
	if f == nil {
		return false
	}
	if f.failed.Load() {
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
	f.failed.Store(true)
	return true
}

// damage is a GPU as it is once its memory has an uncorrectable error; nil unless it fails so, and if it counts no errors.
func (d *Device) damage() *Device {
	if d.Failure.Mode.Value != "ecc_uncorrectable" {
		return nil
	}
	errors, ok := change.Uncorrectable(d.Device, 1)
	if !ok {
		return nil
	}
	device, err := d.With(errors)
	if err != nil { // a counter at its end does not count any further
		return nil
	}
	return &Device{view: d.view, Device: device, meter: d.meter, fault: d.fault, accounted: d.accounted}
}

// Found is the result of a look-up of the device's handle: GPU_IS_LOST if the GPU was lost when NVML started and still
// is. A GPU that gets lost later keeps its handle.
func (d *Device) Found() abi.Return {
	if d.fault != nil && d.fault.gone {
		return abi.ERROR_GPU_IS_LOST
	}
	return abi.SUCCESS
}

// InitFailure is the error of Start on a node whose profile lets nvmlInit fail.
type InitFailure struct {
	// Answer is what nvmlInit answers.
	Answer abi.Return
	mode   string
}

func (f InitFailure) Error() string { return "system.init_failure is " + f.mode }

// initAnswers are what nvmlInit answers, by the profile's system.init_failure.
var initAnswers = words.Table[string, abi.Return]{
	{"driver_not_loaded", abi.ERROR_DRIVER_NOT_LOADED},
	{"lib_rm_version_mismatch", abi.ERROR_LIB_RM_VERSION_MISMATCH},
	{"no_permission", abi.ERROR_NO_PERMISSION},
	{"gpu_not_found", abi.ERROR_GPU_NOT_FOUND},
	{"not_ready", abi.ERROR_NOT_READY},
	{"timeout", abi.ERROR_TIMEOUT},
	{"irq_issue", abi.ERROR_IRQ_ISSUE},
	{"unknown_error", abi.ERROR_UNKNOWN},
}

// initFailure is an InitFailure if NVML is not to start at a time in ms since 1970.
func (g *generation) initFailure(now int64) error {
	board, err := g.live.Node(now)
	if err != nil {
		return err
	}
	if answer, fails := initAnswers.Find(board.System.InitFailure.Value); fails {
		return InitFailure{answer, board.System.InitFailure.Value}
	}
	return nil
}
