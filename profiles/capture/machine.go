package capture

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/draft"
)

// ErrNoGPU says that a library has no GPU to capture.
var ErrNoGPU = errors.New("the library has no GPU")

func unhex(s string) ([]byte, error) { return hex.DecodeString(s) }

func (m *maker) gpu(i int) *gpu { return &gpu{maker: m, index: i, name: fmt.Sprintf("GPU %d", i)} }

// link is one end of an NVLink.
type link struct {
	active bool
	remote uint64 // the kind of device
	bus    string // of the far end
}

// nvlink makes the links inside the machine.
func (m *maker) nvlink(root *yaml.Node) {
	all := make([][]link, m.walk.GPUs)
	busOf := map[string]int{}
	most := 0
	for i := range all {
		g := m.gpu(i)
		if bus, ok := g.find("nvmlDeviceGetPciInfo_v3", "").text("pci.busId"); ok {
			busOf[bus] = i
		}
		for n := range uint64(abi.NVLINK_MAX_LINKS) {
			args := fmt.Sprintf("link %d", n)
			state, ok := g.find("nvmlDeviceGetNvLinkState", args).number("isActive")
			if !ok {
				break
			}
			l := link{active: state != 0}
			l.remote, _ = g.find("nvmlDeviceGetNvLinkRemoteDeviceType", args).number("pNvLinkDeviceType")
			for _, f := range []string{"nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo"} {
				if l.bus == "" {
					l.bus, _ = g.find(f, args).text("pci.busId")
				}
			}
			all[i] = append(all[i], l)
		}
		most = max(most, len(all[i]))
	}
	if most == 0 {
		return
	}
	first := m.gpu(0)
	version, _ := first.find("nvmlDeviceGetNvLinkVersion", "link 0").number("version")
	if v, ok := linkVersions[abi.NvlinkVersion_t(version)]; ok {
		m.put(root, "nvlink.version", "nvmlDeviceGetNvLinkVersion", uintNode(uint64(v)))
	}
	m.put(root, "nvlink.links_per_gpu", "nvmlDeviceGetNvLinkState", uintNode(uint64(most)))
	if a := first.find(field(abi.FI_DEV_NVLINK_SPEED_MBPS_COMMON), "0"); a.OK() {
		if speed, _ := a.number("value"); speed > 0 {
			m.put(root, "nvlink.bandwidth_per_link_mbps", a.Function+ofField(a), uintNode(speed))
		}
	}
	up := false
	for _, links := range all {
		up = up || slices.ContainsFunc(links, func(l link) bool { return l.active })
	}
	m.put(root, "nvlink.defaults.state", "nvmlDeviceGetNvLinkState", draft.Text(map[bool]string{true: "active", false: "inactive"}[up]))
	switches, regular := m.switches(all)
	var nodes []*yaml.Node
	for _, bus := range switches {
		nodes = append(nodes, draft.Pairs("bdf", draft.Text(bus)))
	}
	if nodes != nil {
		m.put(root, "nvlink.switches", "nvmlDeviceGetNvLinkRemotePciInfo_v2", draft.Lines(nodes...))
	}
	var devices []*yaml.Node
	for i, links := range all {
		var list []*yaml.Node
		for n, l := range links {
			entry := []any{"link", uintNode(uint64(n))}
			if l.active != up {
				entry = append(entry, "state", draft.Text(map[bool]string{true: "active", false: "inactive"}[l.active]))
			}
			peer, isPeer := busOf[l.bus]
			switch {
			case !l.active || regular:
			case isPeer:
				entry = append(entry, "remote_index", uintNode(uint64(peer)))
			default:
				if kind, ok := map[uint64]string{uint64(abi.NVLINK_DEVICE_TYPE_GPU): "gpu", uint64(abi.NVLINK_DEVICE_TYPE_SWITCH): "switch",
					uint64(abi.NVLINK_DEVICE_TYPE_IBMNPU): "cpu"}[l.remote]; ok {
					entry = append(entry, "remote_device_type", draft.Text(kind))
				}
				if l.bus != "" {
					entry = append(entry, "remote_pci_bus_id", draft.Text(l.bus))
				}
			}
			if len(entry) > 2 {
				list = append(list, draft.Pairs(entry...))
			}
		}
		if list != nil {
			entry := draft.Map()
			draft.Put(entry, "index", uintNode(uint64(i)))
			draft.Put(entry, "links", draft.Lines(list...))
			devices = append(devices, entry)
		}
	}
	if devices != nil {
		m.put(root, "nvlink.device_links", "nvmlDeviceGetNvLinkRemotePciInfo_v2", draft.Lines(devices...))
	}
	m.linkDetails(root, first)
}

// switches are the switches that links end at, in an order by which link n of each GPU ends at switch n, counted around, and whether all
// links that are up do so.
func (m *maker) switches(all [][]link) (buses []string, regular bool) {
	var by []string // the switch of each link
	for _, links := range all {
		for n, l := range links {
			for len(by) <= n {
				by = append(by, "")
			}
			switch {
			case !l.active:
			case l.remote != uint64(abi.NVLINK_DEVICE_TYPE_SWITCH) || l.bus == "", by[n] != "" && by[n] != l.bus:
				return m.everySwitch(all), false
			default:
				by[n] = l.bus
			}
		}
	}
	for count := 1; count <= len(by); count++ {
		fits := true
		around := make([]string, count)
		for n, bus := range by {
			at := n % count
			if bus != "" && around[at] != "" && around[at] != bus {
				fits = false
				break
			}
			if bus != "" {
				around[at] = bus
			}
		}
		if fits && !slices.Contains(around, "") {
			return around, true
		}
	}
	return m.everySwitch(all), false
}

func (m *maker) everySwitch(all [][]link) (buses []string) {
	for _, links := range all {
		for _, l := range links {
			if l.active && l.remote == uint64(abi.NVLINK_DEVICE_TYPE_SWITCH) && l.bus != "" && !slices.Contains(buses, l.bus) {
				buses = append(buses, l.bus)
			}
		}
	}
	slices.Sort(buses)
	return buses
}

// linkDetails makes what links of the fifth generation tell about themselves.
func (m *maker) linkDetails(root *yaml.Node, g *gpu) {
	a := g.find("nvmlDeviceGetNvLinkInfo", "")
	if !a.OK() {
		return
	}
	if n, ok := a.number("info.isNvleEnabled"); ok {
		m.put(root, "nvlink.encrypted", a.Function, draft.Num(strconv.FormatBool(n != 0)))
	}
	count, _ := a.number("info.firmwareInfo.numValidEntries")
	var list []*yaml.Node
	for i := range count {
		at := func(field string) uint64 {
			n, _ := a.number(fmt.Sprintf("info.firmwareInfo.firmwareVersion[%d].%s", i, field))
			return n
		}
		kind, ok := map[uint64]string{abi.NVLINK_FIRMWARE_UCODE_TYPE_MSE: "mse", abi.NVLINK_FIRMWARE_UCODE_TYPE_NETIR: "netir",
			abi.NVLINK_FIRMWARE_UCODE_TYPE_NETIR_UPHY: "netir_uphy", abi.NVLINK_FIRMWARE_UCODE_TYPE_NETIR_CLN: "netir_cln",
			abi.NVLINK_FIRMWARE_UCODE_TYPE_NETIR_DLN: "netir_dln"}[at("ucodeType")]
		if ok {
			list = append(list, draft.Pairs("type", draft.Text(kind), "version", draft.Text(fmt.Sprintf("%d.%d.%d", at("major"), at("minor"), at("subMinor")))))
		}
	}
	if list != nil {
		m.put(root, "nvlink.firmware", a.Function, draft.Lines(list...))
	}
}

// topology makes the layout of the PCI bus: GPUs that are below one host bridge, or one switch, stand together.
func (m *maker) topology(root *yaml.Node) {
	n := m.walk.GPUs
	level := func(a, b int) uint64 {
		l, ok := m.gpu(a).find("nvmlDeviceGetTopologyCommonAncestor", fmt.Sprintf("GPU %d", b)).number("pathInfo")
		if !ok {
			return uint64(abi.TOPOLOGY_SYSTEM)
		}
		return l
	}
	group := func(most abi.GpuTopologyLevel_t) [][]int {
		var groups [][]int
		for i := range n {
			at := slices.IndexFunc(groups, func(g []int) bool { return level(g[0], i) <= uint64(most) })
			if at < 0 {
				groups = append(groups, nil)
				at = len(groups) - 1
			}
			groups[at] = append(groups[at], i)
		}
		return groups
	}
	bus := func(i int) string {
		id, _ := m.gpu(i).find("nvmlDeviceGetPciInfo_v3", "").text("pci.busId")
		return id
	}
	buses := func(gpus []int) *yaml.Node {
		var nodes []*yaml.Node
		for _, i := range gpus {
			nodes = append(nodes, draft.Text(bus(i)))
		}
		return draft.List(nodes...)
	}
	bridges := group(abi.TOPOLOGY_HOSTBRIDGE)
	var nodes []*yaml.Node
	for _, gpus := range bridges {
		var id profiles.BusID
		if id.UnmarshalText([]byte(bus(gpus[0]))) != nil {
			return
		}
		bridge := draft.Map()
		draft.Put(bridge, "id", draft.Text(fmt.Sprintf("pci%04x:%02x", id.Domain, id.Bus)))
		if node, ok := m.numaNode(gpus[0]); ok && m.numaFits(bridges, gpus, level) {
			draft.Put(bridge, "numa_node", draft.Num(strconv.Itoa(node)))
		}
		if cpus := m.cpus(gpus[0]); cpus != "" {
			draft.Put(bridge, "cpu_affinity", draft.Text(cpus))
		}
		draft.Put(bridge, "devices", buses(gpus))
		nodes = append(nodes, bridge)
	}
	m.put(root, "topology.root_complexes", "nvmlDeviceGetTopologyCommonAncestor, nvmlDeviceGetCpuAffinity, nvmlDeviceGetMemoryAffinity", draft.Lines(nodes...))
	var switches []*yaml.Node
	inner := group(abi.TOPOLOGY_SINGLE)
	for _, gpus := range group(abi.TOPOLOGY_MULTIPLE) {
		var within [][]int
		for _, g := range inner {
			if slices.Contains(gpus, g[0]) {
				within = append(within, g)
			}
		}
		if len(gpus) > 1 {
			switches = append(switches, draft.Pairs("devices", buses(gpus)))
		}
		if len(within) > 1 {
			for _, g := range within {
				switches = append(switches, draft.Pairs("devices", buses(g)))
			}
		}
	}
	if switches != nil {
		m.put(root, "topology.pci_switches", "nvmlDeviceGetTopologyCommonAncestor", draft.Lines(switches...))
	}
}

// numaNode is the only NUMA node near a GPU; -1 if it says that there is none.
func (m *maker) numaNode(i int) (int, bool) {
	a := m.gpu(i).find("nvmlDeviceGetMemoryAffinity", "scope 0")
	if a != nil && a.Return == abi.ERROR_NOT_SUPPORTED {
		return -1, true
	}
	set := mask(a, "nodeSet")
	if len(set) != 1 {
		return 0, false
	}
	return set[0], true
}

// numaFits says whether GPUs' NUMA nodes agree with how far they are from each other: two host bridges at one node are close.
func (m *maker) numaFits(bridges [][]int, own []int, level func(a, b int) uint64) bool {
	node, _ := m.numaNode(own[0])
	for _, other := range bridges {
		if other[0] == own[0] {
			continue
		}
		if n, ok := m.numaNode(other[0]); ok && n == node && level(own[0], other[0]) == uint64(abi.TOPOLOGY_SYSTEM) && node == 0 {
			return false
		}
	}
	return true
}

// cpus are the CPUs near a GPU.
func (m *maker) cpus(i int) string {
	var ranges []string
	set := mask(m.gpu(i).find("nvmlDeviceGetCpuAffinity", ""), "cpuSet")
	for at := 0; at < len(set); {
		end := at
		for end+1 < len(set) && set[end+1] == set[end]+1 {
			end++
		}
		if set[at] == set[end] {
			ranges = append(ranges, strconv.Itoa(set[at]))
		} else {
			ranges = append(ranges, fmt.Sprintf("%d-%d", set[at], set[end]))
		}
		at = end + 1
	}
	return strings.Join(ranges, ",")
}

// mask are the numbers of the bits in a list of words.
func mask(a *Answer, list string) (set []int) {
	for i := range a.length(list) {
		word, _ := a.number(fmt.Sprintf("%s[%d]", list, i))
		for word != 0 {
			n := bits.TrailingZeros64(word)
			set = append(set, 64*i+n)
			word &= word - 1
		}
	}
	return set
}

// migTable makes the ways in which a GPU can be cut. All GPUs have one table.
func (m *maker) migTable(root *yaml.Node) {
	for i := range m.walk.GPUs {
		g := m.gpu(i)
		var list []*yaml.Node
		for profile := range abi.GPU_INSTANCE_PROFILE_COUNT {
			args := fmt.Sprintf("profile %d", profile)
			a := g.find("nvmlDeviceGetGpuInstanceProfileInfoV", args)
			if !a.OK() {
				a = g.find("nvmlDeviceGetGpuInstanceProfileInfo", args)
			}
			if a.OK() {
				list = append(list, g.migProfile(a, profile))
			}
		}
		if list != nil {
			m.put(root, "mig.gpu_instance_profiles", "nvmlDeviceGetGpuInstanceProfileInfoV", draft.Lines(list...))
			return
		}
	}
}

// migProfile is one way to cut a GPU.
func (g *gpu) migProfile(a *Answer, number int) *yaml.Node {
	at := func(field string) uint64 {
		n, _ := a.number("info." + field)
		return n
	}
	name := g.migName(a)
	entry := []any{"name", draft.Text(name), "id", uintNode(at("id")), "slices", uintNode(at("sliceCount")), "instances", uintNode(at("instanceCount")),
		"memory_mib", uintNode(at("memorySizeMB")), "multiprocessors", uintNode(at("multiprocessorCount")), "copy_engines", uintNode(at("copyEngineCount")),
		"encoders", uintNode(at("encoderCount")), "decoders", uintNode(at("decoderCount")), "jpegs", uintNode(at("jpegCount")), "ofas", uintNode(at("ofaCount")),
		"p2p", draft.Num(strconv.FormatBool(at("isP2pSupported") != 0))}
	args := fmt.Sprintf("profileId %d", at("id"))
	for _, f := range []string{"nvmlDeviceGetGpuInstancePossiblePlacements_v2", "nvmlDeviceGetGpuInstancePossiblePlacements"} {
		p := g.find(f, args)
		if !p.OK() || p.length("placements") == 0 {
			continue
		}
		size, _ := p.number("placements[0].size")
		var starts []*yaml.Node
		for i := range p.length("placements") {
			start, _ := p.number(fmt.Sprintf("placements[%d].start", i))
			starts = append(starts, uintNode(start))
		}
		entry = append(entry, "placement_size", uintNode(size), "placement_starts", draft.List(starts...))
		break
	}
	return draft.Pairs(entry...)
}

// migName is a profile's name without the word MIG.
func (g *gpu) migName(a *Answer) string {
	if name, ok := a.text("info.name"); ok && name != "" {
		return strings.TrimPrefix(name, "MIG ")
	}
	slices, _ := a.number("info.sliceCount")
	mib, _ := a.number("info.memorySizeMB")
	return fmt.Sprintf("%dg.%dgb", slices, (mib+1023)/1024)
}

// instances makes the MIG instances that there are.
func (g *gpu) instances() {
	names, slices := map[uint64]string{}, map[uint64]uint64{}
	for _, a := range g.walk.Answers {
		if a.OK() && a.Object == g.name && strings.HasPrefix(a.Function, "nvmlDeviceGetGpuInstanceProfileInfo") {
			if id, ok := a.number("info.id"); ok && names[id] == "" {
				names[id] = g.migName(a)
				slices[id], _ = a.number("info.sliceCount")
			}
		}
	}
	type instance struct {
		start   uint64
		slices  uint64
		profile string
		compute []*yaml.Node
	}
	all := map[uint64]*instance{}
	for _, a := range g.walk.Answers {
		if !a.OK() || !strings.HasPrefix(a.Object, g.name+" GI ") || a.Function != "nvmlGpuInstanceGetInfo" {
			continue
		}
		id, _ := a.number("info.id")
		profile, _ := a.number("info.profileId")
		start, _ := a.number("info.placement.start")
		all[id] = &instance{start: start, slices: slices[profile], profile: names[profile]}
	}
	for _, id := range sorted(all) {
		gi := all[id]
		prefix := fmt.Sprintf("%s GI %d", g.name, id)
		profiles := map[uint64]string{}
		for _, a := range g.walk.Answers {
			if a.OK() && a.Object == prefix && strings.HasPrefix(a.Function, "nvmlGpuInstanceGetComputeInstanceProfileInfo") {
				n, _ := a.number("info.id")
				slices, _ := a.number("info.sliceCount")
				if profiles[n] == "" && slices == gi.slices {
					profiles[n] = gi.profile
				} else if profiles[n] == "" {
					profiles[n] = fmt.Sprintf("%dc.%s", slices, gi.profile)
				}
			}
		}
		for ci := range 8 {
			a := g.walk.find("nvmlComputeInstanceGetInfo_v2", fmt.Sprintf("%s CI %d", prefix, ci), "")
			if profile, ok := a.number("info.profileId"); ok {
				gi.compute = append(gi.compute, draft.Text(profiles[profile]))
			}
		}
	}
	var nodes []*yaml.Node
	for _, id := range sorted(all) {
		gi := all[id]
		entry := []any{"profile", draft.Text(gi.profile), "start", uintNode(gi.start)}
		if gi.compute != nil {
			entry = append(entry, "compute", draft.List(gi.compute...))
		} else {
			entry = append(entry, "no_compute", draft.Num("true"))
		}
		nodes = append(nodes, draft.Pairs(entry...))
	}
	if nodes != nil {
		g.set("mig.instances", "nvmlGpuInstanceGetInfo, nvmlComputeInstanceGetInfo_v2", draft.Lines(nodes...))
	}
}

func sorted[V any](m map[uint64]V) []uint64 { return slices.Sorted(maps.Keys(m)) }

// units makes the S-class units.
func (m *maker) units(root *yaml.Node) {
	count, _ := m.walk.find("nvmlUnitGetCount", "", "").number("unitCount")
	var list []*yaml.Node
	for i := range count {
		name := fmt.Sprintf("unit %d", i)
		info := m.walk.find("nvmlUnitGetUnitInfo", name, "")
		if !info.OK() {
			continue
		}
		unit := draft.Map()
		for _, field := range []struct{ key, path string }{{"name", "name"}, {"id", "id"}, {"serial", "serial"}, {"firmware_version", "firmwareVersion"}} {
			s, _ := info.text("info." + field.path)
			if field.key == "serial" && !m.options.KeepIdentifiers && s != "" {
				s = strconv.FormatUint(1650000000001+i, 10)
			}
			if s != "" {
				draft.Put(unit, field.key, m.from(info.Function, draft.Text(s)))
			}
		}
		for sensor, key := range []string{"intake_c", "exhaust_c", "board_c"} {
			if c, ok := m.walk.find("nvmlUnitGetTemperature", name, fmt.Sprintf("type %d", sensor)).number("temp"); ok {
				draft.Put(unit, key, m.from("nvmlUnitGetTemperature", uintNode(c)))
			}
		}
		if psu := m.walk.find("nvmlUnitGetPsuInfo", name, ""); psu.OK() {
			state, _ := psu.text("psu.state")
			a, _ := psu.number("psu.current")
			v, _ := psu.number("psu.voltage")
			w, _ := psu.number("psu.power")
			draft.Put(unit, "psu", m.from(psu.Function, draft.Pairs("state", draft.Text(state), "current_a", uintNode(a), "voltage_v", uintNode(v), "power_w", uintNode(w))))
		}
		var fans []*yaml.Node
		speeds := m.walk.find("nvmlUnitGetFanSpeedInfo", name, "")
		n, _ := speeds.number("fanSpeeds.count")
		for f := range n {
			rpm, _ := speeds.number(fmt.Sprintf("fanSpeeds.fans[%d].speed", f))
			failed, _ := speeds.number(fmt.Sprintf("fanSpeeds.fans[%d].state", f))
			fans = append(fans, draft.Pairs("speed_rpm", uintNode(rpm), "failed", draft.Num(strconv.FormatBool(failed != 0))))
		}
		if fans != nil {
			draft.Put(unit, "fans", m.from(speeds.Function, draft.List(fans...)))
		}
		if led := m.walk.find("nvmlUnitGetLedState", name, ""); led.OK() {
			if color, _ := led.number("state.color"); color != 0 {
				cause, _ := led.text("state.cause")
				draft.Put(unit, "amber", m.from(led.Function, draft.Text(cause)))
			}
		}
		var gpus []*yaml.Node
		devices := m.walk.find("nvmlUnitGetDevices", name, "")
		for d := range devices.length("devices") {
			gpu, _ := devices.text(fmt.Sprintf("devices[%d]", d))
			if index, ok := strings.CutPrefix(gpu, "GPU "); ok {
				gpus = append(gpus, draft.Num(index))
			}
		}
		if gpus != nil {
			draft.Put(unit, "devices", m.from(devices.Function, draft.List(gpus...)))
		}
		list = append(list, unit)
	}
	if list != nil {
		draft.Put(root, "units", draft.Lines(list...))
	}
}
