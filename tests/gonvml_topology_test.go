package tests

import (
	"bytes"
	"encoding/binary"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// These functions tell how the GPUs are connected: to CPUs, to each other and to other machines.

// bridge is the host bridge of a device; absent if the profile does not tell.
func (c *checker) bridge(d *profiles.Device) profiles.RootComplex {
	for _, r := range c.board.Topology.RootComplexes {
		if slices.Contains(r.Devices, d.PCI.BusID.Value) {
			return r
		}
	}
	return profiles.RootComplex{}
}

// level is the topology level between two devices.
func (c *checker) level(a, b *profiles.Device) nvml.GpuTopologyLevel {
	bridgeA, bridgeB := c.bridge(a), c.bridge(b)
	switch {
	case a.Index == b.Index:
		return nvml.TOPOLOGY_INTERNAL
	case slices.Contains(bridgeA.Devices, b.PCI.BusID.Value):
		return nvml.TOPOLOGY_HOSTBRIDGE
	case bridgeA.NUMANode.Valid && bridgeA.NUMANode == bridgeB.NUMANode:
		return nvml.TOPOLOGY_NODE
	}
	return nvml.TOPOLOGY_SYSTEM
}

// mask is a bitmask with a number of words.
func mask[T ~uint32](words int, bits ...T) []uint {
	m := make([]uint, words)
	for _, b := range bits {
		m[b/64] |= 1 << (b % 64)
	}
	return m
}

// near are the CPUs near a GPU: those that the profile gives, or else all of this machine.
func (c *checker) near(d *profiles.Device) []uint32 {
	if own := c.bridge(d).CPUAffinity; own != nil {
		return own
	}
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	require.NoError(c, err)
	var set profiles.CPUSet
	require.NoError(c, set.UnmarshalText(bytes.TrimSpace(text)))
	return set
}

// bound are the CPUs that the calling thread may run on.
func bound(t *testing.T) []uint32 {
	var set unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &set))
	var list []uint32
	for cpu := range 1024 {
		if set.IsSet(cpu) {
			list = append(list, uint32(cpu))
		}
	}
	return list
}

// binds checks that the calling thread is bound to a GPU's CPUs as far as this machine has them, and then to all again.
func (c *checker) binds(dev nvml.Device, d *profiles.Device) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all := bound(c.T)
	var set unix.CPUSet
	require.NoError(c, unix.SchedGetaffinity(0, &set))
	defer func() { assert.NoError(c, unix.SchedSetaffinity(0, &set)) }()
	c.says("nvmlDeviceSetCpuAffinity", nvml.SUCCESS)(dev.SetCpuAffinity())
	for _, cpu := range bound(c.T) {
		assert.True(c, slices.Contains(c.near(d), cpu) || slices.Equal(bound(c.T), all), cpu)
	}
	c.says("nvmlDeviceClearCpuAffinity", nvml.SUCCESS)(dev.ClearCpuAffinity())
	assert.Subset(c, bound(c.T), all)
}

func (c *checker) topology(dev nvml.Device, d *profiles.Device) {
	bridge := c.bridge(d)
	const cpus, words = 144, 18 // go-nvml takes a word for the bits of a byte
	affinity := mask(words, c.near(d)...)
	c.says("nvmlDeviceGetCpuAffinity", affinity)(dev.GetCpuAffinity(cpus))
	node := mask(1, uint32(bridge.NUMANode.Value)) // the first, if the profile does not tell
	for _, scope := range []nvml.AffinityScope{nvml.AFFINITY_SCOPE_NODE, nvml.AFFINITY_SCOPE_SOCKET} {
		c.says("nvmlDeviceGetCpuAffinityWithinScope", affinity)(dev.GetCpuAffinityWithinScope(cpus, scope))
		c.says("nvmlDeviceGetMemoryAffinity", node)(dev.GetMemoryAffinity(8, scope))
	}
	c.says("nvmlDeviceGetCpuAffinityWithinScope", nvml.ERROR_INVALID_ARGUMENT)(dev.GetCpuAffinityWithinScope(cpus, 2))
	c.says("nvmlDeviceGetMemoryAffinity", nvml.ERROR_INVALID_ARGUMENT)(dev.GetMemoryAffinity(8, 2))
	for _, cpu := range append(slices.Clone(c.near(d)), 200) {
		near := []nvml.Device{}
		for i, other := range c.board.Devices {
			if slices.Contains(c.near(&other), cpu) {
				near = append(near, c.handles[i])
			}
		}
		c.says("nvmlSystemGetTopologyGpuSet", near)(c.lib.SystemGetTopologyGpuSet(int(cpu)))
	}

	at := map[nvml.GpuTopologyLevel][]nvml.Device{}
	links := c.linksOf(d)
	for i, other := range c.handles {
		level := c.level(d, &c.board.Devices[i])
		c.says("nvmlDeviceGetTopologyCommonAncestor", level)(dev.GetTopologyCommonAncestor(other))
		c.says("nvmlDeviceOnSameBoard", number(uint32(i) == d.Index))(dev.OnSameBoard(other))
		if uint32(i) == d.Index {
			continue
		}
		at[level] = append(at[level], other)
		linked := nvml.P2P_STATUS_NOT_SUPPORTED
		for _, l := range links {
			if l.active && (l.remote == nvml.NVLINK_DEVICE_TYPE_SWITCH || l.bus == c.board.Devices[i].PCI.BusID.Value) {
				linked = nvml.P2P_STATUS_OK
			}
		}
		for capability, status := range map[nvml.GpuP2PCapsIndex]nvml.GpuP2PStatus{
			nvml.P2P_CAPS_INDEX_READ: nvml.P2P_STATUS_OK, nvml.P2P_CAPS_INDEX_WRITE: nvml.P2P_STATUS_OK,
			nvml.P2P_CAPS_INDEX_NVLINK: linked,
		} {
			c.says("nvmlDeviceGetP2PStatus", status)(dev.GetP2PStatus(other, capability))
		}
	}
	c.says("nvmlDeviceGetP2PStatus", nvml.ERROR_INVALID_ARGUMENT)(dev.GetP2PStatus(dev, nvml.P2P_CAPS_INDEX_UNKNOWN))
	for level := nvml.TOPOLOGY_INTERNAL; level <= nvml.TOPOLOGY_SYSTEM; level += 10 {
		c.says("nvmlDeviceGetTopologyNearestGpus", at[level])(dev.GetTopologyNearestGpus(level))
	}
	c.says("nvmlDeviceGetTopologyNearestGpus", nvml.ERROR_INVALID_ARGUMENT)(dev.GetTopologyNearestGpus(60))
}

// A link is one NVLink of a device: as the profile lists it, or else to the switches in turn, or to the other GPUs in turn if there
// are no switches.
type link struct {
	active bool
	remote nvml.IntNvLinkDeviceType
	bus    profiles.BusID
	device uint32
}

func (c *checker) linksOf(d *profiles.Device) []link {
	nv := &c.board.NVLink
	all := make([]link, nv.LinksPerGPU.Value)
	for i := range all {
		active, n := nv.Defaults.State.Value == "active", len(c.board.Devices)
		if len(nv.Switches) > 0 {
			all[i] = link{active, nvml.NVLINK_DEVICE_TYPE_SWITCH, nv.Switches[i%len(nv.Switches)].BDF.Value, 0}
			continue
		}
		require.Greater(c, n, 1, "links of a GPU alone have no check here")
		far := &c.board.Devices[(int(d.Index)+1+i%(n-1))%n].PCI
		all[i] = link{active, nvml.NVLINK_DEVICE_TYPE_GPU, far.BusID.Value, far.DeviceID.Value}
	}
	for _, listed := range c.board.ListedLinks(d.Index) {
		l := &all[listed.Link]
		l.active = listed.State.Or("active") == "active"
		if far, ok := listed.RemoteIndex.Get(); ok {
			gpu := &c.board.Devices[far].PCI
			l.remote, l.bus, l.device = nvml.NVLINK_DEVICE_TYPE_GPU, gpu.BusID.Value, gpu.DeviceID.Value
		}
		if !l.active {
			l.remote = nvml.NVLINK_DEVICE_TYPE_UNKNOWN
		}
	}
	return all
}

// farLink is the number that a link to another GPU has there: the first link between two GPUs is the first of both, and so on.
func (c *checker) farLink(d *profiles.Device, number int) any {
	between := func(from, to profiles.BusID, index uint32) (numbers []int) {
		for i, l := range c.linksOf(&c.board.Devices[index]) {
			if l.active && l.bus == to {
				numbers = append(numbers, i)
			}
		}
		return numbers
	}
	l := c.linksOf(d)[number]
	for _, other := range c.board.Devices {
		if there, here := other.PCI.BusID.Value, d.PCI.BusID.Value; l.active && l.bus == there {
			back := between(there, here, other.Index)
			if at := slices.Index(between(here, there, d.Index), number); at < len(back) {
				return back[at]
			}
		}
	}
	return nil
}

// linkVersions are the version numbers of the generations; generation 3 is version 3.1 on A100.
var linkVersions = []nvml.NvlinkVersion{nvml.NVLINK_VERSION_INVALID, nvml.NVLINK_VERSION_1_0, nvml.NVLINK_VERSION_2_0,
	nvml.NVLINK_VERSION_3_1, nvml.NVLINK_VERSION_4_0, nvml.NVLINK_VERSION_5_0}

func (c *checker) links(dev nvml.Device, d *profiles.Device) {
	all := c.linksOf(d)
	for i, l := range all {
		c := c.of("link ", i)
		c.says("nvmlDeviceGetNvLinkState", number(l.active))(dev.GetNvLinkState(i))
		c.says("nvmlDeviceGetNvLinkVersion", linkVersions[c.board.NVLink.Version.Value])(dev.GetNvLinkVersion(i))
		c.says("nvmlDeviceGetNvLinkRemoteDeviceType", l.remote)(dev.GetNvLinkRemoteDeviceType(i))
		c.says("nvmlDeviceGetNvLinkRemotePciInfo_v2", when(l.active, pciInfo(l.bus, l.device, 0)))(dev.GetNvLinkRemotePciInfo(i))
		for capability := nvml.NVLINK_CAP_P2P_SUPPORTED; capability < nvml.NVLINK_CAP_COUNT; capability++ {
			can := number(l.active && capability != nvml.NVLINK_CAP_SLI_BRIDGE)
			c.says("nvmlDeviceGetNvLinkCapability", can)(dev.GetNvLinkCapability(i, capability))
		}
		for counter := nvml.NVLINK_ERROR_DL_REPLAY; counter < nvml.NVLINK_ERROR_COUNT; counter++ {
			c.says("nvmlDeviceGetNvLinkErrorCounter", 0)(dev.GetNvLinkErrorCounter(i, counter))
		}
	}

	beyond := any(nvml.ERROR_INVALID_ARGUMENT)
	if len(all) == 0 {
		beyond = nil
	}
	c.says("nvmlDeviceGetNvLinkState", beyond)(dev.GetNvLinkState(len(all)))
	c.says("nvmlDeviceGetNvLinkVersion", beyond)(dev.GetNvLinkVersion(len(all)))
	c.says("nvmlDeviceGetNvLinkRemoteDeviceType", beyond)(dev.GetNvLinkRemoteDeviceType(len(all)))
	c.says("nvmlDeviceGetNvLinkRemotePciInfo_v2", any(nil))(dev.GetNvLinkRemotePciInfo(len(all))) // for nvidia-smi topo -m
	c.says("nvmlDeviceGetNvLinkCapability", beyond)(dev.GetNvLinkCapability(len(all), nvml.NVLINK_CAP_VALID))
	c.says("nvmlDeviceGetNvLinkErrorCounter", beyond)(dev.GetNvLinkErrorCounter(len(all), nvml.NVLINK_ERROR_DL_REPLAY))
	c.says("nvmlDeviceGetNvLinkCapability", nvml.ERROR_INVALID_ARGUMENT)(dev.GetNvLinkCapability(0, nvml.NVLINK_CAP_COUNT))
	c.says("nvmlDeviceGetNvLinkErrorCounter", nvml.ERROR_INVALID_ARGUMENT)(
		dev.GetNvLinkErrorCounter(0, nvml.NVLINK_ERROR_COUNT))
}

// healthMask is the mask of a fabric's conditions: two bits each, 1 for true, 2 for false and 0 for unknown.
func healthMask(f *profiles.Fabric) uint32 {
	mask := map[string]uint32{
		"none":         nvml.GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NONE,
		"no_partition": nvml.GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NO_PARTITION,
	}[f.Health.IncorrectConfiguration.Value] << nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION
	for shift, condition := range map[int]profiles.Opt[bool]{
		nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_DEGRADED_BW:             f.Health.DegradedBandwidth,
		nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_RECOVERY:          f.Health.RouteRecovery,
		nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY:         f.Health.RouteUnhealthy,
		nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ACCESS_TIMEOUT_RECOVERY: f.Health.AccessTimeoutRecovery,
	} {
		switch {
		case condition.Value:
			mask |= nvml.GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_TRUE << shift
		case condition.Valid:
			mask |= nvml.GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_FALSE << shift
		}
	}
	return f.HealthMask.Or(mask)
}

func (c *checker) fabric(dev nvml.Device, d *profiles.Device) {
	f := &d.Fabric
	state := map[string]uint8{
		"completed": nvml.GPU_FABRIC_STATE_COMPLETED, "in_progress": nvml.GPU_FABRIC_STATE_IN_PROGRESS,
	}[f.State.Value]
	summary := map[string]uint8{
		"not_supported": nvml.GPU_FABRIC_HEALTH_SUMMARY_NOT_SUPPORTED, "healthy": nvml.GPU_FABRIC_HEALTH_SUMMARY_HEALTHY,
		"limited_capacity": nvml.GPU_FABRIC_HEALTH_SUMMARY_LIMITED_CAPACITY,
	}[f.HealthSummary.Value]
	uuid, clique := f.ClusterUUID.Value, f.CliqueID.Value
	c.says("nvmlDeviceGetGpuFabricInfo", when(f.State.Valid, nvml.GpuFabricInfo{
		ClusterUuid: uuid, CliqueId: clique, State: state,
	}))(dev.GetGpuFabricInfo())
	c.says("nvmlDeviceGetGpuFabricInfoV", when(f.State.Valid, versioned(2, nvml.GpuFabricInfo_v2{
		ClusterUuid: uuid, CliqueId: clique, State: state, HealthMask: healthMask(f),
	})))(dev.GetGpuFabricInfoV().V2())
	c.says("nvmlDeviceGetGpuFabricInfoV", when(f.State.Valid, versioned(3, nvml.GpuFabricInfo_v3{
		ClusterUuid: uuid, CliqueId: clique, State: state, HealthMask: healthMask(f), HealthSummary: summary,
	})))(dev.GetGpuFabricInfoV().V3())
	v4 := nvml.GpuFabricInfo_v4{
		ClusterUuid: uuid, NumCliques: 4, State: state, HealthMask: healthMask(f), HealthSummary: summary,
	}
	for i := range v4.NumCliques { // Blackwell has four types; earlier GPUs have no driver with this function
		v4.Cliques[i] = nvml.GpuFabricClique_v1{Type: uint8(i), Id: clique}
	}
	c.says("nvmlDeviceGetGpuFabricInfo_v4", when(f.State.Valid, v4))(dev.GetGpuFabricInfo_v4())

	p := &d.Platform
	platform := versioned(1, nvml.PlatformInfo{
		SlotNumber: p.SlotNumber.Or(0xff), TrayIndex: p.TrayIndex.Or(0xff), HostId: p.HostID.Or(0xff), ModuleId: p.ModuleID.Or(0xff),
		PeerType: uint8(number(p.PeerType.Value == "switch_connected")),
	})
	binary.BigEndian.PutUint64(platform.IbGuid[:], p.GPUFabricGUID.Value)
	chars(platform.ChassisSerialNumber[:], p.ChassisSerialNumber.Value)
	c.says("nvmlDeviceGetPlatformInfo", when(p.HostID.Valid || p.PeerType.Valid, platform))(dev.GetPlatformInfo())
}
