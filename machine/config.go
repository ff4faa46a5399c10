package machine

import (
	"encoding/binary"
	"strings"
)

// identity is what a function says it is.
type identity struct {
	vendor, device       uint16
	subVendor, subDevice uint16
	base, sub            uint8 // class
	revision             uint8
	driver               string
}

func (i identity) class() uint32 { return uint32(i.base)<<16 | uint32(i.sub)<<8 }

// Vendors in PCI.
const (
	nvidia   = 0x10de
	mellanox = 0x15b3
)

// identity of GPUs and adapters is the profile's. That of NVSwitches goes by the generation of NVLink and that of bridges by the CPU; the
// numbers are those of the PCI ID Repository.
func (f *function) identity() identity {
	switch f.kind {
	case gpu:
		pci := f.gpu.PCI
		id, sub := pci.DeviceID.Or(nvidia), pci.SubsystemID.Or(0)
		return identity{uint16(id), uint16(id >> 16), uint16(sub), uint16(sub >> 16),
			uint8(pci.BaseClass.Or(3)), uint8(pci.SubClass.Or(display(f.gpu.Brand.Value))), 0xa1, "nvidia"}
	case nvswitch:
		id := identity{vendor: nvidia, device: 0x22a3, base: 6, sub: 0x80, revision: 0xa1, driver: "nvidia-nvswitch"}
		switch f.root.nvlink {
		case 2:
			id.device = 0x1ac2
		case 3:
			id.device = 0x1af1
		}
		id.subVendor, id.subDevice = nvidia, id.device
		return id
	case hca:
		id := identity{vendor: mellanox, device: f.hca.Model.Device, subVendor: mellanox, subDevice: f.hca.Model.Subsystem,
			base: 2, sub: 7, driver: "mlx5_core"}
		if f.hca.Ethernet {
			id.sub = 0
		}
		return id
	case upstream, downstream: // of a Broadcom PEX890xx
		return identity{vendor: 0x1000, device: 0xc030, base: 6, sub: 4, revision: 0xb0, driver: "pcieport"}
	}
	id := identity{vendor: 0x1022, device: 0x1483, base: 6, sub: 4, driver: "pcieport"} // of an AMD EPYC
	if leaf := f.leaf(); leaf.gpu != nil && leaf.gpu.GraceCPUPair.Valid || leaf.hca != nil && f.root.grace {
		id.vendor, id.device = nvidia, 0x22b8 // of a Grace
	}
	return id
}

// link is a PCIe link: generations and numbers of lanes.
type link struct{ gen, maxGen, width, maxWidth uint32 }

// link of a function is that of the device at its end. A port's highest generation is the host's.
func (f *function) link() link {
	leaf := f.leaf()
	if leaf.hca != nil {
		gen := leaf.hca.Model.Generation
		return link{gen, gen, 16, 16}
	}
	if leaf.gpu == nil { // an NVSwitch, and they are of two lanes
		return link{4, 4, 2, 2}
	}
	p := leaf.gpu.PCIe
	l := link{maxGen: p.MaxLinkGen.Or(p.MaxDeviceLinkGen.Or(0)), maxWidth: p.MaxLinkWidth.Or(0)}
	if l.maxWidth == 0 {
		l.maxWidth = 16
	}
	if l.maxGen == 0 {
		l.maxGen = 4
	}
	l.gen, l.width = p.CurrentLinkGen.Or(l.maxGen), p.CurrentLinkWidth.Or(l.maxWidth)
	if f.kind.bridge() {
		l.maxGen = p.MaxHostLinkGen.Or(l.maxGen)
	} else {
		l.maxGen = max(l.maxGen, p.MaxDeviceLinkGen.Or(0))
	}
	return l
}

// display is the sub class of a GPU whose profile names none: 0, a VGA controller, if its product line has displays, as GeForce boards
// and the vGPUs of desktops have; and 2, a 3D controller, of all others.
func display(brand string) uint32 {
	switch brand {
	case "geforce", "geforce_rtx", "titan", "titan_rtx", "nvidia_vws", "nvidia_vpc", "nvidia_vapps":
		return 0
	}
	return 2
}

// Where the capabilities stand in the configuration space, as on NVIDIA's boards.
const (
	configSize = 4096
	atPower    = 0x60
	atMSI      = 0x68
	atExpress  = 0x78
	atVGPU     = 0xd0
	atErrors   = 0x100
	atSerial   = 0x148
)

// config is a configuration space.
type config [configSize]byte

func (c *config) u8(at int, v uint8)   { c[at] = v }
func (c *config) u16(at int, v uint16) { binary.LittleEndian.PutUint16(c[at:], v) }
func (c *config) u32(at int, v uint32) { binary.LittleEndian.PutUint32(c[at:], v) }

// config writes the function's configuration space.
func (f *function) config() string {
	var c config
	id := f.identity()
	c.u16(0x00, id.vendor)
	c.u16(0x02, id.device)
	c.u16(0x04, 0x0546) // command: memory, bus master, parity, SERR, no INTx
	c.u16(0x06, 0x0010) // status: there are capabilities
	c.u32(0x08, id.class()<<8|uint32(id.revision))
	c.u8(0x0c, 0x10) // cache line of 64 bytes
	c.u8(0x34, atPower)
	c.u8(0x3c, 0xff) // no line: the interrupts are messages
	c.u8(0x3d, 1)    // pin A
	if f.kind.bridge() {
		f.bridgeHeader(&c)
	} else {
		f.deviceHeader(&c, id)
	}
	f.power(&c)
	f.msi(&c)
	f.express(&c)
	f.vgpu(&c)
	f.errors(&c)
	return string(c[:])
}

func (f *function) deviceHeader(c *config, id identity) {
	for _, b := range f.bars {
		c.u32(0x10+4*b.index, uint32(b.base)|b.register())
		if b.wide {
			c.u32(0x14+4*b.index, uint32(b.base>>32))
		}
	}
	c.u16(0x2c, id.subVendor)
	c.u16(0x2e, id.subDevice)
}

func (f *function) bridgeHeader(c *config) {
	c.u16(0x04, 0x0547) // input and output too
	c.u8(0x0e, 1)
	c.u8(0x18, f.id.Bus)
	c.u8(0x19, f.secondary)
	c.u8(0x1a, f.subordinate)
	c.u16(0x1c, 0x00f0) // no input and output below it: base above limit
	c.u32(0x20, 0x0000fff0)
	c.u32(0x24, 0x0001fff1)
	for _, b := range f.bars {
		switch b.index {
		case windowLow:
			c.u32(0x20, uint32(b.base>>16)&0xfff0|uint32(b.end())&0xfff00000)
		case windowHigh:
			c.u32(0x24, uint32(b.base>>16)&0xfff0|uint32(b.end())&0xfff00000|0x10001)
			c.u32(0x28, uint32(b.base>>32))
			c.u32(0x2c, uint32(b.end()>>32))
		}
	}
	c.u16(0x3e, 0x0003) // bridge control: parity, SERR
}

// power is the capability of power management, version 3: D0 now, and D3hot possible.
func (f *function) power(c *config) {
	c.u16(atPower, 0x01|atMSI<<8)
	c.u16(atPower+2, 0x0003)
	c.u16(atPower+4, 0x0008) // no soft reset
}

// msi is the capability of message interrupts: one, enabled, with a wide address.
func (f *function) msi(c *config) {
	c.u16(atMSI, 0x05|atExpress<<8)
	c.u16(atMSI+2, 0x0081)
	c.u32(atMSI+4, 0xfee00000)
	c.u16(atMSI+12, uint16(0x20+f.irq%0xc0))
}

// express is the capability of PCIe, version 2.
func (f *function) express(c *config) {
	l := f.link()
	types := map[kind]uint16{gpu: 0, nvswitch: 0, hca: 0, rootPort: 4, upstream: 5, downstream: 6}
	flags := 2 | types[f.kind]<<4
	if f.kind == rootPort || f.kind == downstream {
		flags |= 0x100 // with a slot
	}
	c.u16(atExpress, 0x10)
	c.u16(atExpress+2, flags)
	device := uint32(0x8000 | 1) // 256 bytes at once, errors by role
	if !f.kind.bridge() {
		device |= 0x10000000 | 0x20 // function reset, extended tags
	}
	c.u32(atExpress+0x04, device)
	c.u16(atExpress+0x08, 0x2936) // 256 bytes at once, read requests of 512
	c.u32(atExpress+0x0c, l.maxGen|l.maxWidth<<4|0x00400000)
	c.u16(atExpress+0x10, 0x0040) // common clock
	status := uint16(l.gen) | uint16(l.width)<<4 | 0x1000
	if f.kind == rootPort || f.kind == downstream {
		status |= 0x2000 // the link is active
		c.u32(atExpress+0x0c, l.maxGen|l.maxWidth<<4|0x00700000|uint32(f.id.Device+1)<<24)
		c.u32(atExpress+0x14, uint32(f.secondary)<<19) // the slot's number
		c.u16(atExpress+0x1a, 0x0040)                  // and it is taken
	}
	c.u16(atExpress+0x12, status)
	c.u32(atExpress+0x24, 0x00000012) // completion timeouts can be chosen and turned off
	speeds := uint32(1)<<(min(l.maxGen, 7)+1) - 2
	c.u32(atExpress+0x2c, speeds)
	c.u16(atExpress+0x30, uint16(l.maxGen))
}

// vgpu is the vendor's capability that a vGPU has in its virtual machine, the last of the list. It begins with VF and has records. That
// of type 0 has the version and the branch of the host's driver, 10 bytes each. No source of a profile tells that version, so it is
// the guest's own.
func (f *function) vgpu(c *config) {
	if f.gpu == nil || f.gpu.Virtualization.Mode.Value != "vgpu" {
		return
	}
	version := f.root.driver
	branch, _, _ := strings.Cut(version, ".")
	c.u8(atExpress+1, atVGPU)
	c.u8(atVGPU, 0x09)
	c.u8(atVGPU+2, 27)
	copy(c[atVGPU+3:], "VF")
	c.u8(atVGPU+6, 22) // what the record has, after its type 0
	copy(c[atVGPU+7:atVGPU+17], version)
	copy(c[atVGPU+17:atVGPU+27], "r"+branch+"_00")
}

// errors are the extended capabilities: error reports, and on GPUs that have one the device's serial number.
func (f *function) errors(c *config) {
	next := uint32(0)
	if pdi, ok := f.pdi(); ok {
		next = atSerial
		c.u32(atSerial, 0x0003|1<<16)
		c.u32(atSerial+4, uint32(pdi))
		c.u32(atSerial+8, uint32(pdi>>32))
	}
	c.u32(atErrors, 0x0001|2<<16|next<<20)
	c.u32(atErrors+0x0c, 0x00462030) // which errors are severe, as after a reset
	c.u32(atErrors+0x14, 0x00002000)
	c.u32(atErrors+0x18, 0x000000a0)
}

func (f *function) pdi() (uint64, bool) {
	if f.gpu == nil {
		return 0, false
	}
	return f.gpu.PDI.Get()
}
