package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/tests/debian"
)

// kernelPages are the pages about the kernel modules, or the part of a page from one heading to the next.
var kernelPages = map[string][2]string{
	"README.md":                  {"## GPUs in the kernel", "\n## "},
	"CONTRIBUTING.md":            {"## The kernel modules", "\n## "},
	"docs/fakegpu.md":            {},
	"docs/vgpu.md":               {},
	"docs/vgpuctl.md":            {},
	"docs/vgpu-device-plugin.md": {},
	"docs/nvidia-driver.md":      {},
	"docs/kernel-logic.md":       {},
	"docs/kernels.md":            {},
}

// kernelCommands are the commands of these pages, each once.
func kernelCommands(t *testing.T) (commands []string) {
	t.Helper()
	add := func(line string) {
		line = regexp.MustCompile(`\s+`).ReplaceAllString(strings.TrimSpace(regexp.MustCompile(`\s#.*`).ReplaceAllString(line, "")), " ")
		command := regexp.MustCompile(`^(\w+=\S+ )*(sudo |make\b|go (run|test) |cmake |dkms )`)
		if command.MatchString(line) && !strings.Contains(line, "…") && !slices.Contains(commands, line) {
			commands = append(commands, line)
		}
	}
	block := regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	for page, part := range kernelPages {
		content, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err)
		text := string(content)
		if part[0] != "" {
			_, after, found := strings.Cut(text, part[0])
			require.True(t, found, "%s has no %s", page, part[0])
			text, _, _ = strings.Cut(after, part[1])
		}
		for _, b := range block.FindAllStringSubmatch(text, -1) {
			if b[1] == "" || b[1] == "sh" {
				for line := range strings.Lines(b[2]) {
					add(line)
				}
			}
		}
		for _, code := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1) {
			add(code[1])
		}
	}
	slices.Sort(commands)
	return commands
}

// kernelShell runs commands in a mount namespace in which the running kernel seems to be Debian's 6.1, with its headers
// where they belong. Programs that would change a kernel, boot a virtual machine or install something only say how they
// were called; sudo runs its command, and dkms builds in a folder of the test.
func kernelShell(t *testing.T, command string) outcome {
	t.Helper()
	namespace(t, "--mount")
	kernel, err := debian.FetchKernel("6.1")
	require.NoError(t, err)
	newer, err := debian.FetchKernel("6.12")
	require.NoError(t, err)
	dkms := fetched(t, "dkms", "dkms")
	cmake, err := debian.Fetch("cmake")
	require.NoError(t, err)

	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	for _, d := range []string{bin, filepath.Join(dir, "overlay"), filepath.Join(dir, "dkms", "tree"), filepath.Join(dir, "dkms", "src"), filepath.Join(dir, "dkms", "inst")} {
		require.NoError(t, os.MkdirAll(d, 0o755))
	}
	program := func(name, script string) {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/bash\n"+script+"\n"), 0o755))
	}
	for _, name := range []string{"insmod", "rmmod", "modprobe"} {
		program(name, `echo "called: `+name+` $*"`)
	}
	program("sudo", `exec "$@"`)
	program("uname", `[ "$*" != -r ] || { echo `+kernel.Release+`; exit; }; exec /usr/bin/uname "$@"`)
	program("go", `case "$1 $2" in
'run ./kernel/vm/'* | 'test ./'*) echo "called: go $*" ;;
*) PATH=${PATH#*:}; exec go "$@" ;;
esac`)
	trees := fmt.Sprintf("--dkmstree %[1]s/tree --sourcetree %[1]s/src --installtree %[1]s/inst", filepath.Join(dir, "dkms"))
	program("dkms", `command=$1; shift
case $command in
add) exec bash `+dkms+` `+trees+` add "$@" ;;
install) bash `+dkms+` `+trees+` build "$@" -k `+newer.Release+` --kernelsourcedir `+newer.Headers+` || { cat `+dir+`/dkms/tree/nvmlfab/*/build/make.log; exit 1; }
	find `+dir+`/dkms/tree -name '*.ko*' -path '*/module/*' ;;
esac`)
	libraries := filepath.Join(cmake, "usr/lib/x86_64-linux-gnu") + ":" + filepath.Join(cmake, "lib/x86_64-linux-gnu")
	program("cmake", `export LD_LIBRARY_PATH=`+libraries+` CMAKE_ROOT=`+filepath.Join(cmake, "usr/share/cmake-3.25")+`
[ "$*" != "-S kernel -B build" ] || set -- -S kernel -B `+dir+`/build
[ "$1 $2" != "--build build" ] || { shift 2; set -- --build `+dir+`/build "$@"; }
exec `+filepath.Join(cmake, "usr/bin/cmake")+` "$@"`)

	script := fmt.Sprintf(`set -eu
mount -t tmpfs none %[1]s
mkdir %[1]s/upper %[1]s/work
mount -t overlay overlay -o lowerdir=/usr,upperdir=%[1]s/upper,workdir=%[1]s/work /usr
mkdir -p /usr/lib/modules/%[2]s
ln -s %[3]s /usr/lib/modules/%[2]s/build
[ -e /lib/modules ]
%[4]s`, filepath.Join(dir, "overlay"), kernel.Release, kernel.Headers, command)
	// With STRICT the modules are those that the virtual machine gets, so nothing is compiled again.
	return run(t, []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "STRICT=1"}, "unshare", "--mount", "bash", "-c", script)
}

// TestKernelDocs runs every command of the pages about the kernel modules, as a reader types it. What would boot a virtual
// machine or load a module is run up to that, and checked to ask for tests that exist.
func TestKernelDocs(t *testing.T) {
	commands := kernelCommands(t)
	require.Greater(t, len(commands), 25, "%q", commands)
	// These run in make test itself, or are make test.
	elsewhere := []string{"make test", "make test-mockfs"}
	// cmake and dkms commands build on one another.
	chains := map[string]string{
		"cmake --build build":                      "cmake -S kernel -B build && ",
		"cmake --build build --target fingerprint": "cmake -S kernel -B build && ",
		"sudo dkms install nvmlfab/1":              "dkms add kernel && ",
	}
	for _, command := range commands {
		if slices.Contains(elsewhere, command) {
			continue
		}
		t.Run(command, func(t *testing.T) {
			line := strings.ReplaceAll(command, "PREFIX=/usr/local", "DESTDIR="+t.TempDir()+" PREFIX=/usr/local")
			line = strings.ReplaceAll(line, "make bin", "make -n bin") // TestMain has built it
			o := kernelShell(t, chains[command]+line)
			said := o.stdout + o.stderr
			switch {
			case strings.Contains(command, "fingerprint"):
				assert.NotZero(t, o.code, said)
				assert.Contains(t, said, "vgpu is not loaded: make -C ")
			case strings.Contains(command, "KDIR="):
				assert.NotZero(t, o.code, said)
				assert.Contains(t, said, "install linux-headers-6.1.0-50-amd64: apt-get install linux-headers-6.1.0-50-amd64;")
			case strings.Contains(command, "vgpuctl "):
				assert.Equal(t, 1, o.code, said)
				assert.Regexp(t, "load the module with make -C kernel load|no such file or directory: name a folder", said)
			case strings.Contains(command, "unload"):
				require.Zero(t, o.code, said)
				assert.Contains(t, said, "is not loaded: nothing to do")
			case strings.Contains(command, "load"):
				require.Zero(t, o.code, said)
				assert.Regexp(t, `(?m)^called: insmod \S+/dist/kernel/6\.1\.0-\S+/(vgpu\.ko dry_run=|fakegpu\.ko)`, said)
				for _, setting := range regexp.MustCompile(`(\w+)=(\w+)`).FindAllString(command, -1) {
					if !strings.HasPrefix(setting, "MODULE=") {
						assert.Contains(t, said, strings.ToLower(setting))
					}
				}
			case strings.Contains(command, "dkms install"):
				require.Zero(t, o.code, said)
				assert.Contains(t, said, "/module/vgpu.ko")
				assert.Contains(t, said, "/module/fakegpu.ko")
			default:
				require.Zero(t, o.code, said)
				checkCalls(t, said)
			}
		})
	}
}

// checkCalls requires every go test and boot that was called to select tests that exist.
func checkCalls(t *testing.T, said string) {
	t.Helper()
	for _, call := range regexp.MustCompile(`(?m)^called: go (.*)$`).FindAllStringSubmatch(said, -1) {
		pattern := regexp.MustCompile(`-run (\S+)`).FindStringSubmatch(call[1])
		if pattern == nil {
			continue
		}
		tests := guestTests(t)
		if m := regexp.MustCompile(`^test (?:-\S+ \S+ )*(\./\S+)`).FindStringSubmatch(strings.ReplaceAll(call[1], pattern[0]+" ", "")); m != nil {
			tests = run(t, nil, "go", "test", "-list", pattern[1], m[1]).succeeds(t).lines()
		}
		selects := regexp.MustCompile(strings.Trim(pattern[1], "'"))
		assert.True(t, slices.ContainsFunc(tests, func(name string) bool { return strings.HasPrefix(name, "Test") && selects.MatchString(name) }),
			"%s runs nothing", call[1])
	}
}

// guestTests are the tests that run in the virtual machine, by name.
func guestTests(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "kernel", "vm", "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	return names
}

// TestKernelLogic is the command of CONTRIBUTING: it runs the suites of the modules' logic in user space.
func TestKernelLogic(t *testing.T) {
	out := run(t, nil, "go", "test", "-v", "-run", "^TestKernelLogic$", "./kernel/vm/logic").succeeds(t).stdout
	suites, err := filepath.Glob(filepath.Join(root, "kernel", "logic", "tests", "*_test.c"))
	require.NoError(t, err)
	require.NotEmpty(t, suites)
	for _, suite := range suites {
		assert.Contains(t, out, "--- PASS: TestKernelLogic/"+strings.TrimSuffix(filepath.Base(suite), "_test.c")+" ")
	}
}
