package capture

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strings"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles/capture/calls"
)

// Answer is what a call answered.
type Answer struct {
	Function string
	Object   string // such as "GPU 0"; empty for functions that are about the whole machine
	Args     string // the other arguments, such as "link 3, counter 1"
	Return   abi.Return
	Leaves   []Leaf
}

// Leaf is a value of an answer, and where it is in it.
type Leaf struct {
	Path  string
	Value any // uint64, int64, float64 or string
}

// Call is the call as text.
func (a *Answer) Call() string {
	var args []string
	for _, arg := range []string{a.Object, a.Args} {
		if arg != "" {
			args = append(args, arg)
		}
	}
	return a.Function + "(" + strings.Join(args, ", ") + ")"
}

// key tells answers of one walk from each other, and finds the same in another.
func key(function, object, args string) string { return function + "\x00" + object + "\x00" + args }

// OK says whether the call succeeded; of no answer it is false.
func (a *Answer) OK() bool { return a != nil && a.Return == abi.SUCCESS }

// value is a leaf's value, nil if there is none.
func (a *Answer) value(path string) any {
	if a.OK() {
		for _, l := range a.Leaves {
			if l.Path == path {
				return l.Value
			}
		}
	}
	return nil
}

// number is a leaf's value as a number. Negative numbers are in two's complement.
func (a *Answer) number(path string) (uint64, bool) {
	switch v := a.value(path).(type) {
	case uint64:
		return v, true
	case int64:
		return uint64(v), true
	}
	return 0, false
}

// text is a leaf's value as text.
func (a *Answer) text(path string) (string, bool) {
	s, ok := a.value(path).(string)
	return s, ok
}

// length is the number of elements of a list.
func (a *Answer) length(list string) int {
	n, _ := a.number("len(" + list + ")")
	return int(n)
}

// decoder turns memory into leaves.
type decoder struct {
	table   *calls.Table
	types   map[string]*calls.Type
	handles map[uint64]string // what is known of the objects by their handles
}

// basic are the C types that have no entry in the table.
var basic = map[string]struct {
	size   int
	signed bool
}{
	"char": {1, true}, "signed char": {1, true}, "unsigned char": {1, false}, "short": {2, true}, "unsigned short": {2, false},
	"int": {4, true}, "unsigned int": {4, false}, "long": {8, true}, "unsigned long": {8, false},
	"long long": {8, true}, "unsigned long long": {8, false}, "double": {8, true},
}

func (d *decoder) size(name string) int {
	if b, ok := basic[name]; ok {
		return b.size
	}
	if t := d.types[name]; t != nil {
		return t.Size
	}
	return 0
}

// resolved follows aliases and scalars.
func (d *decoder) resolved(name string) string {
	for t := d.types[name]; t != nil && (t.Kind == "alias" || t.Kind == "scalar"); t = d.types[name] {
		name = t.Of
	}
	return name
}

// decode adds the leaves of a value to a list. Fields beyond the end of the memory are left out, as they are of a struct's earlier
// version.
func (d *decoder) decode(to []Leaf, path, name string, from []byte) []Leaf {
	name = d.resolved(name)
	if len(from) < d.size(name) && (d.types[name] == nil || d.types[name].Kind != "struct") {
		return to
	}
	if b, ok := basic[name]; ok {
		return append(to, Leaf{path, scalar(from, b.size, b.signed, name == "double")})
	}
	t := d.types[name]
	switch {
	case t == nil:
		return to
	case t.Kind == "enum":
		n := binary.NativeEndian.Uint32(from)
		for _, v := range t.Values {
			if v.Value < 0 {
				return append(to, Leaf{path, int64(int32(n))})
			}
		}
		return append(to, Leaf{path, uint64(n)})
	case t.Kind == "handle":
		n := binary.NativeEndian.Uint64(from)
		known, ok := d.handles[n]
		if !ok {
			known = "unknown"
			if n == 0 {
				known = "none"
			}
		}
		return append(to, Leaf{path, known})
	case t.Kind == "union":
		return append(to, Leaf{path, hex.EncodeToString(from[:t.Size])})
	}
	for _, f := range t.Fields {
		if f.Pointer || f.Offset+f.Size > len(from) {
			continue
		}
		to = d.array(to, join(path, f.Name), f.Type, f.Dims, from[f.Offset:f.Offset+f.Size])
	}
	return to
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// array adds the leaves of an array to a list, and of a single value if there are no dimensions. Zeros at the end are left out: most
// arrays have room for more than there is.
func (d *decoder) array(to []Leaf, path, name string, dims []int, from []byte) []Leaf {
	if len(dims) == 0 {
		return d.decode(to, path, name, from)
	}
	element := len(from) / dims[0]
	if len(dims) == 1 && element == 1 {
		if d.resolved(name) == "char" {
			return append(to, Leaf{path, cString(from)})
		}
		return append(to, Leaf{path, hex.EncodeToString(trimmed(from))})
	}
	for i := range (len(trimmed(from)) + element - 1) / element {
		to = d.array(to, fmt.Sprintf("%s[%d]", path, i), name, dims[1:], from[i*element:(i+1)*element])
	}
	return to
}

func trimmed(from []byte) []byte {
	n := len(from)
	for n > 0 && from[n-1] == 0 {
		n--
	}
	return from[:n]
}

// elements adds the leaves of a list and its length.
func (d *decoder) elements(to []Leaf, path, name string, n int, from []byte) []Leaf {
	to = append(to, Leaf{"len(" + path + ")", uint64(n)})
	size := d.size(name)
	for i := range n {
		if (i+1)*size > len(from) {
			break
		}
		to = d.decode(to, fmt.Sprintf("%s[%d]", path, i), name, from[i*size:(i+1)*size])
	}
	return to
}

func cString(from []byte) string {
	text, _, _ := strings.Cut(string(from), "\x00")
	return text
}

func scalar(from []byte, size int, signed, float bool) any {
	var n uint64
	switch size {
	case 1:
		n = uint64(from[0])
	case 2:
		n = uint64(binary.NativeEndian.Uint16(from))
	case 4:
		n = uint64(binary.NativeEndian.Uint32(from))
	default:
		n = binary.NativeEndian.Uint64(from)
	}
	switch {
	case float:
		return math.Float64frombits(n)
	case signed:
		shift := 64 - 8*size
		return int64(n) << shift >> shift
	}
	return n
}
