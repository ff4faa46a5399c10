package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvmlfab/nvmlfab/generator/binding"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestThreads: sixty-four threads initialise, call and shut down NVML while the core collects garbage.
func TestThreads(t *testing.T) {
	out := run(t, with(library, "GOGC=1"), coreProgram(t, "", "threads", linked()...), "500").succeeds(t)
	assert.Empty(t, out.stderr)
}

// TestThreadsFront runs the same threads with the front and a core in C, under ThreadSanitizer.
func TestThreadsFront(t *testing.T) {
	m, err := loadCoreModel()
	require.NoError(t, err)
	dir := t.TempDir()
	watched := []string{"-std=c11", "-O1", "-g", "-fPIC", "-fsanitize=thread", "-fvisibility=hidden", "-Wno-deprecated-declarations",
		"-I", "library/front", "-I", "library/host", "-I", "nvml-headers", "-I", filepath.Dir(header(t, ""))}
	shared := func(name string, args ...string) string {
		path := filepath.Join(dir, name)
		run(t, nil, "gcc", append(append(watched, "-shared", "-o", path), args...)...).succeeds(t)
		return path
	}
	var sources []string
	for _, folder := range []string{"generated/front", "library/front", "library/host"} {
		files, err := filepath.Glob(filepath.Join(root, folder, "*.c"))
		require.NoError(t, err)
		sources = append(sources, files...)
	}
	shared("libnvidia-ml.so.1", append(sources, "-Wl,-soname,libnvidia-ml.so.1", "-Wl,-z,nodelete")...)
	structs, err := os.ReadFile(filepath.Join(root, "library/core/shared.h"))
	require.NoError(t, err)
	core := []string{"tests/testdata/core/stubcore.c", fmt.Sprintf("-DMODEL_HASH=%#x", binding.Hash(m.symbols, structs))}
	for _, s := range m.symbols {
		core = append(core, fmt.Sprintf("-D%s_=%d", s.Name, s.Number))
	}
	stub := shared("core.so", core...)
	program := coreProgram(t, "", "threads", "-fsanitize=thread", "-L", dir, "-l:libnvidia-ml.so.1")

	// ThreadSanitizer cannot work with some randomised address spaces, so setarch -R turns the randomisation off.
	command := []string{"setarch", "-R", program, "200"}
	if exec.Command("setarch", "-R", "true").Run() != nil {
		command = command[2:]
	}
	out := run(t, with(dir, "NVMLFAB_CORE="+stub), command[0], command[1:]...).succeeds(t)
	assert.Empty(t, out.stderr)
}

// TestThreadsEngine runs every handwritten function under the race detector: while generations start and end, and while
// a thousand snapshots replace each other.
func TestThreadsEngine(t *testing.T) {
	m, err := loadCoreModel()
	require.NoError(t, err)
	dir := filepath.Join(root, "tests", "testdata", "core", "race")
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	replaced := map[string]string{}
	for name, text := range map[string][]byte{"calls_test.go": m.goCalls(), "table_test.go": m.goTable()} {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, text, 0o644))
		replaced[filepath.Join(dir, name)] = path
	}
	replace, err := json.Marshal(map[string]any{"Replace": replaced})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, replace, 0o644))
	out := run(t, nil, "go", "test", "-race", "-count=1", "-v", "-overlay", overlay, "./tests/testdata/core/race")
	t.Log(out.stdout)
	assert.Zero(t, out.code, "%s%s", out.stdout, out.stderr)
}

// goTable renders the arguments of every symbol that only reads: it leaves out what makes, takes or fills an object of the
// program, since no snapshot has that.
func (m *coreModel) goTable() []byte {
	var b bytes.Buffer
	b.WriteString("package race\n\nvar table = []entry{\n")
	changes := changing()
	for _, s := range m.symbols {
		name := m.registry.Func(s.Name)
		if name == "" || changes[name] || s.Kind == binding.Lifecycle || strings.Contains(s.Name, "EventSet") || strings.Contains(s.Name, "GpmSample") {
			continue
		}
		fmt.Fprintf(&b, "\t{%q, %d, []arg{", s.Name, s.Number)
		for _, a := range s.Args {
			var version uint32
			if len(a.Versions) > 0 {
				version = a.Versions[len(a.Versions)-1].Version
			}
			fmt.Fprintf(&b, "{%q, %d, %d, %d, %#x, %t}, ", a.Role, a.At, a.Size, max(a.Extent, m.size(s, a)), version,
				strings.Contains(strings.ToLower(a.Name), "busid"))
		}
		b.WriteString("}},\n")
	}
	b.WriteString("}\n")
	return b.Bytes()
}

// changing are the functions of handwritten that change the node: those that call Change, and those that call one of them.
func changing() map[string]bool {
	files, err := filepath.Glob(filepath.Join(root, "handwritten", "*.go"))
	if err != nil || len(files) == 0 {
		panic(fmt.Sprint("no files in handwritten: ", err))
	}
	calls := map[string]map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			panic(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			calls[f.Name.Name] = map[string]bool{}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					calls[f.Name.Name][n.Sel.Name] = true
				case *ast.Ident:
					calls[f.Name.Name][n.Name] = true
				}
				return true
			})
		}
	}
	changes := map[string]bool{"Change": true}
	for grew := true; grew; {
		grew = false
		for name, called := range calls {
			for other := range called {
				if changes[other] && !changes[name] {
					changes[name], grew = true, true
				}
			}
		}
	}
	return changes
}

// size is the size of what an argument points to, as the newest header has it.
func (m *coreModel) size(s *binding.Symbol, a binding.Arg) int64 {
	if a.Type.Stars == 0 {
		return 0
	}
	return s.Header.SizeOf(a.Type.Elem())
}

// goCalls renders a list with one call of every handwritten function, with the first values of its argument types.
func (m *coreModel) goCalls() []byte {
	var b bytes.Buffer
	b.WriteString(`package race

import (
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/handwritten"
	"github.com/nvmlfab/nvmlfab/engine"
)

var calls = []func(d *engine.Device, s *engine.EventSet, uuid string){
`)
	done := map[string]bool{"Init": true, "InitWithFlags": true, "Shutdown": true} // the test itself counts references
	for _, s := range m.symbols {
		name := m.registry.Func(s.Name)
		if name == "" || done[name] {
			continue
		}
		done[name] = true
		var args []string
		call := "handwritten.%s(%s)"
		for _, param := range s.Params() {
			p := param.String()
			switch {
			case p == "*engine.GpuInstance":
				p, call = "g", "for _, g := range instances(d) { handwritten.%s(%s) }"
			case p == "*engine.ComputeInstance":
				p, call = "c", "for _, c := range parts(d) { handwritten.%s(%s) }"
			case p == "*engine.Unit":
				p, call = "u", "for _, u := range d.Snapshot().Units { handwritten.%s(%s) }"
			case p == "*engine.GpmSample":
				p, call = "m", "for _, m := range samples(d) { handwritten.%s(%s) }"
			case p == "*engine.Device":
				p = "d"
			case p == "*engine.Snapshot":
				p = "d.Snapshot()"
			case p == "*engine.EventSet":
				p = "s"
			case p == "string":
				p = "uuid"
			case p[0] == '*':
				p = "new(" + p[1:] + ")"
			case strings.HasPrefix(p, "[]"):
				p = "make(" + p + ", 2)"
			default:
				p += "(1)"
			}
			args = append(args, p)
		}
		fmt.Fprintf(&b, "\tfunc(d *engine.Device, s *engine.EventSet, uuid string) { "+call+" },\n", name, strings.Join(args, ", "))
	}
	b.WriteString("}\n\nvar _ abi.Return\n")
	return b.Bytes()
}
