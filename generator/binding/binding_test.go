package binding

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/generator/model"
)

// types are the types that the prototypes below use.
const types = `
#define NVML_STRUCT_VERSION(data, ver) (unsigned int)(sizeof(nvml ## data ## _v ## ver ## _t) | (ver << 24U))
typedef struct { struct nvmlDevice_st *handle; } nvmlDevice_t;
typedef enum nvmlReturn_enum { NVML_SUCCESS = 0 } nvmlReturn_t;
typedef enum nvmlKind_enum { NVML_KIND = 0 } nvmlKind_t;
typedef struct { unsigned int a; unsigned long long b; } nvmlPlain_t;
typedef struct { unsigned int version; unsigned int a; } nvmlSized_v1_t;
typedef struct { unsigned int version; unsigned int a, b; } nvmlSized_v2_t;
typedef nvmlSized_v2_t nvmlSized_t;
#define nvmlSized_v1 NVML_STRUCT_VERSION(Sized, 1)
#define nvmlSized_v2 NVML_STRUCT_VERSION(Sized, 2)
`

func bind(t *testing.T, headers ...string) (map[string]*Symbol, error) {
	t.Helper()
	byName := map[string]*Symbol{}
	for i, text := range headers {
		h, err := model.Parse("1."+string(rune('0'+i)), "test.h", []byte(types+text), nil)
		require.NoError(t, err)
		for _, f := range h.Functions {
			s := byName[f.Name]
			if s == nil {
				s = &Symbol{Name: f.Name, Since: i + 1}
				byName[f.Name] = s
			}
			s.uses = append(s.uses, use{h, f})
			s.Func, s.Header = f, h
		}
	}
	for _, s := range byName {
		if err := s.classify(); err != nil {
			return nil, err
		}
	}
	return byName, nil
}

// TestSignatures checks how C prototypes become Go signatures.
func TestSignatures(t *testing.T) {
	for c, want := range map[string]string{
		"nvmlReturn_t nvmlX(void);":                                                            "func X(*engine.Snapshot) abi.Return",
		"nvmlReturn_t nvmlX(nvmlDevice_t d, nvmlKind_t k, int n);":                             "func X(*engine.Device, abi.Kind_t, int32) abi.Return",
		"nvmlReturn_t nvmlX(const char *uuid, nvmlDevice_t *d);":                               "func X(*engine.Snapshot, string) (*engine.Device, abi.Return)",
		"nvmlReturn_t nvmlX(nvmlDevice_t d, unsigned int *n, nvmlKind_t *k);":                  "func X(*engine.Device) (uint32, abi.Kind_t, abi.Return)",
		"nvmlReturn_t nvmlX(nvmlDevice_t d, char *name, unsigned int length);":                 "func X(*engine.Device) (string, abi.Return)",
		"nvmlReturn_t nvmlX(nvmlDevice_t d, char *name, unsigned int *size);":                  "func X(*engine.Device) (string, abi.Return)",
		"nvmlReturn_t nvmlX(nvmlDevice_t d, unsigned int *count, nvmlPlain_t *list);":          "func X(*engine.Device) ([]abi.Plain_t, abi.Return)",
		"nvmlReturn_t nvmlX(nvmlDevice_t d, nvmlDevice_t *list, unsigned int *count, int n);":  "func X(*engine.Device, int32) ([]*engine.Device, abi.Return)",
		"nvmlReturn_t nvmlX(nvmlDevice_t d, nvmlPlain_t *p);":                                  "func X(*engine.Device, *abi.Plain_t) abi.Return",
		"nvmlReturn_t nvmlX(nvmlDevice_t d, const nvmlPlain_t *p);":                            "func X(*engine.Device, *abi.Plain_t) abi.Return",
		"nvmlReturn_t nvmlX(nvmlDevice_t d, nvmlSized_t *p);":                                  "func X(*engine.Device, *abi.Sized_v2_t) abi.Return",
		"nvmlReturn_t nvmlX(unsigned long long mask, unsigned long *words, long long *signd);": "func X(*engine.Snapshot, uint64) (uint64, int64, abi.Return)",
	} {
		symbols, err := bind(t, c)
		require.NoError(t, err, c)
		assert.Equal(t, want, symbols["nvmlX"].Signature(), c)
	}
}

func TestVersionedStructsProveTheirSize(t *testing.T) {
	symbols, err := bind(t, "nvmlReturn_t nvmlX(nvmlSized_t *p);")
	require.NoError(t, err)
	arg := symbols["nvmlX"].Args[0]
	assert.Equal(t, Versioned, arg.Role)
	assert.Equal(t, []Accept{{1<<24 | 8, 8}, {2<<24 | 12, 12}}, arg.Versions)

	// a symbol that names version 1 accepts no later version
	symbols, err = bind(t, "nvmlReturn_t nvmlX(nvmlSized_v1_t *p);")
	require.NoError(t, err)
	assert.Equal(t, []Accept{{1<<24 | 8, 8}}, symbols["nvmlX"].Args[0].Versions)
}

// TestRefusals: the generator asks for a rule if it cannot know a parameter's role.
func TestRefusals(t *testing.T) {
	grew := "typedef struct { int a; } nvmlGrew_t; nvmlReturn_t nvmlX(nvmlGrew_t *p);"
	grown := "typedef struct { int a, b; } nvmlGrew_t; nvmlReturn_t nvmlX(nvmlGrew_t *p);"
	for name, c := range map[string]struct {
		headers []string
		want    string
	}{
		"a struct that differs between headers": {[]string{grew, grown}, `nvmlX: nvmlGrew_t of parameter "p" has sizes [4 8] in the headers; add a rule`},
		"a version without a macro": {
			[]string{"typedef struct { unsigned int version; } nvmlOther_t; nvmlReturn_t nvmlX(nvmlOther_t *p);"},
			"nvmlX: nothing says which versions of nvmlOther_t it takes; add a rule",
		},
		"a buffer without a length": {[]string{"nvmlReturn_t nvmlX(char *name);"}, `nvmlX: nothing says how long the buffer "name" is; add a rule`},
		"a struct by value":         {[]string{"nvmlReturn_t nvmlX(nvmlPlain_t p);"}, "by value, which no rule renders"},
		"an untyped pointer":        {[]string{"nvmlReturn_t nvmlX(void *p);"}, `no role for parameter "p" of type void *; add a rule`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := bind(t, c.headers...)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestRulesNameWhatExists(t *testing.T) {
	symbols, err := bind(t, "nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t d, nvmlPlain_t *other);")
	require.NoError(t, err)
	problems := unusedRules(symbols)
	assert.Contains(t, problems, `rule for nvmlDeviceGetAttributes: it has no parameter "attributes"`)
	assert.Contains(t, problems, "rule for nvmlDeviceGetPciInfo: no header declares it")
	for symbol, list := range rules {
		for _, r := range list {
			assert.NotEmpty(t, r.Why, "%s has a rule without a reason", symbol)
		}
	}
}

func TestKinds(t *testing.T) {
	_, symbols, err := Load(root)
	require.NoError(t, err)
	kind := map[string]Kind{}
	for _, s := range symbols {
		kind[s.Name] = s.Kind
		assert.Equal(t, s.Kind == Lifecycle || s.Kind == Front || s.Kind == Waiter || s.Kind == Anytime, s.C != "", s.Name)
		assert.Equal(t, s.Kind != Front, s.Retirable(), s.Name)
	}
	assert.Equal(t, Function, kind["nvmlDeviceGetName"])
	assert.Equal(t, Function, kind["nvmlGetBlacklistDeviceCount"])
	assert.Equal(t, Lifecycle, kind["nvmlInitWithFlags"])
	assert.Equal(t, Front, kind["nvmlErrorString"])
	assert.Equal(t, Slot, kind["nvmlInternalSlot65"])

	refuse := func(c, want string) {
		t.Helper()
		symbols, err := bind(t, c)
		require.NoError(t, err)
		for _, s := range symbols {
			require.ErrorContains(t, s.setKind(), want)
		}
	}
	refuse("const char *nvmlX(void);", "nvmlX returns const char *, which no Go function can; add it to the table of kinds")
	refuse("nvmlReturn_t nvmlInternalSlot256(void);", "nvmlInternalSlot256: nvidia-smi's table ends at 255")
	assert.Contains(t, unusedKinds(map[string]*Symbol{}), "kind of nvmlShutdown: no header declares it")
}

func TestGoName(t *testing.T) {
	for c, want := range map[string]string{
		"nvmlMemory_v2_t": "Memory_v2_t", "NVML_ERROR_TIMEOUT": "ERROR_TIMEOUT", "nvmlReturn_t": "Return",
		"NVML_255_MASK": "N255_MASK", "nvmlThing_t.data": "Thing_t_data", "MAX_CLK_DOMAINS": "MAX_CLK_DOMAINS",
	} {
		assert.Equal(t, want, GoName(c))
	}
}
