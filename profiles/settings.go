package profiles

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Settings are keys of a profile and their values, such as "power.enforced_limit_mw": 300000. A dot separates a section
// from its keys. Values are those of JSON; nil means that the board does not have the value.
type Settings map[string]any

// UnmarshalJSON keeps all digits of numbers, since a counter may not fit into a float.
func (s *Settings) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var values map[string]any
	if err := d.Decode(&values); err != nil {
		return err
	}
	*s = values
	return nil
}

// Lay adds other settings to these. A key replaces the same key and, if it is a section, the keys in it.
func (s Settings) Lay(over Settings) {
	for key, value := range over {
		s.Drop(key)
		s[key] = value
	}
}

// Drop removes a key and, if it is a section, the keys in it. It reports whether there were any.
func (s Settings) Drop(key string) (dropped bool) {
	for have := range s {
		if have == key || strings.HasPrefix(have, key+".") {
			delete(s, have)
			dropped = true
		}
	}
	return dropped
}

// With is a copy of the device with other values. The error names the wrong setting.
func (d *Device) With(s Settings) (*Device, error) {
	if len(s) == 0 {
		return d, nil
	}
	if err := movable(reflect.TypeFor[Device](), s); err != nil {
		return nil, err
	}
	n, err := s.node()
	if err != nil {
		return nil, err
	}
	c := *d
	var decode decoder
	if err := decode.over(n, &c, top); err != nil {
		return nil, setting(err)
	}
	if key, what := c.impossible(); what != "" {
		return nil, fmt.Errorf("%s: %s", key, what)
	}
	return &c, nil
}

// With is a copy of the board with other values of the node: of its system and its NVLink fabric. Devices do not
// change.
func (b *Board) With(s Settings) (*Board, error) {
	if len(s) == 0 {
		return b, nil
	}
	node := nodeSections{b.System, b.NVLink}
	if err := movable(reflect.TypeFor[nodeSections](), s); err != nil {
		return nil, err
	}
	n, err := s.node()
	if err != nil {
		return nil, err
	}
	var d decoder
	if err := d.over(n, &node, top); err != nil {
		return nil, setting(err)
	}
	c := *b
	node.System.cuda(&b.System)
	c.System, c.NVLink = node.System, node.NVLink
	return &c, nil
}

// Fixed is the board with what nvmlInit fixed as another board has it: the name, the driver, and what identifies devices.
func (b *Board) Fixed(as *Board) *Board {
	c := *b
	c.Name = as.Name
	c.System.DriverVersion, c.System.NVMLVersion, c.System.NumDevices = as.System.DriverVersion, as.System.NVMLVersion, as.System.NumDevices
	c.Devices = slices.Clone(c.Devices)
	for i := range c.Devices {
		d, was := &c.Devices[i], &as.Devices[i]
		d.Index, d.UUID, d.MinorNumber, d.PCI.BusID = was.Index, was.UUID, was.MinorNumber, was.PCI.BusID
		d.MIG.Instances, d.MIG.Visible = was.MIG.Instances, was.MIG.Visible
	}
	return &c
}

// ProcessOf is the process that settings describe, with the keys of an entry of a device's processes.
func ProcessOf(s Settings) (p Process, err error) {
	n, err := s.node()
	if err != nil {
		return p, err
	}
	var d decoder
	if err := d.over(n, &p, "process"); err != nil {
		return p, setting(err)
	}
	return p, nil
}

// nodeSections are the sections of a profile that are not of one device and that may change while programs run.
type nodeSections struct {
	System System `yaml:"system"`
	NVLink NVLink `yaml:"nvlink"`
}

// OfNode says whether a key belongs to the node and not to one of its devices.
func OfNode(key string) bool {
	section, _, _ := strings.Cut(key, ".")
	_, ok := fields(reflect.TypeFor[nodeSections]()).byKey[section]
	return ok
}

// setting takes file and line off an error: a setting has neither.
func setting(err error) error {
	return errors.New(named("", err).Text)
}

// movable refuses keys that programs rely on to stay what they are.
func movable(t reflect.Type, s Settings) error {
	for _, key := range slices.Sorted(maps.Keys(s)) {
		at, path := t, strings.Split(key, ".")
		for i, part := range path {
			if at.Kind() != reflect.Struct {
				break // the decoder says what is wrong
			}
			f, ok := fields(at).byKey[part]
			if !ok {
				break
			}
			if f.fixed {
				return fmt.Errorf("%s cannot change while programs run: write it into the profile", strings.Join(path[:i+1], "."))
			}
			at = at.FieldByIndex(f.index).Type
		}
	}
	return nil
}

// node is the settings as the YAML of one device or node.
func (s Settings) node() (*yaml.Node, error) {
	root := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, key := range slices.Sorted(maps.Keys(s)) {
		at, path := root, strings.Split(key, ".")
		for _, part := range path[:len(path)-1] {
			next := find(at, part)
			if next == nil {
				next = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
				at.Content = append(at.Content, word("!!str", part), next)
			}
			if next.Kind != yaml.MappingNode {
				return nil, fmt.Errorf("%s: %s has a value already", key, part)
			}
			at = next
		}
		value, err := nodeOf(s[key])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		at.Content = append(at.Content, word("!!str", path[len(path)-1]), value)
	}
	return root, nil
}

func word(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

// nodeOf is a value of JSON as YAML.
func nodeOf(value any) (*yaml.Node, error) {
	switch v := value.(type) {
	case nil:
		return word("!!null", "null"), nil
	case string:
		return word("!!str", v), nil
	case bool:
		return word("!!bool", strconv.FormatBool(v)), nil
	case json.Number:
		if strings.ContainsAny(string(v), ".eE") {
			return word("!!float", string(v)), nil
		}
		return word("!!int", string(v)), nil
	case []any:
		list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, item := range v {
			n, err := nodeOf(item)
			if err != nil {
				return nil, err
			}
			list.Content = append(list.Content, n)
		}
		return list, nil
	case map[string]any:
		m := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			n, err := nodeOf(v[key])
			if err != nil {
				return nil, err
			}
			m.Content = append(m.Content, word("!!str", key), n)
		}
		return m, nil
	}
	v := reflect.ValueOf(value)
	switch {
	case v.CanInt():
		return word("!!int", strconv.FormatInt(v.Int(), 10)), nil
	case v.CanUint():
		return word("!!int", strconv.FormatUint(v.Uint(), 10)), nil
	case v.CanFloat():
		return word("!!float", strconv.FormatFloat(v.Float(), 'g', -1, 64)), nil
	case v.Kind() == reflect.String:
		return word("!!str", v.String()), nil
	}
	return nil, fmt.Errorf("%T is no value of a profile", value)
}

// SettingOf is a part of a device, such as its list of vGPUs, as the value of a setting.
func SettingOf(part any) any { return settingOf(reflect.ValueOf(part)) }

func settingOf(v reflect.Value) any {
	if text, ok := v.Interface().(fmt.Stringer); ok {
		return text.String()
	}
	switch v.Kind() {
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = settingOf(v.Index(i))
		}
		return list
	case reflect.Struct:
		values := map[string]any{}
		for _, f := range reflect.VisibleFields(v.Type()) {
			key := f.Tag.Get("yaml")
			if key == "" {
				continue
			}
			field := v.FieldByIndex(f.Index)
			if _, ok := reflect.New(field.Type()).Interface().(interface{ slot() (any, *bool) }); ok {
				if field.FieldByName("Valid").Bool() {
					values[key] = settingOf(field.FieldByName("Value"))
				}
			} else if !field.IsZero() || f.Tag.Get("required") != "" {
				values[key] = settingOf(field)
			}
		}
		return values
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return v.Bool()
	}
	return v.Interface()
}
