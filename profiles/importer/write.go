package importer

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nvmlfab/nvmlfab/profiles"
	"gopkg.in/yaml.v3"
)

// setting is a key of a GPU and its value.
type setting struct {
	key   string
	value *yaml.Node
	line  int
}

// text is a value that is text, num one that is a number, true or false.
func text(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }
func num(s string) *yaml.Node  { return &yaml.Node{Kind: yaml.ScalarNode, Value: s} }

// list is a list on one line.
func list(nodes ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle, Content: nodes}
}

// pairs is a mapping on one line, of keys and values in turn.
func pairs(content ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	for _, c := range content {
		switch c := c.(type) {
		case string:
			n.Content = append(n.Content, text(c))
		case *yaml.Node:
			n.Content = append(n.Content, c)
		}
	}
	return n
}

// maker makes the settings of one GPU.
type maker struct {
	*reader
	*gpu
	index    int
	settings []setting
	done     map[string]bool // elements
}

func (m *maker) set(key string, value *yaml.Node, line int) {
	m.settings = append(m.settings, setting{key, value, line})
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
	return slices.ContainsFunc(m.settings, func(s setting) bool { return s.key == key })
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
	for element, key := range map[string]string{"pdi": "pdi", "platformInfo/gpu_fabric_guid": "platform.gpu_fabric_guid"} {
		l, ok := m.take(element)
		value, isHex := convert(l.value, "hex")
		switch {
		case !ok:
		case !isHex:
			m.note(l.line, "left out: %s: %s is no number", element, quoted(l.value))
		case !keep && strings.Trim(value, "0x") != "":
			m.set(key, num(fmt.Sprintf("0x%016x", uint64(0x100000000000)*uint64(1+m.same(element))+1)), l.line)
		default:
			m.set(key, num(value), l.line)
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
	for section, key := range map[string]string{"bar1_memory_usage": "bar1_memory", "cc_protected_memory_usage": "cc_protected_memory"} {
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
			m.settings = slices.DeleteFunc(m.settings, func(s setting) bool { return s.key == key })
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

// lists makes the values that are lists.
func (m *maker) lists() error {
	if err := m.listProcesses(); err != nil {
		return err
	}
	if len(m.accounted) > 0 {
		m.note(m.accounted[0].line, "left out: processes that have ended")
	}
	addresses := map[string][]*yaml.Node{}
	for _, a := range m.addresses {
		if _, err := strconv.ParseUint(a.value, 0, 64); err != nil {
			return m.bad(a, "an address")
		}
		addresses[a.path] = append(addresses[a.path], num(a.value))
	}
	for _, cause := range []string{"multiple_single_bit", "double_bit"} {
		element := "retired_pages/" + cause + "_retirement/retired_pagelist/retired_page_address"
		if nodes := addresses[element]; nodes != nil {
			key := "retired_pages." + strings.TrimPrefix(cause, "multiple_") + "_retirement.addresses"
			m.set(key, list(nodes...), m.id.line)
		}
	}
	return m.listClocks()
}

func (m *maker) listProcesses() error {
	var nodes []*yaml.Node
	line := 0
	for _, p := range m.processes {
		var content []any
		pid := leaf{}
		for _, l := range p {
			if isAbsent(l.value) || fails(l.value) && l.path != "process_name" {
				continue
			}
			switch l.path {
			case "pid":
				n, ok := convert(l.value, "count")
				if v, err := strconv.ParseUint(n, 10, 32); !ok || err != nil || v == 0 {
					return m.bad(l, "the number of a process")
				}
				pid = l
				content = append([]any{"pid", num(n)}, content...)
			case "type":
				if l.value != "C" && l.value != "G" && l.value != "C+G" {
					m.note(l.line, "left out: a process is of type %s", quoted(l.value))
					continue
				}
				content = append(content, "type", text(l.value))
			case "process_name":
				name := l.value
				if !m.options.KeepIdentifiers {
					name = path.Base(strings.ReplaceAll(name, `\`, "/"))
				}
				content = append(content, "name", text(name))
			case "used_memory":
				n, ok := convert(l.value, "MiB")
				bytes, err := strconv.ParseUint(n, 10, 64)
				if !ok || err != nil {
					return m.bad(l, wants["MiB"])
				}
				content = append(content, "used_memory_mib", num(strconv.FormatUint(bytes>>20, 10)))
			case "gpu_instance_id", "compute_instance_id":
				n, ok := convert(l.value, "count")
				if !ok {
					return m.bad(l, wants["count"])
				}
				content = append(content, l.path, num(n))
			default:
				m.note(l.line, "not understood: a process: %s: %s", l.path, quoted(l.value))
			}
		}
		switch {
		case pid.line > 0:
			nodes = append(nodes, pairs(content...))
			line = max(line, pid.line)
		case len(p) > 0 && len(content) > 0:
			return m.wrong(p[0].line, "a process has no number")
		}
	}
	if len(nodes) > 0 {
		m.set("processes", &yaml.Node{Kind: yaml.SequenceNode, Content: nodes}, line)
	}
	return nil
}

// listClocks makes the supported clocks, of -q -x or of --query-supported-clocks.
func (m *maker) listClocks() error {
	clocks := m.supported
	var of *clockList
	for i := range m.reader.clocks {
		if c := &m.reader.clocks[i]; c.busID == strings.ToUpper(m.id.value) || c.busID == "" && (len(m.reader.clocks) == 1 || i == m.index) {
			of = c
			break
		}
	}
	if len(clocks) == 0 && of != nil {
		for _, row := range of.rows {
			if len(clocks) == 0 || clocks[len(clocks)-1].memory.value != row.memory {
				clocks = append(clocks, memoryClock{memory: leaf{"memory", row.memory, row.line}})
			}
			last := &clocks[len(clocks)-1]
			last.graphics = append(last.graphics, leaf{"graphics", row.graphics, row.line})
		}
	}
	var nodes []*yaml.Node
	for _, c := range clocks {
		memory, ok := convert(c.memory.value, "MHz")
		if !ok {
			return m.bad(c.memory, wants["MHz"])
		}
		var steps []uint32
		for _, g := range c.graphics {
			if isAbsent(g.value) || fails(g.value) {
				continue
			}
			n, ok := convert(g.value, "MHz")
			v, err := strconv.ParseUint(n, 10, 32)
			if !ok || err != nil {
				return m.bad(g, wants["MHz"])
			}
			steps = append(steps, uint32(v))
		}
		if len(steps) == 0 {
			m.note(c.memory.line, "left out: a memory clock of %s without graphics clocks", quoted(c.memory.value))
			continue
		}
		nodes = append(nodes, pairs("freq_mhz", num(memory), "graphics_clocks", stepped(steps)))
	}
	if len(nodes) > 0 {
		m.set("supported_clocks.memory_clocks", &yaml.Node{Kind: yaml.SequenceNode, Content: nodes}, clocks[0].memory.line)
	}
	return nil
}

// stepped writes clocks as highest..lowest/step, or as a list if they are not of equal steps.
func stepped(clocks []uint32) *yaml.Node {
	if n := len(clocks); n > 2 {
		for _, half := range []float64{0, 0.5} {
			high := float64(clocks[0]) + half
			for _, low := range []float64{float64(clocks[n-1]), float64(clocks[n-1]) + 0.5} {
				step := (high - low) / float64(n-1)
				if step <= 0 || step*2 != float64(int(step*2)) {
					continue
				}
				var all profiles.ClockSteps
				short := fmt.Sprintf("%v..%v/%v", high, low, step)
				if all.UnmarshalText([]byte(short)) == nil && slices.Equal(all, clocks) {
					return text(short)
				}
			}
		}
	}
	var nodes []*yaml.Node
	for _, c := range clocks {
		nodes = append(nodes, num(strconv.FormatUint(uint64(c), 10)))
	}
	return list(nodes...)
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
		if i, ok := place[s.key]; ok {
			return i
		}
		if i, ok := place[section(s.key)]; ok {
			return i
		}
		return len(rules)
	}
	slices.SortStableFunc(m.settings, func(a, b setting) int { return at(a) - at(b) })
	var unique []setting
	for _, s := range m.settings {
		if i := slices.IndexFunc(unique, func(u setting) bool { return u.key == s.key }); i >= 0 {
			unique[i] = s
			continue
		}
		unique = append(unique, s)
	}
	m.settings = unique
	return nil
}

func section(key string) string {
	name, _, _ := strings.Cut(key, ".")
	return name
}

// ofOne are the keys that are never in device_defaults.
var ofOne = []string{"uuid", "serial", "pdi", "minor_number", "pci.bus_id", "platform.gpu_fabric_guid"}

// write writes the profile.
func (r *reader) write() ([]byte, error) {
	r.file = r.log.file
	all, err := r.made()
	if err != nil {
		return nil, err
	}
	r.chip(all)
	table := r.mig(all)
	common := map[string]bool{}
	for _, s := range all[0] {
		common[s.key] = !slices.Contains(ofOne, s.key)
		for _, other := range all[1:] {
			i := slices.IndexFunc(other, func(o setting) bool { return o.key == s.key })
			common[s.key] = common[s.key] && i >= 0 && equal(s.value, other[i].value)
		}
	}
	root := &yaml.Node{Kind: yaml.MappingNode}
	if v, ok := versionOf(r.log.driver.value); ok {
		put(root, "system.driver_version", text(v))
	} else if !isAbsent(r.log.driver.value) {
		return nil, r.wrong(r.log.driver.line, "driver_version is %s: want numbers between dots", quoted(r.log.driver.value))
	}
	if v := r.log.cuda.value; !isAbsent(v) && !fails(v) {
		if _, ok := versionOf(v); !ok {
			return nil, r.wrong(r.log.cuda.line, "cuda_version is %s: want numbers between dots", quoted(v))
		}
		put(root, "system.cuda_version", &yaml.Node{Kind: yaml.ScalarNode, Style: yaml.DoubleQuotedStyle, Value: v})
	}
	defaults, devices := &yaml.Node{Kind: yaml.MappingNode}, &yaml.Node{Kind: yaml.SequenceNode}
	for _, s := range all[0] {
		if common[s.key] {
			put(defaults, s.key, s.value)
		}
	}
	for i, settings := range all {
		device := &yaml.Node{Kind: yaml.MappingNode}
		put(device, "index", num(strconv.Itoa(i)))
		for _, s := range settings {
			if !common[s.key] {
				put(device, s.key, s.value)
			}
		}
		devices.Content = append(devices.Content, device)
	}
	put(root, "device_defaults", defaults)
	put(root, "devices", devices)
	if table != nil {
		put(root, "mig.gpu_instance_profiles", table)
	}
	if err := r.neighbours(root, all); err != nil {
		return nil, err
	}
	var w bytes.Buffer
	fmt.Fprintf(&w, "# Made by nvmlfab profiles import of what nvidia-smi printed on one machine.\n")
	if !r.options.KeepIdentifiers {
		fmt.Fprintf(&w, "# UUIDs, serial numbers and other identifiers are replaced by made-up ones.\n")
	}
	fmt.Fprintln(&w)
	enc := yaml.NewEncoder(&w)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return nil, r.wrong(r.log.line, "%s", err)
	}
	if _, err := profiles.Parse("profile", w.Bytes()); err != nil {
		return nil, r.blame(err, all)
	}
	return w.Bytes(), nil
}

// blame finds the line of the value because of which the profile is not valid.
func (r *reader) blame(err error, all [][]setting) error {
	text := err.Error()
	if e := (*profiles.Error)(nil); errors.As(err, &e) {
		text = e.Text
	}
	for i, settings := range all {
		for _, s := range settings {
			if s.key == "mig.instances" {
				if strings.Contains(text, ".mig.instances") {
					return r.wrong(s.line, "GPU %d: the MIG devices cannot be made: %s", i, text)
				}
				continue
			}
			one, device := &yaml.Node{Kind: yaml.MappingNode}, &yaml.Node{Kind: yaml.MappingNode}
			put(device, s.key, s.value)
			put(one, "devices", &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{device}})
			data, merr := yaml.Marshal(one)
			if merr != nil {
				return r.wrong(s.line, "%s", merr)
			}
			if _, err := profiles.Parse("profile", data); err != nil {
				if e := (*profiles.Error)(nil); errors.As(err, &e) {
					return r.wrong(s.line, "GPU %d: %s", i, strings.TrimPrefix(e.Text, "devices[0]."))
				}
			}
		}
	}
	return r.wrong(r.log.line, "%s", text)
}

func versionOf(value string) (string, bool) {
	ok := value != "" && strings.Trim(value, "0123456789.") == "" && !strings.Contains("."+value+".", "..")
	return value, ok
}

// put puts a value at a key with dots.
func put(n *yaml.Node, key string, value *yaml.Node) {
	name, rest, deeper := strings.Cut(key, ".")
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			if deeper {
				put(n.Content[i+1], rest, value)
			} else {
				n.Content[i+1] = value
			}
			return
		}
	}
	child := value
	if deeper {
		child = &yaml.Node{Kind: yaml.MappingNode}
		put(child, rest, value)
	}
	n.Content = append(n.Content, text(name), child)
}

func equal(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || a.Value != b.Value || len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		if !equal(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return true
}

// chip adds what nvidia-smi does not print and a shipped board with the same chip has.
func (r *reader) chip(all [][]setting) {
	for i, settings := range all {
		r.generation(i, settings, all)
		at := slices.IndexFunc(settings, func(s setting) bool { return s.key == "pci.device_id" })
		if at < 0 {
			continue
		}
		settings = all[i]
		id, err := strconv.ParseUint(settings[at].value.Value, 0, 32)
		if err != nil {
			continue
		}
		like, name := known(uint32(id))
		if like == nil {
			if i == 0 {
				r.note(settings[at].line, "no shipped board has this chip: give compute_capability, multiprocessor_count and num_gpu_cores, which -q does not print")
			}
			continue
		}
		line := settings[at].line
		for _, v := range []struct {
			key   string
			value profiles.Opt[uint32]
		}{
			{"compute_capability.major", like.ComputeCapability.Major}, {"compute_capability.minor", like.ComputeCapability.Minor},
			{"multiprocessor_count", like.MultiprocessorCount}, {"num_gpu_cores", like.NumGPUCores},
			{"memory.memory_bus_width", like.Memory.MemoryBusWidth},
		} {
			if n, ok := v.value.Get(); ok {
				node := num(strconv.FormatUint(uint64(n), 10))
				node.LineComment = "# not printed; of the shipped board " + name
				all[i] = append(all[i], setting{v.key, node, line})
			}
		}
	}
}

// generation adds the chip's generation, which -q prints from driver 510 on, by the range of its PCI device id.
func (r *reader) generation(i int, settings []setting, all [][]setting) {
	at := slices.IndexFunc(settings, func(s setting) bool { return s.key == "pci.device_id" })
	if at < 0 || slices.ContainsFunc(settings, func(s setting) bool { return s.key == "architecture" }) {
		return
	}
	id, err := strconv.ParseUint(settings[at].value.Value, 0, 32)
	if err != nil {
		return
	}
	for _, g := range generationRanges {
		if device := id >> 16; g.first <= device && device <= g.last {
			node := text(g.name)
			node.LineComment = "# not printed; by the range of the PCI device id"
			all[i] = append(slices.Clone(settings), setting{"architecture", node, settings[at].line})
			return
		}
	}
}

// generationRanges are PCI device ids by generation, as the PCI ID repository lists them.
var generationRanges = []struct {
	first, last uint64
	name        string
}{
	{0x0fc0, 0x103f, "kepler"}, {0x1180, 0x12ff, "kepler"}, {0x1340, 0x13ff, "maxwell"}, {0x1401, 0x1436, "maxwell"},
	{0x15f0, 0x15ff, "pascal"}, {0x1b00, 0x1d7f, "pascal"}, {0x1d80, 0x1dff, "volta"}, {0x1e00, 0x1fff, "turing"},
	{0x2180, 0x21ff, "turing"}, {0x2080, 0x20ff, "ampere"}, {0x2200, 0x22ff, "ampere"}, {0x2400, 0x25ff, "ampere"},
	{0x2600, 0x28ff, "ada"}, {0x2300, 0x23ff, "hopper"}, {0x2900, 0x31ff, "blackwell"},
}

// known is the first GPU of the shipped board with a chip, and the board's name.
func known(id uint32) (*profiles.Device, string) {
	for _, b := range shipped() {
		if b.Devices[0].PCI.DeviceID.Value == id {
			return &b.Devices[0], b.Name
		}
	}
	return nil, ""
}

// shipped are the shipped boards.
var shipped = sync.OnceValue(func() (all []*profiles.Board) {
	for _, name := range profiles.Names() {
		if b, err := profiles.Shipped(name); err == nil {
			all = append(all, b)
		}
	}
	return all
})
