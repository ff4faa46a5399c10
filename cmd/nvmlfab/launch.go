package main

import (
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
	"gopkg.in/yaml.v3"
)

// The variables that choose a profile; a file wins.
const (
	profileName = "NVMLFAB_PROFILE"
	profileFile = "MOCK_NVML_CONFIG"
)

// profile is a board and where it comes from.
type profile struct {
	board *profiles.Board
	name  string // of a shipped board; empty for a file
	path  string // of a file
	given bool   // by a flag, and not by the environment
	text  []byte // of a file that is nowhere yet; nil if the profile is as it stands
}

func isFile(profile string) bool {
	ext := filepath.Ext(profile)
	return strings.Contains(profile, "/") || ext == ".yaml" || ext == ".yml"
}

// choose loads the profile that a flag names, or else the environment.
func choose(flag *string) (p profile, err error) {
	what := profileName
	switch path := os.Getenv(profileFile); {
	case flag != nil && isFile(*flag):
		p.path, p.given = *flag, true
	case flag != nil:
		p.name, p.given, what = *flag, true, "--profile"
	case path != "":
		p.path = path
	default:
		if p.name = os.Getenv(profileName); p.name == "" {
			p.name = profiles.Default
		}
	}
	if p.path != "" {
		p.board, err = profiles.Load(p.path)
		return p, err
	}
	if p.board, err = profiles.Shipped(p.name); err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return p, err
}

// change gives the profile another number of GPUs or another driver; zero and empty leave it as it is. It refuses a driver's
// version that cannot be part of a file's name.
func (p *profile) change(gpus uint32, driver string) error {
	if gpus != 0 || driver != "" {
		if err := p.edit(gpus, driver); err != nil {
			return err
		}
	}
	if v, ok := p.board.System.DriverVersion.Get(); ok && !driverVersion.MatchString(v) {
		return fmt.Errorf("the driver's version is %q: want something like 580.105.08", v)
	}
	return nil
}

var driverVersion = regexp.MustCompile(`^[0-9][0-9A-Za-z.-]*$`)

func (p *profile) edit(gpus uint32, driver string) (err error) {
	text := []byte("extends: " + p.name + "\n")
	if p.path != "" {
		if text, err = os.ReadFile(p.path); err != nil {
			return err
		}
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil || len(doc.Content) == 0 {
		return fmt.Errorf("%s: cannot be changed: %w", p.path, err)
	}
	root := doc.Content[0]
	if gpus != 0 {
		set(root, "count", nil)
		set(section(root, "system"), "num_devices", gpus)
	}
	if driver != "" {
		set(section(root, "system"), "driver_version", driver)
		set(section(root, "system"), "nvml_version", nil)
	}
	if p.text, err = yaml.Marshal(&doc); err != nil {
		return err
	}
	p.board, err = profiles.Parse("with --gpus or --driver", p.text)
	return err
}

// section is a mapping of a mapping, made if it is missing.
func section(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key && n.Content[i+1].Kind == yaml.MappingNode {
			return n.Content[i+1]
		}
	}
	set(n, key, map[string]string{})
	value := n.Content[len(n.Content)-1]
	value.Style = 0
	return value
}

// set gives a mapping's key a value; nil takes it away.
func set(n *yaml.Node, key string, value any) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content = append(n.Content[:i:i], n.Content[i+2:]...)
			break
		}
	}
	if value == nil {
		return
	}
	var name, node yaml.Node
	name.SetString(key)
	if err := node.Encode(value); err != nil {
		panic(err) // a number, a text or an empty mapping always encodes
	}
	n.Content = append(n.Content, &name, &node)
}

// setProfile puts the profile into the environment; changed is where its changed text can be read.
func (p *profile) setProfile(changed string) error {
	switch {
	case p.text != nil:
		os.Unsetenv(profileName)
		return os.Setenv(profileFile, changed)
	case !p.given:
		return nil
	case p.path != "":
		path, err := filepath.Abs(p.path)
		if err != nil {
			return err
		}
		os.Unsetenv(profileName)
		return os.Setenv(profileFile, path)
	default:
		os.Unsetenv(profileFile)
		return os.Setenv(profileName, p.name)
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
	m := namespace{tree: p.tree(system), libraries: libraries, identity: p.name + "\n" + p.path + "\n" + string(p.text)}
	if p.text != nil {
		m.files = map[string][]byte{"profile.yaml": p.text}
	}
	if err := m.show(); err != nil {
		return err
	}
	if err := dropNamespaceRights(); err != nil {
		return err
	}
	if err := p.setProfile(filepath.Join(private, "profile.yaml")); err != nil {
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
	if p.text != nil {
		// A file without a name, which lives as long as this process, and the program in its place.
		fd, err := unix.MemfdCreate("nvmlfab-profile", 0)
		if err != nil {
			return err
		}
		if _, err := unix.Write(fd, p.text); err != nil {
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
	path, err := exec.LookPath(program)
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
