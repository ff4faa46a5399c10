package change

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/engine/state/caps"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// Partitioning is how a GPU is cut.
func (s *Source) Partitioning(i int) *Partitioning {
	_, r := s.Records(i)
	p := tables(&s.Board.MIG)
	p.Instances = r.Instances
	if d := &s.Board.Devices[i]; len(d.MIG.Instances) > 0 && !r.Divided {
		p.Instances = declared(&s.Board.MIG, d)
	}
	return p
}

// Partitioning is how a GPU is cut, as changed so far.
func (t *Tx) Partitioning(i int) *Partitioning { return t.after.Partitioning(i) }

// tables is a GPU without instances.
func tables(t *profiles.MIGTables) *Partitioning {
	return &Partitioning{Profiles: t.GPUInstanceProfiles, Swapped: t.Swapped.Value}
}

// MIGDevice is a compute instance as programs find it.
type MIGDevice struct {
	Instance state.Instance
	Part     state.Part
	UUID     string
}

// MIGDevices are the MIG devices of a GPU at a time in ms since 1970, in the order of their indices: by the numbers of GPU
// instance and compute instance. A GPU that is not in MIG mode has none.
func (s *Source) MIGDevices(i int, now int64) (list []MIGDevice, err error) {
	d, err := s.Device(i, now)
	if err != nil || !d.MIG.ModeCurrent.Value {
		return nil, err
	}
	for _, instance := range s.Partitioning(i).Instances {
		for _, part := range instance.Parts {
			list = append(list, MIGDevice{instance, part, s.MIGUUID(d, instance.ID, part)})
		}
	}
	slices.SortFunc(list, func(a, b MIGDevice) int {
		return cmp.Or(cmp.Compare(a.Instance.ID, b.Instance.ID), cmp.Compare(a.Part.ID, b.Part.ID))
	})
	return list, nil
}

// MIGUUID is the UUID of a MIG device as the board's driver forms it. Before 470 it names the GPU and the numbers of both
// instances.
func (s *Source) MIGUUID(d *profiles.Device, instance uint32, part state.Part) string {
	if b := profiles.Branch(s.Board.System.DriverVersion.Value); 0 < b && b < 470 {
		return fmt.Sprintf("MIG-%s/%d/%d", d.UUID, instance, part.ID)
	}
	return MIGUUID(d, instance, part.Start)
}

// Capabilities are those of all instances that GPUs of a board can have.
func Capabilities(board *profiles.Board) caps.Set {
	set := caps.Set{}
	p := tables(&board.MIG)
	for i := range board.Devices {
		d := &board.Devices[i]
		if !d.MIG.ModeCurrent.Valid {
			continue
		}
		for k := range p.Profiles {
			profile := &p.Profiles[k]
			var parts []uint32
			for part := range profile.Slices.Value {
				parts = append(parts, part)
			}
			for _, start := range profile.PlacementStarts {
				set.Add(minor(d), p.Number(profile, start), parts...)
			}
		}
	}
	return set
}

// partitioning is how a GPU is cut: NOT_SUPPORTED unless it is in MIG mode.
func (t *Tx) partitioning(i int) (*Partitioning, abi.Return) {
	d, err := t.Device(i)
	if err != nil {
		return nil, abi.ERROR_UNKNOWN
	}
	if !d.MIG.ModeCurrent.Value {
		return nil, abi.ERROR_NOT_SUPPORTED
	}
	return t.Partitioning(i), abi.SUCCESS
}

// MigMode switches a GPU's MIG mode. Its instances vanish: the driver resets the GPU.
func (t *Tx) MigMode(i int, state abi.EnableState_t) abi.Return {
	word, ok := enabled(state)
	d, err := t.Device(i)
	switch {
	case !ok:
		return abi.ERROR_INVALID_ARGUMENT
	case err != nil || !d.MIG.ModeCurrent.Valid:
		return abi.ERROR_NOT_SUPPORTED
	case bool(d.MIG.ModeCurrent.Value) == (state == abi.FEATURE_ENABLED) && d.MIG.ModePending == d.MIG.ModeCurrent:
		return abi.SUCCESS
	}
	t.Record(i).Instances = nil
	t.Event(i, abi.EventMigConfigChange, 0)
	return t.lay(i, ByBoard, profiles.Settings{"mig.mode_current": word, "mig.mode_pending": word})
}

// serial gives an instance a serial that nothing of this node has had.
func (t *Tx) serial() uint64 {
	s := t.after.State
	s.Serial = max(s.Serial, declaredSerials) + 1
	return s.Serial
}

// CreateGPUInstance makes a GPU instance at a place, or where the driver would put it without one. It answers NOT_SUPPORTED
// for a profile that the board does not offer, INVALID_ARGUMENT for a place that the profile cannot have, and
// INSUFFICIENT_RESOURCES if the place is taken.
func (t *Tx) CreateGPUInstance(i int, id uint32, start *uint32) (made state.Instance, ret abi.Return) {
	p, ret := t.partitioning(i)
	if ret != abi.SUCCESS {
		return made, ret
	}
	profile := p.Profile(id)
	switch {
	case profile == nil:
		return made, abi.ERROR_NOT_SUPPORTED
	case start == nil:
		at, ok := p.Choose(profile)
		if !ok {
			return made, abi.ERROR_INSUFFICIENT_RESOURCES
		}
		start = &at
	case !slices.Contains(profile.PlacementStarts, *start):
		return made, abi.ERROR_INVALID_ARGUMENT
	case !slices.Contains(p.Free(profile), *start):
		return made, abi.ERROR_INSUFFICIENT_RESOURCES
	}
	made = state.Instance{ID: p.Number(profile, *start), Serial: t.serial(), Profile: id, Start: *start, GPU: minor(&t.after.Board.Devices[i])}
	r := t.Record(i)
	r.Instances = append(r.Instances, made)
	t.Event(i, abi.EventMigConfigChange, 0)
	return made, abi.SUCCESS
}

// instance is a GPU instance for the caller to change: INVALID_ARGUMENT if it is gone.
func (t *Tx) instance(i int, serial uint64) (r *state.Record, at int, ret abi.Return) {
	at = slices.IndexFunc(t.after.State.Device(t.UUID(i)).Instances, func(g state.Instance) bool { return g.Serial == serial })
	if at < 0 {
		return nil, 0, abi.ERROR_INVALID_ARGUMENT
	}
	return t.Record(i), at, abi.SUCCESS
}

// DestroyGPUInstance removes a GPU instance: IN_USE while there are compute instances in it.
func (t *Tx) DestroyGPUInstance(i int, serial uint64) abi.Return {
	r, at, ret := t.instance(i, serial)
	switch {
	case ret != abi.SUCCESS:
		return ret
	case len(r.Instances[at].Parts) > 0:
		return abi.ERROR_IN_USE
	}
	if ret := t.forgetVGPUModes(i, r.Instances[at].ID); ret != abi.SUCCESS {
		return ret
	}
	r.Instances = slices.Delete(r.Instances, at, at+1)
	t.Event(i, abi.EventMigConfigChange, 0)
	return abi.SUCCESS
}

// CreateComputeInstance makes a compute instance in a GPU instance, at a place or at the first free one. It answers as
// CreateGPUInstance does.
func (t *Tx) CreateComputeInstance(i int, serial uint64, id uint32, start *uint32) (made state.Part, ret abi.Return) {
	p, ret := t.partitioning(i)
	if ret != abi.SUCCESS {
		return made, ret
	}
	r, at, ret := t.instance(i, serial)
	if ret != abi.SUCCESS {
		return made, ret
	}
	in := &r.Instances[at]
	all := p.ComputeProfiles(p.Profile(in.Profile))
	k := slices.IndexFunc(all, func(c ComputeProfile) bool { return c.ID == id })
	if k < 0 {
		return made, abi.ERROR_NOT_SUPPORTED
	}
	free := FreeCompute(all, all[k], in.Parts)
	switch {
	case start != nil && !slices.Contains(all[k].Starts, *start):
		return made, abi.ERROR_INVALID_ARGUMENT
	case len(free) == 0 || start != nil && !slices.Contains(free, *start):
		return made, abi.ERROR_INSUFFICIENT_RESOURCES
	case start == nil:
		start = &free[0]
	}
	made = state.Part{Serial: t.serial(), Profile: id, Start: *start}
	for slices.ContainsFunc(in.Parts, func(other state.Part) bool { return other.ID == made.ID }) {
		made.ID++
	}
	in.Parts = append(in.Parts, made)
	t.Event(i, abi.EventMigConfigChange, 0)
	return made, abi.SUCCESS
}

// DestroyComputeInstance removes a compute instance.
func (t *Tx) DestroyComputeInstance(i int, serial uint64) abi.Return {
	for g, instance := range t.after.State.Device(t.UUID(i)).Instances {
		if at := slices.IndexFunc(instance.Parts, func(c state.Part) bool { return c.Serial == serial }); at >= 0 {
			r := t.Record(i)
			r.Instances[g].Parts = slices.Delete(r.Instances[g].Parts, at, at+1)
			t.Event(i, abi.EventMigConfigChange, 0)
			return abi.SUCCESS
		}
	}
	return abi.ERROR_INVALID_ARGUMENT
}

// MIGUUID is that of a MIG device. As the driver's it follows from the GPU, the number of the GPU instance and the first
// compute slice, whatever the profile, and has the form of a UUID of version 5; it is not made by SHA-1, which would make
// the library a third larger.
func MIGUUID(d *profiles.Device, instance, slice uint32) string {
	h := fnv.New128a()
	_, _ = fmt.Fprintf(h, "%d %d MIG %s", slice, instance, d.UUID)
	sum := h.Sum(nil)
	sum[6], sum[8] = sum[6]&0x0f|0x50, sum[8]&0x3f|0x80
	return fmt.Sprintf("MIG-%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:])
}
