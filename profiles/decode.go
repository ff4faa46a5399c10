package profiles

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// These limits keep a hostile file from occupying its reader: with aliases a short file can describe a very large
// profile.
const (
	maxNodes = 1_000_000
	maxDepth = 50
)

// Error is a mistake in a profile.
type Error struct {
	File string
	Line int
	Text string
}

func (e *Error) Error() string {
	if e.Line == 0 { // an error in a flag
		return fmt.Sprintf("%s: %s", e.File, e.Text)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text)
}

func empty(n *yaml.Node, path string) error {
	return wrong(n, "%s is empty: fill it in, write N/A for what the board does not have, or leave it out", path)
}

func wrong(n *yaml.Node, format string, args ...any) error {
	return &Error{Line: n.Line, Text: fmt.Sprintf(format, args...)}
}

// raw is a part of a file that is decoded later as a T, when the value that it changes is known.
type raw[T any] struct{ node *yaml.Node }

func (r *raw[T]) keep(n *yaml.Node) { r.node = n }

// slot gives the decoder access to an Opt of any type.
func (o *Opt[T]) slot() (value any, valid *bool) { return &o.Value, &o.Valid }

// decoder applies YAML to Go values: values that the YAML does not mention stay.
type decoder struct{ nodes int }

func (d *decoder) over(n *yaml.Node, out any, path string) error {
	return d.value(n, reflect.ValueOf(out).Elem(), field{}, path, 0)
}

func (d *decoder) value(n *yaml.Node, out reflect.Value, f field, path string, depth int) error {
	n = resolve(n)
	if d.nodes++; d.nodes > maxNodes || depth > maxDepth {
		return wrong(n, "%s: the file's aliases describe more than a profile can hold", path)
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" && n.Value == "" {
		return empty(n, path)
	}
	if r, ok := out.Addr().Interface().(interface{ keep(*yaml.Node) }); ok {
		r.keep(n)
		return nil
	}
	opt, isOpt := out.Addr().Interface().(interface{ slot() (any, *bool) })
	u, isText := out.Addr().Interface().(encoding.TextUnmarshaler)
	if absent(n) && (isOpt || out.Kind() == reflect.Slice || out.Kind() == reflect.Struct && !isText) {
		out.SetZero()
		return nil
	}
	if isOpt {
		value, valid := opt.slot()
		*valid = true
		return d.value(n, reflect.ValueOf(value).Elem(), f, path, depth+1)
	}
	if isText {
		_, listed := u.(interface{ list() })
		switch {
		case listed && n.Kind == yaml.SequenceNode:
			return d.sequence(n, out, f, path, depth)
		case listed && n.Kind != yaml.ScalarNode:
			return wrong(n, "%s: want a list or text, got %s", path, kind(n))
		case n.Kind != yaml.ScalarNode:
			return wrong(n, "%s: want text, got %s", path, kind(n))
		}
		if err := u.UnmarshalText([]byte(n.Value)); err != nil {
			return wrong(n, "%s: %s", path, err)
		}
		if out.Kind() == reflect.Slice {
			d.nodes += out.Len() // counts like a list of as many nodes
		}
		return nil
	}
	switch out.Kind() {
	case reflect.Struct:
		return d.mapping(n, out, path, depth)
	case reflect.Slice:
		return d.sequence(n, out, f, path, depth)
	default:
		return scalar(n, out, f, path)
	}
}

func (d *decoder) mapping(n *yaml.Node, out reflect.Value, path string, depth int) error {
	pairs, err := d.pairs(n, path, depth)
	if err != nil {
		return err
	}
	known := fields(out.Type())
	for _, p := range pairs {
		f, ok := known.byKey[p.key.Value]
		if !ok {
			return unknownKey(p.key, path, known.byKey)
		}
		if f.alias && find(n, f.name) != nil {
			return wrong(p.key, "%s and %s are the same: keep one", f.name, p.key.Value)
		}
		if err := d.value(p.value, out.FieldByIndex(f.index), f, join(path, p.key.Value), depth+1); err != nil {
			return err
		}
	}
	for _, key := range known.required {
		if !slices.ContainsFunc(pairs, func(p pair) bool { return p.key.Value == key }) {
			return wrong(n, "%s: %s is missing", path, key)
		}
	}
	return nil
}

func (d *decoder) sequence(n *yaml.Node, out reflect.Value, f field, path string, depth int) error {
	if n.Kind != yaml.SequenceNode {
		return wrong(n, "%s: want a list, got %s", path, kind(n))
	}
	out.SetZero() // a list replaces the earlier one, which other devices share
	for i, item := range n.Content {
		if absent(resolve(item)) {
			return wrong(item, "%s[%d]: an entry of a list cannot be absent", path, i)
		}
		v := reflect.New(out.Type().Elem()).Elem()
		if err := d.value(item, v, f, fmt.Sprintf("%s[%d]", path, i), depth+1); err != nil {
			return err
		}
		out.Set(reflect.Append(out, v))
	}
	return nil
}

// pair is one key of a mapping and its value.
type pair struct{ key, value *yaml.Node }

// pairs lists a mapping's keys, then those of <<. A key that occurs twice is an error.
func (d *decoder) pairs(n *yaml.Node, path string, depth int) ([]pair, error) {
	n = resolve(n)
	if n.Kind != yaml.MappingNode {
		return nil, wrong(n, "%s: want keys and values, got %s", path, kind(n))
	}
	var own, merged []pair
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolve(n.Content[i]), resolve(n.Content[i+1])
		if d.nodes++; d.nodes > maxNodes || depth > maxDepth {
			return nil, wrong(n, "%s: the file's aliases describe more than a profile can hold", path)
		}
		if key.Kind != yaml.ScalarNode {
			return nil, wrong(key, "%s: want a name as key, got %s", path, kind(key))
		}
		if first, ok := seen[key.Value]; ok {
			return nil, wrong(key, "key %s given twice in %s, first in line %d", quote(key.Value), path, first)
		}
		seen[key.Value] = key.Line
		if key.ShortTag() != "!!merge" {
			own = append(own, pair{key, value})
			continue
		}
		sources := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			sources = value.Content
		}
		for _, source := range sources {
			more, err := d.pairs(source, path, depth+1)
			if err != nil {
				return nil, err
			}
			merged = append(merged, more...)
		}
	}
	for _, p := range merged {
		if _, ok := seen[p.key.Value]; !ok {
			seen[p.key.Value] = p.key.Line
			own = append(own, p)
		}
	}
	return own, nil
}

// field is a key of a struct.
type field struct {
	name     string // the key, also for an alias
	alias    bool
	index    []int
	enum     [][]string // a word and its synonyms each
	bounded  bool
	min, max float64
	longest  int  // bytes of a text, 0 for any number
	version  bool // a text of numbers between dots
	fixed    bool // nothing changes it while programs run
}

// fieldSet is the keys of a struct.
type fieldSet struct {
	byKey    map[string]field
	required []string
}

var fieldCache sync.Map // reflect.Type → fieldSet

func fields(t reflect.Type) fieldSet {
	if known, ok := fieldCache.Load(t); ok {
		return known.(fieldSet)
	}
	known := fieldSet{byKey: map[string]field{}}
	for _, sf := range reflect.VisibleFields(t) {
		key, ok := sf.Tag.Lookup("yaml")
		if !ok {
			continue
		}
		if _, ok := sf.Tag.Lookup("required"); ok {
			known.required = append(known.required, key)
		}
		f := field{name: key, index: sf.Index}
		if words, ok := sf.Tag.Lookup("enum"); ok {
			for word := range strings.SplitSeq(words, ",") {
				f.enum = append(f.enum, strings.Split(word, "="))
			}
		}
		if bounds, ok := sf.Tag.Lookup("range"); ok {
			least, most, _ := strings.Cut(bounds, "..")
			f.min, _ = strconv.ParseFloat(least, 64)
			f.max, _ = strconv.ParseFloat(most, 64)
			f.bounded = true
		}
		f.longest, _ = strconv.Atoi(sf.Tag.Get("longest"))
		f.version = sf.Tag.Get("form") == "version"
		f.fixed = sf.Tag.Get("fixed") == "yes"
		known.byKey[key] = f
		if also, ok := sf.Tag.Lookup("also"); ok {
			f.alias = true
			known.byKey[also] = f
		}
	}
	fieldCache.Store(t, known)
	return known
}

func scalar(n *yaml.Node, out reflect.Value, f field, path string) error {
	tag := n.ShortTag()
	if n.Kind != yaml.ScalarNode {
		tag = ""
	}
	switch {
	case out.Kind() == reflect.String && tag == "!!str":
		return text(n, out, f, path)
	case out.Kind() == reflect.String && tag == "!!int", out.Kind() == reflect.String && tag == "!!float":
		return wrong(n, "%s: want text, got the number %s: put it in quotes", path, short(n.Value))
	case out.Kind() == reflect.Bool && tag == "!!bool":
		out.SetBool(strings.EqualFold(n.Value, "true"))
		return nil
	case out.CanFloat() && (tag == "!!int" || tag == "!!float"):
		x, err := strconv.ParseFloat(n.Value, 64)
		if err != nil || math.IsInf(x, 0) || math.IsNaN(x) {
			return wrong(n, "%s: want a number, got %s", path, quote(n.Value))
		}
		out.SetFloat(x)
		return f.bounds(n, x, path)
	case (out.CanInt() || out.CanUint()) && tag == "!!int":
		return integer(n, out, f, path)
	}
	want := map[reflect.Kind]string{reflect.String: "text", reflect.Bool: "true or false", reflect.Float64: "a number"}[out.Kind()]
	if want == "" {
		want = "a whole number"
	}
	return wrong(n, "%s: want %s, got %s", path, want, kind(n))
}

func integer(n *yaml.Node, out reflect.Value, f field, path string) error {
	bits, digits := out.Type().Bits(), strings.ReplaceAll(n.Value, "_", "")
	if len(digits) > 1 && digits[0] == '0' && digits[1] <= '9' { // YAML reads it as octal, people as decimal
		return wrong(n, "%s: %s: a number does not start with 0", path, short(n.Value))
	}
	if out.CanInt() {
		i, err := strconv.ParseInt(digits, 0, bits)
		if err != nil {
			return wrong(n, "%s: %s is outside %d..%d", path, short(n.Value), -1<<(bits-1), 1<<(bits-1)-1)
		}
		out.SetInt(i)
		return f.bounds(n, float64(i), path)
	}
	u, err := strconv.ParseUint(digits, 0, bits)
	if err != nil {
		return wrong(n, "%s: %s is outside 0..%d", path, short(n.Value), uint64(math.MaxUint64)>>(64-bits))
	}
	out.SetUint(u)
	return f.bounds(n, float64(u), path)
}

func (f field) bounds(n *yaml.Node, x float64, path string) error {
	if f.bounded && (x < f.min || x > f.max) {
		return wrong(n, "%s: %s is outside %.0f..%.0f", path, short(n.Value), f.min, f.max)
	}
	return nil
}

func text(n *yaml.Node, out reflect.Value, f field, path string) error {
	if n.Value == "" {
		return empty(n, path)
	}
	if i := strings.IndexFunc(n.Value, unicode.IsControl); i >= 0 {
		return wrong(n, "%s: %s holds a control character", path, quote(n.Value))
	}
	if !utf8.ValidString(n.Value) {
		return wrong(n, "%s: %s is not text in UTF-8", path, quote(n.Value))
	}
	if i := strings.IndexFunc(n.Value, func(r rune) bool { return unicode.Is(unicode.Bidi_Control, r) }); i >= 0 {
		return wrong(n, "%s: %s holds a character that changes the direction of text", path, quote(n.Value))
	}
	if f.longest > 0 && len(n.Value) > f.longest {
		return wrong(n, "%s: %d bytes are more than the %d that programs have room for", path, len(n.Value), f.longest)
	}
	if f.version && strings.Trim(n.Value, "0123456789.") != "" || f.version && strings.Contains("."+n.Value+".", "..") {
		return wrong(n, "%s: %s is no version: want numbers between dots", path, quote(n.Value))
	}
	out.SetString(n.Value)
	if f.enum == nil {
		return nil
	}
	var words []string
	for _, synonyms := range f.enum {
		if slices.ContainsFunc(synonyms, func(s string) bool { return plain(s) == plain(n.Value) }) {
			out.SetString(synonyms[0])
			return nil
		}
		words = append(words, synonyms[0])
	}
	return wrong(n, "%s: %s is not one of %s", path, quote(n.Value), strings.Join(words, ", "))
}

// plain makes Pass-Through, "pass through" and pass_through the same word.
func plain(word string) string {
	return strings.NewReplacer("-", "_", " ", "_").Replace(strings.ToLower(word))
}

func unknownKey(key *yaml.Node, path string, known map[string]field) error {
	best, least := "", len(key.Value)/2+1
	for name := range known {
		if n := distance(key.Value, name); n < least || n == least && name < best {
			best, least = name, n
		}
	}
	if best == "" {
		return wrong(key, "unknown key %s in %s", quote(key.Value), path)
	}
	return wrong(key, "unknown key %s in %s: did you mean %q?", quote(key.Value), path, best)
}

// distance is how many letters have to change to make b of a.
func distance(a, b string) int {
	if len(a) > 64 { // no key is that long
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// absent reports whether a value is written as N/A or null.
func absent(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.ShortTag() == "!!null" || n.ShortTag() == "!!str" && strings.EqualFold(n.Value, "N/A"))
}

func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// find returns the value of a mapping's key, or nil.
func find(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		if n == nil || resolve(n).Kind != yaml.MappingNode {
			return nil
		}
		content := resolve(n).Content
		n = nil
		for i := 0; i+1 < len(content); i += 2 {
			if content[i].Value == key {
				n = content[i+1]
			}
		}
	}
	return n
}

func join(path, key string) string {
	if path == top {
		return key
	}
	return path + "." + key
}

func kind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys and values"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == "!!str":
		return fmt.Sprintf("text %s", quote(n.Value))
	case n.ShortTag() == "!!null":
		return "nothing"
	}
	return quote(n.Value)
}
