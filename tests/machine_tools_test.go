package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inside runs a program in the launcher.
func inside(t *testing.T, profile string, program ...string) outcome {
	t.Helper()
	return run(t, nil, launcher(t), append([]string{"run", "--namespace", "--profile", profile, "--"}, program...)...)
}

func TestMachineLspci(t *testing.T) {
	namespaces(t)
	lspci := tool(t, "lspci")
	gpus := busIDs(t, "h100")
	t.Run("every view has every GPU", func(t *testing.T) {
		for _, args := range [][]string{{"-D"}, {"-nn", "-D"}, {"-D", "-k"}, {"-D", "-vvv"}, {"-D", "-xxx"}, {"-D", "-A", "linux-proc"}, {"-D", "-A", "linux-sysfs"}} {
			out := inside(t, "h100", append([]string{lspci}, args...)...).succeeds(t)
			for _, gpu := range gpus {
				assert.Contains(t, out.stdout, gpu, "%v", args)
			}
		}
	})
	t.Run("tree", func(t *testing.T) {
		out := inside(t, "gb200", lspci, "-t").succeeds(t)
		for _, branch := range []string{"[0000:28]---00.0-[29]----00.0", "[0000:b1]---00.0-[b2]----00.0"} {
			assert.Contains(t, out.stdout, branch)
		}
		assert.Contains(t, inside(t, "h100", lspci, "-tv").succeeds(t).stdout, "NVSwitch")
	})
	t.Run("capabilities", func(t *testing.T) {
		out := inside(t, "h100", lspci, "-vvv", "-s", gpus[0]).succeeds(t)
		for _, text := range []string{"Power Management version 3", "MSI: Enable+", "Express (v2) Endpoint", "Advanced Error Reporting",
			"Device Serial Number", "LnkSta:	Speed 32GT/s, Width x16", "[size=128G]", "[size=16M]", "Kernel driver in use: nvidia"} {
			assert.Contains(t, out.stdout, text)
		}
		assert.NotContains(t, out.stdout, "<?>")
		assert.NotContains(t, out.stdout, "downgraded")
		out = inside(t, "h100", lspci, "-vvv", "-s", "0000:52:00.0").succeeds(t)
		for _, text := range []string{"Root Port (Slot+)", "primary=52, secondary=53, subordinate=53", "Kernel driver in use: pcieport"} {
			assert.Contains(t, out.stdout, text)
		}
	})
	t.Run("setpci", func(t *testing.T) {
		setpci := tool(t, "setpci")
		assert.Equal(t, "10de\n2330\n", inside(t, "h100", setpci, "-s", gpus[0], "VENDOR_ID", "DEVICE_ID").succeeds(t).stdout)
		script := fmt.Sprintf("%s -s %s COMMAND=0402 && %[1]s -s %[2]s COMMAND", setpci, gpus[0])
		assert.Equal(t, "0402\n", inside(t, "h100", "sh", "-c", script).succeeds(t).stdout)
	})
}

func TestMachineTools(t *testing.T) {
	namespaces(t)
	t.Run("udevadm", func(t *testing.T) {
		udevadm := tool(t, "udevadm")
		out := inside(t, "t4", udevadm, "info", "-q", "property", "/sys/bus/pci/devices/0000:00:1e.0").succeeds(t)
		for _, line := range []string{"DEVPATH=/devices/pci0000:00/0000:00:1e.0", "SUBSYSTEM=pci", "DRIVER=nvidia"} {
			assert.Contains(t, out.lines(), line)
		}
		assert.Contains(t, inside(t, "t4", udevadm, "info", "-a", "-p", "/sys/bus/pci/devices/0000:00:1e.0").succeeds(t).stdout, `ATTR{vendor}=="0x10de"`)
	})
	t.Run("find", func(t *testing.T) {
		out := inside(t, "h100", "find", "/sys/bus/pci/", "/sys/module/nvidia", "/sys/class/pci_bus/", "/proc/driver").succeeds(t)
		assert.Empty(t, out.stderr)
		assert.Contains(t, out.lines(), "/sys/bus/pci/drivers/nvidia/0000:53:00.0")
	})
	t.Run("ls", func(t *testing.T) {
		out := inside(t, "h100", "ls", "-lR", "/sys/bus/pci/devices/", "/sys/devices/pci0000:52", "/proc/driver").succeeds(t)
		assert.Empty(t, out.stderr)
		assert.NotContains(t, out.stdout, "?????")
	})
	t.Run("lstopo", func(t *testing.T) {
		lstopo := tool(t, "lstopo-no-graphics")
		assert.Equal(t, 8, strings.Count(inside(t, "h100", lstopo, "--of", "console").succeeds(t).stdout, "(3D)"))
		dir := filepath.Join(t.TempDir(), "root")
		run(t, nil, launcher(t), "stage", "--root", dir, "--profile", "gb200").succeeds(t)
		text := run(t, nil, lstopo, "--of", "console", "-i", dir).succeeds(t).stdout
		nodes := strings.Split(text, "Package")[1:]
		require.Len(t, nodes, 2)
		for i, buses := range [][]string{{"29", "3f"}, {"9c", "b2"}} {
			for _, bus := range buses {
				assert.Contains(t, nodes[i], "PCI 0000:"+bus+":00.0 (3D)", "with the domain, since the adapters have others")
			}
		}
	})
	t.Run("modules", func(t *testing.T) {
		out := inside(t, "h100", "sh", "-c", "cat /sys/module/nvidia/version; grep nvidia /proc/devices; [ ! -e /proc/modules ] || grep -c ^nvidia /proc/modules").succeeds(t)
		assert.Regexp(t, `^580\.105\.08\n195 nvidia\n195 nvidia-modeset\n195 nvidiactl\n508 nvidia-uvm\n509 nvidia-caps\n234 nvidia-caps-imex-channels\n(4\n)?$`, out.stdout)
	})
}

// containerToolkit is NVIDIA's nvidia-ctk, which is built once.
func containerToolkit(t *testing.T) string {
	t.Helper()
	const version = "v1.17.8"
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	bin := filepath.Join(cache, "nvmlfab", "go", "nvidia-ctk-"+version)
	ctk := filepath.Join(bin, "nvidia-ctk")
	if !exists(ctk) {
		if out := runIn(t, t.TempDir(), []string{"GOBIN=" + bin}, "go", "install", "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk@"+version); out.code != 0 {
			skip(t, "nvidia-ctk does not build: "+out.stderr)
		}
	}
	return ctk
}

// TestMachineContainerToolkit: NVIDIA's nvidia-ctk describes the staged machine.
func TestMachineContainerToolkit(t *testing.T) {
	namespaces(t)
	ctk := containerToolkit(t)
	dir := filepath.Join(t.TempDir(), "root")
	run(t, nil, launcher(t), "stage", "--root", dir).succeeds(t)
	out := inside(t, "h100", ctk, "cdi", "generate", "--driver-root", dir, "--dev-root", "/").succeeds(t)
	for _, d := range board(t).Devices {
		assert.Contains(t, out.stdout, "name: "+string(d.UUID)+"\n")
		assert.Contains(t, out.stdout, fmt.Sprintf("path: /dev/nvidia%d\n", d.Index))
	}
	for _, library := range []string{"libnvidia-ml.so", "libnvmlfab-core.so", "libcuda.so"} {
		assert.Contains(t, out.stdout, "hostPath: "+filepath.Join(dir, "usr/lib/x86_64-linux-gnu", library)+".580.105.08\n")
	}
}

// TestFault13DriverLibrariesInARun: in a run NVIDIA's nvidia-ctk finds the libraries of the driver's version by itself.
func TestFault13DriverLibrariesInARun(t *testing.T) {
	namespaces(t)
	out := inside(t, "h100", containerToolkit(t), "cdi", "generate").succeeds(t)
	for _, library := range []string{"libnvidia-ml.so", "libnvmlfab-core.so", "libcuda.so"} {
		assert.Regexp(t, `hostPath: /\S*/`+regexp.QuoteMeta(library)+`\.580\.105\.08\n`, out.stdout)
	}
}

// TestFault14LinksToDevices: nvidia-ctk makes a link for each GPU's device number, although the nodes of a run have another one.
func TestFault14LinksToDevices(t *testing.T) {
	namespaces(t)
	out := inside(t, "h100", containerToolkit(t), "system", "create-dev-char-symlinks", "--dry-run", "--create-all").succeeds(t)
	links := regexp.MustCompile(`/dev/char/195:(\d+) => /dev/nvidia(\d+)\b`).FindAllStringSubmatch(out.stderr+out.stdout, -1)
	require.Len(t, links, 8)
	for _, link := range links {
		assert.Equal(t, link[1], link[2])
	}
}

// TestMachineNvpci: the PCI library of NVIDIA's operators finds GPUs and NVSwitches.
func TestMachineNvpci(t *testing.T) {
	namespaces(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module nvpci\n\ngo 1.24\n\nrequire github.com/NVIDIA/go-nvlib v0.7.4\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(`package main

import (
	"fmt"

	"github.com/NVIDIA/go-nvlib/pkg/nvpci"
)

func main() {
	lib := nvpci.New()
	gpus, err := lib.GetGPUs()
	if err != nil {
		panic(err)
	}
	for _, gpu := range gpus {
		config, err := gpu.Config.Read()
		if err != nil {
			panic(err)
		}
		caps, err := config.GetPCICapabilities()
		if err != nil {
			panic(err)
		}
		size := uint64(0)
		for _, r := range gpu.Resources {
			size = max(size, uint64(r.End-r.Start+1))
		}
		fmt.Printf("%s %x %s %d %d %d\n", gpu.Address, gpu.Device, gpu.Driver, gpu.NumaNode, len(caps.Standard)+len(caps.Extended), size>>30)
	}
	switches, err := lib.GetNVSwitches()
	if err != nil {
		panic(err)
	}
	fmt.Println(len(switches))
}
`), 0o644))
	program := filepath.Join(dir, "nvpci")
	env := []string{"CGO_ENABLED=0", "GOFLAGS=-mod=mod"}
	if out := runIn(t, dir, env, "go", "mod", "download"); out.code != 0 {
		skip(t, "go-nvlib cannot be fetched: "+out.stderr)
	}
	runIn(t, dir, env, "go", "build", "-o", program, ".").succeeds(t)
	out := inside(t, "h100", program).succeeds(t)
	want := ""
	for _, gpu := range busIDs(t, "h100") {
		want += gpu + " 2330 nvidia -1 5 128\n"
	}
	assert.Equal(t, want+"4\n", out.stdout)
	assert.Contains(t, inside(t, "gb200", program).succeeds(t).stdout, "0000:b2:00.0 2941 nvidia 1 ")
}
