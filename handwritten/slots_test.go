package handwritten

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

var slots = []getter{
	one("65", InternalSlot65, abi.DEVICE_ARCH_HOPPER),
	one("72", InternalSlot72, 1).bareAnswers(1),
	one("108", InternalSlot108, 700000),
	one("157", InternalSlot157, 0).bareAnswers(0),
	one("207", InternalSlot207, 7).bareAnswers(0),
	one("209", InternalSlot209),
	one("211", InternalSlot211, "580.105.08"),
	one("226", filled(InternalSlot226)),
	one("230", InternalSlot230),
	one("231", InternalSlot231, "2330-885-A1"),
	one("240", InternalSlot240, 58),
	one("242", InternalSlot242, 1),
	one("243", InternalSlot243, 0),
}

func TestSlots(t *testing.T) {
	h100, empty := gpu(t, ""), gpu(t, bare)
	for _, g := range slots {
		for _, c := range []struct {
			d    *engine.Device
			want []any
		}{{h100, g.h100}, {empty, g.bare}} {
			t.Run(g.name, func(t *testing.T) {
				if c.want == nil {
					refuses(t, abi.ERROR_NOT_SUPPORTED)(g.call(c.d)...)
				} else {
					answers(t, c.want...)(g.call(c.d)...)
				}
			})
		}
	}
	d := gpu(t, like("pcie: {atomic_caps_inbound: 63}"))
	answers(t, abi.InternalAtomicCaps_t{Inbound: 63})(filled(InternalSlot226)(d))
}

func TestSlotsOfBusIDs(t *testing.T) {
	s := gpu(t, "").Snapshot()
	answers(t, 0, 0x53, 0, 0)(InternalSlot12(s, "00000000:53:00.0"))
	answers(t, 0, 0x53, 0, 0)(InternalSlot12(s, "53:0.0"))
	answers(t, 0xabcdef01, 0xff, 0x1f, 7)(InternalSlot12(s, "ABCDEF01:FF:1f.7"))
	refuses(t, abi.ERROR_INVALID_ARGUMENT)(InternalSlot12(s, "0000:zz:00.0"))
	answers(t, 0, 0x64, 0)(InternalSlot75(s, 1))
	refuses(t, abi.ERROR_INVALID_ARGUMENT)(InternalSlot75(s, 8))
}

func TestSlot23(t *testing.T) {
	const nic = "0000:41:00.0"
	s := gpu(t, `extends: h100
topology: {root_complexes: [
	{id: "a", numa_node: 0, devices: ["0000:53:00.0", "0000:64:00.0", "`+nic+`"]},
	{id: "b", numa_node: 0, devices: ["0000:75:00.0"]},
	{id: "c", numa_node: 1, devices: ["0000:86:00.0"]}]}
`).Snapshot()
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"0000:53:00.0", "0000:64:00.0", 2},
		{"00000000:53:00.0", "0000:75:00.0", 3},
		{"0000:53:00.0", "0000:86:00.0", 4},
		{"0000:53:00.0", "0000:97:00.0", 4}, // the profile has no bridge above them
		{nic, "0000:53:00.0", 2},
		{"0000:75:00.0", nic, 3},
		{"0000:11:00.0", "0000:53:00.0", 4},
	} {
		answers(t, c.want)(InternalSlot23(s, c.a, c.b))
	}
	refuses(t, abi.ERROR_INVALID_ARGUMENT)(InternalSlot23(s, "0000:53:00.0", "eth0"))

	s = gpu(t, like("topology: {default_level: multiple}")).Snapshot()
	answers(t, 1)(InternalSlot23(s, "0000:53:00.0", "0000:64:00.0"))

	s = gpu(t, "extends: dgx-h100\n").Snapshot()
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"0000:1b:00.0", "0000:18:00.0", 1}, // a GPU and its adapter
		{"0000:1b:00.0", "0000:40:00.0", 3},
		{"0000:1b:00.0", "0000:9a:00.0", 4},
		{"0000:29:00.0", "0000:29:00.1", 0}, // two functions of a card
		{"0000:29:00.0", "0000:1b:00.0", 3},
		{"0000:18:00.0", "0000:dc:00.0", 4},
	} {
		answers(t, c.want)(InternalSlot23(s, c.a, c.b))
	}

	s = gpu(t, "extends: h100\n").Snapshot()
	answers(t, 1)(InternalSlot23(s, "0000:54:00.0", "0000:53:00.0"))
	answers(t, 4)(InternalSlot23(s, "0000:54:00.0", "0000:64:00.0"))
	s = gpu(t, "count: 2\ndevice_defaults: {topology: {default_level: node}}\ndevices: [{pci: {bus_id: \"0000:01:00.0\"}}, {pci: {bus_id: \"0000:81:00.0\"}}]\ninfiniband: {enabled: true}\n").Snapshot()
	answers(t, 2)(InternalSlot23(s, "0000:02:00.0", "0000:01:00.0")) // no bus is left for a switch
	answers(t, 3)(InternalSlot23(s, "0000:02:00.0", "0000:81:00.0"))
	answers(t, 3)(InternalSlot23(s, "0000:02:00.0", "0000:82:00.0"))
}

func TestSlotsOfProcesses(t *testing.T) {
	d := gpu(t, like(crowded))
	name := func(p abi.InternalProcess_t) string {
		var s []byte
		for _, c := range p.Name {
			if c == 0 {
				break
			}
			s = append(s, byte(c))
		}
		return string(s)
	}
	computing, ret := InternalSlot213(d)
	require.Equal(t, abi.SUCCESS, ret)
	require.Len(t, computing, 2)
	assert.EqualValues(t, 10, computing[0].Pid)
	assert.EqualValues(t, 100*mib, computing[0].UsedGpuMemory)
	assert.EqualValues(t, 0xffffffff, computing[0].GpuInstanceId)
	assert.Equal(t, "/usr/bin/python3", name(computing[0]))
	assert.EqualValues(t, 12, computing[1].Pid)
	assert.Equal(t, ^uint64(0), computing[1].UsedGpuMemory)
	assert.Empty(t, name(computing[1]))
	drawing, ret := InternalSlot215(d)
	require.Equal(t, abi.SUCCESS, ret)
	require.Len(t, drawing, 2)
	assert.Equal(t, "/usr/bin/Xorg", name(drawing[0]))
	answers(t, []abi.InternalProcess_t(nil))(InternalSlot214(d))
}

// TestSlot145: programs with the short and with the long samples read the same loads.
func TestSlot145(t *testing.T) {
	load := func(i, part int) uint32 { return uint32(10*i + part + 1) }
	var profile strings.Builder
	profile.WriteString("devices: [{processes: [")
	for i := range 9 {
		// These pids are also valid loads, so that a program which confused the two would count wrong.
		fmt.Fprintf(&profile, "{pid: %d, sm_util: %d, mem_util: %d, enc_util: %d, dec_util: %d},",
			20*load(i, 0), load(i, 0), load(i, 1), load(i, 2), load(i, 3))
	}
	profile.WriteString("{pid: 7}]}]\n")
	d := gpu(t, profile.String())
	count := abi.InternalCount_t{Value: 100}
	var samples abi.InternalSamples_t
	_, ret := InternalSlot145(d, 0, &count, &samples)
	require.Equal(t, abi.SUCCESS, ret)

	for _, program := range []struct{ size, parts int }{{328, 4}, {488, 6}} {
		sums := map[[2]int]uint32{} // part and pid
		for i := range int(count.Value) {
			for part := range program.parts {
				at := i*program.size + 8 + 80*part
				value, pid := binary.NativeEndian.Uint32(samples.Bytes[at:]), binary.NativeEndian.Uint32(samples.Bytes[at+8:])
				if value > 0 && pid > 0 {
					sums[[2]int{part, int(pid)}] += value
				}
			}
		}
		want := map[[2]int]uint32{}
		for i := range len(oldSamples) {
			for part := range 4 {
				want[[2]int{part, int(20 * load(i, 0))}] = load(i, part) * count.Value
			}
		}
		assert.Equal(t, want, sums, "%d bytes a sample", program.size)
	}

	idle := abi.InternalCount_t{Value: 100}
	_, ret = InternalSlot145(gpu(t, ""), 0, &idle, &samples)
	assert.Equal(t, abi.SUCCESS, ret)
	assert.Zero(t, idle.Value)
	refuses(t, abi.ERROR_INSUFFICIENT_SIZE)(InternalSlot145(d, 0, &abi.InternalCount_t{Value: 29}, &samples))
}

func TestSlot138(t *testing.T) {
	answers(t, 0)(InternalSlot138(gpu(t, "")))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(InternalSlot138(gpu(t, like("clocks_throttle_reasons: {hw_thermal_slowdown: true}"))))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(InternalSlot138(gpu(t, bare)))
}

func TestSlot208(t *testing.T) {
	enginetest.At(t, time.Date(2026, 1, 1, 0, 0, 7, 0, time.UTC))
	for board, want := range map[string][]uint64{"h100": {3, 4, 0, 0}, "a100-sxm4-40gb": {1, 2, 2, 2}} {
		d := gpu(t, "extends: "+board+"\nnvlink: {defaults: {error_rate: 1}}\n")
		counts := make([]uint64, 4)
		assert.Equal(t, abi.SUCCESS, InternalSlot208(d, 0, abi.NVLINK_ERROR_DL_ECC_DATA, counts))
		assert.Equal(t, want, counts)
		assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, InternalSlot208(d, 18, abi.NVLINK_ERROR_DL_ECC_DATA, counts))
	}
}

func TestSlot165(t *testing.T) {
	values := []abi.FieldValue_t{{FieldId: 2, ScopeId: 17}, {FieldId: 2, ScopeId: 18}, {FieldId: 1}, {FieldId: 3}}
	assert.Equal(t, abi.SUCCESS, InternalSlot165(gpu(t, ""), values))
	assert.Equal(t, abi.SUCCESS, values[0].NvmlReturn)
	assert.EqualValues(t, 2, values[0].Value[0])
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, values[1].NvmlReturn)
	assert.Equal(t, abi.ERROR_NOT_SUPPORTED, values[2].NvmlReturn)
	assert.Equal(t, abi.ERROR_INVALID_ARGUMENT, values[3].NvmlReturn)

	// Driver 450 had other numbers.
	values = []abi.FieldValue_t{{FieldId: 1}, {FieldId: 2}}
	assert.Equal(t, abi.SUCCESS, InternalSlot165(gpu(t, "extends: h100\nsystem: {driver_version: 450.248.02}\n"), values))
	assert.Equal(t, abi.SUCCESS, values[0].NvmlReturn)
	assert.EqualValues(t, 18, values[0].Value[0])
	assert.Equal(t, abi.ERROR_NOT_SUPPORTED, values[1].NvmlReturn)
}
