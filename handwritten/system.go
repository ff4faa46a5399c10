package handwritten

import (
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/handwritten/engine"
)

// SystemGetDriverVersion is the driver's version, such as 580.105.08.
func SystemGetDriverVersion() (string, abi.Return) {
	return opt(engine.Current().Board.System.DriverVersion)
}

// SystemGetNVMLVersion is the library's version: CUDA's major number and the driver's version.
func SystemGetNVMLVersion() (string, abi.Return) {
	return opt(engine.Current().Board.System.NVMLVersion)
}

// SystemGetCudaDriverVersion is the newest CUDA version that the driver serves, as major*1000 + minor*10.
//
//nvml:symbol nvmlSystemGetCudaDriverVersion nvmlSystemGetCudaDriverVersion_v2
func SystemGetCudaDriverVersion() (int32, abi.Return) {
	system := &engine.Current().Board.System
	major, minor, ret := pair(system.CUDAVersionMajor, system.CUDAVersionMinor)
	return int32(major*1000 + minor*10), ret
}

// SystemGetProcessName is the path of a configured process's program; NOT_FOUND for any other process.
func SystemGetProcessName(pid uint32) (string, abi.Return) {
	for _, d := range engine.Current().Devices {
		for _, p := range d.Processes {
			if p.PID == pid && p.Name.Valid {
				return p.Name.Value, abi.SUCCESS
			}
		}
	}
	return "", abi.ERROR_NOT_FOUND
}
