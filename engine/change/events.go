package change

import (
	"fmt"
	"strings"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// EventTypes are the events that GPUs can send, by the names that people use.
var EventTypes = []struct {
	Name string
	Type uint64
}{
	{"ecc-single-bit", abi.EventTypeSingleBitEccError},
	{"ecc-double-bit", abi.EventTypeDoubleBitEccError},
	{"pstate", abi.EventTypePState},
	{"xid", abi.EventTypeXidCriticalError},
	{"clock", abi.EventTypeClock},
	{"power-source", abi.EventTypePowerSourceChange},
	{"mig-config", abi.EventMigConfigChange},
	{"ecc-single-bit-storm", abi.EventTypeSingleBitEccErrorStorm},
	{"dram-retirement", abi.EventTypeDramRetirementEvent},
	{"dram-retirement-failure", abi.EventTypeDramRetirementFailure},
	{"non-fatal-poison", abi.EventTypeNonFatalPoisonError},
	{"fatal-poison", abi.EventTypeFatalPoisonError},
	{"gpu-unavailable", abi.EventTypeGpuUnavailableError},
	{"recovery-action", abi.EventTypeGpuRecoveryAction},
}

// EventType is the type of that name. The error names the nearest one.
func EventType(name string) (uint64, error) {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	var names []string
	for _, t := range EventTypes {
		if t.Name == name {
			return t.Type, nil
		}
		names = append(names, t.Name)
	}
	if near := profiles.Nearest(name, names); near != "" {
		return 0, fmt.Errorf("unknown event %.60q: did you mean %q?", name, near)
	}
	return 0, fmt.Errorf("unknown event %.60q: want one of %s", name, strings.Join(names, ", "))
}

// EventName is the name of an event's type.
func EventName(e state.Event) string {
	if e.Device == "" {
		switch e.Type {
		case abi.SystemEventTypeGpuDriverBind:
			return "driver-bind"
		case abi.SystemEventTypeGpuDriverUnbind:
			return "driver-unbind"
		}
	}
	for _, t := range EventTypes {
		if t.Type == e.Type {
			return t.Name
		}
	}
	return fmt.Sprintf("%#x", e.Type)
}
