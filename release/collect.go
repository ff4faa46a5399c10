package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// collect puts a release together from a build and from the tree in the working directory.
func collect(f flags) (*bundle, error) {
	b := &bundle{version: f.Version, arch: f.Arch}
	for _, step := range []func(flags) error{b.addPrograms, b.addLibraries, b.addSources, b.addManual, b.addManifest, b.addLicences} {
		if err := step(f); err != nil {
			return nil, err
		}
	}
	return b, b.addSums()
}

// addPrograms adds the commands.
func (b *bundle) addPrograms(f flags) error {
	for _, name := range append(slices.Collect(maps.Keys(others)), commands...) {
		if err := b.addFile("bin/"+name, filepath.Join(f.Built, "bin", name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// addLibraries adds the libraries, named and linked as a driver of the default board installs them, and a folder for each
// version of NVML.
func (b *bundle) addLibraries(f flags) error {
	board, err := profiles.Shipped(profiles.Default)
	if err != nil {
		return err
	}
	driver := board.System.DriverVersion.Or("")
	if driver == "" {
		return fmt.Errorf("the profile %s has no driver version to name the libraries by", profiles.Default)
	}
	entries, err := os.ReadDir(filepath.Join(f.Built, "lib"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, from := e.Name(), filepath.Join(f.Built, "lib", e.Name())
		stem, versioned := strings.CutSuffix(name, ".so.1")
		switch {
		case e.IsDir():
			err = b.addTree("lib/"+name, from, func(path string, d fs.DirEntry) bool { return strings.HasSuffix(path, ".so") })
		case name == "libnvidia-ml.so":
			err = b.add(file{path: "lib/" + name, link: name + ".1"})
		case versioned && (stem == "libnvidia-ml" || stem == "libnvmlfab-core"):
			err = errors.Join(b.addFile("lib/"+stem+".so."+driver, from, 0o755), b.add(file{path: "lib/" + name, link: stem + ".so." + driver}))
		case strings.HasSuffix(name, ".supp"):
			err = b.addFile("lib/"+name, from, 0o644)
		case strings.HasSuffix(name, ".so"), strings.HasSuffix(name, ".so.1"), strings.HasPrefix(name, "nvmlfab-") && filepath.Ext(name) == "":
			err = b.addFile("lib/"+name, from, 0o755)
		}
		if err != nil {
			return err
		}
	}
	return b.addTree("nvml", filepath.Join(f.Built, "nvml"), func(path string, d fs.DirEntry) bool {
		return d.Type()&fs.ModeSymlink != 0 || strings.HasPrefix(filepath.Base(path), "lib")
	})
}

// addTree adds the files of a folder that pass; links stay links, and programs executable.
func (b *bundle) addTree(to, from string, passes func(path string, d fs.DirEntry) bool) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !passes(path, d) {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		name := to + "/" + filepath.ToSlash(rel)
		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return b.add(file{path: name, link: target})
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := int64(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		return b.addFile(name, path, mode)
	})
}

// addSources adds what is taken from the tree as it is: profiles, scenarios, headers, documents, and the sources of the kernel
// modules, in the layout that dkms wants.
func (b *bundle) addSources(flags) error {
	extension := func(list ...string) func(string, fs.DirEntry) bool {
		return func(path string, _ fs.DirEntry) bool { return slices.Contains(list, filepath.Ext(path)) }
	}
	module := func(path string, _ fs.DirEntry) bool {
		switch filepath.Base(path) {
		case "Kbuild", "Makefile", "COPYING", "dkms.conf", "build.sh", "CMakeLists.txt", "kunit.mk", "config", "TRACE-NOTES.md":
			return true
		}
		return slices.Contains([]string{".c", ".h"}, filepath.Ext(path))
	}
	for _, tree := range []struct {
		to, from string
		passes   func(string, fs.DirEntry) bool
	}{
		{"profiles", "profiles/boards", extension(".yaml")},
		{"scenarios", "cmd/nvmlfab/scenarios", extension(".yaml")},
		{"docs", "docs", extension(".md", ".svg", ".yml", ".yaml")},
		{"kernel", "kernel", func(path string, d fs.DirEntry) bool {
			return !strings.HasPrefix(path, "kernel/vm/") && module(path, d)
		}},
	} {
		before := len(b.files)
		if err := b.addTree(tree.to, tree.from, tree.passes); err != nil {
			return err
		}
		if len(b.files) == before {
			return fmt.Errorf("%s has nothing for the release", tree.from)
		}
	}
	for _, name := range []string{"kernel/uapi/fakegpu.h", "kernel/uapi/vgpuctl.h", "shims/gpufilter/nvgpufilter.h", "kernel/COPYING"} {
		if err := b.addFile("include/nvmlfab/"+filepath.Base(name), name, 0o644); err != nil {
			return err
		}
	}
	for _, name := range []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "LICENSE"} {
		if err := b.addFile(name, name, 0o644); err != nil {
			return err
		}
	}
	return errors.Join(b.addFile("schema.json", "profiles/schema.json", 0o644), b.addFile("install.sh", "release/install.sh", 0o755))
}

// dkmsVersion is the version that dkms knows the kernel modules of the release by.
func (b *bundle) dkmsVersion() (string, error) {
	const conf = "kernel/dkms.conf"
	for _, f := range b.files {
		if f.path != conf {
			continue
		}
		if m := regexp.MustCompile(`(?m)^PACKAGE_VERSION="([A-Za-z0-9._+-]+)"$`).FindSubmatch(f.content); m != nil {
			return string(m[1]), nil
		}
		return "", fmt.Errorf("%s has no PACKAGE_VERSION of letters, digits and . _ + -, in quotes on a line of its own", conf)
	}
	return "", fmt.Errorf("the release has no %s", conf)
}

// addManual adds the manual pages and the completions, which the commands themselves print.
func (b *bundle) addManual(f flags) error {
	for _, name := range commands {
		program := filepath.Join(f.Native, name)
		pages, err := manual(name, func(args ...string) (string, error) { return output(program, args...) })
		if err != nil {
			return err
		}
		for page, text := range pages {
			if err := b.add(file{path: "man/man1/" + page + ".1", mode: 0o644, content: []byte(text)}); err != nil {
				return err
			}
		}
	}
	for name, summary := range others {
		source, err := parser.ParseFile(token.NewFileSet(), "cmd/"+name+"/main.go", nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		page := page(name, summary, name+" [ARGUMENT...]\n\n"+source.Doc.Text())
		if err := b.add(file{path: "man/man1/" + name + ".1", mode: 0o644, content: []byte(page)}); err != nil {
			return err
		}
	}
	for shell, name := range map[string]string{"bash": "nvmlfab.bash", "zsh": "_nvmlfab", "fish": "nvmlfab.fish"} {
		script, err := output(filepath.Join(f.Native, "nvmlfab"), "completion", shell)
		if err != nil {
			return err
		}
		if err := b.add(file{path: "completions/" + name, mode: 0o644, content: []byte(script)}); err != nil {
			return err
		}
	}
	return nil
}

// output is what a program prints, which must succeed. COLUMNS gives its help the same width everywhere.
func output(program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "COLUMNS=80", "LC_ALL=C")
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w: %s", cmd, err, exit.Stderr)
	}
	return string(out), err
}

// addManifest adds manifest.json: which versions of NVML are in the release, and how much of each is implemented.
func (b *bundle) addManifest(f flags) error {
	text, err := os.ReadFile(f.Coverage)
	if err != nil {
		return err
	}
	var coverage any
	if err := json.Unmarshal(text, &coverage); err != nil {
		return fmt.Errorf("%s: %w", f.Coverage, err)
	}
	manifest := struct {
		Nvmlfab  string   `json:"nvmlfab"`
		Platform string   `json:"platform"`
		NVML     []string `json:"nvml"`
		Boards   []string `json:"boards"`
		Coverage any      `json:"coverage"`
	}{b.version, "linux/" + b.arch, b.versions(), profiles.Names(), coverage}
	content, err := json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		return err
	}
	return b.add(file{path: "manifest.json", mode: 0o644, content: append(content, '\n')})
}

// versions are the versions of NVML whose library is in the release.
func (b *bundle) versions() (list []string) {
	seen := map[string]bool{}
	for _, f := range b.files {
		if m := regexp.MustCompile(`^nvml/([0-9.]+)(/|$)`).FindStringSubmatch(f.path); m != nil && !seen[m[1]] {
			seen[m[1]] = true
			list = append(list, m[1])
		}
	}
	slices.SortFunc(list, byNumbers)
	return list
}

// byNumbers compares versions.
func byNumbers(a, b string) int {
	numbers := func(version string) (list []int) {
		for word := range strings.SplitSeq(version, ".") {
			n := 0
			fmt.Sscanf(word, "%d", &n)
			list = append(list, n)
		}
		return list
	}
	return slices.Compare(numbers(a), numbers(b))
}
