// Package agent is the program of a node in a cluster: the only writer of what a node with GPUs has, and of its faults.
//
// The agent looks at three kinds of objects: its Node, a ConfigMap with pools and profiles, and the GPUFaults. From them it
// computes what the node shall have, and brings the node there, again and again. So it does not matter what a killed agent
// left, or what came in which order.
package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nvmlfab/nvmlfab/kubernetes/api"
	"github.com/nvmlfab/nvmlfab/machine"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// Options are what an agent depends on. A folder or link with an empty name is left out.
type Options struct {
	// Node is the name of the node, and Namespace the one with the ConfigMap.
	Node, Namespace string
	// ConfigMap is the name of the one with pools and profiles.
	ConfigMap string
	// Root is the folder for all that is staged. Its path is the same on the node and for the agent.
	Root string
	// KeepRoot says that Root is a mount, and so cannot be removed.
	KeepRoot bool
	// CDI is the folder for the specification, and Kind the vendor and class of its devices.
	CDI, Kind string
	// Features is node-feature-discovery's folder for local features.
	Features string
	// DriverLink is a link to the tree in force, such as /run/nvidia/driver.
	DriverLink string
	// Home is the folder with bin, lib and nvml of a release, and SMI an nvidia-smi to stage.
	Home, SMI string
	// Proc is the proc of the node.
	Proc string
	// MIGStrategy is how MIG devices are offered: one of MIGStrategies; single if empty.
	MIGStrategy string
	// RestartPods is a selector of pods in RestartNamespace that are deleted on the node when a GPU has healed or has been cut.
	RestartNamespace, RestartPods string
	// PodResources is the kubelet's socket that says which pod has which device; empty to leave pods out of the metrics.
	PodResources string
	// Labels says that the node gets labels as gpu-feature-discovery gives them.
	Labels bool
	// CPUs are those of the node.
	CPUs []uint32
	// Version is that of nvmlfab.
	Version string
	// Interval is how often the agent looks at the node even if nothing has changed.
	Interval time.Duration
	// Log is told what goes wrong.
	Log func(error)
}

var (
	nodes      = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	events     = schema.GroupVersionResource{Version: "v1", Resource: "events"}
)

// Agent brings one node into the state that the cluster wants.
type Agent struct {
	o       Options
	client  dynamic.Interface
	m       *manifest
	staged  int    // how many trees this agent has staged
	mig     string // the state of the MIG configuration; empty without one
	retired bool   // the agent has taken all away, and shall not begin again
	tried   string // the MIG configuration that was tried last

	mu     sync.Mutex // held while the node is being changed
	node   cache.SharedIndexInformer
	config cache.SharedIndexInformer
	faults cache.SharedIndexInformer
	kick   chan struct{}
	said   map[string]string // what was said last about a subject
	unlock func()

	looking sync.Mutex
	view    view
}

// New is an agent. It waits until no other agent of the node runs.
func New(ctx context.Context, client dynamic.Interface, o Options) (*Agent, error) {
	if o.Log == nil {
		o.Log = func(error) {}
	}
	if o.Kind == "" {
		o.Kind = "nvidia.com/gpu"
	}
	if o.MIGStrategy == "" {
		o.MIGStrategy = MIGSingle
	}
	if !slices.Contains(MIGStrategies, o.MIGStrategy) {
		return nil, fmt.Errorf("MIG strategy %q: want one of %s", o.MIGStrategy, strings.Join(MIGStrategies, ", "))
	}
	if o.Interval <= 0 {
		o.Interval = 30 * time.Second
	}
	if err := os.MkdirAll(o.Root, 0o755); err != nil {
		return nil, err
	}
	unlock, err := lockRoot(ctx, o.Root)
	if err != nil {
		return nil, err
	}
	m, err := readManifest(o.Root)
	if err != nil {
		return nil, err
	}
	a := &Agent{o: o, client: client, m: m, kick: make(chan struct{}, 1), said: map[string]string{}, unlock: unlock}
	if client == nil { // to discard
		return a, nil
	}
	informer := func(resource schema.GroupVersionResource, namespace, name string) cache.SharedIndexInformer {
		var selector string
		if name != "" {
			selector = fields.OneTermEqualSelector("metadata.name", name).String()
		}
		of := client.Resource(resource).Namespace(namespace)
		return cache.NewSharedIndexInformer(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, l metav1.ListOptions) (runtime.Object, error) {
				l.FieldSelector = selector
				return of.List(ctx, l)
			},
			WatchFuncWithContext: func(ctx context.Context, l metav1.ListOptions) (watch.Interface, error) {
				l.FieldSelector = selector
				return of.Watch(ctx, l)
			},
		}, &unstructured.Unstructured{}, 0, cache.Indexers{})
	}
	a.node = informer(nodes, "", o.Node)
	a.config = informer(configMaps, o.Namespace, o.ConfigMap)
	a.faults = informer(api.GPUFaults, "", "")
	for _, i := range []cache.SharedIndexInformer{a.node, a.config, a.faults} {
		if err := i.SetTransform(trim); err != nil {
			return nil, err
		}
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { a.Kick() }, UpdateFunc: func(any, any) { a.Kick() }, DeleteFunc: func(any) { a.Kick() },
		}); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// trim takes away what nobody looks at, to save memory.
func trim(object any) (any, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		u.SetManagedFields(nil)
		unstructured.RemoveNestedField(u.Object, "status", "images")
	}
	return object, nil
}

// lockRoot keeps a second agent from writing, in the moments when one takes the place of another.
func lockRoot(ctx context.Context, root string) (unlock func(), err error) {
	dir, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", root, err)
	}
	for {
		err := unix.Flock(dir, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { unix.Close(dir) }, nil // held until the process ends
		}
		select {
		case <-ctx.Done():
			unix.Close(dir)
			return nil, fmt.Errorf("%s: another agent runs on this node: %w", root, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Kick makes a running agent look at the node soon.
func (a *Agent) Kick() {
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

// Run keeps the node in the state that the cluster wants until the context ends.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.watch(ctx); err != nil {
		return err
	}
	for {
		next := a.Reconcile(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-a.kick:
		case <-time.After(max(min(next, a.o.Interval), 10*time.Millisecond)):
		}
	}
}

// watch begins to follow the objects that the agent looks at, and returns when it has seen them.
func (a *Agent) watch(ctx context.Context) error {
	for _, i := range []cache.SharedIndexInformer{a.node, a.config, a.faults} {
		go i.RunWithContext(ctx)
	}
	if !cache.WaitForCacheSync(ctx.Done(), a.node.HasSynced, a.config.HasSynced, a.faults.HasSynced) {
		return ctx.Err()
	}
	return nil
}

// Reconcile brings the node once into the state that the cluster wants, as far as that is possible, and says what is not. It
// returns after how long it has to be called again even if nothing changes.
func (a *Agent) Reconcile(ctx context.Context) (next time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	node := a.myNode()
	if node == nil {
		a.o.Log(fmt.Errorf("there is no node %q", a.o.Node))
		return a.o.Interval
	}
	if a.retiring() {
		a.retire(ctx, node)
		return a.o.Interval
	}
	a.retired = false
	choice, wrong := a.choose(node)
	if wrong == nil && choice != nil {
		wrong = a.stage(choice)
	}
	g := a.inForce()
	var unpublished, uncut error
	if wrong == nil && choice == nil && g != nil {
		unpublished = errors.Join(a.revoke(), a.withdraw(ctx, node))
		for _, old := range slices.Clone(a.m.Generations) {
			unpublished = errors.Join(unpublished, a.drop(old))
		}
		g = nil
	}
	next = a.o.Interval
	var staged *machine.Staged
	if g != nil {
		var err error
		if staged, err = machine.OpenStaged(a.tree(*g)); err != nil {
			unpublished = err
		}
	}
	if staged != nil {
		uncut = a.divide(ctx, node, staged, choice)
		unpublished = a.publish(*g)
		next = a.apply(ctx, node, staged)
		if err := a.refresh(ctx, staged); err != nil {
			unpublished = errors.Join(unpublished, err)
		}
		unpublished = errors.Join(unpublished, a.label(ctx, node, staged))
	} else {
		a.unstaged(ctx, node)
	}
	if err := a.collect(); err != nil {
		unpublished = errors.Join(unpublished, err)
	}
	a.report(ctx, node, g, wrong, uncut, unpublished)
	return next
}

// myNode is the agent's node as it was seen last.
func (a *Agent) myNode() *corev1.Node {
	object, ok, err := a.node.GetStore().GetByKey(a.o.Node)
	if err != nil || !ok {
		return nil
	}
	var node corev1.Node
	if err := convert(object, &node); err != nil {
		a.o.Log(err)
		return nil
	}
	return &node
}

// convert reads an object of an informer.
func convert(object, into any) error {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("%T is no object", object)
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into)
}

// data is that of the ConfigMap; nil if there is none.
func (a *Agent) data() (map[string]string, error) {
	object, ok, err := a.config.GetStore().GetByKey(a.o.Namespace + "/" + a.o.ConfigMap)
	if err != nil || !ok {
		return nil, err
	}
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("%T is no ConfigMap", object)
	}
	data, _, err := unstructured.NestedStringMap(u.Object, "data")
	return data, err
}

// choose is what the node shall have; nil if it shall have nothing.
func (a *Agent) choose(node *corev1.Node) (*api.Choice, error) {
	data, err := a.data()
	if err != nil {
		return nil, err
	}
	config, err := api.ParseConfig(data)
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s: %w", a.o.Namespace, a.o.ConfigMap, err)
	}
	return config.Choose(node.Labels)
}

// sorted are the keys of a map.
func sorted[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// oneLine is an error as one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
