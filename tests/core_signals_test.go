package tests

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestSignalsUnchanged compares the host's state before dlopen, after nvmlInit, after a million calls, in other
// threads, in a child and after nvmlShutdown: signal handlers, masks, stacks, limits, locale, environment, errno.
func TestSignalsUnchanged(t *testing.T) {
	program := coreProgram(t, "", "signals", late()...)
	for _, host := range []string{"bare", "handlers", "ignored"} {
		t.Run(host, func(t *testing.T) {
			out := run(t, nil, program, "unchanging", host, filepath.Join(library, "libnvidia-ml.so.1"), "1000000").succeeds(t)
			assert.Empty(t, out.stderr)
		})
	}
}

func TestSignals(t *testing.T) {
	program := coreProgram(t, "", "signals", linked()...)
	for name, host := range map[string]struct {
		args    []string
		collect bool // prints the number of collections at the end
	}{
		"gets signals during nvmlInit":       {[]string{"under-fire"}, false},
		"counts SIGURG":                      {[]string{"urgents"}, true},
		"provokes SIGSEGV and SIGPIPE":       {[]string{"provoking"}, false},
		"handles on the stack it is on":      {[]string{"ticking", "5000"}, true},
		"reads signals that it blocked":      {[]string{"reading"}, true},
		"reads signals that it blocks later": {[]string{"reading", "early"}, true},
		"gives up privileges":                {[]string{"changing-identity"}, false},
		"says nothing to a broken pipe":      {[]string{"unheard"}, false},
		"closes what it did not open":        {[]string{"closing"}, true},
		"is like a Java virtual machine":     {[]string{"machine", "1000"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			env := with(library)
			if host.collect {
				env = with(library, collecting...)
			}
			out := run(t, env, program, host.args...).succeeds(t)
			if host.collect {
				n := out.figures(t)
				assert.Positive(t, n[len(n)-1], "collections")
			} else {
				assert.Empty(t, out.stderr)
			}
		})
	}
}

// TestSignalsConfined: if there is too little memory for the core, nvmlInit reports that and the host goes on.
func TestSignalsConfined(t *testing.T) {
	out := run(t, with(library), coreProgram(t, "", "signals", linked()...), "confined").succeeds(t)
	for line := range strings.Lines(out.stderr) {
		assert.Regexp(t, `^nvmlfab: .+\n$`, line)
	}
	assert.Equal(t, 6, strings.Count(out.stderr, "\n"), "a line for each limit: %s", out.stderr)
}

// TestSignalsGoHost: two Go runtimes in one process, one of which needs SIGURG for preemption.
func TestSignalsGoHost(t *testing.T) {
	program := filepath.Join(t.TempDir(), "gohost")
	run(t, nil, "go", "build", "-o", program, "./tests/testdata/core/gohost").succeeds(t)
	out := run(t, with(library, append([]string{"GOMAXPROCS=1"}, collecting...)...), program, "100000").succeeds(t)
	host, both := out.figures(t)[0], strings.Count(out.stderr, "gc ")
	assert.Positive(t, host, "collections of the host")
	assert.Greater(t, both, host, "collections of both")
}
