package agent

import (
	"context"
	"errors"

	"github.com/nvmlfab/nvmlfab/kubernetes/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// retiring says whether the node shall have nothing of the agent's: the ConfigMap has the mark, or it is gone after it had it, since
// what is being deleted goes in any order.
func (a *Agent) retiring() bool {
	object, ok, err := a.config.GetStore().GetByKey(a.o.Namespace + "/" + a.o.ConfigMap)
	if u, is := object.(*unstructured.Unstructured); err == nil && ok && is {
		return u.GetAnnotations()[api.DiscardMark] == "true"
	}
	return a.retired
}

// retire takes away all that the agent has written, and the node's condition last, by which the cluster sees that it is done.
func (a *Agent) retire(ctx context.Context, node *corev1.Node) {
	list, others := a.myFaults(node)
	for _, v := range list {
		others = append(others, v.fault)
	}
	for _, f := range others {
		if _, told := f.Status.Nodes[node.Name]; told {
			a.patchStatus(ctx, f, nil)
		}
	}
	err := errors.Join(a.withdraw(ctx, node), a.Discard())
	a.mig, a.tried = "", ""
	if err == nil {
		err = a.Withdraw(ctx, a.client)
	}
	if err != nil {
		a.o.Log(err)
		a.report(ctx, node, a.inForce(), nil, nil, err)
		return
	}
	a.retired = true
}
