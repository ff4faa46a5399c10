package tests

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The staged GPU is below a bridge, in a PCI domain that no host has.
const (
	stagedBridge = "7a57:3a:00.0"
	stagedGPU    = "7a57:3b:00.0"
	stagedRoot   = "sys/devices/pci7a57:3a"
	gpuVendor    = "/sys/bus/pci/devices/" + stagedGPU + "/vendor"
)

// stagedTree writes the files of a bridge and a GPU in /sys and /proc below a new directory.
func stagedTree(t *testing.T) string {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "tree")
	write := func(path, text string) {
		path = filepath.Join(tree, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	link := func(path, target string) {
		path = filepath.Join(tree, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.Symlink(target, path))
	}
	device := func(bdf, path string, vendor, device uint16, class uint32, bridge bool) {
		config := make([]byte, 256)
		binary.LittleEndian.PutUint16(config, vendor)
		binary.LittleEndian.PutUint16(config[2:], device)
		binary.LittleEndian.PutUint16(config[4:], 0x0406)
		binary.LittleEndian.PutUint32(config[8:], class<<8|0xa1)
		if bridge {
			config[0x0e] = 1
			config[0x18], config[0x19], config[0x1a] = 0x3a, 0x3b, 0x3b
		}
		for name, text := range map[string]string{
			"vendor": fmt.Sprintf("%#04x\n", vendor), "device": fmt.Sprintf("%#04x\n", device),
			"class": fmt.Sprintf("%#06x\n", class), "irq": "16\n", "numa_node": "0\n", "local_cpus": "1\n",
			"resource": strings.Repeat("0x0000000000000000 0x0000000000000000 0x0000000000000000\n", 13),
			"uevent":   fmt.Sprintf("DRIVER=nvidia\nPCI_ID=%04X:%04X\nPCI_SLOT_NAME=%s\n", vendor, device, bdf),
			"config":   string(config),
		} {
			write(path+"/"+name, text)
		}
		up := strings.Repeat("../", strings.Count(path, "/"))
		link(path+"/subsystem", up+"bus/pci")
		link("sys/bus/pci/devices/"+bdf, "../../../"+strings.TrimPrefix(path, "sys/"))
	}
	gpu := stagedRoot + "/" + stagedBridge + "/" + stagedGPU
	device(stagedBridge, stagedRoot+"/"+stagedBridge, 0x8086, 0x352a, 0x060400, true)
	device(stagedGPU, gpu, 0x10de, 0x2330, 0x030200, false)
	link(gpu+"/driver", "../../../../bus/pci/drivers/nvidia")
	link("sys/bus/pci/drivers/nvidia/"+stagedGPU, "../../../../"+strings.TrimPrefix(gpu, "sys/"))
	write(stagedRoot+"/pci_bus/7a57:3a/cpulistaffinity", "0\n")
	link("sys/class/pci_bus/7a57:3a", "../../devices/pci7a57:3a/pci_bus/7a57:3a")
	write("proc/bus/pci/devices", "3b00\t10de2330\t10"+strings.Repeat("\t0", 14)+"\tnvidia\n")
	return tree
}

// hostDevices are the PCI devices of this machine; it may have none.
func hostDevices() []string {
	var names []string
	entries, _ := os.ReadDir("/sys/bus/pci/devices")
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func hostDevice() string { return append(hostDevices(), "")[0] }

func mockfs() string { return filepath.Join(library, "libmockfs.so") }

// mocked is the environment of a program that sees tree.
func mocked(tree string, env ...string) []string {
	return append([]string{"LD_PRELOAD=" + mockfs(), "MOCK_PCI_ROOT=" + tree}, env...)
}

// compileMockfs builds testdata/mockfs/NAME.c.
func compileMockfs(t *testing.T, cc, name string, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	args := append([]string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program,
		filepath.Join(root, "tests", "testdata", "mockfs", name+".c")}, flags...)
	run(t, nil, cc, args...).succeeds(t)
	return program
}

// spellings are ways to name /sys/bus/pci, by working directory. link is a user's link to it.
func spellings(link string) map[string][]string {
	dir, name := filepath.Split(link)
	return map[string][]string{
		"/": {"/sys/bus/pci", "//sys/bus/pci", "/sys//bus///pci", "/sys/./bus/pci", "/sys/class/../bus/pci", "/usr/../sys/bus/pci",
			"/sys/bus/pci/devices/..", "/proc/self/root/sys/bus/pci", "/proc/thread-self/root/sys/bus/pci", "/proc/self/cwd/sys/bus/pci",
			link, "sys/bus/pci", "./sys/bus/pci", "usr/../sys/bus/pci"},
		"/sys":            {"bus/pci", "./bus/pci", "class/../bus/pci", "../sys/bus/pci"},
		"/sys/bus":        {"pci"},
		"/sys/bus/pci":    {"."},
		"/sys/devices":    {"../bus/pci"},
		"/sys/class/net":  {"../../bus/pci"},
		"/sys/module":     {"/proc/self/cwd/../bus/pci"},
		"/proc/self/task": {"../root/sys/bus/pci"},
		dir:               {name, "./" + name, name + "/devices/..", "/sys/bus/pci"},
	}
}

// TestMockfsEntries: every entry point works with every spelling of the path, and with descriptors of every directory
// on the way.
func TestMockfsEntries(t *testing.T) {
	tree := stagedTree(t)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink("/sys/bus/pci", link))
	plain := compileMockfs(t, "gcc", "entries")
	for dir, names := range spellings(link) {
		for _, name := range names {
			t.Run(strings.ReplaceAll(dir+" "+name, "/", "⁄"), func(t *testing.T) {
				runIn(t, dir, mocked(tree), plain, "-", name, stagedGPU, hostDevice()).succeeds(t)
				if !filepath.IsAbs(name) {
					runIn(t, "/tmp", mocked(tree), plain, dir, name, stagedGPU, hostDevice()).succeeds(t)
				}
			})
		}
	}
}

func TestMockfsFortified(t *testing.T) {
	tree := stagedTree(t)
	for _, level := range []string{"2", "3"} {
		program := compileMockfs(t, "gcc", "entries", "-D_FORTIFY_SOURCE="+level)
		run(t, mocked(tree), program, "-", "/sys/bus/pci", stagedGPU, hostDevice()).succeeds(t)
		runIn(t, "/sys", mocked(tree), program, "/", "sys/bus/pci", stagedGPU, hostDevice()).succeeds(t)
	}
}

// TestMockfsArm64 tests the arm64 library under user-mode emulation.
func TestMockfsArm64(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		skip(t, "the cross build is made on amd64")
	}
	for _, tool := range []string{"aarch64-linux-gnu-gcc", "qemu-aarch64"} {
		if _, err := exec.LookPath(tool); err != nil {
			skip(t, tool+" is missing")
		}
	}
	run(t, nil, "make", "--no-print-directory", "-C", root, "FOR=arm64", "dist/arm64/lib/libmockfs.so").succeeds(t)
	tree := stagedTree(t)
	preload := "LD_PRELOAD=" + filepath.Join(root, "dist", "arm64", "lib", "libmockfs.so")
	program := compileMockfs(t, "aarch64-linux-gnu-gcc", "entries", "-D_FORTIFY_SOURCE=2")
	for _, args := range [][]string{{"-", "/sys/bus/pci"}, {"/sys", "bus/pci"}} {
		args = append([]string{"-L", "/usr/aarch64-linux-gnu", "-E", preload, "-E", "MOCK_PCI_ROOT=" + tree, program}, args...)
		run(t, nil, "qemu-aarch64", append(args, stagedGPU, hostDevice())...).succeeds(t)
	}
	assert.Equal(t, functions(t, mockfs()), functions(t, filepath.Join(root, "dist", "arm64", "lib", "libmockfs.so")))
}

// What a process keeps, whatever happens to its environment, its threads and its children; and what calls beside the tree
// cost and do.
func TestMockfsState(t *testing.T) {
	tree := stagedTree(t)
	program := compileMockfs(t, "gcc", "state")
	for _, name := range []string{"root", "child", "errno", "threads", "stack", "vfork", "signals", "lengths", "faults", "quiet", "once"} {
		t.Run(name, func(t *testing.T) {
			env := mocked(filepath.Base(tree)) // relative
			runIn(t, filepath.Dir(tree), env, program, name, gpuVendor).succeeds(t)
		})
	}
	early := compileMockfs(t, "gcc", "early", "-shared", "-fPIC")
	for _, order := range []string{mockfs() + ":" + early, early + ":" + mockfs()} {
		o := run(t, []string{"LD_PRELOAD=" + order, "MOCK_PCI_ROOT=" + tree, "EARLY=" + gpuVendor}, "/bin/true").succeeds(t)
		assert.Equal(t, "0x10de\n", o.stdout)
	}
}

// Bad pointers answer EFAULT, a stat fits an 8 KB signal stack, getdents is merged, openat2's flags are kept to, and what
// sysfs lets nobody write is not written.
func TestMockfsHard(t *testing.T) {
	tree := stagedTree(t)
	vendor, err := filepath.EvalSymlinks(filepath.Join(tree, gpuVendor))
	require.NoError(t, err)
	require.NoError(t, os.Chmod(vendor, 0o444))
	program := compileMockfs(t, "gcc", "hard", "-w")
	out := run(t, mocked(tree), program, gpuVendor).succeeds(t).stdout
	assert.Equal(t, 5, strings.Count(out, "stat -1 Bad address|open -1 Bad address|readlink -1 Bad address|rename -1 Bad address\n"))
	assert.Contains(t, out, "\naltstack 0\n")
	assert.Contains(t, out, "["+stagedGPU+" 10]")
	inside, above := strings.TrimPrefix(gpuVendor, "/sys"), "../.."+strings.TrimPrefix(gpuVendor, "/sys")
	for _, line := range []string{
		"8 " + inside[1:] + ": ok", "8 " + inside + ": Invalid cross-device link", "8 " + above + ": Invalid cross-device link",
		"10 " + inside[1:] + ": ok", "10 " + inside + ": ok", "10 " + above + ": ok", "10 " + gpuVendor + ": No such file or directory",
		"4 " + inside[1:] + ": Too many levels of symbolic links", "2 " + gpuVendor + ": ok",
		"1 " + inside[1:] + ": ok", "1 " + gpuVendor + ": Invalid cross-device link",
		"wr -1 Permission denied", "trunc -1 Permission denied", "truncate -1 Permission denied", "fopen (nil)",
	} {
		assert.Contains(t, out, "\n"+line+"\n")
	}
	text, err := os.ReadFile(vendor)
	require.NoError(t, err)
	assert.Equal(t, "0x10de\n", string(text))
}

// TestMockfsWalks: functions that the library implements itself walk a tree as libc's do.
func TestMockfsWalks(t *testing.T) {
	program := compileMockfs(t, "gcc", "walks")
	dir := filepath.Join(t.TempDir(), "start")
	for _, path := range []string{"tree/deep/er/est", "tree/.hidden"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, path), 0o755))
	}
	for _, path := range []string{"tree/file", "tree/deep/a b", "tree/deep/er/x", "tree/.dot", "a*b"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, path), nil, 0o644))
	}
	for path, target := range map[string]string{"tree/link": "deep", "tree/dangling": "nowhere", "tree/deep/up": ".."} {
		require.NoError(t, os.Symlink(target, filepath.Join(dir, path)))
	}
	want := run(t, []string{"HOME=/root"}, program, dir).succeeds(t)
	got := run(t, mocked(stagedTree(t), "HOME=/root"), program, dir).succeeds(t)
	assert.Greater(t, len(want.lines()), 10000)
	assert.Equal(t, want.stdout, got.stdout)
}

// TestMockfsInert: without its variable the library does nothing.
func TestMockfsInert(t *testing.T) {
	for _, env := range [][]string{{}, {"MOCK_PCI_ROOT="}} {
		env = append(env, "LD_PRELOAD="+mockfs())
		for _, command := range []string{"lspci -D", "ls -lR /sys/bus/pci", "find /sys/devices -maxdepth 2", "cat " + gpuVendor} {
			args := strings.Fields(command)
			with, without := run(t, env, args[0], args[1:]...), run(t, nil, args[0], args[1:]...)
			with.command, without.command = "", ""
			assert.Equal(t, without, with, command)
		}
	}
}

// TestMockfsFailsClosed: if the staged tree is missing, a program sees no PCI devices, not even the host's.
func TestMockfsFailsClosed(t *testing.T) {
	tree := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(tree, "file"), nil, 0o644))
	for name, value := range map[string]string{
		"missing": tree + "/missing", "relative": "missing", "a file": tree + "/file", "empty": tree,
		"too long": tree + strings.Repeat("/a", 2000), "far too long": strings.Repeat("/a", 5000),
	} {
		t.Run(name, func(t *testing.T) {
			o := run(t, mocked(value), "lspci")
			assert.NotZero(t, o.code)
			assert.Empty(t, o.stdout)
			assert.Regexp(t, `(?m)^nvmlfab: MOCK_PCI_ROOT=.*: no staged tree there; every path into it fails$`, o.stderr)
			assert.Equal(t, 1, strings.Count(o.stderr, "nvmlfab:"))
			assert.Contains(t, run(t, mocked(value), "python3", "-c", "open('"+gpuVendor+"')").stderr, "FileNotFoundError")
			run(t, mocked(value), "cat", "/etc/passwd").succeeds(t)
		})
	}
	t.Run("removed later", func(t *testing.T) {
		tree := stagedTree(t)
		script := "import os\nprint(open('" + gpuVendor + "').read())\nos.rename('" + tree + "', '" + tree + "2')\ntry: print(os.listdir('/sys/bus/pci/devices'))\nexcept FileNotFoundError: print('gone')"
		o := run(t, mocked(tree), "python3", "-c", script).succeeds(t)
		assert.Contains(t, o.stdout, "gone")
		o.complains(t)
	})
}

// unserved are functions of libc with a path that the library does not intercept.
var unserved = map[string]string{
	"execve": "nothing in the tree can be executed", "execv": "", "execvp": "", "execvpe": "", "execl": "", "execle": "", "execlp": "", "execveat": "",
	"posix_spawn": "the program's path; the actions are served", "posix_spawnp": "",
	"mount": "changes what there is for all processes", "umount": "", "umount2": "", "open_tree": "", "move_mount": "", "fspick": "", "mount_setattr": "",
	"pivot_root": "", "swapon": "", "swapoff": "", "acct": "", "quotactl": "", "uselib": "",
	"mkstemp": "makes a name of its own, which sysfs refuses", "mkstemp64": "", "mkostemp": "", "mkostemp64": "", "mkstemps": "", "mkstemps64": "",
	"mkostemps": "", "mkostemps64": "", "mkdtemp": "", "mktemp": "", "tempnam": "",
	"setmntent": "reads tables of mounts", "__setmntent": "", "catopen": "reads message catalogues", "bindtextdomain": "", "utmpname": "", "shm_open": "",
	"revoke": "does nothing on Linux", "dlopen": "no library is in the tree", "dlmopen": "", "iruserok": "",
}

// TestMockfsExports: the library intercepts every function of libc whose prototype has a path, or there is a reason not
// to.
func TestMockfsExports(t *testing.T) {
	ours := functions(t, mockfs())
	out := run(t, nil, "gcc", "-E", "-D_GNU_SOURCE", filepath.Join(root, "tests", "testdata", "mockfs", "headers.c")).succeeds(t).stdout
	out = regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(out, "")
	prototype := regexp.MustCompile(`\b(\w+) *\(([^;{}]*?\b__(?:path|file|filename|filename_|dir|name|from|old|oldpath|pathname|pattern|words)\b[^;{}]*?)\)`)
	libc := functions(t, strings.TrimSpace(run(t, nil, "gcc", "-print-file-name=libc.so.6").succeeds(t).stdout))
	for _, name := range ours {
		assert.Contains(t, libc, name, "exported, and none of libc's")
	}
	var open []string
	for _, m := range prototype.FindAllStringSubmatch(out, -1) {
		_, excused := unserved[m[1]]
		if slices.Contains(libc, m[1]) && strings.Contains(m[2], "char") && !slices.Contains(ours, m[1]) && !excused {
			open = append(open, m[1])
		}
	}
	slices.Sort(open)
	assert.Equal(t, notPaths, slices.Compact(open))
}

// notPaths are functions with a parameter that is named like a path but is none.
var notPaths = []string{"confstr", "fgetxattr", "fremovexattr", "fsetxattr", "getdomainname", "getenv", "gethostname", "getlogin_r",
	"glob_pattern_p", "secure_getenv", "setdomainname", "setenv", "sethostname", "setlogin", "unsetenv"}

// functions lists what a library of this project, or libc, defines for others.
func functions(t *testing.T, path string) []string {
	t.Helper()
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	require.NoError(t, err)
	var names []string
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_BIND(s.Info) != elf.STB_LOCAL {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
