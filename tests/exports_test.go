package tests

import (
	"debug/elf"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// undeclared are the symbols that real libraries export and no header declares.
var undeclared = []string{"nvmlInternalGetExportTable", "nvmlGetBlacklistDeviceCount", "nvmlGetBlacklistDeviceInfoByIndex"}

// declared lists the functions of a header. It uses a regular expression, so that the generator's parser is not tested
// against itself.
func declared(t *testing.T, version string) []string {
	t.Helper()
	text, err := os.ReadFile(header(t, version))
	require.NoError(t, err)
	var names []string
	for _, m := range regexp.MustCompile(`\bDECLDIR[ *a-z]*\b(nvml[A-Z]\w*) *\(`).FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// exported lists the symbols that a library defines for others, and checks the kind of each.
func exported(t *testing.T, path string) []string {
	t.Helper()
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	require.NoError(t, err)
	var names []string
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF {
			continue
		}
		names = append(names, s.Name)
		assert.Equal(t, elf.STT_FUNC, elf.ST_TYPE(s.Info), s.Name)
		assert.Equal(t, elf.STB_GLOBAL, elf.ST_BIND(s.Info), s.Name)
		assert.Equal(t, elf.STV_DEFAULT, elf.ST_VISIBILITY(s.Other), s.Name)
		assert.Empty(t, s.Version, s.Name)
	}
	slices.Sort(names)
	return names
}

func TestExports(t *testing.T) {
	names := exported(t, filepath.Join(library, "libnvidia-ml.so.1"))
	want := append(declared(t, ""), undeclared...)
	slices.Sort(want)
	assert.Equal(t, want, names)
	assert.Len(t, names, 431)

	for _, driver := range []string{"470.256.02", "535.261.03", "550.163.01"} {
		t.Run(driver, func(t *testing.T) {
			list, err := os.ReadFile(filepath.Join("testdata", "exports", driver+".txt"))
			require.NoError(t, err)
			var missing []string
			for name := range strings.FieldsSeq(string(list)) {
				if !slices.Contains(names, name) {
					missing = append(missing, name)
				}
			}
			// It is the only symbol that NVIDIA ever removed.
			assert.Subset(t, []string{"nvmlRetry_NvRmControl"}, missing)
		})
	}
}

// TestExportsOfDrivers: the library that run and stage use for a driver has every function of that driver's own
// library.
func TestExportsOfDrivers(t *testing.T) {
	for driver, version := range map[string]string{
		"450.248.02": "11.0", "460.106.00": "11.1", "470.256.02": "11.1", "535.261.03": "12.2.140", "550.163.01": "12.4.127",
	} {
		t.Run(driver, func(t *testing.T) {
			list, err := os.ReadFile(filepath.Join("testdata", "exports", driver+".txt"))
			require.NoError(t, err)
			names := exported(t, filepath.Join(libraryOf(t, version), "libnvidia-ml.so.1"))
			var missing []string
			for name := range strings.FieldsSeq(string(list)) {
				if !slices.Contains(names, name) {
					missing = append(missing, name)
				}
			}
			assert.Subset(t, []string{"nvmlRetry_NvRmControl"}, missing)
		})
	}
}

// TestExportsOfAnOlderVersion: a library of an older NVML has that version's symbols and no later ones.
func TestExportsOfAnOlderVersion(t *testing.T) {
	for version, driver := range map[string]string{"12.4.127": "550.163.01", "11.0": "450.248.02"} {
		t.Run(version, func(t *testing.T) {
			real, err := os.ReadFile(filepath.Join("testdata", "exports", driver+".txt"))
			require.NoError(t, err)
			names := exported(t, filepath.Join(libraryOf(t, version), "libnvidia-ml.so.1"))
			assert.Subset(t, slices.Concat(declared(t, version), undeclared, strings.Fields(string(real))), names)
			assert.Subset(t, names, declared(t, version))
		})
	}
}

func TestLibraryFile(t *testing.T) {
	path := filepath.Join(library, "libnvidia-ml.so.1")
	info, err := os.Lstat(path)
	require.NoError(t, err)
	assert.True(t, info.Mode().IsRegular())
	link, err := os.Readlink(filepath.Join(library, "libnvidia-ml.so"))
	require.NoError(t, err)
	assert.Equal(t, "libnvidia-ml.so.1", link)

	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	needed, err := f.ImportedLibraries()
	require.NoError(t, err)
	assert.Equal(t, []string{"libpthread.so.0", "libdl.so.2", "libc.so.6"}, needed, "glibc alone, with what is in libc.so.6 since 2.34")
	soname, err := f.DynString(elf.DT_SONAME)
	require.NoError(t, err)
	assert.Equal(t, []string{"libnvidia-ml.so.1"}, soname)
	flags, err := f.DynValue(elf.DT_FLAGS_1)
	require.NoError(t, err)
	require.Len(t, flags, 1)
	assert.NotZero(t, elf.DynFlag1(flags[0])&elf.DF_1_NODELETE, "the library could be unloaded")
	relocations, err := f.DynValue(elf.DT_TEXTREL)
	require.NoError(t, err)
	assert.Empty(t, relocations, "text relocations")
}

// TestNoDriverIsRefusedWhatItHas: under a driver, no function that the driver's own library exports answers
// FUNCTION_NOT_FOUND.
func TestNoDriverIsRefusedWhatItHas(t *testing.T) {
	lists, err := filepath.Glob("testdata/exports/*.txt")
	require.NoError(t, err)
	require.Len(t, lists, 8)
	for _, list := range lists {
		major, _, _ := strings.Cut(filepath.Base(list), ".")
		branch, err := strconv.Atoi(major)
		require.NoError(t, err)
		level := abi.Versions[0].Number // as in the engine: a driver older than the oldest header counts as that version
		for _, v := range abi.Versions {
			if v.Driver <= branch {
				level = v.Number
			}
		}
		text, err := os.ReadFile(list)
		require.NoError(t, err)
		names := strings.Fields(string(text))
		for _, s := range abi.Symbols() {
			if slices.Contains(names, s.Name) {
				assert.LessOrEqual(t, s.Since, level, "%s under driver %d", s.Name, branch)
			}
		}
	}
}
