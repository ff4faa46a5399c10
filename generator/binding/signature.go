package binding

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/generator/model"
)

// Context is the Go type of the first parameter of a function without a handle: the snapshot of the call, or the engine
// for symbols that start or stop it. For a function with a handle it is the zero GoType.
func (s *Symbol) Context() GoType {
	switch {
	case s.Kind == Lifecycle:
		return nodeType
	case slices.ContainsFunc(s.Args, func(a Arg) bool { return a.Role == ByHandle }):
		return GoType{}
	}
	return snapshotType
}

// Params are the parameters of the Go function that the prototype prescribes.
func (s *Symbol) Params() []GoType {
	var out []GoType
	if context := s.Context(); context != (GoType{}) {
		out = append(out, context)
	}
	for _, a := range s.Args {
		switch a.Role {
		case ByHandle:
			out = append(out, handleType(a.Type.Name))
		case ByValue:
			out = append(out, GoTypeOf(a.Type))
		case Text:
			out = append(out, stringType)
		case In:
			out = append(out, GoTypeOf(a.Type.Elem()))
		case Plain, Constant, Versioned:
			out = append(out, a.Struct().pointer())
			if a.Reads {
				out = append(out, a.Filled().slice())
			}
		case Slice:
			out = append(out, a.Elem().slice())
		}
	}
	return out
}

// Results are its results.
func (s *Symbol) Results() []GoType {
	var out []GoType
	for _, a := range s.Args {
		one := a.Elem
		if a.IsHandle() {
			one = func() GoType { return handleType(a.Type.Name) }
		}
		switch a.Role {
		case Out:
			out = append(out, one())
		case Buffer, FixedText, SizedText:
			out = append(out, stringType)
		case SizedBytes:
			out = append(out, bytesType)
		case List, Also:
			out = append(out, one().slice())
		case Versioned:
			if a.Fills != "" && !a.Reads {
				out = append(out, a.Filled().slice())
			}
		}
	}
	return append(out, returnType)
}

// Elem is the Go type of one element at a pointer, without const and under its first name.
func (a Arg) Elem() GoType {
	e := a.Type.Elem()
	e.Const = false
	if a.Known != nil {
		e.Name = a.Known.Name
	}
	return GoTypeOf(e)
}

// Filled is the Go type of an element of the array that a field points to.
func (a Arg) Filled() GoType { return GoTypeOf(a.field(a.Fills).Type.Elem()) }

// Struct is the Go type of the struct at a pointer, under its first name.
func (a Arg) Struct() GoType { return GoTypeOf(model.CType{Name: a.Known.Name}) }

// Signature renders the Go function that the prototype prescribes.
func (s *Symbol) Signature() string {
	results := spell(s.Results())
	if len(s.Results()) > 1 {
		results = "(" + results + ")"
	}
	return fmt.Sprintf("func %s(%s) %s", s.GoName(), spell(s.Params()), results)
}

func spell(list []GoType) string {
	names := make([]string, len(list))
	for i, t := range list {
		names[i] = t.String()
	}
	return strings.Join(names, ", ")
}
