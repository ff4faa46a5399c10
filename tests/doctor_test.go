package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// finding is a line of nvmlfab doctor.
type finding struct {
	About, What, Mend string
	Right             bool
}

// doctor returns what nvmlfab doctor finds wrong. The status says whether there is anything; the text for
// people says the same, which is looked at outside of subtests.
func doctor(t *testing.T, env []string, prefix []string, args ...string) (wrong []finding, all []finding) {
	t.Helper()
	env = append([]string{"NVMLFAB_STATE_DIR="}, env...) // none, unless the test names one
	command := append(prefix[:len(prefix):len(prefix)], launcher(t), "doctor")
	out := run(t, env, command[0], append(append(command[1:len(command):len(command)], "--json"), args...)...)
	assert.Empty(t, out.stderr)
	var report struct {
		Wrong    int
		Findings []finding
	}
	require.NoError(t, json.Unmarshal([]byte(out.stdout), &report), out.stdout)
	for _, f := range report.Findings {
		if !f.Right {
			assert.NotEmpty(t, f.Mend, f.What)
			wrong = append(wrong, f)
		}
	}
	assert.Len(t, wrong, report.Wrong)
	assert.Equal(t, len(wrong) > 0, out.code == 1)
	if strings.Contains(t.Name(), "/") {
		return wrong, report.Findings
	}
	text := run(t, env, command[0], append(command[1:len(command):len(command)], args...)...)
	assert.Equal(t, out.code, text.code)
	for _, f := range report.Findings {
		mark := map[bool]string{true: "ok   ", false: "WRONG"}[f.Right]
		assert.Contains(t, text.stdout, mark+"  "+f.About+": "+f.What+"\n")
	}
	return wrong, report.Findings
}

// TestDoctor breaks one thing after the other, and the doctor names each.
func TestDoctor(t *testing.T) {
	t.Parallel()
	wrong, all := doctor(t, nil, nil)
	assert.Empty(t, wrong)
	var about []string
	for _, f := range all {
		about = append(about, f.About)
	}
	assert.Equal(t, []string{"profile", "state directory", "libraries", "C library", "namespaces", "NVML"}, about)

	dir := sharedFolder(t)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		writeProgram(t, path, []byte(text))
		return path
	}
	object := func(name string, flags ...string) string {
		source, path := write(name+".c", "int main(void) { return 0; }\n"), filepath.Join(dir, name)
		run(t, nil, "gcc", append([]string{"-o", path, source}, flags...)...).succeeds(t)
		return path
	}
	program := object("program")
	otherMachine := filepath.Join(dir, "arm64")
	run(t, nil, "aarch64-linux-gnu-gcc", "-o", otherMachine, filepath.Join(dir, "program.c")).succeeds(t)
	nvidia := filepath.Dir(fetched(t, "libnvidia-ml-550", "libnvidia-ml.so.1"))
	ours := libraryOf(t, "13.0.39")
	state := sharedFolder(t)
	run(t, []string{"NVMLFAB_STATE_DIR=" + state, "NVMLFAB_PROFILE=h100"}, launcher(t), "set", "--gpu", "0", "power.enforced_limit_mw=300000").succeeds(t)
	oldLinker := write("old/ld-linux-x86-64.so.2", "")
	run(t, nil, "gcc", "-shared", "-nostdlib", "-o", filepath.Join(dir, "old", "libc.so.6"), "-Wl,--version-script="+write("old/map", "GLIBC_2.17 { global: *; };\n"), write("old/libc.c", "int nothing;\n"))
	alone := filepath.Join(dir, "alone")
	require.NoError(t, os.MkdirAll(alone, 0o755))
	run(t, nil, "cp", filepath.Join(ours, "libnvidia-ml.so.1"), alone).succeeds(t)
	setuid := object("setuid")
	require.NoError(t, os.Chmod(setuid, 0o755|os.ModeSetuid))

	for name, c := range map[string]struct {
		env, args   []string
		prefix      []string
		about, what string
	}{
		"profile":           {args: []string{"--profile", "nothing"}, about: "profile", what: `"nothing"`},
		"profile file":      {env: []string{"MOCK_NVML_CONFIG=" + write("bad.yaml", "extends: h100\nnonsense: 1\n")}, about: "profile", what: "nonsense"},
		"no state":          {env: []string{"NVMLFAB_STATE_DIR=/nonexistent"}, about: "state directory", what: "is no directory"},
		"relative state":    {env: []string{"NVMLFAB_STATE_DIR=tests"}, about: "state directory", what: "working directory"},
		"other GPUs":        {env: []string{"NVMLFAB_STATE_DIR=" + state, "NVMLFAB_PROFILE=t4"}, about: "state directory", what: "other GPUs"},
		"version":           {args: []string{"--nvml", "99"}, about: "libraries", what: `"99"`},
		"preload":           {env: []string{"LD_PRELOAD=/nonexistent/lib.so"}, about: "environment", what: "/nonexistent/lib.so, which is not there"},
		"shim without root": {env: []string{"LD_PRELOAD=" + filepath.Join(root, "dist/lib/libmockfs.so")}, about: "environment", what: "does nothing without MOCK_PCI_ROOT"},
		"no root":           {env: []string{"MOCK_PCI_ROOT=/nonexistent"}, about: "environment", what: "which is not there"},
		"misspelt":          {env: []string{"NVMLFAB_PROFIL=t4"}, about: "environment", what: "no variable NVMLFAB_PROFIL"},
		"no program":        {args: []string{"--", "/nonexistent"}, about: "program", what: "/nonexistent"},
		"no ELF":            {args: []string{"--", write("text", "hello\n")}, about: "program", what: "is no program"},
		"static":            {args: []string{"--", object("static", "-static")}, about: "program", what: "is linked statically"},
		"Go":                {args: []string{"--", machineProgram(t, "goprog")}, about: "program", what: "is written in Go without cgo"},
		"processor":         {args: []string{"--", otherMachine}, about: "program", what: "AARCH64"},
		"musl":              {args: []string{"--", object("musl", "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1")}, about: "C library", what: "uses musl"},
		"old glibc":         {env: []string{"LD_LIBRARY_PATH=" + ours}, args: []string{"--", object("glibc", "-Wl,--dynamic-linker="+oldLinker)}, about: "C library", what: "libc.so.6 is 2.17"},
		"nothing found":     {args: []string{"--", program}, about: "NVML", what: "would find no libnvidia-ml.so.1"},
		"NVIDIA's alone":    {env: []string{"LD_LIBRARY_PATH=" + nvidia}, args: []string{"--", program}, about: "NVML", what: "which is NVIDIA's, is loaded and not nvmlfab's"},
		"NVIDIA's first":    {env: []string{"LD_LIBRARY_PATH=" + nvidia + ":" + ours}, args: []string{"--", program}, about: "NVML", what: "which is NVIDIA's, is loaded before nvmlfab's"},
		"script":            {env: []string{"LD_LIBRARY_PATH=" + nvidia + ":" + ours}, args: []string{"--", write("script", "#!/usr/bin/env sh\n")}, about: "NVML", what: "is loaded before"},
		"RPATH":             {env: []string{"LD_LIBRARY_PATH=" + ours}, args: []string{"--", object("rpath", "-Wl,--disable-new-dtags,-rpath,"+nvidia)}, about: "NVML", what: "the program's RPATH, which is NVIDIA's"},
		"no core":           {env: []string{"LD_LIBRARY_PATH=" + alone}, args: []string{"--", program}, about: "NVML", what: "no core beside"},
	} {
		t.Run(name, func(t *testing.T) {
			wrong, _ := doctor(t, c.env, c.prefix, c.args...)
			if assert.Len(t, wrong, 1) {
				assert.Equal(t, c.about, wrong[0].About)
				assert.Contains(t, wrong[0].What, c.what)
			}
		})
	}
	for name, args := range map[string][]string{"linked": {object("linked", "-L", ours, "-Wl,--no-as-needed", "-l:libnvidia-ml.so.1")}, "RUNPATH": {object("runpath", "-Wl,--enable-new-dtags,-rpath,"+nvidia)}} {
		wrong, all := doctor(t, []string{"LD_LIBRARY_PATH=" + ours}, nil, append([]string{"--"}, args...)...)
		assert.Empty(t, wrong, name)
		assert.Contains(t, all[len(all)-1].What, "by LD_LIBRARY_PATH, which is nvmlfab's")
	}
	t.Run("setuid", func(t *testing.T) {
		wrong, _ := doctor(t, []string{"LD_LIBRARY_PATH=" + ours}, nobody(t), "--", setuid)
		require.Len(t, wrong, 2)
		assert.Contains(t, wrong[0].What, "is setuid, so the dynamic linker ignores LD_LIBRARY_PATH")
		assert.Contains(t, wrong[1].What, "would find no libnvidia-ml.so.1")
	})
	t.Run("namespaces", func(t *testing.T) {
		namespaces(t)
		wrong, _ := doctor(t, nil, withoutNamespaces(t))
		require.Len(t, wrong, 1)
		assert.Equal(t, "namespaces", wrong[0].About)
		assert.Contains(t, wrong[0].What, "operation not permitted")
	})
	t.Run("in a run", func(t *testing.T) {
		namespaces(t)
		wrong, all := doctor(t, nil, []string{launcher(t), "run", "--name", "doctor", "--profile", "t4", "--"}, "--", program)
		assert.Empty(t, wrong)
		assert.Contains(t, all[len(all)-1].What, "by LD_LIBRARY_PATH, which is nvmlfab's")
	})
}
