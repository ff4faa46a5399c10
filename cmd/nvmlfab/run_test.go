package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// printEnv is a program that prints the variables which decide which GPUs a program sees.
const printEnv = `for name in LD_LIBRARY_PATH NVMLFAB_PROFILE MOCK_NVML_CONFIG; do
	eval "echo $name=\${$name-unset}"
done`

func TestRunEnvironment(t *testing.T) {
	dir := t.TempDir()
	mine := write(t, dir, "mine.yaml", "extends: h100\ncount: 2\n", 0o644)
	inherited := write(t, dir, "inherited.yml", "count: 1\n", 0o644)
	old := write(t, dir, "old.yaml", "extends: h100\nsystem: {driver_version: 550.163.01}\n", 0o644)
	lib := filepath.Join(tree, "nvml", "13.0.39") // the version of driver 580, which these profiles have
	of := func(version string) string { return filepath.Join(tree, "nvml", version) }

	for name, test := range map[string]struct {
		env, args           []string
		path, profile, file string
	}{
		"nothing":                  {nil, nil, lib, "unset", "unset"},
		"other libraries":          {[]string{"LD_LIBRARY_PATH=/a:/b"}, nil, lib + ":/a:/b", "unset", "unset"},
		"an empty list":            {[]string{"LD_LIBRARY_PATH="}, nil, lib, "unset", "unset"},
		"a name":                   {nil, []string{"--profile", "h100"}, lib, "h100", "unset"},
		"a name against a file":    {[]string{"MOCK_NVML_CONFIG=" + inherited}, []string{"--profile", "h100"}, lib, "h100", "unset"},
		"a name against nonsense":  {[]string{"MOCK_NVML_CONFIG=/nonsense"}, []string{"--profile", "h100"}, lib, "h100", "unset"},
		"a file":                   {nil, []string{"--profile", mine}, lib, "unset", mine},
		"a relative file":          {nil, []string{"--profile=mine.yaml"}, lib, "unset", mine},
		"a file against a name":    {[]string{"NVMLFAB_PROFILE=nonsense"}, []string{"--profile", "mine.yaml"}, lib, "unset", mine},
		"an inherited name":        {[]string{"NVMLFAB_PROFILE=h100"}, nil, lib, "h100", "unset"},
		"an inherited file":        {[]string{"MOCK_NVML_CONFIG=inherited.yml"}, nil, of("13.4.92"), "unset", inherited},
		"an inherited file wins":   {[]string{"MOCK_NVML_CONFIG=" + inherited, "NVMLFAB_PROFILE=nonsense"}, nil, of("13.4.92"), "nonsense", inherited},
		"a driver":                 {nil, []string{"--profile", old}, of("12.4.127"), "unset", old},
		"a board's driver":         {nil, []string{"--profile", "a100-sxm4-40gb"}, of("12.8.90"), "a100-sxm4-40gb", "unset"},
		"a version":                {nil, []string{"--nvml", "13.4"}, of("13.4.92"), "unset", "unset"},
		"a version for a driver":   {nil, []string{"--profile", old, "--nvml=11.1"}, of("11.1"), "unset", old},
		"inherited without values": {[]string{"MOCK_NVML_CONFIG=", "NVMLFAB_PROFILE="}, nil, lib, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(filepath.Join(tree, "bin", "nvmlfab"),
				append(append([]string{"run"}, test.args...), "--", "sh", "-c", printEnv)...)
			cmd.Dir, cmd.Env = dir, test.env
			want := "LD_LIBRARY_PATH=" + test.path + "\nNVMLFAB_PROFILE=" + test.profile + "\nMOCK_NVML_CONFIG=" + test.file + "\n"
			assert.Equal(t, outcome{want, "", 0}, start(t, cmd))
		})
	}
}

func TestRunArguments(t *testing.T) {
	program := []string{"sh", "-c", `printf '<%s>' "$@"`, "sh"}
	for name, test := range map[string]struct {
		before, after []string
	}{
		"spaces and an empty one":    {[]string{"--"}, []string{"a b", "", "c"}},
		"without --":                 {nil, []string{"a", "b"}},
		"flags of the program":       {[]string{"--"}, []string{"-L", "--profile", "nonsense", "--help"}},
		"and without --":             {nil, []string{"-L", "--profile=nonsense", "--help"}},
		"-- of the program":          {[]string{"--"}, []string{"a", "--", "b"}},
		"-- of the program alone":    {[]string{"--profile", "h100"}, []string{"--", "b"}},
		"newlines, quotes, no UTF-8": {[]string{"--profile", "h100", "--"}, []string{"a\nb", `"'$x`, "\xff"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := append(append(append([]string{"run"}, test.before...), program...), test.after...)
			assert.Equal(t, outcome{"<" + strings.Join(test.after, "><") + ">", "", 0}, nvmlfab(t, args...))
		})
	}
}

// TestRunBecomes: the program has the process id of nvmlfab.
func TestRunBecomes(t *testing.T) {
	t.Run("exit status", func(t *testing.T) {
		assert.Equal(t, outcome{"", "", 42}, nvmlfab(t, "run", "--", "sh", "-c", "exit 42"))
	})
	t.Run("process, folder and input", func(t *testing.T) {
		cmd := exec.Command(filepath.Join(tree, "bin", "nvmlfab"), "run", "--", "sh", "-c", "echo $$; pwd -P; cat")
		cmd.Dir, cmd.Stdin = "/", strings.NewReader("input")
		out := start(t, cmd)
		lines := strings.Split(out.stdout, "\n")
		require.Len(t, lines, 3, "%s", out.stderr)
		assert.Equal(t, []string{"/", "input"}, lines[1:])
		assert.Equal(t, cmd.ProcessState.Pid(), atoi(t, lines[0]))
	})
	t.Run("signals", func(t *testing.T) {
		dir := t.TempDir()
		cmd := exec.Command(filepath.Join(tree, "bin", "nvmlfab"), "run", "--", "sh", "-c",
			`trap 'exit 43' TERM; : > ready; while :; do sleep 0.01; done`)
		cmd.Dir = dir
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(dir, "ready")); return err == nil },
			time.Minute, time.Millisecond)
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		assert.Error(t, cmd.Wait())
		assert.Equal(t, 43, cmd.ProcessState.ExitCode())
	})
	t.Run("death by a signal", func(t *testing.T) {
		cmd := exec.Command(filepath.Join(tree, "bin", "nvmlfab"), "run", "--", "sh", "-c", "kill -KILL $$")
		start(t, cmd)
		assert.Equal(t, syscall.SIGKILL, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	})
	t.Run("inside itself", func(t *testing.T) {
		self := filepath.Join(tree, "bin", "nvmlfab")
		out := nvmlfab(t, "run", "--profile", "h100", "--", self, "run", "--", "sh", "-c", printEnv)
		assert.Contains(t, out.stdout, "NVMLFAB_PROFILE=h100\n")
	})
	t.Run("by a link", func(t *testing.T) {
		link := filepath.Join(t.TempDir(), "nvmlfab")
		require.NoError(t, os.Symlink(filepath.Join(tree, "bin", "nvmlfab"), link))
		out := start(t, exec.Command(link, "run", "--", "sh", "-c", printEnv))
		assert.Contains(t, out.stdout, "LD_LIBRARY_PATH="+filepath.Join(tree, "nvml", "13.0.39")+"\n")
	})
}

func atoi(t *testing.T, digits string) (n int) {
	t.Helper()
	for _, d := range digits {
		require.True(t, '0' <= d && d <= '9', "%q", digits)
		n = 10*n + int(d-'0')
	}
	return n
}

func TestRunCannot(t *testing.T) {
	dir := t.TempDir()
	text := write(t, dir, "text", "no program\n", 0o644)
	script := write(t, dir, "script", "echo no first line\n", 0o755)
	orphan := write(t, dir, "orphan", "#!/nonexistent/interpreter\n", 0o755)
	broken := write(t, dir, "broken.yaml", "extends: h100\ndevices: 7\n", 0o644)

	for name, test := range map[string]struct {
		args   []string
		env    string
		status int
		text   string
	}{
		"no such program":             {[]string{"--", "nonexistent"}, "", 127, `"nonexistent"`},
		"no such path":                {[]string{"--", dir + "/nonexistent"}, "", 127, "no such file"},
		"no name":                     {[]string{"--", ""}, "", 127, `""`},
		"not executable":              {[]string{"--", text}, "", 126, "permission denied"},
		"a folder":                    {[]string{"--", dir}, "", 126, "is a directory"},
		"no program":                  {[]string{"--", script}, "", 126, "exec format error"},
		"no interpreter":              {[]string{"--", orphan}, "", 126, "interpreter"},
		"unknown profile":             {[]string{"--profile", "h10", "--", "true"}, "", 125, `--profile: unknown board "h10": did you mean "h100"?`},
		"empty profile":               {[]string{"--profile=", "--", "true"}, "", 125, "--profile: the name is empty: name a shipped profile, such as h100, or a file"},
		"broken profile":              {[]string{"--profile", broken, "--", "true"}, "", 125, broken + ":2: devices"},
		"unknown version":             {[]string{"--nvml", "../lib", "--", "true"}, "", 125, `--nvml: there is no NVML "../lib": name one of 11.0, 11.1,`},
		"half a version":              {[]string{"--nvml", "12", "--", "true"}, "", 125, `--nvml: "12" may be 12.0.76 or 12.1.105 or`},
		"no profile file":             {[]string{"--profile", "./h100", "--", "true"}, "", 125, "./h100: cannot be read: "},
		"unknown inherited profile":   {[]string{"--", "true"}, "NVMLFAB_PROFILE=h10", 125, `NVMLFAB_PROFILE: unknown board "h10"`},
		"broken inherited profile":    {[]string{"--", "true"}, "MOCK_NVML_CONFIG=" + broken, 125, broken + ":2: devices"},
		"a profile before no program": {[]string{"--profile", "h10", "--", "nonexistent"}, "", 125, `unknown board "h10"`},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(filepath.Join(tree, "bin", "nvmlfab"), append([]string{"run"}, test.args...)...)
			if test.env != "" {
				cmd.Env = []string{test.env}
			}
			start(t, cmd).fails(t, test.status, test.text)
		})
	}
}

// TestRunWithoutLibrary: the command refuses to run a program if its own library is missing, since the machine may have
// another one.
func TestRunWithoutLibrary(t *testing.T) {
	const version = "13.0.39"
	move := func(t *testing.T, name string) (top, dir string) { // to another tree
		top = filepath.Join(tree, name)
		dir = filepath.Join(top, "nvml", version)
		t.Cleanup(func() { os.RemoveAll(top) })
		require.NoError(t, os.MkdirAll(filepath.Join(top, "bin"), 0o755))
		require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o755))
		require.NoError(t, os.Link(filepath.Join(tree, "bin", "nvmlfab"), filepath.Join(top, "bin", "nvmlfab")))
		return top, dir
	}
	run := func(t *testing.T, top string) outcome {
		return start(t, exec.Command(filepath.Join(top, "bin", "nvmlfab"), "run", "--", "true"))
	}
	t.Run("none", func(t *testing.T) {
		top, dir := move(t, "none")
		run(t, top).fails(t, 125, "no libnvidia-ml.so.1 in "+dir+": run make lib")
	})
	t.Run("somebody else's", func(t *testing.T) {
		top, dir := move(t, "else")
		require.NoError(t, os.Mkdir(dir, 0o755))
		write(t, dir, "libnvidia-ml.so.1", "", 0o644)
		run(t, top).fails(t, 125, "no libnvmlfab-core.so.1 in "+dir)
	})
	t.Run("out of the linker's reach", func(t *testing.T) {
		top, dir := move(t, "a:b")
		require.NoError(t, os.Symlink(filepath.Join(tree, "lib"), dir))
		run(t, top).fails(t, 125, ": or ;")
	})
}
