package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKernelCMake: the CMake wrapper has the Makefile's targets, and passes on every variable that has a default there.
func TestKernelCMake(t *testing.T) {
	text := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(root, "kernel", name))
		require.NoError(t, err)
		return string(text)
	}
	makefile, cmake := text("Makefile"), text("CMakeLists.txt")

	var targets, defaults []string
	for _, m := range regexp.MustCompile(`(?m)^(?:\.PHONY:|verify\s*:=) (.*)$`).FindAllStringSubmatch(makefile, -1) {
		targets = append(targets, strings.Fields(m[1])...)
	}
	targets = slices.DeleteFunc(targets, func(target string) bool { return target == "$(verify)" || target == "clean" }) // CMake has its own clean
	for _, m := range regexp.MustCompile(`(?m)^([A-Z_]+)\s*\?=`).FindAllStringSubmatch(makefile, -1) {
		defaults = append(defaults, m[1])
	}

	list := func(name string) []string {
		t.Helper()
		m := regexp.MustCompile(`(?s)\nset\(` + name + `\s([^)]*)\)`).FindStringSubmatch(cmake)
		require.NotNil(t, m, name)
		return strings.Fields(m[1])
	}
	require.ElementsMatch(t, targets, append(list("targets"), "kernel"))
	require.Contains(t, cmake, "\nforward(kernel ALL)\n")
	require.Subset(t, list("variables"), defaults)

	// These targets must exist, even if both files agree that they do not.
	for _, target := range strings.Fields("kernel load reload unload fingerprint example verify-compute verify-cgroup verify-cgroup-policy " +
		"verify-cgroup-compute verify-cgroup-memory test-kunit test-kernel") {
		require.Contains(t, targets, target)
	}
	for _, variable := range strings.Fields("DRY_RUN ALLOW_ENFORCE MEMORY_TRACE COMPUTE_TRACE MEMORY_ALLOC_MIN_BYTES MEMORY_ALLOC_MAX_BYTES " +
		"MEMORY_TRACE_LIMIT_BYTES CLEAR_MEMORY_ON_LAST_CLOSE TIMESLICE_MIN_US TIMESLICE_MAX_US") {
		require.Contains(t, defaults, variable)
	}
}
