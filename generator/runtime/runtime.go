// Package runtime carries the parts of the front and the core that no header decides:
// the call gate, the loader, handles, fork and signals in C, and the core's end of the
// gate in Go. The generator copies them into generated/.
package runtime

import (
	"embed"
	"fmt"
	"path"
	"strings"
)

//go:embed front core
var files embed.FS

// C returns the C sources of the front by file name.
func C() (map[string][]byte, error) { return read("front") }

// Internal declares, as C, what libnvidia-ml.so answers and no nvml.h declares. It is read
// after every header.
//
//go:embed front/internal.h
var Internal []byte

// ignored keeps the Go sources out of builds until they stand in generated/.
const ignored = "//go:build ignore\n"

// Go returns the Go sources of the core by file name.
func Go() (map[string][]byte, error) {
	out, err := read("core")
	if err != nil {
		return nil, err
	}
	for name, text := range out {
		rest, ok := strings.CutPrefix(string(text), ignored)
		if !ok {
			return nil, fmt.Errorf("generator/runtime/core/%s does not begin with %q", name, ignored)
		}
		out[name] = []byte(rest)
	}
	return out, nil
}

func read(dir string) (map[string][]byte, error) {
	entries, err := files.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read runtime sources: %w", err)
	}
	out := map[string][]byte{}
	for _, e := range entries {
		if out[e.Name()], err = files.ReadFile(path.Join(dir, e.Name())); err != nil {
			return nil, fmt.Errorf("read runtime sources: %w", err)
		}
	}
	return out, nil
}
