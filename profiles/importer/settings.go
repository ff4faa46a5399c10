package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/draft"
	"gopkg.in/yaml.v3"
)

// setting is a key of one GPU, its value, and the line that it comes from.
type setting = draft.Setting

// These make values.
var (
	text  = draft.Text
	num   = draft.Num
	list  = draft.List
	pairs = draft.Pairs
	put   = draft.Put
)

// maker makes the settings of one GPU.
type maker struct {
	*reader
	*gpu
	index    int
	settings []setting
	done     map[string]bool // elements
}

func (m *maker) set(key string, value *yaml.Node, line int) {
	m.settings = append(m.settings, setting{Key: key, Value: value, Line: line})
}

// made makes the settings of all GPUs.
func (r *reader) made() ([][]setting, error) {
	all := make([][]setting, len(r.log.gpus))
	for i, g := range r.log.gpus {
		m := &maker{reader: r, gpu: g, index: i, done: map[string]bool{}}
		if err := m.make(); err != nil {
			return nil, err
		}
		all[i] = m.settings
	}
	return all, nil
}

func (m *maker) make() error {
	var id profiles.BusID
	at, ok := m.find("pci/pci_bus_id")
	if !ok {
		at = m.id
		m.set("pci.bus_id", text(at.value), at.line)
	}
	if err := id.UnmarshalText([]byte(at.value)); err != nil {
		return m.wrong(at.line, "%s", err)
	}
	m.identity(id)
	for _, do := range []func() error{m.memory, m.health, m.fabric, m.lists} {
		if err := do(); err != nil {
			return err
		}
	}
	for _, rule := range rules {
		l, ok := m.find(rule.element)
		if !ok || m.done[rule.element] {
			continue
		}
		m.done[rule.element] = true
		if err := m.apply(rule, l); err != nil {
			return err
		}
	}
	for _, l := range m.leaves {
		if !m.done[l.path] && !isAbsent(l.value) {
			m.note(l.line, "not understood: %s: %s", l.path, quoted(l.value))
		}
	}
	for _, key := range []string{"power.enforced_limit_mw", "power.default_limit_mw"} {
		if m.has(key) {
			m.set("power.management_supported", num("true"), m.id.line)
			break
		}
	}
	return m.order()
}

func (m *maker) has(key string) bool {
	return slices.ContainsFunc(m.settings, func(s setting) bool { return s.Key == key })
}

// take takes a value that the table does not deal with. given is false if there is none.
func (m *maker) take(element string) (l leaf, given bool) {
	l, ok := m.find(element)
	m.done[element] = true
	if ok && (fails(l.value) || redacted.MatchString(l.value)) {
		m.failed(l)
		return l, false
	}
	return l, ok && !isAbsent(l.value)
}

func (m *maker) failed(l leaf) {
	m.note(l.line, "left out: %s: %s", l.path, quoted(l.value))
}

func (m *maker) bad(l leaf, want string) error {
	return m.wrong(l.line, "%s is %s: want %s", l.path, quoted(l.value), want)
}

// apply makes a setting by the table.
func (m *maker) apply(rule rule, l leaf) error {
	switch {
	case rule.kind == "-":
		return nil
	case l.value == "" || isAbsent(l.value) && (rule.kind != "word" || l.value != "None"):
		return nil
	case fails(l.value) || redacted.MatchString(l.value):
		m.failed(l)
		return nil
	case rule.kind == "none":
		m.note(l.line, "the profile has no key for %s: %s", l.path, quoted(l.value))
		return nil
	}
	value, ok := convert(l.value, rule.kind)
	if !ok {
		return m.bad(l, wants[rule.kind])
	}
	node := num(value)
	switch rule.kind {
	case "word":
		if w, ok := words[value]; ok {
			value = w
		}
		node = text(strings.NewReplacer(" ", "_", "-", "_").Replace(strings.ToLower(value)))
	case "text", "mode":
		node = text(value)
	}
	if rule.key == "pci.bus_id" { // older readers of YAML take it for a number of minutes
		node.Style = yaml.DoubleQuotedStyle
	}
	m.set(rule.key, node, l.line)
	return nil
}

// wants says how a value of each kind is written.
var wants = map[string]string{
	"text": "text", "word": "a word", "mode": "Enabled or Disabled", "yes": "Yes or No", "count": "a number", "hex": "a hexadecimal number",
	"x": "a number and x", "MiB": "a number and MiB", "mV": "a number and mV", "W": "a number and W", "C": "a number and C", "MHz": "a number and MHz",
	"%": "a number and %", "KB/s": "a number and KB/s", "us": "a number and us", "bank(s)": "a number and bank(s)",
}

// words are nvidia-smi's names where they are not those of a profile.
var words = map[string]string{
	"NVIDIA RTX Virtual Workstation": "nvidia_vws", "NVIDIA Virtual Applications": "nvidia_vapps", "NVIDIA Virtual PC": "nvidia_vpc",
	"NVIDIA Virtual Compute Server": "nvidia_vcs", "NVIDIA Cloud Gaming": "nvidia_cloud_gaming",
	"GPU Reset": "gpu_reset", "Node Reboot": "node_reboot",
}

// identity makes what tells this GPU from others. What is replaced keeps the relations: what was equal stays equal.
func (m *maker) identity(id profiles.BusID) {
	keep := m.options.KeepIdentifiers
	if l, ok := m.take("uuid"); ok && keep {
		var u profiles.UUID
		if err := u.UnmarshalText([]byte(l.value)); err != nil {
			m.note(l.line, "another UUID in place of %s: %s", quoted(l.value), err)
		} else if first := m.same("uuid"); first < m.index {
			m.note(l.line, "another UUID in place of %s: it is that of GPU %d", quoted(l.value), first)
		} else {
			m.set("uuid", text(string(u)), l.line)
		}
	}
	if l, ok := m.take("serial"); ok {
		value := l.value
		if !keep {
			value = strconv.Itoa(1650000000001 + m.same("serial"))
		}
		m.set("serial", text(value), l.line)
	}
	if l, ok := m.take("minor_number"); ok {
		m.set("minor_number", num(l.value), l.line)
	} else if l.line > 0 {
		m.note(l.line, "the GPU has the minor number %d: a profile cannot say that there is none", m.index)
	}
	for _, id := range []struct{ element, key string }{{"pdi", "pdi"}, {"platformInfo/gpu_fabric_guid", "platform.gpu_fabric_guid"}} {
		l, ok := m.take(id.element)
		value, isHex := convert(l.value, "hex")
		switch {
		case !ok:
		case !isHex:
			m.note(l.line, "left out: %s: %s is no number", id.element, quoted(l.value))
		case !keep && strings.Trim(value, "0x") != "":
			m.set(id.key, num(fmt.Sprintf("0x%016x", uint64(0x100000000000)*uint64(1+m.same(id.element))+1)), l.line)
		default:
			m.set(id.key, num(value), l.line)
		}
	}
	if l, ok := m.take("platformInfo/chassis_serial_number"); ok {
		value := l.value
		if !keep {
			value = strconv.Itoa(1820000000001 + m.same(l.path))
		}
		m.set("platform.chassis_serial_number", text(value), l.line)
	}
	if l, ok := m.take("board_id"); ok {
		if n, isHex := convert(l.value, "hex"); !isHex {
			m.note(l.line, "left out: %s: %s is no number", l.path, quoted(l.value))
		} else if n != fmt.Sprintf("0x%08X", boardID(id)) {
			m.set("board_id", num(n), l.line)
		}
	}
}

// same is the number of the first GPU with the same value.
func (m *maker) same(element string) int {
	for i, g := range m.log.gpus {
		if g.value(element) == m.value(element) {
			return i
		}
	}
	return m.index
}

// memory makes what is used and reserved of the memories. nvidia-smi prints whole MiB, rounded down up to driver 535 and up
// since 550. Bytes are chosen of which either makes what was printed.
func (m *maker) memory() error {
	const mib = 1 << 20
	values := map[string]int64{}
	for _, element := range []string{
		"fb_memory_usage/total", "fb_memory_usage/reserved", "fb_memory_usage/used", "fb_memory_usage/free",
		"bar1_memory_usage/total", "bar1_memory_usage/used", "bar1_memory_usage/free",
		"cc_protected_memory_usage/total", "cc_protected_memory_usage/used", "cc_protected_memory_usage/free",
	} {
		l, ok := m.find(element)
		if !ok || isAbsent(l.value) || fails(l.value) || redacted.MatchString(l.value) {
			continue
		}
		bytes, isSize := convert(l.value, "MiB")
		n, err := strconv.ParseInt(bytes, 10, 64)
		if !isSize || err != nil {
			return m.bad(l, wants["MiB"])
		}
		values[element] = n
	}
	put := func(key, element string, change int64) {
		l, _ := m.take(element)
		if n, ok := values[element]; ok {
			m.set(key, num(strconv.FormatInt(max(n+change, 0), 10)), l.line)
		}
	}
	if total, ok := values["fb_memory_usage/total"]; ok {
		used, reserved, free := values["fb_memory_usage/used"], values["fb_memory_usage/reserved"], values["fb_memory_usage/free"]
		l, _ := m.find("fb_memory_usage/total")
		_, hasFree := values["fb_memory_usage/free"]
		over := used + reserved + free - total
		if hasFree && (over < -2*mib || over > 2*mib) {
			return m.wrong(l.line, "fb_memory_usage: %d MiB used, %d reserved and %d free are not the total of %d", used/mib, reserved/mib, free/mib, total/mib)
		}
		ofReserved, ofUsed := -over/2, -over/4 // the rest is of what is free
		switch {
		case !hasFree:
			ofReserved, ofUsed = 0, 0
		case over == 2*mib || over == -2*mib:
			ofReserved, ofUsed = -over/3, -over/3
		case over > 0 && used == 0:
			ofUsed = 0
		}
		put("memory.reserved_bytes", "fb_memory_usage/reserved", ofReserved)
		put("memory.used_bytes", "fb_memory_usage/used", ofUsed)
		m.done["fb_memory_usage/free"] = true
	}
	for _, key := range []string{"bar1_memory", "cc_protected_memory"} {
		section := key + "_usage"
		total, ok := values[section+"/total"]
		if !ok {
			continue
		}
		if used, free := values[section+"/used"], values[section+"/free"]; used+free == total+mib {
			put(key+".used_bytes", section+"/used", -mib/2)
			m.done[section+"/free"] = true
		} else {
			put(key+".used_bytes", section+"/used", 0)
			if m.done[section+"/free"] = true; used+free != total {
				put(key+".free_bytes", section+"/free", 0)
			}
		}
	}
	for _, element := range []string{"fb_memory_usage", "bar1_memory_usage", "cc_protected_memory_usage"} {
		for _, part := range []string{"/used", "/free", "/reserved"} {
			m.take(element + part)
		}
	}
	return nil
}

// health makes values about errors and power that want more than the table.
func (m *maker) health() error {
	for _, span := range []string{"volatile", "aggregate"} {
		l, ok := m.take("ecc_errors/" + span + "/sram_correctable")
		if !ok {
			continue
		}
		n, isNumber := convert(l.value, "count")
		if !isNumber {
			return m.bad(l, wants["count"])
		}
		key := "ecc.errors." + span + ".single_bit.sram"
		if _, parts := m.find("ecc_errors/" + span + "/sram_uncorrectable_parity"); parts {
			key = "ecc.sram." + span + ".correctable"
		}
		m.set(key, num(n), l.line)
		if all, ok := m.find("ecc_errors/" + span + "/sram_uncorrectable"); ok && all.value == "0" && m.partsOfSRAM() {
			m.set("ecc.sram."+span+".correctable", num(n), l.line) // later versions of the same driver print these in their place
			m.set("ecc.sram."+span+".uncorrectable_parity", num("0"), all.line)
			m.set("ecc.sram."+span+".uncorrectable_secded", num("0"), all.line)
			m.settings = slices.DeleteFunc(m.settings, func(s setting) bool { return s.Key == key })
			m.done[all.path] = true
		}
	}
	if l, ok := m.take("inforom_bbx_flush/latest_timestamp"); ok {
		us, isTime := moment(l.value)
		if !isTime {
			return m.bad(l, "a time such as 2026/08/20 23:33:00.497")
		}
		m.set("inforom.bbx_flush_timestamp_us", num(us), l.line)
	}
	for _, to := range []string{"inbound", "outbound"} {
		l, ok := m.take("pci/atomic_caps_" + to)
		if !ok {
			continue
		}
		bits, known := atomicBits(l.value)
		if !known {
			return m.bad(l, "names of atomics")
		}
		m.set("pcie.atomic_caps_"+to, num(bits), l.line)
	}
	l, _ := m.find("power_smoothing")
	m.done["power_smoothing"] = true
	switch {
	case isAbsent(l.value):
	case l.value == "Insufficient Permissions":
		m.set("power.smoothing", text("no_permission"), l.line)
	case l.value == "Enabled" || l.value == "Disabled":
		m.set("power.smoothing", text(strings.ToLower(l.value)), l.line)
	default:
		m.note(l.line, "not understood: %s: %s", l.path, quoted(l.value))
	}
	if l, ok := m.find("gpu_part_number"); ok {
		if _, newer := m.find("board_part_number"); !newer && !isAbsent(l.value) && !redacted.MatchString(l.value) {
			m.done[l.path] = true // before 525, -q prints the board's under that name
			m.set("board_part_number", text(l.value), l.line)
		}
	}
	if l, ok := m.take("gsp_firmware_version"); ok {
		m.set("gsp_firmware.mode", text("enabled"), l.line)
		m.set("gsp_firmware.version", text(l.value), l.line)
	}
	if l, ok := m.take("power_readings/power_management"); ok && l.value != "Supported" {
		return m.bad(l, "Supported or N/A")
	}
	return nil
}

// partsOfSRAM says whether the GPU counts parity errors and others of its SRAM apart.
func (m *maker) partsOfSRAM() bool {
	switch m.value("product_architecture") {
	case "Ampere", "Ada Lovelace", "Hopper", "Blackwell":
		return true
	}
	return false
}

// fabric makes the GPU's place in a fabric.
func (m *maker) fabric() error {
	health := []string{"summary", "bandwidth", "route_recovery_in_progress", "route_unhealthy", "access_timeout_recovery", "incorrect_configuration"}
	state, ok := m.find("fabric/state")
	l, hasUUID := m.take("fabric/clusterUuid")
	if !ok || isAbsent(state.value) {
		for _, h := range health {
			m.take("fabric/health/" + h)
		}
		return nil
	}
	if hasUUID {
		value := l.value
		if !m.options.KeepIdentifiers && strings.Trim(value, "0-") != "" {
			value = fmt.Sprintf("00000000-0000-8000-8000-%012x", 1+m.same(l.path))
		}
		m.set("fabric.cluster_uuid", text(value), l.line)
	}
	if b, ok := m.take("fabric/health/bandwidth"); ok {
		if b.value != "Full" && b.value != "Degraded" {
			return m.bad(b, "Full or Degraded")
		}
		m.set("fabric.health.degraded_bandwidth", num(strconv.FormatBool(b.value == "Degraded")), b.line)
	}
	some := false
	for _, h := range health {
		some = some || !isAbsent(m.value("fabric/health/"+h))
	}
	if c, ok := m.find("fabric/health/incorrect_configuration"); ok {
		m.done[c.path] = true
		switch {
		case c.value == "None":
			m.set("fabric.health.incorrect_configuration", text("none"), c.line)
		case isAbsent(c.value) && some:
			m.set("fabric.health.incorrect_configuration", text("not_supported"), c.line)
		case !isAbsent(c.value):
			m.set("fabric.health.incorrect_configuration", text(c.value), c.line)
		}
	}
	if s, ok := m.find("fabric/health/summary"); ok && isAbsent(s.value) {
		m.done[s.path] = true
		m.set("fabric.health_summary", text("not_supported"), s.line)
		if !some {
			m.set("fabric.health_mask", num("0"), s.line)
		}
	}
	return nil
}

// order puts the settings in the order of the table; what it does not have comes where its section is.
func (m *maker) order() error {
	place := map[string]int{}
	for i, rule := range rules {
		if _, ok := place[rule.key]; !ok {
			place[rule.key] = i
		}
		place[section(rule.key)] = i // the last one
	}
	at := func(s setting) int {
		if i, ok := place[s.Key]; ok {
			return i
		}
		if i, ok := place[section(s.Key)]; ok {
			return i
		}
		return len(rules)
	}
	slices.SortStableFunc(m.settings, func(a, b setting) int { return at(a) - at(b) })
	var unique []setting
	for _, s := range m.settings {
		if i := slices.IndexFunc(unique, func(u setting) bool { return u.Key == s.Key }); i >= 0 {
			unique[i] = s
			continue
		}
		unique = append(unique, s)
	}
	m.settings = unique
	return nil
}
