// Package state holds the changes that nvmlfab makes to a node, and the directory by which all processes of the node
// share them.
//
// The directory has four files and a folder. overrides.yaml is written by people and agents, and nvmlfab only reads it.
// state.json has everything that nvmlfab itself changes. generation has a number by which readers notice a change. lock is
// held by writers. caps has the files that say which device nodes open MIG devices. A change is committed by renaming a
// complete state.json over the old one, so a reader sees all of a change or nothing.
package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/engine/state/caps"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// Format is the version of state.json's format that this version writes.
const Format = 1

// Remembered is the number of events that are kept.
const Remembered = 1024

// State has all changes that nvmlfab has made to a node. A state that others can see is immutable: a change uses a
// [State.Clone].
type State struct {
	// Board has a mark for each GPU that the node had when its state was created, in the order of the board.
	Board string
	// Created is when the state was created, in ms since 1970. Counters start then.
	Created int64
	// Serial is the newest serial that was given to an instance.
	Serial uint64
	// Sequence is the number of the newest event.
	Sequence uint64
	// Node has the changes of the node as a whole.
	Node *Record
	// Devices has the changed GPUs by UUID. GPUs of other boards are kept too, since a container may see only some of a
	// node's GPUs.
	Devices map[profiles.UUID]*Record
	// Events are the newest events, oldest first.
	Events []Event

	more map[string]json.RawMessage // keys of this format that a newer version added
	seen *sights                    // the real processes; nil if there are none, or nobody has looked
	text map[profiles.UUID]string   // the records' text in the file
}

// What NVML's drain state makes of a GPU.
const (
	Draining = "draining" // programs that start later do not get it
	Removed  = "removed"  // it is gone from the PCI bus
)

// Record has the changes of one GPU, or of the node.
type Record struct {
	// At is when it last changed, in ms since 1970.
	At int64 `json:"at,omitempty"`
	// Set has profile keys with other values than the profile's, in layers, the lowest first.
	Set []Layer `json:"set,omitempty"`
	// Drain is Draining or Removed; empty for a GPU that everybody gets.
	Drain string `json:"drain,omitempty"`
	// Processes are the processes that were added to the GPU.
	Processes []Process `json:"processes,omitempty"`
	// Accounted are processes that ended while accounting was on, oldest first.
	Accounted []Accounted `json:"accounted,omitempty"`
	// Instances are the GPU instances of a GPU in MIG mode.
	Instances []Instance `json:"instances,omitempty"`
	// Divided says that Instances is all there is. Before, a GPU has the instances of its profile too.
	Divided bool `json:"divided,omitempty"`
	// Counters has checkpoints of counters whose rate has changed.
	Counters map[string]Checkpoint `json:"counters,omitempty"`
	// Warmth is how warm the GPU was when its load changed.
	Warmth *Warmth `json:"warmth,omitempty"`
	// Plays are the scenarios that are being played; only the node has them.
	Plays []Play `json:"plays,omitempty"`
	// Links are the faults of the InfiniBand fabric; only the node has them.
	Links []LinkFault `json:"links,omitempty"`

	more map[string]json.RawMessage
}

// Layer is some profile keys and their values, such as "power.enforced_limit_mw": 300000.
type Layer struct {
	Keys profiles.Settings `json:"keys"`
	// Until is when the layer ends, in ms since 1970; 0 if it does not.
	Until int64 `json:"until,omitempty"`
	// By is the owner of the layer: empty for nvmlfab set, or NVML's setters, a fault or a scenario.
	By string `json:"by,omitempty"`
}

// LinkFault is a fault of a port or a switch of the InfiniBand fabric.
type LinkFault struct {
	// Kind is one of the kinds of machine/fabric, such as link-down.
	Kind string `json:"kind"`
	// Target is an adapter and a port such as mlx5_0/1, or a node of the fabric by its description or GUID.
	Target string `json:"target"`
	// Since is when it began, and Until when it ends, in ms since 1970; Until is 0 if it does not end.
	Since int64 `json:"since"`
	Until int64 `json:"until,omitempty"`
	// By is the owner, as of a layer, without the kind.
	By string `json:"by"`
	// PeriodMS is how long a flapping link takes to go down and come up; 0 for the fabric's default.
	PeriodMS int64 `json:"period_ms,omitempty"`
	// Rate is the number of symbol errors per second; 0 for the fabric's default.
	Rate float64 `json:"rate,omitempty"`
	// Lanes and Speed are those of a link with a wrong rate; what is 0 or empty is as it was.
	Lanes uint8  `json:"lanes,omitempty"`
	Speed string `json:"speed,omitempty"`
}

// Process is a process that was added to a GPU.
type Process struct {
	// ID names it among the processes that were added.
	ID string `json:"id"`
	// Keys describe it, as in an entry of a device's processes.
	Keys profiles.Settings `json:"keys"`
	// Started is when it was added, in ms since 1970, and Until when it ends; 0 if it does not end.
	Started int64  `json:"started"`
	Until   int64  `json:"until,omitempty"`
	By      string `json:"by,omitempty"`
	// Real is the system's process that it stands for; nil if there is none.
	Real *Real `json:"real,omitempty"`
}

// Real identifies a process of the system: its id in a PID namespace, and its start time in clock ticks after the boot.
type Real struct {
	PID       int    `json:"pid"`
	Namespace uint64 `json:"namespace"`
	Start     uint64 `json:"start"`
	Boot      string `json:"boot"`
}

// Instance is a GPU instance: a profile, the memory slice that it starts at, and the compute instances in it.
type Instance struct {
	// ID is the number that NVML gives it, and Serial tells it from others that had the same number before.
	ID      uint32 `json:"id"`
	Serial  uint64 `json:"serial"`
	Profile uint32 `json:"profile"`
	Start   uint32 `json:"start"`
	// GPU is the minor number of the GPU's device node, by which the instance's capabilities are named.
	GPU   uint32 `json:"gpu"`
	Parts []Part `json:"parts,omitempty"`
}

// Part is a compute instance: a profile, and the compute slice of its GPU instance that it starts at.
type Part struct {
	ID      uint32 `json:"id"`
	Serial  uint64 `json:"serial"`
	Profile uint32 `json:"profile"`
	Start   uint32 `json:"start"`
}

// Accounted is the accounting record of a process that has ended.
type Accounted struct {
	PID             uint32 `json:"pid"`
	Started         int64  `json:"started"`
	Ended           int64  `json:"ended"`
	MaxMemoryBytes  uint64 `json:"max_memory_bytes"`
	GPUPercent      uint32 `json:"gpu_percent"`
	MemoryPercent   uint32 `json:"memory_percent"`
	RunningAtTheEnd bool   `json:"running,omitempty"`
}

// Checkpoint is the value of a counter at a time in ms since 1970, in whole units and millionths, and the profile's
// start value at that time.
type Checkpoint struct {
	Since  int64  `json:"since"`
	From   uint64 `json:"from"`
	Units  uint64 `json:"units"`
	Micros uint32 `json:"micros,omitempty"`
	// Resets is how often the counter was restarted.
	Resets uint32 `json:"resets,omitempty"`
}

// Warmth is how warm a GPU was at the start of a second since 1970, as a part of its ramp from 0 to 1.
type Warmth struct {
	Second int64   `json:"second"`
	Part   float64 `json:"part"`
}

// Play is a scenario that is being played, from one time to another, in ms since 1970.
type Play struct {
	ID      string `json:"id"`
	Started int64  `json:"started"`
	Until   int64  `json:"until"`
}

// Event is something that happened to a GPU, or to the node.
type Event struct {
	// Sequence is its number. Every event has a higher one than those before.
	Sequence uint64 `json:"sequence"`
	// Time is when it happened, in ms since 1970.
	Time int64 `json:"time"`
	// Device is the GPU, empty for an event of the node.
	Device profiles.UUID `json:"device,omitempty"`
	// Type is one of NVML's event types, and Data is its data, such as the number of an Xid.
	Type uint64 `json:"type"`
	Data uint64 `json:"data,omitempty"`
	// Instance and Part are the GPU instance and compute instance that it happened to; nil for the whole GPU.
	Instance *uint32 `json:"instance,omitempty"`
	Part     *uint32 `json:"part,omitempty"`
}

// New is the state of an unchanged node.
func New(board *profiles.Board, now int64) *State {
	return &State{Board: marks(board), Created: now, Node: &Record{}, Devices: map[profiles.UUID]*Record{}}
}

// marks has eight hexadecimal digits for each GPU, so that a container that sees only some of the GPUs finds its own.
func marks(board *profiles.Board) string {
	var b strings.Builder
	for i := range board.Devices {
		b.WriteString(mark(board.Devices[i].UUID))
	}
	return b.String()
}

func mark(uuid profiles.UUID) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(uuid))
	return fmt.Sprintf("%08x", h.Sum32())
}

// Fits reports whether the state is of a node with at least one GPU of the board.
func (s *State) Fits(board *profiles.Board) bool {
	known := map[string]bool{}
	for i := 0; i+8 <= len(s.Board); i += 8 {
		known[s.Board[i:i+8]] = true
	}
	return slices.ContainsFunc(board.Devices, func(d profiles.Device) bool { return known[mark(d.UUID)] })
}

// Device is the record of a GPU; an empty record if nothing has changed.
func (s *State) Device(uuid profiles.UUID) *Record {
	if r := s.Devices[uuid]; r != nil {
		return r
	}
	return &none
}

var none Record

// capabilities are the files that the instances have.
func (s *State) capabilities() caps.Set {
	set := caps.Set{}
	if s == nil {
		return set
	}
	for _, r := range s.Devices {
		for _, i := range r.Instances {
			var parts []uint32
			for _, p := range i.Parts {
				parts = append(parts, p.ID)
			}
			set.Add(i.GPU, i.ID, parts...)
		}
	}
	return set
}

// Clone is a copy that can be changed. Records are shared until [State.Change] copies one.
func (s *State) Clone() *State {
	c := *s
	c.Devices = maps.Clone(s.Devices)
	c.Events = slices.Clone(s.Events)
	return &c
}

// Change replaces a GPU's record, or the node's if uuid is empty, by a copy and returns that.
func (s *State) Change(uuid profiles.UUID) *Record {
	old := s.Node
	if uuid != "" {
		old = s.Device(uuid)
	}
	r := *old
	r.Set = slices.Clone(r.Set)
	for i := range r.Set {
		r.Set[i].Keys = maps.Clone(r.Set[i].Keys)
	}
	r.Processes, r.Accounted, r.Counters = slices.Clone(r.Processes), slices.Clone(r.Accounted), maps.Clone(r.Counters)
	r.Instances, r.Plays = slices.Clone(r.Instances), slices.Clone(r.Plays)
	r.Links = slices.Clone(r.Links)
	for i := range r.Instances {
		r.Instances[i].Parts = slices.Clone(r.Instances[i].Parts)
	}
	if uuid == "" {
		s.Node = &r
	} else {
		s.Devices[uuid] = &r
	}
	return &r
}

// Drained are the GPUs that a program which starts now does not get.
func (s *State) Drained() (list []profiles.UUID) {
	if s == nil {
		return nil
	}
	for uuid, r := range s.Devices {
		if r.Drain != "" {
			list = append(list, uuid)
		}
	}
	slices.Sort(list)
	return list
}

// Expiry is the next time, in ms since 1970, at which something ends by itself; 0 if nothing does.
func (s *State) Expiry(now int64) int64 {
	next := s.Node.Ends(now)
	for _, r := range s.Devices {
		if at := r.Ends(now); at != 0 && (next == 0 || at < next) {
			next = at
		}
	}
	return next
}

// Settings are the profile keys that apply at a time in ms since 1970. Higher layers replace keys of lower ones.
func (r *Record) Settings(now int64) profiles.Settings {
	all := profiles.Settings{}
	for _, l := range r.Set {
		if l.Until == 0 || l.Until > now {
			all.Lay(l.Keys)
		}
	}
	return all
}

// LinkFaults are the faults of the InfiniBand fabric that are in force at a time in ms since 1970.
func (r *Record) LinkFaults(now int64) (list []LinkFault) {
	for _, l := range r.Links {
		if l.Until == 0 || l.Until > now {
			list = append(list, l)
		}
	}
	return list
}

// Ends is the next time after now, in ms since 1970, at which something in the record ends by itself; 0 if nothing does.
func (r *Record) Ends(now int64) (next int64) {
	ends := func(at int64) {
		if at > now && (next == 0 || at < next) {
			next = at
		}
	}
	for _, l := range r.Set {
		ends(l.Until)
	}
	for _, p := range r.Processes {
		ends(p.Until)
	}
	for _, l := range r.Links {
		ends(l.Until)
	}
	return next
}

// Empty reports whether nothing is changed.
func (r *Record) Empty() bool {
	return len(r.Set)+len(r.Processes)+len(r.Accounted)+len(r.Instances)+len(r.Counters)+len(r.Plays)+len(r.Links)+len(r.more) == 0 && r.Warmth == nil && r.Drain == "" && !r.Divided
}

// head is the part of state.json before the devices.
type head struct {
	Format   int    `json:"format"`
	Board    string `json:"board"`
	Created  int64  `json:"created"`
	Serial   uint64 `json:"serial"`
	Sequence uint64 `json:"sequence"`
}

var (
	// ErrNewer means that a newer version of nvmlfab wrote state.json in another format. This version does not change
	// it.
	ErrNewer = errors.New("a newer version of nvmlfab wrote it: use that version to change it")
	errTorn  = errors.New("is not what nvmlfab writes")
)

// Encode is the text of state.json, a line for each GPU.
func (s *State) Encode() ([]byte, error) {
	var b bytes.Buffer
	var err error
	put := func(key string, value any) {
		text, e := json.Marshal(value)
		err = errors.Join(err, e)
		if key != "" {
			fmt.Fprintf(&b, "%q:", key)
		}
		b.Write(text)
	}
	text, err := json.Marshal(head{Format, s.Board, s.Created, s.Serial, s.Sequence})
	b.Write(bytes.TrimSuffix(text, []byte("}")))
	for _, key := range slices.Sorted(maps.Keys(s.more)) {
		b.WriteString(",\n")
		put(key, s.more[key])
	}
	b.WriteString(",\n")
	put("node", s.Node)
	b.WriteString(",\n\"devices\":{")
	separator := "\n"
	for _, uuid := range slices.Sorted(maps.Keys(s.Devices)) {
		if r := s.Devices[uuid]; !r.Empty() {
			b.WriteString(separator)
			put(string(uuid), r)
			separator = ",\n"
		}
	}
	b.WriteString("\n},\n\"events\":[")
	separator = "\n"
	for _, e := range s.Events[max(0, len(s.Events)-Remembered):] {
		b.WriteString(separator)
		put("", e)
		separator = ",\n"
	}
	b.WriteString("\n]}\n")
	return b.Bytes(), err
}

// Decode reads the text of state.json. Records whose text equals that in the earlier state are shared with it.
func Decode(text []byte, before *State) (*State, error) {
	var h head
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, fmt.Errorf("%w: %w", errTorn, err)
	}
	if h.Format < 1 {
		return nil, errTorn
	}
	s := &State{
		Board: h.Board, Created: h.Created, Serial: h.Serial, Sequence: h.Sequence,
		Node: &Record{}, Devices: map[profiles.UUID]*Record{}, text: map[profiles.UUID]string{},
	}
	if err := json.Unmarshal(text, &s.more); err != nil {
		return nil, fmt.Errorf("%w: %w", errTorn, err)
	}
	known, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(known, &keys); err != nil {
		return nil, err
	}
	for key := range keys {
		delete(s.more, key)
	}
	var devices map[profiles.UUID]json.RawMessage
	if s.text[""] = string(s.more["node"]); before != nil && before.text[""] == s.text[""] {
		s.Node = before.Node
		delete(s.more, "node")
	}
	for key, into := range map[string]any{"node": s.Node, "devices": &devices, "events": &s.Events} {
		if raw, ok := s.more[key]; ok {
			if err := json.Unmarshal(raw, into); err != nil {
				return nil, fmt.Errorf("%w: %s: %w", errTorn, key, err)
			}
			delete(s.more, key)
		}
	}
	for uuid, raw := range devices {
		s.text[uuid] = string(raw)
		if before != nil && before.text[uuid] == s.text[uuid] {
			s.Devices[uuid] = before.Devices[uuid]
			continue
		}
		r := &Record{}
		if err := json.Unmarshal(raw, r); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errTorn, uuid, err)
		}
		s.Devices[uuid] = r
	}
	if h.Format > Format {
		return s, ErrNewer
	}
	return s, nil
}

// plain is a Record without methods, so that encoding it does not call them again.
type plain Record

// UnmarshalJSON keeps unknown keys, so that an older version does not lose what a newer one wrote.
func (r *Record) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, (*plain)(r)); err != nil {
		return err
	}
	if err := json.Unmarshal(text, &r.more); err != nil {
		return err
	}
	for _, key := range []string{"at", "set", "drain", "processes", "accounted", "instances", "divided", "counters", "warmth", "plays", "links"} {
		delete(r.more, key)
	}
	return nil
}

// MarshalJSON is the inverse.
func (r *Record) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal((*plain)(r))
	if err != nil || len(r.more) == 0 {
		return text, err
	}
	more, err := json.Marshal(r.more)
	if err != nil {
		return nil, err
	}
	if string(text) == "{}" {
		return more, nil
	}
	return append(append(bytes.TrimSuffix(text, []byte("}")), ','), more[1:]...), nil
}
