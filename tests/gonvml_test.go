package tests

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A check is one call through NVIDIA's Go bindings and what the board says that it answers. Values are compared as text,
// since the bindings and the profiles hold the same number in integers of different kinds.
type check struct {
	symbol string
	got    []any
	ret    nvml.Return
	want   []any // nil: the board does not say, so NOT_SUPPORTED
}

// one and two hold a call's results and what is wanted beside each other.
func one[T any](symbol string, got func() (T, nvml.Return), want any) check {
	a, ret := got()
	return check{symbol, []any{a}, ret, values(want)}
}

func two[T, U any](symbol string, got func() (T, U, nvml.Return), want ...any) check {
	a, b, ret := got()
	return check{symbol, []any{a, b}, ret, values(want...)}
}

// with1 binds the argument of a getter that takes one.
func with1[A, T any](get func(A) (T, nvml.Return), a A) func() (T, nvml.Return) {
	return func() (T, nvml.Return) { return get(a) }
}

// values makes the whole answer absent when one value of it is.
func values(want ...any) []any {
	if slices.Contains(want, nil) {
		return nil
	}
	return want
}

// given is the value of an Opt, or nil.
func given[T any](o profiles.Opt[T]) any {
	if !o.Valid {
		return nil
	}
	return o.Value
}

// state is an Opt of a mode as NVML counts it.
func state(o profiles.Opt[profiles.Enabled]) any {
	if !o.Valid {
		return nil
	}
	if o.Value {
		return nvml.FEATURE_ENABLED
	}
	return nvml.FEATURE_DISABLED
}

// named is an Opt of a name as NVML numbers it.
func named[N any](o profiles.Opt[string], numbers map[string]N) any {
	if !o.Valid {
		return nil
	}
	n, ok := numbers[o.Value]
	if !ok {
		panic(fmt.Sprintf("no number for %q in %v", o.Value, slices.Sorted(maps.Keys(numbers))))
	}
	return n
}

// text is what a C string holds.
func text(s []int8) string {
	var b strings.Builder
	for _, c := range s {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}

func system(lib nvml.Interface, b *profiles.Board) []check {
	cuda := func(major, minor profiles.Opt[uint32]) any { return major.Value*1000 + minor.Value*10 }
	return []check{
		one("nvmlSystemGetDriverVersion", lib.SystemGetDriverVersion, given(b.System.DriverVersion)),
		one("nvmlSystemGetNVMLVersion", lib.SystemGetNVMLVersion, given(b.System.NVMLVersion)),
		one("nvmlSystemGetCudaDriverVersion_v2", lib.SystemGetCudaDriverVersion_v2,
			cuda(b.System.CUDAVersionMajor, b.System.CUDAVersionMinor)),
		one("nvmlSystemGetCudaDriverVersion", lib.SystemGetCudaDriverVersion,
			cuda(b.System.CUDAVersionMajor, b.System.CUDAVersionMinor)),
		one("nvmlDeviceGetCount_v2", lib.DeviceGetCount, len(b.Devices)),
	}
}

// same checks that a handle found by other means is the device's.
func same(symbol string, dev nvml.Device, found nvml.Device, ret nvml.Return) check {
	return check{symbol, []any{found}, ret, []any{dev}}
}

func device(lib nvml.Interface, dev nvml.Device, d *profiles.Device) []check {
	bus := d.PCI.BusID.Value
	byUUID, uuidRet := lib.DeviceGetHandleByUUID(string(d.UUID))
	byBus, busRet := lib.DeviceGetHandleByPciBusId(strings.ToLower(bus.Legacy()))
	pci, pciRet := dev.GetPciInfo()
	memory, memoryRet := dev.GetMemoryInfo()
	memory2, memory2Ret := dev.GetMemoryInfo_v2()
	bar1, bar1Ret := dev.GetBAR1MemoryInfo()
	load, loadRet := dev.GetUtilizationRates()
	compute, computeRet := dev.GetComputeRunningProcesses()
	graphics, graphicsRet := dev.GetGraphicsRunningProcesses()
	m, free := d.Memory, d.Memory.TotalBytes.Value-d.Memory.ReservedBytes.Value-d.Memory.UsedBytes.Value

	return []check{
		same("nvmlDeviceGetHandleByUUID", dev, byUUID, uuidRet),
		same("nvmlDeviceGetHandleByPciBusId_v2", dev, byBus, busRet),
		one("nvmlDeviceGetIndex", dev.GetIndex, d.Index),
		one("nvmlDeviceGetMinorNumber", dev.GetMinorNumber, given(d.MinorNumber)),
		one("nvmlDeviceGetName", dev.GetName, given(d.Name)),
		one("nvmlDeviceGetUUID", dev.GetUUID, d.UUID),
		one("nvmlDeviceGetSerial", dev.GetSerial, given(d.Serial)),
		one("nvmlDeviceGetBoardPartNumber", dev.GetBoardPartNumber, given(d.BoardPartNumber)),
		one("nvmlDeviceGetVbiosVersion", dev.GetVbiosVersion, given(d.VBIOSVersion)),
		one("nvmlDeviceGetBoardId", dev.GetBoardId, d.BoardID.Or(bus.Domain<<16|uint32(bus.Bus)<<8|uint32(bus.Device))),
		one("nvmlDeviceGetBrand", dev.GetBrand, named(d.Brand, brands)),
		one("nvmlDeviceGetArchitecture", dev.GetArchitecture, named(d.Architecture, architectures)),
		two("nvmlDeviceGetCudaComputeCapability", dev.GetCudaComputeCapability,
			given(d.ComputeCapability.Major), given(d.ComputeCapability.Minor)),
		{"nvmlDeviceGetPciInfo_v3", []any{text(pci.BusId[:]), text(pci.BusIdLegacy[:]), pci.Domain, pci.Bus, pci.Device,
			pci.PciDeviceId, pci.PciSubSystemId}, pciRet,
			[]any{bus.String(), bus.Legacy(), bus.Domain, bus.Bus, bus.Device, d.PCI.DeviceID.Value, d.PCI.SubsystemID.Value}},
		one("nvmlDeviceGetCurrPcieLinkGeneration", dev.GetCurrPcieLinkGeneration, given(d.PCIe.CurrentLinkGen)),
		one("nvmlDeviceGetCurrPcieLinkWidth", dev.GetCurrPcieLinkWidth, given(d.PCIe.CurrentLinkWidth)),
		one("nvmlDeviceGetMaxPcieLinkGeneration", dev.GetMaxPcieLinkGeneration, given(d.PCIe.MaxLinkGen)),
		one("nvmlDeviceGetMaxPcieLinkWidth", dev.GetMaxPcieLinkWidth, given(d.PCIe.MaxLinkWidth)),
		one("nvmlDeviceGetGpuMaxPcieLinkGeneration", dev.GetGpuMaxPcieLinkGeneration, given(d.PCIe.MaxDeviceLinkGen)),

		// The first memory call counts what the driver reserves as used, the second tells it apart.
		{"nvmlDeviceGetMemoryInfo", []any{memory.Total, memory.Free, memory.Used}, memoryRet,
			[]any{m.TotalBytes.Value, m.FreeBytes.Or(free), m.TotalBytes.Value - m.FreeBytes.Or(free)}},
		{"nvmlDeviceGetMemoryInfo_v2", []any{memory2.Total, memory2.Reserved, memory2.Free, memory2.Used}, memory2Ret,
			[]any{m.TotalBytes.Value, m.ReservedBytes.Value, m.FreeBytes.Or(free), m.UsedBytes.Value}},
		{"nvmlDeviceGetBAR1MemoryInfo", []any{bar1.Bar1Total, bar1.Bar1Free, bar1.Bar1Used}, bar1Ret,
			[]any{d.BAR1Memory.TotalBytes.Value, d.BAR1Memory.FreeBytes.Or(d.BAR1Memory.TotalBytes.Value - d.BAR1Memory.UsedBytes.Value),
				d.BAR1Memory.UsedBytes.Value}},

		one("nvmlDeviceGetTemperature", with1(dev.GetTemperature, nvml.TEMPERATURE_GPU), given(d.Thermal.TemperatureGPUC)),
		one("nvmlDeviceGetFanSpeed", dev.GetFanSpeed, given(d.Fan.SpeedPercent)),
		one("nvmlDeviceGetPowerUsage", dev.GetPowerUsage, given(d.Power.CurrentDrawMW)),
		one("nvmlDeviceGetPowerManagementLimit", dev.GetPowerManagementLimit,
			given(profiles.Some(d.Power.RequestedLimitMW.Or(d.Power.EnforcedLimitMW.Value)))),
		one("nvmlDeviceGetEnforcedPowerLimit", dev.GetEnforcedPowerLimit, given(d.Power.EnforcedLimitMW)),
		{"nvmlDeviceGetUtilizationRates", []any{load.Gpu, load.Memory}, loadRet,
			values(given(d.Utilization.GPU), given(d.Utilization.Memory))},
		one("nvmlDeviceGetClockInfo", with1(dev.GetClockInfo, nvml.CLOCK_GRAPHICS), given(d.Clocks.GraphicsCurrent)),
		one("nvmlDeviceGetClockInfo", with1(dev.GetClockInfo, nvml.CLOCK_SM), given(d.Clocks.SMCurrent)),
		one("nvmlDeviceGetClockInfo", with1(dev.GetClockInfo, nvml.CLOCK_MEM), given(d.Clocks.MemoryCurrent)),
		one("nvmlDeviceGetClockInfo", with1(dev.GetClockInfo, nvml.CLOCK_VIDEO), given(d.Clocks.VideoCurrent)),
		one("nvmlDeviceGetMaxClockInfo", with1(dev.GetMaxClockInfo, nvml.CLOCK_GRAPHICS), given(d.Clocks.GraphicsMax)),
		one("nvmlDeviceGetMaxClockInfo", with1(dev.GetMaxClockInfo, nvml.CLOCK_MEM), given(d.Clocks.MemoryMax)),
		one("nvmlDeviceGetPerformanceState", dev.GetPerformanceState, given(d.PerformanceState)),

		one("nvmlDeviceGetPersistenceMode", dev.GetPersistenceMode, state(d.PersistenceMode)),
		one("nvmlDeviceGetComputeMode", dev.GetComputeMode, named(d.ComputeMode, computeModes)),
		one("nvmlDeviceGetDisplayMode", dev.GetDisplayMode, state(d.Display.Mode)),
		one("nvmlDeviceGetDisplayActive", dev.GetDisplayActive, state(d.Display.Active)),
		two("nvmlDeviceGetMigMode", dev.GetMigMode, state(d.MIG.ModeCurrent), state(d.MIG.ModePending)),
		two("nvmlDeviceGetEccMode", dev.GetEccMode, state(d.ECC.ModeCurrent), state(d.ECC.ModePending)),
		{"nvmlDeviceGetComputeRunningProcesses_v3", []any{len(compute)}, computeRet, []any{count(d, "C")}},
		{"nvmlDeviceGetGraphicsRunningProcesses_v3", []any{len(graphics)}, graphicsRet, []any{count(d, "G")}},
	}
}

// count is the number of the device's processes of a kind.
func count(d *profiles.Device, kind string) int {
	n := 0
	for _, p := range d.Processes {
		if strings.Contains(p.Type.Or("C"), kind) {
			n++
		}
	}
	return n
}

var (
	brands = map[string]nvml.BrandType{"tesla": nvml.BRAND_TESLA, "nvidia": nvml.BRAND_NVIDIA, "nvidia_rtx": nvml.BRAND_NVIDIA_RTX}

	architectures = map[string]nvml.DeviceArchitecture{"turing": nvml.DEVICE_ARCH_TURING, "ampere": nvml.DEVICE_ARCH_AMPERE,
		"ada": nvml.DEVICE_ARCH_ADA, "hopper": nvml.DEVICE_ARCH_HOPPER, "blackwell": nvml.DEVICE_ARCH_BLACKWELL}

	computeModes = map[string]nvml.ComputeMode{"default": nvml.COMPUTEMODE_DEFAULT, "prohibited": nvml.COMPUTEMODE_PROHIBITED,
		"exclusive_process": nvml.COMPUTEMODE_EXCLUSIVE_PROCESS}
)

// unchecked are implemented functions without a check here, each with the reason.
var unchecked = map[string]string{
	"nvmlInit":                          "called by every test",
	"nvmlInitWithFlags":                 "called by nvidia-smi",
	"nvmlShutdown":                      "called by every test",
	"nvmlDeviceGetHandleByIndex":        "called for every device",
	"nvmlErrorString":                   "compared with the real library's texts",
	"nvmlInternalGetExportTable":        "nvidia-smi's own; not in go-nvml",
	"nvmlGetBlacklistDeviceCount":       "in no header; not in go-nvml",
	"nvmlGetBlacklistDeviceInfoByIndex": "in no header; not in go-nvml",
}

var version = regexp.MustCompile(`_v\d+$`)

// family is a symbol without its version: go-nvml takes the newest of a family that the library has.
func family(symbol string) string { return version.ReplaceAllString(symbol, "") }

// implemented lists the exported functions that are no stubs.
func implemented(t *testing.T) []string {
	t.Helper()
	stub := map[string]bool{}
	for _, name := range regexp.MustCompile(`\bnvml[A-Z]\w*`).FindAllString(
		run(t, nil, "go", "run", "./generator", "--missing").succeeds(t).stdout, -1) {
		stub[name] = true
	}
	require.NotEmpty(t, stub)
	return slices.DeleteFunc(exported(t, filepath.Join(library, "libnvidia-ml.so.1")), func(name string) bool { return stub[name] })
}

// TestGoNVML loads the library into this process, a Go runtime beside the core's, as the device plugin and its like do.
func TestGoNVML(t *testing.T) {
	t.Setenv("NVMLFAB_STATE_DIR", t.TempDir())
	lib := nvml.New(nvml.WithLibraryPath(filepath.Join(library, "libnvidia-ml.so.1")))
	require.Equal(t, nvml.SUCCESS, lib.Init())
	defer func() { assert.Equal(t, nvml.SUCCESS, lib.Shutdown()) }()

	b := board(t)
	covered := map[string]bool{}
	verify := func(t *testing.T, checks []check) {
		for _, c := range checks {
			covered[family(c.symbol)] = true
			if c.want == nil {
				assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, c.ret, c.symbol)
			} else if assert.Equal(t, nvml.SUCCESS, c.ret, c.symbol) {
				assert.Equal(t, fmt.Sprint(c.want...), fmt.Sprint(c.got...), c.symbol)
			}
		}
	}
	verify(t, system(lib, b))
	for i := range b.Devices {
		t.Run(fmt.Sprint("device ", i), func(t *testing.T) {
			dev, ret := lib.DeviceGetHandleByIndex(i)
			require.Equal(t, nvml.SUCCESS, ret)
			verify(t, device(lib, dev, &b.Devices[i]))
		})
	}

	for _, symbol := range implemented(t) {
		if name := family(symbol); !covered[name] && unchecked[name] == "" {
			t.Errorf("%s is implemented and has no check here", symbol)
		}
	}
}
