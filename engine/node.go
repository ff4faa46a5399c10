package engine

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/host"
	"github.com/nvmlfab/nvmlfab/engine/simulate"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// Node is the content of a snapshot.
type Node struct {
	Board *profiles.Board
	// Partitions are the GPU instances of all GPUs in MIG mode.
	Partitions []Partition
}

// Partition is a GPU instance and its compute instances. Serials come from a counter that only grows. So an instance
// that is destroyed and made again is another object, even if it gets the same number.
type Partition struct {
	Device  uint32 // the GPU's number
	ID      uint32
	Serial  uint64
	Profile *profiles.GPUInstanceProfile // nil if the board has no table
	Start   uint32                       // the first memory slice
	Parts   []Part
}

// Part is a compute instance. It is also a MIG device.
type Part struct {
	ID     uint32
	Serial uint64
	UUID   profiles.UUID // of the MIG device
	// Profile is the way in which it was cut out, and Start its first compute slice in the GPU instance.
	Profile change.ComputeProfile
	Start   uint32
}

// GpuInstance is a GPU instance as one snapshot shows it.
type GpuInstance struct {
	view
	Parent  *Device
	ID      uint32
	Profile *profiles.GPUInstanceProfile // nil if the board has no table
	Start   uint32                       // the first memory slice
	Parts   []*ComputeInstance
}

// ComputeInstance is a compute instance as one snapshot shows it.
type ComputeInstance struct {
	view
	Parent  *GpuInstance
	ID      uint32
	Device  *Device // the MIG device
	Profile change.ComputeProfile
	Start   uint32 // the first compute slice in the GPU instance
}

// Unit is an S-class unit as one snapshot shows it.
type Unit struct {
	view
	*profiles.Unit
}

// shown is a GPU as a snapshot is to show it, and what its readings and counters follow.
type shown struct {
	device    *profiles.Device
	meter     *simulate.Meter
	accounted []state.Accounted

	// What they are made of. They stay as they are for as long as that does, and nothing in it ends by itself.
	node, record *state.Record
	overridden   *profiles.Board
	sights       any   // what was known of the real processes
	ends         int64 // in ms since 1970; 0 if nothing ends
}

// plain are the GPUs of a board about which nothing has changed.
func (g *generation) plain(board *profiles.Board) []shown {
	list := make([]shown, len(board.Devices))
	for i := range list {
		d := &board.Devices[i]
		list[i] = shown{device: d, meter: simulate.NewMeter(board, d, g.origin)}
	}
	return list
}

// snapshot makes the snapshot of a node with these GPUs.
func (g *generation) snapshot(n Node, gpus []shown) *Snapshot {
	s := &Snapshot{
		Board:      n.Board,
		Devices:    make([]*Device, len(gpus)),
		Branch:     profiles.Branch(n.Board.System.DriverVersion.Value),
		state:      g.live.State,
		generation: g,
		source:     g.live,
		objects:    map[host.Key]any{},
	}
	devices := make([]Device, len(gpus))
	for i := range devices {
		d := &devices[i]
		d.view, d.Device, d.meter = s.view(host.Device, uint32(i), 0), gpus[i].device, gpus[i].meter
		d.accounted = gpus[i].accounted
		failure := d.Failure
		if r := gpus[i].record; r != nil && r.Drain == state.Removed {
			failure = profiles.Failure{Mode: profiles.Some("lost")}
		}
		d.fault = g.fault(i, failure)
		s.Devices[i] = d
	}
	g.started = true
	s.instead = answersOf(s.Devices)
	for _, p := range n.Partitions {
		gi := &GpuInstance{view: s.view(host.GpuInstance, p.Device, p.Serial), Parent: s.Devices[p.Device], ID: p.ID,
			Profile: p.Profile, Start: p.Start}
		s.instances = append(s.instances, gi)
		s.objects[gi.key] = gi
	}
	for _, d := range s.Devices {
		d.Device = s.inMIGMode(d)
		d.damaged = d.damage()
	}
	for i, p := range n.Partitions {
		gi := s.instances[i]
		for _, part := range p.Parts {
			profile := migDevice(s.Board, gi, part)
			mig := &Device{view: s.view(host.MigDevice, p.Device, part.Serial), Device: profile, fault: gi.Parent.fault}
			mig.meter = simulate.NewMeter(n.Board, profile, g.origin)
			mig.Instance = &ComputeInstance{s.view(host.ComputeInstance, p.Device, part.Serial), gi, part.ID, mig, part.Profile, part.Start}
			gi.Parts = append(gi.Parts, mig.Instance)
			s.objects[mig.key], s.objects[mig.Instance.key] = mig, mig.Instance
		}
	}
	for i := range s.Board.Units {
		u := &Unit{s.view(host.Unit, uint32(i), 0), &s.Board.Units[i]}
		s.Units = append(s.Units, u)
		s.objects[u.key] = u
	}
	return s
}

func (s *Snapshot) view(kind host.Kind, device uint32, serial uint64) view {
	return view{s, host.Key{Kind: kind, Device: device, Serial: serial}}
}

// Publish replaces the node, of which anything may have changed. What nvmlInit fixed must stay the same: the board's
// name, the driver, the number and order of devices, UUIDs, PCI addresses and minor numbers.
func (e *Engine) Publish(n Node) error {
	e.lifecycle.Lock()
	defer e.lifecycle.Unlock()
	old := e.current.Load()
	if len(old.Devices) == 0 || len(n.Board.Devices) != len(old.Devices) {
		return fmt.Errorf("a board of %d devices cannot take the place of one of %d", len(n.Board.Devices), len(old.Devices))
	}
	for _, p := range n.Partitions {
		if uint64(p.Device) >= uint64(len(old.Devices)) {
			return fmt.Errorf("GPU instance %d is of device %d, and there are %d", p.ID, p.Device, len(old.Devices))
		}
	}
	n.Board = n.Board.Fixed(old.Board)
	if err := e.host.Keep(old.generation.kept(n)); err != nil {
		return err
	}
	gpus, end := old.generation.plain(n.Board), max(old.generation.now(), old.end())
	for i, d := range gpus {
		d.meter.Follow(old.Devices[i].meter, end)
	}
	e.current.Store(old.generation.snapshot(n, gpus))
	return nil
}

// kept is all that a forked process needs to go on as this one, for Host.Keep; restored is the inverse.
func (g *generation) kept(n Node) []byte {
	c := g.source
	var b []byte
	number := func(v uint64) { b = binary.AppendUvarint(b, v) }
	text := func(s string) { number(uint64(len(s))); b = append(b, s...) }
	text(c.base.Name)
	text(string(c.base.Text))
	text(c.beside)
	text(c.state)
	number(uint64(c.origin))
	number(uint64(len(c.hidden)))
	for _, uuid := range c.hidden {
		text(string(uuid))
	}
	text(g.overrides)
	number(uint64(g.live.Written))
	text(g.changed())
	number(uint64(len(n.Partitions)))
	for _, p := range n.Partitions {
		number(uint64(p.Device))
		number(uint64(p.ID))
		number(p.Serial)
		number(uint64(len(p.Parts)))
		for _, part := range p.Parts {
			number(uint64(part.ID))
			number(part.Serial)
			text(string(part.UUID))
		}
	}
	return b
}

var errKept = errors.New("what was kept before the fork is not whole; call nvmlShutdown and nvmlInit")

// remains is what a forked process finds of its parent's node.
type remains struct {
	config
	overrides string
	written   int64
	changed   string
	node      Node
}

func restored(b []byte) (r remains, err error) {
	c, n := &r.config, &r.node
	number := func() uint64 {
		v, size := binary.Uvarint(b)
		if size <= 0 {
			err, b = errKept, nil
			return 0
		}
		b = b[size:]
		return v
	}
	text := func() string {
		size := number()
		if size > uint64(len(b)) {
			err, b = errKept, nil
			return ""
		}
		s := string(b[:size])
		b = b[size:]
		return s
	}
	c.base.Name = text()
	if profile := text(); profile != "" {
		c.base.Text = []byte(profile)
	}
	c.beside, c.state = text(), text()
	c.origin = int64(number())
	for range number() {
		if err != nil {
			break
		}
		c.hidden = append(c.hidden, profiles.UUID(text()))
	}
	r.overrides, r.written, r.changed = text(), int64(number()), text()
	for range number() {
		if err != nil {
			break
		}
		p := Partition{Device: uint32(number()), ID: uint32(number()), Serial: number()}
		for range number() {
			if err != nil {
				break
			}
			p.Parts = append(p.Parts, Part{ID: uint32(number()), Serial: number(), UUID: profiles.UUID(text())})
		}
		n.Partitions = append(n.Partitions, p)
	}
	if err == nil {
		n.Board, err = c.board()
	}
	return r, err
}
