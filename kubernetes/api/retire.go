package api

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// DiscardMark is the annotation of the ConfigMap that makes agents take away all that they have written, until it is gone.
const DiscardMark = Group + "/discard"

// Ready is the type of the condition by which a Node says whether it has what it shall have. A node without it has nothing of
// nvmlfab's.
const Ready = "NvmlfabReady"

// Retire makes all agents take away what they have written, and returns when all nodes say so. The agents have to run until then.
func Retire(ctx context.Context, client dynamic.Interface, namespace, configMap string, wait time.Duration) error {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{DiscardMark: "true"}}})
	if err != nil {
		return err
	}
	_, err = client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(namespace).
		Patch(ctx, configMap, types.MergePatchType, text, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("ConfigMap %s/%s: %w", namespace, configMap, err)
	}
	end := time.After(wait)
	for {
		left, err := notRetired(ctx, client)
		if err == nil && len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end:
			if err == nil {
				err = fmt.Errorf("after %s these nodes still have what nvmlfab gave them: %s", wait, strings.Join(left, ", "))
			}
			return err
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// notRetired are the nodes that have something of nvmlfab's, each with what it says.
func notRetired(ctx context.Context, client dynamic.Interface) (list []string, err error) {
	nodes, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range nodes.Items {
		conditions, _, err := unstructured.NestedSlice(nodes.Items[i].Object, "status", "conditions")
		if err != nil {
			return nil, err
		}
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == Ready {
				list = append(list, fmt.Sprintf("%s (%v: %v)", nodes.Items[i].GetName(), c["reason"], c["message"]))
			}
		}
	}
	return list, nil
}
