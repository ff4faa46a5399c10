package agent

import (
	"testing"

	"github.com/nvmlfab/nvmlfab/kubernetes/api"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"
)

// TestRestart: NVIDIA's device plugin is started anew when a GPU has healed or has been cut, on this node and not before, also if the
// agent was killed in between.
func TestRestart(t *testing.T) {
	c := newCluster(t, "default: {profile: h100, count: 2}\n")
	c.o.RestartNamespace, c.o.RestartPods = "nvidia", "app=plugin"
	add := func() {
		t.Helper()
		pod := corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: "plugin-1", Namespace: "nvidia", Labels: map[string]string{"app": "plugin"}}, Spec: corev1.PodSpec{NodeName: "n1"}}
		_, err := c.client.Resource(pods).Namespace("nvidia").Create(t.Context(), object(t, pod), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	there := func() bool {
		list, err := c.client.Resource(pods).Namespace("nvidia").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return len(list.Items) == 1
	}
	add()
	var asked []string // the fake client has no field selectors
	c.client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if list, ok := action.(clienttesting.ListAction); ok {
			asked = append(asked, list.GetListRestrictions().Fields.String(), list.GetListRestrictions().Labels.String())
		}
		return false, nil, nil
	})
	c.start()
	c.until("True Staged")
	c.fail("hot", 0, api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(0), Kind: "thermal", Temperature: 90})
	c.becomes("hot", "True Failing")
	c.fail("gone", 0, api.GPUFaultSpec{Node: "n1", GPU: intstr.FromInt32(0), Kind: "lost"})
	c.becomes("gone", "True Failing")
	c.heal("hot")
	c.agent.Reconcile(t.Context())
	assert.Empty(t, asked)
	c.restart()
	c.heal("gone")
	c.settle(func() bool { return !there() }, "the plugin's pod goes")
	assert.Subset(t, asked, []string{"spec.nodeName=n1", "app=plugin"})
	add()
	c.agent.Reconcile(t.Context())
	assert.True(t, there(), "it goes once")
	c.setLabel(api.MIGLabel, "all-1g.10gb")
	c.settle(func() bool { return !there() }, "the plugin's pod goes")
}
