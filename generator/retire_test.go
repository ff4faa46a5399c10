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

// allRetired is a copy of the project with a Go function of the prescribed signature for each symbol.
func allRetired(t *testing.T) *project {
	t.Helper()
	p := loaded(t)
	var source strings.Builder
	source.WriteString("package handwritten\n\nimport (\n\t\"github.com/nvmlfab/nvmlfab/generated/abi\"\n\t\"github.com/nvmlfab/nvmlfab/engine\"\n)\n\n")
	count := 0
	for _, s := range p.symbols {
		if !s.Retirable() || s.Func == nil || !inNewest(p, s) {
			continue
		}
		count++
		var params, results []string
		for _, p := range s.Params() {
			params = append(params, p.String())
		}
		for i, r := range s.Results() {
			results = append(results, fmt.Sprintf("r%d %s", i, r))
		}
		fmt.Fprintf(&source, "func %s(%s) (%s) { return }\n", s.GoName(), strings.Join(params, ", "), strings.Join(results, ", "))
	}
	require.Greater(t, count, 430)

	scratch := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(scratch, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write("handwritten/all.go", source.String())
	for _, dir := range []string{"engine", "library", "profiles"} {
		require.NoError(t, os.CopyFS(filepath.Join(scratch, dir), os.DirFS(filepath.Join(p.root, dir))))
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(p.root, name))
		require.NoError(t, err)
		write(name, string(text))
	}
	p.root = scratch
	var err error
	p.registry, err = registry.Read(scratch, handDir, p.symbols)
	require.NoError(t, err)
	return p
}

// TestEveryStubCanBeRetired: the Go compiler accepts the dispatch of all symbols with the engine as it is.
func TestEveryStubCanBeRetired(t *testing.T) {
	p := allRetired(t)
	require.NoError(t, p.generate())

	cmd := exec.Command("go", "vet", "./library/...", "./generated/...", "./handwritten")
	cmd.Dir = p.root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

// inNewest reports whether the newest header still has the symbol, and so its types.
func inNewest(p *project, s *binding.Symbol) bool { return s.In(p.newest().NVML) }
