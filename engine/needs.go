package engine

import (
	"github.com/nvmlfab/nvmlfab/engine/host"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// Need is what a function requires of its caller and of the object of a handle. The generator writes it from its table
// of requirements.
type Need uint8

const (
	// Alive requires a GPU that has not failed; otherwise the answer is that of its failure, such as GPU_IS_LOST.
	Alive Need = 1 << iota
	// WholeGPU refuses MIG devices with INVALID_ARGUMENT.
	WholeGPU
	// NoMIG refuses MIG devices with NOT_SUPPORTED.
	NoMIG
	// MIGConfig requires a caller who may configure MIG; otherwise the answer is NO_PERMISSION.
	MIGConfig
	// ApplicationsClocks requires a caller who may set applications clocks; otherwise the answer is NO_PERMISSION.
	ApplicationsClocks
	// AutoBoostedClocks requires a caller who may switch auto boosted clocks; otherwise the answer is NO_PERMISSION.
	AutoBoostedClocks
)

// forAdministrators are the needs that only an administrator meets. By default drivers let only administrators set
// applications clocks and let everybody switch auto boosted clocks; nvmlDeviceSetAPIRestriction changes that.
const forAdministrators = MIGConfig | ApplicationsClocks

// resolve returns the object that a handle stands for, and the GPU that the object is or is a part of. It checks
// permissions before arguments.
func (s *Snapshot) resolve(handle uintptr, need Need) (host.Key, *Device, abi.Return) {
	if need&forAdministrators != 0 && !s.generation.engine.host.Admin() {
		return host.Key{}, nil, abi.ERROR_NO_PERMISSION
	}
	key, ok := s.key(handle)
	if !ok || ofProcess(key.Kind) || key.Kind == host.Unit || uint64(key.Device) >= uint64(len(s.Devices)) {
		return key, nil, abi.ERROR_INVALID_ARGUMENT
	}
	gpu := s.Devices[key.Device]
	failed := gpu.fault.count()
	switch mig := key.Kind == host.MigDevice; {
	case mig && need&WholeGPU != 0:
		return key, nil, abi.ERROR_INVALID_ARGUMENT
	case mig && need&NoMIG != 0:
		return key, nil, abi.ERROR_NOT_SUPPORTED
	case failed && gpu.fault.answer != abi.SUCCESS && need&Alive != 0:
		return key, nil, gpu.fault.answer
	case failed && gpu.damaged != nil:
		return key, gpu.damaged, abi.SUCCESS
	}
	return key, gpu, abi.SUCCESS
}
