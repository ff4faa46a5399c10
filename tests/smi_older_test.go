package tests

import (
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the tables in docs/nvidia-smi.md and docs/coverage.md")

// drivers are the drivers whose nvidia-smi Debian has, each with the oldest NVML that has all functions of that driver.
var drivers = []struct{ branch, nvml string }{
	{"340", "11.0"}, {"390", "11.6"}, {"418", "11.6"}, {"450", "11.6"},
	{"460", "11.6"}, {"470", "11.6"}, {"535", "12.4"}, {"550", "12.4"}, {"555", "12.5"},
}

// twoGPUs is the profile for the commands. One of its GPUs is busy.
const twoGPUs = `
extends: a100-sxm4-40gb
count: 2
topology:
  root_complexes:
    - {id: "pci0000:00", numa_node: 0, cpu_affinity: 0-63, devices: ["0000:06:00.0", "0000:07:00.0"]}
devices:
  - processes:
      - {pid: 4242, type: C, name: /usr/bin/train, used_memory_mib: 1024}
`

// command is a row of the table.
type command struct {
	title   string // as the table shows it
	args    string // the command line, if it is not the title
	want    string // a part of the right output
	code    int    // the right exit status
	profile string // additions to the profile
}

func commands(d *profiles.Device) []command {
	name, uuid, serial, bus := d.Name.Value, fmt.Sprint(d.UUID), d.Serial.Value, fmt.Sprint(d.PCI.BusID.Value)
	chosen := func(id string) string { return "-i " + id + " --query-gpu=uuid --format=csv,noheader" }
	return []command{
		{title: "-L", want: `(?m)^GPU 0: ` + name + ` \(UUID: ` + uuid + `\)$`},
		{title: "", want: `\d+MiB / +40960MiB [\s\S]* 4242 .*/usr/bin/train +1024MiB`},
		{title: "-q", want: `Serial Number +: ` + serial + `[\s\S]* 40960 MiB[\s\S]* 4242\s[\s\S]* 1024 MiB`},
		{title: "-q -x", want: `<serial>` + serial + `</serial>[\s\S]*<total>40960 MiB<[\s\S]*<pid>4242<`},
		{title: "--query-gpu", args: "--query-gpu=name,uuid,serial,memory.total,power.limit --format=csv,noheader",
			want: `^` + name + `, ` + uuid + `, ` + serial + `, 40960 MiB, 400.00 W\n`},
		{title: "--query-compute-apps", args: "--query-compute-apps=pid,name,used_memory --format=csv,noheader",
			want: `^4242, /usr/bin/train, 1024 MiB\n$`},
		{title: "--query-supported-clocks", args: "--query-supported-clocks=mem,gr --format=csv,noheader",
			want: `^1215 MHz, 1410 MHz\n(1215 MHz, \d+ MHz\n){79}1215 MHz, 210 MHz\n`},
		{title: "--query-accounted-apps", args: "--query-accounted-apps=pid --format=csv", want: `^pid\n$`},
		{title: "--query-retired-pages", args: "--query-retired-pages=gpu_uuid --format=csv,noheader", want: `^` + uuid},
		{title: "--query-remapped-rows", args: "--query-remapped-rows=gpu_uuid,remapped_rows.correctable --format=csv,noheader",
			want: `^` + uuid + `, 0\n`},
		{title: "-i INDEX", args: chosen("0"), want: "^" + uuid + "\n$"},
		{title: "-i UUID", args: chosen(uuid), want: "^" + uuid + "\n$"},
		{title: "-i SERIAL", args: chosen(serial), want: "^" + uuid + "\n$"},
		{title: "-i BUSID", args: chosen(bus), want: "^" + uuid + "\n$"},
		{title: "-i NONE", args: chosen("99"), want: "^No devices were found\n$", code: 6},
		{title: "-B", want: `^No \w+ devices found`},
		{title: "topo -m", want: `GPU0\s+X\s+(NV12|PHB)\s`},
		{title: "topo -m", want: `GPU0\s+X\s+(NV12|PHB)\s`, profile: "device_defaults: {brand: tesla}"},
		{title: "topo -p2p r", want: `GPU0\s+X\s+OK`},
		{title: "nvlink -s", want: `Link 11: 25.781 GB/s`},
		{title: "nvlink -s", want: `Link 5: 25.781 GB/s`, profile: "nvlink: {links_per_gpu: 6}"},
		{title: "nvlink -c", want: `Link 11, P2P is supported: true`},
		{title: "nvlink -e", want: `Link 11: (0 replay errors|Replay Errors: 0)`},
		{title: "dmon -c 1", want: `(?m)^ +0 +\d+ +33 +34 `},
		{title: "pmon -c 1", want: `(?m)^ +0 +4242 +C .* train`},
		{title: "stats -c 1", want: `^0, pwrDraw`},
	}
}

// notes are the table's footnotes: for a command and some or all drivers, if the program prints this text.
var notes = []struct{ drivers, command, prints, why string }{
	{"", "", `not recognized|Invalid combination of input arguments|Missing value for`,
		"This version has no such option."},
	{"340", "--query-supported-clocks", `\n0 MHz, 0 MHz\n$`,
		"It lists the clocks of the first GPU only; `-i` chooses another."},
	{"340", "topo -m", `^Failed to run topology matrix`,
		"It leaves out GPUs of a brand that it does not know, and NVIDIA, without Tesla or Quadro, is a newer one."},
	{"390 418", "nvlink -s", `link 8: Success\n.* link 8: Success\n`,
		"It never ends: from the seventh link on it asks for fields that mean something else, and it repeats what fails."},
	{"460", "nvlink -e", `Unable to retrieve NvLink ECC error counter`,
		"It wants entry 197 of the unnamed table, which is another function in later versions."},
}

// TestSMIOlder runs every nvidia-smi version, and compares the table in docs/nvidia-smi.md with the results.
func TestSMIOlder(t *testing.T) {
	board, err := profiles.Shipped("a100-sxm4-40gb")
	require.NoError(t, err)
	var table, footnotes strings.Builder
	for _, d := range drivers {
		table.WriteString(" | " + d.branch)
	}
	table.WriteString(" |\n|---" + strings.Repeat("|:-:", len(drivers)) + "|\n")
	numbers := map[string]int{}
	for _, c := range commands(&board.Devices[0]) {
		fmt.Fprintf(&table, "| `%s`", strings.TrimSpace("nvidia-smi "+c.title))
		if c.profile != "" {
			fmt.Fprintf(&table, " with `%s`", c.profile)
		}
		for _, d := range drivers {
			out := c.run(t, library, d.branch)
			works, why := c.works(out), c.note(d.branch, out)
			cell := map[bool]string{true: "yes", false: "no"}[works]
			if why != "" {
				if numbers[why] == 0 {
					numbers[why] = len(numbers) + 1
					fmt.Fprintf(&footnotes, "%d. %s\n", numbers[why], why)
				}
				cell += fmt.Sprintf(" (%d)", numbers[why])
			}
			table.WriteString(" | " + cell)
			assert.True(t, works || why != "", "no note on why %s ends with %d and prints\n%.2000s%s", out.command, out.code, out.stdout, out.stderr)
		}
		table.WriteString(" |\n")
	}
	golden(t, filepath.Join(root, "docs", "nvidia-smi.md"), "|"+table.String()+"\n"+footnotes.String())
}

// TestSMIOlderNVML: each nvidia-smi prints the same with the NVML of its time as with the newest.
func TestSMIOlderNVML(t *testing.T) {
	moment := regexp.MustCompile(`Timestamp .*`)
	for _, d := range drivers {
		t.Run(d.branch, func(t *testing.T) {
			own := command{title: "-q"}.run(t, libraryOf(t, d.nvml), d.branch).succeeds(t).stdout
			newest := command{title: "-q"}.run(t, library, d.branch).succeeds(t).stdout
			assert.Equal(t, moment.ReplaceAllString(newest, ""), moment.ReplaceAllString(own, ""))
		})
	}
}

// run runs the command with a driver's nvidia-smi and the library in dir. The status is 124 if it hangs, and 141 if it
// prints without end.
func (c command) run(t *testing.T, dir, driver string) outcome {
	t.Helper()
	profile := filepath.Join(t.TempDir(), "profile.yaml")
	require.NoError(t, os.WriteFile(profile, []byte(twoGPUs+c.profile), 0o644))
	args := []string{"-o", "pipefail", "-c", `timeout 300 "$@" | head -c 1000000`, "bash", fetched(t, "nvidia-smi-"+driver, "nvidia-smi")}
	if c.args == "" {
		c.args = c.title
	}
	return run(t, with(dir, "MOCK_NVML_CONFIG="+profile), "bash", append(args, strings.Fields(c.args)...)...)
}

// works reports whether the command answered as it should; XML output must be well-formed.
func (c command) works(out outcome) bool {
	if strings.HasPrefix(out.stdout, "<?xml") && xml.Unmarshal([]byte(out.stdout), new(element)) != nil {
		return false
	}
	return out.code == c.code && regexp.MustCompile(c.want).MatchString(out.stdout)
}

// note is the footnote for what the command printed.
func (c command) note(driver string, out outcome) string {
	for _, n := range notes {
		if (n.drivers == "" || slices.Contains(strings.Fields(n.drivers), driver)) && (n.command == "" || n.command == c.title) &&
			regexp.MustCompile(n.prints).MatchString(out.stdout+out.stderr) {
			return n.why
		}
	}
	return ""
}

// golden compares the text between two markers of a page with want, or with -update replaces it.
func golden(t *testing.T, page, want string) {
	t.Helper()
	const begin, end = "<!-- go test ./tests -run SMIOlder -update -->\n\n", "\n<!-- end -->\n"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	got, after, closed := strings.Cut(rest, end)
	require.True(t, ok && closed, "%s lacks its markers", page)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(before+begin+want+end+after), 0o644))
		return
	}
	assert.Equal(t, want, got, "%s is stale: go test ./tests -run SMIOlder -update", page)
}
