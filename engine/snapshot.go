package engine

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/host"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// Snapshot is the node at an instant. It and all of its objects are immutable. Two snapshots share no objects, even for
// the same GPU, so compare the numbers of objects and not their addresses.
type Snapshot struct {
	Board   *profiles.Board
	Devices []*Device
	Units   []*Unit
	// Branch is the driver's branch, such as 580; 0 if the profile gives no driver version.
	Branch     int
	instances  []*GpuInstance
	objects    map[host.Key]any // all objects but whole GPUs
	state      *state.State     // what nvmlfab has changed; nil if nothing
	generation *generation
	source     change.Source          // what the node is computed from
	ended      atomic.Int64           // see counting
	instead    map[instead]abi.Return // what functions answer in place of a value; nil if all answer one
}

// Engine is the engine whose node the snapshot shows.
func (s *Snapshot) Engine() *Engine { return s.generation.engine }

// Now is the time of the process.
func (s *Snapshot) Now() time.Time { return s.generation.engine.host.Now() }

// Origin is when the counters of the node start.
func (s *Snapshot) Origin() time.Time { return time.UnixMilli(s.source.Begins()) }

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

// DeviceByUUID finds a GPU or a MIG device by its UUID, in either case. A MIG device is also found by the form that
// drivers before 470 gave its UUID.
func (s *Snapshot) DeviceByUUID(uuid string) *Device {
	named := func(d *Device) bool { return strings.EqualFold(string(d.UUID), uuid) }
	if d := s.DeviceBy(named); d != nil {
		return d
	}
	return s.MIGDeviceBy(func(d *Device) bool { return named(d) || strings.EqualFold(d.Instance.oldUUID(), uuid) })
}

// MIGDeviceBy is the first MIG device that match accepts, or nil.
func (s *Snapshot) MIGDeviceBy(match func(*Device) bool) *Device {
	for _, gi := range s.instances {
		for _, c := range gi.Parts {
			if match(c.Device) {
				return c.Device
			}
		}
	}
	return nil
}

// DeviceByBusID finds a device by its PCI address.
func (s *Snapshot) DeviceByBusID(id profiles.BusID) *Device {
	return s.DeviceBy(func(d *Device) bool {
		have, ok := d.PCI.BusID.Get()
		return ok && have == id
	})
}

// key returns the key of a handle. The object may be gone from this snapshot.
func (s *Snapshot) key(handle uintptr) (host.Key, bool) {
	return s.generation.engine.host.Key(s.generation.number, handle)
}

// Device is the GPU or MIG device that a handle stands for. It answers INVALID_ARGUMENT if there is none, else the
// error of the first need that is not met.
func (s *Snapshot) Device(handle uintptr, need Need) (*Device, abi.Return) {
	key, gpu, ret := s.resolve(handle, need)
	if ret != abi.SUCCESS || key.Kind == host.Device {
		return gpu, ret
	}
	return object[Device](s, key)
}

// object returns the node's object with that key; INVALID_ARGUMENT if it is gone or of another type.
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

// GpuInstance is the GPU instance that a handle stands for, with the errors of Device.
func (s *Snapshot) GpuInstance(handle uintptr, need Need) (*GpuInstance, abi.Return) {
	return part[GpuInstance](s, handle, need)
}

// ComputeInstance is the compute instance that a handle stands for, with the errors of Device.
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

// ProcessStride is how many bytes a process takes in a list of processes, in which it has size bytes with most drivers.
func (s *Snapshot) ProcessStride(size int) int {
	if s.Board.System.WideProcessInfo.Value {
		return size + 8 // for its protected memory
	}
	return size
}

// versionMismatch is the driver branch whose header is the first with ARGUMENT_VERSION_MISMATCH.
const versionMismatch = 520

// Known is a function's answer as the driver knows it: earlier drivers answer FUNCTION_NOT_FOUND to the version of a struct that
// they do not know.
func (s *Snapshot) Known(ret abi.Return) abi.Return {
	if ret == abi.ERROR_ARGUMENT_VERSION_MISMATCH && s.Branch > 0 && s.Branch < versionMismatch {
		return abi.ERROR_FUNCTION_NOT_FOUND
	}
	return ret
}
