package tests

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestGPUFilterOnNVIDIA uses NVIDIA's own libraries.
func TestGPUFilterOnNVIDIA(t *testing.T) {
	filter := made(t, "lib/libnvgpufilter.so")
	program := architectures[0].cc(t, filepath.Join(t.TempDir(), "real"), "real.c", "-rdynamic")
	for _, c := range []struct{ branch, version string }{{"535", "535.261.03"}, {"550", "550.163.01"}} {
		t.Run(c.branch, func(t *testing.T) {
			libraries := []string{
				fetched(t, "libcuda-"+c.branch, "libcuda.so.1"),
				fetched(t, "libnvcuvid-"+c.branch, "libnvcuvid.so.1"),
				fetched(t, "libnvidia-encode-"+c.branch, "libnvidia-encode.so.1"),
			}
			var dirs []string
			for _, path := range libraries {
				dirs = append(dirs, filepath.Dir(path))
			}
			session := func(t *testing.T, mode string, env ...string) outcome {
				env = append(env, "LD_LIBRARY_PATH="+strings.Join(dirs, ":"))
				args := append([]string{c.version, mode, filter}, libraries...)
				return privately(t, someHidden, env, program, args...).succeeds(t)
			}

			t.Run("without GPUs", func(t *testing.T) {
				on := session(t, "kernel", "NVMLFAB_DEBUG=1")
				for _, name := range []string{"libcuda.so.1: 1 of 1 ", "libnvcuvid.so.1: 1 of 1 ", "libnvidia-encode.so.1: 0 of 0 "} {
					assert.Contains(t, on.stderr, name)
				}
				off := session(t, "kernel", "NVMLFAB_GPUFILTER=off")
				assert.Equal(t, off.stdout, on.stdout)
				assert.Contains(t, on.stdout, "cuInit ")
				assert.NotContains(t, on.stdout, "cuInit 0\n")
			})

			t.Run("with emulated GPUs", func(t *testing.T) {
				on, off := session(t, "emulated"), session(t, "emulated", "NVMLFAB_GPUFILTER=off")
				about := func(o outcome) []string {
					return slices.Compact(slices.Sorted(slices.Values(all(o.lines(), "asks about"))))
				}
				assert.Equal(t, []string{"100", "300"}, about(on), on.stdout)
				assert.Equal(t, []string{"100", "10100", "200", "300"}, about(off), off.stdout)
				for _, line := range []string{"libcuda.so.1 sees 100 300", "libnvcuvid.so.1 sees 100 300", "libnvidia-encode.so.1 imports no ioctl"} {
					assert.Contains(t, on.lines(), line)
				}
				for _, line := range []string{"libcuda.so.1 sees 100 200 10100 300", "libnvcuvid.so.1 sees 100 200 10100 300"} {
					assert.Contains(t, off.lines(), line)
				}
			})
		})
	}
}
