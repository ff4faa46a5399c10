package main

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// goroot is that of the go command that runs the test.
func goroot(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// release puts a go command into PATH that reports version and whose root has copies of the runtime's files, each
// changed by edit.
func release(t *testing.T, version string, edit func(name, text string) string) {
	t.Helper()
	root := t.TempDir()
	from, to := filepath.Join(goroot(t), "src"), filepath.Join(root, "src")
	for name := range releases["go1.26"] {
		text, err := os.ReadFile(filepath.Join(from, name))
		require.NoError(t, err)
		text = []byte(edit(name, string(text)))
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(to, name), text, 0o644))
	}
	script := fmt.Sprintf("#!/bin/sh\n[ \"$*\" = 'env GOVERSION GOROOT' ] || exit 1\necho %s\necho %s\n", version, root)
	require.NoError(t, os.WriteFile(filepath.Join(root, "go"), []byte(script), 0o755))
	t.Setenv("PATH", root+":"+os.Getenv("PATH"))
}

func same(_, text string) string { return text }

// respelled is the table of signals with other spacing: the expression in flags then matches only 21 of its 65 lines.
func respelled(name, text string) string {
	if name != noSignals.file {
		return text
	}
	return regexp.MustCompile(`(?m)^\t/\* (\d\d) \*/ `).ReplaceAllStringFunc(text, func(line string) string {
		if line < "\t/* 21" {
			return line
		}
		return strings.NewReplacer("/* ", "/*", " */", "*/").Replace(line)
	})
}

// files returns the changed files by name.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "overlay.json"))
	require.NoError(t, err)
	var overlay struct{ Replace map[string]string }
	require.NoError(t, json.Unmarshal(text, &overlay))
	files := map[string]string{}
	for from, to := range overlay.Replace {
		changed, err := os.ReadFile(to)
		require.NoError(t, err)
		original, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NotEqual(t, string(original), string(changed), from)
		_, err = parser.ParseFile(token.NewFileSet(), to, changed, 0)
		require.NoError(t, err)
		files[filepath.Base(from)] = string(changed)
	}
	return files
}

func TestEveryMinorReleaseIsPatched(t *testing.T) {
	for _, version := range []string{"go1.26", "go1.26.0", "go1.26.8", "go1.26.11-custom"} {
		t.Run(version, func(t *testing.T) {
			release(t, version, same)
			for kind, want := range map[string][]string{
				"library": {"sigtab_linux_generic.go", "netpoll_epoll.go", "stack.go", "mheap.go", "cgocall.go", "malloc.go", "rlimit.go", "regexp.go", "exec.go", "parse.go"},
				"exec":    {"sigtab_linux_generic.go", "fds_unix.go"},
			} {
				dir, stderr := t.TempDir(), &strings.Builder{}
				require.NoError(t, run([]string{kind, dir}, false, stderr))
				assert.Empty(t, stderr.String())
				changed := files(t, dir)
				assert.Len(t, changed, len(want))
				for _, name := range want {
					assert.Contains(t, changed, name)
				}
				table := changed["sigtab_linux_generic.go"]
				assert.Equal(t, 65, strings.Count(table, "{0, \""), "signals that the runtime leaves alone")
				assert.NotRegexp(t, `\{_Sig|\+_Sig`, table)
			}
		})
	}
}

// TestExpressionsAreCompiledLate: an expression of MustCompile costs nothing until it is used, and matches as it does
// without the change. One that is wrong panics at its first use, and there are no classes of Unicode.
func TestExpressionsAreCompiledLate(t *testing.T) {
	dir := t.TempDir()
	expressions := slices.DeleteFunc(slices.Clone(changes["library"]), func(c change) bool { return !strings.HasPrefix(c.file, "regexp/") })
	replace, err := patch(expressions, wanted, goroot(t), dir) // alone, since to compile the runtime again takes long
	require.NoError(t, err)
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644))
	program := filepath.Join(dir, "late.go")
	require.NoError(t, os.WriteFile(program, []byte(`package main

import (
	"fmt"
	"regexp"
	"sync"
)

var number, wrong = regexp.MustCompile("^[0-9]+(\\.[0-9]*)?$"), regexp.MustCompile("(")

func main() {
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 1000 {
				if !number.MatchString("12.5") || number.MatchString("12,5") || number.FindStringIndex("x") != nil {
					panic("matches otherwise")
				}
			}
		})
	}
	wait.Wait()
	_, err := regexp.Compile("[0-9]\\p{Greek}")
	fmt.Println(err)
	defer func() { fmt.Println(recover()) }()
	wrong.MatchString("")
}
`), 0o644))
	out, err := exec.Command("go", "run", "-overlay", filepath.Join(dir, "overlay.json"), program).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Equal(t, "error parsing regexp: invalid character class range: `\\p{Greek}`\nerror parsing regexp: missing closing ): `(`\n", string(out))
}

func TestAnyOtherRuntimeIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		version string
		edit    func(name, text string) string
		reason  string
		kinds   []string
	}{
		"a later release":             {"go1.27.0", same, "the Go runtime of go1.27.0 is not one", []string{"library", "exec"}},
		"a release that begins alike": {"go1.260", same, "the Go runtime of go1.260", []string{"library", "exec"}},
		"a release candidate":         {"go1.26rc1", same, "the Go runtime of go1.26rc1", []string{"library", "exec"}},
		"a development version":       {"devel", same, "the Go runtime of devel", []string{"library", "exec"}},
		"its table of signals written otherwise": {"go1.26.9", respelled,
			"sigtab_linux_generic.go of go1.26.9 is not the file", []string{"library", "exec"}},
		"another poller": {"go1.26.9", func(name, text string) string {
			return text + strings.Repeat("\n", strings.Count(name, "netpoll"))
		}, "netpoll_epoll.go of go1.26.9 is not the file", []string{"library"}},
		"other descriptors": {"go1.26.9", func(name, text string) string {
			return text + strings.Repeat("\n", strings.Count(name, "fds"))
		}, "fds_unix.go of go1.26.9 is not the file", []string{"exec"}},
	} {
		t.Run(name, func(t *testing.T) {
			release(t, c.version, c.edit)
			for _, kind := range c.kinds {
				dir, stderr := t.TempDir(), &strings.Builder{}
				err := run([]string{kind, dir}, false, stderr)
				require.ErrorContains(t, err, c.reason)
				assert.NotContains(t, err.Error(), "\n", "one line")
				assert.ErrorContains(t, err, "GOTOOLCHAIN="+wanted)
				assert.ErrorContains(t, err, "NVMLFAB_UNPATCHED=1")
				assert.Empty(t, stderr.String())
				assert.NoFileExists(t, filepath.Join(dir, "overlay.json"))

				require.NoError(t, run([]string{kind, dir}, true, stderr), "asked for")
				assert.Regexp(t, `^nvmlfab: NVMLFAB_UNPATCHED=1: .*`+regexp.QuoteMeta(c.version)+`.*\n$`, stderr)
				assert.Empty(t, files(t, dir))
			}
		})
	}
}

// TestRespelledTableWouldPass: the change itself succeeds on the respelled table, although it matches only some of its
// lines. So only the hash can refuse it.
func TestRespelledTableWouldPass(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(goroot(t), "src", noSignals.file))
	require.NoError(t, err)
	table := noSignals.edit(respelled(noSignals.file, string(text)))
	assert.Equal(t, 21, strings.Count(table, "{0, \""))
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"library"}, {"program", "DIR"}, {"exec", "DIR", "DIR"}} {
		assert.ErrorContains(t, run(args, false, &strings.Builder{}), "usage: ", args)
	}
}

// TestGoMod: the release that a refusal names is known, and is that of go.mod's toolchain line.
func TestGoMod(t *testing.T) {
	text, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	assert.Contains(t, string(text), "\ntoolchain "+wanted+"\n")
	assert.Contains(t, releases, series.FindString(wanted))
}
