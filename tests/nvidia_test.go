package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// seenByNVIDIA is the output of the program in tests/nvidia.
type seenByNVIDIA struct {
	GPUs []struct {
		UUID, BusID         string
		Architecture, Brand string
		ComputeCapability   string
		AddressingMode      string
		Fabric, MIGCapable  bool
		MIGEnabled          bool
		MIGProfiles         []string
		MIGDevices          []struct{ UUID, Profile, Parent string }
		Links               map[int][]string
	}
	CDI struct {
		Devices, Libraries []string
		Nodes              map[string][]string
	}
}

// nvidiaProgram builds and vets tests/nvidia, which has its own go.mod, or skips the test if its modules cannot be
// fetched.
func nvidiaProgram(t *testing.T) string {
	t.Helper()
	source := filepath.Join(root, "tests", "nvidia")
	if out := runIn(t, source, nil, "go", "list", "-deps", "."); out.code != 0 {
		skip(t, "the modules of tests/nvidia cannot be fetched: "+out.stderr)
	}
	runIn(t, source, nil, "go", "vet", ".").succeeds(t)
	program := filepath.Join(t.TempDir(), "nvidia")
	runIn(t, source, nil, "go", "build", "-ldflags", "-extldflags=-Wl,-z,lazy", "-o", program, ".").succeeds(t)
	return program
}

// TestNVIDIA: the libraries of NVIDIA's device plugin, DRA driver, feature discovery and container toolkit describe
// every shipped board without an error, in the launcher and from a staged tree.
func TestNVIDIA(t *testing.T) {
	namespaces(t)
	program := nvidiaProgram(t)
	for _, name := range profiles.Names() {
		t.Run(name+"/run", func(t *testing.T) {
			checkNVIDIA(t, name, "/dev/.nvmlfab/lib", inside(t, name, program))
		})
		t.Run(name+"/staged", func(t *testing.T) {
			if !slices.Contains(kinds, name) {
				return // staging takes long, and no other board is unlike all of these
			}
			if os.Geteuid() != 0 {
				skip(t, "a staged tree has device nodes only if root makes it")
			}
			dir := filepath.Join(t.TempDir(), "root")
			run(t, nil, launcher(t), "stage", "--root", dir, "--profile", name).succeeds(t)
			libraries := filepath.Join(dir, "usr/lib/x86_64-linux-gnu")
			checkNVIDIA(t, name, libraries,
				run(t, nil, program, "--root", dir, "--library", filepath.Join(libraries, "libnvidia-ml.so.1")))
		})
	}
}

// TestNVIDIAMIG: go-nvlib, on which NVIDIA's device plugin and DRA driver stand, finds the MIG devices of a GPU of each board that can
// be cut. It works out the names of their profiles from memory and slices, and gets those of the board's table. nvcdi names the
// devices and finds their nodes.
func TestNVIDIAMIG(t *testing.T) {
	namespaces(t)
	needsRoot(t)
	program := nvidiaProgram(t)
	for _, name := range profiles.Names() {
		board := mustBoard(t, name)
		table := board.MIG.GPUInstanceProfiles
		if len(table) == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			create, most := []string{table[0].Name}, uint32(1)
			for _, p := range table {
				if p.Slices.Value == 2 && most == 1 || p.Slices.Value == 3 {
					create, most = append(create, p.Name), p.Slices.Value
				}
			}
			script := `"$1" mig create --run $$ --gpu 0 --enable "$2" && exec "$3"`
			out := inRun(t, nil, "--namespace", "--profile", name, "--", "sh", "-c", script, "sh", launcher(t), strings.Join(create, ","), program)
			out.succeeds(t)
			assert.Empty(t, out.stderr)
			var got seenByNVIDIA
			require.NoError(t, json.Unmarshal([]byte(out.stdout), &got))
			g := got.GPUs[0]
			assert.True(t, g.MIGEnabled)
			require.Len(t, g.MIGDevices, len(create))
			var found []string
			for i, m := range g.MIGDevices {
				found = append(found, m.Profile)
				assert.Equal(t, g.UUID, m.Parent)
				assert.Regexp(t, `^MIG-[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, m.UUID)
				for _, device := range []string{m.UUID, fmt.Sprintf("0:%d", i)} {
					nodes := got.CDI.Nodes[device]
					require.Len(t, nodes, 3, device)
					assert.Regexp(t, `^/dev/nvidia-caps/nvidia-cap\d+ /dev/nvidia-caps/nvidia-cap\d+ /dev/nvidia\d+$`, strings.Join(slices.Sorted(slices.Values(nodes)), " "))
				}
			}
			assert.ElementsMatch(t, create, found)
			for _, p := range table {
				assert.Contains(t, g.MIGProfiles, p.Name)
			}
			for _, other := range got.GPUs[1:] {
				assert.Empty(t, other.MIGDevices)
			}
		})
	}
}

func checkNVIDIA(t *testing.T, name, libraries string, out outcome) {
	t.Helper()
	if name == "jetson-thor" { // these libraries want a size of the memory from every GPU that does not share the CPU's by ATS
		assert.NotZero(t, out.code)
		assert.Contains(t, out.stderr, "error getting device memory info: Not Supported")
		return
	}
	out.succeeds(t)
	assert.Empty(t, out.stderr)
	var got seenByNVIDIA
	require.NoError(t, json.Unmarshal([]byte(out.stdout), &got))

	board := mustBoard(t, name)
	ids := busIDs(t, name)
	require.Len(t, got.GPUs, len(board.Devices))
	var names []string
	for i := range board.Devices {
		d, g := &board.Devices[i], got.GPUs[i]
		assert.Equal(t, string(d.UUID), g.UUID)
		assert.Equal(t, ids[i], g.BusID)
		assert.Equal(t, fmt.Sprintf("%d.%d", d.ComputeCapability.Major.Value, d.ComputeCapability.Minor.Value), g.ComputeCapability)
		assert.False(t, g.MIGEnabled)
		assert.Len(t, g.Links, len(board.Devices)-1, "how near each of the other GPUs is")
		for to, links := range g.Links {
			assert.NotEqual(t, i, to)
			assert.NotEmpty(t, links)
			assert.Equal(t, links, got.GPUs[to].Links[i], "%d to %d and back", i, to)
		}
		names = append(names, fmt.Sprint(d.Index), string(d.UUID))
		node := fmt.Sprintf("/dev/nvidia%d", d.MinorNumber.Or(d.Index))
		assert.Equal(t, []string{node}, got.CDI.Nodes[fmt.Sprint(d.Index)])
		assert.Equal(t, []string{node}, got.CDI.Nodes[string(d.UUID)])
	}
	assert.ElementsMatch(t, names, got.CDI.Devices)
	driver := board.System.DriverVersion.Value
	for _, library := range []string{"libcuda.so.", "libnvidia-ml.so.", "libnvmlfab-core.so."} {
		assert.Contains(t, got.CDI.Libraries, filepath.Join(libraries, library+driver))
	}
	first := got.GPUs[0]
	assert.Equal(t, wantNVIDIA[name], fmt.Sprintf("%s %s %t %t %v", first.Architecture, first.AddressingMode, first.Fabric, first.MIGCapable, first.Links[1]))
}

// wantNVIDIA are the first GPU's architecture and addressing mode, whether it is in a fabric, whether it can be
// partitioned, and how near the second GPU is. Drivers before 580 have no function for the addressing mode, so that it is
// not queried. go-gpuallocator counts only direct links between two GPUs; those of most boards end at switches.
var wantNVIDIA = map[string]string{
	"a100-pcie-80gb":      "Ampere  false true [P2PLinkSameCPU TwelveNVLINKLinks]",
	"a100-sxm4-40gb":      "Ampere  false true [P2PLinkCrossCPU]",
	"a100-sxm4-80gb":      "Ampere  false true [P2PLinkCrossCPU FourNVLINKLinks]",
	"a30":                 "Ampere  false true []",
	"b200":                "Blackwell None false true [P2PLinkCrossCPU]",
	"dgx-h100":            "Hopper HMM false true [P2PLinkSameCPU]",
	"gb200":               "Blackwell ATS true true [P2PLinkSameCPU]",
	"gh200":               "Hopper  false true []",
	"h100":                "Hopper HMM false true [P2PLinkCrossCPU]",
	"h100-nvl":            "Hopper  false true []",
	"h100-pcie":           "Hopper  false true []",
	"h200":                "Hopper None false true [P2PLinkCrossCPU]",
	"rtx-pro-6000-server": "Blackwell  false true [P2PLinkCrossCPU]",
	"a10g":                "Ampere  false false []",
	"gb10":                "Blackwell ATS false false []",
	"gb300":               "Blackwell ATS true true [P2PLinkCrossCPU]",
	"l4":                  "Ada Lovelace  false false [P2PLinkCrossCPU]",
	"l40s":                "Ada Lovelace HMM false false []",
	"mixed":               "Turing HMM false false [P2PLinkCrossCPU]",
	"rtx-2080-super":      "Turing HMM false false []",
	"rtx-3090":            "Ampere  false false []",
	"rtx-4080-super":      "Ada Lovelace HMM false false []",
	"rtx-4090":            "Ada Lovelace  false false []",
	"rtx-5090":            "Blackwell  false false []",
	"v100-sxm2-32gb":      "Volta  false false [P2PLinkHostBridge SingleNVLINKLink]",
	"vgpu-rtxa6000-24q":   "Ampere  false true []",
	"t4":                  "Turing HMM false false []",
	"t4-vgpu-host":        "Turing  false false []",
	"v100-vgpu-guest":     "Volta  false true []",
}
