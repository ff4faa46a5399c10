package importer

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/nvmlfab/nvmlfab/profiles"
	"gopkg.in/yaml.v3"
)

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
