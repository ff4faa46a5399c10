//go:build guest

package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestNvidiaLayouts: nodes, card information and /proc of every shipped profile, and of a machine without GPUs.
func TestNvidiaLayouts(t *testing.T) {
	for _, name := range profiles.Names() {
		t.Run(name, func(t *testing.T) {
			board, err := profiles.Shipped(name)
			require.NoError(t, err)
			parameters, err := machine.ModuleParameters(board)
			require.NoError(t, err)
			load(t, "fakegpu", parameters)
			staged := machine.New(board, machine.Options{})
			assert.Equal(t, nodesOf(staged), nvidiaNodes(t))

			cards := make([]cardInfo, 32)
			ctl := node(t, "nvidiactl")
			require.NoError(t, rmIoctlBytes(ctl, escCardInfo, bytesOf(cards)))
			shut(t, ctl)
			for i := range cards {
				if i >= len(board.Devices) {
					assert.Zero(t, cards[i])
					continue
				}
				d := &board.Devices[i]
				id, bus := d.PCI.DeviceID.Value, d.PCI.BusID.Value
				assert.Equal(t, cardInfo{
					Valid: 1, Domain: bus.Domain, Bus: bus.Bus, Slot: bus.Device, Function: bus.Function, Vendor: uint16(id), Device: uint16(id >> 16),
					GPU: bus.Domain<<16 | uint32(bus.Bus)<<8 | uint32(bus.Device), FBSize: d.Memory.TotalBytes.Value, Minor: machine.Minor(d),
				}, cards[i])
				shut(t, node(t, fmt.Sprintf("nvidia%d", cards[i].Minor)))
			}

			blanks := regexp.MustCompile(`: *\t+`)  // their number differs between driver versions
			irq := regexp.MustCompile(`IRQ: \d+\n`) // the module has none
			for _, gpu := range staged.GPUs {
				path := "proc/driver/nvidia/gpus/" + gpu.BusID + "/information"
				want := irq.ReplaceAllString(blanks.ReplaceAllString(staged.Find(path).Data, ":"), "IRQ: 0\n")
				assert.Equal(t, want, blanks.ReplaceAllString(read(t, "/"+path), ":"))
			}
			folders, err := os.ReadDir("/proc/driver/nvidia/gpus")
			require.NoError(t, err)
			assert.Len(t, folders, len(board.Devices))
			assert.Contains(t, read(t, "/proc/driver/nvidia/version"), "  "+board.System.DriverVersion.Value+"  ")
			assert.Contains(t, read(t, "/proc/driver/nvidia/params"), "\nDeviceFileMode: 438\n")
			unload(t, "fakegpu")
			assert.Empty(t, nvidiaNodes(t))
			assert.NoDirExists(t, "/proc/driver/nvidia")
		})
	}
	t.Run("none", func(t *testing.T) {
		load(t, "fakegpu", "nvidia=1")
		assert.Equal(t, []string{"nvidiactl"}, nvidiaNodes(t))
		require.NoError(t, rmIoctl(node(t, "nvidiactl"), escCardInfo, &cardInfo{}))
		c := &rmClient{t: t, ctl: node(t, "nvidiactl")}
		require.Zero(t, c.alloc(0, &c.client, classRoot, nil))
		var device uint32
		assert.EqualValues(t, rmInvalidState, c.alloc(c.client, &device, classDevice, &deviceParams{}))
		ids := make([]uint32, 32)
		require.Zero(t, c.control(c.client, ctrlAttachedIDs, ids))
		assert.Equal(t, invalidIDs(32), ids)
	})
	t.Run("off", func(t *testing.T) {
		load(t, "fakegpu", someGPUs)
		assert.Empty(t, nvidiaNodes(t))
	})
}

// nodesOf are the names of those nodes of a staged machine that the module makes.
func nodesOf(tree *machine.Tree) []string {
	names := []string{}
	for n := range 256 {
		if name := fmt.Sprintf("nvidia%d", n); tree.Find("dev/"+name) != nil {
			names = append(names, name)
		}
	}
	return append(names, "nvidiactl")
}

// nvidiaNodes are the names of the driver's nodes, in order. It requires that all have the driver's major number and
// that everybody may open them.
func nvidiaNodes(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("/dev/nvidia*")
	require.NoError(t, err)
	names := []string{}
	for _, path := range paths {
		var s unix.Stat_t
		require.NoError(t, unix.Stat(path, &s))
		assert.EqualValues(t, unix.S_IFCHR|0o666, s.Mode, path)
		if path == "/dev/nvidia-uvm" { // the kernel chooses its number
			assert.Contains(t, read(t, "/proc/devices"), fmt.Sprintf("\n%d nvidia-uvm\n", unix.Major(s.Rdev)))
			continue
		}
		assert.EqualValues(t, 195, unix.Major(s.Rdev), path)
		want := uint32(255)
		fmt.Sscanf(filepath.Base(path), "nvidia%d", &want)
		assert.Equal(t, want, unix.Minor(s.Rdev), path)
		names = append(names, filepath.Base(path))
	}
	return names
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// TestNvidiaParameters: an invalid layout is refused, and the log names the wrong entry. logic/tests tries all kinds of
// mistakes.
func TestNvidiaParameters(t *testing.T) {
	quiet(t)
	change := func(old, new string) string { return strings.Replace(secondGPU, old, new, 1) }
	for name, c := range map[string]struct{ parameter, want string }{
		"empty":            {"gpus=" + firstGPU + ",", "entry 1, "},
		"nonsense":         {"gpus=" + firstGPU + ",nonsense", "entry 1, nonsense: cannot read the bus id"},
		"too much memory":  {"gpus=" + change("1073741824", "18446744073709551616"), "the memory"},
		"control":          {"gpus=" + change("Tesla_T4", "Tesla%0AT4"), "the name"},
		"field too many":   {"gpus=" + secondGPU + "/more", "nothing after it"},
		"twice the bus id": {"gpus=" + firstGPU + "," + change("0001:02:03.1", "0000:1a:00.1"), "entry 1, 0000:1a:00.1/3/10de:1eb8/1073741824/GPU-5a4b4c4d-0000-1111-2222-333344445555/Tesla_T4/90.04.96.00.02/47/N%2FA: an earlier entry has the bus id"},
		"twice the minor":  {"gpus=" + firstGPU + "," + change("/3/", "/0/"), "has the minor number already"},
		"twice the UUID":   {"gpus=" + firstGPU + "," + change("GPU-5a", "GPU-4a"), "has the UUID already"},
		"version":          {"driver_version=580", "driver_version=580: give two to four numbers"},
		"long version":     {"driver_version=580." + strings.Repeat("1", 40), "give two to four numbers"},
	} {
		t.Run(name, func(t *testing.T) {
			logged := logSince()
			assert.ErrorIs(t, insert("fakegpu", "nvidia=1", c.parameter), unix.EINVAL)
			lines := logged()
			require.Len(t, lines, 1)
			assert.Contains(t, lines[0], c.want)
			assert.False(t, loaded("fakegpu"))
		})
	}
	t.Run("too many", func(t *testing.T) {
		many := slicesOf(33, func(i int) string {
			return fmt.Sprintf("0000:%02x:00.0/%d/10de:2330/1/GPU-4a4b4c4d-0000-1111-2222-3333444455%02x/N/V/52/F", i, i, i)
		})
		assert.Error(t, insert("fakegpu", "nvidia=1", "gpus="+strings.Join(many, ",")))
		load(t, "fakegpu", "nvidia=1", "gpus="+strings.Join(many[:32], ","))
		assert.Len(t, nvidiaNodes(t), 33)
	})
}

// quiet keeps the module's expected messages off the console.
func quiet(t *testing.T) {
	t.Helper()
	const level = "/proc/sys/kernel/printk"
	before := read(t, level)
	require.NoError(t, os.WriteFile(level, []byte("1"), 0))
	t.Cleanup(func() { assert.NoError(t, os.WriteFile(level, []byte(before), 0)) })
}

func slicesOf[T any](n int, f func(i int) T) (s []T) {
	for i := range n {
		s = append(s, f(i))
	}
	return s
}

func invalidIDs(n int) []uint32 { return slicesOf(n, func(int) uint32 { return invalidGPU }) }
