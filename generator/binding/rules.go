package binding

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nvmlfab/nvmlfab/generator/model"
)

// Rule says of one parameter what its prototype does not tell. Param is the first parameter of the argument, or the
// array of a list.
type Rule struct {
	Param     string
	Role      Role
	Bytes     int64    // the size of the caller's buffer or struct, if no header gives it
	Smallest  bool     // the struct grew, and its callers cannot be told apart
	Counted   string   // a field that counts the elements of the struct's last member
	Versions  []uint32 // accepted versions that do not carry their size
	Macros    []string // accepted versions, by macro
	NullQuery bool
	Unasked   bool   // the count is only written; the array has room for all that there can be
	InBytes   bool   // the length counts bytes, not elements
	Crop      bool   // a text that does not fit is cut, not refused
	Optional  bool   // an out pointer that may be NULL
	Fills     string // a field that points to an array of the caller's, which is filled
	Room      string // the field with the number of elements that such an array has
	Counts    bool   // that field becomes the number of elements that there are
	Reads     bool   // such an array is read first; Room is the number of elements in it
	Stride    string // a method of the snapshot that says how far apart elements are
	Why       string
}

func (r *Rule) accepts(h *model.Header) []Accept {
	var out []Accept
	for _, v := range r.Versions {
		out = append(out, Accept{Version: v})
	}
	for _, name := range r.Macros {
		if a, ok := macroVersion(h, name); ok {
			out = append(out, a)
		}
	}
	return out
}

const (
	grew       = "the struct grew under the same name; callers of the oldest header have the smaller one"
	fillArray  = "an array whose length the caller passes by value"
	roomForAll = "documented: the array has room for as many instances as the profile allows, and the count is what is returned"
	listInside = "a list, with its count and its array in one struct"
	grewOnce   = "builds of driver 535 had a field more, and callers cannot be told apart: the profile decides"
	bothNull   = "documented: one of the two may be NULL"
	smiNull    = "nvidia-smi --query-gpu asks for one of the two"
)

// rules is the table of exceptions, by symbol.
var rules = map[string][]Rule{
	"nvmlComputeInstanceGetInfo":                 {{Param: "info", Smallest: true, Why: grew}},
	"nvmlDeviceGetAttributes":                    {{Param: "attributes", Smallest: true, Why: grew}},
	"nvmlDeviceGetComputeRunningProcesses":       {{Param: "infos", Smallest: true, Why: grew}},
	"nvmlDeviceGetGraphicsRunningProcesses":      {{Param: "infos", Smallest: true, Why: grew}},
	"nvmlDeviceGetComputeRunningProcesses_v3":    {{Param: "infos", Stride: "ProcessStride", Why: grewOnce}},
	"nvmlDeviceGetGraphicsRunningProcesses_v3":   {{Param: "infos", Stride: "ProcessStride", Why: grewOnce}},
	"nvmlDeviceGetMPSComputeRunningProcesses_v3": {{Param: "infos", Stride: "ProcessStride", Why: grewOnce}},
	"nvmlDeviceReadPRMCounters_v1":               {{Param: "counterList", Fills: "counters", Room: "numCounters", Reads: true, Why: "each counter of the array says what it asks for"}},
	"nvmlDeviceGetGridLicensableFeatures":        {{Param: "pGridLicensableFeatures", Bytes: 8 + 3*136, Why: "the first features ended with licenseInfo, as pynvml has them; headers keep only the name"}},
	"nvmlDeviceGetGridLicensableFeatures_v2":     {{Param: "pGridLicensableFeatures", Bytes: 8 + 3*264, Why: "the second features ended with productName, as pynvml has them; headers keep only the name"}},
	"nvmlDeviceGetGridLicensableFeatures_v3":     {{Param: "pGridLicensableFeatures", Smallest: true, Why: grew}},
	"nvmlDeviceGetPciInfo":                       {{Param: "pci", Bytes: 32, Why: "the first nvmlPciInfo_t ended with pciDeviceId; headers keep only the name"}},
	"nvmlDeviceGetPciInfo_v2":                    {{Param: "pci", Bytes: 36, Why: "the second nvmlPciInfo_t ended with pciSubSystemId and reserved words"}},
	"nvmlDeviceGetNvLinkRemotePciInfo":           {{Param: "pci", Bytes: 36, Why: "the second nvmlPciInfo_t, as nvmlDeviceGetPciInfo_v2"}},
	"nvmlDeviceRemoveGpu":                        {{Param: "pciInfo", Bytes: 36, Why: "the second nvmlPciInfo_t, as nvmlDeviceGetPciInfo_v2"}},
	"nvmlDeviceGetDriverModel":                   {{Param: "current", Optional: true, Why: bothNull}, {Param: "pending", Optional: true, Why: bothNull}},
	"nvmlDeviceGetDriverModel_v2":                {{Param: "current", Optional: true, Why: bothNull}, {Param: "pending", Optional: true, Why: bothNull}},
	"nvmlDeviceGetGpuOperationMode":              {{Param: "current", Optional: true, Why: smiNull}, {Param: "pending", Optional: true, Why: smiNull}},
	"nvmlDeviceGetGspFirmwareVersion":            {{Param: "version", Role: FixedText, Bytes: 0x40, Why: "NVML_GSP_FIRMWARE_VERSION_BUF_SIZE; no length is passed"}},
	"nvmlDeviceGetMemoryAffinity":                {{Param: "nodeSetSize", Role: Slice, Why: fillArray}},
	"nvmlDeviceGetCpuAffinity":                   {{Param: "cpuSetSize", Role: Slice, Why: fillArray}},
	"nvmlDeviceGetCpuAffinityWithinScope":        {{Param: "cpuSetSize", Role: Slice, Why: fillArray}},
	"nvmlDeviceGetFieldValues":                   {{Param: "valuesCount", Role: Slice, Why: fillArray + "; each element has its own return code"}},
	"nvmlDeviceClearFieldValues":                 {{Param: "valuesCount", Role: Slice, Why: fillArray + "; each element has its own return code"}},
	"nvmlDeviceGetSupportedPerformanceStates":    {{Param: "pstates", Role: Slice, InBytes: true, Why: fillArray + ", in bytes"}},
	"nvmlDeviceSetTemperatureThreshold":          {{Param: "temp", Role: In, Why: "the new threshold, read through a pointer"}},
	"nvmlDeviceGetEncoderStats":                  {{Param: "sessionCount", Role: Out, Why: "three numbers, not a list"}},
	"nvmlVgpuInstanceGetEncoderStats":            {{Param: "sessionCount", Role: Out, Why: "three numbers, not a list"}},
	"nvmlDeviceGetSamples": {
		{Param: "sampleValType", Role: Out, Why: "stands before a list, not in it"},
		{Param: "samples", NullQuery: true, Why: "documented: a NULL array asks for the size"},
	},
	"nvmlDeviceGetVgpuUtilization":                        {{Param: "sampleValType", Role: Out, Why: "stands before a list, not in it"}},
	"nvmlDeviceGetRetiredPages_v2":                        {{Param: "timestamps", Role: Also, Why: "a second array under the same count"}},
	"nvmlDeviceGetTopologyNearestGpus":                    {{Param: "deviceArray", NullQuery: true, Why: "documented: a count of 0 asks for the size"}},
	"nvmlSystemGetTopologyGpuSet":                         {{Param: "deviceArray", NullQuery: true, Why: "documented: a count of 0 asks for the size"}},
	"nvmlDeviceGetGpuInstancePossiblePlacements":          {{Param: "placements", NullQuery: true, Why: "documented: a NULL array asks for the size"}},
	"nvmlDeviceGetGpuInstancePossiblePlacements_v2":       {{Param: "placements", NullQuery: true, Why: "documented: a NULL array asks for the size"}},
	"nvmlDeviceGetGpuInstances":                           {{Param: "gpuInstances", Unasked: true, Why: roomForAll}},
	"nvmlGpuInstanceGetComputeInstances":                  {{Param: "computeInstances", Unasked: true, Why: roomForAll}},
	"nvmlGpuInstanceGetComputeInstancePossiblePlacements": {{Param: "placements", NullQuery: true, Why: "documented: a NULL array asks for the size"}},
	"nvmlDeviceGetVgpuMetadata":                           {{Param: "pgpuMetadata", Role: SizedBytes, Why: "a struct with an opaque tail; bufferSize answers a query"}},
	"nvmlVgpuInstanceGetMetadata":                         {{Param: "vgpuMetadata", Role: SizedBytes, Why: "a struct with an opaque tail; bufferSize answers a query"}},
	"nvmlDeviceGetVgpuInstancesUtilizationInfo":           {{Param: "vgpuUtilInfo", Fills: "vgpuUtilArray", Room: "vgpuInstanceCount", Counts: true, Why: listInside}},
	"nvmlDeviceGetVgpuProcessesUtilizationInfo":           {{Param: "vgpuProcUtilInfo", Fills: "vgpuProcUtilArray", Room: "vgpuProcessCount", Counts: true, Why: listInside}},
	"nvmlDeviceGetVgpuTypeSupportedPlacements":            {{Param: "pPlacementList", Fills: "placementIds", Room: "count", Counts: true, Why: listInside}},
	"nvmlDeviceGetVgpuTypeCreatablePlacements":            {{Param: "pPlacementList", Fills: "placementIds", Room: "count", Counts: true, Why: listInside}},
	"nvmlGpuInstanceGetActiveVgpus":                       {{Param: "pVgpuInstanceInfo", Fills: "vgpuInstances", Room: "vgpuCount", Counts: true, Why: listInside}},
	"nvmlGpuInstanceGetCreatableVgpus":                    {{Param: "pVgpus", Fills: "vgpuTypeIds", Room: "vgpuCount", Counts: true, Why: listInside}},
	"nvmlGpuInstanceGetVgpuTypeCreatablePlacements":       {{Param: "pCreatablePlacementInfo", Fills: "placementIds", Room: "count", Counts: true, Why: listInside}},
	"nvmlGetVgpuCompatibility": {
		{Param: "vgpuMetadata", Role: Constant, Why: "read only; its version field is not the caller's"},
		{Param: "pgpuMetadata", Role: Constant, Why: "read only; its version field is not the caller's"},
	},
	"nvmlGpmMetricsGet":                     {{Param: "metricsGet", Versions: []uint32{1}, Counted: "numMetrics", Why: "grew with its version still 1; numMetrics says how many elements the caller has"}},
	"nvmlGpmQueryDeviceSupport":             {{Param: "gpmSupport", Versions: []uint32{1}, Why: "its version is a plain 1"}},
	"nvmlEventSetWait":                      {{Param: "data", Bytes: 24, Why: "the first nvmlEventData_t ended with eventData; headers keep only the name"}},
	"nvmlSystemEventSetWait":                {{Param: "request", Fills: "data", Room: "dataSize", Why: "an array whose length stands beside it in the struct"}},
	"nvmlDeviceGetProcessesUtilizationInfo": {{Param: "procesesUtilInfo", Fills: "procUtilArray", Room: "processSamplesCount", Counts: true, Why: listInside}},
	"nvmlDeviceGetRunningProcessDetailList": {{Param: "plist", Fills: "procArray", Room: "numProcArrayEntries", Counts: true, Why: listInside}},
	"nvmlSystemGetProcessName":              {{Param: "name", Crop: true, Why: "documented: the name is cropped to the buffer"}},
	"nvmlInternalSlot165":                   {{Param: "valuesCount", Role: Slice, Why: fillArray + "; each element has its own return code"}},
	"nvmlInternalSlot208":                   {{Param: "lanes", Role: Slice, Why: fillArray}},
	"nvmlInternalSlot211":                   {{Param: "version", Role: FixedText, Bytes: 0x40, Why: "as nvmlDeviceGetGspFirmwareVersion; no length is passed"}},
}

func ruleFor(symbol, param string) *Rule {
	for i := range rules[symbol] {
		if rules[symbol][i].Param == param {
			return &rules[symbol][i]
		}
	}
	return nil
}

// unusedRules reports rules that name no symbol or no parameter of it.
func unusedRules(byName map[string]*Symbol) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		s := byName[name]
		if s == nil {
			out = append(out, fmt.Sprintf("rule for %s: no header declares it", name))
			continue
		}
		for _, r := range rules[name] {
			if !slices.ContainsFunc(s.Func.Params, func(p model.Param) bool { return p.Name == r.Param }) {
				out = append(out, fmt.Sprintf("rule for %s: it has no parameter %q", name, r.Param))
			}
		}
	}
	return out
}
