package emit

import (
	"fmt"
	"math"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/nvmlfab/nvmlfab/generator/binding"
	"github.com/nvmlfab/nvmlfab/generator/model"
)

// ABI renders package abi: the header's types and constants under their C names without
// the prefix, the layout assertions, and the table of symbols.
func ABI(in Input) (Files, error) {
	out := Files{}
	for name, build := range map[string]func(Input) *jen.File{
		"abi/types.go": abiTypes, "abi/constants.go": abiConstants, "abi/layout.go": abiLayout, "abi/symbols.go": abiSymbols,
	} {
		text, err := render(build(in))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = text
	}
	return out, nil
}

func abiTypes(in Input) *jen.File {
	f := goFile("abi", "Package abi is nvml.h "+in.Header.NVML+` as Go: types and constants under their C names without the prefix.

A union is an array of the unsigned integers that its alignment asks for.`)
	for _, t := range in.Header.Types {
		name := binding.GoName(t.Name)
		f.Comment(name + " is " + t.Name + ".")
		switch t.Kind {
		case model.Alias:
			f.Type().Id(name).Op("=").Id(binding.GoName(in.Header.Type(t.Name).Name))
		case model.Scalar:
			f.Type().Id(name).Add(goType(binding.GoType(*t.Of)))
		case model.Handle:
			f.Type().Id(name).Uintptr()
		case model.Enum:
			f.Type().Id(name).Id(enumType(t))
		case model.Union:
			f.Type().Id(name).Index(jen.Lit(int(t.Size / t.Align))).Id(fmt.Sprintf("uint%d", t.Align*8))
		case model.Struct:
			f.Type().Id(name).StructFunc(func(g *jen.Group) {
				for _, m := range t.Fields {
					g.Id(fieldName(m.Name)).Add(goType(binding.GoType(m.Type)))
				}
			})
		}
		f.Line()
	}
	return f
}

func enumType(t *model.Type) string {
	for _, v := range t.Values {
		if v.Value < 0 {
			return "int32"
		}
	}
	return "uint32"
}

func fieldName(c string) string { return strings.ToUpper(c[:1]) + c[1:] }

func abiConstants(in Input) *jen.File {
	f := goFile("abi", "")
	for _, t := range in.Header.Types {
		if t.Kind != model.Enum {
			continue
		}
		f.Comment("Values of " + t.Name + ".")
		f.Const().DefsFunc(func(g *jen.Group) {
			for _, v := range t.Values {
				g.Id(binding.GoName(v.Name)).Id(binding.GoName(t.Name)).Op("=").Lit(int(v.Value))
			}
		})
	}
	f.Comment("Macros.")
	f.Const().DefsFunc(func(g *jen.Group) {
		for _, c := range in.Header.Constants {
			id := g.Id(binding.GoName(c.Name)).Op("=")
			switch {
			case c.Text != nil:
				id.Lit(*c.Text)
			case c.Unsigned && (c.Int < 0 || c.Int > math.MaxInt32):
				id.Op(fmt.Sprintf("%#x", uint64(c.Int)))
			default:
				id.Lit(int(c.Int))
			}
		}
	})
	return f
}

// abiLayout lets the Go compiler compare every layout with the header's: arrays of
// different lengths do not assign.
func abiLayout(in Input) *jen.File {
	f := goFile("abi", "")
	same := func(want int64, expr *jen.Statement) {
		f.Var().Id("_").Index(jen.Lit(int(want))).Struct().Op("=").Index(expr).Struct().Values()
	}
	for _, t := range in.Header.Types {
		if t.Kind != model.Struct && t.Kind != model.Union {
			continue
		}
		name := binding.GoName(t.Name)
		zero := func() *jen.Statement { return jen.Id(name).Values() }
		same(t.Size, jen.Qual("unsafe", "Sizeof").Call(zero()))
		if t.Kind == model.Struct {
			for _, m := range t.Fields {
				same(m.Offset, jen.Qual("unsafe", "Offsetof").Call(zero().Dot(fieldName(m.Name))))
			}
		}
	}
	return f
}

// abiSymbols renders the table that numbers the symbols, and the versions.
func abiSymbols(in Input) *jen.File {
	f := goFile("abi", "")
	f.Comment("ModelHash identifies the numbering below; front and core exchange it.")
	f.Const().Id("ModelHash").Uint64().Op("=").Op(fmt.Sprintf("%#x", binding.Hash(in.Symbols)))
	f.Comment("Version is a version of nvml.h and the driver branch that introduced it.")
	f.Type().Id("Version").Struct(jen.Id("NVML").String(), jen.Id("Driver").Int())
	f.Comment("Versions lists the known versions, oldest first.")
	f.Var().Id("Versions").Op("=").Index(jen.Op("...")).Id("Version").ValuesFunc(func(g *jen.Group) {
		for i, v := range in.Versions {
			g.Line().Values(jen.Lit(v), jen.Lit(in.Drivers[i]))
		}
		g.Line()
	})
	f.Comment("Symbol is an exported function: the oldest version that declares it, counted from 1, and whether a Go function answers it.")
	f.Type().Id("Symbol").Struct(jen.Id("Name").String(), jen.Id("Since").Int(), jen.Id("Implemented").Bool())
	f.Comment("SymbolCount is the number of symbols of all versions.")
	f.Const().Id("SymbolCount").Op("=").Lit(len(in.Symbols))
	f.Comment("Symbols lists every function of every version by its number at the call gate. It is read from\ntext when asked for: a table of strings would cost every process that loads the core a relocation each.")
	f.Func().Id("Symbols").Params().Index().Id("Symbol").Block(
		jen.Id("list").Op(":=").Make(jen.Index().Id("Symbol"), jen.Lit(0), jen.Id("SymbolCount")),
		jen.For(jen.Id("line").Op(":=").Range().Qual("strings", "Lines").Call(jen.Id("symbols"))).Block(
			jen.Id("name").Op(",").Id("rest").Op(",").Id("_").Op(":=").Qual("strings", "Cut").Call(jen.Id("line"), jen.Lit(" ")),
			jen.Id("since").Op(",").Id("status").Op(",").Id("_").Op(":=").Qual("strings", "Cut").Call(jen.Id("rest"), jen.Lit(" ")),
			jen.Id("n").Op(",").Id("_").Op(":=").Qual("strconv", "Atoi").Call(jen.Id("since")),
			jen.Id("list").Op("=").Append(jen.Id("list"), jen.Id("Symbol").Values(
				jen.Id("name"), jen.Id("n"), jen.Id("status").Op("==").Lit("implemented\n"))),
		),
		jen.Return(jen.Id("list")),
	)
	var text strings.Builder
	for _, s := range in.Symbols {
		status := "stub"
		if in.Func(s.Name) != "" || FrontOnly[s.Name] {
			status = "implemented"
		}
		fmt.Fprintf(&text, "%s %d %s\n", s.Name, s.Since, status)
	}
	f.Const().Id("symbols").Op("=").Op("`" + text.String() + "`")
	return f
}
