package fakegpuctl

import (
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

const header = "../uapi/fakegpu.h"

var structs = map[string]reflect.Type{
	"fakegpu_info":   reflect.TypeFor[infoArg](),
	"fakegpu_alloc":  reflect.TypeFor[allocArg](),
	"fakegpu_free":   reflect.TypeFor[freeArg](),
	"fakegpu_submit": reflect.TypeFor[submitArg](),
	"fakegpu_wait":   reflect.TypeFor[waitArg](),
	"fakegpu_page":   reflect.TypeFor[page](),
}

var constants = map[string]uint64{
	"FAKEGPU_ABI_VERSION":  ABIVersion,
	"FAKEGPU_IOCTL_INFO":   ioctlInfo,
	"FAKEGPU_IOCTL_ALLOC":  ioctlAlloc,
	"FAKEGPU_IOCTL_FREE":   ioctlFree,
	"FAKEGPU_IOCTL_SUBMIT": ioctlSubmit,
	"FAKEGPU_IOCTL_WAIT":   ioctlWait,
}

// cName is the name in the header of a Go field.
func cName(field string) string {
	field = strings.NewReplacer("Usec", "Us", "Nsec", "Ns", "ABI", "Abi").Replace(field)
	return strings.ToLower(regexp.MustCompile(`\B[A-Z]`).ReplaceAllString(field, "_$0"))
}

// expected returns lines "NAME VALUE" for everything in Go, and a C program with expressions for the same values.
func expected() (lines []string, program string) {
	var body strings.Builder
	add := func(name string, value uint64, expression string) {
		lines = append(lines, fmt.Sprintf("%s %d", name, value))
		fmt.Fprintf(&body, "\tprintf(\"%%s %%llu\\n\", %q, (unsigned long long)(%s));\n", name, expression)
	}
	for name, t := range structs {
		add("sizeof "+name, uint64(t.Size()), "sizeof(struct "+name+")")
		for i := range t.NumField() {
			member := name + ", " + cName(t.Field(i).Name)
			add("offset of "+member, uint64(t.Field(i).Offset), "offsetof(struct "+member+")")
			add("sizeof "+member, uint64(t.Field(i).Type.Size()), "sizeof(((struct "+strings.Replace(member, ", ", " *)0)->", 1)+")")
		}
	}
	for name, value := range constants {
		add(name, value, name)
	}
	return lines, "#include <stddef.h>\n#include <stdio.h>\n#include \"fakegpu.h\"\n\nint main(void)\n{\n" + body.String() + "\treturn 0;\n}\n"
}

// TestLayout: every structure, member and constant in Go has the value that the C compiler gives it. The Go members
// fill each structure without a gap, so the header cannot have further members.
func TestLayout(t *testing.T) {
	lines, program := expected()
	binary := filepath.Join(t.TempDir(), "layout")
	gcc := exec.Command("gcc", "-std=c11", "-Wall", "-Wextra", "-Wpadded", "-Werror", "-I", filepath.Dir(header), "-x", "c", "-o", binary, "-")
	gcc.Stdin = strings.NewReader(program)
	out, err := gcc.CombinedOutput()
	require.NoError(t, err, "%s\n%s", program, out)
	out, err = exec.Command(binary).CombinedOutput()
	require.NoError(t, err)
	assert.ElementsMatch(t, lines, strings.Split(strings.TrimSpace(string(out)), "\n"))

	for name, goType := range structs {
		end := uintptr(0)
		for i := range goType.NumField() {
			assert.Equal(t, end, goType.Field(i).Offset, "%s.%s", name, goType.Field(i).Name)
			end += goType.Field(i).Type.Size()
		}
		assert.Equal(t, goType.Size(), end, name)
	}
}

// TestComplete: Go has every structure and request of the header.
func TestComplete(t *testing.T) {
	text, err := os.ReadFile(header)
	require.NoError(t, err)
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^struct (\w+) \{|^#define (FAKEGPU_(?:IOCTL|ABI)\w+)`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1]+m[2])
	}
	assert.Len(t, names, len(structs)+len(constants))
	for _, name := range names {
		_, isStruct := structs[name]
		_, isConstant := constants[name]
		assert.True(t, isStruct || isConstant, name)
	}
}
