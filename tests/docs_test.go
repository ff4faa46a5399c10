package tests

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDocs types every example of the pages about changing nodes, one after the other in one shell, and compares what is
// printed. In a page, … stands for any text within a line, and a line of … alone for any number of lines.
func TestDocs(t *testing.T) {
	for _, page := range []string{"../README.md", "runtime-control.md", "scenarios.md", "mig.md", "infiniband.md", "trace.md"} {
		t.Run(filepath.Base(page), func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(root, "docs", page))
			require.NoError(t, err)
			text = bytes.ReplaceAll(text, []byte("127.0.0.1:7471"), []byte(freeAddress(t))) // others may use that port here
			dir := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(dir, "dist"), 0o755))
			require.NoError(t, os.Symlink(filepath.Dir(launcher(t)), filepath.Join(dir, "dist", "bin")))
			require.NoError(t, os.Symlink(library, filepath.Join(dir, "dist", "lib")))

			examples := examplesOf(t, dir, string(text))
			require.NotEmpty(t, examples)
			var script strings.Builder
			for i, e := range examples {
				fmt.Fprintf(&script, "%s\necho; echo %s\n", e.command, mark(i))
			}
			smi := fetched(t, "nvidia-smi-550", "nvidia-smi")
			env := ibTools(t)
			for i, v := range env {
				if path, ok := strings.CutPrefix(v, "PATH="); ok {
					env[i] = "PATH=" + filepath.Dir(smi) + ":" + path
				}
			}
			out := runIn(t, dir, append(env, "TMPDIR="+dir),
				"bash", "-c", "exec 2>&1\n"+script.String())
			rest := out.stdout
			for i, e := range examples {
				printed, after, ok := strings.Cut(rest, "\n"+mark(i)+"\n")
				require.True(t, ok, "%s\n%s", e.command, rest)
				assert.Regexp(t, e.pattern(), printed, e.command)
				rest = after
			}
		})
	}
}

func mark(i int) string { return fmt.Sprintf("[the end of example %d]", i) }

// example is a command and the lines that it prints.
type example struct {
	command string
	lines   []string
}

// examplesOf are the examples in a page's console blocks. Blocks that begin with a file's name are written to that file.
func examplesOf(t *testing.T, dir, page string) (list []example) {
	for _, block := range regexp.MustCompile("(?ms)^```(console|yaml)\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		if block[1] == "yaml" {
			name := regexp.MustCompile(`^# ([a-z]+\.yaml)\n`).FindStringSubmatch(block[2])
			require.NotNil(t, name, "the first line names the file: %s", block[2])
			require.NoError(t, os.WriteFile(filepath.Join(dir, name[1]), []byte(block[2]), 0o644))
			continue
		}
		for line := range strings.Lines(block[2]) {
			line = strings.TrimSuffix(line, "\n")
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				list = append(list, example{command: command})
			} else {
				require.NotEmpty(t, list, "a block begins with a command: %s", line)
				list[len(list)-1].lines = append(list[len(list)-1].lines, line)
			}
		}
	}
	return list
}

// pattern matches what the command prints.
func (e example) pattern() string {
	p := `\A`
	for _, line := range e.lines {
		if line == "…" {
			p += `(?s:.*)`
			continue
		}
		p += strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + ` *\n`
	}
	return p + `\z`
}
