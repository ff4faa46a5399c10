package lab

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Versions of what Build makes. They are also in the go.mod files of the modules.
const (
	KubernetesVersion = "v1.34.4"
	ContainerdVersion = "v2.1.8"
	PluginVersion     = "v0.18.0"
)

// module is a folder with a Go module of its own, out of which programs are built.
type module struct {
	name, version string
	dir           string   // from this file's folder
	sources       []string // the files that say what is built
	packages      []string
	flags         []string
	dynamic       bool // linked with libc; other programs are static
}

// static are the flags of a static program that does not say where it was built.
func static(ldflags string) []string {
	return []string{"-trimpath", "-buildvcs=false", "-ldflags", "-s -w " + ldflags}
}

var modules = []module{
	{name: "kubelab", version: KubernetesVersion, dir: "kubelab", sources: []string{"go.mod", "go.sum", "main.go"}, packages: []string{"."},
		flags: static("-X k8s.io/component-base/version.gitVersion=" + KubernetesVersion +
			" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34")},
	{name: "containerd", version: ContainerdVersion, dir: "containerd", sources: []string{"go.mod", "go.sum"}, packages: []string{
		"github.com/containerd/containerd/v2/cmd/containerd",
		"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
		"github.com/containerd/containerd/v2/cmd/ctr",
		"github.com/containernetworking/plugins/plugins/main/bridge", // of the version that containerd is made with
		"github.com/containernetworking/plugins/plugins/main/loopback",
		"github.com/containernetworking/plugins/plugins/ipam/host-local",
	}, flags: static("-X github.com/containerd/containerd/v2/version.Version=" + ContainerdVersion)},
	// They name functions that only some libraries have, so these are looked up when they are called.
	{name: "k8s-device-plugin", version: PluginVersion, dir: "../../tests/deviceplugin", sources: []string{"go.mod", "go.sum"}, packages: []string{
		"github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin",
		"github.com/NVIDIA/k8s-device-plugin/cmd/gpu-feature-discovery",
	}, flags: []string{"-ldflags", "-s -w -extldflags=-Wl,-z,lazy"}, dynamic: true},
}

// Names are what Build can make: kubelab is etcd and Kubernetes in one program, containerd has the container runtime with its
// shim, ctr and the plugins that make the network of a pod, and k8s-device-plugin is NVIDIA's device plugin with its gpu-feature-discovery.
func Names() (names []string) {
	for _, m := range modules {
		names = append(names, m.name)
	}
	return names
}

// importPath is that of this package, whose folder has the modules.
const importPath = "github.com/nvmlfab/nvmlfab/kubernetes/lab"

// Source is the folder of this package. It asks go, in the folder of a module that can import the package.
func Source(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", importPath)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// Build returns the folder of the programs of that name, which it builds first if the user's cache does not have them. All of
// them take about 25 minutes of CPU time, and progress gets a line from time to time.
func Build(ctx context.Context, name string, progress io.Writer) (string, error) {
	i := slices.Index(Names(), name)
	if i < 0 {
		return "", fmt.Errorf("%q cannot be built; known are %s", name, strings.Join(Names(), ", "))
	}
	source, err := Source(ctx)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder to keep programs in: %w; set XDG_CACHE_HOME", err)
	}
	root := filepath.Join(cache, "nvmlfab", "kubernetes")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", fmt.Errorf("no folder to keep programs in: %w; set XDG_CACHE_HOME to one that can be written", err)
	}
	dir, err := modules[i].build(ctx, filepath.Join(source, modules[i].dir), root, progress)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return dir, nil
}

// build returns the folder of a module's programs below root. Its name has a hash of all that the programs depend on.
func (m module) build(ctx context.Context, source, root string, progress io.Writer) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.GOARCH, m.packages, m.flags)
	for _, name := range m.sources {
		text, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %d\n%s", name, len(text), text)
	}
	dir := filepath.Join(root, fmt.Sprintf("%s-%s-%.6x", m.name, m.version, hash.Sum(nil)))
	if exists(dir) {
		return dir, nil
	}
	lock, err := os.OpenFile(filepath.Join(root, m.name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if exists(dir) { // another process has built it in the meantime
		return dir, nil
	}
	part := filepath.Join(root, m.name+".part") // this process holds the lock; an interrupted one may have left the folder
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(part, 0o755)); err != nil {
		return "", err
	}
	defer os.RemoveAll(part)
	if err := m.compile(ctx, source, part, progress); err != nil {
		return "", err
	}
	return dir, os.Rename(part, dir)
}

// compile runs go build, with low priority since it keeps all CPUs busy for minutes.
func (m module) compile(ctx context.Context, source, to string, progress io.Writer) error {
	began := time.Now()
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "nice", append([]string{"-n", "10", "go"}, args...)...)
		cmd.Dir = source
		cmd.Env = os.Environ()
		if !m.dynamic {
			cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
		}
		return cmd
	}
	fmt.Fprintf(progress, "building %s %s, once; that takes minutes\n", m.name, m.version)
	var stderr bytes.Buffer
	list := command(append([]string{"list", "-deps", "-f", "{{.ImportPath}}"}, m.packages...)...)
	list.Stderr = &stderr
	names, err := list.Output()
	if err != nil {
		return fmt.Errorf("go list: %w: %s", err, last(stderr.String(), 5))
	}
	all := bytes.Count(names, []byte("\n"))

	build := command(append(append([]string{"build", "-v", "-o", to + "/"}, m.flags...), m.packages...)...)
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	build.Stdout, build.Stderr = in, in
	if err := build.Start(); err != nil {
		in.Close()
		return err
	}
	in.Close()
	var lines []string
	told := time.Now()
	for s := bufio.NewScanner(out); s.Scan(); { // a line for each package that is compiled
		lines = append(lines, s.Text())
		if time.Since(told) > 15*time.Second {
			told = time.Now()
			fmt.Fprintf(progress, "%s: %d packages compiled of at most %d, %s\n", m.name, len(lines), all, time.Since(began).Round(time.Second))
		}
	}
	if err := build.Wait(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, last(strings.Join(lines, "\n"), 10))
	}
	fmt.Fprintf(progress, "%s %s is built, %s\n", m.name, m.version, time.Since(began).Round(time.Second))
	return nil
}

// last returns the last n lines of a text.
func last(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
