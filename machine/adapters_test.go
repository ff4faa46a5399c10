package machine

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/machine/fabric"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// dgx is the tree of a DGX H100 with its adapters, and their fabric.
func dgx(t *testing.T, more string) (*Tree, *fabric.Fabric) {
	t.Helper()
	board := parse(t, "extends: dgx-h100\n"+more)
	f, err := Subnet(board, "dgx01", "", nil)
	require.NoError(t, err)
	return New(board, Options{CPUs: []uint32{0}, Fabric: f, Host: "dgx01"}), f
}

// follow finds what is at a path of a tree, links followed.
func follow(t *testing.T, tree *Tree, name string) (*Node, string) {
	t.Helper()
	for links := 0; links < 40; links++ {
		at, parts := "", strings.Split(name, "/")
		again := false
		for i, part := range parts {
			at = path.Join(at, part)
			n := tree.Find(at)
			if n == nil {
				return nil, at
			}
			if n.Mode&fs.ModeSymlink != 0 {
				name, again = path.Join(append([]string{path.Dir(at), n.Data}, parts[i+1:]...)...), true
				break
			}
		}
		if !again {
			return tree.Find(name), name
		}
	}
	require.Fail(t, "links go round in a circle", name)
	return nil, ""
}

// TestAdapterTree: each adapter is found by its classes, its PCI address and its driver, and all ways lead to one folder.
func TestAdapterTree(t *testing.T) {
	tree, f := dgx(t, "")
	const function = "sys/devices/pci0000:15/0000:15:00.0/0000:16:00.0/0000:17:00.0/0000:18:00.0"
	for name, want := range map[string]string{
		"sys/class/infiniband/mlx5_0":                        function + "/infiniband/mlx5_0",
		"sys/class/infiniband/mlx5_0/device":                 function,
		"sys/class/infiniband/mlx5_0/subsystem":              "sys/class/infiniband",
		"sys/class/infiniband_verbs/uverbs0":                 function + "/infiniband_verbs/uverbs0",
		"sys/class/infiniband_mad/umad0/device":              function,
		"sys/class/infiniband_mad/issm0":                     function + "/infiniband_mad/issm0",
		"sys/class/net/ibp24s0/device":                       function,
		"sys/bus/pci/drivers/mlx5_core/0000:18:00.0":         function,
		"sys/bus/pci/devices/0000:18:00.0/driver":            "sys/bus/pci/drivers/mlx5_core",
		"sys/bus/pci/devices/0000:18:00.0/infiniband/mlx5_0": function + "/infiniband/mlx5_0",
		"sys/class/infiniband/mlx5_2/device":                 "sys/devices/pci0000:26/0000:26:00.0/0000:29:00.1",
		"sys/class/pci_bus/0000:17/../../0000:17:00.0":       "sys/devices/pci0000:15/0000:15:00.0/0000:16:00.0/0000:17:00.0",
		"sys/bus/pci/drivers/mlx5_core/module":               "sys/module/mlx5_core",
		"sys/class/misc/rdma_cm":                             "sys/devices/virtual/misc/rdma_cm",
	} {
		n, at := follow(t, tree, name)
		assert.NotNil(t, n, name)
		assert.Equal(t, want, at, name)
	}
	port := f.Host("dgx01")[3].Ports[1]
	for name, want := range map[string]string{
		"mlx5_3/node_type":                     "1: CA\n",
		"mlx5_3/hca_type":                      "MT4129\n",
		"mlx5_3/hw_rev":                        "0\n",
		"mlx5_3/board_id":                      "MT_0000000838\n",
		"mlx5_3/fw_ver":                        "28.39.1002\n",
		"mlx5_3/node_desc":                     "dgx01 mlx5_3\n",
		"mlx5_3/node_guid":                     guid(port.Node.GUID) + "\n",
		"mlx5_3/ports/1/gids/0":                "fe80:0000:0000:0000:" + guid(port.GUID) + "\n",
		"mlx5_3/ports/1/gids/1":                "0000:0000:0000:0000:0000:0000:0000:0000\n",
		"mlx5_3/ports/1/state":                 "4: ACTIVE\n",
		"mlx5_3/ports/1/phys_state":            "5: LinkUp\n",
		"mlx5_3/ports/1/rate":                  "400 Gb/sec (4X NDR)\n",
		"mlx5_3/ports/1/pkeys/0":               "0xffff\n",
		"mlx5_3/ports/1/pkeys/127":             "0x0000\n",
		"mlx5_3/ports/1/cap_mask":              "0xa751e848\n",
		"mlx5_3/ports/1/link_layer":            "InfiniBand\n",
		"mlx5_2/ports/1/link_layer":            "Ethernet\n",
		"mlx5_2/ports/1/lid":                   "0x0\n",
		"mlx5_2/ports/1/cap_mask":              "0x00010000\n",
		"mlx5_2/ports/1/gid_attrs/types/3":     "RoCE v2\n",
		"mlx5_2/ports/1/gid_attrs/ndevs/3":     "enp41s0f1np1\n",
		"mlx5_2/sys_image_guid":                guid(f.Host("dgx01")[1].GUID) + "\n",
		"mlx5_2/device/class":                  "0x020000\n",
		"mlx5_3/device/class":                  "0x020700\n",
		"mlx5_3/device/numa_node":              "0\n",
		"mlx5_11/device/numa_node":             "1\n",
		"mlx5_3/device/max_link_speed":         "32.0 GT/s PCIe\n",
		"mlx5_3/device/net/ibp64s0/type":       "32\n",
		"mlx5_3/device/net/ibp64s0/addr_len":   "20\n",
		"mlx5_2/device/net/enp41s0f1np1/type":  "1\n",
		"mlx5_2/device/net/enp41s0f1np1/speed": "200000\n",
	} {
		n, _ := follow(t, tree, "sys/class/infiniband/"+name)
		if assert.NotNil(t, n, name) {
			assert.Equal(t, want, n.Data, name)
		}
	}
	assert.Nil(t, tree.Find("sys/class/infiniband_cm"), "gone from the kernel")
	assert.Equal(t, fs.ModeSocket|0o600, tree.Find("dev/infiniband/umad11").Mode)
	assert.Equal(t, fs.ModeSocket|0o666, tree.Find("dev/infiniband/uverbs11").Mode)
}

// TestPortsDown: a port that the profile has down shows what the kernel shows of such a port.
func TestPortsDown(t *testing.T) {
	tree, _ := dgx(t, "infiniband: {port_state: DOWN}\n")
	for name, want := range map[string]string{"state": "1: DOWN\n", "phys_state": "2: Polling\n", "lid": "0xffff\n", "sm_lid": "0x0\n", "rate": "10 Gb/sec (4X SDR)\n"} {
		n, _ := follow(t, tree, "sys/class/infiniband/mlx5_0/ports/1/"+name)
		assert.Equal(t, want, n.Data, name)
	}
}

// TestPortsHeld: a link that the profile holds before it is active shows that at both ends.
func TestPortsHeld(t *testing.T) {
	tree, f := dgx(t, "infiniband: {port_state: INIT, phys_state: Polling}\n")
	for name, want := range map[string]string{"state": "2: INIT\n", "phys_state": "2: Polling\n", "rate": "400 Gb/sec (4X NDR)\n"} {
		n, _ := follow(t, tree, "sys/class/infiniband/mlx5_0/ports/1/"+name)
		assert.Equal(t, want, n.Data, name)
	}
	assert.Equal(t, fabric.Initialize, f.Host("dgx01")[0].Ports[1].Remote.State)
}

// TestPorts: an adapter with two ports has two of everything that a port has.
func TestPorts(t *testing.T) {
	tree, _ := dgx(t, "infiniband: {ports: 2}\n")
	for _, name := range []string{"sys/class/infiniband/mlx5_0/ports/2/state", "sys/class/infiniband_mad/umad1/port", "sys/class/infiniband_mad/umad23/port", "sys/class/infiniband_verbs/uverbs11/ibdev"} {
		n, at := follow(t, tree, name)
		require.NotNil(t, n, at)
	}
	n, _ := follow(t, tree, "sys/class/infiniband_mad/umad1/port")
	assert.Equal(t, "2\n", n.Data)
}

// TestNoAdapters: without a fabric the tree is as if the profile had none.
func TestNoAdapters(t *testing.T) {
	board, err := profiles.Shipped("dgx-h100")
	require.NoError(t, err)
	tree := New(board, Options{CPUs: []uint32{0}})
	assert.Nil(t, tree.Find("sys/class/infiniband"))
	assert.Nil(t, tree.Find("dev/infiniband"))
	assert.Nil(t, tree.Find("sys/bus/pci/devices/0000:18:00.0"))
}

// TestDeviceNumbers: no two devices have one number, however many there are.
func TestDeviceNumbers(t *testing.T) {
	seen := map[[2]int]bool{}
	for n := range 500 {
		for _, number := range []func(int) (int, int){umadNumber, issmNumber, verbsNumber} {
			major, minor := number(n)
			assert.False(t, seen[[2]int{major, minor}], "%d:%d", major, minor)
			seen[[2]int{major, minor}] = true
		}
	}
}

// TestMirror: the files of a tree follow the fabric, whole and without a file of anybody else's being left.
func TestMirror(t *testing.T) {
	board := parse(t, "extends: dgx-h100\n")
	f, err := Subnet(board, "dgx01", "", nil)
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "root")
	require.NoError(t, New(board, Options{CPUs: []uint32{0}, Fabric: f, Host: "dgx01"}).Write(dir))
	before := names(t, dir)
	m := NewMirror(dir, board, f, "dgx01")
	now := time.Unix(2000000000, 0)
	require.NoError(t, m.Update(f, "dgx01", now))
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, "sys/class/infiniband/mlx5_3", name))
		require.NoError(t, err)
		return string(text)
	}
	assert.Equal(t, "4: ACTIVE\n", read("ports/1/state"))

	require.NoError(t, f.SetFaults("dgx01", []fabric.Fault{{Kind: fabric.LinkDown, Target: "mlx5_3", Since: now}}, now))
	f.Host("dgx01")[3].Ports[1].Count(fabric.SymbolErrorCounter, 7)
	require.NoError(t, m.Update(f, "dgx01", now))
	for name, want := range map[string]string{"state": "1: DOWN\n", "phys_state": "2: Polling\n", "lid": "0xffff\n", "counters/symbol_error": "7\n"} {
		assert.Equal(t, want, read("ports/1/"+name))
	}
	assert.Contains(t, read("ports/1/.port"), "state=1 phys_state=2 ")
	assert.Equal(t, "down\n", read("device/net/ibp64s0/operstate"))
	assert.Equal(t, before, names(t, dir))
	require.NoError(t, Remove(dir))
}
