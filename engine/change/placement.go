package change

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// Partitioning is how a GPU is cut into GPU instances: the profiles that its board offers and the instances that there
// are. An instance covers some memory slices next to each other, and no slice belongs to two.
type Partitioning struct {
	Profiles  []profiles.GPUInstanceProfile
	Swapped   bool // the half with four compute slices is the upper one
	Instances []state.Instance
}

// Profile is the profile with an id, nil if the board does not offer it.
func (p *Partitioning) Profile(id uint32) *profiles.GPUInstanceProfile {
	for i := range p.Profiles {
		if p.Profiles[i].ID == id {
			return &p.Profiles[i]
		}
	}
	return nil
}

// Slots is the number of memory slices that the whole GPU has.
func (p *Partitioning) Slots() (n uint32) {
	for i := range p.Profiles {
		for _, start := range p.Profiles[i].PlacementStarts {
			n = max(n, start+p.Profiles[i].PlacementSize.Value)
		}
	}
	return n
}

// covers is the set of memory slices that an instance covers, as bits.
func covers(profile *profiles.GPUInstanceProfile, start uint32) uint32 {
	return (1<<profile.PlacementSize.Value - 1) << start
}

// taken is the set of memory slices that instances cover.
func (p *Partitioning) taken() (slots uint32) {
	for _, i := range p.Instances {
		if profile := p.Profile(i.Profile); profile != nil {
			slots |= covers(profile, i.Start)
		}
	}
	return slots
}

// engines are the engines that an instance has to itself: decoders, encoders, JPEG and optical flow engines.
func engines(profile *profiles.GPUInstanceProfile) [4]uint32 {
	return [4]uint32{profile.Decoders.Value, profile.Encoders.Value, profile.JPEGs.Value, profile.OFAs.Value}
}

// hasEngines reports whether the GPU has engines left for one more instance of a profile. The profile that takes the
// whole GPU says how many there are.
func (p *Partitioning) hasEngines(profile *profiles.GPUInstanceProfile) bool {
	var whole *profiles.GPUInstanceProfile
	for i := range p.Profiles {
		if all := &p.Profiles[i]; all.PlacementSize.Value == p.Slots() {
			whole = all
			break
		}
	}
	if whole == nil {
		return true
	}
	used := engines(profile)
	for _, i := range p.Instances {
		if other := p.Profile(i.Profile); other != nil {
			for k, n := range engines(other) {
				used[k] += n
			}
		}
	}
	for k, n := range engines(whole) {
		if used[k] > n {
			return false
		}
	}
	return true
}

// Free are the starts at which an instance of a profile fits now.
func (p *Partitioning) Free(profile *profiles.GPUInstanceProfile) (starts []uint32) {
	same := uint32(0)
	for _, i := range p.Instances {
		if i.Profile == profile.ID {
			same++
		}
	}
	if most, ok := profile.Instances.Get(); ok && same >= most || !p.hasEngines(profile) {
		return nil
	}
	taken := p.taken()
	for _, start := range profile.PlacementStarts {
		if taken&covers(profile, start) == 0 {
			starts = append(starts, start)
		}
	}
	return starts
}

// With is the partitioning with one more instance.
func (p *Partitioning) With(profile *profiles.GPUInstanceProfile, start uint32) *Partitioning {
	next := *p
	next.Instances = append(slices.Clip(p.Instances), state.Instance{Profile: profile.ID, Start: start})
	return &next
}

// Choose is the start that the driver gives an instance of a profile: the one that leaves the most ways to place another
// instance, and among those the one with the lowest number of the instance. Real boards were seen to do so (A30, A100, H100,
// RTX PRO 6000). A 1g profile of double memory keeps the last start, which has one compute slice only, for the end (GH200).
func (p *Partitioning) Choose(profile *profiles.GPUInstanceProfile) (start uint32, ok bool) {
	best, number := -1, uint32(0)
	free := p.Free(profile)
	for _, s := range free {
		after, ways := p.With(profile, s), 0
		for i := range p.Profiles {
			ways += len(after.Free(&p.Profiles[i]))
		}
		if strings.HasPrefix(profile.Name, "1g.") && profile.PlacementSize.Value == 2 && s == 6 {
			ways = 0
		}
		if n := p.Number(profile, s); ways > best || ways == best && n < number {
			best, start, number = ways, s, n
		}
	}
	return start, len(free) > 0
}

// Number is the number of the GPU instance at a place. It follows from the place: 0 is the whole GPU, 1 and 2 are its
// halves, 3 to 6 its quarters and from 7 on its eighths (open-gpu-kernel-modules, kmigmgrMemSizeFlagToSwizzIdRange).
func (p *Partitioning) Number(profile *profiles.GPUInstanceProfile, start uint32) uint32 {
	slots, size := p.Slots(), profile.PlacementSize.Value
	if size == 0 || slots == 0 {
		return 0
	}
	parts := slots / size // of this size there are so many
	if parts <= 1 {
		return 0
	}
	if p.Swapped && slots == 8 {
		start = (start + 4) % 8
	}
	first := uint32(1)<<(bits.Len32(parts)-1) - 1
	return first + start/size
}

// Remaining is how many more instances of a profile fit, if nothing else is made.
func (p *Partitioning) Remaining(profile *profiles.GPUInstanceProfile) (n uint32) {
	for {
		start, ok := p.Choose(profile)
		if !ok {
			return n
		}
		n++
		p = p.With(profile, start)
	}
}

// ComputeProfile is one way to cut a GPU instance into compute instances.
type ComputeProfile struct {
	ID              uint32 // its number in NVML's enumeration
	Slices          uint32
	Multiprocessors uint32
	Instances       uint32 // how many fit in an empty GPU instance
	Starts          []uint32
}

// Name is the name of a compute instance in a GPU instance without the word MIG, such as 1c.3g.40gb. The slices of the
// compute instance are part of it if they are not all of its GPU instance.
func (c ComputeProfile) Name(gi *profiles.GPUInstanceProfile) string {
	if c.Slices == gi.Slices.Value {
		return gi.Name
	}
	return fmt.Sprintf("%dc.%s", c.Slices, gi.Name)
}

// doubleMemory is the enumeration's number of the only compute instance in a 1g instance of double memory.
const doubleMemory = 7

// ComputeProfiles are the ways to cut an instance of a profile: each number of slices that the driver offers, the last of
// which takes the whole instance. Compute instances with fewer slices have the multiprocessors of as many 1g instances.
func (p *Partitioning) ComputeProfiles(profile *profiles.GPUInstanceProfile) (list []ComputeProfile) {
	all := profile.Slices.Value
	var slice uint32
	for i := range p.Profiles {
		if one := &p.Profiles[i]; one.Slices.Value == 1 && (slice == 0 || one.Multiprocessors.Value < slice) {
			slice = one.Multiprocessors.Value
		}
	}
	for id, n := range []uint32{1, 2, 3, 4, 7} {
		if n > all || n == 3 && all == 4 || n == 4 && all == 7 {
			continue
		}
		c := ComputeProfile{ID: uint32(id), Slices: n, Multiprocessors: n * slice}
		if n == all {
			c.Multiprocessors = profile.Multiprocessors.Value
			if n == 1 && profile.PlacementSize.Value > p.smallest() {
				c.ID = doubleMemory
			}
		}
		step := n
		if n == 3 {
			step = 4
		}
		for start := uint32(0); start+n <= all; start += step {
			c.Starts = append(c.Starts, start)
		}
		c.Instances = uint32(len(c.Starts))
		list = append(list, c)
	}
	return list
}

// smallest is the number of memory slices of the smallest profile.
func (p *Partitioning) smallest() uint32 {
	n := p.Slots()
	for i := range p.Profiles {
		n = min(n, p.Profiles[i].PlacementSize.Value)
	}
	return n
}

// FreeCompute are the starts at which a compute instance of a profile fits in a GPU instance now.
func FreeCompute(all []ComputeProfile, c ComputeProfile, in []state.Part) (starts []uint32) {
	var taken uint32
	for _, part := range in {
		for _, other := range all {
			if other.ID == part.Profile {
				taken |= (1<<other.Slices - 1) << part.Start
			}
		}
	}
	for _, start := range c.Starts {
		if taken&((1<<c.Slices-1)<<start) == 0 {
			starts = append(starts, start)
		}
	}
	return starts
}
