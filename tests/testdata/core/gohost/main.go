// Command gohost is a host with its own Go runtime, one processor, a goroutine that never makes a call, and garbage.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func main() {
	if err := run(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

var spins, garbage = 0, []byte(nil)

func run() error {
	n, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	go func() {
		for {
			spins++ // only a signal of the runtime can interrupt this
		}
	}()
	if ret := nvml.Init(); ret != nvml.SUCCESS {
		return fmt.Errorf("nvmlInit: %v", ret)
	}
	device, ret := nvml.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		return fmt.Errorf("nvmlDeviceGetHandleByIndex: %v", ret)
	}
	uuid, ret := device.GetUUID()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("nvmlDeviceGetUUID: %v", ret)
	}
	arrived := make(chan os.Signal, 1)
	signal.Notify(arrived, syscall.SIGUSR1)
	for i := range n {
		found, ret := nvml.DeviceGetHandleByUUID(uuid)
		if ret != nvml.SUCCESS || found != device {
			return fmt.Errorf("call %d: nvmlDeviceGetHandleByUUID: %v, %v", i, found, ret)
		}
		garbage = make([]byte, 100)
		if i%(n/20) != 0 {
			continue
		}
		if !recovers() {
			return fmt.Errorf("call %d: a nil pointer did not panic", i)
		}
		if err := exec.Command("/bin/true").Run(); err != nil {
			return fmt.Errorf("call %d: %w", i, err)
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
			return err
		}
		<-arrived
	}
	if ret := nvml.Shutdown(); ret != nvml.SUCCESS {
		return fmt.Errorf("nvmlShutdown: %v", ret)
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	fmt.Println(stats.NumGC)
	return nil
}

// recovers reports whether the runtime turns a fault into a panic.
func recovers() (ok bool) {
	defer func() { ok = recover() != nil }()
	var p *int
	*p = 1
	return false
}
