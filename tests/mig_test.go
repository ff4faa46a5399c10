package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// migNode is a node with a state directory for programs that cut its GPUs, each in a process of its own.
type migNode struct {
	program, profile, state string
}

func newMIGNode(t *testing.T, driver int, profile string) migNode {
	t.Helper()
	dir := t.TempDir()
	n := migNode{fetched(t, "nvidia-smi-"+strconv.Itoa(driver), "nvidia-smi"), filepath.Join(dir, "profile.yaml"), filepath.Join(dir, "state")}
	require.NoError(t, os.WriteFile(n.profile, []byte(profile), 0o644))
	require.NoError(t, os.Mkdir(n.state, 0o755))
	return n
}

// env is the environment of the node's programs.
func (n migNode) env() []string {
	return with(library, "LC_ALL=C", "TZ=UTC", "MOCK_NVML_CONFIG="+n.profile, "NVMLFAB_STATE_DIR="+n.state)
}

// run runs nvidia-smi with a command line.
func (n migNode) run(t *testing.T, line string) outcome {
	t.Helper()
	return ends(t, "", n.env(), n.program, strings.Fields(line)...)
}

// caller is a process on the node that calls functions by name, and the handle of a GPU in it.
func (n migNode) caller(t *testing.T, index uint32) (gpu uint64, c *caller) {
	t.Helper()
	c = newCaller(t, compile(t, "call"), n.env()...)
	require.Equal(t, nvml.SUCCESS, c.call("nvmlInit_v2"))
	gpu, ret := get[uint64](c, "nvmlDeviceGetHandleByIndex_v2", index)
	require.Equal(t, nvml.SUCCESS, ret)
	return gpu, c
}

// needsRoot skips a test that changes GPUs if the user may not.
func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		skip(t, "only root may configure MIG")
	}
}

// migLines are the life of instances on a board, line by line. A line that begins with ! is not for driver 470, which does
// not have the command.
var migLines = map[string]string{
	"h100": `
mig -lgip -i 1
mig -cgi 9
-mig 1 -i 1
-L
mig -lgi
mig -lci
mig -dgi
-i 1
mig -lgip
mig -lgipp -i 1
mig -cgi 9,19 -C
mig -lgip -i 1
mig -cgi 19:6
mig -cgi 19:3
mig -cgi 99
mig -lgi
mig -lcip
!mig -lcipp
mig -cci -gi 10
mig -cci -gi 10
mig -lci
-L
-i 1
-q -i 1
mig -dgi
mig -dci -gi 2
mig -cci 0,1 -gi 2
mig -cci 0,0 -gi 2
-L
-i 1
mig -lci -gi 2
mig -lcip -gi 2
mig -dci
mig -dci
mig -dgi -gi 7
mig -lgi
mig -dgi
mig -lgi
mig -lgip -i 1
-mig 0 -i 1
-L
`,
	"a100-sxm4-40gb": `
-mig 1 -i 0
mig -lgip -i 0
mig -lgipp -i 0
mig -cgi 9,19,14,19
mig -lgi
mig -lcip
-i 0
mig -cci
-L
-i 0
mig -dci
mig -dgi
mig -cgi 5
mig -lgip -i 0
mig -cgi 14
mig -lgip -i 0
mig -cgi 19
mig -lgip -i 0
mig -lcip -gi 1
mig -dgi
mig -cgi 0 -C
mig -lcip
-L
-mig 0 -i 0
`,
	"gb200": `
-mig 1 -i 0
mig -lgip -i 0
mig -lgipp -i 0
mig -cgi 15,14,19,20 -C
mig -lgi
mig -lcip
-L
-mig 0 -i 0
`,
}

var (
	theTime  = regexp.MustCompile(`(?m)^(Mon|Tue|Wed|Thu|Fri|Sat|Sun) .* \d{4} *\n`)
	queryMIG = regexp.MustCompile(`(?s)    MIG Mode\n.*?\n    Accounting Mode`)
)

// TestMIGCommands runs the life of instances with each nvidia-smi that knows MIG, every line in a process of its own, and
// compares outputs and exit codes with testdata/mig, which -update rewrites.
func TestMIGCommands(t *testing.T) {
	needsRoot(t)
	for board, lines := range migLines {
		for _, driver := range smiDrivers {
			name := fmt.Sprintf("%s-%d", board, driver)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				n := newMIGNode(t, driver, "extends: "+board+"\ncount: 2\n")
				var log strings.Builder
				for line := range strings.Lines(strings.TrimSpace(lines)) {
					line = strings.TrimSpace(line)
					if rest, found := strings.CutPrefix(line, "!"); found {
						if line = rest; driver == 470 {
							continue
						}
					}
					out := n.run(t, line)
					text := theTime.ReplaceAllString(out.stdout, "")
					if strings.HasPrefix(line, "-q") {
						text = queryMIG.FindString(text) + "\n"
					}
					fmt.Fprintf(&log, "$ nvidia-smi %s\n%sexit %d\n\n", line, text, out.code)
				}
				path := filepath.Join("testdata", "mig", name+".txt")
				if *update {
					require.NoError(t, os.WriteFile(path, []byte(log.String()), 0o644))
				}
				want, err := os.ReadFile(path)
				require.NoError(t, err)
				assert.Equal(t, string(want), log.String(), "go test ./tests -run MIGCommands -update rewrites %s", path)
			})
		}
	}
}

// TestMIGCase28IndexHoles: an index without a MIG device is NOT_FOUND up to the maximum, which stays 7, and MIG mode without
// instances is a state like any other.
func TestMIGCase28IndexHoles(t *testing.T) {
	needsRoot(t)
	n := newMIGNode(t, 550, "extends: h100\ncount: 8\n")
	n.run(t, "-mig 1 -i 3").succeeds(t)
	gpu, c := n.caller(t, 3)
	most := func(gpu uint64) uint32 {
		n, ret := get[uint32](c, "nvmlDeviceGetMaxMigDeviceCount", gpu)
		require.Equal(t, nvml.SUCCESS, ret)
		return n
	}
	holes := func(devices int) {
		t.Helper()
		assert.EqualValues(t, 7, most(gpu))
		for i := range 9 {
			want := nvml.ERROR_NOT_FOUND
			if i < devices {
				want = nvml.SUCCESS
			} else if i >= 7 {
				want = nvml.ERROR_INVALID_ARGUMENT
			}
			_, ret := get[uint64](c, "nvmlDeviceGetMigDeviceHandleByIndex", gpu, i)
			assert.Equal(t, want, ret, "index %d", i)
		}
	}
	holes(0)
	assert.Contains(t, n.run(t, "-i 3").succeeds(t).stdout, "No MIG devices found")
	n.run(t, "mig -cgi 19,19,19 -i 3").succeeds(t)
	holes(0) // GPU instances without compute instances
	assert.Contains(t, n.run(t, "-i 3").succeeds(t).stdout, "No MIG devices found")
	n.run(t, "mig -cci -i 3").succeeds(t)
	holes(3)
	n.run(t, "mig -dci -gi 12 -i 3").succeeds(t)
	holes(2) // those after it move up
	for _, index := range []uint32{0, 7} {
		other, ret := get[uint64](c, "nvmlDeviceGetHandleByIndex_v2", index)
		require.Equal(t, nvml.SUCCESS, ret)
		assert.Zero(t, most(other), "GPU %d", index)
	}
	assert.Equal(t, 2, strings.Count(n.run(t, "-L").succeeds(t).stdout, "  MIG 1g.10gb "))
}

// TestMIGCase29ProfileIDs: the ids of profiles are not NVML's numbers of them.
func TestMIGCase29ProfileIDs(t *testing.T) {
	n := newMIGNode(t, 550, "extends: h100\ncount: 1\n")
	gpu, c := n.caller(t, 0)
	ids := map[uint32]uint32{}
	for kind := range uint32(nvml.GPU_INSTANCE_PROFILE_COUNT) {
		info, ret := get[nvml.GpuInstanceProfileInfo](c, "nvmlDeviceGetGpuInstanceProfileInfo", gpu, kind)
		if ret == nvml.SUCCESS {
			ids[kind] = info.Id
		} else {
			assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, ret, "number %d", kind)
		}
	}
	assert.Equal(t, map[uint32]uint32{0: 19, 7: 20, 9: 15, 1: 14, 2: 9, 3: 5, 4: 0}, ids)
}

// TestMIGCase30Names: names are those of the tables, whatever the memory is.
func TestMIGCase30Names(t *testing.T) {
	needsRoot(t)
	n := newMIGNode(t, 550, "extends: h100\ncount: 1\n")
	n.run(t, "-mig 1").succeeds(t)
	assert.Contains(t, n.run(t, "mig -cgi 7g.80gb -C").succeeds(t).stdout, "using profile MIG 7g.80gb (ID  0)")
	assert.Regexp(t, `(?m)^  MIG 7g\.80gb     Device  0: \(UUID: MIG-[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\)$`,
		n.run(t, "-L").succeeds(t).stdout)
}

// TestMIGCase31StaleHandles: handles of what another process has deleted are refused for good, also if it is made again.
func TestMIGCase31StaleHandles(t *testing.T) {
	needsRoot(t)
	n := newMIGNode(t, 550, "extends: h100\ncount: 1\n")
	n.run(t, "-mig 1").succeeds(t)
	n.run(t, "mig -cgi 9 -C").succeeds(t)
	gpu, c := n.caller(t, 0)
	handle := func(symbol string, args ...any) uint64 {
		t.Helper()
		h, ret := get[uint64](c, symbol, args...)
		require.Equal(t, nvml.SUCCESS, ret, symbol)
		return h
	}
	mig := handle("nvmlDeviceGetMigDeviceHandleByIndex", gpu, 0)
	gi := handle("nvmlDeviceGetGpuInstanceById", gpu, 2)
	ci := handle("nvmlGpuInstanceGetComputeInstanceById", gi, 0)
	expect := func(device, instance nvml.Return, when string) {
		t.Helper()
		_, ret := get[uint32](c, "nvmlDeviceGetIndex", mig)
		assert.Equal(t, device, ret, when)
		_, ret = get[nvml.DeviceAttributes](c, "nvmlDeviceGetAttributes_v2", mig)
		assert.Equal(t, device, ret, when)
		assert.Equal(t, device, c.call("nvmlComputeInstanceGetInfo_v2", ci, make([]byte, 64)), when)
		assert.Equal(t, instance, c.call("nvmlGpuInstanceGetInfo", gi, make([]byte, 64)), when)
	}
	const gone = nvml.ERROR_INVALID_ARGUMENT
	expect(nvml.SUCCESS, nvml.SUCCESS, "there")
	n.run(t, "mig -dci").succeeds(t)
	expect(gone, nvml.SUCCESS, "without compute instance")
	n.run(t, "mig -dgi").succeeds(t)
	expect(gone, gone, "without GPU instance")
	n.run(t, "mig -cgi 9 -C").succeeds(t)
	expect(gone, gone, "made again")
	assert.NotEqual(t, mig, handle("nvmlDeviceGetMigDeviceHandleByIndex", gpu, 0))
	n.run(t, "-mig 0").succeeds(t)
	_, ret := get[uint64](c, "nvmlDeviceGetMigDeviceHandleByIndex", gpu, 0)
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, ret, "MIG is off")
}

// TestMIGHidden: a program that sees one of a GPU's MIG devices, as in a container that was given one, counts the others when it asks
// what fits, and may not configure MIG: it would not see what it makes.
func TestMIGHidden(t *testing.T) {
	needsRoot(t)
	n := newMIGNode(t, 550, "extends: h100\ncount: 1\n")
	n.run(t, "-mig 1").succeeds(t)
	n.run(t, "mig -cgi 9,14,19:2 -C").succeeds(t) // memory slices 4 to 7, 0 and 1, and 2
	free := func(n migNode) (all []string) {
		for _, m := range lgipRow.FindAllStringSubmatch(n.run(t, "mig -lgip").succeeds(t).stdout, -1) {
			all = append(all, m[2]+" "+m[3])
		}
		return all
	}
	part := n
	part.profile = filepath.Join(t.TempDir(), "part.yaml")
	require.NoError(t, os.WriteFile(part.profile, []byte("extends: h100\ncount: 1\ndevice_defaults: {mig: {visible: [gi2/ci0]}}\n"), 0o644))
	assert.Equal(t, []string{"19 1/7", "20 1/1", "15 0/4", "14 0/3", "9 0/2", "5 0/1", "0 0/1"}, free(part))
	assert.Equal(t, free(n), free(part))
	assert.Equal(t, []string{"  MIG 3g.40gb     Device  0:"}, regexp.MustCompile(`(?m)^  MIG .*:`).FindAllString(strings.ReplaceAll(
		part.run(t, "-L").succeeds(t).stdout, " (UUID", "\n"), -1))
	before := n.run(t, "-L").succeeds(t).stdout
	for _, line := range []string{"mig -cgi 19", "mig -cgi 19:3", "mig -cgi 19:0", "mig -dci", "mig -dgi", "mig -cci -gi 2", "-mig 0"} {
		out := part.run(t, line)
		assert.EqualValues(t, nvml.ERROR_NO_PERMISSION, out.code, "%s: %s", line, out.stdout)
		assert.Contains(t, out.stdout, "Insufficient Permissions", line)
	}
	assert.Equal(t, before, n.run(t, "-L").succeeds(t).stdout)
	n.run(t, "mig -cgi 19:3 -C").succeeds(t)
	assert.Equal(t, "19 0/7", free(part)[0], "what others make counts at once")
}
