// Package calls describes every function of libnvidia-ml.so and the types of its parameters, for programs that call functions
// by their names and read what these wrote.
package calls

import (
	"encoding/json"
	"sync"

	"github.com/nvmlfab/nvmlfab/generated/calls"
)

// Table has the functions of all versions, and the types of the newest.
type Table struct {
	Functions []Function
	Types     []Type
}

// Function is a function. Since is the number of the oldest version that has it, Slot its place in nvidia-smi's table if it is not
// exported. Reads says that a call changes nothing.
type Function struct {
	Name   string
	Since  int
	Slot   int
	Reads  bool
	Params []Param
}

// Param is a parameter, at a position from 0. Length is the position of the length or count beside it, -1 if there is none.
// Type is what it holds or points to, Size that type's size.
type Param struct {
	Name     string
	Role     string
	At       int
	Length   int
	Type     string
	Size     int
	Versions []Version // of a struct with a version, the oldest first
	Counted  string    // the field with the number of elements of its last array that are in use
	Fills    string    // the field that points to an array
	Room     string    // the field with the number of elements of that array
}

// Version is the content of a struct's version field, and the size that it stands for.
type Version struct {
	Version uint32
	Size    int
}

// Type is a type of the header. Of is the type that a scalar or an alias stands for.
type Type struct {
	Name   string
	Kind   string // struct, union, enum, handle, scalar or alias
	Of     string
	Size   int
	Fields []Field
	Values []Value
}

// Field is a field of a struct or a union. Dims are the dimensions of an array.
type Field struct {
	Name    string
	Type    string
	Pointer bool
	Dims    []int
	Offset  int
	Size    int
}

// Value is a value of an enumeration.
type Value struct {
	Name  string
	Value int64
}

// Read is the table.
var Read = sync.OnceValues(func() (*Table, error) {
	t := new(Table)
	return t, json.Unmarshal(calls.JSON, t)
})
