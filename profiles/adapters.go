package profiles

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Adapter is a complete InfiniBand adapter: what the profile leaves out is derived.
type Adapter struct {
	// Name is the device's name, such as mlx5_0.
	Name string
	// BusID is the PCI address.
	BusID BusID
	// NetDevice is the name of the network interface.
	NetDevice string
	// Model is what the type says.
	Model Model
	// Firmware is the firmware's version, in the form 28.41.1000.
	Firmware string
	// HWRev is the hardware's revision.
	HWRev uint32
	// BoardID is the PSID.
	BoardID string
	// Description is the node description, of at most 64 bytes.
	Description string
	// Ethernet says that the link layer is Ethernet (RoCE).
	Ethernet bool
	// Rate is a port's rate.
	Rate Rate
	// Ports is the number of ports.
	Ports int
	// State and PhysState are what the profile says about the state of the ports; empty if it leaves that to the fabric.
	State, PhysState string
	// NodeGUID is the adapter's GUID, and SysImageGUID that of its card; 0 if the profile leaves them to the fabric.
	NodeGUID, SysImageGUID GUID
	// GPU is the index of the GPU next to which the adapter is; -1 if there is none.
	GPU int
	// Switch is the index among PCISwitches of the switch that the adapter is below; -1 if it is below none.
	Switch int
}

// Model is a kind of adapter.
type Model struct {
	// Type is MT and the PCI device id in decimal.
	Type HCAType
	// Device and Subsystem are the PCI ids; the vendor is 15b3.
	Device, Subsystem uint16
	// Generation is that of the PCIe link.
	Generation uint32
	// Rate is the highest rate of a port, in Gbit/s.
	Rate uint32

	firmware, board string
}

// models are the known kinds. Firmware and PSIDs are those of machines seen in public reports; the PSIDs of ConnectX-6,
// ConnectX-6 Dx and ConnectX-8 are made up.
var models = []Model{
	{"MT4119", 0x1017, 0x0008, 3, 100, "16.32.1010", "MT_0000000425"},
	{"MT4121", 0x1019, 0x0008, 4, 100, "16.32.1010", "MT_0000000425"},
	{"MT4123", 0x101b, 0x0007, 4, 200, "20.36.1010", "MT_0000000000"},
	{"MT4125", 0x101d, 0x0016, 4, 100, "22.31.1014", "MT_0000000000"},
	{"MT4129", 0x1021, 0x0041, 5, 400, "28.41.1000", "MT_0000000838"},
	{"MT4131", 0x1023, 0x0041, 6, 800, "40.46.4050", "MT_0000000000"},
	{"MT41692", 0xa2dc, 0x0041, 5, 400, "32.43.1014", "MT_0000000884"},
}

func modelOf(t HCAType) Model {
	for _, m := range models {
		if m.Type == t {
			return m
		}
	}
	return Model{t, t.Device(), 0x0041, 4, 100, "1.0.0", "MT_0000000000"}
}

// Rate is the rate of a port: lanes of one speed each.
type Rate struct {
	// Gbps is the rate in Gbit/s.
	Gbps uint32
	// Lanes is the number of lanes: 1, 2 or 4.
	Lanes uint32
	// Speed is the word for a lane's speed, such as NDR.
	Speed string
}

// laneSpeeds are the speeds of a lane, in Gbit/s. A lane of SDR has 2.5; that of FDR counts as 14.
var laneSpeeds = []struct {
	gbps float64
	word string
}{{2.5, "SDR"}, {5, "DDR"}, {10, "QDR"}, {14, "FDR"}, {25, "EDR"}, {50, "HDR"}, {100, "NDR"}, {200, "XDR"}}

// rateOf splits a rate among lanes; false if no lane has such a speed.
func rateOf(gbps, lanes uint32) (Rate, bool) {
	for _, s := range laneSpeeds {
		if float64(gbps) == s.gbps*float64(lanes) && lanes != 3 {
			return Rate{gbps, lanes, s.word}, true
		}
	}
	return Rate{}, false
}

// GUID is an identifier of 64 bits.
type GUID uint64

// UnmarshalText accepts sixteen hexadecimal digits, with 0x in front or with colons between groups of four.
func (g *GUID) UnmarshalText(text []byte) error {
	plain := strings.TrimPrefix(strings.ReplaceAll(string(text), ":", ""), "0x")
	if !digits(plain, 16) || strings.Trim(plain, "0") == "" {
		return fmt.Errorf("bad GUID %s: want sixteen hexadecimal digits such as 946d:ae03:00b7:c9d0", quote(text))
	}
	n, err := strconv.ParseUint(plain, 16, 64)
	*g = GUID(n)
	return err
}

// String writes the GUID as sysfs does.
func (g GUID) String() string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", uint16(g>>48), uint16(g>>32), uint16(g>>16), uint16(g))
}

// GUIDPrefix are the upper digits of GUIDs.
type GUIDPrefix string

// UnmarshalText accepts up to twelve hexadecimal digits, with colons anywhere.
func (p *GUIDPrefix) UnmarshalText(text []byte) error {
	plain := strings.TrimPrefix(strings.ReplaceAll(string(text), ":", ""), "0x")
	if !digits(plain, 2, 4, 6, 8, 10, 12) {
		return fmt.Errorf("bad prefix %s: want two to twelve hexadecimal digits such as 946d:ae03", quote(text))
	}
	*p = GUIDPrefix(strings.ToLower(plain))
	return nil
}

// HCAType is MT and a PCI device id in decimal.
type HCAType string

// UnmarshalText accepts such a type.
func (t *HCAType) UnmarshalText(text []byte) error {
	device, ok := strings.CutPrefix(string(text), "MT")
	if _, err := strconv.ParseUint(device, 10, 16); !ok || err != nil || len(device) < 4 {
		return fmt.Errorf("bad type %s: want MT and the PCI device id in decimal, such as MT4129", quote(text))
	}
	*t = HCAType(text)
	return nil
}

// Device is the PCI device id.
func (t HCAType) Device() uint16 {
	n, _ := strconv.ParseUint(strings.TrimPrefix(string(t), "MT"), 10, 16)
	return uint16(n)
}

// HWRev is a revision in hexadecimal.
type HWRev uint32

// UnmarshalText accepts hexadecimal digits, with 0x or without.
func (r *HWRev) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(strings.TrimPrefix(string(text), "0x"), 16, 32)
	if err != nil {
		return fmt.Errorf("bad revision %s: want hexadecimal digits", quote(text))
	}
	*r = HWRev(n)
	return nil
}

// listed are the adapters as the profile has them, with a name and a PCI address each.
func (b *Board) listed() []HCA {
	ib := &b.InfiniBand
	list := slices.Clone(ib.HCAs)
	if enabled, given := ib.Enabled.Get(); given && !enabled {
		return nil
	} else if len(list) == 0 {
		count := ib.HCACount.Or(ib.HCAsPerGPU.Or(uint32(bit(enabled))) * uint32(len(b.Devices)))
		list = make([]HCA, count)
		for i := range list {
			list[i].GPU = Some(uint32(i * len(b.Devices) / len(list)))
		}
	}
	b.place(list)
	names := map[string]bool{}
	for _, h := range list {
		names[h.Name.Value] = true
	}
	next := 0
	for i := range list {
		for h := &list[i]; !h.Name.Valid; next++ {
			if name := fmt.Sprintf("mlx5_%d", next); !names[name] {
				h.Name = Some(name)
			}
		}
	}
	return list
}

// renumbered is the section for a board with other numbers of GPUs. The adapters stay as they are.
func (b *Board) renumbered(to map[uint32]uint32) InfiniBand {
	ib := b.InfiniBand
	if ib.HCAs = b.listed(); len(ib.HCAs) == 0 {
		return b.InfiniBand
	}
	for i := range ib.HCAs {
		if gpu := &ib.HCAs[i].GPU; gpu.Valid {
			n, ok := to[gpu.Value]
			*gpu = Opt[uint32]{n, ok}
		}
	}
	return ib
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// bus is a PCI bus.
type bus struct {
	domain uint32
	number int
}

func (b BusID) bus() bus { return bus{b.Domain, int(b.Bus)} }

// buses are the buses on which the board has devices.
func (b *Board) buses(list []HCA) map[bus]bool {
	taken := map[bus]bool{}
	for i := range b.Devices {
		taken[b.Devices[i].PCI.BusID.Value.bus()] = true
	}
	for _, s := range b.NVLink.Switches {
		taken[s.BDF.Value.bus()] = true
	}
	for _, rc := range b.Topology.RootComplexes {
		for _, id := range rc.Devices {
			taken[id.bus()] = true
		}
	}
	for _, h := range list {
		taken[h.BusID.Value.bus()] = true
	}
	return taken
}

// place gives adapters without a PCI address a free bus: the next after that of their GPU, or any if they have none.
func (b *Board) place(list []HCA) {
	taken := b.buses(list)
	for i := range list {
		h := &list[i]
		if h.BusID.Valid {
			continue
		}
		at := bus{0, 0x10}
		if gpu := int(h.GPU.Or(uint32(len(b.Devices)))); gpu < len(b.Devices) {
			at = b.Devices[gpu].PCI.BusID.Value.bus()
		}
		for ; taken[at]; at.number++ {
			if at.number >= 0xfe {
				at = bus{at.domain + 1, 0x0f}
			}
		}
		h.BusID = Some(BusID{Domain: at.domain, Bus: uint8(at.number)})
		taken[at] = true
	}
}

// Adapters are the machine's InfiniBand adapters, in the profile's order. Descriptions, and GUIDs with the profile's prefix, are
// made from the name of the machine; the profile's wins over the one that is given.
func (b *Board) Adapters(node string) []Adapter {
	ib := &b.InfiniBand
	node = ib.NodeName.Or(node)
	list := b.listed()
	out := make([]Adapter, len(list))
	guid := firstGUID(string(ib.GUIDPrefix.Value), node)
	functions, used := map[BusID]int{}, map[GUID]bool{}
	for _, h := range list {
		functions[h.BusID.Value.Card()]++
		used[h.NodeGUID.Value] = true
	}
	switches := b.switches(list)
	for i, h := range list {
		p := h.HCAProperties.over(ib.HCAProperties)
		a := &out[i]
		m := modelOf(p.HCAType.Or("MT4129"))
		*a = Adapter{Name: h.Name.Value, BusID: h.BusID.Value, Model: m, Firmware: p.FWVersion.Or(m.firmware), HWRev: uint32(p.HWRev.Value), BoardID: p.BoardID.Or(m.board),
			Ethernet: p.LinkLayer.Value == "Ethernet", Ports: int(p.Ports.Or(1)), State: p.PortState.Value, PhysState: p.PhysState.Value, GPU: -1,
			Switch: slices.IndexFunc(switches, func(s PCISwitch) bool { return s.Has(h.BusID.Value) })}
		a.Rate, _ = p.rate()
		if gpu, ok := h.GPU.Get(); ok && int(gpu) < len(b.Devices) {
			a.GPU = int(gpu)
		}
		a.NodeGUID, a.SysImageGUID = h.NodeGUID.Value, h.SysImageGUID.Value
		for ib.GUIDPrefix.Valid && (a.NodeGUID == 0 || !h.NodeGUID.Valid && used[a.NodeGUID]) {
			a.NodeGUID = guid
			guid += GUID(a.Ports)
		}
		a.Description = describe(p.NodeDescTemplate.Or("{node_name} {name}"), node, a.Name, i)
		a.NetDevice = h.NetDevice.Or(a.netDevice(functions[a.BusID.Card()] > 1))
	}
	return out
}

// Card is the address of function 0 of the same device.
func (b BusID) Card() BusID { return BusID{b.Domain, b.Bus, b.Device, 0} }

// firstGUID is the first GUID of a machine: after the prefix it has digits made from the machine's name.
func firstGUID(prefix, node string) GUID {
	h := fnv.New64a()
	fmt.Fprint(h, node)
	n, _ := strconv.ParseUint(prefix, 16, 64) // digits alone are left
	bits := 64 - 4*len(prefix)
	sum := h.Sum64()
	sum ^= sum >> 32
	return GUID(n<<bits | sum&(1<<bits-1)&^0x3f | 0x10)
}

// over is these properties, and where they are absent those of all adapters.
func (p HCAProperties) over(all HCAProperties) HCAProperties {
	own := !p.HCAType.Valid || p.HCAType == all.HCAType // of another type nothing is like that of all
	p.HCAType = or(p.HCAType, all.HCAType)
	if own {
		p.FWVersion, p.BoardID, p.HWRev = or(p.FWVersion, all.FWVersion), or(p.BoardID, all.BoardID), or(p.HWRev, all.HWRev)
		if !p.RateGbps.Valid {
			p.RateGbps, p.Lanes = all.RateGbps, or(p.Lanes, all.Lanes)
		}
	}
	p.NodeDescTemplate, p.LinkLayer = or(p.NodeDescTemplate, all.NodeDescTemplate), or(p.LinkLayer, all.LinkLayer)
	p.Ports, p.PortState, p.PhysState = or(p.Ports, all.Ports), or(p.PortState, all.PortState), or(p.PhysState, all.PhysState)
	return p
}

func or[T any](own, all Opt[T]) Opt[T] {
	if own.Valid {
		return own
	}
	return all
}

// rate is the rate of the ports; by default the highest of the type.
func (p HCAProperties) rate() (Rate, bool) {
	return rateOf(p.RateGbps.Or(modelOf(p.HCAType.Or("MT4129")).Rate), p.Lanes.Or(4))
}

func describe(template, node, name string, index int) string {
	text := strings.NewReplacer("{node_name}", node, "{name}", name, "{idx}", strconv.Itoa(index)).Replace(template)
	return strings.ToValidUTF8(text[:min(len(text), 64)], "")
}

// netDevice is the name of the interface as systemd's udev gives it.
func (a *Adapter) netDevice(several bool) string {
	id := a.BusID
	name := map[bool]string{true: "en", false: "ib"}[a.Ethernet]
	if id.Domain != 0 {
		name += fmt.Sprintf("P%d", id.Domain)
	}
	name += fmt.Sprintf("p%ds%d", id.Bus, id.Device)
	if several || id.Function != 0 {
		name += fmt.Sprintf("f%d", id.Function)
	}
	if a.Ethernet {
		name += fmt.Sprintf("np%d", id.Function)
	}
	return name[:min(len(name), 15)]
}

// Names of devices and of network interfaces become names of files.
var (
	hcaName   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)
	netDevice = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*$`)
)

// checkInfiniBand refuses adapters that cannot be.
func (b *Board) checkInfiniBand(root *yaml.Node) error {
	section := find(root, "infiniband")
	if section == nil {
		section = &yaml.Node{Line: root.Line}
	}
	at := func(keys ...string) *yaml.Node {
		for n := len(keys); n > 0; n-- {
			if found := find(section, keys[:n]...); found != nil {
				return found
			}
		}
		return section
	}
	if _, ok := b.InfiniBand.HCAProperties.rate(); !ok {
		return wrong(at("rate_gbps"), "infiniband: no lane has the speed that %d lanes at %s have together: give rate_gbps and lanes that go together",
			b.InfiniBand.Lanes.Or(4), gbps(b.InfiniBand.HCAProperties))
	}
	if len(b.InfiniBand.HCAs) == 0 {
		return nil
	}
	entries := at("hcas")
	entry := func(i int, key string) *yaml.Node {
		if entries.Kind != yaml.SequenceNode || i >= len(entries.Content) {
			return entries
		}
		return cmp.Or(find(resolve(entries.Content[i]), key), entries.Content[i])
	}
	taken := map[BusID]string{}
	for i, s := range b.NVLink.Switches {
		taken[s.BDF.Value] = fmt.Sprintf("nvlink.switches[%d]", i)
	}
	for i := range b.Devices {
		taken[b.Devices[i].PCI.BusID.Value] = fmt.Sprintf("devices[%d]", i)
	}
	names, nets, guids := map[string]int{}, map[string]int{}, map[GUID]int{}
	for i := range b.InfiniBand.HCAs {
		h := &b.InfiniBand.HCAs[i]
		p := h.HCAProperties.over(b.InfiniBand.HCAProperties)
		if _, ok := p.rate(); !ok {
			return wrong(entry(i, "rate_gbps"), "infiniband.hcas[%d]: no lane has the speed that %d lanes at %s have together", i, p.Lanes.Or(4), gbps(p))
		}
		if id, ok := h.BusID.Get(); ok {
			if what := taken[id]; what != "" {
				return wrong(entry(i, "bus_id"), "infiniband.hcas[%d].bus_id: %s is that of %s", i, id, what)
			}
			taken[id] = fmt.Sprintf("infiniband.hcas[%d]", i)
		}
		if gpu, ok := h.GPU.Get(); ok && entries.Kind == yaml.SequenceNode && int(gpu) >= len(b.Devices) {
			return wrong(entry(i, "gpu"), "infiniband.hcas[%d].gpu: the board has %d devices", i, len(b.Devices))
		}
		for _, text := range []struct {
			key  string
			opt  Opt[string]
			form *regexp.Regexp
			seen map[string]int
		}{{"name", h.Name, hcaName, names}, {"net_device", h.NetDevice, netDevice, nets}} {
			value, ok := text.opt.Get()
			if !ok {
				continue
			}
			if !text.form.MatchString(value) {
				return wrong(entry(i, text.key), "infiniband.hcas[%d].%s: %s: want letters, digits, _ and -, with a letter first", i, text.key, quote(value))
			}
			if first, twice := text.seen[value]; twice {
				return wrong(entry(i, text.key), "infiniband.hcas[%d].%s: %s is that of hcas[%d]", i, text.key, quote(value), first)
			}
			text.seen[value] = i
		}
		if guid, ok := h.NodeGUID.Get(); ok {
			for port := range GUID(p.Ports.Or(1)) {
				if first, twice := guids[guid+port]; twice {
					return wrong(entry(i, "node_guid"), "infiniband.hcas[%d].node_guid: %s is that of hcas[%d], whose ports have GUIDs of their own", i, guid+port, first)
				}
				guids[guid+port] = i
			}
		}
	}
	return nil
}

func gbps(p HCAProperties) string {
	return fmt.Sprintf("%d Gbit/s", p.RateGbps.Or(modelOf(p.HCAType.Or("MT4129")).Rate))
}
