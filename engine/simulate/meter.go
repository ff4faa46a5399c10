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

var countNames = [...]string{"energy", "lost_to_power_cap", "lost_to_sw_thermal", "lost_to_hw_thermal", "link_traffic", "link_errors"}

// String is the name that files give the counter.
func (c Count) String() string {
	if c.Quantity == LinkErrorCounts {
		return fmt.Sprintf("%s.%d", countNames[c.Quantity], c.Link)
	}
	return countNames[c.Quantity]
}

// Meter is what a device's readings and counters follow. It works a course out when somebody first asks for a reading.
// Any number of threads may use it.
type Meter struct {
	device      *profiles.Device
	nvlink      *profiles.NVLink
	links       uint32
	origin      int64 // when counters begin, in ms since 1970
	start       Start
	checkpoints map[Count]Counter // of counters that have not grown in the same way ever since the origin
	least       map[Count]uint64  // what this process has answered already, where that is more

	once    sync.Once
	current *Course
	moves   bool
	still   Readings // of a device that does not move
}

// NewMeter is the meter of a GPU of a board, which may be another one than the board has at its index.
func NewMeter(board *profiles.Board, d *profiles.Device, origin int64) *Meter {
	return &Meter{device: d, nvlink: &board.NVLink, links: board.LinkCount(d.Index), origin: origin}
}

// Course is the course of the device's readings.
func (m *Meter) Course() *Course {
	m.once.Do(func() {
		if m.current == nil {
			m.current = New(m.device, SettingsOf(m.device), m.start)
		}
		if m.moves = m.current.Moves(); !m.moves {
			m.still = m.current.At(0)
		}
	})
	return m.current
}

// Still are the readings of a device whose readings do not move; false for one whose do.
func (m *Meter) Still() (Readings, bool) {
	m.Course()
	return m.still, !m.moves
}

// growth is what a counter starts from, not valid if the device does not have it, and how it grows.
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

// Restore makes a counter go on from a checkpoint, whose growth does not matter. If the profile lets it start from a
// higher number now, it goes on from there.
func (m *Meter) Restore(c Count, was Counter) {
	now, g := m.growth(c)
	was.Growth = Growth{}
	m.checkpoint(c, was.Checkpoint(was.Since, now.Value, g))
}

// Reset makes a counter start again from 0 at a time in ms since 1970.
func (m *Meter) Reset(c Count, at int64) {
	was, _ := m.Counter(c)
	m.checkpoint(c, Counter{Since: at, From: was.From, Growth: was.Growth, Resets: was.Resets + 1})
}

// Warm makes the course go on from what it was: how warm the GPU was. It comes before everything that asks for a reading.
func (m *Meter) Warm(start Start) { m.start = start }

func (m *Meter) checkpoint(c Count, counter Counter) {
	if m.checkpoints == nil {
		m.checkpoints = map[Count]Counter{}
	}
	m.checkpoints[c] = counter
}

// Follow makes the meter go on from what another was until a time in ms since 1970. It comes before everything that asks
// for a reading. Counters that begin to grow in another way, and all that have a checkpoint, get one.
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

// counts are the counters that a meter or another has.
func (m *Meter) counts(old *Meter) (list []Count) {
	for q := range LinkErrorCounts {
		list = append(list, Count{Quantity: q})
	}
	for link := range max(old.links, m.links) {
		list = append(list, Count{LinkErrorCounts, link})
	}
	return list
}

// Checkpoints calls f with each counter that has a checkpoint. Start is how the course began.
func (m *Meter) Checkpoints(f func(Count, Counter)) {
	for c, counter := range m.checkpoints {
		f(c, counter)
	}
}

// Began is how the course began: the zero Start if the GPU has always been as it is.
func (m *Meter) Began() Start { return m.Course().start }

// Value is one of the device's counters at a time in ms since 1970, given by a function that is called only if the
// counter grows; not valid if the device does not have it.
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

// NotLess makes no counter less than an older meter of this process had it at a time in ms since 1970, unless a change
// made it start again. Processes notice a change at different times, and until then each counts on as before. It comes
// before the meter is shared between threads.
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

// CountOf is the counter that a file means by a name; false if there is none of that name.
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
