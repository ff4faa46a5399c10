package binding

import (
	"fmt"
	"path"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/nvmlfab/nvmlfab/generator/model"
)

// Import paths of the packages whose types occur in signatures.
const (
	Module     = "github.com/nvmlfab/nvmlfab"
	ABIPath    = Module + "/generated/abi"
	EnginePath = Module + "/engine"
)

// GoType is a Go type as handwritten code spells it. The zero GoType means no type.
type GoType struct {
	Prefix string // the part before the name: "*", "[]", "[4][16]"
	Path   string // the import path of its package; "" for Go's own types
	Name   string
}

// String is the type as source code has it: []*engine.Device.
func (t GoType) String() string {
	if t.Path == "" {
		return t.Prefix + t.Name
	}
	return t.Prefix + path.Base(t.Path) + "." + t.Name
}

// Code is the type for generated code, which imports its package.
func (t GoType) Code() *jen.Statement {
	if t.Path == "" {
		return jen.Op(t.Prefix).Id(t.Name)
	}
	return jen.Op(t.Prefix).Qual(t.Path, t.Name)
}

func (t GoType) pointer() GoType { t.Prefix = "*" + t.Prefix; return t }
func (t GoType) slice() GoType   { t.Prefix = "[]" + t.Prefix; return t }

var (
	returnType   = GoType{Path: ABIPath, Name: "Return"}
	stringType   = GoType{Name: "string"}
	bytesType    = GoType{Prefix: "[]", Name: "byte"}
	snapshotType = GoType{Prefix: "*", Path: EnginePath, Name: "Snapshot"}
	nodeType     = GoType{Prefix: "*", Path: EnginePath, Name: "Engine"}
)

// HandleType is the name of the engine's type for a C handle: nvmlDevice_t is a Device.
func HandleType(name string) string {
	return strings.TrimSuffix(strings.TrimPrefix(name, "nvml"), "_t")
}

func handleType(name string) GoType {
	return GoType{Prefix: "*", Path: EnginePath, Name: HandleType(name)}
}

// goScalars are the C types that have no name of their own.
var goScalars = map[string]string{
	"char": "byte", "signed char": "int8", "unsigned char": "uint8",
	"short": "int16", "unsigned short": "uint16", "int": "int32", "unsigned int": "uint32",
	"long": "int64", "unsigned long": "uint64", "long long": "int64", "unsigned long long": "uint64",
	"double": "float64",
}

// GoTypeOf is the Go type that has the layout of a C type.
func GoTypeOf(t model.CType) GoType {
	var dims string
	for _, d := range t.Dims {
		dims += fmt.Sprintf("[%d]", d)
	}
	if t.Stars > 0 {
		return GoType{Prefix: dims, Path: "unsafe", Name: "Pointer"}
	}
	if s, ok := goScalars[t.Name]; ok {
		return GoType{Prefix: dims, Name: s}
	}
	return GoType{Prefix: dims, Path: ABIPath, Name: GoName(t.Name)}
}

// GoName is a C name without its prefix, exported: nvmlMemory_v2_t is Memory_v2_t,
// NVML_ERROR_TIMEOUT is ERROR_TIMEOUT. nvmlReturn_t, which ends every signature, is Return.
func GoName(c string) string {
	if c == "nvmlReturn_t" {
		return "Return"
	}
	s := strings.TrimPrefix(strings.TrimPrefix(c, "NVML_"), "nvml")
	s = strings.ReplaceAll(s, ".", "_")
	if s[0] >= '0' && s[0] <= '9' {
		s = "N" + s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
