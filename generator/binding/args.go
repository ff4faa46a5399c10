package binding

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/nvmlfab/nvmlfab/generator/model"
)

// Role tells how an argument crosses between C and Go.
type Role string

const (
	ByHandle   Role = "handle"    // T by value          → *engine.T
	ByValue    Role = "value"     // scalar or enum      → the same-named Go type
	Text       Role = "text"      // const char *        → string
	Out        Role = "out"       // T *                 → one more result
	In         Role = "in"        // T * that is read    → T
	Buffer     Role = "buffer"    // char *, length      → string result
	FixedText  Role = "fixed"     // char * of a documented length → string result
	SizedText  Role = "sized"     // char *, size *      → string result; size answers a query
	SizedBytes Role = "bytes"     // struct *, size *    → []byte result; size answers a query
	List       Role = "list"      // count *, T *        → []T result
	Also       Role = "also"      // T *                 → []T result, under the count of the list before it
	Slice      Role = "slice"     // count, T *          → []T, filled in a copy
	Plain      Role = "struct"    // struct *            → *T, filled in a copy
	Constant   Role = "const"     // const struct *      → *T
	Versioned  Role = "versioned" // versioned struct *  → *T after a check of its version
	Raw        Role = "raw"       // of a symbol that the front answers; never reaches the core
)

// Arg is one or two parameters with the role that they play together.
type Arg struct {
	Role  Role
	Name  string // of the parameter that carries the value
	At    int    // its position
	Size  int    // position of the length or count beside it, or -1
	Type  model.CType
	Known *model.Type // the struct, union, enum, scalar or handle type; nil for plain C types

	// Extent is the number of bytes at the pointer (of one element, for lists and slices) that the core may access: the
	// smallest size that any header gave the type for this symbol.
	Extent int64
	// Versions lists the accepted values of the version field, and the struct size that each stands for.
	Versions []Accept
	// Counted names the field with the number of elements of the last array member.
	Counted string
	// Fills names the field that points to an array which is filled, and Room the field with its number of elements.
	Fills, Room string
	// Counts says that Room becomes the number of elements that there are, even if the array is too short.
	Counts bool
	// Reads says that the array is read before it is filled.
	Reads bool
	// Apart is a method of the snapshot that makes the distance of elements from their size; empty if they are next to each other.
	Apart string
	// Stride is the size of an element of that array.
	Stride int64
	// NullQuery lists answer SUCCESS to a NULL array, with the count.
	NullQuery bool
	// Unasked lists have an array with room for everything, and a count that is only written.
	Unasked bool
	// InBytes says that the slice's length is in bytes.
	InBytes bool
	// Crop says that a text which does not fit is cut, not refused.
	Crop bool
	// Optional out pointers may be NULL.
	Optional bool
}

// Accept is a struct version that a symbol takes.
type Accept struct {
	Version uint32
	Size    int64
}

func (a Arg) describe() string {
	text := fmt.Sprintf("  %s %s %d %d %v %q %t %t %t\n", a.Role, a.Name, a.At, a.Extent, a.Versions, a.Counted, a.NullQuery, a.Unasked, a.InBytes)
	if a.Fills != "" {
		text += fmt.Sprintf("  fills %s %s %d %t\n", a.Fills, a.Room, a.Stride, a.Counts)
	}
	if a.Reads || a.Apart != "" {
		text += fmt.Sprintf("  reads %t %s\n", a.Reads, a.Apart)
	}
	return text
}

// IsHandle reports whether the value is a handle.
func (a Arg) IsHandle() bool { return a.Known != nil && a.Known.Kind == model.Handle }

// field is a field of the struct at a pointer, or nil.
func (a Arg) field(name string) *model.Field {
	at := slices.IndexFunc(a.Known.Fields, func(f model.Field) bool { return f.Name == name })
	if at < 0 {
		return nil
	}
	return &a.Known.Fields[at]
}

var countName = regexp.MustCompile(`(?i)count$`)

// classify gives every parameter its role.
func (s *Symbol) classify() error {
	s.Args = nil
	params := s.Func.Params
	for i := 0; i < len(params); i++ {
		arg, err := s.role(i)
		if err != nil {
			return err
		}
		if arg.Size == i+1 || (arg.Size == i && arg.At == i+1) {
			i++
		}
		s.Args = append(s.Args, arg)
	}
	return nil
}

func (s *Symbol) role(i int) (Arg, error) {
	p := s.Func.Params[i]
	arg := Arg{Name: p.Name, At: i, Size: -1, Type: p.Type, Known: s.Header.Type(p.Type.Name)}
	rule := ruleFor(s.Name, p.Name)
	switch {
	case s.Kind == Front:
		arg.Role = Raw
	case rule != nil && rule.Role != "":
		arg.Role = rule.Role
		if arg.Role == List || arg.Role == Slice || arg.Role == SizedBytes {
			s.pair(&arg)
		}
	case p.Type.Stars == 0:
		arg.Role = ByValue
		if arg.IsHandle() {
			arg.Role = ByHandle
		} else if arg.Known != nil && (arg.Known.Kind == model.Struct || arg.Known.Kind == model.Union) {
			return arg, fmt.Errorf("%s: parameter %q passes %s by value, which no rule renders", s.Name, p.Name, p.Type)
		}
	case p.Type.IsChar(1) && p.Type.Const:
		arg.Role = Text
	case p.Type.IsChar(1):
		switch next := s.param(i + 1); {
		case next.Equal(model.CType{Name: "unsigned int"}):
			arg.Role, arg.Size = Buffer, i+1
		case next.Equal(model.CType{Name: "unsigned int", Stars: 1}):
			arg.Role, arg.Size = SizedText, i+1
		default:
			return arg, fmt.Errorf("%s: nothing says how long the buffer %q is; add a rule", s.Name, p.Name)
		}
	case s.isList(i):
		arg.Role = List
		s.pair(&arg)
	case p.Type.Stars == 1 && arg.Known != nil && (arg.Known.Kind == model.Struct || arg.Known.Kind == model.Union):
		arg.Role = Plain
		if p.Type.Const {
			arg.Role = Constant
		}
		if arg.Known.Kind == model.Struct && len(arg.Known.Fields) > 0 && arg.Known.Fields[0].Name == "version" {
			arg.Role = Versioned
		}
	case p.Type.Stars == 1 && !p.Type.Const && p.Type.Name != "void":
		arg.Role, arg.Optional = Out, rule != nil && rule.Optional
	default:
		return arg, fmt.Errorf("%s: no role for parameter %q of type %s; add a rule", s.Name, p.Name, p.Type)
	}
	return arg, s.extent(&arg, rule)
}

func (s *Symbol) param(i int) model.CType {
	if i < 0 || i >= len(s.Func.Params) {
		return model.CType{}
	}
	return s.Func.Params[i].Type
}

func (s *Symbol) isCount(i int) bool {
	return s.param(i).Equal(model.CType{Name: "unsigned int", Stars: 1}) && countName.MatchString(s.Func.Params[i].Name)
}

func (s *Symbol) isArray(i int) bool {
	t := s.param(i)
	return t.Stars == 1 && !t.Const && !t.IsChar(1) && !s.isCount(i)
}

// isList reports whether parameters i and i+1 are a count and an array, in either order.
func (s *Symbol) isList(i int) bool {
	return s.isCount(i) && s.isArray(i+1) || s.isArray(i) && s.isCount(i+1)
}

// pair points arg at the array of a pair that starts at arg.At, and at its count.
func (s *Symbol) pair(arg *Arg) {
	at, size := arg.At+1, arg.At
	if arg.Role == SizedBytes || (s.param(arg.At).Stars == 1 && !s.isCount(arg.At)) {
		at, size = arg.At, arg.At+1
	}
	p := s.Func.Params[at]
	arg.Name, arg.At, arg.Size, arg.Type, arg.Known = p.Name, at, size, p.Type, s.Header.Type(p.Type.Name)
}

// extent determines how much memory the caller has at a pointer.
func (s *Symbol) extent(arg *Arg, rule *Rule) error {
	if arg.Type.Stars == 0 || arg.Role == Text || arg.Role == Raw || arg.Role == SizedBytes {
		return nil
	}
	if rule == nil { // a list starts at its count, but its rule may name the array
		rule = ruleFor(s.Name, arg.Name)
	}
	if rule == nil {
		rule = &Rule{}
	}
	arg.Crop = rule.Crop
	arg.NullQuery, arg.Unasked = rule.NullQuery, rule.Unasked
	if arg.Role == FixedText {
		arg.Extent = rule.Bytes
		return nil
	}
	sizes := s.sizes(arg.At)
	arg.Extent, arg.InBytes, arg.Apart = sizes[0], rule.InBytes, rule.Stride
	if rule.Fills != "" {
		f := arg.field(rule.Fills)
		if f == nil || arg.field(rule.Room) == nil {
			return fmt.Errorf("%s: %s has no fields %q and %q, which its rule names", s.Name, arg.Known.Name, rule.Fills, rule.Room)
		}
		arg.Fills, arg.Room, arg.Counts, arg.Reads, arg.Stride = rule.Fills, rule.Room, rule.Counts, rule.Reads, s.Header.SizeOf(f.Type.Elem())
	}
	if arg.Role == Versioned {
		if arg.Versions = rule.accepts(s.Header); arg.Versions == nil {
			arg.Versions = versions(s.Header, arg.Known)
		}
		arg.Counted = rule.Counted
		if arg.Versions == nil {
			return fmt.Errorf("%s: nothing says which versions of %s it takes; add a rule", s.Name, arg.Known.Name)
		}
		if rule.Counted == "" && len(sizes) > 1 && !proves(arg.Versions) {
			return fmt.Errorf("%s: %s has sizes %v in the headers and its version does not tell them apart; add a rule", s.Name, arg.Known.Name, sizes)
		}
		return nil
	}
	if rule.Bytes != 0 {
		arg.Extent = rule.Bytes
		return nil
	}
	if len(sizes) > 1 && !rule.Smallest {
		return fmt.Errorf("%s: %s of parameter %q has sizes %v in the headers; add a rule that says how much a caller proves",
			s.Name, arg.Type.Elem(), arg.Name, sizes)
	}
	return nil
}

// sizes are the different sizes of the type that parameter at points to, over all headers, ascending.
func (s *Symbol) sizes(at int) []int64 {
	var out []int64
	for _, u := range s.uses {
		if at < len(u.fn.Params) {
			if n := u.header.SizeOf(u.fn.Params[at].Type.Elem()); n > 0 {
				out = append(out, n)
			}
		}
	}
	if len(out) == 0 {
		out = []int64{0}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// proves reports whether every version carries a size.
func proves(list []Accept) bool {
	return !slices.ContainsFunc(list, func(a Accept) bool { return int64(a.Version&0xffffff) != a.Size })
}

var versionedName = regexp.MustCompile(`^nvml(.+)_v(\d+)_t$`)

// versions finds the macros nvml<Family>_v<n> up to the struct's own n.
func versions(h *model.Header, t *model.Type) []Accept {
	m := versionedName.FindStringSubmatch(t.Name)
	if m == nil {
		return nil
	}
	own, _ := strconv.Atoi(m[2])
	var out []Accept
	for n := 1; n <= own; n++ {
		if a, ok := macroVersion(h, fmt.Sprintf("nvml%s_v%d", m[1], n)); ok {
			out = append(out, a)
		}
	}
	return out
}

func macroVersion(h *model.Header, name string) (Accept, bool) {
	for _, c := range h.Constants {
		if c.Name == name && c.Text == nil {
			return Accept{Version: uint32(c.Int), Size: c.Int & 0xffffff}, true
		}
	}
	return Accept{}, false
}

// Retirable reports whether a Go function can answer the symbol.
func (s *Symbol) Retirable() bool { return s.Kind != Front }
