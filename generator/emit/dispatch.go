package emit

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dave/jennifer/jen"

	"github.com/nvmlfab/nvmlfab/generator/binding"
	"github.com/nvmlfab/nvmlfab/generator/model"
)

// Dispatch renders, for every retired stub, the function that unpacks its arguments and packs its results.
func Dispatch(in Input) (Files, error) {
	text, err := render(dispatch(in))
	if err != nil {
		return nil, fmt.Errorf("dispatch/dispatch.go: %w", err)
	}
	return Files{"dispatch/dispatch.go": text}, nil
}

func dispatch(in Input) *jen.File {
	f := goFile("dispatch", "Package dispatch has, for every retired stub, the function that unpacks its arguments and packs its results.")
	f.Comment("ModelHash identifies what front and core have to agree on; they compare it at load.")
	f.Const().Id("ModelHash").Uint64().Op("=").Op(fmt.Sprintf("%#x", binding.Hash(in.Symbols)))
	params := []jen.Code{jen.Id("s").Op("*").Qual(enginePath, "Snapshot"), jen.Id("a").Qual("unsafe", "Pointer")}
	f.Comment("Function unpacks the arguments of one symbol: s is the snapshot of the call, and a its block of argument words.")
	f.Type().Id("Function").Func().Params(params...).Qual(abiPath, "Return")
	number := func(s *binding.Symbol) int { return s.Number }
	table := func(name string, at func(*binding.Symbol) int, kinds ...binding.Kind) {
		f.Var().Id(name).Op("=").Index(jen.Op("...")).Id("Function").ValuesFunc(func(g *jen.Group) {
			for _, s := range slices.SortedFunc(slices.Values(in.retired()), func(a, b *binding.Symbol) int { return cmp.Compare(a.Number, b.Number) }) {
				if slices.Contains(kinds, s.Kind) {
					g.Line().Lit(at(s)).Op(":").Id("call" + s.GoName())
				}
			}
			g.Line()
		})
	}
	f.Comment("calls holds the function of every retired stub by number. Entries of nvidia-smi's table have numbers far above all others\nand stand in slots, by their place in that table.")
	table("calls", number, binding.Function, binding.Lifecycle)
	f.Line()
	table("slots", (*binding.Symbol).Slot, binding.Slot)
	first := jen.Op(fmt.Sprintf("%#x", binding.FirstSlot))
	f.Comment("Call is the function of the symbol with that number, nil for a stub.")
	f.Func().Id("Call").Params(jen.Id("number").Uint32()).Id("Function").Block(
		jen.Switch().Block(
			jen.Case(jen.Id("number").Op("<").Uint32().Parens(jen.Len(jen.Id("calls")))).Block(jen.Return(jen.Id("calls").Index(jen.Id("number")))),
			jen.Case(jen.Id("number").Op("-").Add(first).Op("<").Uint32().Parens(jen.Len(jen.Id("slots")))).Block(
				jen.Return(jen.Id("slots").Index(jen.Id("number").Op("-").Add(first)))),
		),
		jen.Return(jen.Nil()),
	)
	for _, s := range in.retired() {
		f.Line()
		f.Func().Id("call"+s.GoName()).Params(params...).Qual(abiPath, "Return").
			BlockFunc(func(g *jen.Group) { unpack(g, in, s, in.Func(s.Name)) })
	}
	return f
}

func invalid() *jen.Statement {
	return jen.Return(jen.Qual(abiPath, "ERROR_INVALID_ARGUMENT"))
}

// unpack writes the body of one dispatch function.
func unpack(g *jen.Group, in Input, s *binding.Symbol, name string) {
	var args, results []jen.Code
	var packs, stores []func(*jen.Group) // what happens after success: first what can still fail, so that all or nothing is written
	var optional *jen.Statement          // true if every pointer that may be NULL is
	word := func(i int, typ string) *jen.Statement {
		return jen.Qual(marshalPath, "Word").Types(goType(typ)).Call(jen.Id("a"), jen.Lit(i))
	}
	// pointer loads parameter i into a variable p<i>, refusing NULL
	pointer := func(i int, null bool) *jen.Statement {
		p := fmt.Sprintf("p%d", i)
		g.Id(p).Op(":=").Qual(marshalPath, "Pointer").Call(jen.Id("a"), jen.Lit(i))
		if !null {
			g.If(jen.Id(p).Op("==").Nil()).Block(invalid())
		}
		return jen.Id(p)
	}
	result := func(i int) *jen.Statement {
		r := jen.Id(fmt.Sprintf("r%d", i))
		results = append(results, r)
		return r
	}
	// handles makes what stands for a result that is a handle, or several
	handles := func(i int, call *jen.Statement) *jen.Statement {
		h := jen.Id(fmt.Sprintf("h%d", i))
		packs = append(packs, func(g *jen.Group) {
			g.List(h.Clone(), jen.Id("ret")).Op(":=").Add(call)
			g.If(jen.Id("ret").Op("!=").Qual(abiPath, "SUCCESS")).Block(jen.Return(jen.Id("ret")))
		})
		return h
	}
	// store runs a packing function that can itself fail
	store := func(call *jen.Statement) {
		packs = append(packs, func(g *jen.Group) {
			g.If(jen.Id("ret").Op("=").Add(call), jen.Id("ret").Op("!=").Qual(abiPath, "SUCCESS")).Block(jen.Return(jen.Id("ret")))
		})
	}

	switch s.Context() {
	case "*engine.Engine":
		args = append(args, jen.Id("s").Dot("Engine").Call())
	case "*engine.Snapshot":
		args = append(args, jen.Id("s"))
	}
	for _, a := range s.Args {
		v := jen.Id(fmt.Sprintf("v%d", a.At))
		switch a.Role {
		case binding.ByHandle:
			g.List(v.Clone(), jen.Id("ret")).Op(":=").Id("s").Dot(binding.HandleType(a.Type.Name)).Call(word(a.At, "uintptr"), needs(in, s))
			g.If(jen.Id("ret").Op("!=").Qual(abiPath, "SUCCESS")).Block(jen.Return(jen.Id("ret")))
			args = append(args, v)
		case binding.ByValue:
			args = append(args, word(a.At, binding.GoType(a.Type)))
		case binding.Text:
			g.List(v.Clone(), jen.Id("ok")).Op(":=").Qual(marshalPath, "Text").Call(jen.Id("a"), jen.Lit(a.At))
			g.If(jen.Op("!").Id("ok")).Block(invalid())
			args = append(args, v)
		case binding.In:
			args = append(args, jen.Op("*").Parens(jen.Op("*").Add(goType(a.ElemType()))).Parens(pointer(a.At, false)))
		case binding.Out:
			p, r := pointer(a.At, a.Optional), result(a.At)
			if a.Optional {
				null := p.Clone().Op("==").Nil()
				if optional == nil {
					optional = null
				} else {
					optional = optional.Op("&&").Add(null)
				}
			}
			typ := goType(a.ElemType())
			if a.IsHandle() {
				typ, r = jen.Uintptr(), handles(a.At, r.Clone().Dot("Handle").Call())
			}
			stores = append(stores, func(g *jen.Group) {
				set := jen.Op("*").Parens(jen.Op("*").Add(typ)).Parens(p.Clone()).Op("=").Add(r)
				if a.Optional {
					set = jen.If(p.Clone().Op("!=").Nil()).Block(set)
				}
				g.Add(set)
			})
		case binding.Buffer:
			p, r := pointer(a.At, false), result(a.At)
			put := "PutText"
			if a.Crop {
				put = "PutCropped"
			}
			store(jen.Qual(marshalPath, put).Call(p, word(a.Size, "uint32"), r))
		case binding.FixedText:
			p, r := pointer(a.At, false), result(a.At)
			store(jen.Qual(marshalPath, "PutText").Call(p, jen.Lit(int(a.Extent)), r))
		case binding.SizedText:
			p, n, r := pointer(a.At, true), pointer(a.Size, false), result(a.At)
			store(jen.Qual(marshalPath, "PutSized").Call(p, n, jen.Index().Byte().Parens(r.Clone().Op("+").Lit("\x00"))))
		case binding.SizedBytes:
			p, n, r := pointer(a.At, true), pointer(a.Size, false), result(a.At)
			store(jen.Qual(marshalPath, "PutSized").Call(p, n, r))
		case binding.List, binding.Also:
			p, r := pointer(a.At, true), result(a.At)
			list := r.Clone()
			if a.IsHandle() {
				list = handles(a.At, jen.Qual(marshalPath, "Handles").Call(r.Clone()))
			}
			if a.Role == binding.Also {
				store(jen.Qual(marshalPath, "PutArray").Call(p, list, jen.Lit(int(a.Extent))))
				continue
			}
			n := pointer(a.Size, false)
			for _, also := range s.Args {
				if also.Role == binding.Also {
					p = jen.Qual(marshalPath, "Both").Call(p, jen.Id(fmt.Sprintf("p%d", also.At)))
				}
			}
			store(jen.Qual(marshalPath, "PutList").Call(n, p, list, jen.Lit(int(a.Extent)), jen.Lit(a.NullQuery)))
		case binding.Slice:
			p := pointer(a.At, false)
			n := jen.Int().Parens(word(a.Size, binding.GoType(s.Func.Params[a.Size].Type)))
			if a.InBytes {
				n = n.Op("/").Lit(int(a.Extent))
			}
			g.List(v.Clone(), jen.Id("ok")).Op(":=").Qual(marshalPath, "GetArray").Types(goType(a.ElemType())).Call(p.Clone(), n, jen.Lit(int(a.Extent)))
			g.If(jen.Op("!").Id("ok")).Block(invalid())
			args = append(args, v)
			store(jen.Qual(marshalPath, "PutArray").Call(p, v.Clone(), jen.Lit(int(a.Extent))))
		case binding.Plain, binding.Constant, binding.Versioned:
			p := pointer(a.At, false)
			extent := jen.Lit(int(a.Extent))
			switch {
			case a.Counted != "":
				extent = counted(g, a, p)
			case a.Role == binding.Versioned:
				extent = versioned(g, a, p)
			}
			g.Var().Add(v.Clone()).Add(goType(binding.GoType(elem(a))))
			g.Qual(marshalPath, "Get").Call(jen.Qual("unsafe", "Pointer").Parens(jen.Op("&").Add(v.Clone())), p.Clone(), extent.Clone())
			args = append(args, jen.Op("&").Add(v.Clone()))
			if a.Role != binding.Constant && !a.Type.Const {
				stores = append(stores, func(g *jen.Group) {
					g.Qual(marshalPath, "Put").Call(p.Clone(), jen.Qual("unsafe", "Pointer").Parens(jen.Op("&").Add(v.Clone())), extent.Clone())
				})
			}
		}
	}

	if optional != nil { // one of several may be NULL, not all
		g.If(optional).Block(invalid())
	}

	call := jen.Qual(handPath, name).Call(args...)
	if stores = append(packs, stores...); len(stores) == 0 {
		g.Return(call)
		return
	}
	assign := ":="
	if len(results) == 0 && s.Context() == "" {
		assign = "=" // a handle was looked up before
	}
	g.List(append(results, jen.Id("ret"))...).Op(assign).Add(call)
	g.If(jen.Id("ret").Op("!=").Qual(abiPath, "SUCCESS")).Block(jen.Return(jen.Id("ret")))
	for _, s := range stores {
		s(g)
	}
	g.Return(jen.Qual(abiPath, "SUCCESS"))
}

// versioned writes the check of a struct's version and returns the extent that it proves.
func versioned(g *jen.Group, a binding.Arg, p *jen.Statement) *jen.Statement {
	n := jen.Id(fmt.Sprintf("n%d", a.At))
	g.Var().Add(n.Clone()).Int()
	g.Switch(jen.Op("*").Parens(jen.Op("*").Uint32()).Parens(p.Clone())).BlockFunc(func(g *jen.Group) {
		for _, v := range a.Versions {
			size := v.Size
			if size == 0 || size > a.Known.Size {
				size = a.Extent
			}
			g.Case(jen.Op(fmt.Sprintf("%#x", v.Version))).Block(n.Clone().Op("=").Lit(int(size)))
		}
		g.Default().Block(jen.Return(jen.Qual(abiPath, "ERROR_ARGUMENT_VERSION_MISMATCH")))
	})
	return n
}

// counted writes the check of a struct whose last array is as long as a field of it says.
func counted(g *jen.Group, a binding.Arg, p *jen.Statement) *jen.Statement {
	n := versioned(g, a, p)
	typ := goType(binding.GoType(elem(a)))
	last := a.Known.Fields[len(a.Known.Fields)-1]
	g.Id("ok").Op(":=").Qual(marshalPath, "Counted").Call(
		jen.Op("&").Add(n.Clone()),
		p.Clone(),
		jen.Qual("unsafe", "Offsetof").Call(typ.Clone().Values().Dot(fieldName(a.Counted))),
		jen.Lit(int(last.Offset)), jen.Lit(int(last.Size/last.Type.Dims[0])), jen.Lit(int(last.Type.Dims[0])))
	g.If(jen.Op("!").Id("ok")).Block(invalid())
	return n
}

// elem is the struct behind a pointer, under its first name.
func elem(a binding.Arg) model.CType { return model.CType{Name: a.Known.Name} }
