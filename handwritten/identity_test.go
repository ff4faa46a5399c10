package handwritten

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/words"
)

func TestLifecycle(t *testing.T) {
	e := engine.New(enginetest.New())
	answers(t, 0)(DeviceGetCount(e.Snapshot()))
	require.Equal(t, abi.SUCCESS, Init(e))
	answers(t, 8)(DeviceGetCount(e.Snapshot()))
	first, ret := DeviceGetHandleByIndex(e.Snapshot(), 7)
	require.Equal(t, abi.SUCCESS, ret)
	assert.EqualValues(t, 7, first.Index)
	require.Equal(t, abi.SUCCESS, Shutdown(e))
	answers(t, 0)(DeviceGetCount(e.Snapshot()))

	h := enginetest.New("NVMLFAB_PROFILE", "nope")
	assert.Equal(t, abi.ERROR_UNKNOWN, InitWithFlags(engine.New(h), abi.INIT_FLAG_NO_ATTACH))
	require.Len(t, h.Complaints, 1)
	assert.Contains(t, h.Complaints[0], "nope")
}

func TestSystem(t *testing.T) {
	s := gpu(t, "").Snapshot()
	answers(t, "580.105.08")(SystemGetDriverVersion(s))
	answers(t, "13.580.105.08")(SystemGetNVMLVersion(s))
	answers(t, 13000)(SystemGetCudaDriverVersion(s))
	answers(t, 0)(GetExcludedDeviceCount(s))
	answers(t, 0)(UnitGetCount(s))
	answers(t, []abi.HwbcEntry_t(nil))(SystemGetHicVersion(s))
	assert.Equal(t, abi.SUCCESS, SystemGetConfComputeState(s, &abi.ConfComputeSystemState_t{}))

	answers(t, 12040)(SystemGetCudaDriverVersion(gpu(t, bare+"system: {cuda_version: \"12.4\"}\n").Snapshot()))

	s = gpu(t, bare).Snapshot()
	refuses(t, abi.ERROR_NOT_SUPPORTED)(SystemGetDriverVersion(s))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(SystemGetCudaDriverVersion(s))
	refuses(t, abi.ERROR_NOT_SUPPORTED)(SystemGetConfComputeState(s, &abi.ConfComputeSystemState_t{}))
}

func TestHandles(t *testing.T) {
	s := enginetest.Start(t, "")
	d := s.Devices[5]
	serial, _ := DeviceGetSerial(d)
	uuid, _ := DeviceGetUUID(d)
	answers(t, d)(DeviceGetHandleByUUID(s, uuid))
	answers(t, d)(DeviceGetHandleByUUID(s, strings.ToUpper(uuid)))
	answers(t, d)(DeviceGetHandleBySerial(s, serial))
	for _, busID := range []string{"00000000:A8:00.0", "0000:a8:00.0", "0:A8:0.0", "0000:A8:00", "a8:00.0"} {
		answers(t, d)(DeviceGetHandleByPciBusId(s, busID))
	}

	refuses(t, abi.ERROR_NOT_FOUND)(DeviceGetHandleByUUID(s, "GPU-00000000-0000-0000-0000-000000000000"))
	refuses(t, abi.ERROR_INVALID_ARGUMENT)(DeviceGetHandleByUUID(s, ""))
	refuses(t, abi.ERROR_NOT_FOUND)(DeviceGetHandleBySerial(s, "0"))
	for _, busID := range []string{"00000001:A8:00.0", "0000:A8:01.0", "0000:A8:00.1", "ff:00.0"} {
		refuses(t, abi.ERROR_NOT_FOUND)(DeviceGetHandleByPciBusId(s, busID))
	}
	for _, busID := range []string{"", "A8", "A8:00", "0000:A8:00.8", "0000:A8:20.0", "0000:1A8:00.0", "123456789:A8:00.0",
		"0000:A8:00.0.0", "g:A8:00.0", "0:0:A8:00.0"} {
		refuses(t, abi.ERROR_INVALID_ARGUMENT)(DeviceGetHandleByPciBusId(s, busID))
	}

	want := &abi.UUID_v1_t{Type: uint32(abi.UUID_TYPE_ASCII)}
	text(want.Value[:], uuid)
	answers(t, d)(DeviceGetHandleByUUIDV(s, want))
	digits, err := hex.DecodeString(strings.ReplaceAll(strings.TrimPrefix(uuid, "GPU-"), "-", ""))
	require.NoError(t, err)
	want = &abi.UUID_v1_t{Type: uint32(abi.UUID_TYPE_BINARY)}
	copy(want.Value[:], digits)
	answers(t, d)(DeviceGetHandleByUUIDV(s, want))
}

func TestSharedSerial(t *testing.T) {
	s := gpu(t, "devices: [{serial: \"1234\"}, {serial: \"1234\"}]\n").Snapshot()
	refuses(t, abi.ERROR_INVALID_ARGUMENT)(DeviceGetHandleBySerial(s, "1234"))
}

func TestPci(t *testing.T) {
	d := enginetest.Start(t, "extends: h100\ncount: 1\ndevices: [{pci: {bus_id: \"00010002:a8:1f.0\"}}]\n").Devices[0]
	pci := abi.PciInfo_t{BusId: [32]byte{20: 'x'}}
	require.Equal(t, abi.SUCCESS, DeviceGetPciInfo(d, &pci))
	want := abi.PciInfo_t{Domain: 0x10002, Bus: 0xa8, Device: 0x1f, PciDeviceId: 0x233010de, PciSubSystemId: 0x16c110de}
	copy(want.BusId[:], "00010002:A8:1F.0")
	copy(want.BusIdLegacy[:], "0002:A8:1F.0")
	assert.Equal(t, want, pci)

	ext := abi.PciInfoExt_v1_t{Version: abi.PciInfoExt_v1, BusId: [32]byte{16: 'x'}}
	require.Equal(t, abi.SUCCESS, DeviceGetPciInfoExt(d, &ext))
	assert.Equal(t, abi.PciInfoExt_v1_t{Version: abi.PciInfoExt_v1, Domain: 0x10002, Bus: 0xa8, Device: 0x1f,
		PciDeviceId: 0x233010de, PciSubSystemId: 0x16c110de, BaseClass: 3, SubClass: 2, BusId: want.BusId}, ext)
}

func TestPdi(t *testing.T) {
	pdi := abi.Pdi_v1_t{Version: abi.Pdi_v1}
	assert.Equal(t, abi.SUCCESS, DeviceGetPdi(gpu(t, ""), &pdi))
	assert.Equal(t, abi.Pdi_v1_t{Version: abi.Pdi_v1, Value: 0x6d592f1396a49dc3}, pdi)
}

// TestNames: every name that a profile may give has a number.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		key   reflect.StructField
		names []string
	}{
		{member[profiles.Properties](t, "Brand"), names(words.Brands)},
		{member[profiles.Properties](t, "Architecture"), names(words.Architectures)},
		{member[profiles.Properties](t, "AddressingMode"), names(words.AddressingModes)},
		{member[profiles.Properties](t, "RecoveryAction"), names(words.RecoveryActions)},
		{member[profiles.Properties](t, "ComputeMode"), names(words.ComputeModes)},
		{member[profiles.GPUOperationMode](t, "Current"), names(words.OperationModes)},
		{member[profiles.DriverModel](t, "Current"), names(words.DriverModels)},
		{member[profiles.Virtualization](t, "Mode"), names(words.VirtualizationModes)},
		{member[profiles.Virtualization](t, "HostVGPUMode"), names(words.HostModes)},
		{member[profiles.Fabric](t, "State"), names(words.FabricStates)},
		{member[profiles.Fabric](t, "HealthSummary"), append(names(words.HealthSummaries), "auto")},
		{member[profiles.FabricHealth](t, "IncorrectConfiguration"), names(misconfigurations)},
		{member[profiles.Platform](t, "PeerType"), names(words.PeerTypes)},
		{member[profiles.DeviceTopology](t, "DefaultLevel"), names(topologyLevels)},
	} {
		var allowed []string
		for choice := range strings.SplitSeq(c.key.Tag.Get("enum"), ",") {
			name, _, _ := strings.Cut(choice, "=") // other spellings come after it
			allowed = append(allowed, name)
		}
		assert.ElementsMatch(t, allowed, c.names, c.key.Name)
	}
}

func names[N any](numbers table[string, N]) (list []string) {
	for _, n := range numbers {
		list = append(list, n.Key)
	}
	return list
}

func member[T any](t *testing.T, name string) reflect.StructField {
	t.Helper()
	field, ok := reflect.TypeFor[T]().FieldByName(name)
	require.True(t, ok, name)
	return field
}

func TestEventSets(t *testing.T) {
	s, h := enginetest.StartHost(t, "")
	set, ret := EventSetCreate(s)
	require.Equal(t, abi.SUCCESS, ret)
	handle, ret := set.Handle()
	require.Equal(t, abi.SUCCESS, ret)
	answers(t, set)(s.EventSet(handle, 0))
	assert.Equal(t, abi.SUCCESS, EventSetFree(set))
	refuses(t, abi.ERROR_INVALID_ARGUMENT)(s.EventSet(handle, 0))

	h.Limit = 2
	_, ret = EventSetCreate(s)
	assert.Equal(t, abi.SUCCESS, ret)
	_, ret = EventSetCreate(s)
	assert.Equal(t, abi.ERROR_MEMORY, ret)
}
