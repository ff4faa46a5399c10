package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// image makes the root of a container with a few programs, the libraries of these and others, and no cache of the dynamic linker.
func image(t *testing.T, programs []string, others ...string) string {
	t.Helper()
	top := filepath.Join(t.TempDir(), "image")
	add := func(from, to string) {
		data, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(top, to)), 0o755))
		writeProgram(t, filepath.Join(top, to), data)
	}
	for _, folder := range []string{"dev", "etc", "proc", "sys", "tmp"} {
		require.NoError(t, os.MkdirAll(filepath.Join(top, folder), 0o755))
	}
	for _, program := range programs {
		add(program, filepath.Join("bin", filepath.Base(program)))
	}
	for _, line := range run(t, nil, "ldd", append(others, programs...)...).lines() {
		if fields := strings.Fields(line); len(fields) > 2 && fields[1] == "=>" {
			add(fields[2], fields[2])
		} else if len(fields) == 2 && strings.HasPrefix(fields[0], "/") {
			add(fields[0], fields[0])
		}
	}
	return top
}

// contained runs a shell script in a container that runc makes, with the devices of a CDI specification, as containerd would have it.
func contained(t *testing.T, image, spec, device, script string, change ...func(*oci.Spec)) outcome {
	t.Helper()
	bundle := t.TempDir()
	capabilities := []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_MKNOD", "CAP_SETUID", "CAP_SETGID", "CAP_NET_BIND_SERVICE"}
	config := &oci.Spec{
		Version: "1.0.2",
		Root:    &oci.Root{Path: image},
		Process: &oci.Process{
			Args: []string{"/bin/dash", "-c", script}, Cwd: "/", Env: []string{"PATH=/usr/bin:/bin"}, NoNewPrivileges: true,
			Capabilities: &oci.LinuxCapabilities{Bounding: capabilities, Effective: capabilities, Permitted: capabilities},
		},
		Mounts: []oci.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			{Destination: "/run", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755", "size=65536k"}},
		},
		Linux: &oci.Linux{
			Namespaces: []oci.LinuxNamespace{{Type: oci.PIDNamespace}, {Type: oci.IPCNamespace}, {Type: oci.UTSNamespace}, {Type: oci.MountNamespace},
				{Type: oci.NetworkNamespace}},
			MaskedPaths:   []string{"/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi", "/sys/firmware"},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
	for _, f := range change {
		f(config)
	}
	specs, err := cdi.NewCache(cdi.WithSpecDirs(filepath.Dir(spec)), cdi.WithAutoRefresh(false))
	require.NoError(t, err)
	_, err = specs.InjectDevices(config, device)
	require.NoError(t, err)
	config.Linux.Resources = nil // no cgroups here
	text, err := json.MarshalIndent(config, "", "\t")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o644))
	const inside = `mount -t tmpfs none /run
mount -t cgroup2 -o ro none /sys/fs/cgroup
exec "$1" --root /run/runc --rootless true run --bundle "$2" test`
	runc := fetched(t, "runc", "runc")
	env := []string{"LD_LIBRARY_PATH=" + filepath.Join(filepath.Dir(runc), "../lib/x86_64-linux-gnu")}
	return run(t, env, "unshare", "--mount", "sh", "-ec", inside, "sh", runc, bundle)
}

// TestHookContainer: nvidia-ctk writes a specification for a staged machine with nvmlfab-hook as the hook, and runc makes containers
// by it from an image that holds neither the driver's libraries nor a linker's cache. Each sees exactly the GPU that it was given.
func TestHookContainer(t *testing.T) {
	if os.Geteuid() != 0 {
		skip(t, "only root can make device nodes and containers")
	}
	namespaces(t)
	dir := t.TempDir()
	tree, smi := filepath.Join(dir, "driver"), fetched(t, "nvidia-smi-550", "nvidia-smi")
	run(t, nil, launcher(t), "stage", "--root", tree, "--profile", "h100", "--nvidia-smi", smi).succeeds(t)
	hook, spec := filepath.Join(tree, "usr/bin/nvmlfab-hook"), filepath.Join(dir, "cdi", "nvidia.yaml")
	run(t, []string{"LD_LIBRARY_PATH="}, containerToolkit(t), "cdi", "generate", "--driver-root", tree, "--dev-root", tree, "--nvidia-cdi-hook-path", hook,
		"--output", spec).succeeds(t)
	programs := []string{tool(t, "dash"), tool(t, "ls"), tool(t, "cat"), tool(t, "grep"), tool(t, "lspci"), machineProgram(t, "goprog")}
	top := image(t, programs, smi)
	gpu, id := mustBoard(t, "h100").Devices[3], busIDs(t, "h100")[3]
	device := "nvidia.com/gpu=" + string(gpu.UUID)
	const script = `nvidia-smi -L; lspci -D -d 10de::0302; goprog; ls /proc/driver/nvidia/gpus; grep Modify /proc/driver/nvidia/params`
	want := []string{
		fmt.Sprintf("GPU 0: %s (UUID: %s)", gpu.Name.Value, gpu.UUID), id + " Class 0302: Device 10de:2330 (rev a1)", id, id, "ModifyDeviceFiles: 0",
	}
	for range 2 { // the second container has an image that the hook has changed
		out := contained(t, top, spec, device, script).succeeds(t)
		assert.Empty(t, out.stderr)
		assert.Equal(t, want, out.lines())
	}
	// What fails on the node is seen inside, and a container without the right to it changes nothing.
	const limit = "nvidia-smi -pl 400; nvidia-smi --query-gpu=enforced.power.limit --format=csv,noheader"
	assert.Contains(t, contained(t, top, spec, device, limit).stdout, "Insufficient Permissions")
	run(t, nil, launcher(t), "set", "--root", tree, "--gpu", "3", "power.enforced_limit_mw=350000").succeeds(t)
	assert.Contains(t, contained(t, top, spec, device, limit).stdout, "\n350.00 W\n")
	privileged := func(s *oci.Spec) {
		s.Process.Capabilities.Bounding = append(s.Process.Capabilities.Bounding, "CAP_SYS_ADMIN")
		s.Process.Capabilities.Effective, s.Process.Capabilities.Permitted = s.Process.Capabilities.Bounding, s.Process.Capabilities.Bounding
	}
	assert.Contains(t, contained(t, top, spec, device, limit, privileged).succeeds(t).stdout, "\n400.00 W\n")
	assert.Contains(t, contained(t, top, spec, device, limit).stdout, "\n400.00 W\n", "the node's state is one for all its containers")

	// A MIG device: nvidia-ctk reads the numbers of the capabilities where the driver has them.
	run(t, nil, launcher(t), "mig", "create", "--root", tree, "--gpu", "3", "--enable", "3g.40gb,1g.10gb,1g.10gb").succeeds(t)
	const generate = `mount -t tmpfs none /proc/driver; cp -r "$1/proc/driver/nvidia-caps" /proc/driver/
exec env -u NVMLFAB_STATE_DIR "$2" cdi generate --driver-root "$1" --dev-root "$1" --nvidia-cdi-hook-path "$3" --output "$4" --device-name-strategy index`
	run(t, []string{"LD_LIBRARY_PATH="}, "unshare", "--mount", "sh", "-ec", generate, "sh", tree, containerToolkit(t), hook, spec).succeeds(t)
	out := contained(t, top, spec, "nvidia.com/gpu=3:1", "nvidia-smi -L; goprog; ls /dev/nvidia-caps /proc/driver/nvidia/capabilities/gpu3/mig").succeeds(t)
	assert.Empty(t, out.stderr)
	lines := out.lines()
	require.Len(t, lines, 9, "%s", out.stdout)
	assert.Equal(t, want[0], lines[0])
	assert.Regexp(t, `^  MIG 1g\.10gb     Device  0: \(UUID: MIG-[0-9a-f-]{36}\)$`, lines[1])
	assert.Equal(t, id, lines[2])
	assert.Regexp(t, `^nvidia-cap\d+ nvidia-cap\d+ gi\d+$`, lines[4]+" "+lines[5]+" "+lines[8])
}

// TestHookRealDriver: where NVIDIA's kernel driver is loaded, which a file of the kernel's own in the place of the driver's stands
// for, nothing with device nodes is staged.
func TestHookRealDriver(t *testing.T) {
	if os.Geteuid() != 0 {
		skip(t, "only root can mount in place of the driver's files")
	}
	dir := t.TempDir()
	const script = `mount -t tmpfs none /proc/driver; mkdir /proc/driver/nvidia; touch /proc/driver/nvidia/version
mount --bind /proc/version /proc/driver/nvidia/version
exec "$@"`
	stage := []string{"--mount", "sh", "-ec", script, "sh", launcher(t), "stage", "--profile", "t4", "--root", filepath.Join(dir, "tree")}
	out := run(t, nil, "unshare", stage...)
	assert.NotZero(t, out.code)
	assert.Contains(t, out.stderr, "NVIDIA's kernel driver is loaded on this machine")
	assert.NoDirExists(t, filepath.Join(dir, "tree"))
	run(t, nil, "unshare", append(stage, "--no-devices")...).succeeds(t)
	info, err := os.Lstat(filepath.Join(dir, "tree/dev/nvidia0"))
	require.NoError(t, err)
	assert.True(t, info.Mode().IsRegular())
	text, err := os.ReadFile(filepath.Join(dir, "tree/etc/kubernetes/node-feature-discovery/features.d/nvmlfab"))
	require.NoError(t, err)
	assert.Equal(t, "pci-10de.present=true\n", string(text))

	bundle := filepath.Join(dir, "bundle")
	require.NoError(t, os.MkdirAll(filepath.Join(bundle, "rootfs/dev"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(bundle, "rootfs/dev/nvidia0"), nil, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(bundle, "config.json"), []byte(`{"root": {"path": "rootfs"}}`), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(bundle, "state.json"), []byte(`{"bundle": "`+bundle+`"}`), 0o644))
	out = run(t, nil, "unshare", "--mount", "sh", "-ec", script, "sh", filepath.Join(dir, "tree/usr/bin/nvmlfab-hook"), "update-ldcache", "--container-spec", filepath.Join(bundle, "state.json"))
	assert.Equal(t, 1, out.code)
	assert.Contains(t, out.stderr, "update-ldcache: NVIDIA's kernel driver is loaded on this machine")
}
