package vgpuctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// ABIVersion is the version of the interface in this package. A newer kernel has a greater version and the same meaning
// for everything here.
const ABIVersion = 1

// The requests of the device, as on amd64 and arm64.
const (
	IoctlGetInfo           = 0x80507640
	IoctlSetMode           = 0x40047641
	IoctlGetStats          = 0x80c07642
	IoctlGetUsage          = 0xc0507643
	IoctlSetPolicy         = 0x40287648
	IoctlGetPolicy         = 0xc0287649
	IoctlClearPolicy       = 0x4028764a
	IoctlSetCgroupPolicy   = 0x4030764c
	IoctlGetCgroupPolicy   = 0xc030764d
	IoctlClearCgroupPolicy = 0x4030764e
)

// Minor is the N of /dev/nvidiaN, or MinorAny.
type Minor uint32

// MinorAny means every GPU that has no policy of its own in the same scope. For usage it means all GPUs together, and
// in an event an unknown GPU.
const MinorAny Minor = 0xffffffff

// MinorMax is the greatest minor number of a GPU.
const MinorMax Minor = 247

// String is the number or "any".
func (m Minor) String() string {
	if m == MinorAny {
		return "any"
	}
	return strconv.FormatUint(uint64(m), 10)
}

// MarshalJSON is the number or "any".
func (m Minor) MarshalJSON() ([]byte, error) {
	if m == MinorAny {
		return []byte(`"any"`), nil
	}
	return []byte(m.String()), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (m *Minor) UnmarshalJSON(text []byte) error {
	if string(text) == `"any"` {
		*m = MinorAny
		return nil
	}
	n, err := strconv.ParseUint(string(text), 10, 32)
	if err != nil || Minor(n) > MinorMax {
		return fmt.Errorf("%s is no minor: want 0 to %d or \"any\"", text, MinorMax)
	}
	*m = Minor(n)
	return nil
}

// WeightMax is the greatest weight.
const WeightMax = 10000

// LimitFlags are switches of a policy.
type LimitFlags uint32

// LimitDryRun reports what the policy would do and does nothing, even while the module enforces.
const LimitDryRun LimitFlags = 1 << 0

// Limits are the content of a policy.
type Limits struct {
	MemoryLimitBytes uint64     `json:"memory_limit_bytes"` // device memory; 0: no limit
	TimesliceMinUs   uint64     `json:"timeslice_min_us"`   // 0: the module's timeslice_min_us
	TimesliceMaxUs   uint64     `json:"timeslice_max_us"`   // 0: the module's timeslice_max_us
	Weight           uint32     `json:"weight"`             // timeslices are multiplied by it, up to WeightMax; 0: they are only clamped
	Flags            LimitFlags `json:"flags"`
}

// Policy is the argument of SET_POLICY, GET_POLICY and CLEAR_POLICY.
type Policy struct {
	Tgid   uint32 `json:"tgid"`
	Minor  Minor  `json:"minor"`
	Limits Limits `json:"limits"`
}

// CgroupPolicy is the argument of SET_CGROUP_POLICY, GET_CGROUP_POLICY and CLEAR_CGROUP_POLICY.
type CgroupPolicy struct {
	CgroupID uint64 `json:"cgroup_id"`
	Minor    Minor  `json:"minor"`
	Reserved uint32 `json:"-"`
	Limits   Limits `json:"limits"`
}

// Mode says what the module does about the calls that it sees.
type Mode uint32

// The modes.
const (
	ModeOff     Mode = 0 // nothing is traced, accounted or changed
	ModeDryRun  Mode = 1 // everything is accounted and reported, nothing is changed
	ModeEnforce Mode = 2 // limits hold
)

// Info is the state of the module.
type Info struct {
	ABIVersion    uint32 `json:"abi_version"`
	Mode          Mode   `json:"mode"`
	MayEnforce    uint32 `json:"may_enforce"` // 1 if ModeEnforce may be set
	Hooked        uint32 `json:"hooked"`      // 1 while a driver is there and hooked
	Driver        Text32 `json:"driver"`      // "nvidia", "fakegpu" or ""
	DriverVersion Text32 `json:"driver_version"`
}

// Stats are counts since the module was loaded; the last five are present numbers.
type Stats struct {
	Opens                  uint64 `json:"opens"`
	Closes                 uint64 `json:"closes"`
	Ioctls                 uint64 `json:"ioctls"`
	Allocs                 uint64 `json:"allocs"` // of resource manager objects, also failed ones; as the next three
	Frees                  uint64 `json:"frees"`
	Controls               uint64 `json:"controls"`
	Dups                   uint64 `json:"dups"`
	MemoryCharged          uint64 `json:"memory_charged"`
	MemoryDenied           uint64 `json:"memory_denied"`
	MemoryWouldDeny        uint64 `json:"memory_would_deny"`
	TimeslicesSeen         uint64 `json:"timeslices_seen"`
	TimeslicesRewritten    uint64 `json:"timeslices_rewritten"`
	TimeslicesWouldRewrite uint64 `json:"timeslices_would_rewrite"`
	XferUnwrapped          uint64 `json:"xfer_unwrapped"`
	CompatCalls            uint64 `json:"compat_calls"`
	Races                  uint64 `json:"races"`  // an argument had been changed by another thread when the driver came back
	Faults                 uint64 `json:"faults"` // an argument could not be read
	Events                 uint64 `json:"events"`
	EventsLost             uint64 `json:"events_lost"`
	Objects                uint64 `json:"objects"`
	Tasks                  uint64 `json:"tasks"`
	Cgroups                uint64 `json:"cgroups"`
	Policies               uint64 `json:"policies"`
	CgroupPolicies         uint64 `json:"cgroup_policies"`
}

// Usage is what a process, or a cgroup and those below it, uses of device memory now, with its peak and counts.
type Usage struct {
	CgroupID        uint64 `json:"cgroup_id"` // 0 for a process
	Tgid            uint32 `json:"tgid"`      // 0 for a cgroup
	Minor           Minor  `json:"minor"`
	DeviceBytes     uint64 `json:"device_bytes"`  // counts against the limit
	SystemBytes     uint64 `json:"system_bytes"`  // of the host's memory
	VirtualBytes    uint64 `json:"virtual_bytes"` // address ranges
	PeakDeviceBytes uint64 `json:"peak_device_bytes"`
	Allocations     uint64 `json:"allocations"`
	Denied          uint64 `json:"denied"`       // allocations refused, or that would have been
	Timeslices      uint64 `json:"timeslices"`   // timeslices set
	TimesliceUs     uint64 `json:"timeslice_us"` // the last one, as the driver got it
}

// EventType is the kind of an event.
type EventType uint32

// The types of events, with the meaning of Value and Detail.
const (
	EventOpen       EventType = 1
	EventClose      EventType = 2
	EventAlloc      EventType = 3 // value: bytes of memory, 0 for another object
	EventFree       EventType = 4 // value: bytes given back
	EventDup        EventType = 5
	EventControl    EventType = 6
	EventDeny       EventType = 7  // value: bytes asked for, detail: the limit
	EventTimeslice  EventType = 8  // value: microseconds asked for, detail: microseconds that the driver got or would have got
	EventExit       EventType = 9  // value: bytes that the process still held
	EventRace       EventType = 10 // value: what was checked, detail: what was there afterwards
	EventCgroupGone EventType = 11
)

// Scope is the level of the policy that decided.
type Scope uint32

// The scopes.
const (
	ScopeNone   Scope = 0
	ScopeCgroup Scope = 1
	ScopeTgid   Scope = 2
	ScopeModule Scope = 3 // the module's parameters
)

// EventFlags are further properties of an event.
type EventFlags uint32

// The flags of events.
const (
	EventDryRun EventFlags = 1 << 0 // nothing was changed
	EventXfer   EventFlags = 1 << 1 // the call came wrapped
	EventCompat EventFlags = 1 << 2 // from a 32-bit program
)

// Event is something that the module saw or did.
type Event struct {
	Sequence uint64     `json:"sequence"` // grows by one each time
	TimeNs   uint64     `json:"time_ns"`  // CLOCK_BOOTTIME
	Type     EventType  `json:"type"`
	Flags    EventFlags `json:"flags"`
	Tgid     uint32     `json:"tgid"` // in the initial PID namespace, as is Tid
	Tid      uint32     `json:"tid"`
	CgroupID uint64     `json:"cgroup_id"`
	Minor    Minor      `json:"minor"`
	Scope    Scope      `json:"scope"` // of the policy that decided
	Value    uint64     `json:"value"`
	Detail   uint64     `json:"detail"`
	Client   uint32     `json:"client"` // handles of the resource manager
	Object   uint32     `json:"object"`
	Code     uint32     `json:"code"`   // class of an object, command of a control, number of another ioctl
	Status   uint32     `json:"status"` // what the driver or the module answered
	Comm     Text16     `json:"comm"`
}

// Text32 and Text16 are texts that end at the first NUL.
type (
	Text32 [32]byte
	Text16 [16]byte
)

func (t Text32) String() string { return text(t[:]) }
func (t Text16) String() string { return text(t[:]) }

// MarshalText returns the text, for JSON.
func (t Text32) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// MarshalText returns the text, for JSON.
func (t Text16) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}

var (
	modeNames  = []string{"off", "dry-run", "enforce"}
	scopeNames = []string{"none", "cgroup", "tgid", "module"}
	eventNames = []string{"", "open", "close", "alloc", "free", "dup", "control", "deny", "timeslice", "exit", "race", "cgroup-gone"}
)

// name is the name of a number, or the number itself if a newer kernel has it.
func name(names []string, n uint32) string {
	if uint64(n) < uint64(len(names)) && names[n] != "" {
		return names[n]
	}
	return strconv.FormatUint(uint64(n), 10)
}

func number(what string, names []string, s string) (uint32, error) {
	for n, name := range names {
		if name == s && s != "" {
			return uint32(n), nil
		}
	}
	known := names
	if known[0] == "" {
		known = known[1:]
	}
	return 0, fmt.Errorf("%q is no %s: want one of %q", s, what, known)
}

func (m Mode) String() string      { return name(modeNames, uint32(m)) }
func (s Scope) String() string     { return name(scopeNames, uint32(s)) }
func (t EventType) String() string { return name(eventNames, uint32(t)) }

// MarshalText returns the name, for JSON.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// MarshalText returns the name, for JSON.
func (s Scope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalText returns the name, for JSON.
func (t EventType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// ParseMode reads "off", "dry-run" or "enforce".
func ParseMode(s string) (Mode, error) {
	n, err := number("mode", modeNames, s)
	return Mode(n), err
}

// ParseEventType reads the name of a type, as String writes it.
func ParseEventType(s string) (EventType, error) {
	n, err := number("type of events", eventNames, s)
	return EventType(n), err
}

// Names are the names of the flags that are set; a flag without a name is written as its value.
func (f LimitFlags) Names() []string { return flagNames(uint32(f), []string{"dry-run"}) }

// Names are the names of the flags that are set; a flag without a name is written as its value.
func (f EventFlags) Names() []string {
	return flagNames(uint32(f), []string{"dry-run", "xfer", "compat"})
}

// MarshalJSON writes a list of names.
func (f LimitFlags) MarshalJSON() ([]byte, error) { return json.Marshal(f.Names()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (f *LimitFlags) UnmarshalJSON(text []byte) error {
	var names []string
	if err := json.Unmarshal(text, &names); err != nil {
		return err
	}
	*f = 0
	for _, name := range names {
		if name != "dry-run" {
			return fmt.Errorf("%q is no flag of limits: want \"dry-run\"", name)
		}
		*f |= LimitDryRun
	}
	return nil
}

// MarshalJSON writes a list of names.
func (f EventFlags) MarshalJSON() ([]byte, error) { return json.Marshal(f.Names()) }

func flagNames(flags uint32, names []string) []string {
	set := []string{}
	for bit := range 32 {
		switch {
		case flags&(1<<bit) == 0:
		case bit < len(names):
			set = append(set, names[bit])
		default:
			set = append(set, fmt.Sprintf("%#x", uint32(1)<<bit))
		}
	}
	return set
}
