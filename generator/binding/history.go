// Package binding decides how each C prototype becomes a Go signature: which role
// every parameter plays, how far the core may write behind a pointer, and which
// versions of a struct a symbol accepts.
package binding

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nvmlfab/nvmlfab/generator/model"
)

// Symbol is an exported function in every version that declares it.
type Symbol struct {
	Index  int             // its number at the call gate, the same in every front
	Name   string          // with prefix: nvmlDeviceGetName
	Func   *model.Function // the prototype in the newest header that declares it
	Header *model.Header   // that header
	Since  int             // the oldest header whose driver has it, counted from 1
	Args   []Arg           // how its parameters become Go

	uses []use // every header that declares it, oldest first
}

type use struct {
	header *model.Header
	fn     *model.Function
}

// GoName is the name of the Go function that retires the symbol's stub.
func (s *Symbol) GoName() string { return strings.TrimPrefix(s.Name, "nvml") }

var slotName = regexp.MustCompile(`^nvmlInternalSlot(\d+)$`)

// Slot is the symbol's place in nvidia-smi's table of unnamed functions, 0 for exported ones.
func (s *Symbol) Slot() int {
	m := slotName.FindStringSubmatch(s.Name)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// In reports whether a header declares the symbol.
func (s *Symbol) In(nvml string) bool {
	return slices.ContainsFunc(s.uses, func(u use) bool { return u.header.NVML == nvml })
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

// early are functions that drivers have before the header that first declares them, with the header of that driver or the
// last one before it. Long-lived branches got them later, by the exports of the libraries that Debian carries.
var early = map[string]string{
	"nvmlDeviceGetMPSComputeRunningProcesses": "11.0", // 390 and 418 too

	"nvmlComputeInstanceGetInfo_v2":            "11.0", // 450.248.02
	"nvmlDeviceGetAttributes_v2":               "11.0",
	"nvmlDeviceGetComputeRunningProcesses_v2":  "11.0",
	"nvmlDeviceGetGraphicsRunningProcesses_v2": "11.0",
	"nvmlDeviceGetRowRemapperHistogram":        "11.0",
	"nvmlVgpuTypeGetGpuInstanceProfileId":      "11.0",

	"nvmlDeviceCreateGpuInstanceWithPlacement":      "11.1", // 460.106.00
	"nvmlDeviceSetTemperatureThreshold":             "11.1",
	"nvmlVgpuInstanceGetGpuInstanceId":              "11.1",
	"nvmlDeviceGetClkMonStatus":                     "11.1", // 470.256.02
	"nvmlDeviceGetGpuInstancePossiblePlacements_v2": "11.1",
	"nvmlDeviceGetGridLicensableFeatures_v4":        "11.1",
	"nvmlDeviceGetMPSComputeRunningProcesses_v2":    "11.1",
	"nvmlDeviceGetNvLinkRemoteDeviceType":           "11.1",
	"nvmlDeviceResetMemoryLockedClocks":             "11.1",
	"nvmlDeviceSetMemoryLockedClocks":               "11.1",
	"nvmlGetExcludedDeviceCount":                    "11.1",
	"nvmlGetExcludedDeviceInfoByIndex":              "11.1",

	"nvmlDeviceGetLastBBXFlushTime":   "12.2.140", // 535.261.03
	"nvmlDeviceGetSramEccErrorStatus": "12.2.140",
}

// Bind orders the symbols of all headers (oldest header first) and classifies their parameters.
func Bind(headers []*model.Header) ([]*Symbol, error) {
	byName := map[string]*Symbol{}
	place := map[string]int{}
	for i, h := range headers {
		place[h.NVML] = i + 1
		for _, f := range h.Functions {
			s := byName[f.Name]
			if s == nil {
				s = &Symbol{Name: f.Name, Since: i + 1}
				if before := place[early[f.Name]]; before > 0 {
					s.Since = before
				}
				byName[f.Name] = s
			}
			s.uses = append(s.uses, use{h, f})
			s.Func, s.Header = f, h
		}
	}
	var symbols []*Symbol
	for _, s := range byName {
		symbols = append(symbols, s)
	}
	slices.SortFunc(symbols, func(a, b *Symbol) int { return strings.Compare(a.Name, b.Name) })
	var problems []string
	for i, s := range symbols {
		s.Index = i
		if err := s.classify(); err != nil {
			problems = append(problems, err.Error())
		}
	}
	problems = append(problems, unusedRules(byName)...)
	if len(problems) > 0 {
		return nil, fmt.Errorf("%s", strings.Join(problems, "\n"))
	}
	return symbols, nil
}

// Hash identifies the symbols, their numbers and prototypes. Front and core exchange it.
func Hash(symbols []*Symbol) uint64 {
	sum := sha256.New()
	for _, s := range symbols {
		fmt.Fprintf(sum, "%d %d %s\n", s.Index, s.Since, s.Func.Prototype())
		for _, a := range s.Args {
			io.WriteString(sum, a.describe())
		}
	}
	return binary.LittleEndian.Uint64(sum.Sum(nil))
}
