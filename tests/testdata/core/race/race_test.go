// Package race calls every function of the engine from many goroutines while others start and end generations. The test
// that runs it generates its list of calls.
package race

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/handwritten"
)

// lives counts references as the front does.
type lives struct {
	engine     *engine.Engine
	host       *enginetest.Host
	mu         sync.Mutex
	references int
}

func (l *lives) begin() abi.Return {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.references == 0 {
		if ret := handwritten.Init(l.engine); ret != abi.SUCCESS {
			return ret
		}
	}
	l.references++
	return abi.SUCCESS
}

func (l *lives) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.references--; l.references == 0 {
		handwritten.Shutdown(l.engine)
		l.host.End()
	}
}

// divided is a board whose GPUs have MIG instances, in a unit.
const divided = `
extends: h100
units: [{name: unit, devices: [0, 7]}]
device_defaults: {mig: {mode_current: enabled, mode_pending: enabled, instances: [{profile: 3g.40gb}, {profile: 1g.10gb}]}}
`

// instances are the GPU instances of a GPU, and parts their compute instances.
func instances(d *engine.Device) []*engine.GpuInstance { return d.Snapshot().GpuInstances(d) }

func parts(d *engine.Device) (list []*engine.ComputeInstance) {
	for _, g := range instances(d) {
		list = append(list, g.Parts...)
	}
	return list
}

// samples is a sample of its own, which nobody else frees.
func samples(d *engine.Device) []*engine.GpmSample {
	sample, ret := d.Snapshot().NewGpmSample()
	if ret != abi.SUCCESS {
		return nil
	}
	return []*engine.GpmSample{sample}
}

func TestRace(t *testing.T) {
	host := enginetest.New("NVMLFAB_STATE_DIR", t.TempDir(), "MOCK_NVML_CONFIG", enginetest.Write(t, divided))
	l := &lives{engine: engine.New(host), host: host}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range 40 {
				if ret := l.begin(); ret != abi.SUCCESS {
					t.Errorf("Init = %d", ret)
					return
				}
				s := l.engine.Snapshot()
				device, ret := handwritten.DeviceGetHandleByIndex(s, random.Uint32N(8))
				if ret != abi.SUCCESS {
					t.Errorf("DeviceGetHandleByIndex = %d", ret)
				}
				handle, _ := device.Handle()
				if found, ret := s.Device(handle, engine.Alive); ret != abi.SUCCESS || found != device {
					t.Errorf("the device's handle: %d", ret)
				}
				set, ret := handwritten.EventSetCreate(s)
				if ret != abi.SUCCESS {
					t.Errorf("EventSetCreate = %d", ret)
				}
				handle, _ = set.Handle()
				if _, ret := s.EventSet(handle, 0); ret != abi.SUCCESS {
					t.Errorf("the set's handle: %d", ret)
				}
				for range 20 {
					calls[random.IntN(len(calls))](device, set, string(device.UUID))
				}
				l.end()
			}
		})
	}
	wg.Wait()
}
