package profiles

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Block is keys of a profile and their values, in another file than a profile. A section may be written as a key with dots
// or as a mapping.
type Block struct {
	Keys Settings
	// Lines are the lines of the keys.
	Lines map[string]int
	err   error
}

// keep takes the block as it stands. What is wrong with it is told by Check.
func (b *Block) keep(n *yaml.Node) {
	*b = Block{Keys: Settings{}, Lines: map[string]int{}}
	b.err = b.take("", n, 0)
}

func (b *Block) take(in string, n *yaml.Node, depth int) error {
	n = resolve(n)
	if n.Kind != yaml.MappingNode || depth > maxDepth {
		return wrong(n, "want keys of a profile and their values, got %s", kind(n))
	}
	var d decoder
	pairs, err := d.pairs(n, "the keys", 0)
	if err != nil {
		return err
	}
	for _, p := range pairs {
		key := in + p.key.Value
		value := resolve(p.value)
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 {
			if err := b.take(key+".", value, depth+1); err != nil {
				return err
			}
			continue
		}
		if value.Kind == yaml.ScalarNode && value.ShortTag() == "!!null" && value.Value == "" {
			return empty(value, key)
		}
		if first, twice := b.Lines[key]; twice {
			return wrong(p.key, "key %q given twice, first in line %d", key, first)
		}
		v, err := valueOf(value, 0)
		if err != nil {
			return wrong(value, "%s: %s", key, err)
		}
		b.Keys[key], b.Lines[key] = v, p.key.Line
	}
	return nil
}

// Check finds out whether the keys exist. The error has the line but not the file.
func (b *Block) Check() error {
	if b.err != nil {
		return b.err
	}
	for _, key := range slices.Sorted(maps.Keys(b.Keys)) {
		if err := Known(key); err != nil {
			return &Error{Line: b.Lines[key], Text: err.Error()}
		}
	}
	return nil
}

// CheckProcess finds out whether the keys are those of a process.
func (b *Block) CheckProcess() error {
	if b.err != nil {
		return b.err
	}
	if _, err := ProcessOf(b.Keys); err != nil {
		line := 0
		for _, l := range b.Lines {
			if line == 0 || l < line {
				line = l
			}
		}
		return &Error{Line: line, Text: err.Error()}
	}
	return nil
}

// Decode reads a file of one document into a struct as strictly as a profile, by the same tags. Every error names file and
// line.
func Decode(name string, text []byte, out any) error {
	roots, err := documents(text)
	if err == nil && len(roots) > 1 {
		err = wrong(roots[1], "want one document, got %d", len(roots))
	}
	if err == nil {
		var d decoder
		err = d.over(roots[0], out, top)
	}
	if err != nil {
		e := named(name, err)
		if errors.Is(err, errEmpty) {
			e.Text = "is empty"
		}
		e.Text = strings.TrimPrefix(strings.Replace(e.Text, " in "+top, "", 1), top+": ")
		return e
	}
	return nil
}
