package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/generator/requirements"
)

// TestImplementedSettersHaveRows: each implemented symbol that changes something has a row in the table of
// requirements.
func TestImplementedSettersHaveRows(t *testing.T) {
	p := loaded(t)
	changes := regexp.MustCompile(`(Set|Reset|Clear|Create|Destroy|Remove)([A-Z]|$)`)
	for _, s := range p.symbols {
		verb, _, _ := strings.Cut(s.Name, "Get")
		if p.input(p.newest().NVML).Implemented(s) && changes.MatchString(verb) {
			assert.NotEmpty(t, p.requires.Of(s).Why, s.Name)
		}
	}
}

// callAll calls every symbol that it is given by name, with zeros for arguments, and prints what each answers.
const callAll = `
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *library = dlopen(argv[1], RTLD_NOW);
	int (*init)(void) = library == NULL ? NULL : dlsym(library, "nvmlInit_v2");
	int ret = init == NULL ? -1 : init();
	if (ret != 0) {
		fprintf(stderr, "nvmlInit_v2: %d: %s\n", ret, dlerror());
		return 1;
	}
	for (int i = 2; i < argc; i++) {
		int (*call)(long, long, long, long, long, long, long, long) = dlsym(library, argv[i]);
		printf("%s %d\n", argv[i], call == NULL ? -1 : call(0, 0, 0, 0, 0, 0, 0, 0));
	}
	return 0;
}
`

// anyCore is a core that has every symbol and answers SUCCESS, so that any refusal comes from the front.
const anyCore = `
#include "front.h"

__attribute__((visibility("default"))) uint32_t nvmlfab_answer(uint32_t index, const uint64_t *a)
{
	if (index == NVMLFAB_HELLO)
		*(uint64_t *)(uintptr_t)a[2] = a[0];
	return index == NVMLFAB_LEVEL ? INT32_MAX : NVML_SUCCESS;
}
`

// TestAdministratorsSymbolsRefuseEverybodyElse calls each symbol of the newest front with NULL for every pointer. All
// symbols are retired. As uid 65534 exactly those whose row says admin answer NO_PERMISSION; as root none does.
func TestAdministratorsSymbolsRefuseEverybodyElse(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	p := allRetired(t)
	header, err := p.newest().Path()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("/tmp", "nvmlfab-admin-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	front := filepath.Join(dir, "front")
	require.NoError(t, p.writeFront(p.newest(), front))
	for name, text := range map[string]string{"call.c": callAll, "core.c": anyCore} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	library := filepath.Join(dir, "libnvidia-ml.so.1")
	gcc := func(args ...string) {
		t.Helper()
		args = append(args, "-std=gnu11", "-Wall", "-O1", "-fPIC", "-I", front, "-I", "../library/front", "-I", "../library/host", "-I", "../nvml-headers", "-I", filepath.Dir(header))
		out, err := exec.Command("gcc", args...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	sources := func(dir string) []string {
		list, err := filepath.Glob(filepath.Join(dir, "*.c"))
		require.NoError(t, err)
		return list
	}
	gcc(slices.Concat(sources(front), sources("../library/front"), sources("../library/host"), []string{"-shared", "-fvisibility=hidden", "-Wl,-z,nodelete", "-o", library})...)
	gcc(filepath.Join(dir, "core.c"), "-shared", "-o", filepath.Join(dir, "libnvmlfab-core.so.1"))
	gcc(filepath.Join(dir, "call.c"), "-o", filepath.Join(dir, "call"))

	args := []string{library}
	for _, s := range p.input(p.newest().NVML).Exported() {
		args = append(args, s.Name)
	}
	answers := func(uid uint32) map[string]int {
		t.Helper()
		cmd := exec.Command(filepath.Join(dir, "call"), args...)
		cmd.Dir = "/"
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		}
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		require.NoError(t, err, stderr.String())
		got := map[string]int{}
		for line := range strings.Lines(string(out)) {
			var name string
			var answer int
			_, err := fmt.Sscan(line, &name, &answer)
			require.NoError(t, err, line)
			got[name] = answer
		}
		require.Len(t, got, len(args)-1)
		return got
	}
	const noPermission = 4
	got := answers(65534)
	refused := 0
	for _, s := range p.input(p.newest().NVML).Exported() {
		admin := p.requires.Of(s).Who == requirements.Admin
		assert.Equal(t, admin, got[s.Name] == noPermission, "%s as nobody answers %d", s.Name, got[s.Name])
		if admin {
			refused++
		}
	}
	assert.Greater(t, refused, 60)
	if os.Geteuid() != 0 {
		t.Log("skipped: root's answers, since this is not root")
		return
	}
	for name, answer := range answers(0) {
		assert.NotEqual(t, noPermission, answer, "%s as root", name)
	}
}
