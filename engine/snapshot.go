package engine

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/host"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// Snapshot is what the node is at an instant. It does not change, and neither does what it leads to. Objects of two
// snapshots are never the same, even where they stand for the same GPU: compare their numbers, not their addresses.
type Snapshot struct {
	Board   *profiles.Board
	Devices []*Device
	// Branch is the driver's branch, such as 580; 0 if the profile gives no driver version.
	Branch     int
	objects    map[host.Key]any // what is no whole GPU
	generation *generation
	ended      atomic.Int64 // see counting
}

// snapshot makes the snapshot of a board.
func (g *generation) snapshot(board *profiles.Board) *Snapshot {
	s := &Snapshot{
		Board:      board,
		Devices:    make([]*Device, len(board.Devices)),
		Branch:     profiles.Branch(board.System.DriverVersion.Value),
		generation: g,
	}
	devices := make([]Device, len(board.Devices))
	for i := range devices {
		d := &devices[i]
		d.view, d.Device = view{s, host.Key{Kind: host.Device, Device: uint32(i)}}, &board.Devices[i]
		d.fault = g.fault(i, d.Failure)
		s.Devices[i] = d
	}
	g.started = true
	return s
}

// Engine is the engine whose node the snapshot shows.
func (s *Snapshot) Engine() *Engine { return s.generation.engine }

// Now is the time of the process.
func (s *Snapshot) Now() time.Time { return s.generation.engine.host.Now() }

// DeviceAt is the device of that index, or nil.
func (s *Snapshot) DeviceAt(index uint32) *Device {
	if uint64(index) >= uint64(len(s.Devices)) {
		return nil
	}
	return s.Devices[index]
}

// DeviceBy is the first device that match accepts, or nil.
func (s *Snapshot) DeviceBy(match func(*Device) bool) *Device {
	for _, d := range s.Devices {
		if match(d) {
			return d
		}
	}
	return nil
}

// DeviceByUUID finds a device by its UUID, in either case.
func (s *Snapshot) DeviceByUUID(uuid string) *Device {
	return s.DeviceBy(func(d *Device) bool { return strings.EqualFold(string(d.UUID), uuid) })
}

// DeviceByBusID finds a device by its PCI address.
func (s *Snapshot) DeviceByBusID(id profiles.BusID) *Device {
	return s.DeviceBy(func(d *Device) bool {
		have, ok := d.PCI.BusID.Get()
		return ok && have == id
	})
}

// key is what a handle stands for, which the snapshot need not have any more.
func (s *Snapshot) key(handle uintptr) (host.Key, bool) {
	return s.generation.engine.host.Key(s.generation.number, handle)
}

// Device is the GPU or MIG device that a handle stands for; INVALID_ARGUMENT if there is none, or what need says.
func (s *Snapshot) Device(handle uintptr, need Need) (*Device, abi.Return) {
	key, gpu, ret := s.resolve(handle, need)
	if ret != abi.SUCCESS || key.Kind == host.Device {
		return gpu, ret
	}
	return object[Device](s, key)
}

// object is the object of the node that has that key; INVALID_ARGUMENT if it is gone or something else.
func object[T any](s *Snapshot, key host.Key) (*T, abi.Return) {
	if o, ok := s.objects[key].(*T); ok {
		return o, abi.SUCCESS
	}
	return nil, abi.ERROR_INVALID_ARGUMENT
}

// part is the part of a GPU that a handle stands for.
func part[T any](s *Snapshot, handle uintptr, need Need) (*T, abi.Return) {
	key, _, ret := s.resolve(handle, need)
	if ret != abi.SUCCESS {
		return nil, ret
	}
	return object[T](s, key)
}

// GpuInstance is the GPU instance that a handle stands for; INVALID_ARGUMENT if there is none, or what need says.
func (s *Snapshot) GpuInstance(handle uintptr, need Need) (*GpuInstance, abi.Return) {
	return part[GpuInstance](s, handle, need)
}

// ComputeInstance is the compute instance that a handle stands for; INVALID_ARGUMENT if there is none, or what need says.
func (s *Snapshot) ComputeInstance(handle uintptr, need Need) (*ComputeInstance, abi.Return) {
	return part[ComputeInstance](s, handle, need)
}

// Unit is the S-class unit that a handle stands for; INVALID_ARGUMENT if there is none.
func (s *Snapshot) Unit(handle uintptr, _ Need) (*Unit, abi.Return) {
	key, ok := s.key(handle)
	if !ok {
		return nil, abi.ERROR_INVALID_ARGUMENT
	}
	return object[Unit](s, key)
}

// owned is the object of the process that a handle stands for; INVALID_ARGUMENT if there is none of that kind.
func (s *Snapshot) owned(handle uintptr, kind host.Kind) (owned, abi.Return) {
	if key, ok := s.key(handle); !ok || key.Kind != kind {
		return owned{}, abi.ERROR_INVALID_ARGUMENT
	}
	return owned{s, handle}, abi.SUCCESS
}

// EventSet is the set of events that a handle stands for; INVALID_ARGUMENT if there is none.
func (s *Snapshot) EventSet(handle uintptr, _ Need) (*EventSet, abi.Return) {
	o, ret := s.owned(handle, host.EventSet)
	return &EventSet{o}, ret
}

// SystemEventSet is the set of events of the machine that a handle stands for; INVALID_ARGUMENT if there is none.
func (s *Snapshot) SystemEventSet(handle uintptr, _ Need) (*SystemEventSet, abi.Return) {
	o, ret := s.owned(handle, host.SystemEventSet)
	return &SystemEventSet{o}, ret
}

// GpmSample is the sample that a handle stands for; INVALID_ARGUMENT if there is none.
func (s *Snapshot) GpmSample(handle uintptr, _ Need) (*GpmSample, abi.Return) {
	o, ret := s.owned(handle, host.GpmSample)
	return &GpmSample{o}, ret
}
