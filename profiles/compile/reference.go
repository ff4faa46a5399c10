package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// before is how the page begins.
const before = `# The keys of a profile

<!-- go generate ./profiles writes this page. -->

Every key that a profile file may have, with its type and what it means. [profiles.md](profiles.md) says how files are written and
how values combine. N/A or null is possible wherever a value is: the GPU then does not have it.
`

// reference writes a page with a table for each object of a profile file, from the JSON Schema. An object that stands below several
// keys has its table where the first of them leads to it.
func reference(schema []byte) ([]byte, error) {
	var root object
	if err := json.Unmarshal(schema, &root); err != nil {
		return nil, err
	}
	r := page{defs: root["$defs"].(object), places: map[string][]string{}}
	r.find("", root)
	r.WriteString(before)
	r.table("", root)
	for _, name := range r.order {
		r.table(name, r.defs[name].(object))
	}
	return r.Bytes(), nil
}

// page is the page as it is written: the objects in the order in which they are first met, and the keys that lead to each.
type page struct {
	bytes.Buffer
	defs   object
	order  []string
	places map[string][]string
}

// find notes the objects below one, depth first, as the keys lead to them.
func (p *page) find(at string, o object) {
	for _, key := range keysOf(o) {
		value := o["properties"].(object)[key].(object)
		name, list := refers(value)
		if name == "" || aliasOf(o, key) != "" {
			continue
		}
		place := at + key
		if list {
			place += "[]"
		}
		p.places[name] = append(p.places[name], place)
		if len(p.places[name]) == 1 {
			p.order = append(p.order, name)
			p.find(place+".", p.defs[name].(object))
		}
	}
}

// keysOf are the keys of an object, in order.
func keysOf(o object) []string {
	properties, _ := o["properties"].(object)
	return slices.Sorted(maps.Keys(properties))
}

// refers names the object that a value is, or is a list of.
func refers(value object) (name string, list bool) {
	switch value := plain(value); {
	case value["$ref"] != nil:
		return strings.TrimPrefix(value["$ref"].(string), "#/$defs/"), false
	case value["type"] == "array":
		name, _ := refers(value["items"].(object))
		return name, name != ""
	}
	return "", false
}

// plain is the schema of a value that is not N/A.
func plain(value object) object {
	if any, ok := value["anyOf"].([]any); ok {
		return any[0].(object)
	}
	return value
}

// table writes the keys of one object.
func (p *page) table(name string, o object) {
	required, _ := o["required"].([]any)
	if name != "" {
		fmt.Fprintf(p, "\n<a id=%q></a>\n## %s\n", strings.ToLower(name), strings.TrimSuffix(p.places[name][0], "[]"))
		if also := p.places[name][1:]; len(also) > 0 {
			fmt.Fprintf(p, "\nAlso `%s`.\n", strings.Join(also, "`, `"))
		}
	}
	fmt.Fprintf(p, "\n| key | type | meaning |\n|---|---|---|\n")
	for _, key := range keysOf(o) {
		value := o["properties"].(object)[key].(object)
		kind := kind(value)
		if slices.Contains(required, any(key)) {
			kind += ", required"
		}
		text := cells.Replace(meaning(value))
		if other := aliasOf(o, key); other != "" {
			text = fmt.Sprintf("another name of `%s`", other)
		}
		fmt.Fprintf(p, "| `%s` | %s | %s |\n", key, kind, text)
	}
}

// cells makes a text fit into a cell of a table.
var cells = strings.NewReplacer("|", `\|`, "<", "&lt;")

// subject is how a description begins: with its key, or, if that is another name of a key, with the latter.
var subject = regexp.MustCompile(`^([a-z0-9_]+) (is |are )?`)

// meaning is a description without the key that it begins with.
func meaning(value object) string {
	text, _ := value["description"].(string)
	return subject.ReplaceAllString(text, "")
}

// aliasOf is the key of an object that another one is another name of.
func aliasOf(o object, key string) string {
	properties := o["properties"].(object)
	text, _ := properties[key].(object)["description"].(string)
	if m := subject.FindStringSubmatch(text); m != nil && m[1] != key && properties[m[1]] != nil {
		return m[1]
	}
	return ""
}

// kind names the type of a value.
func kind(value object) string {
	value = plain(value)
	if name, list := refers(value); name != "" {
		what := "object"
		if list {
			what = "list of objects"
		}
		return fmt.Sprintf("[%s](#%s)", what, strings.ToLower(name))
	}
	if words, ok := value["enum"].([]any); ok {
		var list []string
		for _, word := range words {
			list = append(list, fmt.Sprintf("`%v`", word))
		}
		return strings.Join(list, " ")
	}
	if value["type"] == "array" {
		return "list: " + kind(value["items"].(object))
	}
	types, ok := value["type"].([]any)
	if !ok {
		types = []any{value["type"]}
	}
	var list []string
	for _, t := range types {
		if t != nil {
			list = append(list, t.(string))
		}
	}
	text := strings.Join(list, " or ")
	if high, ok := value["maximum"].(float64); ok {
		text += fmt.Sprintf(", %v to %v", value["minimum"], number(high))
	}
	return text
}

// number writes a number without an exponent.
func number(n float64) string {
	text, _ := json.Marshal(n)
	return string(text)
}
