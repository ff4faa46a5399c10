package agent

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nvmlfab/nvmlfab/kubernetes/api"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic/fake"
)

// cluster is a cluster of one node, with an agent that runs when Settle is called.
type cluster struct {
	*testing.T
	client *fake.FakeDynamicClient
	agent  *Agent
	o      Options
	top    string
}

func object(t *testing.T, value any) *unstructured.Unstructured {
	t.Helper()
	u, err := plainObject(value)
	require.NoError(t, err)
	return u
}

func newCluster(t *testing.T, config string) *cluster {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{nodes: "NodeList", configMaps: "ConfigMapList", events: "EventList", api.GPUFaults: "GPUFaultList", pods: "PodList"}
	node := corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"rack": "a"}}}
	c := &cluster{T: t, client: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, object(t, node), configMap(t, config)), top: t.TempDir()}
	c.o = Options{
		Node: "n1", Namespace: "gpus", ConfigMap: "nvmlfab", Root: c.path("lib/nvmlfab"), CDI: c.path("run/cdi"), Features: c.path("features.d"),
		DriverLink: c.path("run/nvidia/driver"), Proc: c.path("proc"), Labels: true, Version: "test", Home: c.path("home"),
		Log: func(err error) { t.Log(err) },
	}
	require.NoError(t, os.MkdirAll(c.o.Proc, 0o755))
	for _, name := range []string{"t4", "h100", "a100-sxm4-40gb"} {
		board, err := profiles.Shipped(name)
		require.NoError(t, err)
		dir := filepath.Join(c.o.Home, "nvml", profiles.NVML(profiles.Branch(board.System.DriverVersion.Value)).NVML)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		for _, library := range []string{"libnvidia-ml.so.1", "libnvmlfab-core.so.1"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, library), []byte(library), 0o644))
		}
	}
	require.NoError(t, os.MkdirAll(filepath.Join(c.o.Home, "bin"), 0o755))
	for _, name := range []string{"nvmlfab", "nvmlfab-hook"} {
		require.NoError(t, os.WriteFile(filepath.Join(c.o.Home, "bin", name), []byte("program"), 0o755))
	}
	return c
}

func configMap(t *testing.T, config string) *unstructured.Unstructured {
	return object(t, corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "nvmlfab", Namespace: "gpus"}, Data: map[string]string{api.ConfigKey: config}})
}

func (c *cluster) path(name string) string { return filepath.Join(c.top, name) }

// start starts an agent, as after a restart.
func (c *cluster) start() {
	c.Helper()
	a, err := New(c.Context(), c.client, c.o)
	require.NoError(c, err)
	require.NoError(c, a.watch(c.Context()))
	c.agent = a
}

// settle runs the agent until something is so.
func (c *cluster) settle(so func() bool, about string) {
	c.Helper()
	until := time.Now().Add(time.Minute)
	for !so() {
		require.True(c, time.Now().Before(until), "%s: %s", about, c.condition())
		c.agent.Reconcile(c.Context())
		time.Sleep(10 * time.Millisecond)
	}
}

func (c *cluster) node() *corev1.Node {
	c.Helper()
	u, err := c.client.Resource(nodes).Get(c.Context(), "n1", metav1.GetOptions{})
	require.NoError(c, err)
	var node corev1.Node
	require.NoError(c, convert(u, &node))
	return &node
}

func (c *cluster) condition() string {
	for _, cond := range c.node().Status.Conditions {
		if cond.Type == Condition {
			return string(cond.Status) + " " + cond.Reason + " " + cond.Message
		}
	}
	return ""
}

func (c *cluster) until(prefix string) {
	c.Helper()
	c.settle(func() bool { return strings.HasPrefix(c.condition(), prefix) }, "the condition shall begin with "+prefix)
}

func (c *cluster) configure(config string) {
	c.Helper()
	_, err := c.client.Resource(configMaps).Namespace("gpus").Update(c.Context(), configMap(c.T, config), metav1.UpdateOptions{})
	require.NoError(c, err)
}

func (c *cluster) setLabel(name, value string) {
	c.Helper()
	var v any
	if value != "" {
		v = value
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{name: v}}})
	require.NoError(c, err)
	_, err = c.client.Resource(nodes).Patch(c.Context(), "n1", "application/merge-patch+json", text, metav1.PatchOptions{})
	require.NoError(c, err)
}

func (c *cluster) read(name string) string {
	c.Helper()
	text, err := os.ReadFile(c.path(name))
	require.NoError(c, err)
	return string(text)
}

// left are the files below the folders that the agent writes to.
func (c *cluster) left() (list []string) {
	c.Helper()
	for _, top := range []string{"lib", "run", "features.d"} {
		if !exists(c.path(top)) {
			continue
		}
		require.NoError(c, filepath.WalkDir(c.path(top), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				list = append(list, strings.TrimPrefix(path, c.top+"/"))
			}
			return err
		}))
	}
	return list
}

func (c *cluster) discard() {
	c.Helper()
	require.NoError(c, c.agent.Withdraw(c.Context(), c.client))
	require.NoError(c, c.agent.Discard())
}

// TestAgentStages: the agent stages what the ConfigMap gives the node, publishes it, does neither twice, and takes all away.
func TestAgentStages(t *testing.T) {
	c := newCluster(t, "default: {profile: t4, count: 2}\n")
	c.start()
	c.until("True Staged profile t4 by default, generation 1")
	tree := c.path("lib/nvmlfab/generations/1")
	to, err := filepath.EvalSymlinks(c.o.DriverLink)
	require.NoError(t, err)
	assert.Equal(t, tree, to)
	assert.FileExists(t, filepath.Join(tree, machine.LibraryDir, "libnvidia-ml.so.1"))
	assert.FileExists(t, filepath.Join(c.o.DriverLink, machine.HookFile))
	spec := c.read("run/cdi/nvmlfab.yaml")
	assert.Contains(t, spec, tree)
	assert.Contains(t, spec, c.path("lib/nvmlfab/bin/nvmlfab"))
	assert.Equal(t, "pci-10de.present=true\n", c.read("features.d/nvmlfab"))
	labels := c.node().Labels
	assert.Equal(t, "Tesla-T4", labels["nvidia.com/gpu.product"])
	assert.Equal(t, "2", labels["nvidia.com/gpu.count"])
	assert.Equal(t, "a", labels["rack"])
	staged, err := machine.OpenStaged(tree)
	require.NoError(t, err)
	shipped, err := profiles.Shipped("t4")
	require.NoError(t, err)
	assert.NotEqual(t, shipped.Devices[0].UUID, staged.Source.Board.Devices[0].UUID, "each node has GPUs of its own")

	for range 3 {
		c.agent.Reconcile(t.Context())
	}
	assert.Equal(t, 1, c.agent.staged)
	c.discard()
	assert.Empty(t, c.left())
	assert.NoDirExists(t, c.o.Root)
	assert.Equal(t, map[string]string{"rack": "a"}, c.node().Labels)
	assert.Empty(t, c.condition())
}

// TestRetire: an agent that finds the mark takes all away, says so, and does not begin again while the release goes; after that
// the node can have GPUs again.
func TestRetire(t *testing.T) {
	config := "default: {profile: t4, count: 2}\n"
	c := newCluster(t, config)
	c.o.KeepRoot = true
	c.start()
	c.until("True Staged")
	c.fail("hot", 0, api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(0), Kind: "thermal", Temperature: 90})
	c.becomes("hot", "True Failing")
	assert.ErrorContains(t, api.Retire(t.Context(), c.client, "gpus", "nvmlfab", 10*time.Millisecond), "n1 (Staged: profile t4 by default, generation 1)")
	c.until("")
	c.settle(func() bool { return c.agent.retired }, "it takes all away")
	assert.NoError(t, api.Retire(t.Context(), c.client, "gpus", "nvmlfab", time.Minute))
	assert.Empty(t, c.left())
	assert.DirExists(t, c.o.Root)
	assert.Empty(t, c.verdict("hot"))
	assert.Equal(t, map[string]string{"rack": "a"}, c.node().Labels)
	assert.Empty(t, c.agent.Devices())

	require.NoError(t, c.client.Resource(configMaps).Namespace("gpus").Delete(t.Context(), "nvmlfab", metav1.DeleteOptions{}))
	c.settle(func() bool { data, _ := c.agent.data(); return data == nil }, "the ConfigMap goes")
	c.agent.Reconcile(t.Context())
	assert.Empty(t, c.condition())
	assert.Empty(t, c.left())
	_, err := c.client.Resource(configMaps).Namespace("gpus").Create(t.Context(), configMap(t, config), metav1.CreateOptions{})
	require.NoError(t, err)
	c.until("True Staged")
}

// TestAgentChooses: a label beats a pool, and a pool beats the default.
func TestAgentChooses(t *testing.T) {
	config, err := api.ParseConfig(map[string]string{api.ConfigKey: `
default: {profile: t4}
pools:
  - {name: big, selector: {matchLabels: {rack: a}}, profile: h100, count: 3, fabric: {clusterUUID: 7d1c3b0a-5f5e-4c55-9d0e-0b6a4a4d2a11, clique: 7}}
  - {name: own, selector: {matchExpressions: [{key: own, operator: Exists}]}, profile: mine}
`, "mine.yaml": "extends: t4\ncount: 5\n"})
	require.NoError(t, err)
	for _, test := range []struct {
		labels map[string]string
		from   string
		gpus   int
	}{
		{nil, "default", 1},
		{map[string]string{"rack": "a"}, "pool big", 3},
		{map[string]string{"own": ""}, "pool own", 5},
		{map[string]string{"rack": "a", api.ProfileLabel: "mine"}, "label nvmlfab.dev/profile", 5},
	} {
		choice, err := config.Choose(test.labels)
		require.NoError(t, err)
		assert.Equal(t, test.from, choice.From)
		board, err := choice.Base.With(choice.Layers...)
		require.NoError(t, err)
		assert.Len(t, board.Devices, test.gpus, test.from)
		if test.from == "pool big" {
			assert.Equal(t, uint32(7), board.Devices[2].Fabric.CliqueID.Value)
			assert.Equal(t, "7d1c3b0a-5f5e-4c55-9d0e-0b6a4a4d2a11.7", Labels(board)["nvidia.com/gpu.clique"])
		}
	}
	for text, want := range map[string]string{
		"pools: [{name: a, profile: t4}, {name: a, profile: t4}]": "two pools",
		"pools: [{name: a}]":              "no profile",
		"pools: [{profile: t4}]":          "no name",
		"default: {}":                     "no profile",
		"defalt: {profile: t4}":           "unknown field",
		"default: {profile: t4, gpus: 1}": "unknown field",
	} {
		_, err := api.ParseConfig(map[string]string{api.ConfigKey: text})
		assert.ErrorContains(t, err, want, text)
	}
}

// TestAgentKeepsGenerations: a bad profile leaves the old tree in force and says so; a new one is staged beside the old one,
// which goes when nothing has it mounted.
func TestAgentKeepsGenerations(t *testing.T) {
	c := newCluster(t, "default: {profile: t4}\n")
	c.start()
	c.until("True Staged profile t4")
	c.configure("default: {profile: t44}\n")
	c.until("False BadProfile")
	assert.Contains(t, c.condition(), "t44")
	assert.Contains(t, c.condition(), "in force: profile t4 by default, generation 1")
	list, err := c.client.Resource(events).Namespace("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var reasons []string
	for _, e := range list.Items {
		reason, _, _ := unstructured.NestedString(e.Object, "reason")
		reasons = append(reasons, reason)
	}
	assert.Contains(t, reasons, "BadProfile")

	// A container has a library of the tree mounted.
	require.NoError(t, os.MkdirAll(c.path("proc/42"), 0o755))
	require.NoError(t, os.WriteFile(c.path("proc/42/mountinfo"),
		[]byte("36 35 98:0 "+c.path("lib/nvmlfab/generations/1/usr/lib/x")+" /usr/lib/x rw - ext4 /dev/sda rw\n"), 0o644))
	c.setLabel(api.ProfileLabel, "h100")
	c.until("True Staged profile h100 by label nvmlfab.dev/profile, generation 2")
	assert.DirExists(t, c.path("lib/nvmlfab/generations/1"))
	assert.Contains(t, c.read("run/cdi/nvmlfab.yaml"), "generations/2")
	assert.Equal(t, "NVIDIA-H100-80GB-HBM3", c.node().Labels["nvidia.com/gpu.product"])
	require.NoError(t, os.RemoveAll(c.path("proc/42")))
	c.settle(func() bool { return !exists(c.path("lib/nvmlfab/generations/1")) }, "the old tree goes")
	entries, err := os.ReadDir(c.path("lib/nvmlfab/state"))
	require.NoError(t, err)
	assert.Len(t, entries, 1, "its state goes with it")

	c.setLabel(api.ProfileLabel, "")
	c.configure("pools: []\n")
	c.until("True NoGPUs")
	assert.NoFileExists(t, c.path("run/cdi/nvmlfab.yaml"))
	assert.Equal(t, map[string]string{"rack": "a"}, c.node().Labels)
	c.discard()
	assert.Empty(t, c.left())
}

// TestAgentConverges: what a killed agent left is taken up, and what others wrote is left alone.
func TestAgentConverges(t *testing.T) {
	c := newCluster(t, "default: {profile: t4}\n")
	require.NoError(t, os.MkdirAll(c.o.CDI, 0o755))
	require.NoError(t, os.WriteFile(c.path("run/cdi/nvmlfab.yaml"), []byte("theirs"), 0o644))
	c.start()
	c.until("False NodeNotWritten")
	assert.Contains(t, c.condition(), "somebody else has put it there")
	assert.Equal(t, "theirs", c.read("run/cdi/nvmlfab.yaml"))
	require.NoError(t, os.Remove(c.path("run/cdi/nvmlfab.yaml")))
	c.until("True Staged")

	// An agent was killed while it wrote the third tree and a file.
	m := c.agent.m
	m.Generations = append(m.Generations, generation{Number: 3, Identity: "x", State: "unfinished"})
	m.Next = 4
	require.NoError(t, os.MkdirAll(c.path("lib/nvmlfab/state/unfinished"), 0o755))
	require.NoError(t, os.Symlink("../state/unfinished", c.path("lib/nvmlfab/generations/3.state")))
	m.Files[c.o.CDI+"/nvmlfab.yaml"] = []string{"what was to come", m.Files[c.o.CDI+"/nvmlfab.yaml"][0]}
	require.NoError(t, m.write())
	c.restart()
	c.settle(func() bool { return !exists(c.path("lib/nvmlfab/generations/3.state")) }, "leftovers go")
	assert.NoDirExists(t, c.path("lib/nvmlfab/state/unfinished"))
	assert.Equal(t, 0, c.agent.staged, "what is there is not staged again")
	assert.Len(t, c.agent.m.Files[c.o.CDI+"/nvmlfab.yaml"], 1)

	// Somebody changes a file of the agent's: it is theirs then.
	require.NoError(t, os.WriteFile(c.path("features.d/nvmlfab"), []byte("mine=1\n"), 0o644))
	c.until("False NodeNotWritten")
	c.discard()
	assert.Equal(t, []string{"features.d/nvmlfab"}, c.left())
}

// restart starts another agent in place of the one that was killed.
func (c *cluster) restart() {
	c.Helper()
	c.agent.unlock()
	c.start()
}

// TestAgentRealDriver: nothing is staged on a node with NVIDIA's driver.
func TestAgentRealDriver(t *testing.T) {
	c := newCluster(t, "default: {profile: t4}\n")
	require.NoError(t, os.MkdirAll(c.path("proc/driver/nvidia"), 0o755))
	require.NoError(t, os.WriteFile(c.path("proc/driver/nvidia/version"), nil, 0o644))
	c.start()
	c.until("False BadProfile NVIDIA's driver runs on this node")
	assert.NoDirExists(t, c.path("lib/nvmlfab/generations"))
}

func fault(t *testing.T, name string, age time.Duration, spec api.GPUFaultSpec) *unstructured.Unstructured {
	u := object(t, api.GPUFault{TypeMeta: metav1.TypeMeta{APIVersion: api.Group + "/" + api.Version, Kind: "GPUFault"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "0123456789", CreationTimestamp: metav1.NewTime(time.Now().Add(-age).Truncate(time.Second))}, Spec: spec})
	unstructured.RemoveNestedField(u.Object, "status")
	return u
}

func (c *cluster) fail(name string, age time.Duration, spec api.GPUFaultSpec) {
	c.Helper()
	_, err := c.client.Resource(api.GPUFaults).Create(c.Context(), fault(c.T, name, age, spec), metav1.CreateOptions{})
	require.NoError(c, err)
}

func (c *cluster) heal(name string) {
	c.Helper()
	require.NoError(c, c.client.Resource(api.GPUFaults).Delete(c.Context(), name, metav1.DeleteOptions{}))
}

// verdict is the reason and the message of a fault's condition.
func (c *cluster) verdict(name string) string {
	c.Helper()
	u, err := c.client.Resource(api.GPUFaults).Get(c.Context(), name, metav1.GetOptions{})
	require.NoError(c, err)
	var f api.GPUFault
	require.NoError(c, convert(u, &f))
	for _, cond := range f.Status.Nodes["n1"].Conditions {
		return string(cond.Status) + " " + cond.Reason + " " + cond.Message
	}
	return ""
}

func (c *cluster) becomes(name, prefix string) {
	c.Helper()
	c.settle(func() bool { return strings.HasPrefix(c.verdict(name), prefix) }, name+" shall be "+prefix)
}

// device is a GPU of the tree in force as it is now.
func (c *cluster) device(i int) *profiles.Device {
	c.Helper()
	staged, err := machine.OpenStaged(c.path("lib/nvmlfab/driver"))
	require.NoError(c, err)
	_, err = staged.Read()
	require.NoError(c, err)
	d, err := staged.Source.Device(i, time.Now().UnixMilli())
	require.NoError(c, err)
	return d
}

// TestFaults: each kind of fault changes the GPUs that it names, and is gone with its object.
func TestFaults(t *testing.T) {
	c := newCluster(t, "default: {profile: h100}\n")
	c.fail("before", 0, api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(7), Kind: "lost"})
	c.start()
	c.until("True Staged")
	c.becomes("before", "True Failing lost")
	assert.Equal(t, "lost", c.device(7).Failure.Mode.Value)
	devices := c.agent.Devices()
	require.Len(t, devices, 8)
	assert.True(t, devices[0].Healthy)
	assert.False(t, devices[7].Healthy)
	c.heal("before")
	c.settle(func() bool { return !c.device(7).Failure.Mode.Valid || c.device(7).Failure.Mode.Value == "none" }, "it heals")
	assert.True(t, c.agent.Devices()[7].Healthy)

	temperature := c.device(1).Thermal.TemperatureGPUC
	c.fail("hot", 0, api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(1), Kind: "thermal", Temperature: 97})
	c.fail("metric", 0, api.GPUFaultSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"rack": "a"}}, GPU: intstr.FromString("all"),
		Kind: "metric", Metrics: map[string]string{"utilization.gpu": "33"}})
	c.fail("xid", 0, api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(2), Kind: "xid", Xid: 31})
	c.fail("ecc", 0, api.GPUFaultSpec{Node: "n1", GPU: intstr.FromString(string(c.device(3).UUID)), Kind: "ecc", Count: 4})
	c.fail("links", 0, api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(4), Kind: "nvlink", Rate: "2.5", Links: []int64{1}})
	c.fail("elsewhere", 0, api.GPUFaultSpec{Node: "n2", GPU: intstr.FromString("all"), Kind: "lost"})
	for _, name := range []string{"hot", "metric", "xid", "ecc", "links"} {
		c.becomes(name, "True Failing")
	}
	assert.Equal(t, int32(97), c.device(1).Thermal.TemperatureGPUC.Value)
	assert.Equal(t, uint32(33), c.device(5).Utilization.GPU.Value)
	assert.Equal(t, uint64(4), c.device(3).ECC.Errors.Volatile.DoubleBit.DeviceMemory.Value)
	assert.False(t, c.agent.Devices()[3].Healthy)
	assert.True(t, c.agent.Devices()[2].Healthy, "Xid 31 is an error of a program")
	assert.Empty(t, c.verdict("elsewhere"))
	staged, err := machine.OpenStaged(c.path("lib/nvmlfab/driver"))
	require.NoError(t, err)
	xids := func() (n int) {
		_, err = staged.Read()
		require.NoError(t, err)
		for _, e := range staged.Source.State.Events {
			if e.Data == 31 {
				n++
			}
		}
		return n
	}
	assert.Equal(t, 1, xids())
	c.restart() // a fault that is in force is not brought about again
	c.agent.Reconcile(t.Context())
	assert.Equal(t, 1, xids())
	assert.Equal(t, uint64(4), c.device(3).ECC.Errors.Volatile.DoubleBit.DeviceMemory.Value)
	for _, name := range []string{"hot", "metric", "xid", "ecc", "links"} {
		c.heal(name)
	}
	c.settle(func() bool {
		return c.device(1).Thermal.TemperatureGPUC == temperature && c.device(3).ECC.Errors.Volatile.DoubleBit.DeviceMemory.Value == 0
	}, "all heal")
	assert.Equal(t, 1, xids())
}

// TestFaultConflicts: the older of two faults that cannot both be wins, and the other one says so and gets its turn later.
func TestFaultConflicts(t *testing.T) {
	c := newCluster(t, "default: {profile: h100}\n")
	c.start()
	c.until("True Staged")
	c.fail("a-young", time.Minute, api.GPUFaultSpec{Node: "n1", GPU: intstr.FromString("all"), Kind: "not-ready"})
	c.fail("old", time.Hour, api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(1), Kind: "lost"})
	c.becomes("a-young", `False Conflict GPU 1: the older fault "old" is in force`)
	c.becomes("old", "True Failing")
	assert.Equal(t, "lost", c.device(1).Failure.Mode.Value)
	assert.NotEqual(t, "not_ready", c.device(0).Failure.Mode.Value)
	c.heal("old")
	c.becomes("a-young", "True Failing")
	assert.Equal(t, "not_ready", c.device(1).Failure.Mode.Value)
	c.heal("a-young")

	for name, test := range map[string]struct {
		spec api.GPUFaultSpec
		want string
	}{
		"no-gpu":   {api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(8), Kind: "lost"}, "there is no GPU 8"},
		"no-kind":  {api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(0), Kind: "lots"}, `did you mean "lost"`},
		"of-node":  {api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(0), Kind: "driver-not-loaded"}, "no fault of a GPU"},
		"both":     {api.GPUFaultSpec{Node: "n1", Selector: &metav1.LabelSelector{}, GPU: intstr.FromInt32(0), Kind: "lost"}, "keep one"},
		"no-xid":   {api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(0), Kind: "xid"}, "number of an Xid"},
		"stray":    {api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(0), Kind: "lost", Xid: 79}, "xid does not belong"},
		"bad-key":  {api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(0), Kind: "metric", Metrics: map[string]string{"thermal.temp": "1"}}, "thermal.temp"},
		"bad-link": {api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(0), Kind: "nvlink", Links: []int64{99}}, "there is no link 99"},
	} {
		c.fail(name, 0, test.spec)
		c.becomes(name, "False Invalid")
		assert.Contains(t, c.verdict(name), test.want, name)
	}
	c.fail("good", 0, api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(0), Kind: "lost"})
	c.becomes("good", "True Failing") // bad ones do not keep it from being applied
	c.fail("later", 0, api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(5), Kind: "lost", After: metav1.Duration{Duration: time.Hour}})
	c.becomes("later", "False Waiting")
	c.fail("over", time.Hour, api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(5), Kind: "lost", Duration: metav1.Duration{Duration: time.Minute}})
	c.becomes("over", "False Ended")
	assert.NotEqual(t, "lost", c.device(5).Failure.Mode.Value)
}

const asksNVML = `
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
	void *lib = dlopen(argv[1], RTLD_NOW), *gpu;
	if (!lib) { fprintf(stderr, "%s\n", dlerror()); return 1; }
	int (*init)(void) = (int (*)(void))dlsym(lib, "nvmlInit_v2");
	int (*by_uuid)(const char *, void **) = (int (*)(const char *, void **))dlsym(lib, "nvmlDeviceGetHandleByUUID");
	int (*power)(void *, unsigned *) = (int (*)(void *, unsigned *))dlsym(lib, "nvmlDeviceGetPowerUsage");
	unsigned mw;
	if (init()) return 2;
	for (int i = 2; i < argc; i++) {
		int ret = by_uuid(argv[i], &gpu);
		printf("%d ", ret ? ret : power(gpu, &mw));
	}
	return 0;
}
`

// TestFaultReachesLibrary: the real library of the staged tree answers GPU is lost (15) for the GPU of a GPUFault, and success
// again when the object is deleted.
func TestFaultReachesLibrary(t *testing.T) {
	home, err := filepath.Abs("../../dist")
	require.NoError(t, err)
	c := newCluster(t, "default: {profile: h100, count: 2}\n")
	c.o.Home = home
	c.start()
	c.until("True Staged")
	program := c.path("ask")
	require.NoError(t, os.WriteFile(program+".c", []byte(asksNVML), 0o644))
	out, err := exec.Command("gcc", "-o", program, program+".c", "-ldl").CombinedOutput()
	require.NoError(t, err, "%s", out)
	ask := func() string {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		cmd := exec.CommandContext(ctx, program, filepath.Join(c.o.DriverLink, machine.LibraryDir, "libnvidia-ml.so.1"),
			string(c.device(0).UUID), string(c.device(1).UUID))
		cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		require.NoError(t, err)
		return string(out)
	}
	assert.Equal(t, "0 0 ", ask())
	c.fail("gone", 0, api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(1), Kind: "lost"})
	c.becomes("gone", "True Failing")
	assert.Equal(t, "0 15 ", ask())
	c.heal("gone")
	c.settle(func() bool { return ask() == "0 0 " }, "the GPU is well again")
	c.discard()
	assert.Empty(t, c.left())
}
