package emit

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dave/jennifer/jen"

	"github.com/nvmlfab/nvmlfab/generator/binding"
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
	f.Const().Id("ModelHash").Uint64().Op("=").Op(fmt.Sprintf("%#x", binding.Hash(in.Symbols, in.Shared)))
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
	table("calls", number, binding.Function, binding.Lifecycle, binding.Waiter, binding.Anytime)
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
			Block(callBody(in, s, in.Func(s.Name))...)
	}
	return f
}
