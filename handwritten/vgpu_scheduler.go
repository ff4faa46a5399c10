package handwritten

import (
	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// scheduled is how the time of an engine is shared between the vGPUs of a space.
type scheduled struct {
	policy, arrMode      uint32
	avgFactor, timeslice uint32
	adapts               bool
}

// schedule is how an engine's time is shared. Engines other than that for graphics know best effort alone. It answers
// NOT_SUPPORTED if the GPU has no scheduler, and INVALID_ARGUMENT for an engine that there is not.
func schedule(in change.VGPUSpace, engine uint32) (s scheduled, ret abi.Return) {
	graphics, known := change.VGPUEngines(engine)
	switch {
	case len(in.Device.VGPU.Scheduler.Supported) == 0:
		return s, abi.ERROR_NOT_SUPPORTED
	case !known:
		return s, abi.ERROR_INVALID_ARGUMENT
	case !graphics:
		return scheduled{policy: abi.VGPU_SCHEDULER_POLICY_BEST_EFFORT, arrMode: abi.VGPU_SCHEDULER_ARR_DISABLE}, abi.SUCCESS
	}
	now := in.Schedule()
	s = scheduled{
		policy: change.VGPUPolicies.Of(now.Policy.Value), arrMode: abi.VGPU_SCHEDULER_ARR_DISABLE,
		timeslice: now.TimesliceNS.Value, adapts: in.ARR(),
	}
	if s.adapts {
		s.arrMode, s.avgFactor = abi.VGPU_SCHEDULER_ARR_ENABLE, now.AvgFactor.Value
	}
	return s, abi.SUCCESS
}

// params are a schedule's numbers: in the mode of adaptive round robin two, else the timeslice alone.
func (s scheduled) params() abi.VgpuSchedulerParams_t {
	if s.adapts {
		return abi.VgpuSchedulerParams_t{s.avgFactor, s.timeslice}
	}
	return abi.VgpuSchedulerParams_t{s.timeslice, 0}
}

// DeviceGetVgpuSchedulerCapabilities is what the GPU's scheduler for vGPUs can do.
func DeviceGetVgpuSchedulerCapabilities(d *engine.Device, c *abi.VgpuSchedulerCapabilities_t) abi.Return {
	s := &d.VGPU.Scheduler
	if ret := host(d); ret != abi.SUCCESS || len(s.Supported) == 0 {
		return abi.ERROR_NOT_SUPPORTED
	}
	*c = abi.VgpuSchedulerCapabilities_t{
		MaxTimeslice: s.MaxTimesliceNS.Value, MinTimeslice: s.MinTimesliceNS.Value, IsArrModeSupported: bit(s.ARRSupported.Value),
		MaxFrequencyForARR: s.MaxFrequency.Value, MinFrequencyForARR: s.MinFrequency.Value,
		MaxAvgFactorForARR: s.MaxAvgFactor.Value, MinAvgFactorForARR: s.MinAvgFactor.Value,
	}
	for i, name := range s.Supported[:min(len(s.Supported), len(c.SupportedSchedulers))] {
		c.SupportedSchedulers[i] = change.VGPUPolicies.Of(name)
	}
	return abi.SUCCESS
}

// DeviceGetVgpuSchedulerState is how the GPU's time is shared between its vGPUs.
func DeviceGetVgpuSchedulerState(d *engine.Device, state *abi.VgpuSchedulerGetState_t) abi.Return {
	in, ret := onWhole(d)
	if ret != abi.SUCCESS {
		return ret
	}
	s, ret := schedule(in, abi.VGPU_SCHEDULER_ENGINE_TYPE_GRAPHICS)
	*state = abi.VgpuSchedulerGetState_t{SchedulerPolicy: s.policy, ArrMode: s.arrMode, SchedulerParams: s.params()}
	return ret
}

// DeviceGetVgpuSchedulerState_v2 is DeviceGetVgpuSchedulerState for one of the engines.
func DeviceGetVgpuSchedulerState_v2(d *engine.Device, state *abi.VgpuSchedulerStateInfo_v2_t) abi.Return {
	in, ret := onWhole(d)
	if ret != abi.SUCCESS {
		return ret
	}
	return fillState(in, state)
}

func fillState(in change.VGPUSpace, state *abi.VgpuSchedulerStateInfo_v2_t) abi.Return {
	s, ret := schedule(in, state.EngineId)
	state.SchedulerPolicy, state.AvgFactor, state.Timeslice = s.policy, s.avgFactor, s.timeslice
	return ret
}

// GpuInstanceGetVgpuSchedulerState is DeviceGetVgpuSchedulerState for a GPU instance.
func GpuInstanceGetVgpuSchedulerState(g *engine.GpuInstance, state *abi.VgpuSchedulerStateInfo_v1_t) abi.Return {
	in, ret := inInstance(g)
	if ret != abi.SUCCESS {
		return ret
	}
	s, ret := schedule(in, state.EngineId)
	state.SchedulerPolicy, state.ArrMode, state.SchedulerParams = s.policy, s.arrMode, s.params()
	return ret
}

// GpuInstanceGetVgpuSchedulerState_v2 is DeviceGetVgpuSchedulerState_v2 for a GPU instance.
func GpuInstanceGetVgpuSchedulerState_v2(g *engine.GpuInstance, state *abi.VgpuSchedulerStateInfo_v2_t) abi.Return {
	in, ret := inInstance(g)
	if ret != abi.SUCCESS {
		return ret
	}
	return fillState(in, state)
}

// told is what a caller wants of a scheduler. Two numbers are for timeslices that adapt, the first one else for those that
// do not.
func told(engine, policy, arrMode uint32, params abi.VgpuSchedulerSetParams_t) change.VGPUSchedule {
	want := change.VGPUSchedule{Engine: engine, Policy: policy, ARRMode: profiles.Some(arrMode)}
	if arrMode == abi.VGPU_SCHEDULER_ARR_ENABLE {
		want.AvgFactor, want.Frequency = params[0], params[1]
	} else {
		want.TimesliceNS = params[0]
	}
	return want
}

// DeviceSetVgpuSchedulerState decides how the GPU's time is shared; NOT_SUPPORTED while there is a vGPU.
func DeviceSetVgpuSchedulerState(d *engine.Device, s *abi.VgpuSchedulerSetState_t) abi.Return {
	want := told(abi.VGPU_SCHEDULER_ENGINE_TYPE_GRAPHICS, s.SchedulerPolicy, s.EnableARRMode, s.SchedulerParams)
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.VGPUScheduler(i, profiles.Opt[uint32]{}, want) })
}

// toldV2 is told for the younger struct, which leaves the mode of adaptive round robin as it is.
func toldV2(s *abi.VgpuSchedulerState_v2_t) change.VGPUSchedule {
	return change.VGPUSchedule{Engine: s.EngineId, Policy: s.SchedulerPolicy, AvgFactor: s.AvgFactor, Frequency: s.Frequency}
}

// DeviceSetVgpuSchedulerState_v2 is DeviceSetVgpuSchedulerState for one of the engines.
func DeviceSetVgpuSchedulerState_v2(d *engine.Device, s *abi.VgpuSchedulerState_v2_t) abi.Return {
	want := toldV2(s)
	return d.Change(func(t *change.Tx, i int) abi.Return { return t.VGPUScheduler(i, profiles.Opt[uint32]{}, want) })
}

// GpuInstanceSetVgpuSchedulerState is DeviceSetVgpuSchedulerState for a GPU instance.
func GpuInstanceSetVgpuSchedulerState(g *engine.GpuInstance, s *abi.VgpuSchedulerState_v1_t) abi.Return {
	id, want := profiles.Some(g.ID), told(s.EngineId, s.SchedulerPolicy, s.EnableARRMode, s.SchedulerParams)
	return g.Parent.Change(func(t *change.Tx, i int) abi.Return { return t.VGPUScheduler(i, id, want) })
}

// GpuInstanceSetVgpuSchedulerState_v2 is DeviceSetVgpuSchedulerState_v2 for a GPU instance.
func GpuInstanceSetVgpuSchedulerState_v2(g *engine.GpuInstance, s *abi.VgpuSchedulerState_v2_t) abi.Return {
	id, want := profiles.Some(g.ID), toldV2(s)
	return g.Parent.Change(func(t *change.Tx, i int) abi.Return { return t.VGPUScheduler(i, id, want) })
}

// logged is how many turns of vGPUs a log holds.
const logged = 200

// turns are the newest turns of a space's vGPUs on an engine, oldest first. vGPUs that are not idle take turns of a timeslice
// each, and leave the part of theirs that they do not need, which follows from their load. Times are in ns: those of turns
// since 1970.
func turns(in change.VGPUSpace, s scheduled, now, origin uint64) (list []abi.VgpuSchedulerLogEntry_v2_t) {
	type runs struct {
		list uint32
		load uint64
	}
	var busy []runs
	for i, v := range in.Instances() {
		if load := v.Utilization.SM.Value; load > 0 {
			busy = append(busy, runs{uint32(i), uint64(load)})
		}
	}
	n, slice := uint64(len(busy)), uint64(s.timeslice)
	if slice == 0 || n == 0 || now <= origin {
		return nil
	}
	done := (now - origin) / slice
	for turn := less(done, logged); turn < done; turn++ {
		who, rounds := busy[turn%n], turn/n+1
		run := min(slice*n*who.load/100, slice)
		list = append(list, abi.VgpuSchedulerLogEntry_v2_t{
			Timestamp: origin + (turn+1)*slice, TimeRunTotal: rounds * run, TimeRun: run, SwRunlistId: who.list,
			TargetTimeSlice: slice, CumulativePreemptionTime: rounds * (slice*n - run), Weight: 1,
		})
	}
	return list
}

// log is the log of an engine. Only that for graphics has one.
func log(in change.VGPUSpace, of *engine.Device, s scheduled) []abi.VgpuSchedulerLogEntry_v2_t {
	now := of.Snapshot()
	return turns(in, s, uint64(now.Now().UnixNano()), uint64(now.Origin().UnixNano()))
}

// without are entries without the weight that the younger struct has.
func without(list []abi.VgpuSchedulerLogEntry_v2_t) (entries [logged]abi.VgpuSchedulerLogEntry_t) {
	for i, e := range list {
		entries[i] = abi.VgpuSchedulerLogEntry_t{
			Timestamp: e.Timestamp, TimeRunTotal: e.TimeRunTotal, TimeRun: e.TimeRun, SwRunlistId: e.SwRunlistId,
			TargetTimeSlice: e.TargetTimeSlice, CumulativePreemptionTime: e.CumulativePreemptionTime,
		}
	}
	return entries
}

// DeviceGetVgpuSchedulerLog is the log of the GPU's scheduler for graphics.
func DeviceGetVgpuSchedulerLog(d *engine.Device, l *abi.VgpuSchedulerLog_t) abi.Return {
	in, ret := onWhole(d)
	if ret != abi.SUCCESS {
		return ret
	}
	s, ret := schedule(in, abi.VGPU_SCHEDULER_ENGINE_TYPE_GRAPHICS)
	if ret != abi.SUCCESS {
		return ret
	}
	list := log(in, d, s)
	*l = abi.VgpuSchedulerLog_t{
		EngineId: abi.VGPU_SCHEDULER_ENGINE_TYPE_GRAPHICS, SchedulerPolicy: s.policy, ArrMode: s.arrMode, SchedulerParams: s.params(),
		EntriesCount: uint32(len(list)), LogEntries: without(list),
	}
	return abi.SUCCESS
}

// DeviceGetVgpuSchedulerLog_v2 is the log of one of the GPU's engines.
func DeviceGetVgpuSchedulerLog_v2(d *engine.Device, l *abi.VgpuSchedulerLogInfo_v2_t) abi.Return {
	in, ret := onWhole(d)
	if ret != abi.SUCCESS {
		return ret
	}
	return fillLog(in, d, l)
}

func fillLog(in change.VGPUSpace, of *engine.Device, l *abi.VgpuSchedulerLogInfo_v2_t) abi.Return {
	s, ret := schedule(in, l.EngineId)
	if ret != abi.SUCCESS {
		return ret
	}
	l.SchedulerPolicy, l.AvgFactor, l.Timeslice = s.policy, s.avgFactor, s.timeslice
	l.EntriesCount = uint32(copy(l.LogEntries[:], log(in, of, s)))
	return abi.SUCCESS
}

// GpuInstanceGetVgpuSchedulerLog is the log of one of a GPU instance's engines.
func GpuInstanceGetVgpuSchedulerLog(g *engine.GpuInstance, l *abi.VgpuSchedulerLogInfo_v1_t) abi.Return {
	in, ret := inInstance(g)
	if ret != abi.SUCCESS {
		return ret
	}
	s, ret := schedule(in, l.EngineId)
	if ret != abi.SUCCESS {
		return ret
	}
	list := log(in, g.Parent, s)
	l.SchedulerPolicy, l.ArrMode, l.SchedulerParams = s.policy, s.arrMode, s.params()
	l.EntriesCount, l.LogEntries = uint32(len(list)), without(list)
	return abi.SUCCESS
}

// GpuInstanceGetVgpuSchedulerLog_v2 is GpuInstanceGetVgpuSchedulerLog with weights.
func GpuInstanceGetVgpuSchedulerLog_v2(g *engine.GpuInstance, l *abi.VgpuSchedulerLogInfo_v2_t) abi.Return {
	in, ret := inInstance(g)
	if ret != abi.SUCCESS {
		return ret
	}
	return fillLog(in, g.Parent, l)
}
