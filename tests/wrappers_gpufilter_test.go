package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// machine is an architecture on which the filter is tested.
type machine struct {
	name, filter, gcc string
	run               []string // what runs its programs
}

var machines = []machine{
	{"amd64", "lib/libnvgpufilter.so", "gcc", nil},
	{"arm64", "arm64/libnvgpufilter.so", "aarch64-linux-gnu-gcc", []string{"qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"}},
}

// cc compiles a C source of testdata/gpufilter for the machine.
func (m machine) cc(t *testing.T, output, source string, flags ...string) string {
	t.Helper()
	args := append([]string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-o", output, "tests/testdata/gpufilter/" + source}, flags...)
	run(t, nil, m.gcc, args...).succeeds(t)
	return output
}

// fakes are the ways in which a library of NVIDIA's may have been built.
var fakes = map[string][]string{
	"libcuda.so.1":               {"-Wl,-z,lazy,-z,relro"}, // as in 535 and 550
	"libcuda.so":                 {"-Wl,-z,lazy,-z,norelro", "-Wl,-z,separate-code"},
	"libcuda.so.570.00":          {"-Wl,-z,lazy", "-DADDRESS"},
	"libnvcuvid.so.1":            {"-Wl,-z,now,-z,relro"},
	"libnvcuvid.so.570.00":       {"-Wl,-z,now,-z,relro", "-DADDRESS"},
	"libnvidia-encode.so.1":      {"-fno-plt", "-Wl,-z,now,-z,relro"},
	"libnvidia-encode.so":        {"-fno-plt", "-Wl,-z,norelro"},
	"libnvidia-encode.so.570.00": {"-fno-plt", "-Wl,-z,lazy", "-DADDRESS"},
}

// others call ioctl, too, and are none of the filter's business.
var others = []string{"libother.so", "libcudart.so.1", "libcuda.sox", "mylibcuda.so.1", "libnvidia-ml.so.1"}

// stage builds the program, the filter and all libraries into one folder.
func (m machine) stage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	m.cc(t, filepath.Join(dir, "host"), "host.c", "-rdynamic")
	for name, flags := range fakes {
		m.cc(t, filepath.Join(dir, name), "fake.c", append(flags, "-shared", "-fPIC", "-Wl,-soname,"+name)...)
	}
	for _, name := range others {
		m.cc(t, filepath.Join(dir, name), "fake.c", "-shared", "-fPIC")
	}
	text, err := os.ReadFile(made(t, m.filter))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "libnvgpufilter.so"), text, 0o644))
	return dir
}

// slots counts the slots of ioctl in a library, as binutils sees them.
func slots(t *testing.T, path string) int {
	t.Helper()
	n := 0
	for _, line := range run(t, nil, "readelf", "-rW", path).succeeds(t).lines() {
		if regexp.MustCompile(`_(JUMP_SLOT?|GLOB_DAT) .* ioctl\b`).MatchString(line) {
			n++
		}
	}
	return n
}

// gpu is a GPU of the host in a test: its address, its minor number, and how its device node is.
type gpu struct {
	address string
	minor   int
	node    string // "opens", "fails", or "missing"
}

// The emulator's GPUs have the ids 0x100, 0x200, 0x10100 and 0x300.
var someHidden = []gpu{{"0000:01:00.0", 3, "opens"}, {"0000:02:00.0", 0, "missing"}, {"0001:01:00.0", 1, "fails"}, {"0000:03:00.0", 2, "opens"}}

// privately runs a program as root where /dev, /proc/driver and the PCI drivers in /sys are its own, with GPUs.
func privately(t *testing.T, gpus []gpu, env []string, name string, args ...string) outcome {
	t.Helper()
	if os.Getuid() != 0 {
		skip(t, "a private /dev takes root")
	}
	var script strings.Builder
	script.WriteString(`set -eu
umask 0
mount -t tmpfs -o mode=755 none /dev
mknod /dev/null c 1 3
mknod /dev/zero c 1 5
mknod /dev/urandom c 1 9
mknod /dev/nvidiactl c 1 3
mount -t tmpfs -o mode=755 none /proc/driver
mkdir -p /proc/driver/nvidia/gpus
if [ -d /sys/bus/pci/drivers ]; then
  mount -t tmpfs -o mode=755 none /sys/bus/pci/drivers
  mkdir /sys/bus/pci/drivers/nvidia
fi
`)
	for _, g := range gpus {
		fmt.Fprintf(&script, "mkdir /proc/driver/nvidia/gpus/%[1]s\nprintf 'Model: \\t\\t Fake\\nDevice Minor: \\t %[2]d\\n' >/proc/driver/nvidia/gpus/%[1]s/information\n", g.address, g.minor)
		switch g.node {
		case "opens":
			fmt.Fprintf(&script, "mknod /dev/nvidia%d c 1 3\n", g.minor)
		case "fails": // no driver has this number
			fmt.Fprintf(&script, "mknod /dev/nvidia%d c 511 250\n", g.minor)
		}
	}
	script.WriteString(`exec "$@"` + "\n")
	return run(t, env, "unshare", append([]string{"--mount", "sh", "-c", script.String(), "sh", name}, args...)...)
}

// session runs host in dir with commands. Names of libraries stand for their paths.
func (m machine) session(t *testing.T, dir string, gpus []gpu, env []string, commands ...string) outcome {
	t.Helper()
	argv := append(append([]string{}, m.run...), filepath.Join(dir, "host"))
	for _, c := range commands {
		word := strings.Fields(c)
		switch word[0] {
		case "filter":
			c += " " + filepath.Join(dir, "libnvgpufilter.so")
		case "load", "unload", "ask":
			word[1] = filepath.Join(dir, word[1])
			c = strings.Join(word, " ")
		}
		argv = append(argv, c)
	}
	return privately(t, gpus, env, argv[0], argv[1:]...)
}

const askAttached = " /dev/nvidiactl 0xC020462A 0x201 128 0 ok"

func TestGPUFilterPatches(t *testing.T) {
	for _, m := range machines {
		t.Run(m.name, func(t *testing.T) {
			dir := m.stage(t)
			for name := range fakes {
				t.Run(name, func(t *testing.T) {
					n := slots(t, filepath.Join(dir, name))
					require.NotZero(t, n)
					changed := strings.Repeat(name+": a word now points into libnvgpufilter.so\n", n)
					want := "install 0\n" + changed + fmt.Sprintf("%d words changed\ninstall 0\n0 words changed\n", n)
					var load []string
					for _, other := range others {
						load = append(load, "load "+other)
					}
					tail := []string{"mark", "install", "changes", "mark", "install", "changes"}
					before := append(append([]string{"load " + name, "filter"}, load...), tail...)
					after := append(append([]string{"filter", "install"}, append(load, "load "+name)...), tail...)

					out := m.session(t, dir, someHidden, nil, before...).succeeds(t)
					assert.Equal(t, want, out.stdout, "loaded before")
					assert.Empty(t, out.stderr)
					out = m.session(t, dir, someHidden, nil, after...).succeeds(t)
					assert.Equal(t, "install 0\n"+want, out.stdout, "loaded after")
					assert.Empty(t, out.stderr)

					out = m.session(t, dir, someHidden, nil, "filter", "load "+name, "ask "+name+askAttached, "install", "ask "+name+askAttached,
						"ask "+name+askAttached).succeeds(t)
					for i, line := range out.lines() {
						switch lines := len(out.lines()) / 3; {
						case i < lines:
							assert.Equal(t, name+" 0 errno 77: 100 200 10100 300", line)
						case i > lines:
							assert.Equal(t, name+" 0 errno 77: 100 300", line)
						}
					}
				})
			}
		})
	}
}
