package handwritten

import (
	"encoding/binary"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/words"
)

// fabric is the GPU's place in an NVLink fabric of machines; NOT_SUPPORTED if the profile has no fabric.
func fabric(d *engine.Device) (info abi.GpuFabricInfo_v3_t, ret abi.Return) {
	f := &d.Fabric
	if *f == (profiles.Fabric{}) {
		return info, abi.ERROR_NOT_SUPPORTED
	}
	info.State = words.FabricStates.Of(f.State.Or("completed"))
	if info.State == abi.GPU_FABRIC_STATE_COMPLETED {
		info.ClusterUuid, info.CliqueId = f.ClusterUUID.Value, f.CliqueID.Value
	}
	info.HealthMask = f.HealthMask.Or(healthMask(&f.Health))
	summary := f.HealthSummary.Or("auto")
	if summary == "auto" {
		summary = healthSummary(&f.Health)
	}
	if silent := !f.HealthMask.Valid && !f.HealthSummary.Valid && f.Health == (profiles.FabricHealth{}); silent &&
		info.State == abi.GPU_FABRIC_STATE_COMPLETED && words.Architectures.Of(d.Architecture.Value) >= abi.DEVICE_ARCH_BLACKWELL {
		summary = "healthy" // as on every captured Blackwell board; Hopper boards do not tell
	}
	info.HealthSummary = words.HealthSummaries.Of(summary)
	return info, abi.SUCCESS
}

var misconfigurations = table[string, uint32]{
	{"not_supported", abi.GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NOT_SUPPORTED},
	{"none", abi.GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NONE},
	{"incorrect_sysguid", abi.GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_INCORRECT_SYSGUID},
	{"incorrect_chassis_sn", abi.GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_INCORRECT_CHASSIS_SN},
	{"no_partition", abi.GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NO_PARTITION},
	{"insufficient_nvlinks", abi.GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_INSUFFICIENT_NVLINKS},
	{"incompatible_gpu_fw", abi.GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_INCOMPATIBLE_GPU_FW},
	{"invalid_location", abi.GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_INVALID_LOCATION},
	{"gpu_state_invalid", abi.GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_GPU_STATE_INVALID},
}

// healthMask combines the conditions into a mask: 1 is true, 2 is false, 0 is not known. A board with a fault knows its other
// conditions, so those that the profile does not give are false then.
func healthMask(h *profiles.FabricHealth) (mask uint32) {
	configuration := h.IncorrectConfiguration.Or("not_supported")
	fault := hasFault(h)
	if fault && !h.IncorrectConfiguration.Valid {
		configuration = "none"
	}
	for _, condition := range [...]struct {
		given profiles.Opt[bool]
		shift int
	}{
		{h.DegradedBandwidth, abi.GPU_FABRIC_HEALTH_MASK_SHIFT_DEGRADED_BW},
		{h.RouteRecovery, abi.GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_RECOVERY},
		{h.RouteUnhealthy, abi.GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY},
		{h.AccessTimeoutRecovery, abi.GPU_FABRIC_HEALTH_MASK_SHIFT_ACCESS_TIMEOUT_RECOVERY},
	} {
		if condition.given.Valid {
			mask |= (2 - bit(condition.given.Value)) << condition.shift
		} else if fault {
			mask |= 2 << condition.shift
		}
	}
	return mask | misconfigurations.Of(configuration)<<abi.GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION
}

// hasFault says whether any of the conditions is a fault.
func hasFault(h *profiles.FabricHealth) bool {
	summary := healthSummary(h)
	return summary == "unhealthy" || summary == "limited_capacity"
}

// healthSummary summarises the conditions.
func healthSummary(h *profiles.FabricHealth) string {
	wrong := h.IncorrectConfiguration.Or("none")
	switch {
	case *h == (profiles.FabricHealth{}):
		return "not_supported"
	case h.RouteUnhealthy.Value || h.AccessTimeoutRecovery.Value || wrong != "none" && wrong != "not_supported":
		return "unhealthy"
	case h.DegradedBandwidth.Value || h.RouteRecovery.Value:
		return "limited_capacity"
	}
	return "healthy"
}

// DeviceGetGpuFabricInfo is the GPU's place in the fabric, without its health.
func DeviceGetGpuFabricInfo(d *engine.Device, info *abi.GpuFabricInfo_t) abi.Return {
	f, ret := fabric(d)
	*info = abi.GpuFabricInfo_t{ClusterUuid: f.ClusterUuid, Status: f.Status, CliqueId: f.CliqueId, State: f.State}
	return ret
}

// DeviceGetGpuFabricInfoV is the GPU's place in the fabric with its health. Version 2 of the struct has no health
// summary.
func DeviceGetGpuFabricInfoV(d *engine.Device, info *abi.GpuFabricInfo_v3_t) abi.Return {
	f, ret := fabric(d)
	f.Version = info.Version
	*info = f
	return ret
}

// DeviceGetGpuFabricInfo_v4 is the GPU's place in the fabric with a clique of each type: Hopper has two types, Blackwell
// four.
func DeviceGetGpuFabricInfo_v4(d *engine.Device, info *abi.GpuFabricInfo_v4_t) abi.Return {
	f, ret := fabric(d)
	*info = abi.GpuFabricInfo_v4_t{
		ClusterUuid:   f.ClusterUuid,
		Status:        f.Status,
		State:         f.State,
		HealthMask:    f.HealthMask,
		HealthSummary: f.HealthSummary,
	}
	if f.State == abi.GPU_FABRIC_STATE_COMPLETED {
		info.NumCliques = 2
		if words.Architectures.Of(d.Architecture.Value) >= abi.DEVICE_ARCH_BLACKWELL {
			info.NumCliques = 4
		}
	}
	for t := range info.NumCliques {
		info.Cliques[t] = abi.GpuFabricClique_v1_t{Type: uint8(t), Id: f.CliqueId}
	}
	return ret
}

// DeviceGetPlatformInfo is the GPU's place in its rack, from Blackwell on. Values that the profile does not give are
// 0xff.
func DeviceGetPlatformInfo(d *engine.Device, info *abi.PlatformInfo_v2_t) abi.Return {
	p := &d.Platform
	if !p.PeerType.Valid && !p.HostID.Valid {
		return abi.ERROR_NOT_SUPPORTED
	}
	*info = abi.PlatformInfo_v2_t{
		Version:    info.Version,
		SlotNumber: p.SlotNumber.Or(0xff),
		TrayIndex:  p.TrayIndex.Or(0xff),
		HostId:     p.HostID.Or(0xff),
		PeerType:   words.PeerTypes.Of(p.PeerType.Value),
		ModuleId:   p.ModuleID.Or(0xff),
	}
	text(info.ChassisSerialNumber[:], p.ChassisSerialNumber.Value)
	binary.BigEndian.PutUint64(info.IbGuid[:], p.GPUFabricGUID.Value)
	return abi.SUCCESS
}
