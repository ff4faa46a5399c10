package engine

import (
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/words"
)

// Link is one NVLink of a device.
type Link struct {
	Active bool
	// Remote and the rest say what the profile connects the link to, which NVML does not tell while the link is down.
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
	given := d.snapshot.givenLink(d.Index, number)
	state := d.snapshot.Board.NVLink.Defaults.State.Or("active")
	link := Link{Active: given.State.Or(state) == "active", Remote: abi.NVLINK_DEVICE_TYPE_UNKNOWN}
	d.connect(&link, given, number)
	return link, true
}

// FarLink is the number that a link to another GPU of this node has there; false for any other link. If there are several between
// two GPUs, the first of one is the first of the other, and so on.
func (d *Device) FarLink(number uint32) (uint32, bool) {
	link, ok := d.Link(number)
	if !ok || !link.Active || link.Peer == nil {
		return 0, false
	}
	before := 0
	for i := range number {
		if l, _ := d.Link(i); l.Active && l.Peer == link.Peer {
			before++
		}
	}
	for i := range link.Peer.LinkCount() {
		if l, _ := link.Peer.Link(i); l.Active && l.Peer == d {
			if before == 0 {
				return i, true
			}
			before--
		}
	}
	return 0, false
}

// givenLink is what the profile says about a link of a device.
func (s *Snapshot) givenLink(device, number uint32) (given profiles.Link) {
	for _, l := range s.Board.ListedLinks(device) {
		if l.Link == number {
			given = l
		}
	}
	return given
}

// connect finds the far end of a link. The profile's entry for the link decides. Without an entry the far end is a
// switch if the node has any, otherwise another GPU. Links are spread evenly over the switches or GPUs, see inMesh.
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
		gpus := uint32(len(d.snapshot.Devices))
		if step, back, ok := inMesh(number, d.LinkCount(), gpus); ok {
			link.Peer = d.snapshot.DeviceAt((d.Index + step) % gpus)
			if far := d.snapshot.givenLink(link.Peer.Index, back); far.State.Or("active") != "active" && !given.State.Valid {
				link.Active = false // it is down at the other end
			}
		}
	}
	if link.Peer != nil {
		link.BusID = link.Peer.PCI.BusID
		link.Remote = abi.NVLINK_DEVICE_TYPE_GPU
	}
	if t, ok := remoteTypes.Find(given.RemoteDeviceType.Value); ok {
		link.Remote = t
	} else if link.Peer == nil && d.snapshot.hasSwitch(link.BusID) {
		link.Remote = abi.NVLINK_DEVICE_TYPE_SWITCH
	}
}

// inMesh says how many GPUs after its own the GPU is that a link leads to, among GPUs that have the same number of links. Two
// GPUs have as many links one way as the other: each pair has the same number, and what is left goes to the GPUs before and
// after, and then to those farther away. back is the number of the link at that GPU. false for a link that is left over.
func inMesh(number, links, gpus uint32) (step, back uint32, ok bool) {
	others := gpus - 1
	first := number / others * others // of those that lead to each GPU once
	at, left := number-first, links%others
	switch far := at/2 + 1; {
	case first < links/others*others:
		return at + 1, first + others - 1 - at, true
	case at+1 == left && left%2 != 0: // no GPU after and before can share one link, but the one that is opposite can
		return gpus / 2, number, gpus%2 == 0
	case at%2 == 0:
		return far, number + 1, true
	default:
		return gpus - far, number - 1, true
	}
}

var remoteTypes = words.Table[string, abi.IntNvLinkDeviceType_t]{
	{"gpu", abi.NVLINK_DEVICE_TYPE_GPU},
	{"switch", abi.NVLINK_DEVICE_TYPE_SWITCH},
	{"cpu", abi.NVLINK_DEVICE_TYPE_IBMNPU}, // the only CPUs that have links of this kind
}

func (s *Snapshot) hasSwitch(id profiles.Opt[profiles.BusID]) bool {
	for _, w := range s.Board.NVLink.Switches {
		if id.Valid && w.BDF == id {
			return true
		}
	}
	return false
}
