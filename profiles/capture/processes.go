package capture

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles/draft"
)

// processes makes the processes on the GPU.
func (g *gpu) processes() {
	type process struct {
		types string
		keys  map[string]*yaml.Node
	}
	all := map[uint64]*process{}
	var order []uint64
	for _, kind := range []struct{ letter, name string }{{"C", "Compute"}, {"G", "Graphics"}} {
		for _, version := range []string{"_v3", "_v2", ""} {
			a := g.find("nvmlDeviceGet"+kind.name+"RunningProcesses"+version, "")
			if !a.OK() {
				continue
			}
			for i := range a.length("infos") {
				at := func(field string) (uint64, bool) { return a.number(fmt.Sprintf("infos[%d].%s", i, field)) }
				pid, ok := at("pid")
				if !ok || pid == 0 {
					continue
				}
				p := all[pid]
				if p == nil {
					p = &process{keys: map[string]*yaml.Node{}}
					all[pid] = p
					order = append(order, pid)
				}
				if p.types != "" {
					p.types += "+"
				}
				p.types += kind.letter
				if used, ok := at("usedGpuMemory"); ok && used != ^uint64(0) {
					p.keys["used_memory_mib"] = uintNode(used >> 20)
				}
				for key, field := range map[string]string{"gpu_instance_id": "gpuInstanceId", "compute_instance_id": "computeInstanceId"} {
					if id, ok := at(field); ok && id != uint64(abi.INVALID_GPU_INSTANCE_ID) {
						p.keys[key] = uintNode(id)
					}
				}
			}
			break
		}
	}
	loads := func(a *Answer, list string) {
		for i := range a.length(list) {
			at := func(field string) uint64 {
				n, _ := a.number(fmt.Sprintf("%s[%d].%s", list, i, field))
				return n
			}
			if p := all[at("pid")]; p != nil {
				for key, field := range map[string]string{"sm_util": "smUtil", "mem_util": "memUtil", "enc_util": "encUtil", "dec_util": "decUtil",
					"jpeg_util": "jpgUtil", "ofa_util": "ofaUtil"} {
					if n := at(field); n > 0 && n <= 100 {
						p.keys[key] = uintNode(n)
					}
				}
			}
		}
	}
	loads(g.find("nvmlDeviceGetProcessUtilization", "lastSeenTimeStamp 0"), "utilization")
	loads(g.find("nvmlDeviceGetProcessesUtilizationInfo", ""), "procesesUtilInfo.procUtilArray")
	var nodes []*yaml.Node
	for _, pid := range order {
		p := all[pid]
		entry := []any{"pid", uintNode(pid), "type", draft.Text(p.types)}
		if name, ok := g.walk.find("nvmlSystemGetProcessName", "", fmt.Sprintf("pid %d", pid)).text("name"); ok {
			if !g.options.KeepIdentifiers {
				name = name[strings.LastIndex(name, "/")+1:]
			}
			entry = append(entry, "name", draft.Text(name))
		}
		for _, key := range slices.Sorted(maps.Keys(p.keys)) {
			entry = append(entry, key, p.keys[key])
		}
		nodes = append(nodes, draft.Pairs(entry...))
	}
	if nodes != nil {
		g.set("processes", "nvmlDeviceGetComputeRunningProcesses_v3", draft.Lines(nodes...))
	}
}
