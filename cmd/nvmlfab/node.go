package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// These variables name a node: its state directory, and a run that nvmlfab run --name started.
const (
	stateVariable = "NVMLFAB_STATE_DIR"
	runVariable   = "NVMLFAB_RUN"
)

// nodeFlags choose the node that a command is about.
type nodeFlags struct {
	Root *string `placeholder:"DIR" xor:"node" help:"The node is the tree that nvmlfab stage wrote to DIR."`
	Run  *string `placeholder:"NAME|PID" xor:"node" help:"The node is that of a running nvmlfab run, by the name of its --name or the id of one of its processes."`
}

// whichNode is the help about nodeFlags.
const whichNode = `The node is the one whose state directory NVMLFAB_STATE_DIR names, with the profile that MOCK_NVML_CONFIG or
NVMLFAB_PROFILE names; or name one with --root or --run. Only write access to the state directory is needed.`

// node is the node that a command is about.
type node struct {
	dir     *state.Dir
	profile string // its name, for people
	base    profiles.Base
	source  change.Source
	ib      infiniband
}

// errWhichNode is the error of a command that does not know what node it is about.
var errWhichNode = errors.New("which node? Name its state directory, as in NVMLFAB_STATE_DIR=/tmp/node nvmlfab status, " +
	"a running nvmlfab run with --run NAME or --run PID, or a staged tree with --root DIR")

// open finds the node. A command that changes it makes the state directory of a staged tree that has none yet.
func (f nodeFlags) open(writes bool) (*node, error) {
	n, path := &node{}, ""
	var beside string // a folder whose overrides.yaml counts too
	var err error
	switch {
	case f.Root != nil:
		path, err = n.staged(*f.Root, writes)
	case f.Run != nil:
		path, beside, err = n.running(*f.Run)
	case os.Getenv(stateVariable) != "":
		path = os.Getenv(stateVariable)
		beside, err = n.environment(os.Getenv, "")
		n.ib = seen(os.Getenv, "")
	case os.Getenv(runVariable) != "" && exists(machine.LaunchState): // inside of the run
		path = machine.LaunchState
		beside, err = n.launched(os.Getenv, "/")
		n.ib = seen(os.Getenv, "/")
	default:
		err = errWhichNode
	}
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		if err == nil {
			err = fmt.Errorf("%s is not a directory", path)
		} else if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("there is no state directory %s: make it with mkdir, or name another one", path)
		}
		return nil, err
	}
	n.dir = state.At(path)
	n.source.Origin = machine.Booted().UnixMilli()
	n.source.Overridden = n.source.Board
	return n, n.override(beside)
}

// environment takes the profile that an environment names, whose files are those below top.
func (n *node) environment(getenv func(string) string, top string) (beside string, err error) {
	if path := getenv(profileFile); path != "" {
		path = filepath.Join(top, path)
		if top == "" {
			path = getenv(profileFile)
		}
		return filepath.Dir(path), n.file(path)
	}
	n.profile = cmp.Or(getenv(profileName), profiles.Default)
	n.base = profiles.Base{Name: n.profile}
	n.source.Board, err = n.base.With()
	if err != nil {
		err = fmt.Errorf("%s: %w", profileName, err)
	}
	return "", err
}

// file takes the profile of a file.
func (n *node) file(path string) error {
	text, err := profiles.Read(path)
	if err != nil {
		return err
	}
	n.profile, n.base = path, profiles.Base{Name: path, Text: text}
	n.source.Board, err = n.base.With()
	return err
}

// staged is the state directory of a staged tree.
func (n *node) staged(root string, writes bool) (string, error) {
	if strings.TrimSpace(root) == "" {
		return "", errors.New("--root is empty: name a folder that nvmlfab stage has written")
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	n.ib.root = root
	path := filepath.Join(root, machine.ProfileFile)
	if err := n.file(path); errors.Is(err, fs.ErrNotExist) || !exists(path) {
		return "", fmt.Errorf("nothing is staged in %s: run nvmlfab stage --root %[1]s", root)
	} else if err != nil {
		return "", err
	}
	dir, err := machine.StateDir(root)
	if err != nil {
		return "", err
	}
	if writes {
		if err := os.Mkdir(dir.Path(), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return dir.Path(), nil
}

// running is the state directory of a run.
func (n *node) running(run string) (path, beside string, err error) {
	pid, err := runningPID(run)
	if err != nil {
		return "", "", err
	}
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	top := filepath.Join(proc, "root")
	environ, err := environOf(pid)
	if err != nil {
		return "", "", fmt.Errorf("--run %s: process %d: %w", run, pid, errors.Unwrap(err))
	}
	path = filepath.Join(top, cmp.Or(environ(stateVariable), machine.LaunchState))
	if !exists(path) {
		return "", "", fmt.Errorf("--run %s: process %d is not one of nvmlfab run: it has no %s", run, pid, machine.LaunchState)
	}
	n.ib = seen(environ, top)
	beside, err = n.launched(environ, top)
	return path, beside, err
}

// launched takes the profile of a run, whose files are those below top.
func (n *node) launched(environ func(string) string, top string) (beside string, err error) {
	if own := state.TreeAt(filepath.Join(top, machine.Private)).Profile(); environ(profileFile) == "" && exists(own) {
		return "", n.file(own)
	}
	return n.environment(environ, top)
}

// environOf looks up variables of a process.
func environOf(pid int) (func(string) string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return nil, err
	}
	return func(name string) string {
		for _, variable := range strings.Split(string(text), "\x00") {
			if value, ok := strings.CutPrefix(variable, name+"="); ok {
				return value
			}
		}
		return ""
	}, nil
}

// runningPID is the id of a process of a run.
func runningPID(run string) (int, error) {
	if run == "" {
		return 0, errors.New("--run is empty: name a running nvmlfab run by its --name, or by the id of one of its processes")
	}
	if pid, err := strconv.Atoi(run); err == nil {
		if pid <= 0 || !exists(filepath.Join("/proc", run)) {
			return 0, fmt.Errorf("--run %s: there is no process %[1]s", run)
		}
		return pid, nil
	}
	named := runs()
	pids := named[run]
	namespaces := map[string]int{}
	for _, pid := range pids {
		if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid)); err == nil {
			if _, ok := namespaces[ns]; !ok {
				namespaces[ns] = pid
			}
		}
	}
	switch {
	case len(namespaces) > 1:
		var first []string
		for _, pid := range namespaces {
			first = append(first, strconv.Itoa(pid))
		}
		slices.Sort(first)
		return 0, fmt.Errorf("--run %s: %d runs have that name: name one by the id of a process, such as %s", run, len(first), strings.Join(first, " or "))
	case len(namespaces) == 1:
		return pids[0], nil
	case len(named) == 0:
		return 0, fmt.Errorf("--run %q: no run has a name: nvmlfab run --name %s -- PROGRAM starts one", run, run)
	}
	var names []string
	for name := range named {
		names = append(names, name)
	}
	slices.Sort(names)
	return 0, fmt.Errorf("--run %q: no run has that name; there are %s", run, strings.Join(names, ", "))
}

// runs are the ids of the processes of each run that has a name, ascending.
func runs() map[string][]int {
	all := map[string][]int{}
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	for _, pid := range pids {
		if environ, err := environOf(pid); err == nil {
			if name := environ(runVariable); name != "" {
				all[name] = append(all[name], pid)
			}
		}
	}
	return all
}

// override lays the overrides.yaml of the state directory, and that of another folder, over the board.
func (n *node) override(beside string) error {
	var all []string
	var latest int64
	for _, dir := range []string{beside, n.dir.Path()} {
		if dir == "" {
			continue
		}
		text, written, err := state.At(dir).ReadOverrides()
		if err != nil {
			return err
		}
		if text != nil {
			all, latest = append(all, string(text)), max(latest, written)
		}
	}
	if err := n.source.Override(n.base, strings.Join(all, "\n---\n"), latest); err != nil {
		return fmt.Errorf("%s: %w", n.dir.Path(), err)
	}
	return nil
}

// read takes the state as it is now. A state.json that cannot be read is passed over, as the library passes it over.
func (n *node) read() error {
	s, err := n.dir.Read(nil)
	switch {
	case s != nil && !s.Fits(n.source.Board):
		return n.errOther()
	case err != nil && !errors.Is(err, state.ErrNewer):
		complain(err)
		s = nil
	}
	n.source.State = s
	return nil
}

// errOther is the error of a state directory that belongs to another node.
func (n *node) errOther() error {
	return fmt.Errorf("%s is the state of a node with other GPUs than those of %s: name the profile that it was begun with in %s or %s, or another directory",
		n.dir.Path(), n.profile, profileFile, profileName)
}

// errUnchanged is the error of a change that leaves the node as it is.
var errUnchanged = errors.New("nothing has changed")

// change changes the node, wholly or not at all. A function that returns errUnchanged leaves it as it is.
func (n *node) change(f func(*change.Tx) error) error {
	_, aside, err := n.dir.Update(func(now *state.State) (*state.State, error) {
		if now != nil && !now.Fits(n.source.Board) {
			return nil, n.errOther()
		}
		source := n.source
		source.State = now
		t := change.Begin(source, time.Now().UnixMilli())
		if err := f(t); err != nil {
			return nil, err
		}
		return t.Finish()
	})
	if aside != nil {
		complain(aside)
	}
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// gpus are the numbers of the GPUs that people mean by all, or by indices and UUIDs with commas between them.
func (n *node) gpus(lists []string) (list []int, err error) {
	for _, text := range lists {
		for name := range strings.SplitSeq(text, ",") {
			switch name = strings.TrimSpace(name); name {
			case "":
				return nil, fmt.Errorf("%.80q names no GPU: want all, or indices or UUIDs with commas between them, such as 0,3", text)
			case "all":
				for i := range n.source.Board.Devices {
					list = append(list, i)
				}
			default:
				i, err := change.Find(n.source.Board, name)
				if err != nil {
					return nil, err
				}
				list = append(list, i)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// gpuFlag chooses GPUs. It is not split at commas by the parser, which would drop empty parts.
type gpuFlag struct {
	GPU []string `name:"gpu" sep:"none" placeholder:"all|INDEX|UUID[,…]" help:"The GPUs; all, or indices and UUIDs with commas between them."`
}

// duration is a time span such as 30s, longer than nothing.
type duration time.Duration

// UnmarshalText reads a time span as Go writes it.
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < time.Millisecond {
		return fmt.Errorf("want a time such as 30s, 5m or 1h30m, not %.40q", text)
	}
	*d = duration(v)
	return nil
}

// until is when a span that begins now ends, in ms since 1970; 0 for none.
func (d *duration) until(now int64) int64 {
	if d == nil {
		return 0
	}
	return now + time.Duration(*d).Milliseconds()
}
