package tests

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// architecture is a machine type on which the filter is tested.
type architecture struct {
	name, filter, gcc string
	run               []string // the command that runs its programs
}

var architectures = []architecture{
	{"amd64", "lib/libnvgpufilter.so", "gcc", nil},
	{"arm64", "arm64/lib/libnvgpufilter.so", "aarch64-linux-gnu-gcc", []string{"qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"}},
}

// cc compiles a C source of testdata/gpufilter for the machine.
func (m architecture) cc(t *testing.T, output, source string, flags ...string) string {
	t.Helper()
	args := append([]string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-o", output, "tests/testdata/gpufilter/" + source}, flags...)
	run(t, nil, m.gcc, args...).succeeds(t)
	return output
}

// fakes are the linker options with which a library of NVIDIA's may have been built.
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

// others call ioctl too, but the filter must not change them.
var others = []string{"libother.so", "libcudart.so.1", "libcuda.sox", "mylibcuda.so.1", "libnvidia-ml.so.1"}

// here skips the test if programs for the machine cannot be built or run here.
func (m architecture) here(t *testing.T) {
	t.Helper()
	for _, tool := range append([]string{m.gcc}, m.run...)[:1+min(1, len(m.run))] {
		if _, err := exec.LookPath(tool); err != nil {
			skip(t, err.Error())
		}
	}
}

// stage builds the program, the filter and all libraries into one folder.
func (m architecture) stage(t *testing.T) string {
	t.Helper()
	m.here(t)
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

// slots counts the slots of ioctl in a library with binutils.
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

// gpu is a GPU of the host in a test: its address, its minor number, and the state of its device node.
type gpu struct {
	address string
	minor   int
	node    string // "opens", "fails", or "missing"
}

// The emulator's GPUs have the ids 0x100, 0x200, 0x10100 and 0x300.
var someHidden = []gpu{{"0000:01:00.0", 3, "opens"}, {"0000:02:00.0", 0, "missing"}, {"0001:01:00.0", 1, "fails"}, {"0000:03:00.0", 2, "opens"}}

// privately runs a program as root with its own /dev, /proc/driver and PCI drivers in /sys, which show the GPUs.
func privately(t *testing.T, gpus []gpu, env []string, name string, args ...string) outcome {
	t.Helper()
	namespace(t, "--mount")
	var script strings.Builder
	script.WriteString(`set -eu
umask 0
mount -t tmpfs -o mode=755 none /dev
mknod /dev/null c 1 3
mknod /dev/zero c 1 5
mknod /dev/urandom c 1 9
mknod /dev/nvidiactl c 1 3
mknod /dev/nvidia-uvm c 1 3
mkdir /dev/char
mount -t tmpfs -o mode=755 none /proc/driver
mkdir -p /proc/driver/nvidia/gpus
echo 'ModifyDeviceFiles: 0' >/proc/driver/nvidia/params
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
			fmt.Fprintf(&script, "mknod /dev/nvidia%d c 4095 0\n", g.minor)
		}
	}
	script.WriteString(`exec "$@"` + "\n")
	return run(t, env, "unshare", append([]string{"--mount", "sh", "-c", script.String(), "sh", name}, args...)...)
}

// session runs host in dir with commands. Names of libraries are replaced by their paths.
func (m architecture) session(t *testing.T, dir string, gpus []gpu, env []string, commands ...string) outcome {
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

// TestGPUFilter: tests that do not depend on the architecture run only on the first one, where programs run fast.
func TestGPUFilter(t *testing.T) {
	for i, m := range architectures {
		t.Run(m.name, func(t *testing.T) {
			dir := m.stage(t)
			for _, c := range []struct {
				name string
				test func(architecture, *testing.T, string)
				all  bool
			}{
				{"patches", architecture.patches, true},
				{"answers", architecture.answers, true},
				{"bound import", architecture.boundImport, true},
				{"hosts", architecture.hosts, false},
				{"says what it did", architecture.saysWhatItDid, false},
				{"after unloading", architecture.afterUnloading, false},
				{"after lazy binding", architecture.afterLazyBinding, false},
				{"without control device", architecture.withoutControlDevice, false},
				{"after fork", architecture.afterFork, false},
				{"storm", architecture.storm, false},
			} {
				if c.all || i == 0 {
					t.Run(c.name, func(t *testing.T) { c.test(m, t, dir) })
				}
			}
		})
	}
}

// patches: exactly the slots of ioctl change, in all kinds of libraries and in no others. Pages keep their protection,
// and a second installation changes nothing.
func (m architecture) patches(t *testing.T, dir string) {
	var load, ask, want, unfiltered, filtered []string
	for _, name := range others {
		load = append(load, "load "+name)
	}
	for _, name := range slices.Sorted(maps.Keys(fakes)) {
		load, ask = append(load, "load "+name), append(ask, "ask "+name+askAttached)
		n := slots(t, filepath.Join(dir, name))
		require.NotZero(t, n, name)
		want = append(want, slices.Repeat([]string{name + ": a word now points into libnvgpufilter.so"}, n)...)
		calls := 1
		if slices.Contains(fakes[name], "-DADDRESS") {
			calls = 2
		}
		unfiltered = append(unfiltered, slices.Repeat([]string{name + " 0 errno 77: 100 200 10100 300"}, calls)...)
		filtered = append(filtered, slices.Repeat([]string{name + " 0 errno 77: 100 300"}, calls)...)
	}
	want = append(want, "install 0", fmt.Sprintf("%d words changed", len(want)), "install 0", "0 words changed")
	slices.Sort(want)
	session := func(commands ...[]string) outcome {
		out := m.session(t, dir, someHidden, nil, slices.Concat(commands...)...).succeeds(t)
		assert.Empty(t, out.stderr)
		return out
	}
	filter, check := []string{"filter"}, []string{"mark", "install", "changes", "mark", "install", "changes"}

	t.Run("loaded before", func(t *testing.T) {
		assert.Equal(t, want, slices.Sorted(slices.Values(session(load, filter, check).lines())))
	})
	t.Run("loaded after", func(t *testing.T) {
		out := session(filter, []string{"install"}, load, check)
		assert.Equal(t, "install 0", out.lines()[0])
		assert.Equal(t, want, slices.Sorted(slices.Values(out.lines()[1:])))
	})
	t.Run("after lazy binding", func(t *testing.T) {
		out := session(filter, load, ask, check, ask, ask)
		n := len(unfiltered)
		assert.Equal(t, unfiltered, out.lines()[:n])
		assert.Equal(t, want, slices.Sorted(slices.Values(out.lines()[n:n+len(want)])))
		assert.Equal(t, append(slices.Clone(filtered), filtered...), out.lines()[n+len(want):])
	})
	t.Run("others", func(t *testing.T) {
		commands, want := slices.Concat(filter, load, []string{"install"}), []string{"install 0"}
		for _, name := range others {
			commands, want = append(commands, "ask "+name+askAttached), append(want, name+" 0 errno 77: 100 200 10100 300")
		}
		assert.Equal(t, want, session(commands).lines())
	})
}

// answers: which answers the hook changes, and which it does not.
func (m architecture) answers(t *testing.T, dir string) {
	const (
		all4, some    = "100 200 10100 300", "100 300"
		probed        = "100 200 10100 300 excluded 200"
		flagged, none = "100/1 200/2 10100/3 300/4 excluded 200", ""
	)
	calls := []struct{ call, want string }{
		{"/dev/nvidiactl 0xC020462A 0x201 128 0 ok", "0: " + some},
		{"/dev/nvidiactl 0xC020462A 0x214 256 0 ok", "0: 100 300 excluded 200"},
		{"/dev/nvidiactl 0xC020462A 0x214 384 0 ok", "0: 100/1 300/4 excluded 200"},
		{"/dev/nvidiactl 0xC028462A 0x201 128 0 ok", "0: " + some},                         // another size of NVOS54
		{"/dev/nvidiactl 0xFFFFFFFFC020462A 0x201 128 0 ok", "0: " + some},                 // a request that was an int
		{"/dev/nvidiactl 0xC020462A 0x201 128 0x20 ok", "0: " + some},                      // another flag
		{"/dev/nvidiactl 0xC020462A 0x201 256 0 ok", "0: " + probed},                       // the size of the other command
		{"/dev/nvidiactl 0xC020462A 0x214 128 0 ok", "0: " + all4},                         // the size of the other command
		{"/dev/nvidiactl 0xC020462A 0x201 132 0 ok", "0: " + all4},                         // the size of no command
		{"/dev/nvidiactl 0xC020462A 0x214 380 0 ok", "0: " + probed},                       // the size of no command
		{"/dev/nvidiactl 0xC020462A 0x215 128 0 ok", "0: " + all4},                         // another command
		{"/dev/nvidiactl 0xC020462A 0x201 128 4 ok", "0: " + all4},                         // FINN-serialised
		{"/dev/nvidiactl 0xC020462A 0x201 128 0 status", "0: " + all4},                     // refused by the RM
		{"/dev/nvidiactl 0xC020462A 0x201 128 0 error", "-1:" + none},                      // refused by the kernel
		{"/dev/nvidiactl 0xC020462B 0x201 128 0 ok", "0: " + all4},                         // another number
		{"/dev/nvidiactl 0xC020472A 0x201 128 0 ok", "0: " + all4},                         // another type
		{"/dev/nvidiactl 0x8020462A 0x201 128 0 ok", "0: " + all4},                         // another direction
		{"/dev/nvidiactl 0xC01046D3 0x201 128 0 ok", "0: " + all4},                         // XFER
		{"/dev/zero 0xC020462A 0x214 384 0 ok", "0: " + flagged},                           // another device
		{"none 0xC020462A 0x201 128 0 ok", "-1:" + none},                                   // no device number to compare with
		{filepath.Join(dir, "libother.so") + " 0xC020462A 0x214 256 0 ok", "0: " + probed}, // no device at all
	}
	commands := []string{"filter", "load libcuda.so.1", "install"}
	for _, c := range calls {
		commands = append(commands, "ask libcuda.so.1 "+c.call)
	}
	out := m.session(t, dir, someHidden, nil, commands...).succeeds(t)
	for i, c := range calls {
		line := regexp.MustCompile(` errno \d+`).ReplaceAllString(out.lines()[i+1], "")
		assert.Equal(t, "libcuda.so.1 "+c.want, line, c.call)
	}
	// a successful call keeps the caller's errno, a failing one sets the kernel's
	out = m.session(t, dir, someHidden, nil, "filter", "load libcuda.so.1", "install",
		"ask libcuda.so.1 /dev/zero 0xC020462A 0x201 128 0 ok", "ask libcuda.so.1 closed 0xC020462A 0x201 128 0 ok",
		"ask libcuda.so.1 /dev/zero 0xC020462A 0x201 128 0 error").succeeds(t)
	assert.Equal(t, []string{"libcuda.so.1 0 errno 77: 100 200 10100 300", "libcuda.so.1 0 errno 77: 100 200 10100 300", "libcuda.so.1 -1 errno 4:"}, out.lines()[1:])
}

// hosts: the filter is installed only if some GPUs are hidden, but not all of them.
func (m architecture) hosts(t *testing.T, dir string) {
	node := func(node string) gpu { return gpu{"0000:01:00.0", 5, node} }
	for name, c := range map[string]struct {
		gpus  []gpu
		env   []string
		ids   string
		words int
	}{
		"some hidden":        {someHidden, nil, "100 300", 1},
		"on, explicitly":     {someHidden, []string{"NVMLFAB_GPUFILTER=on"}, "100 300", 1},
		"off":                {someHidden, []string{"NVMLFAB_GPUFILTER=off"}, "100 200 10100 300", 0},
		"no driver":          {nil, nil, "100 200 10100 300", 0},
		"none hidden":        {[]gpu{node("opens")}, nil, "100 200 10100 300", 0},
		"all hidden":         {[]gpu{node("fails"), {"0000:02:00.0", 1, "missing"}}, nil, "100 200 10100 300", 0},
		"others hidden":      {[]gpu{node("opens"), {"0000:99:00.0", 1, "missing"}}, nil, "100", 1},
		"others reachable":   {[]gpu{{"0000:99:00.0", 1, "opens"}, {"0000:02:00.0", 2, "fails"}}, nil, "100 200 10100 300", 1},
		"same bus, reversed": {[]gpu{{"0000:01:00.0", 1, "missing"}, {"0001:01:00.0", 2, "opens"}}, nil, "10100", 1},
	} {
		t.Run(name, func(t *testing.T) {
			out := m.session(t, dir, c.gpus, c.env, "filter", "load libcuda.so.1", "mark", "install", "changes",
				"ask libcuda.so.1"+askAttached).succeeds(t)
			assert.Empty(t, out.stderr)
			assert.Contains(t, out.lines(), fmt.Sprintf("%d words changed", c.words))
			assert.Equal(t, "libcuda.so.1 0 errno 77: "+c.ids, out.lines()[len(out.lines())-1])
		})
	}
}

func (m architecture) saysWhatItDid(t *testing.T, dir string) {
	out := m.session(t, dir, someHidden, []string{"NVMLFAB_DEBUG=1"}, "filter", "load libcuda.so.1", "install").succeeds(t)
	assert.Equal(t, "nvmlfab: gpufilter: GPUs that open: 0x100 0x300; that do not: 0x200 0x10100\n"+
		"nvmlfab: gpufilter: "+filepath.Join(dir, "libcuda.so.1")+": 1 of 1 slots of ioctl changed\n", out.stderr)
}

func (m architecture) boundImport(t *testing.T, dir string) {
	out := m.session(t, dir, someHidden, nil, "filter", "load libcuda.so.1", "load libnvcuvid.so.1", "load libother.so",
		"bound libcuda ioctl", "bound libnvcuvid ioctl", "ask libcuda.so.1"+askAttached, "bound libcuda ioctl", "install",
		"bound libcuda ioctl", "bound libnvcuvid ioctl", "bound libother ioctl", "bound libnvcuvid getppid",
		"bound libnvcuvid no_such_symbol", "bound libnothing ioctl").succeeds(t)
	assert.Equal(t, []string{
		"ioctl in libcuda: libcuda.so.1", // lazy, and not called yet
		"ioctl in libnvcuvid: host",
		"libcuda.so.1 0 errno 77: 100 200 10100 300",
		"ioctl in libcuda: host",
		"install 0",
		"ioctl in libcuda: libnvgpufilter.so",
		"ioctl in libnvcuvid: libnvgpufilter.so",
		"ioctl in libother: libother.so",
		"getppid in libnvcuvid: libc.so.6",
		"no_such_symbol in libnvcuvid: nowhere",
		"ioctl in libnothing: nowhere",
	}, out.lines())
}

// afterUnloading: a library that is loaded again is changed again.
func (m architecture) afterUnloading(t *testing.T, dir string) {
	out := m.session(t, dir, someHidden, nil, "filter", "load libcuda.so.1", "install", "unload libcuda.so.1", "install", "load libcuda.so.1",
		"ask libcuda.so.1"+askAttached, "install", "ask libcuda.so.1"+askAttached).succeeds(t)
	assert.Equal(t, []string{"install 0", "install 0", "libcuda.so.1 0 errno 77: 100 200 10100 300", "install 0",
		"libcuda.so.1 0 errno 77: 100 300"}, out.lines())
}

// afterLazyBinding: a thread that was resolving the import at the time overwrites the slot, and the next installation
// changes it again.
func (m architecture) afterLazyBinding(t *testing.T, dir string) {
	out := m.session(t, dir, someHidden, nil, "filter", "load libcuda.so.1", "mark", "install", "undo", "changes", "install", "changes").succeeds(t)
	assert.Equal(t, []string{"install 0", "0 words changed", "install 0", "libcuda.so.1: a word now points into libnvgpufilter.so",
		"1 words changed"}, out.lines())
}

// withoutControlDevice: if there is no nvidiactl to compare with, the other checks decide.
func (m architecture) withoutControlDevice(t *testing.T, dir string) {
	out := m.session(t, dir, someHidden, nil, "remove /dev/nvidiactl", "filter", "load libcuda.so.1", "install",
		"ask libcuda.so.1 /dev/zero 0xC020462A 0x201 128 0 ok").succeeds(t)
	assert.Equal(t, []string{"install 0", "libcuda.so.1 0 errno 77: 100 300"}, out.lines())
}

// afterFork: the hook works in a child; a new installation fails there with a message.
func (m architecture) afterFork(t *testing.T, dir string) {
	out := m.session(t, dir, someHidden, nil, "filter", "load libcuda.so.1", "install", "fork", "ask libcuda.so.1"+askAttached, "fork",
		"ask libcuda.so.1"+askAttached, "install", "bound libcuda ioctl").succeeds(t)
	assert.Equal(t, []string{"install 0", "libcuda.so.1 0 errno 77: 100 300", "libcuda.so.1 0 errno 77: 100 300", "install -1",
		"ioctl in libcuda: nowhere"}, out.lines())
	assert.Equal(t, 2, strings.Count(out.stderr, "nvmlfab: gpufilter: the process has forked"), out.stderr)
}

// storm: threads make calls while children are forked and Go collects garbage, in a program in C, where a minimal heap
// makes collections frequent, and in a program in Go.
func (m architecture) storm(t *testing.T, dir string) {
	path := func(name string) string { return filepath.Join(dir, name) }
	t.Run("C", func(t *testing.T) {
		storm := m.cc(t, path("storm"), "storm.c", "-rdynamic", "-pthread")
		out := privately(t, someHidden, []string{"GOGC=1"}, storm, path("libnvgpufilter.so"), path("libcuda.so.1"), path("libnvcuvid.so.1")).succeeds(t)
		assert.Equal(t, "0 wrong\n", out.stdout)
		t.Log(out.stderr)
	})
	t.Run("Go", func(t *testing.T) {
		run(t, []string{"CGO_ENABLED=1"}, "go", "build", "-o", path("gostorm"), "./tests/testdata/gpufilter/gostorm").succeeds(t)
		out := privately(t, someHidden, nil, path("gostorm"), path("libcuda.so.1")).succeeds(t)
		assert.Equal(t, "0 wrong\n", out.stdout)
		t.Log(out.stderr)
		out = privately(t, someHidden, []string{"GOGC=1"}, path("gostorm"), path("libcuda.so.1"), path("libnvgpufilter.so")).succeeds(t)
		assert.Equal(t, "0 wrong\n", out.stdout, "with the library instead of the package")
		t.Log(out.stderr)
	})
}

// TestGpufilterWithoutCgo: a build without cgo says what the filter needs, and nothing else.
func TestGpufilterWithoutCgo(t *testing.T) {
	o := run(t, []string{"CGO_ENABLED=0"}, "go", "build", "./shims/gpufilter")
	require.NotZero(t, o.code)
	require.Regexp(t, `^# \S+/shims/gpufilter\n\S+: undefined: the_NVENC_filter_needs_cgo_set_CGO_ENABLED_1_and_install_a_C_compiler\n$`, o.stderr)
}
