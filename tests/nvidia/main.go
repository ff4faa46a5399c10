// Command nvidia describes its machine with NVIDIA's own software for Kubernetes: with go-nvlib, as the DRA driver and
// GPU Feature Discovery do; with go-gpuallocator, as the device plugin does; and with nvcdi of
// nvidia-container-toolkit, as all of these and nvidia-ctk do. It prints the results as JSON, and exits with 1 at the
// first error.
//
// It is a Go module of its own, since nvcdi needs some forty modules, among them runc's and containerd's, that nothing
// else here needs.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"github.com/NVIDIA/go-gpuallocator/gpuallocator"
	"github.com/NVIDIA/go-nvlib/pkg/nvlib/device"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/sirupsen/logrus"
)

// machine is the printed result.
type machine struct {
	GPUs []gpu
	CDI  cdi
}

type gpu struct {
	UUID, BusID         string
	Architecture, Brand string
	ComputeCapability   string
	AddressingMode      string
	Fabric, MIGCapable  bool
	MIGEnabled          bool
	MIGProfiles         []string
	MIGDevices          []migDevice
	Links               map[int][]string // to each other GPU, by the names that go-gpuallocator gives them
}

type migDevice struct {
	UUID, Profile, Parent string
}

type cdi struct {
	Devices   []string
	Libraries []string
	Nodes     map[string][]string // of a device
}

func main() {
	root := flag.String("root", "/", "where the driver is, for nvcdi")
	library := flag.String("library", "", "the NVML library, instead of the one that the dynamic linker finds")
	flag.Parse()
	found, err := describe(*root, *library)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(found)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func describe(root, library string) (*machine, error) {
	var options []nvml.LibraryOption
	if library != "" {
		options = append(options, nvml.WithLibraryPath(library))
	}
	lib := nvml.New(options...)
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("nvmlInit: %v", ret)
	}
	defer lib.Shutdown()
	devices := device.New(lib)
	var found machine
	err := devices.VisitDevices(func(_ int, d device.Device) error {
		g, err := describeGPU(d)
		found.GPUs = append(found.GPUs, g)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("go-nvlib: %w", err)
	}
	allocator, err := gpuallocator.NewDevices(gpuallocator.WithNvmlLib(lib), gpuallocator.WithDeviceLib(devices))
	if err != nil {
		return nil, fmt.Errorf("go-gpuallocator: %w", err)
	}
	for i, d := range allocator {
		found.GPUs[i].Links = map[int][]string{}
		for to, links := range d.Links {
			for _, l := range links {
				found.GPUs[i].Links[to] = append(found.GPUs[i].Links[to], l.Type.String())
			}
		}
	}
	if found.CDI, err = describeCDI(root, lib, devices); err != nil {
		return nil, fmt.Errorf("nvcdi: %w", err)
	}
	return &found, nil
}

func describeGPU(d device.Device) (g gpu, err error) {
	var ret nvml.Return
	if g.UUID, ret = d.GetUUID(); ret != nvml.SUCCESS {
		return g, fmt.Errorf("the UUID: %w", ret)
	}
	for _, text := range []struct {
		to  *string
		get func() (string, error)
	}{
		{&g.BusID, d.GetPCIBusID}, {&g.Architecture, d.GetArchitectureAsString}, {&g.Brand, d.GetBrandAsString},
		{&g.ComputeCapability, d.GetCudaComputeCapabilityAsString}, {&g.AddressingMode, d.GetAddressingModeAsString},
	} {
		if *text.to, err = text.get(); err != nil {
			return g, err
		}
	}
	for _, question := range []struct {
		to  *bool
		ask func() (bool, error)
	}{{&g.Fabric, d.IsFabricAttached}, {&g.MIGCapable, d.IsMigCapable}, {&g.MIGEnabled, d.IsMigEnabled}} {
		if *question.to, err = question.ask(); err != nil {
			return g, err
		}
	}
	if !g.MIGCapable {
		return g, nil
	}
	profiles, err := d.GetMigProfiles()
	for _, p := range profiles {
		g.MIGProfiles = append(g.MIGProfiles, p.String())
	}
	if err != nil {
		return g, err
	}
	err = d.VisitMigDevices(func(_ int, m device.MigDevice) error {
		found, err := describeMIG(m)
		g.MIGDevices = append(g.MIGDevices, found)
		return err
	})
	return g, err
}

func describeMIG(d device.MigDevice) (m migDevice, err error) {
	var ret nvml.Return
	if m.UUID, ret = d.GetUUID(); ret != nvml.SUCCESS {
		return m, fmt.Errorf("the UUID of a MIG device: %w", ret)
	}
	parent, ret := d.GetDeviceHandleFromMigDeviceHandle()
	if ret != nvml.SUCCESS {
		return m, fmt.Errorf("the GPU of a MIG device: %w", ret)
	}
	if m.Parent, ret = parent.GetUUID(); ret != nvml.SUCCESS {
		return m, fmt.Errorf("the UUID of its GPU: %w", ret)
	}
	profile, err := d.GetProfile()
	if err != nil {
		return m, err
	}
	m.Profile = profile.String()
	return m, nil
}

func describeCDI(root string, lib nvml.Interface, devices device.Interface) (c cdi, err error) {
	byIndex, err := nvcdi.NewDeviceNamer(nvcdi.DeviceNameStrategyIndex)
	if err != nil {
		return c, err
	}
	byUUID, err := nvcdi.NewDeviceNamer(nvcdi.DeviceNameStrategyUUID)
	if err != nil {
		return c, err
	}
	log := logrus.New()
	log.SetLevel(logrus.ErrorLevel) // otherwise it warns of every missing optional library and firmware file
	generator, err := nvcdi.New(nvcdi.WithNvmlLib(lib), nvcdi.WithDeviceLib(devices), nvcdi.WithDriverRoot(root),
		nvcdi.WithDeviceNamers(byIndex, byUUID), nvcdi.WithMode(nvcdi.ModeNvml), nvcdi.WithLogger(log))
	if err != nil {
		return c, err
	}
	spec, err := generator.GetSpec()
	if err != nil {
		return c, err
	}
	c.Nodes = map[string][]string{}
	for _, d := range spec.Raw().Devices {
		c.Devices = append(c.Devices, d.Name)
		for _, n := range d.ContainerEdits.DeviceNodes {
			c.Nodes[d.Name] = append(c.Nodes[d.Name], n.Path)
		}
	}
	for _, m := range spec.Raw().ContainerEdits.Mounts {
		c.Libraries = append(c.Libraries, m.HostPath)
	}
	return c, nil
}
