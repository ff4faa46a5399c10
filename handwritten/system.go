package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// SystemGetDriverVersion is the driver's version, such as 580.105.08.
func SystemGetDriverVersion(s *engine.Snapshot) (string, abi.Return) {
	return opt(s.Board.System.DriverVersion)
}

// SystemGetNVMLVersion is the library's version: CUDA's major number and the driver's version.
func SystemGetNVMLVersion(s *engine.Snapshot) (string, abi.Return) {
	return opt(s.Board.System.NVMLVersion)
}

// SystemGetCudaDriverVersion is the newest CUDA version that the driver serves, as major*1000 + minor*10.
//
//nvml:symbol nvmlSystemGetCudaDriverVersion nvmlSystemGetCudaDriverVersion_v2
func SystemGetCudaDriverVersion(s *engine.Snapshot) (int32, abi.Return) {
	system := &s.Board.System
	major, minor, ret := pair(system.CUDAVersionMajor, system.CUDAVersionMinor)
	return int32(major*1000 + minor*10), ret
}

// SystemGetProcessName is the path of the program of a process on a GPU's list, or of any other live process as it was
// called; NOT_FOUND if there is none.
func SystemGetProcessName(s *engine.Snapshot, pid uint32) (string, abi.Return) {
	for _, d := range s.Devices {
		for _, p := range d.Processes {
			if p.PID == pid && p.Name.Valid {
				return p.Name.Value, abi.SUCCESS
			}
		}
	}
	if name, ok := s.Engine().ProcessName(pid); ok {
		return name, abi.SUCCESS
	}
	return "", abi.ERROR_NOT_FOUND
}

// GetExcludedDeviceCount is 0: the driver excludes no GPU.
//
//nvml:symbol nvmlGetExcludedDeviceCount nvmlGetBlacklistDeviceCount
func GetExcludedDeviceCount(*engine.Snapshot) (uint32, abi.Return) { return 0, abi.SUCCESS }

// GetExcludedDeviceInfoByIndex answers INVALID_ARGUMENT: the driver excludes no GPU.
//
//nvml:symbol nvmlGetExcludedDeviceInfoByIndex nvmlGetBlacklistDeviceInfoByIndex
func GetExcludedDeviceInfoByIndex(*engine.Snapshot, uint32, *abi.ExcludedDeviceInfo_t) abi.Return {
	return abi.ERROR_INVALID_ARGUMENT
}

// SystemGetHicVersion answers an empty list, since only S-class units have host interface cards.
func SystemGetHicVersion(*engine.Snapshot) ([]abi.HwbcEntry_t, abi.Return) { return nil, abi.SUCCESS }

// confidential is confidential computing on the machine: it is off. NOT_SUPPORTED if no GPU has protected memory.
func confidential(s *engine.Snapshot) (settings abi.SystemConfComputeSettings_v1_t, ret abi.Return) {
	for _, d := range s.Devices {
		if d.CCProtectedMemory.TotalBytes.Valid {
			return abi.SystemConfComputeSettings_v1_t{
				Environment:  abi.CC_SYSTEM_ENVIRONMENT_UNAVAILABLE,
				CcFeature:    abi.CC_SYSTEM_FEATURE_DISABLED,
				DevToolsMode: abi.CC_SYSTEM_DEVTOOLS_MODE_OFF,
				MultiGpuMode: abi.CC_SYSTEM_MULTIGPU_NONE,
			}, abi.SUCCESS
		}
	}
	return settings, abi.ERROR_NOT_SUPPORTED
}

// SystemGetConfComputeState says that confidential computing is off; NOT_SUPPORTED if no GPU has protected memory.
func SystemGetConfComputeState(s *engine.Snapshot, state *abi.ConfComputeSystemState_t) abi.Return {
	c, ret := confidential(s)
	*state = abi.ConfComputeSystemState_t{Environment: c.Environment, CcFeature: c.CcFeature, DevToolsMode: c.DevToolsMode}
	return ret
}

// SystemGetConfComputeSettings is SystemGetConfComputeState, and whether several GPUs compute confidentially together.
func SystemGetConfComputeSettings(s *engine.Snapshot, settings *abi.SystemConfComputeSettings_v1_t) abi.Return {
	c, ret := confidential(s)
	c.Version = settings.Version
	*settings = c
	return ret
}
