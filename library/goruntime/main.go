// Command goruntime writes an overlay for go build -overlay. With it, a program is linked with a changed Go runtime
// that leaves its process alone, and starts faster, in ways that no setting of Go's can achieve.
//
// For a library (goruntime library DIR):
//
//   - It handles no signal, not even while it is being loaded. A handler that runs during the load would install itself again
//     afterwards, and a Go host whose SIGURG it takes hangs. Its threads unblock no signal: otherwise they would take SIGCHLD,
//     SIGPROF and the first real-time signal from a host that blocks these and reads them from a signalfd.
//   - It does not change the limit of open files, since another thread of the host may be changing it.
//   - Its large stacks have a guard below them, since signal handlers of the host may run on them.
//   - It opens no descriptors for its poller. If a host closed these along with its own, the next garbage collection would
//     end the process.
//   - Its calls from C do not take a lock that all threads share.
//   - It gets the first pages of its heap from the kernel at once, not by a page fault each, and writes to fewer pages: it cuts
//     8 KB at a time into stacks, not 32.
//   - An expression of regexp.MustCompile is compiled when it is first used. The YAML reader has two, which would take a
//     fifth of the start of each process, with or without a YAML file. Classes of Unicode (\p) are an error in such an expression:
//     their tables would be made at each start too.
//
// For a program that only becomes another one (goruntime exec DIR):
//
//   - It handles no signal and unblocks none, so that the other program finds them unchanged.
//   - If standard input, output or error is closed, it opens no other file in its place.
//
// For a program that does its own work first and may be interrupted (goruntime launcher DIR) only the latter holds.
//
// All changes are made to files of one release of Go. So each release that was tried is listed here, with the hash of
// each file. Any other release stops the build, since a library that changes its process's signals is worse than none.
// NVMLFAB_UNPATCHED=1 builds with the unchanged runtime.
package main

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// releases are the releases of Go that the changes were tried with ("go1.26" for every go1.26.x), with the sha256 of
// each file that is changed. If a later release differs in such a file, add another entry after the tests of signals
// and descriptors pass with it.
var releases = map[string]map[string]string{
	"go1.26": {
		"runtime/sigtab_linux_generic.go": "0e618e00f7d446bc55e03083f76a276e481652603d10c96e7662e943d5101513",
		"runtime/netpoll_epoll.go":        "cd94172ee133e4e522a8091818c6d82c9fdb94a9c263d5004feee114f76f9624",
		"runtime/stack.go":                "0225942ade2eed1e4ec5a0e813c66b3ed06c142c33c987b2fd9e031a0b871d3d",
		"runtime/cgocall.go":              "9c4b5f7704610648df935176b35d942179a5c58e91ac22186ffa2786371ab8aa",
		"syscall/rlimit.go":               "f0eee111b4a1fd060d21d2a18878353242c9c9440da5aec97d74667ef634eb51",
		"runtime/malloc.go":               "67e74184452cc6cb5bedee04fbbd6f395822e1cffbb4f91ad4a484796d7f021f",
		"runtime/mheap.go":                "6147548986e268b53fca158135149396a586cfd7d82aef7669b06f59a113bc04",
		"regexp/regexp.go":                "addd07fbda0b622c063e0f5516b55c684d48ab9cc5d3a4a9f90d82b19c527772",
		"regexp/syntax/parse.go":          "d0f657113901da39d6118e4172206a0358b71c96ef43051cc0a741a0a4d04820",
		"regexp/exec.go":                  "cc9fda63ad7056d4c4abaaa49c00470f726be35ccee53f1c3fe73259e9634dd5",
		"runtime/fds_unix.go":             "82e2d0c6f73403b973c29c24e0e8aea8ad848f1c20c22cc1172a08ced04481de",
	},
}

// wanted is the release in go.mod. The error for an unknown release names it.
const wanted = "go1.26.8"

//go:embed _netpoll.go
var netpoll string

//go:embed _stack.go
var stack string

//go:embed _heap.go
var heap string

//go:embed _callback.go
var callback string

//go:embed _regexp.go
var late string

// change rewrites one file of Go's standard library.
type change struct {
	file string
	edit func(text string) string
}

// flags matches the flags in every line of the table of signals. The runtime leaves a signal without flags alone.
var flags = regexp.MustCompile(`(?m)^(\t/\* [0-9]+ \*/ )\{[^"]*"`)

var noSignals = change{"runtime/sigtab_linux_generic.go", func(text string) string {
	return flags.ReplaceAllString(text, `${1}{0, "`)
}}

var noDescriptors = change{"runtime/fds_unix.go", func(text string) string {
	return after("func checkfds() {", "return", text)
}}

// changes are the changes of each kind of build.
var changes = map[string][]change{
	"library": {
		noSignals,
		{"runtime/netpoll_epoll.go", func(string) string { return netpoll }},
		{"runtime/stack.go", func(text string) string {
			return after("func stackalloc(n uint32) stack {", "if n >= apartFrom { return stackallocApart(uintptr(n)) }",
				after("func stackfree(stk stack) {", "if stk.hi-stk.lo >= apartFrom { stackfreeApart(stk); return }", text)) +
				stack[strings.Index(stack, "// What follows"):]
		}},
		{"regexp/regexp.go", func(text string) string {
			return after("func MustCompile(str string) *Regexp {", "return &Regexp{expr: str}", text) +
				late[strings.Index(late, "// What follows"):]
		}},
		{"regexp/syntax/parse.go", func(text string) string {
			return after("func unicodeTable(name string) (tab, fold *unicode.RangeTable, sign int) {", "return nil, nil, 0", text)
		}},
		{"regexp/exec.go", func(text string) string {
			return after("func (re *Regexp) doExecute(r io.RuneReader, b []byte, s string, pos int, ncap int, dstCap []int) []int {",
				"re = re.compiled()", text)
		}},
		{"runtime/cgocall.go", func(text string) string {
			return after("import (", `"internal/runtime/atomic"`, strings.Replace(text, "<-main_init_done\n", "awaitInit()\n", 1)) +
				callback[strings.Index(callback, "// What follows"):]
		}},
		{"runtime/mheap.go", func(text string) string {
			return after("\t\trandNumPages := alignDown(randOffset, pageSize) / pageSize",
				"populateHeap(v+randNumPages*pageSize, nBase)", text) +
				heap[strings.Index(heap, "// What follows"):]
		}},
		{"runtime/malloc.go", func(text string) string {
			return strings.Replace(text, "\t_StackCacheSize = 32 * 1024\n", "\t_StackCacheSize = 8 * 1024\n", 1)
		}},
		{"syscall/rlimit.go", func(text string) string { return after("func init() {", "return", text) }},
	},
	"exec":     {noSignals, noDescriptors},
	"launcher": {noDescriptors},
}

// after inserts a statement into text, after the first line of a function.
func after(line, statement, text string) string {
	return strings.Replace(text, line+"\n", line+"\n\t"+statement+"\n", 1)
}

func main() {
	if err := run(os.Args[1:], os.Getenv("NVMLFAB_UNPATCHED") == "1", os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "nvmlfab:", err)
		os.Exit(1)
	}
}

// run writes DIR/overlay.json and the changed files. It changes the runtime of the go command in PATH. With unpatched
// the overlay is empty, and one line on stderr says so.
func run(args []string, unpatched bool, stderr io.Writer) error {
	if len(args) != 2 || changes[args[0]] == nil {
		return fmt.Errorf("usage: goruntime library|exec DIR")
	}
	dir, err := filepath.Abs(args[1])
	if err != nil {
		return err
	}
	out, err := exec.Command("go", "env", "GOVERSION", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	version, goroot, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	replace := map[string]string{}
	if unpatched {
		fmt.Fprintf(stderr, "nvmlfab: NVMLFAB_UNPATCHED=1: this %s has the runtime of %s as it is, "+
			"which changes signals and descriptors of its process\n", args[0], version)
	} else if replace, err = patch(changes[args[0]], version, goroot, dir); err != nil {
		return fmt.Errorf("%w; build with GOTOOLCHAIN=%s, or set NVMLFAB_UNPATCHED=1 for a runtime "+
			"that changes signals and descriptors of its process", err, wanted)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644)
}

// patch writes the changed files into dir and maps the path of each original to the path of its changed copy.
func patch(list []change, version, goroot, dir string) (map[string]string, error) {
	known := releases[series.FindString(version)]
	if known == nil {
		return nil, fmt.Errorf("the Go runtime of %s is not one that this build knows how to change",
			version)
	}
	replace := map[string]string{}
	for _, c := range list {
		path := filepath.Join(goroot, "src", c.file)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != known[c.file] {
			return nil, fmt.Errorf("%s of %s is not the file that this build knows how to change",
				path, version)
		}
		replace[path] = filepath.Join(dir, filepath.Base(c.file))
		if err := os.WriteFile(replace[path], []byte(c.edit(string(text))), 0o644); err != nil {
			return nil, err
		}
	}
	return replace, nil
}

// series is the part of a version that all of its minor releases share.
var series = regexp.MustCompile(`^go[0-9]+\.[0-9]+\b`)
