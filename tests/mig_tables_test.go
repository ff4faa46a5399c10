package tests

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// migRow is a row of nvidia-smi mig -lgip of a real board, with its placements from -lgipp: name, id, instances, GiB, SMs,
// decoders, encoders, copy engines, JPEG and optical flow engines, placements.
type migRow struct {
	name, id, instances, gib, sm, dec, enc, ce, jpeg, ofa, placements string
}

// migTables are the tables of real boards, from outputs of nvidia-smi that were published: of A30, A100-SXM4-40GB, H100 PCIe,
// H100 NVL, GH200 and RTX PRO 6000 step by step by users, of A100-SXM4-80GB in XuehaiPan/nvitop#8 and elsewhere, of H100 SXM with
// issues of NVIDIA/k8s-device-plugin and others, of H200 in NVIDIA/mig-parted#120 (with the memory of its driver 590), of B200 in
// NVIDIA/mig-parted#187, and of GB200 from NVIDIA/gpu-operator#1303 and NVIDIA/mig-parted#227. Those of B200 and GB200 are cut
// off after four rows. The file of each board says more.
var migTables = map[string][]migRow{
	"a30": {
		{"1g.6gb", "14", "4/4", "5.81", "14", "1", "0", "1", "0", "0", "Placements: {0,1,2,3}:1"},
		{"1g.6gb+me", "21", "1/1", "5.81", "14", "1", "0", "1", "1", "1", "Placements: {0,1,2,3}:1"},
		{"2g.12gb", "5", "2/2", "11.69", "28", "2", "0", "2", "0", "0", "Placements: {0,2}:2"},
		{"2g.12gb+me", "6", "1/1", "11.69", "28", "2", "0", "2", "1", "1", "Placements: {0,2}:2"},
		{"4g.24gb", "0", "1/1", "23.44", "56", "4", "0", "4", "1", "1", "Placement : {0}:4"},
	},
	"a100-sxm4-40gb": {
		{"1g.5gb", "19", "7/7", "4.75", "14", "0", "0", "1", "0", "0", "Placements: {0,1,2,3,4,5,6}:1"},
		{"1g.5gb+me", "20", "1/1", "4.75", "14", "1", "0", "1", "1", "1", "Placements: {0,1,2,3,4,5,6}:1"},
		{"1g.10gb", "15", "4/4", "9.75", "14", "1", "0", "1", "0", "0", "Placements: {0,2,4,6}:2"},
		{"2g.10gb", "14", "3/3", "9.75", "28", "1", "0", "2", "0", "0", "Placements: {0,2,4}:2"},
		{"3g.20gb", "9", "2/2", "19.62", "42", "2", "0", "3", "0", "0", "Placements: {0,4}:4"},
		{"4g.20gb", "5", "1/1", "19.62", "56", "2", "0", "4", "0", "0", "Placement : {0}:4"},
		{"7g.40gb", "0", "1/1", "39.38", "98", "5", "0", "7", "1", "1", "Placement : {0}:8"},
	},
	"a100-sxm4-80gb": {
		{"1g.10gb", "19", "7/7", "9.50", "14", "0", "0", "1", "0", "0", "Placements: {0,1,2,3,4,5,6}:1"},
		{"1g.10gb+me", "20", "1/1", "9.50", "14", "1", "0", "1", "1", "1", "Placements: {0,1,2,3,4,5,6}:1"},
		{"1g.20gb", "15", "4/4", "19.50", "14", "1", "0", "1", "0", "0", "Placements: {0,2,4,6}:2"},
		{"2g.20gb", "14", "3/3", "19.50", "28", "1", "0", "2", "0", "0", "Placements: {0,2,4}:2"},
		{"3g.40gb", "9", "2/2", "39.25", "42", "2", "0", "3", "0", "0", "Placements: {0,4}:4"},
		{"4g.40gb", "5", "1/1", "39.25", "56", "2", "0", "4", "0", "0", "Placement : {0}:4"},
		{"7g.80gb", "0", "1/1", "79.00", "98", "5", "0", "7", "1", "1", "Placement : {0}:8"},
	},
	"h100": {
		{"1g.10gb", "19", "7/7", "9.75", "16", "1", "0", "1", "1", "0", "Placements: {0,1,2,3,4,5,6}:1"},
		{"1g.10gb+me", "20", "1/1", "9.75", "16", "1", "0", "1", "1", "1", "Placements: {0,1,2,3,4,5,6}:1"},
		{"1g.20gb", "15", "4/4", "19.62", "26", "1", "0", "1", "1", "0", "Placements: {0,2,4,6}:2"},
		{"2g.20gb", "14", "3/3", "19.62", "32", "2", "0", "2", "2", "0", "Placements: {0,2,4}:2"},
		{"3g.40gb", "9", "2/2", "39.50", "60", "3", "0", "3", "3", "0", "Placements: {0,4}:4"},
		{"4g.40gb", "5", "1/1", "39.50", "64", "4", "0", "4", "4", "0", "Placement : {0}:4"},
		{"7g.80gb", "0", "1/1", "79.25", "132", "7", "0", "8", "7", "1", "Placement : {0}:8"},
	},
	"h100-pcie": {
		{"1g.10gb", "19", "7/7", "9.75", "14", "1", "0", "1", "1", "0", "Placements: {0,1,2,3,4,5,6}:1"},
		{"1g.10gb+me", "20", "1/1", "9.75", "14", "1", "0", "1", "1", "1", "Placements: {0,1,2,3,4,5,6}:1"},
		{"1g.20gb", "15", "4/4", "19.62", "14", "1", "0", "1", "1", "0", "Placements: {0,2,4,6}:2"},
		{"2g.20gb", "14", "3/3", "19.62", "30", "2", "0", "2", "2", "0", "Placements: {0,2,4}:2"},
		{"3g.40gb", "9", "2/2", "39.50", "46", "3", "0", "3", "3", "0", "Placements: {0,4}:4"},
		{"4g.40gb", "5", "1/1", "39.50", "62", "4", "0", "4", "4", "0", "Placement : {0}:4"},
		{"7g.80gb", "0", "1/1", "79.25", "114", "7", "0", "8", "7", "1", "Placement : {0}:8"},
	},
	"h100-nvl": {
		{"1g.12gb", "19", "7/7", "10.75", "16", "1", "0", "1", "1", "0", "Placements: {0,1,2,3,4,5,6}:1"},
		{"1g.12gb+me", "20", "1/1", "10.75", "16", "1", "0", "1", "1", "1", "Placements: {0,1,2,3,4,5,6}:1"},
		{"1g.24gb", "15", "4/4", "21.62", "26", "1", "0", "1", "1", "0", "Placements: {0,2,4,6}:2"},
		{"2g.24gb", "14", "3/3", "21.62", "32", "2", "0", "2", "2", "0", "Placements: {0,2,4}:2"},
		{"3g.47gb", "9", "2/2", "46.38", "60", "3", "0", "3", "3", "0", "Placements: {0,4}:4"},
		{"4g.47gb", "5", "1/1", "46.38", "64", "4", "0", "4", "4", "0", "Placement : {0}:4"},
		{"7g.94gb", "0", "1/1", "93.12", "132", "7", "0", "8", "7", "1", "Placement : {0}:8"},
	},
	"h200": {
		{"1g.18gb", "19", "7/7", "16.00", "16", "1", "0", "1", "1", "0", "Placements: {0,1,2,3,4,5,6}:1"},
		{"1g.18gb+me", "20", "1/1", "16.00", "16", "1", "0", "1", "1", "1", "Placements: {0,1,2,3,4,5,6}:1"},
		{"1g.35gb", "15", "4/4", "32.50", "26", "1", "0", "1", "1", "0", "Placements: {0,2,4,6}:2"},
		{"2g.35gb", "14", "3/3", "32.50", "32", "2", "0", "2", "2", "0", "Placements: {0,2,4}:2"},
		{"3g.71gb", "9", "2/2", "69.75", "60", "3", "0", "3", "3", "0", "Placements: {0,4}:4"},
		{"4g.71gb", "5", "1/1", "69.75", "64", "4", "0", "4", "4", "0", "Placement : {0}:4"},
		{"7g.141gb", "0", "1/1", "140.00", "132", "7", "0", "8", "7", "1", "Placement : {0}:8"},
	},
	"gh200": {
		{"1g.12gb", "19", "7/7", "11.00", "16", "1", "0", "1", "1", "0", "Placements: {0,1,2,3,4,5,6}:1"},
		{"1g.12gb+me", "20", "1/1", "11.00", "16", "1", "0", "1", "1", "1", "Placements: {0,1,2,3,4,5,6}:1"},
		{"1g.24gb", "15", "4/4", "23.00", "26", "1", "0", "1", "1", "0", "Placements: {0,2,4,6}:2"},
		{"2g.24gb", "14", "3/3", "23.00", "32", "2", "0", "2", "2", "0", "Placements: {0,2,4}:2"},
		{"3g.48gb", "9", "2/2", "46.50", "60", "3", "0", "3", "3", "0", "Placements: {0,4}:4"},
		{"4g.48gb", "5", "1/1", "46.50", "64", "4", "0", "4", "4", "0", "Placement : {0}:4"},
		{"7g.96gb", "0", "1/1", "93.00", "132", "7", "0", "8", "7", "1", "Placement : {0}:8"},
	},
	"b200": {
		{"1g.23gb", "19", "7/7", "20.50", "18", "1", "0", "2", "1", "0", "Placements: {0,1,2,3,4,5,6}:1"},
		{"1g.23gb+me", "20", "1/1", "20.50", "18", "1", "0", "2", "1", "1", "Placements: {0,1,2,3,4,5,6}:1"},
		{"1g.45gb", "15", "4/4", "44.25", "30", "1", "0", "2", "1", "0", "Placements: {0,2,4,6}:2"},
		{"2g.45gb", "14", "3/3", "44.25", "36", "2", "0", "4", "2", "0", "Placements: {0,2,4}:2"},
	},
	"gb200": {
		{"1g.23gb", "19", "7/7", "22.00", "18", "1", "0", "2", "1", "0", "Placements: {0,1,2,3,4,5,6}:1"},
		{"1g.23gb+me", "20", "1/1", "22.00", "18", "1", "0", "2", "1", "1", "Placements: {0,1,2,3,4,5,6}:1"},
		{"1g.47gb", "15", "4/4", "45.50", "32", "1", "0", "2", "1", "0", "Placements: {0,2,4,6}:2"},
		{"2g.47gb", "14", "3/3", "45.50", "38", "2", "0", "4", "2", "0", "Placements: {0,2,4}:2"},
	},
	"rtx-pro-6000-server": {
		{"1g.24gb", "14", "4/4", "23.12", "46", "1", "1", "1", "1", "0", "Placements: {0,3,6,9}:3"},
		{"1g.24gb+me", "21", "1/1", "23.12", "46", "1", "1", "1", "1", "1", "Placements: {0,3,6,9}:3"},
		{"1g.24gb+gfx", "47", "4/4", "23.12", "46", "1", "1", "1", "1", "0", "Placements: {0,3,6,9}:3"},
		{"1g.24gb+me.all", "65", "1/1", "23.12", "46", "4", "4", "1", "4", "1", "Placements: {0,3,6,9}:3"},
		{"1g.24gb-me", "67", "4/4", "23.12", "46", "0", "0", "1", "0", "0", "Placements: {0,3,6,9}:3"},
		{"2g.48gb", "5", "2/2", "46.50", "94", "2", "2", "2", "2", "0", "Placements: {0,6}:6"},
		{"2g.48gb+gfx", "35", "2/2", "46.50", "94", "2", "2", "2", "2", "0", "Placements: {0,6}:6"},
		{"2g.48gb+me.all", "64", "1/1", "46.50", "94", "4", "4", "2", "4", "1", "Placements: {0,6}:6"},
		{"2g.48gb-me", "66", "2/2", "46.50", "94", "0", "0", "2", "0", "0", "Placements: {0,6}:6"},
		{"4g.96gb", "0", "1/1", "93.38", "188", "4", "4", "4", "4", "1", "Placement : {0}:12"},
		{"4g.96gb+gfx", "32", "1/1", "93.38", "188", "4", "4", "4", "4", "1", "Placement : {0}:12"},
	},
}

// untabled are the boards with a MIG mode whose tables are missing, with the reason.
var untabled = map[string]string{
	"gb300":             "only the names of its profiles are known",
	"jetson-thor":       "no output of its profiles was found",
	"mixed":             "the tables of a machine are those of one board",
	"v100-vgpu-guest":   "a guest cannot cut its GPU",
	"vgpu-rtxa6000-24q": "a guest cannot cut its GPU",
}

// A row of -lgip takes two lines.
var lgipRow = regexp.MustCompile(`(?m)^\| +0  MIG (\S+) +(\d+) +(\d/\d) +(\S+) +No +(\d+) +(\d+) +(\d+) +\|\n\| +(\d+) +(\d+) +(\d+) +\|`)

// newerProfile are the names of profiles that nvidia-smi 550 does not ask for.
var newerProfile = regexp.MustCompile(`\+gfx|\+me\.all|-me`)

// TestMIGTables: -lgip and -lgipp list each board's profiles as the real board does, in its order. Among other things the
// ids are the driver's, not NVML's numbers, and a name such as 7g.80gb is not made of the memory, which is 79.25 GiB. NVML
// itself has the rows that nvidia-smi 550 is too old to ask for.
func TestMIGTables(t *testing.T) {
	needsRoot(t)
	for _, board := range profiles.Names() {
		b := mustBoard(t, board)
		if len(b.MIG.GPUInstanceProfiles) == 0 {
			assert.True(t, !b.Devices[0].MIG.ModeCurrent.Valid || untabled[board] != "", "%s can be cut, so it wants a table", board)
			continue
		}
		t.Run(board, func(t *testing.T) {
			t.Parallel()
			rows := migTables[board]
			switch board {
			case "a100-pcie-80gb":
				rows = migTables["a100-sxm4-80gb"] // the sources name no form
			case "dgx-h100":
				rows = migTables["h100"] // its GPUs are those
			}
			require.NotEmpty(t, rows, "its table is to be compared with a source")
			n := newMIGNode(t, 550, "extends: "+board+"\ncount: 1\n")
			n.run(t, "-mig 1").succeeds(t)
			var have, older []migRow
			for _, m := range lgipRow.FindAllStringSubmatch(n.run(t, "mig -lgip").succeeds(t).stdout, -1) {
				have = append(have, migRow{m[1], m[2], m[3], m[4], m[5], m[6], m[7], m[8], m[9], m[10], ""})
			}
			for _, r := range rows {
				if !newerProfile.MatchString(r.name) {
					older = append(older, r)
				}
			}
			places := n.run(t, "mig -lgipp").succeeds(t).lines()
			require.Len(t, places, len(older))
			require.Len(t, have, len(older))
			for i, line := range places {
				_, rest, _ := strings.Cut(line, "Profile ID ")
				id, placements, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
				assert.Equal(t, older[i].id, id)
				have[i].placements = placements
			}
			assert.Equal(t, older, have)

			gpu, c := n.caller(t, 0)
			var all []migRow
			for kind := range uint32(nvml.GPU_INSTANCE_PROFILE_COUNT) {
				info := versioned(2, nvml.GpuInstanceProfileInfo_v2{})
				ret := c.call("nvmlDeviceGetGpuInstanceProfileInfoV", gpu, kind, &info)
				if ret != nvml.SUCCESS {
					require.Equal(t, nvml.ERROR_NOT_SUPPORTED, ret)
					continue
				}
				all = append(all, rowOf(t, c, gpu, &info))
			}
			assert.ElementsMatch(t, rows, all)
		})
	}
}

// rowOf is a profile as -lgip and -lgipp would list it.
func rowOf(t *testing.T, c *caller, gpu uint64, info *nvml.GpuInstanceProfileInfo_v2) migRow {
	t.Helper()
	free, ret := get[uint32](c, "nvmlDeviceGetGpuInstanceRemainingCapacity", gpu, info.Id)
	require.Equal(t, nvml.SUCCESS, ret)
	places, n := make([]nvml.GpuInstancePlacement, 16), uint32(16)
	require.Equal(t, nvml.SUCCESS, c.call("nvmlDeviceGetGpuInstancePossiblePlacements_v2", gpu, info.Id, places, &n))
	var starts []string
	for _, p := range places[:n] {
		assert.Equal(t, places[0].Size, p.Size)
		starts = append(starts, fmt.Sprint(p.Start))
	}
	title := "Placements:"
	if n == 1 {
		title = "Placement :"
	}
	var text []byte
	for _, c := range info.Name {
		text = append(text, byte(c))
	}
	name, _, _ := strings.Cut(string(text), "\x00")
	require.True(t, strings.HasPrefix(name, "MIG "), name)
	return migRow{
		name[4:], fmt.Sprint(info.Id), fmt.Sprintf("%d/%d", free, info.InstanceCount), fmt.Sprintf("%.2f", float64(info.MemorySizeMB)/1024),
		fmt.Sprint(info.MultiprocessorCount), fmt.Sprint(info.DecoderCount), fmt.Sprint(info.EncoderCount), fmt.Sprint(info.CopyEngineCount),
		fmt.Sprint(info.JpegCount), fmt.Sprint(info.OfaCount), fmt.Sprintf("%s {%s}:%d", title, strings.Join(starts, ","), places[0].Size),
	}
}

// migUnits are the instances that real boards were seen to make, command by command: the profiles, and the numbers and places that
// their instances got. A second profile on a board is a unit of the other kind, whose half with four compute slices is the other.
var migUnits = []struct{ board, swapped, create, numbers, places string }{
	{"h100", "false", "19,19,19,19,19,19,19", "13 11 12 7 8 9 10", "6:1 4:1 5:1 0:1 1:1 2:1 3:1"},
	{"h100", "false", "9,14", "2 3", "4:4 0:2"},
	{"h100", "false", "9,14,19,19", "2 3 9 10", "4:4 0:2 2:1 3:1"},
	{"h200", "false", "9,14,19,19", "2 3 9 10", "4:4 0:2 2:1 3:1"},
	{"h100-pcie", "true", "19,19,19,19,19,19,19", "9 7 8 11 12 13 14", "6:1 4:1 5:1 0:1 1:1 2:1 3:1"},
	{"h100-nvl", "true", "9,15,19", "1 5 13", "4:4 0:2 2:1"},
	{"h100-nvl", "false", "19,19,19,19,19,19,19", "13 11 12 7 8 9 10", "6:1 4:1 5:1 0:1 1:1 2:1 3:1"},
	{"gh200", "false", "15,15,15", "5 3 4", "4:2 0:2 2:2"},
	{"a100-sxm4-40gb", "false", "14,19,19,19,19,19", "5 13 7 8 9 10", "4:2 6:1 0:1 1:1 2:1 3:1"},
	{"a100-sxm4-40gb", "false", "9,19,14,19", "2 7 4 8", "4:4 0:1 2:2 1:1"},
	{"a100-sxm4-40gb", "true", "9,19,14,19", "1 11 6 12", "4:4 0:1 2:2 1:1"},
	{"a100-sxm4-40gb", "true", "5,14,19", "2 3 9", "0:4 4:2 6:1"},
	{"a100-sxm4-40gb", "false", "9,9", "2 1", "4:4 0:4"},
	{"a30", "false", "14,14,5", "3 4 2", "0:1 1:1 2:2"},
	{"rtx-pro-6000-server", "false", "14,14,14,14", "3 4 5 6", "0:3 3:3 6:3 9:3"},
	{"rtx-pro-6000-server", "false", "5,14,14", "1 5 6", "0:6 6:3 9:3"},
}

// TestMIGUnits: instances get the numbers and places that they were seen to get on real boards, of both kinds.
func TestMIGUnits(t *testing.T) {
	needsRoot(t)
	made := regexp.MustCompile(`(?m)^Successfully created GPU instance ID +(\d+) `)
	row := regexp.MustCompile(`(?m)^\| +0  MIG \S+ +\d+ +(\d+) +(\d+:\d+) +\|$`)
	for _, u := range migUnits {
		t.Run(u.board+" "+u.create, func(t *testing.T) {
			t.Parallel()
			n := newMIGNode(t, 550, "extends: "+u.board+"\ncount: 1\nmig: {swapped: "+u.swapped+"}\n")
			n.run(t, "-mig 1").succeeds(t)
			var numbers, places []string
			for _, m := range made.FindAllStringSubmatch(n.run(t, "mig -cgi "+u.create).succeeds(t).stdout, -1) {
				numbers = append(numbers, m[1])
			}
			at := map[string]string{}
			for _, m := range row.FindAllStringSubmatch(n.run(t, "mig -lgi").succeeds(t).stdout, -1) {
				at[m[1]] = m[2]
			}
			for _, number := range numbers {
				places = append(places, at[number])
			}
			assert.Equal(t, u.numbers, strings.Join(numbers, " "))
			assert.Equal(t, u.places, strings.Join(places, " "))
		})
	}
}

// migParts are the rows of -lcip of real boards in an empty instance of a profile: name, id (* marks the default), free and total,
// SMs, decoders, encoders, optical flow engines, copy engines and JPEG engines. Of some boards only the default row was seen.
var migParts = []struct {
	board, create string
	rows          []string
}{
	{"a100-sxm4-40gb", "19", []string{"1g.5gb 0* 1/1 14 0 0 0 1 0"}},
	{"a100-sxm4-40gb", "14", []string{"1c.2g.10gb 0 2/2 14 1 0 0 2 0", "2g.10gb 1* 1/1 28 1 0 0 2 0"}},
	{"a100-sxm4-40gb", "9", []string{"1c.3g.20gb 0 3/3 14 2 0 0 3 0", "2c.3g.20gb 1 1/1 28 2 0 0 3 0", "3g.20gb 2* 1/1 42 2 0 0 3 0"}},
	{"a100-sxm4-40gb", "5", []string{"1c.4g.20gb 0 4/4 14 2 0 0 4 0", "2c.4g.20gb 1 2/2 28 2 0 0 4 0", "4g.20gb 3* 1/1 56 2 0 0 4 0"}},
	{"a30", "14", []string{"1g.6gb 0* 1/1 14 1 0 0 1 0"}},
	{"a30", "5", []string{"1c.2g.12gb 0 2/2 14 2 0 0 2 0", "2g.12gb 1* 1/1 28 2 0 0 2 0"}},
	{"h200", "9", []string{"1c.3g.71gb 0 3/3 16 3 0 0 3 3", "2c.3g.71gb 1 1/1 32 3 0 0 3 3", "3g.71gb 2* 1/1 60 3 0 0 3 3"}},
	{"h100", "19", []string{"1g.10gb 0* 1/1 16 1 0 0 1 1"}},
	{"gh200", "15", []string{"1g.24gb 7* 1/1 26 1 0 0 1 1"}},
	{"rtx-pro-6000-server", "14", []string{"1g.24gb 0* 1/1 46 1 1 0 1 1"}},
}

// TestMIGParts: -lcip lists the ways to cut an instance as real boards do.
func TestMIGParts(t *testing.T) {
	needsRoot(t)
	row := regexp.MustCompile(`(?m)^\| +0 +\d+ +MIG (\S+) +(\d+\*?) +(\d/\d) +(\d+) +(\d+) +(\d+) +(\d+) +\|\n\| +(\d+) +(\d+) +\|`)
	for _, c := range migParts {
		t.Run(c.board+" "+c.create, func(t *testing.T) {
			t.Parallel()
			n := newMIGNode(t, 550, "extends: "+c.board+"\ncount: 1\n")
			n.run(t, "-mig 1").succeeds(t)
			n.run(t, "mig -cgi "+c.create).succeeds(t)
			var have []string
			for _, m := range row.FindAllStringSubmatch(n.run(t, "mig -lcip").succeeds(t).stdout, -1) {
				have = append(have, strings.Join(m[1:], " "))
			}
			assert.Equal(t, c.rows, have)
		})
	}
}
