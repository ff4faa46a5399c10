package capture

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/draft"
)

// Difference is something that a library answered and that nvmlfab's library does not answer with the profile.
type Difference struct {
	Answer *Answer // of the library
	Path   string  // of the value; empty if it is the return code
	Want   string  // what the library answered
	Have   string  // what is answered with the profile
}

func (d Difference) String() string {
	what := d.Answer.Call()
	if d.Path != "" {
		what += " " + d.Path
	}
	return fmt.Sprintf("%s is %s, and with the profile %s", what, d.Want, d.Have)
}

// Moving are the values that change by themselves: those that two walks through one library answered differently.
func Moving(first, second *Walk) map[string]bool {
	moving := map[string]bool{}
	for _, a := range first.Answers {
		b := second.find(a.Function, a.Object, a.Args)
		if b == nil || a.Return != b.Return {
			moving[place(a, "")] = true
			continue
		}
		for _, path := range paths(a, b) {
			if a.value(path) != b.value(path) {
				moving[place(a, path)] = true
			}
		}
	}
	return moving
}

func place(a *Answer, path string) string { return key(a.Function, a.Object, a.Args) + "\x00" + path }

// paths are the paths of two answers, in the order of the first.
func paths(a, b *Answer) []string {
	var all []string
	for _, l := range slices.Concat(a.Leaves, b.Leaves) {
		if !slices.Contains(all, l.Path) {
			all = append(all, l.Path)
		}
	}
	return all
}

// clockwork are values that are the time, or grow with it, by function; "" stands for all of them, and the return code.
var clockwork = map[string][]string{
	"nvmlDeviceGetSamples":                      {""},
	"nvmlDeviceGetViolationStatus":              {"violTime.referenceTime"},
	"nvmlDeviceGetProcessUtilization":           {"timeStamp"},
	"nvmlDeviceGetProcessesUtilizationInfo":     {"timeStamp"},
	"nvmlDeviceGetTotalEnergyConsumption":       {"energy"},
	"nvmlDeviceGetNvLinkUtilizationCounter":     {"rxcounter", "txcounter"},
	"nvmlDeviceGetVgpuUtilization":              {"timeStamp"},
	"nvmlDeviceGetVgpuProcessUtilization":       {"timeStamp"},
	"nvmlDeviceGetVgpuSchedulerLog":             {""},
	"nvmlDeviceGetVgpuSchedulerLog_v2":          {""},
	"nvmlGpuInstanceGetVgpuSchedulerLog":        {""},
	"nvmlGpuInstanceGetVgpuSchedulerLog_v2":     {""},
	"nvmlDeviceGetVgpuInstancesUtilizationInfo": {"timeStamp"},
	"nvmlDeviceGetVgpuProcessesUtilizationInfo": {"timeStamp"},
}

// clockFields are the fields of nvmlDeviceGetFieldValues that grow with the time, by their numbers in the newest version.
var clockFields = []uint32{
	abi.FI_DEV_TOTAL_ENERGY_CONSUMPTION, abi.FI_DEV_ENERGY,
	abi.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, abi.FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
	abi.FI_DEV_NVLINK_THROUGHPUT_RAW_TX, abi.FI_DEV_NVLINK_THROUGHPUT_RAW_RX,
	abi.FI_DEV_NVLINK_COUNT_XMIT_PACKETS, abi.FI_DEV_NVLINK_COUNT_RCV_PACKETS,
	abi.FI_DEV_NVLINK_COUNT_XMIT_BYTES, abi.FI_DEV_NVLINK_COUNT_RCV_BYTES,
}

// identifiers are the values that are replaced unless somebody keeps them, by function.
var identifiers = map[string][]string{
	"nvmlDeviceGetUUID":             {"uuid"},
	"nvmlDeviceGetSerial":           {"serial"},
	"nvmlDeviceGetPdi":              {"pdi.value"},
	"nvmlDeviceGetHostname_v1":      {""},
	"nvmlDeviceGetPlatformInfo":     {"platformInfo.ibGuid", "platformInfo.chassisSerialNumber"},
	"nvmlDeviceGetGpuFabricInfo":    {"gpuFabricInfo.clusterUuid"},
	"nvmlDeviceGetGpuFabricInfoV":   {"gpuFabricInfo.clusterUuid"},
	"nvmlDeviceGetGpuFabricInfo_v4": {"gpuFabricInfo.clusterUuid"},
	"nvmlSystemGetProcessName":      {"name"},
	"nvmlUnitGetUnitInfo":           {"info.serial"},
	"nvmlVgpuInstanceGetUUID":       {"uuid"},
	"nvmlVgpuInstanceGetMdevUUID":   {"mdevUuid"},
	"nvmlVgpuInstanceGetVmID":       {"vmId"},
	"nvmlDeviceGetVgpuMetadata":     {"pgpuMetadata"},
	"nvmlVgpuInstanceGetMetadata":   {"vgpuMetadata"},
}

// Comparison is how alike two walks are.
type Comparison struct {
	Functions int // that both have
	Calls     int // compared
	Values    int // compared
	Moving    int // values that change by themselves and so are not compared
	Different []Difference
}

// Compare compares what a library answers with what is answered with a profile that was made of it.
func Compare(library, replay *Walk, moving map[string]bool, o Options) *Comparison {
	c := &Comparison{}
	functions := map[string]bool{}
	driver, _ := library.find("nvmlSystemGetDriverVersion", "", "").text("version")
	version := profiles.NVML(profiles.Branch(driver)).Number
	for _, a := range library.Answers {
		skipped := func(path string) bool {
			last := path[strings.LastIndex(path, ".")+1:]
			if list := clockwork[a.Function]; slices.Contains(list, "") || slices.Contains(list, path) || slices.Contains(list, last) {
				return true
			}
			if id, ok := a.fieldID(); ok && slices.Contains(clockFields, abi.FieldID(version, id)) {
				return true
			}
			return moving[place(a, path)]
		}
		private := func(path string) bool {
			list := identifiers[a.Function]
			return !o.KeepIdentifiers && (slices.Contains(list, path) || slices.Contains(list, ""))
		}
		functions[a.Function] = true
		c.Calls++
		b := replay.find(a.Function, a.Object, a.Args)
		switch {
		case private(""):
		case skipped(""):
			c.Moving++
		case b == nil:
			c.Different = append(c.Different, Difference{a, "", ReturnName(a.Return), "there is nothing to ask for"})
		case a.Return != b.Return:
			want := ReturnName(a.Return)
			if len(a.Leaves) > 0 {
				want = ""
				for _, l := range a.Leaves[:min(len(a.Leaves), 4)] {
					want += fmt.Sprintf("%s %v, ", l.Path, l.Value)
				}
				want = strings.TrimSuffix(want, ", ")
				if len(a.Leaves) > 4 {
					want += fmt.Sprintf(" and %d more", len(a.Leaves)-4)
				}
			}
			c.Different = append(c.Different, Difference{a, "", want, ReturnName(b.Return)})
		default:
			for _, path := range paths(a, b) {
				want, have := a.value(path), b.value(path)
				switch {
				case private(path):
				case skipped(path):
					c.Moving++
				default:
					c.Values++
					if want != have {
						c.Different = append(c.Different, Difference{a, path, valueText(want), valueText(have)})
					}
				}
			}
		}
	}
	c.Functions = len(functions)
	return c
}

func valueText(v any) string {
	switch v := v.(type) {
	case nil:
		return "absent"
	case string:
		return fmt.Sprintf("%q", v)
	}
	return fmt.Sprint(v)
}

// fieldID is the number of the field that was asked for.
func (a *Answer) fieldID() (id uint32, ok bool) {
	if a.Function != "nvmlDeviceGetFieldValues" {
		return 0, false
	}
	_, err := fmt.Sscanf(a.Args, "fieldId %d", &id)
	return id, err == nil
}

// errorNames are the errors that a profile can give a function, by NVML's numbers.
var errorNames = map[abi.Return]string{
	abi.ERROR_UNKNOWN: "unknown_error", abi.ERROR_NOT_SUPPORTED: "not_supported", abi.ERROR_NO_PERMISSION: "no_permission",
	abi.ERROR_RESET_REQUIRED: "reset_required", abi.ERROR_GPU_IS_LOST: "lost", abi.ERROR_NOT_READY: "not_ready", abi.ERROR_TIMEOUT: "timeout",
	abi.ERROR_NO_DATA: "no_data", abi.ERROR_IN_USE: "in_use", abi.ERROR_MEMORY: "memory", abi.ERROR_INVALID_STATE: "invalid_state",
}

// Errors are settings that let functions and fields fail which fail in the library, whatever they are asked for, and do not with the
// profile so far.
func Errors(library *Walk, different []Difference) map[int][]draft.Setting {
	type where struct {
		gpu  int
		what string // a function, or a field's number
	}
	subject := func(a *Answer) (w where, field bool, ok bool) {
		if _, err := fmt.Sscanf(a.Object, "GPU %d", &w.gpu); err != nil {
			return w, false, false
		}
		w.what = a.Function
		if id, ok := a.fieldID(); ok {
			w.what = fmt.Sprint(id)
			return w, true, true
		}
		return w, false, true
	}
	returns := map[where]map[abi.Return]bool{}
	for _, a := range library.Answers {
		if w, _, ok := subject(a); ok {
			if returns[w] == nil {
				returns[w] = map[abi.Return]bool{}
			}
			returns[w][a.Return] = true
		}
	}
	done := map[where]bool{}
	answers := map[int][]*yaml.Node{}
	for _, d := range different {
		name, ok := errorNames[d.Answer.Return]
		if !ok || d.Path != "" {
			continue
		}
		w, isField, ok := subject(d.Answer)
		if !ok || done[w] || len(returns[w]) != 1 {
			continue
		}
		entry := []any{"function", draft.Text(w.what), "error", draft.Text(name)}
		if isField {
			entry = []any{"field", draft.Num(w.what), "error", draft.Text(name)}
		} else if new(profiles.Function).UnmarshalText([]byte(w.what)) != nil {
			continue
		} else if _, known := profiles.Function(w.what).Number(); !known {
			continue
		}
		done[w] = true
		answers[w.gpu] = append(answers[w.gpu], draft.Pairs(entry...))
	}
	settings := map[int][]draft.Setting{}
	for gpu, list := range answers {
		settings[gpu] = []draft.Setting{{Key: "answers", Value: draft.Lines(list...)}}
	}
	return settings
}
