package emit

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/generator/binding"
	"github.com/nvmlfab/nvmlfab/generator/model"
)

// Trace renders what the library of nvmlfab trace knows about NVML: the functions of all versions, each with the layouts of the
// newest header that declares it. They do not depend on which functions are implemented.
func Trace(in Input) (Files, error) {
	t := tracer{known: map[string]int{}}
	result := t.typ(in.Header, model.CType{Name: "nvmlReturn_t"})
	var params, functions, slots, wrappers bytes.Buffer
	byNumber := slices.SortedFunc(slices.Values(in.Symbols), func(a, b *binding.Symbol) int { return cmp.Compare(a.Number, b.Number) })
	for _, s := range byNumber {
		row := "NULL"
		if len(s.Func.Params) > 0 {
			row = "p_" + s.GoName()
			fmt.Fprintf(&params, "static const struct param %s[] = {%s};\n", row, strings.Join(t.params(s), ", "))
		}
		entry := fmt.Sprintf("{%q, %d, %d, %s},\n", s.Name, len(s.Func.Params), number(s.Func.Result.Stars > 0), row)
		if s.Kind == binding.Slot {
			fmt.Fprintf(&slots, "    [%d] = %s", s.Slot(), entry)
			continue
		}
		fmt.Fprintf(&functions, "    [%d] = %s", s.Number, entry)
		call := "trace_call"
		if s.Name == "nvmlInternalGetExportTable" {
			call = "trace_export_table"
		}
		fmt.Fprintf(&wrappers, "TRACED(%d, %s, %s)\n", s.Number, s.Name, call)
	}
	if t.err != nil {
		return nil, t.err
	}

	var b bytes.Buffer
	fmt.Fprintf(&b, `/* %s */
/* The functions of every version of NVML for nvmlfab trace, and the types of their parameters. */
#include <stddef.h>

#include "trace.h"

`, notice)
	b.Write(t.parts.Bytes())
	b.WriteString("\nconst struct type trace_types[] = {\n")
	for _, row := range t.types {
		fmt.Fprintf(&b, "    %s,\n", row)
	}
	fmt.Fprintf(&b, "};\nconst uint16_t trace_return = %d;\n\n", result)
	b.Write(params.Bytes())
	fmt.Fprintf(&b, "\nconst struct function trace_functions[TRACE_FUNCTIONS] = {\n%s};\n", functions.Bytes())
	fmt.Fprintf(&b, "\nconst struct function trace_slots[TRACE_SLOTS] = {\n%s};\n\n", slots.Bytes())
	b.Write(wrappers.Bytes())
	return Files{"trace_tables.c": b.Bytes()}, nil
}

// tracer collects the types that parameters need.
type tracer struct {
	parts bytes.Buffer   // the values and fields of types
	types []string       // the rows of the table of types
	known map[string]int // the number of a type, by its whole content
	err   error
}

// cTypes are the kinds of C's own types for the library.
var cTypes = map[string]string{"char": "CHAR", "double": "REAL", "void": "UNSIGNED"}

// typ is the number of a type without its dimensions.
func (t *tracer) typ(h *model.Header, c model.CType) int {
	size := h.SizeOf(model.CType{Name: c.Name, Stars: c.Stars})
	known := h.Type(c.Name)
	switch {
	case c.Stars > 0:
		// What it points to is kept as the only member, for arrays whose length stands beside them.
		if c.Stars == 1 && c.Name != "void" {
			return t.add(c.String(), "POINTER", 8, "", []string{fmt.Sprintf("{\"\", 0, %d, 0, 0}", t.typ(h, c.Elem()))})
		}
		return t.add("", "POINTER", 8, "", nil)
	case known == nil:
		kind := cmp.Or(cTypes[c.Name], "SIGNED")
		if strings.HasPrefix(c.Name, "unsigned") {
			kind = "UNSIGNED"
		}
		if size == 0 {
			t.err = cmp.Or(t.err, fmt.Errorf("trace: %s has no size", c))
		}
		return t.add("", kind, size, "", nil)
	}
	switch known.Kind {
	case model.Handle:
		return t.add("", "POINTER", 8, "", nil)
	case model.Scalar:
		return t.typ(h, *known.Of)
	case model.Enum:
		var values []string
		for _, v := range known.Values {
			values = append(values, fmt.Sprintf("{%q, %d}", v.Name, v.Value))
		}
		return t.add(known.Name, "ENUM", size, "value", values)
	}
	kind := map[model.Kind]string{model.Struct: "STRUCT", model.Union: "UNION"}[known.Kind]
	var fields []string
	for _, f := range known.Fields {
		count := int64(0)
		if len(f.Type.Dims) > 0 {
			count = 1
		}
		for _, d := range f.Type.Dims {
			count *= d
		}
		choice := 0
		if f.Type.Name == "nvmlValue_t" {
			choice = 1 + slices.IndexFunc(known.Fields, func(f model.Field) bool { return f.Type.Name == "nvmlValueType_t" })
		}
		fields = append(fields, fmt.Sprintf("{%q, %d, %d, %d, %d}", f.Name, f.Offset, t.typ(h, f.Type), count, choice))
	}
	return t.add(known.Name, kind, size, "field", fields)
}

// add is the number of a type with that content.
func (t *tracer) add(name, kind string, size int64, list string, members []string) int {
	content := fmt.Sprint(name, kind, size, list, members)
	if n, ok := t.known[content]; ok {
		return n
	}
	n := len(t.types)
	t.known[content] = n
	values, fields := "NULL", "NULL"
	switch {
	case len(members) == 0:
	case list == "value":
		values = fmt.Sprintf("values%d", n)
		fmt.Fprintf(&t.parts, "static const struct value %s[] = {%s};\n", values, strings.Join(members, ", "))
	default:
		fields = fmt.Sprintf("fields%d", n)
		fmt.Fprintf(&t.parts, "static const struct field %s[] = {%s};\n", fields, strings.Join(members, ", "))
	}
	t.types = append(t.types, fmt.Sprintf("{%s, %d, %d, %s, %s}", kind, size, len(members), values, fields))
	return n
}

// traceRoles are the library's names for roles.
var traceRoles = map[binding.Role]string{
	binding.ByHandle: "VALUE", binding.ByValue: "VALUE", binding.Text: "TEXT", binding.In: "IN", binding.Out: "OUT",
	binding.Buffer: "BUFFER", binding.FixedText: "FIXED", binding.SizedText: "SIZED", binding.SizedBytes: "BYTES",
	binding.List: "LIST", binding.Also: "LIST", binding.Slice: "SLICE", binding.Plain: "RECORD", binding.Constant: "IN",
	binding.Versioned: "RECORD",
}

// params renders the parameters of a symbol.
func (t *tracer) params(s *binding.Symbol) []string {
	out := make([]string, len(s.Func.Params))
	list := -1 // the count of the list before
	for _, a := range s.Args {
		p := s.Func.Params[a.At]
		role, elem, text := traceRoles[a.Role], p.Type, ""
		if a.Role == binding.Raw {
			role = "VALUE"
			switch {
			case p.Name == "guid":
				role, elem = "GUID", model.CType{Name: "unsigned char", Stars: 1}
			case p.Type.Stars > 0:
				role = "OUT"
			}
		}
		if p.Type.Const && a.Role == binding.Versioned {
			role = "IN"
		}
		if role != "VALUE" && role != "TEXT" {
			elem = elem.Elem()
		}
		size := a.Size
		switch a.Role {
		case binding.List:
			list = a.Size
		case binding.Also:
			size = list
		}
		set := func(format string, args ...any) { text += fmt.Sprintf(", "+format, args...) }
		if size >= 0 {
			set(".size = %d", size+1)
		}
		if a.Extent > 0 {
			set(".extent = %d", a.Extent)
		}
		if a.InBytes {
			set(".in_bytes = 1")
		}
		if a.Role == binding.Versioned {
			set(".versioned = 1")
		}
		if role == "RECORD" && !asks(s.Name) {
			set(".tells = 1")
		}
		index := func(field string) int {
			return 1 + slices.IndexFunc(a.Known.Fields, func(f model.Field) bool { return f.Name == field })
		}
		if a.Fills != "" {
			set(".fills = %d, .room = %d", index(a.Fills), index(a.Room))
		}
		if a.Counted != "" {
			set(".counted = %d", index(a.Counted))
		}
		out[a.At] = fmt.Sprintf("PARAM(%q, %d, %s%s)", p.Name, t.typ(s.Header, elem), role, text)
		if a.Size >= 0 && out[a.Size] == "" {
			n := s.Func.Params[a.Size]
			role, elem := "VALUE", n.Type
			if elem.Stars > 0 {
				role, elem = "COUNT", elem.Elem()
			}
			out[a.Size] = fmt.Sprintf("PARAM(%q, %d, %s)", n.Name, t.typ(s.Header, elem), role)
		}
	}
	return out
}

// asks reports whether a function asks for what a struct of the caller's then holds, so that after a failure only its version
// says anything. Other functions are told something by the struct.
func asks(name string) bool {
	return slices.ContainsFunc([]string{"Get", "Wait", "Query", "Read"}, func(verb string) bool { return strings.Contains(name, verb) })
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
