package profiles

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestShippedIsItsYAML: the compiled-in boards equal the boards that their YAML text describes.
func TestShippedIsItsYAML(t *testing.T) {
	require.Contains(t, Names(), Default)
	assert.Len(t, shipped, len(Names()))
	for _, name := range Names() {
		compiled, err := Shipped(name)
		require.NoError(t, err)
		parsed, err := ParseSource(name)
		require.NoError(t, err)
		assert.Equal(t, parsed, compiled, "run go generate ./profiles")
		assert.Equal(t, name, compiled.Name)
	}
}

func TestShippedBoardsAreTheCallers(t *testing.T) {
	one, _ := Shipped(Default)
	two, _ := Shipped(Default)
	one.Devices[0].Name = Some("changed")
	assert.NotEqual(t, one.Devices[0].Name, two.Devices[0].Name)
}

func TestUnknownBoard(t *testing.T) {
	for _, f := range []func(string) error{
		func(s string) error { _, err := Shipped(s); return err },
		func(s string) error { _, err := Source(s); return err },
		func(s string) error { _, err := ParseSource(s); return err },
	} {
		assert.EqualError(t, f("h10"), `unknown board "h10": did you mean "h100"?`)
		assert.EqualError(t, f("../h100"), `unknown board "../h100": want one of `+strings.Join(Names(), ", "))
	}
}

var (
	sourceList = regexp.MustCompile(`^#   (\[\w+\])`)
	sourceTag  = regexp.MustCompile(`\[[a-z]+\]`)
	hasValue   = regexp.MustCompile(`:\s+[^\s&]`)
)

// TestEveryNumberHasASource: each value of a board has a tag out of the list at the top of its file. The tag follows
// the value, or is at the head of its block or in the comment above its section.
func TestEveryNumberHasASource(t *testing.T) {
	for _, name := range Names() {
		text, err := Source(name)
		require.NoError(t, err)
		known, headed, section, block := map[string]bool{}, false, false, -1
		for i, line := range strings.Split(string(text), "\n") {
			if m := sourceList.FindStringSubmatch(line); m != nil {
				known[m[1]] = true
				continue
			}
			code, comment, _ := strings.Cut(line, "#")
			tags := sourceTag.FindAllString(comment, -1)
			for _, tag := range tags {
				assert.True(t, known[tag], "%s.yaml:%d: %s is not in the list", name, i+1, tag)
			}
			indent := len(code) - len(strings.TrimLeft(code, " "))
			if strings.TrimSpace(code) == "" {
				headed = headed || len(tags) > 0
				continue
			}
			if indent == 0 {
				section, headed = headed, false
			}
			if indent <= block {
				block = -1
			}
			if len(tags) > 0 && block < 0 {
				block = indent
			}
			if hasValue.MatchString(code) {
				assert.True(t, section || block >= 0, "%s.yaml:%d: %s has no source", name, i+1, strings.TrimSpace(code))
			}
		}
		assert.NotEmpty(t, known, name)
	}
}

// TestSchemaKnowsTheKeys compares the keys of the types that decode a file with those of the schema.
func TestSchemaKnowsTheKeys(t *testing.T) {
	var root schemaNode
	require.NoError(t, json.Unmarshal(Schema(), &root))
	sameKeys(t, root.Defs, root, reflect.TypeFor[file](), top)
}

type schemaNode struct {
	Ref        string                `json:"$ref"`
	Defs       map[string]schemaNode `json:"$defs"`
	AnyOf      []schemaNode          `json:"anyOf"`
	Items      *schemaNode           `json:"items"`
	Properties map[string]schemaNode `json:"properties"`
	Required   []string              `json:"required"`
	Additional *bool                 `json:"additionalProperties"`
}

func sameKeys(t *testing.T, defs map[string]schemaNode, node schemaNode, typ reflect.Type, path string) {
	if opt, ok := reflect.New(typ).Interface().(interface{ slot() (any, *bool) }); ok {
		value, _ := opt.slot()
		require.Len(t, node.AnyOf, 2, path)
		node, typ = node.AnyOf[0], reflect.TypeOf(value).Elem()
	}
	if r, ok := reflect.New(typ).Interface().(interface{ holds() reflect.Type }); ok {
		typ = r.holds()
	}
	if name, ok := strings.CutPrefix(node.Ref, "#/$defs/"); ok {
		require.Contains(t, defs, name, path)
		node = defs[name]
	}
	switch {
	case node.Items != nil:
		require.Equal(t, reflect.Slice, typ.Kind(), path)
		sameKeys(t, defs, *node.Items, typ.Elem(), path+"[]")
	case node.Properties != nil:
		known := fields(typ)
		require.False(t, *node.Additional, path)
		assert.ElementsMatch(t, known.required, node.Required, path)
		for key := range node.Properties {
			assert.Contains(t, known.byKey, key, path)
		}
		for key, f := range known.byKey {
			if assert.Contains(t, node.Properties, key, path) {
				sameKeys(t, defs, node.Properties[key], typ.FieldByIndex(f.index).Type, join(path, key))
			}
		}
	default:
		isText := reflect.PointerTo(typ).Implements(reflect.TypeFor[interface{ UnmarshalText([]byte) error }]())
		assert.True(t, isText || typ.Kind() != reflect.Struct && typ.Kind() != reflect.Slice, "%s is a %s", path, typ)
	}
}

func (r *raw[T]) holds() reflect.Type { return reflect.TypeFor[T]() }

// TestEveryFieldHasAKey: no file could set a field without a key.
func TestEveryFieldHasAKey(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var walk func(typ reflect.Type)
	walk = func(typ reflect.Type) {
		if typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] || strings.HasPrefix(typ.Name(), "Opt[") || typ == reflect.TypeFor[BusID]() {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			f := typ.Field(i)
			if typ != reflect.TypeFor[Board]() && !f.Anonymous {
				assert.NotEmpty(t, f.Tag.Get("yaml"), fmt.Sprintf("%s.%s", typ, f.Name))
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[Board]())
	assert.Greater(t, len(seen), 40)
}
