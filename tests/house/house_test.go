// Package house checks the structure of the tree: which packages import which, where cgo and unsafe are allowed, what
// is at the top, and what generated files must not contain.
package house

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/nvmlfab/nvmlfab/"

// imports lists, for each folder, the folders of this project that its packages may import in addition to those below
// itself. For a package the longest matching folder applies, so a new folder at the top of the tree needs a row here.
var imports = map[string][]string{
	"library/core":       {"library/host", "library/marshal", "generated/dispatch", "handwritten", "engine", "profiles", "generated/abi"},
	"library/host":       {},
	"library/marshal":    {"engine", "generated/abi"},
	"library/goruntime":  {},
	"library/relr":       {},
	"generated/dispatch": {"library/marshal", "handwritten", "engine", "generated/abi"},
	"generated/abi":      {},
	"generated/calls":    {},
	"handwritten":        {"engine", "profiles", "generated/abi"},
	"engine":             {"profiles", "generated/abi"},
	"engine/host":        {},
	"engine/change":      {"engine/simulate", "engine/state", "profiles", "generated/abi"},
	"engine/simulate":    {"profiles", "generated/abi"},
	"engine/state":       {"engine/simulate", "engine/change", "profiles", "generated/abi"},
	"profiles":           {"generated/abi"},
	"profiles/capture":   {"profiles", "generated/abi", "generated/calls"}, // the latter by its package calls
	"machine":            {"profiles", "engine/change", "engine/state", "generated/abi"},
	"cmd/nvmlfab":        {"machine", "profiles", "engine/change", "engine/state", "generated/abi"},
	"cmd/nvmlfab-hook":   {"machine", "engine/state"},
	"cmd/nvidia-imex":    {},
	"cmd/vgpuctl":        {"kernel/rm", "kernel/vgpuctl"},
	"cmd/mock-ib":        {"profiles", "machine", "engine/change", "engine/state"},
	"generator":          {"nvml-headers"},
	"release":            {"profiles"},
	"nvml-headers":       {"generator/model"},
	"kernel":             {},
	"kernel/vm":          {"kernel", "machine", "profiles", "tests/debian"}, // tests in a virtual machine
	"shims":              {"library/host"},
	"tests":              nil, // tests may import anything
}

// allows reports whether a package is in a folder.
func allows(folder, target string) bool {
	return target == folder || strings.HasPrefix(target, folder+"/")
}

// forTestsOnly are packages that only tests may import, in addition to all of tests/.
var forTestsOnly = []string{"engine/enginetest", "kernel/vgpuctl/vgputest"}

// pure are the folders without cgo and unsafe; exempt are packages in them that may use unsafe.
var (
	pure   = []string{"handwritten", "engine", "profiles"}
	exempt = []string{"engine/state/word"}
)

// top are the files and folders at the top of the tree.
var top = strings.Fields(`generator nvml-headers generated library handwritten engine profiles machine shims cmd release
	kernel kubernetes tests docs Makefile go.mod go.sum README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md CODE_OF_CONDUCT.md LICENSE .ci .github action.yml
	.gitignore .gitattributes .clang-format`)

// pkg is a package as go list describes it.
type pkg struct {
	ImportPath, Name        string
	Imports, Deps, CgoFiles []string
}

// folder is the folder of a package, or empty if the package is not of this project.
func folder(importPath string) string {
	name, ours := strings.CutPrefix(importPath, module)
	if !ours {
		return ""
	}
	return name
}

func within(name string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return allows(f, name) })
}

// rule is the row of imports that applies to a package.
func rule(name string) (folder string, ok bool) {
	for f := name; f != "."; f = path.Dir(f) {
		if _, ok := imports[f]; ok {
			return f, true
		}
	}
	return "", false
}

// broken returns a line for each rule that the packages break.
func broken(packages []pkg) []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, p := range packages {
		name := folder(p.ImportPath)
		row, ok := rule(name)
		if !ok {
			fault("%s has no row in the table of imports", name)
			continue
		}
		own := row == "tests" || row == "kernel/vm"
		for _, i := range p.Imports {
			target := folder(i)
			switch {
			case target == "" || own:
			case target == "tests" || strings.HasPrefix(target, "tests/") || slices.Contains(forTestsOnly, target):
				fault("%s imports %s, which is for tests", name, target)
			case allows(row, target), within(target, imports[row]):
			default:
				fault("%s imports %s", name, target)
			}
		}
		if within(name, pure) {
			if len(p.CgoFiles) > 0 {
				fault("%s uses cgo in %s", name, p.CgoFiles)
			}
			if slices.Contains(p.Imports, "unsafe") && !within(name, exempt) {
				fault("%s uses unsafe", name)
			}
		}
		if name == "generated/abi" && len(p.CgoFiles) > 0 {
			fault("%s uses cgo", name)
		}
		if strings.HasPrefix(name, "cmd/") && p.Name != "main" {
			fault("%s is no program", name)
		}
		if p.Name == "main" && allows("generator", name) {
			for _, d := range p.Deps {
				if target := folder(d); within(target, []string{"handwritten", "engine", "library", "profiles", "generated"}) {
					fault("%s depends on %s", name, target)
				}
			}
		}
	}
	return faults
}

// list is go list over the whole module.
func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Name,Imports,Deps,CgoFiles", "./...")
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	var packages []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		packages = append(packages, p)
	}
	require.Greater(t, len(packages), 30)
	return packages
}

func TestImports(t *testing.T) {
	packages := list(t)
	for _, fault := range broken(packages) {
		t.Error(fault)
	}
	names := map[string]bool{}
	for _, p := range packages {
		names[folder(p.ImportPath)] = true
	}
	for _, name := range []string{"library/core", "generated/dispatch", "handwritten", "engine", "engine/host", "profiles"} {
		assert.True(t, names[name], name)
	}
}

// TestRulesBite: each rule finds a violation, and accepts what does not violate it.
func TestRulesBite(t *testing.T) {
	for want, p := range map[string]pkg{
		"profiles imports engine":                                  {Imports: []string{module + "engine"}},
		"engine imports handwritten":                               {Imports: []string{module + "handwritten"}},
		"engine/host imports profiles":                             {Imports: []string{module + "profiles"}},
		"engine/change imports engine":                             {Imports: []string{module + "engine"}},
		"engine/state/word imports engine":                         {Imports: []string{module + "engine"}},
		"handwritten imports generated/dispatch":                   {Imports: []string{module + "generated/dispatch"}},
		"machine imports engine":                                   {Imports: []string{module + "engine"}},
		"cmd/nvmlfab imports engine/simulate":                      {Imports: []string{module + "engine/simulate"}},
		"generator imports profiles":                               {Imports: []string{module + "profiles"}},
		"generator depends on engine":                              {Deps: []string{module + "engine"}},
		"generated/abi imports profiles":                           {Imports: []string{module + "profiles"}},
		"engine imports engine/enginetest, which is for tests":     {Imports: []string{module + "engine/enginetest"}},
		"shims/gpufilter imports tests/debian, which is for tests": {Imports: []string{module + "tests/debian"}},
		"novelty has no row in the table of imports":               {},
		"engine uses unsafe":                                       {Imports: []string{"unsafe"}},
		"profiles uses cgo in [c.go]":                              {CgoFiles: []string{"c.go"}},
		"cmd/vgpuctl is no program":                                {Name: "lib"},
	} {
		name, _, _ := strings.Cut(want, " ")
		p.ImportPath = module + name
		if p.Name == "" {
			p.Name = "main"
		}
		assert.Equal(t, []string{want}, broken([]pkg{p}))
	}
	assert.Empty(t, broken([]pkg{
		{ImportPath: module + "engine", Imports: []string{"fmt", module + "engine/host", module + "profiles"}},
		{ImportPath: module + "engine/state/word", Imports: []string{"unsafe"}},
		{ImportPath: module + "engine/enginetest", Imports: []string{module + "engine"}},
		{ImportPath: module + "tests/bench", Name: "main", Imports: []string{module + "engine/enginetest"}},
	}))
}

func TestTop(t *testing.T) {
	out, err := exec.Command("git", "-C", "../..", "ls-files", "-co", "--exclude-standard").Output()
	require.NoError(t, err)
	seen := map[string]bool{}
	for name := range strings.Lines(string(out)) {
		first, _, _ := strings.Cut(strings.TrimSpace(name), "/")
		seen[first] = true
	}
	require.True(t, seen["Makefile"])
	for name := range seen {
		assert.Contains(t, top, name, "the top of the tree has a place for everything")
	}
}

// TestGenerated: no file in generated/ is a copy of another file.
func TestGenerated(t *testing.T) {
	files := map[[32]byte][]string{}
	for _, dir := range top {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(p string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || err == nil && !d.Type().IsRegular() {
				return nil
			}
			text, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(text)
			files[sum] = append(files[sum], strings.TrimPrefix(p, "../../"))
			return nil
		})
		require.NoError(t, err)
	}
	generated := 0
	for _, same := range files {
		if slices.ContainsFunc(same, func(p string) bool { return strings.HasPrefix(p, "generated/") }) {
			generated++
			assert.Len(t, same, 1, "copies of one file")
		}
	}
	assert.Greater(t, generated, 5)
}
