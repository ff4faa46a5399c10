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

// moduleCode is an address in the code of a module that has been removed: one that is there has a name.
var moduleCode = regexp.MustCompile(`0xffffffffc[0-9a-f]{7}\b`)

// leaks lists the memory that modules allocated and left when they were removed, how often and where it was allocated: the kernel remembers who
// allocated what is in use, since it was started with slub_debug.
func leaks() []string {
	var found []string
	// What is freed later, after a grace period or by a worker, is no leak.
	for begun := time.Now(); time.Since(begun) < hangs; time.Sleep(200 * time.Millisecond) {
		if found = leaksNow(); len(found) == 0 {
			break
		}
	}
	return found
}

func leaksNow() []string {
	// Entries of /proc live as long as something in a cache names them.
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil {
		return []string{err.Error()}
	}
	tables, _ := filepath.Glob("/sys/kernel/debug/slab/*/alloc_traces")
	// Not the module's own: nodes of trees that the kernel numbers its things with, which stay for what others have put in them since; and
	// what the kernel notes of vmalloc's ranges, which it gives back when there are many, and of a process's mappings, among which are pages that
	// vgpu.ko mapped.
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
		// "COUNT CALLER … age=…", and below it the callers of that.
		count, caller := "", ""
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); strings.Contains(line, " age=") {
				count, caller = fields[0], fields[1]
			}
			// An entry of sysfs that is gone stays while the kernel remembers its path; a device that is not freed shows otherwise.
			if at := moduleCode.FindString(line); at != "" && count != "" && !strings.HasPrefix(caller, "__kernfs_new_node+") {
				found = append(found, count+" "+strings.Split(table, "/")[5]+" "+caller+" "+at)
				count = "" // once is enough
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

// knownLeaks are what a test left on purpose.
var knownLeaks []string
