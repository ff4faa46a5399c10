// Package model holds the content of an nvml.h without C syntax: types with their layouts, constants and function
// prototypes. A model is read from a header (Parse) or from the JSON file that is committed for each version (Read).
package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Header is the model of one nvml.h.
type Header struct {
	NVML      string
	Types     []*Type
	Constants []*Constant
	Functions []*Function
}

// Kind tells what a type is.
type Kind string

const (
	Struct Kind = "struct"
	Union  Kind = "union"
	Enum   Kind = "enum"
	Handle Kind = "handle" // an opaque pointer, whether or not the header wraps it in a struct
	Scalar Kind = "scalar" // a typedef of an arithmetic type
	Alias  Kind = "alias"  // a second name of another type
)

// Type is a named type. An unnamed type is called PARENT.FIELD after the field that has it.
type Type struct {
	Name   string  `json:"name"`
	Kind   Kind    `json:"kind"`
	Of     *CType  `json:"of,omitempty"` // the type that a scalar or an alias stands for
	Size   int64   `json:"size"`
	Align  int64   `json:"align"`
	Fields []Field `json:"fields,omitempty"`
	Values []Value `json:"values,omitempty"`
}

// Field is a member of a struct or union.
type Field struct {
	Name   string `json:"name"`
	Type   CType  `json:"type"`
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
}

// Value is an enumeration constant.
type Value struct {
	Name  string `json:"name"`
	Value int64  `json:"value"`
}

// Constant is an object-like macro with a value: an integer or a string.
type Constant struct {
	Name     string  `json:"name"`
	Int      int64   `json:"int,omitempty"`
	Unsigned bool    `json:"unsigned,omitempty"`
	Text     *string `json:"text,omitempty"`
}

// Function is a prototype.
type Function struct {
	Name   string  `json:"name"`
	Result CType   `json:"result"`
	Params []Param `json:"params,omitempty"`
	// Guarded prototypes are declared only under NVML_NO_UNVERSIONED_FUNC_DEFS.
	Guarded bool `json:"guarded,omitempty"`
	// Internal prototypes are in no header of NVIDIA's.
	Internal bool `json:"internal,omitempty"`
	// Mentions are the subjects that the comment on the prototype mentions; mentions.go lists them.
	Mentions []string `json:"mentions,omitempty"`
}

// Param is a parameter of a prototype.
type Param struct {
	Name string `json:"name"`
	Type CType  `json:"type"`
}

// Prototype renders f as C, without a trailing semicolon.
func (f *Function) Prototype() string {
	params := make([]string, len(f.Params))
	for i, p := range f.Params {
		params[i] = p.Type.Declare(p.Name)
	}
	if len(params) == 0 {
		params = []string{"void"}
	}
	return f.Result.Declare(f.Name) + "(" + strings.Join(params, ", ") + ")"
}

// CType is a type as a declaration spells it.
type CType struct {
	Const bool
	Name  string
	Stars int
	Dims  []int64
}

// Declare renders a declaration of name with type t.
func (t CType) Declare(name string) string {
	s := t.Name + " " + strings.Repeat("*", t.Stars) + name
	if t.Const {
		s = "const " + s
	}
	for _, d := range t.Dims {
		s += fmt.Sprintf("[%d]", d)
	}
	return s
}

func (t CType) String() string { return strings.TrimSuffix(t.Declare(""), " ") }

// IsChar reports whether t is spelled as a char with that many stars.
func (t CType) IsChar(stars int) bool {
	return t.Name == "char" && t.Stars == stars && len(t.Dims) == 0
}

// Elem is what a pointer t points to.
func (t CType) Elem() CType { t.Stars--; return t }

// Equal compares spellings.
func (t CType) Equal(u CType) bool {
	return t.Const == u.Const && t.Name == u.Name && t.Stars == u.Stars && slices.Equal(t.Dims, u.Dims)
}

// MarshalText renders t for the golden.
func (t CType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (t *CType) UnmarshalText(text []byte) error {
	s := string(text)
	*t = CType{}
	s, t.Const = strings.CutPrefix(s, "const ")
	for strings.HasSuffix(s, "]") {
		i := strings.LastIndexByte(s, '[')
		var d int64
		if _, err := fmt.Sscanf(s[i:], "[%d]", &d); err != nil {
			return fmt.Errorf("type %q: %w", text, err)
		}
		t.Dims = append([]int64{d}, t.Dims...)
		s = strings.TrimSuffix(s[:i], " ")
	}
	base := strings.TrimRight(s, "*")
	t.Stars = len(s) - len(base)
	t.Name = strings.TrimSpace(base)
	if t.Name == "" {
		return fmt.Errorf("type %q has no name", text)
	}
	return nil
}

// Type returns the type of that name with aliases followed, or nil.
func (h *Header) Type(name string) *Type {
	for range 8 {
		i := slices.IndexFunc(h.Types, func(t *Type) bool { return t.Name == name })
		if i < 0 {
			return nil
		}
		if h.Types[i].Kind != Alias {
			return h.Types[i]
		}
		name = h.Types[i].Of.Name
	}
	return nil
}

// With is the header with the declarations of slots added.
func (h *Header) With(slots *Header) *Header {
	return &Header{
		NVML:      h.NVML,
		Types:     slices.Concat(h.Types, slots.Types),
		Constants: slices.Concat(h.Constants, slots.Constants),
		Functions: slices.Concat(h.Functions, slots.Functions),
	}
}

// Function returns the prototype of that name, or nil.
func (h *Header) Function(name string) *Function {
	for _, f := range h.Functions {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// scalars are the arithmetic types of nvml.h with their size on LP64.
var scalars = map[string]int64{
	"void": 1, "char": 1, "signed char": 1, "unsigned char": 1,
	"short": 2, "unsigned short": 2, "int": 4, "unsigned int": 4,
	"long": 8, "unsigned long": 8, "long long": 8, "unsigned long long": 8, "double": 8,
}

// SizeOf is the size of a value of type t; 0 if the header does not say.
func (h *Header) SizeOf(t CType) int64 {
	size := int64(8)
	if t.Stars == 0 {
		var ok bool
		if size, ok = scalars[t.Name]; !ok {
			if typ := h.Type(t.Name); typ != nil {
				size = typ.Size
			} else {
				return 0
			}
		}
	}
	for _, d := range t.Dims {
		size *= d
	}
	return size
}

// file is the content of a committed model.
type file struct {
	NVML      string      `json:"nvml"`
	Types     []*Type     `json:"types"`
	Constants []*Constant `json:"constants"`
	Functions []*Function `json:"functions"`
}

// JSON renders h with one line for each symbol, so that a change of the header is a readable diff.
func (h *Header) JSON() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\"nvml\": %q,\n", h.NVML)
	lines := func(name string, n int, at func(int) any, end string) error {
		fmt.Fprintf(&b, "%q: [\n", name)
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		for i := range n {
			if err := enc.Encode(at(i)); err != nil {
				return err
			}
			if i < n-1 {
				b.Truncate(b.Len() - 1)
				b.WriteString(",\n")
			}
		}
		b.WriteString(end)
		return nil
	}
	err := lines("types", len(h.Types), func(i int) any { return h.Types[i] }, "],\n")
	if err == nil {
		err = lines("constants", len(h.Constants), func(i int) any { return h.Constants[i] }, "],\n")
	}
	if err == nil {
		err = lines("functions", len(h.Functions), func(i int) any { return h.Functions[i] }, "]}\n")
	}
	return b.Bytes(), err
}

// Read loads a golden.
func Read(path string) (*Header, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read model: %w", err)
	}
	var f file
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return nil, fmt.Errorf("read model %s: %w", path, err)
	}
	return (*Header)(&f), nil
}
