package profiles

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// file is the content of a profile file.
type file struct {
	// Version is the version of the file's format.
	Version Opt[string] `yaml:"version"`
	// Extends names the shipped board that this file changes.
	Extends Opt[string] `yaml:"extends"`
	// Count is the number of devices; those without an entry in devices get an identity of their own.
	Count Opt[uint32] `yaml:"count" range:"1..10000"`
	// Only names the devices that remain, by index or UUID. They are counted anew in this order and keep what identifies them.
	Only []DeviceName `yaml:"only"`
	// System is what NVML says about driver and library.
	System System `yaml:"system"`
	// DeviceDefaults hold for every device that does not say otherwise.
	DeviceDefaults raw[Properties] `yaml:"device_defaults"`
	// Devices are the devices, or those that differ.
	Devices raw[[]Device] `yaml:"devices"`
	// NVLink is the NVLink fabric inside the machine.
	NVLink NVLink `yaml:"nvlink"`
	// Topology is the PCIe and NUMA layout of the machine.
	Topology Topology `yaml:"topology" also:"pcie_topology"`
	// MIG holds the tables of MIG profiles that the board offers.
	MIG MIGTables `yaml:"mig"`
	// InfiniBand is the machine's InfiniBand adapters.
	InfiniBand InfiniBand `yaml:"infiniband"`
	// Units are the S-class units that carry GPUs of this machine.
	Units []Unit `yaml:"units"`
	// DynamicMetricsDefaults is for tools that fill in dynamic_metrics before anybody loads the file; it changes no board.
	DynamicMetricsDefaults DynamicMetrics `yaml:"dynamic_metrics_defaults"`
}

// maxDevices is the bound that count and num_devices have too: a short list of entries must not fill the memory.
const maxDevices = 10_000

// builder applies one document to a board: first what it says of all devices, then its entries for single devices.
type builder struct {
	decoder
	file
	base     []Device
	template Properties // of devices that the base board does not have
	system   System     // of the base board
	entries  map[uint32]*yaml.Node
	boards   func(string) (*Board, error) // that entries may extend
	line     int                          // of devices, for messages about a device without an entry
}

// lay builds the board of one document. base is nil for a document that does not extend a board. lay does not change
// base; it returns a changed copy.
func (b *builder) lay(root *yaml.Node, base *Board) (*Board, error) {
	b.entries, b.line = map[uint32]*yaml.Node{}, root.Line
	if base != nil {
		b.base, b.system = base.Devices, base.System
		b.Version, b.System, b.NVLink, b.Topology = base.Version, base.System, base.NVLink, base.Topology
		b.MIG, b.InfiniBand, b.Units = base.MIG, base.InfiniBand, base.Units
		b.System.NumDevices = Opt[uint32]{} // the base keeps its own number of devices
	}
	if err := b.over(root, &b.file, top); err != nil {
		return nil, err
	}
	count, err := b.list(root)
	if err != nil {
		return nil, err
	}
	devices, err := b.devices(count)
	if err != nil {
		return nil, err
	}
	b.versions()
	board := &Board{
		Version: b.Version, System: b.System, Devices: devices, NVLink: b.NVLink, Topology: b.Topology,
		MIG: b.MIG, InfiniBand: b.InfiniBand, Units: b.Units,
	}
	for i := range board.Units {
		for _, index := range board.Units[i].Devices {
			if int(index) >= len(devices) {
				return nil, wrong(find(root, "units"), "units: unit %d carries device %d, and the board has %d devices", i, index, len(devices))
			}
		}
	}
	if err := board.checkInfiniBand(root); err != nil {
		return nil, err
	}
	if only := find(root, "only"); only != nil {
		return board, b.keep(board, only)
	}
	return board, nil
}

// list finds the entry of each device and returns how many devices there are.
func (b *builder) list(root *yaml.Node) (uint32, error) {
	list := b.Devices.node
	if list != nil && !absent(list) && list.Kind != yaml.SequenceNode {
		return 0, wrong(list, "devices: want a list, got %s", kind(list))
	}
	var entries []*yaml.Node
	if list != nil {
		entries, b.line = list.Content, list.Line
	}
	count := max(uint32(len(entries)), uint32(len(b.base)))
	if n, ok := b.System.NumDevices.Get(); ok {
		count = n
	}
	if n, ok := b.Count.Get(); ok {
		count = n
	}
	if count == 0 {
		return 0, wrong(root, "there are no devices: give count, devices or extends")
	}
	if count > maxDevices {
		return 0, wrong(list, "devices: %d entries are more than the %d that a board can have", count, maxDevices)
	}
	for i, entry := range entries {
		if absent(resolve(entry)) {
			return 0, wrong(entry, "devices[%d]: an entry of a list cannot be absent", i)
		}
		index := uint32(i)
		if n := find(entry, "index"); n != nil {
			if err := b.over(n, &index, fmt.Sprintf("devices[%d].index", i)); err != nil {
				return 0, err
			}
		}
		if first, ok := b.entries[index]; ok {
			return 0, wrong(entry, "devices[%d]: index %d is that of the entry in line %d", i, index, first.Line)
		}
		if index >= count && (b.Count.Valid || !b.System.NumDevices.Valid) {
			return 0, wrong(entry, "devices[%d]: index %d is outside 0..%d: number the entries from 0, or give a higher count", i, index, count-1)
		}
		b.entries[index] = resolve(entry)
	}
	return count, nil
}

// devices makes complete devices.
func (b *builder) devices(count uint32) ([]Device, error) {
	template := Device{Properties: b.template}
	template.PCI.BusID, template.VGPU.Instances = Opt[BusID]{}, nil
	if err := b.defaults(&template); err != nil {
		return nil, err
	}
	b.template = template.Properties
	devices, numbered := make([]Device, count), make([]bool, count)
	used := identities{uuids: map[UUID]bool{}, minors: map[uint32]bool{}}
	for i := range b.base {
		used.uuids[b.base[i].UUID] = true
		used.minors[b.base[i].MinorNumber.Value] = true
	}
	for i := range devices {
		d := &devices[i]
		*d = template
		if i < len(b.base) {
			*d = b.base[i]
			if err := b.defaults(d); err != nil {
				return nil, err
			}
		}
		entry := b.entries[uint32(i)]
		var like *Device // the complete device that this one starts from
		if len(b.base) > 0 {
			like = &b.base[0]
		}
		if i < len(b.base) {
			like = &b.base[i]
		}
		if name := find(entry, "extends"); name != nil && !absent(resolve(name)) {
			var err error
			if like, err = b.like(name, d, i); err != nil {
				return nil, err
			}
		}
		d.Index = uint32(i)
		if i >= len(b.base) || find(b.DeviceDefaults.node, "serial") != nil {
			d.Serial.Value = plus(d.Serial.Value, i)
		}
		if entry != nil {
			if err := b.over(entry, d, fmt.Sprintf("devices[%d]", i)); err != nil {
				return nil, err
			}
		}
		d.Extends = Opt[string]{}
		if n := b.given(entry, "pci", "bus_id"); n != nil && absent(resolve(n)) {
			return nil, wrong(n, "devices[%d].pci.bus_id: every GPU has an address: leave it out to have one generated", i)
		}
		kept := i < len(b.base) && like == &b.base[i] // a number that it does not have was taken away
		used.complete(d, len(b.base) > 0 && b.base[0].PDI.Valid, !kept && !b.lacks(entry, "minor_number"))
		if like == nil {
			b.follow(d, entry)
		}
		numbered[i] = b.numbersBoard(entry, like)
	}
	b.assignBusIDs(devices)
	for i := range devices {
		if numbered[i] {
			devices[i].BoardID = Some(devices[i].PCI.BusID.Value.board())
		}
	}
	return devices, b.check(devices)
}

// given is the node with what the document says about a key of a device, in its entry or for all devices; nil if it says nothing.
func (b *builder) given(entry *yaml.Node, keys ...string) *yaml.Node {
	if n := find(entry, keys...); n != nil {
		return n
	}
	return find(b.DeviceDefaults.node, keys...)
}

// lacks reports whether the document says that a device does not have a value.
func (b *builder) lacks(entry *yaml.Node, keys ...string) bool {
	n := b.given(entry, keys...)
	return n != nil && absent(resolve(n))
}

// numbersBoard reports whether a device's board number follows from its address: unless the document says what it is, or what it
// says is like a device whose number does not.
func (b *builder) numbersBoard(entry *yaml.Node, like *Device) bool {
	return b.given(entry, "board_id") == nil && (like == nil || like.BoardID == Some(like.PCI.BusID.Value.board()))
}

// board is NVML's number of the board at an address, as on every captured board.
func (id BusID) board() uint32 { return id.Domain<<16 | uint32(id.Bus)<<8 | uint32(id.Device) }

// follow fills in what follows from other values, if the document does not say that the device lacks it.
func (b *builder) follow(d *Device, entry *yaml.Node) {
	if !d.PCIe.MaxDeviceLinkGen.Valid && !b.lacks(entry, "pcie", "max_device_link_gen") {
		d.PCIe.MaxDeviceLinkGen = d.PCIe.MaxLinkGen
	}
	counts := slices.Contains([]string{"ampere", "ada", "hopper", "blackwell"}, d.Architecture.Value) && d.Virtualization.Mode.Value != "vgpu"
	if counts && d.ECC.ModeCurrent.Valid && d.ECC.SRAM == (ECCSRAM{}) && !b.lacks(entry, "ecc", "sram") {
		none := SRAMCounts{Some[uint64](0), Some[uint64](0), Some[uint64](0)} // GPUs count these from Ampere on
		d.ECC.SRAM = ECCSRAM{Volatile: none, Aggregate: none, ThresholdExceeded: Some(false)}
		d.ECC.SRAM.UncorrectableSources = SRAMSources{Some[uint64](0), Some[uint64](0), Some[uint64](0), Some[uint64](0), Some[uint64](0)}
	}
	if !b.lacks(entry, "thermal", "tlimit_c") {
		d.marginsFollow()
	}
}

// marginsFollow turns absolute thresholds into T.Limit readings on data-centre boards since Ada, which have these alone. T.Limit is
// the distance to the temperature at which software slows the clocks.
func (d *Device) marginsFollow() {
	t := &d.Thermal
	switch d.Architecture.Value {
	case "ada", "hopper", "blackwell":
	default:
		return
	}
	if strings.HasPrefix(d.Brand.Value, "geforce") || strings.HasPrefix(d.Brand.Value, "titan") || strings.HasPrefix(d.Brand.Value, "quadro") {
		return
	}
	most, ok := t.MaxOperatingC.Get()
	if given := t.TLimitC.Valid || t.TLimitShutdownC.Valid || t.TLimitSlowdownC.Valid || t.TLimitMaxOperatingC.Valid; !ok || given {
		return
	}
	below := func(o Opt[int32]) Opt[int32] { return Opt[int32]{most - o.Value, o.Valid} }
	t.TLimitC = below(t.TemperatureGPUC)
	t.TLimitShutdownC, t.TLimitSlowdownC = below(t.ShutdownThresholdC), below(t.SlowdownThresholdC)
	t.TLimitMaxOperatingC = Some[int32](0)
	if t.MemoryMaxOperatingC.Valid && !t.TLimitMemoryMaxOperatingC.Valid {
		t.TLimitMemoryMaxOperatingC = Some[int32](0)
	}
	t.ShutdownThresholdC, t.SlowdownThresholdC, t.MaxOperatingC, t.MemoryMaxOperatingC = Opt[int32]{}, Opt[int32]{}, Opt[int32]{}, Opt[int32]{}
}

// like makes a device like the first one of the shipped board that its entry extends, which it returns.
func (b *builder) like(n *yaml.Node, d *Device, i int) (*Device, error) {
	path := fmt.Sprintf("devices[%d].extends", i)
	var name string
	if err := b.over(n, &name, path); err != nil {
		return nil, err
	}
	board, err := b.boards(name)
	if err != nil {
		return nil, wrong(n, "%s: %s", path, err)
	}
	*d = board.Devices[0]
	d.UUID, d.MinorNumber, d.PDI, d.PCI.BusID = "", Opt[uint32]{}, Opt[uint64]{}, Opt[BusID]{}
	return &board.Devices[0], b.defaults(d)
}

// defaults applies device_defaults to a device.
func (b *builder) defaults(d *Device) error {
	if n := b.DeviceDefaults.node; n != nil && !absent(n) {
		return b.over(n, &d.Properties, "device_defaults")
	}
	return nil
}

// identities are those of the base board's devices. After "only" they may differ from those of the devices' new
// indices.
type identities struct {
	uuids  map[UUID]bool
	minors map[uint32]bool
}

// complete fills in what the document leaves out. It never generates an identity that a device of the base board has.
func (used identities) complete(d *Device, pdi, minors bool) {
	for minor := d.Index; minors && !d.MinorNumber.Valid; minor++ {
		if !used.minors[minor] {
			d.MinorNumber = Some(minor)
			used.minors[minor] = true
		}
	}
	if pdi && !d.PDI.Valid {
		d.PDI = Some(binary.BigEndian.Uint64(d.hash("pdi")))
	}
	for purpose := "uuid"; d.UUID == ""; purpose += "+" {
		sum := d.hash(purpose)
		sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // RFC 9562 version 8: made up by its own rule
		uuid := UUID(fmt.Sprintf("GPU-%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]))
		if !used.uuids[uuid] {
			d.UUID = uuid
		}
	}
	if state := d.Fabric.State; !state.Valid && d.Fabric != (Fabric{}) {
		d.Fabric.State = Some("completed")
	}
}

// hash is the source of a device's generated identifiers. It is the same in every process and differs between devices.
// It is no cryptographic hash, since that would make the core a third larger. The index comes first, so that it affects
// every byte.
func (d *Device) hash(purpose string) []byte {
	h := fnv.New128a()
	fmt.Fprintf(h, "%d %s %s", d.Index, purpose, d.Name.Value)
	return h.Sum(nil)
}

// assignBusIDs gives each device without a bus id the first free one.
func (b *builder) assignBusIDs(devices []Device) {
	taken := map[BusID]bool{}
	for i := range devices {
		taken[devices[i].PCI.BusID.Value] = true
	}
	next := BusID{}
	for i := range devices {
		id := &devices[i].PCI.BusID
		for !id.Valid {
			if next.Bus++; next.Bus == 0xff {
				next.Domain, next.Bus = next.Domain+1, 1
			}
			if !taken[next] {
				*id = Some(next)
			}
		}
	}
}

// check refuses values that two devices may not share, and combinations that no device can have.
func (b *builder) check(devices []Device) error {
	uuids, busIDs, minors := map[UUID]uint32{}, map[BusID]uint32{}, map[uint32]uint32{}
	vgpus, vgpuUUIDs, types := map[uint32]uint32{}, map[PlainUUID]uint32{}, vgpuTypes{}
	for i := range devices {
		d := &devices[i]
		if err := once(b, uuids, d.UUID, d.Index, "uuid"); err != nil {
			return err
		}
		if err := once(b, busIDs, d.PCI.BusID.Value, d.Index, "pci", "bus_id"); err != nil {
			return err
		}
		if d.MinorNumber.Valid {
			if err := once(b, minors, d.MinorNumber.Value, d.Index, "minor_number"); err != nil {
				return err
			}
		}
		for _, v := range d.VGPU.Instances {
			if err := once(b, vgpus, v.ID, d.Index, "vgpu", "instances"); err != nil {
				return err
			}
			if err := once(b, vgpuUUIDs, v.UUID, d.Index, "vgpu", "instances"); err != nil {
				return err
			}
		}
		if what := types.differ(d); what != "" {
			return wrong(b.where(d.Index, "vgpu", "types"), "devices[%d].vgpu.types: %s", d.Index, what)
		}
		if key, what := d.impossible(); what != "" {
			return wrong(b.where(d.Index, key), "devices[%d].%s: %s", d.Index, key, what)
		}
		if err := b.checkInstances(d); err != nil {
			return err
		}
	}
	return nil
}

// CheckInstances checks that a GPU can be cut as its profile says. Its error says what is wrong with the instance of that
// number. engine/change, which knows how the driver places instances, sets it; without that package nothing is checked.
var CheckInstances = func(*MIGTables, *Device) (at int, err error) { return 0, nil }

// checkInstances refuses MIG instances that the GPU cannot have.
func (b *builder) checkInstances(d *Device) error {
	if len(d.MIG.Instances) == 0 {
		return nil
	}
	list := b.where(d.Index, "mig", "instances")
	if !d.MIG.ModeCurrent.Value {
		return wrong(list, "devices[%d].mig.instances: the GPU is not in MIG mode: give mode_current: enabled", d.Index)
	}
	at, err := CheckInstances(&b.MIG, d)
	if err == nil {
		return nil
	}
	if list.Kind == yaml.SequenceNode && at < len(list.Content) {
		list = list.Content[at]
	}
	return wrong(list, "devices[%d].mig.instances[%d]: %s", d.Index, at, err)
}

// impossible names a key whose values cannot be true together, and says why; nothing if there is none.
func (d *Device) impossible() (key, what string) {
	for i, a := range d.Answers {
		if (a.Function == "") != a.Field.Valid {
			return "answers", fmt.Sprintf("entry %d wants either a function or a field", i)
		}
	}
	m := d.Memory
	if total, ok := m.TotalBytes.Get(); ok && (m.UsedBytes.Value > total || m.ReservedBytes.Value > total-m.UsedBytes.Value) {
		return "memory", "used and reserved are more than the total"
	}
	return "vgpu", d.VGPU.impossible()
}

// once refuses a value that an earlier device has.
func once[T comparable](b *builder, seen map[T]uint32, value T, index uint32, keys ...string) error {
	if first, ok := seen[value]; ok {
		return wrong(b.where(index, keys...), "devices[%d].%s: %v is that of devices[%d]", index, strings.Join(keys, "."), value, first)
	}
	seen[value] = index
	return nil
}

// where finds the node that gives a device's value: in its entry, in the defaults, or else the list of devices.
func (b *builder) where(index uint32, keys ...string) *yaml.Node {
	for _, n := range []*yaml.Node{find(b.entries[index], keys...), find(b.DeviceDefaults.node, keys...), b.entries[index]} {
		if n != nil {
			return n
		}
	}
	return &yaml.Node{Line: b.line}
}

// versions derives the versions that the file leaves out: CUDA's numbers from CUDA's text, and NVML's version from the
// driver's if the document changed the driver.
func (b *builder) versions() {
	major := b.System.CUDAVersionMajor
	b.System.cuda(&b.system)
	if b.System.CUDAVersionMajor.Valid {
		major = b.System.CUDAVersionMajor
	}
	if b.System.DriverVersion != b.system.DriverVersion && b.System.NVMLVersion == b.system.NVMLVersion {
		b.System.NVMLVersion = Opt[string]{}
		if major.Valid && b.System.DriverVersion.Valid {
			b.System.NVMLVersion = Some(fmt.Sprintf("%d.%s", major.Value, b.System.DriverVersion.Value))
		}
	}
}

// cuda derives the numbers of CUDA's version from its text, unless somebody gave them. Without a version there are no numbers.
func (s *System) cuda(base *System) {
	major, minor, _ := strings.Cut(s.CUDAVersion.Value, ".")
	for _, part := range []struct {
		text   string
		number *Opt[uint32]
		base   Opt[uint32]
	}{{major, &s.CUDAVersionMajor, base.CUDAVersionMajor}, {minor, &s.CUDAVersionMinor, base.CUDAVersionMinor}} {
		inherited := s.CUDAVersion != base.CUDAVersion && *part.number == part.base
		n, err := strconv.ParseUint(part.text, 10, 16)
		switch {
		case err == nil && (inherited || !part.number.Valid):
			*part.number = Some(uint32(n))
		case inherited && !s.CUDAVersion.Valid:
			*part.number = Opt[uint32]{}
		}
	}
}

// plus adds n to the number at the end of a serial, so that devices with the same defaults differ.
func plus(serial string, n int) string {
	digits := serial[len(strings.TrimRight(serial, "0123456789")):]
	number, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n == 0 {
		return serial
	}
	return fmt.Sprintf("%s%0*d", strings.TrimSuffix(serial, digits), len(digits), number+uint64(n))
}
