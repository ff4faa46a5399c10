// Package handwritten answers NVML functions. Each Go function retires the stub of the symbol with its name and the
// prefix nvml. With //nvml:symbol one function can answer several symbols.
package handwritten

import (
	"errors"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// Init makes the configured GPUs. The front counts references and calls it for the first.
//
//nvml:symbol nvmlInit nvmlInit_v2
func Init(e *engine.Engine) abi.Return { return InitWithFlags(e, 0) }

// InitWithFlags is Init. INIT_FLAG_NO_GPUS and INIT_FLAG_NO_ATTACH have no effect, since there is no driver. If the
// configuration cannot be used, it answers UNKNOWN and prints the reason on stderr. If the profile's system.init_failure
// lets it fail, it answers that and prints nothing.
func InitWithFlags(e *engine.Engine, _ uint32) abi.Return {
	err := e.Start()
	var wanted engine.InitFailure
	switch {
	case errors.As(err, &wanted):
		return wanted.Answer
	case err != nil:
		e.Complain(err)
		return abi.ERROR_UNKNOWN
	}
	return abi.SUCCESS
}

// Shutdown ends the generation of handles. The front calls it for the last reference.
func Shutdown(e *engine.Engine) abi.Return {
	e.Stop()
	return abi.SUCCESS
}

// DeviceGetCount is the number of GPUs.
//
//nvml:symbol nvmlDeviceGetCount nvmlDeviceGetCount_v2
func DeviceGetCount(s *engine.Snapshot) (uint32, abi.Return) {
	return uint32(len(s.Devices)), abi.SUCCESS
}

// DeviceGetHandleByIndex finds a GPU by its index. It answers INVALID_ARGUMENT if there is none, and GPU_IS_LOST if it
// was lost when NVML started.
//
//nvml:symbol nvmlDeviceGetHandleByIndex nvmlDeviceGetHandleByIndex_v2
func DeviceGetHandleByIndex(s *engine.Snapshot, index uint32) (*engine.Device, abi.Return) {
	d := s.DeviceAt(index)
	if d == nil {
		return nil, abi.ERROR_INVALID_ARGUMENT
	}
	return found(d)
}
