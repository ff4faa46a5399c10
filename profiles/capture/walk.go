package capture

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles/capture/calls"
)

// Walk is what all functions of a library answered.
type Walk struct {
	Answers []*Answer // in the order of the calls
	Missing []string  // functions that the library does not have
	GPUs    int

	byKey map[string]*Answer
}

// find is the answer to a call, nil if it was not made.
func (w *Walk) find(function, object, args string) *Answer {
	return w.byKey[key(function, object, args)]
}

// StartError says that the library does not start.
type StartError struct {
	Function string
	Return   abi.Return
}

func (e *StartError) Error() string { return e.Function + " answers " + ReturnName(e.Return) }

// ReturnName is the name of a return code, without the prefix.
func ReturnName(ret abi.Return) string {
	if name := abi.ReturnName(ret); name != "" {
		return strings.TrimPrefix(strings.TrimPrefix(name, "NVML_"), "ERROR_")
	}
	return fmt.Sprintf("the error %d", ret)
}

// left are the functions that read and are not called, with the reason.
var left = map[string]string{
	"nvmlDeviceGetHandleByIndex":                            "finds a GPU; the newer version does for the walk",
	"nvmlDeviceGetHandleByIndex_v2":                         "finds the GPUs for the walk",
	"nvmlDeviceGetHandleByPciBusId":                         "finds a GPU",
	"nvmlDeviceGetHandleByPciBusId_v2":                      "finds a GPU",
	"nvmlDeviceGetHandleBySerial":                           "finds a GPU",
	"nvmlDeviceGetHandleByUUID":                             "finds a GPU",
	"nvmlDeviceGetHandleByUUIDV":                            "finds a GPU",
	"nvmlUnitGetHandleByIndex":                              "finds the units for the walk",
	"nvmlDeviceGetConfComputeGpuAttestationReport":          "signs a number of the caller's",
	"nvmlSystemGetCPER_v1":                                  "takes records out of the driver's list",
	"nvmlGetVgpuCompatibility":                              "compares structs of the caller's",
	"nvmlEventSetGetContextCount_v1":                        "is about an event",
	"nvmlEventSetGetContextData_v1":                         "is about an event",
	"nvmlEventSetGetContextInfo_v1":                         "is about an event",
	"nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1": "is about an event",
}

// object is something that functions are about.
type object struct {
	kind   string // the type of the handle or number
	name   string
	word   uint64
	gpu    int // the index of its GPU
	values map[string][]uint64
}

// walker makes a walk.
type walker struct {
	decoder
	caller    Caller
	skip      map[string]bool
	functions map[string]*calls.Function
	walk      *Walk
	gpus      []*object
	missing   map[string]bool
}

// Run walks through a library. It starts the library and stops it again. The functions named by skip are not called.
func Run(c Caller, skip map[string]bool) (*Walk, error) {
	table, err := calls.Read()
	if err != nil {
		return nil, err
	}
	w := &walker{
		decoder: decoder{table: table, types: map[string]*calls.Type{}, handles: map[uint64]string{}},
		caller:  c, skip: skip, functions: map[string]*calls.Function{}, missing: map[string]bool{},
		walk: &Walk{byKey: map[string]*Answer{}},
	}
	for i := range table.Types {
		w.types[table.Types[i].Name] = &table.Types[i]
	}
	for i := range table.Functions {
		w.functions[table.Functions[i].Name] = &table.Functions[i]
	}
	if err := w.start(); err != nil {
		return nil, err
	}
	if err := w.everything(); err != nil {
		return nil, err
	}
	if _, err := w.call(Question{Function: "nvmlShutdown"}); err != nil {
		return nil, err
	}
	w.walk.Missing = slices.Sorted(maps.Keys(w.missing))
	return w.walk, nil
}

// call makes a call, unless the function does more than to read.
func (w *walker) call(q Question) (Reply, error) {
	name := q.Function
	if name == "" {
		name = fmt.Sprintf("nvmlInternalSlot%d", q.Slot)
	}
	if f := w.functions[name]; f != nil && f.Reads || slices.Contains(lifecycle, name) {
		return w.caller.Call(q)
	}
	return Reply{}, fmt.Errorf("%s is not a function that only reads", name)
}

// lifecycle are the functions that start and stop the library.
var lifecycle = []string{"nvmlInit_v2", "nvmlInit", "nvmlShutdown"}

func (w *walker) start() error {
	for _, name := range []string{"nvmlInit_v2", "nvmlInit"} {
		reply, err := w.call(Question{Function: name})
		switch {
		case err != nil:
			return err
		case reply.Missing:
			w.missing[name] = true
		case reply.Return != int32(abi.SUCCESS):
			return &StartError{name, abi.Return(reply.Return)}
		default:
			return nil
		}
	}
	return &StartError{"nvmlInit", abi.ERROR_FUNCTION_NOT_FOUND}
}

// everything asks every function about every object.
func (w *walker) everything() error {
	if err := w.findGPUs(); err != nil {
		return err
	}
	for _, gpu := range w.gpus {
		if err := w.explore(gpu); err != nil {
			return err
		}
	}
	if err := w.about(&object{gpu: -1}); err != nil {
		return err
	}
	var vgpuTypes []uint64
	for _, gpu := range w.gpus {
		if err := w.about(gpu); err != nil {
			return err
		}
		if err := w.ofGPU(gpu); err != nil {
			return err
		}
		vgpuTypes = append(vgpuTypes, gpu.values["vgpuTypeId"]...)
	}
	slices.Sort(vgpuTypes)
	for _, id := range slices.Compact(vgpuTypes) {
		if err := w.about(&object{kind: "nvmlVgpuTypeId_t", name: fmt.Sprintf("vGPU type %d", id), word: id, gpu: -1}); err != nil {
			return err
		}
	}
	return w.units()
}

// findGPUs finds the GPUs. All handles are known before the first answer that may have some.
func (w *walker) findGPUs() error {
	count, err := w.ask("nvmlDeviceGetCount_v2", &object{}, nil)
	if err != nil {
		return err
	}
	if !count.OK() {
		if count, err = w.ask("nvmlDeviceGetCount", &object{}, nil); err != nil {
			return err
		}
	}
	n, _ := count.number("deviceCount")
	for i := range n {
		for _, name := range []string{"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"} {
			handle, err := w.handle(name, Word{Value: i})
			if err != nil {
				return err
			}
			if handle != 0 {
				gpu := &object{kind: "nvmlDevice_t", name: fmt.Sprintf("GPU %d", i), word: handle, gpu: int(i)}
				w.handles[handle] = gpu.name
				w.gpus = append(w.gpus, gpu)
				break
			}
		}
	}
	w.walk.GPUs = len(w.gpus)
	return nil
}

// handle calls a function that finds an object; the handle is 0 if it finds none.
func (w *walker) handle(function string, words ...Word) (uint64, error) {
	if w.skip[function] {
		return 0, nil
	}
	reply, err := w.call(Question{Function: function, Words: append(words, Word{Buffer: true}), Buffers: []Buffer{{Size: 8}}})
	if err != nil {
		return 0, err
	}
	if reply.Missing {
		w.missing[function] = true
	}
	if reply.Missing || reply.Return != int32(abi.SUCCESS) {
		return 0, nil
	}
	return binary.NativeEndian.Uint64(reply.Buffers[0]), nil
}

// explore finds out what the other arguments of functions about a GPU can be: numbers of fans, links, processes and the like.
func (w *walker) explore(gpu *object) error {
	gpu.values = map[string][]uint64{}
	var failed error
	ask := func(function string, values map[string]uint64) *Answer {
		a, err := w.ask(function, gpu, values)
		if err != nil && failed == nil {
			failed = err
		}
		return a
	}
	upTo := func(n uint64) (all []uint64) {
		for i := range n {
			all = append(all, i)
		}
		return all
	}
	if n, ok := ask("nvmlDeviceGetNumFans", nil).number("numFans"); ok {
		gpu.values["fan"] = upTo(min(n, 64))
	} else {
		gpu.values["fan"] = upTo(1)
	}
	links := uint64(0)
	for links < abi.NVLINK_MAX_LINKS && ask("nvmlDeviceGetNvLinkState", map[string]uint64{"link": links}).OK() {
		links++
	}
	gpu.values["link"] = upTo(max(links, 1))
	pids := func(function, list, field string) {
		a := ask(function, nil)
		for i := range a.length(list) {
			if pid, ok := a.number(fmt.Sprintf("%s[%d]%s", list, i, field)); ok && !slices.Contains(gpu.values["pid"], pid) {
				gpu.values["pid"] = append(gpu.values["pid"], pid)
			}
		}
	}
	for _, kind := range []string{"Compute", "Graphics"} {
		pids("nvmlDeviceGet"+kind+"RunningProcesses_v3", "infos", ".pid")
		pids("nvmlDeviceGet"+kind+"RunningProcesses_v2", "infos", ".pid")
		pids("nvmlDeviceGet"+kind+"RunningProcesses", "infos", ".pid")
	}
	pids("nvmlDeviceGetAccountingPids", "pids", "")
	clocks := ask("nvmlDeviceGetSupportedMemoryClocks", nil)
	for i := range clocks.length("clocksMHz") {
		if mhz, ok := clocks.number(fmt.Sprintf("clocksMHz[%d]", i)); ok {
			gpu.values["memoryClockMHz"] = append(gpu.values["memoryClockMHz"], mhz)
		}
	}
	vgpus := ask("nvmlDeviceGetSupportedVgpus", nil)
	for i := range vgpus.length("vgpuTypeIds") {
		if id, ok := vgpus.number(fmt.Sprintf("vgpuTypeIds[%d]", i)); ok {
			gpu.values["vgpuTypeId"] = append(gpu.values["vgpuTypeId"], id)
		}
	}
	gpu.values["profile"] = upTo(abi.GPU_INSTANCE_PROFILE_COUNT)
	for _, profile := range gpu.values["profile"] {
		for _, function := range []string{"nvmlDeviceGetGpuInstanceProfileInfoV", "nvmlDeviceGetGpuInstanceProfileInfo"} {
			if id, ok := ask(function, map[string]uint64{"profile": profile}).number("info.id"); ok && !slices.Contains(gpu.values["profileId"], id) {
				gpu.values["profileId"] = append(gpu.values["profileId"], id)
			}
		}
	}
	return failed
}

// ofGPU asks about what a GPU is divided into.
func (w *walker) ofGPU(gpu *object) error {
	var parts []*object
	add := func(kind, name string, handle uint64, values map[string][]uint64) *object {
		o := &object{kind, name, handle, gpu.gpu, values}
		w.handles[handle] = name
		parts = append(parts, o)
		return o
	}
	for _, profile := range gpu.values["profileId"] {
		found, err := w.list("nvmlDeviceGetGpuInstances", gpu, map[string]uint64{"profileId": profile}, "gpuInstances")
		if err != nil {
			return err
		}
		for _, handle := range found {
			id, err := w.idOf("nvmlGpuInstanceGetInfo", handle, "nvmlGpuInstanceInfo_t")
			if err != nil {
				return err
			}
			name := fmt.Sprintf("%s GI %d", gpu.name, id)
			gi := add("nvmlGpuInstance_t", name, handle, map[string][]uint64{"vgpuTypeId": gpu.values["vgpuTypeId"]})
			gpu.values["id"] = append(gpu.values["id"], id)
			for profile := range uint64(abi.COMPUTE_INSTANCE_PROFILE_COUNT) {
				gi.values["profile"] = append(gi.values["profile"], profile)
				info, err := w.ask("nvmlGpuInstanceGetComputeInstanceProfileInfo", gi, map[string]uint64{"profile": profile, "engProfile": 0})
				if err != nil {
					return err
				}
				if id, ok := info.number("info.id"); ok {
					gi.values["profileId"] = append(gi.values["profileId"], id)
				}
			}
			for _, profile := range gi.values["profileId"] {
				found, err := w.list("nvmlGpuInstanceGetComputeInstances", gi, map[string]uint64{"profileId": profile}, "computeInstances")
				if err != nil {
					return err
				}
				for _, handle := range found {
					id, err := w.idOf("nvmlComputeInstanceGetInfo_v2", handle, "nvmlComputeInstanceInfo_t")
					if err != nil {
						return err
					}
					gi.values["id"] = append(gi.values["id"], id)
					add("nvmlComputeInstance_t", fmt.Sprintf("%s CI %d", name, id), handle, nil)
				}
			}
		}
	}
	count, err := w.ask("nvmlDeviceGetMaxMigDeviceCount", gpu, nil)
	if err != nil {
		return err
	}
	n, _ := count.number("count")
	for i := range min(n, 64) {
		handle, err := w.handle("nvmlDeviceGetMigDeviceHandleByIndex", Word{Value: gpu.word}, Word{Value: i})
		if err != nil {
			return err
		}
		if handle != 0 {
			mig := add("nvmlDevice_t", fmt.Sprintf("%s MIG %d", gpu.name, i), handle, nil)
			if err := w.explore(mig); err != nil {
				return err
			}
		}
	}
	vgpus, err := w.ask("nvmlDeviceGetActiveVgpus", gpu, nil)
	if err != nil {
		return err
	}
	for i := range vgpus.length("vgpuInstances") {
		if id, ok := vgpus.number(fmt.Sprintf("vgpuInstances[%d]", i)); ok {
			vgpu := &object{"nvmlVgpuInstance_t", fmt.Sprintf("vGPU %d", id), id, gpu.gpu, map[string][]uint64{}}
			pids, err := w.ask("nvmlVgpuInstanceGetAccountingPids", vgpu, nil)
			if err != nil {
				return err
			}
			for p := range pids.length("pids") {
				if pid, ok := pids.number(fmt.Sprintf("pids[%d]", p)); ok {
					vgpu.values["pid"] = append(vgpu.values["pid"], pid)
				}
			}
			parts = append(parts, vgpu)
		}
	}
	for _, part := range parts {
		if err := w.about(part); err != nil {
			return err
		}
	}
	// The numbers of the instances were not known before.
	if len(gpu.values["id"]) > 0 && w.functions["nvmlDeviceGetGpuInstanceById"].Reads {
		return w.function(w.functions["nvmlDeviceGetGpuInstanceById"], gpu)
	}
	return nil
}

// idOf is the number of an instance.
func (w *walker) idOf(function string, handle uint64, info string) (uint64, error) {
	reply, err := w.call(Question{Function: function, Words: []Word{{Value: handle}, {Buffer: true}}, Buffers: []Buffer{{Size: w.size(info)}}})
	if err != nil || reply.Missing || reply.Return != int32(abi.SUCCESS) {
		return 0, err
	}
	a := &Answer{Leaves: w.decode(nil, "info", info, reply.Buffers[0])}
	id, _ := a.number("info.id")
	return id, nil
}

// list are the handles in a list.
func (w *walker) list(function string, o *object, values map[string]uint64, param string) ([]uint64, error) {
	f := w.functions[function]
	if w.skip[function] || w.missing[function] {
		return nil, nil
	}
	q, places := w.question(f, o, values, 0, 64)
	reply, err := w.call(q)
	if err != nil || reply.Missing || reply.Return != int32(abi.SUCCESS) {
		return nil, err
	}
	for _, p := range f.Params {
		if p.Name == param {
			n := min(binary.NativeEndian.Uint32(reply.Buffers[places[p.Length]]), 64)
			var all []uint64
			for i := range n {
				all = append(all, binary.NativeEndian.Uint64(reply.Buffers[places[p.At]][8*i:]))
			}
			return all, nil
		}
	}
	return nil, nil
}

// units asks about the S-class units.
func (w *walker) units() error {
	count, err := w.ask("nvmlUnitGetCount", &object{}, nil)
	if err != nil {
		return err
	}
	n, _ := count.number("unitCount")
	for i := range min(n, 256) {
		handle, err := w.handle("nvmlUnitGetHandleByIndex", Word{Value: i})
		if err != nil {
			return err
		}
		if handle != 0 {
			name := fmt.Sprintf("unit %d", i)
			w.handles[handle] = name
			if err := w.about(&object{"nvmlUnit_t", name, handle, -1, nil}); err != nil {
				return err
			}
		}
	}
	return nil
}

// about asks every function that is about such an object.
func (w *walker) about(o *object) error {
	for i := range w.table.Functions {
		f := &w.table.Functions[i]
		if _, no := left[f.Name]; no || !f.Reads || objectOf(f) != o.kind {
			continue
		}
		if err := w.function(f, o); err != nil {
			return err
		}
	}
	return nil
}

// objectOf is the type of the objects that a function is about; empty for the machine.
func objectOf(f *calls.Function) string {
	if len(f.Params) > 0 {
		switch p := f.Params[0]; {
		case p.Role == "handle", p.Type == "nvmlVgpuTypeId_t" && p.Role == "value", p.Type == "nvmlVgpuInstance_t" && p.Role == "value":
			return p.Type
		}
	}
	switch f.Name {
	case "nvmlDeviceQueryDrainState":
		return "nvmlDevice_t"
	case "nvmlVgpuTypeGetMaxInstancesPerGpuInstance":
		return "nvmlVgpuTypeId_t"
	}
	return ""
}

// function asks a function about an object, once for each combination of its other arguments.
func (w *walker) function(f *calls.Function, o *object) error {
	if f.Name == "nvmlDeviceGetFieldValues" {
		return w.fields(f, o)
	}
	combinations := []map[string]uint64{nil}
	for _, in := range w.inputs(f, o) {
		var more []map[string]uint64
		for _, before := range combinations {
			for _, value := range in.values {
				values := maps.Clone(before)
				if values == nil {
					values = map[string]uint64{}
				}
				values[in.name] = value
				more = append(more, values)
			}
		}
		combinations = more
	}
	for _, values := range combinations {
		if _, err := w.ask(f.Name, o, values); err != nil {
			return err
		}
	}
	return nil
}

// ask calls a function, and keeps the answer. A call that was made before is not made again. A function that the library does not have
// has no answer.
func (w *walker) ask(function string, o *object, values map[string]uint64) (*Answer, error) {
	args := argsText(w.functions[function], o, values, w.gpus)
	if a := w.walk.find(function, o.name, args); a != nil {
		return a, nil
	}
	if w.skip[function] || w.missing[function] {
		return nil, nil
	}
	f := w.functions[function]
	a := &Answer{Function: function, Object: o.name, Args: args}
	version, room := 0, 64
	for try := 0; ; try++ {
		q, places := w.question(f, o, values, version, room)
		reply, err := w.call(q)
		if err != nil {
			return nil, &CallError{Call: a.Call(), Function: function, Err: err}
		}
		if reply.Missing {
			w.missing[function] = true
			return nil, nil
		}
		a.Return = abi.Return(reply.Return)
		if a.Return == abi.ERROR_ARGUMENT_VERSION_MISMATCH && version+1 < versions(f) {
			version++
			continue
		}
		if a.Return == abi.ERROR_INSUFFICIENT_SIZE && room < 1<<16 && try < 8 {
			room *= 16
			continue
		}
		if a.Return == abi.SUCCESS {
			a.Leaves = w.leaves(f, values, reply, places, version)
		}
		break
	}
	w.keep(a)
	return a, nil
}

func (w *walker) keep(a *Answer) {
	w.walk.Answers = append(w.walk.Answers, a)
	w.walk.byKey[key(a.Function, a.Object, a.Args)] = a
}

// CallError says which call did not come back.
type CallError struct {
	Call     string
	Function string
	Err      error
}

func (e *CallError) Error() string { return e.Call + ": " + e.Err.Error() }
func (e *CallError) Unwrap() error { return e.Err }

// versions is the largest number of versions that a struct of the function has.
func versions(f *calls.Function) int {
	n := 1
	for _, p := range f.Params {
		n = max(n, len(p.Versions))
	}
	return n
}
