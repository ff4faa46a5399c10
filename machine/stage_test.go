package machine

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func parse(t *testing.T, text string) *profiles.Board {
	t.Helper()
	board, err := profiles.Parse("x.yaml", []byte(text))
	require.NoError(t, err)
	return board
}

// boards are the shipped ones and some with layouts that those do not have.
func boards(t *testing.T) map[string]*profiles.Board {
	t.Helper()
	all := map[string]*profiles.Board{
		"many":  parse(t, "extends: t4\ncount: 100\n"),
		"empty": parse(t, "count: 2\ndevices: [{irq: 174}]\n"),
		"domains": parse(t, `
extends: t4
count: 2
devices: [{pci: {bus_id: "0001:01:00.0"}}, {pci: {bus_id: "0009:01:00.0"}}]
`),
		"switch": parse(t, switched),
	}
	for _, name := range profiles.Names() {
		board, err := profiles.Shipped(name)
		require.NoError(t, err)
		all[name] = board
	}
	return all
}

const switched = `
extends: h100
count: 2
device_defaults: {topology: {default_level: single}}
devices: [{pci: {bus_id: "0000:1b:00.0"}}, {pci: {bus_id: "0000:1c:00.0"}}]
topology:
  cores_per_numa: 4
  root_complexes: [{id: "pci0000:15", numa_node: 1, devices: ["0000:1b:00.0", "0000:1c:00.0"]}]
`

func TestTree(t *testing.T) {
	for name, board := range boards(t) {
		t.Run(name, func(t *testing.T) {
			tree := New(board, Options{CPUs: []uint32{0, 1}, System: true})
			checkLinks(t, tree.Node)
			for i := range board.Devices {
				checkGPU(t, tree, &board.Devices[i], board.System.DriverVersion.Value)
			}
			for name, lines := range tree.Added {
				if name == devicesFile {
					lines = wholeDevices(lines)
				}
				assert.Equal(t, lines, tree.Find(name).Data)
			}
		})
	}
}

// TestClass: GPUs with displays are VGA controllers, and all others 3D controllers, whether the profile says so or not.
func TestClass(t *testing.T) {
	for name, want := range map[string]string{
		"rtx-4090": "0x030000\n", "rtx-5090": "0x030000\n", "vgpu-rtxa6000-24q": "0x030000\n",
		"t4": "0x030200\n", "v100-sxm2-32gb": "0x030200\n", "a10g": "0x030200\n", "v100-vgpu-guest": "0x030200\n",
	} {
		board, err := profiles.Shipped(name)
		require.NoError(t, err)
		tree := New(board, Options{CPUs: []uint32{0}, System: true})
		link := tree.Find("sys/bus/pci/devices/" + address(board.Devices[0].PCI.BusID.Value))
		assert.Equal(t, want, tree.Find(path.Join("sys/bus/pci/devices", link.Data, "class")).Data, name)
	}
}

// checkLinks: every link leads to something in the tree.
func checkLinks(t *testing.T, tree *Node) {
	t.Helper()
	tree.Walk(func(name string, n *Node) {
		if n.Mode&fs.ModeSymlink != 0 {
			target := path.Join(path.Dir(name), n.Data) // folders of a tree are never links
			assert.NotNil(t, tree.Find(target), "%s leads to %s", name, target)
		}
	})
}

func checkGPU(t *testing.T, tree *Tree, d *profiles.Device, driver string) {
	t.Helper()
	bdf := address(d.PCI.BusID.Value)
	link := tree.Find("sys/bus/pci/devices/" + bdf)
	require.NotNil(t, link, bdf)
	dir := path.Join("sys/bus/pci/devices", link.Data)
	get := func(name string) string {
		n := tree.Find(dir + "/" + name)
		require.NotNil(t, n, "%s/%s", dir, name)
		return n.Data
	}
	assert.Equal(t, bdf, path.Base(dir))
	assert.Equal(t, fmt.Sprintf("0x%04x\n", d.PCI.DeviceID.Or(0x10de)>>16), get("device"))
	assert.Equal(t, "0x10de\n", get("vendor"))
	config := []byte(get("config"))
	require.Len(t, config, 4096)
	assert.Equal(t, d.PCI.DeviceID.Or(0x10de), uint32(binary.LittleEndian.Uint16(config))|uint32(binary.LittleEndian.Uint16(config[2:]))<<16)
	if d.Virtualization.Mode.Value == "vgpu" {
		assert.Equal(t, []byte{0x01, 0x05, 0x10, 0x09}, capabilities(t, config))
		assert.Equal(t, "\x1bVF\x00\x16"+driver+strings.Repeat("\x00", 10-len(driver))+"r535_00\x00\x00\x00", string(config[0xd2:0xeb]))
	} else {
		assert.Equal(t, []byte{0x01, 0x05, 0x10}, capabilities(t, config))
	}
	checkBars(t, config, get("resource"))
	assert.Contains(t, get("uevent"), "PCI_SLOT_NAME="+bdf+"\n")
	assert.Equal(t, "sys/bus/pci/drivers/nvidia", path.Join(dir, get("driver")))
	information := tree.Find("proc/driver/nvidia/gpus/" + bdf + "/information")
	require.NotNil(t, information)
	assert.Contains(t, information.Data, fmt.Sprintf("\nDevice Minor: \t %d\n", Minor(d)))
	assert.Contains(t, information.Data, "\nGPU UUID: \t "+string(d.UUID)+"\n")
	assert.NotNil(t, tree.Find(fmt.Sprintf("dev/nvidia%d", Minor(d))))
	if d.IRQ.Valid {
		assert.Equal(t, fmt.Sprintf("%d\n", d.IRQ.Value), get("irq"))
		assert.Contains(t, information.Data, fmt.Sprintf("\nIRQ:     \t %d\n", d.IRQ.Value))
	}

	// Every bridge above the GPU knows the GPU's bus.
	for above := path.Dir(dir); path.Base(path.Dir(above)) != "devices"; above = path.Dir(above) {
		bridge := tree.Find(above + "/config").Data
		assert.Equal(t, byte(1), bridge[0x0e], above)
		assert.LessOrEqual(t, bridge[0x19], d.PCI.BusID.Value.Bus, above)
		assert.GreaterOrEqual(t, bridge[0x1a], d.PCI.BusID.Value.Bus, above)
	}
	// NCCL goes from the bus to the device by the real path of the bus.
	bus := tree.Find("sys/class/pci_bus/" + bdf[:7])
	require.NotNil(t, bus)
	assert.Equal(t, path.Dir(dir), path.Join("sys/class/pci_bus", bus.Data, "../.."))
}

// capabilities are the numbers of the list in a configuration space.
func capabilities(t *testing.T, config []byte) (ids []byte) {
	t.Helper()
	for at := config[0x34]; at != 0; at = config[at+1] {
		ids = append(ids, config[at])
		require.Less(t, len(ids), 48)
	}
	return ids
}

// checkBars: the ranges of the file resource are those in the registers, aligned to their size.
func checkBars(t *testing.T, config []byte, resource string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(resource, "\n"), "\n")
	require.Len(t, lines, 13)
	found := 0
	for i := range 6 {
		var start, end, flags uint64
		_, err := fmt.Sscanf(lines[i], "0x%x 0x%x 0x%x", &start, &end, &flags)
		require.NoError(t, err)
		if end == 0 {
			continue
		}
		found++
		size := end - start + 1
		assert.Zero(t, size&(size-1), "%x is no power of 2", size)
		assert.Zero(t, start%size)
		register := binary.LittleEndian.Uint32(config[0x10+4*i:])
		assert.Equal(t, uint32(start), register&^0xf)
		assert.Equal(t, uint32(flags&0xf), register&0xf)
		if flags&flagWide != 0 {
			assert.Equal(t, uint32(start>>32), binary.LittleEndian.Uint32(config[0x14+4*i:]))
		}
	}
	assert.Equal(t, 3, found)
}

// TestLayout: what is above each GPU and NVSwitch.
func TestLayout(t *testing.T) {
	all := boards(t)
	for name, want := range map[string][]string{
		"t4": {"pci0000:00/0000:00:1e.0"},
		"gb200": {
			"pci0000:28/0000:28:00.0/0000:29:00.0", "pci0000:3e/0000:3e:00.0/0000:3f:00.0",
			"pci0000:9b/0000:9b:00.0/0000:9c:00.0", "pci0000:b1/0000:b1:00.0/0000:b2:00.0",
		},
		"domains": {"pci0001:00/0001:00:10.0/0001:01:00.0", "pci0009:00/0009:00:10.0/0009:01:00.0"},
		"switch": {
			"pci0000:00/0000:00:10.0/0000:01:00.0", "pci0000:00/0000:00:11.0/0000:02:00.0",
			"pci0000:00/0000:00:12.0/0000:03:00.0", "pci0000:00/0000:00:13.0/0000:04:00.0",
			"pci0000:15/0000:15:00.0/0000:16:00.0/0000:17:00.0/0000:1b:00.0",
			"pci0000:15/0000:15:00.0/0000:16:00.0/0000:17:01.0/0000:1c:00.0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range layout(all[name], nil) {
				r.each(func(f *function) {
					if !f.kind.bridge() {
						got = append(got, strings.TrimPrefix(f.path(), "sys/devices/"))
					}
				})
			}
			assert.Equal(t, want, got)
		})
	}
}

// TestFault21SwitchesInTree: GPUs that the profile puts below a PCIe switch are below it in the tree too; of switches below a switch the
// lowest are shown. Without bus numbers for a switch there is none.
func TestFault21SwitchesInTree(t *testing.T) {
	const text = `
devices: [{pci: {bus_id: "0000:14:00.0"}}, {pci: {bus_id: "0000:15:00.0"}}, {pci: {bus_id: "0000:24:00.0"}}, {pci: {bus_id: "0000:25:00.0"}},
  {pci: {bus_id: "0000:31:00.0"}}]
topology:
  root_complexes:
    - {id: "pci0000:10", numa_node: 0, cpu_affinity: 0-3, devices: ["0000:14:00.0", "0000:15:00.0", "0000:24:00.0", "0000:25:00.0"]}
    - {numa_node: 1, cpu_affinity: 4-7, devices: ["0000:31:00.0"]}
  pci_switches:
    - devices: ["0000:14:00.0", "0000:15:00.0"]
    - devices: ["0000:24:00.0", "0000:25:00.0"]
    - devices: ["0000:14:00.0", "0000:15:00.0", "0000:24:00.0", "0000:25:00.0"]
`
	paths := func(text string) (list []string) {
		for _, r := range layout(parse(t, text), nil) {
			r.each(func(f *function) {
				if !f.kind.bridge() {
					list = append(list, strings.TrimPrefix(f.path(), "sys/devices/"))
				}
			})
		}
		return list
	}
	assert.Equal(t, []string{
		"pci0000:10/0000:10:00.0/0000:12:00.0/0000:13:00.0/0000:14:00.0", "pci0000:10/0000:10:00.0/0000:12:00.0/0000:13:01.0/0000:15:00.0",
		"pci0000:10/0000:10:01.0/0000:22:00.0/0000:23:00.0/0000:24:00.0", "pci0000:10/0000:10:01.0/0000:22:00.0/0000:23:01.0/0000:25:00.0",
		"pci0000:30/0000:30:00.0/0000:31:00.0",
	}, paths(text))
	assert.Equal(t, paths(strings.ReplaceAll(text, `id: "pci0000:10", `, ""))[0], "pci0000:11/0000:11:00.0/0000:12:00.0/0000:13:00.0/0000:14:00.0",
		"a root complex without a name leaves the bus numbers that its switch needs")
	assert.Equal(t, []string{"pci0000:00/0000:00:10.0/0000:01:00.0", "pci0000:00/0000:00:11.0/0000:02:00.0"}, paths(`
devices: [{pci: {bus_id: "0000:01:00.0"}}, {pci: {bus_id: "0000:02:00.0"}}]
topology: {pci_switches: [{devices: ["0000:01:00.0", "0000:02:00.0"]}]}
`))
}

// TestFault11NodesOfChannelsAndSwitches: a profile can have device nodes of IMEX channels and of NVSwitches; without, there are none.
func TestFault11NodesOfChannelsAndSwitches(t *testing.T) {
	tree := New(parse(t, "extends: h100\nsystem: {imex_channels: 2}\nnvlink: {switch_nodes: 4}\n"), Options{CPUs: []uint32{0}})
	for name, want := range map[string][2]uint32{
		"nvidia-caps-imex-channels/channel0": {majorIMEX, 0}, "nvidia-caps-imex-channels/channel1": {majorIMEX, 1},
		"nvidia-nvswitchctl": {majorNVSwitch, 255}, "nvidia-nvswitch0": {majorNVSwitch, 0}, "nvidia-nvswitch3": {majorNVSwitch, 3},
	} {
		n := tree.Find("dev/" + name)
		require.NotNil(t, n, name)
		assert.Equal(t, want, [2]uint32{n.Major, n.Minor}, name)
		assert.Equal(t, fs.ModeDevice|fs.ModeCharDevice|0o666, n.Mode, name)
	}
	assert.Nil(t, tree.Find("dev/nvidia-caps-imex-channels/channel2"))
	assert.Nil(t, tree.Find("dev/nvidia-nvswitch4"))
	assert.Contains(t, tree.Added["proc/devices"], "235 nvidia-nvswitch\n234 nvidia-caps-imex-channels\n")

	tree = New(parse(t, "extends: h100\n"), Options{CPUs: []uint32{0}})
	assert.Nil(t, tree.Find("dev/nvidia-caps-imex-channels"))
	assert.Nil(t, tree.Find("dev/nvidia-nvswitchctl"))
	assert.NotContains(t, tree.Added["proc/devices"], "nvswitch")
	assert.Equal(t, "Character devices:\n  1 mem\n  4 tty\n  5 /dev/tty\n 10 misc\n 13 input\n 29 fb\n128 ptm\n136 pts\n195 nvidia\n195 nvidia-modeset\n"+
		"195 nvidiactl\n234 nvidia-caps-imex-channels\n508 nvidia-uvm\n509 nvidia-caps\n\nBlock devices:\n  7 loop\n  8 sd\n253 virtblk\n259 blkext\n",
		tree.Find("proc/devices").Data, "the whole list")
}

func TestNUMA(t *testing.T) {
	tree := New(parse(t, switched), Options{CPUs: []uint32{0, 1}, System: true})
	dir := "sys/devices/pci0000:15/0000:15:00.0/0000:16:00.0/0000:17:00.0/0000:1b:00.0/"
	assert.Equal(t, "1\n", tree.Find(dir+"numa_node").Data)
	assert.Equal(t, "4-7\n", tree.Find(dir+"local_cpulist").Data)
	assert.Equal(t, "000000f0\n", tree.Find(dir+"local_cpus").Data)
	assert.Equal(t, "4-7\n", tree.Find(System+"node/node1/cpulist").Data)
	assert.Equal(t, "1\n", tree.Find(System+"cpu/cpu5/topology/physical_package_id").Data)
}

func TestCPULists(t *testing.T) {
	for want, numbers := range map[string][]uint32{"": nil, "0": {0}, "0-2,5": {0, 1, 2, 5}, "3,5-6": {3, 5, 6}} {
		assert.Equal(t, want, ranges10(numbers))
	}
	assert.Equal(t, "00000000", mask(nil))
	assert.Equal(t, "00000001,80000001", mask([]uint32{0, 31, 32}))
}

// names are the files of a folder.
func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		list = append(list, path)
		return err
	}))
	return list
}

func TestWrite(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "a", "root")
	libraries := t.TempDir()
	for _, name := range []string{"libnvidia-ml.so.1", "libnvmlfab-core.so.1"} {
		require.NoError(t, os.WriteFile(filepath.Join(libraries, name), []byte(name), 0o644))
	}
	tree := func(name string) *Tree {
		board, err := profiles.Shipped(name)
		require.NoError(t, err)
		return New(board, Options{CPUs: []uint32{0}, Libraries: libraries, Profile: "extends: " + name + "\n"})
	}
	require.NoError(t, tree("t4").Write(dir))
	first := names(t, dir)
	require.NoError(t, tree("t4").Write(dir))
	assert.Equal(t, first, names(t, dir), "twice is like once")
	require.NoError(t, tree("h100").Write(dir))
	assert.NoDirExists(t, filepath.Join(dir, "proc/driver/nvidia/gpus/0000:00:1e.0"))
	data, err := os.ReadFile(filepath.Join(dir, LibraryDir, "libnvidia-ml.so"))
	require.NoError(t, err)
	assert.Equal(t, "libnvidia-ml.so.1", string(data))
	config, err := os.ReadFile(filepath.Join(dir, "sys/bus/pci/devices/0000:53:00.0/config"))
	require.NoError(t, err)
	assert.Len(t, config, 4096)
	list, err := os.ReadDir(filepath.Join(parent, "a"))
	require.NoError(t, err)
	assert.Len(t, list, 1, "no temporary folder is left")

	mine := filepath.Join(dir, "sys/mine")
	require.NoError(t, os.WriteFile(mine, nil, 0o644))
	assert.ErrorContains(t, tree("t4").Write(dir), "did not write "+mine)
	require.NoError(t, Remove(dir))
	assert.Equal(t, []string{dir, filepath.Join(dir, "sys"), mine}, names(t, dir), "what nvmlfab did not write stays")
	require.NoError(t, os.RemoveAll(dir))

	require.NoError(t, tree("t4").Write(dir))
	require.NoError(t, Remove(dir))
	assert.NoDirExists(t, dir)
	assert.ErrorContains(t, Remove(dir), "nothing is staged")
}

func TestWriteRefuses(t *testing.T) {
	tree := New(parse(t, "extends: t4\n"), Options{})
	assert.ErrorContains(t, tree.Write("/"), "no place")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x"), nil, 0o644))
	assert.ErrorContains(t, tree.Write(dir), "is not empty")
	assert.Len(t, names(t, dir), 2)
	require.NoError(t, os.WriteFile(filepath.Join(dir, manifest), []byte(manifestHead+"\n../x\n"), 0o644))
	assert.ErrorContains(t, Remove(dir), "not below")
}
