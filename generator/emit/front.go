package emit

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/generator/binding"
	"github.com/nvmlfab/nvmlfab/generator/model"
	headers "github.com/nvmlfab/nvmlfab/nvml-headers"
)

// lifecycle names the C functions behind the symbols that load and unload the core.
var lifecycle = map[string]string{
	"nvmlInit": "nvmlfab_init", "nvmlInit_v2": "nvmlfab_init", "nvmlInitWithFlags": "nvmlfab_init",
	"nvmlShutdown": "nvmlfab_shutdown",
}

// FrontOnly names the symbols that the front answers in C, without a core.
var FrontOnly = map[string]bool{"nvmlErrorString": true, "nvmlInternalGetExportTable": true}

// Front renders the C sources of the library that exports in.Header's functions.
func Front(in Input) Files {
	return Files{
		"front/front.c":   frontFunctions(in),
		"front/layout.c":  frontLayout(in),
		"front/symbols.h": frontSymbols(in),
	}
}

func frontSymbols(in Input) []byte {
	return fmt.Appendf(nil, `/* %s */
#ifndef NVMLFAB_SYMBOLS_H
#define NVMLFAB_SYMBOLS_H
#define NVMLFAB_MODEL_HASH UINT64_C(%#x)
#define NVMLFAB_NVML_VERSION "%s"
#endif
`, notice, binding.Hash(in.Symbols), in.Header.NVML)
}

// Exported lists the symbols of a front: what its header declares and what no header does.
func Exported(in Input) []*binding.Symbol {
	return slices.DeleteFunc(slices.Clone(in.Symbols), func(s *binding.Symbol) bool { return s.Slot() > 0 || !s.In(in.Header.NVML) })
}

// slotWords is NVMLFAB_WORDS of front.h.
const slotWords = 256

// slots lists the retired entries of nvidia-smi's table.
func slots(in Input) []*binding.Symbol {
	return slices.DeleteFunc(slices.Clone(in.Symbols), func(s *binding.Symbol) bool { return s.Slot() == 0 || in.Func(s.Name) == "" })
}

func frontFunctions(in Input) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `/* %s */
/* The functions of nvml.h %s, each with the header's own prototype. */
#include "front.h"

#pragma GCC visibility push(default)

`, notice, in.Header.NVML)
	function := func(s *binding.Symbol) {
		proto := s.ProtoIn(in.Header.NVML)
		fmt.Fprintf(&b, "%s\n{\n%s}\n\n", proto.Prototype(), body(in, s, proto))
	}
	for _, s := range Exported(in) {
		function(s)
	}
	b.WriteString("#pragma GCC visibility pop\n\n")
	for _, s := range slots(in) {
		function(s)
	}
	b.WriteString("/* Slot i is word i; the first word is the size in bytes. */\nconst union nvmlfab_word_or_slot nvmlfab_slots[NVMLFAB_WORDS] = {\n")
	slot := map[int]string{}
	for _, s := range slots(in) {
		slot[s.Slot()] = s.Name
	}
	b.WriteString("    {.size = sizeof nvmlfab_slots},\n")
	for i := 1; i < slotWords; i++ {
		fmt.Fprintf(&b, "    {.slot = (void (*)(void))%s},\n", cmp.Or(slot[i], "nvmlfab_unknown_slot"))
	}
	b.WriteString("};\n")
	return b.Bytes()
}

func body(in Input, s *binding.Symbol, proto *model.Function) string {
	switch s.Name {
	case "nvmlErrorString":
		return "    return nvmlfab_error_string(result);\n"
	case "nvmlInternalGetExportTable":
		return "    return nvmlfab_export_table(table, guid);\n"
	}
	if in.Func(s.Name) == "" {
		var unused strings.Builder
		for _, p := range proto.Params {
			fmt.Fprintf(&unused, "    (void)%s;\n", p.Name)
		}
		return fmt.Sprintf("%s    return nvmlfab_stub(%d);\n", unused.String(), s.Since)
	}
	args, block := "", "NULL"
	if len(proto.Params) > 0 {
		words := make([]string, len(proto.Params))
		for i, p := range proto.Params {
			words[i] = fmt.Sprintf("NVMLFAB_WORD(%s)", p.Name)
		}
		args = fmt.Sprintf("    const uint64_t a[] = {%s};\n", strings.Join(words, ", "))
		block = "a"
	}
	if call := lifecycle[s.Name]; call != "" {
		return fmt.Sprintf("%s    return %s(%d, %s);\n", args, call, s.Index, block)
	}
	return fmt.Sprintf("%s    return %s(%d, %d, %s);\n", args, gate(in, s), s.Index, s.Since, block)
}

// frontLayout asserts every size and offset of the model against the real header.
func frontLayout(in Input) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `/* %s */
/* The layouts of nvml.h %s that the core relies on, checked by the C compiler. */
#include <stddef.h>

#include "nvml.h"
#include "internal.h"

`, notice, in.Header.NVML)
	assert := func(expr string, want int64) {
		fmt.Fprintf(&b, "_Static_assert(%s == %d, \"%s\");\n", expr, want, expr)
	}
	for _, t := range in.Header.Types {
		if strings.Contains(t.Name, ".") || t.Kind == model.Alias {
			continue
		}
		assert(fmt.Sprintf("sizeof(%s)", t.Name), t.Size)
		for _, f := range t.Fields {
			assert(fmt.Sprintf("offsetof(%s, %s)", t.Name, f.Name), f.Offset)
		}
	}
	return b.Bytes()
}

// Verify reads a rendered front back and compares every definition with the header's
// prototype, typedef names included: a C compiler lets an enum pass for an unsigned int.
func Verify(header *model.Header, headerText, front []byte) error {
	defined, err := model.ParseDefinitions(header.NVML, headerText, headers.Internal, front)
	if err != nil {
		return fmt.Errorf("rendered front: %w", err)
	}
	have := map[string]string{}
	for _, f := range defined {
		have[f.Name] = f.Prototype()
	}
	var problems []string
	for _, f := range header.Functions {
		if h, ok := have[f.Name]; h != f.Prototype() && (ok || !f.Internal) {
			problems = append(problems, fmt.Sprintf("rendered front: have %q, the header declares %q", h, f.Prototype()))
		}
		delete(have, f.Name)
	}
	for name := range have {
		problems = append(problems, fmt.Sprintf("rendered front: the header does not declare %s", name))
	}
	if len(problems) > 0 {
		return fmt.Errorf("%s", strings.Join(problems, "\n"))
	}
	return nil
}
