// Package binding decides how each C prototype becomes a Go function: who answers the symbol, its number, the role of
// each parameter, how far the core may write at a pointer, and which versions of a struct a symbol accepts.
package binding

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/generator/model"
	headers "github.com/nvmlfab/nvmlfab/nvml-headers"
)

// Symbol is a function of libnvidia-ml.so, in every version that has it.
type Symbol struct {
	Number int             // at the call gate, the same in every front and core
	Name   string          // with prefix: nvmlDeviceGetName
	Kind   Kind            // who answers it
	C      string          // the C function of library/front that answers it, for the kinds that have one
	Func   *model.Function // the prototype in the newest header that declares it
	Header *model.Header   // that header
	Since  int             // the oldest NVML version whose driver has it, as headers.Version.Number
	Args   []Arg           // how its parameters become Go

	uses []use // every header that declares it, oldest first
}

type use struct {
	header *model.Header
	fn     *model.Function
}

// GoName is the name of the Go function that retires the symbol's stub.
func (s *Symbol) GoName() string { return strings.TrimPrefix(s.Name, "nvml") }

// In reports whether a header declares the symbol.
func (s *Symbol) In(nvml string) bool { return s.ProtoIn(nvml) != nil }

// Early reports whether the driver of an NVML version has the symbol although that version's header lacks it.
func (s *Symbol) Early(v headers.Version) bool {
	return early[s.Name] != "" && s.Since <= v.Number && !s.In(v.NVML)
}

// ProtoIn is the symbol's prototype in that version, or nil.
func (s *Symbol) ProtoIn(nvml string) *model.Function {
	for _, u := range s.uses {
		if u.header.NVML == nvml {
			return u.fn
		}
	}
	return nil
}

// collect finds the symbols of all headers by name. Entries of nvidia-smi's table are in every version, since a program
// for a driver without an entry never calls it.
func collect(m *Models) map[string]*Symbol {
	byName := map[string]*Symbol{}
	number := map[string]int{}
	for i, h := range m.Headers {
		since := m.Versions[i].Number
		number[h.NVML] = since
		h = h.With(m.Slots)
		for _, f := range h.Functions {
			s := byName[f.Name]
			if s == nil {
				s = &Symbol{Name: f.Name, Since: since}
				if before := number[early[f.Name]]; before > 0 {
					s.Since = before
				}
				byName[f.Name] = s
			}
			s.uses = append(s.uses, use{h, f})
			s.Func, s.Header = f, h
		}
	}
	return byName
}

// Bind gives the symbols of all headers their kinds, numbers and roles. They are sorted by name.
func Bind(m *Models, numbers *Numbers) ([]*Symbol, error) {
	byName := collect(m)
	symbols := slices.SortedFunc(maps.Values(byName), func(a, b *Symbol) int { return strings.Compare(a.Name, b.Name) })
	var problems []string
	for _, s := range symbols {
		if err := s.bind(numbers); err != nil {
			problems = append(problems, err.Error())
		}
	}
	problems = append(append(problems, unusedKinds(byName)...), unusedRules(byName)...)
	if len(problems) > 0 {
		return nil, fmt.Errorf("%s", strings.Join(problems, "\n"))
	}
	return symbols, nil
}

func (s *Symbol) bind(numbers *Numbers) error {
	if err := s.setKind(); err != nil {
		return err
	}
	if err := s.setNumber(numbers); err != nil {
		return err
	}
	return s.classify()
}

// Hash identifies what a front and a core must agree on: the numbers of symbols, their prototypes, how far the core reads
// and writes at each pointer, and the text of the structs that both use. The fronts of all versions have the same hash.
func Hash(symbols []*Symbol, shared []byte) uint64 {
	sum := sha256.New()
	sum.Write(shared)
	for _, s := range symbols {
		fmt.Fprintf(sum, "%d %s\n", s.Number, s.Func.Prototype())
		for _, a := range s.Args {
			io.WriteString(sum, a.describe())
		}
	}
	return binary.LittleEndian.Uint64(sum.Sum(nil))
}
