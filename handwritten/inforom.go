package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// DeviceGetInforomImageVersion is the version of the whole InfoROM image.
func DeviceGetInforomImageVersion(d *engine.Device) (string, abi.Return) {
	return opt(d.InfoROM.ImageVersion)
}

// DeviceGetInforomVersion is the version of one of the InfoROM's objects.
func DeviceGetInforomVersion(d *engine.Device, object abi.InforomObject_t) (string, abi.Return) {
	objects := [abi.INFOROM_COUNT]profiles.Opt[string]{
		abi.INFOROM_OEM:   d.InfoROM.OEMObject,
		abi.INFOROM_ECC:   d.InfoROM.ECCObject,
		abi.INFOROM_POWER: d.InfoROM.PWRObject,
	}
	if object >= abi.INFOROM_COUNT {
		return "", abi.ERROR_INVALID_ARGUMENT
	}
	return opt(objects[object])
}

// DeviceGetInforomConfigurationChecksum is the checksum of the configuration in the InfoROM.
func DeviceGetInforomConfigurationChecksum(d *engine.Device) (uint32, abi.Return) {
	return opt(d.InfoROM.Checksum)
}

// DeviceValidateInforom succeeds for every InfoROM.
func DeviceValidateInforom(d *engine.Device) abi.Return {
	_, ret := opt(d.InfoROM.ImageVersion)
	return ret
}

// DeviceGetLastBBXFlushTime is the time of the black box's last flush, in µs since 1970, and how long the flush took,
// in µs.
func DeviceGetLastBBXFlushTime(d *engine.Device) (start, duration uint64, ret abi.Return) {
	return pair(d.InfoROM.BBXFlushTimestampUS, d.InfoROM.BBXFlushDurationUS)
}
