package model

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const small = `
#ifndef NVML_NO_UNVERSIONED_FUNC_DEFS
#define nvmlGo nvmlGo_v2
#endif
#define NVML_STRUCT_VERSION(data, ver) (unsigned int)(sizeof(nvml ## data ## _v ## ver ## _t) | (ver << 24U))
#define NVML_SIZE 16
#define NVML_FMT "%04X"
typedef struct { struct nvmlDevice_st *handle; } nvmlDevice_t;
typedef struct nvmlUnit_st *nvmlUnit_t;
typedef enum nvmlReturn_enum { NVML_SUCCESS = 0, NVML_ERROR_UNKNOWN = 999 } nvmlReturn_t;
typedef unsigned int nvmlKind_t;
typedef union { double d; unsigned char bytes[12]; } nvmlEither_t;
typedef struct nvmlThing_st { char name[NVML_SIZE]; unsigned long long n; union { int a; char b[3]; }; nvmlEither_t e[2]; } nvmlThing_v1_t;
typedef nvmlThing_v1_t nvmlThing_t;
typedef struct nvmlThing_st nvmlThing_other_t;
#define nvmlThing_v1 NVML_STRUCT_VERSION(Thing, 1)
nvmlReturn_t nvmlGo_v2(nvmlDevice_t device, const nvmlThing_t *things, unsigned int *count);
const char *nvmlErrorString(nvmlReturn_t result);
#ifdef NVML_NO_UNVERSIONED_FUNC_DEFS
nvmlReturn_t nvmlGo(void);
#endif
`

func TestParse(t *testing.T) {
	h, err := Parse("1.2", "small.h", []byte(small), nil)
	require.NoError(t, err)

	var protos []string
	for _, f := range h.Functions {
		protos = append(protos, f.Prototype())
	}
	assert.Equal(t, []string{
		"const char *nvmlErrorString(nvmlReturn_t result)",
		"nvmlReturn_t nvmlGo(void)",
		"nvmlReturn_t nvmlGo_v2(nvmlDevice_t device, const nvmlThing_t *things, unsigned int *count)",
	}, protos)
	assert.True(t, h.Function("nvmlGo").Guarded)
	assert.False(t, h.Function("nvmlGo_v2").Guarded)

	for name, kind := range map[string]Kind{
		"nvmlDevice_t": Handle, "nvmlUnit_t": Handle, "nvmlReturn_t": Enum, "nvmlKind_t": Scalar,
		"nvmlEither_t": Union, "nvmlThing_t": Struct, "nvmlThing_other_t": Struct,
	} {
		require.NotNil(t, h.Type(name), name)
		assert.Equal(t, kind, h.Type(name).Kind, name)
	}
	thing := h.Type("nvmlThing_other_t")
	assert.Equal(t, "nvmlThing_v1_t", thing.Name)
	assert.EqualValues(t, 64, thing.Size)
	assert.Equal(t, Field{"a", CType{Name: "nvmlThing_v1_t.a"}, 24, 4}, thing.Fields[2])
	assert.Equal(t, Field{"e", CType{Name: "nvmlEither_t", Dims: []int64{2}}, 32, 32}, thing.Fields[3])

	constants := map[string]int64{}
	for _, c := range h.Constants {
		constants[c.Name] = c.Int
	}
	assert.EqualValues(t, 1<<24|64, constants["nvmlThing_v1"])
	assert.Contains(t, constants, "NVML_FMT")
	assert.NotContains(t, constants, "NVML_STRUCT_VERSION")
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"bit field":    {"typedef struct { int a : 3; } nvmlBits_t;", "bit field"},
		"a variable":   {"int nvmlCounter;", `unexpected declaration of "nvmlCounter"`},
		"unknown type": {"nvmlReturn_t nvmlGo(void);", "bad.h:1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("1.2", "bad.h", []byte(c.text), nil)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestGoldenRoundTrip(t *testing.T) {
	h, err := Parse("1.2", "small.h", []byte(small), nil)
	require.NoError(t, err)
	text, err := h.JSON()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "1.2.json")
	require.NoError(t, os.WriteFile(path, text, 0o644))
	back, err := Read(path)
	require.NoError(t, err)
	assert.Equal(t, h, back)

	require.NoError(t, os.WriteFile(path, text[:len(text)/2], 0o644))
	_, err = Read(path)
	require.ErrorContains(t, err, "1.2.json")
}

func TestCType(t *testing.T) {
	for _, s := range []string{"int", "const char *", "unsigned long long *", "char [32]", "const void **", "unsigned int *[2]"} {
		var c CType
		require.NoError(t, c.UnmarshalText([]byte(s)))
		assert.Equal(t, s, c.String())
	}
	var c CType
	require.Error(t, c.UnmarshalText([]byte("")))
}
