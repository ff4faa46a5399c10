package emit

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/generator/binding"
	"github.com/nvmlfab/nvmlfab/generator/model"
	headers "github.com/nvmlfab/nvmlfab/nvml-headers"
)

// Front renders the C sources of the library that exports in.Header's functions.
func Front(in Input) Files {
	files := Files{
		"front/front.c":  frontFunctions(in),
		"front/layout.c": frontLayout(in),
		"front/shared.c": frontShared(in),
	}
	if len(in.early()) > 0 {
		files["front/early.c"] = frontEarly(in)
	}
	return files
}

// frontEarly renders the functions that the version's driver has and its header lacks. The header may lack their types,
// too, so every parameter is a word. That works because callers pass integers, enums and pointers alike in eight bytes,
// and the core reads only as many of them as the parameter has.
func frontEarly(in Input) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `/* %s */
/* What drivers of NVML %s have and its nvml.h does not declare. */
#include "front.h"

#pragma GCC visibility push(default)
`, notice, in.Header.NVML)
	for _, s := range in.early() {
		proto := *s.Func
		proto.Params = slices.Clone(proto.Params)
		for i := range proto.Params {
			proto.Params[i].Type = model.CType{Name: "uint64_t"}
		}
		fmt.Fprintf(&b, "\n%s;", proto.Prototype())
		definition(&b, in, s, &proto)
	}
	b.WriteString("\n#pragma GCC visibility pop\n")
	return b.Bytes()
}

// frontFunctions renders the functions that a version exports.
func frontFunctions(in Input) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `/* %s */
/* The functions of nvml.h %s, each with the header's own prototype. */
#include "front.h"

#pragma GCC visibility push(default)
`, notice, in.Header.NVML)
	for _, s := range in.Exported() {
		function(&b, in, s)
	}
	b.WriteString("\n#pragma GCC visibility pop\n")
	return b.Bytes()
}

// frontShared renders what the fronts of all versions have in common.
func frontShared(in Input) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `/* %s */
/* What the fronts of all versions have in common: the hash of the model, and nvidia-smi's table of unnamed functions. */
#include "front.h"

const uint64_t nvmlfab_model_hash = UINT64_C(%#x);

`, notice, binding.Hash(in.Symbols, in.Shared))
	assertLayout(&b, in.Slots)
	for _, s := range in.slots() {
		function(&b, in, s)
	}
	b.WriteString(`
/* Entry n is word n; word 0 is the size in bytes. */
const union nvmlfab_word_or_slot nvmlfab_slots[NVMLFAB_WORDS] = {
    {.size = sizeof nvmlfab_slots},
`)
	names := map[int]string{}
	for _, s := range in.slots() {
		names[s.Slot()] = s.Name
	}
	for i := 1; i < binding.Slots; i++ {
		fmt.Fprintf(&b, "    {.slot = (void (*)(void))%s},\n", cmp.Or(names[i], "nvmlfab_unknown_slot"))
	}
	b.WriteString("};\n")
	return b.Bytes()
}

// function renders the definition of a symbol that the header declares.
func function(b *bytes.Buffer, in Input, s *binding.Symbol) {
	definition(b, in, s, s.ProtoIn(in.Header.NVML))
}

func definition(b *bytes.Buffer, in Input, s *binding.Symbol, proto *model.Function) {
	fmt.Fprintf(b, "\n%s\n{\n", proto.Prototype())
	for _, line := range body(in, s, proto) {
		fmt.Fprintf(b, "    %s;\n", line)
	}
	b.WriteString("}\n")
}

// body renders the statements of a function. They depend on who answers it.
func body(in Input, s *binding.Symbol, proto *model.Function) []string {
	if s.Kind == binding.Front {
		names := make([]string, len(proto.Params))
		for i, p := range proto.Params {
			names[i] = p.Name
		}
		return []string{fmt.Sprintf("return %s(%s)", s.C, strings.Join(names, ", "))}
	}
	if !in.Implemented(s) {
		var lines []string
		for _, p := range proto.Params {
			lines = append(lines, "(void)"+p.Name)
		}
		return append(lines, fmt.Sprintf("return nvmlfab_stub(%d)", s.Since))
	}
	lines, block := argumentBlock(proto)
	number := fmt.Sprint(s.Number)
	if s.Kind == binding.Slot {
		number = fmt.Sprintf("%#x", s.Number)
	}
	switch s.Kind {
	case binding.Lifecycle:
		lines = append(lines, fmt.Sprintf("return %s(%s, %s)", s.C, number, block))
	case binding.Anytime:
		lines = append(lines, fmt.Sprintf("return %s(%s, %d, %s, %d, %d)", s.C, number, s.Since, block,
			in.numberOf("nvmlInit_v2"), in.numberOf("nvmlShutdown")))
	case binding.Waiter:
		lines = append(lines, fmt.Sprintf("return %s(%s, %d, %s, %s)", s.C, number, s.Since, block, s.Timeout()))
	default:
		lines = append(lines, fmt.Sprintf("return %s(%s, %d, %s)", gate(in, s), number, s.Since, block))
	}
	return lines
}

// argumentBlock packs the parameters into words and names the array that holds them.
func argumentBlock(proto *model.Function) (lines []string, block string) {
	if len(proto.Params) == 0 {
		return nil, "NULL"
	}
	words := make([]string, len(proto.Params))
	for i, p := range proto.Params {
		words[i] = fmt.Sprintf("NVMLFAB_WORD(%s)", p.Name)
	}
	return []string{fmt.Sprintf("const uint64_t a[] = {%s}", strings.Join(words, ", "))}, "a"
}

// frontLayout asserts every size and offset of the model against the real header.
func frontLayout(in Input) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `/* %s */
/* The layouts of nvml.h %s that the core relies on, checked by the C compiler. */
#include <stddef.h>

#include "nvml.h"

`, notice, in.Header.NVML)
	assertLayout(&b, in.Header)
	return b.Bytes()
}

func assertLayout(b *bytes.Buffer, h *model.Header) {
	assert := func(expr string, want int64) {
		fmt.Fprintf(b, "_Static_assert(%s == %d, \"%s\");\n", expr, want, expr)
	}
	for _, t := range h.Types {
		if strings.Contains(t.Name, ".") || t.Kind == model.Alias {
			continue
		}
		assert(fmt.Sprintf("sizeof(%s)", t.Name), t.Size)
		for _, f := range t.Fields {
			assert(fmt.Sprintf("offsetof(%s, %s)", t.Name, f.Name), f.Offset)
		}
	}
}

// Verify reads rendered sources back and compares every definition with the declared prototype, typedef names included,
// since a C compiler accepts an enum in place of an unsigned int.
func Verify(in Input, headerText []byte, files Files) error {
	front := map[string]string{}
	for _, name := range []string{"front/front.c", "front/shared.c"} {
		defined, err := model.ParseDefinitions(in.Header.NVML, headerText, headers.Internal, headers.Slots, files[name])
		if err != nil {
			return fmt.Errorf("rendered %s: %w", name, err)
		}
		for _, f := range defined {
			front[f.Name] = f.Prototype()
		}
	}
	var problems []string
	for _, s := range append(in.Exported(), in.slots()...) {
		want := s.ProtoIn(in.Header.NVML).Prototype()
		if have := front[s.Name]; have != want {
			problems = append(problems, fmt.Sprintf("rendered front: have %q, the header declares %q", have, want))
		}
		delete(front, s.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(front)) {
		problems = append(problems, fmt.Sprintf("rendered front: the header does not declare %s", name))
	}
	if len(problems) > 0 {
		return fmt.Errorf("%s", strings.Join(problems, "\n"))
	}
	return nil
}
