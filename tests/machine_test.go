package tests

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bundleDir is the folder of bundle.
var bundleDir string

func removeBundle() {
	if bundleDir != "" {
		os.RemoveAll(bundleDir)
	}
}

// bundle is a copy of the build results in a folder that every user can read.
var bundle = sync.OnceValues(func() (string, error) {
	build := exec.Command("make", "--no-print-directory", "-C", root, "all", "musl")
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make all musl: %w\n%s", err, text)
	}
	dir, err := os.MkdirTemp("", "nvmlfab-bundle-*")
	if err != nil {
		return "", err
	}
	bundleDir = dir
	syscall.ForkLock.RLock() // as writeProgram does
	defer syscall.ForkLock.RUnlock()
	for _, part := range []string{"bin", "lib", "nvml"} {
		if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join(root, "dist", part))); err != nil {
			return "", err
		}
	}
	return dir, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chmod(path, 0o755))
	})
})

// launcher is the command nvmlfab.
func launcher(t *testing.T) string {
	t.Helper()
	dir, err := bundle()
	require.NoError(t, err)
	return filepath.Join(dir, "bin", "nvmlfab")
}

// namespaces skips the test if this machine does not allow mount namespaces.
func namespaces(t *testing.T) {
	t.Helper()
	if out := run(t, nil, launcher(t), "run", "--namespace", "--", "true"); out.code != 0 {
		skip(t, out.stderr)
	}
}

// tool is the path of a program on this machine; without it the test is skipped.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		skip(t, err.Error())
	}
	return path
}

// systemPython is the distribution's Python, which every user may run, or else any Python.
func systemPython(t *testing.T) string {
	if path := "/usr/bin/python3"; exists(path) {
		return path
	}
	return tool(t, "python3")
}

// machineProgram builds a program in testdata/machine, in C or Go, and returns its path.
func machineProgram(t *testing.T, name string, flags ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nvmlfab-test-*")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	program := filepath.Join(dir, name)
	source := filepath.Join(root, "tests", "testdata", "machine", name)
	if exists(source + ".c") {
		args := append([]string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, source + ".c"}, flags...)
		run(t, nil, "gcc", args...).succeeds(t)
	} else {
		run(t, []string{"CGO_ENABLED=0"}, "go", "build", "-o", program, source).succeeds(t)
	}
	return program
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// nobody is a command prefix that runs a program as a user without rights. It is empty if the test has no rights
// itself.
func nobody(t *testing.T) []string {
	if os.Geteuid() != 0 {
		return nil
	}
	return []string{tool(t, "setpriv"), "--reuid", "65534", "--regid", "65534", "--clear-groups"}
}

func mustBoard(t *testing.T, name string) *profiles.Board {
	t.Helper()
	board, err := profiles.Shipped(name)
	require.NoError(t, err)
	return board
}

// busIDs are the addresses of a board's GPUs, as Linux writes them.
func busIDs(t *testing.T, name string) []string {
	t.Helper()
	var ids []string
	for _, d := range mustBoard(t, name).Devices {
		id := d.PCI.BusID.Value
		ids = append(ids, fmt.Sprintf("%04x:%02x:%02x.%x", id.Domain, id.Bus, id.Device, id.Function))
	}
	return ids
}

const printBusIDs = `
from pynvml import *
nvmlInit()
for i in range(nvmlDeviceGetCount()):
    id = nvmlDeviceGetPciInfo(nvmlDeviceGetHandleByIndex(i)).busId
    print(id if isinstance(id, str) else id.decode())
`

// sees checks that a program with a command prefix prints the board's bus ids, one per line.
func sees(t *testing.T, want []string, command ...string) {
	t.Helper()
	out := run(t, nil, command[0], command[1:]...).succeeds(t)
	var got []string
	for _, line := range out.lines() {
		id := strings.ToLower(strings.Fields(line)[0])
		if len(id) == len("00000000:53:00.0") {
			id = id[4:]
		}
		got = append(got, id)
	}
	assert.Equal(t, want, got, "%s", out.command)
}

// TestMachineAgreement: nvidia-smi, lspci, a Python program with NVIDIA's bindings and a static Go program see the same
// GPUs, as any user.
func TestMachineAgreement(t *testing.T) {
	namespaces(t)
	lspci := tool(t, "lspci")
	goprog := machineProgram(t, "goprog")
	smi := copied(t, fetched(t, "nvidia-smi-550", "nvidia-smi"))
	modules := filepath.Dir(copied(t, fetched(t, "pynvml-12", "pynvml.py")))
	python := systemPython(t)
	users := map[string][]string{"as this user": nil, "as nobody": nobody(t)}
	if run(t, nil, "unshare", "-Ur", "true").code == 0 {
		users["in a user namespace"] = []string{"unshare", "-Ur"}
		users["as nobody in a user namespace"] = append(nobody(t), "unshare", "-Ur")
	}
	for user, prefix := range users {
		for _, profile := range []string{"h100", "t4", "a100-sxm4-40gb", "gb200"} {
			t.Run(user+"/"+profile, func(t *testing.T) {
				want := busIDs(t, profile)
				command := append(prefix[:len(prefix):len(prefix)], launcher(t), "run", "--namespace", "--profile", profile, "--")
				with := func(program ...string) []string { return append(command[:len(command):len(command)], program...) }
				sees(t, want, with(smi, "--query-gpu=pci.bus_id", "--format=csv,noheader")...)
				sees(t, want, with(lspci, "-D", "-d", "10de::0302")...)
				sees(t, want, with("env", "PYTHONPATH="+modules, "PYTHONDONTWRITEBYTECODE=1", python, "-c", printBusIDs)...)
				sees(t, want, with(goprog)...)
			})
		}
	}
}

// copied is a copy of a file that every user can read.
func copied(t *testing.T, path string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nvmlfab-test-*")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	to := filepath.Join(dir, filepath.Base(path))
	writeProgram(t, to, data)
	return to
}

// TestMachineHost: the machine's own files stay where they were.
func TestMachineHost(t *testing.T) {
	namespaces(t)
	script := `
for d in /sys/class/net/* /sys/block/* /sys/class/tty/console; do readlink -f $d; done
cat /sys/class/net/*/mtu /sys/block/*/size
ls -a /dev | grep -v '^\.nvmlfab$' | grep -v nvidia
ls /sys /sys/bus /sys/class /sys/kernel /proc/sys
ls -l /dev/null /dev/zero /dev/urandom /dev/tty | awk '{print $1, $5, $6, $NF}'
for d in /sys/bus/pci/devices/*; do case $(cat $d/vendor $d/class) in 0x10de*|*0x0604*) ;; *) readlink -f $d; cksum < $d/config;; esac; done
stat -fc %T /sys /proc /sys/fs/cgroup /dev/pts /dev/shm
`
	for user, prefix := range map[string][]string{"as this user": nil, "as nobody": nobody(t)} {
		t.Run(user, func(t *testing.T) {
			outside := append(prefix[:len(prefix):len(prefix)], "sh", "-c", script)
			inside := append(append(prefix[:len(prefix):len(prefix)], launcher(t), "run", "--namespace", "--"), "sh", "-c", script)
			want := run(t, nil, outside[0], outside[1:]...).succeeds(t)
			got := run(t, nil, inside[0], inside[1:]...).succeeds(t)
			assert.Equal(t, want.stdout, got.stdout)
		})
	}
}

// TestMachineClash: a staged GPU at the address of a real device hides that device, and no other.
func TestMachineClash(t *testing.T) {
	namespaces(t)
	links, err := filepath.Glob("/sys/class/*/*")
	require.NoError(t, err)
	for _, link := range links {
		target, err := filepath.EvalSymlinks(link)
		require.NoError(t, err)
		bdf := regexp.MustCompile(`^/sys/devices/pci[^/]+/(\w{4}:\w\w:\w\w\.\d)/.+`).FindStringSubmatch(target)
		if bdf == nil {
			continue
		}
		mine := filepath.Join(t.TempDir(), "mine.yaml")
		require.NoError(t, os.WriteFile(mine, []byte("extends: t4\ndevices: [{pci: {bus_id: \""+bdf[1]+"\"}}]\n"), 0o644))
		out := run(t, nil, launcher(t), "run", "--namespace", "--profile", mine, "--", "sh", "-c",
			"cat /sys/bus/pci/devices/"+bdf[1]+"/vendor; readlink -f "+link).succeeds(t)
		assert.Equal(t, []string{"0x10de", target}, out.lines())
		return
	}
	t.Log("nothing of this machine belongs to a PCI device")
}

// TestMachineIsolation: two launches at the same time with different profiles do not see each other, and the machine
// sees neither.
func TestMachineIsolation(t *testing.T) {
	namespaces(t)
	goprog := machineProgram(t, "goprog")
	before := snapshot(t)
	for range 4 {
		for _, profile := range []string{"h100", "t4"} {
			t.Run(profile, func(t *testing.T) {
				t.Parallel()
				for range 5 {
					sees(t, busIDs(t, profile), launcher(t), "run", "--namespace", "--profile", profile, "--", goprog)
				}
			})
		}
	}
	t.Cleanup(func() { assert.Equal(t, before, snapshot(t)) })
}

// snapshot is the state that a launch must not change.
func snapshot(t *testing.T) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	list := func(dir string) string {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		var names []string
		for _, e := range entries {
			if dir != "/dev" || strings.Contains(e.Name(), "nv") {
				names = append(names, e.Name())
			}
		}
		return strings.Join(names, "\n")
	}
	return string(mounts) + list("/dev") + list("/sys/devices") + list("/sys/bus/pci/devices") + list("/sys/module")
}

// TestMachineInsideItself: a launch inside another launch replaces it.
func TestMachineInsideItself(t *testing.T) {
	namespaces(t)
	goprog := machineProgram(t, "goprog")
	sees(t, busIDs(t, "t4"), launcher(t), "run", "--profile", "h100", "--", launcher(t), "run", "--profile", "t4", "--", goprog)
	if os.Geteuid() != 0 {
		return
	}
	prefix := nobody(t)
	sees(t, busIDs(t, "h100"), append(prefix, launcher(t), "run", "--profile", "h100", "--", launcher(t), "run", "--profile", "h100", "--", goprog)...)
}

// TestMachinePassesThrough: a program finds the same state as without the launcher.
func TestMachinePassesThrough(t *testing.T) {
	namespaces(t)
	script := `id -u; id -g; umask; pwd; ulimit -n; echo "$A"; cat; exec 9<&- ; ls /proc/self/fd | wc -l; grep -E '^(Sig(Blk|Ign)|Cap(Inh|Prm|Eff|Amb))' /proc/self/status; sleep 0 & wait; echo $?`
	for user, prefix := range map[string][]string{"as this user": nil, "as nobody": nobody(t)} {
		t.Run(user, func(t *testing.T) {
			runs := func(launch ...string) string {
				command := append(append(prefix[:len(prefix):len(prefix)], launch...), "sh", "-c", script)
				cmd := exec.Command(command[0], command[1:]...)
				cmd.Dir, cmd.Env = "/sys/class", append(environ(), "A=a b")
				cmd.Stdin = strings.NewReader("input")
				text, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s", text)
				return string(text)
			}
			assert.Equal(t, runs(), runs(launcher(t), "run", "--namespace", "--"))
		})
	}
	t.Run("status", func(t *testing.T) {
		assert.Equal(t, 42, run(t, nil, launcher(t), "run", "--", "sh", "-c", "exit 42").code)
	})
	t.Run("terminal", func(t *testing.T) {
		script := tool(t, "script")
		out := run(t, nil, script, "-qec", launcher(t)+" run --namespace -- sh -c 'tty; test -t 0 && test -w $(tty) && echo yes > /dev/tty'", "/dev/null").succeeds(t)
		assert.Regexp(t, `(?s)^/dev/pts/\d+\r\nyes`, out.stdout)
	})
	t.Run("a new terminal", func(t *testing.T) {
		run(t, nil, launcher(t), "run", "--namespace", "--", tool(t, "script"), "-qec", "true", "/dev/null").succeeds(t)
	})
}

// TestMachineRootWithout: if a container's root may not mount, the program still has all users and groups, or a line
// says that it has not.
func TestMachineRootWithout(t *testing.T) {
	namespaces(t)
	if os.Geteuid() != 0 {
		skip(t, "only root can take rights from root")
	}
	if run(t, nil, "setpriv", "--bounding-set=-sys_admin", "unshare", "-Ur", "true").code != 0 {
		skip(t, "without rights there are no user namespaces here")
	}
	script := `set -e; touch $1; chown 1234:5678 $1; stat -c %u:%g $1; setpriv --reuid 65534 --regid 65534 --clear-groups id -u; cat /proc/self/uid_map`
	file := filepath.Join(t.TempDir(), "file")
	all, err := os.ReadFile("/proc/self/uid_map")
	require.NoError(t, err)
	var first, second, count string
	_, err = fmt.Sscan(string(all), &first, &second, &count)
	require.NoError(t, err)
	out := run(t, nil, "setpriv", "--bounding-set=-sys_admin", launcher(t), "run", "--namespace", "--", "sh", "-c", script, "sh", file).succeeds(t)
	require.Len(t, out.lines(), 3)
	assert.Equal(t, []string{"1234:5678", "65534"}, out.lines()[:2])
	assert.Equal(t, []string{first, first, count}, strings.Fields(out.lines()[2]))
	assert.Empty(t, out.stderr)

	out = run(t, nil, "setpriv", "--bounding-set=-sys_admin,-setgid", launcher(t), "run", "--namespace", "--", "id", "-u")
	assert.Equal(t, "0\n", out.stdout)
	assert.Contains(t, out.complains(t), "CAP_SETUID, CAP_SETGID")
}

// TestMachineClosed: closed descriptors stay closed.
func TestMachineClosed(t *testing.T) {
	namespaces(t)
	for user, prefix := range map[string][]string{"as this user": nil, "as nobody": nobody(t)} {
		for _, closed := range []string{"0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"} {
			t.Run(user+" "+closed, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "open")
				require.NoError(t, os.WriteFile(file, nil, 0o666))
				require.NoError(t, os.Chmod(file, 0o666))
				require.NoError(t, os.Chmod(filepath.Dir(file), 0o755))
				require.NoError(t, os.Chmod(filepath.Dir(filepath.Dir(file)), 0o755))
				// If the launcher opened a file in the place of a closed one, the program writes its number to 9.
				program := `for fd in 0 1 2; do [ -e /proc/$$/fd/$fd ] && echo $fd >&9; done; :`
				script := `exec 9>"$0"; "$@" ` + closed
				args := append(append(prefix[:len(prefix):len(prefix)], "sh", "-c", script, file, launcher(t), "run", "--namespace", "--"), "sh", "-c", program)
				run(t, nil, args[0], args[1:]...).succeeds(t)
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				want := ""
				for _, fd := range []string{"0", "1", "2"} {
					if !strings.Contains(closed, fd+"<&-") && !strings.Contains(closed, fd+">&-") {
						want += fd + "\n"
					}
				}
				assert.Equal(t, want, string(text))
			})
		}
	}
}

// TestMachineVariables: no variable changes how a program is launched, and without PATH programs are found as by
// execvp.
func TestMachineVariables(t *testing.T) {
	namespaces(t)
	for user, prefix := range map[string][]string{"as this user": nil, "as nobody": nobody(t)} {
		t.Run(user, func(t *testing.T) {
			args := append(append(prefix[:len(prefix):len(prefix)], "env", "NVMLFAB_ENTERED=1", launcher(t), "run", "--"), "grep", "-c", "^nvmlfab ", "/proc/self/mounts")
			out := run(t, nil, args[0], args[1:]...).succeeds(t)
			assert.NotEqual(t, "0\n", out.stdout)
			assert.Empty(t, out.stderr)
			args = append(append(prefix[:len(prefix):len(prefix)], "env", "-u", "PATH", launcher(t), "run", "--"), "env")
			out = run(t, nil, args[0], args[1:]...).succeeds(t)
			assert.NotRegexp(t, "(?m)^PATH=", out.stdout)
		})
	}
}

// TestMachineReadOnly: root cannot write files that nobody can write in sysfs, and other files stay writable.
func TestMachineReadOnly(t *testing.T) {
	namespaces(t)
	script := `cd /sys/bus/pci/devices; cat */vendor > $1/before; if (echo 0xdead > $2/vendor) 2>/dev/null; then echo written; fi
truncate -s 0 $2/vendor 2>/dev/null && echo cut; cat */vendor | cmp - $1/before && echo same; cd $2; echo 1 > enable && cat enable; stat -c %U%h vendor`
	out := run(t, nil, launcher(t), "run", "--namespace", "--", "sh", "-c", script, "sh", t.TempDir(), busIDs(t, "h100")[0]).succeeds(t)
	assert.Equal(t, "same", out.lines()[0])
	if os.Geteuid() == 0 {
		assert.Equal(t, []string{"same", "1", "root1"}, out.lines())
	}
}

// TestMachineKilled: a launch that is killed at any moment leaves nothing.
func TestMachineKilled(t *testing.T) {
	namespaces(t)
	launches := 200
	if n, err := strconv.Atoi(os.Getenv("NVMLFAB_LAUNCHES")); err == nil {
		launches = n
	}
	before := snapshot(t)
	for user, prefix := range map[string][]string{"as this user": nil, "as nobody": nobody(t)} {
		for i := range launches / 2 {
			command := append(prefix[:len(prefix):len(prefix)], launcher(t), "run", "--namespace", "--", "sleep", "600")
			if i%4 == 0 {
				command = append(command[:len(command)-2], "true")
			}
			cmd := exec.Command(command[0], command[1:]...)
			cmd.Env = environ()
			require.NoError(t, cmd.Start(), user)
			if i%4 != 0 {
				time.Sleep(time.Duration(i%40) * time.Millisecond)
				require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
			}
			cmd.Wait()
		}
	}
	assert.Equal(t, before, snapshot(t))
	processes, err := filepath.Glob("/proc/[0-9]*/exe")
	require.NoError(t, err)
	for _, exe := range processes {
		target, _ := os.Readlink(exe)
		assert.False(t, strings.HasPrefix(target, filepath.Dir(filepath.Dir(launcher(t)))), "%s runs %s", exe, target)
	}
}

// TestMachineChanged: --gpus and --driver change the profile in NVML as well as in /proc and /sys.
func TestMachineChanged(t *testing.T) {
	namespaces(t)
	goprog := machineProgram(t, "goprog")
	smi := fetched(t, "nvidia-smi-550", "nvidia-smi")
	mine := filepath.Join(t.TempDir(), "mine.yaml")
	require.NoError(t, os.WriteFile(mine, []byte("extends: h100\ncount: 8\n"), 0o644))
	for _, profile := range []string{"h100", mine} {
		command := []string{"run", "--namespace", "--profile", profile, "--gpus", "2", "--driver", "550.163.01", "--"}
		sees(t, busIDs(t, "h100")[:2], append([]string{launcher(t)}, append(command, goprog)...)...)
		out := run(t, nil, launcher(t), append(command, smi, "--query-gpu=driver_version,pci.bus_id", "--format=csv,noheader")...).succeeds(t)
		assert.Equal(t, []string{"550.163.01, 00000000:53:00.0", "550.163.01, 00000000:64:00.0"}, out.lines())
		out = run(t, nil, launcher(t), append(command, "cat", "/proc/driver/nvidia/version", "/sys/module/nvidia/version")...).succeeds(t)
		assert.Len(t, regexp.MustCompile(`\b550\.163\.01\b`).FindAllString(out.stdout, -1), 2)
	}
}

// TestMachineLibraries: the dynamic linker finds the library without any variable.
func TestMachineLibraries(t *testing.T) {
	namespaces(t)
	python := systemPython(t)
	program := `import ctypes; nvml = ctypes.CDLL("libnvidia-ml.so.1"); print(nvml.nvmlInit_v2())`
	out := run(t, nil, launcher(t), "run", "--namespace", "--", "env", "-i", python, "-c", program).succeeds(t)
	assert.Equal(t, "0\n", out.stdout)
}

// BenchmarkMachineLaunch compares the launch of a minimal program with the program alone.
func BenchmarkMachineLaunch(b *testing.B) {
	dir, err := bundle()
	if err != nil {
		b.Fatal(err)
	}
	for name, command := range map[string][]string{
		"alone":    {"true"},
		"launched": {filepath.Join(dir, "bin", "nvmlfab"), "run", "--namespace", "--", "true"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := exec.Command(command[0], command[1:]...).Run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
