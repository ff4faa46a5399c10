package tests

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	staged "github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/machine/fabric"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/tests/debian"
)

// network is a private network of hosts, each in a network namespace of its own, that are on one bridge. All of it belongs to a
// process in namespaces of its own and goes with it; the machine's network and /run are not touched. It works without root.
type network struct {
	t   *testing.T
	pid int
	ip  string // the program, with what it needs
}

// newNetwork makes hosts n1, n2 and so on with the addresses 10.77.0.1, 10.77.0.2 and so on.
func newNetwork(t *testing.T, hosts int) *network {
	t.Helper()
	namespaces(t)
	dir, err := debian.Fetch("iproute2")
	if err != nil {
		skip(t, err.Error())
	}
	n := &network{t: t, ip: "LD_LIBRARY_PATH=" + filepath.Join(dir, "usr/lib/x86_64-linux-gnu") + " " + filepath.Join(dir, "bin/ip")}
	script := `set -e
mount -t tmpfs tmpfs /run
ip() { ` + n.ip + ` "$@"; }
ip link add name br0 type bridge
ip link set br0 up
for i in $(seq ` + strconv.Itoa(hosts) + `); do
  ip netns add n$i
  ip link add name port$i type veth peer name eth0 netns n$i
  ip link set port$i master br0 up
  ip -n n$i address add 10.77.0.$i/24 dev eth0
  ip -n n$i link set eth0 up
  ip -n n$i link set lo up
done
echo ready
exec cat`
	cmd := exec.Command(tool(t, "unshare"), "--user", "--map-root-user", "--mount", "--net", "sh", "-c", script)
	cmd.Env, cmd.Stderr = environ(), os.Stderr
	in, err := cmd.StdinPipe() // at its end cat ends, and with it the network
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		io.Copy(io.Discard, out)
		assert.NoError(t, cmd.Wait())
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	n.pid = cmd.Process.Pid
	return n
}

// command is a program on a host, with arguments. The program takes the place of what leads to the host, and has its process id.
func (n *network) command(host, name string, args ...string) []string {
	return append([]string{"nsenter", "--target", strconv.Itoa(n.pid), "--user", "--preserve-credentials", "--mount", "nsenter", "--net=/run/netns/" + host, name}, args...)
}

// in runs a shell command on a host.
func (n *network) in(host string, env []string, command string) outcome {
	n.t.Helper()
	c := n.command(host, "sh", "-c", command)
	return runIn(n.t, n.t.TempDir(), env, c[0], c[1:]...)
}

// link takes a host's network interface down or up.
func (n *network) link(host, how string) {
	n.t.Helper()
	n.in(host, nil, n.ip+" link set eth0 "+how).succeeds(n.t)
}

// nodes are hosts of a private network with a daemon each, which have one fabric.
type nodes struct {
	*network
	dir     string
	tools   []string // environment of the programs
	daemons map[string]*mockIB
	fabric  *fabric.Fabric // as it is while all are there
}

func newNodes(t *testing.T, count int) *nodes {
	t.Helper()
	diag := diags(t)
	n := &nodes{network: newNetwork(t, count), dir: t.TempDir(), daemons: map[string]*mockIB{}}
	n.tools = []string{"LD_LIBRARY_PATH=" + filepath.Join(diag, "usr/lib/x86_64-linux-gnu"), "IBPATH=" + filepath.Join(diag, "usr/sbin"),
		"PATH=" + filepath.Join(diag, "usr/sbin") + ":" + os.Getenv("PATH")}
	text := fmt.Sprintf("layout: rail-optimised\nhosts: [{name: 'n%%d', count: %d, adapters: [mlx5_0, mlx5_1, mlx5_2, mlx5_3]}]\n", count)
	for name, text := range map[string]string{"fabric.yaml": text, "token": "a secret of some hosts\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o600))
	}
	board, err := profiles.Shipped("h100")
	require.NoError(t, err)
	for i := range count {
		name := fmt.Sprint("n", i+1)
		n.fabric, err = staged.Subnet(board, name, "fabric.yaml", []byte(text))
		require.NoError(t, err)
		ibTree(t, filepath.Join(n.dir, name), n.fabric.UMAD(name))
		n.start(name)
	}
	return n
}

// start starts the daemon of a host. That of n1 listens.
func (n *nodes) start(name string) {
	n.t.Helper()
	how := "--join"
	if name == "n1" {
		how = "--listen"
	}
	n.daemons[name] = startMockIBBy(n.t, filepath.Join(n.dir, name), func(program string, args ...string) []string {
		return n.command(name, program, args...)
	}, "--profile", "h100", "--fabric", filepath.Join(n.dir, "fabric.yaml"), "--node", name, how, "10.77.0.1:7471", "--token-file", filepath.Join(n.dir, "token"))
}

func (n *nodes) signal(name string, s syscall.Signal) {
	n.t.Helper()
	require.NoError(n.t, n.daemons[name].cmd.Process.Signal(s))
}

// on runs a shell command with the tools on a host, whose adapters they see.
func (n *nodes) on(host, command string) outcome {
	n.t.Helper()
	env := []string{}
	for _, v := range preloadIB(n.t, filepath.Join(n.dir, host)) {
		env = append(env, "'"+v+"'")
	}
	return n.in(host, n.tools, "export "+strings.Join(env, " ")+"\n"+command)
}

// sees waits until a host sees the adapters of some hosts and no others.
func (n *nodes) sees(from string, hosts ...string) {
	n.t.Helper()
	want := map[string]bool{}
	for _, h := range hosts {
		for _, p := range n.fabric.UMAD(h) {
			want[p.Node.Description] = true
		}
	}
	adapter := regexp.MustCompile(`(?m)^Ca\t: .* "(.*)"`)
	var last outcome
	require.Eventually(n.t, func() bool {
		last = n.on(from, "ibhosts")
		found := adapter.FindAllStringSubmatch(last.stdout, -1)
		for _, m := range found {
			if !want[m[1]] {
				return false
			}
		}
		return last.code == 0 && len(found) == len(want)
	}, 2*time.Minute, 50*time.Millisecond, "%s does not see %v alone", from, hosts)
}

// route is the directed route from a port to the node of another, as smpquery takes it.
func route(f *fabric.Fabric, from, to *fabric.Port) string {
	text := "0"
	for i, p := range f.Path(from, to.LID) {
		if i%2 == 0 {
			text += "," + strconv.Itoa(p.Number)
		}
	}
	return text
}

// TestInfinibandNetworkNamespaces: four hosts in network namespaces have one fabric over TCP. From each host every tool reaches
// every adapter of every host. Hosts whose daemon is killed or stands still, and those that lose their network, are seen as
// switched off until they are back; and so it is for the host whose daemon listens.
func TestInfinibandNetworkNamespaces(t *testing.T) {
	t.Parallel()
	n := newNodes(t, 4)
	all := []string{"n1", "n2", "n3", "n4"}
	everywhere := func() {
		t.Helper()
		for _, name := range all {
			n.sees(name, all...)
		}
	}
	everywhere()
	for _, from := range all {
		out := n.on(from, "ibnetdiscover && iblinkinfo -l && ibhosts && ibswitches && ibqueryerrors && saquery").succeeds(t).stdout
		assert.Equal(t, 6, strings.Count(out, "\nSwitch\t: "), from)
		assert.Contains(t, out, "## Summary: 22 nodes checked, 0 bad nodes found", from)
		own := n.fabric.UMAD(from)[0]
		var script strings.Builder
		var ports []*fabric.Port
		pings := "" // each takes a second, so they run at the same time
		for _, other := range all {
			ports = append(ports, n.fabric.UMAD(other)...)
		}
		for _, p := range ports {
			pings += fmt.Sprintf("ibping -c 1 -L %d & ", p.LID)
			fmt.Fprintf(&script, "echo '= %[1]d'; ibtracert %[2]d %[1]d; smpquery ND %[1]d; smpquery -C mlx5_0 -D NI %[3]s; perfquery -x %[1]d 1; saquery NR %[1]d\n",
				p.LID, own.LID, route(n.fabric, own, p))
		}
		pongs := n.on(from, pings+"wait").succeeds(t).stdout
		parts := strings.Split(n.on(from, script.String()).succeeds(t).stdout, "= ")[1:]
		require.Len(t, parts, len(ports))
		for i, p := range ports {
			name, part := p.Node.Description, parts[i]
			has := func(text string, words ...string) {
				t.Helper()
				for _, want := range words {
					assert.True(t, strings.Contains(text, want), "%s from %s: no %q", name, from, want)
				}
			}
			has(out, fmt.Sprintf("\nCa\t: 0x%016x ports 1 %q\n", p.Node.GUID, name), fmt.Sprintf("\ncaguid=0x%x\n", p.Node.GUID),
				fmt.Sprintf("NodeDescription.........%s\n", name), fmt.Sprintf("0x%016x %6d    1[  ] %q ( )\n", p.GUID, p.LID, name))
			has(pongs, fmt.Sprintf("Pong from %s (Lid %d)", p.Node.Host, p.LID))
			has(part, fmt.Sprintf("\nTo ca {0x%016x} portnum 1 lid", p.Node.GUID), "Node Description:"+strings.Repeat(".", 23)+name+"\n",
				fmt.Sprintf("\nGuid:............................0x%016x\n", p.Node.GUID), fmt.Sprintf("# Port extended counters: Lid %d port 1 ", p.LID),
				fmt.Sprintf("NodeDescription.........%s\n", name))
		}
	}

	// Three ways to go away, at once. What a program asks of the host that stands still is answered in time: it fails.
	n.daemons["n2"].kill()
	n.signal("n3", syscall.SIGSTOP)
	n.link("n4", "down")
	assert.NotZero(t, n.on("n3", "sminfo").code, "the daemon of n3 stands still")
	n.sees("n1", "n1")
	n.sees("n4", "n4")
	assert.NotZero(t, n.on("n2", "sminfo").code, "n2 has no daemon")
	out := n.on("n1", fmt.Sprintf("iblinkinfo -l; ibping -c 1 -t 50 -L %d; smpquery -t 50 NI %d", n.fabric.UMAD("n2")[0].LID, n.fabric.UMAD("n3")[0].LID))
	assert.NotZero(t, out.code)
	assert.NotRegexp(t, `"n[234] mlx5`, out.stdout)
	assert.Contains(t, out.stdout, "100% packet loss")
	assert.Contains(t, out.stderr, "recv failed: Connection timed out")

	n.start("n2")
	n.signal("n3", syscall.SIGCONT)
	n.link("n4", "up")
	everywhere()
	assert.Contains(t, n.on("n1", "ibqueryerrors").stdout, "[LinkDownedCounter == 3 (3.000)]", "each switch has lost three links")

	// The daemon that listens dies: the others are alone, and programs there go on without hanging. It comes back.
	n.daemons["n1"].kill()
	for _, name := range all[1:] {
		n.sees(name, name)
	}
	n.start("n1")
	everywhere()

	// It stands still.
	n.signal("n1", syscall.SIGSTOP)
	assert.NotZero(t, n.on("n1", "ibhosts").code, "the daemon of n1 stands still")
	for _, name := range all[1:] {
		n.sees(name, name)
	}
	n.signal("n1", syscall.SIGCONT)
	everywhere()
}
