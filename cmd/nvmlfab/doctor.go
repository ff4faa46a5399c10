package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
	"golang.org/x/sys/unix"
)

type doctorCmd struct {
	JSON    bool     `name:"json" help:"Print JSON."`
	Profile *string  `placeholder:"NAME|FILE" help:"The profile, as in run; without it that of the environment."`
	NVML    string   `name:"nvml" placeholder:"VERSION" help:"The version of NVML, as in run."`
	Command []string `arg:"" optional:"" name:"cmd" passthrough:"partial" help:"A program, which is looked at and not run."`
}

func (doctorCmd) Help() string {
	return `Looks at what nvmlfab needs on this machine and in this environment, and prints a line for each thing that is right and for
each that is not, with what mends it. With a program it says which libnvidia-ml.so.1 that program would load if it were started
here and now, without running it. Examples:

    nvmlfab doctor
    nvmlfab doctor -- nvidia-smi
    nvmlfab doctor --json --profile mine.yaml
    nvmlfab run -- nvmlfab doctor -- nvidia-smi     (what it would load in such a run)

The exit status is 0 if nothing is wrong, else 1.`
}

// AfterApply removes the -- before the program, which the parser leaves in place.
func (c *doctorCmd) AfterApply() error {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	return nil
}

// finding is one line of the report.
type finding struct {
	About string `json:"about"`
	Right bool   `json:"right"`
	What  string `json:"what"`
	Mend  string `json:"mend,omitempty"`
}

// doctor collects findings.
type doctor struct {
	findings []finding
	loads    []found
}

func (d *doctor) right(about, format string, args ...any) {
	d.findings = append(d.findings, finding{about, true, fmt.Sprintf(format, args...), ""})
}

func (d *doctor) wrong(about, mend, format string, args ...any) {
	d.findings = append(d.findings, finding{about, false, fmt.Sprintf(format, args...), mend})
}

// Run prints the findings.
func (c *doctorCmd) Run() error {
	d := &doctor{}
	p, err := choose(c.Profile)
	if err == nil {
		err = p.change(nil, "")
	}
	if err != nil {
		d.wrong("profile", "name another with --profile, NVMLFAB_PROFILE or MOCK_NVML_CONFIG; nvmlfab profiles validate FILE says all that is wrong in one", "%v", err)
	} else {
		d.right("profile", "%s: %s, driver %s", p.base.Name, counted(uint64(len(p.board.Devices)), "GPU"), p.board.System.DriverVersion.Or("unknown"))
		d.state(&p)
	}
	libraries := d.libraries(c.NVML, p)
	var prog *program
	if len(c.Command) > 0 {
		if prog, err = inspect(c.Command[0]); err != nil {
			d.wrong("program", "name a program that exists and may be executed", "cannot look at %q: %v", c.Command[0], err)
			prog = nil
		}
	}
	d.glibc(libraries, prog)
	if libraries != "" {
		given := &p
		if p.board == nil {
			given = nil
		}
		d.namespaces(given, c.Profile)
	}
	d.shims()
	if prog != nil {
		d.program(prog, libraries)
	} else if len(c.Command) == 0 {
		d.library(nil, libraries)
	}
	return d.print(c.JSON)
}

func (d *doctor) print(asJSON bool) error {
	wrong := 0
	for _, f := range d.findings {
		if !f.Right {
			wrong++
		}
	}
	if asJSON {
		text, err := json.MarshalIndent(struct {
			Wrong    int       `json:"wrong"`
			Findings []finding `json:"findings"`
			Loads    []found   `json:"libraries"` // in the order of the search
		}{wrong, d.findings, d.loads}, "", "  ")
		if err != nil {
			return err
		}
		if _, err := fmt.Printf("%s\n", text); err != nil {
			return err
		}
	} else {
		for _, f := range d.findings {
			mark := "ok   "
			if !f.Right {
				mark = "WRONG"
			}
			if _, err := fmt.Printf("%s  %s: %s\n", mark, f.About, f.What); err != nil {
				return err
			}
			if f.Mend != "" {
				fmt.Printf("       mend: %s\n", f.Mend)
			}
		}
	}
	if wrong == 0 {
		return nil
	}
	os.Exit(1)
	return nil
}

// state looks at the state directory that the environment names.
func (d *doctor) state(p *profile) {
	const about = "state directory"
	path := os.Getenv(stateVariable)
	if path == "" {
		d.right(about, "none is named: each run has one of its own, and outside of runs each process its own state")
		return
	}
	info, err := os.Stat(path)
	switch {
	case err != nil || !info.IsDir():
		d.wrong(about, "make it with mkdir -p, or unset "+stateVariable, "%s, which %s names, is no directory", path, stateVariable)
		return
	case !filepath.IsAbs(path):
		d.wrong(about, "name it with its whole path", "%q, which %s names, is another directory for each working directory", path, stateVariable)
		return
	}
	if err := machine.CheckState(state.At(path), p.board); err != nil {
		d.wrong(about, "remove what is in it, name another with "+stateVariable+", or choose the profile that it was made with", "%v", err)
		return
	}
	if unix.Access(path, unix.W_OK) != nil {
		d.right(about, "%s, which this user may only read", path)
		return
	}
	d.right(about, "%s", path)
}

// libraries looks for nvmlfab's own libraries and returns the folder of those of the profile.
func (d *doctor) libraries(nvml string, p profile) string {
	const about = "libraries"
	dir, err := "", error(nil)
	if p.board != nil {
		dir, err = libraryDir(nvml, p.board)
	} else {
		dir = filepath.Join(home(), "lib")
	}
	if err != nil {
		d.wrong(about, "build nvmlfab again, or unpack the whole release and leave its folders beside each other", "%v", err)
		return ""
	}
	if _, err := exports(filepath.Join(dir, nvmlName)); err != nil {
		d.wrong(about, "build nvmlfab again, or unpack the release again", "%v", err)
		return ""
	}
	d.right(about, "%s", dir)
	return dir
}

// glibc compares what the libraries need with what is there.
func (d *doctor) glibc(libraries string, p *program) {
	const about = "C library"
	if p != nil && (p.static || p.foreign != "") {
		return // it has none, or not this machine's
	}
	if p != nil && p.musl {
		d.wrong(about, "run a build of the program for glibc, in an image that is not Alpine's", "%s uses musl, by %s, and nvmlfab's libraries need glibc", p.path, p.linker)
		return
	}
	minor, path := glibcOf(p)
	if path == "" {
		d.wrong(about, "run the program where glibc 2.28 or later is installed", "there is no glibc on this machine")
		return
	}
	if libraries == "" {
		return
	}
	need, who := 0, ""
	for _, name := range []string{nvmlName, "libnvmlfab-core.so.1"} {
		path := filepath.Join(libraries, name)
		n, err := wanted(path)
		if err != nil {
			d.wrong("libraries", "build nvmlfab again, or unpack the release again", "%s: %v", path, err)
			continue
		}
		if n > need {
			need, who = n, path
		}
	}
	if need > minor {
		d.wrong(about, fmt.Sprintf("run the program with glibc 2.%d or later", need), "%s needs glibc 2.%d, and %s is 2.%d", who, need, path, minor)
		return
	}
	d.right(about, "%s is glibc 2.%d, and nvmlfab's libraries need 2.%d", path, minor, need)
}

// namespaces tries what run does.
func (d *doctor) namespaces(p *profile, flag *string) {
	const about = "namespaces"
	err := tryRun(p, flag)
	if err == nil {
		d.right(about, "nvmlfab run can make a mount namespace")
		return
	}
	mend := "in a container, allow unshare and mount (podman: --privileged, docker: --privileged or --security-opt seccomp=unconfined)"
	for _, setting := range []struct{ path, bad, mend string }{
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=15000"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0"},
	} {
		if text, err := os.ReadFile(setting.path); err == nil && strings.TrimSpace(string(text)) == setting.bad {
			mend = "as root: " + setting.mend
			break
		}
	}
	d.wrong(about, mend, "nvmlfab run cannot make a mount namespace (%v), so it preloads a library, which shows /sys alone, and refuses static programs and those in Go", err)
}

// tryRun runs this program in a namespace with a profile, or with another one if that cannot be read.
func tryRun(p *profile, flag *string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"run", "--namespace"}
	switch {
	case p == nil:
		args = append(args, "--profile", profiles.Default)
	case flag != nil:
		args = append(args, "--profile", *flag)
	}
	cmd := exec.Command(self, append(args, "--", self, "version")...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return name == stateVariable || name == "LD_PRELOAD"
	})
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return errors.New(cmp.Or(strings.TrimPrefix(strings.TrimSpace(said.String()), "nvmlfab: "), err.Error()))
	}
	return nil
}

// variables are those that nvmlfab's programs and libraries read.
var variables = []string{
	profileName, profileFile, stateVariable, runVariable, "NVMLFAB_CORE", "NVMLFAB_DEBUG", "NVMLFAB_GPUFILTER", "NVMLFAB_IMEX_REAL",
	"NVMLFAB_UNPATCHED", "MOCK_PCI_ROOT", ibTier, ibRoot,
}

// shims looks at what is preloaded, and at the variables.
func (d *doctor) shims() {
	const about = "environment"
	for _, path := range strings.FieldsFunc(os.Getenv("LD_PRELOAD"), func(r rune) bool { return r == ':' || r == ' ' }) {
		if _, err := os.Stat(path); strings.Contains(path, "/") && err != nil {
			d.wrong(about, "take it out of LD_PRELOAD", "LD_PRELOAD names %s, which is not there", path)
			continue
		}
		variable := map[string]string{preloaded: "MOCK_PCI_ROOT", "libibmocksys.so": ibRoot, "libibmockumad.so": ibRoot, "libibmockverbs.so": ibRoot}[filepath.Base(path)]
		if variable != "" && os.Getenv(variable) == "" {
			d.wrong(about, "set "+variable+" to the tree that it shows, or take it out of LD_PRELOAD", "LD_PRELOAD names %s, which does nothing without %s", path, variable)
			continue
		}
		d.right(about, "LD_PRELOAD has %s", path)
	}
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "NVMLFAB_") && !strings.HasPrefix(name, "MOCK_") {
			continue
		}
		switch {
		case name == stateVariable || name == profileName || name == profileFile: // looked at already
			continue
		case !slices.Contains(variables, name) && strings.HasPrefix(name, "NVMLFAB_"):
			d.wrong(about, "unset it, or see nvmlfab --help and the documentation for the name that you mean", "nvmlfab reads no variable %s", name)
			continue
		case !slices.Contains(variables, name): // of somebody else
			continue
		case (name == "MOCK_PCI_ROOT" || name == ibRoot || name == "NVMLFAB_CORE") && !exists(value):
			d.wrong(about, "unset it, or name what exists", "%s names %q, which is not there", name, value)
			continue
		}
		d.right(about, "%s=%s", name, value)
	}
}

// program looks at a program.
func (d *doctor) program(p *program, libraries string) {
	const about = "program"
	name := p.path
	if len(p.scripts) > 0 {
		name = fmt.Sprintf("%s, by %s", p.scripts[0], p.path)
	}
	switch {
	case p.foreign != "":
		d.wrong(about, "run a build for this machine", "%s is for another processor: %s", name, p.foreign)
		return
	case p.static:
		kind := "is linked statically"
		if p.golang {
			kind = "is written in Go without cgo"
		}
		d.wrong(about, "build it with a dynamic linker (Go: CGO_ENABLED=1) if it is to use NVML; nvmlfab run shows it /sys, /proc and /dev in any case", "%s %s, so it loads no NVML", name, kind)
		return
	}
	kind := "loads libraries by " + p.linker
	if p.golang {
		kind = "is written in Go with cgo, and " + kind
	}
	d.right(about, "%s %s", name, kind)
	if p.raised != "" && os.Geteuid() != 0 {
		d.wrong(about, "start it as root, or take a copy without these rights", "%s is %s, so the dynamic linker ignores LD_LIBRARY_PATH and LD_PRELOAD", p.path, p.raised)
	}
	switch {
	case slices.Contains(p.needed, nvmlName):
		d.right(about, "it is linked with %s", nvmlName)
	case p.mentions:
		d.right(about, "it has the name of NVML's library in it, so it probably loads that when it runs")
	case len(p.scripts) == 0:
		d.right(about, "it does not name NVML's library; libraries or scripts that it loads may")
	}
	if !p.musl {
		d.library(p, libraries)
	}
}

// library looks for NVML as the dynamic linker does. Without a program only a mixture is wrong.
func (d *doctor) library(p *program, libraries string) {
	const about = "NVML"
	d.loads = searchNVML(p)
	if len(d.loads) == 0 {
		if p != nil {
			d.wrong(about, "start the program with nvmlfab run -- …, or put "+cmp.Or(libraries, "nvmlfab's lib")+" into LD_LIBRARY_PATH", "the program would find no %s", nvmlName)
			return
		}
		d.right(about, "there is no %s here but in nvmlfab run", nvmlName)
		return
	}
	first := d.loads[0]
	own := slices.IndexFunc(d.loads, func(f found) bool { return f.Kind == ours || f.Kind == tracing })
	switch {
	case own == 0:
		d.right(about, "%s, by %s, which is %s, is loaded", first.Path, first.By, first.Kind)
		if real, err := filepath.EvalSymlinks(first.Path); err == nil && first.Kind == ours && os.Getenv("NVMLFAB_CORE") == "" && !coreBeside(real) {
			d.wrong(about, "leave libnvmlfab-core.so.1 beside it, or name it with NVMLFAB_CORE", "there is no core beside %s, so that NVML will not start", real)
		}
	case own > 0:
		d.wrong(about, "put "+filepath.Dir(d.loads[own].Path)+" first in LD_LIBRARY_PATH", "%s, by %s, which is %s, is loaded before nvmlfab's %s", first.Path, first.By, first.Kind, d.loads[own].Path)
	case p == nil:
		d.right(about, "%s, by %s, which is %s, is what programs load outside of nvmlfab run", first.Path, first.By, first.Kind)
	case strings.Contains(first.By, "RPATH"):
		d.wrong(about, "take the RPATH out of the program (patchelf --remove-rpath)", "%s, by %s, which is %s, is loaded whatever LD_LIBRARY_PATH says", first.Path, first.By, first.Kind)
	default:
		d.wrong(about, "start the program with nvmlfab run -- …", "%s, by %s, which is %s, is loaded and not nvmlfab's", first.Path, first.By, first.Kind)
	}
}

// coreBeside reports whether the front finds a core, which has the front's suffix.
func coreBeside(real string) bool {
	suffix := strings.TrimPrefix(filepath.Base(real), "libnvidia-ml")
	return exists(filepath.Join(filepath.Dir(real), "libnvmlfab-core"+suffix))
}
