// Package registry finds the handwritten functions that retire stubs. It reads Go source without type-checking it, so
// that it works while the code does not compile, and compares every signature with the one that the C prototype
// prescribes.
package registry

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/generator/binding"
	"github.com/nvmlfab/nvmlfab/generator/model"
)

// Directive is the start of the comment that lists the symbols which a function answers.
const Directive = "//nvml:symbol "

// Registry maps symbols to the Go functions that answer them.
type Registry struct {
	symbols map[string]function
}

type function struct {
	name string
	pos  token.Position
}

// Func is the name of the Go function that answers a symbol, "" for a stub.
func (r *Registry) Func(symbol string) string { return r.symbols[symbol].name }

// Where is the position of the function that answers a symbol.
func (r *Registry) Where(symbol string) string { return r.symbols[symbol].pos.String() }

// reader collects the declarations of the files.
type reader struct {
	registry *Registry
	byName   map[string]*binding.Symbol
	aliases  map[string]string // Go name of a C alias → Go name of its type
	fset     *token.FileSet
	root     string
	problems []problem
}

type problem struct {
	pos  token.Position
	text string
}

// Read parses the Go files of dir, a folder below root. Positions are relative to root.
func Read(root, dir string, symbols []*binding.Symbol) (*Registry, error) {
	r := &reader{
		registry: &Registry{symbols: map[string]function{}},
		byName:   map[string]*binding.Symbol{},
		aliases:  map[string]string{},
		fset:     token.NewFileSet(),
		root:     root,
	}
	for _, s := range symbols {
		r.byName[s.Name] = s
		for _, t := range s.Header.Types {
			if t.Kind == model.Alias {
				r.aliases[binding.GoName(t.Name)] = binding.GoName(s.Header.Type(t.Name).Name)
			}
		}
	}
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		return nil, fmt.Errorf("read handwritten functions: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		name := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, fmt.Errorf("read handwritten functions: %w", err)
		}
		file, err := parser.ParseFile(r.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err // the error has the position
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				r.function(f)
			}
		}
	}
	return r.registry, r.err()
}

func (r *reader) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems, func(a, b problem) int {
		if c := strings.Compare(a.pos.Filename, b.pos.Filename); c != 0 {
			return c
		}
		return a.pos.Line - b.pos.Line
	})
	lines := make([]string, len(r.problems))
	for i, p := range r.problems {
		lines[i] = fmt.Sprintf("%s: %s", p.pos, p.text)
	}
	return fmt.Errorf("%s", strings.Join(lines, "\n"))
}

func (r *reader) complain(pos token.Pos, format string, args ...any) {
	r.problems = append(r.problems, problem{r.fset.Position(pos), fmt.Sprintf(format, args...)})
}

// function registers f for the symbols that it answers.
func (r *reader) function(f *ast.FuncDecl) {
	names, at := directive(f)
	if names == nil {
		if !f.Name.IsExported() {
			return
		}
		names, at = []string{"nvml" + f.Name.Name}, f.Name.Pos()
	}
	for _, name := range names {
		s := r.byName[name]
		if s == nil {
			r.complain(at, "%s: no nvml.h declares %s%s", f.Name.Name, name, r.nearest(name))
			continue
		}
		if first, ok := r.registry.symbols[name]; ok {
			r.complain(f.Name.Pos(), "%s: %s is already answered by %s at %s; keep one of them", f.Name.Name, name, first.name, first.pos)
			continue
		}
		r.registry.symbols[name] = function{f.Name.Name, r.fset.Position(f.Name.Pos())}
		r.check(f, s)
	}
}

// directive returns the symbols after //nvml:symbol, nil without one.
func directive(f *ast.FuncDecl) ([]string, token.Pos) {
	if f.Doc == nil {
		return nil, 0
	}
	for _, c := range f.Doc.List {
		if rest, ok := strings.CutPrefix(c.Text, Directive); ok {
			return strings.Fields(rest), c.Pos()
		}
	}
	return nil, 0
}

// nearest suggests the symbol that a misspelt name probably meant.
func (r *reader) nearest(name string) string {
	best, distance := "", 4
	for s := range r.byName {
		if d := editDistance(strings.ToLower(name), strings.ToLower(s)); d < distance || d == distance && s < best {
			best, distance = s, d
		}
	}
	if best == "" {
		return "; helpers that answer no symbol are unexported"
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// check compares f with the signature that the prototype of s prescribes.
func (r *reader) check(f *ast.FuncDecl, s *binding.Symbol) {
	if !s.Retirable() {
		r.complain(f.Name.Pos(), "%s: %s is answered in C by the front; no Go function can", f.Name.Name, s.Name)
		return
	}
	wants := fmt.Sprintf("%s wants %s", s.Func.Prototype(), strings.Replace(s.Signature(), s.GoName(), f.Name.Name, 1))
	r.compare(f, "parameter", f.Type.Params, s.Params(), wants)
	r.compare(f, "result", f.Type.Results, s.Results(), wants)
}

func (r *reader) compare(f *ast.FuncDecl, what string, list *ast.FieldList, want []binding.GoType, wants string) {
	type item struct {
		text string
		pos  token.Pos
	}
	var have []item
	if list != nil {
		for _, field := range list.List {
			for range max(1, len(field.Names)) {
				have = append(have, item{types.ExprString(field.Type), field.Type.Pos()})
			}
		}
	}
	if len(have) != len(want) {
		r.complain(f.Name.Pos(), "%s has %s, wants %d; %s", f.Name.Name, plural(len(have), what), len(want), wants)
		return
	}
	for i, h := range have {
		if r.canonical(h.text) != r.canonical(want[i].String()) {
			r.complain(h.pos, "%s: %s %d is %s, wants %s; %s", f.Name.Name, what, i+1, h.text, want[i], wants)
		}
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

var abiName = regexp.MustCompile(`\babi\.(\w+)`)

// canonical follows the aliases of C types: abi.ProcessInfo_t is abi.ProcessInfo_v2_t.
func (r *reader) canonical(text string) string {
	return abiName.ReplaceAllStringFunc(text, func(s string) string {
		if first, ok := r.aliases[strings.TrimPrefix(s, "abi.")]; ok {
			return "abi." + first
		}
		return s
	})
}
