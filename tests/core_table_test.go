package tests

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nvmlfab/nvmlfab/generator/binding"
	"github.com/nvmlfab/nvmlfab/generator/model"
	"github.com/nvmlfab/nvmlfab/generator/registry"
	"github.com/nvmlfab/nvmlfab/generator/requirements"
	headers "github.com/nvmlfab/nvmlfab/nvml-headers"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// coreModel is the generator's knowledge of the symbols of all versions.
type coreModel struct {
	*binding.Models
	symbols  []*binding.Symbol
	registry *registry.Registry
	needs    *requirements.Table
}

var loadCoreModel = sync.OnceValues(func() (*coreModel, error) {
	m := &coreModel{}
	var err error
	if m.Models, m.symbols, err = binding.Load(root); err != nil {
		return nil, err
	}
	if m.needs, err = requirements.Read(m.symbols); err != nil {
		return nil, err
	}
	m.registry, err = registry.Read(root, "handwritten", m.symbols)
	return m, err
})

// memoryProgram compiles testdata/core/memory.c with a table of every function that a version's header declares. The
// sizes in the table are that header's.
func memoryProgram(t *testing.T, version string) string {
	t.Helper()
	m, err := loadCoreModel()
	require.NoError(t, err)
	v, err := headers.Find(version)
	require.NoError(t, err)
	table := filepath.Join(t.TempDir(), "table.c")
	require.NoError(t, os.WriteFile(table, m.table(v.NVML), 0o644))
	flags := []string{table, "-O0", "-I", "tests/testdata/core", "-I", "nvml-headers", "-I", "library/front"}
	for _, part := range []string{"refusals.c", "guards.c", "fuzz.c"} {
		flags = append(flags, filepath.Join("tests", "testdata", "core", part))
	}
	return coreProgram(t, version, "memory", append(flags, linked()...)...)
}

// roles maps the generator's roles to those of table.h.
var roles = map[binding.Role]string{
	binding.ByHandle: "HANDLE", binding.ByValue: "VALUE", binding.Text: "TEXT", binding.Out: "OUT", binding.In: "IN",
	binding.Buffer: "BUFFER", binding.FixedText: "FIXED", binding.SizedText: "SIZED", binding.SizedBytes: "SIZED",
	binding.List: "LIST", binding.Also: "ALSO", binding.Slice: "SLICE", binding.Plain: "STRUCT", binding.Constant: "STRUCT",
	binding.Versioned: "VERSIONED", binding.Raw: "RAW",
}

var handleKinds = map[string]string{
	"nvmlDevice_t": "DEVICE", "nvmlEventSet_t": "EVENT_SET",
	"nvmlGpuInstance_t": "GPU_INSTANCE", "nvmlComputeInstance_t": "COMPUTE_INSTANCE",
}

// refusals are the answers for which MIG devices are refused.
var refusals = map[string]int{"INVALID_ARGUMENT": 2, "NOT_SUPPORTED": 3}

// driver is the branch that introduced an NVML version.
func (m *coreModel) driver(number int) int {
	at := slices.IndexFunc(m.Versions, func(v headers.Version) bool { return v.Number == number })
	return m.Versions[at].Driver
}

func (m *coreModel) table(nvml string) []byte {
	var calls, table bytes.Buffer
	n := 0
	for _, s := range m.symbols {
		f := s.ProtoIn(nvml)
		implemented := m.registry.Func(s.Name) != "" || s.Kind == binding.Front
		if f == nil || s.Kind == binding.Slot && !implemented { // all other slots share one function without parameters
			continue
		}
		callee := s.Name
		if s.Kind == binding.Slot {
			callee = fmt.Sprintf("((__typeof__(&%s))slot(%d))", s.Name, s.Slot())
		}
		fmt.Fprintf(&calls, "static int call%d(const uint64_t *a)\n{\n\t(void)a;\n", s.Number)
		var names []string
		for i, p := range f.Params {
			name := fmt.Sprintf("p%d", i)
			t := p.Type
			t.Const = t.Const && t.Stars > 0
			fmt.Fprintf(&calls, "\t%s;\n\tmemcpy(&%s, &a[%d], sizeof %[2]s);\n", t.Declare(name), name, i)
			names = append(names, name)
		}
		fmt.Fprintf(&calls, "\treturn (int)(intptr_t)%s(%s);\n}\n\n", callee, strings.Join(names, ", "))

		fmt.Fprintf(&calls, "static const struct arg args%d[] = {\n", s.Number)
		for _, a := range s.Args {
			calls.WriteString("\t" + m.arg(nvml, s, f, a) + ",\n")
		}
		calls.WriteString("\t{0},\n};\n\n")
		fmt.Fprintf(&table, "\t{\"%s\", call%d, %d, %t, %t, %t, %d, %d, %d, args%[2]d},\n", s.Name, s.Number, m.driver(s.Since),
			implemented, s.Kind == binding.Lifecycle, s.Kind == binding.Anytime, refusals[m.needs.Of(s).MIG], len(s.Args), len(f.Params))
		n++
	}
	return fmt.Appendf(nil, `#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include "table.h"
#include "internal.h"
#include "slots.h"

void *slot(int number)
{
	static const unsigned char guid[16] = { 0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4 };
	const void *table;
	ok(nvmlInternalGetExportTable(&table, guid));
	return ((void *const *)table)[number];
}

%sconst struct function functions[] = {
%s};

const int nfunctions = %d;
`, calls.Bytes(), table.Bytes(), n)
}

func (m *coreModel) arg(nvml string, s *binding.Symbol, f *model.Function, a binding.Arg) string {
	out := []string{"." + "role = " + roles[a.Role], fmt.Sprintf(".at = %d, .size_at = %d", a.At, a.Size)}
	t := f.Params[a.At].Type
	if t.Stars == 1 && t.Name != "void" {
		out = append(out, fmt.Sprintf(".bytes = sizeof(%s), .least = %d", t.Elem(), a.Extent))
	}
	if a.Role == binding.ByHandle {
		kind := handleKinds[t.Name]
		if kind == "" {
			kind = "OTHER"
		}
		out = append(out, ".handle = "+kind)
	}
	if a.Role == binding.ByValue && strings.HasPrefix(f.Params[a.At].Name, "timeout") {
		out = append(out, ".waits = true")
	}
	if a.Known != nil && t.Stars == 1 {
		for _, field := range a.Known.Fields {
			if strings.HasPrefix(field.Name, "timeout") {
				out = append(out, fmt.Sprintf(".waits = true, .time = offsetof(%s, %s)", t.Elem(), field.Name))
			}
		}
	}
	if a.Unasked {
		out = append(out, ".unasked = true")
	}
	if a.Optional {
		out = append(out, ".optional = true")
	}
	if a.InBytes {
		out = append(out, ".in_bytes = true")
	}
	var accepts []string
	for _, v := range a.Versions {
		size := v.Size
		if size > a.Known.Size {
			size = 0
		}
		accepts = append(accepts, fmt.Sprintf("{%#x, %d}", v.Version, size))
	}
	if len(accepts) > 0 {
		out = append(out, fmt.Sprintf(".accepts = (const struct accept[]){%s}, .versions = %d", strings.Join(accepts, ", "), len(accepts)))
	}
	if a.Fills != "" {
		out = append(out, fmt.Sprintf(".fills = offsetof(%[1]s, %[2]s), .element = sizeof *((%[1]s *)NULL)->%[2]s, .room = offsetof(%[1]s, %[3]s), .counts = %[4]t, .reads = %[5]t",
			t.Elem(), a.Fills, a.Room, a.Counts, a.Reads))
	}
	if a.Counted != "" {
		last := a.Known.Fields[len(a.Known.Fields)-1]
		out = append(out, fmt.Sprintf(".counted = offsetof(%s, %s), .array = %d, .stride = %d",
			t.Elem(), a.Counted, last.Offset, last.Size/last.Type.Dims[0]))
	}
	if pointers := pointersIn(s.Header, t, 0); t.Stars == 1 && len(pointers) > 0 {
		out = append(out, fmt.Sprintf(".pointers = (const uint32_t[]){%s}, .npointers = %d",
			strings.Trim(strings.Join(strings.Fields(fmt.Sprint(pointers)), ", "), "[]"), len(pointers)))
	}
	return "{" + strings.Join(out, ", ") + "}"
}

// pointersIn lists the offsets of pointers and handles in a struct.
func pointersIn(h *model.Header, t model.CType, base int64) []int64 {
	known := h.Type(t.Name)
	if known == nil {
		return nil
	}
	var out []int64
	for _, field := range known.Fields {
		n := int64(1)
		for _, d := range field.Type.Dims {
			n *= d
		}
		for i := range n {
			at := base + field.Offset + i*field.Size/n
			if inner := h.Type(field.Type.Name); field.Type.Stars > 0 || inner != nil && inner.Kind == model.Handle {
				out = append(out, at)
			} else {
				out = append(out, pointersIn(h, field.Type, at)...)
			}
		}
	}
	return out
}

// publishedKeys is a profile with the keys of other mocks, without the GPUs' failure, since a lost GPU answers nothing
// else.
func publishedKeys(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "profiles", "testdata", "published-keys.yaml"))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "published-keys.yaml")
	text = append(text, "\n---\ndevice_defaults: {failure: N/A}\n"...)
	require.NoError(t, os.WriteFile(path, text, 0o644))
	return path
}

// smallNumbers is a vGPU host with a type and vGPUs of the small numbers that the memory test asks for.
const smallNumbers = `
extends: t4-vgpu-host
device_defaults:
  vgpu:
    types:
      - {id: 1, name: GRID T4-1Q, class: Quadro, license: "Quadro-Virtual-DWS,5.0;GRID-Virtual-WS,2.0", framebuffer_mib: 1024,
        max_instances: 16, display_heads: 4, max_x: 5120, max_y: 2880, frame_rate_limit: 60}
    instances:
      - {id: 2, type: GRID T4-1Q, uuid: 11111111-1111-1111-1111-111111111111, vm_id: "1", vm_driver_version: 550.54.14}
      - {id: 3, type: GRID T4-1Q, uuid: 22222222-2222-2222-2222-222222222222, vm_id: "2", vm_driver_version: 550.54.14}
`

// newestDriver is a board with functions that only the newest driver has, whose GPUs run processes and can run vGPUs.
const newestDriver = `
extends: gb200
count: 2
system: {driver_version: 615.36.04}
device_defaults:
  processes: [{pid: 5, used_memory_mib: 1, sm_util: 10}, {pid: 6, used_memory_mib: 2, mem_util: 20}, {pid: 7, used_memory_mib: 3, sm_util: 30}]
  virtualization: {mode: host_vgpu}
  vgpu:
    heterogeneous_mode: enabled
    capabilities: {fractional_multi_vgpu: true, heterogeneous_timeslice_profiles: true, heterogeneous_timeslice_sizes: true, homogeneous_placements: true}
    types:
      - {id: 1, name: VG-4Q, class: Quadro, framebuffer_mib: 4096, max_instances: 4, display_heads: 4, max_x: 7680, max_y: 4320,
         placement_size: 4, placement_ids: [0, 4, 8, 12], homogeneous_placement_size: 5, homogeneous_placement_ids: [0, 5, 10]}
`

// split lists the functions that answered, and those that only refused, among the functions of vGPUs or among the others.
func split(lines []string, vGPU bool) (answers, refuses []string) {
	for _, line := range lines {
		word, name, ok := strings.Cut(line, ": ")
		if !ok || vGPU != (strings.Contains(name, "Vgpu") || strings.Contains(name, "GridLicensable")) {
			continue
		}
		if word == "answers" {
			answers = append(answers, name)
		} else {
			refuses = append(refuses, name)
		}
	}
	return answers, refuses
}

// TestMemory: callers with three different headers use the newest library, which must not read or write past their
// memory. Two boards have a value for most functions, and a vGPU host for most of those that are about vGPUs. Functions that only
// refused on these are called on a board of the newest generation, with the newest driver.
func TestMemory(t *testing.T) {
	published, host, newest := publishedKeys(t), filepath.Join(t.TempDir(), "host.yaml"), filepath.Join(t.TempDir(), "newest.yaml")
	require.NoError(t, os.WriteFile(host, []byte(smallNumbers), 0o644))
	require.NoError(t, os.WriteFile(newest, []byte(newestDriver), 0o644))
	for _, version := range []string{"11.0", "12.4", "13.4"} {
		t.Run(version, func(t *testing.T) {
			program := memoryProgram(t, version)
			answered, only := map[string]bool{}, map[string]bool{}
			for board, config := range map[string]string{"default": "", "published keys": published, "vGPU host": host} {
				for _, part := range []string{"refusals", "guards"} {
					t.Run(part+" "+board, func(t *testing.T) {
						env := with(library, "GOGC=1", "MOCK_NVML_CONFIG="+config, "NVMLFAB_STATE_DIR="+t.TempDir())
						out := run(t, env, program, part).succeeds(t)
						assert.Empty(t, out.stderr)
						n := out.figures(t)
						for _, calls := range n[:2] {
							assert.Positive(t, calls)
						}
						if part == "guards" {
							answers, refuses := split(out.lines(), board == "vGPU host")
							assert.Greater(t, len(answers), (len(answers)+len(refuses))/2,
								"of many functions only a refusal was seen:\n%s", strings.Join(refuses, "\n"))
							note(out.lines(), answered, only)
						}
					})
				}
			}
			maps.DeleteFunc(only, func(name string, _ bool) bool { return answered[name] })
			env := with(library, "GOGC=1", "MOCK_NVML_CONFIG="+newest, "NVMLFAB_STATE_DIR="+t.TempDir())
			out := run(t, env, program, append([]string{"guards"}, slices.Sorted(maps.Keys(only))...)...).succeeds(t)
			assert.Empty(t, out.stderr)
			note(out.lines(), answered, only)
			if version == "13.4" {
				assert.True(t, answered["nvmlDeviceReadPRMCounters_v1"] && answered["nvmlDeviceReadWritePRM_v1"], "the newest board answers PRM")
			}
			maps.DeleteFunc(only, func(name string, _ bool) bool { return answered[name] })
			t.Logf("only refused: %s", slices.Sorted(maps.Keys(only)))
		})
	}
}

// note adds the functions that answered, and those that only refused.
func note(lines []string, answered, refused map[string]bool) {
	for _, vGPU := range []bool{false, true} {
		answers, refuses := split(lines, vGPU)
		for _, name := range answers {
			answered[name] = true
		}
		for _, name := range refuses {
			refused[name] = true
		}
	}
}

// TestMIGMemory: with the handle of a MIG device, of a GPU instance and of a compute instance no function reads or writes past
// its caller's memory, and those that refuse MIG devices do so with the answer of the table of requirements.
func TestMIGMemory(t *testing.T) {
	needsRoot(t)
	for _, version := range []string{"11.0", "13.4"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			program := memoryProgram(t, version)
			out := run(t, with(library, "GOGC=1", "NVMLFAB_STATE_DIR="+t.TempDir()), program, "mig").succeeds(t)
			assert.Empty(t, out.stderr)
			n := out.figures(t)
			assert.Greater(t, n[2], n[1]/4, "of many functions only a refusal was seen:\n%s", out.stdout)
		})
	}
}

// TestFuzz prints its seed; NVMLFAB_FUZZ_SEED repeats a run and NVMLFAB_FUZZ_SECONDS makes it longer.
func TestFuzz(t *testing.T) {
	seed, seconds := os.Getenv("NVMLFAB_FUZZ_SEED"), os.Getenv("NVMLFAB_FUZZ_SECONDS")
	if seed == "" {
		seed = fmt.Sprint(time.Now().UnixNano())
	}
	if seconds == "" {
		seconds = "3"
	}
	t.Log("NVMLFAB_FUZZ_SEED=" + seed)
	out := run(t, with(library, "GOGC=1", "NVMLFAB_STATE_DIR="+sharedFolder(t)), memoryProgram(t, ""), "fuzz", seed, seconds).succeeds(t)
	assert.Empty(t, out.stderr)
	n := out.figures(t)
	assert.Equal(t, n[2], n[1], "every function is called")
}
