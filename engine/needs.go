package engine

import (
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/host"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
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

// restricted are the needs that nvmlDeviceSetAPIRestriction decides about, with the setter that it names. By default
// drivers let only administrators set applications clocks and let everybody switch auto boosted clocks.
var restricted = []struct {
	need Need
	api  abi.RestrictedAPI_t
}{
	{ApplicationsClocks, abi.RESTRICTED_API_SET_APPLICATION_CLOCKS},
	{AutoBoostedClocks, abi.RESTRICTED_API_SET_AUTO_BOOSTED_CLOCKS},
}

// permitted says whether the caller may do what needs that with the GPU of a handle. Without such a GPU the defaults count. Nobody
// may configure MIG where only some MIG devices are shown, as in a container that was given those: the driver's device node for that
// is not shown there.
func (s *Snapshot) permitted(handle uintptr, need Need) bool {
	if need&MIGConfig != 0 && s.showsPart(handle) {
		return false
	}
	if need&(MIGConfig|ApplicationsClocks|AutoBoostedClocks) == 0 || s.generation.engine.host.Admin() {
		return true
	}
	gpu := &profiles.Device{}
	if key, ok := s.key(handle); ok && key.Kind == host.Device && uint64(key.Device) < uint64(len(s.Devices)) {
		gpu = s.Devices[key.Device].Device
	}
	for _, r := range restricted {
		if only, _ := change.APIRestricted(gpu, r.api); need&r.need != 0 && only {
			return false
		}
	}
	return need&MIGConfig == 0
}

// showsPart says whether the program sees only some MIG devices of the GPU that the object of a handle is or is a part of.
func (s *Snapshot) showsPart(handle uintptr) bool {
	key, ok := s.key(handle)
	return ok && !ofProcess(key.Kind) && key.Kind != host.Unit && uint64(key.Device) < uint64(len(s.Devices)) &&
		s.Devices[key.Device].MIG.Visible != nil
}

// resolve returns the object that a handle stands for, and the GPU that the object is or is a part of. It checks
// permissions before arguments.
func (s *Snapshot) resolve(handle uintptr, need Need) (host.Key, *Device, abi.Return) {
	if !s.permitted(handle, need) {
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
