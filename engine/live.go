package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// follower is a directory that may change the node: the state directory, or the directory of the profile file, of which
// only overrides.yaml is used.
type follower struct {
	*state.Follower
	dir *state.Dir
}

// follow starts to follow the directories of a configuration.
func (g *generation) follow() {
	for _, path := range []string{g.source.beside, g.source.state} {
		if path != "" {
			dir := state.At(path)
			g.followed = append(g.followed, &follower{dir.Follow(), dir})
		}
	}
}

// unfollow undoes follow for a generation that nobody has seen.
func (g *generation) unfollow() {
	g.engine.host.Follow(false, 0, 0, "")
	for _, f := range g.followed {
		f.Close()
	}
}

// stateDir is the state directory; nil if this process does not share its state.
func (g *generation) stateDir() *state.Dir {
	if g.source.state == "" {
		return nil
	}
	return g.followed[len(g.followed)-1].dir
}

// stale reports whether it is time to look at the directories.
func (g *generation) stale() bool {
	clock := g.engine.host.Clock()
	for _, f := range g.followed {
		if f.Stale(clock) {
			return true
		}
	}
	return false
}

// now is the time of the process, in ms since 1970.
func (g *generation) now() int64 { return g.engine.host.Now().UnixMilli() }

// load reads the directories for the first time. A mistake in overrides.yaml is an error, like one in a profile; a
// state.json that cannot be read is ignored.
func (g *generation) load() error {
	g.follow()
	_, numbers := g.look()
	if _, err := g.readOverrides(); err != nil {
		if dir := g.stateDir(); dir != nil && errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("there is no state directory %s: make it with mkdir, or name another one in NVMLFAB_STATE_DIR", dir.Path())
		}
		return err
	}
	board, _ := g.live.All()
	if dir := g.stateDir(); dir != nil {
		s, err := dir.Read(nil)
		switch {
		case s != nil && !s.Fits(board):
			g.say(fmt.Errorf("%s is the state of a node with other GPUs: it is not used; name another directory in NVMLFAB_STATE_DIR", dir.Path()))
		case err != nil && !errors.Is(err, state.ErrNewer):
			g.say(err)
		default:
			g.live.State = s
			if err := g.live.Possible(g.now()); err != nil {
				g.say(fmt.Errorf("%s does not fit the profile any more, so it is not used: %w; nvmlfab unset --all, heal and process remove --all take back what has changed", dir.File(), err))
				g.live.State = nil
			}
		}
	}
	g.seen(numbers)
	return nil
}

// inherit takes over the parent's data after a fork. The next call looks at the directories.
func (g *generation) inherit(r remains) error {
	g.follow()
	if err := g.override(r.overrides, r.written); err != nil {
		return err
	}
	if r.changed == "" {
		return nil
	}
	s, err := state.Decode([]byte(r.changed), nil)
	g.live.State = s
	return err
}

// changed is the state as text.
func (g *generation) changed() string {
	if g.live.State == nil {
		return ""
	}
	text, err := g.live.State.Encode()
	if err != nil {
		return ""
	}
	return string(text)
}

// look reports whether files have changed, and returns the numbers from before that check.
func (g *generation) look() (changed bool, numbers []uint32) {
	for _, f := range g.followed {
		c, number := f.Look()
		changed, numbers = changed || c, append(numbers, number)
	}
	return changed, numbers
}

// seen stores that the files have been read, and when to look again.
func (g *generation) seen(numbers []uint32) {
	wait := state.Tick.Milliseconds()
	if s := g.live.State; s != nil {
		now := g.now()
		expires := s.Expiry(now)
		g.expires.Store(expires)
		if expires != 0 {
			wait = min(wait, max(expires-now, 1))
		}
	}
	if len(g.followed) == 0 {
		return
	}
	last := len(g.followed) - 1
	file := ""
	if dir := g.stateDir(); dir != nil {
		file = dir.File()
	}
	g.engine.host.Follow(true, g.followed[last].Address(), numbers[last], file)
	clock := g.engine.host.Clock()
	for i, f := range g.followed {
		f.Seen(numbers[i], clock+wait)
	}
}

// readOverrides applies the overrides.yaml of each directory to the board. It reports whether they have changed.
func (g *generation) readOverrides() (changed bool, err error) {
	var all string
	var latest int64
	for _, f := range g.followed {
		text, written, err := f.dir.ReadOverrides()
		if err != nil {
			return false, err
		}
		if text == nil {
			continue
		}
		path := filepath.Join(f.dir.Path(), state.Overrides)
		if _, err := g.source.base.With(profiles.Layer{Name: path, Text: text}); err != nil {
			return false, err
		}
		if all != "" {
			all += "\n---\n"
		}
		all, latest = all+string(text), max(latest, min(written, g.now())) // a clock elsewhere may be ahead
	}
	if all == g.overrides && latest == g.live.Written {
		return false, nil
	}
	return true, g.override(all, latest)
}

// override applies the text of overrides.yaml to the board.
func (g *generation) override(text string, written int64) error {
	if err := g.live.Override(g.source.base, text, written); err != nil {
		return err
	}
	g.overrides = text
	return nil
}

// refresh looks at the directories and updates the node. If a file is torn, wrong or missing, the node stays as it is,
// and one line says so.
func (e *Engine) refresh() *Snapshot {
	e.lifecycle.Lock()
	defer e.lifecycle.Unlock()
	s := e.current.Load()
	if g := s.generation; len(g.followed) > 0 && g.stale() { // another thread may have looked meanwhile
		g.reload()
	}
	return e.current.Load()
}

// look is refresh for who must know of every change up to now, also where the number of the newest change is not mapped.
func (e *Engine) look() *Snapshot {
	e.lifecycle.Lock()
	defer e.lifecycle.Unlock()
	if g := e.current.Load().generation; len(g.followed) > 0 {
		g.reload()
	}
	return e.current.Load()
}

// reload is refresh for a caller that holds the engine's lock.
func (g *generation) reload() {
	changed, numbers := g.look()
	if expires := g.expires.Load(); expires != 0 && expires <= g.now() {
		changed = true
	}
	if dir := g.stateDir(); dir != nil && !changed {
		changed = dir.Moved(g.live.State)
	}
	if changed {
		if err := g.reread(); err != nil {
			g.say(err)
		} else {
			clear(g.said)
		}
	}
	g.seen(numbers)
}

func (g *generation) reread() error {
	before := g.live
	if _, err := g.readOverrides(); err != nil {
		return err
	}
	board, _ := g.live.All()
	if dir := g.stateDir(); dir != nil {
		s, err := dir.Read(before.State)
		switch {
		case err != nil && !errors.Is(err, state.ErrNewer):
			return err
		case s == nil && before.State != nil:
			return fmt.Errorf("%s has lost its state: the node stays as it was; start anew to begin without", dir.Path())
		case s != nil && !s.Fits(board):
			return fmt.Errorf("%s is the state of a node with other GPUs: it is not used", dir.Path())
		}
		g.live.State = s
	}
	if err := g.publish(nil); err != nil {
		g.live = before
		return err
	}
	return nil
}

// say prints a complaint once, until the problem is solved.
func (g *generation) say(err error) {
	if text := err.Error(); !g.said[text] {
		g.said[text] = true
		g.engine.Complain(err)
	}
}

// publish computes the present node from its source and publishes it, with these partitions if the source says nothing of
// any.
func (g *generation) publish(partitions []Partition) error {
	e, now := g.engine, g.now()
	board, err := g.live.Node(now)
	if err != nil {
		return err
	}
	gpus := make([]shown, len(g.live.Board.Devices))
	for i := range gpus {
		if gpus[i], err = g.show(i, now); err != nil {
			return err
		}
	}
	n := Node{Board: board, Partitions: partitions}
	if g.live.State != nil || g.live.Declares() {
		n.Partitions = g.partitions(gpus)
	}
	if err := e.host.Keep(g.kept(n)); err != nil {
		return err
	}
	if old := e.current.Load(); old.generation == g {
		end := old.end()
		for i := range gpus {
			gpus[i].meter.NotLess(old.Devices[i].meter, end)
		}
	}
	g.gpus = gpus
	e.current.Store(g.snapshot(n, gpus))
	return nil
}

// show is a GPU at a time in ms since 1970.
func (g *generation) show(i int, now int64) (shown, error) {
	node, record := g.live.Records(i)
	of := shown{node: node, record: record, overridden: g.live.Overridden, sights: g.live.State.Sights()}
	if g.gpus != nil {
		was := g.gpus[i]
		if was.node == node && was.record == record && was.overridden == of.overridden && was.sights == of.sights && (was.ends == 0 || now < was.ends) {
			return was, nil
		}
	}
	of.ends = node.Ends(now)
	if ends := record.Ends(now); ends != 0 && (of.ends == 0 || ends < of.ends) {
		of.ends = ends
	}
	var err error
	if of.device, of.meter, err = g.live.Meter(i, now); err == nil {
		of.accounted, err = g.live.Accounted(i, now)
	}
	return of, err
}

// Change changes the node: in the state directory, and so for all processes that share it, or without a state directory
// in this process and its later children. It returns the answer of the change. If the change cannot be stored, it
// returns NO_PERMISSION if the directory may not be written, INSUFFICIENT_RESOURCES if it is full, IN_USE if others
// hold the lock for too long, and NOT_SUPPORTED if a newer version wrote the state.
func (s *Snapshot) Change(f func(*change.Tx) abi.Return) abi.Return { return s.generation.change(f) }

// Begin is a change that nobody makes: it shows the node, its drained GPUs included.
func (s *Snapshot) Begin() *change.Tx {
	return change.Begin(s.source, s.generation.now())
}

// Change changes the GPU, or the GPU of a MIG device, as [Snapshot.Change] does. f gets the GPU's number.
func (d *Device) Change(f func(t *change.Tx, gpu int) abi.Return) abi.Return {
	return d.snapshot.Change(func(t *change.Tx) abi.Return { return f(t, int(d.key.Device)) })
}

// errAlone is printed at the first change that no other process sees.
var errAlone = errors.New("changes to GPUs are seen by this process and its children alone: name a directory in NVMLFAB_STATE_DIR to share them")

// errAnswered means that the change answered something other than SUCCESS.
var errAnswered = errors.New("the change was refused")

func (g *generation) change(f func(*change.Tx) abi.Return) abi.Return {
	e := g.engine
	e.lifecycle.Lock()
	defer e.lifecycle.Unlock()
	if e.current.Load().generation != g {
		return abi.ERROR_UNINITIALIZED
	}
	answer := abi.SUCCESS
	apply := func(now *state.State) (*state.State, error) {
		source := g.live
		source.State = now
		t := change.Begin(source, g.now())
		if answer = f(t); answer != abi.SUCCESS {
			return nil, errAnswered
		}
		return t.Finish()
	}
	dir := g.stateDir()
	if dir == nil {
		next, err := apply(g.live.State)
		if err != nil {
			return g.refused(answer, err)
		}
		before := g.live.State
		g.live.State = next
		if err := g.publish(nil); err != nil {
			g.live.State = before
			return g.refused(answer, err)
		}
		e.host.Wake()
		g.say(errAlone)
		return abi.SUCCESS
	}
	_, aside, err := dir.Update(apply)
	if aside != nil {
		g.say(aside)
	}
	if err != nil {
		return g.refused(answer, err)
	}
	g.reload()
	if g.followed[len(g.followed)-1].Address() == 0 { // else the writer has woken those who wait
		e.host.Wake()
	}
	return abi.SUCCESS
}

// refused is the answer for a change that is not made.
func (g *generation) refused(answer abi.Return, err error) abi.Return {
	if errors.Is(err, errAnswered) {
		return answer
	}
	g.say(err)
	switch {
	case errors.Is(err, state.ErrBusy):
		return abi.ERROR_IN_USE
	case errors.Is(err, state.ErrNewer):
		return abi.ERROR_NOT_SUPPORTED
	case state.Refused(err):
		return abi.ERROR_NO_PERMISSION
	case state.Full(err):
		return abi.ERROR_INSUFFICIENT_RESOURCES
	}
	return abi.ERROR_UNKNOWN
}
