package handwritten

import (
	"strconv"
	"strings"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// nvlink finds a link of the device: NOT_SUPPORTED if it has no links, INVALID_ARGUMENT after its last one, as on real
// boards.
func nvlink(d *engine.Device, number uint32) (engine.Link, abi.Return) {
	link, ok := d.Link(number)
	switch {
	case ok:
		return link, abi.SUCCESS
	case d.LinkCount() == 0:
		return link, abi.ERROR_NOT_SUPPORTED
	}
	return link, abi.ERROR_INVALID_ARGUMENT
}

// DeviceGetNvLinkState says whether a link is up.
func DeviceGetNvLinkState(d *engine.Device, number uint32) (abi.EnableState_t, abi.Return) {
	link, ret := nvlink(d, number)
	return abi.EnableState_t(bit(link.Active)), ret
}

// DeviceGetNvLinkVersion is a link's version as NVLINK_VERSION_*, which is not the generation.
func DeviceGetNvLinkVersion(d *engine.Device, number uint32) (uint32, abi.Return) {
	if _, ret := nvlink(d, number); ret != abi.SUCCESS {
		return 0, ret
	}
	version, known := linkVersions.Find(d.Snapshot().Board.NVLink.Version.Value)
	if !known {
		return 0, abi.ERROR_NOT_SUPPORTED
	}
	return uint32(version), abi.SUCCESS
}

// linkVersions are the versions by generation. Generation 3 is version 3.1 on A100 and RTX 3090 (open-mpi/hwloc#658).
var linkVersions = table[uint32, abi.NvlinkVersion_t]{
	{1, abi.NVLINK_VERSION_1_0},
	{2, abi.NVLINK_VERSION_2_0},
	{3, abi.NVLINK_VERSION_3_1},
	{4, abi.NVLINK_VERSION_4_0},
	{5, abi.NVLINK_VERSION_5_0},
	{6, abi.NVLINK_VERSION_6_0},
}

// DeviceGetNvLinkRemotePciInfo is the address of a link's far end, and its device id if it is a GPU of this node. A link that is
// down leads nowhere, so it answers NOT_SUPPORTED. For numbers between the device's last link and the highest of any GPU it answers NOT_SUPPORTED: topo -m of nvidia-smi
// asks an A100, which has 12 links, for 18, and gives up after INVALID_ARGUMENT.
//
//nvml:symbol nvmlDeviceGetNvLinkRemotePciInfo nvmlDeviceGetNvLinkRemotePciInfo_v2
func DeviceGetNvLinkRemotePciInfo(d *engine.Device, number uint32, pci *abi.PciInfo_t) abi.Return {
	link, ret := nvlink(d, number)
	if ret == abi.ERROR_INVALID_ARGUMENT && number < abi.NVLINK_MAX_LINKS || ret == abi.SUCCESS && !link.Active {
		ret = abi.ERROR_NOT_SUPPORTED
	}
	if ret != abi.SUCCESS {
		return ret
	}
	var device uint32
	if link.Peer != nil {
		device = link.Peer.PCI.DeviceID.Value
	}
	return address(pci, link.BusID, device, 0)
}

// DeviceGetNvLinkRemoteDeviceType is the kind of device at a link's far end; NVLINK_DEVICE_TYPE_UNKNOWN while the link is down.
func DeviceGetNvLinkRemoteDeviceType(d *engine.Device, number uint32) (abi.IntNvLinkDeviceType_t, abi.Return) {
	link, ret := nvlink(d, number)
	if ret == abi.SUCCESS && !link.Active {
		return abi.NVLINK_DEVICE_TYPE_UNKNOWN, ret
	}
	return link.Remote, ret
}

// DeviceGetNvLinkCapability says whether a link has a capability. A link that is up has all of them but SLI.
func DeviceGetNvLinkCapability(d *engine.Device, number uint32, capability abi.NvLinkCapability_t) (uint32, abi.Return) {
	if capability >= abi.NVLINK_CAP_COUNT {
		return 0, abi.ERROR_INVALID_ARGUMENT
	}
	link, ret := nvlink(d, number)
	return bit(link.Active && capability != abi.NVLINK_CAP_SLI_BRIDGE), ret
}

// DeviceGetNvLinkErrorCounter counts a link's errors of a kind.
func DeviceGetNvLinkErrorCounter(d *engine.Device, number uint32, counter abi.NvLinkErrorCounter_t) (uint64, abi.Return) {
	if counter >= abi.NVLINK_ERROR_COUNT {
		return 0, abi.ERROR_INVALID_ARGUMENT
	}
	if _, ret := nvlink(d, number); ret != abi.SUCCESS {
		return 0, ret
	}
	return d.LinkErrors(number), abi.SUCCESS
}

// DeviceResetNvLinkErrorCounters makes a link's errors of all kinds count from 0 again.
func DeviceResetNvLinkErrorCounters(d *engine.Device, number uint32) abi.Return {
	if _, ret := nvlink(d, number); ret != abi.SUCCESS {
		return ret
	}
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.ClearLinkErrors(i, number) })
}

// DeviceSetNvLinkDeviceLowPowerThreshold is how long a link has to be idle until it saves power, in units of 100 µs.
func DeviceSetNvLinkDeviceLowPowerThreshold(d *engine.Device, info *abi.NvLinkPowerThres_t) abi.Return {
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.NVLinkThreshold(i, info.LowPwrThreshold) })
}

// linkFirmware are NVML's numbers of the programs that drive links.
var linkFirmware = table[string, uint8]{
	{"mse", abi.NVLINK_FIRMWARE_UCODE_TYPE_MSE}, {"netir", abi.NVLINK_FIRMWARE_UCODE_TYPE_NETIR},
	{"netir_uphy", abi.NVLINK_FIRMWARE_UCODE_TYPE_NETIR_UPHY}, {"netir_cln", abi.NVLINK_FIRMWARE_UCODE_TYPE_NETIR_CLN},
	{"netir_dln", abi.NVLINK_FIRMWARE_UCODE_TYPE_NETIR_DLN},
}

// DeviceGetNvLinkInfo says whether the links encrypt what they carry, and which programs drive them. Links have neither
// before the fifth generation.
func DeviceGetNvLinkInfo(d *engine.Device, info *abi.NvLinkInfo_v2_t) abi.Return {
	links := &d.Snapshot().Board.NVLink
	if links.Version.Or(0) < 5 || d.LinkCount() == 0 {
		return abi.ERROR_NOT_SUPPORTED
	}
	info.IsNvleEnabled, info.FirmwareInfo = bit(links.Encrypted.Value), abi.NvlinkFirmwareInfo_t{}
	for i, f := range links.Firmware[:min(len(links.Firmware), len(info.FirmwareInfo.FirmwareVersion))] {
		v := abi.NvlinkFirmwareVersion_t{UcodeType: linkFirmware.Of(f.Type)}
		for at, part := range strings.SplitN(f.Version, ".", 3) {
			number, _ := strconv.ParseUint(part, 10, 32) // the profile has digits there
			*[]*uint32{&v.Major, &v.Minor, &v.SubMinor}[at] = uint32(number)
		}
		info.FirmwareInfo.FirmwareVersion[i] = v
		info.FirmwareInfo.NumValidEntries++
	}
	return abi.SUCCESS
}
