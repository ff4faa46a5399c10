package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nvmlfab/nvmlfab/machine"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// refresh deletes the pods that take notice of GPUs only when they start, such as those of NVIDIA's device plugin, after a GPU has
// healed or has been cut. Their DaemonSet starts them anew.
func (a *Agent) refresh(ctx context.Context, staged *machine.Staged) error {
	if a.o.RestartPods == "" {
		return nil
	}
	if _, err := staged.Read(); err != nil {
		return err
	}
	var unwell []string
	board := staged.Source.Board
	for i := range board.Devices {
		if d, err := staged.Source.Device(i, time.Now().UnixMilli()); err != nil || !healthy(d) {
			unwell = append(unwell, string(board.Devices[i].UUID))
		}
	}
	healed := slices.ContainsFunc(a.m.Unwell, func(uuid string) bool { return !slices.Contains(unwell, uuid) })
	if !healed && !a.m.Cut {
		if slices.Equal(unwell, a.m.Unwell) {
			return nil
		}
		a.m.Unwell = unwell
		return a.m.write()
	}
	in := a.client.Resource(pods).Namespace(a.o.RestartNamespace)
	list, err := in.List(ctx, metav1.ListOptions{LabelSelector: a.o.RestartPods, FieldSelector: fields.OneTermEqualSelector("spec.nodeName", a.o.Node).String()})
	if err != nil {
		return fmt.Errorf("the pods %s of namespace %s: %w", a.o.RestartPods, a.o.RestartNamespace, err)
	}
	var failed []error
	for i := range list.Items {
		pod := &list.Items[i]
		uid := pod.GetUID()
		if err := in.Delete(ctx, pod.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil && !apierrors.IsNotFound(err) {
			failed = append(failed, fmt.Errorf("pod %s/%s: %w", pod.GetNamespace(), pod.GetName(), err))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err // it is tried again
	}
	a.m.Unwell, a.m.Cut = unwell, false
	return a.m.write()
}
