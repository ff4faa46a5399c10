package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/nvmlfab/nvmlfab/generator/binding"
	"github.com/nvmlfab/nvmlfab/generator/emit"
	"github.com/nvmlfab/nvmlfab/generator/model"
	"github.com/nvmlfab/nvmlfab/generator/registry"
	"github.com/nvmlfab/nvmlfab/generator/requirements"
	headers "github.com/nvmlfab/nvmlfab/nvml-headers"
)

// Paths below the root.
const (
	goldenDir = "generator/testdata"
	outDir    = "generated"
	handDir   = "handwritten"
	sharedH   = "library/core/shared.h"
)

// project is the data that every command uses.
type project struct {
	*binding.Models
	root     string
	symbols  []*binding.Symbol
	registry *registry.Registry
	requires *requirements.Table
	shared   []byte // the text of the structs that front and core share
}

// load reads the committed models and the handwritten functions.
func load(root string) (*project, error) {
	models, symbols, err := binding.Load(root)
	if err != nil {
		return nil, err
	}
	requires, err := requirements.Read(symbols)
	if err != nil {
		return nil, err
	}
	shared, err := os.ReadFile(filepath.Join(root, sharedH))
	if err != nil {
		return nil, err
	}
	functions, err := registry.Read(root, handDir, symbols)
	return &project{models, root, symbols, functions, requires, shared}, err
}

func (p *project) path(parts ...string) string {
	return filepath.Join(append([]string{p.root}, parts...)...)
}

// text is the text of a version's header, which is fetched and checked first.
func text(v headers.Version) ([]byte, error) {
	path, err := v.Path()
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// parse reads a version's header.
func parse(v headers.Version) (*model.Header, error) {
	text, err := text(v)
	if err != nil {
		return nil, err
	}
	return model.Parse(v.NVML, "nvml.h", text, headers.Internal)
}

// parseSlots reads nvidia-smi's table after the newest header.
func parseSlots() (*model.Header, error) {
	newest, err := headers.Find("")
	if err != nil {
		return nil, err
	}
	text, err := text(newest)
	if err != nil {
		return nil, err
	}
	return model.ParseSlots("nvml.h", text, headers.Slots)
}

// models renders the models of every version and of nvidia-smi's table from the headers, by file name.
func models() (map[string][]byte, error) {
	versions, err := headers.Versions()
	if err != nil {
		return nil, err
	}
	parsers := []func() (*model.Header, error){parseSlots}
	for _, v := range versions {
		parsers = append(parsers, func() (*model.Header, error) { return parse(v) })
	}
	list, err := binding.Each(parsers, func(parse func() (*model.Header, error)) (*model.Header, error) { return parse() })
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, h := range list {
		if out[h.NVML+".json"], err = h.JSON(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// slotDeclaration is the name of a function that slots.h declares.
var slotDeclaration = regexp.MustCompile(`\bnvmlInternalSlot[0-9]+\b`)

// newSlots is an error if slots.h declares a function that the model of it lacks: without the model nothing is generated for
// it, and nothing would say so.
func newSlots(known *model.Header, text []byte) error {
	for _, name := range slotDeclaration.FindAllString(string(text), -1) {
		if !slices.ContainsFunc(known.Functions, func(f *model.Function) bool { return f.Name == name }) {
			return fmt.Errorf("nvml-headers/slots.h declares %s, which is not in its model yet: run go run ./generator --update", name)
		}
	}
	return nil
}

// updateModels rewrites the models, and appends the numbers of symbols that are new.
func updateModels(root string) error {
	files, err := models()
	if err != nil {
		return err
	}
	if err := write(filepath.Join(root, binding.ModelDir), files); err != nil {
		return err
	}
	m, err := binding.ReadModels(root)
	if err != nil {
		return err
	}
	numbers, err := binding.ReadNumbers(filepath.Join(root, binding.NumbersFile))
	if err != nil {
		return err
	}
	numbers.Append(m)
	return write(root, map[string][]byte{binding.NumbersFile: numbers.Text()})
}

// input is what the emitters need for one version.
func (p *project) input(nvml string) emit.Input {
	in := emit.Input{Slots: p.Slots, Symbols: p.symbols, Func: p.registry.Func, Requires: p.requires.Of, Versions: p.Versions, Shared: p.shared, Headers: p.Headers}
	for i, v := range p.Versions {
		if v.NVML == nvml {
			in.Header = p.Headers[i]
		}
	}
	return in
}

func (p *project) newest() headers.Version { return p.Versions[len(p.Versions)-1] }

// render renders generated/ and checks the front against the header.
func (p *project) render() (emit.Files, error) {
	in := p.input(p.newest().NVML)
	out := emit.Files{}
	for _, part := range []func(emit.Input) (emit.Files, error){emit.ABI, emit.Dispatch, emit.Calls, p.front} {
		files, err := part(in)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, files)
	}
	return out, nil
}

// front renders a version's front and checks it against that version's header.
func (p *project) front(in emit.Input) (emit.Files, error) {
	v, err := headers.Find(in.Header.NVML)
	if err != nil {
		return nil, err
	}
	text, err := text(v)
	if err != nil {
		return nil, err
	}
	files := emit.Front(in)
	return files, emit.Verify(in, text, files)
}

func (p *project) generate() error {
	files, err := p.render()
	if err != nil {
		return err
	}
	stale, err := p.strays(files)
	if err != nil {
		return err
	}
	for _, name := range stale {
		if err := os.Remove(p.path(outDir, name)); err != nil {
			return err
		}
	}
	return write(p.path(outDir), files)
}

func (p *project) writeFront(v headers.Version, dir string) error {
	files, err := p.front(p.input(v.NVML))
	if err != nil {
		return err
	}
	return writeFlat(dir, files)
}

// writeTables writes what nvmlfab trace knows. It is not committed, since it says nothing that the models do not say.
func (p *project) writeTables(dir string) error {
	files, err := emit.Trace(p.input(p.newest().NVML))
	if err != nil {
		return err
	}
	return writeFlat(dir, files)
}

// writeFlat writes files into one folder.
func writeFlat(dir string, files emit.Files) error {
	flat := map[string][]byte{}
	for name, text := range files {
		flat[filepath.Base(name)] = text
	}
	return write(dir, flat)
}

// strays lists files in generated/ that the generator would not write.
func (p *project) strays(files emit.Files) ([]string, error) {
	var out []string
	err := filepath.WalkDir(p.path(outDir), func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(p.path(outDir), path)
		if _, known := files[filepath.ToSlash(name)]; !known {
			out = append(out, name)
		}
		return err
	})
	return out, err
}

// check compares all generated files with the committed ones.
func (p *project) check() error {
	var stale []string
	compare := func(dir string, files map[string][]byte) {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			have, err := os.ReadFile(p.path(dir, name))
			if err != nil || !bytes.Equal(have, files[name]) {
				stale = append(stale, filepath.Join(dir, name))
			}
		}
	}
	fresh, err := models()
	if err != nil {
		return err
	}
	compare(binding.ModelDir, fresh)
	compare(goldenDir, p.goldens())
	files, err := p.render()
	if err != nil {
		return err
	}
	compare(outDir, files)
	strays, err := p.strays(files)
	if err != nil {
		return err
	}
	for _, name := range strays {
		stale = append(stale, filepath.Join(outDir, name)+" (not generated)")
	}
	if len(stale) > 0 {
		return fmt.Errorf("stale, run go run ./generator --update:\n  %s", strings.Join(stale, "\n  "))
	}
	return nil
}

// write writes files below dir, but not those that are right already.
func write(dir string, files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name)
		if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, files[name]) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := renameio.WriteFile(path, files[name], 0o644, renameio.WithTempDir(filepath.Dir(path))); err != nil {
			return err
		}
	}
	return nil
}
