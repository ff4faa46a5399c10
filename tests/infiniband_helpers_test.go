package tests

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/machine/fabric"
	"github.com/nvmlfab/nvmlfab/machine/fabric/umad"
	"github.com/nvmlfab/nvmlfab/tests/debian"
)

// subnet is a host in a fabric that this process keeps: a tree with a daemon's socket, for programs that have
// libibmockumad.so preloaded.
type subnet struct {
	t     *testing.T
	root  string
	local *umad.Local
	env   []string
}

// hcas makes adapters with one port each, one a rail. Their ports' GUIDs are one more than the nodes', as in ibsim.
func hcas(host, count int, device uint16, speed fabric.Speed) []fabric.HCA {
	var out []fabric.HCA
	for k := range count {
		guid := 0x946dae0300000000 + uint64(host)<<12 + uint64(k)<<4
		out = append(out, fabric.HCA{Name: fmt.Sprint("mlx5_", k), DeviceID: device, Firmware: "28.39.1002", BoardID: "MT_0000000838",
			NodeGUID: guid, Ports: []fabric.HCAPort{{GUID: guid + 1, Rail: k, Speed: speed}}})
	}
	return out
}

// hostsOf makes hosts called dgx01 and so on.
func hostsOf(count, adapters int, device uint16, speed fabric.Speed) []fabric.Host {
	var hosts []fabric.Host
	for i := range count {
		hosts = append(hosts, fabric.Host{Name: fmt.Sprintf("dgx%02d", i+1), HCAs: hcas(i+1, adapters, device, speed)})
	}
	return hosts
}

// pathShimFolder is removed after all tests; empty until a test needs it.
var pathShimFolder string

// pathShim is a library that redirects InfiniBand's files and nothing else.
var pathShim = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "nvmlfab-paths")
	if err != nil {
		return "", err
	}
	pathShimFolder = dir
	out := filepath.Join(dir, "libpaths.so")
	source, err := filepath.Glob(filepath.Join(root, "shims", "preload", "*.c"))
	if err != nil {
		return "", err
	}
	args := append([]string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-U_FORTIFY_SOURCE", "-fPIC", "-fvisibility=hidden", "-shared",
		"-Wl,-z,nodelete", "-Wl,-z,now", "-Wl,-z,defs", "-Wl,--version-script," + filepath.Join(root, "shims", "preload", "pci", "exports.map"),
		"-I", filepath.Join(root, "shims", "preload"), "-o", out, filepath.Join(root, "tests", "testdata", "infiniband", "paths.c")}, source...)
	text, err := exec.Command("gcc", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("gcc: %w: %s", err, text)
	}
	return out, nil
})

func colons(guid uint64) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", guid>>48, guid>>32&0xffff, guid>>16&0xffff, guid&0xffff)
}

// ibTree writes what libibumad reads of a host's adapters.
func ibTree(t *testing.T, tree string, ports []*fabric.Port) {
	t.Helper()
	write := func(path, format string, args ...any) {
		path = filepath.Join(tree, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, format+"\n", args...), 0o644))
	}
	write("sys/class/infiniband_mad/abi_version", "5")
	for i, p := range ports {
		n := p.Node
		dir := "sys/class/infiniband/" + n.HCA.Name + "/"
		for name, text := range map[string]string{"node_type": "1: CA", "node_guid": colons(n.GUID), "sys_image_guid": colons(n.System),
			"node_desc": n.Description, "fw_ver": n.HCA.Firmware, "hca_type": n.HCA.Type(), "hw_rev": "0", "board_id": n.HCA.BoardID} {
			write(dir+name, "%s", text)
		}
		dir += "ports/" + strconv.Itoa(p.Number) + "/"
		for name, text := range map[string]string{"state": fmt.Sprintf("%d: %s", p.State, p.State), "phys_state": fmt.Sprintf("%d: %s", p.Phys, p.Phys),
			"rate": p.Rate(), "lid": fmt.Sprintf("%#x", p.ShownLID()), "sm_lid": fmt.Sprintf("%#x", p.ShownSMLID()), "lid_mask_count": "0", "sm_sl": "0",
			"link_layer": p.LinkLayer.String(), "cap_mask": fmt.Sprintf("%#08x", p.CapMask), "gids/0": colons(fabric.Prefix) + ":" + colons(p.GUID),
			"pkeys/0": "0xffff"} {
			write(dir+name, "%s", text)
		}
		mad := fmt.Sprintf("sys/class/infiniband_mad/umad%d/", i)
		write(mad+"ibdev", "%s", n.HCA.Name)
		write(mad+"port", "%d", p.Number)
		write(mad+"dev", "231:%d", i)
		write(fmt.Sprintf("dev/infiniband/umad%d", i), "")
		write(fmt.Sprintf("dev/infiniband/issm%d", i), "")
	}
}

// preloadIB is the environment of a program that sees a tree.
func preloadIB(t *testing.T, tree string) []string {
	t.Helper()
	paths, err := pathShim()
	require.NoError(t, err)
	return []string{"LD_PRELOAD=" + filepath.Join(library, "libibmockumad.so") + ":" + paths, "MOCK_IB=full", "MOCK_IB_ROOT=" + tree}
}

// newSubnet serves host dgx01 of a fabric.
func newSubnet(t *testing.T, d fabric.Description) *subnet {
	t.Helper()
	f, err := fabric.New(d)
	require.NoError(t, err)
	s := &subnet{t: t, root: t.TempDir()}
	ibTree(t, s.root, f.UMAD("dgx01"))
	var server *umad.Server
	s.local, server = umad.NewLocal(f, "dgx01")
	require.NoError(t, os.Mkdir(filepath.Join(s.root, "run"), 0o755))
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(s.root, "run", "mock-ib.sock"), Net: "unixpacket"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	s.env = preloadIB(t, s.root)
	return s
}

// diags is the folder of infiniband-diags.
func diags(t *testing.T) string {
	t.Helper()
	dir, err := debian.Fetch("infiniband-diags")
	if err != nil {
		skip(t, err.Error())
	}
	return dir
}

// ibTool runs a program of infiniband-diags in an environment.
func ibTool(t *testing.T, env []string, name string, args ...string) outcome {
	t.Helper()
	dir := diags(t)
	env = append([]string{"LD_LIBRARY_PATH=" + filepath.Join(dir, "usr/lib/x86_64-linux-gnu"), "IBPATH=" + filepath.Join(dir, "usr/sbin")}, env...)
	return runIn(t, t.TempDir(), env, filepath.Join(dir, "usr/sbin", name), args...)
}

func (s *subnet) tool(name string, args ...string) outcome {
	s.t.Helper()
	return ibTool(s.t, s.env, name, args...)
}

// records are the lines of a text without those that begin with a mark for comments.
func (o outcome) records() []string {
	var out []string
	for line := range strings.Lines(o.stdout) {
		if line = strings.TrimRight(line, "\n"); !strings.HasPrefix(line, "#") || strings.HasPrefix(line, "##") {
			out = append(out, line)
		}
	}
	return out
}
