package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
)

const sampleMetrics = `# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",modelName="NVIDIA H100 80GB HBM3",hostname="n1",container="c",namespace="team",pod="train-0",DCGM_FI_DRIVER_VERSION="580"} 41
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",modelName="NVIDIA H100 80GB HBM3",hostname="n1",container="c",namespace="team",pod="train-0",DCGM_FI_DRIVER_VERSION="580"} 512
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-a",modelName="NVIDIA H100 80GB HBM3",hostname="n1",container="c",namespace="team",pod="train-0",DCGM_FI_DRIVER_VERSION="580"} 0
DCGM_FI_DEV_XID_ERRORS{gpu="1",UUID="GPU-b",modelName="NVIDIA H100 80GB HBM3",hostname="n1",DCGM_FI_DRIVER_VERSION="580"} 79
`

// TestTop: each GPU of each agent has a line, and an agent that does not answer is named.
func TestTop(t *testing.T) {
	pod := func(name, node string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{"name": name, "namespace": "nvmlfab", "labels": map[string]any{"app.kubernetes.io/name": "nvmlfab-agent"}},
			"spec":     map[string]any{"nodeName": node, "containers": []any{map[string]any{"ports": []any{map[string]any{"name": "metrics", "containerPort": int64(9401)}}}}}}}
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{{Version: "v1", Resource: "pods"}: "PodList"},
		pod("agent-1", "n1"), pod("agent-2", "n2"))
	call := func(line string) (string, error) {
		var out strings.Builder
		err := run(t.Context(), strings.Fields(line), &out, client, func(_ context.Context, namespace, pod string) ([]byte, error) {
			if namespace+"/"+pod != "nvmlfab/agent-1:9401" {
				return nil, errors.New("no answer")
			}
			return []byte(sampleMetrics), nil
		})
		return out.String(), err
	}
	out, err := call("top n1")
	require.NoError(t, err)
	assert.Equal(t, `NODE   GPU   NAME                    UTIL   TEMP   POWER   MEMORY   XID   POD
n1     0     NVIDIA H100 80GB HBM3   -      41C    -       512MiB   0     team/train-0
n1     1     NVIDIA H100 80GB HBM3   -      -      -       -        79    -
`, out)
	out, err = call("top")
	assert.ErrorContains(t, err, "node n2: no answer")
	assert.Contains(t, out, "team/train-0")
	_, err = call("top n3")
	assert.ErrorContains(t, err, "no agent runs there")
}
