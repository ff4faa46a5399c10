package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/change/layout"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

type migCmd struct {
	List    migListCmd    `cmd:"" help:"List the MIG instances that there are."`
	Create  migCreateCmd  `cmd:"" help:"Create GPU instances, or compute instances in one."`
	Destroy migDestroyCmd `cmd:"" help:"Destroy instances."`
	Apply   migApplyCmd   `cmd:"" help:"Cut all GPUs as a file says."`
}

type migListCmd struct {
	nodeFlags
	gpuFlag
	Output string `short:"o" enum:"table,json" default:"table" help:"Print a table, or json for programs."`
}

func (migListCmd) Help() string {
	return `GI and CI are the numbers of GPU instances and compute instances; PLACEMENT is where a GPU instance starts and how many memory
slices it has. DEVICE names MIG devices by the indices of the GPU and in the GPU, as nvmlfab cdi does. JSON also says what else
can be created. Examples:

    nvmlfab mig list
    nvmlfab mig list --gpu 0 --output json

` + whichNode
}

func (c migListCmd) Run() error {
	n, err := c.open(false)
	if err == nil {
		err = n.read()
	}
	if err != nil {
		return err
	}
	which := c.GPU
	if which == nil {
		which = []string{"all"}
	}
	list, err := n.gpus(which)
	if err != nil {
		return err
	}
	all := []migGPU{}
	for _, i := range list {
		gpu, err := n.migGPU(i, time.Now().UnixMilli())
		if err != nil {
			return err
		}
		all = append(all, gpu)
	}
	if c.Output == "json" {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(all)
	}
	return migTable(os.Stdout, all)
}

// migGPU is what list says about a GPU.
type migGPU struct {
	Index     uint32        `json:"index"`
	UUID      string        `json:"uuid"`
	Minor     uint32        `json:"minor"`
	Mode      string        `json:"mode"` // enabled, disabled or unsupported
	Instances []migInstance `json:"instances"`
	Profiles  []migProfile  `json:"profiles"`
}

type migInstance struct {
	ID        uint32    `json:"id"`
	Profile   string    `json:"profile"`
	ProfileID uint32    `json:"profile_id"`
	Start     uint32    `json:"start"`
	Size      uint32    `json:"size"`
	Compute   []migPart `json:"compute"`
}

type migPart struct {
	ID        uint32 `json:"id"`
	Profile   string `json:"profile"`
	ProfileID uint32 `json:"profile_id"`
	Start     uint32 `json:"start"`
	Device    string `json:"device"`
	UUID      string `json:"uuid"`
}

// migProfile is a profile of the board, and how many more instances of it fit.
type migProfile struct {
	Name  string `json:"name"`
	ID    uint32 `json:"id"`
	Free  uint32 `json:"free"`
	Total uint32 `json:"total"`
}

// migGPU describes a GPU at a time in ms since 1970.
func (n *node) migGPU(i int, now int64) (g migGPU, err error) {
	d, err := n.source.Device(i, now)
	if err != nil {
		return g, err
	}
	g = migGPU{Index: d.Index, UUID: string(d.UUID), Minor: d.MinorNumber.Or(d.Index), Mode: "unsupported", Instances: []migInstance{}, Profiles: []migProfile{}}
	if mode, ok := d.MIG.ModeCurrent.Get(); ok {
		g.Mode = map[bool]string{true: "enabled", false: "disabled"}[bool(mode)]
	}
	if g.Mode != "enabled" {
		return g, nil
	}
	devices, err := n.source.MIGDevices(i, now)
	if err != nil {
		return g, err
	}
	p := n.source.Partitioning(i)
	for _, instance := range p.Instances {
		profile := p.Profile(instance.Profile)
		if profile == nil {
			continue // the state is that of a board with other tables
		}
		gi := migInstance{instance.ID, profile.Name, profile.ID, instance.Start, profile.PlacementSize.Value, []migPart{}}
		ways := p.ComputeProfiles(profile)
		for k, m := range devices {
			at := slices.IndexFunc(ways, func(c change.ComputeProfile) bool { return c.ID == m.Part.Profile })
			if m.Instance.Serial == instance.Serial && at >= 0 {
				gi.Compute = append(gi.Compute, migPart{m.Part.ID, ways[at].Name(profile), m.Part.Profile, m.Part.Start, fmt.Sprintf("%d:%d", d.Index, k), m.UUID})
			}
		}
		g.Instances = append(g.Instances, gi)
	}
	slices.SortFunc(g.Instances, func(a, b migInstance) int { return int(a.ID) - int(b.ID) })
	for k := range p.Profiles {
		profile := &p.Profiles[k]
		g.Profiles = append(g.Profiles, migProfile{profile.Name, profile.ID, p.Remaining(profile), profile.Instances.Value})
	}
	return g, nil
}

func migTable(out io.Writer, all []migGPU) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "GPU\tMIG\tGI\tPROFILE\tPLACEMENT\tCI\tCOMPUTE\tDEVICE\tUUID")
	for _, g := range all {
		if len(g.Instances) == 0 {
			fmt.Fprintf(w, "%d\t%s\t-\t-\t-\t-\t-\t-\t-\n", g.Index, g.Mode)
		}
		for _, i := range g.Instances {
			row := fmt.Sprintf("%d\t%s\t%d\t%s\t%d:%d", g.Index, g.Mode, i.ID, i.Profile, i.Start, i.Size)
			if len(i.Compute) == 0 {
				fmt.Fprintf(w, "%s\t-\t-\t-\t-\n", row)
			}
			for _, c := range i.Compute {
				fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", row, c.ID, c.Profile, c.Device, c.UUID)
			}
		}
	}
	return w.Flush()
}

type migCreateCmd struct {
	nodeFlags
	gpuFlag
	Enable    bool     `help:"Switch MIG mode on first, where it is off."`
	NoCompute bool     `help:"Create GPU instances without a compute instance."`
	In        *uint32  `placeholder:"GI" help:"Create compute instances in the GPU instance of that number."`
	Profiles  []string `arg:"" name:"profile[:start]" sep:"none" help:"Names or ids of profiles with commas between them, each with the slice to start at if it matters."`
}

func (migCreateCmd) Help() string {
	return `Creates GPU instances, each with one compute instance that takes all of it. Without a start they are placed where the driver
would place them. With --in, compute instances are created in a GPU instance that there is. Either all of a command is done or, if
anything about it is wrong, nothing. Examples:

    nvmlfab mig create --gpu 0 --enable 3g.40gb,1g.10gb
    nvmlfab mig create --gpu 0,1 19:6 14:0
    nvmlfab mig create --gpu 0 --no-compute 2g.20gb
    nvmlfab mig create --gpu 0 --in 3 1c.2g.20gb,1c.2g.20gb

` + whichNode
}

func (c migCreateCmd) Run() error {
	if c.NoCompute && c.In != nil {
		return errors.New("--in creates compute instances: leave --no-compute out")
	}
	if c.In != nil && c.Enable {
		return errors.New("--enable leaves no instance for --in: use two commands")
	}
	wanted, err := placements(c.Profiles)
	if err != nil {
		return err
	}
	n, list, err := openMIG(c.nodeFlags, c.GPU)
	if err != nil {
		return err
	}
	return n.change(func(t *change.Tx) error {
		for _, i := range list {
			m := migTx{layout.GPU{Tx: t, Index: i}}
			if c.Enable {
				if err := m.Mode(true); err != nil {
					return about(i, err)
				}
			}
			for _, w := range wanted {
				var err error
				if c.In != nil {
					err = m.createPart(*c.In, w)
				} else {
					err = m.create(w.name, w.start, !c.NoCompute)
				}
				if err != nil {
					return about(i, err)
				}
			}
		}
		return nil
	})
}

// openMIG opens the node and finds the GPUs of a command that changes them.
func openMIG(f nodeFlags, gpus []string) (*node, []int, error) {
	if len(gpus) == 0 {
		return nil, nil, errors.New("say which GPU with --gpu, such as --gpu 0 or --gpu all")
	}
	n, err := f.open(true)
	if err != nil {
		return nil, nil, err
	}
	list, err := n.gpus(gpus)
	return n, list, err
}

// placement is a profile that people name, and where they want it.
type placement struct {
	name  string
	start profiles.Opt[uint32]
}

// placements are those of arguments such as 3g.40gb,19:6.
func placements(args []string) (list []placement, err error) {
	for _, arg := range args {
		for text := range strings.SplitSeq(arg, ",") {
			name, start, given := strings.Cut(strings.TrimSpace(text), ":")
			p := placement{name: strings.TrimPrefix(name, "MIG ")}
			if p.name == "" {
				return nil, fmt.Errorf("%.80q names no profile: want names or ids with commas between them, such as 3g.40gb,19:6", arg)
			}
			if given {
				n, err := strconv.ParseUint(start, 10, 8)
				if err != nil {
					return nil, fmt.Errorf("%.80q: want a slice after the colon, such as %s:0", text, p.name)
				}
				p.start = profiles.Some(uint32(n))
			}
			list = append(list, p)
		}
	}
	return list, nil
}

// migTx changes the instances of one GPU.
type migTx struct{ layout.GPU }

// create makes a GPU instance, and a compute instance that takes all of it.
func (m migTx) create(name string, want profiles.Opt[uint32], compute bool) error {
	p, err := m.Cut()
	if err != nil {
		return err
	}
	profile, err := p.Find(name)
	if err != nil {
		return err
	}
	start, err := p.Place(profile, want)
	if err != nil {
		return err
	}
	made, ret := m.CreateGPUInstance(m.Index, profile.ID, &start)
	if ret == abi.SUCCESS && compute {
		ways := p.ComputeProfiles(profile)
		_, ret = m.CreateComputeInstance(m.Index, made.Serial, ways[len(ways)-1].ID, nil)
	}
	return layout.Refused(ret)
}

// createPart makes a compute instance in the GPU instance of a number.
func (m migTx) createPart(number uint32, w placement) error {
	p, instance, err := m.find(number)
	if err != nil {
		return err
	}
	profile := p.Profile(instance.Profile)
	if profile == nil {
		return fmt.Errorf("GPU instance %d has a profile that the board does not offer", number)
	}
	ways := p.ComputeProfiles(profile)
	c, err := change.FindCompute(profile, ways, w.name)
	if err != nil {
		return err
	}
	free := change.FreeCompute(ways, c, instance.Parts)
	var start *uint32
	if at, ok := w.start.Get(); ok {
		start = &at
		if !slices.Contains(c.Starts, at) {
			return fmt.Errorf("%s cannot start at %d", c.Name(profile), at)
		}
	}
	if len(free) == 0 || start != nil && !slices.Contains(free, *start) {
		return fmt.Errorf("there is no room for %s in GPU instance %d", c.Name(profile), number)
	}
	_, ret := m.CreateComputeInstance(m.Index, instance.Serial, c.ID, start)
	return layout.Refused(ret)
}

// find is the GPU instance of a number.
func (m migTx) find(number uint32) (*change.Partitioning, state.Instance, error) {
	p, err := m.Cut()
	if err != nil {
		return nil, state.Instance{}, err
	}
	at := slices.IndexFunc(p.Instances, func(i state.Instance) bool { return i.ID == number })
	if at < 0 {
		return nil, state.Instance{}, fmt.Errorf("there is no GPU instance %d", number)
	}
	return p, p.Instances[at], nil
}

type migDestroyCmd struct {
	nodeFlags
	gpuFlag
	All       bool     `help:"Destroy all instances of the GPUs."`
	Instances []string `arg:"" optional:"" name:"gi[/ci]" sep:"none" help:"A GPU instance, with all that is in it, or one compute instance."`
}

func (migDestroyCmd) Help() string {
	return `GI and CI are the numbers that nvmlfab mig list prints. Either all of a command is done or, if anything about it is wrong,
nothing. MIG mode stays on. Examples:

    nvmlfab mig destroy --gpu 0 13
    nvmlfab mig destroy --gpu 0 2/0
    nvmlfab mig destroy --gpu all --all

` + whichNode
}

func (c migDestroyCmd) Run() error {
	switch {
	case c.All && len(c.Instances) > 0:
		return errors.New("--all destroys every instance: leave out either --all or the instances")
	case !c.All && len(c.Instances) == 0:
		return errors.New("say which instances, or --all")
	}
	type target struct {
		instance uint32
		part     profiles.Opt[uint32]
	}
	var targets []target
	for _, text := range c.Instances {
		instance, part, one := strings.Cut(text, "/")
		var t target
		n, err := strconv.ParseUint(instance, 10, 8)
		t.instance = uint32(n)
		if one && err == nil {
			n, err = strconv.ParseUint(part, 10, 8)
			t.part = profiles.Some(uint32(n))
		}
		if err != nil {
			return fmt.Errorf("want the number of a GPU instance, such as 2, or of a compute instance in it, such as 2/0, not %.40q", text)
		}
		targets = append(targets, t)
	}
	n, list, err := openMIG(c.nodeFlags, c.GPU)
	if err != nil {
		return err
	}
	return n.change(func(t *change.Tx) error {
		any := false
		for _, i := range list {
			m := migTx{layout.GPU{Tx: t, Index: i}}
			if c.All {
				for _, instance := range slices.Clone(t.Partitioning(i).Instances) {
					any = true
					if err := m.Destroy(instance); err != nil {
						return about(i, err)
					}
				}
				continue
			}
			for _, target := range targets {
				any = true
				if err := m.destroyOne(target.instance, target.part); err != nil {
					return about(i, err)
				}
			}
		}
		if !any {
			return errUnchanged
		}
		return nil
	})
}

// destroyOne removes the GPU instance of a number, or a compute instance in it.
func (m migTx) destroyOne(number uint32, part profiles.Opt[uint32]) error {
	_, instance, err := m.find(number)
	if err != nil {
		return err
	}
	id, ok := part.Get()
	if !ok {
		return m.Destroy(instance)
	}
	for _, p := range instance.Parts {
		if p.ID == id {
			return layout.Refused(m.DestroyComputeInstance(m.Index, p.Serial))
		}
	}
	return fmt.Errorf("there is no compute instance %d in GPU instance %d", id, number)
}
