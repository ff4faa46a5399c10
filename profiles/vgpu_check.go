package profiles

import (
	"fmt"
	"reflect"
	"slices"
)

// Type is the type of a name; nil if the GPU has none.
func (v *DeviceVGPU) Type(name string) *VGPUType {
	return v.typeBy(func(t *VGPUType) bool { return t.Name == name })
}

// TypeByID is the type of a number; nil if the GPU has none.
func (v *DeviceVGPU) TypeByID(id uint32) *VGPUType {
	return v.typeBy(func(t *VGPUType) bool { return t.ID == id })
}

func (v *DeviceVGPU) typeBy(match func(*VGPUType) bool) *VGPUType {
	for i := range v.Types {
		if match(&v.Types[i]) {
			return &v.Types[i]
		}
	}
	return nil
}

// Occupies is where a vGPU of a type is, among the places that vGPUs take in a mode; false if it has no place.
func (t *VGPUType) Occupies(start Opt[uint32], heterogeneous bool) (first, end uint32, ok bool) {
	size := t.HomogeneousPlacementSize
	if heterogeneous {
		size = t.PlacementSize
	}
	return start.Value, start.Value + size.Value, start.Valid && size.Valid
}

// Placements are the places at which a vGPU of a type may start in a mode.
func (t *VGPUType) Placements(heterogeneous bool) []uint32 {
	if heterogeneous {
		return t.PlacementIDs
	}
	return t.HomogeneousPlacementIDs
}

// impossible says what cannot be true of the GPU's vGPUs; nothing if all of it can.
func (v *DeviceVGPU) impossible() string {
	for i := range v.Types {
		t := &v.Types[i]
		if v.TypeByID(t.ID) != t || v.Type(t.Name) != t {
			return fmt.Sprintf("types[%d]: another type has its id or its name", i)
		}
	}
	count := map[string]uint32{}
	for i := range v.Instances {
		instance := &v.Instances[i]
		t := v.Type(instance.Type)
		if t == nil {
			return fmt.Sprintf("instances[%d]: there is no type %s", i, quote(instance.Type))
		}
		count[t.Name]++
		switch {
		case count[t.Name] > t.MaxInstances:
			return fmt.Sprintf("instances[%d]: the GPU has room for %d of type %s", i, t.MaxInstances, quote(t.Name))
		case t.GPUInstanceProfileID.Valid != instance.GPUInstanceID.Valid:
			return fmt.Sprintf("instances[%d]: gpu_instance_id is for types with a gpu_instance_profile_id, and for all of these", i)
		}
		if what := v.collides(i, t); what != "" {
			return fmt.Sprintf("instances[%d]: %s", i, what)
		}
	}
	if len(v.Licensing.Features) > 3 {
		return "licensing.features: programs have room for 3"
	}
	return ""
}

// collides says what is wrong with an instance beside those before it.
func (v *DeviceVGPU) collides(i int, t *VGPUType) string {
	mixed := bool(v.HeterogeneousMode.Value)
	own := &v.Instances[i]
	if own.PlacementID.Valid && !slices.Contains(t.Placements(mixed), own.PlacementID.Value) {
		return fmt.Sprintf("type %s has no placement %d in this mode", quote(t.Name), own.PlacementID.Value)
	}
	first, end, placed := t.Occupies(own.PlacementID, mixed)
	for j := range v.Instances[:i] {
		other := &v.Instances[j]
		if own.ID == other.ID || own.UUID == other.UUID {
			return fmt.Sprintf("its id or its uuid is that of instances[%d]", j)
		}
		with := v.Type(other.Type)
		if own.GPUInstanceID != other.GPUInstanceID {
			continue
		}
		if !own.GPUInstanceID.Valid && !mixed && with.FramebufferMiB != t.FramebufferMiB {
			return fmt.Sprintf("it has another amount of memory than instances[%d], and heterogeneous_mode is not enabled", j)
		}
		if at, stop, ok := with.Occupies(other.PlacementID, mixed); ok && placed && first < stop && at < end {
			return fmt.Sprintf("its place is taken by instances[%d]", j)
		}
	}
	return ""
}

// vgpuTypes are the types of all devices so far, with the first device that has each.
type vgpuTypes map[uint32]*Device

// differ says which type of a device is another one than that of the same number of an earlier device: programs ask about a
// type by its number alone. How many fit may differ.
func (seen vgpuTypes) differ(d *Device) string {
	for _, t := range d.VGPU.Types {
		first, ok := seen[t.ID]
		if !ok {
			seen[t.ID] = d
			continue
		}
		other := *first.VGPU.TypeByID(t.ID)
		other.MaxInstances = t.MaxInstances
		if !reflect.DeepEqual(other, t) {
			return fmt.Sprintf("type %d is another one than on devices[%d]", t.ID, first.Index)
		}
	}
	return ""
}
