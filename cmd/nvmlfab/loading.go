package main

import (
	"bytes"
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

	"github.com/nvmlfab/nvmlfab/machine"
	"golang.org/x/sys/unix"
)

// nvmlName is the name by which programs load NVML.
const nvmlName = "libnvidia-ml.so.1"

// program is what is known of a program without running it.
type program struct {
	path     string   // of the ELF file; the interpreter's for a script
	scripts  []string // the scripts that lead there, the program itself first
	static   bool
	golang   bool
	raised   string // why it runs with rights that its caller lacks; empty if it does not
	foreign  string // why it is not for this machine
	linker   string // the dynamic linker that it names
	musl     bool
	needed   []string
	rpath    []string // folders before LD_LIBRARY_PATH
	runpath  []string // and after it
	mentions bool     // it has the name of NVML's library in it
}

// inspect reads a program. An error is about a file that cannot be executed at all.
func inspect(name string) (*program, error) {
	path, err := lookPath(name)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return nil, err
	}
	p := &program{}
	for range 4 { // a script's interpreter may itself be a script
		text, err := head(path, 256)
		if err != nil {
			return nil, err
		}
		line, ok := strings.CutPrefix(text, "#!")
		if !ok {
			break
		}
		p.scripts = append(p.scripts, path)
		fields := strings.Fields(strings.SplitN(line, "\n", 2)[0])
		if len(fields) == 0 {
			return nil, fmt.Errorf("%s: its first line names no interpreter", path)
		}
		path = fields[0]
		if filepath.Base(path) == "env" { // it finds the interpreter
			for _, word := range fields[1:] {
				if !strings.HasPrefix(word, "-") && !strings.Contains(word, "=") {
					if path, err = lookPath(word); err != nil && !errors.Is(err, exec.ErrDot) {
						return nil, err
					}
					break
				}
			}
		}
	}
	p.path = path
	return p, p.read()
}

func head(path string, n int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, n))
	return string(text), err
}

func (p *program) read() error {
	text, err := os.ReadFile(p.path)
	if err != nil {
		return err
	}
	f, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%s is no program: %w", p.path, err)
	}
	p.mentions = bytes.Contains(text, []byte("libnvidia-ml.so"))
	if _, err := buildinfo.Read(bytes.NewReader(text)); err == nil {
		p.golang = true
	}
	if f.Class != elf.ELFCLASS64 || f.Machine != machineOf[runtime.GOARCH] {
		p.foreign = fmt.Sprintf("%s of %s", strings.TrimPrefix(f.Class.String(), "ELFCLASS")+"-bit", strings.TrimPrefix(f.Machine.String(), "EM_"))
	}
	if info, err := os.Stat(p.path); err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		p.raised = "setuid"
	} else if n, err := unix.Getxattr(p.path, "security.capability", nil); err == nil && n > 0 {
		p.raised = "has file capabilities"
	}
	p.static = true
	for _, part := range f.Progs {
		if part.Type == elf.PT_INTERP {
			linker, err := io.ReadAll(io.LimitReader(part.Open(), unix.PathMax))
			if err != nil {
				return err
			}
			p.static, p.linker = false, strings.TrimRight(string(linker), "\x00")
		}
	}
	p.musl = strings.HasPrefix(filepath.Base(p.linker), "ld-musl")
	p.needed, _ = f.ImportedLibraries()
	p.runpath = folders(f, elf.DT_RUNPATH, p.path)
	if len(p.runpath) == 0 { // otherwise the linker ignores it
		p.rpath = folders(f, elf.DT_RPATH, p.path)
	}
	return nil
}

// folders are those of an entry in the dynamic section.
func folders(f *elf.File, tag elf.DynTag, path string) (out []string) {
	list, _ := f.DynString(tag)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	for _, entry := range list {
		for _, dir := range strings.Split(entry, ":") {
			dir = strings.NewReplacer("$ORIGIN", filepath.Dir(path), "${ORIGIN}", filepath.Dir(path)).Replace(dir)
			if dir != "" {
				out = append(out, dir)
			}
		}
	}
	return out
}

// found is a library that a program may load.
type found struct {
	Path string `json:"path"`
	By   string `json:"by"`   // why the dynamic linker looks there
	Kind string `json:"kind"` // whose it is
}

// Whose a library is.
const (
	ours    = "nvmlfab's"
	tracing = "nvmlfab's, for a trace"
	theirs  = "NVIDIA's"
	unknown = "not known"
)

// searchNVML lists the files of NVML's name in the order in which the dynamic linker of glibc looks for them; a program gets the
// first. A nil program stands for any that names no folders itself.
func searchNVML(p *program) (out []found) {
	add := func(by string, paths ...string) {
		for _, path := range paths {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && fits(path) {
				out = append(out, found{path, by, whose(path)})
			}
		}
	}
	in := func(by string, dirs []string) {
		for _, dir := range dirs {
			add(by, filepath.Join(dir, nvmlName))
		}
	}
	if p != nil {
		in("the program's RPATH", p.rpath)
	}
	if p == nil || p.raised == "" || os.Geteuid() == 0 {
		if list := os.Getenv("LD_LIBRARY_PATH"); list != "" {
			for _, dir := range strings.FieldsFunc(list, func(r rune) bool { return r == ':' || r == ';' }) {
				add("LD_LIBRARY_PATH", filepath.Join(dir, nvmlName))
			}
		}
	}
	if p != nil {
		in("the program's RUNPATH", p.runpath)
	}
	if p == nil || !p.musl {
		if path := machine.CachedLibrary(nvmlName); path != "" {
			add("the dynamic linker's cache", path)
		}
	}
	defaults := []string{"/lib/" + machine.Triplet, "/usr/lib/" + machine.Triplet, "/lib64", "/usr/lib64", "/lib", "/usr/lib"}
	if p != nil && p.musl {
		defaults = []string{"/lib", "/usr/local/lib", "/usr/lib"}
	}
	in("the default folders", defaults)
	return out
}

// fits reports whether a library is for this machine's processor; the dynamic linker passes over others.
func fits(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return true // the linker stops there
	}
	defer f.Close()
	return f.Class == elf.ELFCLASS64 && f.Machine == machineOf[runtime.GOARCH]
}

// whose tells by what is in a library whose it is.
func whose(path string) string {
	text, err := os.ReadFile(path)
	switch {
	case err != nil:
		return unknown
	case bytes.Contains(text, []byte(tracedName)):
		return tracing
	case bytes.Contains(text, []byte("NVMLFAB_CORE")):
		return ours
	case bytes.Contains(text, []byte("NVIDIA")):
		return theirs
	}
	return unknown
}

// glibcOf is the newest version of glibc whose symbols a libc.so.6 has, as the number after "2.", and the path of it; an
// empty path if there is none to be found.
func glibcOf(p *program) (minor int, path string) {
	var candidates []string
	if p != nil && p.linker != "" {
		if real, err := filepath.EvalSymlinks(p.linker); err == nil {
			candidates = append(candidates, filepath.Join(filepath.Dir(real), "libc.so.6"))
		}
	}
	if path := machine.CachedLibrary("libc.so.6"); path != "" {
		candidates = append(candidates, path)
	}
	candidates = append(candidates, "/lib/"+machine.Triplet+"/libc.so.6", "/lib64/libc.so.6", "/usr/lib64/libc.so.6", "/usr/lib/libc.so.6")
	for _, path := range candidates {
		f, err := elf.Open(path)
		if err != nil {
			continue
		}
		versions, err := f.DynamicVersions()
		f.Close()
		if err != nil {
			continue
		}
		minor = 0
		for _, v := range versions {
			minor = max(minor, glibcMinor(v.Name))
		}
		return minor, path
	}
	return 0, ""
}

// wanted is the newest version of glibc that a library needs, as the number after "2.".
func wanted(path string) (minor int, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	symbols, err := f.ImportedSymbols()
	if err != nil {
		return 0, err
	}
	for _, s := range symbols {
		minor = max(minor, glibcMinor(s.Version))
	}
	return minor, nil
}

func glibcMinor(version string) int {
	var minor int
	if n, _ := fmt.Sscanf(version, "GLIBC_2.%d", &minor); n != 1 {
		return 0
	}
	return minor
}
