// Package state is what nvmlfab changes about a node, and the directory that all processes of the node share it through.
//
// The directory holds overrides.yaml, which people and agents write and nvmlfab only reads; state.json, which holds
// everything that nvmlfab itself changes; generation, a number that tells readers of a change; and lock, which writers
// hold. Renaming a complete state.json over the old one is the commit of a change, so a reader sees all of it or nothing.
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

	"github.com/nvmlfab/nvmlfab/profiles"
)

// Format is the version of state.json's format that this version writes.
const Format = 1

// Product is the version of nvmlfab, which a release sets when it is linked.
var Product = "unreleased"

// Remembered is how many events are kept.
const Remembered = 1024

// State is all that nvmlfab has changed about a node. One that others can see is not changed any more: a change works on
// a [State.Clone].
type State struct {
	// Product is the version of nvmlfab that wrote the state.
	Product string
	// Board has a mark of each GPU that the node had when its state began, in the order of the board.
	Board string
	// Created is when the state began, in ms since 1970. Counters begin then.
	Created int64
	// Serial is the newest serial that was given to an instance.
	Serial uint64
	// Sequence is the number of the newest event.
	Sequence uint64
	// Node is what has changed about the node as a whole.
	Node *Record
	// Devices are the GPUs that something has changed about, by UUID. Those of other boards are kept too: a container sees
	// some of a node's GPUs.
	Devices map[profiles.UUID]*Record
	// Events are the newest events, oldest first.
	Events []Event

	more map[string]json.RawMessage // keys of this format that a newer version added
	text map[profiles.UUID]string   // the records as they stood in the file
}

// Record is what has changed about one GPU, or about the node.
type Record struct {
	// At is when it last changed, in ms since 1970.
	At int64 `json:"at,omitempty"`
	// Set are profile keys with other values than the profile's, in layers, the lowest first.
	Set []Layer `json:"set,omitempty"`
	// Processes are the processes that were added to the GPU.
	Processes []Process `json:"processes,omitempty"`
	// Accounted are processes that ended while accounting was on, oldest first.
	Accounted []Accounted `json:"accounted,omitempty"`
	// Counters are what counters were when they began to grow in another way.
	Counters map[string]Checkpoint `json:"counters,omitempty"`
	// Warmth is how warm the GPU was when its load began to be another one.
	Warmth *Warmth `json:"warmth,omitempty"`

	more map[string]json.RawMessage
}

// Layer is some profile keys and their values, such as "power.enforced_limit_mw": 300000.
type Layer struct {
	Keys profiles.Settings `json:"keys"`
	// Until is when the layer ends, in ms since 1970; 0 if it does not.
	Until int64 `json:"until,omitempty"`
	// By says whose layer it is: that of nvmlfab set if empty, that of NVML's setters, of a fault or of a scenario.
	By string `json:"by,omitempty"`
}

// Process is a process that was added to a GPU.
type Process struct {
	// ID names it among the processes that were added.
	ID string `json:"id"`
	// Keys describe it as an entry of a device's processes does.
	Keys profiles.Settings `json:"keys"`
	// Started is when it was added, in ms since 1970, and Until when it ends by itself, 0 if it does not.
	Started int64  `json:"started"`
	Until   int64  `json:"until,omitempty"`
	By      string `json:"by,omitempty"`
	// Real is the process of the system that it stands for, nil if it stands for none.
	Real *Real `json:"real,omitempty"`
}

// Real identifies a process of the system: its id in a namespace of process ids, and since when it runs, in clock ticks
// after the boot.
type Real struct {
	PID       int    `json:"pid"`
	Namespace uint64 `json:"namespace"`
	Start     uint64 `json:"start"`
	Boot      string `json:"boot"`
}

// Accounted is a process that has ended, as accounting keeps it.
type Accounted struct {
	PID             uint32 `json:"pid"`
	Started         int64  `json:"started"`
	Ended           int64  `json:"ended"`
	MaxMemoryBytes  uint64 `json:"max_memory_bytes"`
	GPUPercent      uint32 `json:"gpu_percent"`
	MemoryPercent   uint32 `json:"memory_percent"`
	RunningAtTheEnd bool   `json:"running,omitempty"`
}

// Checkpoint is a counter at a time in ms since 1970: whole units and millionths, and what its profile let it start from.
type Checkpoint struct {
	Since  int64  `json:"since"`
	From   uint64 `json:"from"`
	Units  uint64 `json:"units"`
	Micros uint32 `json:"micros,omitempty"`
	// Resets is how often the counter was made to start again.
	Resets uint32 `json:"resets,omitempty"`
}

// Warmth is how warm a GPU was at the start of a second since 1970, as a part of its ramp from 0 to 1.
type Warmth struct {
	Second int64   `json:"second"`
	Part   float64 `json:"part"`
}

// Event is something that happened to a GPU, or to the node.
type Event struct {
	// Sequence is its number. Every event has a higher one than those before.
	Sequence uint64 `json:"sequence"`
	// Time is when it happened, in ms since 1970.
	Time int64 `json:"time"`
	// Device is the GPU, empty for an event of the node.
	Device profiles.UUID `json:"device,omitempty"`
	// Type is one of NVML's event types, and Data what belongs to it, such as the number of an Xid.
	Type uint64 `json:"type"`
	Data uint64 `json:"data,omitempty"`
	// Instance and Part are the GPU instance and compute instance that it happened to; nil for the whole GPU.
	Instance *uint32 `json:"instance,omitempty"`
	Part     *uint32 `json:"part,omitempty"`
}

// New is the state of a node about which nothing has changed.
func New(board *profiles.Board, product string, now int64) *State {
	return &State{Product: product, Board: marks(board), Created: now, Node: &Record{}, Devices: map[profiles.UUID]*Record{}}
}

// marks has eight hexadecimal digits for each GPU, so that a container which sees some of them finds its own.
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

// Fits says whether the state is of a node that has at least one GPU of the board.
func (s *State) Fits(board *profiles.Board) bool {
	known := map[string]bool{}
	for i := 0; i+8 <= len(s.Board); i += 8 {
		known[s.Board[i:i+8]] = true
	}
	return slices.ContainsFunc(board.Devices, func(d profiles.Device) bool { return known[mark(d.UUID)] })
}

// Device is what has changed about a GPU; an empty record if nothing has.
func (s *State) Device(uuid profiles.UUID) *Record {
	if r := s.Devices[uuid]; r != nil {
		return r
	}
	return &none
}

var none Record

// Clone is a copy that can be changed. Records are shared until [State.Change] copies one.
func (s *State) Clone() *State {
	c := *s
	c.Devices = maps.Clone(s.Devices)
	c.Events = slices.Clone(s.Events)
	return &c
}

// Change is a copy of a GPU's record, or of the node's for no UUID, which takes the record's place in the state.
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
	if uuid == "" {
		s.Node = &r
	} else {
		s.Devices[uuid] = &r
	}
	return &r
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

// Settings are the profile keys in force at a time in ms since 1970, those of higher layers over those of lower ones.
func (r *Record) Settings(now int64) profiles.Settings {
	all := profiles.Settings{}
	for _, l := range r.Set {
		if l.Until == 0 || l.Until > now {
			all.Lay(l.Keys)
		}
	}
	return all
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
	return next
}

// Empty says that nothing is changed.
func (r *Record) Empty() bool {
	return len(r.Set)+len(r.Processes)+len(r.Accounted)+len(r.Counters)+len(r.more) == 0 && r.Warmth == nil
}

// head is the part of state.json before the devices.
type head struct {
	Format   int    `json:"format"`
	Product  string `json:"product"`
	Board    string `json:"board"`
	Created  int64  `json:"created"`
	Serial   uint64 `json:"serial"`
	Sequence uint64 `json:"sequence"`
}

var (
	// ErrNewer is the error of a state.json that a newer version of nvmlfab wrote in a format of its own: it is not changed.
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
	text, err := json.Marshal(head{Format, s.Product, s.Board, s.Created, s.Serial, s.Sequence})
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

// Decode reads the text of state.json. What stands in it as in the text of before shares the decoded records with it.
func Decode(text []byte, before *State) (*State, error) {
	var h head
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, fmt.Errorf("%w: %w", errTorn, err)
	}
	if h.Format < 1 {
		return nil, errTorn
	}
	s := &State{
		Product: h.Product, Board: h.Board, Created: h.Created, Serial: h.Serial, Sequence: h.Sequence,
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

// UnmarshalJSON keeps what it does not know, so that an older version does not lose what a newer one wrote.
func (r *Record) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, (*plain)(r)); err != nil {
		return err
	}
	if err := json.Unmarshal(text, &r.more); err != nil {
		return err
	}
	for _, key := range []string{"at", "set", "processes", "accounted", "counters", "warmth"} {
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
