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

// featureDiscovery builds NVIDIA's gpu-feature-discovery, unless the cache has it, or skips the test if its modules do not
// come. It links Kubernetes' client library, whose first build takes minutes.
func featureDiscovery(t *testing.T) string {
	t.Helper()
	const program = "github.com/NVIDIA/k8s-device-plugin/cmd/gpu-feature-discovery"
	return cached(t, "gpu-feature-discovery-v0.18.0", func(to string) {
		source := filepath.Join(root, "tests", "deviceplugin")
		if out := runIn(t, source, nil, "go", "list", "-deps", program); out.code != 0 {
			skip(t, "the modules of tests/deviceplugin cannot be fetched: "+out.stderr)
		}
		runIn(t, source, nil, "go", "build", "-ldflags", "-s -w -extldflags=-Wl,-z,lazy", "-o", to, program).succeeds(t)
	})
}

// cached is the path of a file that make writes if the cache does not have it. The name says which version it is.
func cached(t *testing.T, name string, make func(to string)) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	dir := filepath.Join(cache, "nvmlfab", "go")
	path := filepath.Join(dir, name)
	if !exists(path) {
		require.NoError(t, os.MkdirAll(dir, 0o755))
		part := filepath.Join(t.TempDir(), "part")
		make(part)
		data, err := os.ReadFile(part)
		require.NoError(t, err)
		// Under another name first, since another run may look for the file at this moment.
		whole := fmt.Sprintf("%s.%d", path, os.Getpid())
		writeProgram(t, whole, data)
		require.NoError(t, os.Rename(whole, path))
	}
	return path
}

// everywhere are the labels that every machine gets here: no file names its product, no configuration lets pods share a GPU.
const everywhere = "gpu.machine=unknown gpu.sharing-strategy=none mps.capable=false vgpu.present=false "

// migLabels are the labels of MIG devices of one kind, after the prefix of the kind.
func migLabels(prefix, product string, count, memory, processors, gpu, compute, copy, decoder, jpeg, ofa int) string {
	text := fmt.Sprintf("product=%s count=%d replicas=1 memory=%d multiprocessors=%d slices.gi=%d slices.ci=%d engines.copy=%d "+
		"engines.decoder=%d engines.encoder=0 engines.jpeg=%d engines.ofa=%d sharing-strategy=none",
		product, count, memory, processors, gpu, compute, copy, decoder, jpeg, ofa)
	return prefix + strings.ReplaceAll(text, " ", " "+prefix) + " "
}

// TestFeatureDiscovery: NVIDIA's gpu-feature-discovery gives nodes of these boards the labels that schedulers choose by. It
// logs no error.
func TestFeatureDiscovery(t *testing.T) {
	namespaces(t)
	program := featureDiscovery(t)
	const (
		a100 = "gpu.family=ampere gpu.compute.major=8 gpu.compute.minor=0 gpu.mode=compute mig.capable=true "
		h100 = "gpu.family=hopper gpu.compute.major=9 gpu.compute.minor=0 gpu.mode=compute mig.capable=true "
		ada  = "gpu.family=ada-lovelace gpu.compute.major=8 gpu.compute.minor=9 "
	)
	mixed := map[string]string{
		"Tesla-T4":                      "gpu.product=Tesla-T4 gpu.memory=15360 gpu.family=turing gpu.compute.major=7 gpu.compute.minor=5",
		"NVIDIA-L4":                     ada + "gpu.product=NVIDIA-L4 gpu.memory=23034",
		"NVIDIA-L40S":                   ada + "gpu.product=NVIDIA-L40S gpu.memory=46068",
		"NVIDIA-GeForce-RTX-4080-SUPER": ada + "gpu.product=NVIDIA-GeForce-RTX-4080-SUPER gpu.memory=16376",
	}
	t.Run("jetson-thor", func(t *testing.T) {
		t.Parallel()
		out := inside(t, "jetson-thor", "env", "GFD_ONESHOT=true", "GFD_USE_NODE_FEATURE_API=false", "GFD_OUTPUT_FILE="+filepath.Join(t.TempDir(), "labels"), program)
		assert.NotZero(t, out.code, "it asks CUDA for the GPU of a Jetson")
		assert.Contains(t, out.stderr, "CUDA_ERROR_NO_DEVICE")
	})
	for name, c := range map[string]struct {
		profile, strategy string
		mig               []string // what nvmlfab mig create is told, once per line
		want              string
	}{
		"h100": {profile: "h100", want: h100 + everywhere + "gpu.product=NVIDIA-H100-80GB-HBM3 gpu.count=8 gpu.replicas=1 gpu.memory=81559"},
		"t4": {profile: "t4", want: everywhere + "gpu.product=Tesla-T4 gpu.count=1 gpu.replicas=1 gpu.memory=15360 " +
			"gpu.family=turing gpu.compute.major=7 gpu.compute.minor=5 gpu.mode=compute mig.capable=false"},
		"v100": {profile: "v100-sxm2-32gb", want: everywhere + "gpu.product=Tesla-V100-SXM2-32GB gpu.count=8 gpu.replicas=1 gpu.memory=32480 " +
			"gpu.family=volta gpu.compute.major=7 gpu.compute.minor=0 gpu.mode=compute mig.capable=false"},
		"rtx-4090": {profile: "rtx-4090", want: everywhere + "gpu.product=NVIDIA-GeForce-RTX-4090 gpu.count=1 gpu.replicas=1 gpu.memory=24564 " +
			"gpu.family=ada-lovelace gpu.compute.major=8 gpu.compute.minor=9 gpu.mode=graphics mig.capable=false"},
		"in a fabric": {profile: "gb200", want: everywhere + "gpu.product=NVIDIA-GB200 gpu.count=4 gpu.replicas=1 gpu.memory=189471 " +
			"gpu.family=blackwell gpu.compute.major=10 gpu.compute.minor=0 gpu.mode=compute mig.capable=true " +
			"gpu.clique=5315e0f7-c8a9-4ff0-af3a-64e790adfecf.2"},
		"no size of the memory": {profile: "gb10", want: everywhere + "gpu.product=NVIDIA-GB10 gpu.count=1 gpu.replicas=1 " +
			"gpu.family=blackwell gpu.compute.major=12 gpu.compute.minor=1 gpu.mode=graphics mig.capable=false"},
		"unlike GPUs": {profile: "mixed", want: everywhere + "gpu.count=1 gpu.replicas=1 gpu.mode=unknown mig.capable=false"},
		"vGPU": {profile: "vgpu-rtxa6000-24q", want: everywhere + "gpu.product=NVIDIA-RTXA6000-24Q gpu.count=1 gpu.replicas=1 gpu.memory=24576 " +
			"gpu.family=ampere gpu.compute.major=8 gpu.compute.minor=6 gpu.mode=graphics mig.capable=true " +
			"vgpu.present=true vgpu.host-driver-version=535.183.06 vgpu.host-driver-branch=r535_00"},

		"a100 single": {profile: "a100-sxm4-40gb", strategy: "single", mig: []string{"--gpu all --enable " + strings.Repeat("1g.5gb,", 6) + "1g.5gb"},
			want: a100 + everywhere + migLabels("gpu.", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 56, 4864, 14, 1, 1, 1, 0, 0, 0)},
		"a100 single, two kinds": {profile: "a100-sxm4-40gb", strategy: "single", mig: []string{"--gpu all --enable 3g.20gb,2g.10gb"},
			want: a100 + everywhere + "gpu.product=NVIDIA-A100-SXM4-40GB-MIG-INVALID gpu.count=0 gpu.replicas=0 gpu.memory=0 gpu.sharing-strategy="},
		"a100 single, one GPU whole": {profile: "a100-sxm4-40gb", strategy: "single", mig: []string{"--gpu 0 --enable 7g.40gb"},
			want: a100 + everywhere + "gpu.product=NVIDIA-A100-SXM4-40GB-MIG-INVALID gpu.count=0 gpu.replicas=0 gpu.memory=0 gpu.sharing-strategy="},
		"a100 mixed": {profile: "a100-sxm4-40gb", strategy: "mixed", mig: []string{"--gpu 0 --enable 3g.20gb,2g.10gb,1g.5gb", "--gpu 1 --enable 2g.10gb"},
			want: a100 + everywhere + "gpu.product=NVIDIA-A100-SXM4-40GB gpu.count=8 gpu.replicas=1 gpu.memory=40960 " +
				migLabels("mig-3g.20gb.", "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb", 1, 20096, 42, 3, 3, 3, 2, 0, 0) +
				migLabels("mig-2g.10gb.", "NVIDIA-A100-SXM4-40GB-MIG-2g.10gb", 2, 9984, 28, 2, 2, 2, 1, 0, 0) +
				migLabels("mig-1g.5gb.", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 1, 4864, 14, 1, 1, 1, 0, 0, 0)},
		"h100 single": {profile: "h100", strategy: "single", mig: []string{"--gpu all --enable 3g.40gb,3g.40gb"},
			want: h100 + everywhere + migLabels("gpu.", "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb", 16, 40448, 60, 3, 3, 3, 3, 3, 0)},
		"h100 mixed": {profile: "h100", strategy: "mixed", mig: []string{"--gpu 7 --enable 1g.10gb,1g.10gb,2g.20gb,1g.10gb+me"},
			want: h100 + everywhere + "gpu.product=NVIDIA-H100-80GB-HBM3 gpu.count=8 gpu.replicas=1 gpu.memory=81559 " +
				migLabels("mig-2g.20gb.", "NVIDIA-H100-80GB-HBM3-MIG-2g.20gb", 1, 20096, 32, 2, 2, 2, 2, 2, 0) +
				migLabels("mig-1g.10gb.", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", 2, 9984, 16, 1, 1, 1, 1, 1, 0) +
				migLabels("mig-1g.10gb.me.", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb.me", 1, 9984, 16, 1, 1, 1, 1, 1, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := filepath.Join(t.TempDir(), "labels")
			commands := "set -e\n"
			for _, line := range c.mig {
				commands += `"$0" mig create --run $$ ` + line + "\n"
			}
			env := []string{"env", "GFD_ONESHOT=true", "GFD_NO_TIMESTAMP=true", "GFD_USE_NODE_FEATURE_API=false", "GFD_OUTPUT_FILE=" + to}
			if c.strategy != "" {
				env = append(env, "MIG_STRATEGY="+c.strategy)
				c.want += " mig.strategy=" + c.strategy
			}
			shell := append([]string{"sh", "-c", commands + `exec "$@"`, launcher(t)}, append(env, program)...)
			out := inRun(t, nil, append([]string{"--namespace", "--profile", c.profile, "--"}, shell...)...).succeeds(t)
			assert.NotRegexp(t, regexp.MustCompile(`(?m)^[EF]\d{4} `), out.stderr)
			assert.NotContains(t, out.stderr, "nvmlfab:")

			system := &mustBoard(t, c.profile).System
			driver := append(strings.Split(system.DriverVersion.Value, "."), "")
			cuda := strings.Split(system.CUDAVersion.Value, ".")
			want := map[string]string{
				"cuda.driver-version.full": system.DriverVersion.Value, "cuda.runtime-version.full": system.CUDAVersion.Value,
				"cuda.driver-version.major": driver[0], "cuda.driver-version.minor": driver[1], "cuda.driver-version.revision": driver[2],
				"cuda.driver.major": driver[0], "cuda.driver.minor": driver[1], "cuda.driver.rev": driver[2],
				"cuda.runtime-version.major": cuda[0], "cuda.runtime-version.minor": cuda[1],
				"cuda.runtime.major": cuda[0], "cuda.runtime.minor": cuda[1],
			}
			for _, label := range strings.Fields(c.want) { // a later one is in place of an earlier
				key, value, _ := strings.Cut(label, "=")
				want[key] = value
			}
			got := map[string]string{}
			text, err := os.ReadFile(to)
			require.NoError(t, err)
			for line := range strings.Lines(string(text)) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				got[strings.TrimPrefix(key, "nvidia.com/")] = value
			}
			if c.profile == "mixed" { // of one of its GPUs, and nothing says of which
				for _, label := range strings.Fields(mixed[got["gpu.product"]]) {
					key, value, _ := strings.Cut(label, "=")
					want[key] = value
				}
			}
			assert.Equal(t, want, got)
		})
	}
}
