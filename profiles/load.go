package profiles

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// maxFile is the largest size of a profile file.
const maxFile = 4 << 20

// top is how messages call the outermost level of a file.
const top = "the profile"

// Load reads a profile file. Every error is an [*Error] and names the file, and the line if it
// could be read.
func Load(path string) (*Board, error) {
	data, err := Read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Read returns the text of a profile file, for Parse. Its error is an [*Error].
func Read(path string) ([]byte, error) {
	data, err := read(path)
	if err != nil {
		return nil, &Error{path, 0, err.Error()}
	}
	return data, nil
}

func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil, errors.New("is a directory: want a file")
	case err == nil && !info.Mode().IsRegular():
		return nil, errors.New("is not a regular file") // a pipe or a device may never end
	case err == nil && info.Size() > maxFile:
		return nil, errTooBig
	}
	f, err := os.Open(path)
	if err != nil {
		var pathErr *fs.PathError
		if errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	return data, nil
}

var errTooBig = fmt.Errorf("is larger than %d MiB: want a smaller file", maxFile>>20)

// Parse reads a profile from memory. Errors name it by name; all of them are an [*Error].
func Parse(name string, data []byte) (*Board, error) { return parse(name, data, Shipped) }

// parse is Parse; base returns the boards that extends may name, also in an entry of devices.
func parse(name string, data []byte, base func(string) (*Board, error)) (*Board, error) {
	s := stack{boards: base}
	if err := s.file(name, data); err != nil {
		return nil, err
	}
	return s.board, nil
}

// boardName is the name of a board from a file.
func boardName(path string) string {
	return strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".yaml"), ".yml")
}

// maxDocuments bounds the number of documents, since each may change all devices.
const maxDocuments = 64

// documents parses YAML into mappings: one for the profile and one for each layer.
func documents(data []byte) ([]*yaml.Node, error) {
	if len(data) > maxFile {
		return nil, errTooBig
	}
	for i, line := 0, 1; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return nil, &Error{Line: line, Text: "is not text in UTF-8"}
		case r == '\n':
			line++
		case unicode.IsControl(r) && r != '\t' && r != '\r':
			return nil, &Error{Line: line, Text: fmt.Sprintf("holds the control character %q: want a text file", r)}
		}
		i += size
	}
	var roots []*yaml.Node
	for dec := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, Syntax(err, data)
		}
		root := resolve(doc.Content[0])
		switch {
		case root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" && len(roots) == 0:
			return nil, errEmpty
		case root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null":
			return nil, wrong(root, "nothing follows this ---: take it away, or write what changes")
		case root.Kind != yaml.MappingNode:
			return nil, wrong(root, "want the sections of a profile, got %s", kind(root))
		case len(roots) == maxDocuments:
			return nil, wrong(root, "a profile has at most %d documents", maxDocuments)
		}
		roots = append(roots, root)
	}
	if len(roots) == 0 {
		return nil, errEmpty
	}
	return roots, nil
}

var errEmpty = errors.New("is empty: want at least extends or devices")

// Syntax takes the line from an error of the YAML parser about some text, or finds it if the parser does not say.
func Syntax(err error, data []byte) error {
	text, ok := strings.CutPrefix(err.Error(), "yaml: ")
	if !ok {
		return err
	}
	text, _, _ = strings.Cut(text, "\n")
	line := 0
	if number, rest, ok := strings.Cut(strings.TrimPrefix(text, "line "), ": "); ok && strings.HasPrefix(text, "line ") {
		if n, err := strconv.Atoi(number); err == nil {
			line, text = n, rest
		}
	}
	if strings.HasPrefix(text, "did not find expected") { // such errors count lines from 0
		line++
	}
	if anchor, ok := strings.CutPrefix(text, "unknown anchor '"); ok {
		anchor, _, _ = strings.Cut(anchor, "' referenced")
		before, _, _ := bytes.Cut(data, []byte("*"+anchor))
		line = 1 + bytes.Count(before, []byte("\n"))
		text = "unknown anchor '" + short(anchor) + "' referenced"
	}
	last := 1 + bytes.Count(bytes.TrimRight(data, "\n"), []byte("\n"))
	return &Error{Line: min(max(line, 1), last), Text: "is not YAML: " + text}
}
