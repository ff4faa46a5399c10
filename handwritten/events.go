package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// EventSetCreate makes an empty set of events; MEMORY if there are no handles left.
func EventSetCreate(s *engine.Snapshot) (*engine.EventSet, abi.Return) { return s.NewEventSet() }

// EventSetFree makes the set's handle stale.
func EventSetFree(set *engine.EventSet) abi.Return {
	set.Free()
	return abi.SUCCESS
}
