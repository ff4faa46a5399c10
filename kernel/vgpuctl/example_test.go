package vgpuctl_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// annotation is the container's annotation with the grants. The device plugin sets it in Allocate, and the runtime
// passes it on.
const annotation = "vgpu.example.com/grants"

// createRuntime is a hook: the runtime has made the container's cgroup and its first process, which waits in it, and runs none
// of the container's code before the hook has ended well. If it ends with an error, the container does not start.
func createRuntime(ctx context.Context, device *vgpuctl.Device, stdin io.Reader) error {
	var container specs.State
	if err := json.NewDecoder(stdin).Decode(&container); err != nil {
		return fmt.Errorf("the state that the runtime gives a hook: %w", err)
	}
	text, ok := container.Annotations[annotation]
	if !ok {
		return nil // a container without GPUs
	}
	var grants []vgpuctl.Grant
	if err := json.Unmarshal([]byte(text), &grants); err != nil {
		return fmt.Errorf("annotation %s: %w", annotation, err)
	}
	if container.Pid == 0 {
		return errors.New("the container has no process yet: use this as a createRuntime hook")
	}
	id, err := device.ApplyToContainer(ctx, container.Pid, grants)
	if err != nil {
		return err
	}
	log.Printf("container %s, cgroup %d: %d policies", container.ID, id, len(grants))
	return nil
}

// A hook of a container runtime that sets the policies of the container's cgroup. docs/vgpu-device-plugin.md shows when
// the runtime calls it.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // less than the hook's own timeout
	defer cancel()
	device, err := vgpuctl.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	if err := createRuntime(ctx, device, os.Stdin); err != nil {
		log.Fatal(err)
	}
}

// Sets limits for a process and a cgroup, and shows what they use.
func ExampleDevice() {
	device, err := vgpuctl.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	id, err := vgpuctl.CgroupID("/sys/fs/cgroup/jobs/a")
	if err != nil {
		log.Fatal(err)
	}
	if err := device.SetCgroupPolicy(id, vgpuctl.MinorAny, vgpuctl.Limits{MemoryLimitBytes: 8 << 30, Weight: 3}); err != nil {
		log.Fatal(err)
	}
	usage, err := device.CgroupUsage(id, vgpuctl.MinorAny)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(vgpuctl.FormatSize(usage.DeviceBytes), "in use")
}

// Prints refused allocations until the program is interrupted.
func ExampleEvents() {
	device, err := vgpuctl.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	events := device.Events()
	for {
		event, lost, err := events.Next(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		if lost > 0 {
			log.Printf("%d events were lost", lost)
		}
		if event.Type == vgpuctl.EventDeny {
			fmt.Printf("%s asked for %s\n", event.Comm, vgpuctl.FormatSize(event.Value))
		}
	}
}
