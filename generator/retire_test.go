package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/generator/binding"
	"github.com/nvmlfab/nvmlfab/generator/registry"
)

// engineStub is what rendered code needs of the engine, with a type for every handle.
const engineStub = `package engine

import "github.com/nvmlfab/nvmlfab/generated/abi"

type Kind uint32

type Host interface {
	Getenv(name string) string
	Handles() (base uintptr, start, next uint64)
	Reserve(kind Kind) (number uint64, ok bool)
	Kind(number uint64) Kind
	Note(number uint64, kind Kind)
	Keep(config []byte)
	Kept() []byte
}

type handle struct{}

func (*handle) Handle() uintptr { return 0 }

type (
	Device          struct{ handle }
	Unit            struct{ handle }
	EventSet        struct{ handle }
	SystemEventSet  struct{ handle }
	GpuInstance     struct{ handle }
	ComputeInstance struct{ handle }
	GpmSample       struct{ handle }
)

func Use(Host)              {}
func Level() int            { return 0 }
func Restore() abi.Return   { return 0 }
func Object(uintptr) any    { return nil }
func Complain(error)        {}
`

// TestEveryStubCanBeRetired writes a function for each symbol, with the signature that the
// generator prescribes, and has the Go compiler prove the calls.
func TestEveryStubCanBeRetired(t *testing.T) {
	p := loaded(t)
	var source strings.Builder
	source.WriteString("package handwritten\n\nimport (\n\t\"github.com/nvmlfab/nvmlfab/generated/abi\"\n\t\"github.com/nvmlfab/nvmlfab/engine\"\n)\n\n")
	count := 0
	for _, s := range p.symbols {
		if !s.Retirable() || s.Func == nil || !inNewest(p, s) {
			continue
		}
		count++
		var results []string
		for i, r := range s.Results() {
			results = append(results, fmt.Sprintf("r%d %s", i, r))
		}
		fmt.Fprintf(&source, "func %s(%s) (%s) { return }\n", s.GoName(), strings.Join(s.Params(), ", "), strings.Join(results, ", "))
	}
	require.Greater(t, count, 430)

	scratch := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(scratch, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write("go.mod", "module github.com/nvmlfab/nvmlfab\n\ngo 1.26.0\n")
	write("handwritten/all.go", source.String())
	write("engine/engine.go", engineStub)
	require.NoError(t, os.CopyFS(filepath.Join(scratch, "library"), os.DirFS("../library")))
	p.root = scratch
	var err error
	p.registry, err = registry.Read(scratch, handDir, p.symbols)
	require.NoError(t, err)
	require.NoError(t, p.generate())

	cmd := exec.Command("go", "vet", "./...")
	cmd.Dir = scratch
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

// inNewest leaves out symbols whose types the newest header no longer has.
func inNewest(p *project, s *binding.Symbol) bool { return s.In(p.newest().NVML) }
