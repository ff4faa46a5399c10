package emit

import (
	"github.com/dave/jennifer/jen"

	"github.com/nvmlfab/nvmlfab/generator/binding"
	"github.com/nvmlfab/nvmlfab/generator/requirements"
)

// gate is the C function that an implemented symbol calls. For administrators' symbols it refuses everybody else before
// it looks at arguments.
func gate(in Input, s *binding.Symbol) string {
	if in.Requires(s).Who == requirements.Admin {
		return "nvmlfab_admin_gate"
	}
	return "nvmlfab_gate"
}

// needs renders the needs that the engine checks for the handles of a symbol.
func needs(in Input, s *binding.Symbol) *jen.Statement {
	var out *jen.Statement
	for _, name := range in.Requires(s).Needs() {
		need := jen.Qual(enginePath, name)
		if out == nil {
			out = need
		} else {
			out = out.Op("|").Add(need)
		}
	}
	if out == nil {
		return jen.Lit(0)
	}
	return out
}
