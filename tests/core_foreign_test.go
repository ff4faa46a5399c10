package tests

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSignalsForeign runs hosts in which a library is difficult to run. foreign.c says what each does.
func TestSignalsForeign(t *testing.T) {
	program := coreProgram(t, "", "foreign", linked()...)
	for name, host := range map[string]string{
		"sets handlers and limits during nvmlInit":   "settings",
		"has a closed or a full standard error":      "messages",
		"forks in a handler during nvmlInit":         "forking",
		"calls in a handler that interrupted a call": "reentering",
		"has handlers that want a megabyte":          "roomy",
		"calls from a thread of 16 KB":               "narrow",
	} {
		t.Run(name, func(t *testing.T) {
			out := run(t, with(library, "GOGC=1"), program, host).succeeds(t)
			assert.Empty(t, out.stderr)
		})
	}
	t.Run("has few threads left", func(t *testing.T) {
		letIn(t, filepath.Dir(program))
		lib := copyOf(t, library)
		letIn(t, filepath.Dir(lib))
		out := run(t, with(lib, "GOGC=1"), program, "tasks").succeeds(t)
		n := out.figures(t)
		assert.Positive(t, n[0], "refused")
		assert.Positive(t, n[1], "served")
		assert.Equal(t, n[0], strings.Count(out.stderr, "nvmlfab: the core cannot have the threads that it needs: "), "%s", out.stderr)
		assert.Equal(t, n[0], strings.Count(out.stderr, "\n"), "%s", out.stderr)
	})
}

// TestForkForeign: forks that call no fork handlers, and forks in processes that can no longer find the core's file.
func TestForkForeign(t *testing.T) {
	program := coreProgram(t, "", "foreign", linked()...)
	t.Run("_Fork and the bare system call", func(t *testing.T) {
		assert.Empty(t, run(t, with(library, "GOGC=1"), program, "unannounced").succeeds(t).stderr)
	})
	t.Run("after chroot", func(t *testing.T) {
		if os.Getuid() != 0 {
			skip(t, "chroot wants root")
		}
		assert.Empty(t, run(t, with(library), program, "elsewhere", t.TempDir()).succeeds(t).stderr)
	})
	t.Run("after an upgrade", func(t *testing.T) {
		lib := copyOf(t, library)
		out := run(t, with(lib), program, "replaced", filepath.Join(lib, "libnvmlfab-core.so.1")).succeeds(t)
		assert.Empty(t, out.stderr)
	})
}

// TestSignalsPrivileged: a program with another user's privileges ignores all variables, since the caller sets them.
func TestSignalsPrivileged(t *testing.T) {
	if os.Getuid() != 0 {
		skip(t, "a setuid program wants root")
	}
	lib := copyOf(t, library)
	secret := filepath.Join(lib, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("root:$6$very-secret\n"), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(lib, "tree/sys/bus/pci/devices/mark"), 0o755))
	program := coreProgram(t, "", "privileged", "-L", lib, "-lmockfs", "-lnvidia-ml", "-lnvgpufilter", "-Wl,-rpath,"+lib, "-Wl,--no-as-needed")
	letIn(t, filepath.Dir(program))
	letIn(t, lib)
	env := []string{"MOCK_NVML_CONFIG=" + secret, "NVMLFAB_PROFILE=none", "NVMLFAB_CORE=/nowhere", "NVMLFAB_DEBUG=1",
		"MOCK_PCI_ROOT=" + filepath.Join(lib, "tree")}

	out := run(t, env, program, "plain").succeeds(t)
	assert.Contains(t, out.stderr, "nvmlfab: no core at /nowhere")

	require.NoError(t, os.Chmod(program, 0o755|os.ModeSetuid))
	tried := run(t, env, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program, "is-privileged")
	if tried.code == 9 {
		skip(t, "no program can be setuid here: "+lib+" is mounted nosuid")
	}
	out = run(t, env, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program, "privileged").succeeds(t)
	assert.Empty(t, out.stderr)
}

// copyOf copies a folder of libraries into a temporary one.
func copyOf(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	run(t, nil, "cp", "-a", from+"/.", to).succeeds(t)
	return to
}

// openLibrary is a copy of the libraries that every user can reach, also if the tree is in a folder of root's alone.
func openLibrary(t *testing.T) string {
	t.Helper()
	dir := copyOf(t, library)
	letIn(t, dir)
	return dir
}

// letIn lets every user enter a temporary folder.
func letIn(t *testing.T, dir string) {
	t.Helper()
	for ; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		st, err := os.Stat(dir)
		require.NoError(t, err)
		if int(st.Sys().(*syscall.Stat_t).Uid) == os.Getuid() {
			require.NoError(t, os.Chmod(dir, st.Mode().Perm()|0o755))
		}
	}
}
