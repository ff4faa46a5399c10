package agent

import (
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
	"github.com/nvmlfab/nvmlfab/kubernetes/api"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/machine/cdi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// What is below the agent's root.
const (
	generations = "generations" // a staged tree for each number, and NUMBER.state, which leads to its state directory
	states      = "state"       // a state directory for each set of GPUs
	current     = "driver"      // leads to the tree in force
	programs    = "bin"         // what runtimes run as hooks
)

// tree is the folder of a generation.
func (a *Agent) tree(g generation) string {
	return filepath.Join(a.o.Root, generations, strconv.Itoa(g.Number))
}

// inForce is the newest complete generation; nil if there is none.
func (a *Agent) inForce() *generation {
	for _, g := range slices.Backward(a.m.Generations) {
		if g.Complete {
			return &g
		}
	}
	return nil
}

// hook is where a release has the program that NVIDIA_CDI_HOOK_PATH names in the tree.
func (a *Agent) hook() string { return filepath.Join(a.o.Home, "bin", filepath.Base(machine.HookFile)) }

// realDriver returns an error if NVIDIA's driver runs on the node, whose device nodes have the numbers of the staged ones.
func (a *Agent) realDriver() error {
	path := filepath.Join(a.o.Proc, "driver/nvidia/version")
	if _, err := os.Stat(path); err == nil {
		return fmt.Errorf("NVIDIA's driver runs on this node (%s): nothing is staged beside real GPUs", path)
	}
	return nil
}

// stage stages what the node shall have, unless it is in force already, and makes it the tree in force.
func (a *Agent) stage(choice *api.Choice) error {
	board, err := choice.Base.With(choice.Layers...)
	if err != nil {
		return err
	}
	layers := append(slices.Clip(choice.Layers), a.identify(board))
	if board, err = choice.Base.With(layers...); err != nil {
		return err
	}
	libraries := filepath.Join(a.o.Home, "nvml", profiles.NVML(profiles.Branch(board.System.DriverVersion.Or(""))).NVML)
	text := choice.Base.File(layers...)
	marks := []string{a.o.Version, string(text)}
	for _, name := range []string{"libnvidia-ml.so.1", "libnvmlfab-core.so.1"} {
		info, err := os.Stat(filepath.Join(libraries, name))
		if err != nil {
			return fmt.Errorf("there is no library for driver %s: %w", board.System.DriverVersion.Value, err)
		}
		marks = append(marks, fmt.Sprint(name, info.Size()))
	}
	if info, err := os.Stat(a.hook()); err == nil {
		marks = append(marks, fmt.Sprint("hook", info.Size()))
	}
	identity := hash([]byte(strings.Join(marks, "\x00")))
	if g := a.inForce(); g != nil && g.Identity == identity && isDir(a.tree(*g)) {
		if g.Profile == choice.Name && g.From == choice.From {
			return nil
		}
		at := slices.IndexFunc(a.m.Generations, func(other generation) bool { return other.Number == g.Number })
		a.m.Generations[at].Profile, a.m.Generations[at].From = choice.Name, choice.From
		return a.m.write()
	}
	if err := a.realDriver(); err != nil {
		return err
	}
	var uuids []byte
	for i := range board.Devices {
		uuids = append(uuids, board.Devices[i].UUID...)
	}
	g := generation{Number: a.m.Next, Identity: identity, State: hash(uuids)[:12], Profile: choice.Name, From: choice.From}
	a.m.Next++
	a.m.Generations = append(a.m.Generations, g)
	if err := a.m.write(); err != nil {
		return err
	}
	if err := a.write(board, g, text, libraries); err != nil {
		return errors.Join(err, a.drop(g))
	}
	a.m.Generations[len(a.m.Generations)-1].Complete = true
	a.m.MIG = ""
	a.staged++
	return a.m.write()
}

// identify is the layer that gives each GPU of the node a UUID of its own, which nodes with the same profile must not share.
func (a *Agent) identify(board *profiles.Board) profiles.Layer {
	text := []byte("devices:\n")
	for i := range board.Devices {
		d := &board.Devices[i]
		h := hash([]byte(a.o.Node + "\x00" + string(d.UUID)))
		text = fmt.Appendf(text, "  - {index: %d, uuid: GPU-%s-%s-5%s-a%s-%s}\n", d.Index, h[:8], h[8:12], h[13:16], h[17:20], h[20:32])
	}
	return profiles.Layer{Name: "the node's UUIDs", Text: text}
}

// write writes the tree of a generation and its state directory.
func (a *Agent) write(board *profiles.Board, g generation, text []byte, libraries string) error {
	path := a.tree(g)
	dir := state.At(filepath.Join(a.o.Root, states, g.State))
	if err := machine.CheckState(dir, board); err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.MkdirAll(filepath.Dir(dir.Path()), 0o755), dir.Create()); err != nil {
		return err
	}
	if err := dir.Prepare(machine.Minors(board)); err != nil {
		return err
	}
	if err := os.Symlink(filepath.Join("..", states, g.State), path+".state"); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	options := machine.Options{CPUs: a.o.CPUs, System: true, Libraries: libraries, SMI: a.o.SMI, Profile: string(text), State: filepath.Join("..", filepath.Base(path)+".state")}
	if cuda := filepath.Join(a.o.Home, "lib", "libcuda-none.so.1"); exists(cuda) {
		options.CUDA = cuda
	}
	if hook := a.hook(); exists(hook) {
		options.Hook = hook
	}
	if err := machine.New(board, options).Write(path); err != nil {
		return err
	}
	return declare(dir, board)
}

// declare writes the MIG instances that a profile gives GPUs into the state directory, so that they have files as any other.
func declare(dir *state.Dir, board *profiles.Board) error {
	source := change.Source{Board: board, Overridden: board, Origin: machine.Booted().UnixMilli()}
	if !source.Declares() {
		return nil
	}
	_, _, err := dir.Update(func(now *state.State) (*state.State, error) {
		if source.State = now; !source.Declares() {
			return nil, nil
		}
		return change.Begin(source, time.Now().UnixMilli()).Finish()
	})
	return err
}

// drop takes a generation away, and its state directory if no other generation has it.
func (a *Agent) drop(g generation) error {
	path := a.tree(g)
	var failed []error
	if isDir(path) {
		failed = append(failed, machine.Remove(path))
	}
	if to, err := os.Readlink(path + ".state"); err == nil && to == filepath.Join("..", states, g.State) {
		failed = append(failed, os.Remove(path+".state"))
	}
	a.m.Generations = slices.DeleteFunc(a.m.Generations, func(other generation) bool { return other.Number == g.Number })
	if !slices.ContainsFunc(a.m.Generations, func(other generation) bool { return other.State == g.State }) {
		failed = append(failed, state.At(filepath.Join(a.o.Root, states, g.State)).Remove())
	}
	return errors.Join(append(failed, a.m.write())...)
}

// collect takes old generations away that no mount names any more, and those that a killed agent left unfinished.
func (a *Agent) collect() error {
	now := a.inForce()
	if len(a.m.Generations) == 0 || len(a.m.Generations) == 1 && now != nil {
		return nil
	}
	mounted, err := a.mounted()
	if err != nil {
		return err
	}
	var failed []error
	for _, g := range slices.Clone(a.m.Generations) {
		if now != nil && g.Number == now.Number || g.Complete && mounted[g.Number] {
			continue
		}
		failed = append(failed, a.drop(g))
	}
	return errors.Join(failed...)
}

// mounted are the numbers of the generations of which any process of the node has a part mounted.
func (a *Agent) mounted() (map[int]bool, error) {
	entries, err := os.ReadDir(a.o.Proc)
	if err != nil {
		return nil, err
	}
	found, seen := map[int]bool{}, map[string]bool{}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		if ns, err := os.Readlink(filepath.Join(a.o.Proc, e.Name(), "ns/mnt")); err == nil {
			if seen[ns] {
				continue
			}
			seen[ns] = true
		}
		text, err := os.ReadFile(filepath.Join(a.o.Proc, e.Name(), "mountinfo"))
		if err != nil {
			continue // the process has ended
		}
		for line := range strings.SplitSeq(string(text), "\n") {
			fields := strings.Fields(line)
			if len(fields) < 5 {
				continue
			}
			_, rest, ok := strings.Cut(fields[3], "/"+generations+"/")
			if !ok {
				continue
			}
			name, _, _ := strings.Cut(rest, "/")
			if n, err := strconv.Atoi(name); err == nil {
				found[n] = true
			}
		}
	}
	return found, nil
}

// publish makes known what is in force: the link to the tree, the hook, the CDI specification, and the files by which others
// find the GPUs.
func (a *Agent) publish(g generation) error {
	root := a.tree(g)
	failed := []error{a.m.link(filepath.Join(a.o.Root, current), filepath.Join(generations, strconv.Itoa(g.Number)))}
	var hook []string
	if from := filepath.Join(a.o.Home, "bin/nvmlfab"); exists(from) {
		path := filepath.Join(a.o.Root, programs, "nvmlfab")
		failed = append(failed, a.m.program(path, from))
		hook = []string{path, "nvmlfab", "hook", "--root", root}
	}
	if a.o.CDI != "" {
		spec, err := cdi.Specification(root, cdi.Options{Kind: a.o.Kind, Hook: hook, Complain: a.o.Log})
		var text []byte
		if err == nil {
			text, err = cdi.Encode(spec)
		}
		if err == nil {
			err = a.m.file(filepath.Join(a.o.CDI, "nvmlfab.yaml"), text, 0o644)
		}
		failed = append(failed, err)
	}
	if a.o.Features != "" {
		failed = append(failed, a.m.file(filepath.Join(a.o.Features, "nvmlfab"), []byte("pci-10de.present=true\n"), 0o644))
	}
	if a.o.DriverLink != "" {
		failed = append(failed, a.m.link(a.o.DriverLink, filepath.Join(a.o.Root, current)))
	}
	return errors.Join(failed...)
}

// revoke takes away what publish wrote.
func (a *Agent) revoke() error {
	var failed []error
	for _, path := range sorted(a.m.Files) {
		failed = append(failed, a.m.remove(path))
	}
	return errors.Join(failed...)
}

// Discard takes away all that the agent has written on the node, apart from the node's labels. Running containers keep what
// they have mounted.
func (a *Agent) Discard() error {
	failed := []error{a.revoke()}
	for _, g := range slices.Clone(a.m.Generations) {
		failed = append(failed, a.drop(g))
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	for _, name := range []string{programs, generations, states} {
		if err := os.Remove(filepath.Join(a.o.Root, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Remove(a.m.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if a.o.KeepRoot {
		return nil
	}
	if err := os.Remove(a.o.Root); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
