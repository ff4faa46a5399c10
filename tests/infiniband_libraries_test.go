package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/tests/debian"
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

// TestInfiniBandOffCost: without MOCK_IB a stat takes no more than twice as long as libc's own, called in turns in one process.
func TestInfiniBandOffCost(t *testing.T) {
	out := run(t, []string{ibPreload()}, ibProgram(t, "cost")).succeeds(t)
	var ours, libc float64
	_, err := fmt.Sscanf(out.stdout, "%f ns, libc's own %f ns", &ours, &libc)
	require.NoError(t, err, out.stdout)
	t.Logf("a stat takes %.0f ns with the libraries and %.0f ns without: %.2f times as long", ours, libc, ours/libc)
	assert.LessOrEqual(t, ours, 2*libc)
}

// TestInfiniBandUCX: UCX finds all adapters, and the transports that it could use over each. It cannot open these, since queue pairs
// need a data path.
func TestInfiniBandUCX(t *testing.T) {
	dir, err := debian.Fetch("ucx")
	if err != nil {
		skip(t, err.Error())
	}
	libraries := filepath.Join(dir, "usr/lib/x86_64-linux-gnu")
	profile := ibProfile(t)
	for _, how := range ways(t) {
		out := inIB(t, how, "full", profile, fmt.Sprintf(`export LD_LIBRARY_PATH=%s:$LD_LIBRARY_PATH UCX_MODULE_DIR=%[1]s/ucx; exec %s -d`, libraries, filepath.Join(dir, "usr/bin/ucx_info"))).succeeds(t).stdout
		for i := range 12 {
			domain := regexp.MustCompile(fmt.Sprintf(`(?s)# Memory domain: mlx5_%d\n(.*?)(# Memory domain|$)`, i)).FindStringSubmatch(out)
			require.NotNil(t, domain, out)
			found := regexp.MustCompile(`Transport: (\w+)\n#\s+Device: (\S+)\n#\s+Type: network\n#\s+System device: (.*)\n`).FindAllStringSubmatch(domain[1], -1)
			device, system := fmt.Sprintf("mlx5_%d:1", i), fmt.Sprintf("mlx5_%d (%[1]d)", i)
			var transports []string
			for _, f := range found {
				transports = append(transports, f[1])
				assert.Equal(t, []string{device, system}, f[2:], how)
			}
			assert.Equal(t, []string{"rc_mlx5", "ud_verbs", "ud_mlx5"}, transports, "%s %s", how, domain[1])
		}
		assert.NotContains(t, out, "failed to open memory domain", how)
	}
}

// TestInfiniBandStatistic: rdma statistic has the counters of hw_counters, and those move as they do there. rdma resource has what the
// kernel has made for itself.
func TestInfiniBandStatistic(t *testing.T) {
	profile := ibProfile(t, "devices: [{index: 1, dynamic_metrics: {utilization: {pattern: busy}}}]")
	for _, how := range ways(t) {
		out := inIB(t, how, "full", profile, `h=/sys/class/infiniband/mlx5_3/ports/1/hw_counters
until [ $(cat $h/rx_write_requests) != 0 ]; do sleep 0.05; done
ls $h | tr '\n' ' '; echo; ls /sys/class/infiniband/mlx5_2/ports/1/hw_counters | tr '\n' ' '; echo
cat $h/rx_write_requests; rdma statistic show link mlx5_3/1; cat $h/rx_write_requests
rdma statistic show link mlx5_2/1; rdma statistic | grep -c '^link mlx5_'; rdma statistic qp mode link mlx5_3; rdma statistic qp show; rdma statistic mr show
rdma resource show mlx5_3; rdma resource show mlx5_2; rdma resource show qp link mlx5_2; rdma resource show qp link mlx5_3; rdma resource show mr; rdma resource show ctx; rdma resource show cm_id`).succeeds(t)
		lines := out.lines()
		require.Len(t, lines, 14, out.stdout)
		names := func(line string) (list []string) {
			for i, word := range strings.Fields(line)[2:] {
				if i%2 == 0 {
					list = append(list, word)
				}
			}
			return append(list, "lifespan")
		}
		assert.ElementsMatch(t, strings.Fields(lines[0]), names(lines[3]), how)
		assert.ElementsMatch(t, strings.Fields(lines[1]), names(lines[5]), how)
		count := func(text string) int {
			n, err := strconv.Atoi(text)
			require.NoError(t, err)
			return n
		}
		told := regexp.MustCompile(`^link mlx5_3/1 rx_write_requests (\d+) rx_read_requests 0 rx_atomic_requests 0 `).FindStringSubmatch(lines[3])
		require.NotNil(t, told, lines[3])
		assert.LessOrEqual(t, count(lines[2]), count(told[1]))
		assert.LessOrEqual(t, count(told[1]), count(lines[4]))
		assert.Contains(t, lines[5], " np_cnp_sent 0 ")
		trimmed := []string{}
		for _, line := range lines[6:] {
			trimmed = append(trimmed, strings.TrimSpace(line))
		}
		assert.Equal(t, []string{"12", "link mlx5_3/1 mode qp auto off", "3: mlx5_3: pd 3 cq 4 qp 3 cm_id 0 mr 0 ctx 0 srq 2",
			"2: mlx5_2: pd 2 cq 3 qp 1 cm_id 0 mr 0 ctx 0 srq 2", "link mlx5_2/1 lqpn 1 type GSI state RTS sq-psn 0 comm [ib_core]",
			"link mlx5_3/1 lqpn 360 type UD state RTS sq-psn 0 comm [mlx5_ib]", "link mlx5_3/1 lqpn 0 type SMI state RTS sq-psn 0 comm [ib_core]",
			"link mlx5_3/1 lqpn 1 type GSI state RTS sq-psn 0 comm [ib_core]"}, trimmed, how)
	}
}

// TestInfiniBandDiscovery: what NCCL looks at leads to the adapters' PCI functions, their links and the GPUs beside them. NCCL itself
// looks only after CUDA has given it a GPU, which no test here has.
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
