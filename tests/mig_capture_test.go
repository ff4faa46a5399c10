package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// leavesOf are the leaves of nvidia-smi's output by path, as testdata/captures/h100-mig.txt has them.
func leavesOf(t *testing.T, n migNode) (all map[string]string, fields []string) {
	t.Helper()
	all = map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^  MIG (\S+) +Device +(\d+): \(UUID: MIG-[0-9a-f-]{36}\)$`).FindAllStringSubmatch(n.run(t, "-L").succeeds(t).stdout, -1) {
		all["-L/"+m[2]] = m[1]
	}
	row := regexp.MustCompile(`(?m)^\| +(\d+) +(\d+) +(\d+) +(\d+) +\| +(\d+)MiB / +(\d+)MiB +\| +(\d+) +(\S+) \| +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) \|\n` +
		`\| +\| +(\d+)MiB / +(\d+)MiB`)
	for i, m := range row.FindAllStringSubmatch(n.run(t, "").succeeds(t).stdout, -1) {
		all[fmt.Sprintf("table/%d", i)] = strings.Join(m[1:], " ")
	}
	var path []string
	mig := 0
	for _, line := range n.run(t, "-q").succeeds(t).lines() {
		text := strings.TrimLeft(line, " ")
		depth := (len(line) - len(text)) / 4
		if depth == 0 {
			continue
		}
		name, value, found := strings.Cut(text, ": ")
		if name = strings.TrimRight(name, " :"); name == "MIG Device" {
			name = fmt.Sprintf("MIG Device[%d]", mig)
			mig++
		}
		path = append(path[:min(depth-1, len(path))], name)
		if found {
			all["-q/"+strings.Join(path, "/")] = strings.TrimSpace(value)
		}
	}
	fields = machine{550, nil, n.program, n.env()}.ownFields(t)
	header, rows := n.run(t, "--format=csv --query-gpu="+strings.Join(fields, ",")).succeeds(t).table(t)
	require.Len(t, rows, 1)
	for i, title := range header {
		all["--query-gpu/"+inHeader.ReplaceAllString(title, "")] = rows[0][i]
	}
	return all, fields
}

// newerNames are names in the capture that nvidia-smi 550 prints otherwise, and newerLeaf is what -q prints since. What it
// does not have of --query-gpu its help tells.
var (
	newerNames = strings.NewReplacer("/Shared FB ", "/FB ", "/Shared BAR1 ", "/BAR1 ", "Utilization/GPU", "Utilization/Gpu",
		"Platform Info/Module Id", "Module ID")
	newerLeaf = regexp.MustCompile(`^-q/(Display Attached|GPU PDI|Platform Info/.*|GPU Recovery Action|Clocks Event Reasons Counters/.*|` +
		`DRAM Encryption Mode/.*|ECC Errors/(Channel Repair Pending|TPC Repair Pending|Unrepairable Memory)|Power Smoothing|` +
		`Workload Power Profiles/.*|EDPp Multiplier|Fabric/Health/.*|Capabilities/EGM)$`)
)

// differing are leaves of which only the form is compared: identifiers that were scrubbed, and readings that each command
// took by itself.
var differing = regexp.MustCompile(`^-q/(Serial Number|GPU UUID)$|^--query-gpu/(serial|uuid|timestamp|power\.draw.*)$`)

// TestMIGCapture compares, leaf by leaf, what nvidia-smi 550 prints of a machine whose GPU it has cut with what 590 printed
// of the real one.
func TestMIGCapture(t *testing.T) {
	needsRoot(t)
	text, err := os.ReadFile(filepath.Join("testdata", "mig", "h100-590.yaml"))
	require.NoError(t, err)
	n := newMIGNode(t, 550, string(text))
	n.run(t, "-mig 1").succeeds(t)
	n.run(t, "mig -cgi 9,14,19,19 -C").succeeds(t)
	have, fields := leavesOf(t, n)
	equal, newer := 0, 0
	for _, want := range captured(t, "h100-mig") {
		path := newerNames.Replace(want.path)
		value, found := have[path]
		if strings.HasPrefix(path, "--query-gpu/fabric.st") { // 550 prints "state Completed" and "status Success"
			value = strings.TrimSpace(value[strings.Index(value, " ")+1:])
		}
		switch {
		case !found && (newerLeaf.MatchString(path) || strings.HasPrefix(path, "--query-gpu/") && !slices.Contains(fields, path[12:])):
			newer++
		case !found:
			t.Errorf("%s is missing; it was captured as %q", path, want.value)
		case differing.MatchString(path):
			assert.Equal(t, form(want.value), form(value), path)
		case assert.Equal(t, want.value, value, path):
			equal++
		}
	}
	t.Logf("%d leaves are equal; %d others are newer than nvidia-smi 550", equal, newer)
}
