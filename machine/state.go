package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// StateDir is the state directory of a tree that is staged at a root. It may not be there yet.
func StateDir(root string) (*state.Dir, error) {
	root, err := clean(root)
	if err != nil {
		return nil, err
	}
	return state.At(state.TreeAt(root).Beside()), nil
}

// CheckState returns an error if a state directory is that of a node with other GPUs than the board's. One that is not there
// or empty fits every board.
func CheckState(dir *state.Dir, board *profiles.Board) error {
	info, err := os.Stat(dir.Path())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no directory: move it away", dir.Path())
	}
	s, err := dir.Read(nil)
	if err != nil && !errors.Is(err, state.ErrNewer) {
		return err
	}
	if s != nil && !s.Fits(board) {
		return fmt.Errorf("%s is the state of a node with other GPUs: remove it, or name another", dir.Path())
	}
	return nil
}
