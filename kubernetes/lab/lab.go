// Package lab starts a real Kubernetes for tests: etcd, the control plane, and kubelets with containerd. They run in namespaces
// of their own, so that no port and no mount of it is seen on the machine, whose /var, /etc, /run, /dev and sysctls stay as they
// are. It takes root.
//
// There are no Services but that of the API server, and no DNS in the cluster.
package lab

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nvmlfab/nvmlfab/tests/debian"
	"golang.org/x/sys/unix"
)

// serviceAddress is that of the API server, for pods and for everybody else.
const serviceAddress = "10.96.0.1"

// PauseImage is the image of the sandbox of every pod. It holds nothing but a program that waits, for pods that need no more.
const PauseImage = "lab.nvmlfab.dev/pause:1"

// Options are what clusters differ in.
type Options struct {
	// Nodes is how many nodes there are; 0 is 1.
	Nodes int
	// FeatureGates are given to all components of Kubernetes.
	FeatureGates map[string]bool
	// Images are OCI archives that every node has from the start.
	Images []string
	// Progress gets a line for each step that takes time; nil for nobody.
	Progress io.Writer
}

// Cluster is a running Kubernetes.
type Cluster struct {
	// Dir holds all files of the cluster. It is removed when the cluster stops.
	Dir string
	// Kubeconfig is the path of a file for clients that run on a node and may do anything.
	Kubeconfig string
	// Nodes are the machines of the cluster; the first has the control plane as well.
	Nodes   []*Node
	options Options
	kubelab string
	lock    *os.File
}

// Node is a machine of the cluster, in a mount, network, process, host name and IPC namespace.
type Node struct {
	// Name is that of the Node object, and the host's.
	Name string
	// Dir is the node's folder: its /var, /etc and /opt are there, and the logs of its programs in log.
	Dir     string
	cluster *Cluster
	index   int
	config  machine
	process *exec.Cmd
	mu      sync.Mutex // of a line to the process and the answer
	in      io.WriteCloser
	out     *bufio.Reader
}

// Start starts a cluster and returns when all nodes are ready, and pods can be created.
func Start(ctx context.Context, options Options) (_ *Cluster, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a cluster takes root")
	}
	if options.Progress == nil {
		options.Progress = io.Discard
	}
	var folders []string
	for _, name := range []string{"kubelab", "containerd"} {
		folder, err := Build(ctx, name, options.Progress)
		if err != nil {
			return nil, err
		}
		folders = append(folders, folder)
	}
	c := &Cluster{options: options, kubelab: filepath.Join(folders[0], "kubelab")}
	if err := c.makeDir(); err != nil {
		return nil, err
	}
	c.Kubeconfig = filepath.Join(c.Dir, "admin.kubeconfig")
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if err := os.Chmod(c.Dir, 0o755); err != nil {
		return nil, err
	}
	if err := c.certificates(); err != nil {
		return nil, fmt.Errorf("the cluster's certificates: %w", err)
	}
	pause := filepath.Join(c.Dir, "pause.tar")
	if err := writePause(ctx, pause); err != nil {
		return nil, err
	}
	c.options.Images = append([]string{pause}, c.options.Images...)
	for i := range max(1, options.Nodes) {
		n, err := c.newNode(i, folders)
		if err != nil {
			return nil, err
		}
		c.Nodes = append(c.Nodes, n)
	}
	for _, n := range c.Nodes {
		if err := n.Boot(ctx); err != nil {
			return nil, fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	for _, n := range c.Nodes {
		if err := c.Wait(ctx, n.Name+" is ready", func() bool {
			out, err := c.Kubectl(ctx, "", "get", "node", n.Name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
			return err == nil && out == "True"
		}); err != nil {
			return nil, err
		}
	}
	for _, namespace := range []string{"default", "kube-system"} {
		if err := c.Wait(ctx, "namespace "+namespace+" has its service account", func() bool {
			_, err := c.Kubectl(ctx, "", "--namespace", namespace, "get", "serviceaccount", "default")
			return err == nil
		}); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// makeDir makes the cluster's folder, and removes what clusters have left whose process was killed. The folder of a cluster
// has a file that the process holds a lock on as long as it lives.
func (c *Cluster) makeDir() error {
	const prefix = "nvmlfab-lab-"
	all, err := lockFile(filepath.Join(os.TempDir(), prefix[:len(prefix)-1]+".lock"), syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer all.Close()
	others, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*", "lock"))
	if err != nil {
		return err
	}
	for _, name := range others {
		lock, err := lockFile(name, syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil {
			continue // it is alive
		}
		dir := filepath.Dir(name)
		err = errors.Join(removeGroups("/"+filepath.Base(dir)+"-*"), os.RemoveAll(dir), lock.Close())
		if err != nil {
			return fmt.Errorf("what an earlier cluster has left: %w", err)
		}
	}
	if c.Dir, err = os.MkdirTemp("", prefix+"*"); err != nil {
		return err
	}
	c.lock, err = lockFile(filepath.Join(c.Dir, "lock"), syscall.LOCK_EX)
	return err
}

// lockFile opens a file and locks it until it is closed.
func lockFile(name string, how int) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), how); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return f, nil
}

// certificates writes the keys and certificates of everybody in the cluster.
func (c *Cluster) certificates() error {
	a, err := newAuthority(c.Dir)
	if err != nil {
		return err
	}
	_, err = a.newKey("accounts")
	return errors.Join(err,
		a.issue("apiserver", pkix.Name{CommonName: "kube-apiserver"}, "127.0.0.1", serviceAddress, "10.97.0.1", "localhost", "kubernetes.default.svc"),
		a.kubeconfig("admin", pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}),
		a.kubeconfig("kube-controller-manager", pkix.Name{CommonName: "system:kube-controller-manager"}),
		a.kubeconfig("kube-scheduler", pkix.Name{CommonName: "system:kube-scheduler"}),
		func() (err error) {
			for i := range max(1, c.options.Nodes) {
				name := nodeName(i)
				err = errors.Join(err, a.kubeconfig(name, pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}}))
			}
			return err
		}())
}

func nodeName(i int) string { return fmt.Sprintf("lab-%d", i) }

// writePause builds the program of PauseImage and writes the image.
func writePause(ctx context.Context, to string) error {
	source, err := Source(ctx)
	if err != nil {
		return err
	}
	program := to + ".program"
	defer os.Remove(program)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", program, "./pause")
	build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the pause program: %w: %s", err, out)
	}
	image := NewImage(PauseImage, "/pause")
	if err := image.Add("pause", program); err != nil {
		return err
	}
	return image.Write(to)
}

// newNode prepares a node, which does not run yet.
func (c *Cluster) newNode(i int, folders []string) (*Node, error) {
	n := &Node{Name: nodeName(i), cluster: c, index: i, Dir: filepath.Join(c.Dir, nodeName(i))}
	if err := os.MkdirAll(filepath.Join(n.Dir, "log"), 0o755); err != nil {
		return nil, err
	}
	var packages [2]string
	for i, name := range []string{"iproute2", "runc"} {
		var err error
		if packages[i], err = debian.Fetch(name); err != nil {
			return nil, err
		}
	}
	iproute, runc := packages[0], packages[1]
	wrapper := filepath.Join(n.Dir, "bin", "runc")
	n.config = machine{
		Name: n.Name, Dir: n.Dir,
		Path: strings.Join(append(folders, filepath.Dir(wrapper), "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"), ":"),
		IP:   filepath.Join(iproute, "bin", "ip"), Libraries: filepath.Join(iproute, libraryDir),
		Files: map[string]string{
			"log/README":              "The output of the node's programs.\n",
			"bin/runc":                fmt.Sprintf("#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s \"$@\"\n", filepath.Join(runc, libraryDir), filepath.Join(runc, "usr/sbin/runc")),
			"etc/lab/containerd.toml": n.containerd(wrapper, folders[1]),
			"etc/lab/kubelet.yaml":    n.kubelet(),
			"etc/cni/net.d/10-lab.conflist": fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "lab", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.%d.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`, i),
		},
	}
	if i == 0 {
		n.config.Addresses = []string{serviceAddress + "/32", "10.97.0.1/32"}
		n.config.Forward, n.config.ForwardTo = filepath.Join(c.Dir, "apiserver.sock"), serviceAddress+":443"
		n.config.Programs = c.controlPlane()
	}
	n.config.Programs = append(n.config.Programs,
		program{"containerd", []string{filepath.Join(folders[1], "containerd"), "--config", "/etc/lab/containerd.toml"}, nil},
		program{"kubelet", []string{c.kubelab, "kubelet", "--config=/etc/lab/kubelet.yaml", "--kubeconfig=" + filepath.Join(c.Dir, n.Name+".kubeconfig"),
			"--hostname-override=" + n.Name, "--node-ip=" + n.Address(), "--v=2"}, nil})
	return n, nil
}

// Address is the node's IP address.
func (n *Node) Address() string { return fmt.Sprintf("10.97.0.%d", n.index+1) }

// gates are the feature gates as flags and configurations have them.
func (c *Cluster) gates() string {
	var list []string
	for name, on := range c.options.FeatureGates {
		list = append(list, fmt.Sprintf("%s=%t", name, on))
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

func (c *Cluster) controlPlane() []program {
	at := func(name string) string { return filepath.Join(c.Dir, name) }
	programs := []program{
		{"etcd", []string{c.kubelab, "etcd", "--name=lab", "--data-dir=/var/lib/etcd", "--unsafe-no-fsync", "--log-level=warn",
			"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
			"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380", "--initial-cluster=lab=http://127.0.0.1:2380"}, nil},
		{"kube-apiserver", []string{c.kubelab, "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--secure-port=443", "--bind-address=0.0.0.0",
			"--advertise-address=10.97.0.1", "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16",
			"--tls-cert-file=" + at("apiserver.crt"), "--tls-private-key-file=" + at("apiserver.key"), "--client-ca-file=" + at("ca.crt"),
			"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + at("accounts.key"), "--service-account-signing-key-file=" + at("accounts.key"),
			"--kubelet-client-certificate=" + at("admin.crt"), "--kubelet-client-key=" + at("admin.key"), "--kubelet-preferred-address-types=InternalIP",
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true"}, nil},
		{"kube-controller-manager", []string{c.kubelab, "kube-controller-manager", "--kubeconfig=" + at("kube-controller-manager.kubeconfig"), "--leader-elect=false",
			"--use-service-account-credentials=true", "--service-account-private-key-file=" + at("accounts.key"), "--root-ca-file=" + at("ca.crt"),
			"--authentication-skip-lookup=true"}, nil},
		{"kube-scheduler", []string{c.kubelab, "kube-scheduler", "--kubeconfig=" + at("kube-scheduler.kubeconfig"), "--leader-elect=false", "--authentication-skip-lookup=true"}, nil},
	}
	if gates := c.gates(); gates != "" {
		for i := range programs[1:] {
			programs[1+i].Args = append(programs[1+i].Args, "--feature-gates="+gates)
		}
	}
	return programs
}

// containerd is the configuration of containerd, which may do with the rights that a container has.
func (n *Node) containerd(runc, plugins string) string {
	return fmt.Sprintf(`version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[plugins."io.containerd.internal.v1.opt"]
path = "/var/lib/containerd/opt"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = %q
[plugins."io.containerd.cri.v1.runtime"]
enable_cdi = true
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = [%q]
conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = %q
`, PauseImage, plugins, runc)
}

// kubelet is the configuration of the kubelet. It tells the API server each second how many GPUs there are, not every 10.
func (n *Node) kubelet() string {
	gates := ""
	for name, on := range n.cluster.options.FeatureGates {
		gates += fmt.Sprintf("  %s: %t\n", name, on)
	}
	if gates != "" {
		gates = "featureGates:\n" + gates
	}
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %q}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: %q
cgroupsPerQOS: true
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
maxOpenFiles: 20000
makeIPTablesUtilChains: false
resolvConf: ""
nodeStatusUpdateFrequency: 1s
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
%s`, filepath.Join(n.cluster.Dir, "ca.crt"), n.group(), gates)
}

// group is the path of the node's control groups.
func (n *Node) group() string { return "/" + filepath.Base(n.cluster.Dir) + "-" + n.Name }

// Boot starts the node with what its folder holds, and its programs. Those of the control plane answer when it returns.
func (n *Node) Boot(ctx context.Context) error {
	began := time.Now()
	if n.process != nil {
		return errors.New("it runs already")
	}
	if err := n.makeGroups(); err != nil {
		return fmt.Errorf("control groups: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(n.Dir, "bin"), 0o755); err != nil {
		return err
	}
	text, err := json.Marshal(n.config)
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), child+"="+string(text))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	n.process, n.in, n.out = cmd, in, bufio.NewReader(out)
	if err := n.answer("ready"); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Join(n.Dir, "bin", "runc"), 0o755); err != nil {
		return err
	}
	if err := n.link(ctx); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	for _, p := range n.config.Programs {
		if p.Name == "kubelet" {
			continue
		}
		if err := n.StartProgram(p.Name); err != nil {
			return err
		}
	}
	imported := make(chan error, 1)
	go func() { imported <- n.importAll(ctx) }()
	var answers error
	if n.config.Forward != "" {
		answers = n.cluster.Wait(ctx, "the API server answers", func() bool { return n.cluster.healthy(ctx) })
	}
	if err := errors.Join(answers, <-imported); err != nil {
		return err
	}
	fmt.Fprintf(n.cluster.options.Progress, "%s: its programs run after %s\n", n.Name, time.Since(began).Round(10*time.Millisecond))
	return n.StartProgram("kubelet")
}

// importAll gives the node its images, unless it has them.
func (n *Node) importAll(ctx context.Context) error {
	mark := filepath.Join(n.Dir, "imported")
	if exists(mark) {
		return nil
	}
	if err := n.cluster.Wait(ctx, "containerd answers", func() bool {
		_, err := n.Run(ctx, "", "ctr", "version")
		return err == nil
	}); err != nil {
		return err
	}
	for _, image := range n.cluster.options.Images {
		if err := n.Import(ctx, image); err != nil {
			return err
		}
	}
	return os.WriteFile(mark, nil, 0o644)
}

// Import gives the node an image from an OCI archive.
func (n *Node) Import(ctx context.Context, archive string) error {
	_, err := n.Run(ctx, "", "ctr", "--namespace", "k8s.io", "images", "import", "--local", archive)
	return err
}

// link connects the network of a node that is not the first with that of the first, through which pods reach each other.
func (n *Node) link(ctx context.Context) error {
	if n.index == 0 {
		return nil
	}
	first, port := n.cluster.Nodes[0], fmt.Sprintf("node%d", n.index)
	pods := fmt.Sprintf("10.244.%d.0/24", n.index)
	for i, step := range []struct {
		on   *Node
		args string
	}{
		{first, "link delete " + port}, // an earlier one goes some time after the node
		{first, fmt.Sprintf("link add %s type veth peer name eth0 netns /proc/%d/ns/net", port, n.process.Process.Pid)},
		{first, "link set " + port + " up"},
		{first, "route add " + n.Address() + " dev " + port},
		{first, "route add " + pods + " via " + n.Address() + " dev " + port + " onlink"},
		{n, "address add " + n.Address() + "/32 dev eth0"},
		{n, "link set eth0 up"},
		{n, "route add 10.97.0.1 dev eth0 src " + n.Address()},
		{n, "route add default via 10.97.0.1 dev eth0 src " + n.Address()},
	} {
		cmd := exec.CommandContext(ctx, step.on.config.IP, strings.Fields(step.args)...)
		cmd.Env = []string{"LD_LIBRARY_PATH=" + step.on.config.Libraries}
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		// In the node's network, but with this machine's process ids.
		if err := step.on.within([]string{"net"}, cmd.Start); err != nil {
			return err
		}
		if err := cmd.Wait(); err != nil && i > 0 {
			return fmt.Errorf("ip %s: %w: %s", step.args, err, strings.TrimSpace(out.String()))
		}
	}
	return first.Within(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644) })
}

// answer reads a line and compares it.
func (n *Node) answer(want string) error {
	line, err := n.out.ReadString('\n')
	if err != nil {
		return fmt.Errorf("its first process: %w", err)
	}
	if line = strings.TrimSpace(line); line != want {
		return errors.New(line)
	}
	return nil
}

func (n *Node) tell(line string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, err := fmt.Fprintln(n.in, line); err != nil {
		return err
	}
	return n.answer("ok")
}

// StartProgram starts a program of the node that does not run: kubelet, containerd, and on the first node etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler.
func (n *Node) StartProgram(name string) error { return n.tell("start " + name) }

// KillProgram kills a program of the node and returns when it has ended.
func (n *Node) KillProgram(name string) error { return n.tell("kill " + name) }

// check returns an error if one of the node's programs has ended although nobody has killed it, with the end of its output.
func (n *Node) check() error {
	if n.process == nil {
		return nil
	}
	err := n.tell("check")
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, p := range n.config.Programs {
		if strings.HasPrefix(text, "error: "+p.Name+" has ended") {
			text += "; its output ends with\n" + last(n.Log(p.Name), 15)
		}
	}
	return fmt.Errorf("node %s: %s", n.Name, strings.TrimPrefix(text, "error: "))
}

// Log is what a program of the node has written so far.
func (n *Node) Log(name string) string {
	text, _ := os.ReadFile(filepath.Join(n.Dir, "log", name))
	return string(text)
}

// PowerOff ends all processes of the node at once. What is on its disk stays; Boot starts it again.
func (n *Node) PowerOff() error {
	var err error
	if n.process != nil {
		err = n.process.Process.Kill() // with the first process of a process namespace the kernel kills all others
		n.in.Close()
		_ = n.process.Wait()
		n.process = nil
	}
	return errors.Join(err, removeGroups(n.group()))
}

// Stop ends the cluster and removes what it has written.
func (c *Cluster) Stop() error {
	var errs []error
	for _, n := range slices.Backward(c.Nodes) {
		errs = append(errs, n.PowerOff())
	}
	errs = append(errs, os.RemoveAll(c.Dir))
	if c.lock != nil {
		errs = append(errs, c.lock.Close())
	}
	return errors.Join(errs...)
}

// Within calls do in the namespaces of the node: there it sees the node's files and network, and a process that it starts is one of the node's.
// do must do all its work in the goroutine in which it is called.
func (n *Node) Within(do func() error) error {
	return n.within([]string{"pid", "ipc", "uts", "net", "mnt"}, do)
}

func (n *Node) within(namespaces []string, do func() error) error {
	if n.process == nil {
		return fmt.Errorf("%s does not run", n.Name)
	}
	result := make(chan error, 1)
	go func() {
		onOtherThread(func() {
			result <- func() error {
				if err := unix.Unshare(unix.CLONE_FS); err != nil {
					return err
				}
				var files []*os.File
				for _, name := range namespaces { // all are opened first, since /proc is another one in the node
					f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", n.process.Process.Pid, name))
					if err != nil {
						return err
					}
					defer f.Close()
					files = append(files, f)
				}
				for _, f := range files {
					if err := unix.Setns(int(f.Fd()), 0); err != nil {
						return fmt.Errorf("enter %s: %w", f.Name(), err)
					}
				}
				return do()
			}()
		})
	}()
	return <-result
}

// onOtherThread calls do on a thread that ends afterwards, so that do may take it into other namespaces. It is not the first of the
// process, which cannot end and whose namespaces are shown as those of the process.
func onOtherThread(do func()) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		do()
		return // still locked, and Go ends the thread with the goroutine
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		onOtherThread(do) // on another thread, since this goroutine keeps the first
	}()
	<-done
	runtime.UnlockOSThread()
}

// Command is a program that runs on the node once it is started by Start or Run of Node.
func (n *Node) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	for _, dir := range strings.Split(n.config.Path, ":") {
		if p := filepath.Join(dir, name); !strings.Contains(name, "/") && exists(p) {
			name = p
			break
		}
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + n.config.Path, "HOME=/var/tmp", "TMPDIR=/tmp", "KUBECONFIG=" + n.cluster.Kubeconfig}
	return cmd
}

// Run runs a program on the node and returns what it writes to standard output.
func (n *Node) Run(ctx context.Context, stdin, name string, args ...string) (string, error) {
	cmd := n.Command(ctx, name, args...)
	var stdout, stderr strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := n.Within(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), err
}

// Kubectl runs kubectl on the first node, as somebody who may do anything.
func (c *Cluster) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	return c.Nodes[0].Run(ctx, stdin, c.kubelab, append([]string{"kubectl"}, args...)...)
}

// Dial connects to the API server, from outside of the cluster's network.
func (c *Cluster) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(c.Dir, "apiserver.sock"))
}

// Client is an HTTP client of the API server, at https://10.96.0.1, which may do anything.
func (c *Cluster) Client() (*http.Client, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(c.Dir, "admin.crt"), filepath.Join(c.Dir, "admin.key"))
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(c.Dir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return &http.Client{Transport: &http.Transport{DialContext: c.Dial, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}}}, nil
}

// healthy reports whether the API server is ready for requests.
func (c *Cluster) healthy(ctx context.Context) bool {
	client, err := c.Client()
	if err != nil {
		return false
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+serviceAddress+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// Wait asks again and again until the answer is yes, for three minutes, or until ctx ends or a program of a node does, which
// nobody has killed. what is the question, for the error.
func (c *Cluster) Wait(ctx context.Context, what string, yes func() bool) error {
	const most = 3 * time.Minute
	for end := time.Now().Add(most); !yes(); time.Sleep(50 * time.Millisecond) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		for _, n := range c.Nodes {
			if err := n.check(); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: not within %s", what, most)
		}
	}
	return nil
}

// hierarchies are the folders of the machine's control group hierarchies.
func hierarchies() ([]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var dirs []string
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		i := slices.Index(f, "-")
		if i > 4 && len(f) > i+1 && strings.HasPrefix(f[i+1], "cgroup") && strings.HasPrefix(f[4], "/sys/fs/cgroup") {
			dirs = append(dirs, f[4])
		}
	}
	return dirs, nil
}

// makeGroups makes the node's control group in every hierarchy.
func (n *Node) makeGroups() error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		group := filepath.Join(dir, n.group())
		if err := os.MkdirAll(group, 0o755); err != nil {
			return err
		}
		for _, name := range []string{"cpuset.mems", "cpuset.cpus"} { // empty in a new group of version 1, which nothing can enter then
			file := filepath.Join(group, name)
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || !exists(file) {
				continue
			}
			if err := os.WriteFile(file, text, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeGroups removes the control groups whose paths match a pattern. A group can be removed some time after its last process
// has been killed.
func removeGroups(pattern string) error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			groups, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil {
				return err
			}
			if len(groups) == 0 {
				break
			}
			if err := removeAllGroups(groups); err != nil && time.Now().After(end) {
				return err
			}
		}
	}
	return nil
}

// removeAllGroups removes groups with all below them, and nothing but folders.
func removeAllGroups(groups []string) error {
	var all []string
	for _, group := range groups {
		_ = filepath.WalkDir(group, func(p string, d fs.DirEntry, err error) error { // a folder may go in the meantime
			if err == nil && d.IsDir() {
				all = append(all, p)
			}
			return nil
		})
	}
	var errs []error
	for _, group := range slices.Backward(all) { // the inner ones first
		if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
