package tests

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestForkMany: the parent's threads are in calls whenever it forks. A child that used the parent's Go runtime would
// hang at its first collection, or read a heap that another thread was writing to.
func TestForkMany(t *testing.T) {
	program := coreProgram(t, "", "fork", linked()...)
	n := run(t, with(library, collecting...), program, "many", "200", "300000").succeeds(t).figures(t)
	assert.Equal(t, 200, n[0])
	assert.Positive(t, n[1], "collections in the parent")
	assert.Positive(t, n[3], "collections in the child with the fewest")
}

func TestFork(t *testing.T) {
	program := coreProgram(t, "", "fork", linked()...)
	for name, args := range map[string][]string{
		"ten generations":                 {"chain", "10"},
		"double":                          {"twice"},
		"before and after a life":         {"before"},
		"the child shuts down":            {"shutdowns"},
		"during the first nvmlInit":       {"starting", "40"},
		"while another thread starts":     {"restarting", "100"},
		"threads of the child":            {"threads"},
		"exec, posix_spawn and vfork":     {"programs"},
		"event sets":                      {"events"},
		"200,000 event sets":              {"crowds"},
		"event sets as lives end":         {"races", "20"},
		"a thousand lives":                {"growth", "1000"},
		"four thousand threads that pass": {"passers-by", "1000"},
		"without memfd_create":            {"without-memfd", "but files"},
	} {
		t.Run(name, func(t *testing.T) {
			out := run(t, with(library, "GOGC=1"), program, args...).succeeds(t)
			assert.Empty(t, out.stderr)
			if out.stdout != "" {
				t.Log(strings.TrimSpace(out.stdout))
			}
			switch args[0] {
			case "starting":
				assert.Positive(t, out.figures(t)[0], "forks inside nvmlInit")
			case "races":
				assert.Positive(t, out.figures(t)[0], "stale handles")
			}
		})
	}

	// A child that cannot get a core works without one, and says so at each call.
	t.Run("no room for a core", func(t *testing.T) {
		out := run(t, with(library), program, "without-memfd", "nor files").succeeds(t)
		for line := range strings.Lines(out.stderr) {
			assert.Regexp(t, `^nvmlfab: cannot copy the core .+\n$`, line)
		}
		assert.Equal(t, 2, strings.Count(out.stderr, "\n"), "%s", out.stderr)
	})
	t.Run("another configuration", func(t *testing.T) {
		out := run(t, with(library), program, "reconfigured", filepath.Join(t.TempDir(), "profile.yaml")).succeeds(t)
		assert.Empty(t, out.stderr)
	})
}
