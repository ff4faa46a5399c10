package tests

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The files of the release that the tests build.
const (
	releaseName  = "nvmlfab-0.0.0-test-linux-amd64"
	releaseTar   = releaseName + ".tar.gz"
	releaseImage = releaseName + "-image.tar"
	releaseDeb   = "nvmlfab_0.0.0~test_amd64.deb"
	releaseRPM   = "nvmlfab-0.0.0~test-1.x86_64.rpm"
)

// buildRelease builds the release of a tree for amd64 and returns the folder that it is in.
func buildRelease(tree, umask string, settings ...string) (string, error) {
	command := "umask " + umask + "; exec make --no-print-directory release FOR=amd64 VERSION=0.0.0-test " + strings.Join(settings, " ")
	cmd := exec.Command("bash", "-c", command)
	cmd.Dir, cmd.Env = tree, environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return filepath.Join(tree, "dist"), nil
}

// packed builds the release of this tree once for all tests; removeRelease removes it.
var packed = sync.OnceValues(func() (string, error) { return buildRelease(root, "022") })

func removeRelease() {
	for _, name := range []string{releaseTar, releaseImage, releaseDeb, releaseRPM} {
		os.Remove(filepath.Join(root, "dist", name))
	}
}

// release returns the path of a file of the release of this tree.
func release(t *testing.T, name string) string {
	t.Helper()
	dir, err := packed()
	require.NoError(t, err)
	path := filepath.Join(dir, name)
	require.FileExists(t, path)
	return path
}

// unpacked returns the folder of the release, unpacked for this test.
func unpacked(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	runIn(t, dir, nil, "tar", "xzf", release(t, releaseTar)).succeeds(t)
	return filepath.Join(dir, releaseName)
}

// TestRelease builds the tarball twice: in the tree, and in a clean clone at a path of another name and depth, with
// another umask. Both must have the same bytes. Then it unpacks the tarball in an empty folder and runs nvidia-smi with
// it.
func TestRelease(t *testing.T) {
	copied := filepath.Join(t.TempDir(), "another", "folder")
	require.NoError(t, os.MkdirAll(copied, 0o755))
	run(t, nil, "bash", "-c", `set -o pipefail; git ls-files -z -co --exclude-standard |
		tar --null --ignore-failed-read -T - -cf - | tar -xf - -C "$1"`, "bash", copied).succeeds(t)
	tarball := release(t, releaseTar)
	built, err := buildRelease(copied, "077", "PACKAGES=no")
	require.NoError(t, err)
	other := filepath.Join(built, releaseTar)
	if first, second := sums(t, tarball), sums(t, other); !assert.Equal(t, first, second, "two builds differ") {
		return
	}
	first, err := os.ReadFile(tarball)
	require.NoError(t, err)
	second, err := os.ReadFile(other)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(first, second), "two tarballs of the same files differ")

	bundle := unpacked(t)
	runIn(t, bundle, nil, "sha256sum", "-c", "--quiet", "SHA256SUMS").succeeds(t)

	text, err := os.ReadFile(filepath.Join(bundle, "manifest.json"))
	require.NoError(t, err)
	var manifest struct {
		Nvmlfab  string
		NVML     []string
		Coverage struct {
			Versions []struct{ Symbols, Implemented, Stubs int }
		}
	}
	require.NoError(t, json.Unmarshal(text, &manifest))
	assert.Equal(t, "0.0.0-test", manifest.Nvmlfab)
	require.Len(t, manifest.Coverage.Versions, 19)
	newest := manifest.Coverage.Versions[18]
	assert.Equal(t, 431, newest.Symbols)
	require.Len(t, manifest.NVML, 19)
	for _, version := range manifest.NVML {
		assert.FileExists(t, filepath.Join(bundle, "nvml", version, "libnvidia-ml.so.1"))
		assert.FileExists(t, filepath.Join(bundle, "nvml", version, "libnvmlfab-core.so.1"))
	}

	alone := func(name string, args ...string) outcome {
		return runIn(t, bundle, nil, "env", append([]string{"-i", "PATH=/usr/bin:/bin", name}, args...)...)
	}
	assert.Equal(t, fmt.Sprintf("nvmlfab 0.0.0-test\nNVML 13.4.92: 431 symbols, %d implemented; libraries for 19 versions, from 11.0 on\n", newest.Implemented),
		alone("bin/nvmlfab", "version").succeeds(t).stdout)
	assert.Contains(t, alone("bin/nvmlfab", "profiles", "validate", "profiles/h100.yaml").succeeds(t).stdout, "ok, 8 GPUs")

	checkHeaders(t, filepath.Join(bundle, "include"), filepath.Join(bundle, "lib"))
	for _, name := range []string{"kernel/dkms.conf", "kernel/Kbuild", "kernel/COPYING", "LICENSE", "schema.json", "scenarios/thermal-runaway.yaml",
		"completions/nvmlfab.bash", "completions/_nvmlfab", "completions/nvmlfab.fish", "licenses/go/LICENSE", "licenses/github.com/alecthomas/kong/COPYING"} {
		assert.FileExists(t, filepath.Join(bundle, name))
	}
	groff := fetched(t, "groff", "groff")
	share := filepath.Join(filepath.Dir(groff), "..", "share", "groff", "1.22.4")
	format := []string{"GROFF_BIN_PATH=" + filepath.Dir(groff), "GROFF_FONT_PATH=" + filepath.Join(share, "font"), "GROFF_TMAC_PATH=" + filepath.Join(share, "tmac")}
	for _, page := range []string{"nvmlfab", "nvmlfab-run", "nvmlfab-mig-create", "vgpuctl", "vgpuctl-policy-set", "mock-ib", "nvidia-imex", "nvmlfab-hook"} {
		page := run(t, format, groff, "-man", "-Tutf8", "-ww", "-P-c", "-P-b", "-P-u", filepath.Join(bundle, "man/man1", page+".1")).succeeds(t)
		assert.Empty(t, page.stderr)
		assert.Contains(t, page.stdout, "DESCRIPTION")
	}
	checkLinks(t, bundle)
	checkSBOM(t, bundle)

	smi, err := os.ReadFile(fetched(t, "nvidia-smi-550", "nvidia-smi"))
	require.NoError(t, err)
	writeProgram(t, filepath.Join(bundle, "nvidia-smi"), smi)
	direct := alone("LD_LIBRARY_PATH=lib", "./nvidia-smi", "-L").succeeds(t)
	assert.Len(t, direct.lines(), 8)
	assert.Empty(t, direct.stderr)
	assert.Equal(t, direct.stdout, alone("bin/nvmlfab", "run", "--", "./nvidia-smi", "-L").succeeds(t).stdout)
}

// checkLinks: what the documents of a release link to is in the release.
func checkLinks(t *testing.T, bundle string) {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(bundle, "docs", "*.md"))
	require.NoError(t, err)
	require.Greater(t, len(pages), 15)
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md"} {
		pages = append(pages, filepath.Join(bundle, name))
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`).FindAllStringSubmatch(string(text), -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(page), m[1]))
			assert.NoError(t, err, "%s links to %s", filepath.Base(page), m[1])
		}
	}
}

// checkSBOM: the bill of materials has what SPDX 2.3 demands, names every file with its hash, and every module that go version
// finds in the programs.
func checkSBOM(t *testing.T, bundle string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(bundle, "sbom.spdx.json"))
	require.NoError(t, err)
	type checksum struct{ Algorithm, ChecksumValue string }
	var document struct {
		SPDXVersion, DataLicense, SPDXID, Name, DocumentNamespace string
		CreationInfo                                              struct {
			Created  string
			Creators []string
		}
		Packages []struct{ SPDXID, Name, VersionInfo, DownloadLocation, LicenseDeclared string }
		Files    []struct {
			SPDXID, FileName, LicenseConcluded string
			Checksums                          []checksum
		}
		Relationships []struct{ SPDXElementID, RelationshipType, RelatedSPDXElement string }
	}
	require.NoError(t, json.Unmarshal(text, &document))
	assert.Equal(t, []string{"SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT"}, []string{document.SPDXVersion, document.DataLicense, document.SPDXID})
	assert.NotEmpty(t, document.CreationInfo.Created)
	ids := map[string]bool{document.SPDXID: true}
	modules := map[string]string{}
	for _, p := range document.Packages {
		assert.NotEmpty(t, p.DownloadLocation)
		assert.NotEmpty(t, p.LicenseDeclared)
		assert.False(t, ids[p.SPDXID])
		ids[p.SPDXID], modules[p.Name] = true, p.VersionInfo
	}
	files := map[string]bool{}
	licences := map[string]string{}
	for _, f := range document.Files {
		ids[f.SPDXID], files[f.FileName], licences[f.FileName] = true, true, f.LicenseConcluded
		content, err := os.ReadFile(filepath.Join(bundle, f.FileName))
		require.NoError(t, err)
		assert.Contains(t, f.Checksums, checksum{"SHA256", fmt.Sprintf("%x", sha256.Sum256(content))}, f.FileName)
	}
	for _, r := range document.Relationships {
		assert.True(t, ids[r.SPDXElementID] && ids[r.RelatedSPDXElement], "%v", r)
	}
	require.NoError(t, filepath.WalkDir(bundle, func(path string, d fs.DirEntry, err error) error {
		name := "." + strings.TrimPrefix(path, bundle)
		if err == nil && d.Type().IsRegular() && name != "./sbom.spdx.json" && name != "./SHA256SUMS" {
			assert.True(t, files[name], name)
		}
		return err
	}))
	for name, want := range map[string]string{"include/nvmlfab/COPYING": "GPL-2.0-only", "include/nvmlfab/fakegpu.h": "GPL-2.0-only WITH Linux-syscall-note",
		"include/nvmlfab/nvgpufilter.h": "Apache-2.0", "kernel/COPYING": "GPL-2.0-only", "kernel/Kbuild": "GPL-2.0-only", "LICENSE": "Apache-2.0"} {
		assert.Equal(t, want, licences["./"+name], name)
	}
	list := run(t, nil, "go", "version", "-m", filepath.Join(bundle, "bin")).succeeds(t).stdout
	found := regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)`).FindAllStringSubmatch(list, -1)
	assert.NotEmpty(t, found)
	for _, m := range found {
		assert.Equal(t, m[2], modules[m[1]], m[1])
	}
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
