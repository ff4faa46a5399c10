package handwritten

import (
	"strconv"
	"strings"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// DeviceGetHandleByPciBusId finds a GPU by its address: domain:bus:device.function, with any number of digits, in
// either case, and also without the function or the domain. It answers INVALID_ARGUMENT for text of another form, and
// NOT_FOUND if no GPU has the address.
//
//nvml:symbol nvmlDeviceGetHandleByPciBusId nvmlDeviceGetHandleByPciBusId_v2
func DeviceGetHandleByPciBusId(s *engine.Snapshot, busID string) (*engine.Device, abi.Return) {
	id, ok := parseBusID(busID)
	if !ok {
		return nil, abi.ERROR_INVALID_ARGUMENT
	}
	return found(s.DeviceByBusID(id))
}

func parseBusID(s string) (id profiles.BusID, ok bool) {
	s, function, hasFunction := strings.Cut(s, ".")
	parts := strings.Split(s, ":")
	if len(parts) == 2 && hasFunction {
		parts = append([]string{"0"}, parts...)
	}
	if !hasFunction {
		function = "0"
	}
	if len(parts) != 3 {
		return id, false
	}
	ok = true
	number := func(hex string, bits int) uint32 {
		n, err := strconv.ParseUint(hex, 16, bits)
		ok = ok && err == nil
		return uint32(n)
	}
	id = profiles.BusID{
		Domain:   number(parts[0], 32),
		Bus:      uint8(number(parts[1], 8)),
		Device:   uint8(number(parts[2], 5)),
		Function: uint8(number(function, 3)),
	}
	return id, ok
}

// DeviceGetPciInfo is the GPU's PCI identity. The domain has 4 digits in busIdLegacy and 8 in busId. The older symbols
// have a struct that ends before busId.
//
//nvml:symbol nvmlDeviceGetPciInfo nvmlDeviceGetPciInfo_v2 nvmlDeviceGetPciInfo_v3
func DeviceGetPciInfo(d *engine.Device, pci *abi.PciInfo_t) abi.Return {
	return address(pci, d.PCI.BusID, d.PCI.DeviceID.Value, d.PCI.SubsystemID.Value)
}

// address fills in a PCI identity; NOT_SUPPORTED without a bus id.
func address(pci *abi.PciInfo_t, bus profiles.Opt[profiles.BusID], device, subsystem uint32) abi.Return {
	id, ret := opt(bus)
	*pci = abi.PciInfo_t{
		Domain:         id.Domain,
		Bus:            uint32(id.Bus),
		Device:         uint32(id.Device),
		PciDeviceId:    device,
		PciSubSystemId: subsystem,
	}
	text(pci.BusIdLegacy[:], id.Legacy())
	text(pci.BusId[:], id.String())
	return ret
}

// DeviceGetPciInfoExt is DeviceGetPciInfo with the PCI class.
func DeviceGetPciInfoExt(d *engine.Device, pci *abi.PciInfoExt_v1_t) abi.Return {
	id, ret := opt(d.PCI.BusID)
	pci.Domain, pci.Bus, pci.Device = id.Domain, uint32(id.Bus), uint32(id.Device)
	pci.PciDeviceId, pci.PciSubSystemId = d.PCI.DeviceID.Value, d.PCI.SubsystemID.Value
	pci.BaseClass, pci.SubClass = d.PCI.BaseClass.Value, d.PCI.SubClass.Value
	text(pci.BusId[:], id.String())
	return ret
}

// DeviceGetCurrPcieLinkGeneration is the generation of the PCIe link now.
func DeviceGetCurrPcieLinkGeneration(d *engine.Device) (uint32, abi.Return) {
	return opt(d.PCIe.CurrentLinkGen)
}

// DeviceGetMaxPcieLinkGeneration is the highest generation that GPU and system can reach together.
func DeviceGetMaxPcieLinkGeneration(d *engine.Device) (uint32, abi.Return) {
	return opt(d.PCIe.MaxLinkGen)
}

// DeviceGetGpuMaxPcieLinkGeneration is the highest generation that the GPU can reach.
func DeviceGetGpuMaxPcieLinkGeneration(d *engine.Device) (uint32, abi.Return) {
	return opt(d.PCIe.MaxDeviceLinkGen)
}

// DeviceGetCurrPcieLinkWidth is the number of lanes now.
func DeviceGetCurrPcieLinkWidth(d *engine.Device) (uint32, abi.Return) {
	return opt(d.PCIe.CurrentLinkWidth)
}

// DeviceGetMaxPcieLinkWidth is the largest number of lanes.
func DeviceGetMaxPcieLinkWidth(d *engine.Device) (uint32, abi.Return) {
	return opt(d.PCIe.MaxLinkWidth)
}

// DeviceGetPcieLinkMaxSpeed is the link's highest speed as PCIE_LINK_MAX_SPEED_*, one constant for each generation.
func DeviceGetPcieLinkMaxSpeed(d *engine.Device) (uint32, abi.Return) {
	gen, ret := opt(d.PCIe.MaxLinkGen)
	if ret == abi.SUCCESS && gen > abi.PCIE_LINK_MAX_SPEED_64000MBPS {
		gen = abi.PCIE_LINK_MAX_SPEED_INVALID
	}
	return gen, ret
}

// DeviceGetPcieSpeed is the link's present speed, in MT/s per lane, which NVML calls Mbps.
func DeviceGetPcieSpeed(d *engine.Device) (uint32, abi.Return) {
	gen, ret := opt(d.PCIe.CurrentLinkGen)
	if ret != abi.SUCCESS {
		return 0, ret
	}
	if int(gen) >= len(pcieSpeeds) {
		return 0, abi.ERROR_NOT_SUPPORTED
	}
	return pcieSpeeds[gen], abi.SUCCESS
}

// pcieSpeeds are the speeds of the generations, in MT/s per lane.
var pcieSpeeds = [...]uint32{0, 2500, 5000, 8000, 16000, 32000, 64000}

// DeviceGetPcieReplayCounter counts link replays.
func DeviceGetPcieReplayCounter(d *engine.Device) (uint32, abi.Return) {
	return opt(as[uint32](d.PCIe.ReplayCounter))
}

// DeviceGetPcieThroughput is what the GPU sends or receives, in KB/s.
func DeviceGetPcieThroughput(d *engine.Device, counter abi.PcieUtilCounter_t) (uint32, abi.Return) {
	switch counter {
	case abi.PCIE_UTIL_TX_BYTES:
		return opt(as[uint32](d.PCIe.TxThroughputKBPS))
	case abi.PCIE_UTIL_RX_BYTES:
		return opt(as[uint32](d.PCIe.RxThroughputKBPS))
	}
	return 0, abi.ERROR_INVALID_ARGUMENT
}

// DeviceGetIrqNum is the number of the GPU's interrupt.
func DeviceGetIrqNum(d *engine.Device) (uint32, abi.Return) { return opt(d.IRQ) }

// DeviceGetBusType is PCI Express for every GPU that has such a link.
func DeviceGetBusType(d *engine.Device) (abi.BusType_t, abi.Return) {
	return opt(profiles.Opt[abi.BusType_t]{Value: abi.BUS_TYPE_PCIE, Valid: d.PCIe.MaxLinkGen.Valid})
}
