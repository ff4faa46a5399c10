package main

import (
	"cmp"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
	"golang.org/x/sys/unix"
)

// The variables that choose a profile; a file wins.
const (
	profileName = "NVMLFAB_PROFILE"
	profileFile = "MOCK_NVML_CONFIG"
)

// profile is a board and where it comes from.
type profile struct {
	board  *profiles.Board
	base   profiles.Base
	layers []profiles.Layer // what flags change of the base
	given  bool             // by a flag, and not by the environment
}

func isFile(profile string) bool {
	ext := filepath.Ext(profile)
	return strings.Contains(profile, "/") || ext == ".yaml" || ext == ".yml"
}

// choose loads the profile that a flag names, or else the environment.
func choose(flag *string) (p profile, err error) {
	what, path := profileName, os.Getenv(profileFile)
	switch {
	case flag != nil && isFile(*flag):
		path, p.given = *flag, true
	case flag != nil:
		path, p.base.Name, p.given, what = "", *flag, true, "--profile"
	case path == "":
		p.base.Name = cmp.Or(os.Getenv(profileName), profiles.Default)
	}
	if path != "" {
		text, err := profiles.Read(path)
		if err != nil {
			return p, err
		}
		p.base = profiles.Base{Name: path, Text: text}
		p.board, err = p.base.With()
		return p, err
	}
	if p.board, err = p.base.With(); err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return p, err
}

// change gives the profile another number of GPUs or another driver; zero and empty leave it as it is. It refuses a driver's
// version that cannot be part of a file's name.
func (p *profile) change(gpus uint32, driver string) error {
	if gpus != 0 {
		p.layers = append(p.layers, profiles.GPUs("--gpus", gpus))
	}
	if driver != "" {
		p.layers = append(p.layers, profiles.Driver("--driver", driver))
	}
	if len(p.layers) > 0 {
		var err error
		if p.board, err = p.base.With(p.layers...); err != nil {
			return err
		}
	}
	if v, ok := p.board.System.DriverVersion.Get(); ok && !driverVersion.MatchString(v) {
		return fmt.Errorf("the driver's version is %q: want something like 580.105.08", v)
	}
	return nil
}

var driverVersion = regexp.MustCompile(`^[0-9][0-9A-Za-z.-]*$`)

// changed is the profile as one file, if it is neither a shipped board nor a file as it stands.
func (p *profile) changed() []byte {
	if len(p.layers) == 0 {
		return nil
	}
	return p.base.File(p.layers...)
}

// setProfile puts the profile into the environment; changed is where its changed text can be read.
func (p *profile) setProfile(changed string) error {
	switch {
	case len(p.layers) > 0:
		os.Unsetenv(profileName)
		return os.Setenv(profileFile, changed)
	case !p.given:
		return nil
	case p.base.Text != nil:
		path, err := filepath.Abs(p.base.Name)
		if err != nil {
			return err
		}
		os.Unsetenv(profileName)
		return os.Setenv(profileFile, path)
	default:
		os.Unsetenv(profileFile)
		return os.Setenv(profileName, p.base.Name)
	}
}

// tree is what this machine shall have.
func (p *profile) tree(system bool) *machine.Tree {
	return machine.New(p.board, machine.Options{CPUs: onlineCPUs(), System: system})
}

// onlineCPUs are this machine's, ascending.
func onlineCPUs() []uint32 {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil
	}
	var cpus profiles.CPUSet
	if cpus.UnmarshalText([]byte(strings.TrimSpace(string(text)))) != nil {
		return nil
	}
	return cpus
}

// showNamespace shows the board to what runs in this mount namespace.
func (p *profile) showNamespace(libraries string, system bool) error {
	m := machine.Launch{Tree: p.tree(system), Libraries: libraries, Identity: p.base.Name + "\n" + string(p.base.File(p.layers...))}
	if text := p.changed(); text != nil {
		m.Files = map[string][]byte{"profile.yaml": text}
	}
	if err := m.Show(); err != nil {
		return err
	}
	if err := machine.DropNamespaceRights(); err != nil {
		return err
	}
	if err := p.setProfile(filepath.Join(machine.Private, "profile.yaml")); err != nil {
		return err
	}
	os.Setenv("SYSTEMD_DEVICE_VERIFY_SYSFS", "0") // udev's library would believe nothing that is not on a sysfs
	return setLibrary(libraries)
}

// preloaded is the library that redirects paths.
const preloaded = "libmockfs.so"

// showPreloaded shows the board to a program, and to its children that do not drop the environment, by a preloaded library.
func (p *profile) showPreloaded(libraries, program string) error {
	library := filepath.Join(home(), "lib", preloaded)
	if _, err := os.Stat(library); err != nil {
		return fmt.Errorf("no %s in %s: run make, or keep the folders bin and lib of a release side by side", preloaded, filepath.Dir(library))
	}
	if strings.ContainsAny(library, ": ") {
		return fmt.Errorf("%s: the dynamic linker preloads nothing with a space or a : in its path: move nvmlfab elsewhere", library)
	}
	if err := preloadable(program); err != nil {
		return err
	}
	changed := ""
	if text := p.changed(); text != nil {
		// A file without a name, which lives as long as this process, and the program in its place.
		fd, err := unix.MemfdCreate("nvmlfab-profile", 0)
		if err != nil {
			return err
		}
		if _, err := unix.Write(fd, text); err != nil {
			return err
		}
		changed = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
	}
	root, err := temporary(p.tree(false))
	if err != nil {
		return err
	}
	os.Setenv("MOCK_PCI_ROOT", root)
	if others := os.Getenv("LD_PRELOAD"); others != "" {
		library += ":" + others
	}
	os.Setenv("LD_PRELOAD", library)
	if err := p.setProfile(changed); err != nil {
		return err
	}
	return setLibrary(libraries)
}

// preloadable is an error if a library cannot be preloaded into a program, or would not see what the program does.
func preloadable(program string) error {
	path, err := lookPath(program)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return nil // which become reports
	}
	for range 4 { // through the interpreters of scripts
		text, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		line, ok := strings.CutPrefix(string(text[:min(len(text), 256)]), "#!")
		if !ok {
			break
		}
		fields := strings.Fields(strings.SplitN(line, "\n", 2)[0])
		if len(fields) == 0 {
			return nil
		}
		path = fields[0]
	}
	refuse := func(why string) error {
		return fmt.Errorf("cannot preload %s into %s, which %s: it needs a mount namespace", preloaded, path, why)
	}
	if info, err := os.Stat(path); err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		return refuse("is setuid")
	}
	if _, err := buildinfo.ReadFile(path); err == nil {
		return refuse("is written in Go")
	}
	f, err := elf.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return nil
		}
	}
	return refuse("is linked statically")
}
