//go:build guest

package kernel

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// moduleCode is an address in the code of a removed module; addresses in a loaded module are shown with a name.
var moduleCode = regexp.MustCompile(`0xffffffffc[0-9a-f]{7}\b`)

// leaks lists the memory that removed modules allocated and did not free, with its number and the place of the
// allocation. The kernel records the caller of each allocation, since it was started with slub_debug.
func leaks() []string {
	var found []string
	// Memory that is freed later, after a grace period or by a worker, is no leak.
	for begun := time.Now(); time.Since(begun) < hangs; time.Sleep(200 * time.Millisecond) {
		if found = leaksNow(); len(found) == 0 {
			break
		}
	}
	return found
}

func leaksNow() []string {
	// Entries of /proc live as long as a cache refers to them.
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil {
		return []string{err.Error()}
	}
	tables, _ := filepath.Glob("/sys/kernel/debug/slab/*/alloc_traces")
	// These belong to the kernel, not to the module: nodes of trees in which the kernel keeps its ids, which stay for
	// others' entries; records of vmalloc's ranges, which the kernel frees when there are many; and records of a
	// process's mappings, among them pages that vgpu.ko mapped.
	tables = slices.DeleteFunc(tables, func(table string) bool {
		return strings.Contains(table, "/radix_tree_node/") || strings.Contains(table, "/vmap_area/") || strings.Contains(table, "/maple_node/")
	})
	if len(tables) == 0 {
		return []string{"no /sys/kernel/debug/slab/*/alloc_traces: start the kernel with slub_debug=U"}
	}
	var found []string
	for _, table := range tables {
		text, err := os.ReadFile(table)
		if err != nil {
			return []string{err.Error()}
		}
		// "COUNT CALLER … age=…", and on the next lines the callers of that function.
		count, caller := "", ""
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); strings.Contains(line, " age=") {
				count, caller = fields[0], fields[1]
			}
			// A removed entry of sysfs stays while the kernel caches its path. A device that is not freed shows in
			// other allocations.
			if at := moduleCode.FindString(line); at != "" && count != "" && !strings.HasPrefix(caller, "__kernfs_new_node+") {
				found = append(found, count+" "+strings.Split(table, "/")[5]+" "+caller+" "+at)
				count = "" // report it only once
			}
		}
	}
	text, err := os.ReadFile("/proc/vmallocinfo")
	if err != nil {
		return []string{err.Error()}
	}
	for line := range strings.Lines(string(text)) { // "FROM-TO BYTES CALLER …"
		if fields := strings.Fields(line); len(fields) > 2 && moduleCode.MatchString(fields[2]) {
			found = append(found, "vmalloc "+fields[2])
		}
	}
	return slices.DeleteFunc(found, func(leak string) bool { return slices.Contains(knownLeaks, leak) })
}

// knownLeaks are leaks that a test made on purpose.
var knownLeaks []string
