package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvmlfab/nvmlfab/machine/cdi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// migNode is a node with its own state directory.
type migNode struct {
	*testing.T
	profile, dir string
}

func (n migNode) mig(args ...string) outcome {
	n.Helper()
	cmd := exec.Command(filepath.Join(tree, "bin", "nvmlfab"), append([]string{"mig"}, args...)...)
	cmd.Env = []string{"NVMLFAB_STATE_DIR=" + n.dir, "NVMLFAB_PROFILE=" + n.profile}
	return start(n.T, cmd)
}

// does requires that a command succeeds without a word.
func (n migNode) does(args ...string) {
	n.Helper()
	require.Equal(n, outcome{}, n.mig(args...))
}

// list are the GPUs as mig list describes them.
func (n migNode) list() (all []migGPU) {
	n.Helper()
	out := n.mig("list", "--output", "json")
	require.Empty(n, out.stderr)
	require.NoError(n, json.Unmarshal([]byte(out.stdout), &all))
	return all
}

// instances are those of a GPU, as GI:PROFILE@START[CI:COMPUTE@START …].
func (n migNode) instances(gpu int) string {
	n.Helper()
	var all []string
	for _, i := range n.list()[gpu].Instances {
		text := place(i.ID, i.Profile, i.Start)
		var parts []string
		for _, c := range i.Compute {
			parts = append(parts, place(c.ID, c.Profile, c.Start))
		}
		all = append(all, text+"["+strings.Join(parts, " ")+"]")
	}
	return strings.Join(all, " ")
}

func place(id uint32, profile string, start uint32) string {
	text, _ := json.Marshal([]uint32{id, start})
	numbers := strings.Split(strings.Trim(string(text), "[]"), ",")
	return numbers[0] + ":" + profile + "@" + numbers[1]
}

// unchanged requires that a command fails with one line that contains text, and changes nothing.
func (n migNode) unchanged(text string, args ...string) {
	n.Helper()
	before, _ := os.ReadFile(filepath.Join(n.dir, "state.json"))
	n.mig(args...).fails(n.T, 1, text)
	after, _ := os.ReadFile(filepath.Join(n.dir, "state.json"))
	assert.Equal(n, string(before), string(after))
}

func (n migNode) file(text string) string {
	n.Helper()
	return write(n.T, n.TempDir(), "config.yaml", text, 0o644)
}

func TestMIGCommands(t *testing.T) {
	n := migNode{t, "a100-sxm4-40gb", t.TempDir()}
	assert.Equal(t, "disabled", n.list()[0].Mode)
	n.unchanged("GPU 0: MIG mode is off: switch it on with nvmlfab mig create --enable", "create", "--gpu", "0", "19")
	n.does("create", "--gpu", "0", "--enable", "9,MIG 1g.5gb", "14:2")
	assert.Equal(t, "2:3g.20gb@4[0:3g.20gb@0] 4:2g.10gb@2[0:2g.10gb@0] 7:1g.5gb@0[0:1g.5gb@0]", n.instances(0))
	assert.FileExists(t, filepath.Join(n.dir, "caps/gpu0/gi4/ci0/access"))
	n.does("create", "--gpu", "0", "--no-compute", "1g.5gb")
	for text, args := range map[string][]string{
		"GPU 0: there is no room for 1g.5gb":                       {"create", "--gpu", "0", "19"},
		"GPU 0: there is no MIG profile \"1g.6gb\": want 1g.5gb, ": {"create", "--gpu", "0", "1g.6gb"},
		"GPU 0: 2g.10gb cannot start at 1: want 0, 2, 4":           {"create", "--gpu", "0", "14:1"},
		"want a slice after the colon, such as 14:0":               {"create", "--gpu", "0", "14:x"},
		"names no profile":                                           {"create", "--gpu", "0", "14,"},
		"say which GPU with --gpu":                                   {"create", "14"},
		"there is no GPU 99":                                         {"create", "--gpu", "99", "14"},
		"leave --no-compute out":                                     {"create", "--gpu", "0", "--no-compute", "--in", "2", "14"},
		"use two commands":                                           {"create", "--gpu", "0", "--enable", "--in", "2", "14"},
		"GPU 0: there is no GPU instance 9":                          {"create", "--gpu", "0", "--in", "9", "1g.5gb"},
		"there is no room for 1c.3g.20gb in GPU instance 2":          {"create", "--gpu", "0", "--in", "2", "1c.3g.20gb"},
		"1g.5gb cannot start at 3":                                   {"create", "--gpu", "0", "--in", "8", "1g.5gb:3"},
		"3g.20gb has no compute instance \"4c.3g.20gb\": want 1c.3g": {"create", "--gpu", "0", "--in", "2", "4c.3g.20gb"},
		"say which instances, or --all":                              {"destroy", "--gpu", "0"},
		"leave out either --all or the instances":                    {"destroy", "--gpu", "0", "--all", "2"},
		"GPU 0: there is no compute instance 1 in GPU instance 2":    {"destroy", "--gpu", "0", "7", "2/1"},
		"want the number of a GPU instance":                          {"destroy", "--gpu", "0", "x"},
	} {
		n.unchanged(text, args...)
	}
	n.does("create", "--gpu", "0", "--in", "8", "0")
	n.does("destroy", "--gpu", "0", "2/0", "7")
	assert.NoDirExists(t, filepath.Join(n.dir, "caps/gpu0/gi7"))
	n.does("create", "--gpu", "0", "--in", "2", "1c.3g.20gb:1,1c.3g.20gb")
	assert.Equal(t, "2:3g.20gb@4[0:1c.3g.20gb@1 1:1c.3g.20gb@0] 4:2g.10gb@2[0:2g.10gb@0] 8:1g.5gb@1[0:1g.5gb@0]", n.instances(0))
	table := n.mig("list", "--gpu", "0").stdout
	assert.Regexp(t, `(?m)^GPU  MIG      GI  PROFILE  PLACEMENT  CI  COMPUTE     DEVICE  UUID$`, table)
	assert.Regexp(t, `(?m)^0    enabled  2   3g.20gb  4:4        1   1c.3g.20gb  0:1     MIG-[0-9a-f-]{36}$`, table)
	n.does("destroy", "--gpu", "all", "--all")
	assert.Empty(t, n.instances(0))
	n.does("destroy", "--gpu", "0", "--all")
	migNode{t, "t4", t.TempDir()}.unchanged("GPU 0: it has no MIG mode", "create", "--gpu", "0", "--enable", "19")
}

func TestMIGApply(t *testing.T) {
	n := migNode{t, "h100", t.TempDir()}
	n.does("apply", n.file(`
version: v1
mig-configs:
  one:
    - devices: all
      mig-enabled: false
    - devices: [0, 2]
      device-filter: ["0x233010DE"]
      mig-enabled: true
      mig-devices: {3g.40gb: 1, 1g.10gb: 4}
    - devices: [1]
      mig-enabled: true
      mig-devices: {1c.3g.40gb: 2, 2c.4g.40gb: 1, 1c.4g.40gb: 2}
    - devices: [3]
      device-filter: "0x20B510DE"
      mig-enabled: true
    - &four
      devices: [&number 4]
      mig-enabled: true
    - *four
    - devices: [*number]
      mig-enabled: true
`))
	const half = "2:3g.40gb@4[0:3g.40gb@0] 7:1g.10gb@0[0:1g.10gb@0] 8:1g.10gb@1[0:1g.10gb@0] 9:1g.10gb@2[0:1g.10gb@0] 10:1g.10gb@3[0:1g.10gb@0]"
	assert.Equal(t, half, n.instances(0))
	assert.Equal(t, half, n.instances(2))
	assert.Equal(t, "1:4g.40gb@0[0:2c.4g.40gb@0 1:1c.4g.40gb@2 2:1c.4g.40gb@3] 2:3g.40gb@4[0:1c.3g.40gb@0 1:1c.3g.40gb@1]", n.instances(1))
	var modes []string
	for _, g := range n.list() {
		modes = append(modes, g.Mode)
	}
	assert.Equal(t, strings.Fields("enabled enabled enabled disabled enabled disabled disabled disabled"), modes)
}

// TestMIGApplyKeeps: what is as the file wants it is not touched, and what is not is replaced.
func TestMIGApplyKeeps(t *testing.T) {
	n := migNode{t, "a100-sxm4-40gb", t.TempDir()}
	n.does("create", "--gpu", "0", "--enable", "1g.5gb:6,2g.10gb:0")
	before, err := os.ReadFile(filepath.Join(n.dir, "state.json"))
	require.NoError(t, err)
	file := n.file("version: v1\nmig-configs:\n  a: [{devices: [0], mig-enabled: true, mig-devices: {2g.10gb: 1, 1g.5gb: 1}}]\n" +
		"  b: [{devices: [0], mig-enabled: true, mig-devices: {7g.40gb: 1}}]\n  c: [{devices: [0], mig-enabled: false}]\n")
	n.does("apply", "--config", "a", file)
	after, err := os.ReadFile(filepath.Join(n.dir, "state.json"))
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))
	n.does("apply", "-c", "b", file)
	assert.Equal(t, "0:7g.40gb@0[0:7g.40gb@0]", n.instances(0))
	n.does("apply", "-c", "c", file)
	assert.Equal(t, "disabled", n.list()[0].Mode)
	assert.NoFileExists(t, filepath.Join(n.dir, "caps/gpu0/gi0/access"))
}

// TestMIGApplyMistakes: a bad or impossible file names the line and changes nothing.
func TestMIGApplyMistakes(t *testing.T) {
	n := migNode{t, "h100", t.TempDir()}
	n.does("create", "--gpu", "1", "--enable", "1g.10gb")
	const head = "version: v1\nmig-configs:\n  a:\n"
	const entry = head + "  - devices: [0]\n    mig-enabled: true\n    mig-devices:\n"
	const first = head + "  - {devices: [1], mig-enabled: false}\n" // would change something if it were obeyed
	for text, want := range map[string]string{
		"":                                    "config.yaml: the file is empty",
		"- a\n":                               "config.yaml:1: the file: want keys and values",
		"a: [\n":                              "config.yaml:1: is not YAML: ",
		"version: v1\nmig-configs:\n\ta: 1\n": "config.yaml:3: is not YAML: found character that cannot start any token",
		head + "  - {devices: [1], mig-enabled: false}\n---\nversion: v1\n": "config.yaml:5: a second document: a file has one",
		"mig-configs: {}\n":                                                                     "config.yaml:1: version is missing: want v1",
		"version: v2\nmig-configs: {}\n":                                                        `config.yaml:1: version: want v1, not "v2"`,
		"version: v1\n":                                                                         "config.yaml:1: mig-configs is missing",
		"version: v1\nmig-configs: {}\n":                                                        "config.yaml:2: mig-configs is empty",
		"version: v1\nmig_configs: {}\n":                                                        `config.yaml:2: the file: unknown key "mig_configs"`,
		head + "  - devices: all\n":                                                             "config.yaml:4: a[0]: mig-enabled is missing",
		head + "  - mig-enabled: true\n":                                                        "config.yaml:4: a[0]: devices is missing",
		head + "  - {devices: some, x: 1}\n":                                                    `config.yaml:4: a[0]: unknown key "x"`,
		head + "  - {devices: some, mig-enabled: true}\n":                                       `config.yaml:4: a[0].devices: want all, or a list of indices, not "some"`,
		head + "  - {devices: [x], mig-enabled: true}\n":                                        `want the index of a GPU, not "x"`,
		head + "  - {devices: all, mig-enabled: 1}\n":                                           `a[0].mig-enabled: want true or false, not "1"`,
		head + "  - {devices: all, devices: all}\n":                                             `config.yaml:4: a[0]: "devices" is there twice`,
		head + "  - {devices: all, mig-enabled: true, device-filter: h100}\n":                   `a[0].device-filter: want a PCI device id such as 0x233010DE, not "h100"`,
		head + "  - {devices: all, mig-enabled: true, device-filter: \"0x20B510DE\"}\n":         "config.yaml: the configuration is about other boards: no GPU matches",
		head + "  - devices: all\n    mig-enabled: false\n    mig-devices:\n      1g.10gb: 1\n": "config.yaml:7: a[0]: mig-enabled is false, so there can be no 1g.10gb",
		entry + "      1g.10gb: x\n":                                                            `config.yaml:7: a[0].mig-devices: want a number of 1g.10gb, not "x"`,
		entry + "      1g.10gb: 1\n      1g.11gb: 1\n":                                          `config.yaml:8: GPU 0: there is no MIG profile "1g.11gb"`,
		entry + "      5c.3g.40gb: 1\n":                                                         `config.yaml:7: GPU 0: 3g.40gb has no compute instance "5c.3g.40gb"`,
		entry + "      3g.40gb: 2\n      1g.10gb: 1\n":                                          "config.yaml:8: GPU 0: there is no room for 1g.10gb beside the others",
		entry + "      1g.10gb: 200\n":                                                          "config.yaml:7: GPU 0: there is no room for 1g.10gb beside the others",
		first + "  - devices: [0]\n    mig-enabled: true\n    mig-devices:\n      4g.40gb: 2\n": "config.yaml:8: GPU 0: there is no room for 4g.40gb",
		first + "  - devices: [0, 17]\n    mig-enabled: true\n":                                 "config.yaml:5: there is no GPU 17: the node has 8, from 0 to 7",
	} {
		n.unchanged(want, "apply", n.file(text))
	}
	n.unchanged("has several configurations: say which with --config: a, b", "apply", n.file(head+"  - {devices: [], mig-enabled: true}\n  b:\n  - {devices: all, mig-enabled: false}\n"))
	n.unchanged(`has no configuration "c": it has a`, "apply", "-c", "c", n.file(head+"  - {devices: all, mig-enabled: true}\n"))
	n.unchanged("no such file", "apply", filepath.Join(n.dir, "none"))
	t4 := migNode{t, "t4", t.TempDir()}
	t4.unchanged("config.yaml:4: GPU 0: it has no MIG mode", "apply", t4.file(head+"  - {devices: all, mig-enabled: true}\n"))
	t4.does("apply", t4.file(head+"  - {devices: all, mig-enabled: false}\n"))
	for text, want := range map[string]string{ // orders other than from large to small are found
		"4g.40gb: 1, 3g.40gb: 1":                "1:4g.40gb@0[0:4g.40gb@0] 2:3g.40gb@4[0:3g.40gb@0]",
		"1g.10gb: 2, 2g.20gb: 1, 3g.40gb: 1":    "2:3g.40gb@4[0:3g.40gb@0] 3:2g.20gb@0[0:2g.20gb@0] 9:1g.10gb@2[0:1g.10gb@0] 10:1g.10gb@3[0:1g.10gb@0]",
		"1g.10gb: 0, 7g.80gb: 1":                "0:7g.80gb@0[0:7g.80gb@0]",
		"1g.10gb+me: 1, 1g.10gb: 6":             "",
		"2g.20gb: 3, 1g.10gb: 1":                "",
		"1g.20gb: 1, 1g.10gb: 5":                "",
		"1g.20gb: 4":                            "",
		"1c.7g.80gb: 7":                         "",
		"1c.2g.20gb: 5":                         "",
		"1g.10gb: 1, 1g.20gb: 2, 2g.20gb: 1":    "",
		"4g.40gb: 1, 2g.20gb: 1, 1g.10gb+me: 1": "",
		"1c.3g.40gb: 2, 2c.3g.40gb: 2":          "",
		"3g.40gb: 1, 1g.20gb: 1, 1g.10gb: 1":    "",
	} {
		n.does("apply", n.file(head+"  - {devices: [0], mig-enabled: true, mig-devices: {"+text+"}}\n"))
		if want != "" {
			assert.Equal(t, want, n.instances(0), text)
		}
	}
}

// TestCDIMIG: a specification names MIG devices by index pair and UUID, with their device nodes.
func TestCDIMIG(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	require.Equal(t, outcome{}, nvmlfab(t, "stage", "--root", root, "--profile", "a100-sxm4-40gb"))
	link := filepath.Join(root, "proc/driver/nvidia/capabilities/gpu0/mig")
	entries, err := os.ReadDir(link)
	require.NoError(t, err)
	assert.Empty(t, entries)
	require.Equal(t, outcome{}, nvmlfab(t, "mig", "create", "--root", root, "--gpu", "0", "--enable", "3g.20gb,1g.5gb:1"))
	text, err := os.ReadFile(filepath.Join(link, "gi8/ci0/access"))
	require.NoError(t, err)
	assert.Equal(t, "DeviceFileMinor: 76\nDeviceFileMode: 292\nDeviceFileModify: 1\n", string(text))
	assert.FileExists(t, filepath.Join(root, "dev/nvidia-caps/nvidia-cap76"))
	var all []migGPU
	require.NoError(t, json.Unmarshal([]byte(nvmlfab(t, "mig", "list", "--root", root, "-o", "json").stdout), &all))
	device := all[0].Instances[1].Compute[0]
	assert.Equal(t, "0:1", device.Device)

	spec, err := cdi.Specification(root, cdi.Options{Kind: "nvidia.com/gpu"})
	require.NoError(t, err)
	nodes := map[string][]string{}
	for _, d := range spec.Devices {
		for _, m := range d.ContainerEdits.Mounts {
			nodes[d.Name] = append(nodes[d.Name], m.ContainerPath)
		}
	}
	want := []string{"/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap75", "/dev/nvidia-caps/nvidia-cap76"}
	assert.Equal(t, want, nodes["0:1"])
	assert.Equal(t, want, nodes[device.UUID])
	assert.Equal(t, []string{"/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap2"}, nodes["0"])
	assert.Contains(t, nodes, "0:0")
	assert.NotContains(t, nodes, "0:2")
}

// TestDeclaredInstances: the instances of a profile have their files as soon as it is staged.
func TestDeclaredInstances(t *testing.T) {
	dir := t.TempDir()
	profile := write(t, dir, "mine.yaml", "extends: a100-sxm4-40gb\ncount: 1\ndevice_defaults: {mig: {mode_current: enabled, mode_pending: enabled, instances: [{profile: 3g.20gb}]}}\n", 0o644)
	root := filepath.Join(dir, "root")
	for range 2 {
		require.Equal(t, outcome{}, nvmlfab(t, "stage", "--root", root, "--profile", profile))
		assert.FileExists(t, filepath.Join(root, "proc/driver/nvidia/capabilities/gpu0/mig/gi2/ci0/access"))
	}
	require.Equal(t, outcome{}, nvmlfab(t, "mig", "destroy", "--root", root, "--gpu", "0", "2"))
	require.Equal(t, outcome{}, nvmlfab(t, "stage", "--root", root, "--profile", profile))
	assert.NoDirExists(t, root+".state/caps/gpu0/gi2", "what was changed stays")
	bad := write(t, dir, "bad.yaml", "extends: t4\ndevice_defaults: {mig: {mode_current: enabled, instances: [{profile: 1g}]}}\n", 0o644)
	nvmlfab(t, "profiles", "validate", bad).fails(t, 1, "bad.yaml:2: devices[0].mig.instances[0]: the profile has no table of MIG profiles")
}
