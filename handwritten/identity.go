package handwritten

import (
	"bytes"
	"encoding/hex"
	"strings"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles/words"
)

// DeviceGetName is the product name.
func DeviceGetName(d *engine.Device) (string, abi.Return) { return opt(d.Name) }

// DeviceGetUUID is the GPU's UUID, with the prefix GPU-, or a MIG device's, with the prefix MIG-.
func DeviceGetUUID(d *engine.Device) (string, abi.Return) { return string(d.UUID), abi.SUCCESS }

// DeviceGetIndex is the GPU's place in the enumeration, or a MIG device's place among those of its GPU.
func DeviceGetIndex(d *engine.Device) (uint32, abi.Return) {
	if d.Instance != nil {
		return d.MIGIndex(), abi.SUCCESS
	}
	return d.Index, abi.SUCCESS
}

// DeviceGetMinorNumber is the N of /dev/nvidiaN.
func DeviceGetMinorNumber(d *engine.Device) (uint32, abi.Return) { return opt(d.MinorNumber) }

// DeviceGetSerial is the serial number printed on the board.
func DeviceGetSerial(d *engine.Device) (string, abi.Return) { return opt(d.Serial) }

// DeviceGetBoardPartNumber is the board's part number.
func DeviceGetBoardPartNumber(d *engine.Device) (string, abi.Return) { return opt(d.BoardPartNumber) }

// DeviceGetVbiosVersion is the VBIOS version.
func DeviceGetVbiosVersion(d *engine.Device) (string, abi.Return) { return opt(d.VBIOSVersion) }

// DeviceGetBoardId is the board's number.
func DeviceGetBoardId(d *engine.Device) (uint32, abi.Return) { return opt(d.BoardID) }

// DeviceGetMultiGpuBoard is 1 on a board with more than one GPU.
func DeviceGetMultiGpuBoard(d *engine.Device) (uint32, abi.Return) {
	return opt(flag[uint32](d.MultiGPUBoard))
}

// DeviceGetModuleId is the GPU's place on the baseboard; 0 on other boards, as NVML documents it.
func DeviceGetModuleId(d *engine.Device) (uint32, abi.Return) {
	return uint32(d.Platform.ModuleID.Or(0)), abi.SUCCESS
}

// DeviceGetPdi is the GPU's per-device identifier.
func DeviceGetPdi(d *engine.Device, pdi *abi.Pdi_v1_t) (ret abi.Return) {
	pdi.Value, ret = opt(d.PDI)
	return ret
}

// DeviceGetCudaComputeCapability is the compute capability: the numbers before and after the dot.
func DeviceGetCudaComputeCapability(d *engine.Device) (int32, int32, abi.Return) {
	return pair(as[int32](d.ComputeCapability.Major), as[int32](d.ComputeCapability.Minor))
}

// DeviceGetNumGpuCores is the number of CUDA cores.
func DeviceGetNumGpuCores(d *engine.Device) (uint32, abi.Return) { return opt(d.NumGPUCores) }

// DeviceGetBrand is the product line; BRAND_UNKNOWN if the profile does not give it. nvidia-smi topo -m fails on any error.
func DeviceGetBrand(d *engine.Device) (abi.BrandType_t, abi.Return) {
	return words.Brands.Of(d.Brand.Or("unknown")), abi.SUCCESS
}

// DeviceGetArchitecture is the chip's generation.
func DeviceGetArchitecture(d *engine.Device) (abi.DeviceArchitecture_t, abi.Return) {
	return opt(named(d.Architecture, words.Architectures))
}

// found answers a device: NOT_FOUND if it is nil, GPU_IS_LOST if it was lost when NVML started.
func found(d *engine.Device) (*engine.Device, abi.Return) {
	if d == nil {
		return nil, abi.ERROR_NOT_FOUND
	}
	return d, d.Found()
}

// DeviceGetHandleByUUID finds a GPU or a MIG device by its UUID, in either case; NOT_FOUND if there is none.
func DeviceGetHandleByUUID(s *engine.Snapshot, uuid string) (*engine.Device, abi.Return) {
	if uuid == "" {
		return nil, abi.ERROR_INVALID_ARGUMENT
	}
	return found(s.DeviceByUUID(uuid))
}

// DeviceGetHandleByUUIDV is DeviceGetHandleByUUID for a UUID as text or as 16 bytes.
func DeviceGetHandleByUUIDV(s *engine.Snapshot, uuid *abi.UUID_v1_t) (*engine.Device, abi.Return) {
	switch abi.UUIDType_t(uuid.Type) {
	case abi.UUID_TYPE_ASCII:
		name, _, _ := strings.Cut(string(uuid.Value[:]), "\x00")
		return DeviceGetHandleByUUID(s, name)
	case abi.UUID_TYPE_BINARY:
		want := hex.EncodeToString(uuid.Value[:abi.DEVICE_UUID_BINARY_LEN])
		named := func(d *engine.Device) bool {
			_, digits, _ := strings.Cut(string(d.UUID), "-")
			return strings.ReplaceAll(digits, "-", "") == want
		}
		if d := s.DeviceBy(named); d != nil {
			return found(d)
		}
		return found(s.MIGDeviceBy(named))
	}
	return nil, abi.ERROR_INVALID_ARGUMENT
}

// DeviceGetHandleBySerial finds the GPU of a board; INVALID_ARGUMENT if the board has several, NOT_FOUND if there is none.
func DeviceGetHandleBySerial(s *engine.Snapshot, serial string) (*engine.Device, abi.Return) {
	var match *engine.Device
	for _, d := range s.Devices {
		if have, ok := d.Serial.Get(); ok && have == serial {
			if match != nil {
				return nil, abi.ERROR_INVALID_ARGUMENT
			}
			match = d
		}
	}
	return found(match)
}

// DeviceGetHostname_v1 is the name that the GPU has in its machine's network.
func DeviceGetHostname_v1(d *engine.Device, name *abi.Hostname_v1_t) abi.Return {
	s, ret := opt(d.Hostname)
	text(name.Value[:], s)
	return ret
}

// DeviceSetHostname_v1 names the GPU.
func DeviceSetHostname_v1(d *engine.Device, name *abi.Hostname_v1_t) abi.Return {
	value, _, terminated := bytes.Cut(name.Value[:], []byte{0})
	if !terminated {
		return abi.ERROR_INVALID_ARGUMENT
	}
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.Hostname(i, string(value)) })
}
