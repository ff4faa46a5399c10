package tests

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const stubsHead = `# Stubs that programs hit

This page is written by a test (` + "`go test ./tests -run TestTracePrograms -update`" + `), which traces the programs below with
[nvmlfab trace](trace.md) and notes which functions they call that nvmlfab does not answer yet. A program gets NOT_SUPPORTED from
these, as from a driver whose GPU lacks what they are about, and goes on without it. The list is what to write next.
nvmlInternalSlotN is entry N of the table of unnamed functions that nvidia-smi has; what an entry means is found out by trying.

| stub | programs |
|---|---|
`

// allOfPynvml calls every function of pynvml that wants a device and nothing else, and prints the name of the library's function for
// each call that pynvml makes.
const allOfPynvml = `
import inspect, pynvml
called, find = [], pynvml._nvmlGetFunctionPointer
def noted(name):
    f = find(name)
    def call(*args):
        called.append(name)
        return f(*args)
    return call
pynvml._nvmlGetFunctionPointer = noted
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
for name, f in sorted(vars(pynvml).items()):
    if not name.startswith("nvmlDeviceGet") or not inspect.isfunction(f):
        continue
    wants = [p for p in inspect.signature(f).parameters.values() if p.default is p.empty]
    if len(wants) == 1 and wants[0].name in ("handle", "device"):
        try:
            f(device)
        except Exception:
            pass
pynvml.nvmlShutdown()
print(*called, sep="\n")
`

// TestTracePrograms: the traces of nvidia-smi, nvtop, pynvml and nvidia-ctk have every call, and the stubs among these are those of
// docs/stubs.md.
func TestTracePrograms(t *testing.T) {
	t.Parallel()
	namespaces(t)
	hit := map[string]map[string]bool{}
	trace := func(name string, flags []string, program ...string) (outcome, []tracedCall) {
		out, calls, last := traceOf(t, flags, program...)
		counts := map[string]int{}
		for _, c := range calls {
			counts[c.Call]++
			if c.Stub && c.Result == "NVML_ERROR_NOT_SUPPORTED" {
				if hit[c.Call] == nil {
					hit[c.Call] = map[string]bool{}
				}
				hit[c.Call][name] = true
			}
		}
		require.Contains(t, counts, "nvmlShutdown", name)
		assert.Len(t, last.Summary.Functions, len(counts), name)
		for _, f := range last.Summary.Functions {
			assert.EqualValues(t, counts[f.Name], f.Calls, "%s: %s", name, f.Name)
		}
		return out, calls
	}
	boards := []string{"h100", "t4"}
	for package_, driver := range map[string]string{"470": "470.256.02", "535": "535.261.03", "550": "550.163.01", "555": "555.58.02"} {
		smi := fetched(t, "nvidia-smi-"+package_, "nvidia-smi")
		boards := boards
		if package_ != "550" {
			boards = boards[:1]
		}
		for _, board := range boards {
			script := `"$0" -L && "$0" -q && "$0" topo -m && "$0" nvlink -s; "$0" dmon -c 1 && "$0" pmon -c 1 && "$0" --query-gpu=pstate,power.draw --format=csv && exec "$0"`
			out, _ := trace("nvidia-smi "+package_, []string{"--profile", board, "--gpus", "1", "--driver", driver}, "sh", "-c", script, smi)
			out.succeeds(t)
		}
	}

	nvtop := fetched(t, "nvtop", "nvtop")
	folders := filepath.Dir(fetched(t, "nvtop", "libncursesw.so.6")) + ":" + filepath.Dir(fetched(t, "nvtop", "libtinfo.so.6"))
	quits := strings.Replace(screen, "os.kill(pid, 9)", `os.write(fd, b"q"); os.waitpid(pid, 0)`, 1)
	for _, board := range boards[:1] {
		out, _ := trace("nvtop", []string{"--profile", board}, systemPython(t), "-c", quits, nvtop, folders, "GPU")
		assert.Equal(t, "True True\n", out.succeeds(t).stdout)
	}

	for _, bindings := range []string{"pynvml-11", "pynvml-12"} {
		modules := filepath.Dir(fetched(t, bindings, "pynvml.py"))
		for _, board := range boards {
			out, calls := trace(bindings, []string{"--profile", board}, "env", "PYTHONPATH="+modules, "PYTHONDONTWRITEBYTECODE=1", systemPython(t), "-c", allOfPynvml)
			var want, have []string
			for _, name := range out.succeeds(t).lines() {
				if name != "nvmlErrorString" {
					want = append(want, name)
				}
			}
			for _, c := range calls {
				if c.Call != "nvmlErrorString" {
					have = append(have, c.Call)
				}
			}
			assert.Equal(t, want, have, "%s on %s", bindings, board)
		}
	}

	ctk := containerToolkit(t)
	for _, board := range boards {
		out, _ := trace("nvidia-ctk cdi generate", []string{"--profile", board}, ctk, "cdi", "generate")
		assert.Contains(t, out.succeeds(t).stdout, "nvidia.com/gpu")
	}

	page := strings.Builder{}
	page.WriteString(stubsHead)
	for _, stub := range slices.SortedFunc(maps.Keys(hit), inOrder) {
		fmt.Fprintf(&page, "| `%s` | %s |\n", stub, strings.Join(slices.Sorted(maps.Keys(hit[stub])), ", "))
	}
	path := filepath.Join(root, "docs", "stubs.md")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(page.String()), 0o644))
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, page.String(), string(text), "docs/stubs.md is stale: run this test with -update")
}

// inOrder sorts names, those with numbers at the end by the number.
func inOrder(a, b string) int {
	m, _ := strconv.Atoi(strings.TrimPrefix(a, "nvmlInternalSlot"))
	n, _ := strconv.Atoi(strings.TrimPrefix(b, "nvmlInternalSlot"))
	if m != 0 && n != 0 {
		return m - n
	}
	return strings.Compare(a, b)
}
