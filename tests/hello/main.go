// Command hello lists the GPUs that NVML shows, through NVIDIA's go-nvml, for machines without nvidia-smi.
package main

import (
	"fmt"
	"os"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
}

func run() error {
	if ret := nvml.Init(); ret != nvml.SUCCESS {
		return fmt.Errorf("nvmlInit: %v", ret)
	}
	defer nvml.Shutdown()
	count, ret := nvml.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("nvmlDeviceGetCount: %v", ret)
	}
	for i := range count {
		dev, ret := nvml.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			return fmt.Errorf("nvmlDeviceGetHandleByIndex(%d): %v", i, ret)
		}
		name, ret := dev.GetName()
		if ret != nvml.SUCCESS {
			return fmt.Errorf("nvmlDeviceGetName(%d): %v", i, ret)
		}
		uuid, ret := dev.GetUUID()
		if ret != nvml.SUCCESS {
			return fmt.Errorf("nvmlDeviceGetUUID(%d): %v", i, ret)
		}
		fmt.Printf("GPU %d: %s (UUID: %s)\n", i, name, uuid)
	}
	return nil
}
