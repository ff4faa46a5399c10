package lab_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/kubernetes/lab"
	"github.com/nvmlfab/nvmlfab/tests/debian"
)

func TestMain(m *testing.M) {
	if status, isNode := lab.Main(); isNode {
		os.Exit(status)
	}
	status := m.Run()
	if cluster.c != nil {
		if err := cluster.c.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the cluster:", err)
			status = 1
		}
	}
	if imageDir != "" {
		os.RemoveAll(imageDir)
	}
	os.Exit(status)
}

// root is the top of the tree.
var root = func() string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	return dir
}()

// cluster is the one that all tests share. Its first node has GPUs, its second has none.
var cluster struct {
	once sync.Once
	c    *lab.Cluster
	err  error
	took time.Duration
}

func shared(t *testing.T) *lab.Cluster {
	t.Helper()
	cluster.once.Do(func() {
		var tools string
		if tools, cluster.err = makeTools(t.Context()); cluster.err != nil {
			return
		}
		began := time.Now()
		cluster.c, cluster.err = lab.Start(context.Background(), lab.Options{Nodes: 2, Images: []string{tools}, Progress: os.Stderr})
		cluster.took = time.Since(began)
	})
	require.NoError(t, cluster.err)
	return cluster.c
}

// toolsImage has a shell and programs that look for GPUs.
const toolsImage = "lab.nvmlfab.dev/tools:1"

// imageDir is a folder for images, which is removed after all tests.
var imageDir string

// makeTools writes toolsImage to a file.
func makeTools(ctx context.Context) (file string, err error) {
	if imageDir, err = os.MkdirTemp("", "nvmlfab-images-*"); err != nil {
		return "", err
	}
	tools := lab.NewImage(toolsImage)
	for _, name := range []string{"sh", "bash", "cat", "ls", "sleep", "lspci"} {
		program, err := exec.LookPath(name)
		if err != nil {
			return "", err
		}
		if program, err = filepath.EvalSymlinks(program); err != nil {
			return "", err
		}
		if err := tools.Program("usr/bin/"+name, program); err != nil {
			return "", err
		}
	}
	tools.Link("bin", "usr/bin")
	smi, err := debian.File("nvidia-smi-550", "nvidia-smi")
	if err != nil {
		return "", err
	}
	if err := tools.Needs(smi); err != nil { // it comes with the GPU
		return "", err
	}
	if err := tools.Add("usr/share/misc/pci.ids", "/usr/share/misc/pci.ids"); err != nil {
		return "", err
	}
	static := filepath.Join(imageDir, "goprog")
	build := exec.CommandContext(ctx, "go", "build", "-o", static, "./tests/testdata/machine/goprog")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", build, err, out)
	}
	if err := tools.Add("usr/bin/goprog", static); err != nil {
		return "", err
	}
	file = filepath.Join(imageDir, "tools.tar")
	return file, tools.Write(file)
}

// kubectl runs kubectl and returns its output without the white space at its ends.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := shared(t).Kubectl(t.Context(), "", args...)
	require.NoError(t, err)
	return strings.TrimSpace(out)
}

// apply creates objects, which go when the test ends.
func apply(t *testing.T, manifest string) {
	t.Helper()
	c := shared(t)
	_, err := c.Kubectl(t.Context(), manifest, "apply", "-f", "-")
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := c.Kubectl(context.Background(), manifest, "delete", "--grace-period=1", "--ignore-not-found", "--timeout=2m", "-f", "-")
		assert.NoError(t, err)
	})
}

// wait asks until the answer is yes. A test fails only if it takes minutes.
func wait(t *testing.T, what string, yes func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	if err := shared(t).Wait(t.Context(), what, yes); err != nil {
		var logs string
		for _, args := range [][]string{{"get", "pods", "-A", "-o", "wide"}, {"get", "events", "-A", "--sort-by=.lastTimestamp"}} {
			out, _ := shared(t).Kubectl(context.Background(), "", args...)
			logs += out + "\n"
		}
		if pods, err := shared(t).Kubectl(context.Background(), "", "get", "pods", "-A", "-o", `jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}{"\n"}{end}`); err == nil {
			for line := range strings.Lines(pods) {
				f := strings.Fields(line)
				out, _ := shared(t).Kubectl(context.Background(), "", "logs", "--namespace", f[0], "--tail=20", f[1])
				logs += "output of " + line + out + "\n"
			}
		}
		require.NoError(t, err, logs)
	}
	return time.Since(began)
}

// running waits until a pod runs and is ready.
func running(t *testing.T, pod string) {
	t.Helper()
	wait(t, pod+" runs", func() bool {
		return kubectl(t, "get", "pod", pod, "--ignore-not-found", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`) == "True"
	})
}

// pod is a manifest of a pod that sleeps on a node, with more fields of the container.
func pod(name, node, more string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  nodeSelector: {kubernetes.io/hostname: %s}
  containers:
  - {name: main, image: %q, imagePullPolicy: Never, command: [sleep, infinity]%s}
`, name, node, toolsImage, more)
}

func TestCluster(t *testing.T) {
	c := shared(t)
	t.Logf("all nodes were ready after %s", cluster.took.Round(100*time.Millisecond))
	require.Equal(t, "True True", kubectl(t, "get", "nodes", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`))
	require.Equal(t, lab.KubernetesVersion, kubectl(t, "get", "node", "lab-0", "-o", "jsonpath={.status.nodeInfo.kubeletVersion}"))

	for _, n := range c.Nodes {
		name := "look-" + n.Name
		apply(t, pod(name, n.Name, ""))
		running(t, name)
		assert.Equal(t, name, kubectl(t, "exec", name, "--", "cat", "/proc/sys/kernel/hostname"))
	}

	// Nothing is seen on the machine.
	text, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	assert.NotContains(t, string(text), filepath.Base(c.Dir))

	for _, n := range c.Nodes {
		out, err := n.Run(t.Context(), "", "ps", "-eo", "rss=,args=")
		require.NoError(t, err)
		sum := 0
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) > 1 {
				rss, err := strconv.Atoi(f[0])
				require.NoError(t, err)
				sum += rss
				if rss > 50<<10 {
					t.Logf("%s: %4d MiB %s", n.Name, rss>>10, strings.Join(f[1:min(3, len(f))], " "))
				}
			}
		}
		t.Logf("%s: %d MiB in all", n.Name, sum>>10)
	}
}

// TestPodNetwork: pods of both nodes reach the API server and each other.
func TestPodNetwork(t *testing.T) {
	c := shared(t)
	var names, addresses []string
	for _, n := range c.Nodes {
		name := "net-" + n.Name
		names = append(names, name)
		apply(t, pod(name, n.Name, ""))
		running(t, name)
		addresses = append(addresses, kubectl(t, "get", "pod", name, "-o", "jsonpath={.status.podIP}"))
	}
	for i, name := range names {
		kubectl(t, "exec", name, "--", "bash", "-c", "exec 3<>/dev/tcp/10.96.0.1/443")
		_, err := c.Kubectl(t.Context(), "", "exec", name, "--", "bash", "-c", "exec 3<>/dev/tcp/"+addresses[1-i]+"/1")
		assert.ErrorContains(t, err, "Connection refused", "nobody listens there, but the other pod says so")
	}
}

// TestReboot: a node that has been switched off comes back with its pods.
func TestReboot(t *testing.T) {
	c := shared(t)
	n := c.Nodes[1]
	apply(t, strings.Replace(pod("reboot", n.Name, ""), "restartPolicy: Never", "restartPolicy: Always", 1))
	running(t, "reboot")
	started := func() string {
		return kubectl(t, "get", "pod", "reboot", "-o", "jsonpath={.status.containerStatuses[0].state.running.startedAt} {.status.containerStatuses[0].restartCount}")
	}
	before := started()
	require.NoError(t, n.PowerOff())
	require.NoError(t, n.Boot(t.Context()))
	wait(t, "the pod is started again", func() bool { now := started(); return now != before && !strings.HasPrefix(now, " ") })
	running(t, "reboot")
}
