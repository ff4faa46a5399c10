package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ibProgram compiles a program of testdata/infiniband.
func ibProgram(t *testing.T, name string) string {
	t.Helper()
	program := filepath.Join(sharedFolder(t), name)
	run(t, nil, "gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program,
		filepath.Join(root, "tests", "testdata", "infiniband", name+".c")).succeeds(t)
	return program
}

// ibPreload is LD_PRELOAD with the InfiniBand libraries.
func ibPreload() string {
	var list []string
	for _, name := range []string{"libibmockumad.so", "libibmockverbs.so", "libibmocksys.so"} {
		list = append(list, filepath.Join(library, name))
	}
	return "LD_PRELOAD=" + strings.Join(list, ":")
}

// TestInfiniBandOff: without MOCK_IB, or with a word that means nothing, the libraries make no system call of their own.
func TestInfiniBandOff(t *testing.T) {
	strace := tool(t, "strace")
	program := ibProgram(t, "off")
	trace := func(env ...string) string {
		file := filepath.Join(t.TempDir(), "trace")
		args := []string{"-o", file}
		for _, v := range env { // strace itself runs without
			args = append(args, "-E", v)
		}
		run(t, nil, strace, append(args, program)...).succeeds(t)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		between := regexp.MustCompile(`(?s)"begin\\n".*?\n(.*)write\(1, "end\\n"`).FindSubmatch(text)
		require.NotNil(t, between, string(text))
		calls := regexp.MustCompile(`(?m)^(\w+)\(.*$`).ReplaceAllString(string(between[1]), "$1")
		return calls
	}
	want := trace()
	assert.Greater(t, strings.Count(want, "\n"), 100)
	for _, off := range [][]string{{ibPreload()}, {ibPreload(), "MOCK_IB="}, {ibPreload(), "MOCK_IB=off"}, {ibPreload(), "MOCK_IB=no", "MOCK_IB_ROOT=" + t.TempDir()}} {
		assert.Equal(t, want, trace(off...), "%v", off)
	}
}

// TestInfiniBandVerbsHammer: 32 threads that fork, and that send commands which are short, oversized or nonsense, get the right
// answers from the right adapters, and nothing crashes or hangs.
func TestInfiniBandVerbsHammer(t *testing.T) {
	program := ibProgram(t, "verbs")
	for _, how := range ways(t) {
		out := run(t, nil, launcher(t), "run", how, "--ib", "full", "--profile", "dgx-h100", "--", program, "12", "32", "20").succeeds(t)
		assert.Regexp(t, `^\d{5,} right, 0 wrong\n$`, out.stdout)
		assert.Empty(t, out.stderr)
	}
}

// TestInfiniBandDiscovery: what NCCL and UCX look at leads to the adapters' PCI functions, their links and the GPUs beside them.
func TestInfiniBandDiscovery(t *testing.T) {
	program := ibProgram(t, "discovery")
	profile := ibProfile(t)
	gpus := busIDs(t, "dgx-h100")
	for _, how := range ways(t) {
		out := inIB(t, how, "full", profile, program+" "+strings.Join(gpus, " ")).succeeds(t)
		lines := out.lines()
		require.Len(t, lines, 13, out.stdout)
		assert.Regexp(t, `^mlx5_0 state=4 lid=\d+ layer=1 speed=128 width=2 part=4129 guid=[0-9a-f]{16} gid=fe80 pd=1 pci=0000:18:00.0 same vendor=0x15b3 `+
			`speed=32.0 GT/s PCIe width=16 numa=0 near=0000:1b:00.0$`, lines[0])
		assert.Regexp(t, `^mlx5_2 state=4 lid=0 layer=2 .* pci=0000:29:00.1 same .* near=none$`, lines[2])
		guids := regexp.MustCompile(` guid=(\w+)`)
		assert.Equal(t, guids.FindString(lines[1]), guids.FindString(lines[2]), "one card has one system image GUID")
		for nic, gpu := range dgxNICs {
			assert.Contains(t, lines[nic], "near="+gpus[gpu])
		}
		assert.Equal(t, "peer memory: yes", lines[12])
	}
}

// TestInfiniBandLstopo: hwloc shows adapters and their network interfaces beside the GPUs that they share a switch with.
func TestInfiniBandLstopo(t *testing.T) {
	lstopo := tool(t, "lstopo-no-graphics")
	profile := ibProfile(t)
	for _, how := range ways(t) {
		text := inIB(t, how, "sysfs", profile, lstopo+" --of console --whole-io").succeeds(t).stdout
		assert.Equal(t, 12, strings.Count(text, `OpenFabrics "mlx5_`), text)
		assert.Regexp(t, `PCI 18:00.0 \(InfiniBand\)\n +Net "ibp24s0"\n +OpenFabrics "mlx5_0"\n +PCIBridge\n +PCI 1b:00.0 \(3D\)`, text, how)
	}
}

// TestInfiniBandScripts: the ways by which scripts get from an adapter to its network interface and back agree.
func TestInfiniBandScripts(t *testing.T) {
	profile := ibProfile(t)
	for _, how := range ways(t) {
		out := inIB(t, how, "sysfs", profile, `cd /sys/class/infiniband
for d in mlx5_*; do echo "$d $(ls $d/device/net)"; done
for n in /sys/class/net/ib*; do echo "$(ls $n/device/infiniband) ${n##*/}"; done
cat mlx5_2/ports/1/gid_attrs/ndevs/3 mlx5_2/ports/1/gid_attrs/types/3
cat /sys/class/net/ibp24s0/address | cut -c13-; cat mlx5_0/ports/1/gids/0`).succeeds(t).stdout
		assert.Equal(t, 2, strings.Count(out, "mlx5_3 ibp64s0\n"), out)
		assert.Contains(t, out, "mlx5_8 enp170s0f1np1\n")
		assert.Contains(t, out, "enp41s0f1np1\nRoCE v2\n")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		plain := strings.NewReplacer(":", "")
		assert.Equal(t, plain.Replace(lines[len(lines)-1]), plain.Replace(lines[len(lines)-2]), "the hardware address ends with the GID")
	}
}
