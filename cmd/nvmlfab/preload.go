package main

import (
	"cmp"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/machine"
	"golang.org/x/sys/unix"
)

// preloaded is the library that redirects paths.
const preloaded = "libmockfs.so"

// showPreloaded shows the board to a program by a preloaded library, and also to its children if they keep the
// environment. The state directory is a fresh one if lasting is empty. InfiniBand adapters are shown as flags say.
func (p *profile) showPreloaded(libraries, program, lasting string, ib ibFlags) error {
	folder, err := preloadable(program)
	if err != nil {
		return err
	}
	library, err := toPreload(folder, preloaded)
	if err != nil {
		return err
	}
	options := machine.Options{CPUs: machine.OnlineCPUs(), Profile: string(p.source())}
	if err := ib.adapters(p, &options); err != nil {
		return err
	}
	root, err := temporary()
	if err != nil {
		return err
	}
	states := cmp.Or(lasting, filepath.Join(root, state.MountPoint))
	options.State = states
	err = writePreloaded(machine.New(p.board, options), root)
	if err == nil && lasting == "" {
		err = state.At(states).Prepare(machine.Minors(p.board))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(root))
	}
	os.Setenv(stateVariable, states)
	os.Setenv("MOCK_PCI_ROOT", root)
	if others := os.Getenv("LD_PRELOAD"); others != "" {
		library += ":" + others
	}
	os.Setenv("LD_PRELOAD", library)
	if err := ib.start(root, false); err != nil {
		return err
	}
	if err := ib.preload(root, folder, false); err != nil {
		return err
	}
	if err := p.setProfile(filepath.Join(root, machine.ProfileFile)); err != nil {
		return err
	}
	return setLibrary(libraries)
}

// Folders below lib with the libraries to preload: for programs on glibc, which are in lib itself, and on musl.
const (
	forGlibc = ""
	forMusl  = "musl"
)

// toPreload is the path of a library to preload, from a folder below lib.
func toPreload(folder, name string) (string, error) {
	path := filepath.Join(home(), "lib", folder, name)
	if !exists(path) {
		target := "make"
		if folder == forMusl {
			target = "make musl"
		}
		return "", fmt.Errorf("no %s in %s: run %s, or keep the folders bin and lib of a release side by side", name, filepath.Dir(path), target)
	}
	if strings.ContainsAny(path, ": ") {
		return "", fmt.Errorf("%s: the dynamic linker preloads nothing with a space or a : in its path: move nvmlfab elsewhere", path)
	}
	return path, nil
}

// preloadable returns the folder of the libraries to preload into a program, or an error if none can be preloaded into it, or would
// not intercept its calls.
func preloadable(program string) (folder string, err error) {
	path, err := lookPath(program)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return forGlibc, nil // become reports the error
	}
	for range 4 { // a script's interpreter may itself be a script
		text, err := os.ReadFile(path)
		if err != nil {
			return forGlibc, nil
		}
		line, ok := strings.CutPrefix(string(text[:min(len(text), 256)]), "#!")
		if !ok {
			break
		}
		fields := strings.Fields(strings.SplitN(line, "\n", 2)[0])
		if len(fields) == 0 {
			return forGlibc, nil
		}
		path = fields[0]
	}
	refuse := func(why string) (string, error) {
		return "", fmt.Errorf("cannot preload %s into %s, which %s: it needs a mount namespace, so allow user namespaces or be root, "+
			"and leave --preload away", preloaded, path, why)
	}
	if info, err := os.Stat(path); err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		return refuse("is setuid")
	}
	if n, err := unix.Getxattr(path, "security.capability", nil); err == nil && n > 0 {
		return refuse("has file capabilities")
	}
	if _, err := buildinfo.ReadFile(path); err == nil {
		return refuse("is written in Go")
	}
	f, err := elf.Open(path)
	if err != nil {
		return forGlibc, nil
	}
	defer f.Close()
	if f.Class != elf.ELFCLASS64 || f.Machine != machineOf[runtime.GOARCH] {
		return refuse("is for another processor")
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		linker, err := io.ReadAll(io.LimitReader(p.Open(), unix.PathMax))
		name := filepath.Base(strings.TrimRight(string(linker), "\x00"))
		switch {
		case err != nil || strings.HasPrefix(name, "ld-linux"):
			return forGlibc, nil
		case strings.HasPrefix(name, "ld-musl"):
			return forMusl, nil
		}
		return refuse("uses another C library than glibc and musl, by " + name)
	}
	return refuse("is linked statically")
}

// machineOf are the processor types that nvmlfab is built for.
var machineOf = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// usersFile is a file in a temporary tree. Each process with the preloaded library maps it, which shows that the tree
// is in use.
const usersFile = ".nvmlfab-users"

// temporary makes a folder for the tree of this process. It arranges for the removal of the folder when this process and all of
// its descendants with the library have ended, however they end.
func temporary() (string, error) {
	dir, err := os.MkdirTemp("/dev/shm", "nvmlfab-*") // faster than a disk
	if err != nil {
		// TMPDIR may be relative to the working directory, which later processes may not share.
		var parent string
		if parent, err = filepath.Abs(os.TempDir()); err == nil {
			dir, err = os.MkdirTemp(parent, "nvmlfab-*")
		}
	}
	if err != nil {
		return "", err
	}
	if err := reap(dir, "1", nil); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// writePreloaded writes to a folder what the preloaded library redirects of a tree, its profile and a state directory.
func writePreloaded(tree *machine.Tree, dir string) error {
	for name := range tree.Children {
		switch name {
		case "sys", "proc", "etc", "run":
		case "dev":
			if ib := tree.Find("dev/infiniband"); ib != nil {
				tree.Children["dev"] = &machine.Node{Mode: tree.Children["dev"].Mode, Children: map[string]*machine.Node{"infiniband": ib}}
				break
			}
			delete(tree.Children, name)
		default:
			delete(tree.Children, name)
		}
	}
	tree.Children[usersFile] = &machine.Node{Mode: 0o666, Data: "\n"} // a daemon may run as another user
	if err := tree.Write(dir); err != nil {
		return err
	}
	return os.Chmod(dir, 0o755)
}
