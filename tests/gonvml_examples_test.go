package tests

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestGoNVMLExamples runs the example programs of NVIDIA's go-nvml.
func TestGoNVMLExamples(t *testing.T) {
	namespaces(t)
	dir := sharedFolder(t)
	build := []string{"build", "-ldflags", "-s -w -extldflags=-Wl,-z,lazy", "-o", dir + "/"}
	for _, name := range []string{"devices", "compute-processes", "gpm-metrics", "dl"} {
		build = append(build, "github.com/NVIDIA/go-nvml/examples/"+name)
	}
	runIn(t, root, []string{"CGO_CFLAGS=-O2 -Wno-deprecated-declarations"}, "go", build...).succeeds(t)
	example := func(t *testing.T, name, profile string, flags ...string) outcome {
		t.Helper()
		args := append([]string{"--namespace", "--profile", profile}, flags...)
		args = append(args, "--", filepath.Join(dir, name))
		if name == "dl" {
			args = append(args, "libnvidia-ml.so.1")
		}
		return inRun(t, nil, args...)
	}

	t.Run("devices", func(t *testing.T) {
		const version = 1<<24 | 8 // of the struct, and its size
		for profile, mode := range map[string]int{"h100": 1, "t4": 1, "gb200": 2, "gb10": 2, "b200": 0} {
			want := ""
			for _, d := range mustBoard(t, profile).Devices {
				want += fmt.Sprintf("uuid=%s\nmode={%d %d}\n", d.UUID, version, mode)
			}
			assert.Equal(t, want, example(t, "devices", profile).succeeds(t).stdout, profile)
		}
		out := example(t, "devices", "a100-sxm4-40gb")
		assert.NotZero(t, out.code)
		assert.Contains(t, out.stderr, "undefined symbol: nvmlDeviceGetAddressingMode", "which its driver, 570, lacks")
	})
	t.Run("compute-processes", func(t *testing.T) {
		want := ""
		for i := range mustBoard(t, "h100").Devices {
			want += fmt.Sprintf("Found 0 processes on device %d\n", i)
		}
		assert.Equal(t, want, example(t, "compute-processes", "h100").succeeds(t).stdout)
		out := example(t, "compute-processes", "h100", "--process-memory", "2GiB@3").succeeds(t)
		text := regexp.MustCompile(`Pid:\d+ `).ReplaceAllString(out.stdout, "")
		want = strings.Replace(want, "Found 0 processes on device 3\n", "Found 1 processes on device 3\n"+
			"\t[ 0] ProcessInfo: {UsedGpuMemory:2147483648 GpuInstanceId:4294967295 ComputeInstanceId:4294967295}\n", 1)
		assert.Equal(t, want, text)
	})
	t.Run("gpm-metrics", func(t *testing.T) {
		t.Parallel()
		out := example(t, "gpm-metrics", "h100-pcie", "--process-memory", "2GiB", "--process-sm", "40").succeeds(t)
		assert.Equal(t, "1: 40\n", out.stdout)
		assert.Contains(t, example(t, "gpm-metrics", "t4").succeeds(t).stderr, "GPM queries are not supported")
	})
	t.Run("dl", func(t *testing.T) {
		out := example(t, "dl", "h100").succeeds(t)
		assert.Regexp(t, `libraryPath=\S+/libnvidia-ml\.so\.1\n(?s:.*)resolvedPath=\S+/libnvidia-ml\.so\.\S+\n(?s:.*)library closed`, out.stderr)
	})
}
