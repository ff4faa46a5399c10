// Package change computes changes of a node, by pure functions: from a board, a state and a change follow the new
// state, its events and NVML's answer. The library and the commands both use it, so a change means the same in both.
package change

import (
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/nvmlfab/nvmlfab/engine/simulate"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// Source is the data that a node is computed from.
type Source struct {
	// Board is the board as its profile gives it.
	Board *profiles.Board
	// Overridden is the board after overrides.yaml was applied; without that file it is Board itself.
	Overridden *profiles.Board
	// Written is when overrides.yaml was written, in ms since 1970.
	Written int64
	// State has the changes by nvmlfab; nil if there are none.
	State *state.State
	// Origin is when counters start, in ms since 1970, unless the state says it.
	Origin int64

	// The GPUs that Hide removed, and the boards with them; nil if there are none.
	hidden                     []profiles.UUID
	whole, wholeWithOverridden *profiles.Board
}

// Hide removes GPUs from the board, in place of those that it removed before: a program does not get GPUs that were
// drained before it started.
func (s *Source) Hide(devices []profiles.UUID) {
	board, overridden := s.All()
	s.hidden, s.whole, s.wholeWithOverridden = devices, board, overridden
	s.Board = board.Without(devices)
	if s.Overridden = s.Board; overridden != board {
		s.Overridden = overridden.Without(devices)
	}
}

// All is Board and Overridden with the GPUs that Hide removed.
func (s *Source) All() (board, overridden *profiles.Board) {
	if s.whole == nil {
		return s.Board, s.Overridden
	}
	return s.whole, s.wholeWithOverridden
}

// Begins is when counters start, in ms since 1970.
func (s *Source) Begins() int64 {
	if s.State != nil && s.State.Created != 0 {
		return s.State.Created
	}
	return s.Origin
}

// Override lays the text of overrides.yaml, written at a time in ms since 1970, over the board, which the base gave. The
// error names file and line.
func (s *Source) Override(base profiles.Base, text string, written int64) error {
	all, _ := s.All()
	board := all
	if text != "" {
		b, err := base.With(profiles.Layer{Name: state.Overrides, Text: []byte(text)})
		if err != nil {
			return err
		}
		if len(b.Devices) != len(all.Devices) {
			return fmt.Errorf("%s: the number of GPUs cannot change while programs run: write it into the profile", state.Overrides)
		}
		for i := range b.Devices {
			if !reflect.DeepEqual(b.Devices[i].MIG.Instances, all.Devices[i].MIG.Instances) {
				return fmt.Errorf("%s: devices[%d].mig.instances are those from the start: write them into the profile, or change them with nvmlfab mig",
					state.Overrides, i)
			}
		}
		board = b.Fixed(all)
	}
	hidden := s.hidden
	s.Board, s.Overridden, s.Written = all, board, written
	s.hidden, s.whole, s.wholeWithOverridden = nil, nil, nil
	if len(hidden) > 0 {
		s.Hide(hidden)
	}
	return nil
}

var unchanged state.Record

// Records are the changes of the node and of one of its GPUs.
func (s *Source) Records(i int) (node, device *state.Record) {
	if s.State == nil {
		return &unchanged, &unchanged
	}
	return s.State.Node, s.State.Device(s.Board.Devices[i].UUID)
}

// overridden is the board at a time, without the changes by nvmlfab.
func (s *Source) overridden(at int64) *profiles.Board {
	if at < s.Written {
		return s.Board
	}
	return s.Overridden
}

// Node is the board at a time in ms since 1970, apart from its devices.
func (s *Source) Node(at int64) (*profiles.Board, error) {
	if s.State == nil {
		return s.overridden(at), nil
	}
	return s.overridden(at).With(s.State.Node.Settings(at))
}

// Device is one of the GPUs at a time in ms since 1970.
func (s *Source) Device(i int, at int64) (*profiles.Device, error) {
	_, r := s.Records(i)
	d, err := s.overridden(at).Devices[i].With(r.Settings(at))
	if err != nil {
		return nil, fmt.Errorf("GPU %d: %w", i, err)
	}
	return s.withProcesses(d, r, at)
}

// Possible returns an error if the node cannot be as the state says, at a time in ms since 1970. That happens when the
// profile has changed since.
func (s *Source) Possible(at int64) error {
	if _, err := s.Node(at); err != nil {
		return err
	}
	for i := range s.Board.Devices {
		if _, r := s.Records(i); len(r.Set)+len(r.Processes) > 0 {
			if _, err := s.Device(i, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// withProcesses is a device with the processes that were added to it. One that this process cannot see has no process id.
// They use memory on top of what the profile says is used.
func (s *Source) withProcesses(d *profiles.Device, r *state.Record, at int64) (*profiles.Device, error) {
	var added []profiles.Process
	for i := range r.Processes {
		p := &r.Processes[i]
		if end := s.State.End(p); end != 0 && end <= at {
			continue
		}
		process, err := profiles.ProcessOf(p.Keys)
		if err != nil {
			return nil, fmt.Errorf("process %s: %w", p.ID, err)
		}
		if p.Real != nil {
			process.PID = s.State.PID(p)
		}
		added = append(added, process)
	}
	if added == nil {
		return d, nil
	}
	c := *d
	c.Processes = append(slices.Clip(c.Processes), added...)
	var bytes uint64
	for _, p := range added {
		bytes += p.UsedMemoryMiB.Or(0) << 20
	}
	if m := &c.Memory; m.UsedBytes.Valid {
		use, _ := d.MemoryUse()
		m.UsedBytes.Value = min(max(m.UsedBytes.Value, use.Used)+bytes, m.TotalBytes.Or(math.MaxUint64))
	}
	if m := &c.Memory; m.FreeBytes.Valid {
		m.FreeBytes.Value -= min(m.FreeBytes.Value, bytes)
	}
	return &c, nil
}

// times are the times, after the last change and up to now, at which a GPU changed without a call: when a temporary
// setting ended, and when somebody wrote overrides.yaml.
func (s *Source) times(i int, now int64) (first int64, later []int64) {
	node, device := s.Records(i)
	first = max(node.At, device.At, s.Begins())
	if s.Written <= now && s.Written > first && s.Overridden != s.Board {
		later = append(later, s.Written)
	}
	for _, r := range []*state.Record{node, device} {
		for _, l := range r.Set {
			if l.Until > first && l.Until <= now {
				later = append(later, l.Until)
			}
		}
		for i := range r.Processes {
			if end := s.State.End(&r.Processes[i]); end > first && end <= now {
				later = append(later, end)
			}
		}
	}
	slices.Sort(later)
	return first, slices.Compact(later)
}

// Meter is one of the GPUs at a time in ms since 1970, with the meter for its readings and counters from then on. All
// processes with the same source get the same result, whenever they ask.
func (s *Source) Meter(i int, now int64) (*profiles.Device, *simulate.Meter, error) {
	_, r := s.Records(i)
	at, later := s.times(i, now)
	if len(later) == 0 {
		at = now // as it has been since
	}
	d, m, err := s.meter(i, at)
	if err != nil {
		return nil, nil, err
	}
	if r.Warmth != nil {
		m.Warm(simulate.Start{Second: r.Warmth.Second, Warmth: r.Warmth.Part})
	}
	for name, c := range r.Counters {
		if count, ok := simulate.CountOf(name); ok {
			m.Restore(count, simulate.Counter{
				Since: c.Since, From: c.From, Value: simulate.Amount{Units: c.Units, Micros: c.Micros}, Resets: c.Resets,
			})
		}
	}
	for _, at := range later {
		before := m
		if d, m, err = s.meter(i, at); err != nil {
			return nil, nil, err
		}
		m.Follow(before, at)
	}
	return d, m, nil
}

// meter is a GPU at a time, and a new meter for it.
func (s *Source) meter(i int, at int64) (*profiles.Device, *simulate.Meter, error) {
	board, err := s.Node(at)
	if err != nil {
		return nil, nil, err
	}
	d, err := s.Device(i, at)
	if err != nil {
		return nil, nil, err
	}
	return d, simulate.NewMeter(board, d, s.Begins()), nil
}

// Busy is how busy one of the GPUs has been up to a time in ms since 1970 and until its next change: a function of the time, in
// millionths of a percent times seconds, that never falls. It is valid up to a time, which is 0 if nothing ends by itself.
func (s *Source) Busy(i int, now int64) (busy func(ms int64) uint64, until int64, err error) {
	_, m, err := s.Meter(i, now)
	if err != nil {
		return nil, 0, err
	}
	counter, _ := m.Counter(simulate.Count{Quantity: simulate.Busy})
	node, device := s.Records(i)
	for _, r := range []*state.Record{node, device} {
		if at := r.Ends(now); at != 0 && (until == 0 || at < until) {
			until = at
		}
	}
	return counter.Micros, until, nil
}
