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

// fence is a block of code in a page, with its language and its lines.
var fence = regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```$")

// kernelCommands are the commands of these pages, each once: every line of a block of shell, and what else is written as code
// and begins with a program that builds, boots or loads. It leaves out what has a … in it, and make alone.
func kernelCommands(t *testing.T) (commands []string) {
	t.Helper()
	program := regexp.MustCompile(`^(\w+=\S+ )*(sudo|make|go (run|test)|cmake|dkms|insmod|(dist/bin/)?nvmlfab fakegpu) \S`)
	add := func(line string, shell bool) {
		line = strings.Join(strings.Fields(regexp.MustCompile(`\s#.*`).ReplaceAllString(line, "")), " ")
		if line != "" && (shell || program.MatchString(line)) && !strings.Contains(line, "…") && !slices.Contains(commands, line) {
			commands = append(commands, line)
		}
	}
	for page, part := range kernelPages {
		text := readFile(t, page)
		if part[0] != "" {
			_, after, found := strings.Cut(text, part[0])
			require.True(t, found, "%s has no %s", page, part[0])
			text, _, _ = strings.Cut(after, part[1])
		}
		for _, b := range fence.FindAllStringSubmatch(text, -1) {
			if b[1] == "" || b[1] == "sh" {
				for line := range strings.Lines(b[2]) {
					add(line, b[1] == "sh")
				}
			}
		}
		for _, code := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			add(code[1], false)
		}
	}
	slices.Sort(commands)
	return commands
}

// kernelShell runs commands in a mount namespace in which the running kernel seems to be Debian's 6.1, with its headers and
// those of 6.12 where they belong. What is written to /usr and to /var/lib is lost afterwards. Programs that would change a
// kernel, boot a virtual machine or install a package only say how they were called; sudo runs its command.
func kernelShell(t *testing.T, command string) outcome {
	t.Helper()
	namespace(t, "--mount")
	dkms, err := debian.Fetch("dkms")
	require.NoError(t, err)
	cmake, err := debian.Fetch("cmake")
	require.NoError(t, err)

	// Not t.TempDir: its name would have the test's in it, and so what a shell takes for more than a name.
	dir, err := os.MkdirTemp("", "nvmlfab-kernel-docs-")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	bin, layers := filepath.Join(dir, "bin"), filepath.Join(dir, "layers")
	require.NoError(t, os.MkdirAll(bin, 0o755))
	require.NoError(t, os.MkdirAll(layers, 0o755))
	program := func(name, script string) {
		writeProgram(t, filepath.Join(bin, name), []byte("#!/bin/bash\n"+script+"\n"))
	}
	for _, name := range []string{"insmod", "rmmod", "modprobe", "depmod", "apt-get"} {
		program(name, `echo "called: `+name+` $*"`)
	}
	program("sudo", `exec "$@"`)
	program("nvmlfab", `exec `+launcher(t)+` "$@"`)
	program("uname", `[ "$*" != -r ] || { echo `+kernelOf(t, "6.1").Release+`; exit; }; exec /usr/bin/uname "$@"`)
	program("go", `case "$1 $2" in
'run ./kernel/vm/'* | 'test '*) echo "called: go $*" ;;
*) PATH=${PATH#*:}; exec go "$@" ;;
esac`)
	program("dkms", `exec bash `+filepath.Join(dkms, "usr/sbin/dkms")+` "$@"`)
	libraries := filepath.Join(cmake, "usr/lib/x86_64-linux-gnu") + ":" + filepath.Join(cmake, "lib/x86_64-linux-gnu")
	program("cmake", `export LD_LIBRARY_PATH=`+libraries+` CMAKE_ROOT=`+filepath.Join(cmake, "usr/share/cmake-3.25")+`
[ "$*" != "-S kernel -B build" ] || set -- -S kernel -B `+dir+`/build
[ "$1 $2" != "--build build" ] || { shift 2; set -- --build `+dir+`/build "$@"; }
exec `+filepath.Join(cmake, "usr/bin/cmake")+` "$@"`)

	script := "set -eu\nmount -t tmpfs none " + layers + "\n"
	for _, over := range []string{"usr", "var/lib"} {
		layer := filepath.Join(layers, over)
		script += fmt.Sprintf("mkdir -p %[1]s/upper %[1]s/work\nmount -t overlay overlay -o lowerdir=/%[2]s,upperdir=%[1]s/upper,workdir=%[1]s/work /%[2]s\n", layer, over)
	}
	script += "mkdir /var/lib/dkms\n"
	for _, number := range []string{"6.1", "6.12"} {
		kernel := kernelOf(t, number)
		script += fmt.Sprintf("mkdir -p /usr/lib/modules/%[1]s\nln -s %[2]s /usr/lib/modules/%[1]s/build\n", kernel.Release, kernel.Headers)
	}
	// With STRICT the modules are those that the virtual machine gets, so nothing is compiled again.
	return run(t, []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "STRICT=1"}, "unshare", "--mount", "bash", "-c", script+"[ -d /lib/modules ]\n"+command)
}

func kernelOf(t *testing.T, number string) debian.Kernel {
	t.Helper()
	kernel, err := debian.FetchKernel(number)
	require.NoError(t, err)
	return kernel
}

// TestKernelDocs runs every command of the pages about the kernel modules, as a reader types it. What would boot a virtual
// machine or load a module is run up to that, and checked to ask for tests that exist.
func TestKernelDocs(t *testing.T) {
	commands := kernelCommands(t)
	require.Greater(t, len(commands), 30, "%q", commands)
	// cmake and dkms commands build on one another. dkms builds the modules for a kernel that came later by itself.
	before := map[string]string{
		"cmake --build build":                      "cmake -S kernel -B build && ",
		"cmake --build build --target fingerprint": "cmake -S kernel -B build && ",
		"sudo dkms install nvmlfab/1":              "dkms add kernel && ",
	}
	after := map[string]string{
		"sudo dkms add kernel": " && dkms status",
		// dkms hides what CLEAN does, so the line is run once more.
		"sudo dkms install nvmlfab/1": ` || { cat /var/lib/dkms/nvmlfab/1/build/make.log; exit 1; }
dkms autoinstall -k ` + kernelOf(t, "6.12").Release + `
dkms status
find /lib/modules/*/updates -type f
dkms_tree=/var/lib/dkms kernel_source_dir=/lib/modules/$(uname -r)/build
. kernel/dkms.conf
build=$dkms_tree/nvmlfab/1/build
cp -r kernel $build
touch $build/vgpu/hook.o $build/vgpu.ko
eval "$CLEAN"
[ -e $build/vgpu/hook.c ] && [ ! -e $build/vgpu/hook.o ] && [ ! -e $build/vgpu.ko ] && echo it is clean`,
	}
	for _, command := range commands {
		if command == "make test" { // this is a part of it
			continue
		}
		t.Run(command, func(t *testing.T) {
			line := strings.ReplaceAll(command, "PREFIX=/usr/local", "DESTDIR="+t.TempDir()+" PREFIX=/usr/local")
			line = strings.ReplaceAll(line, "make bin", "make -n bin") // TestMain has built it
			o := kernelShell(t, before[command]+line+after[command])
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
			case strings.Contains(command, "dkms add"):
				require.Zero(t, o.code, said)
				assert.Contains(t, said, "\nnvmlfab/1: added\n")
			case strings.Contains(command, "dkms install"):
				require.Zero(t, o.code, said)
				assert.Contains(t, said, "\nit is clean\n")
				for _, number := range []string{"6.1", "6.12"} {
					release := kernelOf(t, number).Release
					assert.Contains(t, said, "\nnvmlfab/1, "+release+", x86_64: installed\n")
					for _, module := range []string{"fakegpu", "vgpu"} {
						assert.Contains(t, said, "/lib/modules/"+release+"/updates/dkms/"+module+".ko")
					}
				}
			case strings.Contains(command, "modprobe"):
				require.Zero(t, o.code, said)
				assert.Equal(t, "called: modprobe vgpu\n", said)
			case strings.Contains(command, "nvmlfab fakegpu"):
				require.Zero(t, o.code, said)
				assert.Regexp(t, `(^|called: insmod fakegpu\.ko )nvidia=1 driver_version=\S+ gpus=\S+NVIDIA_H100`, said)
			default:
				require.Zero(t, o.code, said)
				checkCalls(t, said)
			}
		})
	}
}

// TestKernelDocsVgpuctl: a test in the virtual machine runs every command that docs/vgpuctl.md lists.
func TestKernelDocsVgpuctl(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "kernel", "vm", "vgpuctl*_test.go"))
	require.NoError(t, err)
	var tests strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		tests.Write(text)
	}
	rows := regexp.MustCompile("(?m)^\\| `vgpuctl (\\w+)(?: (set|get|list))?[^`]*`(?:, `(\\w+)`)? \\|").FindAllStringSubmatch(readFile(t, "docs/vgpuctl.md"), -1)
	require.Len(t, rows, strings.Count(readFile(t, "docs/vgpuctl.md"), "\n| `vgpuctl "))
	for _, row := range rows {
		assert.Contains(t, tests.String(), strings.TrimSuffix(fmt.Sprintf("vgpuctl\", %q, %q", row[1], row[2]), `, ""`))
		if row[3] != "" {
			assert.Contains(t, tests.String(), fmt.Sprintf("vgpuctl\", %q, %q", row[1], row[3]))
		}
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
