package capture

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles/capture/calls"
	"github.com/nvmlfab/nvmlfab/profiles/draft"
)

var schedulerPolicies = map[uint64]string{
	abi.VGPU_SCHEDULER_POLICY_BEST_EFFORT: "best_effort", abi.VGPU_SCHEDULER_POLICY_EQUAL_SHARE: "equal_share",
	abi.VGPU_SCHEDULER_POLICY_FIXED_SHARE: "fixed_share",
}

var licensedFeatures = map[uint64]string{
	uint64(abi.GRID_LICENSE_FEATURE_CODE_UNKNOWN): "unknown", uint64(abi.GRID_LICENSE_FEATURE_CODE_VGPU): "vgpu",
	uint64(abi.GRID_LICENSE_FEATURE_CODE_NVIDIA_RTX): "nvidia_rtx", uint64(abi.GRID_LICENSE_FEATURE_CODE_GAMING): "gaming",
	uint64(abi.GRID_LICENSE_FEATURE_CODE_COMPUTE): "compute",
}

var licenseStates = map[uint64]string{
	abi.GRID_LICENSE_STATE_UNKNOWN: "unknown", abi.GRID_LICENSE_STATE_UNINITIALIZED: "uninitialized",
	abi.GRID_LICENSE_STATE_UNLICENSED_UNRESTRICTED: "unlicensed_unrestricted",
	abi.GRID_LICENSE_STATE_UNLICENSED_RESTRICTED:   "unlicensed_restricted", abi.GRID_LICENSE_STATE_UNLICENSED: "unlicensed",
	abi.GRID_LICENSE_STATE_LICENSED: "licensed",
}

// vgpuVersions makes the versions of vGPU that the machine supports.
func (m *maker) vgpuVersions(root *yaml.Node) {
	a := m.walk.find("nvmlGetVgpuVersion", "", "")
	for _, v := range []struct{ key, path, other string }{
		{"min_version", "supported.minVersion", ""}, {"max_version", "supported.maxVersion", ""},
		{"set_min_version", "current.minVersion", "supported.minVersion"}, {"set_max_version", "current.maxVersion", "supported.maxVersion"},
	} {
		n, ok := a.number(v.path)
		other, _ := a.number(v.other)
		if ok && (v.other == "" || n != other) {
			m.put(root, "system.vgpu."+v.key, a.Function, draft.Num(fmt.Sprintf("0x%x", n)))
		}
	}
}

// vgpu makes how the GPU is shared with virtual machines, and what it says about licences in one of them.
func (g *gpu) vgpu() {
	supported := g.find("nvmlDeviceGetSupportedVgpus", "")
	names := map[uint64]string{}
	var types, instances []*yaml.Node
	for i := range supported.length("vgpuTypeIds") {
		id, _ := supported.number(fmt.Sprintf("vgpuTypeIds[%d]", i))
		entry, name := g.vgpuType(id)
		names[id], types = name, append(types, entry)
	}
	if types != nil {
		g.set("vgpu.types", "nvmlDeviceGetSupportedVgpus, nvmlVgpuTypeGet…", draft.Lines(types...))
	}
	active := g.find("nvmlDeviceGetActiveVgpus", "")
	for i := range active.length("vgpuInstances") {
		id, _ := active.number(fmt.Sprintf("vgpuInstances[%d]", i))
		instances = append(instances, g.vgpuInstance(id, i, names))
	}
	if instances != nil {
		g.set("vgpu.instances", "nvmlDeviceGetActiveVgpus, nvmlVgpuInstanceGet…", draft.Lines(instances...))
	}
	for _, c := range []struct {
		number abi.DeviceVgpuCapability_t
		key    string
		as     form
	}{
		{abi.DEVICE_VGPU_CAP_FRACTIONAL_MULTI_VGPU, "fractional_multi_vgpu", yes},
		{abi.DEVICE_VGPU_CAP_HETEROGENEOUS_TIMESLICE_PROFILES, "heterogeneous_timeslice_profiles", yes},
		{abi.DEVICE_VGPU_CAP_HETEROGENEOUS_TIMESLICE_SIZES, "heterogeneous_timeslice_sizes", yes},
		{abi.DEVICE_VGPU_CAP_READ_DEVICE_BUFFER_BW, "read_device_buffer_bandwidth", plain},
		{abi.DEVICE_VGPU_CAP_WRITE_DEVICE_BUFFER_BW, "write_device_buffer_bandwidth", plain},
		{abi.DEVICE_VGPU_CAP_DEVICE_STREAMING, "device_streaming", yes},
	} {
		a := g.find("nvmlDeviceGetVgpuCapabilities", fmt.Sprintf("capability %d", c.number))
		if n := c.as.node(a.value("capResult"), "", g.options); n != nil {
			g.set("vgpu.capabilities."+c.key, a.Function, n)
		}
	}
	if a := g.find("nvmlDeviceGetVgpuSchedulerCapabilities", ""); a.OK() {
		var list []*yaml.Node
		for i := range abi.SUPPORTED_VGPU_SCHEDULER_POLICY_COUNT {
			n, ok := a.number(fmt.Sprintf("pCapabilities.supportedSchedulers[%d]", i))
			if name := schedulerPolicies[n]; ok && name != "" {
				list = append(list, draft.Text(name))
			}
		}
		if list != nil {
			g.set("vgpu.scheduler.supported", a.Function, draft.List(list...))
		}
		for _, slice := range []struct{ key, path string }{{"min_timeslice_ns", "minTimeslice"}, {"max_timeslice_ns", "maxTimeslice"}} {
			if n, ok := a.number("pCapabilities." + slice.path); ok && n > 0 {
				g.set("vgpu.scheduler."+slice.key, a.Function, uintNode(n))
			}
		}
	}
	if a := g.find("nvmlDeviceGetVgpuSchedulerState", ""); a.OK() {
		n, _ := a.number("pSchedulerState.schedulerPolicy")
		if name := schedulerPolicies[n]; name != "" {
			g.set("vgpu.scheduler.policy", a.Function, draft.Text(name))
		}
	}
	if caps, ok := inside(g.find("nvmlDeviceGetVgpuMetadata", ""), "pgpuMetadata", "nvmlVgpuPgpuMetadata_t", "pgpuVirtualizationCaps"); ok {
		g.set("vgpu.migration_supported", "nvmlDeviceGetVgpuMetadata", draft.Num(strconv.FormatBool(caps&1 != 0)))
	}
	g.licenses()
}

func (g *gpu) vgpuType(id uint64) (entry *yaml.Node, name string) {
	object := fmt.Sprintf("vGPU type %d", id)
	ask := func(function, args, path string) (uint64, bool) {
		return g.walk.find(function, object, args).number(path)
	}
	name, _ = g.walk.find("nvmlVgpuTypeGetName", object, "").text("vgpuTypeName")
	class, _ := g.walk.find("nvmlVgpuTypeGetClass", object, "").text("vgpuTypeClass")
	list := []any{"id", uintNode(id), "name", draft.Text(name), "class", draft.Text(class)}
	put := func(key string, n uint64, ok bool) {
		if ok {
			list = append(list, key, uintNode(n))
		}
	}
	mib := func(n uint64, ok bool) (uint64, bool) { return n >> 20, ok }
	n, ok := mib(ask("nvmlVgpuTypeGetFramebufferSize", "", "fbSize"))
	put("framebuffer_mib", n, ok)
	n, ok = mib(ask("nvmlVgpuTypeGetFbReservation", "", "fbReservation"))
	put("framebuffer_reservation_mib", n, ok)
	n, ok = mib(ask("nvmlVgpuTypeGetGspHeapSize", "", "gspHeapSize"))
	put("gsp_heap_mib", n, ok)
	n, ok = ask("nvmlVgpuTypeGetBAR1Info", "", "bar1Info.bar1Size")
	put("bar1_mib", n, ok)
	n, ok = g.find("nvmlVgpuTypeGetMaxInstances", fmt.Sprintf("vgpuTypeId %d", id)).number("vgpuInstanceCount")
	put("max_instances", n, ok)
	n, ok = ask("nvmlVgpuTypeGetMaxInstancesPerVm", "", "vgpuInstanceCountPerVm")
	put("max_instances_per_vm", n, ok)
	n, ok = ask("nvmlVgpuTypeGetNumDisplayHeads", "", "numDisplayHeads")
	put("display_heads", n, ok)
	n, ok = ask("nvmlVgpuTypeGetResolution", "displayIndex 0", "xdim")
	put("max_x", n, ok)
	n, ok = ask("nvmlVgpuTypeGetResolution", "displayIndex 0", "ydim")
	put("max_y", n, ok)
	n, ok = ask("nvmlVgpuTypeGetFrameRateLimit", "", "frameRateLimit")
	put("frame_rate_limit", n, ok)
	if license, ok := g.walk.find("nvmlVgpuTypeGetLicense", object, "").text("vgpuTypeLicenseString"); ok {
		list = append(list, "license", draft.Text(license))
	}
	n, ok = ask("nvmlVgpuTypeGetGpuInstanceProfileId", "", "gpuInstanceProfileId")
	put("gpu_instance_profile_id", n, ok && n != uint64(abi.INVALID_GPU_INSTANCE_PROFILE_ID))
	for number, key := range []string{"nvlink_p2p", "gpudirect", "multi_vgpu_exclusive", "exclusive_type", "exclusive_size"} {
		if n, ok := ask("nvmlVgpuTypeGetCapabilities", fmt.Sprintf("capability %d", number), "capResult"); ok && n != 0 {
			list = append(list, key, draft.Num("true"))
		}
	}
	return draft.Pairs(list...), name
}

func (g *gpu) vgpuInstance(id uint64, index int, names map[uint64]string) *yaml.Node {
	object := fmt.Sprintf("vGPU %d", id)
	find := func(function string) *Answer { return g.walk.find(function, object, "") }
	kind, _ := find("nvmlVgpuInstanceGetType").number("vgpuTypeId")
	list := []any{"id", uintNode(id), "type", draft.Text(names[kind])}
	made := func(n int) string { return fmt.Sprintf("00000000-0000-8000-%04x-%012x", 0x8000+g.index, 16*index+n) }
	uuid, _ := find("nvmlVgpuInstanceGetUUID").text("uuid")
	mdev, hasMdev := find("nvmlVgpuInstanceGetMdevUUID").text("mdevUuid")
	vm, _ := find("nvmlVgpuInstanceGetVmID").text("vmId")
	if !g.options.KeepIdentifiers {
		same := mdev == uuid
		uuid, vm = made(1), made(3)
		if mdev = made(2); same {
			mdev = uuid
		}
	}
	list = append(list, "uuid", draft.Text(uuid), "vm_id", draft.Text(vm))
	if hasMdev {
		list = append(list, "mdev_uuid", draft.Text(mdev))
	}
	if n, ok := find("nvmlVgpuInstanceGetVmID").number("vmIdType"); ok && n == uint64(abi.VGPU_VM_ID_DOMAIN_ID) {
		list = append(list, "vm_id_type", draft.Text("domain_id"))
	}
	if v, ok := find("nvmlVgpuInstanceGetVmDriverVersion").text("version"); ok && v != "Not Available" {
		list = append(list, "vm_driver_version", draft.Text(v))
	}
	if bus, ok := find("nvmlVgpuInstanceGetGpuPciId").text("vgpuPciId"); ok && strings.Trim(bus, "0:.") != "" {
		list = append(list, "vm_bus_id", draft.Text(bus))
	}
	for _, v := range []struct{ key, function, path string }{
		{"gpu_instance_id", "nvmlVgpuInstanceGetGpuInstanceId", "gpuInstanceId"}, {"placement_id", "nvmlVgpuInstanceGetPlacementId", "pPlacement.placementId"},
		{"frame_rate_limit", "nvmlVgpuInstanceGetFrameRateLimit", "frameRateLimit"}, {"encoder_capacity", "nvmlVgpuInstanceGetEncoderCapacity", "encoderCapacity"},
		{"runtime_state_bytes", "nvmlVgpuInstanceGetRuntimeStateSize", "pState.size"},
	} {
		n, ok := find(v.function).number(v.path)
		if ok && n != uint64(abi.INVALID_GPU_INSTANCE_ID) && n != uint64(abi.INVALID_VGPU_PLACEMENT_ID) {
			list = append(list, v.key, uintNode(n))
		}
	}
	if n, ok := find("nvmlVgpuInstanceGetFbUsage").number("fbUsage"); ok {
		list = append(list, "framebuffer_used_mib", uintNode(n>>20))
	}
	metadata := find("nvmlVgpuInstanceGetMetadata")
	if n, ok := inside(metadata, "vgpuMetadata", "nvmlVgpuMetadata_t", "guestVgpuVersion"); ok && n != 0 {
		list = append(list, "vm_vgpu_version", uintNode(n))
	}
	for _, v := range []struct{ key, function, path string }{
		{"ecc_mode", "nvmlVgpuInstanceGetEccMode", "eccMode"}, {"accounting_mode", "nvmlVgpuInstanceGetAccountingMode", "mode"},
	} {
		if n := mode.node(find(v.function).value(v.path), "", g.options); n != nil {
			list = append(list, v.key, n)
		}
	}
	for _, f := range []string{"nvmlVgpuInstanceGetLicenseInfo_v2", "nvmlVgpuInstanceGetLicenseInfo"} {
		a := find(f)
		if !a.OK() {
			continue
		}
		n, _ := a.number("licenseInfo.currentState")
		license := []any{"state", draft.Text(licenseStates[n])}
		if end := expiry(a, "licenseInfo.licenseExpiry."); end != "" {
			license = append(license, "expiry", draft.Text(end))
		}
		list = append(list, "license", draft.Pairs(license...))
		break
	}
	return draft.Pairs(list...)
}

// inside is a number in a struct that is answered as bytes.
func inside(a *Answer, path, typeName, field string) (uint64, bool) {
	text, _ := a.text(path)
	raw, err := unhex(text)
	table, tableErr := calls.Read()
	if err != nil || tableErr != nil {
		return 0, false
	}
	for _, t := range table.Types {
		for _, f := range t.Fields {
			if t.Name == typeName && f.Name == field && f.Offset+4 <= len(raw) {
				return uint64(binary.NativeEndian.Uint32(raw[f.Offset:])), true
			}
		}
	}
	return 0, false
}

// expiry is when a licence ends.
func expiry(a *Answer, at string) string {
	n := func(field string) uint64 {
		v, _ := a.number(at + field)
		return v
	}
	switch n("status") {
	case uint64(abi.GRID_LICENSE_EXPIRY_VALID):
		return fmt.Sprintf("%04d-%02d-%02d %02d:%02d:%02d", n("year"), n("month"), n("day"), n("hour"), n("min"), n("sec"))
	case uint64(abi.GRID_LICENSE_EXPIRY_INVALID):
		return "invalid"
	case uint64(abi.GRID_LICENSE_EXPIRY_NOT_APPLICABLE):
		return "not_applicable"
	case uint64(abi.GRID_LICENSE_EXPIRY_PERMANENT):
		return "permanent"
	}
	return ""
}

// licenses makes what the driver in a virtual machine says about licences.
func (g *gpu) licenses() {
	a := g.find("nvmlDeviceGetGridLicensableFeatures_v4", "")
	count, _ := a.number("pGridLicensableFeatures.licensableFeaturesCount")
	var list []*yaml.Node
	licensed := false
	for i := range count {
		at := fmt.Sprintf("pGridLicensableFeatures.gridLicensableFeatures[%d].", i)
		code, _ := a.number(at + "featureCode")
		enabled, _ := a.number(at + "featureEnabled")
		state, _ := a.number(at + "featureState")
		licensed = licensed || state != 0
		entry := []any{"feature", draft.Text(licensedFeatures[code]), "enabled", draft.Num(strconv.FormatBool(enabled != 0))}
		if name, _ := a.text(at + "productName"); name != "" {
			entry = append(entry, "product_name", draft.Text(name))
		}
		if end := expiry(a, at+"licenseExpiry."); end != "" {
			entry = append(entry, "expiry", draft.Text(end))
		}
		list = append(list, draft.Pairs(entry...))
	}
	if list == nil {
		return
	}
	g.set("vgpu.licensing.features", a.Function, draft.Lines(list...))
	if n, ok := g.find("nvmlInternalSlot189", "").number("state"); ok && licenseStates[n] != "" {
		g.set("vgpu.licensing.state", "nvmlInternalSlot189", draft.Text(licenseStates[n]))
	} else if licensed {
		g.set("vgpu.licensing.state", a.Function, draft.Text("licensed"))
	}
}
