package profiles

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"
)

// Assign reads KEY=VALUE as people type it. The value of a key that holds text is taken as it is; other values are written
// as in a profile, and a section may be given as a whole: failure={mode: lost}. N/A and null are what the board does not
// have. An unknown key is an error that names the nearest one.
func Assign(text string) (Settings, error) {
	key, value, ok := strings.Cut(text, "=")
	key = strings.TrimSpace(key)
	switch {
	case !ok:
		return nil, fmt.Errorf("%.80q: want KEY=VALUE, such as thermal.temperature_gpu_c=90", text)
	case strings.TrimSpace(value) == "":
		return nil, fmt.Errorf("%s: the value is missing: write N/A for what the board does not have", key)
	}
	t, err := typeOf(key)
	if err != nil {
		return nil, err
	}
	if strings.EqualFold(value, "N/A") || value == "null" {
		return Settings{key: nil}, nil
	}
	v := reflect.New(t).Interface()
	_, isText := v.(encoding.TextUnmarshaler)
	if t.Kind() == reflect.String || isText && !strings.HasPrefix(value, "[") {
		return Settings{key: value}, nil
	}
	if t.Kind() == reflect.Struct && !isText && !strings.HasPrefix(strings.TrimSpace(value), "{") {
		section := keysOf(t, key+".")
		slices.Sort(section)
		return nil, fmt.Errorf("%s is a section: give one of its keys a value, such as %s", key, section[0])
	}
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(value), &n); err != nil || len(n.Content) != 1 || !plainValue(n.Content[0]) {
		return nil, fmt.Errorf("%s: %.80q cannot be read: write it as in a profile", key, value)
	}
	s := Settings{}
	return s, s.take(key, n.Content[0])
}

// plainValue reports whether a value says what it is where it stands. An alias, which may stand for what contains it, and
// an empty document do not: both would be taken for N/A.
func plainValue(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode || n.Anchor != "" || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" && n.Value == "" {
		return false
	}
	return !slices.ContainsFunc(n.Content, func(in *yaml.Node) bool { return !plainValue(in) })
}

// take takes a value as YAML has it. The keys of a section become keys of their own.
func (s Settings) take(key string, n *yaml.Node) error {
	n = resolve(n)
	if n.Kind == yaml.MappingNode && len(n.Content) > 0 {
		var d decoder
		pairs, err := d.pairs(n, key, 0)
		if err != nil {
			return setting(err)
		}
		for _, p := range pairs {
			if err := s.take(key+"."+p.key.Value, p.value); err != nil {
				return err
			}
		}
		return nil
	}
	value, err := valueOf(n, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	s[key] = value
	return nil
}

// valueOf is a value of YAML as JSON has it.
func valueOf(n *yaml.Node, depth int) (any, error) {
	n = resolve(n)
	switch {
	case depth > maxDepth:
		return nil, fmt.Errorf("the value is nested more than %d deep", maxDepth)
	case absent(n):
		return nil, nil
	case n.Kind == yaml.SequenceNode:
		list := []any{}
		for _, item := range n.Content {
			v, err := valueOf(item, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case n.Kind == yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			v, err := valueOf(n.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			m[n.Content[i].Value] = v
		}
		return m, nil
	}
	switch n.ShortTag() {
	case "!!bool":
		return strings.EqualFold(n.Value, "true"), nil
	case "!!int":
		if digits := strings.ReplaceAll(n.Value, "_", ""); strings.HasPrefix(digits, "0x") {
			v, err := strconv.ParseUint(digits, 0, 64)
			return v, err
		} else if json.Valid([]byte(digits)) {
			return json.Number(digits), nil
		}
	case "!!float":
		if v, err := strconv.ParseFloat(n.Value, 64); err == nil && json.Valid(fmt.Append(nil, v)) {
			return v, nil
		}
	case "!!str":
		return n.Value, nil
	}
	return nil, fmt.Errorf("%.80q is no value of a profile", n.Value)
}

// typeOf is the type of a key's value. An unknown key is an error that names the nearest one.
func typeOf(key string) (reflect.Type, error) {
	t := reflect.TypeFor[Device]()
	if OfNode(key) {
		t = reflect.TypeFor[nodeSections]()
	}
	for part := range strings.SplitSeq(key, ".") {
		if t.Kind() != reflect.Struct || isOpt(t) {
			return nil, unknown(key)
		}
		f, ok := fields(t).byKey[part]
		if !ok {
			return nil, unknown(key)
		}
		t = t.FieldByIndex(f.index).Type
	}
	if isOpt(t) {
		value, _ := t.FieldByName("Value")
		t = value.Type
	}
	return t, nil
}

func isOpt(t reflect.Type) bool {
	_, ok := reflect.New(t).Interface().(interface{ slot() (any, *bool) })
	return ok
}

// unknown is the error of a key that there is not.
func unknown(key string) error {
	if near := Nearest(key, Keys()); near != "" {
		return fmt.Errorf("unknown key %.80q: did you mean %q?", key, near)
	}
	return fmt.Errorf("unknown key %.80q: nvmlfab profiles schema prints all that there are", key)
}

// Nearest is the word that somebody most likely means by a word; empty if none is near. A key is near too if it ends as
// the word does.
func Nearest(word string, words []string) (best string) {
	least := len(word)/2 + 1
	for _, w := range words {
		n := distance(word, w)
		if strings.HasSuffix(w, "."+word) {
			n = 0
		}
		if last := w[strings.LastIndex(w, ".")+1:]; last != w {
			n = min(n, 1+distance(word, last))
		}
		if n < least {
			best, least = w, n
		}
	}
	return best
}

// Keys are the keys that may change while programs run, those of GPUs and those of the node, sorted.
func Keys() []string { return keys() }

var keys = sync.OnceValue(func() (list []string) {
	for _, t := range []reflect.Type{reflect.TypeFor[Device](), reflect.TypeFor[nodeSections]()} {
		list = append(list, keysOf(t, "")...)
	}
	slices.Sort(list)
	return list
})

func keysOf(t reflect.Type, in string) (list []string) {
	for key, f := range fields(t).byKey {
		if f.fixed || f.name != key {
			continue
		}
		of := t.FieldByIndex(f.index).Type
		_, isText := reflect.New(of).Interface().(encoding.TextUnmarshaler)
		if of.Kind() == reflect.Struct && !isOpt(of) && !isText {
			list = append(list, keysOf(of, in+key+".")...)
			continue
		}
		list = append(list, in+key)
	}
	return list
}

// Known is an error if there is no such key or section, which names the nearest one.
func Known(key string) error {
	_, err := typeOf(key)
	return err
}
