package main

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// node is the host as nvmlfab's commands have changed it, which its state directory says.
type node struct {
	dir      *state.Dir
	base     profiles.Base
	source   change.Source
	links    *state.Record // has the faults of the fabric
	follower *state.Follower
	began    time.Time
	said     string // the last complaint
}

// newNode returns the host with a profile's board. Its state directory need not be there.
func newNode(dir *state.Dir, base profiles.Base, board *profiles.Board) *node {
	n := &node{dir: dir, base: base, links: &state.Record{}, follower: dir.Follow(), began: time.Now()}
	n.source.Board, n.source.Overridden, n.source.Origin = board, board, machine.Booted().UnixMilli()
	return n
}

// stale says whether it is time to look at the state directory.
func (n *node) stale(now time.Time) bool { return n.follower.Stale(now.Sub(n.began).Milliseconds()) }

// look reads the state directory if it has changed, which it reports. What cannot be read stays as it was.
func (n *node) look(now time.Time) (changed bool) {
	if !n.stale(now) {
		return false
	}
	changed, number := n.follower.Look()
	changed = changed || n.dir.Moved(n.source.State)
	if changed {
		n.say(errors.Join(n.override(), n.read()))
	}
	n.follower.Seen(number, now.Sub(n.began).Milliseconds()+state.Tick.Milliseconds())
	return changed
}

// override lays overrides.yaml over the board.
func (n *node) override() error {
	text, written, err := n.dir.ReadOverrides()
	if err == nil {
		err = n.source.Override(n.base, string(text), written)
	}
	if errors.Is(err, fs.ErrNotExist) { // the directory
		return nil
	}
	return err
}

// read reads what nvmlfab has changed.
func (n *node) read() error {
	s, err := n.dir.Read(n.source.State)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s = nil
	case s != nil && !s.Fits(n.source.Board):
		return fmt.Errorf("%s is the state of a node with other GPUs: it is not used", n.dir.Path())
	case err != nil && !errors.Is(err, state.ErrNewer):
		return err
	}
	if n.links = (&state.Record{}); s != nil {
		n.links = s.Node
	}
	n.source.State = s
	return nil
}

// say complains about an error once.
func (n *node) say(err error) {
	text := ""
	if err != nil {
		text = err.Error()
		if text != n.said {
			complain(err)
		}
	}
	n.said = text
}

// faults are the faults of the fabric that are in force at a time.
func (n *node) faults(now time.Time) []state.LinkFault { return n.links.LinkFaults(now.UnixMilli()) }
