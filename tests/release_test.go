package tests

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRelease builds the tarball twice: in the tree, and in a clean clone at a path of another name and depth, with
// another umask. Both must have the same bytes. Then it unpacks the tarball in an empty folder and runs nvidia-smi with
// it.
func TestRelease(t *testing.T) {
	const name = "nvmlfab-0.0.0-test-linux-amd64"
	build := func(tree, umask string) string {
		runIn(t, tree, nil, "bash", "-c", "umask "+umask+"; exec make --no-print-directory release VERSION=0.0.0-test").succeeds(t)
		return filepath.Join(tree, "dist", name+".tar.gz")
	}
	copied := filepath.Join(t.TempDir(), "another", "folder")
	require.NoError(t, os.MkdirAll(copied, 0o755))
	run(t, nil, "bash", "-c", `set -o pipefail; git ls-files -z -co --exclude-standard |
		tar --null --ignore-failed-read -T - -cf - | tar -xf - -C "$1"`, "bash", copied).succeeds(t)
	tarball, other := build(root, "022"), build(copied, "077")
	t.Cleanup(func() { os.Remove(tarball) })
	if first, second := sums(t, tarball), sums(t, other); !assert.Equal(t, first, second, "two builds differ") {
		return
	}
	first, err := os.ReadFile(tarball)
	require.NoError(t, err)
	second, err := os.ReadFile(other)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(first, second), "two tarballs of the same files differ")

	dir := t.TempDir()
	runIn(t, dir, nil, "tar", "xzf", tarball).succeeds(t)
	bundle := filepath.Join(dir, name)
	runIn(t, bundle, nil, "sha256sum", "-c", "--quiet", "SHA256SUMS").succeeds(t)

	text, err := os.ReadFile(filepath.Join(bundle, "manifest.json"))
	require.NoError(t, err)
	var manifest struct {
		Nvmlfab  string
		Coverage struct {
			Versions []struct{ Symbols, Implemented, Stubs int }
		}
	}
	require.NoError(t, json.Unmarshal(text, &manifest))
	assert.Equal(t, "0.0.0-test", manifest.Nvmlfab)
	require.Len(t, manifest.Coverage.Versions, 19)
	assert.Equal(t, 431, manifest.Coverage.Versions[18].Symbols)

	alone := func(name string, args ...string) outcome {
		return runIn(t, bundle, nil, "env", append([]string{"-i", "PATH=/usr/bin:/bin", name}, args...)...)
	}
	assert.True(t, strings.HasPrefix(alone("bin/nvmlfab", "version").succeeds(t).stdout, "nvmlfab 0.0.0-test\n"))
	assert.Contains(t, alone("bin/nvmlfab", "profiles", "validate", "profiles/h100.yaml").succeeds(t).stdout, "ok, 8 GPUs")

	checkHeaders(t, filepath.Join(bundle, "include"), filepath.Join(bundle, "lib"))
	for _, name := range []string{"fakegpu.md", "vgpuctl.md", "nvenc-filter.md"} {
		assert.FileExists(t, filepath.Join(bundle, "docs", name))
	}

	smi, err := os.ReadFile(fetched(t, "nvidia-smi-550", "nvidia-smi"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(bundle, "nvidia-smi"), smi, 0o755))
	direct := alone("LD_LIBRARY_PATH=lib", "./nvidia-smi", "-L").succeeds(t)
	assert.Len(t, direct.lines(), 8)
	assert.Empty(t, direct.stderr)
	assert.Equal(t, direct.stdout, alone("bin/nvmlfab", "run", "--", "./nvidia-smi", "-L").succeeds(t).stdout)
}

// sums lists the content of a tarball: mode, owner, time and name of each entry, and the file of hashes.
func sums(t *testing.T, tarball string) string {
	t.Helper()
	list := run(t, nil, "tar", "tzvf", tarball).succeeds(t).stdout
	hashes := run(t, nil, "tar", "xzOf", tarball, "--wildcards", "*/SHA256SUMS").succeeds(t).stdout
	require.Contains(t, hashes, "libnvmlfab-core")
	return list + hashes
}

// checkHeaders compiles a program in C with the installed headers, as C and as C++, and runs it against the filter in
// lib unless that is "".
func checkHeaders(t *testing.T, include, lib string) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	for source, compiler := range map[string][]string{
		"program.c":   {"gcc", "-std=c11"},
		"program.cpp": {"gcc", "-x", "c++", "-fsyntax-only"},
	} {
		if source == "program.cpp" && exec.Command("gcc", "-x", "c++", "-fsyntax-only", "/dev/null").Run() != nil {
			continue // there is no compiler of C++
		}
		path := filepath.Join(dir, source)
		require.NoError(t, os.WriteFile(path, []byte(`#include <nvmlfab/fakegpu.h>
#include <nvmlfab/nvgpufilter.h>
#include <nvmlfab/vgpuctl.h>
#include <stdio.h>

int main(void)
{
	struct vgpu_cgroup_policy_query query = { 0, VGPU_MINOR_ANY, 0, { 0, 0, 0, 0, 0 } };
	unsigned long requests[] = { FAKEGPU_INFO, FAKEGPU_ALLOC, FAKEGPU_FREE, FAKEGPU_SUBMIT, FAKEGPU_WAIT, VGPU_IOCTL_GET_CGROUP_POLICY };

	printf("%lx %u\n", requests[5], query.minor);
#ifdef LINKED
	return nvgpufilter_install();
#else
	return requests[0] != FAKEGPU_IOCTL_INFO;
#endif
}
`), 0o644))
		args := append(compiler[1:], "-Wall", "-Wextra", "-Werror", "-I", include, path)
		if source == "program.c" {
			args = append(args, "-o", program)
			if lib != "" {
				args = append(args, "-DLINKED", filepath.Join(lib, "libnvgpufilter.so"), "-Wl,-rpath,"+lib)
			}
		}
		run(t, nil, compiler[0], args...).succeeds(t)
	}
	assert.Equal(t, "c030764d 4294967295\n", run(t, nil, program).succeeds(t).stdout)
}

// TestInstallHeaders: the headers for programs in C go where PREFIX says, with their documents, and are complete.
func TestInstallHeaders(t *testing.T) {
	dir := t.TempDir()
	out := run(t, nil, "make", "--no-print-directory", "install-headers", "DESTDIR="+dir, "PREFIX=/opt/x").succeeds(t).stdout
	for _, name := range []string{"fakegpu.h", "vgpuctl.h", "nvgpufilter.h"} {
		assert.Contains(t, out, filepath.Join(dir, "opt/x/include/nvmlfab", name))
	}
	for _, name := range []string{"fakegpu.md", "vgpuctl.md", "nvenc-filter.md"} {
		assert.FileExists(t, filepath.Join(dir, "opt/x/share/doc/nvmlfab", name))
	}
	checkHeaders(t, filepath.Join(dir, "opt/x/include"), "")
}
