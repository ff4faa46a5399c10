package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/nvmlfab/nvmlfab/generator/binding"
	"github.com/nvmlfab/nvmlfab/generator/emit"
	"github.com/nvmlfab/nvmlfab/generator/model"
	"github.com/nvmlfab/nvmlfab/generator/registry"
	"github.com/nvmlfab/nvmlfab/generator/requirements"
	headers "github.com/nvmlfab/nvmlfab/nvml-headers"
)

// Where things stand below the root.
const (
	modelDir  = "nvml-headers/model"
	goldenDir = "generator/testdata"
	outDir    = "generated"
	handDir   = "handwritten"
)

// project is what every command works from.
type project struct {
	root     string
	versions []headers.Version
	headers  []*model.Header
	symbols  []*binding.Symbol
	registry *registry.Registry
	requires *requirements.Table
}

// load reads the committed models and the handwritten functions.
func load(root string) (*project, error) {
	versions, err := headers.Versions()
	if err != nil {
		return nil, err
	}
	p := &project{root: root, versions: versions}
	if p.headers, err = each(versions, func(v headers.Version) (*model.Header, error) {
		h, err := model.Read(p.path(modelDir, v.NVML+".json"))
		if err != nil {
			err = fmt.Errorf("%w; run go run ./generator --update", err)
		}
		return h, err
	}); err != nil {
		return nil, err
	}
	if p.symbols, err = binding.Bind(p.headers); err != nil {
		return nil, err
	}
	if p.requires, err = requirements.Read(p.symbols); err != nil {
		return nil, err
	}
	p.registry, err = registry.Read(root, handDir, p.symbols)
	return p, err
}

func (p *project) path(parts ...string) string {
	return filepath.Join(append([]string{p.root}, parts...)...)
}

// each maps versions in parallel and returns the first error.
func each[T any](versions []headers.Version, f func(headers.Version) (T, error)) ([]T, error) {
	out := make([]T, len(versions))
	errs := make([]error, len(versions))
	var wg sync.WaitGroup
	for i, v := range versions {
		wg.Go(func() { out[i], errs[i] = f(v) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// parse reads a version's header.
func parse(v headers.Version) (*model.Header, []byte, error) {
	path, err := v.Path()
	if err != nil {
		return nil, nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	h, err := model.Parse(v.NVML, "nvml.h", text, headers.Internal)
	return h, text, err
}

// models renders the golden of every version from its header.
func models() (map[string][]byte, error) {
	versions, err := headers.Versions()
	if err != nil {
		return nil, err
	}
	texts, err := each(versions, func(v headers.Version) ([]byte, error) {
		h, _, err := parse(v)
		if err != nil {
			return nil, err
		}
		return h.JSON()
	})
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for i, v := range versions {
		out[v.NVML+".json"] = texts[i]
	}
	return out, nil
}

func updateModels(root string) error {
	files, err := models()
	if err != nil {
		return err
	}
	return write(filepath.Join(root, modelDir), files)
}

// input is what the emitters need for one version.
func (p *project) input(nvml string) emit.Input {
	in := emit.Input{Symbols: p.symbols, Func: p.registry.Func, Requires: p.requires.Of}
	for i, v := range p.versions {
		in.Versions = append(in.Versions, v.NVML)
		in.Drivers = append(in.Drivers, v.Driver)
		if v.NVML == nvml {
			in.Header = p.headers[i]
		}
	}
	return in
}

func (p *project) newest() headers.Version { return p.versions[len(p.versions)-1] }

// render makes the content of generated/ and proves the front against the header.
func (p *project) render() (emit.Files, error) {
	in := p.input(p.newest().NVML)
	out := emit.Files{}
	for _, part := range []func(emit.Input) (emit.Files, error){emit.ABI, emit.Dispatch, p.front} {
		files, err := part(in)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, files)
	}
	return out, nil
}

// front renders a version's front and reads it back against that version's header.
func (p *project) front(in emit.Input) (emit.Files, error) {
	v, err := headers.Find(in.Header.NVML)
	if err != nil {
		return nil, err
	}
	path, err := v.Path()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	files := emit.Front(in)
	return files, emit.Verify(in.Header, text, files["front/front.c"])
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

// check compares everything that is generated with what is committed.
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
	compare(modelDir, fresh)
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

// write stores files below dir, leaving those that are right untouched.
func write(dir string, files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name)
		if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, files[name]) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}
