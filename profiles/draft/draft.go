// Package draft puts profiles together key by key, for those who make one of something else.
package draft

import (
	"bytes"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Setting is a key of one GPU, with dots, and its value.
type Setting struct {
	Key   string
	Value *yaml.Node
	Line  int // of the text that it was made of
}

// Text is a value that is text.
func Text(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

// Num is a value that is a number, true or false.
func Num(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: s} }

// List is a list on one line.
func List(nodes ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle, Content: nodes}
}

// Lines is a list with a line for each element.
func Lines(nodes ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Content: nodes}
}

// Pairs is a mapping on one line, of keys and values in turn.
func Pairs(content ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	for _, c := range content {
		switch c := c.(type) {
		case string:
			n.Content = append(n.Content, Text(c))
		case *yaml.Node:
			n.Content = append(n.Content, c)
		}
	}
	return n
}

// Map is an empty mapping.
func Map() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode} }

// Put puts a value at a key with dots.
func Put(n *yaml.Node, key string, value *yaml.Node) {
	name, rest, deeper := strings.Cut(key, ".")
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			if deeper {
				Put(n.Content[i+1], rest, value)
			} else {
				n.Content[i+1] = value
			}
			return
		}
	}
	child := value
	if deeper {
		child = Map()
		Put(child, rest, value)
	}
	n.Content = append(n.Content, Text(name), child)
}

// Equal says whether two values are the same. Comments have no part in that.
func Equal(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || a.Value != b.Value || len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		if !Equal(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return true
}

// ofOne are the keys that are never in device_defaults.
var ofOne = []string{"uuid", "serial", "pdi", "minor_number", "pci.bus_id", "platform.gpu_fabric_guid"}

// PutDevices puts the settings of all GPUs into a profile: what they have in common into device_defaults, and the rest into devices.
func PutDevices(root *yaml.Node, all [][]Setting) {
	common := map[string]bool{}
	for _, s := range all[0] {
		common[s.Key] = !slices.Contains(ofOne, s.Key)
		for _, other := range all[1:] {
			i := slices.IndexFunc(other, func(o Setting) bool { return o.Key == s.Key })
			common[s.Key] = common[s.Key] && i >= 0 && Equal(s.Value, other[i].Value)
		}
	}
	defaults, devices := Map(), Lines()
	for _, s := range all[0] {
		if common[s.Key] {
			Put(defaults, s.Key, s.Value)
		}
	}
	for i, settings := range all {
		device := Map()
		Put(device, "index", number(i))
		for _, s := range settings {
			if !common[s.Key] {
				Put(device, s.Key, s.Value)
			}
		}
		devices.Content = append(devices.Content, device)
	}
	Put(root, "device_defaults", defaults)
	Put(root, "devices", devices)
}

func number(i int) *yaml.Node {
	n := new(yaml.Node)
	_ = n.Encode(i) // an int can be encoded
	return n
}

// Write writes a profile after a comment, which has its own signs.
func Write(comment string, root *yaml.Node) ([]byte, error) {
	var w bytes.Buffer
	w.WriteString(comment)
	enc := yaml.NewEncoder(&w)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return nil, err
	}
	return w.Bytes(), nil
}
