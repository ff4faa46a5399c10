package main

import (
	"strings"
	"testing"

	"github.com/nvmlfab/nvmlfab/kubernetes/api"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
)

func TestCommands(t *testing.T) {
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{api.GPUFaults: "GPUFaultList"})
	call := func(line string) (string, error) {
		var out strings.Builder
		err := run(t.Context(), strings.Fields(line), &out, client, nil)
		return out.String(), err
	}
	out, err := call("fail n1 3 --xid 79 --for 5m")
	require.NoError(t, err)
	assert.Equal(t, "gpufault/n1-3-xid79 created\n", out)
	object, err := client.Resource(api.GPUFaults).Get(t.Context(), "n1-3-xid79", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"node": "n1", "gpu": int64(3), "kind": "xid", "xid": int64(79), "duration": "5m0s"}, object.Object["spec"])
	_, err = call("fail n1 all")
	require.NoError(t, err)
	_, err = call("fail --metric thermal.temperature_gpu_c=95 n2 1 --name hot")
	require.NoError(t, err)
	out, err = call("status")
	require.NoError(t, err)
	assert.Contains(t, out, "n1-3-xid79")
	assert.Regexp(t, `(?m)^hot +metric +1 +n2 +Unseen`, out)
	out, err = call("heal n1 3")
	require.NoError(t, err)
	assert.Equal(t, "gpufault/n1-3-xid79 deleted\n", out)
	out, err = call("heal n1")
	require.NoError(t, err)
	assert.Equal(t, "gpufault/n1-all-lost deleted\n", out)

	for line, want := range map[string]string{
		"":                                    "want fail",
		"fail n1":                             "want fail NODE GPU",
		"fail n1 0 --kind lots":               "did you mean",
		"fail n1 0 --kind ecc --xid 3":        "xid does not belong",
		"fail n1 0 --metric thermal.temp=1":   "thermal.temp",
		"heal n1":                             "no fault to heal",
		"heal n1 --xid 3":                     "--xid: only fail has that",
		"status n1":                           "want fail NODE GPU",
		"fail n1 0 --kind nvlink --rate none": "rate: want a number",
	} {
		_, err := call(line)
		assert.ErrorContains(t, err, want, line)
	}
}
