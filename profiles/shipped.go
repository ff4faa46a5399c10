package profiles

import (
	"bytes"
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"
)

//go:embed boards/*.yaml
var sources embed.FS

//go:embed schema.json
var schema []byte

// Default is the board that is used when nothing names another.
const Default = "h100"

// Names lists the shipped boards.
func Names() []string {
	var names []string
	entries, _ := sources.ReadDir("boards") // an embedded folder can always be read
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".yaml"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names) // files are sorted with their endings, which puts h100-nvl.yaml before h100.yaml
	return names
}

// Shipped returns a shipped board, without reading any YAML. The caller owns it.
func Shipped(name string) (*Board, error) {
	if board, ok := shipped[name]; ok {
		return board(), nil
	}
	return nil, unknownBoard(name, slices.Sorted(maps.Keys(shipped)))
}

// Source returns the YAML text of a shipped board.
func Source(name string) ([]byte, error) {
	if names := Names(); !slices.Contains(names, name) {
		return nil, unknownBoard(name, names)
	}
	return sources.ReadFile("boards/" + name + ".yaml")
}

// ParseSource reads a shipped board from its YAML text. The compiled-in boards are made from it.
func ParseSource(name string) (*Board, error) { return parseChain(name, Source, nil) }

// parseChain parses a board and those that it extends. chain are the boards that extend it, so that a cycle is an error.
func parseChain(name string, source func(string) ([]byte, error), chain []string) (*Board, error) {
	if slices.Contains(chain, name) {
		return nil, fmt.Errorf("goes round in a circle: %s", strings.Join(append(chain, name), ", "))
	}
	data, err := source(name)
	if err != nil {
		return nil, err
	}
	return parse(name+".yaml", data, func(base string) (*Board, error) {
		return parseChain(base, source, append(chain, name))
	})
}

// Schema returns the JSON Schema of profile files, for editors.
func Schema() []byte { return bytes.Clone(schema) }

func unknownBoard(name string, known []string) error {
	best, least := "", 3
	for _, k := range known {
		if n := distance(name, k); n < least {
			best, least = k, n
		}
	}
	if best == "" {
		return fmt.Errorf("unknown board %s: want one of %s", quote(name), strings.Join(known, ", "))
	}
	return fmt.Errorf("unknown board %s: did you mean %q?", quote(name), best)
}
