// Kubectl-nvmlfab is a plugin of kubectl that makes GPUs of a cluster fail and heal.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nvmlfab/nvmlfab/kubernetes/api"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

const usage = `Makes GPUs of nvmlfab's nodes fail and heal.

  kubectl nvmlfab fail NODE GPU [flags]   a fault that lasts until it is healed; GPU is an index, a UUID or all
  kubectl nvmlfab heal NODE [GPU]         takes the faults of a node back, or those of one GPU
  kubectl nvmlfab status                  the faults, and what has become of them on each node
  kubectl nvmlfab top [NODE]              the readings of the GPUs, and which pods have them

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, nil, nil); err != nil {
		fmt.Fprintln(os.Stderr, "kubectl nvmlfab:", err)
		os.Exit(1)
	}
}

// pairs are flags KEY=VALUE that may be given several times.
type pairs map[string]string

func (p pairs) String() string { return "" }

func (p pairs) Set(text string) error {
	key, value, ok := strings.Cut(text, "=")
	if !ok || key == "" {
		return errors.New("want KEY=VALUE, such as thermal.temperature_gpu_c=95")
	}
	p[key] = value
	return nil
}

// run runs a command line. A client that is not nil takes the place of the one that the kubeconfig names, and so does proxy, which
// answers the metrics of an agent's pod.
func run(ctx context.Context, args []string, out io.Writer, client dynamic.Interface, proxy func(ctx context.Context, namespace, pod string) ([]byte, error)) error {
	flags := flag.NewFlagSet("kubectl nvmlfab", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	metrics := pairs{}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	var overrides clientcmd.ConfigOverrides
	var spec api.GPUFaultSpec
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "a kubeconfig `file`")
	flags.StringVar(&overrides.CurrentContext, "context", "", "a `context` of the kubeconfig")
	flags.StringVar(&spec.Kind, "kind", "", "how it fails: lost, xid, ecc, nvlink, thermal, metric, or as nvmlfab fail says; lost by default")
	flags.Int64Var(&spec.Xid, "xid", 0, "sends the Xid error of that `number`")
	flags.Int64Var(&spec.Count, "count", 0, "how many errors there are, for kinds that count them")
	flags.StringVar(&spec.Rate, "rate", "", "how many errors of links there are per second, for nvlink")
	flags.Int64Var(&spec.Temperature, "temperature", 0, "the GPU's temperature in °C")
	flags.Var(metrics, "metric", "a `KEY=VALUE` of the profile; may be given several times")
	flags.DurationVar(&spec.Duration.Duration, "for", 0, "heal by itself after that `time`")
	flags.DurationVar(&spec.After.Duration, "after", 0, "fail after that `time`")
	name := flags.String("name", "", "the `name` of the fault; made from node and GPU by default")
	var words []string
	for len(args) > 0 { // flags may stand anywhere
		if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
			return nil
		} else if err != nil {
			return err
		}
		if args = flags.Args(); len(args) > 0 {
			words, args = append(words, args[0]), args[1:]
		}
	}
	if len(words) == 0 {
		flags.Usage()
		return errors.New("want fail, heal, status or top")
	}
	what := words[0]
	if what != "fail" {
		var stray []string
		flags.Visit(func(f *flag.Flag) {
			if f.Name != "kubeconfig" && f.Name != "context" {
				stray = append(stray, "--"+f.Name)
			}
		})
		if len(stray) > 0 {
			return fmt.Errorf("%s: only fail has that", strings.Join(stray, ", "))
		}
	}
	get := proxy
	connect := func() error {
		if client != nil {
			return nil
		}
		config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &overrides).ClientConfig()
		if err != nil {
			return err
		}
		if client, err = dynamic.NewForConfig(config); err != nil {
			return err
		}
		get, err = throughServer(config)
		return err
	}
	switch {
	case what == "fail" && len(words) == 3:
		if len(metrics) > 0 {
			spec.Metrics = metrics
		}
		spec.Kind = cmp.Or(spec.Kind, kindOf(&spec))
		spec.Node, spec.GPU = words[1], intstr.Parse(words[2])
		if _, _, err := spec.Fault(); err != nil {
			return err
		}
		if err := connect(); err != nil {
			return err
		}
		return fail(ctx, client, out, cmp.Or(*name, nameOf(&spec)), spec)
	case what == "heal" && (len(words) == 2 || len(words) == 3):
		if err := connect(); err != nil {
			return err
		}
		gpu := ""
		if len(words) == 3 {
			gpu = words[2]
		}
		return heal(ctx, client, out, words[1], gpu)
	case what == "top" && len(words) <= 2:
		if err := connect(); err != nil {
			return err
		}
		return top(ctx, client, get, out, strings.Join(words[1:], ""))
	case what == "status" && len(words) == 1:
		if err := connect(); err != nil {
			return err
		}
		return status(ctx, client, out)
	}
	return fmt.Errorf("%q: want fail NODE GPU, heal NODE [GPU], status or top [NODE]", words)
}

// kindOf is the kind that the other flags mean.
func kindOf(s *api.GPUFaultSpec) string {
	switch {
	case s.Xid != 0:
		return api.KindXid
	case s.Temperature != 0:
		return api.KindThermal
	case len(s.Metrics) > 0:
		return api.KindMetric
	}
	return "lost"
}

// nameOf is a name by which people know the fault again.
func nameOf(s *api.GPUFaultSpec) string {
	gpu := strings.ToLower(s.GPU.String())
	if len(gpu) > 12 {
		gpu = gpu[:12]
	}
	name := s.Node + "-" + gpu + "-" + s.Kind
	if s.Xid != 0 {
		name += strconv.FormatInt(s.Xid, 10)
	}
	return name
}

func fail(ctx context.Context, client dynamic.Interface, out io.Writer, name string, spec api.GPUFaultSpec) error {
	f := api.GPUFault{TypeMeta: metav1.TypeMeta{APIVersion: api.Group + "/" + api.Version, Kind: "GPUFault"}, ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&f)
	if err != nil {
		return err
	}
	delete(object, "status")
	if fields, ok := object["spec"].(map[string]any); ok { // nothing said is not the same as no time at all
		for _, field := range []string{"after", "duration"} {
			if fields[field] == "0s" {
				delete(fields, field)
			}
		}
	}
	if _, err := client.Resource(api.GPUFaults).Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "gpufault/%s created\n", name)
	return err
}

// list are the faults of the cluster, the oldest first.
func list(ctx context.Context, client dynamic.Interface) ([]api.GPUFault, error) {
	objects, err := client.Resource(api.GPUFaults).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var all []api.GPUFault
	for i := range objects.Items {
		var f api.GPUFault
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects.Items[i].Object, &f); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b api.GPUFault) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

func heal(ctx context.Context, client dynamic.Interface, out io.Writer, node, gpu string) error {
	all, err := list(ctx, client)
	if err != nil {
		return err
	}
	healed := 0
	for _, f := range all {
		if f.Spec.Node != node || gpu != "" && !strings.EqualFold(f.Spec.GPU.String(), gpu) {
			continue
		}
		if err := client.Resource(api.GPUFaults).Delete(ctx, f.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		healed++
		if _, err := fmt.Fprintf(out, "gpufault/%s deleted\n", f.Name); err != nil {
			return err
		}
	}
	if healed == 0 {
		return fmt.Errorf("there is no fault to heal: none names node %q, or that GPU of it", node)
	}
	return nil
}

func status(ctx context.Context, client dynamic.Interface, out io.Writer) error {
	all, err := list(ctx, client)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "FAULT\tKIND\tGPU\tNODE\tSTATE\tAGE\tMESSAGE")
	for _, f := range all {
		age := time.Since(f.CreationTimestamp.Time).Truncate(time.Second).String()
		nodes := f.Status.Nodes
		if len(nodes) == 0 {
			nodes = map[string]api.NodeStatus{cmp.Or(f.Spec.Node, "-"): {}}
		}
		var names []string
		for name := range nodes {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			state, message := "Unseen", "no agent has seen it"
			for _, c := range nodes[name].Conditions {
				if c.Type == api.Applied {
					state, message = c.Reason, c.Message
				}
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", f.Name, f.Spec.Kind, f.Spec.GPU.String(), name, state, age, message)
		}
	}
	return w.Flush()
}
