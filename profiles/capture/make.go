package capture

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/draft"
)

// Options say how a profile is made.
type Options struct {
	// KeepIdentifiers keeps UUIDs, serial numbers and other identifiers, and the folders of programs. Otherwise they are replaced by
	// made-up ones.
	KeepIdentifiers bool
}

// Profile makes a profile of what a library answered. With it, nvmlfab's library answers alike, as far as keys of a profile can say it;
// Compare tells what they cannot. more are settings of the GPUs beside those that answers give.
func Profile(w *Walk, o Options, more map[int][]draft.Setting) ([]byte, error) {
	if w.GPUs == 0 {
		return nil, ErrNoGPU
	}
	root := draft.Map()
	m := &maker{walk: w, options: o}
	m.driver, _ = w.find("nvmlSystemGetDriverVersion", "", "").text("version")
	m.version = profiles.NVML(profiles.Branch(m.driver)).Number
	m.system(root)
	m.vgpuVersions(root)
	var all [][]draft.Setting
	for i := range w.GPUs {
		g := &gpu{maker: m, index: i, name: fmt.Sprintf("GPU %d", i)}
		g.make()
		all = append(all, append(g.settings, more[i]...))
	}
	draft.PutDevices(root, all)
	m.nvlink(root)
	m.topology(root)
	m.migTable(root)
	m.units(root)
	comment := fmt.Sprintf("# Made by nvmlfab capture of what an NVML library answered, with driver %s.\n", cmp.Or(m.driver, "unknown"))
	if !o.KeepIdentifiers {
		comment += "# UUIDs, serial numbers and other identifiers are replaced by made-up ones.\n"
	}
	return draft.Write(comment+"\n", root)
}

// maker makes a profile.
type maker struct {
	walk    *Walk
	options Options
	driver  string
	version int // of NVML, by the driver
}

// source is a comment that says where a value is from.
func (m *maker) source(call string) string {
	return fmt.Sprintf("# %s, driver %s", call, cmp.Or(m.driver, "unknown"))
}

// from puts a comment on a value.
func (m *maker) from(call string, n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.ScalarNode || n.Style == yaml.FlowStyle {
		n.LineComment = m.source(call)
	} else if len(n.Content) > 0 {
		n.Content[0].HeadComment = m.source(call)
	}
	return n
}

// put puts a value into the profile.
func (m *maker) put(root *yaml.Node, key, call string, n *yaml.Node) {
	draft.Put(root, key, m.from(call, n))
}

func uintNode(n uint64) *yaml.Node { return draft.Num(strconv.FormatUint(n, 10)) }

// system makes what the machine says about itself.
func (m *maker) system(root *yaml.Node) {
	if m.driver != "" {
		m.put(root, "system.driver_version", "nvmlSystemGetDriverVersion", draft.Text(m.driver))
	}
	if v, ok := m.walk.find("nvmlSystemGetNVMLVersion", "", "").text("version"); ok {
		m.put(root, "system.nvml_version", "nvmlSystemGetNVMLVersion", draft.Text(v))
	}
	for _, f := range []string{"nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"} {
		if v, ok := m.walk.find(f, "", "").number("cudaDriverVersion"); ok {
			m.put(root, "system.cuda_version", f, &yaml.Node{Kind: yaml.ScalarNode, Style: yaml.DoubleQuotedStyle, Value: fmt.Sprintf("%d.%d", v/1000, v%1000/10)})
			break
		}
	}
}

// gpu makes the settings of a GPU.
type gpu struct {
	*maker
	index    int
	name     string
	settings []draft.Setting
}

// find is the answer to a call about the GPU. A field is found by its number in the newest version, and its scope stands for the arguments.
func (g *gpu) find(function, args string) *Answer {
	id, ok := strings.CutPrefix(function, "field ")
	if !ok {
		return g.walk.find(function, g.name, args)
	}
	newest, _ := strconv.Atoi(id)
	return g.walk.find("nvmlDeviceGetFieldValues", g.name, fmt.Sprintf("fieldId %d, scopeId %s", numberIn(g.version, uint32(newest)), args))
}

// numberIn is the number that a field of the newest version has in a version.
func numberIn(version int, newest uint32) uint32 {
	for n := range uint32(abi.FI_MAX) {
		if n != newest && abi.FieldID(version, n) == newest {
			return n
		}
	}
	return newest
}

func (g *gpu) set(key, call string, n *yaml.Node) {
	g.settings = append(g.settings, draft.Setting{Key: key, Value: g.from(call, n)})
}

func (g *gpu) has(key string) bool {
	return slices.ContainsFunc(g.settings, func(s draft.Setting) bool { return s.Key == key })
}

func (g *gpu) make() {
	g.identity()
	for _, r := range rows {
		if g.has(r.key) {
			continue
		}
		a := g.find(r.function, r.args)
		if n := r.as.node(a.value(r.path), r.path, g.options); n != nil {
			g.set(r.key, a.Function+ofField(a), n)
		}
	}
	g.memory()
	g.power()
	g.fan()
	g.errors()
	g.reasons()
	g.clocks()
	g.processes()
	g.fabric()
	g.modes()
	g.instances()
	g.vgpu()
}

// ofField is the number of a field, for comments.
func ofField(a *Answer) string {
	if id, ok := strings.CutPrefix(a.Args, "fieldId "); ok {
		id, _, _ = strings.Cut(id, ",")
		return " " + id
	}
	return ""
}

// node is a value in a form; nil if there is none.
func (f form) node(value any, path string, o Options) *yaml.Node {
	var n uint64
	switch v := value.(type) {
	case nil:
		return nil
	case string:
		if f.private && !o.KeepIdentifiers {
			return nil
		}
		return draft.Text(v)
	case float64:
		return draft.Num(strconv.FormatFloat(v, 'g', -1, 64))
	case int64:
		n = uint64(v)
		if !f.signed && f.names == nil && v < 0 {
			return draft.Num(strconv.FormatInt(v, 10))
		}
	case uint64:
		n = v
	}
	switch {
	case slices.Contains(f.not, n):
		return nil
	case f.names != nil:
		name, ok := f.names[n]
		if !ok {
			return nil
		}
		if name == "true" || name == "false" {
			return draft.Num(name)
		}
		return draft.Text(name)
	case f.signed:
		return draft.Num(strconv.Itoa(int(int32(n))))
	case f.hex:
		return draft.Num(fmt.Sprintf("0x%08X", n))
	case f.divide != 0:
		return uintNode(n / f.divide)
	}
	return uintNode(n)
}

// same is the number of the first GPU with the same answer.
func (g *gpu) same(function, path string) int {
	own := g.find(function, "").value(path)
	for i := range g.index {
		other := gpu{maker: g.maker, name: fmt.Sprintf("GPU %d", i)}
		if other.find(function, "").value(path) == own {
			return i
		}
	}
	return g.index
}

// identity makes what tells the GPU from others. What is replaced keeps the relations: what was equal stays equal.
func (g *gpu) identity() {
	keep := g.options.KeepIdentifiers
	if id, ok := g.find("nvmlDeviceGetUUID", "").text("uuid"); ok && keep {
		g.set("uuid", "nvmlDeviceGetUUID", draft.Text(id))
	}
	if serial, ok := g.find("nvmlDeviceGetSerial", "").text("serial"); ok {
		if !keep {
			serial = strconv.Itoa(1650000000001 + g.same("nvmlDeviceGetSerial", "serial"))
		}
		g.set("serial", "nvmlDeviceGetSerial", draft.Text(serial))
	} else {
		g.set("serial", "nvmlDeviceGetSerial", draft.Text("N/A"))
	}
	switch minor := g.find("nvmlDeviceGetMinorNumber", ""); {
	case minor.OK():
		n, _ := minor.number("minorNumber")
		g.set("minor_number", "nvmlDeviceGetMinorNumber", uintNode(n))
	case minor != nil:
		g.set("minor_number", "nvmlDeviceGetMinorNumber", draft.Text("N/A"))
	}
	if pdi, ok := g.find("nvmlDeviceGetPdi", "").number("pdi.value"); ok {
		if !keep && pdi != 0 {
			pdi = 0x100000000000*uint64(1+g.same("nvmlDeviceGetPdi", "pdi.value")) + 1
		}
		g.set("pdi", "nvmlDeviceGetPdi", draft.Num(fmt.Sprintf("0x%016x", pdi)))
	}
	if bus, ok := g.find("nvmlDeviceGetPciInfo_v3", "").text("pci.busId"); ok {
		g.set("pci.bus_id", "nvmlDeviceGetPciInfo_v3", draft.Text(bus))
	}
	platform := g.find("nvmlDeviceGetPlatformInfo", "")
	if guid, ok := platform.text("platformInfo.ibGuid"); ok {
		n, _ := strconv.ParseUint((guid + strings.Repeat("0", 16))[:16], 16, 64)
		if !keep && n != 0 {
			n = 0x100000000000*uint64(1+g.same("nvmlDeviceGetPlatformInfo", "platformInfo.ibGuid")) + 1
		}
		g.set("platform.gpu_fabric_guid", "nvmlDeviceGetPlatformInfo", draft.Num(fmt.Sprintf("0x%016x", n)))
	}
	if serial, ok := platform.text("platformInfo.chassisSerialNumber"); ok {
		if raw, err := unhex(serial); err == nil {
			serial = cString(raw)
		}
		if serial != "" {
			if !keep {
				serial = strconv.Itoa(1820000000001 + g.same("nvmlDeviceGetPlatformInfo", "platformInfo.chassisSerialNumber"))
			}
			g.set("platform.chassis_serial_number", "nvmlDeviceGetPlatformInfo", draft.Text(serial))
		}
	}
	if id, ok := g.find("nvmlDeviceGetBoardId", "").number("boardId"); ok {
		g.set("board_id", "nvmlDeviceGetBoardId", uintNode(id))
	}
}

// memory makes the use of the memory and of its apertures.
func (g *gpu) memory() {
	if a := g.find("nvmlDeviceGetMemoryInfo_v2", ""); a.OK() {
		total, _ := a.number("memory.total")
		reserved, _ := a.number("memory.reserved")
		used, _ := a.number("memory.used")
		free, _ := a.number("memory.free")
		g.set("memory.total_bytes", a.Function, uintNode(total))
		g.set("memory.reserved_bytes", a.Function, uintNode(reserved))
		g.set("memory.used_bytes", a.Function, uintNode(used))
		if used+reserved+free != total {
			g.set("memory.free_bytes", a.Function, uintNode(free))
		}
	} else if a := g.find("nvmlDeviceGetMemoryInfo", ""); a.OK() {
		total, _ := a.number("memory.total")
		used, _ := a.number("memory.used")
		free, _ := a.number("memory.free")
		g.set("memory.total_bytes", a.Function, uintNode(total))
		g.set("memory.used_bytes", a.Function, uintNode(used))
		if used+free != total {
			g.set("memory.free_bytes", a.Function, uintNode(free))
		}
	}
	for _, part := range []struct{ key, function, total, free, used string }{
		{"bar1_memory", "nvmlDeviceGetBAR1MemoryInfo", "bar1Memory.bar1Total", "bar1Memory.bar1Free", "bar1Memory.bar1Used"},
		{"cc_protected_memory", "nvmlDeviceGetConfComputeProtectedMemoryUsage", "memory.total", "memory.free", "memory.used"},
	} {
		a := g.find(part.function, "")
		if !a.OK() {
			continue
		}
		total, _ := a.number(part.total)
		free, _ := a.number(part.free)
		used, _ := a.number(part.used)
		g.set(part.key+".total_bytes", a.Function, uintNode(total))
		g.set(part.key+".used_bytes", a.Function, uintNode(used))
		if used+free != total {
			g.set(part.key+".free_bytes", a.Function, uintNode(free))
		}
	}
}

// power makes what is said about the power in several answers.
func (g *gpu) power() {
	requested, ok := g.find("nvmlDeviceGetPowerManagementLimit", "").number("limit")
	enforced, _ := g.find("nvmlDeviceGetEnforcedPowerLimit", "").number("limit")
	if ok && requested != enforced {
		g.set("power.requested_limit_mw", "nvmlDeviceGetPowerManagementLimit", uintNode(requested))
	}
	if a := g.find(field(abi.FI_PWR_SMOOTHING_ENABLED), "0"); a != nil && a.Return == abi.ERROR_NO_PERMISSION {
		g.set("power.smoothing", "nvmlDeviceGetFieldValues"+ofField(a), draft.Text("no_permission"))
	}
}

// fan makes the fans' speeds. All fans are alike but those that somebody has taken over.
func (g *gpu) fan() {
	if speed, ok := g.find("nvmlDeviceGetFanSpeed", "").number("speed"); ok {
		if manual, _ := g.find("nvmlDeviceGetFanControlPolicy_v2", "fan 0").number("policy"); manual != uint64(abi.FAN_POLICY_MANUAL) {
			g.set("fan.speed_percent", "nvmlDeviceGetFanSpeed", uintNode(speed))
		}
	}
	var manual []*yaml.Node
	for i := range 64 {
		args := fmt.Sprintf("fan %d", i)
		policy, ok := g.find("nvmlDeviceGetFanControlPolicy_v2", args).number("policy")
		if !ok {
			break
		}
		speed, known := g.find("nvmlDeviceGetFanSpeed_v2", args).number("speed")
		if policy == uint64(abi.FAN_POLICY_MANUAL) {
			fan := draft.Pairs("fan", uintNode(uint64(i)))
			if known {
				fan = draft.Pairs("fan", uintNode(uint64(i)), "speed_percent", uintNode(speed))
			}
			manual = append(manual, fan)
		} else if known && !g.has("fan.speed_percent") {
			g.set("fan.speed_percent", "nvmlDeviceGetFanSpeed_v2", uintNode(speed))
		}
	}
	if manual != nil {
		g.set("fan.manual", "nvmlDeviceGetFanControlPolicy_v2", draft.List(manual...))
	}
}

// errors makes the counts of memory errors, and the retired pages.
func (g *gpu) errors() {
	status := g.find("nvmlDeviceGetSramEccErrorStatus", "")
	for life, span := range []string{"volatile", "aggregate"} {
		for severity, bits := range []string{"single_bit", "double_bit"} {
			sum, counted := uint64(0), false
			for location, key := range eccLocations {
				a := g.find("nvmlDeviceGetMemoryErrorCounter", fmt.Sprintf("errorType %d, counterType %d, locationType %d", severity, life, location))
				n, ok := a.number("count")
				if !ok {
					continue
				}
				sum, counted = sum+n, true
				if key == "sram" && status.OK() {
					continue
				}
				g.set("ecc.errors."+span+"."+bits+"."+key, a.Function, uintNode(n))
			}
			a := g.find("nvmlDeviceGetTotalEccErrors", fmt.Sprintf("errorType %d, counterType %d", severity, life))
			if n, ok := a.number("eccCounts"); ok && (!counted || n > sum) {
				g.set("ecc.errors."+span+"."+bits+".total", a.Function, uintNode(n))
			}
		}
	}
	if status.OK() {
		for _, count := range []struct{ key, path string }{
			{"volatile.correctable", "volatileCor"}, {"volatile.uncorrectable_parity", "volatileUncParity"},
			{"volatile.uncorrectable_secded", "volatileUncSecDed"}, {"aggregate.correctable", "aggregateCor"},
			{"aggregate.uncorrectable_parity", "aggregateUncParity"}, {"aggregate.uncorrectable_secded", "aggregateUncSecDed"},
			{"uncorrectable_sources.l2", "aggregateUncBucketL2"}, {"uncorrectable_sources.sm", "aggregateUncBucketSm"},
			{"uncorrectable_sources.pcie", "aggregateUncBucketPcie"}, {"uncorrectable_sources.microcontroller", "aggregateUncBucketMcu"},
			{"uncorrectable_sources.other", "aggregateUncBucketOther"},
		} {
			if n, ok := status.number("status." + count.path); ok {
				g.set("ecc.sram."+count.key, status.Function, uintNode(n))
			}
		}
		if n, ok := status.number("status.bThresholdExceeded"); ok {
			g.set("ecc.sram.threshold_exceeded", status.Function, draft.Num(strconv.FormatBool(n != 0)))
		}
	}
	for cause, key := range []string{"single_bit_retirement", "double_bit_retirement"} {
		a := g.find("nvmlDeviceGetRetiredPages", fmt.Sprintf("cause %d", cause))
		if !a.OK() {
			continue
		}
		g.set("retired_pages."+key+".count", a.Function, uintNode(uint64(a.length("addresses"))))
		var pages []*yaml.Node
		for i := range a.length("addresses") {
			if n, ok := a.number(fmt.Sprintf("addresses[%d]", i)); ok && n != 0 {
				pages = append(pages, draft.Num(fmt.Sprintf("0x%x", n)))
			}
		}
		if pages != nil {
			g.set("retired_pages."+key+".addresses", a.Function, draft.List(pages...))
		}
	}
}

// reasons makes the reasons for lower clocks.
func (g *gpu) reasons() {
	for _, name := range []struct{ current, supported string }{
		{"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetSupportedClocksEventReasons"},
		{"nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetSupportedClocksThrottleReasons"},
	} {
		a := g.find(name.current, "")
		if !a.OK() || len(a.Leaves) == 0 {
			continue
		}
		now, _ := a.number(a.Leaves[0].Path)
		known := now
		if s := g.find(name.supported, ""); s.OK() && len(s.Leaves) > 0 {
			known, _ = s.number(s.Leaves[0].Path)
		}
		for _, r := range reasons {
			if (known|now)&r.bit != 0 {
				g.set("clocks_throttle_reasons."+r.key, a.Function, draft.Num(strconv.FormatBool(now&r.bit != 0)))
			}
		}
		return
	}
}

// clocks makes the clocks that can be asked for, and those of the performance states.
func (g *gpu) clocks() {
	a := g.find("nvmlDeviceGetSupportedMemoryClocks", "")
	var steps []*yaml.Node
	for i := range a.length("clocksMHz") {
		memory, _ := a.number(fmt.Sprintf("clocksMHz[%d]", i))
		b := g.find("nvmlDeviceGetSupportedGraphicsClocks", fmt.Sprintf("memoryClockMHz %d", memory))
		var graphics []*yaml.Node
		for j := range b.length("clocksMHz") {
			mhz, _ := b.number(fmt.Sprintf("clocksMHz[%d]", j))
			graphics = append(graphics, uintNode(mhz))
		}
		if graphics == nil {
			steps = append(steps, draft.Pairs("freq_mhz", uintNode(memory)))
			continue
		}
		step := draft.Map()
		draft.Put(step, "freq_mhz", uintNode(memory))
		draft.Put(step, "graphics_clocks", draft.List(graphics...))
		steps = append(steps, step)
	}
	if steps != nil {
		g.set("supported_clocks.memory_clocks", "nvmlDeviceGetSupportedGraphicsClocks", draft.Lines(steps...))
	}
	states := g.find("nvmlDeviceGetSupportedPerformanceStates", "")
	var list []*yaml.Node
	for i := range states.length("pstates") {
		state, ok := states.number(fmt.Sprintf("pstates[%d]", i))
		if !ok || state > uint64(abi.PSTATE_15) {
			continue
		}
		entry := []any{"state", draft.Text(fmt.Sprintf("P%d", state))}
		for _, domain := range []struct {
			key  string
			kind int
		}{{"graphics", 0}, {"memory", 2}} {
			c := g.find("nvmlDeviceGetMinMaxClockOfPState", fmt.Sprintf("type %d, pstate %d", domain.kind, state))
			if least, ok := c.number("minClockMHz"); ok {
				most, _ := c.number("maxClockMHz")
				entry = append(entry, domain.key+"_min_mhz", uintNode(least), domain.key+"_max_mhz", uintNode(most))
			}
		}
		list = append(list, draft.Pairs(entry...))
	}
	if list != nil {
		g.set("performance_states", "nvmlDeviceGetMinMaxClockOfPState", draft.Lines(list...))
	}
}

// modes makes modes that want more than a row.
func (g *gpu) modes() {
	for i, key := range []string{"application_clocks", "auto_boosted_clocks"} {
		a := g.find("nvmlDeviceGetAPIRestriction", fmt.Sprintf("apiType %d", i))
		if n, ok := a.number("isRestricted"); ok {
			g.set("api_restriction."+key, a.Function, mode.node(n, "", g.options))
		}
	}
	if a := g.find("nvmlDeviceGetDisplayMode", ""); a != nil && a.Return == abi.ERROR_DEPRECATED {
		active, _ := g.find("nvmlDeviceGetDisplayActive", "").number("isActive")
		g.set("display.attached", a.Function, draft.Num(strconv.FormatBool(active != 0)))
	}
}

// fabric makes the GPU's place in a fabric of machines.
func (g *gpu) fabric() {
	for _, name := range []struct{ function, root string }{
		{"nvmlDeviceGetGpuFabricInfoV", "gpuFabricInfo"}, {"nvmlDeviceGetGpuFabricInfo", "gpuFabricInfo"},
	} {
		a := g.find(name.function, "")
		if !a.OK() {
			continue
		}
		state, _ := a.number(name.root + ".state")
		g.set("fabric.state", a.Function, named(fabricStates).node(state, "", g.options))
		if id, ok := a.text(name.root + ".clusterUuid"); ok {
			id += strings.Repeat("0", 32)
			uuid := fmt.Sprintf("%s-%s-%s-%s-%s", id[:8], id[8:12], id[12:16], id[16:20], id[20:32])
			if !g.options.KeepIdentifiers && strings.Trim(uuid, "0-") != "" {
				uuid = fmt.Sprintf("00000000-0000-8000-8000-%012x", 1+g.same(name.function, name.root+".clusterUuid"))
			}
			g.set("fabric.cluster_uuid", a.Function, draft.Text(uuid))
		}
		if n, ok := a.number(name.root + ".cliqueId"); ok {
			g.set("fabric.clique_id", a.Function, uintNode(n))
		}
		if n, ok := a.number(name.root + ".healthMask"); ok {
			g.set("fabric.health_mask", a.Function, uintNode(n))
		}
		if n, ok := a.number(name.root + ".healthSummary"); ok {
			if node := named(healthSummaries).node(n, "", g.options); node != nil {
				g.set("fabric.health_summary", a.Function, node)
			}
		}
		return
	}
}

// processes makes the processes on the GPU.
func (g *gpu) processes() {
	type process struct {
		types string
		keys  map[string]*yaml.Node
	}
	all := map[uint64]*process{}
	var order []uint64
	for _, kind := range []struct{ letter, name string }{{"C", "Compute"}, {"G", "Graphics"}} {
		for _, version := range []string{"_v3", "_v2", ""} {
			a := g.find("nvmlDeviceGet"+kind.name+"RunningProcesses"+version, "")
			if !a.OK() {
				continue
			}
			for i := range a.length("infos") {
				at := func(field string) (uint64, bool) { return a.number(fmt.Sprintf("infos[%d].%s", i, field)) }
				pid, ok := at("pid")
				if !ok || pid == 0 {
					continue
				}
				p := all[pid]
				if p == nil {
					p = &process{keys: map[string]*yaml.Node{}}
					all[pid] = p
					order = append(order, pid)
				}
				if p.types != "" {
					p.types += "+"
				}
				p.types += kind.letter
				if used, ok := at("usedGpuMemory"); ok && used != ^uint64(0) {
					p.keys["used_memory_mib"] = uintNode(used >> 20)
				}
				for key, field := range map[string]string{"gpu_instance_id": "gpuInstanceId", "compute_instance_id": "computeInstanceId"} {
					if id, ok := at(field); ok && id != uint64(abi.INVALID_GPU_INSTANCE_ID) {
						p.keys[key] = uintNode(id)
					}
				}
			}
			break
		}
	}
	loads := func(a *Answer, list string) {
		for i := range a.length(list) {
			at := func(field string) uint64 {
				n, _ := a.number(fmt.Sprintf("%s[%d].%s", list, i, field))
				return n
			}
			if p := all[at("pid")]; p != nil {
				for key, field := range map[string]string{"sm_util": "smUtil", "mem_util": "memUtil", "enc_util": "encUtil", "dec_util": "decUtil",
					"jpeg_util": "jpgUtil", "ofa_util": "ofaUtil"} {
					if n := at(field); n > 0 && n <= 100 {
						p.keys[key] = uintNode(n)
					}
				}
			}
		}
	}
	loads(g.find("nvmlDeviceGetProcessUtilization", "lastSeenTimeStamp 0"), "utilization")
	loads(g.find("nvmlDeviceGetProcessesUtilizationInfo", ""), "procesesUtilInfo.procUtilArray")
	var nodes []*yaml.Node
	for _, pid := range order {
		p := all[pid]
		entry := []any{"pid", uintNode(pid), "type", draft.Text(p.types)}
		if name, ok := g.walk.find("nvmlSystemGetProcessName", "", fmt.Sprintf("pid %d", pid)).text("name"); ok {
			if !g.options.KeepIdentifiers {
				name = name[strings.LastIndex(name, "/")+1:]
			}
			entry = append(entry, "name", draft.Text(name))
		}
		for _, key := range slices.Sorted(maps.Keys(p.keys)) {
			entry = append(entry, key, p.keys[key])
		}
		nodes = append(nodes, draft.Pairs(entry...))
	}
	if nodes != nil {
		g.set("processes", "nvmlDeviceGetComputeRunningProcesses_v3", draft.Lines(nodes...))
	}
}
