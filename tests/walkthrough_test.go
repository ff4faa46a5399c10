package tests

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scratch copies the tree as git sees it: with untracked files and without ignored ones.
func scratch(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	list := run(t, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").succeeds(t).stdout
	syscall.ForkLock.RLock() // as writeProgram does, since scripts are among the files
	defer syscall.ForkLock.RUnlock()
	for name := range strings.SplitSeq(strings.Trim(list, "\x00"), "\x00") {
		from, err := os.Open(filepath.Join(root, name))
		if os.IsNotExist(err) { // deleted, but not yet committed
			continue
		}
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		info, err := from.Stat()
		require.NoError(t, err)
		to, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY, info.Mode())
		require.NoError(t, err)
		_, err = io.Copy(to, from)
		require.NoError(t, err)
		require.NoError(t, to.Close())
		from.Close()
	}
	return dir
}

// commit commits a scratch copy. The first time it makes the copy a repository.
func commit(t *testing.T, dir string) {
	t.Helper()
	runIn(t, dir, nil, "git", "init", "-q").succeeds(t)
	runIn(t, dir, nil, "git", "add", "-A").succeeds(t)
	runIn(t, dir, nil, "git", "-c", "user.name=nobody", "-c", "user.email=nobody@localhost", "commit", "-q", "-m", "walkthrough").succeeds(t)
}

// changed lists the files of a scratch copy that differ from the commit.
func changed(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	for line := range strings.Lines(runIn(t, dir, nil, "git", "status", "--porcelain", "--untracked-files=all").succeeds(t).stdout) {
		names = append(names, strings.TrimSpace(line[3:]))
	}
	slices.Sort(names)
	return names
}

const walkthroughHead = `package handwritten

import (
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/engine"
)

`

// TestWalkthrough retires a stub as the README describes, and then makes each possible mistake.
func TestWalkthrough(t *testing.T) {
	dir := scratch(t)
	file := filepath.Join(dir, "handwritten", "walkthrough.go")
	write := func(t *testing.T, text string) {
		require.NoError(t, os.WriteFile(file, []byte(walkthroughHead+text), 0o644))
	}
	generator := func(t *testing.T, args ...string) outcome {
		return runIn(t, dir, nil, "go", append([]string{"run", "./generator"}, args...)...)
	}
	const symbol = "nvmlSystemGetConfComputeGpusReadyState"

	t.Run("retire a stub and declare an entry of nvidia-smi's table", func(t *testing.T) {
		commit(t, dir)
		require.Contains(t, generator(t, "--missing").succeeds(t).stdout, symbol)
		write(t, `// SystemGetConfComputeGpusReadyState says that confidential GPUs take work.
func SystemGetConfComputeGpusReadyState(s *engine.Snapshot) (uint32, abi.Return) { return 1, abi.SUCCESS }
`)
		assert.NotZero(t, generator(t, "--check").code, "generated/ is stale now")
		generator(t).succeeds(t)
		generator(t, "--check").succeeds(t)
		assert.NotContains(t, generator(t, "--missing").succeeds(t).stdout, symbol)
		assert.Equal(t, []string{
			"generated/abi/symbols.txt", "generated/dispatch/dispatch.go", "generated/front/front.c", "handwritten/walkthrough.go",
		}, changed(t, dir), "the files that CONTRIBUTING.md names, five at most")

		commit(t, dir)
		slots := filepath.Join(dir, "nvml-headers", "slots.h")
		text, err := os.ReadFile(slots)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(slots, []byte(strings.Replace(string(text), "#pragma GCC visibility pop", `typedef struct {
    unsigned int width;
    unsigned long long area;
} nvmlInternalWalk_t;

nvmlReturn_t nvmlInternalSlot255(nvmlDevice_t device, nvmlInternalWalk_t *walk);

#pragma GCC visibility pop`, 1)), 0o644))
		entry := filepath.Join(dir, "handwritten", "entry.go")
		require.NoError(t, os.WriteFile(entry, []byte(walkthroughHead+`// InternalSlot255 is a square.
func InternalSlot255(dev *engine.Device, walk *abi.InternalWalk_t) abi.Return {
	walk.Width, walk.Area = 3, 9
	return abi.SUCCESS
}
`), 0o644))
		generator(t, "--update").succeeds(t)
		generator(t, "--check").succeeds(t)
		assert.Equal(t, []string{
			"generated/abi/slots.go", "generated/abi/symbols.txt", "generated/dispatch/dispatch.go", "generated/front/shared.c",
			"handwritten/entry.go", "nvml-headers/model/slots.json", "nvml-headers/slots.h",
		}, changed(t, dir), "the files that CONTRIBUTING.md names, seven at most")

		runIn(t, dir, nil, "make", "--no-print-directory", "lib").succeeds(t)
		for name, want := range map[string][2]string{"ready": {"0 1\n", "3 0\n"}, "walk": {"0 3 9\n", "3 0 0\n"}} {
			program := compile(t, name, linked()...)
			assert.Equal(t, want[0], run(t, with(filepath.Join(dir, "dist", "lib")), program).succeeds(t).stdout)
			assert.Equal(t, want[1], run(t, with(library), program).succeeds(t).stdout, "the library without the functions")
		}
	})

	// The line of each mistake, counted with the head.
	for name, mistake := range map[string]struct{ text, line string }{
		"wrong parameter": {"func SystemGetConfComputeGpusReadyState(s *engine.Snapshot, sensor uint32) (uint32, abi.Return) {\n\treturn 0, abi.SUCCESS\n}\n", "8"},
		"wrong result":    {"func SystemGetConfComputeGpusReadyState(s *engine.Snapshot) (string, abi.Return) {\n\treturn \"\", abi.SUCCESS\n}\n", "8"},
		"unknown symbol":  {"func SystemGetConfComputeGpusReadiness(s *engine.Snapshot) (uint32, abi.Return) {\n\treturn 0, abi.SUCCESS\n}\n", "8"},
		"unknown directive": {"//nvml:symbol nvmlSystemGetConfComputeGpusReadiness\nfunc SystemGetConfComputeGpusReadyState(s *engine.Snapshot) (uint32, abi.Return) {\n" +
			"\treturn 0, abi.SUCCESS\n}\n", "8"},
		"duplicate": {"func SystemGetConfComputeGpusReadyState(s *engine.Snapshot) (uint32, abi.Return) { return 0, abi.SUCCESS }\n\n" +
			"//nvml:symbol nvmlSystemGetConfComputeGpusReadyState\nfunc Ready(s *engine.Snapshot) (uint32, abi.Return) { return 0, abi.SUCCESS }\n", "1[01]"},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, mistake.text)
			out := generator(t)
			assert.NotZero(t, out.code)
			assert.Regexp(t, `(?m)^handwritten/walkthrough\.go:`+mistake.line+`:`, out.stderr)
			assert.Contains(t, out.stderr, "GetConfComputeGpusRead")
		})
	}
}
