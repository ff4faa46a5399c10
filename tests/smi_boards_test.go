package tests

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSMIBoards runs the commands by which nvidia-smi reads a GPU, and compares the output with the board's profile.
func TestSMIBoards(t *testing.T) {
	checks := []struct {
		name  string
		check func(*testing.T, machine)
	}{
		{"list", checkList},
		{"summary", checkSummary},
		{"query", checkQuery},
		{"samples", checkSamples},
		{"xml", checkXML},
		{"query-gpu", checkQueryGPU},
		{"topology", checkTopology},
		{"p2p", checkP2P},
		{"nvlink status", checkLinkStatus},
		{"nvlink capabilities", checkLinkCapabilities},
		{"nvlink errors", checkLinkErrors},
		{"dmon", checkDmon},
		{"pmon", checkPmon},
		{"compute apps", checkComputeApps},
		{"supported clocks", checkSupportedClocks},
		{"selection", checkSelection},
	}
	forMachines(t, func(t *testing.T, m machine) {
		for _, c := range checks {
			t.Run(c.name, func(t *testing.T) { c.check(t, m) })
		}
	})
}

func checkList(t *testing.T, m machine) {
	var want []string
	for _, d := range m.board.Devices {
		want = append(want, fmt.Sprintf("GPU %d: %s (UUID: %s)", d.Index, d.Name.Value, d.UUID))
	}
	assert.Equal(t, want, m.run(t, "-L").succeeds(t).lines())
}

// A GPU takes three rows of the summary: index, name and bus id in the first; temperature, power, memory and load in the
// second; MIG in the third.
var summaryRows = regexp.MustCompile(`(?m)^\| +(\d+) +(\S.*?) +(On|Off) +\| +([0-9A-F:.]+) (On|Off) \| +(\S+) \|$\n` +
	`^\| *(\S+) +(\d+C) +(P\d+) +(\S+ / +\S+) \| +(\S+ / +\S+) \| +(\d+%) +(\S+) \|$\n` +
	`^\| +\| +\| +(\S+) \|$`)

func checkSummary(t *testing.T, m machine) {
	out := m.run(t).succeeds(t)
	assert.Regexp(t, fmt.Sprintf(`NVIDIA-SMI %d\.\S+ +Driver Version: %s +CUDA Version: %s `,
		m.driver, regexp.QuoteMeta(m.board.System.DriverVersion.Value), regexp.QuoteMeta(m.board.System.CUDAVersion.Value)), out.stdout)
	rows := summaryRows.FindAllStringSubmatch(out.stdout, -1)
	require.Len(t, rows, len(m.board.Devices), "%s", out.stdout)
	for i, d := range m.views() {
		for k, full := range []string{
			fmt.Sprint(i), d.Name.Value, choice(d.PersistenceMode, "On", "Off"), d.PCI.BusID.Value.String(),
			choice(d.Display.Active, "On", "Off"), "0",
			absent, shown(d.Thermal.TemperatureGPUC) + "C", shownAs("P%d", d.PerformanceState),
			fmt.Sprintf("%dW / %dW", d.Power.CurrentDrawMW.Value/1000, d.Power.EnforcedLimitMW.Value/1000),
			fmt.Sprintf("%sMiB / %sMiB", mib(d.used()), mib(d.Memory.TotalBytes.Value)),
			shown(d.Utilization.GPU) + "%", "Default", enabled(d.MIG.ModeCurrent),
		} {
			cell := strings.Join(strings.Fields(rows[i][k+1]), " ")
			if beginning, cut := strings.CutSuffix(cell, "..."); cut { // the column is too narrow
				full = full[:min(len(full), len(beginning))] + "..."
			}
			assert.Equal(t, full, cell)
		}
	}
	assert.Contains(t, out.stdout, "No running processes found")
}

func checkQuery(t *testing.T, m machine) {
	gpus := m.run(t, "-q").succeeds(t).sections()
	require.Len(t, gpus, len(m.board.Devices))
	for i, d := range m.views() {
		assert.Equal(t, d.PCI.BusID.Value.String(), gpus[i][""])
		for _, f := range figures {
			if f.text != "" && f.printed(d) {
				assert.Equal(t, f.with(f.unit, f.of(d)), gpus[i][f.text], "GPU %d: %s", i, f.text)
			}
		}
	}
}

// checkSamples reads the sections that -q prints only if they are selected.
func checkSamples(t *testing.T, m machine) {
	gpus := m.run(t, "-q", "-d", "POWER,UTILIZATION,CLOCK").succeeds(t).sections()
	require.Len(t, gpus, len(m.board.Devices))
	for i, d := range m.board.Devices {
		for section, want := range map[string]string{
			"Power Samples":           inWatts(d.Power.CurrentDrawMW) + " W",
			"GPU Utilization Samples": shown(d.Utilization.GPU) + " %",
			"SM Clock Samples":        shown(d.Clocks.SMCurrent) + " MHz",
			"Memory Clock Samples":    shown(d.Clocks.MemoryCurrent) + " MHz",
		} {
			for _, name := range []string{"Max", "Min", "Avg"} {
				assert.Equal(t, want, gpus[i][section+"/"+name], "GPU %d: %s", i, section)
			}
		}
	}
}

func checkXML(t *testing.T, m machine) {
	log, gpus := m.run(t, "-q", "-x").succeeds(t).elements(t)
	assert.Equal(t, m.board.System.DriverVersion.Value, log["driver_version"])
	assert.Equal(t, m.board.System.CUDAVersion.Value, log["cuda_version"])
	assert.Equal(t, fmt.Sprint(len(m.board.Devices)), log["attached_gpus"])
	require.Len(t, gpus, len(m.board.Devices))
	for i, d := range m.views() {
		assert.Equal(t, d.PCI.BusID.Value.String(), gpus[i]["id"])
		for _, f := range figures {
			if f.xml != "" && f.printed(d) {
				assert.Equal(t, f.with(f.unit, f.of(d)), gpus[i][f.xml], "GPU %d: %s", i, f.xml)
			}
		}
	}
}

// inHeader finds the unit in a column's header.
var inHeader = regexp.MustCompile(` \[(.+)\]$`)

// checkQueryGPU reads every field that nvidia-smi has.
func checkQueryGPU(t *testing.T, m machine) {
	fields := m.ownFields(t)
	header, rows := m.run(t, "--query-gpu="+strings.Join(fields, ","), "--format=csv").succeeds(t).table(t)
	require.Len(t, header, len(fields))
	require.Len(t, rows, len(m.board.Devices))
	found := 0
	for k, title := range header {
		assert.Equal(t, fields[k], inHeader.ReplaceAllString(title, ""))
		at := slices.IndexFunc(figures, func(f figure) bool { return f.field == fields[k] })
		if at < 0 {
			continue
		}
		f, unit := figures[at], ""
		if with := inHeader.FindStringSubmatch(title); with != nil {
			unit = with[1]
		}
		require.LessOrEqual(t, f.since, m.driver, title)
		found++
		for i, d := range m.views() {
			// an absent value is usually in brackets
			value := strings.Trim(rows[i][k], "[]")
			assert.Equal(t, f.with(unit, f.of(d)), value, "GPU %d: %s", i, title)
		}
	}
	for _, f := range figures {
		if f.field != "" && f.since <= m.driver {
			found--
		}
	}
	assert.Zero(t, found, "figures whose field nvidia-smi does not have")
}

var escapes = regexp.MustCompile(`\x1b\[\d*m`)

// matrix reads a matrix of topo: a row for each GPU, without its name.
func (o outcome) matrix(t *testing.T, m machine) [][]string {
	t.Helper()
	var rows [][]string
	for _, line := range o.succeeds(t).lines() {
		cells := strings.Split(strings.TrimPrefix(escapes.ReplaceAllString(line, ""), " "), "\t")
		if len(cells) > 1 && cells[0] == fmt.Sprintf("GPU%d", len(rows)) && strings.TrimSpace(cells[1+len(rows)]) == "X" {
			rows = append(rows, cells[1:])
		}
	}
	require.Len(t, rows, len(m.board.Devices), "%s", o.stdout)
	return rows
}

// to is the path to another GPU. It is NVLink if the board has links; 470 does not know GPUs after Ampere.
func (a view) to(b view) string {
	if links := a.on.board.NVLink.LinksPerGPU.Value; links > 0 && (a.on.driver > 470 || a.Architecture.Value == "ampere") {
		return fmt.Sprintf("NV%d", links)
	}
	bridgeA, bridgeB := a.bridge(), b.bridge()
	switch {
	case bridgeA == nil || bridgeB == nil:
		return "SYS"
	case bridgeA == bridgeB:
		return "PHB"
	case bridgeA.NUMANode == bridgeB.NUMANode:
		return "NODE"
	}
	return "SYS"
}

// bridge is the host bridge above a GPU; nil if the profile does not tell.
func (d view) bridge() *profiles.RootComplex {
	complexes := d.on.board.Topology.RootComplexes
	for i := range complexes {
		if r := &complexes[i]; slices.Contains(r.Devices, d.PCI.BusID.Value) {
			return r
		}
	}
	return nil
}

func checkTopology(t *testing.T, m machine) {
	rows := m.run(t, "topo", "-m").matrix(t, m)
	for i, a := range m.views() {
		var want []string
		for j, b := range m.views() {
			if i == j {
				want = append(want, " X ")
			} else {
				want = append(want, a.to(b))
			}
		}
		if r := a.bridge(); r != nil {
			cpus := r.CPUAffinity
			want = append(want, fmt.Sprintf("%d-%d", cpus[0], cpus[len(cpus)-1]), shown(r.NUMANode))
		}
		require.GreaterOrEqual(t, len(rows[i]), len(want))
		assert.Equal(t, want, rows[i][:len(want)])
	}
}

func checkP2P(t *testing.T, m machine) {
	rows := m.run(t, "topo", "-p2p", "r").matrix(t, m)
	for i, row := range rows {
		want := slices.Repeat([]string{"OK"}, len(rows))
		want[i] = "X"
		assert.Equal(t, want, row[:len(rows)])
	}
}

// links runs nvlink and counts the lines for each link of each GPU.
func (m machine) links(t *testing.T, out outcome, line *regexp.Regexp) []map[int][]string {
	t.Helper()
	var gpus []map[int][]string
	for _, l := range out.lines() {
		if found := line.FindStringSubmatch(l); found != nil && len(gpus) > 0 {
			link, err := strconv.Atoi(found[1])
			require.NoError(t, err)
			gpus[len(gpus)-1][link] = append(gpus[len(gpus)-1][link], found[2])
		} else if strings.HasPrefix(l, "GPU ") {
			d := m.board.Devices[len(gpus)]
			assert.Equal(t, fmt.Sprintf("GPU %d: %s (UUID: %s)", d.Index, d.Name.Value, d.UUID), l)
			gpus = append(gpus, map[int][]string{})
		}
	}
	return gpus
}

// linked checks that the output has these lines for every link of every GPU, and nothing on a board without links.
func (m machine) linked(t *testing.T, out outcome, line string, want ...string) {
	t.Helper()
	n := int(m.board.NVLink.LinksPerGPU.Value)
	if n == 0 {
		assert.Empty(t, out.stdout)
		return
	}
	gpus := m.links(t, out, regexp.MustCompile(line))
	require.Len(t, gpus, len(m.board.Devices))
	for _, links := range gpus {
		require.Len(t, links, n)
		for link := range n {
			assert.Equal(t, want, links[link])
		}
	}
}

func checkLinkStatus(t *testing.T, m machine) {
	const line = `^\t Link (\d+): (.+)$`
	speed := fmt.Sprintf("%.3f GB/s", float64(m.board.NVLink.BandwidthPerLinkMbps.Value)/1000)
	out := m.run(t, "nvlink", "-s")
	if m.driver < 535 && m.board.NVLink.LinksPerGPU.Value > 12 { // it has no numbers for them
		assert.Equal(t, 2, out.code)
		assert.Contains(t, out.stdout, "Unable to translate NvLink link ID for link 12: Invalid Argument")
		gpus := m.links(t, out, regexp.MustCompile(line))
		require.Len(t, gpus, 1)
		assert.Len(t, gpus[0], 12)
		return
	}
	m.linked(t, out.succeeds(t), line, speed)
}

func checkLinkCapabilities(t *testing.T, m machine) {
	m.linked(t, m.run(t, "nvlink", "-c").succeeds(t), `^\t Link (\d+), (.+)$`,
		"P2P is supported: true", "Access to system memory supported: true", "P2P atomics supported: true",
		"System memory atomics supported: true", "SLI is supported: false", "Link is supported: true")
}

func checkLinkErrors(t *testing.T, m machine) {
	out := m.run(t, "nvlink", "-e").succeeds(t)
	if m.driver >= 535 {
		count := "0"
		if m.board.NVLink.Version.Value >= 5 { // such links count packets
			count = "N/A"
		}
		m.linked(t, out, `^\t Link (\d+): (.+)$`, "Replay Errors: "+count, "Recovery Errors: "+count, "CRC Errors: "+count)
		return
	}
	m.linked(t, out, `^\t Link (\d+): (.+)$`, "0 replay errors", "0 recovery errors", "0 flit CRC errors")
	lanes := len(m.board.Devices) * int(m.board.NVLink.LinksPerGPU.Value) * 4
	assert.Equal(t, lanes, strings.Count(out.stdout, "ECC Correction Count: 0 (Overflow=0)"))
}

// monitored reads the output of dmon and pmon: the rows, by the names in the header.
func (o outcome) monitored(t *testing.T) (rows []map[string]string) {
	t.Helper()
	var header []string
	for _, line := range o.succeeds(t).lines() {
		words := strings.Fields(line)
		if words[0] == "#" && header == nil {
			header = words[1:]
		} else if words[0] != "#" {
			require.Len(t, words, len(header), line)
			row := map[string]string{}
			for i, w := range words {
				row[header[i]] = w
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func checkDmon(t *testing.T, m machine) {
	rows := m.run(t, "dmon", "-c", "1", "-s", "pucvmet").monitored(t)
	require.Len(t, rows, len(m.board.Devices))
	violation := "0"
	if m.driver != 550 && !m.board.Devices[0].Thermal.SlowdownThresholdC.Valid { // it compares the temperature with that
		violation = "-"
	}
	dash := func(s string) string { return strings.Replace(s, absent, "-", 1) }
	for i, d := range m.board.Devices {
		want := map[string]string{
			"gpu": fmt.Sprint(i), "pwr": fmt.Sprint(d.Power.CurrentDrawMW.Value / 1000), "gtemp": shown(d.Thermal.TemperatureGPUC),
			"mtemp": dash(shown(d.Thermal.TemperatureMemoryC)), "sm": shown(d.Utilization.GPU), "mem": shown(d.Utilization.Memory),
			"enc": shown(d.Utilization.Encoder), "dec": shown(d.Utilization.Decoder), "mclk": shown(d.Clocks.MemoryCurrent),
			"pclk": shown(d.Clocks.GraphicsCurrent), "tviol": violation, "dbecc": "0", "pci": shown(d.PCIe.ReplayCounter),
		}
		for name, value := range want {
			assert.Equal(t, value, rows[i][name], "GPU %d: %s", i, name)
		}
	}
}

func checkPmon(t *testing.T, m machine) {
	rows := m.run(t, "pmon", "-c", "1").monitored(t)
	require.Len(t, rows, len(m.board.Devices))
	for i, row := range rows {
		assert.Equal(t, fmt.Sprint(i), row["gpu"])
		delete(row, "gpu")
		for name, value := range row {
			assert.Equal(t, "-", value, name)
		}
	}
}

func checkComputeApps(t *testing.T, m machine) {
	header, rows := m.run(t, "--query-compute-apps=pid,name,used_memory", "--format=csv").succeeds(t).table(t)
	assert.Equal(t, []string{"pid", "process_name", "used_gpu_memory [MiB]"}, header)
	assert.Empty(t, rows)
}

func checkSupportedClocks(t *testing.T, m machine) {
	_, rows := m.run(t, "--query-supported-clocks=mem,gr", "--format=csv").succeeds(t).table(t)
	var want [][]string
	for _, d := range m.board.Devices {
		for _, memory := range d.SupportedClocks.MemoryClocks {
			for _, graphics := range memory.GraphicsClocks {
				want = append(want, []string{fmt.Sprintf("%d MHz", memory.FreqMHz), fmt.Sprintf("%d MHz", graphics)})
			}
		}
	}
	assert.Equal(t, want, rows)
}

// checkSelection selects a GPU in each way that -i accepts.
func checkSelection(t *testing.T, m machine) {
	devices := m.board.Devices
	last := &devices[len(devices)-1]
	id := last.PCI.BusID.Value
	sameBoard := 0
	for _, d := range devices {
		if d.Serial == last.Serial {
			sameBoard++
		}
	}
	for name, c := range map[string]struct {
		argument string
		found    int
		code     int
		says     string
	}{
		"index":             {fmt.Sprint(last.Index), 1, 0, ""},
		"UUID":              {string(last.UUID), 1, 0, ""},
		"serial":            {last.Serial.Value, sameBoard, 0, ""},
		"bus id":            {id.String(), 1, 0, ""},
		"short bus id":      {fmt.Sprintf("%x:%x.0", id.Bus, id.Device), 1, 0, ""},
		"unknown index":     {fmt.Sprint(len(devices)), 0, 6, "No devices were found"},
		"unknown UUID":      {"GPU-00000000-0000-0000-0000-000000000000", 0, 6, "No devices were found"},
		"unknown serial":    {"1652000000000", 0, 6, "No devices were found"},
		"unknown bus id":    {"0000:fe:00.0", 0, 6, "No devices were found"},
		"unknown domain":    {"00000042" + id.String()[8:], 0, 6, "No devices were found"},
		"another function":  {strings.TrimSuffix(id.String(), "0") + "1", 0, 6, "No devices were found"},
		"no bus id":         {"0000:zz:00.0", 0, 255, "Invalid PCI bus id format"},
		"too large a bus":   {"0000:100:00.0", 0, 255, "Invalid PCI bus id format"},
		"nothing of a list": {",", 0, 255, "Failed to parse"},
	} {
		t.Run(name, func(t *testing.T) {
			out := m.run(t, "--query-gpu=uuid,pci.bus_id", "--format=csv,noheader", "-i", c.argument)
			require.Equal(t, c.code, out.code, "%s", out.stdout)
			if c.code != 0 {
				assert.Contains(t, out.stdout, c.says)
				return
			}
			require.Len(t, out.lines(), c.found)
			assert.Contains(t, out.lines(), fmt.Sprintf("%s, %s", last.UUID, id))
		})
	}
}
