package engine

import (
	"strings"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// Device is a GPU of the running node. Its embedded profile does not change.
type Device struct {
	handle
	*profiles.Device
	node *Node
}

// Node is the machine that the device is in.
func (d *Device) Node() *Node { return d.node }

// DeviceAt is the device of that index, or nil.
func (n *Node) DeviceAt(index uint32) *Device {
	if uint64(index) >= uint64(len(n.Devices)) {
		return nil
	}
	return n.Devices[index]
}

// DeviceBy is the first device that match accepts, or nil.
func (n *Node) DeviceBy(match func(*Device) bool) *Device {
	for _, d := range n.Devices {
		if match(d) {
			return d
		}
	}
	return nil
}

// DeviceByUUID finds a device by its UUID, in either case.
func (n *Node) DeviceByUUID(uuid string) *Device {
	return n.DeviceBy(func(d *Device) bool { return strings.EqualFold(string(d.UUID), uuid) })
}

// DeviceByBusID finds a device by its PCI address.
func (n *Node) DeviceByBusID(id profiles.BusID) *Device {
	return n.DeviceBy(func(d *Device) bool {
		have, ok := d.PCI.BusID.Get()
		return ok && have == id
	})
}
