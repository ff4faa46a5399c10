package tests

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These tests make calls that go-nvml does not make: older names, lists as a whole, and calls with bad arguments.

func (c *checker) systemByName(names *caller) {
	c.says("nvmlDeviceGetCount", len(c.board.Devices))(get[uint32](names, "nvmlDeviceGetCount"))
	c.says("nvmlGetBlacklistDeviceCount", 0)(get[uint32](names, "nvmlGetBlacklistDeviceCount"))
	c.says("nvmlGetBlacklistDeviceInfoByIndex", nvml.ERROR_INVALID_ARGUMENT)(
		get[nvml.ExcludedDeviceInfo](names, "nvmlGetBlacklistDeviceInfoByIndex", 0))

	// The table that nvidia-smi asks for, and an unknown one.
	const table = "nvmlInternalGetExportTable"
	smi := []byte{0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4}
	var address uint64
	c.says(table, nvml.SUCCESS)(names.call(table, &address, smi))
	assert.NotZero(c, address)
	c.says(table, nvml.ERROR_INVALID_ARGUMENT)(names.call(table, &address, make([]byte, 16)))
}

// The struct of the PCI identity grew twice.
type (
	pciInfo1 struct {
		BusIdLegacy                      [16]int8
		Domain, Bus, Device, PciDeviceId uint32
	}
	pciInfo2 struct {
		pciInfo1
		PciSubSystemId uint32
	}
)

func shorter(p nvml.PciInfo) pciInfo2 {
	return pciInfo2{pciInfo1{p.BusIdLegacy, p.Domain, p.Bus, p.Device, p.PciDeviceId}, p.PciSubSystemId}
}

func (c *checker) byName(names *caller, d *profiles.Device) {
	gpu, ret := get[uint64](names, "nvmlDeviceGetHandleByIndex_v2", d.Index)
	require.Equal(c, nvml.SUCCESS, ret)
	c.says("nvmlDeviceGetHandleByIndex", gpu)(get[uint64](names, "nvmlDeviceGetHandleByIndex", d.Index))
	bus := d.PCI.BusID.Value
	c.says("nvmlDeviceGetHandleByPciBusId", gpu)(get[uint64](names, "nvmlDeviceGetHandleByPciBusId", bus.Legacy()))

	c.registers(names, gpu, d)

	pci := shorter(pciInfo(bus, d.PCI.DeviceID.Value, d.PCI.SubsystemID.Value))
	c.says("nvmlDeviceGetPciInfo", pci.pciInfo1)(get[pciInfo1](names, "nvmlDeviceGetPciInfo", gpu))
	c.says("nvmlDeviceGetPciInfo_v2", pci)(get[pciInfo2](names, "nvmlDeviceGetPciInfo_v2", gpu))
	for i, l := range c.linksOf(d) {
		c.says("nvmlDeviceGetNvLinkRemotePciInfo", when(l.active, shorter(pciInfo(l.bus, l.device, 0))))(
			get[pciInfo2](names, "nvmlDeviceGetNvLinkRemotePciInfo", gpu, i))
	}

	var current, pending uint32
	ret = names.call("nvmlDeviceGetDriverModel", gpu, &current, &pending)
	c.says("nvmlDeviceGetDriverModel", named(d.DriverModel.Current, driverModels), named(d.DriverModel.Pending, driverModels))(
		current, pending, ret)

	for kind, name := range map[string]string{"C": "Compute", "G": "Graphics", "MPS": "MPSCompute"} {
		name = "nvmlDeviceGet" + name + "RunningProcesses"
		want := processesOf(d, kind)
		var short []nvml.ProcessInfo_v1
		for _, p := range want {
			short = append(short, nvml.ProcessInfo_v1{Pid: p.Pid, UsedGpuMemory: p.UsedGpuMemory})
		}
		c.says(name, short)(list[nvml.ProcessInfo_v1](names, name, gpu))
		c.says(name+"_v2", want)(list[nvml.ProcessInfo](names, name+"_v2", gpu))
		c.says(name+"_v3", want)(list[nvml.ProcessInfo](names, name+"_v3", gpu))
	}

	var memory []uint32
	for _, m := range d.SupportedClocks.MemoryClocks {
		memory = append(memory, m.FreqMHz)
		c.says("nvmlDeviceGetSupportedGraphicsClocks", m.GraphicsClocks)(
			list[uint32](names, "nvmlDeviceGetSupportedGraphicsClocks", gpu, m.FreqMHz))
	}
	c.says("nvmlDeviceGetSupportedMemoryClocks", when(memory != nil, memory))(
		list[uint32](names, "nvmlDeviceGetSupportedMemoryClocks", gpu))
	c.says("nvmlDeviceGetSupportedGraphicsClocks", when(memory != nil, nvml.ERROR_NOT_FOUND))(
		list[uint32](names, "nvmlDeviceGetSupportedGraphicsClocks", gpu, 1))
}

// badArguments calls functions with bad arguments. The header's text tells which functions take a GPU.
func badArguments(t *testing.T, names *caller, functions []string) {
	refuses := func(want nvml.Return, symbol string, args ...any) {
		t.Helper()
		assert.Equal(t, want, names.call(symbol, args...), "%s%v", symbol, args)
	}
	text, err := os.ReadFile(header(t, ""))
	require.NoError(t, err)
	ofGPU, pointers := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`\b(nvmlDevice\w+) *\(nvmlDevice_t([^)]*)\)`).FindAllStringSubmatch(string(text), -1) {
		ofGPU[m[1]], pointers[m[1]] = true, strings.Contains(m[2], "*")
	}
	lifecycle := []string{
		"nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags", "nvmlShutdown", "nvmlErrorString", "nvmlInternalGetExportTable",
	}
	refuses(nvml.ERROR_INVALID_ARGUMENT, "nvmlSystemGetNVMLVersion") // which answers before nvmlInit too
	refuses(nvml.ERROR_INSUFFICIENT_SIZE, "nvmlSystemGetNVMLVersion", make([]byte, 3), 3)
	functions = slices.DeleteFunc(slices.Clone(functions), func(f string) bool { return slices.Contains(lifecycle, f) })
	for _, symbol := range functions {
		if symbol != "nvmlSystemGetNVMLVersion" {
			refuses(nvml.ERROR_UNINITIALIZED, symbol)
		}
	}

	require.Equal(t, nvml.SUCCESS, names.call("nvmlInit_v2"))
	gpu, ret := get[uint64](names, "nvmlDeviceGetHandleByIndex_v2", 0)
	require.Equal(t, nvml.SUCCESS, ret)
	const nullable = "nvmlDeviceGetGpuOperationMode" // nvidia-smi asks for only one of its two results
	for _, symbol := range functions {
		refuses(nvml.ERROR_INVALID_ARGUMENT, symbol) // NULL for a handle, and for each result
		if ofGPU[symbol] {
			refuses(nvml.ERROR_INVALID_ARGUMENT, symbol, gpu+1)
		}
		if pointers[symbol] && symbol != nullable {
			refuses(nvml.ERROR_INVALID_ARGUMENT, symbol, gpu)
		}
	}

	for _, symbol := range []string{
		"nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetSerial", "nvmlDeviceGetBoardPartNumber",
		"nvmlDeviceGetVbiosVersion", "nvmlDeviceGetInforomImageVersion",
	} {
		refuses(nvml.ERROR_INSUFFICIENT_SIZE, symbol, gpu, make([]byte, 3), 3)
	}
	refuses(nvml.ERROR_INSUFFICIENT_SIZE, "nvmlDeviceGetInforomVersion", gpu, 0, make([]byte, 3), 3)
	refuses(nvml.ERROR_INSUFFICIENT_SIZE, "nvmlSystemGetDriverVersion", make([]byte, 3), 3)
	refuses(nvml.ERROR_INSUFFICIENT_SIZE, "nvmlSystemGetNVMLVersion", make([]byte, 3), 3)
	cropped := make([]byte, 3)
	assert.Equal(t, nvml.SUCCESS, names.call("nvmlSystemGetProcessName", 4001, cropped, len(cropped)))
	assert.Equal(t, "/u\x00", string(cropped))
	refuses(nvml.ERROR_INVALID_ARGUMENT, "nvmlSystemGetProcessName", 4001, cropped, 0)

	for _, symbol := range []string{
		"nvmlDeviceGetAddressingMode", "nvmlDeviceGetCapabilities", "nvmlDeviceGetDramEncryptionMode",
		"nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetMarginTemperature", "nvmlDeviceGetMemoryInfo_v2",
		"nvmlDeviceGetPciInfoExt", "nvmlDeviceGetPdi", "nvmlDeviceGetPlatformInfo", "nvmlDeviceGetRepairStatus",
		"nvmlDeviceGetSramEccErrorStatus", "nvmlDeviceGetTemperatureV",
	} {
		refuses(nvml.ERROR_ARGUMENT_VERSION_MISMATCH, symbol, gpu, make([]byte, 256), make([]byte, 256))
	}
}

// prmCounter is a counter of a link, as nvmlDeviceReadPRMCounters_v1 has it.
type prmCounter struct {
	ID, Port, Status, Kind uint32
	Value                  uint64
}

// registers reads counters of links of the fifth generation, from a list and from a register, whose message has an operation and the
// register's content.
func (c *checker) registers(names *caller, gpu uint64, d *profiles.Device) {
	const xmitCodes, codeErrors, countersRegister = 304, 302, 0x5008
	links := c.board.LinkCount(d.Index)
	ports := c.board.NVLink.Version.Value >= 5 && links > 0
	counters := []prmCounter{{ID: xmitCodes, Port: 1}, {ID: codeErrors, Port: links}, {ID: xmitCodes, Port: links + 1}, {ID: 5000, Port: 1}}
	want := slices.Clone(counters)
	want[0].Kind, want[0].Value = 3, c.board.NVLink.Defaults.CounterSeed.Value<<10/144
	want[1].Kind = 3
	want[2].Status, want[3].Status = 2, 2
	ret := names.call("nvmlDeviceReadPRMCounters_v1", gpu, []uint64{uint64(len(counters)), 0}, pointed{8, counters})
	c.says("nvmlDeviceReadPRMCounters_v1", when(ports, want))(counters, ret)

	type message struct {
		Size, Status uint32
		Data         [496]byte
	}
	m := message{Size: 16 + 4 + 256 + 4}
	copy(m.Data[:], []byte{1 << 3, 4, 0, 0, countersRegister >> 8, countersRegister & 0xff, 1, 1})
	copy(m.Data[16:], []byte{3 << 3, 1 + 64, 0, 0, 0, byte(links), 0, 0x12})
	ret = names.call("nvmlDeviceReadWritePRM_v1", gpu, &m)
	c.says("nvmlDeviceReadWritePRM_v1", when(ports, []any{0, 0x81, 0}))([]any{m.Status, m.Data[6], m.Data[16+4+8+0xa3]}, ret)
}
