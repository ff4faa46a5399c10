package tests

import (
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// lstopo runs a version of hwloc's lstopo, with its plugin for NVML, on a board.
func lstopo(t *testing.T, hwloc, profile string, args ...string) outcome {
	t.Helper()
	program, libraries := fetched(t, hwloc, "lstopo-no-graphics"), filepath.Dir(fetched(t, hwloc, "libhwloc.so.15"))
	// One that was built for a newer libc than this machine may have brings that, with the linker that belongs to it.
	script := `export HWLOC_HIDE_ERRORS=0 HWLOC_PLUGINS_PATH="$0/hwloc"; libraries=$LD_LIBRARY_PATH:$0
if [ -e "$0/ld-linux-x86-64.so.2" ]; then exec "$0/ld-linux-x86-64.so.2" --library-path "$libraries" "$@"; fi
LD_LIBRARY_PATH=$libraries exec "$@"`
	return inside(t, profile, append([]string{"sh", "-c", script, libraries, program}, args...)...).succeeds(t)
}

// topology is an object in lstopo's XML.
type topology struct {
	Type    string     `xml:"type,attr"`
	Name    string     `xml:"name,attr"`
	Subtype string     `xml:"subtype,attr"`
	BusID   string     `xml:"pci_busid,attr"`
	Speed   string     `xml:"pci_link_speed,attr"`
	Objects []topology `xml:"object"`
	Infos   []struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	} `xml:"info"`
}

// gpus are the objects of the NVML plugin: a text for each, with that of the PCI device in which it is.
func (o topology) gpus() (list []string) {
	for _, child := range o.Objects {
		if child.Subtype == "NVML" {
			text := fmt.Sprintf("%s at %s, %s GB/s", child.Name, o.BusID, o.Speed)
			for _, info := range child.Infos {
				text += fmt.Sprintf(", %s=%s", info.Name, info.Value)
			}
			list = append(list, text)
		}
		list = append(list, child.gpus()...)
	}
	return list
}

// TestLstopo: lstopo's NVML plugin finds every GPU of every shipped board, in its PCI device and with its link's speed, which is the greatest possible one
// to hwloc 2.9.
func TestLstopo(t *testing.T) {
	namespaces(t)
	for _, name := range profiles.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hwloc := "hwloc-2.12"
			if name == "v100-sxm2-32gb" { // its driver has not all functions that hwloc 2.12 links
				assert.NotContains(t, lstopo(t, hwloc, name, "--of", "xml").stdout, "NVML")
				hwloc = "hwloc-2.9"
			}
			out := lstopo(t, hwloc, name, "--of", "xml")
			var whole topology
			require.NoError(t, xml.Unmarshal([]byte(out.stdout), &whole))
			var want []string
			for i, d := range mustBoard(t, name).Devices {
				speed := hwlocSpeed(d.PCIe.CurrentLinkGen, d.PCIe.CurrentLinkWidth)
				if hwloc == "hwloc-2.9" {
					speed = hwlocSpeed(d.PCIe.MaxLinkGen, d.PCIe.MaxLinkWidth)
				}
				text := fmt.Sprintf("nvml%d at %s, %s GB/s, Backend=NVML, GPUVendor=NVIDIA Corporation, GPUModel=%s",
					i, busIDs(t, name)[i], speed, d.Name.Value)
				if d.Serial.Valid {
					text += ", NVIDIASerial=" + d.Serial.Value
				}
				want = append(want, text+", NVIDIAUUID="+string(d.UUID))
			}
			assert.ElementsMatch(t, want, whole.gpus())
		})
	}
}

// hwlocSpeed is the speed of a PCIe link in GB/s as hwloc counts it: of 10 bits 8 carry data in the first two generations, of 130 bits
// 128 in the next three, and of 256 bytes 242 in the sixth.
func hwlocSpeed(generation, width profiles.Opt[uint32]) string {
	speed := 0.0
	switch g := generation.Value; {
	case !generation.Valid || !width.Valid:
	case g <= 2:
		speed = 2.5 * float64(g) * 8 / 10
	case g <= 5:
		speed = 8 * float64(uint32(1)<<(g-3)) * 128 / 130
	default:
		speed = 8 * float64(uint32(1)<<(g-3)) * 242 / 256
	}
	return fmt.Sprintf("%f", speed/8*float64(width.Value))
}

// TestLstopoNVLink: hwloc's matrix of NVLink bandwidths, in MB/s, between GPUs that are linked directly, in pairs, or to switches.
func TestLstopoNVLink(t *testing.T) {
	namespaces(t)
	for _, c := range []struct{ hwloc, profile, want string }{
		{"hwloc-2.9", "v100-sxm2-32gb", `
nvml0 1000000 25000 25000 50000 50000 0 0 0
nvml1 25000 1000000 50000 25000 0 50000 0 0
nvml2 25000 50000 1000000 50000 0 0 25000 0
nvml3 50000 25000 50000 1000000 0 0 0 25000
nvml4 50000 0 0 0 1000000 25000 25000 50000
nvml5 0 50000 0 0 25000 1000000 50000 25000
nvml6 0 0 25000 0 25000 50000 1000000 50000
nvml7 0 0 0 25000 50000 25000 50000 1000000
`},
		{"hwloc-2.12", "a100-sxm4-80gb", `
nvml0 1000000 100000 100000 100000
nvml1 100000 1000000 100000 100000
nvml2 100000 100000 1000000 100000
nvml3 100000 100000 100000 1000000
`},
		{"hwloc-2.12", "a100-pcie-80gb", `
nvml0 1000000 300000 0 0
nvml1 300000 1000000 0 0
nvml2 0 0 1000000 300000
nvml3 0 0 300000 1000000
`},
		{"hwloc-2.12", "h100", `
nvml0 1000000 0 0 0 0 0 0 0 125000 125000 100000 100000
nvml1 0 1000000 0 0 0 0 0 0 125000 125000 100000 100000
nvml2 0 0 1000000 0 0 0 0 0 125000 125000 100000 100000
nvml3 0 0 0 1000000 0 0 0 0 125000 125000 100000 100000
nvml4 0 0 0 0 1000000 0 0 0 125000 125000 100000 100000
nvml5 0 0 0 0 0 1000000 0 0 125000 125000 100000 100000
nvml6 0 0 0 0 0 0 1000000 0 125000 125000 100000 100000
nvml7 0 0 0 0 0 0 0 1000000 125000 125000 100000 100000
0000:01:00.0 125000 125000 125000 125000 125000 125000 125000 125000 1000000 0 0 0
0000:02:00.0 125000 125000 125000 125000 125000 125000 125000 125000 0 1000000 0 0
0000:03:00.0 100000 100000 100000 100000 100000 100000 100000 100000 0 0 1000000 0
0000:04:00.0 100000 100000 100000 100000 100000 100000 100000 100000 0 0 0 1000000
`},
	} {
		t.Run(c.profile, func(t *testing.T) {
			t.Parallel()
			_, matrix, found := strings.Cut(lstopo(t, c.hwloc, c.profile, "--distances").stdout, "NVLinkBandwidth")
			require.True(t, found)
			var rows []string
			for _, line := range strings.Split(matrix, "\n")[2:] { // after the rest of the title and the line of the names
				if fields := strings.Fields(line); len(fields) > 0 {
					rows = append(rows, strings.Join(fields, " "))
				}
			}
			assert.Equal(t, strings.Split(strings.TrimSpace(c.want), "\n"), rows)
		})
	}
}
