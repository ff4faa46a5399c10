// Package engine is the state behind the handwritten functions: the configured board,
// its devices, and the handles that stand for them.
package engine

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// Host is the process around the engine. The core's gate provides it; tests provide their own.
type Host interface {
	// Getenv reads the environment as it is now.
	Getenv(name string) string
	// Handles returns the address of handle number 0 and the numbers that this generation uses.
	Handles() (base uintptr, start, next uint64)
	// Reserve takes the next handle number for a kind of object.
	Reserve(kind Kind) (number uint64, ok bool)
	// Kind and Note read and change what a number stands for.
	Kind(number uint64) Kind
	Note(number uint64, kind Kind)
	// Keep holds on to what this generation was configured with, nothing after its end, and Kept
	// returns it, in forked processes too.
	Keep(config []byte)
	Kept() []byte
}

// Node is a machine with GPUs between nvmlInit and the last nvmlShutdown. It does not change,
// apart from its handles.
type Node struct {
	Board   *profiles.Board
	Devices []*Device
	// Branch is the driver's branch, such as 580; 0 if the profile gives no driver version.
	Branch int
}

var (
	lifecycle sync.Mutex // held while a node starts or stops
	current   atomic.Pointer[Node]
	process   atomic.Pointer[Host]
	empty     = &Node{Board: &profiles.Board{}}
)

// Use tells the engine which process it is in.
func Use(h Host) { process.Store(&h) }

func host() Host {
	if h := process.Load(); h != nil {
		return *h
	}
	return nil
}

// Current is the running node. A call that races with the last nvmlShutdown gets a node
// without devices.
func Current() *Node {
	if n := current.Load(); n != nil {
		return n
	}
	return empty
}

// Start reads the configuration and makes its devices. Its error names file and line.
func Start() error {
	lifecycle.Lock()
	defer lifecycle.Unlock()
	config, err := configured(host().Getenv)
	if err != nil {
		return err
	}
	board, err := config.board()
	if err != nil {
		return err
	}
	if err := start(board, func(kind Kind, o object) error { return register(kind, o) }); err != nil {
		return err
	}
	host().Keep(config.bytes())
	return nil
}

// start makes the board's devices and hands each to place.
func start(board *profiles.Board, place func(Kind, object) error) error {
	n := &Node{Board: board, Devices: make([]*Device, len(board.Devices)), Branch: profiles.Branch(board.System.DriverVersion.Value)}
	for i := range board.Devices {
		d := &Device{Device: &board.Devices[i], node: n}
		if err := place(DeviceKind, d); err != nil {
			table.Store(nil) // the handles of half a node are none
			return err
		}
		n.Devices[i] = d
	}
	current.Store(n)
	return nil
}

// Stop ends the generation: no handle of it is valid any more.
func Stop() {
	lifecycle.Lock()
	defer lifecycle.Unlock()
	current.Store(nil)
	table.Store(nil)
	host().Keep(nil)
}

// Restore rebuilds, in a process that was forked, what the handles in use stand for, from the
// configuration of before the fork, whatever has become of the environment and the file.
// Devices come first and in order; event sets come back without registrations.
func Restore() abi.Return {
	lifecycle.Lock()
	defer lifecycle.Unlock()
	board, err := kept(host().Kept()).board()
	if err != nil {
		Complain(err)
		return abi.ERROR_UNKNOWN
	}
	_, number, next := host().Handles()
	err = start(board, func(_ Kind, o object) error {
		if number >= next || host().Kind(number) != DeviceKind {
			return fmt.Errorf("the handles are not those of before the fork; call nvmlShutdown and nvmlInit")
		}
		adopt(number, o)
		number++
		return nil
	})
	if err != nil {
		Complain(err)
		return abi.ERROR_UNKNOWN
	}
	for ; number < next; number++ {
		switch host().Kind(number) {
		case EventSetKind:
			adopt(number, &EventSet{})
		default:
			adopt(number, nil)
		}
	}
	return abi.SUCCESS
}

// config is what a node is made of: a profile file's text, or without text a shipped board.
type config struct {
	name string // of the file or the board
	text []byte
}

// configured reads what the environment names: MOCK_NVML_CONFIG a file, NVMLFAB_PROFILE a
// shipped board, neither the default board.
func configured(getenv func(string) string) (config, error) {
	if path := getenv("MOCK_NVML_CONFIG"); path != "" {
		text, err := profiles.Read(path)
		return config{path, text}, err
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

// bytes is c for a host to keep, and kept the inverse.
func (c config) bytes() []byte { return append(append([]byte(c.name), 0), c.text...) }

func kept(b []byte) config {
	name, text, _ := bytes.Cut(b, []byte{0})
	if len(text) == 0 {
		return config{name: string(name)}
	}
	return config{string(name), text}
}

// Complain says in one line on stderr why an answer is an error, where no return code can. It goes past package os,
// which ends the host where stderr is a broken pipe.
func Complain(err error) {
	syscall.Write(syscall.Stderr, fmt.Appendf(nil, "nvmlfab: %s\n", strings.ReplaceAll(err.Error(), "\n", "; ")))
}

// Level is the place of the configured driver among the NVML versions, counted from 1:
// functions younger than that answer FUNCTION_NOT_FOUND. Without a driver version
// every function is there.
func Level() int { return profiles.Level(Current().Branch) }
