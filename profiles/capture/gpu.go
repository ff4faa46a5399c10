package capture

import (
	"fmt"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles/draft"
	"github.com/nvmlfab/nvmlfab/profiles/words"
)

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
	function := "nvmlDeviceGetGpuFabricInfoV"
	if !g.find(function, "").OK() {
		function = "nvmlDeviceGetGpuFabricInfo"
	}
	a := g.find(function, "")
	if !a.OK() {
		return
	}
	state, _ := a.number("gpuFabricInfo.state")
	g.set("fabric.state", function, named(words.FabricStates).node(state, "", g.options))
	if id, ok := a.text("gpuFabricInfo.clusterUuid"); ok {
		id += strings.Repeat("0", 32)
		uuid := fmt.Sprintf("%s-%s-%s-%s-%s", id[:8], id[8:12], id[12:16], id[16:20], id[20:32])
		if !g.options.KeepIdentifiers && strings.Trim(uuid, "0-") != "" {
			uuid = fmt.Sprintf("00000000-0000-8000-8000-%012x", 1+g.same(function, "gpuFabricInfo.clusterUuid"))
		}
		g.set("fabric.cluster_uuid", function, draft.Text(uuid))
	}
	if n, ok := a.number("gpuFabricInfo.cliqueId"); ok {
		g.set("fabric.clique_id", function, uintNode(n))
	}
	if n, ok := a.number("gpuFabricInfo.healthMask"); ok {
		g.set("fabric.health_mask", function, uintNode(n))
	}
	if n, ok := a.number("gpuFabricInfo.healthSummary"); ok {
		if node := named(words.HealthSummaries).node(n, "", g.options); node != nil {
			g.set("fabric.health_summary", function, node)
		}
	}
}
