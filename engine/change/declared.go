package change

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/profiles"
)

func init() {
	profiles.CheckInstances = func(t *profiles.MIGTables, d *profiles.Device) (int, error) {
		_, at, err := cut(t, d)
		return at, err
	}
}

// declaredSerials is the greatest serial of an instance that the profile gives a GPU. These serials are the same in every
// process; instances that are made later have higher ones.
const declaredSerials = 255

// Declares says whether the profile gives a GPU instances that are not in the state yet.
func (s *Source) Declares() bool {
	for i := range s.Board.Devices {
		if _, r := s.Records(i); !r.Divided && len(s.Board.Devices[i].MIG.Instances) > 0 {
			return true
		}
	}
	return false
}

// declared are the instances that the profile gives a GPU.
func declared(t *profiles.MIGTables, d *profiles.Device) []state.Instance {
	list, _, err := cut(t, d)
	if err != nil {
		return nil // the profile was refused
	}
	return list
}

// cut makes the instances that the profile gives a GPU. The error is about the instance of that number.
func cut(t *profiles.MIGTables, d *profiles.Device) (list []state.Instance, at int, err error) {
	p, serial := tables(t), uint64(0)
	for at, want := range d.MIG.Instances {
		profile, err := p.Find(want.Profile)
		if err != nil {
			return nil, at, err
		}
		start, err := p.Place(profile, want.Start)
		if err != nil {
			return nil, at, err
		}
		serial++
		made := state.Instance{ID: p.Number(profile, start), Serial: serial, Profile: profile.ID, Start: start, GPU: minor(d)}
		ways := p.ComputeProfiles(profile)
		names := want.Compute
		switch {
		case want.NoCompute.Value && len(names) > 0:
			return nil, at, fmt.Errorf("compute and no_compute: keep one")
		case len(names) == 0 && !want.NoCompute.Value:
			names = []string{profile.Name}
		}
		for _, name := range names {
			c, err := FindCompute(profile, ways, name)
			if err != nil {
				return nil, at, err
			}
			free := FreeCompute(ways, c, made.Parts)
			if len(free) == 0 {
				return nil, at, fmt.Errorf("there is no room for a compute instance %s", c.Name(profile))
			}
			serial++
			made.Parts = append(made.Parts, state.Part{ID: uint32(len(made.Parts)), Serial: serial, Profile: c.ID, Start: free[0]})
		}
		p.Instances = append(p.Instances, made)
	}
	return p.Instances, 0, nil
}

// minor is the minor number of a GPU's device node.
func minor(d *profiles.Device) uint32 { return d.MinorNumber.Or(d.Index) }

// divide writes the instances that the profile gives GPUs into the state, so that the change finds all of them there.
func (t *Tx) divide() {
	board, _ := t.after.All()
	for i := range board.Devices {
		d := &board.Devices[i]
		if len(d.MIG.Instances) == 0 || t.after.State.Device(d.UUID).Divided {
			continue
		}
		r := t.after.State.Change(d.UUID)
		r.Instances, r.Divided = declared(&board.MIG, d), true
	}
}

// Find is the profile that people mean by a name, such as 1g.10gb, or by an id.
func (p *Partitioning) Find(text string) (*profiles.GPUInstanceProfile, error) {
	var names []string
	for i := range p.Profiles {
		profile := &p.Profiles[i]
		if strings.EqualFold(text, profile.Name) || text == fmt.Sprint(profile.ID) {
			return profile, nil
		}
		names = append(names, profile.Name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("the profile has no table of MIG profiles")
	}
	return nil, fmt.Errorf("there is no MIG profile %.40q: want %s, or an id", text, strings.Join(names, ", "))
}

// Place is the start of a new instance: the one that is asked for, or the one that the driver would choose.
func (p *Partitioning) Place(profile *profiles.GPUInstanceProfile, want profiles.Opt[uint32]) (uint32, error) {
	start, ok := want.Get()
	switch {
	case !ok:
		if start, ok = p.Choose(profile); !ok {
			return 0, fmt.Errorf("there is no room for %s", profile.Name)
		}
	case !slices.Contains(profile.PlacementStarts, start):
		var starts []string
		for _, s := range profile.PlacementStarts {
			starts = append(starts, strconv.Itoa(int(s)))
		}
		return 0, fmt.Errorf("%s cannot start at %d: want %s", profile.Name, start, strings.Join(starts, ", "))
	case !slices.Contains(p.Free(profile), start):
		return 0, fmt.Errorf("there is no room for %s at %d", profile.Name, start)
	}
	return start, nil
}

// FindCompute is the way to cut a GPU instance that people mean by a name, such as 1c.3g.40gb, or by an id.
func FindCompute(gi *profiles.GPUInstanceProfile, ways []ComputeProfile, text string) (ComputeProfile, error) {
	var names []string
	for _, c := range ways {
		name := c.Name(gi)
		if strings.EqualFold(text, name) || text == fmt.Sprint(c.ID) {
			return c, nil
		}
		names = append(names, name)
	}
	return ComputeProfile{}, fmt.Errorf("%s has no compute instance %.40q: want %s, or an id", gi.Name, text, strings.Join(names, ", "))
}
