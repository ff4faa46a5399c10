package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// busy gives instances memory in use and processes, and says that the half with four compute slices is the upper one.
const busy = `
extends: h100
devices:
  - ecc: {errors: {volatile: {double_bit: {l2_cache: 3}}}}
    processes:
      - {pid: 21180, name: /opt/train, used_memory_mib: 2296, gpu_instance_id: 9, compute_instance_id: 0, sm_util: 50}
      - {pid: 21181, name: /opt/other, used_memory_mib: 100}
mig:
  swapped: true
  gpu_instance_profiles:
    - {name: 1g.10gb, id: 19, slices: 1, instances: 7, memory_mib: 9984, used_bytes: 15728640, multiprocessors: 16, copy_engines: 1,
       encoders: 0, decoders: 1, jpegs: 1, ofas: 0, p2p: false, placement_size: 1, placement_starts: [0, 1, 2, 3, 4, 5, 6]}
`

// migBoards are the boards whose GPUs can be cut, with the lines of a profile for tests.
func migBoards(t *testing.T) map[string]string {
	all := map[string]string{"busy": busy}
	for _, name := range profiles.Names() {
		if len(mustBoard(t, name).MIG.GPUInstanceProfiles) > 0 {
			all[name] = "extends: " + name
		}
	}
	return all
}

// migLives drives the whole life of instances with go-nvml on each board.
func migLives(t *testing.T, program string, seen answers) {
	needsRoot(t)
	for name, text := range migBoards(t) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "profile.yaml")
			require.NoError(t, os.WriteFile(path, []byte(text+"\n---\ncount: 2\n"), 0o644))
			b, err := profiles.Load(path)
			require.NoError(t, err)
			t.Setenv("NVMLFAB_STATE_DIR", t.TempDir())
			t.Setenv("MOCK_NVML_CONFIG", path)
			lib := nvml.New(nvml.WithLibraryPath(filepath.Join(library, "libnvidia-ml.so.1")))
			require.Equal(t, nvml.SUCCESS, lib.Init())
			defer func() { assert.Equal(t, nvml.SUCCESS, lib.Shutdown()) }()
			dev, ret := lib.DeviceGetHandleByIndex(0)
			require.Equal(t, nvml.SUCCESS, ret)
			c := &checker{T: t, lib: lib, board: b, known: known(t, b), seen: seen, name: name}
			life := &migLife{checker: c, dev: dev, d: &b.Devices[0]}
			life.run()
			life.byName(newCaller(t, program, "MOCK_NVML_CONFIG="+path, "NVMLFAB_STATE_DIR="+t.TempDir()))
		})
	}
}

// migLife is a GPU whose instances come and go.
type migLife struct {
	*checker
	dev nvml.Device
	d   *profiles.Device
}

// looks is all that go-nvml shows of a GPU's instances.
func (m *migLife) looks() string {
	var all strings.Builder
	current, pending, ret := m.dev.GetMigMode()
	most, _ := m.dev.GetMaxMigDeviceCount()
	memory, _ := m.dev.GetMemoryInfo()
	fmt.Fprintln(&all, current, pending, ret, most, memory.Used)
	for _, p := range m.board.MIG.GPUInstanceProfiles {
		info := nvml.GpuInstanceProfileInfo{Id: p.ID, InstanceCount: p.Instances.Value}
		list, ret := m.dev.GetGpuInstances(&info)
		free, _ := m.dev.GetGpuInstanceRemainingCapacity(&info)
		fmt.Fprintln(&all, p.Name, len(list), ret, free)
	}
	return all.String()
}

func (m *migLife) run() {
	before := m.looks()
	m.says("nvmlDeviceSetMigMode", nvml.SUCCESS)(m.dev.SetMigMode(nvml.DEVICE_MIG_ENABLE))
	m.says("nvmlDeviceGetMigMode", 1, 1)(m.dev.GetMigMode())
	m.says("nvmlDeviceGetMaxMigDeviceCount", m.d.MIG.MaxGPUInstances.Value)(m.dev.GetMaxMigDeviceCount())
	empty := m.looks()
	events, ret := m.lib.EventSetCreate()
	require.Equal(m, nvml.SUCCESS, ret)
	require.Equal(m, nvml.SUCCESS, m.dev.RegisterEvents(nvml.EventMigConfigChange, events))
	told := func(what string) {
		m.Helper()
		e, ret := events.Wait(60_000)
		assert.Equal(m, nvml.SUCCESS, ret, what)
		assert.EqualValues(m, nvml.EventMigConfigChange, e.EventType, what)
	}

	table := m.board.MIG.GPUInstanceProfiles
	infos := map[uint32]nvml.GpuInstanceProfileInfo{}
	for kind := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := m.dev.GetGpuInstanceProfileInfo(kind)
		if ret != nvml.SUCCESS {
			assert.Equal(m, nvml.ERROR_NOT_SUPPORTED, ret, "profile %d", kind)
			continue
		}
		infos[info.Id] = info
		v, ret := m.dev.GetGpuInstanceProfileInfoV(kind).V2()
		require.Equal(m, nvml.SUCCESS, ret)
		assert.Equal(m, info.Id, v.Id)
		m.seen.note("nvmlDeviceGetGpuInstanceProfileInfo", m.name, true)
		m.seen.note("nvmlDeviceGetGpuInstanceProfileInfoV", m.name, true)
	}
	require.Len(m, infos, len(table), "every row has a number")
	for i := range table {
		p := &table[i]
		info := infos[p.ID]
		assert.Equal(m, nvml.GpuInstanceProfileInfo{
			Id: p.ID, IsP2pSupported: 0, SliceCount: p.Slices.Value, InstanceCount: p.Instances.Value,
			MultiprocessorCount: p.Multiprocessors.Value, CopyEngineCount: p.CopyEngines.Value, DecoderCount: p.Decoders.Value,
			EncoderCount: p.Encoders.Value, JpegCount: p.JPEGs.Value, OfaCount: p.OFAs.Value, MemorySizeMB: p.MemoryMiB.Value,
		}, info)
		var places []nvml.GpuInstancePlacement
		for _, start := range p.PlacementStarts {
			places = append(places, nvml.GpuInstancePlacement{Start: start, Size: p.PlacementSize.Value})
		}
		m.says("nvmlDeviceGetGpuInstancePossiblePlacements_v2", places)(m.dev.GetGpuInstancePossiblePlacements(&info))
		m.says("nvmlDeviceGetGpuInstanceRemainingCapacity", p.Instances.Value)(m.dev.GetGpuInstanceRemainingCapacity(&info))
		for _, place := range places {
			gi, ret := m.dev.CreateGpuInstanceWithPlacement(&info, &place)
			m.says("nvmlDeviceCreateGpuInstanceWithPlacement", nvml.SUCCESS)(ret)
			told("created")
			is, ret := gi.GetInfo()
			m.says("nvmlGpuInstanceGetInfo", nvml.SUCCESS)(ret)
			assert.Equal(m, place, is.Placement)
			assert.Equal(m, p.ID, is.ProfileId)
			found, ret := m.dev.GetGpuInstanceById(int(is.Id))
			m.says("nvmlDeviceGetGpuInstanceById", nvml.SUCCESS)(ret)
			assert.Equal(m, gi, found)
			m.says("nvmlDeviceGetGpuInstances", []nvml.GpuInstance{gi})(m.dev.GetGpuInstances(&info))
			_, ret = m.dev.CreateGpuInstanceWithPlacement(&info, &place)
			assert.Equal(m, nvml.ERROR_INSUFFICIENT_RESOURCES, ret)
			m.cut(gi, p, is.Id, told)
			m.says("nvmlGpuInstanceDestroy", nvml.SUCCESS)(gi.Destroy())
			told("destroyed")
			assert.Equal(m, nvml.ERROR_INVALID_ARGUMENT, gi.Destroy())
		}
		wrong := nvml.GpuInstancePlacement{Start: 7, Size: 1}
		_, ret := m.dev.CreateGpuInstanceWithPlacement(&info, &wrong)
		assert.Equal(m, nvml.ERROR_INVALID_ARGUMENT, ret)

		// as many as fit where the driver puts them
		var made []nvml.GpuInstance
		for {
			gi, ret := m.dev.CreateGpuInstance(&info)
			if ret != nvml.SUCCESS {
				assert.Equal(m, nvml.ERROR_INSUFFICIENT_RESOURCES, ret)
				break
			}
			made = append(made, gi)
			m.says("nvmlDeviceCreateGpuInstance", nvml.SUCCESS)(ret)
		}
		assert.Len(m, made, int(p.Instances.Value), p.Name)
		for _, gi := range made {
			assert.Equal(m, nvml.SUCCESS, gi.Destroy())
		}
	}
	assert.Equal(m, empty, m.looks())
	require.Equal(m, nvml.SUCCESS, events.Free())
	_, ret = m.dev.SetMigMode(nvml.DEVICE_MIG_DISABLE)
	require.Equal(m, nvml.SUCCESS, ret)
	assert.Equal(m, before, m.looks())
}

// cut cuts a GPU instance in every way.
func (m *migLife) cut(gi nvml.GpuInstance, p *profiles.GPUInstanceProfile, id uint32, told func(string)) {
	supported := m.d.GPM.Supported.Or(slices.Contains([]string{"hopper", "blackwell"}, m.d.Architecture.Value))
	m.sampled(when(supported, nvml.SUCCESS), profiles.Opt[uint32]{},
		func(s nvml.GpmSample) nvml.Return { return m.dev.GpmMigSampleGet(int(id), s) }, "nvmlGpmMigSampleGet")
	ways := 0
	for kind := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		way, ret := gi.GetComputeInstanceProfileInfo(kind, 0)
		if ret != nvml.SUCCESS {
			assert.Equal(m, nvml.ERROR_NOT_SUPPORTED, ret)
			continue
		}
		ways++
		m.says("nvmlGpuInstanceGetComputeInstanceProfileInfo", nvml.SUCCESS)(ret)
		v, ret := gi.GetComputeInstanceProfileInfoV(kind, 0).V2()
		m.says("nvmlGpuInstanceGetComputeInstanceProfileInfoV", nvml.SUCCESS)(ret)
		assert.Equal(m, way.MultiprocessorCount, v.MultiprocessorCount)
		m.says("nvmlGpuInstanceGetComputeInstanceRemainingCapacity", way.InstanceCount)(gi.GetComputeInstanceRemainingCapacity(&way))
		places, ret := gi.GetComputeInstancePossiblePlacements(&way)
		m.says("nvmlGpuInstanceGetComputeInstancePossiblePlacements", nvml.SUCCESS)(ret)
		assert.Len(m, places, int(way.InstanceCount))

		ci, ret := gi.CreateComputeInstance(&way)
		m.says("nvmlGpuInstanceCreateComputeInstance", nvml.SUCCESS)(ret)
		told("compute instance")
		is, ret := ci.GetInfo()
		m.says("nvmlComputeInstanceGetInfo_v2", nvml.SUCCESS)(ret)
		assert.Equal(m, way.Id, is.ProfileId)
		assert.Equal(m, places[0], is.Placement)
		m.says("nvmlGpuInstanceGetComputeInstances", []nvml.ComputeInstance{ci})(gi.GetComputeInstances(&way))
		m.says("nvmlGpuInstanceGetComputeInstanceById", ci)(gi.GetComputeInstanceById(0))
		assert.Equal(m, nvml.ERROR_IN_USE, gi.Destroy(), "with a compute instance in it")
		m.device(p, way, id)
		m.says("nvmlComputeInstanceDestroy", nvml.SUCCESS)(ci.Destroy())
		told("no compute instance")
		assert.Equal(m, nvml.ERROR_INVALID_ARGUMENT, ci.Destroy())

		var made []nvml.ComputeInstance
		for i := len(places) - 1; i >= 0; i-- {
			ci, ret := gi.CreateComputeInstanceWithPlacement(&way, &places[i])
			m.says("nvmlGpuInstanceCreateComputeInstanceWithPlacement", nvml.SUCCESS)(ret)
			made = append(made, ci)
			told("compute instance at a place")
		}
		_, ret = gi.CreateComputeInstance(&way)
		assert.Equal(m, nvml.ERROR_INSUFFICIENT_RESOURCES, ret)
		for _, ci := range made {
			assert.Equal(m, nvml.SUCCESS, ci.Destroy())
			told("compute instance at a place is gone")
		}
	}
	assert.Positive(m, ways)
}

// device checks the only MIG device of the GPU, by its GPU instance's profile, its compute instance's, and the number.
func (m *migLife) device(p *profiles.GPUInstanceProfile, way nvml.ComputeInstanceProfileInfo, id uint32) {
	mig, ret := m.dev.GetMigDeviceHandleByIndex(0)
	m.says("nvmlDeviceGetMigDeviceHandleByIndex", nvml.SUCCESS)(ret)
	m.says("nvmlDeviceIsMigDeviceHandle", true)(mig.IsMigDeviceHandle())
	m.says("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", m.dev)(mig.GetDeviceHandleFromMigDeviceHandle())
	m.says("nvmlDeviceGetGpuInstanceId", id)(mig.GetGpuInstanceId())
	m.says("nvmlDeviceGetComputeInstanceId", 0)(mig.GetComputeInstanceId())
	m.says("nvmlDeviceGetIndex", 0)(mig.GetIndex())
	name := p.Name
	if way.SliceCount < p.Slices.Value {
		name = fmt.Sprintf("%dc.%s", way.SliceCount, p.Name)
	}
	m.says("nvmlDeviceGetName", m.d.Name.Value+" MIG "+name)(mig.GetName())
	uuid, ret := mig.GetUUID()
	m.says("nvmlDeviceGetUUID", nvml.SUCCESS)(ret)
	assert.Regexp(m, `^MIG-[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, uuid)
	old := fmt.Sprintf("MIG-%s/%d/0", m.d.UUID, id)
	for _, form := range []string{uuid, strings.ToUpper(uuid), old} {
		m.says("nvmlDeviceGetHandleByUUID", mig)(m.lib.DeviceGetHandleByUUID(form))
	}
	for _, form := range []string{old + "1", "MIG-" + string(m.d.UUID), uuid[:len(uuid)-1]} {
		m.says("nvmlDeviceGetHandleByUUID", nvml.ERROR_NOT_FOUND)(m.lib.DeviceGetHandleByUUID(form))
	}
	m.says("nvmlDeviceGetAttributes_v2", nvml.DeviceAttributes{
		MultiprocessorCount: way.MultiprocessorCount, SharedCopyEngineCount: p.CopyEngines.Value, SharedDecoderCount: p.Decoders.Value,
		SharedEncoderCount: p.Encoders.Value, SharedJpegCount: p.JPEGs.Value, SharedOfaCount: p.OFAs.Value,
		GpuInstanceSliceCount: p.Slices.Value, ComputeInstanceSliceCount: way.SliceCount, MemorySizeMB: p.MemoryMiB.Value,
	})(mig.GetAttributes())

	// its own memory and processes, and those of the whole GPU
	var processes, others []nvml.ProcessInfo
	used, all := p.UsedBytes.Value, p.UsedBytes.Value+m.d.Memory.UsedBytes.Value
	for _, r := range m.d.Processes {
		info := nvml.ProcessInfo{Pid: r.PID, UsedGpuMemory: usedMemory(&r), GpuInstanceId: ^uint32(0), ComputeInstanceId: ^uint32(0)}
		all += info.UsedGpuMemory
		if in, ok := r.GPUInstanceID.Get(); ok {
			info.GpuInstanceId, info.ComputeInstanceId = in, r.ComputeInstanceID.Value
			if in == id {
				used += info.UsedGpuMemory
				processes = append(processes, info)
			}
		}
		others = append(others, info)
	}
	total := p.MemoryMiB.Value << 20
	m.says("nvmlDeviceGetMemoryInfo_v2", nvml.Memory_v2{
		Version: nvml.STRUCT_VERSION(nvml.Memory_v2{}, 2), Total: total, Used: used, Free: total - used,
	})(mig.GetMemoryInfo_v2())
	whole, ret := m.dev.GetMemoryInfo_v2()
	assert.Equal(m, nvml.SUCCESS, ret)
	assert.Equal(m, all, whole.Used)
	m.says("nvmlDeviceGetComputeRunningProcesses_v3", processes)(mig.GetComputeRunningProcesses())
	m.says("nvmlDeviceGetComputeRunningProcesses_v3", others)(m.dev.GetComputeRunningProcesses())
	bar1, ret := mig.GetBAR1MemoryInfo()
	if !m.d.BAR1Memory.TotalBytes.Valid {
		assert.Equal(m, nvml.ERROR_NOT_SUPPORTED, ret)
	} else {
		assert.Equal(m, nvml.SUCCESS, ret)
		assert.Equal(m, m.bar1(p), bar1.Bar1Total>>20, p.Name)
	}

	// what it does not tell, and what the whole GPU does not tell in MIG mode
	onChip := errorsOf(m.d, nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)[nvml.MEMORY_LOCATION_SRAM]
	m.says("nvmlDeviceGetMemoryErrorCounter", when(onChip.Valid, 0))(
		mig.GetMemoryErrorCounter(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC, nvml.MEMORY_LOCATION_SRAM))
	m.says("nvmlDeviceGetMemoryErrorCounter", nil)(
		mig.GetMemoryErrorCounter(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC, nvml.MEMORY_LOCATION_SRAM))
	for _, dev := range []nvml.Device{mig, m.dev} {
		m.says("nvmlDeviceGetUtilizationRates", nil)(dev.GetUtilizationRates())
		_, _, ret := dev.GetEncoderUtilization()
		assert.Equal(m, nvml.ERROR_NOT_SUPPORTED, ret)
		_, _, ret = dev.GetDecoderUtilization()
		assert.Equal(m, nvml.ERROR_NOT_SUPPORTED, ret)
		m.says("nvmlDeviceGetProcessUtilization", nil)(dev.GetProcessUtilization(0))
		m.says("nvmlDeviceGetNvLinkState", nil)(dev.GetNvLinkState(0))
		_, _, _, _, ret = dev.GetRemappedRows()
		assert.Equal(m, nvml.ERROR_NOT_SUPPORTED, ret)
	}
	m.says("nvmlDeviceGetAccountingMode", when(m.d.Accounting.Mode.Valid, 0))(m.dev.GetAccountingMode())
	assert.Equal(m, nvml.ERROR_NOT_SUPPORTED, m.dev.SetAccountingMode(nvml.FEATURE_ENABLED))
	_, _, ret = mig.GetMigMode()
	assert.Equal(m, nvml.ERROR_INVALID_ARGUMENT, ret)
	assert.Equal(m, nvml.ERROR_INVALID_ARGUMENT, mig.SetPersistenceMode(nvml.FEATURE_ENABLED))
	_, ret = mig.GetNumGpuCores()
	assert.Equal(m, nvml.ERROR_NOT_SUPPORTED, ret)
}

// seenBAR1 are the MiB of BAR1 that MIG devices of real boards were seen to have. Those of H200 are of driver 590, which maps the
// frame buffer in the GPU's BAR1.
var seenBAR1 = map[string]uint64{
	"a30 1g.6gb": 8191, "a30 2g.12gb": 16383, "a100-sxm4-40gb 1g.5gb": 8191, "a100-sxm4-40gb 3g.20gb": 32767,
	"a100-sxm4-80gb 1g.20gb": 32767, "a100-sxm4-80gb 2g.20gb": 32767, "a100-sxm4-80gb 3g.40gb": 65535, "h100-pcie 1g.10gb": 16383,
	"h100-nvl 1g.12gb": 16383, "h100-nvl 1g.24gb": 32767, "h100-nvl 3g.47gb": 65535,
	"h200 1g.18gb": 14809, "h200 2g.35gb": 29618, "h200 3g.71gb": 59237,
}

// bar1 is the size in MiB of the BAR1 of a MIG device: as it was seen, or else the part of its memory slices less 1 MiB.
func (m *migLife) bar1(p *profiles.GPUInstanceProfile) uint64 {
	if seen, ok := seenBAR1[m.board.Name+" "+p.Name]; ok {
		return seen
	}
	slots := uint32(0)
	for _, row := range m.board.MIG.GPUInstanceProfiles {
		slots = max(slots, row.PlacementStarts[len(row.PlacementStarts)-1]+row.PlacementSize.Value)
	}
	part := func(bytes uint64) uint64 { return bytes * uint64(p.PlacementSize.Value) / uint64(slots) >> 20 }
	if branch(m.T, m.board) >= 590 {
		mapped := m.d.Memory.TotalBytes.Value - m.d.Memory.ReservedBytes.Value
		return part(m.d.BAR1Memory.TotalBytes.Value - (mapped+1<<19)>>20<<20 - 512<<20)
	}
	return part(m.d.BAR1Memory.TotalBytes.Value) - 1
}

// byName checks the functions that go-nvml does not call.
func (m *migLife) byName(c *caller) {
	require.Equal(m, nvml.SUCCESS, c.call("nvmlInit_v2"))
	gpu, ret := get[uint64](c, "nvmlDeviceGetHandleByIndex_v2", 0)
	require.Equal(m, nvml.SUCCESS, ret)
	var activation nvml.Return
	require.Equal(m, nvml.SUCCESS, c.call("nvmlDeviceSetMigMode", gpu, nvml.DEVICE_MIG_ENABLE, &activation))
	p := &m.board.MIG.GPUInstanceProfiles[0]
	places, n := make([]nvml.GpuInstancePlacement, len(p.PlacementStarts)), uint32(len(p.PlacementStarts))
	m.says("nvmlDeviceGetGpuInstancePossiblePlacements", nvml.SUCCESS)(
		c.call("nvmlDeviceGetGpuInstancePossiblePlacements", gpu, p.ID, places, &n))
	require.Len(m, places, int(n))
	for i, start := range p.PlacementStarts {
		assert.Equal(m, nvml.GpuInstancePlacement{Start: start, Size: p.PlacementSize.Value}, places[i])
	}
	info := versioned(2, nvml.GpuInstanceProfileInfo_v2{})
	m.says("nvmlDeviceGetGpuInstanceProfileInfoByIdV", nvml.SUCCESS)(c.call("nvmlDeviceGetGpuInstanceProfileInfoByIdV", gpu, p.ID, &info))
	if m.known["nvmlDeviceGetGpuInstanceProfileInfoByIdV"] {
		assert.Equal(m, p.MemoryMiB.Value, info.MemorySizeMB)
	}

	gi, ret := get[uint64](c, "nvmlDeviceCreateGpuInstance", gpu, p.ID)
	require.Equal(m, nvml.SUCCESS, ret)
	ci, ret := get[uint64](c, "nvmlGpuInstanceCreateComputeInstance", gi, 0)
	require.Equal(m, nvml.SUCCESS, ret)
	mig, ret := get[uint64](c, "nvmlDeviceGetMigDeviceHandleByIndex", gpu, 0)
	require.Equal(m, nvml.SUCCESS, ret)
	short, ret := get[[6]uint32](c, "nvmlDeviceGetAttributes", mig) // the struct of driver 450
	m.says("nvmlDeviceGetAttributes", p.Multiprocessors.Value)(short[0], ret)
	made, ret := get[[4]uint64](c, "nvmlComputeInstanceGetInfo", ci) // device, GPU instance, id, profile
	m.says("nvmlComputeInstanceGetInfo", gpu, gi)(made[0], made[1], ret)
}
