package importer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// output is a real output of nvidia-smi out of those that the tests of the commands import.
func output(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "tests", "testdata", "import", name))
	require.NoError(t, err)
	return string(text)
}

func from(t *testing.T, o Options, texts ...string) (*profiles.Board, *Result) {
	t.Helper()
	var files []File
	for i, text := range texts {
		files = append(files, File{Name: string(rune('a' + i)), Text: []byte(text)})
	}
	r, err := Import(files, o)
	require.NoError(t, err)
	b, err := profiles.Parse("profile", r.Profile)
	require.NoError(t, err)
	return b, r
}

// mistake imports a text that is wrong, and returns the line of the mistake.
func mistake(t *testing.T, text, says string) int {
	t.Helper()
	_, err := Import([]File{{"f", []byte(text)}}, Options{})
	var e *profiles.Error
	require.ErrorAs(t, err, &e)
	assert.Contains(t, e.Text, says)
	assert.Equal(t, "f", e.File)
	return e.Line
}

// TestText reads an output out of a text that quotes it.
func TestText(t *testing.T) {
	b, r := from(t, Options{}, output(t, "v100-418.txt"))
	require.Len(t, b.Devices, 1)
	d := &b.Devices[0]
	assert.Equal(t, "Tesla V100-SXM2-32GB", d.Name.Value)
	assert.Equal(t, "volta", d.Architecture.Value)
	assert.Equal(t, uint64(32480)<<20, d.Memory.TotalBytes.Value)
	assert.Equal(t, uint64(10)<<20, d.Memory.UsedBytes.Value)
	assert.Equal(t, profiles.Some(uint32(300_000)), d.Power.RequestedLimitMW)
	assert.Equal(t, profiles.Some(uint64(0)), d.ECC.Errors.Volatile.DoubleBit.CBU)
	assert.Equal(t, "900-2G503-0430-000", d.BoardPartNumber.Value) // the label was another before 525
	assert.Equal(t, uint32(5120), d.NumGPUCores.Value)             // of the shipped board
	var notes []string
	for _, n := range r.Notes {
		notes = append(notes, n.String())
	}
	assert.Equal(t, []string{
		`a:1: not understood: "A V100 of an IBM AC922, quoted in PrincetonUniversity/gpu_pr…"`,
		`a:12: 4 GPUs are attached, and the output has 1: it is of -i, or it is cut`,
		`a:42: the profile has no key for ibmnpu/relaxed_ordering_mode: "Disabled"`,
	}, notes)
}

// TestAlwaysTheSame: the same outputs make the same profile, byte for byte, and the same notes.
func TestAlwaysTheSame(t *testing.T) {
	outputs, err := filepath.Glob(filepath.Join("..", "..", "tests", "testdata", "import", "*.txt"))
	require.NoError(t, err)
	require.NotEmpty(t, outputs)
	imports := [][]string{{twoGPUs, bridge, links}, {twoGPUs, strings.ReplaceAll(bridge, "NV2", "PXB")}}
	for _, path := range outputs {
		imports = append(imports, []string{output(t, filepath.Base(path))})
	}
	for _, texts := range imports {
		_, first := from(t, Options{}, texts...)
		for range 20 { // the order of Go's maps changes from one time to the next
			_, again := from(t, Options{}, texts...)
			require.Equal(t, string(first.Profile), string(again.Profile))
			require.Equal(t, first.Notes, again.Notes)
		}
	}
}

// TestIndented reads an output that a bug report indents, with the lines of DOS and a terminal's colours.
func TestIndented(t *testing.T) {
	text := output(t, "rtx-5090-570.txt")
	want, _ := from(t, Options{}, text)
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = "\t> "[:1] + strings.Replace(lines[i], "GPU UUID", "\x1b[1mGPU UUID\x1b[0m", 1) + "\r"
	}
	have, _ := from(t, Options{}, strings.Join(lines, "\n"))
	assert.Equal(t, want, have)
}

func TestIdentifiers(t *testing.T) {
	text := output(t, "rtx-2080-super-595.txt")
	text = strings.Replace(text, "GPU-00000000-0000-0000-0000-000000000000", "GPU-5a3c4d1e-0b6f-4c55-9d39-9a7c1f20b6e1", -1)
	text = strings.Replace(text, "/usr/bin/", "/home/somebody/", -1)
	kept, _ := from(t, Options{KeepIdentifiers: true}, text)
	other, r := from(t, Options{}, text)
	assert.Equal(t, profiles.UUID("GPU-5a3c4d1e-0b6f-4c55-9d39-9a7c1f20b6e1"), kept.Devices[0].UUID)
	assert.NotEqual(t, kept.Devices[0].UUID, other.Devices[0].UUID)
	assert.Equal(t, uint64(0x7f8dedcec96ce17f), kept.Devices[0].PDI.Value)
	assert.NotEqual(t, kept.Devices[0].PDI, other.Devices[0].PDI)
	for _, secret := range []string{"5a3c4d1e", "somebody", "7f8dedce"} {
		assert.NotContains(t, strings.ToLower(string(r.Profile)), secret)
	}
	assert.Contains(t, kept.Devices[0].Processes[0].Name.Value, "/home/somebody/")
}

const twoGPUs = `<nvidia_smi_log><driver_version>550.1</driver_version><attached_gpus>2</attached_gpus>
<gpu id="00000000:27:00.0"><product_name>A</product_name><product_architecture>Ampere</product_architecture><serial>1</serial><uuid>N/A</uuid></gpu>
<gpu id="00000000:38:00.0"><product_name>A</product_name><product_architecture>Ampere</product_architecture><serial>1</serial><uuid>N/A</uuid></gpu>
</nvidia_smi_log>
`

const bridge = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n" +
	"GPU0\t X \tNV2\tSYS\t0-3,8\t0\t\tN/A\nGPU1\tNV2\t X \tSYS\t4-7\t1\t\tN/A\nNIC0\tSYS\tSYS\t X \t\t\t\n\nLegend:\n\n  X    = Self\n"

const links = "GPU 0: A (UUID: GPU-x)\n\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n\t Link 2: <inactive>\n" +
	"GPU 1: A (UUID: GPU-y)\n\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n\t Link 2: <inactive>\n"

func TestNeighbours(t *testing.T) {
	b, r := from(t, Options{}, twoGPUs, bridge, links)
	assert.Equal(t, b.Devices[0].Serial, b.Devices[1].Serial) // one board
	assert.Equal(t, uint32(3), b.NVLink.LinksPerGPU.Value)
	assert.Equal(t, uint32(25_000), b.NVLink.BandwidthPerLinkMbps.Value)
	assert.Equal(t, profiles.Some(uint32(1)), b.ListedLinks(0)[0].RemoteIndex)
	assert.Equal(t, "inactive", b.ListedLinks(1)[2].State.Value)
	require.Len(t, b.Topology.RootComplexes, 2)
	assert.Equal(t, profiles.CPUSet{0, 1, 2, 3, 8}, b.Topology.RootComplexes[0].CPUAffinity)
	assert.Equal(t, profiles.Some(int32(1)), b.Topology.RootComplexes[1].NUMANode)
	assert.Empty(t, r.Notes)

	switched := strings.ReplaceAll(bridge, "NV2", "NV4")
	b, _ = from(t, Options{}, twoGPUs, switched, links+"\n")
	assert.Len(t, b.NVLink.Switches, 1)
	b, _ = from(t, Options{}, twoGPUs, strings.ReplaceAll(bridge, "NV2", "PIX"))
	require.Len(t, b.Topology.RootComplexes, 1)
	assert.Equal(t, "single", b.Devices[1].Topology.DefaultLevel.Value)
}

func TestClocks(t *testing.T) {
	b, _ := from(t, Options{}, twoGPUs, "memory [MHz], graphics [MHz]\n5001 MHz, 1590 MHz\n5001 MHz, 1575 MHz\n405 MHz, 300 MHz\n"+
		"5001 MHz, 1200 MHz\n")
	require.Len(t, b.Devices[0].SupportedClocks.MemoryClocks, 2)
	assert.Equal(t, profiles.ClockSteps{1590, 1575}, b.Devices[0].SupportedClocks.MemoryClocks[0].GraphicsClocks)
	assert.Equal(t, profiles.ClockSteps{1200}, b.Devices[1].SupportedClocks.MemoryClocks[0].GraphicsClocks)
	assert.Equal(t, "2062.5..2047.5/7.5", stepped([]uint32{2062, 2055, 2047}).Value)
}

// TestMistakes: what is cut, mangled or hostile is an error with its line.
func TestMistakes(t *testing.T) {
	text := output(t, "rtx-5090-570.txt")
	swap := func(a, b string) string {
		require.Contains(t, text, a)
		return strings.Replace(text, a, b, 1)
	}
	cut := text[:strings.Index(text, "    Max Clocks")]
	for name, c := range map[string]struct {
		text, says string
		line       int
	}{
		"nothing":          {"", "is empty", 1},
		"something else":   {"hello\n", "holds no output", 1},
		"bytes":            {"a\n\xff\n", "is not text in UTF-8", 2},
		"control":          {"a\n\x00\n", "control character", 2},
		"cut":              {cut, "is cut off", strings.Count(cut, "\n")},
		"a part of -d":     {"==============NVSMI LOG==============\n\nGPU 00000000:01:00.0\n    Processes : None\n", "has no product_name", 3},
		"letters":          {swap("32607 MiB", "32GO7 MiB"), "want a number and MiB", 108},
		"sum":              {swap("32607 MiB", "42607 MiB"), "are not the total", 108},
		"negative":         {swap("575.00 W", "-575.00 W"), "want a number and W", 179},
		"too large":        {swap("14001 MHz", "99999999999 MHz"), "outside", 215},
		"long name":        {swap("NVIDIA GeForce RTX 5090", strings.Repeat("y", 200)), "more than the 95", 11},
		"twice":            {swap("    Fan Speed", "    Product Name : x\n    Fan Speed"), "stands in line 11 already", 94},
		"version":          {swap("570.124.06\nCUDA", "570..06\nCUDA"), "want numbers between dots", 6},
		"fewer GPUs":       {swap("Attached GPUs                             : 1", "Attached GPUs : 0"), "has 1 GPUs", 9},
		"bus id":           {strings.Replace(twoGPUs, "00000000:38:00.0", "nowhere", 1), "bad bus id", 3},
		"same GPU":         {strings.Replace(twoGPUs, ":38:", ":27:", 1), "stands in line 2 already", 3},
		"XML cut":          {twoGPUs[:300], "is cut off", 3},
		"XML mangled":      {strings.Replace(twoGPUs, "</uuid></gpu>\n<gpu", "</uid></gpu>\n<gpu", 1), "is not XML", 2},
		"XML deep":         {strings.Replace(twoGPUs, "<serial>1</serial>", strings.Repeat("<a>", 50), 1), "nested more than", 2},
		"XML entity":       {strings.Replace(twoGPUs, "<serial>1<", "<serial>&lol;<", 1), "is not XML", 2},
		"XML id":           {strings.Replace(twoGPUs, `<gpu id="00000000:27:00.0">`, "<gpu>", 1), "has no id", 2},
		"topo cut":         {twoGPUs + strings.Replace(bridge, "\tSYS\t4-7\t1\t\tN/A", "", 1), "is it cut", 7},
		"topo one way":     {twoGPUs + strings.Replace(bridge, "GPU1\tNV2", "GPU1\tNV1", 1), "and back it is", 6},
		"topo of another":  {strings.Replace(twoGPUs, "\n<gpu id=\"00000000:38", "</nvidia_smi_log>\n<!-- ", 1) + "-->\n" + bridge, "are they of one machine", 0},
		"links cut":        {twoGPUs + strings.Replace(links, "\t Link 1: 25 GB/s\n", "", 1), "is a part missing", 7},
		"clocks mangled":   {twoGPUs + "memory [MHz], graphics [MHz]\n5001 MHz, fast\n", "is no clock", 6},
		"clocks of nobody": {twoGPUs + "memory [MHz], graphics [MHz]\n", "no clocks follow", 5},
	} {
		t.Run(name, func(t *testing.T) {
			if c.says == "" {
				return
			}
			line := mistake(t, c.text, c.says)
			if c.line > 0 {
				assert.Equal(t, c.line, line)
			} else {
				assert.Positive(t, line)
			}
		})
	}
}

// TestEveryCut: an output that ends anywhere is an error with a line, or, after its last GPU, a profile.
func TestEveryCut(t *testing.T) {
	for _, name := range []string{"rtxa6000-24q-535.txt", "v100-418.txt"} {
		lines := strings.SplitAfter(output(t, name), "\n")
		for i := range lines {
			text := strings.Join(lines[:i], "")
			_, err := Import([]File{{"f", []byte(text)}}, Options{})
			if err == nil {
				assert.Contains(t, text, "Processes", "%s: %d lines", name, i)
				continue
			}
			var e *profiles.Error
			require.True(t, errors.As(err, &e), err)
			assert.True(t, e.Line > 0 && e.Line <= max(i, 1), "%s: %d lines: %s", name, i, e)
		}
	}
}

func FuzzImport(f *testing.F) {
	for _, name := range []string{"v100-418.txt", "rtxa6000-24q-535.txt", "h200-590.txt"} {
		f.Add([]byte(output(f, name)))
	}
	f.Add([]byte(twoGPUs + bridge + links + "memory [MHz], graphics [MHz]\n5001 MHz, 1590 MHz\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Import([]File{{"f", text}}, Options{KeepIdentifiers: len(text)%2 == 0})
		if err != nil {
			var e *profiles.Error
			require.ErrorAs(t, err, &e)
			require.Positive(t, e.Line)
			return
		}
		_, err = profiles.Parse("profile", r.Profile)
		require.NoError(t, err)
	})
}
