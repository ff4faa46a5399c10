//go:build containers

package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMachineContainer: podman with runc applies the specification to a Debian without any file of nvmlfab. Making that
// Debian takes minutes, and the test needs root, podman, runc and debootstrap and writes to /etc/cdi, so it has a build
// tag.
func TestMachineContainer(t *testing.T) {
	podman := tool(t, "podman")
	tool(t, "runc")
	const config = "/etc/cdi/nvmlfab-test.yaml"
	require.NoError(t, os.MkdirAll(filepath.Dir(config), 0o755))
	t.Cleanup(func() {
		os.Remove(config)
		os.Remove(filepath.Dir(config))
	})
	image := os.Getenv("NVMLFAB_CONTAINER_ROOT") // made by an earlier run
	if image == "" {
		image = filepath.Join(t.TempDir(), "image")
		run(t, nil, tool(t, "debootstrap"), "--variant=minbase", "--include=pciutils", "stable", image).succeeds(t)
	}
	goprog, err := os.ReadFile(machineProgram(t, "goprog"))
	require.NoError(t, err)
	writeProgram(t, filepath.Join(image, "goprog"), goprog)

	for _, profile := range []string{"h100", "t4"} {
		dir := filepath.Join(t.TempDir(), "root")
		run(t, nil, launcher(t), "stage", "--root", dir, "--profile", profile, "--nvidia-smi", fetched(t, "nvidia-smi-550", "nvidia-smi")).succeeds(t)
		run(t, nil, launcher(t), "cdi", "--root", dir, "--kind", "nvmlfab.test/gpu", "-o", config).succeeds(t)
		all := busIDs(t, profile)
		devices := map[string][]string{"all": all, "0": all[:1], string(mustBoard(t, profile).Devices[0].UUID): all[:1]}
		devices[fmt.Sprint(len(all)-1)] = all[len(all)-1:]
		for device, want := range devices {
			t.Run(profile+"/"+device, func(t *testing.T) {
				command := []string{podman, "--cgroup-manager", "cgroupfs", "run", "--rm", "--network", "none", "--runtime", "runc",
					"--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--device", "nvmlfab.test/gpu=" + device, "--rootfs", image}
				with := func(program ...string) []string { return append(command[:len(command):len(command)], program...) }
				sees(t, want, with("nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader")...)
				sees(t, want, with("lspci", "-D", "-d", "10de::0302")...)
				sees(t, want, with("/goprog")...)
				sees(t, want, with("ls", "/proc/driver/nvidia/gpus")...)
			})
		}
	}
	out := run(t, nil, "sh", "-c", "mount | grep -c "+image)
	assert.Equal(t, "0\n", out.stdout, "mounts are left")
}
