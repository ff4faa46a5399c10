// Package engine holds the node that the handwritten functions read: its board, its devices, and the handles of both.
// An [Engine] has one [Snapshot] at a time. Each call takes it once and reads everything from it.
package engine

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nvmlfab/nvmlfab/engine/host"
	"github.com/nvmlfab/nvmlfab/engine/state"
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
// for a call that runs at the same time as that nvmlShutdown. The dispatch takes one snapshot for each call, and here is
// where it is noticed that another process has changed the node.
func (e *Engine) Snapshot() *Snapshot {
	s := e.current.Load()
	if len(s.generation.followed) > 0 && s.generation.stale() {
		return e.refresh()
	}
	return s
}

// Start reads the configuration and makes its devices. Its error names file and line, or is an [InitFailure].
func (e *Engine) Start() (err error) {
	e.lifecycle.Lock()
	defer e.lifecycle.Unlock()
	var g *generation
	defer func() {
		if err != nil && g != nil {
			g.unfollow()
		}
	}()
	config, err := e.configured()
	if err != nil {
		return err
	}
	board, err := config.board()
	if err != nil {
		return err
	}
	config.origin = e.origin()
	g = e.begin(config, board)
	if err := g.load(); err != nil {
		return err
	}
	if err := g.initFailure(g.now()); err != nil {
		return err
	}
	g.hide(g.live.State.Drained())
	return g.publish(nil)
}

// Stop ends the generation. All of its handles become invalid.
func (e *Engine) Stop() {
	e.lifecycle.Lock()
	defer e.lifecycle.Unlock()
	e.current.Swap(e.empty()).generation.free()
	e.host.Wake() // who waits for events learns that there are none any more
	e.host.Follow(false, 0, 0, "")
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
	r, err := restored(e.host.Kept())
	if err != nil {
		return err
	}
	g := e.begin(r.config, r.node.Board)
	if !g.adopt() {
		return fmt.Errorf("the handles are not those of before the fork; call nvmlShutdown and nvmlInit")
	}
	if err := g.inherit(r); err != nil {
		return err
	}
	return g.publish(r.node.Partitions)
}

// config is the source of a node: the text of a profile file or, if there is no text, the name of a shipped board.
type config struct {
	base   profiles.Base
	beside string          // the directory of the profile file, in which overrides.yaml is read
	state  string          // the state directory; empty if this process shares its state with nobody
	origin int64           // when counters start
	hidden []profiles.UUID // the GPUs that were drained before the process enumerated its GPUs
}

// configured reads the configuration: what the environment names, or else what the staged tree says that the library lies
// in. MOCK_NVML_CONFIG names a profile file, NVMLFAB_PROFILE a shipped board and NVMLFAB_STATE_DIR a state directory. The
// default board serves if nothing says which. A process with another user's privileges ignores the variables, and of a
// staged tree whatever somebody else than root could have changed.
func (e *Engine) configured() (config, error) {
	getenv, private := e.host.Getenv, e.host.Privileged()
	if private {
		getenv = func(string) string { return "" }
	}
	dir := getenv("NVMLFAB_STATE_DIR")
	if path := getenv("MOCK_NVML_CONFIG"); path != "" {
		text, err := e.host.ReadFile(path)
		return config{base: profiles.Base{Name: path, Text: text}, beside: filepath.Dir(path), state: dir}, err
	}
	if name := getenv("NVMLFAB_PROFILE"); name != "" {
		return config{base: profiles.Base{Name: name}, state: dir}, nil
	}
	tree, ok := state.TreeOf(e.host.Library())
	if path := tree.Profile(); ok && (!private || state.RootsAlone(path)) {
		if own := tree.State(); dir == "" && own != "" && (!private || state.RootsAlone(own)) {
			dir = own
		}
		text, err := e.host.ReadFile(path)
		return config{base: profiles.Base{Name: path, Text: text}, state: dir}, err
	}
	return config{base: profiles.Base{Name: profiles.Default}, state: dir}, nil
}

func (c config) board() (*profiles.Board, error) {
	board, err := c.base.With()
	if err != nil && c.base.Text == nil {
		err = fmt.Errorf("NVMLFAB_PROFILE: %w", err)
	}
	return board, err
}

// Complain prints one line on stderr that says why an answer is an error, for errors that no return code describes.
func (e *Engine) Complain(err error) { e.host.Complain(strings.ReplaceAll(err.Error(), "\n", "; ")) }

// ProcessName is the path by which a live process of the system was started; false if there is none.
func (e *Engine) ProcessName(pid uint32) (string, bool) { return e.host.ProcessName(pid) }

// CPUs are the processors of the machine that the program runs on. SetCPUs lets the calling thread run on these alone;
// without any, on all.
func (e *Engine) CPUs() []uint32              { return e.host.CPUs() }
func (e *Engine) SetCPUs(cpus []uint32) error { return e.host.SetCPUs(cpus) }

// Level is the NVML version of the configured driver as an integer, as abi.Version.Number. Functions of later versions
// answer FUNCTION_NOT_FOUND. If the profile gives no driver version, all functions are available.
func (e *Engine) Level() int { return profiles.NVML(e.Snapshot().Branch).Number }
