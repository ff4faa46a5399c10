package tests

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
)

// These functions tell of P-states, of lists inside structs, of fans and sensors, and of S-class units.

var mizers = map[string]uint32{"adaptive": 0, "prefer_maximum": 1, "auto": 2, "prefer_consistent": 3}

func (c *checker) states(dev nvml.Device, d *profiles.Device) {
	all := d.PerformanceStates
	var list []nvml.Pstates
	for i, p := range all {
		list = append(list, nvml.Pstates(p.State))
		c := c.of("P-state ", i)
		graphics := []any{given(p.GraphicsMinMHz), given(p.GraphicsMaxMHz)}
		c.says("nvmlDeviceGetMinMaxClockOfPState", graphics...)(dev.GetMinMaxClockOfPState(nvml.CLOCK_GRAPHICS, nvml.Pstates(p.State)))
		c.says("nvmlDeviceGetMinMaxClockOfPState", graphics...)(dev.GetMinMaxClockOfPState(nvml.CLOCK_SM, nvml.Pstates(p.State)))
		c.says("nvmlDeviceGetMinMaxClockOfPState", given(p.MemoryMinMHz), given(p.MemoryMaxMHz))(
			dev.GetMinMaxClockOfPState(nvml.CLOCK_MEM, nvml.Pstates(p.State)))
	}
	c.says("nvmlDeviceGetSupportedPerformanceStates", when(all != nil, list))(dev.GetSupportedPerformanceStates())
	c.says("nvmlDeviceGetMinMaxClockOfPState", nil)(dev.GetMinMaxClockOfPState(nvml.CLOCK_GRAPHICS, nvml.PSTATE_15))
	c.says("nvmlDeviceGetMinMaxClockOfPState", nvml.ERROR_INVALID_ARGUMENT)(
		dev.GetMinMaxClockOfPState(nvml.CLOCK_GRAPHICS, nvml.PSTATE_UNKNOWN))

	modes, ret := dev.GetPerformanceModes()
	c.says("nvmlDeviceGetPerformanceModes", when(all != nil, len(all)))(strings.Count(letters(modes.Str[:]), "perf="), ret)
	for i := range all {
		p := &all[len(all)-1-i]
		assert.Contains(c, letters(modes.Str[:]), fmt.Sprintf("perf=%d, nvclock=%[2]d, nvclockmin=%d, nvclockmax=%[2]d", i,
			p.GraphicsMaxMHz.Value, p.GraphicsMinMHz.Value))
	}
	clocks, ret := dev.GetCurrentClockFreqs()
	graphics, memory := d.Clocks.GraphicsCurrent, d.Clocks.MemoryCurrent
	c.says("nvmlDeviceGetCurrentClockFreqs", when(graphics.Valid && memory.Valid, true))(
		strings.HasPrefix(letters(clocks.Str[:]), fmt.Sprintf("nvclock=%d, ", graphics.Value)) &&
			strings.Contains(letters(clocks.Str[:]), fmt.Sprintf(", memclock=%d, ", memory.Value)), ret)
	c.says("nvmlDeviceGetAdaptiveClockInfoStatus", bit(d.Clocks.Adaptive))(dev.GetAdaptiveClockInfoStatus())

	supported := uint32(0)
	for _, name := range append(d.PowerMizer.Modes, d.PowerMizer.Mode.Value) {
		supported |= 1 << mizers[name]
	}
	mode := mizers[d.PowerMizer.Mode.Value]
	c.says("nvmlDeviceGetPowerMizerMode_v1", when(d.PowerMizer.Mode.Valid, nvml.DevicePowerMizerModes_v1{
		CurrentMode: mode, Mode: mode, SupportedPowerMizerModes: supported,
	}))(dev.GetPowerMizerMode_v1())
}

func (c *checker) details(dev nvml.Device, d *profiles.Device) {
	fans := d.Fan.Count.Value
	if fans == 0 && d.Fan.SpeedPercent.Valid {
		fans = 1
	}
	c.says("nvmlDeviceGetFanSpeedRPM", when(d.Fan.SpeedRPM.Valid, versioned(1, nvml.FanSpeedInfo{Speed: d.Fan.SpeedRPM.Value})))(
		dev.GetFanSpeedRPM())
	c.says("nvmlDeviceGetCoolerInfo", when(fans > 0, versioned(1, nvml.CoolerInfo{
		SignalType: uint32(nvml.THERMAL_COOLER_SIGNAL_VARIABLE), Target: uint32(nvml.THERMAL_COOLER_TARGET_GPU_RELATED),
	})))(dev.GetCoolerInfo())

	var want nvml.GpuThermalSettings
	if now, ok := d.Thermal.TemperatureGPUC.Get(); ok {
		want.Count, want.Sensor[0].Controller, want.Sensor[0].Target = 1, int32(nvml.THERMAL_CONTROLLER_GPU_INTERNAL), int32(nvml.THERMAL_TARGET_GPU)
		want.Sensor[0].CurrentTemp, want.Sensor[0].DefaultMaxTemp = now, d.Thermal.ShutdownThresholdC.Value
	}
	if now, ok := d.Thermal.TemperatureMemoryC.Get(); ok {
		want.Count, want.Sensor[1].Controller, want.Sensor[1].Target = 2, int32(nvml.THERMAL_CONTROLLER_GPU_INTERNAL), int32(nvml.THERMAL_TARGET_MEMORY)
		want.Sensor[1].CurrentTemp, want.Sensor[1].DefaultMaxTemp = now, d.Thermal.MemoryMaxOperatingC.Value
	}
	c.says("nvmlDeviceGetThermalSettings", when(want.Count > 0, want))(dev.GetThermalSettings(uint32(nvml.THERMAL_TARGET_ALL) % 12))

	u := &d.Utilization
	var loads nvml.GpuDynamicPstatesInfo
	for at, load := range []profiles.Opt[uint32]{u.GPU, u.Memory, {Value: max(u.Encoder.Value, u.Decoder.Value), Valid: u.Encoder.Valid || u.Decoder.Valid}} {
		loads.Utilization[at].BIsPresent, loads.Utilization[at].Percentage = number(load.Valid), load.Value
	}
	c.says("nvmlDeviceGetDynamicPstatesInfo", when(u.GPU.Valid, loads))(dev.GetDynamicPstatesInfo())
	c.says("nvmlDeviceGetEncoderCapacity", when(d.EncoderStats.SessionCount.Valid && u.Encoder.Valid, 100-u.Encoder.Value))(
		dev.GetEncoderCapacity(nvml.ENCODER_QUERY_HEVC))
	c.says("nvmlDeviceGetEncoderCapacity", nvml.ERROR_INVALID_ARGUMENT)(dev.GetEncoderCapacity(nvml.ENCODER_QUERY_UNKNOWN))

	c.says("nvmlDeviceGetInforomConfigurationChecksum", given(d.InfoROM.Checksum))(dev.GetInforomConfigurationChecksum())
	c.says("nvmlDeviceGetIrqNum", given(d.IRQ))(dev.GetIrqNum())
	c.says("nvmlDeviceGetBusType", when(d.PCIe.MaxLinkGen.Valid, nvml.BUS_TYPE_PCIE))(dev.GetBusType())
	c.says("nvmlDeviceGetNumaNodeId", given(d.Memory.NUMANode))(dev.GetNumaNodeId())
	c.says("nvmlDeviceGetHostname_v1", given(d.Hostname))(dev.GetHostname_v1())
	protected, total := d.CCProtectedMemory.TotalBytes, d.Memory.TotalBytes
	c.says("nvmlDeviceGetConfComputeMemSizeInfo", when(protected.Valid && total.Valid, nvml.ConfComputeMemSizeInfo{
		ProtectedMemSizeKib: protected.Value >> 10, UnprotectedMemSizeKib: (total.Value - protected.Value) >> 10,
	}))(dev.GetConfComputeMemSizeInfo())

	links := &c.board.NVLink
	var info nvml.NvLinkInfo_v2
	info.IsNvleEnabled, info.FirmwareInfo.NumValidEntries = number(links.Encrypted.Value), uint32(len(links.Firmware))
	for i, f := range links.Firmware {
		v := &info.FirmwareInfo.FirmwareVersion[i]
		v.UcodeType = map[string]uint8{"mse": 1, "netir_uphy": 3}[f.Type]
		_, err := fmt.Sscanf(f.Version, "%d.%d.%d", &v.Major, &v.Minor, &v.SubMinor)
		assert.NoError(c, err)
	}
	c.says("nvmlDeviceGetNvLinkInfo", when(links.Version.Value >= 5, versioned(2, info)))(dev.GetNvLinkInfo().V2())

	c.lists(dev, d)
}

// lists checks lists whose count and array are fields of a struct.
func (c *checker) lists(dev nvml.Device, d *profiles.Device) {
	var computing, busy []profiles.Process
	for _, p := range d.Processes {
		if strings.Contains(p.Type.Or("C"), "C") {
			computing = append(computing, p)
		}
		if p.SMUtil.Value|p.MemUtil.Value|p.EncUtil.Value|p.DecUtil.Value|p.JPEGUtil.Value|p.OFAUtil.Value != 0 {
			busy = append(busy, p)
		}
	}
	details, ret := dev.GetRunningProcessDetailList()
	c.says("nvmlDeviceGetRunningProcessDetailList", len(computing))(details.NumProcArrayEntries, ret)
	if ret == nvml.SUCCESS && len(computing) > 0 {
		for i, got := range unsafe.Slice((*nvml.ProcessDetail_v1)(unsafe.Pointer(details.ProcArray)), len(computing)) {
			assert.Equal(c, computing[i].PID, got.Pid)
			if mib, ok := computing[i].UsedMemoryMiB.Get(); ok {
				assert.Equal(c, mib<<20, got.UsedGpuMemory)
			}
		}
	}

	use, ret := dev.GetProcessesUtilizationInfo()
	switch {
	case bool(d.MIG.ModeCurrent.Value):
		c.says("nvmlDeviceGetProcessesUtilizationInfo", nil)(use, ret)
	case busy == nil:
		c.says("nvmlDeviceGetProcessesUtilizationInfo", nvml.ERROR_NOT_FOUND)(ret)
	default: // the binding has no room, and learns how much it takes
		c.says("nvmlDeviceGetProcessesUtilizationInfo", nvml.ERROR_INSUFFICIENT_SIZE)(ret)
		if ret == nvml.ERROR_INSUFFICIENT_SIZE {
			assert.EqualValues(c, len(busy), use.ProcessSamplesCount)
			c.seen.note("nvmlDeviceGetProcessesUtilizationInfo", c.name, true)
		}
	}
}

func (c *checker) units() {
	c.says("nvmlUnitGetCount", len(c.board.Units))(c.lib.UnitGetCount())
	_, ret := c.lib.UnitGetHandleByIndex(len(c.board.Units))
	c.says("nvmlUnitGetHandleByIndex", nvml.ERROR_INVALID_ARGUMENT)(ret)
	for i, u := range c.board.Units {
		unit, ret := c.lib.UnitGetHandleByIndex(i)
		c.says("nvmlUnitGetHandleByIndex", nvml.SUCCESS)(ret)
		if ret != nvml.SUCCESS {
			continue
		}
		info, ret := unit.GetUnitInfo()
		c.says("nvmlUnitGetUnitInfo", u.Name, u.ID, u.Serial, u.FirmwareVersion)(
			letters(info.Name[:]), letters(info.Id[:]), letters(info.Serial[:]), letters(info.FirmwareVersion[:]), ret)
		for sensor, want := range []profiles.Opt[uint32]{u.IntakeC, u.ExhaustC, u.BoardC} {
			c.says("nvmlUnitGetTemperature", given(want))(unit.GetTemperature(sensor))
		}
		c.says("nvmlUnitGetTemperature", nvml.ERROR_INVALID_ARGUMENT)(unit.GetTemperature(3))
		psu, ret := unit.GetPsuInfo()
		c.says("nvmlUnitGetPsuInfo", u.PSU.State.Value, u.PSU.CurrentA.Value, u.PSU.VoltageV.Value, u.PSU.PowerW.Value)(
			letters(psu.State[:]), psu.Current, psu.Voltage, psu.Power, ret)
		fans, ret := unit.GetFanSpeedInfo()
		c.says("nvmlUnitGetFanSpeedInfo", len(u.Fans))(fans.Count, ret)
		for j, fan := range u.Fans {
			assert.EqualValues(c, fan.SpeedRPM, fans.Fans[j].Speed)
			assert.EqualValues(c, number(fan.Failed), fans.Fans[j].State)
		}
		led, ret := unit.GetLedState()
		c.says("nvmlUnitGetLedState", u.Amber.Value, number(u.Amber.Valid))(letters(led.Cause[:]), led.Color, ret)
		var devices []nvml.Device
		for _, index := range u.Devices {
			devices = append(devices, c.handles[index])
		}
		c.says("nvmlUnitGetDevices", devices)(unit.GetDevices())
	}
}

// letters is the C string in an array.
func letters[C int8 | uint8](from []C) string {
	var b strings.Builder
	for _, letter := range from {
		if letter == 0 {
			break
		}
		b.WriteByte(byte(letter))
	}
	return b.String()
}
