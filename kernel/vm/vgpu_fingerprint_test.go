//go:build guest

package kernel

import (
	"bytes"
	"os"
	"testing"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// asNvidia is the personality with the module name, the version and the function names of NVIDIA's module.
func asNvidia(t *testing.T, version string) []byte {
	t.Helper()
	image, err := os.ReadFile("/modules/fakegpu.ko")
	require.NoError(t, err)
	replace := func(old, with string) {
		require.LessOrEqual(t, len(with), len(old))
		i := bytes.LastIndex(image, []byte(old)) // an earlier match may be in debugging information
		require.Positive(t, i, "%q", old)
		copy(image[i:], append([]byte(with), make([]byte, len(old)-len(with))...))
	}
	replace("\x00name=fakegpu\x00", "\x00name=nvidia\x00")
	replace("fakegpu"+string(make([]byte, 49)), "nvidia") // the name in struct module: 56 bytes
	replace("\x00version=1\x00", "\x00")
	begin := bytes.Index(image, []byte("\x00description="))
	require.Positive(t, begin)
	end := begin + 1 + bytes.IndexByte(image[begin+1:], 0)
	replace(string(image[begin:end]), "\x00version="+version)
	for _, f := range []string{"open", "close", "unlocked_ioctl"} {
		replace("fakegpu_nv_"+f+"\x00", "nvidia_"+f+"\x00") // may be the end of another symbol's name, __pfx_fakegpu_nv_…
	}
	return image
}

// TestVgpuFingerprint: the module may enforce on known releases of NVIDIA's driver, and only watches others.
func TestVgpuFingerprint(t *testing.T) {
	d := withVgpu(t, append(enforcing, "memory_trace_limit_bytes=1")...)
	for version, known := range map[string]bool{"570.86.15": true, "580.105.08": true, "550.40.07": false, "590.48.01": false, "595.45.04": false, "5701.2": false, "": false} {
		t.Run(version, func(t *testing.T) {
			require.NoError(t, unix.InitModule(asNvidia(t, version), "nvidia=1 "+someGPUs))
			t.Cleanup(func() { unload(t, "nvidia") }) // after the descriptors are closed
			info, err := d.Info()
			require.NoError(t, err)
			assert.EqualValues(t, 1, info.Hooked)
			assert.Equal(t, "nvidia", info.Driver.String())
			assert.Equal(t, version, info.DriverVersion.String())
			assert.Equal(t, known, info.MayEnforce == 1)
			row := table(t, "driver_fingerprint")[0]
			assert.Equal(t, known, row["known"] == "1")
			c := abandoned(t, node(t, "nvidiactl"), 0)
			_, status := c.memory(mib)
			if known {
				assert.Equal(t, vgpuctl.ModeEnforce, info.Mode)
				assert.Equal(t, "-", row["reason"])
				assert.EqualValues(t, rmNoMemory, status)
			} else {
				assert.Equal(t, vgpuctl.ModeDryRun, info.Mode)
				assert.Equal(t, "nvidia "+version+" was never tried, only 570 and 580: dry run only", row["reason"])
				assert.ErrorIs(t, d.SetMode(vgpuctl.ModeEnforce), unix.EPERM)
				assert.Zero(t, status)
			}
			assert.Equal(t, "nvidia_unlocked_ioctl", table(t, "hooks")[2]["function"])
			shut(t, c.ctl)
		})
	}
}
