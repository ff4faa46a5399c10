package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// slot is the address in a PCI identity, of which these functions read domain, bus and device alone. It answers
// INVALID_ARGUMENT if there can be no such address.
func slot(pci *abi.PciInfo_t) (profiles.BusID, abi.Return) {
	if pci.Bus > 0xff || pci.Device > 0x1f {
		return profiles.BusID{}, abi.ERROR_INVALID_ARGUMENT
	}
	return profiles.BusID{Domain: pci.Domain, Bus: uint8(pci.Bus), Device: uint8(pci.Device)}, abi.SUCCESS
}

// DeviceModifyDrainState keeps programs that initialise NVML later from a GPU, or gives it back to them. It answers IN_USE
// while persistence mode holds the GPU.
func DeviceModifyDrainState(s *engine.Snapshot, pci *abi.PciInfo_t, on abi.EnableState_t) abi.Return {
	at, ret := slot(pci)
	if ret != abi.SUCCESS {
		return ret
	}
	return s.Change(func(t *change.Tx) abi.Return { return t.Drain(at, on) })
}

// DeviceQueryDrainState says whether programs that initialise NVML later are kept from a GPU.
func DeviceQueryDrainState(s *engine.Snapshot, pci *abi.PciInfo_t) (abi.EnableState_t, abi.Return) {
	at, ret := slot(pci)
	if ret != abi.SUCCESS {
		return 0, ret
	}
	drained, ret := s.Begin().Drained(at)
	return abi.EnableState_t(bit(drained)), ret
}

// DeviceRemoveGpu_v2 removes a drained GPU. The calling process no longer has it, and the GPUs after it move up; in other
// processes it is lost.
func DeviceRemoveGpu_v2(s *engine.Snapshot, pci *abi.PciInfo_t, gpu abi.DetachGpuState_t, link abi.PcieLinkState_t) abi.Return {
	at, ret := slot(pci)
	if ret == abi.SUCCESS {
		ret = s.Change(func(t *change.Tx) abi.Return { return t.Remove(at, gpu, link) })
	}
	if ret != abi.SUCCESS {
		return ret
	}
	return s.Engine().Enumerate()
}

// DeviceRemoveGpu is DeviceRemoveGpu_v2 for a GPU whose PCIe link stays up.
func DeviceRemoveGpu(s *engine.Snapshot, pci *abi.PciInfo_t) abi.Return {
	return DeviceRemoveGpu_v2(s, pci, abi.DETACH_GPU_REMOVE, abi.PCIE_LINK_KEEP)
}

// DeviceDiscoverGpus brings removed GPUs back: that of an address, or all if the address is 0. The calling process has
// them from then on, other processes when they initialise NVML.
func DeviceDiscoverGpus(s *engine.Snapshot, pci *abi.PciInfo_t) abi.Return {
	at, ret := slot(pci)
	if ret == abi.SUCCESS {
		ret = s.Change(func(t *change.Tx) abi.Return { return t.Discover(at) })
	}
	if ret != abi.SUCCESS {
		return ret
	}
	return s.Engine().Enumerate()
}
