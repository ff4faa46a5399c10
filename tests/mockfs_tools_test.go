package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMockfsScripts(t *testing.T) {
	tree := stagedTree(t)
	for _, script := range [][]string{{"python3", "see.py"}, {"bash", "see.sh"}} {
		path := filepath.Join(root, "tests", "testdata", "mockfs", script[1])
		run(t, mocked(tree), script[0], path, stagedGPU, hostDevice()).succeeds(t)
	}
}

func TestMockfsLspci(t *testing.T) {
	tool(t, "lspci")
	tree := stagedTree(t)
	lspci := func(args ...string) string { return run(t, mocked(tree), "lspci", args...).succeeds(t).stdout }

	listed := lspci("-D", "-nn")
	for _, bdf := range append(hostDevices(), stagedBridge, stagedGPU) {
		assert.Equal(t, 1, strings.Count(listed, bdf+" "), "%s in\n%s", bdf, listed)
	}
	assert.Contains(t, listed, "[10de:2330] (rev a1)")
	assert.Contains(t, lspci("-t"), "[7a57:3a]---00.0-[3b]----00.0")
	assert.Contains(t, lspci("-tv"), "[7a57:3a]---00.0-[3b]----00.0  NVIDIA Corporation")
	assert.Contains(t, lspci("-s", stagedGPU, "-vvv"), "Kernel driver in use: nvidia")
	assert.Contains(t, lspci("-s", stagedGPU, "-k"), "Kernel driver in use: nvidia")
	assert.Contains(t, lspci("-s", stagedGPU, "-xxx"), "00: de 10 30 23 06 04")
	assert.Contains(t, lspci("-s", stagedGPU, "-xxx"), "f0: 00")
	assert.Regexp(t, `^3b:00.0 .*\[10de:2330\]`, lspci("-A", "linux-proc", "-nn"))
}

// TestMockfsSetpci: setpci writes only to the staged configuration space.
func TestMockfsSetpci(t *testing.T) {
	tool(t, "setpci")
	tree := stagedTree(t)
	setpci := func(what string) string {
		return strings.TrimSpace(run(t, mocked(tree), "setpci", "-s", stagedGPU, what).succeeds(t).stdout)
	}
	assert.Equal(t, "10de", setpci("VENDOR_ID"))
	assert.Equal(t, "0406", setpci("COMMAND"))
	setpci("COMMAND=0003")
	assert.Equal(t, "0003", setpci("COMMAND"))
}

func TestMockfsLstopo(t *testing.T) {
	tool(t, "lstopo-no-graphics")
	o := run(t, mocked(stagedTree(t)), "lstopo-no-graphics", "--of", "console", "--filter", "io:all").succeeds(t)
	assert.Contains(t, o.stdout, "PCI "+stagedGPU)
	if _, err := os.Stat("/sys/class/net/eth0/device"); err == nil {
		assert.Contains(t, o.stdout, `"eth0"`)
	}
}

func TestMockfsFind(t *testing.T) {
	tree := stagedTree(t)
	find := func(args ...string) []string { return run(t, mocked(tree), "find", args...).succeeds(t).lines() }
	gpu := "/" + stagedRoot + "/" + stagedBridge + "/" + stagedGPU
	assert.Equal(t, []string{gpu}, find("/sys/devices", "-name", stagedGPU))
	assert.Equal(t, []string{gpuVendor}, find(gpuVendor))
	assert.Contains(t, find("-L", "/sys/bus/pci/devices", "-maxdepth", "2", "-name", "vendor"), gpuVendor)
	assert.Len(t, find("/sys/bus/pci/devices/", "-mindepth", "1"), len(hostDevices())+2)

	o := run(t, mocked(tree), "ls", "-lR", "/sys/bus/pci").succeeds(t)
	assert.Empty(t, o.stderr)
	assert.Contains(t, o.stdout, stagedGPU+" -> ../../../devices/pci7a57:3a/"+stagedBridge+"/"+stagedGPU)
	assert.Equal(t, "0x10de", run(t, mocked(tree), "grep", "-r", "10de", gpu+"/vendor", "-h").succeeds(t).lines()[0])
	du := run(t, mocked(tree), "du", "-s", gpu).succeeds(t)
	assert.Regexp(t, `^\d+\t`+gpu, du.stdout)
}

func TestMockfsUdevadm(t *testing.T) {
	udevadm := fetched(t, "udev", "udevadm")
	tree := stagedTree(t)
	o := run(t, mocked(tree), udevadm, "info", "/sys/bus/pci/devices/"+stagedGPU).succeeds(t)
	gpu := "/devices/pci7a57:3a/" + stagedBridge + "/" + stagedGPU
	assert.Contains(t, o.stdout, "P: "+gpu+"\n")
	assert.Contains(t, o.stdout, "E: DRIVER=nvidia\n")
	o = run(t, mocked(tree), udevadm, "info", "-a", "-p", gpu).succeeds(t)
	assert.Contains(t, o.stdout, `ATTR{vendor}=="0x10de"`)
	assert.Contains(t, o.stdout, `KERNELS=="`+stagedBridge+`"`)
}

// TestMockfsHostStays: what only the host has is unchanged, such as its disk and network card, whatever their links
// pass through.
func TestMockfsHostStays(t *testing.T) {
	tree := stagedTree(t)
	var paths []string
	for _, pattern := range []string{"/sys/block/*/size", "/sys/class/net/*/mtu", "/sys/class/net/*/device/vendor", "/sys/bus/pci/devices/*/vendor"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		paths = append(paths, found...)
	}
	for _, path := range paths {
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(want), run(t, mocked(tree), "cat", path).succeeds(t).stdout, path)
		real, err := filepath.EvalSymlinks(path)
		require.NoError(t, err)
		assert.Equal(t, real+"\n", run(t, mocked(tree), "readlink", "-f", path).succeeds(t).stdout)
	}
	o := run(t, mocked(tree), "ls", "/sys/devices").succeeds(t)
	assert.Contains(t, o.lines(), "pci7a57:3a")
	assert.Contains(t, o.lines(), "virtual")
}

// TestMockfsMerge: a file that both have is the staged one and occurs once in a listing. Files of only one of them are
// listed too.
func TestMockfsMerge(t *testing.T) {
	host := hostDevice()
	if host == "" {
		skip(t, "this machine has no PCI device")
	}
	tree := stagedTree(t)
	device, err := filepath.EvalSymlinks("/sys/bus/pci/devices/" + host)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(tree+device, 0o755))
	require.NoError(t, os.WriteFile(tree+device+"/vendor", []byte("0x1234\n"), 0o644))
	require.NoError(t, os.WriteFile(tree+device+"/staged", []byte("yes\n"), 0o644))
	revision, err := os.ReadFile(device + "/device")
	require.NoError(t, err)

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink("/sys/bus/pci/devices", link))
	for _, dir := range []string{"/sys/bus/pci/devices/" + host, device, link + "/" + host, "/usr/.." + device} {
		o := run(t, mocked(tree), "cat", dir+"/vendor", dir+"/staged", dir+"/device").succeeds(t)
		assert.Equal(t, "0x1234\nyes\n"+string(revision), o.stdout, dir)
		names := run(t, mocked(tree), "ls", dir+"/").succeeds(t).lines()
		for _, name := range []string{"vendor", "staged", "device", "config"} {
			assert.Equal(t, 1, strings.Count(strings.Join(names, "/")+"/", "/"+name+"/"), "%s in %s: %v", name, dir, names)
		}
	}
}
