// Compile turns the boards in profiles/boards/*.yaml into Go literals, so that no program parses YAML to serve a shipped board,
// and the Go types of a profile into a JSON Schema, so that editors can complete and check one, and into docs/profile-keys.md.
//
//	go run -tags bootstrap ./profiles/compile [-check] [-dir profiles]
//
// The tag leaves the present literals out: they may not compile any more when the types have changed.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

func main() {
	dir := flag.String("dir", "profiles", "folder of the boards")
	check := flag.Bool("check", false, "write nothing; fail when the files are stale")
	flag.Parse()
	if err := run(*dir, *check); err != nil {
		fmt.Fprintln(os.Stderr, "compile:", err)
		os.Exit(1)
	}
}

func run(dir string, check bool) error {
	outputs, err := compile(dir)
	if err != nil {
		return err
	}
	for name, want := range outputs {
		path := filepath.Join(dir, name)
		have, err := os.ReadFile(path)
		switch {
		case err == nil && bytes.Equal(have, want):
		case check:
			return fmt.Errorf("%s is stale: run go generate ./profiles", path)
		default:
			if err := renameio.WriteFile(path, want, 0o644, renameio.WithTempDir(filepath.Dir(path))); err != nil {
				return err
			}
		}
	}
	return nil
}

// compile returns the generated files by name.
func compile(dir string) (map[string][]byte, error) {
	boards, err := boards()
	if err != nil {
		return nil, err
	}
	schema, err := schema(dir)
	if err != nil {
		return nil, err
	}
	keys, err := reference(schema)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"boards_gen.go": boards, "schema.json": schema, "../docs/profile-keys.md": keys}, nil
}
