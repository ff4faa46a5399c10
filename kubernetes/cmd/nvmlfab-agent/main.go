// Nvmlfab-agent gives the node of a cluster that it runs on GPUs that do not exist, and makes them fail as GPUFaults say.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/nvmlfab/nvmlfab/kubernetes/agent"
	"github.com/nvmlfab/nvmlfab/kubernetes/api"
	"github.com/nvmlfab/nvmlfab/kubernetes/plugin"
	"github.com/nvmlfab/nvmlfab/machine"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// version is set by the linker.
var version = "devel"

const usage = `Usage: nvmlfab-agent [flags] [run|discard|retire|version]

run gives the node GPUs and keeps them as the cluster wants, until it gets SIGTERM; they stay then. discard takes away from the
node all that run has written. retire makes the agents of all nodes do so, and waits until they have.

`

func main() {
	if err := start(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nvmlfab-agent:", err)
		os.Exit(1)
	}
}

func start(args []string) error {
	var o agent.Options
	flags := flag.NewFlagSet("nvmlfab-agent", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	kubeconfig := flags.String("kubeconfig", "", "a kubeconfig `file`; by default the service account of the pod is used")
	flags.StringVar(&o.Node, "node", os.Getenv("NODE_NAME"), "the `name` of the node; by default that in NODE_NAME")
	flags.StringVar(&o.Namespace, "namespace", or(os.Getenv("POD_NAMESPACE"), "nvmlfab"), "the `namespace` of the ConfigMap")
	flags.StringVar(&o.ConfigMap, "config", "nvmlfab", "the `name` of the ConfigMap with pools and profiles")
	flags.StringVar(&o.Root, "root", "/var/lib/nvmlfab", "the `folder` for what is staged, with the same path on the node")
	flags.BoolVar(&o.KeepRoot, "keep-root", false, "leave the folder of --root itself when discarding")
	flags.StringVar(&o.CDI, "cdi", "/var/run/cdi", "the `folder` for the CDI specification; empty for none")
	flags.StringVar(&o.Kind, "cdi-kind", "nvidia.com/gpu", "vendor and class of the CDI devices")
	flags.StringVar(&o.Features, "features", "", "node-feature-discovery's `folder` for features.d files; empty for none")
	flags.StringVar(&o.DriverLink, "driver-link", "", "a `path` for a link to the tree in force, such as /run/nvidia/driver; empty for none")
	flags.StringVar(&o.Home, "home", home(), "the `folder` with bin, lib and nvml of a release")
	flags.StringVar(&o.SMI, "nvidia-smi", "", "an nvidia-smi to stage; by default the one in PATH, if there is one")
	flags.StringVar(&o.Proc, "proc", "/proc", "the node's proc `folder`, by which mounts of all containers are seen")
	plugins := flags.String("device-plugin", "", "serve a device plugin in the kubelet's `folder`, /var/lib/kubelet/device-plugins; empty for none")
	listen := flags.String("metrics", ":9400", "the `address` for /metrics and /healthz; empty for none")
	restart := flags.String("restart", "", "`NAMESPACE/SELECTOR` of pods to delete on the node when a GPU has healed or has been cut, for plugins that do not notice it themselves")
	flags.StringVar(&o.PodResources, "pod-resources", "", "the kubelet's `socket` that says which pod has which GPU, for the metrics; empty to leave pods out")
	wait := flags.Duration("wait", 5*time.Minute, "how long retire waits for the nodes")
	flags.StringVar(&o.MIGStrategy, "mig-strategy", agent.MIGSingle, "how MIG devices are offered to pods: none, single or mixed, as NVIDIA's device plugin says it")
	flags.BoolVar(&o.Labels, "labels", true, "label the node as gpu-feature-discovery does")
	flags.DurationVar(&o.Interval, "interval", 30*time.Second, "how often to look at the node even if nothing changes")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if *restart != "" {
		var ok bool
		if o.RestartNamespace, o.RestartPods, ok = strings.Cut(*restart, "/"); !ok || o.RestartNamespace == "" || o.RestartPods == "" {
			return fmt.Errorf("--restart %q: want NAMESPACE/SELECTOR, such as nvidia/app.kubernetes.io/name=nvidia-device-plugin", *restart)
		}
	}
	o.Version = version
	o.CPUs = machine.OnlineCPUs()
	o.Log = func(err error) {
		fmt.Fprintln(os.Stderr, "nvmlfab-agent:", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if o.SMI == "" {
		o.SMI, _ = exec.LookPath("nvidia-smi")
	}
	if flags.NArg() > 1 {
		return fmt.Errorf("%q: want one of run, discard, retire and version", flags.Args())
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	switch what := or(flags.Arg(0), "run"); what {
	case "version":
		fmt.Println(version)
		return nil
	case "retire":
		client, err := connect(*kubeconfig)
		if err != nil {
			return err
		}
		return api.Retire(ctx, client, o.Namespace, o.ConfigMap, *wait)
	case "run", "discard":
		if what == "discard" {
			if _, err := os.Stat(o.Root); errors.Is(err, fs.ErrNotExist) {
				return nil
			}
		}
		client, err := connect(*kubeconfig)
		if err != nil && what == "run" {
			return err
		}
		if o.Node == "" && what == "run" {
			return errors.New("which node? Set NODE_NAME, or give --node")
		}
		if what == "discard" {
			return discard(ctx, client, o)
		}
		a, err := agent.New(ctx, client, o)
		if err != nil {
			return err
		}
		if *plugins != "" {
			served := make(chan struct{})
			defer func() { // its sockets are taken away
				stop()
				<-served
			}()
			go func() {
				defer close(served)
				plugin.Serve(ctx, *plugins, o.Kind, a.Devices, o.Log)
			}()
		}
		if *listen != "" {
			server := &http.Server{Addr: *listen, Handler: a, ReadHeaderTimeout: 10 * time.Second}
			listener, err := net.Listen("tcp", *listen)
			if err != nil {
				return err
			}
			go func() { o.Log(server.Serve(listener)) }()
		}
		return a.Run(ctx)
	default:
		return fmt.Errorf("%q: want one of run, discard, retire and version", what)
	}
}

// discard takes away what an agent has written. Without a cluster the node's labels and condition stay, and it says so.
func discard(ctx context.Context, client dynamic.Interface, o agent.Options) error {
	a, err := agent.New(ctx, nil, o)
	if err != nil {
		return err
	}
	if client == nil || o.Node == "" {
		o.Log(errors.New("there is no cluster, so the node's labels stay"))
	} else if err := a.Withdraw(ctx, client); err != nil {
		o.Log(err)
	}
	return a.Discard()
}

// connect connects to the cluster.
func connect(kubeconfig string) (dynamic.Interface, error) {
	config, err := rest.InClusterConfig()
	if kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, err
	}
	config.UserAgent = "nvmlfab-agent/" + version
	return dynamic.NewForConfig(config)
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// home is the folder above the one with this program.
func home() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(self), "..")
}
