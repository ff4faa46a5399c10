package tests

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// imported are outputs of real boards, in testdata/import or testdata/captures, and the nvidia-smi that is nearest to the one
// that printed each. Its leaves may differ from those printed only where a reason says why; all others are steady.
var imported = map[string]struct {
	smi     int
	reasons map[string]string
}{
	"captures/a100-sxm4-40gb.txt":   {550, nil},
	"captures/h100.txt":             {550, nil},
	"captures/gb200.txt":            {550, map[string]string{"product_architecture": "nvidia-smi 550 is older than Blackwell"}},
	"import/h100-mig-590.txt":       {550, nil},
	"import/h200-590.txt":           {550, nil},
	"import/rtx-2080-super-595.txt": {550, nil},
	"import/rtx-2080-super-610.txt": {550, nil},
	"import/rtx-5090-570.txt":       {550, map[string]string{"product architecture": "nvidia-smi 550 is older than Blackwell"}},
	"import/rtxa6000-24q-535.txt": {535, map[string]string{
		"vgpu software licensed product/product name":   "a profile has no licences",
		"vgpu software licensed product/license status": "a profile has no licences",
	}},
	"import/v100-418.txt": {418, map[string]string{
		"ibmnpu/relaxed ordering mode": "a profile cannot say it",
	}},
	"import/l40s-595.leaves": {550, nil},
	"import/a10g-515.leaves": {470, nil},
	"import/rtx-4090-535.leaves": {535, map[string]string{
		"ecc_errors/volatile/sram_uncorrectable":  "nvidia-smi 535.261 prints its two parts",
		"ecc_errors/aggregate/sram_uncorrectable": "nvidia-smi 535.261 prints its two parts",
	}},
	"import/tesla-p100-510.leaves":  {470, nil},
	"import/gtx-1660-ti-418.leaves": {418, nil},
}

// unsteady are values that nvidia-smi reads anew each time, or that an import replaces; otherVersions are names that only some
// versions print, and values that they print otherwise.
var (
	unsteady = regexp.MustCompile(`^timestamp$|^(attached_gpus|attached gpus|driver version|cuda version|kmd version|cuda umd version)$|` +
		`(^|/)(serial|serial number|uuid|gpu uuid|pdi|gpu pdi|clusterUuid|clusteruuid)$|chassis|fabric guid|fabric_guid|process|` +
		`(tx|rx)_util|[tr]x throughput|^mig_devices$`)
	// before 510 what is used includes what is reserved
	before510 = regexp.MustCompile(`^fb_memory_usage/(used|free)$`)
)

// asXML writes leaves in the form of testdata/captures as nvidia-smi -q -x does.
func asXML(leaves []leaf) string {
	var w strings.Builder
	w.WriteString("<?xml version=\"1.0\" ?>\n<nvidia_smi_log>\n")
	var open []string
	end := func(to int) {
		for len(open) > to {
			fmt.Fprintf(&w, "</%s>\n", index.ReplaceAllString(open[len(open)-1], ""))
			open = open[:len(open)-1]
		}
	}
	for _, l := range leaves {
		path := strings.Split(l.path, "/")
		dirs, name := path[:len(path)-1], path[len(path)-1]
		same := 0
		for same < len(open) && same < len(dirs) && open[same] == dirs[same] {
			same++
		}
		end(same)
		for _, dir := range dirs[same:] {
			open = append(open, dir)
			if name == "id" {
				fmt.Fprintf(&w, "<%s id=%q>\n", index.ReplaceAllString(dir, ""), l.value)
			} else {
				fmt.Fprintf(&w, "<%s>\n", index.ReplaceAllString(dir, ""))
			}
		}
		if name == "id" {
			continue
		}
		values := []string{l.value}
		if name == "supported_graphics_clock" {
			values = strings.Split(expanded(l.value), ", ")
		}
		for _, value := range values {
			fmt.Fprintf(&w, "<%s>", name)
			_ = xml.EscapeText(&w, []byte(value))
			fmt.Fprintf(&w, "</%s>\n", name)
		}
	}
	end(0)
	return w.String() + "</nvidia_smi_log>\n"
}

// leafFile reads a file in the form of testdata/captures, sorted by GPU.
func leafFile(t *testing.T, name string) []leaf {
	t.Helper()
	if board, ok := strings.CutPrefix(name, "captures/"); ok {
		leaves := captured(t, strings.TrimSuffix(board, ".txt"))
		gpu := func(l leaf) int {
			if !strings.HasPrefix(l.path, "gpu[") {
				return -1
			}
			n, _ := strconv.Atoi(l.path[4:strings.Index(l.path, "]")])
			return n
		}
		slices.SortStableFunc(leaves, func(a, b leaf) int { return gpu(a) - gpu(b) })
		return leaves
	}
	text, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	var leaves []leaf
	for line := range strings.Lines(string(text)) {
		if path, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ="); ok && !strings.HasPrefix(line, "#") {
			leaves = append(leaves, leaf{path, strings.TrimSpace(value)})
		}
	}
	return leaves
}

// TestImport makes profiles of what nvidia-smi printed on real machines. nvidia-smi prints the same on each.
func TestImport(t *testing.T) {
	for name, c := range imported {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file, profile := filepath.Join(root, "tests", "testdata", name), filepath.Join(dir, "profile.yaml")
			if strings.HasPrefix(name, "captures/") || strings.HasSuffix(name, ".leaves") {
				file = filepath.Join(dir, "q.xml")
				require.NoError(t, os.WriteFile(file, []byte(asXML(leafFile(t, name))), 0o644))
			}
			out := run(t, nil, launcher(t), "profiles", "import", "-o", profile, file)
			require.Zero(t, out.code, out.stderr)
			board, err := profiles.Load(profile)
			require.NoError(t, err)
			m := newMachine(t, c.smi, board, "MOCK_NVML_CONFIG="+profile)
			comparePrinted(t, m, name, c.reasons)
		})
	}
}

// TestBoardsAsPrinted compares what nvidia-smi prints of shipped boards with what it printed of the real ones, if an output of
// the very board is among those of testdata. TestSMICapture does that for further boards.
func TestBoardsAsPrinted(t *testing.T) {
	for name, c := range map[string]struct {
		smi     int
		output  string
		reasons map[string]string
	}{
		"a10g": {470, "import/a10g-515.leaves", map[string]string{
			"pci/pci_device_id":     "it was taken out of the output",
			"pci/pci_sub_system_id": "it was taken out of the output",
			"gpu_part_number":       "it was taken out of the output",
		}},
		"l40s":     {550, "import/l40s-595.leaves", nil},
		"rtx-4090": {535, "import/rtx-4090-535.leaves", imported["import/rtx-4090-535.leaves"].reasons},
		"rtx-5090": {550, "import/rtx-5090-570.txt", map[string]string{
			"product architecture": "nvidia-smi 550 is older than Blackwell",
			"minor number":         "the machine had another GPU too",
		}},
		"rtx-2080-super":    {550, "import/rtx-2080-super-595.txt", nil},
		"vgpu-rtxa6000-24q": {535, "import/rtxa6000-24q-535.txt", imported["import/rtxa6000-24q-535.txt"].reasons},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			comparePrinted(t, newMachine(t, c.smi, mustBoard(t, name), "NVMLFAB_PROFILE="+name), c.output, c.reasons)
		})
	}
}

// comparePrinted compares what nvidia-smi prints of a machine with an output in testdata.
func comparePrinted(t *testing.T, m machine, name string, reasons map[string]string) {
	t.Helper()
	if strings.HasPrefix(name, "captures/") || strings.HasSuffix(name, ".leaves") {
		printed := parse(t, m.run(t, "-q", "-x", "--dtd").succeeds(t).stdout)
		prints := func(path string) bool { return printed.declares("gpu/" + path) }
		compareImport(t, m.driver, byName(leafFile(t, name)), byName(printed.leaves), prints, reasons)
		return
	}
	text, err := os.ReadFile(filepath.Join(root, "tests", "testdata", name))
	require.NoError(t, err)
	want, have := labelled(string(text)), labelled(m.run(t, "-q").succeeds(t).stdout)
	prints := func(path string) bool { _, ok := have[path]; return ok || !newerLabel.MatchString(path) }
	compareImport(t, m.driver, want, have, prints, reasons)
}

// byName are the leaves of the GPUs by number and path.
func byName(leaves []leaf) map[string]string {
	all := map[string]string{}
	for _, l := range leaves {
		path := strings.NewReplacer("clocks_throttle_reason", "clocks_event_reason", "platformInfo/module_id", "gpu_module_id").Replace(l.path)
		all[strings.TrimPrefix(path, "gpu")] = expanded(l.value)
	}
	return all
}

// labelled are the values of the first output of nvidia-smi -q in a text, by the path of their labels.
func labelled(text string) map[string]string {
	all := map[string]string{}
	_, text, _ = strings.Cut(text, "NVSMI LOG==============")
	var path []string
	seen := map[string]int{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		content := strings.TrimSpace(line)
		if strings.HasPrefix(content, "```") || strings.HasPrefix(content, "...") {
			break
		}
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 4
		if content == "" || depth == 0 {
			continue
		}
		label, value, has := strings.Cut(content, " : ")
		if !has {
			label, value, has = strings.Cut(content, ": ")
		}
		if !has {
			label, has = strings.CutSuffix(content, " :")
		}
		label = strings.ToLower(strings.TrimSpace(label))
		if label == "mig device" || label == "process id" {
			label = fmt.Sprintf("%s[%d]", label, seen[label])
			seen[strings.TrimRight(label, "[0123456789]")]++
		}
		path = append(path[:min(depth-1, len(path))], label)
		if has {
			all[newerLabels.Replace(strings.Join(path, "/"))] = strings.TrimSpace(value)
		}
	}
	return all
}

// newerLabels are labels that nvidia-smi 550 prints otherwise; newerLabel are those that it does not print at all, nor does any
// earlier version that is used here. 570 and later ones print the rest as it does.
var (
	newerLabels = strings.NewReplacer("/shared fb ", "/fb ", "/shared bar1 ", "/bar1 ", "platform info/module id", "module id",
		"clocks throttle reasons", "clocks event reasons", "gpu current t.limit temp", "gpu t.limit temp",
		"gpu target temperature specification", "gpu target temperature", "gpu power readings/gpu ceiling power limit/", "gpu power readings/")
	newerLabel = regexp.MustCompile(`^(display attached|gpu pdi|platform info/.*|gpu recovery action|clocks event reasons counters/.*|` +
		`dram encryption mode/.*|ecc errors/(channel repair pending|tpc repair pending|unrepairable memory)|power smoothing|` +
		`workload power profiles/.*|edpp multiplier|fabric/health/.*|capabilities/egm|inforom time data/.*|` +
		`gpu power readings/gpu base power/.*|remapped rows/inactive .*|retired pages/pending)$`)
)

// compareImport compares the leaves that were printed with those that are printed of the imported profile.
func compareImport(t *testing.T, smi int, want, have map[string]string, prints func(string) bool, reasons map[string]string) {
	t.Helper()
	equal, steady, other := 0, 0, 0
	used := map[string]bool{}
	for path, value := range want {
		name := strings.TrimPrefix(index.ReplaceAllString(path, ""), "/")
		switch got, found := have[path]; {
		case unsteady.MatchString(name):
		case !prints(name), smi < 510 && before510.MatchString(name):
			other++
		case reasons[name] != "":
			used[name] = true
		default:
			steady++
			if found && got == value || strings.HasPrefix(name, "supported_clocks/") && got == "Unknown Error" { // it has room for 256
				equal++
			} else {
				t.Logf("%s is %q, and %q was printed", path, got, value)
			}
		}
	}
	for name := range reasons {
		assert.True(t, used[name], "a reason for what does not differ: %s", name)
	}
	require.Greater(t, steady, 50)
	share := 100 * float64(equal) / float64(steady)
	t.Logf("%.2f %%: %d of %d steady leaves come back; nvidia-smi %d has no name for %d others", share, equal, steady, smi, other)
	assert.GreaterOrEqual(t, share, 99.0)
}
