package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKernelModulesStayOut: only the targets load and reload put a module into this machine's kernel. No other file can
// do it, apart from the code that runs inside the virtual machine.
func TestKernelModulesStayOut(t *testing.T) {
	inserting := regexp.MustCompile(`\b(insmod|modprobe|FinitModule|InitModule|finit_module|init_module)\b`)
	insertingGo := regexp.MustCompile(`\b(FinitModule|InitModule|SYS_FINIT_MODULE|SYS_INIT_MODULE)\b|"(insmod|modprobe)"`)
	files := strings.Fields(run(t, nil, "git", "ls-files", "-co", "--exclude-standard").succeeds(t).stdout)
	require.NotEmpty(t, files)
	for _, file := range files {
		switch {
		case filepath.Ext(file) == ".md", file == "tests/kernel_make_test.go":
			continue
		case file == "tests/kernel_build_test.go", file == "tests/kernel_docs_test.go": // they put programs of these names in front of PATH
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil || !inserting.Match(text) || filepath.Ext(file) == ".go" && !insertingGo.Match(text) {
			continue
		}
		switch {
		case file == "kernel/Makefile":
			rule := ""
			for line := range strings.Lines(string(text)) {
				if m := regexp.MustCompile(`^([\w$().-]+)\s*(:|=)`).FindStringSubmatch(line); m != nil {
					rule = m[1]
				}
				if line[0] != '#' && inserting.MatchString(line) {
					require.Equal(t, "insert", rule, line)
				}
				if strings.Contains(line, "$(insert)") {
					require.Contains(t, []string{"load", "reload"}, rule, line)
				}
			}
		case strings.HasPrefix(file, "kernel/vm/") && strings.HasSuffix(file, "_test.go"):
			require.True(t, strings.HasPrefix(string(text), "//go:build guest\n"), "%s is not for the virtual machine alone", file)
		case strings.HasPrefix(file, "kernel/") && strings.HasSuffix(file, ".c"): // a message, or module_init
		default:
			require.Fail(t, file+" inserts modules")
		}
	}
}

// Without root, load and reload print what they would do and do nothing.
func TestKernelLoadRefusesWithoutRoot(t *testing.T) {
	for _, target := range []string{"load", "reload", "unload"} {
		cmd := exec.Command("make", "-C", filepath.Join(root, "kernel"), target, "DRY_RUN=0", "ALLOW_ENFORCE=1")
		cmd.Env = environ()
		// The user namespace maps this user to an ordinary one, so that make does not run as root.
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getgid(), Size: 1}}}
		out, err := cmd.CombinedOutput()
		require.Error(t, err, "%s", out)
		require.Contains(t, string(out), "make "+target+": ")
		require.Contains(t, string(out), "this needs root; nothing was done")
		if target != "unload" {
			require.Contains(t, string(out), "vgpu")
			require.Contains(t, strings.ReplaceAll(string(out), "\n", " "), "dry_run=0 allow_enforce=1 memory_trace=1")
		}
	}
}
