package change

import (
	"fmt"
	"math"
	"strings"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// EventKind is a kind of event.
type EventKind struct {
	// Name is what people call it.
	Name string
	// Type is its number: among the events of GPUs or, if System is true, among the system events.
	Type   uint64
	System bool
}

// EventKinds are all kinds of events. Two are system events: the driver takes a GPU, or lets it go.
var EventKinds = []EventKind{
	{Name: "ecc-single-bit", Type: abi.EventTypeSingleBitEccError},
	{Name: "ecc-double-bit", Type: abi.EventTypeDoubleBitEccError},
	{Name: "pstate", Type: abi.EventTypePState},
	{Name: "xid", Type: abi.EventTypeXidCriticalError},
	{Name: "clock", Type: abi.EventTypeClock},
	{Name: "power-source", Type: abi.EventTypePowerSourceChange},
	{Name: "mig-config", Type: abi.EventMigConfigChange},
	{Name: "ecc-single-bit-storm", Type: abi.EventTypeSingleBitEccErrorStorm},
	{Name: "dram-retirement", Type: abi.EventTypeDramRetirementEvent},
	{Name: "dram-retirement-failure", Type: abi.EventTypeDramRetirementFailure},
	{Name: "non-fatal-poison", Type: abi.EventTypeNonFatalPoisonError},
	{Name: "fatal-poison", Type: abi.EventTypeFatalPoisonError},
	{Name: "gpu-unavailable", Type: abi.EventTypeGpuUnavailableError},
	{Name: "recovery-action", Type: abi.EventTypeGpuRecoveryAction},
	{Name: "driver-unbind", Type: abi.SystemEventTypeGpuDriverUnbind, System: true},
	{Name: "driver-bind", Type: abi.SystemEventTypeGpuDriverBind, System: true},
}

// EventKindOf is the kind of that name. The error names the nearest one.
func EventKindOf(name string) (EventKind, error) {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	var names []string
	for _, k := range EventKinds {
		if k.Name == name {
			return k, nil
		}
		names = append(names, k.Name)
	}
	if near := profiles.Nearest(name, names); near != "" {
		return EventKind{}, fmt.Errorf("unknown event %.60q: did you mean %q?", name, near)
	}
	return EventKind{}, fmt.Errorf("unknown event %.60q: want one of %s", name, strings.Join(names, ", "))
}

// Check returns an error if events of the kind cannot have the data; nil stands for none.
func (k EventKind) Check(data *uint64) error {
	switch isXid := !k.System && k.Type == abi.EventTypeXidCriticalError; {
	case isXid && data == nil:
		return fmt.Errorf("xid wants the number of an Xid error, such as xid 79")
	case isXid:
		return CheckXid(*data)
	case k.System && data != nil:
		return fmt.Errorf("%s has no data: leave out the number", k.Name)
	}
	return nil
}

// CheckXid returns an error for a number that no Xid error can have.
func CheckXid(n uint64) error {
	if n == 0 || n > math.MaxUint32 {
		return fmt.Errorf("there is no Xid %d: want a number from 1 to %d", n, uint32(math.MaxUint32))
	}
	return nil
}

// Send sends an event of a GPU, or the system event about it.
func (t *Tx) Send(i int, k EventKind, data uint64) {
	if k.System {
		t.DriverBound(i, k.Type == abi.SystemEventTypeGpuDriverBind)
		return
	}
	t.Event(i, k.Type, data)
}

// EventName is the name of an event's kind.
func EventName(e state.Event) string {
	for _, k := range EventKinds {
		if k.Type == e.Type && k.System == (e.Device == "") {
			return k.Name
		}
	}
	return fmt.Sprintf("%#x", e.Type)
}
