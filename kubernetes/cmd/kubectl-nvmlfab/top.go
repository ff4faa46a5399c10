package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// agents is the selector of the agents' pods.
const agents = "app.kubernetes.io/name=nvmlfab-agent"

// throughServer answers the metrics of pods, for which it asks the API server.
func throughServer(config *rest.Config) (func(ctx context.Context, namespace, pod string) ([]byte, error), error) {
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &schema.GroupVersion{Version: "v1"}, "/api"
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, namespace, pod string) ([]byte, error) {
		return client.Get().Namespace(namespace).Resource("pods").Name(pod).SubResource("proxy").Suffix("metrics").DoRaw(ctx)
	}, nil
}

// reading is a GPU's line of top.
type reading struct {
	node   string
	gpu    int
	labels map[string]string
	values map[string]string
}

var (
	sample = regexp.MustCompile(`^(DCGM_FI_DEV_[A-Z_]+)\{(.*)\} (\S+)$`)
	pair   = regexp.MustCompile(`([A-Za-z_]+)="((?:[^"\\]|\\.)*)"`)
)

// readings are the GPUs in the metrics of an agent.
func readings(text string) ([]*reading, error) {
	all := map[string]*reading{}
	for line := range strings.Lines(text) {
		match := sample.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if match == nil {
			continue
		}
		labels := map[string]string{}
		for _, p := range pair.FindAllStringSubmatch(match[2], -1) {
			value, err := strconv.Unquote(`"` + p[2] + `"`)
			if err != nil {
				return nil, fmt.Errorf("the metrics have the label %.200q: %w", p[0], err)
			}
			labels[p[1]] = value
		}
		gpu, err := strconv.Atoi(labels["gpu"])
		if err != nil {
			return nil, fmt.Errorf("the metrics have a GPU %.40q: %w", labels["gpu"], err)
		}
		r := all[labels["UUID"]]
		if r == nil {
			r = &reading{node: labels["hostname"], gpu: gpu, labels: labels, values: map[string]string{}}
			all[labels["UUID"]] = r
		}
		r.values[strings.TrimPrefix(match[1], "DCGM_FI_DEV_")] = match[3]
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *reading) int { return cmp.Compare(a.gpu, b.gpu) }), nil
}

// metricsPort is the port of an agent's metrics.
func metricsPort(pod *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	for _, c := range containers {
		c, _ := c.(map[string]any)
		ports, _, _ := unstructured.NestedSlice(c, "ports")
		for _, p := range ports {
			if p, _ := p.(map[string]any); p["name"] == "metrics" {
				return fmt.Sprint(p["containerPort"])
			}
		}
	}
	return "9400"
}

// top prints the readings of all GPUs, or of those of one node.
func top(ctx context.Context, client dynamic.Interface, get func(ctx context.Context, namespace, pod string) ([]byte, error), out io.Writer, node string) error {
	pods, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).List(ctx, metav1.ListOptions{LabelSelector: agents})
	if err != nil {
		return err
	}
	type answer struct {
		node string
		list []*reading
		err  error
	}
	var answers []*answer
	var asked sync.WaitGroup
	few := make(chan struct{}, 16) // at a time
	for i := range pods.Items {
		pod := &pods.Items[i]
		on, _, err := unstructured.NestedString(pod.Object, "spec", "nodeName")
		if err != nil {
			return err
		}
		if on == "" || node != "" && on != node {
			continue
		}
		a := &answer{node: on}
		answers = append(answers, a)
		asked.Go(func() {
			few <- struct{}{}
			defer func() { <-few }()
			var text []byte
			if text, a.err = get(ctx, pod.GetNamespace(), pod.GetName()+":"+metricsPort(pod)); a.err == nil {
				a.list, a.err = readings(string(text))
			}
		})
	}
	asked.Wait()
	if len(answers) == 0 {
		return errors.New("no agent runs there: no pod has the label " + agents)
	}
	slices.SortFunc(answers, func(a, b *answer) int { return cmp.Compare(a.node, b.node) })
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NODE\tGPU\tNAME\tUTIL\tTEMP\tPOWER\tMEMORY\tXID\tPOD")
	var failed []error
	for _, a := range answers {
		if a.err != nil {
			failed = append(failed, fmt.Errorf("node %s: %w", a.node, a.err))
		}
		for _, r := range a.list {
			value := func(name, unit string) string {
				v, ok := r.values[name]
				if !ok {
					return "-"
				}
				return v + unit
			}
			memory := "-"
			if used, ok := r.values["FB_USED"]; ok {
				memory = used + "MiB"
			}
			pod := "-"
			if name := r.labels["pod"]; name != "" {
				pod = r.labels["namespace"] + "/" + name
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.node, r.gpu, r.labels["modelName"],
				value("GPU_UTIL", "%"), value("GPU_TEMP", "C"), value("POWER_USAGE", "W"), memory, value("XID_ERRORS", ""), pod)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return errors.Join(failed...)
}
