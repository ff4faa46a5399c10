package change

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nvmlfab/nvmlfab/engine/simulate"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// The owners of layers. Those of faults and of scenarios have a name after the colon.
const (
	ByUser     = ""          // nvmlfab set
	BySetter   = "nvml"      // NVML's setters, which a reset of the GPU takes back
	ByFault    = "fail:"     // nvmlfab fail
	ByScenario = "scenario:" // nvmlfab play
	ByBoard    = "board"     // NVML's setters, where a reset keeps what they set
)

// bySetters reports whether a layer is one that a reset of the GPU takes back.
func bySetters(l state.Layer) bool { return l.By == BySetter }

// Tx is an unfinished change. Nobody sees its effects before the state is committed.
type Tx struct {
	// Now is when the change happens, in ms since 1970.
	Now     int64
	before  Source
	after   Source
	touched map[int]bool
	node    bool // the node has changed, and so perhaps every GPU
	resets  map[int][]simulate.Count
}

// Begin starts a change of a node at a time in ms since 1970.
func Begin(source Source, now int64) *Tx {
	t := &Tx{Now: now, before: source, after: source, touched: map[int]bool{}, resets: map[int][]simulate.Count{}}
	if source.State == nil {
		t.after.State = state.New(source.Board, source.Origin)
	} else {
		t.after.State = source.State.Clone()
	}
	t.divide()
	return t
}

// Board is the node without its GPUs, as changed so far.
func (t *Tx) Board() (*profiles.Board, error) { return t.after.Node(t.Now) }

// Device is a GPU as changed so far.
func (t *Tx) Device(i int) (*profiles.Device, error) { return t.after.Device(i, t.Now) }

// State is the state as changed so far. The caller must not change it.
func (t *Tx) State() *state.State { return t.after.State }

// Devices is the number of GPUs.
func (t *Tx) Devices() int { return len(t.after.Board.Devices) }

// UUID is the UUID of a GPU.
func (t *Tx) UUID(i int) profiles.UUID { return t.after.Board.Devices[i].UUID }

// Record is the record of a GPU, or of the node for a negative number. The caller may change it.
func (t *Tx) Record(i int) *state.Record {
	if i < 0 {
		t.node = true
		return t.after.State.Change("")
	}
	t.touched[i] = true
	return t.after.State.Change(t.UUID(i))
}

// Set sets keys of a GPU, or of the node for a negative number, permanently or until a time in ms since 1970. Setting a
// key permanently removes it from all other layers, so that the last call decides. The error says which setting is
// wrong.
func (t *Tx) Set(i int, by string, until int64, keys profiles.Settings) error {
	r := t.Record(i)
	t.expire(i, r)
	if until != 0 {
		r.Set = append(r.Set, state.Layer{Keys: maps.Clone(keys), Until: until, By: by})
		return t.check(i)
	}
	for key := range keys {
		for _, l := range r.Set {
			l.Keys.Drop(key)
		}
	}
	if at := slices.IndexFunc(r.Set, func(l state.Layer) bool { return l.By == by && l.Until == 0 }); at >= 0 {
		r.Set[at].Keys.Lay(keys)
	} else {
		r.Set = append([]state.Layer{{Keys: maps.Clone(keys), By: by}}, r.Set...)
	}
	r.Set = slices.DeleteFunc(r.Set, func(l state.Layer) bool { return len(l.Keys) == 0 })
	return t.check(i)
}

// Play gives keys of a GPU, or of the node for a negative number, other values until a time in ms since 1970, as a step of a
// scenario. They replace those that an earlier step gave until the same time.
func (t *Tx) Play(i int, by string, until int64, keys profiles.Settings) error {
	r := t.Record(i)
	t.expire(i, r)
	at := slices.IndexFunc(r.Set, func(l state.Layer) bool { return l.By == by && l.Until == until })
	if at < 0 {
		r.Set = append(r.Set, state.Layer{Keys: maps.Clone(keys), Until: until, By: by})
	} else {
		r.Set[at].Keys.Lay(keys)
	}
	return t.check(i)
}

// Unset removes keys, and the keys in sections of those names, from the layers for which of returns true. It reports
// whether there were any.
func (t *Tx) Unset(i int, of func(state.Layer) bool, keys ...string) (dropped bool, err error) {
	r := t.Record(i)
	t.expire(i, r)
	for _, l := range r.Set {
		for _, key := range keys {
			if of(l) && l.Keys.Drop(key) {
				dropped = true
			}
		}
	}
	r.Set = slices.DeleteFunc(r.Set, func(l state.Layer) bool { return len(l.Keys) == 0 })
	return dropped, t.checkLess(i)
}

// DropLayers removes whole layers, and returns how many there were.
func (t *Tx) DropLayers(i int, of func(state.Layer) bool) (int, error) {
	r := t.Record(i)
	t.expire(i, r)
	n := len(r.Set)
	r.Set = slices.DeleteFunc(r.Set, of)
	return n - len(r.Set), t.checkLess(i)
}

// expire removes what has ended.
func (t *Tx) expire(i int, r *state.Record) {
	r.Set = slices.DeleteFunc(r.Set, func(l state.Layer) bool { return l.Until != 0 && l.Until <= t.Now })
	r.Plays = slices.DeleteFunc(r.Plays, func(p state.Play) bool { return p.Until <= t.Now })
	r.Links = slices.DeleteFunc(r.Links, func(l state.LinkFault) bool { return l.Until != 0 && l.Until <= t.Now })
	ended := func(p state.Process) bool { end := t.after.State.End(&p); return end != 0 && end <= t.Now }
	for _, p := range r.Processes {
		if i >= 0 && ended(p) {
			t.account(i, r, &p, t.after.State.End(&p))
		}
	}
	r.Processes = slices.DeleteFunc(r.Processes, ended)
}

// account writes a process that has ended into a GPU's accounting buffer, if accounting is on.
func (t *Tx) account(i int, r *state.Record, p *state.Process, ended int64) {
	d, err := t.before.Device(i, t.Now)
	if err == nil {
		r.Accounted = accounted(r.Accounted, d, p, ended)
	}
}

// accounted is a GPU's accounting buffer with one more process, which has ended. While accounting is off it stays as it is.
func accounted(list []state.Accounted, d *profiles.Device, p *state.Process, ended int64) []state.Accounted {
	process, err := profiles.ProcessOf(p.Keys)
	if err != nil || !bool(d.Accounting.Mode.Value) {
		return list
	}
	list = append(slices.Clip(list), state.Accounted{
		PID: process.PID, Started: p.Started, Ended: ended, MaxMemoryBytes: process.UsedMemoryMiB.Value << 20,
		GPUPercent: process.SMUtil.Value, MemoryPercent: process.MemUtil.Value,
	})
	return list[max(0, len(list)-int(d.Accounting.BufferSize.Or(4000))):]
}

// Accounted is a GPU's accounting buffer at a time in ms since 1970. Processes that have ended by themselves are in it
// before a change writes them there.
func (s *Source) Accounted(i int, now int64) ([]state.Accounted, error) {
	_, r := s.Records(i)
	list := r.Accounted
	for n := range r.Processes {
		p := &r.Processes[n]
		end := s.State.End(p)
		if end == 0 || end > now {
			continue
		}
		d, err := s.Device(i, now)
		if err != nil {
			return nil, err
		}
		list = accounted(list, d, p, end)
	}
	return list, nil
}

// check returns an error if the changed node is not possible.
func (t *Tx) check(i int) error {
	if i < 0 {
		_, err := t.Board()
		return err
	}
	_, err := t.Device(i)
	return err
}

// checkLess is check after something was taken away. A node that was not possible before may stay so, since it takes
// several commands to take away all that is wrong with it.
func (t *Tx) checkLess(i int) error {
	err := t.check(i)
	if err != nil && t.before.Possible(t.Now) != nil {
		return nil
	}
	return err
}

// ResetCounter restarts one of a GPU's counters from 0.
func (t *Tx) ResetCounter(i int, c simulate.Count) {
	t.touched[i] = true
	t.resets[i] = append(t.resets[i], c)
}

// Event adds an event of a GPU, or of the node for a negative number.
func (t *Tx) Event(i int, kind, data uint64) {
	e := state.Event{Time: t.Now, Type: kind, Data: data}
	if i >= 0 {
		e.Device = t.UUID(i)
	}
	t.Add(e)
}

// Add adds an event and gives it its number.
func (t *Tx) Add(e state.Event) {
	s := t.after.State
	s.Sequence++
	e.Sequence = s.Sequence
	s.Events = append(s.Events, e)
	s.Events = s.Events[max(0, len(s.Events)-state.Remembered):]
}

// Finish completes the change and returns the state to commit: counters and temperatures continue from their present
// values, and the changes send their events.
func (t *Tx) Finish() (*state.State, error) {
	for i := range t.after.Board.Devices {
		t.bury(i)
		if !t.touched[i] && !t.node {
			continue
		}
		if err := t.settle(i); err != nil {
			return nil, err
		}
	}
	if t.node {
		t.after.State.Node.At = t.Now
	}
	return t.after.State, nil
}

// bury takes real processes that have ended off a GPU's list: nobody does so when they end.
func (t *Tx) bury(i int) {
	_, r := t.after.Records(i)
	if slices.ContainsFunc(r.Processes, func(p state.Process) bool {
		end := t.after.State.End(&p)
		return p.Real != nil && end != 0 && end <= t.Now
	}) {
		t.expire(i, t.Record(i))
	}
}

// settle stores a checkpoint of a GPU's counters and temperature if they continue in another way.
func (t *Tx) settle(i int) error {
	before, was, impossible := t.before.Meter(i, t.Now)
	after, is, err := t.after.meter(i, t.Now)
	if impossible != nil && err != nil {
		return nil
	}
	if impossible != nil { // then the GPU goes on from its profile
		profile := t.before
		profile.State = nil
		before, was, err = profile.Meter(i, t.Now)
	}
	if err != nil {
		return err
	}
	if r := t.after.State.Device(t.UUID(i)); len(r.Instances) > 0 && !after.MIG.ModeCurrent.Value {
		t.after.State.Change(t.UUID(i)).Instances = nil // they do not outlive the mode, however it was switched off
		t.Event(i, abi.EventMigConfigChange, 0)
	}
	is.Follow(was, t.Now)
	for _, c := range t.resets[i] {
		is.Reset(c, t.Now)
	}
	r := t.after.State.Change(t.UUID(i))
	r.At, r.Counters, r.Warmth = t.Now, nil, nil
	is.Checkpoints(func(c simulate.Count, counter simulate.Counter) {
		if r.Counters == nil {
			r.Counters = map[string]state.Checkpoint{}
		}
		r.Counters[c.String()] = state.Checkpoint{
			Since: counter.Since, From: counter.From, Units: counter.Value.Units, Micros: counter.Value.Micros, Resets: counter.Resets,
		}
	})
	if start := is.Began(); start != (simulate.Start{}) {
		r.Warmth = &state.Warmth{Second: start.Second, Part: start.Warmth}
	}
	t.notice(i, before, after)
	return nil
}

// Find returns the number of the GPU with that index or UUID.
func Find(board *profiles.Board, name string) (int, error) {
	var uuid profiles.DeviceName
	if err := uuid.UnmarshalText([]byte(name)); err != nil {
		return 0, err
	}
	for i := range board.Devices {
		d := &board.Devices[i]
		if string(d.UUID) == string(uuid) || fmt.Sprint(d.Index) == string(uuid) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("there is no GPU %s: the node has %d, from 0 to %d", name, len(board.Devices), len(board.Devices)-1)
}
