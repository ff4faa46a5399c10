package change

import (
	"slices"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// What a vGPU host offers, by pure functions of the GPU as it is.

// VGPUHost says whether a GPU is a vGPU host.
func VGPUHost(d *profiles.Device) bool {
	return d.Virtualization.Mode.Value == "host_vgpu" && len(d.VGPU.Types) > 0
}

// SupportedVGPUs are the types that a GPU offers in its present modes, whatever runs on it.
func SupportedVGPUs(d *profiles.Device) (list []*profiles.VGPUType) {
	can := &d.VGPU.Capabilities
	for i := range d.VGPU.Types {
		t := &d.VGPU.Types[i]
		switch {
		case t.GPUInstanceProfileID.Valid != bool(d.MIG.ModeCurrent.Value),
			t.MiniQuarter.Value && !can.MiniQuarterGPU.Value,
			t.ComputeMediaEngine.Value && !can.ComputeMediaEngineGPU.Value,
			t.MaxInstancesPerGPUInstance.Or(1) > 1 && !can.MIGTimeslicingEnabled.Or(true):
		default:
			list = append(list, t)
		}
	}
	return list
}

// A VGPUSpace is where vGPUs share something: a whole GPU, or a GPU instance of it.
type VGPUSpace struct {
	// Device is the GPU.
	Device *profiles.Device
	// GPUInstance is the number of the GPU instance; not valid for the whole GPU.
	GPUInstance profiles.Opt[uint32]
	// Profile is the id of the GPU instance's profile.
	Profile uint32
	// Mixed says that vGPUs in it may have different amounts of memory.
	Mixed bool
}

// WholeVGPUSpace is the space of a GPU that is not in MIG mode.
func WholeVGPUSpace(d *profiles.Device) VGPUSpace {
	return VGPUSpace{Device: d, Mixed: bool(d.VGPU.HeterogeneousMode.Value)}
}

// InstanceVGPUSpace is the space of a GPU instance, by its number and the id of its profile.
func InstanceVGPUSpace(d *profiles.Device, number, profile uint32) VGPUSpace {
	return VGPUSpace{Device: d, GPUInstance: profiles.Some(number), Profile: profile,
		Mixed: bool(instanceModes(d, number).HeterogeneousMode.Or(d.VGPU.HeterogeneousMode.Value))}
}

// Instances are the vGPUs in the space.
func (s VGPUSpace) Instances() (list []*profiles.VGPUInstance) {
	for i := range s.Device.VGPU.Instances {
		if v := &s.Device.VGPU.Instances[i]; v.GPUInstanceID == s.GPUInstance {
			list = append(list, v)
		}
	}
	return list
}

// Offers says whether the space can have vGPUs of a type while nothing runs in it.
func (s VGPUSpace) Offers(t *profiles.VGPUType) bool {
	return slices.Contains(SupportedVGPUs(s.Device), t) && (!s.GPUInstance.Valid || t.GPUInstanceProfileID.Value == s.Profile)
}

// Creatable are the types of which one more vGPU fits into the space now.
func (s VGPUSpace) Creatable() (list []*profiles.VGPUType) {
	for _, t := range SupportedVGPUs(s.Device) {
		if s.Fits(t) {
			list = append(list, t)
		}
	}
	return list
}

// Fits says whether one more vGPU of a type fits into the space now.
func (s VGPUSpace) Fits(t *profiles.VGPUType) bool {
	own := uint32(0)
	for _, v := range s.Instances() {
		other := s.Device.VGPU.Type(v.Type)
		if other == nil {
			continue
		}
		if other == t {
			own++
			continue
		}
		if t.ExclusiveType.Value || other.ExclusiveType.Value {
			return false
		}
		apart := !s.Mixed || t.ExclusiveSize.Value || other.ExclusiveSize.Value
		if apart && t.FramebufferMiB != other.FramebufferMiB {
			return false
		}
	}
	running := uint32(len(s.Instances()))
	switch {
	case !s.Offers(t):
		return false
	case s.GPUInstance.Valid && running >= t.MaxInstancesPerGPUInstance.Or(1):
		return false
	case !s.Mixed && running >= t.MaxInstances, own >= t.MaxInstances:
		return false
	case s.Mixed:
		return len(s.Free(t, true)) > 0
	}
	return true
}

// Free are the places at which one more vGPU of a type may start now.
func (s VGPUSpace) Free(t *profiles.VGPUType, mixed bool) (free []uint32) {
	for _, start := range t.Placements(mixed) {
		first, end, ok := t.Occupies(profiles.Some(start), mixed)
		if ok && !s.taken(first, end, mixed) {
			free = append(free, start)
		}
	}
	return free
}

// taken says whether a vGPU is at any of some places.
func (s VGPUSpace) taken(first, end uint32, mixed bool) bool {
	return slices.ContainsFunc(s.Instances(), func(v *profiles.VGPUInstance) bool {
		t := s.Device.VGPU.Type(v.Type)
		if t == nil {
			return false
		}
		at, stop, ok := t.Occupies(v.PlacementID, mixed)
		return ok && first < stop && at < end
	})
}

// instanceModes are the modes of a GPU instance that are its own.
func instanceModes(d *profiles.Device, number uint32) profiles.VGPUGPUInstance {
	for _, i := range d.VGPU.GPUInstances {
		if i.ID == number {
			return i
		}
	}
	return profiles.VGPUGPUInstance{ID: number}
}

// Schedule is how the vGPUs of a space share its time now.
func (s VGPUSpace) Schedule() profiles.VGPUSchedule {
	scheduler := &s.Device.VGPU.Scheduler
	now := scheduler.VGPUSchedule
	if own := instanceModes(s.Device, s.GPUInstance.Value); s.GPUInstance.Valid && own.Scheduler != (profiles.VGPUSchedule{}) {
		now = own.Scheduler
	}
	now.Policy = profiles.Some(now.Policy.Or("best_effort"))
	now.ARRMode = profiles.Some(now.ARRMode.Or("default"))
	if !now.TimesliceNS.Valid {
		now.TimesliceNS = scheduler.DefaultTimesliceNS
	}
	if !now.AvgFactor.Valid {
		now.AvgFactor = scheduler.DefaultAvgFactor
	}
	return now
}

// ARR says whether timeslices adapt to what vGPUs have used. Best effort has none of fixed length, and otherwise they adapt by
// default if the scheduler can do it.
func (s VGPUSpace) ARR() bool {
	now := s.Schedule()
	if now.Policy.Value == "best_effort" || now.ARRMode.Value == "disabled" {
		return false
	}
	return s.Device.VGPU.Scheduler.ARRSupported.Value
}
