package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// Staged is a tree that was staged, and the state of its node.
type Staged struct {
	// Dir is the node's state directory.
	Dir *state.Dir
	// Base is the profile that the tree was made from.
	Base profiles.Base
	// Source is what the node is computed from: the board, overrides.yaml, and after Read what has changed.
	Source change.Source
}

// StagedProfile is the text of the profile of the tree that is staged at a root.
func StagedProfile(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, ProfileFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("nothing is staged in %s: run nvmlfab stage --root %[1]s", root)
	}
	return text, err
}

// OpenStaged opens the tree that is staged at a root.
func OpenStaged(root string) (*Staged, error) {
	text, err := StagedProfile(root)
	if err != nil {
		return nil, err
	}
	s := &Staged{Base: profiles.Base{Name: filepath.Join(root, ProfileFile), Text: text}}
	if s.Source.Board, err = s.Base.With(); err != nil {
		return nil, err
	}
	if s.Dir, err = StateDir(root); err != nil {
		return nil, err
	}
	s.Source.Origin, s.Source.Overridden = Booted().UnixMilli(), s.Source.Board
	return s, s.Override()
}

// Override lays overrides.yaml over the board, as it is now.
func (s *Staged) Override() error {
	text, written, err := s.Dir.ReadOverrides()
	if errors.Is(err, fs.ErrNotExist) { // there is no state directory yet
		return nil
	}
	if err == nil {
		err = s.Source.Override(s.Base, string(text), written)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.Dir.Path(), err)
	}
	return nil
}

// Read takes the state as it is now. A state.json that cannot be read is passed over, as the library passes it over, and
// aside says so.
func (s *Staged) Read() (aside, err error) {
	now, err := s.Dir.Read(nil)
	switch {
	case now != nil && !now.Fits(s.Source.Board):
		return nil, s.errOther()
	case err != nil && !errors.Is(err, state.ErrNewer) && !errors.Is(err, fs.ErrNotExist):
		aside, now = err, nil
	}
	s.Source.State = now
	return aside, nil
}

func (s *Staged) errOther() error {
	return fmt.Errorf("%s is the state of a node with other GPUs", s.Dir.Path())
}

// ErrUnchanged is the error by which the function of [Staged.Change] says that there is nothing to change.
var ErrUnchanged = errors.New("nothing has changed")

// Change changes the node, wholly or not at all. A function that returns ErrUnchanged leaves it as it is. A state.json that
// cannot be read is set aside, and aside says so.
func (s *Staged) Change(f func(*change.Tx) error) (aside, err error) {
	after, aside, err := s.Dir.Update(func(now *state.State) (*state.State, error) {
		if now != nil && !now.Fits(s.Source.Board) {
			return nil, s.errOther()
		}
		source := s.Source
		source.State = now
		t := change.Begin(source, time.Now().UnixMilli())
		if err := f(t); err != nil {
			return nil, err
		}
		return t.Finish()
	})
	if errors.Is(err, ErrUnchanged) {
		err = nil
	}
	if err == nil {
		s.Source.State = after
	}
	return aside, err
}
