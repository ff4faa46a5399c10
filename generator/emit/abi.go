package emit

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/nvmlfab/nvmlfab/generator/binding"
	"github.com/nvmlfab/nvmlfab/generator/model"
)

// ABI renders package abi: the types and constants of the header and of nvidia-smi's table under their C names without
// the prefix, assertions of their layouts, and the table of symbols.
func ABI(in Input) (Files, error) {
	out := Files{"abi/symbols.txt": abiSymbols(in)}
	for name, build := range map[string]func(*jen.File, Input){
		"abi/types.go":     func(f *jen.File, in Input) { abiTypes(f, in.Header, in.Header) },
		"abi/constants.go": func(f *jen.File, in Input) { abiConstants(f, in.Header) },
		"abi/layout.go":    func(f *jen.File, in Input) { abiLayout(f, in.Header) },
		"abi/slots.go":     abiSlots,
		"abi/fields.go":    abiFields,
		"abi/symbols.go":   abiVersions,
		"abi/returns.go":   func(f *jen.File, in Input) { abiReturns(f, in.Header) },
	} {
		f := goFile("abi", "")
		build(f, in)
		text, err := render(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = text
	}
	return out, nil
}

// abiTypes renders the types of h. all has every type that they may refer to.
func abiTypes(f *jen.File, h, all *model.Header) {
	if h == all {
		f.PackageComment("Package abi is nvml.h " + h.NVML + ` as Go: types and constants under their C names without the prefix.

A union is an array of the unsigned integers that its alignment asks for.`)
	}
	for _, t := range h.Types {
		name := binding.GoName(t.Name)
		f.Comment(name + " is " + t.Name + ".")
		switch t.Kind {
		case model.Alias:
			f.Type().Id(name).Op("=").Id(binding.GoName(all.Type(t.Name).Name))
		case model.Scalar:
			f.Type().Id(name).Add(binding.GoTypeOf(*t.Of).Code())
		case model.Handle:
			f.Type().Id(name).Uintptr()
		case model.Enum:
			f.Type().Id(name).Id(enumType(t))
		case model.Union:
			f.Type().Id(name).Index(jen.Lit(int(t.Size / t.Align))).Id(fmt.Sprintf("uint%d", t.Align*8))
		case model.Struct:
			f.Type().Id(name).StructFunc(func(g *jen.Group) {
				var end int64
				// Padding gets a name, so that Go sets it to 0: callers get every byte of a struct.
				pad := func(next int64) {
					if next > end {
						g.Id(fmt.Sprintf("Pad%d", end)).Index(jen.Lit(int(next - end))).Byte()
					}
				}
				for _, m := range t.Fields {
					pad(m.Offset)
					g.Id(fieldName(m.Name)).Add(binding.GoTypeOf(m.Type).Code())
					end = m.Offset + m.Size
				}
				pad(t.Size)
			})
		}
		f.Line()
	}
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

func abiConstants(f *jen.File, h *model.Header) {
	for _, t := range h.Types {
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
	if len(h.Constants) == 0 {
		return
	}
	f.Comment("Macros.")
	f.Const().DefsFunc(func(g *jen.Group) {
		for _, c := range h.Constants {
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
}

// abiLayout asserts that every Go layout equals the header's: arrays of different lengths are not assignable, so the Go
// compiler refuses a difference.
func abiLayout(f *jen.File, h *model.Header) {
	same := func(want int64, expr *jen.Statement) {
		f.Var().Id("_").Index(jen.Lit(int(want))).Struct().Op("=").Index(expr).Struct().Values()
	}
	for _, t := range h.Types {
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
}

// abiSlots renders all of nvidia-smi's table in one file, so that a new entry changes no other file of this package.
func abiSlots(f *jen.File, in Input) {
	abiTypes(f, in.Slots, in.Header.With(in.Slots))
	abiConstants(f, in.Slots)
	abiLayout(f, in.Slots)
}

// abiSymbols renders the status of every symbol, by number.
func abiSymbols(in Input) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n# number, the NVML version that brought it, status, kind, symbol\n", notice)
	byNumber := slices.SortedFunc(slices.Values(in.Symbols), func(a, b *binding.Symbol) int { return cmp.Compare(a.Number, b.Number) })
	for _, s := range byNumber {
		status := "stub"
		if in.Implemented(s) {
			status = "implemented"
		}
		fmt.Fprintf(&b, "%d %d %s %s %s\n", s.Number, s.Since, status, s.Kind, s.Name)
	}
	return b.Bytes()
}

// abiReturns renders a function that names the values of nvmlReturn_t.
func abiReturns(f *jen.File, h *model.Header) {
	f.Comment("ReturnName is the name of a code in C; empty for a code that has none.")
	f.Func().Id("ReturnName").Params(jen.Id("code").Id("Return")).String().Block(
		jen.Switch(jen.Id("code")).BlockFunc(func(g *jen.Group) {
			for _, v := range h.Type("nvmlReturn_t").Values {
				g.Case(jen.Id(binding.GoName(v.Name))).Block(jen.Return(jen.Lit(v.Name)))
			}
		}),
		jen.Return(jen.Lit("")),
	)
}

// abiVersions renders the versions, and the code that reads symbols.txt.
func abiVersions(f *jen.File, in Input) {
	f.Comment("Version is a version of nvml.h, as text and as an integer (12004127 for 12.4.127), and the driver branch that introduced it.")
	f.Type().Id("Version").Struct(jen.Id("NVML").String(), jen.Id("Number").Int(), jen.Id("Driver").Int())
	f.Comment("Versions lists the known versions, oldest first.")
	f.Var().Id("Versions").Op("=").Index(jen.Op("...")).Id("Version").ValuesFunc(func(g *jen.Group) {
		for _, v := range in.Versions {
			g.Line().Values(jen.Lit(v.NVML), jen.Lit(v.Number), jen.Lit(v.Driver))
		}
		g.Line()
	})
	f.ImportAlias("embed", "_")
	f.Anon("embed")
	f.Comment(`Symbol is a function that libnvidia-ml.so answers: its number at the call gate, the Version.Number of the oldest version
that has it, its kind ("slot" for entries of nvidia-smi's table, which are not exported), and whether it is more than a stub.`)
	f.Type().Id("Symbol").Struct(jen.Id("Number").Int(), jen.Id("Name").String(), jen.Id("Since").Int(), jen.Id("Kind").String(),
		jen.Id("Implemented").Bool())
	f.Comment(`Symbols lists every function of every version by its number. It is read from text when asked for: a table of strings
would cost every process that loads the core a relocation each.`)
	f.Func().Id("Symbols").Params().Index().Id("Symbol").Block(
		jen.Var().Id("list").Index().Id("Symbol"),
		jen.For(jen.Id("line").Op(":=").Range().Qual("strings", "Lines").Call(jen.Id("symbols"))).Block(
			jen.Id("f").Op(":=").Qual("strings", "Fields").Call(jen.Id("line")),
			jen.If(jen.Id("f").Index(jen.Lit(0)).Op("==").Lit("#")).Block(jen.Continue()),
			jen.List(jen.Id("number"), jen.Id("_")).Op(":=").Qual("strconv", "Atoi").Call(jen.Id("f").Index(jen.Lit(0))),
			jen.List(jen.Id("since"), jen.Id("_")).Op(":=").Qual("strconv", "Atoi").Call(jen.Id("f").Index(jen.Lit(1))),
			jen.Id("list").Op("=").Append(jen.Id("list"), jen.Id("Symbol").Values(jen.Id("number"), jen.Id("f").Index(jen.Lit(4)),
				jen.Id("since"), jen.Id("f").Index(jen.Lit(3)), jen.Id("f").Index(jen.Lit(2)).Op("==").Lit("implemented"))),
		),
		jen.Return(jen.Id("list")),
	)
	f.Line()
	f.Comment("//go:embed symbols.txt")
	f.Var().Id("symbols").String()
}
