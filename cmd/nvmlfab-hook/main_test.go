package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// around is a hook in a container of its own, and what it has said.
type around struct {
	hook
	top, bundle string
	out, log    bytes.Buffer
	env         map[string]string
}

func inContainer(t *testing.T) *around {
	t.Helper()
	a := &around{top: t.TempDir(), bundle: t.TempDir(), env: map[string]string{}}
	require.NoError(t, os.WriteFile(filepath.Join(a.bundle, "config.json"), []byte(`{"root": {"path": "`+a.top+`"}}`), 0o644))
	a.stdout, a.stderr = &a.out, &a.log
	a.getenv = func(name string) string { return a.env[name] }
	a.self = func() (string, error) { return filepath.Join(a.bundle, "tree/usr/bin/nvmlfab-hook"), nil }
	return a
}

func (a *around) state() string { return `{"id": "x", "bundle": "` + a.bundle + `"}` }

func (a *around) start(args ...string) error {
	a.out.Reset()
	a.log.Reset()
	a.stdin = strings.NewReader(a.state())
	return a.run(args)
}

// TestCommandLine: what nvidia-cdi-hook accepts is accepted, in all its spellings.
func TestCommandLine(t *testing.T) {
	a := inContainer(t)
	link := func(name string) string {
		target, _ := os.Readlink(filepath.Join(a.top, name))
		return target
	}
	require.NoError(t, a.start("create-symlinks", "--link", "a::/lib/b", "-link=c::/lib/d,e::/lib/f"))
	assert.Equal(t, []string{"a", "c", "e"}, []string{link("lib/b"), link("lib/d"), link("lib/f")})
	assert.Empty(t, a.log.String())
	require.NoError(t, a.start("hook", "--quiet", "create-symlinks", "--link", "g::/h"), "as nvidia-ctk has it")
	assert.Equal(t, "g", link("h"))
	state := filepath.Join(a.bundle, "state.json")
	require.NoError(t, os.WriteFile(state, []byte(a.state()), 0o644))
	require.NoError(t, a.start("create-symlinks", "--container-spec", state, "--link", "i::/j"))
	assert.Equal(t, "i", link("j"))

	require.NoError(t, a.start("chmod", "--mode", "700", "--path", "/lib"))
	info, err := os.Stat(filepath.Join(a.top, "lib"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.NoError(t, a.start("update-ldcache", "--ldconfig-path", "@/sbin/ldconfig", "--folder", "/lib"))
	assert.FileExists(t, filepath.Join(a.top, "etc/ld.so.conf.d/00-nvmlfab.conf"))
	for _, args := range [][]string{
		{"enable-cuda-compat", "--host-driver-version=570.1", "--host-cuda-version", "12.8", "--cuda-compat-container-root", "/x"},
		{"disable-device-node-modification"}, {"update-application-profile"}, {"noop"}, {"-d", "--quiet=true", "noop"},
	} {
		if args[0] == "update-application-profile" {
			require.NoError(t, os.Mkdir(filepath.Join(a.top, "dev"), 0o755))
		}
		require.NoError(t, a.start(args...), args)
		assert.Empty(t, a.log.String(), args)
	}

	// A newer specification does not keep containers from starting.
	for _, args := range [][]string{nil, {"--new"}, {"hook"}, {"new-hook", "--with", "x"}, {"--new", "new-hook"}} {
		require.NoError(t, a.start(args...), args)
		assert.Contains(t, a.log.String(), "warning: ")
		require.NoError(t, a.start(append([]string{"--quiet"}, args...)...))
		assert.Empty(t, a.log.String())
	}
	require.NoError(t, a.start("noop", "more"))
	assert.Equal(t, "nvmlfab-hook: warning: noop: the argument \"more\" says nothing to it\n", a.log.String())

	for says, args := range map[string][]string{
		`create-symlinks: there is no flag "--folder"`:        {"create-symlinks", "--folder", "x"},
		`there is no flag "--new"`:                            {"--new", "noop"},
		`create-symlinks: --link: a value has to follow`:      {"create-symlinks", "--link"},
		`create-symlinks: --link: want TARGET::LINK, not "a"`: {"create-symlinks", "--link", "a"},
		`chmod: --mode: want a mode such as 755, not ""`:      {"chmod", "--path", "/lib"},
		`chmod: --mode: want a mode such as 755, not "9"`:     {"chmod", "--mode=9"},
		`chmod: --path: the name is empty`:                    {"chmod", "--mode=7", "--path", ""},
		`update-ldcache: --ldconfig-path: the name is empty`:  {"update-ldcache", "--ldconfig-path="},
		`--debug: want true or false, not "so"`:               {"--debug=so", "noop"},
		`chmod: open /none: no such file or directory`:        {"chmod", "--mode=7", "--container-spec", "/none"},
	} {
		assert.EqualError(t, a.start(args...), says)
	}
	a.env["NVIDIA_CTK_DEBUG"] = "false"
	require.NoError(t, a.start("noop"))
	a.env["NVIDIA_CTK_DEBUG"] = "so"
	assert.EqualError(t, a.start("noop"), `NVIDIA_CTK_DEBUG: want true or false, not "so"`)
	a.env["NVIDIA_CTK_DEBUG"] = ""

	require.NoError(t, a.start("--help"))
	for name := range commands {
		assert.Contains(t, a.out.String(), "\n  "+name)
		for flag := range commands[name].flags {
			assert.Contains(t, a.out.String(), "--"+flag)
		}
	}
	require.NoError(t, a.start("-v"))
	assert.Regexp(t, `^nvmlfab-hook \S+\n$`, a.out.String())
}

// TestWithoutTree: a container with a GPU does not start if the hook lies in no staged folder.
func TestWithoutTree(t *testing.T) {
	a := inContainer(t)
	require.NoError(t, os.MkdirAll(filepath.Join(a.top, "dev"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(a.top, "dev/nvidia3"), nil, 0o644))
	assert.ErrorContains(t, a.start("update-ldcache"), "nothing is staged in "+filepath.Join(a.bundle, "tree"))
	profile := filepath.Join(a.bundle, "tree/etc/nvmlfab/profile.yaml")
	require.NoError(t, os.MkdirAll(filepath.Dir(profile), 0o755))
	require.NoError(t, os.WriteFile(profile, []byte("extends: t4\n"), 0o644))
	assert.ErrorContains(t, a.start("update-ldcache"), "run nvmlfab stage again")
	a.self = func() (string, error) { return "", errors.New("no name") }
	assert.ErrorContains(t, a.start("update-ldcache"), "no name")
}

func TestSelf(t *testing.T) {
	executable, err := os.Executable()
	require.NoError(t, err)
	started := startedAs()
	assert.Equal(t, filepath.Base(executable), filepath.Base(started))
	path, err := self()
	require.NoError(t, err)
	assert.Equal(t, executable, path)
}
