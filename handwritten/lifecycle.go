// Package handwritten answers NVML functions: one Go function retires one stub. A function
// is named like its symbol without the prefix; //nvml:symbol lets one answer several.
package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// Init makes the configured GPUs. The front counts references and calls it for the first.
//
//nvml:symbol nvmlInit nvmlInit_v2
func Init() abi.Return { return InitWithFlags(0) }

// InitWithFlags is Init; INIT_FLAG_NO_GPUS and INIT_FLAG_NO_ATTACH change nothing without
// a driver. A configuration that cannot be used answers UNKNOWN and says why on stderr.
func InitWithFlags(_ uint32) abi.Return {
	if err := engine.Start(); err != nil {
		engine.Complain(err)
		return abi.ERROR_UNKNOWN
	}
	return abi.SUCCESS
}

// Shutdown ends the generation of handles. The front calls it for the last reference.
func Shutdown() abi.Return {
	engine.Stop()
	return abi.SUCCESS
}

// DeviceGetCount is the number of GPUs.
//
//nvml:symbol nvmlDeviceGetCount nvmlDeviceGetCount_v2
func DeviceGetCount() (uint32, abi.Return) {
	return uint32(len(engine.Current().Devices)), abi.SUCCESS
}

// DeviceGetHandleByIndex answers INVALID_ARGUMENT beyond the last GPU.
//
//nvml:symbol nvmlDeviceGetHandleByIndex nvmlDeviceGetHandleByIndex_v2
func DeviceGetHandleByIndex(index uint32) (*engine.Device, abi.Return) {
	d := engine.Current().DeviceAt(index)
	if d == nil {
		return nil, abi.ERROR_INVALID_ARGUMENT
	}
	return d, abi.SUCCESS
}
