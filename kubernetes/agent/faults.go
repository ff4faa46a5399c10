package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/kubernetes/api"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// verdict is what becomes of a fault on the node.
type verdict struct {
	fault   *api.GPUFault
	gpus    []int
	uuids   []string
	status  metav1.ConditionStatus
	reason  string
	message string
	until   int64 // in ms since 1970; 0 for no end
}

// layer is the owner of the layers of a GPUFault: the name and the beginning of the UID, so that an object that takes the place
// of another of the same name is another fault. nvmlfab fail uses names without a colon.
func layer(f *api.GPUFault) string {
	uid := string(f.UID)
	return change.ByFault + f.Name + "/" + uid[:min(8, len(uid))] + ":"
}

// ofObject says whether a layer is that of a GPUFault.
func ofObject(l state.Layer) bool {
	rest, ok := strings.CutPrefix(l.By, change.ByFault)
	return ok && strings.Contains(rest, "/") && strings.Contains(rest, ":")
}

// myFaults are the GPUFaults that are about the node, the oldest first.
func (a *Agent) myFaults(node *corev1.Node) (list []*verdict, others []*api.GPUFault) {
	for _, object := range a.faults.GetStore().List() {
		f := &api.GPUFault{}
		if err := convert(object, f); err != nil {
			a.o.Log(err)
			continue
		}
		v := &verdict{fault: f}
		hits, err := f.Spec.Hits(node.Name, node.Labels)
		if err != nil {
			v.refuse(api.ReasonInvalid, err.Error())
		} else if !hits {
			others = append(others, f)
			continue
		}
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b *verdict) int {
		return cmp.Or(a.fault.CreationTimestamp.Compare(b.fault.CreationTimestamp.Time), cmp.Compare(a.fault.Name, b.fault.Name))
	})
	return list, others
}

func (v *verdict) refuse(reason, message string) {
	v.status, v.reason, v.message = metav1.ConditionFalse, reason, message
}

// claims are the names of what a fault changes about a GPU. Two faults with the same claim cannot both be in force.
func claims(f change.Fault, keys profiles.Settings) []string {
	if f.Kind == "" {
		list := slices.Sorted(maps.Keys(keys))
		for i, key := range list {
			if strings.HasPrefix(key, "failure.") {
				list[i] = "failure"
			}
		}
		return list
	}
	if k, err := change.KindOf(f.Kind); err == nil && k.Mode != "" && f.Kind != "ecc-uncorrectable" {
		return []string{"failure"}
	}
	return []string{f.Kind}
}

// overlap says whether one key is the other or a section that has it.
func overlap(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+".") || strings.HasPrefix(b, a+".")
}

// judge decides which of the faults are in force at a time, and returns the time until that changes by itself; 0 if it does not.
func judge(list []*verdict, board *profiles.Board, now time.Time) (next time.Duration) {
	sooner := func(at time.Time) {
		if d := at.Sub(now); d > 0 && (next == 0 || d < next) {
			next = d
		}
	}
	type claim struct {
		gpu  int
		what string
		by   string
	}
	var taken []claim
	for _, v := range list {
		if v.reason != "" {
			continue
		}
		f, keys, err := v.fault.Spec.Fault()
		if err == nil {
			v.gpus, err = v.fault.Spec.GPUs(board)
		}
		if err != nil {
			v.refuse(api.ReasonInvalid, err.Error())
			continue
		}
		from, until := v.fault.Times()
		if now.Before(from) {
			sooner(from)
			v.refuse(api.ReasonWaiting, "fails at "+from.UTC().Format(time.RFC3339))
			continue
		}
		if !until.IsZero() {
			if !now.Before(until) {
				v.refuse(api.ReasonEnded, "ended at "+until.UTC().Format(time.RFC3339))
				continue
			}
			sooner(until)
			v.until = until.UnixMilli()
		}
		var mine []claim
		for _, gpu := range v.gpus {
			for _, what := range claims(f, keys) {
				at := slices.IndexFunc(taken, func(c claim) bool { return c.gpu == gpu && overlap(c.what, what) })
				if at >= 0 && v.reason == "" {
					v.refuse(api.ReasonConflict, fmt.Sprintf("GPU %d: the older fault %q is in force", gpu, taken[at].by))
				}
				mine = append(mine, claim{gpu, what, v.fault.Name})
			}
		}
		if v.reason != "" {
			continue
		}
		taken = append(taken, mine...)
		for _, i := range v.gpus {
			v.uuids = append(v.uuids, string(board.Devices[i].UUID))
		}
		v.status, v.reason, v.message = metav1.ConditionTrue, api.ReasonFailing, v.fault.Spec.KindName()
	}
	return next
}

// apply brings the faults that are in force on the node into its state, takes those away that are not, and says so in the
// objects. It returns after how long that changes by itself.
func (a *Agent) apply(ctx context.Context, node *corev1.Node, staged *machine.Staged) time.Duration {
	list, others := a.myFaults(node)
	next := judge(list, staged.Source.Board, time.Now())
	if err := a.commit(staged, list); err != nil {
		a.o.Log(err)
		next = time.Second
	}
	for _, v := range list {
		a.tell(ctx, v)
	}
	for _, f := range others {
		if _, told := f.Status.Nodes[node.Name]; told {
			a.patchStatus(ctx, f, nil)
		}
	}
	return cmp.Or(next, a.o.Interval)
}

// unstaged says in the objects about a node without GPUs that nothing can fail there.
func (a *Agent) unstaged(ctx context.Context, node *corev1.Node) {
	list, _ := a.myFaults(node)
	for _, v := range list {
		if v.reason == "" {
			v.refuse(api.ReasonNotStaged, "the node has no GPUs of nvmlfab's")
		}
		a.tell(ctx, v)
	}
}

// commit makes the state have the layers of the faults in force and no others of GPUFaults, in one change. A fault that the board
// cannot have is refused, and does not keep the others from being applied.
func (a *Agent) commit(staged *machine.Staged, list []*verdict) error {
	aside, err := staged.Read()
	if aside != nil {
		a.o.Log(aside)
	}
	if err != nil {
		return err
	}
	if settled(staged, list) {
		return nil
	}
	// Those that cannot be applied are found one by one, on copies of the state that nobody sees.
	for _, v := range list {
		if v.reason != api.ReasonFailing {
			continue
		}
		t := change.Begin(staged.Source, time.Now().UnixMilli())
		err := v.lay(t)
		if err == nil {
			_, err = t.Finish()
		}
		if err != nil {
			v.refuse(api.ReasonInvalid, err.Error())
		}
	}
	aside, err = staged.Change(func(t *change.Tx) error {
		want := map[string]bool{}
		for _, v := range list {
			if v.reason == api.ReasonFailing {
				want[layer(v.fault)] = true
			}
		}
		changed := false
		for i := range t.Devices() {
			n, err := t.DropLayers(i, func(l state.Layer) bool {
				owner := l.By[:strings.LastIndex(l.By, ":")+1]
				return ofObject(l) && !want[owner]
			})
			if err != nil {
				return err
			}
			changed = changed || n > 0
		}
		for _, v := range list {
			if v.reason != api.ReasonFailing || laid(t.State(), v) {
				continue
			}
			if err := v.lay(t); err != nil {
				return err
			}
			changed = true
		}
		if !changed {
			return machine.ErrUnchanged
		}
		return nil
	})
	if aside != nil {
		a.o.Log(aside)
	}
	return err
}

// lay lays a fault over its GPUs.
func (v *verdict) lay(t *change.Tx) error {
	f, keys, err := v.fault.Spec.Fault()
	if err != nil {
		return err
	}
	for _, i := range v.gpus {
		if f.Kind == "" {
			err = t.Play(i, layer(v.fault)+v.fault.Spec.Kind, v.until, keys)
		} else {
			err = t.Fail(i, layer(v.fault), v.until, f)
		}
		if err != nil {
			return fmt.Errorf("GPU %d: %w", i, err)
		}
	}
	return nil
}

// laid says whether the state has the layers of a fault.
func laid(s *state.State, v *verdict) bool {
	if s == nil {
		return false
	}
	for _, uuid := range v.uuids {
		if !slices.ContainsFunc(s.Device(profiles.UUID(uuid)).Set, func(l state.Layer) bool { return strings.HasPrefix(l.By, layer(v.fault)) }) {
			return false
		}
	}
	return true
}

// settled says whether the state has the layers that the faults want, and no others of GPUFaults.
func settled(staged *machine.Staged, list []*verdict) bool {
	s, want := staged.Source.State, map[string]bool{}
	for _, v := range list {
		if v.reason == api.ReasonFailing {
			if !laid(s, v) {
				return false
			}
			want[layer(v.fault)] = true
		}
	}
	if s == nil {
		return true
	}
	for _, r := range s.Devices {
		for _, l := range r.Set {
			if ofObject(l) && !want[l.By[:strings.LastIndex(l.By, ":")+1]] {
				return false
			}
		}
	}
	return true
}

// tell writes the verdict into the object's status, and an Event if it is a bad one.
func (a *Agent) tell(ctx context.Context, v *verdict) {
	was := v.fault.Status.Nodes[a.o.Node]
	gpus := v.uuids
	if v.status != metav1.ConditionTrue {
		gpus = nil
	}
	c := metav1.Condition{Type: api.Applied, Status: v.status, Reason: v.reason, Message: v.message,
		ObservedGeneration: v.fault.Generation, LastTransitionTime: metav1.Now()}
	for _, old := range was.Conditions {
		if old.Type != api.Applied {
			continue
		}
		if old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message && slices.Equal(was.GPUs, gpus) {
			return
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	kind := corev1.EventTypeNormal
	if v.reason == api.ReasonConflict || v.reason == api.ReasonInvalid || v.reason == api.ReasonNotStaged {
		kind = corev1.EventTypeWarning
	}
	a.event(ctx, corev1.ObjectReference{Kind: "GPUFault", APIVersion: api.Group + "/" + api.Version, Name: v.fault.Name, UID: v.fault.UID},
		kind, v.reason, "node "+a.o.Node+": "+v.message)
	a.patchStatus(ctx, v.fault, &api.NodeStatus{GPUs: gpus, Conditions: []metav1.Condition{c}})
}

// patchStatus writes the node's part of a fault's status; nil takes it away. It is a merge by the node's name, so that agents do
// not disturb one another.
func (a *Agent) patchStatus(ctx context.Context, f *api.GPUFault, s *api.NodeStatus) {
	text, err := json.Marshal(map[string]any{"status": map[string]any{"nodes": map[string]any{a.o.Node: s}}})
	if err == nil {
		_, err = a.client.Resource(api.GPUFaults).Patch(ctx, f.Name, types.MergePatchType, text, metav1.PatchOptions{}, "status")
	}
	if err != nil && !apierrors.IsNotFound(err) && !errors.Is(err, context.Canceled) {
		a.o.Log(fmt.Errorf("the status of GPUFault %s: %w", f.Name, err))
	}
}
