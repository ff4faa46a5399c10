package model

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"modernc.org/cc/v4"
)

// predefined are the types and macros that the parser needs before a header. Since nvml.h includes nothing that
// matters, no system header and no C compiler is needed.
const predefined = `
#define __SIZE_TYPE__ unsigned long
#define __WCHAR_TYPE__ int
#define __PTRDIFF_TYPE__ long
#define __CHAR_BIT__ 8
#define __INT_MAX__ 0x7fffffff
int __predefined_declarator;
typedef void *__builtin_va_list;
typedef unsigned long __predefined_size_t;
typedef int __predefined_wchar_t;
typedef long __predefined_ptrdiff_t;
`

// Parse reads a header twice: as programs see it by default, and with NVML_NO_UNVERSIONED_FUNC_DEFS, which shows the
// names that macros otherwise replace. Types and constants come from the second reading. internal declares the
// functions that are in no header; it follows the header in that reading. Layouts are those of LP64, which amd64 and
// arm64 share.
func Parse(nvml, name string, text, internal []byte) (*Header, error) {
	plain, err := parse(nvml, "", source{name, text})
	if err != nil {
		return nil, err
	}
	full, err := parse(nvml, unguarded, source{name, text}, source{internalName, internal})
	if err != nil {
		return nil, err
	}
	for _, f := range full.Functions {
		f.Guarded = !f.Internal && plain.Function(f.Name) == nil
	}
	for _, f := range plain.Functions {
		if full.Function(f.Name) == nil {
			return nil, fmt.Errorf("%s: %s is declared only without NVML_NO_UNVERSIONED_FUNC_DEFS", name, f.Name)
		}
	}
	full.mention(text)
	return full, nil
}

// ParseSlots reads the entries of nvidia-smi's table, which slots declares. It reads slots after the header, since that
// uses the header's types.
func ParseSlots(name string, text, slots []byte) (*Header, error) {
	header, err := parse(SlotsName, unguarded, source{name, text})
	if err != nil {
		return nil, err
	}
	all, err := parse(SlotsName, unguarded, source{name, text}, source{slotsName, slots})
	if err != nil {
		return nil, err
	}
	all.Types = all.Types[len(header.Types):] // sorted by their declarations
	all.Functions = slices.DeleteFunc(all.Functions, func(f *Function) bool { return header.Function(f.Name) != nil })
	all.Constants = slices.DeleteFunc(all.Constants, func(c *Constant) bool {
		return slices.ContainsFunc(header.Constants, func(d *Constant) bool { return c.Name == d.Name })
	})
	return all, nil
}

// SlotsName replaces the header's version in the model of nvidia-smi's table.
const SlotsName = "slots"

const (
	internalName = "internal.h"
	slotsName    = "slots.h"
	unguarded    = "#define NVML_NO_UNVERSIONED_FUNC_DEFS\n"
)

// source is a C file and its name in errors.
type source struct {
	name string
	text []byte
}

// parser collects the declarations of one reading.
type parser struct {
	header *Header
	byType map[string]*Type  // every type by name
	tags   map[string]string // struct, union or enum tag → first typedef name
}

// parse reads sources in order; the first is the header.
func parse(nvml, prologue string, sources ...source) (*Header, error) {
	name := sources[0].name
	abi, err := cc.NewABI("linux", "amd64")
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	text := []cc.Source{{Name: "<predefined>", Value: predefined + prologue}}
	for _, s := range sources {
		text = append(text, cc.Source{Name: s.name, Value: s.text})
	}
	ast, err := cc.Translate(&cc.Config{ABI: abi, EvalAllMacros: true}, text)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	p := &parser{header: &Header{NVML: nvml}, byType: map[string]*Type{}, tags: map[string]string{}}
	for l := ast.TranslationUnit; l != nil; l = l.TranslationUnit {
		decl := l.ExternalDeclaration.Declaration
		file := l.ExternalDeclaration.Position().Filename
		if decl == nil || !slices.ContainsFunc(sources, func(s source) bool { return s.name == file }) {
			continue
		}
		if err := p.declaration(decl, file != name); err != nil {
			return nil, fmt.Errorf("%s: %w", decl.Position(), err)
		}
	}
	p.macros(ast)
	slices.SortFunc(p.header.Functions, func(a, b *Function) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(p.header.Constants, func(a, b *Constant) int { return strings.Compare(a.Name, b.Name) })
	return p.header, nil
}

func (p *parser) declaration(decl *cc.Declaration, internal bool) error {
	source := typeName(decl.DeclarationSpecifiers)
	for l := decl.InitDeclaratorList; l != nil; l = l.InitDeclaratorList {
		d := l.InitDeclarator.Declarator
		if f, ok := d.Type().(*cc.FunctionType); ok && !d.IsTypename() {
			if p.header.Function(d.Name()) != nil {
				continue // some headers declare it and some do not
			}
			if err := p.function(d.Name(), f); err != nil {
				return err
			}
			p.header.Functions[len(p.header.Functions)-1].Internal = internal
		} else if d.IsTypename() {
			if err := p.typedef(d.Name(), source, d.Type()); err != nil {
				return err
			}
		} else {
			return fmt.Errorf("unexpected declaration of %q", d.Name())
		}
	}
	return nil
}

// typeName is the typedef name in specifiers, if there is one.
func typeName(s *cc.DeclarationSpecifiers) string {
	for ; s != nil; s = s.DeclarationSpecifiers {
		if t := s.TypeSpecifier; t != nil && t.Case == cc.TypeSpecifierTypeName {
			return t.Token.SrcStr()
		}
	}
	return ""
}

func (p *parser) function(name string, f *cc.FunctionType) error {
	out := &Function{Name: name}
	var err error
	if out.Result, err = p.ctype(f.Result()); err != nil {
		return fmt.Errorf("result of %s: %w", name, err)
	}
	for _, q := range f.Parameters() {
		if q.Type().Kind() == cc.Void {
			continue
		}
		t, err := p.ctype(q.Type())
		if err != nil {
			return fmt.Errorf("parameter %q of %s: %w", q.Name(), name, err)
		}
		out.Params = append(out.Params, Param{Name: q.Name(), Type: t})
	}
	p.header.Functions = append(p.header.Functions, out)
	return nil
}

func (p *parser) add(t *Type) {
	p.byType[t.Name] = t
	p.header.Types = append(p.header.Types, t)
}

func (p *parser) typedef(name, source string, t cc.Type) error {
	if source != "" { // typedef A B
		of := p.byType[source]
		if of == nil {
			return fmt.Errorf("typedef %s names unknown type %q", name, source)
		}
		p.add(&Type{Name: name, Kind: Alias, Of: &CType{Name: source}, Size: of.Size, Align: of.Align})
		return nil
	}
	switch t := t.(type) {
	case *cc.StructType, *cc.UnionType:
		return p.record(name, t)
	case *cc.EnumType:
		e := &Type{Name: name, Kind: Enum, Size: t.Size(), Align: int64(t.Align())}
		if first, again := p.tag(name, "enum", t.Tag()); again {
			p.add(&Type{Name: name, Kind: Alias, Of: &CType{Name: first}, Size: e.Size, Align: e.Align})
			return nil
		}
		for _, v := range t.Enumerators() {
			n, ok := integer(v.Value())
			if !ok {
				return fmt.Errorf("enumerator %s has no integer value", v.Token.SrcStr())
			}
			e.Values = append(e.Values, Value{Name: v.Token.SrcStr(), Value: n})
		}
		p.add(e)
	case *cc.PointerType:
		p.add(&Type{Name: name, Kind: Handle, Size: 8, Align: 8})
	case *cc.PredefinedType:
		of, err := p.ctype(t)
		if err != nil || of.Name == name {
			of, err = CType{Name: kindName(t.Kind())}, nil
		}
		if err != nil {
			return err
		}
		p.add(&Type{Name: name, Kind: Scalar, Of: &of, Size: t.Size(), Align: int64(t.Align())})
	default:
		return fmt.Errorf("typedef %s of unexpected %s", name, t)
	}
	return nil
}

// tag remembers the first typedef name of a tag. For a later typedef it returns that first name.
func (p *parser) tag(name, kind string, tag cc.Token) (first string, again bool) {
	s := tag.SrcStr()
	if s == "" {
		return name, false
	}
	if first, ok := p.tags[kind+" "+s]; ok {
		return first, true
	}
	p.tags[kind+" "+s] = name
	return name, false
}

// record adds a struct or union under name.
func (p *parser) record(name string, t cc.Type) error {
	out := &Type{Name: name, Kind: Struct, Size: t.Size(), Align: int64(t.Align())}
	var (
		tag cc.Token
		n   int
		at  func(int) *cc.Field
	)
	switch t := t.(type) {
	case *cc.StructType:
		tag, n, at = t.Tag(), t.NumFields(), t.FieldByIndex
	case *cc.UnionType:
		out.Kind = Union
		tag, n, at = t.Tag(), t.NumFields(), t.FieldByIndex
	}
	if first, again := p.tag(name, string(out.Kind), tag); again {
		p.add(&Type{Name: name, Kind: Alias, Of: &CType{Name: first}, Size: out.Size, Align: out.Align})
		return nil
	}
	for i := range n {
		f := at(i)
		if f.IsBitfield() {
			return fmt.Errorf("%s.%s is a bit field, which no rule renders", name, f.Name())
		}
		if p, ok := f.Type().(*cc.PointerType); ok && n == 1 && f.Name() == "handle" && isOpaque(p.Elem()) {
			out.Kind = Handle
			continue
		}
		ct, err := p.ctype(f.Type())
		if err != nil && f.Type().Typedef() == nil {
			// an unnamed struct or union, or one with only a tag
			inner := f.Type()
			if a, ok := inner.(*cc.ArrayType); ok {
				inner = a.Elem()
			}
			ct.Name = name + "." + fieldName(f)
			err = p.record(ct.Name, inner)
		}
		if err != nil {
			return fmt.Errorf("%s.%s: %w", name, f.Name(), err)
		}
		out.Fields = append(out.Fields, Field{Name: fieldName(f), Type: ct, Offset: f.Offset(), Size: f.Type().Size()})
	}
	p.add(out)
	return nil
}

// fieldName names an unnamed member after its first member, which C code can refer to.
func fieldName(f *cc.Field) string {
	if f.Name() != "" {
		return f.Name()
	}
	switch t := f.Type().(type) {
	case *cc.StructType:
		return fieldName(t.FieldByIndex(0))
	case *cc.UnionType:
		return fieldName(t.FieldByIndex(0))
	}
	return ""
}

func isOpaque(t cc.Type) bool {
	s, ok := t.(*cc.StructType)
	return ok && s.NumFields() == 0
}

// ctype converts t. For an unnamed record it returns an error and the dimensions.
func (p *parser) ctype(t cc.Type) (CType, error) {
	var out CType
	for {
		if t.Typedef() != nil && t.Kind() != cc.Ptr && t.Kind() != cc.Array {
			out.Name = t.Typedef().Name()
			out.Const = isConst(t)
			return out, nil
		}
		switch u := t.(type) {
		case *cc.PointerType:
			if u.Typedef() != nil {
				out.Name = u.Typedef().Name()
				return out, nil
			}
			out.Stars++
			t = u.Elem()
		case *cc.ArrayType:
			out.Dims = append(out.Dims, u.Len())
			t = u.Elem()
		case *cc.PredefinedType:
			out.Name, out.Const = kindName(u.Kind()), isConst(t)
			if out.Name == "" {
				return out, fmt.Errorf("no rule for type %s", t)
			}
			return out, nil
		case *cc.StructType:
			tag := u.Tag()
			if first, ok := p.tags["struct "+tag.SrcStr()]; ok {
				out.Name, out.Const = first, isConst(t)
				return out, nil
			}
			return out, fmt.Errorf("struct without a name: %s", t)
		default:
			return out, fmt.Errorf("no rule for type %s", t)
		}
	}
}

func isConst(t cc.Type) bool { return t.Attributes() != nil && t.Attributes().IsConst() }

func kindName(k cc.Kind) string {
	switch k {
	case cc.Void:
		return "void"
	case cc.Char:
		return "char"
	case cc.SChar:
		return "signed char"
	case cc.UChar:
		return "unsigned char"
	case cc.Short:
		return "short"
	case cc.UShort:
		return "unsigned short"
	case cc.Int:
		return "int"
	case cc.UInt:
		return "unsigned int"
	case cc.Long:
		return "long"
	case cc.ULong:
		return "unsigned long"
	case cc.LongLong:
		return "long long"
	case cc.ULongLong:
		return "unsigned long long"
	case cc.Double:
		return "double"
	}
	return ""
}

// macros collects the object-like macros with a value.
func (p *parser) macros(ast *cc.AST) {
	for name, m := range ast.Macros {
		if m.IsFnLike || strings.HasPrefix(name, "_") {
			continue
		}
		if text, ok := m.Value().(cc.StringValue); ok {
			s := strings.TrimRight(string(text), "\x00")
			p.header.Constants = append(p.header.Constants, &Constant{Name: name, Text: &s})
		} else if n, ok := integer(m.Value()); ok {
			_, unsigned := m.Value().(cc.UInt64Value)
			p.header.Constants = append(p.header.Constants, &Constant{Name: name, Int: n, Unsigned: unsigned})
		}
	}
}

func integer(v cc.Value) (int64, bool) {
	switch v := v.(type) {
	case cc.Int64Value:
		return int64(v), true
	case cc.UInt64Value:
		return int64(v), true
	}
	return 0, false
}

// ParseDefinitions returns the prototypes of the functions that a rendered C source
// defines, read with the header's types. Its #include lines are left out.
func ParseDefinitions(nvml string, header, internal, slots, source []byte) ([]*Function, error) {
	abi, err := cc.NewABI("linux", "amd64")
	if err != nil {
		return nil, err
	}
	var lines []string
	for line := range strings.Lines(string(source)) {
		if strings.HasPrefix(line, "#include") {
			line = "\n"
		}
		lines = append(lines, line)
	}
	const name = "front.c"
	ast, err := cc.Translate(&cc.Config{ABI: abi}, []cc.Source{
		{Name: "<predefined>", Value: predefined + gate + unguarded},
		{Name: "nvml.h", Value: prototype.ReplaceAll(header, []byte("${1}declared_nvml"))},
		{Name: internalName, Value: internalPrototype.ReplaceAll(internal, []byte("${1}declared_nvml"))},
		{Name: slotsName, Value: internalPrototype.ReplaceAll(slots, []byte("${1}declared_nvml"))},
		{Name: name, Value: strings.Join(lines, "")},
	})
	if err != nil {
		return nil, err
	}
	p := &parser{header: &Header{NVML: nvml}, byType: map[string]*Type{}, tags: map[string]string{}}
	for l := ast.TranslationUnit; l != nil; l = l.TranslationUnit {
		def := l.ExternalDeclaration.FunctionDefinition
		if def == nil || def.Position().Filename != name {
			continue
		}
		f, ok := def.Declarator.Type().(*cc.FunctionType)
		if !ok {
			return nil, fmt.Errorf("%s: %s is no function", def.Position(), def.Declarator.Name())
		}
		if err := p.function(def.Declarator.Name(), f); err != nil {
			return nil, err
		}
	}
	return p.header.Functions, nil
}

// prototype finds the declarations of functions. They are renamed, so that the parser does
// not stop at the first definition that differs.
var prototype = regexp.MustCompile(`(DECLDIR[ *a-z]*?\s)nvml`)

var internalPrototype = regexp.MustCompile(`(?m)^(nvmlReturn_t )nvml`)

// gate declares the functions that rendered sources call.
const gate = `
typedef unsigned long uint64_t;
#define NULL ((void *)0)
#define UINT64_C(x) x##UL
#define _Static_assert(condition, text)
#define offsetof(type, field) 0
#define NVMLFAB_WORD(x) 0
#define NVMLFAB_WORDS 256
union nvmlfab_word_or_slot { uint64_t size; void (*slot)(void); };
int nvmlfab_unknown_slot(void);
int nvmlfab_init(int, const uint64_t *);
int nvmlfab_shutdown(int, const uint64_t *);
int nvmlfab_gate(int, int, const uint64_t *);
int nvmlfab_admin_gate(int, int, const uint64_t *);
int nvmlfab_stub(int);
int nvmlfab_export_table(const void **, const void *);
const char *nvmlfab_error_string(int);
`
