package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/generator/binding"
	"github.com/nvmlfab/nvmlfab/generator/emit"
	"github.com/nvmlfab/nvmlfab/generator/model"
	"github.com/nvmlfab/nvmlfab/generator/registry"
)

func loaded(t *testing.T) *project {
	t.Helper()
	root, err := findRoot()
	require.NoError(t, err)
	p, err := load(root)
	require.NoError(t, err)
	return p
}

func output(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, run(args, &out))
	return out.String()
}

// TestCheck compares every golden and all of generated/ with the headers and handwritten/.
func TestCheck(t *testing.T) {
	require.NoError(t, run([]string{"--check"}, &bytes.Buffer{}))
}

func TestGeneratingTwiceIsTheSame(t *testing.T) {
	p := loaded(t)
	first, err := p.render()
	require.NoError(t, err)
	second, err := loaded(t).render()
	require.NoError(t, err)
	assert.Equal(t, slices.Sorted(maps.Keys(first)), slices.Sorted(maps.Keys(second)))
	for name := range first {
		assert.True(t, bytes.Equal(first[name], second[name]), name)
	}
}

func TestStats(t *testing.T) {
	table := output(t, "--stats")
	for _, v := range loaded(t).Versions {
		assert.Regexp(t, `(?m)^ +`+regexp.QuoteMeta(v.NVML)+` +\d+ +\d+ +\d+ +\d+ +[\d.]+ %`, table)
	}
	var stats struct {
		Versions    []versionCoverage
		Families    []familyCoverage
		Implemented []string
	}
	require.NoError(t, json.Unmarshal([]byte(output(t, "--stats", "--json")), &stats))
	require.Len(t, stats.Versions, 19)
	newest := stats.Versions[18]
	assert.Equal(t, 431, newest.Symbols)
	assert.Equal(t, newest.Symbols, newest.Implemented+newest.Stubs)
	assert.Len(t, stats.Implemented, newest.Implemented)
	sum := 0
	for _, f := range stats.Families {
		sum += f.Symbols
	}
	assert.Equal(t, newest.Symbols, sum)
	assert.Contains(t, output(t, "--stats", "--line"), "NVML 13.4.92: 431 symbols, ")
}

// TestStatsNeedNeitherNetworkNorCompiler runs the documented command with nothing but go on PATH.
func TestStatsNeedNeitherNetworkNorCompiler(t *testing.T) {
	goTool, err := exec.LookPath("go")
	require.NoError(t, err)
	goTool, err = filepath.EvalSymlinks(goTool)
	require.NoError(t, err)
	bin := t.TempDir()
	require.NoError(t, os.Symlink(goTool, filepath.Join(bin, "go")))
	cmd := exec.Command("go", "run", "./generator", "--stats")
	cmd.Dir = loaded(t).root
	cmd.Env = append(os.Environ(), "PATH="+bin, "GOPROXY=off", "GOFLAGS=-mod=mod")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "13.4.92")
}

func TestMissingIsOrderedByConsumers(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(output(t, "--missing")), "\n")[1:]
	assert.NotEmpty(t, lines)
	last := 1 << 30
	for _, line := range lines {
		fields := regexp.MustCompile(`^(\d+) +(nvml\w+) +(?:none|admin|admin-unless-unrestricted|mig-config|mig-monitor) +func \w+\(.*abi\.Return\)?$`).FindStringSubmatch(line)
		require.NotNil(t, fields, line)
		var n int
		require.NoError(t, json.Unmarshal([]byte(fields[1]), &n))
		assert.LessOrEqual(t, n, last, line)
		last = n
	}
	counts, err := wanted()
	require.NoError(t, err)
	assert.Equal(t, 39, counts["nvmlInit"])
}

// TestMissingIsOrderedByTraces: what programs called comes first, entries of nvidia-smi's table that nobody knows among it.
func TestMissingIsOrderedByTraces(t *testing.T) {
	text, lines := filepath.Join(t.TempDir(), "text"), filepath.Join(t.TempDir(), "lines")
	require.NoError(t, os.WriteFile(text, []byte(`12 nvmlDeviceClearFieldValues(device=0x1) = NVML_ERROR_NOT_SUPPORTED (stub) <0.000001>
12/13 nvmlInternalSlot26(a=0x0) = NVML_ERROR_NOT_SUPPORTED (stub) <0.000001>
12/13 nvmlInternalSlot26(a=0x0) = NVML_ERROR_NOT_SUPPORTED (stub) <0.000001>
12 nvmlInit_v2() = NVML_SUCCESS <0.000001>

      2       0  0.000010  0.000002  nvmlInternalSlot26
`), 0o644))
	require.NoError(t, os.WriteFile(lines, []byte(strings.Repeat(`{"time":1.5,"pid":1,"tid":1,"call":"nvmlDeviceClearFieldValues","args":{},"result":"NVML_SUCCESS"}
`, 2)+`{"summary":{"calls":2,"functions":[{"name":"nvmlInit"}]}}
`), 0o644))
	list := strings.Split(output(t, "--missing", "--trace", text, "--trace", lines), "\n")
	assert.Regexp(t, `^calls +consumers +stub `, list[0])
	assert.Regexp(t, `^3 +\d+ +nvmlDeviceClearFieldValues +admin +func DeviceClearFieldValues\(`, list[1])
	assert.Regexp(t, `^2 +0 +nvmlInternalSlot26 +an entry of nvidia-smi's table`, list[2])
	assert.Regexp(t, `^0 `, list[3])
	require.ErrorContains(t, run([]string{"--missing", "--trace", "report.go"}, &bytes.Buffer{}), "has no calls in it")
	require.ErrorContains(t, run([]string{"--missing", "--trace", "/nonexistent"}, &bytes.Buffer{}), "--trace: open /nonexistent")
}

// TestEveryFrontCompiles compiles the C of all versions against their own headers; every warning is an error.
func TestEveryFrontCompiles(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	p := loaded(t)
	for _, v := range p.Versions {
		t.Run(v.NVML, func(t *testing.T) {
			t.Parallel()
			path, err := v.Path()
			require.NoError(t, err)
			dir := t.TempDir()
			require.NoError(t, p.writeFront(v, dir))
			sources, err := filepath.Glob(filepath.Join(dir, "*.c"))
			require.NoError(t, err)
			require.GreaterOrEqual(t, len(sources), 3)
			flags := []string{"-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
				"-I", dir, "-I", "../library/front", "-I", "../nvml-headers", "-I", filepath.Dir(path)}
			out, err := exec.Command("gcc", append(flags, sources...)...).CombinedOutput()
			require.NoError(t, err, string(out))
			assert.Empty(t, string(out))
		})
	}
}

// mutate changes the type of parameter k of every function that has one to a type that C passes in the same register.
func mutate(front string, k int) (text string, changed []string) {
	definition := regexp.MustCompile(`(?m)^(\w[\w ]*?[ *]+)(nvml\w+)\((.+)\)$`)
	return definition.ReplaceAllStringFunc(front, func(line string) string {
		m := definition.FindStringSubmatch(line)
		params := strings.Split(m[3], ", ")
		if k >= len(params) || params[0] == "void" {
			return line
		}
		at := strings.LastIndexAny(params[k], " *") + 1
		typ, name := strings.TrimSpace(params[k][:at]), params[k][at:]
		switch {
		case strings.HasSuffix(typ, "*"):
			typ = "unsigned char *"
		case typ == "unsigned int":
			typ = "int "
		default:
			typ = "unsigned int "
		}
		params[k] = typ + name
		changed = append(changed, m[2])
		return m[1] + m[2] + "(" + strings.Join(params, ", ") + ")"
	}), changed
}

// TestMutatedPrototypesAreCaught: the generator finds any wrong parameter type in a rendered front.
func TestMutatedPrototypesAreCaught(t *testing.T) {
	p := loaded(t)
	v := p.newest()
	path, err := v.Path()
	require.NoError(t, err)
	header, err := os.ReadFile(path)
	require.NoError(t, err)
	in := p.input(v.NVML)
	files := emit.Front(in)
	// the mutated prototypes do not fit the bodies, and only the prototypes matter
	bodies := regexp.MustCompile(`(?ms)^\{$.*?^\}$`)
	for name, text := range files {
		files[name] = bodies.ReplaceAll(text, []byte("{ return 0; }"))
	}
	require.NoError(t, emit.Verify(in, header, files))
	total := 0
	for k := range 8 {
		for _, name := range []string{"front/front.c", "front/shared.c"} {
			text, changed := mutate(string(files[name]), k)
			mutated := maps.Clone(files)
			mutated[name] = []byte(text)
			err := emit.Verify(in, header, mutated)
			for _, symbol := range changed {
				require.ErrorContains(t, err, symbol+"(", "parameter %d", k)
			}
			total += len(changed)
		}
	}
	var params int
	for _, s := range in.Symbols {
		if s.In(v.NVML) && (s.Kind != binding.Slot || in.Implemented(s)) {
			params += len(s.Func.Params)
		}
	}
	assert.Equal(t, params, total, "every parameter was mutated once")
}

func TestVersionFlags(t *testing.T) {
	assert.Equal(t, "12.4.127\n", output(t, "--nvml", "12.4", "--version-of"))
	assert.Equal(t, "13.4.92\n", output(t, "--nvml", "", "--version-of"), "as make lib asks without NVML=")
	assert.Contains(t, output(t, "--header"), "nvml.h")
	require.ErrorContains(t, run([]string{"--nvml", "12", "--version-of"}, &bytes.Buffer{}), "ambiguous")
}

func TestFlagsThatContradict(t *testing.T) {
	for args, want := range map[string]string{
		"stats":                        "unexpected argument stats; see go run ./generator --help",
		"--stat":                       "unknown flag --stat",
		"--stats --missing":            "--stats and --missing ask for different things; run the generator once for each",
		"--update --check":             "--update and --check ask for different things",
		"--header --version-of":        "--header and --version-of ask for different things",
		"--stats --json --line":        "--json and --line are two forms of --stats; choose one",
		"--json":                       "--json is a form of --stats; add --stats",
		"--missing --line":             "--line is a form of --stats; add --stats",
		"--stats --trace x":            "--trace orders the list of --missing; add --missing",
		"--nvml 12.4":                  "generated/ is always of the newest version, so leave --nvml out",
		"--nvml 12.4 --check":          "leave --nvml out",
		"--front=":                     "--front wants a folder",
		"--tables=":                    "--tables wants a folder",
		"--nvml 12.4 --tables /tmp/x":  "--tables are one for all versions",
		"--stats --nvml 99":            `no NVML version "99"`,
		"--check --stats --front /tmp": "--check and --stats and --front ask",
	} {
		require.ErrorContains(t, run(strings.Fields(args), &bytes.Buffer{}), want, args)
	}
}

func TestHelpHasAnExampleOfEachMode(t *testing.T) {
	help := output(t, "--help")
	for _, flag := range []string{"--update", "--check", "--stats", "--json", "--line", "--missing", "--trace", "--header", "--version-of", "--front", "--tables"} {
		assert.Regexp(t, `go run ./generator [^\n]*`+flag, help)
	}
}

func TestStatsOfOneVersion(t *testing.T) {
	var stats struct {
		Versions    []versionCoverage
		Families    []familyCoverage
		Implemented []string
	}
	require.NoError(t, json.Unmarshal([]byte(output(t, "--stats", "--json", "--nvml", "12.4")), &stats))
	require.Len(t, stats.Versions, 1)
	of := stats.Versions[0]
	assert.Equal(t, "12.4.127", of.NVML)
	assert.Len(t, stats.Implemented, of.Implemented)
	sum := 0
	for _, f := range stats.Families {
		sum += f.Symbols
	}
	assert.Equal(t, of.Symbols, sum)
	table := output(t, "--stats", "--nvml", "12.4")
	assert.Contains(t, table, "family of 12.4.127")
	assert.NotContains(t, table, "13.4.92")
	assert.Contains(t, output(t, "--stats", "--line", "--nvml", "12.4"), "NVML 12.4.127: ")
	assert.NotContains(t, output(t, "--missing", "--nvml", "12.4"), "nvmlDeviceGetPowerMizerMode_v1", "younger than 12.4")
}

// TestEveryFrontFitsOneCore: the fronts of all versions use the same numbers and the same hash.
func TestEveryFrontFitsOneCore(t *testing.T) {
	p := loaded(t)
	numbers, err := binding.ReadNumbers(p.path(binding.NumbersFile))
	require.NoError(t, err)
	core, err := emit.Dispatch(p.input(p.newest().NVML))
	require.NoError(t, err)
	newest := emit.Front(p.input(p.newest().NVML))["front/shared.c"]
	hash := regexp.MustCompile(`nvmlfab_model_hash = UINT64_C\((0x[0-9a-f]+)\)`).FindSubmatch(newest)
	require.NotNil(t, hash)
	assert.Contains(t, string(core["dispatch/dispatch.go"]), "const ModelHash uint64 = "+string(hash[1])+"\n")
	call := regexp.MustCompile(`(?m)^nvmlReturn_t (nvml\w+)\(.*\)\n\{\n(?:.*\n)?    return nvmlfab_(?:gate|init|shutdown)\((\d+), `)
	for _, v := range p.Versions {
		files := emit.Front(p.input(v.NVML))
		assert.Equal(t, string(newest), string(files["front/shared.c"]), v.NVML)
		calls := call.FindAllSubmatch(files["front/front.c"], -1)
		assert.Greater(t, len(calls), 80, v.NVML)
		for _, c := range calls {
			assert.Equal(t, string(c[2]), fmt.Sprint(numbers.Of(string(c[1]))), "%s of %s", c[1], v.NVML)
		}
	}
}

// TestGoldensKnowNoStatus: a version's golden depends on its header alone.
func TestGoldensKnowNoStatus(t *testing.T) {
	p := loaded(t)
	before := p.goldens()
	p.registry = &registry.Registry{}
	assert.Equal(t, before, p.goldens())
	for name, text := range before {
		assert.NotContains(t, string(text), "InternalSlot", name)
	}
}

// TestHeadersMatchTheirModels is the first step of --check for each version, so that a failure names the version.
func TestHeadersMatchTheirModels(t *testing.T) {
	p := loaded(t)
	for i, v := range p.Versions {
		t.Run(v.NVML, func(t *testing.T) {
			t.Parallel()
			h, err := parse(v)
			require.NoError(t, err)
			want, err := h.JSON()
			require.NoError(t, err)
			have, err := p.Headers[i].JSON()
			require.NoError(t, err)
			assert.True(t, bytes.Equal(want, have), "run go run ./generator --update")
		})
	}
	h, err := parseSlots()
	require.NoError(t, err)
	assert.Equal(t, h, p.Slots, "run go run ./generator --update")
}

func TestStaleFilesAreNamed(t *testing.T) {
	p := loaded(t)
	scratch := t.TempDir()
	for _, dir := range []string{binding.ModelDir, goldenDir, outDir, handDir} {
		require.NoError(t, os.CopyFS(filepath.Join(scratch, dir), os.DirFS(p.path(dir))))
	}
	p.root = scratch
	require.NoError(t, os.WriteFile(p.path(outDir, "front/front.c"), []byte("int x;\n"), 0o644))
	require.NoError(t, os.WriteFile(p.path(outDir, "front/left.c"), nil, 0o644))
	require.NoError(t, os.Remove(p.path(goldenDir, "11.0.golden")))
	err := p.check()
	for _, want := range []string{"generated/front/front.c", "generated/front/left.c (not generated)", "generator/testdata/11.0.golden"} {
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, p.generate())
	assert.NoFileExists(t, p.path(outDir, "front/left.c"))
}

// TestNewSlots: a slot that the model lacks is not passed over.
func TestNewSlots(t *testing.T) {
	known := &model.Header{Functions: []*model.Function{{Name: "nvmlInternalSlot1"}}}
	assert.NoError(t, newSlots(known, []byte("nvmlReturn_t nvmlInternalSlot1(int *x);\n")))
	assert.ErrorContains(t, newSlots(known, []byte("nvmlReturn_t nvmlInternalSlot12(int *x);\n")),
		"declares nvmlInternalSlot12, which is not in its model yet: run go run ./generator --update")
}

// TestSharedStructsAreInTheHash: a front and a core with other structs between them refuse each other.
func TestSharedStructsAreInTheHash(t *testing.T) {
	p := loaded(t)
	require.Contains(t, string(p.shared), "struct nvmlfab_watch")
	as := binding.Hash(p.symbols, p.shared)
	assert.NotEqual(t, as, binding.Hash(p.symbols, bytes.Replace(p.shared, []byte("uint64_t start"), []byte("uint32_t start"), 1)))
}
