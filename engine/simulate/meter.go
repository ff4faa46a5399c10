package simulate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// Count names one counter of a device: a quantity, or the errors or the traffic of its links.
type Count struct {
	Quantity Quantity
	Link     uint32
}

// Counters of links, which follow the quantities.
const (
	LinkTraffics = Quantities + iota // of each link
	LinkErrorCounts
)

var countNames = [...]string{"energy", "lost_to_power_cap", "lost_to_sw_thermal", "lost_to_hw_thermal", "busy", "link_traffic", "link_errors"}

// String is the counter's name in files.
func (c Count) String() string {
	if c.Quantity == LinkErrorCounts {
		return fmt.Sprintf("%s.%d", countNames[c.Quantity], c.Link)
	}
	return countNames[c.Quantity]
}

// Meter computes a device's readings and counters. It computes the course at the first request for a reading. Any
// number of threads may use it.
type Meter struct {
	device      *profiles.Device
	nvlink      *profiles.NVLink
	links       uint32
	origin      int64 // when counters start, in ms since 1970
	start       Start
	checkpoints map[Count]Counter // of counters whose rate has changed since the origin
	least       map[Count]uint64  // answers of this process that were greater

	once    sync.Once
	current *Course
	still   *Readings // of a device whose readings never change; nil for any other
}

// NewMeter is the meter of a GPU. The GPU may differ from the one that the board has at its index.
func NewMeter(board *profiles.Board, d *profiles.Device, origin int64) *Meter {
	return &Meter{device: d, nvlink: &board.NVLink, links: board.LinkCount(d.Index), origin: origin}
}

// Course is the course of the device's readings.
func (m *Meter) Course() *Course {
	m.once.Do(func() {
		if m.current == nil {
			m.current = New(m.device, SettingsOf(m.device), m.start)
		}
		if !m.current.Moves() {
			m.still = m.current.At(0)
		}
	})
	return m.current
}

// Still are the readings of a device whose readings never change; nil for any other.
func (m *Meter) Still() *Readings {
	m.Course()
	return m.still
}

// growth says how a counter grows, and the value that it starts from, which is not valid if the device does not have
// the counter.
func (m *Meter) growth(c Count) (from profiles.Opt[uint64], g Growth) {
	switch c.Quantity {
	case LinkTraffics:
		from.Value, g = LinkTraffic(m.nvlink)
	case LinkErrorCounts:
		from.Value, g = LinkErrors(m.nvlink, m.device, c.Link)
	default:
		return m.Course().Counter(c.Quantity)
	}
	from.Valid = true
	return from, g
}

// Counter is one of the device's counters; not valid if the device does not have it.
func (m *Meter) Counter(c Count) (counter Counter, valid bool) {
	from, g := m.growth(c)
	if checkpoint, ok := m.checkpoints[c]; ok {
		return checkpoint, from.Valid
	}
	return Begin(m.origin, from.Value, g), from.Valid
}

// Restore makes a counter continue from a checkpoint, whose growth is ignored. If the profile now lets it start from a
// higher number, it continues from that.
func (m *Meter) Restore(c Count, was Counter) {
	now, g := m.growth(c)
	was.Growth = Growth{}
	m.checkpoint(c, was.Checkpoint(was.Since, now.Value, g))
}

// Reset restarts a counter from 0 at a time in ms since 1970.
func (m *Meter) Reset(c Count, at int64) {
	was, _ := m.Counter(c)
	m.checkpoint(c, Counter{Since: at, From: was.From, Growth: was.Growth, Resets: was.Resets + 1})
}

// Warm sets how warm the GPU was when the course started. It must be called before any reading is requested.
func (m *Meter) Warm(start Start) { m.start = start }

func (m *Meter) checkpoint(c Count, counter Counter) {
	if m.checkpoints == nil {
		m.checkpoints = map[Count]Counter{}
	}
	m.checkpoints[c] = counter
}

// Follow makes the meter continue from another one that was used until a time in ms since 1970. It must be called
// before any reading is requested. Counters whose rate changes, and all that have a checkpoint, get a checkpoint.
func (m *Meter) Follow(old *Meter, until int64) {
	m.origin = old.origin
	if course := old.Course(); course.Same(m.device, SettingsOf(m.device)) {
		m.current = course
	} else {
		m.start = course.Start(until / 1000)
	}
	for _, c := range m.counts(old) {
		was, _ := old.Counter(c)
		from, g := m.growth(c)
		_, kept := old.checkpoints[c]
		if same := g == was.Growth && from.Value == was.From; same && !kept {
			continue
		} else if !same {
			was = was.Checkpoint(until, from.Value, g)
		}
		m.checkpoint(c, was)
	}
}

// counts are the counters of either meter.
func (m *Meter) counts(old *Meter) (list []Count) {
	for q := range LinkErrorCounts {
		list = append(list, Count{Quantity: q})
	}
	for link := range max(old.links, m.links) {
		list = append(list, Count{LinkErrorCounts, link})
	}
	return list
}

// Checkpoints calls f with each counter that has a checkpoint.
func (m *Meter) Checkpoints(f func(Count, Counter)) {
	for c, counter := range m.checkpoints {
		f(c, counter)
	}
}

// Began is how the course started: the zero Start if the GPU has always followed it.
func (m *Meter) Began() Start { return m.Course().start }

// Value is one of the device's counters at a time in ms since 1970; not valid if the device does not have it. The time
// comes from a function that is called only if the counter grows.
func (m *Meter) Value(c Count, at func() int64) profiles.Opt[uint64] {
	counter, valid := m.Counter(c)
	switch {
	case !valid:
		return profiles.Opt[uint64]{}
	case counter.Growth == Growth{}:
		return profiles.Some(max(counter.Value.Units, m.least[c]))
	}
	return profiles.Some(max(counter.At(at()), m.least[c]))
}

// NotLess keeps every counter from being less than an older meter of this process had it at a time in ms since 1970,
// unless a change restarted the counter. It is needed because processes notice a change at different times and count as
// before until then. It must be called before threads share the meter.
func (m *Meter) NotLess(old *Meter, at int64) {
	if m == old {
		return
	}
	for _, c := range m.counts(old) {
		was, had := old.Counter(c)
		is, has := m.Counter(c)
		if before := max(was.At(at), old.least[c]); had && has && is.At(at) < before && is.Resets == was.Resets {
			if m.least == nil {
				m.least = map[Count]uint64{}
			}
			m.least[c] = before
		}
	}
}

// CountOf is the counter with that name in files; false if there is none.
func CountOf(name string) (Count, bool) {
	name, number, linked := strings.Cut(name, ".")
	q := slices.Index(countNames[:], name)
	if q < 0 || linked != (Quantity(q) == LinkErrorCounts) {
		return Count{}, false
	}
	c := Count{Quantity: Quantity(q)}
	if linked {
		link, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return Count{}, false
		}
		c.Link = uint32(link)
	}
	return c, true
}
