package capture

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles/capture/calls"
)

// input is an argument that is tried with several values: a parameter, or the field of a struct.
type input struct {
	name   string
	values []uint64
}

// fieldInputs are the fields of structs that are read, by function. All other fields are 0, except for versions.
var fieldInputs = map[string][]string{
	"nvmlDeviceGetClockOffsets":                     {"info.type", "info.pstate"},
	"nvmlDeviceGetCoolerInfo":                       {"coolerInfo.index"},
	"nvmlDeviceGetFanSpeedRPM":                      {"fanSpeed.fan"},
	"nvmlDeviceGetTemperatureV":                     {"temperature.sensorType"},
	"nvmlDeviceGetRunningProcessDetailList":         {"plist.mode"},
	"nvmlDeviceGetAccountingStats_v2":               {"stats.pid"},
	"nvmlDeviceGetMemoryLimits_v1":                  {"limits.nameSpace"},
	"nvmlVgpuTypeGetMaxInstancesPerGpuInstance":     {"pMaxInstance.vgpuTypeId"},
	"nvmlGpuInstanceGetVgpuTypeCreatablePlacements": {"pCreatablePlacementInfo.vgpuTypeId"},
	"nvmlDeviceGetVgpuSchedulerState_v2":            {"pSchedulerStateInfo.engineId"},
	"nvmlDeviceGetVgpuSchedulerLog_v2":              {"pSchedulerLogInfo.engineId"},
	"nvmlGpuInstanceGetVgpuSchedulerState":          {"pSchedulerStateInfo.engineId"},
	"nvmlGpuInstanceGetVgpuSchedulerState_v2":       {"pSchedulerStateInfo.engineId"},
	"nvmlGpuInstanceGetVgpuSchedulerLog":            {"pSchedulerLogInfo.engineId"},
	"nvmlGpuInstanceGetVgpuSchedulerLog_v2":         {"pSchedulerLogInfo.engineId"},
}

// fixed are arguments with values of their own.
var fixed = map[string][]uint64{
	"lastSeenTimeStamp": {0},
	"cpuNumber":         {0},
	"engProfile":        {0},
	"displayIndex":      {0},
	"sensorIndex":       {15}, // all sensors
	"counter":           {0, 1},
	"engineId":          {1}, // the graphics engine
	"mode":              {0, 1, 2},
	"nameSpace":         {0},
	"length":            {80}, // of a struct's text
	"index":             {0},
}

// values are what an argument is tried with.
func (w *walker) values(f *calls.Function, o *object, name, typeName string) []uint64 {
	if name == "vgpuTypeId" && o.kind == "nvmlVgpuTypeId_t" {
		return []uint64{o.word}
	}
	if t := w.types[typeName]; t != nil && t.Kind == "enum" {
		var all []uint64
		for _, v := range t.Values {
			if n := uint64(v.Value); !strings.HasSuffix(v.Name, "_COUNT") && !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
		return all
	}
	switch {
	case name == "type" && f.Name == "nvmlUnitGetTemperature":
		return []uint64{0, 1, 2}
	case name == "scope" || name == "capability":
		return []uint64{0, 1}
	case name == "index" && strings.Contains(f.Name, "DeviceInfoByIndex"):
		n, _ := w.walk.find(strings.Replace(f.Name, "InfoByIndex", "Count", 1), "", "").number("deviceCount")
		var all []uint64
		for i := range min(n, 64) {
			all = append(all, i)
		}
		return all
	case name == "index":
		return o.values["fan"]
	case name == "pid" && o.kind == "":
		var all []uint64
		for _, gpu := range w.gpus {
			all = append(all, gpu.values["pid"]...)
		}
		slices.Sort(all)
		return slices.Compact(all)
	case name == "device2":
		var all []uint64
		for _, gpu := range w.gpus {
			if gpu != o {
				all = append(all, uint64(gpu.gpu))
			}
		}
		return all
	}
	if all, ok := o.values[name]; ok {
		return all
	}
	if slices.Contains([]string{"id", "profileId", "profile", "pid", "fan", "link", "memoryClockMHz", "vgpuTypeId"}, name) {
		return nil
	}
	if all, ok := fixed[name]; ok {
		return all
	}
	return nil
}

// inputs are the arguments of a function that are tried with several values.
func (w *walker) inputs(f *calls.Function, o *object) []input {
	var all []input
	for i, p := range f.Params {
		if (i == 0 && objectOf(f) != "") || p.Role == "handle" && p.Type != "nvmlDevice_t" {
			continue
		}
		switch p.Role {
		case "value":
			all = append(all, input{p.Name, w.values(f, o, p.Name, p.Type)})
		case "handle":
			all = append(all, input{p.Name, w.values(f, o, "device2", p.Type)})
		}
	}
	for _, field := range fieldInputs[f.Name] {
		param, name, _ := strings.Cut(field, ".")
		for _, p := range f.Params {
			if p.Name != param {
				continue
			}
			if d := w.field(p.Type, name); d != nil {
				all = append(all, input{field, w.values(f, o, name, d.Type)})
			}
		}
	}
	return all
}

// field is the field of a struct.
func (w *walker) field(typeName, name string) *calls.Field {
	t := w.types[w.resolved(typeName)]
	if t == nil {
		return nil
	}
	for i := range t.Fields {
		if t.Fields[i].Name == name {
			return &t.Fields[i]
		}
	}
	return nil
}

// argsText are the arguments of a call, in the order of the parameters.
func argsText(f *calls.Function, o *object, values map[string]uint64, gpus []*object) string {
	var all []string
	for _, p := range f.Params {
		if n, ok := values[p.Name]; ok {
			if p.Role == "handle" {
				all = append(all, fmt.Sprintf("GPU %d", n))
				continue
			}
			all = append(all, fmt.Sprintf("%s %d", p.Name, n))
		}
	}
	for _, field := range fieldInputs[f.Name] {
		if n, ok := values[field]; ok {
			all = append(all, fmt.Sprintf("%s %d", field, n))
		}
	}
	return strings.Join(all, ", ")
}

// texts is the room for a text.
const texts = 256

// question makes a call's arguments. version counts a struct's versions from the newest on, room is the number of elements that lists
// have room for. places are the numbers of the buffers by the position of the parameter; that of an array in a struct comes after all
// positions, at its parameter's position and 100.
func (w *walker) question(f *calls.Function, o *object, values map[string]uint64, version, room int) (Question, map[int]int) {
	q := Question{Function: f.Name, Slot: f.Slot}
	if f.Slot != 0 {
		q.Function = ""
	}
	places := map[int]int{}
	words := 0
	for _, p := range f.Params {
		words = max(words, p.At+1, p.Length+1)
	}
	q.Words = make([]Word, words)
	buffer := func(at, size int, content []byte) int {
		n := len(q.Buffers)
		q.Buffers = append(q.Buffers, Buffer{size, content})
		places[at] = n
		if at < words {
			q.Words[at] = Word{uint64(n), true}
		}
		return n
	}
	count := func(n int) []byte { return binary.NativeEndian.AppendUint64(nil, uint64(n)) }
	le := binary.NativeEndian
	for i, p := range f.Params {
		switch p.Role {
		case "handle", "value":
			switch value, ok := values[p.Name]; {
			case i == 0 && objectOf(f) != "":
				q.Words[p.At].Value = o.word
			case ok && p.Role == "handle":
				q.Words[p.At].Value = w.gpus[value].word
			case ok:
				q.Words[p.At].Value = value
			}
		case "buffer":
			buffer(p.At, texts, nil)
			q.Words[p.Length].Value = texts
		case "fixed":
			buffer(p.At, max(p.Size, texts), nil)
		case "sized":
			buffer(p.At, texts, nil)
			buffer(p.Length, 8, count(texts))
		case "bytes":
			buffer(p.At, 1<<16, nil)
			buffer(p.Length, 8, count(1<<16))
		case "list":
			buffer(p.At, max(p.Size, 1)*room, nil)
			buffer(p.Length, 8, count(room))
		case "also":
			buffer(p.At, max(p.Size, 1)*room, nil)
		case "slice":
			buffer(p.At, max(p.Size, 1)*room, nil)
			q.Words[p.Length].Value = uint64(room)
		case "out", "in":
			buffer(p.At, max(p.Size, 8), nil)
		case "struct", "const", "versioned":
			name, size, content := w.layout(p, version)
			if f.Name == "nvmlDeviceQueryDrainState" {
				content = w.pciInfo(o)
			}
			set := func(field string, value uint64) {
				if d := w.field(name, field); d != nil && d.Offset+d.Size <= size {
					if d.Size >= 8 {
						le.PutUint64(content[d.Offset:], value)
					} else if d.Size >= 4 {
						le.PutUint32(content[d.Offset:], uint32(value))
					} else {
						content[d.Offset] = byte(value)
					}
				}
			}
			for field, value := range values {
				if param, name, ok := strings.Cut(field, "."); ok && param == p.Name {
					set(name, value)
				}
			}
			n := buffer(p.At, size, content)
			if p.Fills != "" {
				set(p.Room, uint64(room))
				inside := buffer(p.At+100, 512*room, nil)
				if d := w.field(name, p.Fills); d != nil && d.Offset+8 <= size {
					q.Pointers = append(q.Pointers, Pointer{n, d.Offset, inside})
				}
			}
		}
	}
	return q, places
}

// layout is the type of a struct in a version, its size, and its content before the call.
func (w *walker) layout(p calls.Param, version int) (name string, size int, content []byte) {
	name = w.resolved(p.Type)
	if len(p.Versions) == 0 {
		size = max(p.Size, w.size(name))
		return name, size, make([]byte, size)
	}
	v := p.Versions[max(len(p.Versions)-1-version, 0)]
	newest := fmt.Sprintf("_v%d_t", p.Versions[len(p.Versions)-1].Version>>24)
	if stem, ok := strings.CutSuffix(name, newest); ok {
		if older := fmt.Sprintf("%s_v%d_t", stem, v.Version>>24); w.types[older] != nil {
			name = older
		}
	}
	size = max(v.Size, w.size(name))
	content = make([]byte, size)
	binary.NativeEndian.PutUint32(content, v.Version)
	return name, size, content
}

// pciInfo is the struct that names a GPU by its place on the bus.
func (w *walker) pciInfo(o *object) []byte {
	f := w.functions["nvmlDeviceGetPciInfo_v3"]
	q, places := w.question(f, o, nil, 0, 1)
	reply, err := w.call(q)
	if err != nil || reply.Missing || reply.Return != int32(abi.SUCCESS) {
		return make([]byte, w.size("nvmlPciInfo_t"))
	}
	return reply.Buffers[places[1]]
}

// leaves are the values of an answer.
func (w *walker) leaves(f *calls.Function, values map[string]uint64, reply Reply, places map[int]int, version int) []Leaf {
	var all []Leaf
	at := func(position int) []byte { return reply.Buffers[places[position]] }
	var length int // of the list before, for those under the same count
	for _, p := range f.Params {
		switch p.Role {
		case "buffer", "fixed", "sized":
			all = append(all, Leaf{p.Name, cString(at(p.At))})
		case "bytes":
			n := min(int(binary.NativeEndian.Uint32(at(p.Length))), len(at(p.At)))
			all = append(all, Leaf{p.Name, fmt.Sprintf("%x", at(p.At)[:n])})
		case "list":
			length = int(binary.NativeEndian.Uint32(at(p.Length)))
			all = w.elements(all, p.Name, p.Type, length, at(p.At))
		case "also":
			all = w.elements(all, p.Name, p.Type, length, at(p.At))
		case "slice":
			n := len(trimmed(at(p.At)))
			size := max(w.size(p.Type), 1)
			all = w.elements(all, p.Name, p.Type, (n+size-1)/size, at(p.At))
		case "out":
			all = w.decode(all, p.Name, p.Type, at(p.At))
		case "struct", "versioned":
			name, _, _ := w.layout(p, version)
			from := at(p.At)
			before := len(all)
			all = w.decode(all, p.Name, name, from)
			if p.Role == "versioned" {
				all = slices.DeleteFunc(all, func(l Leaf) bool { return l.Path == p.Name+".version" })
			}
			if p.Fills != "" {
				room := w.field(name, p.Room)
				fills := w.field(name, p.Fills)
				if room != nil && fills != nil {
					all = slices.DeleteFunc(all, func(l Leaf) bool { return l.Path == p.Name+"."+p.Room })
					n := int(binary.NativeEndian.Uint32(from[room.Offset:]))
					all = w.elements(all, p.Name+"."+p.Fills, fills.Type, n, at(p.At+100))
				}
			}
			for field := range values { // what was asked is no answer
				if param, _, ok := strings.Cut(field, "."); ok && param == p.Name {
					all = append(all[:before:before], slices.DeleteFunc(slices.Clone(all[before:]), func(l Leaf) bool { return l.Path == field })...)
				}
			}
		}
	}
	return all
}

// fields asks for the fields of nvmlDeviceGetFieldValues, for the scopes that have a meaning: 0, and the numbers of the links.
func (w *walker) fields(f *calls.Function, o *object) error {
	if w.skip[f.Name] || w.missing[f.Name] {
		return nil
	}
	size := w.size("nvmlFieldValue_t")
	id, scope := w.field("nvmlFieldValue_t", "fieldId"), w.field("nvmlFieldValue_t", "scopeId")
	kind, ret, value := w.field("nvmlFieldValue_t", "valueType"), w.field("nvmlFieldValue_t", "nvmlReturn"), w.field("nvmlFieldValue_t", "value")
	le := binary.NativeEndian
	scopes := max(len(o.values["link"]), 4)
	for s := range scopes {
		n := int(abi.FI_MAX) - 1
		content := make([]byte, size*n)
		for i := range n {
			le.PutUint32(content[i*size+id.Offset:], uint32(i+1))
			le.PutUint32(content[i*size+scope.Offset:], uint32(s))
		}
		reply, err := w.call(Question{Function: f.Name, Words: []Word{{Value: o.word}, {Value: uint64(n)}, {Buffer: true}},
			Buffers: []Buffer{{len(content), content}}})
		if err != nil {
			return &CallError{Call: f.Name + "(" + o.name + ")", Function: f.Name, Err: err}
		}
		if reply.Missing {
			w.missing[f.Name] = true
			return nil
		}
		if reply.Return != int32(abi.SUCCESS) {
			w.keep(&Answer{Function: f.Name, Object: o.name, Return: abi.Return(reply.Return)})
			return nil
		}
		for i := range n {
			from := reply.Buffers[0][i*size : (i+1)*size]
			a := &Answer{Function: f.Name, Object: o.name, Args: fmt.Sprintf("fieldId %d, scopeId %d", i+1, s), Return: abi.Return(int32(le.Uint32(from[ret.Offset:])))}
			if a.Return == abi.SUCCESS {
				a.Leaves = []Leaf{{"value", fieldValue(le.Uint32(from[kind.Offset:]), from[value.Offset:value.Offset+8])}}
			}
			w.keep(a)
		}
	}
	return nil
}

// fieldValue is the value of a field by its type.
func fieldValue(kind uint32, from []byte) any {
	switch abi.ValueType_t(kind) {
	case abi.VALUE_TYPE_DOUBLE:
		return scalar(from, 8, true, true)
	case abi.VALUE_TYPE_UNSIGNED_INT:
		return scalar(from, 4, false, false)
	case abi.VALUE_TYPE_SIGNED_INT:
		return scalar(from, 4, true, false)
	case abi.VALUE_TYPE_SIGNED_LONG_LONG:
		return scalar(from, 8, true, false)
	case abi.VALUE_TYPE_UNSIGNED_SHORT:
		return scalar(from, 2, false, false)
	}
	return scalar(from, 8, false, false)
}
