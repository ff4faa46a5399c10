package machine

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// cpus writes the machine's CPUs and NUMA nodes, where the profile's topology gives them: a package for each node, with a
// core for each CPU. It does not give the memory, which is said to be 512 GiB a node.
func (b *builder) cpus() {
	nodes := map[uint32][]uint32{}
	for _, r := range b.roots {
		if r.numa >= 0 {
			nodes[uint32(r.numa)] = append(nodes[uint32(r.numa)], r.cpus...)
		}
	}
	var ids, all []uint32
	for id, cpus := range nodes {
		slices.Sort(cpus)
		nodes[id] = slices.Compact(cpus)
		ids, all = append(ids, id), append(all, nodes[id]...)
	}
	slices.Sort(ids)
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) == 0 {
		return
	}
	for name, list := range map[string][]uint32{"node": ids, "cpu": all} {
		for _, file := range []string{"online", "possible", "present"} {
			b.tree.file(System+name+"/"+file, ranges10(list)+"\n")
		}
	}
	for _, file := range []string{"has_cpu", "has_memory", "has_normal_memory"} {
		b.tree.file(System+"node/"+file, ranges10(ids)+"\n")
	}
	for _, id := range ids {
		b.node(id, ids, nodes[id])
	}
}

// System is where a tree has CPUs and NUMA nodes.
const System = "sys/devices/system/"

func (b *builder) node(id uint32, ids, cpus []uint32) {
	dir := fmt.Sprintf("%snode/node%d", System, id)
	const memory = 512 << 20 // KiB
	var far []string
	for _, other := range ids {
		far = append(far, map[bool]string{true: "10", false: "20"}[other == id])
	}
	b.tree.file(dir+"/distance", strings.Join(far, " ")+"\n")
	b.tree.file(dir+"/cpulist", ranges10(cpus)+"\n")
	b.tree.file(dir+"/cpumap", mask(cpus)+"\n")
	b.tree.file(dir+"/meminfo", fmt.Sprintf("Node %d MemTotal:       %d kB\nNode %d MemFree:        %d kB\nNode %d MemUsed:               0 kB\n",
		id, memory, id, memory, id))
	for i, cpu := range cpus {
		name := fmt.Sprintf("cpu%d", cpu)
		at := System + "cpu/" + name
		b.tree.between(dir+"/"+name, at)
		b.tree.between(fmt.Sprintf("%s/node%d", at, id), dir)
		if cpu != 0 {
			b.tree.knob(at+"/online", "1\n")
		}
		put := func(file, text string) { b.tree.file(at+"/topology/"+file, text+"\n") }
		put("physical_package_id", fmt.Sprint(id))
		put("core_id", fmt.Sprint(i))
		one := []uint32{cpu}
		put("thread_siblings", mask(one))
		put("thread_siblings_list", ranges10(one))
		put("core_cpus", mask(one))
		put("core_cpus_list", ranges10(one))
		put("core_siblings", mask(cpus))
		put("core_siblings_list", ranges10(cpus))
		put("package_cpus", mask(cpus))
		put("package_cpus_list", ranges10(cpus))
	}
}

// OnlineCPUs are this machine's online CPUs, ascending.
func OnlineCPUs() []uint32 {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil
	}
	var cpus profiles.CPUSet
	if cpus.UnmarshalText([]byte(strings.TrimSpace(string(text)))) != nil {
		return nil
	}
	return cpus
}
