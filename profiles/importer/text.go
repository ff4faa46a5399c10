package importer

import (
	"regexp"
	"strings"
)

var (
	banner = regexp.MustCompile(`^=+ ?NVSMI LOG ?=+$`)
	escape = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)
	// ornament is what people and programs put around a piece of output: lines, fences, comments and the command.
	ornament = regexp.MustCompile("^(?:[\\s#=*`~.-]*(?:```\\s?\\w*)?|#.*|.*[#$>%] (?:sudo )?nvidia-smi\\b.*)$")
	gpuLine  = regexp.MustCompile(`^GPU ((?:[0-9A-Fa-f]{4}|[0-9A-Fa-f]{8}):[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])$`)
	topLine  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9 -]*?\s*: `)
)

// open is a name whose lines are being read.
type open struct {
	indent int
	name   string
}

// text reads the output of nvidia-smi -q. It ends where a line is not of it.
func (r *reader) text(lines []string, at int) (next int, err error) {
	base := indent(lines[at])
	l := &log{file: r.file, line: at + 1}
	p := textReader{reader: r, log: l, base: base}
	i := at + 1
	for ; i < len(lines); i++ {
		if strings.TrimSpace(lines[i]) == "" {
			continue
		}
		of, err := p.line(lines[i], i+1)
		if err != nil {
			return 0, err
		}
		if !of {
			break
		}
	}
	for next = i; next > at && strings.TrimSpace(lines[next-1]) == ""; next-- {
	}
	for _, g := range l.gpus {
		if !p.whole[g] {
			return 0, r.wrong(next, "the output is cut off: GPU %s has no line about its processes", quoted(g.id.value))
		}
	}
	return next, r.keep(l)
}

type textReader struct {
	*reader
	log   *log
	base  int // the indentation of the whole output
	gpu   *gpu
	open  []open
	whole map[*gpu]bool
}

func indent(line string) (n int) {
	for _, c := range line {
		switch c {
		case ' ':
			n++
		case '\t':
			n += 4
		default:
			return n
		}
	}
	return n
}

// line reads a line, unless it is not of the output.
func (p *textReader) line(line string, number int) (of bool, err error) {
	depth := indent(line) - p.base
	name, value, hasValue := strings.Cut(strings.TrimSpace(line), " : ")
	if !hasValue {
		name, value, hasValue = strings.Cut(strings.TrimSpace(line), ": ")
	}
	if !hasValue {
		name, hasValue = strings.CutSuffix(strings.TrimSpace(line), ":")
	}
	name, value = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(name), " :")), strings.TrimSpace(value)
	if m := gpuLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
		if len(p.log.gpus) == maxGPUs {
			return false, p.wrong(number, "there are more than %d GPUs", maxGPUs)
		}
		p.base = indent(line)
		p.gpu, p.open = &gpu{id: leaf{"id", m[1], number}}, nil
		p.log.gpus = append(p.log.gpus, p.gpu)
		return true, nil
	}
	if depth <= 0 {
		p.gpu, p.open = nil, nil
		if len(p.log.gpus) > 0 || !topLine.MatchString(strings.TrimSpace(line)+" ") && !labels.sections[plain(name)] {
			return false, nil
		}
	}
	if p.gpu != nil && p.whole[p.gpu] && !hasValue && !labels.sections[plain(name)] {
		return false, nil // the last sections are over, and this is no further one
	}
	for len(p.open) > 0 && p.open[len(p.open)-1].indent >= depth {
		p.open = p.open[:len(p.open)-1]
	}
	if len(p.open) == maxDepth {
		return false, p.wrong(number, "the lines are nested more than %d deep", maxDepth)
	}
	p.open = append(p.open, open{depth, plain(name)})
	names := make([]string, len(p.open))
	for i, o := range p.open {
		names[i] = o.name
	}
	path := strings.Join(names, "/")
	if p.gpu == nil {
		if hasValue {
			v := leaf{strings.ReplaceAll(path, " ", "_"), value, number}
			p.topValue(p.log, v)
		}
		return true, nil
	}
	return true, p.value(path, leaf{"", value, number}, hasValue)
}

// value takes a line of a GPU.
func (p *textReader) value(path string, l leaf, hasValue bool) error {
	g := p.gpu
	if p.whole == nil {
		p.whole = map[*gpu]bool{}
	}
	switch section, below, _ := strings.Cut(path, "/"); section {
	case "mig device":
		if below == "" {
			g.instances = append(g.instances, nil)
			return nil
		}
		if to, ok := labels.instance[below]; ok && hasValue {
			last := &g.instances[len(g.instances)-1]
			*last = append(*last, leaf{to, l.value, l.line})
		} else if hasValue {
			p.note(l.line, "not understood: %s: %s", below, quoted(l.value))
		}
		return nil
	case "processes", "compute processes":
		p.whole[g] = true
		return p.process(below, l, hasValue)
	case "accounted processes":
		if below != "" && hasValue {
			l.path = below
			g.accounted = append(g.accounted, l)
		}
		return nil
	}
	if to, ok := labels.leaves[path]; ok && hasValue {
		l.path = current(to)
		g.add(l)
		return nil
	}
	if labels.sections[path] {
		switch {
		case !hasValue:
		case isAbsent(l.value): // of the section as a whole
		default:
			p.note(l.line, "not understood: %s: %s", path, quoted(l.value))
		}
		return nil
	}
	p.note(l.line, "not understood: %s: %s", quoted(path), quoted(l.value))
	return nil
}

// process takes a line about processes. A process begins with the number of its GPU instance or, in older versions, with
// its own.
func (p *textReader) process(path string, l leaf, hasValue bool) error {
	g := p.gpu
	begin := func() { g.processes = append(g.processes, nil) }
	last := func() *[]leaf {
		if len(g.processes) == 0 {
			begin()
		}
		return &g.processes[len(g.processes)-1]
	}
	has := func(name string) bool {
		for _, have := range *last() {
			if have.path == name {
				return true
			}
		}
		return false
	}
	switch path {
	case "":
		if hasValue && !isAbsent(l.value) && l.value != "" {
			p.note(l.line, "not understood: processes: %s", quoted(l.value))
		}
		return nil
	case "gpu instance id":
		begin()
		l.path = "gpu_instance_id"
	case "compute instance id":
		l.path = "compute_instance_id"
	case "process id":
		if has("pid") {
			begin()
		}
		l.path = "pid"
	case "process id/type":
		l.path = "type"
	case "process id/name":
		l.path = "process_name"
	case "process id/used gpu memory":
		l.path = "used_memory"
	default:
		p.note(l.line, "not understood: %s: %s", quoted(path), quoted(l.value))
		return nil
	}
	*last() = append(*last(), l)
	return nil
}

// plain is a name without the differences between versions in capital letters and blanks.
func plain(name string) string { return strings.ToLower(strings.Join(strings.Fields(name), " ")) }

// current is a path by the newest name of its parts.
func current(path string) string { return renamed.Replace(path) }

var renamed = strings.NewReplacer(
	"clocks_throttle_reasons/clocks_throttle_reason_", "clocks_event_reasons/clocks_event_reason_",
	"fabric/health/route_recovery_in_progress", "fabric/health/route_recovery_in_progress",
)
