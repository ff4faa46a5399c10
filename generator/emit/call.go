package emit

import (
	"fmt"
	"slices"

	"github.com/dave/jennifer/jen"

	"github.com/nvmlfab/nvmlfab/generator/binding"
)

// call is the body of one dispatch function: it unpacks the arguments, calls the Go function, and packs the results.
// The emitter of each role adds its statements to these parts.
type call struct {
	in     Input
	symbol *binding.Symbol

	unpack   []jen.Code // the statements before the call
	optional []jen.Code // whether each pointer that may be NULL is there; not all may be
	args     []jen.Code // the arguments of the Go function
	results  []jen.Code // the variables of its results
	pack     []jen.Code // the statements after a success that can still fail
	store    []jen.Code // the statements after pack, which cannot fail, so that either all results are written or none
}

// emitters has one function for each role that reaches the core.
var emitters = map[binding.Role]func(*call, binding.Arg){
	binding.ByHandle:   (*call).handle,
	binding.ByValue:    (*call).value,
	binding.Text:       (*call).text,
	binding.In:         (*call).read,
	binding.Out:        (*call).out,
	binding.Buffer:     (*call).buffer,
	binding.FixedText:  (*call).fixedText,
	binding.SizedText:  (*call).sizedText,
	binding.SizedBytes: (*call).sizedBytes,
	binding.List:       (*call).list,
	binding.Also:       (*call).also,
	binding.Slice:      (*call).slice,
	binding.Plain:      (*call).structure,
	binding.Constant:   (*call).structure,
	binding.Versioned:  (*call).structure,
}

// callBody renders the body for a symbol that the Go function of that name answers.
func callBody(in Input, s *binding.Symbol, name string) []jen.Code {
	c := &call{in: in, symbol: s}
	switch s.Context().Name {
	case "Engine":
		c.args = append(c.args, jen.Id("s").Dot("Engine").Call())
	case "Snapshot":
		c.args = append(c.args, jen.Id("s"))
	}
	for _, a := range s.Args {
		emitters[a.Role](c, a)
	}

	body := c.unpack
	if len(c.optional) > 0 {
		all := jen.Add(c.optional[0])
		for _, null := range c.optional[1:] {
			all.Op("&&").Add(null)
		}
		body = append(body, jen.If(all).Block(invalid()))
	}
	function := jen.Qual(handPath, name).Call(c.args...)
	after := slices.Concat(c.pack, c.store)
	if len(after) == 0 {
		return append(body, jen.Return(function))
	}
	assign := ":="
	if len(c.results) == 0 && s.Context() == (binding.GoType{}) {
		assign = "=" // ret exists already, from the look-up of a handle
	}
	body = append(body, jen.List(append(c.results, jen.Id("ret"))...).Op(assign).Add(function), failed())
	return append(append(body, after...), jen.Return(jen.Qual(abiPath, "SUCCESS")))
}

// ---- Pieces of statements ------------------------------------------------------------------------------------------

func invalid() *jen.Statement {
	return jen.Return(jen.Qual(abiPath, "ERROR_INVALID_ARGUMENT"))
}

// failed returns ret unless it is SUCCESS.
func failed() *jen.Statement {
	return jen.If(jen.Id("ret").Op("!=").Qual(abiPath, "SUCCESS")).Block(jen.Return(jen.Id("ret")))
}

// variable is the name of a variable for parameter i: p3, v3 and so on.
func variable(prefix string, i int) *jen.Statement { return jen.Id(fmt.Sprintf("%s%d", prefix, i)) }

// word reads argument i as a value.
func word(i int, t binding.GoType) *jen.Statement {
	return marshal("Word").Types(t.Code()).Call(jen.Id("a"), jen.Lit(i))
}

func marshal(name string) *jen.Statement { return jen.Qual(marshalPath, name) }

// deref is the value at p, as that type.
func deref(t, p jen.Code) *jen.Statement {
	return jen.Op("*").Parens(jen.Op("*").Add(t)).Parens(p)
}

func address(v jen.Code) *jen.Statement {
	return jen.Qual("unsafe", "Pointer").Parens(jen.Op("&").Add(v))
}

func extent(a binding.Arg) *jen.Statement { return jen.Lit(int(a.Extent)) }

// ---- What emitters share -------------------------------------------------------------------------------------------

// pointer reads argument i, which may be NULL, as a pointer.
func (c *call) pointer(i int) *jen.Statement {
	c.unpack = append(c.unpack, variable("p", i).Op(":=").Add(marshal("Pointer").Call(jen.Id("a"), jen.Lit(i))))
	return variable("p", i)
}

// memory reads argument i as a pointer that must not be NULL.
func (c *call) memory(i int) *jen.Statement {
	p := c.pointer(i)
	c.unpack = append(c.unpack, jen.If(variable("p", i).Op("==").Nil()).Block(invalid()))
	return p
}

// checked sets v and ok, and refuses the call unless ok.
func (c *call) checked(v, from jen.Code) {
	c.unpack = append(c.unpack, jen.List(v, jen.Id("ok")).Op(":=").Add(from), jen.If(jen.Op("!").Id("ok")).Block(invalid()))
}

func (c *call) result(i int) *jen.Statement {
	c.results = append(c.results, variable("r", i))
	return variable("r", i)
}

// handles converts a result that is a handle, or a list of handles, to words.
func (c *call) handles(i int, from jen.Code) *jen.Statement {
	c.pack = append(c.pack, jen.List(variable("h", i), jen.Id("ret")).Op(":=").Add(from), failed())
	return variable("h", i)
}

// put runs a packing function that can fail.
func (c *call) put(function string, args ...jen.Code) {
	c.pack = append(c.pack, jen.If(jen.Id("ret").Op("=").Add(marshal(function).Call(args...)),
		jen.Id("ret").Op("!=").Qual(abiPath, "SUCCESS")).Block(jen.Return(jen.Id("ret"))))
}

// ---- One emitter for each role -------------------------------------------------------------------------------------

func (c *call) handle(a binding.Arg) {
	v := variable("v", a.At)
	resolve := jen.Id("s").Dot(binding.HandleType(a.Type.Name)).Call(word(a.At, binding.GoType{Name: "uintptr"}), needs(c.in, c.symbol))
	c.unpack = append(c.unpack, jen.List(v, jen.Id("ret")).Op(":=").Add(resolve), failed())
	c.args = append(c.args, v)
}

func (c *call) value(a binding.Arg) { c.args = append(c.args, word(a.At, binding.GoTypeOf(a.Type))) }

func (c *call) text(a binding.Arg) {
	v := variable("v", a.At)
	c.checked(v, marshal("Text").Call(jen.Id("a"), jen.Lit(a.At)))
	c.args = append(c.args, v)
}

func (c *call) read(a binding.Arg) {
	c.args = append(c.args, deref(a.Elem().Code(), c.memory(a.At)))
}

func (c *call) out(a binding.Arg) {
	var p *jen.Statement
	if a.Optional {
		p = c.pointer(a.At)
		c.optional = append(c.optional, variable("p", a.At).Op("==").Nil())
	} else {
		p = c.memory(a.At)
	}
	typ, r := a.Elem().Code(), c.result(a.At)
	if a.IsHandle() {
		typ, r = jen.Uintptr(), c.handles(a.At, r.Dot("Handle").Call())
	}
	set := deref(typ, p).Op("=").Add(r)
	if a.Optional {
		set = jen.If(variable("p", a.At).Op("!=").Nil()).Block(set)
	}
	c.store = append(c.store, set)
}

func (c *call) buffer(a binding.Arg) {
	function := "PutText"
	if a.Crop {
		function = "PutCropped"
	}
	c.put(function, c.memory(a.At), word(a.Size, binding.GoType{Name: "uint32"}), c.result(a.At))
}

func (c *call) fixedText(a binding.Arg) {
	c.put("PutText", c.memory(a.At), extent(a), c.result(a.At))
}

func (c *call) sizedText(a binding.Arg) {
	c.put("PutSized", c.pointer(a.At), c.memory(a.Size), jen.Index().Byte().Parens(c.result(a.At).Op("+").Lit("\x00")))
}

func (c *call) sizedBytes(a binding.Arg) {
	c.put("PutSized", c.pointer(a.At), c.memory(a.Size), c.result(a.At))
}

// elements is a list of results, converted to words if they are handles.
func (c *call) elements(a binding.Arg) *jen.Statement {
	r := c.result(a.At)
	if a.IsHandle() {
		return c.handles(a.At, marshal("Handles").Call(r))
	}
	return r
}

func (c *call) list(a binding.Arg) {
	p, r, n := c.pointer(a.At), c.elements(a), c.memory(a.Size)
	for _, b := range c.symbol.Args {
		if b.Role == binding.Also {
			p = marshal("Both").Call(p, variable("p", b.At))
		}
	}
	if a.Unasked {
		c.put("PutAll", n, p, r, extent(a))
		return
	}
	apart := extent(a)
	if a.Apart != "" {
		apart = jen.Id("s").Dot(a.Apart).Call(apart)
	}
	c.put("PutList", n, p, r, apart, jen.Lit(a.NullQuery))
}

func (c *call) also(a binding.Arg) { c.put("PutArray", c.pointer(a.At), c.elements(a), extent(a)) }

func (c *call) slice(a binding.Arg) {
	p, v := c.memory(a.At), variable("v", a.At)
	n := jen.Int().Parens(word(a.Size, binding.GoTypeOf(c.symbol.Func.Params[a.Size].Type)))
	if a.InBytes {
		n.Op("/").Add(extent(a))
	}
	c.checked(v, marshal("GetArray").Types(a.Elem().Code()).Call(p, n, extent(a)))
	c.args = append(c.args, v)
	c.put("PutArray", p, v, extent(a))
}

// structure fills a copy of a struct of the caller's, and writes the copy back unless the struct is only read.
func (c *call) structure(a binding.Arg) {
	p, v, size := c.memory(a.At), variable("v", a.At), extent(a)
	if a.Role == binding.Versioned {
		size = c.version(a)
	}
	if a.Counted != "" {
		c.counted(a)
	}
	c.unpack = append(c.unpack, jen.Var().Add(v).Add(a.Struct().Code()), marshal("Get").Call(address(v), p, size))
	c.args = append(c.args, jen.Op("&").Add(v))
	if a.Counts {
		count := jen.Add(v).Dot(fieldName(a.Room))
		address := jen.Qual("unsafe", "Pointer").Call(jen.Op("&").Add(count))
		room := jen.Qual("unsafe", "Add").Call(p, jen.Qual("unsafe", "Offsetof").Call(count))
		c.pack = append(c.pack, jen.If(jen.Id("ret").Op("=").Add(marshal("PutList").Call(address, jen.Add(v).Dot(fieldName(a.Fills)),
			c.result(a.At), jen.Lit(int(a.Stride)), jen.Lit(a.NullQuery))), jen.Id("ret").Op("!=").Qual(abiPath, "SUCCESS")).Block(
			marshal("Put").Call(room, address, jen.Lit(4)), jen.Return(jen.Id("ret"))))
	} else if a.Reads {
		array, room := jen.Add(v).Dot(fieldName(a.Fills)), jen.Int().Parens(jen.Add(v).Dot(fieldName(a.Room)))
		list := variable("list", a.At)
		c.checked(list, marshal("GetInside").Types(a.Filled().Code()).Call(array, room, jen.Lit(int(a.Stride))))
		c.args = append(c.args, list)
		c.put("PutArray", array, list, jen.Lit(int(a.Stride)))
	} else if a.Fills != "" {
		c.put("PutFilled", jen.Add(v).Dot(fieldName(a.Fills)), jen.Add(v).Dot(fieldName(a.Room)), c.result(a.At), jen.Lit(int(a.Stride)))
	}
	if a.Role != binding.Constant && !a.Type.Const {
		c.store = append(c.store, marshal("Put").Call(p, address(v), size))
	}
}

// version checks a struct's version and sets n to the size that the version stands for.
func (c *call) version(a binding.Arg) *jen.Statement {
	n := variable("n", a.At)
	var cases []jen.Code
	for _, v := range a.Versions {
		size := v.Size
		if size == 0 || size > a.Known.Size {
			size = a.Extent
		}
		cases = append(cases, jen.Case(jen.Op(fmt.Sprintf("%#x", v.Version))).Block(jen.Add(n).Op("=").Lit(int(size))))
	}
	cases = append(cases, jen.Default().Block(jen.Return(jen.Qual(abiPath, "ERROR_ARGUMENT_VERSION_MISMATCH"))))
	c.unpack = append(c.unpack, jen.Var().Add(n).Int(), jen.Switch(deref(jen.Uint32(), variable("p", a.At))).Block(cases...))
	return n
}

// counted sets n to the size of a struct whose last array has as many elements as one of its fields says.
func (c *call) counted(a binding.Arg) {
	last := a.Known.Fields[len(a.Known.Fields)-1]
	room := last.Type.Dims[0]
	field := jen.Qual("unsafe", "Offsetof").Call(a.Struct().Code().Values().Dot(fieldName(a.Counted)))
	c.unpack = append(c.unpack,
		jen.Id("ok").Op(":=").Add(marshal("Counted").Call(jen.Op("&").Add(variable("n", a.At)), variable("p", a.At), field,
			jen.Lit(int(last.Offset)), jen.Lit(int(last.Size/room)), jen.Lit(int(room)))),
		jen.If(jen.Op("!").Id("ok")).Block(invalid()))
}
