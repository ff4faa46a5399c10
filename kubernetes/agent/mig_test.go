package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/change/layout"
	"github.com/nvmlfab/nvmlfab/kubernetes/api"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const ownLayouts = `version: v1
mig-configs:
  halves:
    - {devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2}}
  all-1g.10gb:
    - {devices: [0], mig-enabled: true, mig-devices: {1g.10gb: 1}}
    - {devices: [1], mig-enabled: false}
  impossible:
    - {devices: all, mig-enabled: true, mig-devices: {7g.80gb: 2}}
`

// devices are the resources that the kubelet sees, each with how many healthy devices it has.
func (c *cluster) devices() map[string]int {
	all := map[string]int{}
	for _, d := range c.agent.Devices() {
		if d.Healthy {
			all[d.Resource]++
		}
	}
	return all
}

func (c *cluster) migState(want string) {
	c.Helper()
	c.settle(func() bool { return c.node().Labels[api.MIGStateLabel] == want }, "the MIG configuration shall be "+want)
}

// states are the values that the label of the state has had, in their order.
func (c *cluster) states(before int) (list []string) {
	for _, action := range c.client.Actions()[before:] {
		patch, ok := action.(interface{ GetPatch() []byte })
		if !ok {
			continue
		}
		for _, state := range []string{migPending, migSuccess, migFailed} {
			if strings.Contains(string(patch.GetPatch()), `"`+api.MIGStateLabel+`":"`+state+`"`) {
				list = append(list, state)
			}
		}
	}
	return list
}

// TestMIGConfig: the label nvidia.com/mig.config cuts the GPUs by the board's tables or by the ConfigMap's file; files, labels,
// CDI names and what the kubelet sees follow.
func TestMIGConfig(t *testing.T) {
	c := newCluster(t, "default: {profile: h100, count: 2}\n")
	c.o.MIGStrategy = MIGMixed
	c.start()
	c.until("True Staged")
	assert.NotContains(t, c.node().Labels, api.MIGStateLabel)
	assert.Equal(t, map[string]int{"nvidia.com/gpu": 2}, c.devices())

	before := len(c.client.Actions())
	c.setLabel(api.MIGLabel, "all-1g.10gb")
	c.migState("success")
	assert.Equal(t, []string{"pending", "success"}, c.states(before))
	assert.Equal(t, map[string]int{"nvidia.com/mig-1g.10gb": 14}, c.devices())
	labels := c.node().Labels
	for name, want := range map[string]string{
		"mig.strategy": "mixed", "mig-1g.10gb.count": "14", "mig-1g.10gb.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "mig-1g.10gb.memory": "9984",
		"mig-1g.10gb.multiprocessors": "16", "mig-1g.10gb.slices.gi": "1", "mig-1g.10gb.engines.copy": "1", "mig-1g.10gb.engines.jpeg": "1",
		"gpu.product": "NVIDIA-H100-80GB-HBM3", "gpu.count": "2", "gpu.replicas": "0",
	} {
		assert.Equal(t, want, labels["nvidia.com/"+name], name)
	}
	spec := c.read("run/cdi/nvmlfab.yaml")
	for _, d := range c.agent.Devices() {
		assert.Contains(t, spec, d.ID, "the kubelet gives CDI devices that there are")
	}
	assert.FileExists(t, c.path("lib/nvmlfab/driver/proc/driver/nvidia/capabilities/gpu1/mig/gi7/ci0/access"))

	c.setLabel(api.MIGLabel, "all-balanced")
	c.settle(func() bool { return c.devices()["nvidia.com/mig-3g.40gb"] == 2 }, "a layout takes the place of another")
	assert.Equal(t, map[string]int{"nvidia.com/mig-1g.10gb": 4, "nvidia.com/mig-2g.20gb": 2, "nvidia.com/mig-3g.40gb": 2}, c.devices())

	// What somebody changes by NVML stays until the label changes, also over a restart.
	c.cutBy(`{version: v1, mig-configs: {x: [{devices: [0], mig-enabled: false}]}}`)
	c.restart()
	c.settle(func() bool { return c.node().Labels["nvidia.com/gpu.replicas"] == "1" }, "the labels follow")
	assert.Equal(t, map[string]int{"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 2, "nvidia.com/mig-2g.20gb": 1, "nvidia.com/mig-3g.40gb": 1}, c.devices())
	assert.Equal(t, "success", c.node().Labels[api.MIGStateLabel])

	// A failing GPU takes its MIG devices with it.
	c.fail("gone", 0, api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(1), Kind: "lost"})
	c.becomes("gone", "True Failing")
	assert.Equal(t, map[string]int{"nvidia.com/gpu": 1}, c.devices())
	c.heal("gone")

	before = len(c.client.Actions())
	c.setLabel(api.MIGLabel, "all-1g.11gb")
	c.migState("failed")
	c.until("False BadMIG")
	assert.Equal(t, []string{"pending", "failed"}, c.states(before))
	assert.Contains(t, c.condition(), "want all-disabled, all-1g.10gb")
	assert.Equal(t, 2, c.devices()["nvidia.com/mig-1g.10gb"], "a bad layout leaves the old one")
	actions := len(c.client.Actions())
	for range 3 {
		c.agent.Reconcile(t.Context())
	}
	assert.Len(t, c.client.Actions(), actions, "it is said once")

	c.setLabel(api.MIGLabel, "all-disabled")
	c.migState("success")
	c.until("True Staged")
	assert.Equal(t, map[string]int{"nvidia.com/gpu": 2}, c.devices())
	assert.NotContains(t, c.node().Labels, "nvidia.com/mig-1g.10gb.count")
	c.setLabel(api.MIGLabel, "")
	c.migState("")
	c.discard()
	assert.Empty(t, c.left())
	assert.Equal(t, map[string]string{"rack": "a"}, c.node().Labels)
}

// cutBy changes the layout as a privileged pod does.
func (c *cluster) cutBy(text string) {
	c.Helper()
	staged, err := machine.OpenStaged(c.path("lib/nvmlfab/driver"))
	require.NoError(c, err)
	file := layout.File{Name: "test"}
	entries, err := file.Config([]byte(text), "")
	require.NoError(c, err)
	_, err = staged.Change(func(t *change.Tx) error {
		_, err := file.Apply(t, staged.Source.Board, entries)
		return err
	})
	require.NoError(c, err)
}

// TestMIGOfPool: a pool's configuration is for nodes without the label, and the ConfigMap's file beats what names mean by themselves.
func TestMIGOfPool(t *testing.T) {
	c := newCluster(t, "default: {profile: h100, count: 2, mig: halves}\n")
	own := configMap(t, "default: {profile: h100, count: 2, mig: halves}\n")
	own.Object["data"].(map[string]any)[api.MIGKey] = ownLayouts
	c.start()
	c.until("False BadMIG")
	assert.Contains(t, c.condition(), `MIG configuration "halves": there is none of this name`)
	_, err := c.client.Resource(configMaps).Namespace("gpus").Update(t.Context(), own, metav1.UpdateOptions{})
	require.NoError(t, err)
	c.migState("success")
	c.until("True Staged")
	assert.Equal(t, map[string]int{"nvidia.com/gpu": 4}, c.devices())
	assert.Equal(t, "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb", c.node().Labels["nvidia.com/gpu.product"])
	assert.Equal(t, "4", c.node().Labels["nvidia.com/gpu.count"])
	assert.Equal(t, "60", c.node().Labels["nvidia.com/gpu.multiprocessors"])

	c.setLabel(api.MIGLabel, "impossible")
	c.until("False BadMIG")
	assert.Contains(t, c.condition(), "mig-parted.yaml:9: GPU 0: there is no room for 7g.80gb")
	assert.Equal(t, map[string]int{"nvidia.com/gpu": 4}, c.devices())

	c.setLabel(api.MIGLabel, "all-1g.10gb") // as the file has it
	c.migState("success")
	c.settle(func() bool { return c.node().Labels["nvidia.com/gpu.count"] == "0" }, "the strategy single cannot offer it")
	assert.Equal(t, "NVIDIA-H100-80GB-HBM3-MIG-INVALID", c.node().Labels["nvidia.com/gpu.product"])
	assert.Empty(t, c.devices())
}

// TestMIGText: the names that need no file lead to layouts of each board that can be applied, and fill it.
func TestMIGText(t *testing.T) {
	applied := 0
	for _, info := range profiles.Names() {
		board, err := profiles.Shipped(info)
		require.NoError(t, err)
		names := []string{"all-disabled"}
		able := len(board.Devices) > 0 && len(board.MIG.GPUInstanceProfiles) > 0
		for i := range board.Devices {
			able = able && board.Devices[i].MIG.ModeCurrent.Valid
		}
		if able {
			names = append(names, "all-enabled", "all-balanced")
			for _, p := range board.MIG.GPUInstanceProfiles {
				names = append(names, "all-"+resourceName(p.Name))
			}
		}
		for _, name := range names {
			_, text, err := migText(board, "", name)
			require.NoError(t, err, "%s %s", info, name)
			file := layout.File{Name: name}
			entries, err := file.Config([]byte(text), name)
			require.NoError(t, err, "%s %s", info, name)
			tx := change.Begin(change.Source{Board: board, Overridden: board}, time.Now().UnixMilli())
			_, err = file.Apply(tx, board, entries)
			require.NoError(t, err, "%s %s", info, name)
			applied++
			if name != "all-disabled" && name != "all-enabled" {
				assert.NotEmpty(t, tx.Partitioning(0).Instances, "%s %s", info, name)
			}
		}
	}
	assert.Greater(t, applied, 60)
	board, err := profiles.Shipped("t4")
	require.NoError(t, err)
	_, _, err = migText(board, "", "all-balanced")
	assert.ErrorContains(t, err, "want all-disabled")
	_, _, err = migText(board, "mig-configs: [", "all-disabled")
	assert.ErrorContains(t, err, "mig-parted.yaml")
}

// TestMIGStrategyNone: whole GPUs are offered even if they are cut.
func TestMIGStrategyNone(t *testing.T) {
	c := newCluster(t, "default: {profile: h100, count: 2, mig: all-2g.20gb}\n")
	c.o.MIGStrategy = MIGNone
	c.start()
	c.migState("success")
	assert.Equal(t, map[string]int{"nvidia.com/gpu": 2}, c.devices())
	assert.NotContains(t, c.node().Labels, "nvidia.com/mig.strategy")
	c.o.MIGStrategy = "sinlge"
	_, err := New(t.Context(), c.client, c.o)
	assert.ErrorContains(t, err, `MIG strategy "sinlge"`)
}
