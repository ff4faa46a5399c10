package importer

import (
	"regexp"
	"strconv"
	"strings"
)

var (
	topoHeader  = regexp.MustCompile(`^GPU0\s+(?:GPU1\b|CPU Affinity|NIC0\b|mlx)`)
	topoCell    = regexp.MustCompile(`^(?:X|NV[0-9]{1,3}|PIX|PXB|PHB|NODE|SYS|PIXB?|SOC|N/A)$`)
	topoName    = regexp.MustCompile(`^(?:GPU([0-9]{1,4})|NIC[0-9]{1,4}|mlx\S{1,40})$`)
	topoRow     = regexp.MustCompile(`^(?:GPU[0-9]{1,4}|NIC[0-9]{1,4}|mlx\S{1,40})\s+\S`)
	legend      = regexp.MustCompile(`^(?:Legend:|NIC Legend:|(?:X|SYS|NODE|PHB|PXB|PIX|NV#)\s+= .*|NIC[0-9]+: .*)$`)
	cpuList     = regexp.MustCompile(`^[0-9]{1,5}(?:-[0-9]{1,5})?(?:,[0-9]{1,5}(?:-[0-9]{1,5})?)*$`)
	linkHeader  = regexp.MustCompile(`^GPU ([0-9]{1,4}): .+ \(UUID: \S+\)$`)
	linkLine    = regexp.MustCompile(`^Link ([0-9]{1,2}): (?:([0-9]{1,4}(?:\.[0-9]{1,4})?) GB/s|<inactive>)$`)
	linkNothing = regexp.MustCompile(`^(?:Nvlink queries are not supported.*|NVML: Unable to retrieve .*|Device does not have or support Nvlink|N/A|MIG \S+\s+Device\s+[0-9]{1,2}: \(UUID: \S+\))$`)
	clockHeader = regexp.MustCompile(`^(?:.*, )?(?:memory \[MHz\], graphics \[MHz\]|graphics \[MHz\], memory \[MHz\])(?:, .*)?$`)
)

// topo is what topo -m printed.
type topo struct {
	file string
	line int
	rows map[int]topoLine // by the number of the GPU
}

type topoLine struct {
	line  int
	level map[int]string // of the path to another GPU
	cpus  string
	numa  string
}

// matrix reads the output of topo -m.
func (r *reader) matrix(lines []string, at int) (next int, err error) {
	var columns []string
	header := strings.TrimSpace(lines[at])
	if cut := strings.Index(header, "CPU Affinity"); cut >= 0 {
		header = header[:cut]
	}
	for _, name := range strings.Fields(header) {
		if !topoName.MatchString(name) {
			return 0, r.wrong(at+1, "topo -m: %s is neither a GPU nor a network adapter", quoted(name))
		}
		columns = append(columns, name)
	}
	t := &topo{r.file, at + 1, map[int]topoLine{}}
	i := at + 1
	for ; i < len(lines) && topoRow.MatchString(strings.TrimSpace(lines[i])); i++ {
		cells := strings.Fields(lines[i])
		m := topoName.FindStringSubmatch(cells[0])
		cells = cells[1:]
		if len(cells) < len(columns) {
			return 0, r.wrong(i+1, "topo -m: the row has %d of %d columns: is it cut?", len(cells), len(columns))
		}
		row := topoLine{line: i + 1, level: map[int]string{}}
		for c, column := range columns {
			if !topoCell.MatchString(cells[c]) {
				return 0, r.wrong(i+1, "topo -m: %s is no connection", quoted(cells[c]))
			}
			if to := topoName.FindStringSubmatch(column); to[1] != "" {
				n, _ := strconv.Atoi(to[1]) // the expression lets only numbers through
				row.level[n] = cells[c]
			}
		}
		rest := cells[len(columns):]
		if len(rest) > 0 && cpuList.MatchString(rest[0]) {
			row.cpus = rest[0]
		}
		if len(rest) > 1 && cpuList.MatchString(rest[1]) {
			row.numa = rest[1]
		}
		if m[1] != "" {
			n, _ := strconv.Atoi(m[1])
			if first, twice := t.rows[n]; twice {
				return 0, r.wrong(i+1, "topo -m: GPU%d has a row in line %d already", n, first.line)
			}
			t.rows[n] = row
		}
	}
	for j := range columns {
		if m := topoName.FindStringSubmatch(columns[j]); m[1] != "" {
			if n, _ := strconv.Atoi(m[1]); t.rows[n].level == nil {
				return 0, r.wrong(i, "topo -m: %s has no row: is the output cut?", columns[j])
			}
		}
	}
	for i < len(lines) && (legend.MatchString(strings.TrimSpace(lines[i])) || strings.TrimSpace(lines[i]) == "") {
		i++
	}
	if r.topo != nil {
		r.note(at+1, "a further output of topo -m: the profile is made of the one in %s:%d", r.topo.file, r.topo.line)
		return i, nil
	}
	r.topo = t
	return i, nil
}

// linkList is what nvlink -s printed about a GPU.
type linkList struct {
	file  string
	line  int
	gpu   int
	links []nvlink
}

// nvlink is one NVLink; speed is in MB/s, 0 for one that is not active.
type nvlink struct{ line, number, speed int }

// linkList reads what nvlink -s or -L printed about a GPU.
func (r *reader) linkList(lines []string, at int) (next int, err error) {
	n, _ := strconv.Atoi(linkHeader.FindStringSubmatch(strings.TrimSpace(lines[at]))[1])
	list := linkList{file: r.file, line: at + 1, gpu: n}
	i := at + 1
	for ; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if linkNothing.MatchString(line) {
			continue
		}
		m := linkLine.FindStringSubmatch(line)
		if m == nil {
			break
		}
		number, _ := strconv.Atoi(m[1])
		if number != len(list.links) {
			return 0, r.wrong(i+1, "nvlink -s: link %d follows link %d: is a part missing?", number, len(list.links)-1)
		}
		speed, _ := strconv.ParseFloat(m[2], 64) // empty for an inactive one
		list.links = append(list.links, nvlink{i + 1, number, int(speed*1000 + 0.5)})
	}
	if len(list.links) > 64 {
		return 0, r.wrong(at+1, "nvlink -s: GPU %d has %d links: want at most 64", n, len(list.links))
	}
	if len(list.links) > 0 {
		for _, l := range r.links {
			if l.gpu == n {
				r.note(at+1, "a further list of the NVLinks of GPU %d: the profile has the one in %s:%d", n, l.file, l.line)
				return i, nil
			}
		}
		r.links = append(r.links, list)
	}
	return i, nil
}

// clockList is what --query-supported-clocks printed, for one GPU or all.
type clockList struct {
	file  string
	line  int
	busID string
	rows  []clockRow
}

type clockRow struct {
	line             int
	memory, graphics string
}

// clockTable reads the output of --query-supported-clocks with --format=csv.
func (r *reader) clockTable(lines []string, at int) (next int, err error) {
	columns := strings.Split(lines[at], ",")
	memory, graphics, busID := -1, -1, -1
	for i, c := range columns {
		switch name := strings.TrimSpace(c); {
		case strings.HasPrefix(name, "memory ["):
			memory = i
		case strings.HasPrefix(name, "graphics ["):
			graphics = i
		case name == "gpu_bus_id":
			busID = i
		}
	}
	i := at + 1
	for ; i < len(lines); i++ {
		cells := strings.Split(lines[i], ",")
		if len(cells) != len(columns) {
			break
		}
		row := clockRow{i + 1, strings.TrimSpace(cells[memory]), strings.TrimSpace(cells[graphics])}
		for _, clock := range []string{row.memory, row.graphics} {
			if _, ok := convert(clock, "MHz"); !ok && !isAbsent(clock) {
				return 0, r.wrong(i+1, "--query-supported-clocks: %s is no clock: want a number and MHz", quoted(clock))
			}
		}
		if isAbsent(row.memory) || isAbsent(row.graphics) {
			continue
		}
		id := ""
		if busID >= 0 {
			id = strings.ToUpper(strings.TrimSpace(cells[busID]))
		}
		last := len(r.clocks) - 1
		if last < 0 || r.clocks[last].file != r.file || r.clocks[last].line < at+1 || r.clocks[last].busID != id || restarts(r.clocks[last].rows, row) {
			if len(r.clocks) == maxGPUs {
				return 0, r.wrong(i+1, "--query-supported-clocks: there are more than %d GPUs", maxGPUs)
			}
			r.clocks = append(r.clocks, clockList{r.file, i + 1, id, nil})
			last++
		}
		r.clocks[last].rows = append(r.clocks[last].rows, row)
	}
	if i == at+1 {
		return 0, r.wrong(at+1, "--query-supported-clocks: no clocks follow")
	}
	return i, nil
}

// restarts says whether a row begins another GPU's clocks: they fall from row to row.
func restarts(rows []clockRow, row clockRow) bool {
	if len(rows) == 0 {
		return false
	}
	last := rows[len(rows)-1]
	a, b := mhz(last.memory), mhz(row.memory)
	return b > a || b == a && mhz(row.graphics) >= mhz(last.graphics)
}

func mhz(value string) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(value, " MHz"))
	return n
}
