// Package engine holds the node that the handwritten functions read: its board, its devices, and the handles of both.
// An [Engine] has one [Snapshot] at a time. Each call takes it once and reads everything from it.
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

// Snapshot is the present state of the node. It has no devices before nvmlInit and after the last nvmlShutdown, also
// for a call that runs at the same time as that nvmlShutdown. The dispatch takes one snapshot for each call.
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

// Stop ends the generation. All of its handles become invalid.
func (e *Engine) Stop() {
	e.lifecycle.Lock()
	defer e.lifecycle.Unlock()
	e.current.Swap(e.empty()).generation.free()
	_ = e.host.Keep(nil) // cannot fail: removing needs no memory
}

// Restore makes the node again in a forked process. It uses the configuration from before the fork, even if the
// environment or the file has changed since. All handles stay valid.
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

// config is the source of a node: the text of a profile file or, if there is no text, the name of a shipped board.
type config struct {
	name   string // of the file or the board
	text   []byte
	origin int64 // when counters start
}

// configured reads the configuration that the environment names: a file in MOCK_NVML_CONFIG, a shipped board in
// NVMLFAB_PROFILE, or the default board if neither is set. A process with another user's privileges ignores both
// variables.
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

// Complain prints one line on stderr that says why an answer is an error, for errors that no return code describes.
func (e *Engine) Complain(err error) { e.host.Complain(strings.ReplaceAll(err.Error(), "\n", "; ")) }

// Level is the NVML version of the configured driver as an integer, as abi.Version.Number. Functions of later versions
// answer FUNCTION_NOT_FOUND. If the profile gives no driver version, all functions are available.
func (e *Engine) Level() int { return profiles.NVML(e.Snapshot().Branch).Number }
