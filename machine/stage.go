package machine

import (
	"cmp"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/engine/state/caps"
	"github.com/nvmlfab/nvmlfab/machine/fabric"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// Options are what a tree depends on beside the board.
type Options struct {
	// CPUs are the machine's, ascending, for devices that the profile does not place.
	CPUs []uint32
	// System adds CPUs and NUMA nodes.
	System bool
	// Libraries is the folder with nvmlfab's libraries; without it the tree has no driver's folder.
	Libraries string
	// CUDA is a libcuda to copy beside them; none if empty.
	CUDA string
	// SMI is an nvidia-smi to copy; none if empty.
	SMI string
	// Hook is the hook of container runtimes to copy; none if empty.
	Hook string
	// State is the state directory as links in the tree lead to it: an absolute path, or one from the tree's root, such as
	// ../root.state. Without it the folders of MIG instances are empty.
	State string
	// Fabric has the board's InfiniBand adapters as those of a host; without it the tree has none.
	Fabric *fabric.Fabric
	// Host is the host's name in the fabric.
	Host string
	// Description is the text of the fabric's description; empty if the host is alone in it.
	Description string
	// Contained says that the tree is a container's, in which the driver makes no device nodes of its own.
	Contained bool
	// Profile is the text of a profile file, for programs that see the tree elsewhere than on this machine; none if empty.
	Profile string
}

// Triplet is the name that Debian gives this machine's processor and C library, as its folders of libraries bear it; empty for
// processors that nvmlfab is not built for.
var Triplet = triplets[runtime.GOARCH]

var triplets = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

// LibraryDir is the folder of a tree that the driver's libraries are in.
var LibraryDir = "usr/lib/" + Triplet

// FeaturesFile is what Kubernetes' node-feature-discovery reads on a node, below its root: it labels the node as one with a PCI device
// of NVIDIA's, where NVIDIA's charts then put their pods.
const FeaturesFile = "etc/kubernetes/node-feature-discovery/features.d/nvmlfab"

// HookFile is where a tree has the hook that NVIDIA_CDI_HOOK_PATH names.
const HookFile = "usr/bin/nvmlfab-hook"

// ProfileFile is where a tree has the profile that it was made from.
const ProfileFile = state.ProfileFile

// Tree is what a machine has.
type Tree struct {
	// Root holds sys, proc, dev and usr.
	*Node
	// Added are lines that proc/devices, proc/modules and proc/bus/pci/devices have beside those of a real machine, by path.
	Added map[string]string
	// GPUs are the board's, with their nodes.
	GPUs []GPU
	// StandIns says that Write makes empty files in the place of device nodes.
	StandIns bool
	// Made is how many nodes Write has made so far.
	Made atomic.Int64
}

// GPU is one GPU of a tree.
type GPU struct {
	UUID  profiles.UUID
	BusID string
	Minor uint32
}

// builder holds what the parts of a tree are made from.
type builder struct {
	board   *profiles.Board
	options Options
	roots   []*root
	tree    *Node
	added   map[string]string
	driver  string
}

// New computes the tree of a board.
func New(board *profiles.Board, options Options) *Tree {
	if len(options.CPUs) == 0 {
		options.CPUs = []uint32{0}
	}
	b := &builder{board: board, options: options, roots: layout(board, adaptersOf(board, options)), tree: folder(), added: map[string]string{},
		driver: board.System.DriverVersion.Or("1")}
	b.pci()
	if options.System {
		b.cpus()
	}
	b.procPCI()
	b.procDriver()
	b.modules()
	b.infiniband()
	b.nodes()
	b.libraries()
	for path, lines := range b.added {
		if path == devicesFile {
			lines = wholeDevices(lines)
		}
		b.tree.file(path, lines)
	}
	t := &Tree{Node: b.tree, Added: b.added}
	for i := range board.Devices {
		d := &board.Devices[i]
		t.GPUs = append(t.GPUs, GPU{d.UUID, address(d.PCI.BusID.Value), Minor(d)})
	}
	return t
}

// Minor is the N of the GPU's /dev/nvidiaN.
func Minor(d *profiles.Device) uint32 { return d.MinorNumber.Or(d.Index) }

// DMABits is the width of the addresses that the GPU can reach, in bits.
func DMABits(d *profiles.Device) int {
	if since(d, "hopper") {
		return 52
	}
	return 47
}

// VBIOS is the version of the GPU's VBIOS as the kernel driver writes it.
func VBIOS(d *profiles.Device) string { return cmp.Or(d.VBIOSVersion.Value, "??.??.??.??.??") }

// Firmware is the version of the GPU's firmware as the kernel driver of that version writes it.
func Firmware(d *profiles.Device, driver string) string {
	if d.GSPFirmware.Mode.Or(false) {
		return d.GSPFirmware.Version.Or(driver)
	}
	return "N/A"
}

// Major numbers. All but the first are whatever a kernel gives out.
const (
	majorNvidia   = 195
	majorUVM      = 508
	majorCaps     = 509
	majorIMEX     = 234
	majorNVSwitch = 235
)

// nodes writes the device nodes.
func (b *builder) nodes() {
	node := func(name string, major, minor uint32, mode fs.FileMode) {
		b.tree.put("dev/"+name, &Node{Mode: fs.ModeDevice | fs.ModeCharDevice | mode, Major: major, Minor: minor})
	}
	for i := range b.board.Devices {
		n := Minor(&b.board.Devices[i])
		node(fmt.Sprintf("nvidia%d", n), majorNvidia, n, 0o666)
	}
	node("nvidiactl", majorNvidia, 255, 0o666)
	node("nvidia-modeset", majorNvidia, 254, 0o666)
	node("nvidia-uvm", majorUVM, 0, 0o666)
	node("nvidia-uvm-tools", majorUVM, 1, 0o666)
	node("nvidia-caps/nvidia-cap1", majorCaps, caps.Config, 0o400)
	node("nvidia-caps/nvidia-cap2", majorCaps, caps.Monitor, caps.ModeOfInstances)
	for _, minor := range change.Capabilities(b.board) {
		node(CapabilityNode(minor), majorCaps, minor, caps.ModeOfInstances)
	}
	for channel := range b.board.System.IMEXChannels.Or(0) {
		node(fmt.Sprintf("nvidia-caps-imex-channels/channel%d", channel), majorIMEX, channel, 0o666)
	}
	if n := b.board.NVLink.SwitchNodes.Or(0); n > 0 {
		node("nvidia-nvswitchctl", majorNVSwitch, 255, 0o666)
		for i := range n {
			node(fmt.Sprintf("nvidia-nvswitch%d", i), majorNVSwitch, i, 0o666)
		}
	}
}

// libraries writes the driver's folder: libraries under the names that a driver installs, and nvidia-smi.
func (b *builder) libraries() {
	if smi := b.options.SMI; smi != "" {
		b.tree.put("usr/bin/nvidia-smi", &Node{Mode: 0o755, Source: smi})
	}
	if hook := b.options.Hook; hook != "" {
		b.tree.put(HookFile, &Node{Mode: 0o755, Source: hook})
	}
	if text := b.options.Profile; text != "" {
		b.tree.file(ProfileFile, text)
		b.tree.file(FeaturesFile, "pci-10de.present=true\n")
		b.tree.dir(state.MountPoint)
	}
	if text := b.options.Description; text != "" {
		b.tree.file(FabricFile, text)
	}
	from := b.options.Libraries
	if from == "" {
		return
	}
	for _, name := range []string{"libnvidia-ml.so", "libnvmlfab-core.so"} {
		b.tree.put(LibraryDir+"/"+name+"."+b.driver, &Node{Mode: 0o755, Source: filepath.Join(from, name+".1")})
	}
	names := []string{"libnvidia-ml.so"}
	if cuda := b.options.CUDA; cuda != "" {
		b.tree.put(LibraryDir+"/libcuda.so."+b.driver, &Node{Mode: 0o755, Source: cuda})
		names = append(names, "libcuda.so")
	}
	for _, name := range names {
		b.tree.link(LibraryDir+"/"+name+".1", name+"."+b.driver)
		b.tree.link(LibraryDir+"/"+name, name+".1")
	}
}

// modules writes what is seen of the driver's modules.
func (b *builder) modules() {
	sizes := []struct {
		name  string
		size  int
		users []string
	}{
		{"nvidia_uvm", 1961984, nil},
		{"nvidia_drm", 131072, nil},
		{"nvidia_modeset", 1716224, []string{"nvidia_drm"}},
		{"nvidia", 104071168, []string{"nvidia_uvm", "nvidia_modeset"}},
	}
	for _, m := range sizes {
		b.module(m.name, m.size, m.users, "OE")
		b.tree.file("sys/module/"+m.name+"/version", b.driver+"\n")
	}
	b.tree.file("sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "N\n")
	b.tree.file("sys/module/nvidia_drm/parameters/modeset", "N\n")
	b.tree.file("sys/module/nvidia_modeset/parameters/vblank_sem_control", "Y\n")

	lines := []string{fmt.Sprintf("%3d nvidia-frontend", majorNvidia)}
	if branch(b.driver) >= 550 {
		lines = []string{fmt.Sprintf("%3d nvidia", majorNvidia), fmt.Sprintf("%3d nvidia-modeset", majorNvidia), fmt.Sprintf("%3d nvidiactl", majorNvidia)}
	}
	lines = append(lines, fmt.Sprintf("%3d nvidia-uvm", majorUVM), fmt.Sprintf("%3d nvidia-caps", majorCaps))
	if b.board.NVLink.SwitchNodes.Or(0) > 0 {
		lines = append(lines, fmt.Sprintf("%3d nvidia-nvswitch", majorNVSwitch))
	}
	if branch(b.driver) >= 550 || b.board.System.IMEXChannels.Or(0) > 0 { // whether or not there are channels
		lines = append(lines, fmt.Sprintf("%3d nvidia-caps-imex-channels", majorIMEX))
	}
	b.added[devicesFile] = strings.Join(lines, "\n") + "\n"
}

const devicesFile = "proc/devices"

// wholeDevices is a list of a machine's devices with some more lines, sorted by number as the kernel's.
func wholeDevices(lines string) string {
	list := append(strings.Split(strings.TrimSuffix(lines, "\n"), "\n"), "  1 mem", "  4 tty", "  5 /dev/tty", " 10 misc", " 13 input", " 29 fb",
		"128 ptm", "136 pts")
	slices.SortStableFunc(list, func(a, b string) int { return strings.Compare(a[:3], b[:3]) })
	return "Character devices:\n" + strings.Join(list, "\n") + "\n\nBlock devices:\n  7 loop\n  8 sd\n253 virtblk\n259 blkext\n"
}

// module writes what is seen of a module; taint says how it differs from the kernel's own.
func (b *builder) module(name string, size int, users []string, taint string) {
	dir := "sys/module/" + name
	b.tree.file(dir+"/coresize", strconv.Itoa(size)+"\n")
	b.tree.file(dir+"/refcnt", strconv.Itoa(len(users))+"\n")
	b.tree.file(dir+"/initstate", "live\n")
	b.tree.file(dir+"/taint", taint+"\n")
	b.tree.trigger(dir + "/uevent")
	b.tree.dir(dir + "/holders")
	list := "-"
	if len(users) > 0 {
		list = strings.Join(users, ",") + ","
	}
	for _, user := range users {
		b.tree.between(dir+"/holders/"+user, "sys/module/"+user)
	}
	if taint != "" {
		taint = " (" + taint + ")"
	}
	b.added["proc/modules"] += fmt.Sprintf("%s %d %d %s Live 0x0000000000000000%s\n", name, size, len(users), list, taint)
}

// branch is the number in front of a driver's version.
func branch(driver string) int {
	n, _ := strconv.Atoi(strings.SplitN(driver, ".", 2)[0])
	return n
}

// procPCI writes /proc/bus/pci.
func (b *builder) procPCI() {
	var text strings.Builder
	for _, r := range b.roots {
		r.each(func(f *function) {
			id := f.identity()
			dir := fmt.Sprintf("%02x", f.id.Bus)
			if f.id.Domain != 0 {
				dir = fmt.Sprintf("%04x:%02x", f.id.Domain, f.id.Bus)
			}
			b.tree.put(fmt.Sprintf("proc/bus/pci/%s/%02x.%x", dir, f.id.Device, f.id.Function), b.tree.Find(f.path()+"/config"))
			if f.id.Domain != 0 {
				return // the list has no room for domains
			}
			fmt.Fprintf(&text, "%02x%02x\t%04x%04x\t%x", f.id.Bus, f.id.Device<<3|f.id.Function, id.vendor, id.device, f.irq)
			var bases, sizes [7]uint64
			for _, r := range f.bars {
				if r.index < len(bases) {
					bases[r.index], sizes[r.index] = r.base|uint64(r.register()), r.size
				}
			}
			for _, v := range append(bases[:], sizes[:]...) {
				fmt.Fprintf(&text, "\t%16x", v)
			}
			fmt.Fprintf(&text, "\t%s\n", id.driver)
		})
	}
	b.added["proc/bus/pci/devices"] = text.String()
}

// open says whether the machine's driver has the open kernel modules: from 560 on they are installed wherever they run.
func (b *builder) open() bool { return branch(b.driver) >= 560 && since(&b.board.Devices[0], "turing") }

// procDriver writes /proc/driver/nvidia.
func (b *builder) procDriver() {
	const dir = "proc/driver/nvidia"
	const built = "Thu Jan  1 00:00:00 UTC 1970"
	module := fmt.Sprintf("NVIDIA UNIX x86_64 Kernel Module  %s  %s", b.driver, built)
	if b.open() {
		module = fmt.Sprintf("NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (nvmlfab)  %s", b.driver, built)
	}
	b.tree.file(dir+"/version", "NVRM version: "+module+"\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n")
	text := params
	if b.options.Contained {
		text = strings.Replace(text, "ModifyDeviceFiles: 1", "ModifyDeviceFiles: 0", 1)
	}
	b.tree.file(dir+"/params", text)
	b.tree.file(dir+"/registry", "Binary: \"\"\n")
	b.capabilities(dir + "/capabilities")
	b.tree.dir(dir + "/patches")
	b.tree.dir(dir + "/warnings")
	for _, r := range b.roots {
		r.each(func(f *function) {
			if f.gpu != nil {
				b.tree.file(dir+"/gpus/"+address(f.id)+"/information", b.information(f))
				b.tree.file(dir+"/gpus/"+address(f.id)+"/registry", "Binary: \"\"\n")
				b.tree.file(dir+"/gpus/"+address(f.id)+"/power", "Runtime D3 status:          Disabled by default\nVideo Memory:               Active\n")
			}
		})
	}
}

// information is a GPU's file of that name.
func (b *builder) information(f *function) string {
	d := f.gpu
	bits := DMABits(d)
	var text strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&text, "%-9s\t "+format+"\n", append([]any{name}, args...)...)
	}
	line("Model: ", "%s", d.Name.Or("Unknown"))
	line("IRQ:   ", "%d", f.irq)
	line("GPU UUID: ", "%s", d.UUID)
	line("Video BIOS: ", "%s", VBIOS(d))
	line("Bus Type: ", "PCIe")
	line("DMA Size: ", "%d bits", bits)
	line("DMA Mask: ", "%#x", uint64(1)<<bits-1)
	line("Bus Location: ", "%s", address(f.id))
	line("Device Minor: ", "%d", Minor(d))
	line("GPU Firmware: ", "%s", Firmware(d, b.driver))
	line("GPU Excluded:", "No")
	return text.String()
}

// params are the driver's parameters with their defaults.
const params = `ResmanDebugLevel: 4294967295
RmLogonRC: 1
ModifyDeviceFiles: 1
DeviceFileUID: 0
DeviceFileGID: 0
DeviceFileMode: 438
InitializeSystemMemoryAllocations: 1
UsePageAttributeTable: 4294967295
EnableMSI: 1
EnablePCIeGen3: 0
MemoryPoolSize: 0
KMallocHeapMaxSize: 0
VMallocHeapMaxSize: 0
IgnoreMMIOCheck: 0
EnableStreamMemOPs: 0
EnableUserNUMAManagement: 1
NvLinkDisable: 0
RmProfilingAdminOnly: 1
PreserveVideoMemoryAllocations: 0
EnableS0ixPowerManagement: 0
S0ixPowerManagementVideoMemoryThreshold: 256
DynamicPowerManagement: 3
DynamicPowerManagementVideoMemoryThreshold: 200
RegisterPCIDriver: 1
EnablePCIERelaxedOrderingMode: 0
EnableResizableBar: 0
EnableGpuFirmware: 18
EnableGpuFirmwareLogs: 2
EnableDbgBreakpoint: 0
OpenRmEnableUnsupportedGpus: 1
DmaRemapPeerMmio: 1
ImexChannelCount: 2048
CreateImexChannel0: 0
GrdmaPciTopoCheckOverride: 0
CoherentGPUMemoryMode: ""
RegistryDwords: ""
RegistryDwordsPerDevice: ""
RmMsg: ""
GpuBlacklist: ""
TemporaryFilePath: ""
ExcludedGpus: ""
`
