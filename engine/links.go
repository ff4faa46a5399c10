package engine

import (
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// Link is one NVLink of a device.
type Link struct {
	Active bool
	// Remote is the kind of device at the far end; NVLINK_DEVICE_TYPE_UNKNOWN if the profile does not tell.
	Remote abi.IntNvLinkDeviceType_t
	// BusID is the PCI address of the far end.
	BusID profiles.Opt[profiles.BusID]
	// Peer is the far end if it is a GPU of this node, else nil.
	Peer *Device
}

// LinkCount is the number of the device's NVLinks. In MIG mode it has none: NVML refuses to speak of them, and instances
// cannot reach other GPUs.
func (d *Device) LinkCount() uint32 {
	if d.MIG.ModeCurrent.Value {
		return 0
	}
	return d.snapshot.Board.LinkCount(d.Index)
}

// Link returns the NVLink of that number; false if there is none.
func (d *Device) Link(number uint32) (Link, bool) {
	if number >= d.LinkCount() {
		return Link{}, false
	}
	nv := &d.snapshot.Board.NVLink
	var given profiles.Link
	for _, l := range d.snapshot.Board.ListedLinks(d.Index) {
		if l.Link == number {
			given = l
		}
	}
	state := nv.Defaults.State.Or("active")
	link := Link{Active: given.State.Or(state) == "active", Remote: abi.NVLINK_DEVICE_TYPE_UNKNOWN}
	d.connect(&link, given, number)
	return link, true
}

// connect finds the far end of a link. The profile's entry for the link decides. Without an entry the far end is a
// switch if the node has any, otherwise another GPU. Links are spread evenly over the switches or GPUs.
func (d *Device) connect(link *Link, given profiles.Link, number uint32) {
	switches := d.snapshot.Board.NVLink.Switches
	switch {
	case given.RemoteIndex.Valid:
		link.Peer = d.snapshot.DeviceAt(given.RemoteIndex.Value)
	case given.RemotePCIBusID.Valid:
		link.BusID = given.RemotePCIBusID
		link.Peer = d.snapshot.DeviceByBusID(link.BusID.Value)
	case given.RemoteDeviceType.Or("switch") == "switch" && len(switches) > 0:
		link.BusID = switches[number%uint32(len(switches))].BDF
		link.Remote = abi.NVLINK_DEVICE_TYPE_SWITCH
	case given.RemoteDeviceType.Or("gpu") == "gpu" && len(d.snapshot.Devices) > 1:
		others := uint32(len(d.snapshot.Devices) - 1)
		link.Peer = d.snapshot.DeviceAt((d.Index + 1 + number%others) % (others + 1))
	}
	if link.Peer != nil {
		link.BusID = link.Peer.PCI.BusID
		link.Remote = abi.NVLINK_DEVICE_TYPE_GPU
	}
	if t, ok := remoteTypes[given.RemoteDeviceType.Value]; ok {
		link.Remote = t
	} else if link.Peer == nil && d.snapshot.hasSwitch(link.BusID) {
		link.Remote = abi.NVLINK_DEVICE_TYPE_SWITCH
	}
}

var remoteTypes = map[string]abi.IntNvLinkDeviceType_t{
	"gpu":    abi.NVLINK_DEVICE_TYPE_GPU,
	"switch": abi.NVLINK_DEVICE_TYPE_SWITCH,
	"cpu":    abi.NVLINK_DEVICE_TYPE_UNKNOWN, // NVML has no constant for a CPU
}

func (s *Snapshot) hasSwitch(id profiles.Opt[profiles.BusID]) bool {
	for _, w := range s.Board.NVLink.Switches {
		if id.Valid && w.BDF == id {
			return true
		}
	}
	return false
}
