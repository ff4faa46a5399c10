package vgpuctl

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const header = "../uapi/vgpuctl.h"

// structs maps the structures of the header to those in Go.
var structs = map[string]reflect.Type{
	"vgpu_limits":        reflect.TypeFor[Limits](),
	"vgpu_policy":        reflect.TypeFor[Policy](),
	"vgpu_cgroup_policy": reflect.TypeFor[CgroupPolicy](),
	"vgpu_info":          reflect.TypeFor[Info](),
	"vgpu_stats":         reflect.TypeFor[Stats](),
	"vgpu_usage":         reflect.TypeFor[Usage](),
	"vgpu_event":         reflect.TypeFor[Event](),
}

// constants maps the constants of the header to those in Go.
var constants = map[string]uint64{
	"VGPU_ABI_VERSION":               ABIVersion,
	"VGPU_MINOR_ANY":                 uint64(MinorAny),
	"VGPU_WEIGHT_MAX":                WeightMax,
	"VGPU_LIMIT_DRY_RUN":             uint64(LimitDryRun),
	"VGPU_MODE_OFF":                  uint64(ModeOff),
	"VGPU_MODE_DRY_RUN":              uint64(ModeDryRun),
	"VGPU_MODE_ENFORCE":              uint64(ModeEnforce),
	"VGPU_IOCTL_GET_INFO":            IoctlGetInfo,
	"VGPU_IOCTL_SET_MODE":            IoctlSetMode,
	"VGPU_IOCTL_GET_STATS":           IoctlGetStats,
	"VGPU_IOCTL_GET_USAGE":           IoctlGetUsage,
	"VGPU_IOCTL_SET_POLICY":          IoctlSetPolicy,
	"VGPU_IOCTL_GET_POLICY":          IoctlGetPolicy,
	"VGPU_IOCTL_CLEAR_POLICY":        IoctlClearPolicy,
	"VGPU_IOCTL_SET_CGROUP_POLICY":   IoctlSetCgroupPolicy,
	"VGPU_IOCTL_GET_CGROUP_POLICY":   IoctlGetCgroupPolicy,
	"VGPU_IOCTL_CLEAR_CGROUP_POLICY": IoctlClearCgroupPolicy,
	"VGPU_EVENT_OPEN":                uint64(EventOpen),
	"VGPU_EVENT_CLOSE":               uint64(EventClose),
	"VGPU_EVENT_ALLOC":               uint64(EventAlloc),
	"VGPU_EVENT_FREE":                uint64(EventFree),
	"VGPU_EVENT_DUP":                 uint64(EventDup),
	"VGPU_EVENT_CONTROL":             uint64(EventControl),
	"VGPU_EVENT_DENY":                uint64(EventDeny),
	"VGPU_EVENT_TIMESLICE":           uint64(EventTimeslice),
	"VGPU_EVENT_EXIT":                uint64(EventExit),
	"VGPU_EVENT_RACE":                uint64(EventRace),
	"VGPU_EVENT_CGROUP_GONE":         uint64(EventCgroupGone),
	"VGPU_SCOPE_NONE":                uint64(ScopeNone),
	"VGPU_SCOPE_CGROUP":              uint64(ScopeCgroup),
	"VGPU_SCOPE_TGID":                uint64(ScopeTgid),
	"VGPU_SCOPE_MODULE":              uint64(ScopeModule),
	"VGPU_EVENT_DRY_RUN":             uint64(EventDryRun),
	"VGPU_EVENT_XFER":                uint64(EventXfer),
	"VGPU_EVENT_COMPAT":              uint64(EventCompat),
}

// headerText is the header without comments.
func headerText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(header)
	require.NoError(t, err)
	return regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAllString(string(text), "")
}

var (
	structPattern   = regexp.MustCompile(`(?s)struct (\w+) \{(.*?)\n\};`)
	memberPattern   = regexp.MustCompile(`^\s*(__u32|__u64|char|struct \w+)\s+(.+)$`)
	constantPattern = regexp.MustCompile(`(?m)^\s*#define\s+(VGPU_\w+)[ \t]+\S|\b(VGPU_\w+)\s*=\s*\d`)
)

// headerMembers are the members of each structure, by name, in their order.
func headerMembers(t *testing.T) map[string][]string {
	t.Helper()
	members := map[string][]string{}
	for _, s := range structPattern.FindAllStringSubmatch(headerText(t), -1) {
		for declaration := range strings.SplitSeq(s[2], ";") {
			if declaration = strings.TrimSpace(declaration); declaration == "" {
				continue
			}
			m := memberPattern.FindStringSubmatch(declaration)
			require.NotNil(t, m, "%s: this test does not understand %q", s[1], declaration)
			for name := range strings.SplitSeq(m[2], ",") {
				name, _, _ = strings.Cut(strings.TrimSpace(name), "[")
				members[s[1]] = append(members[s[1]], name)
			}
		}
	}
	return members
}

func headerConstants(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, m := range constantPattern.FindAllStringSubmatch(headerText(t), -1) {
		names = append(names, m[1]+m[2])
	}
	return names
}

// goName is the Go name of a member.
func goName(member string) string {
	name := ""
	for word := range strings.SplitSeq(member, "_") {
		switch word {
		case "id", "abi":
			name += strings.ToUpper(word)
		default:
			name += strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return name
}

// compiled evaluates constant expressions that use the header. It compiles an array of them into an object file for a
// machine, which need not be this one.
func compiled(t *testing.T, flag string, expressions []string) []uint64 {
	t.Helper()
	source := "#include <stddef.h>\n#include \"" + filepath.Base(header) + "\"\n" +
		"__attribute__((section(\".values\"))) const unsigned long long values[] = {\n\t" + strings.Join(expressions, ",\n\t") + "\n};\n"
	object := filepath.Join(t.TempDir(), "values.o")
	machine, err := exec.Command("gcc", "-print-multiarch").Output() // its <asm/ioctl.h> is the same as that of i386
	require.NoError(t, err)
	gcc := exec.Command("gcc", flag, "-std=gnu11", "-Wall", "-Wextra", "-Wpadded", "-Werror", "-I", filepath.Dir(header),
		"-idirafter", "/usr/include/"+strings.TrimSpace(string(machine)), "-x", "c", "-c", "-o", object, "-")
	gcc.Stdin = strings.NewReader(source)
	out, err := gcc.CombinedOutput()
	require.NoError(t, err, "%s", out)
	file, err := elf.Open(object)
	require.NoError(t, err)
	defer file.Close()
	section := file.Section(".values")
	require.NotNil(t, section)
	data, err := section.Data()
	require.NoError(t, err)
	values := make([]uint64, len(expressions))
	require.Len(t, data, 8*len(values))
	for i := range values {
		values[i] = binary.LittleEndian.Uint64(data[8*i:])
	}
	return values
}

// TestLayout: every structure, member and constant has the layout or value that the C compiler gives it, for 64-bit and
// for 32-bit programs; Go has nothing that the header lacks; and no structure has padding, which -Wpadded would report.
func TestLayout(t *testing.T) {
	var expressions, names []string
	var want []uint64
	add := func(name, expression string, value uint64) {
		names, expressions, want = append(names, name), append(expressions, expression), append(want, value)
	}
	members := headerMembers(t)
	for name, goType := range structs {
		require.NotEmpty(t, members[name], name)
		assert.Equal(t, goType.NumField(), len(members[name]), "%s has %v", name, members[name])
		add("sizeof "+name, fmt.Sprintf("sizeof(struct %s)", name), uint64(goType.Size()))
		for _, member := range members[name] {
			field, ok := goType.FieldByName(goName(member))
			if !assert.True(t, ok, "%s has no field for %s.%s", goType, name, member) {
				continue
			}
			add("offset of "+name+"."+member, fmt.Sprintf("offsetof(struct %s, %s)", name, member), uint64(field.Offset))
			add("sizeof "+name+"."+member, fmt.Sprintf("sizeof(((struct %s *)0)->%s)", name, member), uint64(field.Type.Size()))
		}
	}
	assert.Len(t, members, len(structs), "structures of the header")
	known := headerConstants(t)
	for _, name := range known {
		assert.Contains(t, constants, name)
	}
	for name, value := range constants {
		assert.Contains(t, known, name)
		add(name, name, value)
	}
	add("sizeof enum vgpu_mode", "sizeof(__u32)", uint64(len(bytesOf(new(Mode)))))
	for _, flag := range []string{"-m64", "-m32"} {
		for i, value := range compiled(t, flag, expressions) {
			assert.Equal(t, want[i], value, "%s with %s", names[i], flag)
		}
	}
}

// TestMinorMax compares MinorMax with the header of NVIDIA's interface.
func TestMinorMax(t *testing.T) {
	text, err := os.ReadFile("../uapi/nvrm.h")
	require.NoError(t, err)
	assert.Contains(t, string(text), fmt.Sprintf("#define NV_MINOR_GPU_MAX %d\n", MinorMax))
}

// TestNames: every constant of an enumeration has its own name, and the name can be parsed.
func TestNames(t *testing.T) {
	for name, value := range constants {
		if kind, rest, _ := strings.Cut(strings.TrimPrefix(name, "VGPU_"), "_"); kind == "MODE" {
			want := strings.ReplaceAll(strings.ToLower(rest), "_", "-")
			mode, err := ParseMode(want)
			assert.NoError(t, err)
			assert.Equal(t, Mode(value), mode)
			assert.Equal(t, want, mode.String())
		} else if kind == "SCOPE" {
			assert.Equal(t, strings.ToLower(rest), Scope(value).String())
		} else if kind == "EVENT" && name != "VGPU_EVENT_DRY_RUN" && name != "VGPU_EVENT_XFER" && name != "VGPU_EVENT_COMPAT" {
			want := strings.ReplaceAll(strings.ToLower(rest), "_", "-")
			event, err := ParseEventType(want)
			assert.NoError(t, err)
			assert.Equal(t, EventType(value), event)
			assert.Equal(t, want, event.String())
		}
	}
	assert.Equal(t, "77", EventType(77).String())
	assert.Equal(t, "0", EventType(0).String())
	for _, bad := range []string{"", "Off", "enforcing", "1"} {
		_, err := ParseMode(bad)
		assert.EqualError(t, err, fmt.Sprintf(`%q is no mode: want one of ["off" "dry-run" "enforce"]`, bad))
		_, err = ParseEventType(bad)
		assert.ErrorContains(t, err, "want one of [\"open\" ")
	}
	assert.Equal(t, []string{"dry-run", "compat", "0x80000000"}, EventFlags(1|4|1<<31).Names())
	assert.Equal(t, []string{}, LimitFlags(0).Names())
}
