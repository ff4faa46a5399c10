package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nvmlfab/nvmlfab/kubernetes/api"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
)

// Condition is the type of the condition by which a Node says whether it has what it shall have.
const Condition corev1.NodeConditionType = api.Ready

// The reasons of the condition.
const (
	reasonStaged     = "Staged"
	reasonNoGPUs     = "NoGPUs"
	reasonBadProfile = "BadProfile"
	reasonBadMIG     = "BadMIG"
	reasonNode       = "NodeNotWritten"
)

// report says in a condition of the Node, and in an Event when that changes, what is in force and what is wrong.
func (a *Agent) report(ctx context.Context, node *corev1.Node, g *generation, wrong, uncut, unpublished error) {
	status, reason, message := corev1.ConditionTrue, reasonStaged, ""
	if g == nil {
		reason, message = reasonNoGPUs, "no pool and no label gives this node GPUs"
	} else {
		message = fmt.Sprintf("profile %s by %s, generation %d", g.Profile, g.From, g.Number)
	}
	for _, fault := range []struct {
		err    error
		reason string
	}{{wrong, reasonBadProfile}, {uncut, reasonBadMIG}, {unpublished, reasonNode}} {
		if fault.err == nil {
			continue
		}
		rest := message
		if g == nil {
			rest = "nothing is staged"
		}
		status, reason, message = corev1.ConditionFalse, fault.reason, oneLine(fault.err)+"; in force: "+rest
		break
	}
	for _, c := range node.Status.Conditions {
		if c.Type == Condition && c.Status == status && c.Reason == reason && c.Message == message {
			return
		}
	}
	kind := corev1.EventTypeNormal
	if status == corev1.ConditionFalse {
		kind = corev1.EventTypeWarning
	}
	a.event(ctx, corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: node.Name, UID: types.UID(node.Name)}, kind, reason, message)
	now := metav1.Now()
	want := corev1.NodeCondition{Type: Condition, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object, err := a.client.Resource(nodes).Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := setCondition(object, want); err != nil {
			return err
		}
		_, err = a.client.Resource(nodes).UpdateStatus(ctx, object, metav1.UpdateOptions{})
		return err
	})
	if err != nil && ctx.Err() == nil {
		a.o.Log(fmt.Errorf("the condition of node %s: %w", node.Name, err))
	}
}

// setCondition puts a condition among those of a node.
func setCondition(object *unstructured.Unstructured, want corev1.NodeCondition) error {
	plain := map[string]any{}
	text, err := json.Marshal(want)
	if err == nil {
		err = json.Unmarshal(text, &plain)
	}
	if err != nil {
		return err
	}
	list, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		return err
	}
	found := false
	for i, c := range list {
		if old, ok := c.(map[string]any); ok && old["type"] == string(want.Type) {
			if old["status"] == string(want.Status) {
				plain["lastTransitionTime"] = old["lastTransitionTime"]
			}
			list[i], found = plain, true
		}
	}
	if !found {
		list = append(list, plain)
	}
	return unstructured.SetNestedSlice(object.Object, list, "status", "conditions")
}

// event writes an Event about an object, unless the last one about it said the same.
func (a *Agent) event(ctx context.Context, about corev1.ObjectReference, kind, reason, message string) {
	subject := about.Kind + "/" + about.Name
	if a.said[subject] == reason+message {
		return
	}
	a.said[subject] = reason + message
	if len(message) > 1000 {
		message = message[:1000]
	}
	now := metav1.Now()
	e := corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", about.Name, time.Now().UnixNano()), Namespace: metav1.NamespaceDefault},
		InvolvedObject: about, Type: kind, Reason: reason, Message: message, FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: corev1.EventSource{Component: "nvmlfab-agent", Host: a.o.Node}, ReportingController: "nvmlfab.dev/agent", ReportingInstance: a.o.Node,
	}
	object, err := plainObject(e)
	if err == nil {
		_, err = a.client.Resource(events).Namespace(e.Namespace).Create(ctx, object, metav1.CreateOptions{})
	}
	if err != nil && ctx.Err() == nil {
		a.o.Log(fmt.Errorf("an event of %s: %w", subject, err))
	}
}

func plainObject(value any) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	return u, u.UnmarshalJSON(text)
}

// patchLabels sets labels of the node, and takes those away whose value is nil.
func (a *Agent) patchLabels(ctx context.Context, values map[string]any) error {
	if len(values) == 0 {
		return nil
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": values}})
	if err != nil {
		return err
	}
	_, err = a.client.Resource(nodes).Patch(ctx, a.o.Node, types.MergePatchType, text, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Withdraw takes the agent's labels and its condition from the node.
func (a *Agent) Withdraw(ctx context.Context, client dynamic.Interface) error {
	a.client = client
	object, err := client.Resource(nodes).Get(ctx, a.o.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	var node corev1.Node
	if err := convert(object, &node); err != nil {
		return err
	}
	if err := a.withdraw(ctx, &node); err != nil {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object, err := client.Resource(nodes).Get(ctx, a.o.Node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		list, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
		if err != nil {
			return err
		}
		left := slices.DeleteFunc(slices.Clone(list), func(c any) bool {
			m, ok := c.(map[string]any)
			return ok && m["type"] == string(Condition)
		})
		if len(left) == len(list) {
			return nil
		}
		if err := unstructured.SetNestedSlice(object.Object, left, "status", "conditions"); err != nil {
			return err
		}
		_, err = client.Resource(nodes).UpdateStatus(ctx, object, metav1.UpdateOptions{})
		return err
	})
}
