package change

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// row is a profile as nvidia-smi mig -lgip and -lgipp list it.
func row(name string, id, slices, instances, sm, decoders, jpegs, ofas, size uint32, starts ...uint32) profiles.GPUInstanceProfile {
	return profiles.GPUInstanceProfile{
		Name: name, ID: id, Slices: profiles.Some(slices), Instances: profiles.Some(instances), Multiprocessors: profiles.Some(sm),
		Decoders: profiles.Some(decoders), JPEGs: profiles.Some(jpegs), OFAs: profiles.Some(ofas),
		PlacementSize: profiles.Some(size), PlacementStarts: starts,
	}
}

// Tables of real boards.
var (
	a100 = []profiles.GPUInstanceProfile{
		row("1g.5gb", 19, 1, 7, 14, 0, 0, 0, 1, 0, 1, 2, 3, 4, 5, 6),
		row("1g.5gb+me", 20, 1, 1, 14, 1, 1, 1, 1, 0, 1, 2, 3, 4, 5, 6),
		row("1g.10gb", 15, 1, 4, 14, 1, 0, 0, 2, 0, 2, 4, 6),
		row("2g.10gb", 14, 2, 3, 28, 1, 0, 0, 2, 0, 2, 4),
		row("3g.20gb", 9, 3, 2, 42, 2, 0, 0, 4, 0, 4),
		row("4g.20gb", 5, 4, 1, 56, 2, 0, 0, 4, 0),
		row("7g.40gb", 0, 7, 1, 98, 5, 1, 1, 8, 0),
	}
	a30 = []profiles.GPUInstanceProfile{
		row("1g.6gb", 14, 1, 4, 14, 1, 0, 0, 1, 0, 1, 2, 3),
		row("1g.6gb+me", 21, 1, 1, 14, 1, 1, 1, 1, 0, 1, 2, 3),
		row("2g.12gb", 5, 2, 2, 28, 2, 0, 0, 2, 0, 2),
		row("2g.12gb+me", 6, 2, 1, 28, 2, 1, 1, 2, 0, 2),
		row("4g.24gb", 0, 4, 1, 56, 4, 1, 1, 4, 0),
	}
	rtx = []profiles.GPUInstanceProfile{
		row("1g.24gb", 14, 1, 4, 46, 1, 1, 0, 3, 0, 3, 6, 9),
		row("2g.48gb", 5, 2, 2, 94, 2, 2, 0, 6, 0, 6),
		row("4g.96gb", 0, 4, 1, 188, 4, 4, 1, 12, 0),
	}
)

// TestChoose: instances get the places and numbers that they were seen to get on real boards.
func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name            string
		rows            []profiles.GPUInstanceProfile
		swapped         bool
		create          []uint32
		numbers, starts []uint32
	}{
		{"H100 SXM, seven 1g", a100, false, []uint32{19, 19, 19, 19, 19, 19, 19}, []uint32{13, 11, 12, 7, 8, 9, 10}, []uint32{6, 4, 5, 0, 1, 2, 3}},
		{"H100 PCIe, seven 1g", a100, true, []uint32{19, 19, 19, 19, 19, 19, 19}, []uint32{9, 7, 8, 11, 12, 13, 14}, []uint32{6, 4, 5, 0, 1, 2, 3}},
		{"H100 SXM, 3g and 2g", a100, false, []uint32{9, 14}, []uint32{2, 3}, []uint32{4, 0}},
		{"H200, mixed", a100, false, []uint32{9, 14, 19, 19}, []uint32{2, 3, 9, 10}, []uint32{4, 0, 2, 3}},
		{"H100 NVL, mixed", a100, true, []uint32{9, 15, 19}, []uint32{1, 5, 13}, nil},
		{"GH200, three 1g of double memory", a100, false, []uint32{15, 15, 15}, []uint32{5, 3, 4}, []uint32{4, 0, 2}},
		{"A100, 2g and five 1g", a100, false, []uint32{14, 19, 19, 19, 19, 19}, []uint32{5, 13, 7, 8, 9, 10}, []uint32{4, 6, 0, 1, 2, 3}},
		{"A100, mixed", a100, false, []uint32{9, 19, 14, 19}, []uint32{2, 7, 4, 8}, []uint32{4, 0, 2, 1}},
		{"A100 PCIe, mixed", a100, true, []uint32{9, 19, 14, 19}, []uint32{1, 11, 6, 12}, []uint32{4, 0, 2, 1}},
		{"A100, 4g, 2g and 1g", a100, true, []uint32{5, 14, 19}, []uint32{2, 3, 9}, []uint32{0, 4, 6}},
		{"A100, two 3g", a100, false, []uint32{9, 9}, []uint32{2, 1}, []uint32{4, 0}},
		{"A30", a30, false, []uint32{14, 14, 5}, []uint32{3, 4, 2}, []uint32{0, 1, 2}},
		{"RTX PRO 6000, four 1g", rtx, false, []uint32{14, 14, 14, 14}, []uint32{3, 4, 5, 6}, []uint32{0, 3, 6, 9}},
		{"RTX PRO 6000, mixed", rtx, false, []uint32{5, 14, 14}, []uint32{1, 5, 6}, []uint32{0, 6, 9}},
	} {
		p := &Partitioning{Profiles: c.rows, Swapped: c.swapped}
		var numbers, starts []uint32
		for _, id := range c.create {
			profile := p.Profile(id)
			start, ok := p.Choose(profile)
			require.True(t, ok, c.name)
			numbers, starts = append(numbers, p.Number(profile, start)), append(starts, start)
			p = p.With(profile, start)
		}
		assert.Equal(t, c.numbers, numbers, c.name)
		if c.starts != nil {
			assert.Equal(t, c.starts, starts, c.name)
		}
	}
}

// TestRemaining: what is left after each creation on an A100 that was watched.
func TestRemaining(t *testing.T) {
	p := &Partitioning{Profiles: a100, Swapped: true}
	left := func() (list []uint32) {
		for i := range a100 {
			list = append(list, p.Remaining(&a100[i]))
		}
		return list
	}
	assert.Equal(t, []uint32{7, 1, 4, 3, 2, 1, 1}, left())
	for _, c := range []struct {
		id   uint32
		left []uint32
	}{{5, []uint32{3, 1, 2, 1, 1, 0, 0}}, {14, []uint32{1, 1, 1, 0, 0, 0, 0}}, {19, []uint32{0, 0, 0, 0, 0, 0, 0}}} {
		start, ok := p.Choose(p.Profile(c.id))
		require.True(t, ok)
		p = p.With(p.Profile(c.id), start)
		assert.Equal(t, c.left, left(), "after profile %d", c.id)
	}
}

// TestComputeProfiles: the rows of nvidia-smi mig -lcip.
func TestComputeProfiles(t *testing.T) {
	p := &Partitioning{Profiles: a100}
	type c struct{ id, slices, sm, instances uint32 }
	for id, want := range map[uint32][]c{
		19: {{0, 1, 14, 1}},
		15: {{7, 1, 14, 1}},
		14: {{0, 1, 14, 2}, {1, 2, 28, 1}},
		9:  {{0, 1, 14, 3}, {1, 2, 28, 1}, {2, 3, 42, 1}},
		5:  {{0, 1, 14, 4}, {1, 2, 28, 2}, {3, 4, 56, 1}},
	} {
		var have []c
		for _, row := range p.ComputeProfiles(p.Profile(id)) {
			have = append(have, c{row.ID, row.Slices, row.Multiprocessors, row.Instances})
		}
		assert.Equal(t, want, have, "profile %d", id)
	}
}

// board is an independent model of a GPU that is cut: what its slices and engines hold, in words of the user guide and
// without the arithmetic of the code that is tested.
type board struct {
	memory  []string       // the instance in each memory slice; "" if it is empty
	engines map[string]int // how many of each kind of engine are left
	placed  map[string]placed
}

type placed struct {
	profile uint32
	start   int
	engines map[string]int
}

func newBoard(slices int, engines map[string]int) *board {
	return &board{make([]string, slices), engines, map[string]placed{}}
}

// needs are the engines that an instance of a profile has to itself.
func needs(p *profiles.GPUInstanceProfile) map[string]int {
	return map[string]int{"NVDEC": int(p.Decoders.Value), "JPEG": int(p.JPEGs.Value), "OFA": int(p.OFAs.Value)}
}

// room are the starts at which an instance of a profile can be made.
func (b *board) room(p *profiles.GPUInstanceProfile) (starts []uint32) {
	same := 0
	for _, other := range b.placed {
		if other.profile == p.ID {
			same++
		}
	}
	if same == int(p.Instances.Value) {
		return nil
	}
	for kind, n := range needs(p) {
		if n > b.engines[kind] {
			return nil
		}
	}
next:
	for _, start := range p.PlacementStarts {
		for _, holder := range b.memory[start:][:p.PlacementSize.Value] {
			if holder != "" {
				continue next
			}
		}
		starts = append(starts, start)
	}
	return starts
}

func (b *board) put(name string, p *profiles.GPUInstanceProfile, start uint32) {
	for i := range p.PlacementSize.Value {
		b.memory[start+i] = name
	}
	b.placed[name] = placed{p.ID, int(start), needs(p)}
	for kind, n := range needs(p) {
		b.engines[kind] -= n
	}
}

func (b *board) remove(name string) {
	for i, holder := range b.memory {
		if holder == name {
			b.memory[i] = ""
		}
	}
	for kind, n := range b.placed[name].engines {
		b.engines[kind] += n
	}
	delete(b.placed, name)
}

// TestWalk: at each of 10,000 creations and destructions at random, at a place or where the driver puts it, the code and an
// independent model of slices agree about what fits where. No two instances ever have a number or a slice in common.
func TestWalk(t *testing.T) {
	for name, c := range map[string]struct {
		rows    []profiles.GPUInstanceProfile
		swapped bool
		slices  int
		engines map[string]int
	}{
		"A100":         {a100, false, 8, map[string]int{"NVDEC": 5, "JPEG": 1, "OFA": 1}},
		"swapped A100": {a100, true, 8, map[string]int{"NVDEC": 5, "JPEG": 1, "OFA": 1}},
		"A30":          {a30, false, 4, map[string]int{"NVDEC": 4, "JPEG": 1, "OFA": 1}},
		"RTX PRO 6000": {rtx, false, 12, map[string]int{"NVDEC": 4, "JPEG": 4, "OFA": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			p, b := &Partitioning{Profiles: c.rows, Swapped: c.swapped}, newBoard(c.slices, c.engines)
			made, full := 0, 0
			for step := range 10_000 {
				for i := range c.rows {
					row := &c.rows[i]
					require.Equal(t, b.room(row), p.Free(row), "step %d: %s", step, row.Name)
				}
				if r.IntN(5) < 2 && len(p.Instances) > 0 {
					i := r.IntN(len(p.Instances))
					b.remove(fmt.Sprint(p.Instances[i].Serial))
					p.Instances = slices.Delete(slices.Clone(p.Instances), i, i+1)
					continue
				}
				row := &c.rows[r.IntN(len(c.rows))]
				room := b.room(row)
				start, ok := p.Choose(row)
				require.Equal(t, len(room) > 0, ok, "step %d: %s", step, row.Name)
				if !ok {
					require.Zero(t, p.Remaining(row))
					full++
					continue
				}
				require.Contains(t, room, start)
				if r.IntN(2) == 0 {
					start = room[r.IntN(len(room))]
				}
				left := p.Remaining(row)
				number := p.Number(row, start)
				for _, other := range p.Instances {
					require.NotEqual(t, other.ID, number, "step %d", step)
				}
				b.put(fmt.Sprint(step), row, start)
				p.Instances = append(slices.Clone(p.Instances), state.Instance{ID: number, Profile: row.ID, Start: start, Serial: uint64(step)})
				require.Less(t, p.Remaining(row), left, "step %d", step)
				made++
			}
			assert.Greater(t, made, 3000)
			assert.Greater(t, full, 500, "of creations there was no room for")
		})
	}
}
