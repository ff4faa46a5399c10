package engine

import (
	"github.com/nvmlfab/nvmlfab/engine/host"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// Need is what a function wants of its caller, and of what a handle stands for. The generator writes it from its table
// of requirements.
type Need uint8

const (
	// Alive wants a GPU that is not lost, else GPU_IS_LOST.
	Alive Need = 1 << iota
	// WholeGPU wants no MIG device, else INVALID_ARGUMENT.
	WholeGPU
	// NoMIG wants no MIG device, else NOT_SUPPORTED.
	NoMIG
	// MIGConfig wants a caller who may configure MIG, else NO_PERMISSION.
	MIGConfig
	// ApplicationsClocks wants a caller who may set applications clocks, else NO_PERMISSION.
	ApplicationsClocks
	// AutoBoostedClocks wants a caller who may switch auto boosted clocks, else NO_PERMISSION.
	AutoBoostedClocks
)

// forAdministrators are the needs that an administrator alone meets. Drivers leave applications clocks to
// administrators and auto boosted clocks to everybody, until nvmlDeviceSetAPIRestriction changes it.
const forAdministrators = MIGConfig | ApplicationsClocks

// resolve is what a handle of the node stands for: what it is about itself, and the GPU that it is or is a part of.
// Permissions come before arguments.
func (s *Snapshot) resolve(handle uintptr, need Need) (host.Key, *Device, abi.Return) {
	if need&forAdministrators != 0 && !s.generation.engine.host.Admin() {
		return host.Key{}, nil, abi.ERROR_NO_PERMISSION
	}
	key, ok := s.key(handle)
	if !ok || ofProcess(key.Kind) || key.Kind == host.Unit || uint64(key.Device) >= uint64(len(s.Devices)) {
		return key, nil, abi.ERROR_INVALID_ARGUMENT
	}
	gpu := s.Devices[key.Device]
	lost := gpu.fault.count()
	switch mig := key.Kind == host.MigDevice; {
	case mig && need&WholeGPU != 0:
		return key, nil, abi.ERROR_INVALID_ARGUMENT
	case mig && need&NoMIG != 0:
		return key, nil, abi.ERROR_NOT_SUPPORTED
	case lost && need&Alive != 0:
		return key, nil, abi.ERROR_GPU_IS_LOST
	}
	return key, gpu, abi.SUCCESS
}
