package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tree is a folder laid out like a build or a release: the command in bin, empty libraries in lib, and a folder for
// each NVML version in nvml.
var tree string

// TestMain runs the command itself if the test binary is called by the command's name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "nvmlfab" {
		main()
		os.Exit(0)
	}
	os.Exit(test(m))
}

func test(m *testing.M) int {
	self, err := os.Executable()
	if err == nil {
		tree, err = os.MkdirTemp(filepath.Dir(self), "tree") // a hard link needs the same file system as the binary
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(tree)
	err = errors.Join(
		os.Mkdir(filepath.Join(tree, "bin"), 0o755),
		os.Mkdir(filepath.Join(tree, "lib"), 0o755),
		os.Mkdir(filepath.Join(tree, "nvml"), 0o755),
		os.Link(self, filepath.Join(tree, "bin", "nvmlfab")),
		os.WriteFile(filepath.Join(tree, "lib", "libnvidia-ml.so.1"), nil, 0o644),
		os.WriteFile(filepath.Join(tree, "lib", "libnvmlfab-core.so.1"), nil, 0o644),
	)
	for _, v := range abi.Versions {
		err = errors.Join(err, os.Symlink("../lib", filepath.Join(tree, "nvml", v.NVML)))
	}
	if err == nil && os.Geteuid() != 0 { // for other users run needs a helper
		err = exec.Command("gcc", "-o", filepath.Join(tree, "lib", "nvmlfab-enter"), filepath.Join("..", "enter", "enter.c")).Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// outcome is the output of the command and its exit status.
type outcome struct {
	stdout, stderr string
	status         int
}

// nvmlfab runs the command in a folder of the test's own.
func nvmlfab(t *testing.T, args ...string) outcome {
	t.Helper()
	return start(t, exec.Command(filepath.Join(tree, "bin", "nvmlfab"), args...))
}

// start runs a prepared command. Its environment is what the test gives it, and PATH.
func start(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	if cmd.Dir == "" {
		cmd.Dir = t.TempDir()
	}
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, cmd.Env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// fails requires an exit status, and one line from nvmlfab that contains text.
func (o outcome) fails(t *testing.T, status int, text string) {
	t.Helper()
	assert.Equal(t, status, o.status)
	assert.Empty(t, o.stdout)
	assert.Equal(t, 1, strings.Count(o.stderr, "\n"), "want one line, got %q", o.stderr)
	assert.Regexp(t, `^nvmlfab: .+\n$`, o.stderr)
	assert.Contains(t, o.stderr, text)
}

// write puts a file into a folder and returns its path.
func write(t *testing.T, dir, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(text), mode))
	return path
}

func TestUsage(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		text string
	}{
		"no command":              {nil, `expected one of "version", "profiles", "run", "status"`},
		"unknown command":         {[]string{"rnu"}, `unexpected argument rnu`},
		"unknown flag":            {[]string{"--bogus"}, `unknown flag --bogus`},
		"unknown flag of run":     {[]string{"run", "--bogus", "--", "true"}, `unknown flag --bogus`},
		"argument with a newline": {[]string{"a\nb"}, `unexpected argument a; b`},
		"no subcommand":           {[]string{"profiles"}, `expected one of "list", "show", "validate", "import", "schema"`},
		"superfluous argument":    {[]string{"version", "1"}, `unexpected argument 1`},
		"no profile to show":      {[]string{"profiles", "show"}, `expected "<name>"`},
		"no file to validate":     {[]string{"profiles", "validate"}, `expected "<file> ..."`},
		"nothing to run":          {[]string{"run"}, "there is no program to run: name one after the flags, as in nvmlfab run -- nvidia-smi -L"},
		"nothing after --":        {[]string{"run", "--profile", "h100", "--"}, "there is no program to run: name one after the flags, as in nvmlfab run -- nvidia-smi -L"},
		"no value":                {[]string{"run", "--profile"}, `--profile`},
		"-- for a value":          {[]string{"run", "--profile", "--", "true"}, `--profile`},
	} {
		t.Run(name, func(t *testing.T) { nvmlfab(t, test.args...).fails(t, 2, test.text) })
	}
}

// TestHelp: the help of every command is there and shows an example.
func TestHelp(t *testing.T) {
	top := nvmlfab(t, "--help")
	for _, command := range []string{"", "version", "profiles list", "profiles show", "profiles validate", "profiles schema", "run",
		"status", "set", "unset", "fail", "heal", "reset",
		"events send", "events tail", "process add", "process remove", "process list", "play", "mig list", "mig create", "mig destroy", "mig apply", "completion", "stage", "unstage", "cdi", "fakegpu"} {
		t.Run(command, func(t *testing.T) {
			for _, word := range strings.Fields(command) {
				assert.Contains(t, top.stdout, word)
			}
			out := nvmlfab(t, append(strings.Fields(command), "--help")...)
			assert.Zero(t, out.status)
			assert.Empty(t, out.stderr)
			_, examples, ok := strings.Cut(out.stdout, "Example")
			assert.True(t, ok, "%s", out.stdout)
			assert.Contains(t, examples, strings.TrimSpace("nvmlfab "+command))
			assert.Equal(t, out, nvmlfab(t, append([]string{"help"}, strings.Fields(command)...)...))
		})
	}
	assert.Equal(t, nvmlfab(t, "version"), nvmlfab(t, "--version"))
}
