package engine

import (
	"github.com/nvmlfab/nvmlfab/engine/host"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// AddMIG gives the snapshot a MIG device of a GPU and returns its handle.
func (s *Snapshot) AddMIG(gpu uint32) (uintptr, abi.Return) {
	key := host.Key{Kind: host.MigDevice, Device: gpu, Serial: 1}
	d := &Device{view: view{s, key}, Device: s.Devices[gpu].Device}
	if s.objects == nil {
		s.objects = map[host.Key]any{}
	}
	s.objects[key] = d
	return d.Handle()
}
