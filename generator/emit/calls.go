package emit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/format"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/generator/binding"
	"github.com/nvmlfab/nvmlfab/generator/model"
)

// The following types are the lines of calls.json. Package profiles/capture/calls reads them.
type (
	callFunction struct {
		Name   string      `json:"name"`
		Since  int         `json:"since"`
		Slot   int         `json:"slot,omitempty"`
		Reads  bool        `json:"reads,omitempty"`
		Params []callParam `json:"params,omitempty"`
	}
	callParam struct {
		Name     string           `json:"name"`
		Role     binding.Role     `json:"role"`
		At       int              `json:"at"`
		Length   int              `json:"length"`
		Type     string           `json:"type"`
		Size     int64            `json:"size"`
		Versions []binding.Accept `json:"versions,omitempty"`
		Counted  string           `json:"counted,omitempty"`
		Fills    string           `json:"fills,omitempty"`
		Room     string           `json:"room,omitempty"`
	}
	callType struct {
		Name   string        `json:"name"`
		Kind   model.Kind    `json:"kind"`
		Of     string        `json:"of,omitempty"`
		Size   int64         `json:"size"`
		Fields []callField   `json:"fields,omitempty"`
		Values []model.Value `json:"values,omitempty"`
	}
	callField struct {
		Name    string  `json:"name"`
		Type    string  `json:"type"`
		Pointer bool    `json:"pointer,omitempty"`
		Dims    []int64 `json:"dims,omitempty"`
		Offset  int64   `json:"offset"`
		Size    int64   `json:"size"`
	}
)

// readingSlots are the entries of nvidia-smi's table that nvidia-smi -q reads, and that change nothing.
var readingSlots = []int{189, 209, 226, 230, 231, 237, 240, 242, 243, 249}

// reads reports whether a symbol only reads, so that it may be called on a machine in use. The name says it: the verb comes first, or
// after the kind of object that the symbol is about. Symbols that wait are left out.
func reads(in Input, s *binding.Symbol) bool {
	if s.Kind == binding.Slot {
		return slices.Contains(readingSlots, s.Slot())
	}
	if s.Kind != binding.Function && s.Kind != binding.Anytime {
		return false
	}
	name := s.GoName()
	for _, object := range []string{"DeviceWorkloadPowerProfile", "DevicePowerSmoothing", "DevicePerfMetrics", "DeviceCcu", "DeviceVgpu", "Device", "System", "Unit", "GpuInstance",
		"ComputeInstance", "VgpuInstance", "VgpuType", "EventSet", "Gpm", "Vgpu"} {
		if rest, ok := strings.CutPrefix(name, object); ok {
			name = rest
			break
		}
	}
	for _, verb := range []string{"Get", "Is", "Query", "On"} {
		if rest, ok := strings.CutPrefix(name, verb); ok && rest != "" && rest[0] >= 'A' && rest[0] <= 'Z' {
			return true
		}
	}
	return false
}

// Calls renders package calls: what a program needs that calls functions by their names and reads their answers.
func Calls(in Input) (Files, error) {
	all := in.Header.With(in.Slots)
	var b bytes.Buffer
	lines := func(n int, at func(int) any) error {
		for i := range n {
			line, err := json.Marshal(at(i))
			if err != nil {
				return fmt.Errorf("calls/calls.json: %w", err)
			}
			b.Write(line)
			if i < n-1 {
				b.WriteByte(',')
			}
			b.WriteByte('\n')
		}
		return nil
	}
	var functions []callFunction
	own := map[string]bool{} // the types that entries of the table have for themselves
	for _, s := range in.Symbols {
		if s.Kind == binding.Front || s.Kind == binding.Slot && !reads(in, s) {
			continue
		}
		f := callFunction{Name: s.Name, Since: s.Since, Slot: s.Slot(), Reads: reads(in, s)}
		for _, a := range s.Args {
			size := s.Header.SizeOf(a.Type)
			if a.Type.Stars > 0 {
				size = s.Header.SizeOf(a.Type.Elem())
				if s.Kind == binding.Slot {
					size = all.SizeOf(a.Type.Elem())
				}
			}
			if s.Kind == binding.Slot {
				own[a.Type.Name] = true
			}
			f.Params = append(f.Params, callParam{a.Name, a.Role, a.At, a.Size, a.Type.Name, max(size, a.Extent), a.Versions, a.Counted, a.Fills, a.Room})
		}
		functions = append(functions, f)
	}
	fmt.Fprintf(&b, "{\"note\": %q,\n\"functions\": [\n", notice)
	if err := lines(len(functions), func(i int) any { return functions[i] }); err != nil {
		return nil, err
	}
	b.WriteString("], \"types\": [\n")
	types := slices.DeleteFunc(slices.Clone(all.Types), func(t *model.Type) bool {
		return in.Header.Type(t.Name) == nil && !own[t.Name]
	})
	if err := lines(len(types), func(i int) any {
		t := types[i]
		out := callType{Name: t.Name, Kind: t.Kind, Size: t.Size, Values: t.Values}
		if t.Of != nil {
			out.Of = t.Of.Name
		}
		for _, f := range t.Fields {
			out.Fields = append(out.Fields, callField{f.Name, f.Type.Name, f.Type.Stars > 0, f.Type.Dims, f.Offset, f.Size})
		}
		return out
	}); err != nil {
		return nil, err
	}
	b.WriteString("]}\n")
	text, err := format.Source([]byte("// " + notice + "\n\n" + callsSource))
	if err != nil {
		return nil, fmt.Errorf("calls/calls.go: %w", err)
	}
	return Files{"calls/calls.json": b.Bytes(), "calls/calls.go": text}, nil
}

const callsSource = `// Package calls has a table of every function of libnvidia-ml.so and of the types of its parameters, as profiles/capture/calls reads it.
package calls

import _ "embed"

//go:embed calls.json
var JSON []byte
`
