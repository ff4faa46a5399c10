package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// DeviceGetMigMode is the MIG mode, now and after the next reset. Boards before Ampere have none.
func DeviceGetMigMode(d *engine.Device) (current, pending uint32, ret abi.Return) {
	return pair(mode[uint32](d.MIG.ModeCurrent), mode[uint32](d.MIG.ModePending))
}

// DeviceIsMigDeviceHandle is 0, since every handle is of a whole GPU.
func DeviceIsMigDeviceHandle(*engine.Device) (uint32, abi.Return) { return 0, abi.SUCCESS }

// DeviceGetMaxMigDeviceCount is how many MIG devices the GPU can have; 0 without MIG or while MIG is off.
func DeviceGetMaxMigDeviceCount(d *engine.Device) (uint32, abi.Return) {
	if !d.MIG.ModeCurrent.Value {
		return 0, abi.SUCCESS
	}
	return d.MIG.MaxGPUInstances.Or(0), abi.SUCCESS
}

// DeviceGetMigDeviceHandleByIndex finds no MIG device, since there are none. It answers NOT_SUPPORTED while MIG is off,
// and INVALID_ARGUMENT for an index that no MIG device can have.
func DeviceGetMigDeviceHandleByIndex(d *engine.Device, index uint32) (*engine.Device, abi.Return) {
	switch most, _ := DeviceGetMaxMigDeviceCount(d); {
	case most == 0:
		return nil, abi.ERROR_NOT_SUPPORTED
	case index >= most:
		return nil, abi.ERROR_INVALID_ARGUMENT
	}
	return nil, abi.ERROR_NOT_FOUND
}
