// Package engine is the node behind the handwritten functions: its board, its devices, and the handles that stand for
// them. An [Engine] has one [Snapshot] at a time; a call takes it once and finds everything in it.
package engine

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nvmlfab/nvmlfab/engine/host"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// Engine is the node of one process.
type Engine struct {
	host      host.Host
	lifecycle sync.Mutex // held while the snapshot is replaced
	current   atomic.Pointer[Snapshot]
}

// New makes the engine of a process.
func New(h host.Host) *Engine {
	e := &Engine{host: h}
	e.current.Store(e.empty())
	return e
}

// empty is the snapshot of a node without devices.
func (e *Engine) empty() *Snapshot {
	return &Snapshot{Board: &profiles.Board{}, generation: &generation{engine: e}}
}

// Snapshot is the node as it is now. Before nvmlInit, and for a call that loses a race with the last nvmlShutdown, it has
// no devices. The dispatch takes it once for each call, so this is where a newer state of the node is noticed.
func (e *Engine) Snapshot() *Snapshot { return e.current.Load() }

// Start reads the configuration and makes its devices. Its error names file and line.
func (e *Engine) Start() error {
	e.lifecycle.Lock()
	defer e.lifecycle.Unlock()
	config, err := e.configured()
	if err != nil {
		return err
	}
	board, err := config.board()
	if err != nil {
		return err
	}
	config.origin = e.origin()
	node := Node{Board: board}
	if err := e.host.Keep(config.append(node)); err != nil {
		return err
	}
	e.current.Store(e.begin(config, board).snapshot(node))
	return nil
}

// Stop ends the generation: no handle of it is valid any more.
func (e *Engine) Stop() {
	e.lifecycle.Lock()
	defer e.lifecycle.Unlock()
	e.current.Swap(e.empty()).generation.free()
	_ = e.host.Keep(nil) // nothing always has room
}

// Restore makes the node again in a process that was forked, from the configuration of before the fork, whatever has
// become of the environment and the file. Handles mean what they meant.
func (e *Engine) Restore() abi.Return {
	e.lifecycle.Lock()
	defer e.lifecycle.Unlock()
	if err := e.restore(); err != nil {
		e.Complain(err)
		return abi.ERROR_UNKNOWN
	}
	return abi.SUCCESS
}

func (e *Engine) restore() error {
	config, node, err := restored(e.host.Kept())
	if err != nil {
		return err
	}
	g := e.begin(config, node.Board)
	if !g.adopt() {
		return fmt.Errorf("the handles are not those of before the fork; call nvmlShutdown and nvmlInit")
	}
	e.current.Store(g.snapshot(node))
	return nil
}

// config is what a node is made of: a profile file's text, or without text a shipped board.
type config struct {
	name   string // of the file or the board
	text   []byte
	origin int64 // see origin
}

// configured reads what the environment names: MOCK_NVML_CONFIG a file, NVMLFAB_PROFILE a shipped board, neither the
// default board. A process with another user's privileges obeys neither.
func (e *Engine) configured() (config, error) {
	getenv := e.host.Getenv
	if e.host.Privileged() {
		getenv = func(string) string { return "" }
	}
	if path := getenv("MOCK_NVML_CONFIG"); path != "" {
		text, err := e.host.ReadFile(path)
		return config{name: path, text: text}, err
	}
	name := getenv("NVMLFAB_PROFILE")
	if name == "" {
		name = profiles.Default
	}
	return config{name: name}, nil
}

func (c config) board() (*profiles.Board, error) {
	if c.text != nil {
		return profiles.Parse(c.name, c.text)
	}
	board, err := profiles.Shipped(c.name)
	if err != nil {
		return nil, fmt.Errorf("NVMLFAB_PROFILE: %w", err)
	}
	return board, nil
}

// Complain says in one line on stderr why an answer is an error, where no return code can.
func (e *Engine) Complain(err error) { e.host.Complain(strings.ReplaceAll(err.Error(), "\n", "; ")) }

// Level is the NVML version of the configured driver as an integer, as abi.Version.Number: functions younger than that
// answer FUNCTION_NOT_FOUND. Without a driver version every function is there.
func (e *Engine) Level() int { return profiles.NVML(e.Snapshot().Branch).Number }
