package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// DeviceGetSupportedEventTypes says which events the GPU reports: none if its profile says that events are not supported,
// else those that the board can have and the driver knows.
func DeviceGetSupportedEventTypes(d *engine.Device) (uint64, abi.Return) {
	if !d.Events.Supported.Or(true) {
		return 0, abi.SUCCESS
	}
	types := uint64(abi.EventTypeXidCriticalError | abi.EventTypeClock | abi.EventTypePowerSourceChange | abi.EventTypeGpuUnavailableError)
	if d.PerformanceState.Valid {
		types |= abi.EventTypePState
	}
	if d.ECC.ModeCurrent.Valid {
		types |= abi.EventTypeSingleBitEccError | abi.EventTypeDoubleBitEccError | abi.EventTypeSingleBitEccErrorStorm |
			abi.EventTypeDramRetirementEvent | abi.EventTypeDramRetirementFailure | abi.EventTypeNonFatalPoisonError | abi.EventTypeFatalPoisonError
	}
	if d.MIG.ModeCurrent.Valid {
		types |= abi.EventMigConfigChange
	}
	if d.RecoveryAction.Valid {
		types |= abi.EventTypeGpuRecoveryAction
	}
	return types & knownEvents(d.Snapshot().Engine().Level()), abi.SUCCESS
}

// knownEvents are the event types of the nvml.h of a version.
func knownEvents(level int) uint64 {
	known := uint64(abi.EventTypeAll)
	if level < 12006000 {
		known &^= abi.EventTypeSingleBitEccErrorStorm | abi.EventTypeDramRetirementEvent | abi.EventTypeDramRetirementFailure |
			abi.EventTypeNonFatalPoisonError | abi.EventTypeFatalPoisonError
	}
	if level < 12008000 {
		known &^= abi.EventTypeGpuUnavailableError | abi.EventTypeGpuRecoveryAction
	}
	return known
}

// DeviceRegisterEvents adds events of the GPU to a set, from now on. If one of them is not supported, none is added.
func DeviceRegisterEvents(d *engine.Device, types uint64, set *engine.EventSet) abi.Return {
	supported, ret := DeviceGetSupportedEventTypes(d)
	switch {
	case ret != abi.SUCCESS:
		return ret
	case types&^abi.EventTypeAll != 0:
		return abi.ERROR_INVALID_ARGUMENT
	case supported == 0 || types&^supported != 0:
		return abi.ERROR_NOT_SUPPORTED
	}
	return set.Register(d, types)
}

// EventSetCreate makes an empty set of events; MEMORY if there are no handles left.
func EventSetCreate(s *engine.Snapshot) (*engine.EventSet, abi.Return) { return s.NewEventSet() }

// EventSetFree makes the set's handle stale.
func EventSetFree(set *engine.EventSet) abi.Return {
	set.Free()
	return abi.SUCCESS
}

// EventSetWait is the next event of the set; TIMEOUT if there is none yet, upon which the front waits and asks again. The
// loss of a GPU is an event like any other and no error.
//
//nvml:symbol nvmlEventSetWait nvmlEventSetWait_v2
func EventSetWait(set *engine.EventSet, data *abi.EventData_t, _ uint32) abi.Return {
	e, ret := set.Next()
	if ret != abi.SUCCESS {
		return ret
	}
	handle, ret := e.Device.Handle()
	if ret != abi.SUCCESS {
		return ret
	}
	*data = abi.EventData_t{Device: abi.Device_t(handle), EventType: e.Type, EventData: xid(e.Event)}
	data.GpuInstanceId, data.ComputeInstanceId = instances(e.Event)
	return abi.SUCCESS
}

// EventSetWait_v3 is EventSetWait in the form of structured events, of which these boards have none.
func EventSetWait_v3(set *engine.EventSet, data *abi.EventSetWait_v3_t) abi.Return {
	e, ret := set.Next()
	if ret != abi.SUCCESS {
		return ret
	}
	*data = abi.EventSetWait_v3_t{
		TimeoutMs: data.TimeoutMs, DataType: uint32(abi.EVENT_DATA_TYPE_NVML_EVENT),
		EventType: e.Type, EventData: xid(e.Event), TimestampUsec: uint64(e.Time) * 1000,
	}
	copy(data.Uuid[:], e.Device.UUID)
	data.GpuInstanceId, data.ComputeInstanceId = instances(e.Event)
	return abi.SUCCESS
}

// xid is the number of an Xid, 0 for other events.
func xid(e state.Event) uint64 {
	if e.Type != abi.EventTypeXidCriticalError {
		return 0
	}
	return e.Data
}

// instances are the GPU instance and the compute instance that an event happened to; 0xffffffff for the whole GPU.
func instances(e state.Event) (gpu, compute uint32) {
	const whole = 0xffffffff
	gpu, compute = whole, whole
	if e.Instance != nil {
		gpu = *e.Instance
	}
	if e.Part != nil {
		compute = *e.Part
	}
	return gpu, compute
}

// SystemEventSetCreate makes an empty set of system events.
func SystemEventSetCreate(s *engine.Snapshot, request *abi.SystemEventSetCreateRequest_v1_t) abi.Return {
	set, ret := s.NewSystemEventSet()
	if ret != abi.SUCCESS {
		return ret
	}
	handle, ret := set.Handle()
	request.Set = abi.SystemEventSet_t(handle)
	return ret
}

// SystemEventSetFree makes the set's handle stale.
func SystemEventSetFree(s *engine.Snapshot, request *abi.SystemEventSetFreeRequest_v1_t) abi.Return {
	set, ret := s.SystemEventSet(uintptr(request.Set), 0)
	if ret != abi.SUCCESS {
		return ret
	}
	set.Free()
	return abi.SUCCESS
}

// SystemRegisterEvents adds system events to a set, from now on.
func SystemRegisterEvents(s *engine.Snapshot, request *abi.SystemRegisterEventRequest_v1_t) abi.Return {
	const all = abi.SystemEventTypeGpuDriverUnbind | abi.SystemEventTypeGpuDriverBind
	set, ret := s.SystemEventSet(uintptr(request.Set), 0)
	switch {
	case ret != abi.SUCCESS:
		return ret
	case request.EventTypes&^all != 0:
		return abi.ERROR_INVALID_ARGUMENT
	}
	return set.Register(request.EventTypes)
}

// SystemEventSetWait are the set's next events, as many as the caller has room for; TIMEOUT if there is none yet, upon
// which the front waits and asks again.
func SystemEventSetWait(s *engine.Snapshot, request *abi.SystemEventSetWaitRequest_v1_t) ([]abi.SystemEventData_v1_t, abi.Return) {
	if request.Data == nil || request.DataSize == 0 {
		return nil, abi.ERROR_INVALID_ARGUMENT
	}
	set, ret := s.SystemEventSet(uintptr(request.Set), 0)
	if ret != abi.SUCCESS {
		return nil, ret
	}
	var list []abi.SystemEventData_v1_t
	for uint64(len(list)) < uint64(request.DataSize) {
		e, ret := set.Next()
		if ret != abi.SUCCESS {
			if len(list) == 0 {
				return nil, ret
			}
			break
		}
		list = append(list, abi.SystemEventData_v1_t{EventType: e.Type, GpuId: uint32(e.Data)})
	}
	request.NumEvent = uint32(len(list))
	return list, abi.SUCCESS
}
