// Package tests checks the delivered library with programs that load it as they would load NVIDIA's.
package tests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nvmlfab/nvmlfab/tests/debian"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// root is the top of the tree, and library is the folder of the library under test.
var root, library string

func TestMain(m *testing.M) {
	var err error
	if root, err = filepath.Abs(".."); err == nil {
		library = filepath.Join(root, "dist", "lib")
		build := exec.Command("make", "--no-print-directory", "-C", root, "lib")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "make lib:", err)
		os.Exit(1)
	}
	status := m.Run()
	removeBundle()
	removeRelease()
	os.RemoveAll(pathShimFolder)
	os.Exit(status)
}

// libraryOf builds the library of another NVML version and returns its folder. A whole version has three parts.
func libraryOf(t *testing.T, version string) string {
	t.Helper()
	run(t, nil, "make", "--no-print-directory", "-C", root, "lib", "NVML="+version).succeeds(t)
	found, err := filepath.Glob(filepath.Join(root, "dist", "nvml", version+"*"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	return found[0]
}

// header returns the path of the nvml.h of a version; the empty one is the newest.
func header(t *testing.T, version string) string {
	t.Helper()
	args := []string{"run", "./generator", "--header"}
	if version != "" {
		args = append(args, "--nvml", version)
	}
	return strings.TrimSpace(run(t, nil, "go", args...).succeeds(t).stdout)
}

// compile builds testdata/NAME.c against the newest header and the front, and returns the program's path.
func compile(t *testing.T, name string, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	args := []string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I", filepath.Dir(header(t, "")), "-o", program,
		filepath.Join(root, "tests", "testdata", name+".c")}
	run(t, nil, "gcc", append(args, flags...)...).succeeds(t)
	return program
}

// linked are the flags of a program that links the library instead of loading it.
func linked() []string { return []string{"-L", library, "-lnvidia-ml"} }

// fetched returns the path of a file in a Debian package, or skips the test if the package cannot be fetched.
func fetched(t *testing.T, name, base string) string {
	t.Helper()
	path, err := debian.File(name, base)
	if err != nil {
		skip(t, err.Error())
	}
	return path
}

// skip ends the test without a result. In CI it fails the test, since a machine without network must not pass.
func skip(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal("CI=true, and this would be skipped: " + reason)
	}
	t.Skip("skipped: " + reason)
}

// outcome is the output of a program and its exit status.
type outcome struct {
	command        string
	stdout, stderr string
	code           int
}

// run executes a program at the top of the tree. The environment has the given variables and no others of nvmlfab's.
// The time limit only ends programs that hang.
func run(t *testing.T, env []string, name string, args ...string) outcome {
	t.Helper()
	return runIn(t, root, env, name, args...)
}

func runIn(t *testing.T, dir string, env []string, name string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(append(environ(), "NVMLFAB_STATE_DIR="+stateDir(t)), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	require.NoError(t, ctx.Err(), "%s hangs; so far it printed\n%s%s", cmd, &stdout, &stderr)
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return outcome{cmd.String(), stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// stateDir is a state directory for programs of any user that only read: the test fails if it is not empty at the end, apart from
// the folders that nvmlfab run makes for capabilities.
func stateDir(t *testing.T) string {
	t.Helper()
	dir := sharedFolder(t)
	t.Cleanup(func() {
		left := slices.DeleteFunc(leftIn(t, dir), func(name string) bool { return name == "caps" })
		assert.Empty(t, left, "left in the state directory")
	})
	return dir
}

// leftIn lists the content of a folder.
func leftIn(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// environ is this process's environment without the variables of nvmlfab and of a make around the test.
func environ() []string {
	var env []string
	for _, v := range os.Environ() {
		switch name, _, _ := strings.Cut(v, "="); {
		case strings.HasPrefix(name, "NVMLFAB_"), strings.HasPrefix(name, "MOCK_"), name == "LD_LIBRARY_PATH":
		case name == "MAKEFLAGS", name == "MAKELEVEL", name == "MFLAGS", name == "MAKEOVERRIDES", name == "NVML":
		default:
			env = append(env, v)
		}
	}
	return env
}

// succeeds fails the test unless the program ended with 0.
func (o outcome) succeeds(t *testing.T) outcome {
	t.Helper()
	require.Zero(t, o.code, "%s\n%s%s", o.command, o.stdout, o.stderr)
	return o
}

// complains fails the test unless standard error has exactly one line and that line is nvmlfab's. It returns the line.
func (o outcome) complains(t *testing.T) string {
	t.Helper()
	require.Equal(t, 1, strings.Count(o.stderr, "\n"), "want one line on stderr, got %q", o.stderr)
	require.Regexp(t, `^nvmlfab: .+\n$`, o.stderr)
	return strings.TrimSuffix(o.stderr, "\n")
}

// lines are the lines of standard output.
func (o outcome) lines() []string { return strings.Split(strings.TrimSuffix(o.stdout, "\n"), "\n") }

// with is the environment of a program that loads the library in dir, with further variables.
func with(dir string, env ...string) []string {
	return append([]string{"LD_LIBRARY_PATH=" + dir}, env...)
}

// writeProgram writes a file that the test runs afterwards. No other test starts a process in the meantime: such a process
// would inherit the descriptor that the file is written through, and the kernel runs no file that somebody may still write
// (ETXTBSY).
func writeProgram(t *testing.T, path string, content []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, content, 0o755)
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)
}
