package machine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// speeds are the speeds of the PCIe generations as sysfs writes them.
var speeds = [...]string{"Unknown", "2.5 GT/s PCIe", "5.0 GT/s PCIe", "8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe", "64.0 GT/s PCIe"}

func speed(gen uint32) string {
	if int(gen) >= len(speeds) {
		gen = 0
	}
	return speeds[gen] + "\n"
}

// pci writes the PCI part of /sys.
func (b *builder) pci() {
	for _, r := range b.roots {
		b.root(r)
		r.each(b.function)
	}
}

func (b *builder) root(r *root) {
	b.tree.knob(r.path()+"/uevent", "")
	b.bus(r.path(), r, r.bus)
}

// bus writes the bus that is at a root complex or below a bridge.
func (b *builder) bus(above string, r *root, number uint8) {
	name := fmt.Sprintf("%04x:%02x", r.domain, number)
	dir := above + "/pci_bus/" + name
	b.tree.file(dir+"/cpulistaffinity", b.list(r)+"\n")
	b.tree.file(dir+"/cpuaffinity", mask(b.near(r))+"\n")
	b.tree.knob(dir+"/uevent", "")
	b.tree.between(dir+"/device", above)
	b.tree.between(dir+"/subsystem", "sys/class/pci_bus")
	b.tree.between("sys/class/pci_bus/"+name, dir)
}

func (b *builder) function(f *function) {
	id, l, dir, name := f.identity(), f.link(), f.path(), address(f.id)
	at := b.tree.dir(dir)
	put := func(file, format string, args ...any) { at.file(file, fmt.Sprintf(format+"\n", args...)) }
	modalias := fmt.Sprintf("pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi00",
		id.vendor, id.device, id.subVendor, id.subDevice, id.base, id.sub)

	put("vendor", "%#04x", id.vendor)
	put("device", "%#04x", id.device)
	put("subsystem_vendor", "0x%04x", id.subVendor)
	put("subsystem_device", "0x%04x", id.subDevice)
	put("class", "0x%06x", id.class())
	put("revision", "0x%02x", id.revision)
	put("irq", "%d", f.irq)
	put("modalias", "%s", modalias)
	put("local_cpulist", "%s", b.list(f.root))
	put("local_cpus", "%s", mask(b.near(f.root)))
	put("power_state", "D0")
	put("dma_mask_bits", "%d", map[bool]int{true: 32, false: 52}[f.kind.bridge()])
	at.file("current_link_speed", speed(l.gen))
	at.file("max_link_speed", speed(l.maxGen))
	put("current_link_width", "%d", l.width)
	put("max_link_width", "%d", l.maxWidth)
	at.file("resource", f.resource())
	at.knob("config", f.config())
	at.knob("numa_node", strconv.Itoa(int(f.root.numa))+"\n")
	at.knob("uevent", fmt.Sprintf(
		"DRIVER=%s\nPCI_CLASS=%X\nPCI_ID=%04X:%04X\nPCI_SUBSYS_ID=%04X:%04X\nPCI_SLOT_NAME=%s\nMODALIAS=%s\n",
		id.driver, id.class(), id.vendor, id.device, id.subVendor, id.subDevice, name, modalias))

	if f.kind.bridge() {
		put("secondary_bus_number", "%d", f.secondary)
		put("subordinate_bus_number", "%d", f.subordinate)
		b.bus(dir, f.root, f.secondary)
	} else {
		at.trigger("reset")
		at.file(fmt.Sprintf("msi_irqs/%d", f.irq), "msi\n")
	}
	if f.gpu != nil && id.base == 3 && id.sub == 0 {
		put("boot_vga", "0")
	}

	driver := "sys/bus/pci/drivers/" + id.driver
	b.tree.between(dir+"/subsystem", "sys/bus/pci")
	b.tree.between(dir+"/driver", driver)
	b.tree.between("sys/bus/pci/devices/"+name, dir)
	b.tree.between(driver+"/"+name, dir)
	for _, file := range []string{"bind", "unbind", "new_id", "remove_id", "uevent"} {
		b.tree.trigger(driver + "/" + file)
	}
	if module, ok := driverModules[id.driver]; ok {
		b.tree.between(driver+"/module", "sys/module/"+module)
		b.tree.between("sys/module/"+module+"/drivers/pci:"+id.driver, driver)
	}
}

// driverModules are the modules that drivers come from, where that is not the kernel.
var driverModules = map[string]string{"nvidia": "nvidia", "nvidia-nvswitch": "nvidia", "mlx5_core": "mlx5_core"}

// resource is the file resource: start, end and flags of each range.
func (f *function) resource() string {
	lines := 13
	if f.kind.bridge() {
		lines = 17
	}
	var text strings.Builder
	for i := range lines {
		at := slices.IndexFunc(f.bars, func(b bar) bool { return b.index == i })
		if at < 0 {
			text.WriteString("0x0000000000000000 0x0000000000000000 0x0000000000000000\n")
			continue
		}
		b := f.bars[at]
		fmt.Fprintf(&text, "0x%016x 0x%016x 0x%016x\n", b.base, b.end(), b.flags())
	}
	return text.String()
}

// near are the CPUs near a root complex: all there are if nothing says which.
func (b *builder) near(r *root) []uint32 {
	if len(r.cpus) > 0 {
		return r.cpus
	}
	return b.options.CPUs
}

func (b *builder) list(r *root) string { return ranges10(b.near(r)) }

// ranges10 writes numbers, ascending, as Linux writes lists of CPUs: 0-71,80.
func ranges10(numbers []uint32) string {
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		part := strconv.Itoa(int(numbers[i]))
		if j > i {
			part += "-" + strconv.Itoa(int(numbers[j]))
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// mask writes numbers, ascending, as Linux writes masks of CPUs: 32 bits a group, the highest first.
func mask(numbers []uint32) string {
	words := []uint32{0}
	for _, n := range numbers {
		for int(n/32) >= len(words) {
			words = append(words, 0)
		}
		words[n/32] |= 1 << (n % 32)
	}
	slices.Reverse(words)
	groups := make([]string, len(words))
	for i, w := range words {
		groups[i] = fmt.Sprintf("%08x", w)
	}
	return strings.Join(groups, ",")
}
