//go:build guest

package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTraceNotes: the tables in kernel/TRACE-NOTES.md equal what strace sees.
func TestTraceNotes(t *testing.T) {
	load(t, "fakegpu", "nvidia=1", someGPUs, "driver_version=550.163.01", "dyndbg=+p")
	client := traced(t, "/bin/client")
	logged := logSince()
	cuda := traced(t, "/dynamic/cuinit", "/dynamic/libcuda.so.550.163.01")
	cuda.decode(t, logged())
	assert.Equal(t, "cuInit 100\ncuDeviceGetCount 3 -1\n", cuda.stdout)

	document := read(t, "/TRACE-NOTES.md")
	assert.Equal(t, section(t, document, "table"), sideBySide(client, cuda), "as it is to be:\n%s", sideBySide(client, cuda))
	sequence := "```\n" + strings.Join(cuda.sequence(), "\n") + "\n```\n"
	assert.Equal(t, section(t, document, "sequence"), sequence, "as it is to be:\n%s", sequence)
}

// TestLibcudaVersion: NVIDIA's libcuda refuses a driver of another version before it looks for GPUs.
func TestLibcudaVersion(t *testing.T) {
	loadNvidia(t)
	o := finish(t, exec.CommandContext(t.Context(), "/dynamic/cuinit", "/dynamic/libcuda.so.550.163.01"))
	assert.Equal(t, "cuInit 803\ncuDeviceGetCount 3 -1\n", o.stdout)
}

// section is the text between two comments of a document.
func section(t *testing.T, document, name string) string {
	t.Helper()
	_, rest, ok := strings.Cut(document, "<!-- "+name+" -->\n")
	require.True(t, ok, name)
	text, _, ok := strings.Cut(rest, "<!-- end -->\n")
	require.True(t, ok, name)
	return text
}

// trace are the system calls of a program's first thread that concern devices.
type trace struct {
	calls  []call
	stdout string
}

// call is a system call as in the tables.
type call struct {
	phase, text, failure string
	rm                   bool // the module's log has the rest of its text
}

var (
	straceLine = regexp.MustCompile(`^(\w+)\((.*)\) += (-?\w+)(?: (E[A-Z]+))?`)
	aPath      = regexp.MustCompile(`"([^"]*)"`)
	aDevice    = regexp.MustCompile(`\d+<(?:/dev/)?([\w/-]+)>`)
	// The kernel chooses the number of nvidia-uvm.
	chosenMajor = regexp.MustCompile(`^/dev/char/2\d\d:`)
	// Files from which libcuda learns about devices. The rest is left out: libraries, memory, threads and its own
	// settings.
	aboutDevices = regexp.MustCompile(`^/(dev/(nvidia|fakegpu|char/)|proc/(driver/nvidia|devices$)|sys/(module/nvidia|bus/pci/devices$)|usr/bin/nvidia-modprobe|sys/devices/system/memory)`)
)

func traced(t *testing.T, program string, args ...string) *trace {
	t.Helper()
	dir := t.TempDir()
	options := []string{"-ff", "--seccomp-bpf", "-y", "-X", "raw", "-e", "trace=file,ioctl,mmap,poll,ppoll,close", "-o", filepath.Join(dir, "trace")}
	o := finish(t, exec.CommandContext(t.Context(), "/dynamic/strace", slices.Concat(options, []string{program}, args)...))
	require.Zero(t, o.code, "%s%s", o.stdout, o.stderr)
	files, err := filepath.Glob(filepath.Join(dir, "trace.*"))
	require.NoError(t, err)
	require.NotEmpty(t, files, o.stderr)
	number := func(path string) int { n, _ := strconv.Atoi(strings.TrimPrefix(filepath.Ext(path), ".")); return n }
	first := slices.MinFunc(files, func(a, b string) int { return number(a) - number(b) })
	text, err := os.ReadFile(first)
	require.NoError(t, err)
	tr := &trace{stdout: o.stdout}
	for line := range strings.Lines(string(text)) {
		if m := straceLine.FindStringSubmatch(line); m != nil {
			if c, ok := understand(m[1], m[2], m[4]); ok {
				tr.calls = append(tr.calls, c)
			}
		}
	}
	return tr
}

// understand makes a call from a line of strace, if it concerns a device.
func understand(name, args, failure string) (c call, ok bool) {
	c.failure = failure
	device := ""
	if m := aDevice.FindStringSubmatch(args); m != nil && aboutDevices.MatchString("/dev/"+m[1]) {
		device = m[1]
	}
	path := aPath.FindAllStringSubmatch(args, -1)
	switch {
	case name == "ioctl" && device != "":
		number, err := strconv.ParseUint(strings.TrimSpace(strings.Split(args, ",")[1]), 0, 64)
		if err != nil {
			return c, false
		}
		known := callOf(device, uint32(number))
		c.phase, c.text, c.rm = known.phase, "ioctl "+device+" "+known.name, known.name == "RM_ALLOC" || known.name == "RM_CONTROL"
	case name == "mmap" && device != "":
		c.phase, c.text = "mapping", "mmap "+device
	case (name == "poll" || name == "ppoll") && device != "":
		c.phase, c.text = "waiting", "poll "+device
	case name == "close" && device != "" && device != "char":
		c.phase, c.text = "closing", "close "+device
	case len(path) > 0 && aboutDevices.MatchString(path[len(path)-1][1]):
		c.phase, c.text = "opening", name+" "+chosenMajor.ReplaceAllString(path[len(path)-1][1], "/dev/char/UVM:")
	default:
		return c, false
	}
	return c, true
}

// decode completes the calls of the resource manager with the module's log, which has one line for each.
func (tr *trace) decode(t *testing.T, log []string) {
	t.Helper()
	debug := regexp.MustCompile(`fakegpu: (?:alloc of class (0x\w+)|control (0x\w+) of class 0x\w+, \d+ bytes): (0x\w+)$`)
	var lines [][]string
	for _, line := range log {
		if m := debug.FindStringSubmatch(line); m != nil {
			lines = append(lines, m)
		}
	}
	for i := range tr.calls {
		c := &tr.calls[i]
		if !c.rm {
			continue
		}
		require.NotEmpty(t, lines, "the module logged fewer calls than strace saw")
		table, key := classes, lines[0][1]
		if key == "" {
			table, key = controls, lines[0][2]
		}
		known, ok := table[key]
		if !ok {
			known = named{"enumeration", key}
		}
		c.phase, c.text = known.phase, c.text+" "+known.name
		if status := lines[0][3]; status != "0x0" {
			c.failure = "status " + status
		}
		lines = lines[1:]
	}
	require.Empty(t, lines, "the module logged more calls than strace saw")
}

func (c call) String() string {
	if c.failure != "" {
		return c.text + ": " + c.failure
	}
	return c.text
}

// sequence is the calls in order. A call that is repeated at once is listed once.
func (tr *trace) sequence() []string {
	var lines []string
	for _, c := range tr.calls {
		lines = append(lines, c.String())
	}
	return slices.Compact(lines)
}

// sideBySide is the table of both programs: the calls of each in each phase, at their first occurrence. Failures that
// client causes on purpose are left out.
func sideBySide(client, cuda *trace) string {
	var table strings.Builder
	table.WriteString("| | `client` | libcuda |\n|---|---|---|\n")
	for _, phase := range []string{"opening", "version", "enumeration", "allocation", "mapping", "submission", "waiting", "closing"} {
		cell := func(tr *trace, failures bool) string {
			var texts []string
			for _, c := range tr.calls {
				if text := "`" + c.String() + "`"; c.phase == phase && (failures || c.failure == "") && !slices.Contains(texts, text) {
					texts = append(texts, text)
				}
			}
			return strings.Join(texts, "<br>")
		}
		fmt.Fprintf(&table, "| %s | %s | %s |\n", phase, cell(client, false), cell(cuda, true))
	}
	return table.String()
}

// named is a call's name and the phase that it belongs to.
type named struct{ phase, name string }

// Calls by their numbers, without the other parts of the command; see kernel/uapi.
var (
	fakegpuCalls = map[uint32]named{
		0x40: {"version", "INFO"}, 0x41: {"allocation", "ALLOC"}, 0x42: {"closing", "FREE"}, 0x43: {"submission", "SUBMIT"}, 0x44: {"waiting", "WAIT"},
	}
	uvmCalls = map[uint32]named{
		0x30000001: {"opening", "INITIALIZE"}, 0x30000002: {"closing", "DEINITIALIZE"}, 75: {"opening", "MM_INITIALIZE"}, 39: {"version", "PAGEABLE_MEM_ACCESS"},
	}
	nvidiaCalls = map[uint32]named{
		escFree: {"closing", "RM_FREE"}, escControl: {"", "RM_CONTROL"}, escAlloc: {"", "RM_ALLOC"}, escCardInfo: {"enumeration", "CARD_INFO"},
		escRegisterFD: {"opening", "REGISTER_FD"}, escSysParams: {"version", "SYS_PARAMS"}, escNUMAInfo: {"enumeration", "NUMA_INFO"},
	}
	classes = map[string]named{
		"0x0": {"allocation", "client"}, "0x41": {"allocation", "client"}, "0x80": {"allocation", "device"}, "0xcb33": {"allocation", "confidential compute"},
	}
	controls = map[string]named{
		"0x101": {"version", "GET_BUILD_VERSION"}, "0x1f0": {"version", "GET_FEATURES"},
		"0x201": {"enumeration", "GET_ATTACHED_IDS"}, "0x202": {"enumeration", "GET_ID_INFO"}, "0x205": {"enumeration", "GET_ID_INFO_V2"},
		"0x214": {"enumeration", "GET_PROBED_IDS"}, "0x215": {"enumeration", "ATTACH_IDS"}, "0x216": {"closing", "DETACH_IDS"},
		"0xa04": {"enumeration", "GET_BOOST_GROUPS"}, "0xd04": {"allocation", "SET_SHARE_POLICY"},
		"0x801402": {"enumeration", "HOST_GET_CAPS"}, "0x800292": {"enumeration", "GET_CLASSLIST"},
	}
)

// callOf names an ioctl of a device.
func callOf(device string, number uint32) named {
	calls := nvidiaCalls
	switch device {
	case "nvidia-uvm":
		calls = uvmCalls
	case "fakegpu":
		calls, number = fakegpuCalls, number&0xff
	default:
		number &= 0xff
	}
	if known, ok := calls[number]; ok {
		return known
	}
	return named{"submission", fmt.Sprintf("%#x", number)}
}
